"""Pages elsewhere that were named (`--origin`): what their browsers have to be told (CORS).

A browser asks before a page of another origin may send a token or JSON, and shows it no answer that
does not name it. Cookies never travel that way: sessions are for our own page.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response

Pair = tuple[bytes, bytes]

_SEEN = "Retry-After, X-Request-Id, X-Vercel-Ai-Ui-Message-Stream"
_KEPT = "600"


def pages(origins: str | Iterable[str]) -> list[str]:
    """The pages as their browsers name them; one that no browser would name is refused."""
    return [_page(origin) for origin in ([origins] if isinstance(origins, str) else origins)]


def _page(origin: str) -> str:
    try:
        parts = urlsplit(origin.strip().lower())
        usual = {"https": 443, "http": 80}[parts.scheme]
        name, port = parts.hostname, parts.port
    except (AttributeError, KeyError, ValueError):
        name = port = None
    if name is None or origin.count("/") > 2 + origin.endswith("/") or "*" in origin:
        raise ValueError(
            f"{origin!r:.80} is no origin of a page: write it as https://app.example.com, without "
            "a path, and name each one"
        )
    name = f"[{name}]" if ":" in name else name
    return f"{parts.scheme}://{name}" + (f":{port}" if port not in (None, usual) else "")


def named(origin: str) -> list[Pair]:
    """What lets a page of this origin read an answer."""
    given = {
        "access-control-allow-origin": origin,
        "access-control-expose-headers": _SEEN,
        "vary": "Origin",
    }
    return [(name.encode(), value.encode()) for name, value in given.items()]


def preflight(headers: Headers) -> Response | None:
    """The answer to a browser that asks first, if that is what this is."""
    if "access-control-request-method" not in headers:
        return None
    allowed = {
        "access-control-allow-methods": "GET, POST, DELETE",
        # Whatever the page has in mind: it was named, and a header by itself opens nothing.
        "access-control-allow-headers": headers.get("access-control-request-headers", ""),
        "access-control-max-age": _KEPT,
    }
    return Response(status_code=204, headers=allowed)
