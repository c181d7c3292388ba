"""Pages elsewhere that were named (`--origin`): what their browsers have to be told (CORS).

A browser asks before a page of another origin may send a token or JSON, and shows it no answer that
does not name it. Cookies never travel that way: sessions are for our own page.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.responses import Response

Pair = tuple[bytes, bytes]

_SEEN = "Retry-After, X-Request-Id, X-Vercel-Ai-Ui-Message-Stream"
_KEPT = "600"


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
