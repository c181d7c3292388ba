"""CORS headers for the pages on other origins that ``--origin`` names.

Browsers ask with a preflight request before such a page may send a token or JSON, and hide every
response that does not name the page's origin. Cookies are never allowed: sessions are for our own
page.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response

_EXPOSED = "Retry-After, X-Request-Id, X-Vercel-Ai-Ui-Message-Stream"
_MAX_AGE = "600"


def normalize_origins(origins: str | Iterable[str]) -> list[str]:
    """Return origins as browsers send them. Raise ``ValueError`` if one is not an origin."""
    given = [origins] if isinstance(origins, str) else origins
    return [normalize_origin(origin) for origin in given]


def normalize_origin(origin: str) -> str:
    """Return an origin as browsers send it. Raise ``ValueError`` if it is not an origin."""
    try:
        parts = urlsplit(origin.strip().lower())
        default_port = {"https": 443, "http": 80}[parts.scheme]
        host, port = parts.hostname, parts.port
    except (AttributeError, KeyError, ValueError):
        host = port = None
    if host is None or origin.count("/") > 2 + origin.endswith("/") or "*" in origin:
        raise ValueError(
            f"{origin!r:.80} is not an origin: write it as https://app.example.com, without a path "
            "or wildcard"
        )
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}" + (f":{port}" if port not in (None, default_port) else "")


def response_headers(origin: str) -> list[tuple[bytes, bytes]]:
    """Return the headers that let a page of this origin read a response."""
    headers = {
        "access-control-allow-origin": origin,
        "access-control-expose-headers": _EXPOSED,
        "vary": "Origin",
    }
    return [(name.encode(), value.encode()) for name, value in headers.items()]


def preflight_response(headers: Headers) -> Response | None:
    """Return the response to a preflight request, or ``None`` if this is not one."""
    if "access-control-request-method" not in headers:
        return None
    allowed = {
        "access-control-allow-methods": "GET, POST, DELETE",
        # Allow any header: the origin was named, and a header alone grants no access.
        "access-control-allow-headers": headers.get("access-control-request-headers", ""),
        "access-control-max-age": _MAX_AGE,
    }
    return Response(status_code=204, headers=allowed)
