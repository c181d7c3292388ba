"""The ASGI middleware in front of every route: Host, Origin, CORS, body size, headers, access log.

Another site's page can make a browser send requests here, but cannot choose their ``Origin`` or
``Sec-Fetch-Site``. A hostname rebound to this machine arrives with a ``Host`` that is not ours.
Both are refused before any route runs. What a page of another origin may do at all, it does with a
token: ``foreign_page`` tells routes that the session cookie does not count.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import secrets
import time
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sayso.errors import NotAllowed
from sayso.server.monitoring import Metrics
from sayso.server.responses import Malformed, Stopping, TooLarge, WrongHost, error_response

log = logging.getLogger("sayso.access")

COOKIE = "sayso_session"
#: Browsers take a cookie of this name only from our own host, over TLS, and for every path.
SECURE_COOKIE = f"__Host-{COOKIE}"

#: Arguments may take 4 MiB; the JSON around them and its escapes need room as well.
MAX_BODY_BYTES = 9 * 1024 * 1024
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_CONTENT_SECURITY_POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", _CONTENT_SECURITY_POLICY.encode()),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
)
_NO_STORE = (b"cache-control", b"no-store")
_HSTS = (b"strict-transport-security", b"max-age=31536000")
#: Headers that say who calls which server. Of two values, two parsers may each use another.
_SENT_ONCE = ("host", "origin", "authorization")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?", re.ASCII)
_FOREIGN_PAGE = "sayso.foreign_page"


def cookie_name(scheme: str) -> str:
    """Return the name of the session cookie on a server that is reached by this scheme."""
    return SECURE_COOKIE if scheme == "https" else COOKIE


def foreign_page(scope: Mapping[str, Any]) -> str | None:
    """Return the origin of the page that sent a request, if that page is not our own."""
    page: str | None = scope.get(_FOREIGN_PAGE)
    return page


class SecurityMiddleware:
    """The outermost layer of the app."""

    def __init__(
        self, app: ASGIApp, *, hosts: Iterable[str], origins: Iterable[str], metrics: Metrics
    ) -> None:
        self._app = app
        #: The configured host names, each with the scheme of its public URL if that was given.
        self._hosts = dict(map(_host_and_scheme, hosts))
        self._origins = frozenset(origins)
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        request_id = secrets.token_hex(6)
        status: int | None = None
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        # A proxy that ends TLS may not say so; then the public URL in the configuration does.
        scope["scheme"] = self._hosts.get(_hostname(host)) or scope["scheme"]
        scope[_FOREIGN_PAGE] = _foreign_page(headers, f"{scope['scheme']}://{host}")
        origin = self._allowed_origin(headers)

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                _add_headers(scope, message, request_id)
                if origin is not None:
                    message["headers"] += cors_headers(origin)
            await send(message)

        try:
            try:
                self._check(scope, headers)
                preflight = None
                if scope["method"] == "OPTIONS" and origin is not None:
                    preflight = preflight_response(headers)
                app = preflight or self._app
                await app(scope, _with_size_limit(scope, receive), send_with_headers)
            except (Malformed, WrongHost, TooLarge, NotAllowed) as error:
                await error_response(error)(scope, receive, send_with_headers)
            except asyncio.CancelledError:
                if status is None:
                    # A retry is safe: it does the work, or learns that it was done.
                    stopping = Stopping("the server is shutting down: send the request again")
                    await error_response(stopping)(scope, receive, send_with_headers)
                raise
        finally:
            self._log(scope, status or 500, time.perf_counter() - started, request_id)

    def _allowed_origin(self, headers: Headers) -> str | None:
        """Return the request's origin if it is one of the configured origins."""
        origin = headers.get("origin")
        return origin if origin is not None and origin.lower() in self._origins else None

    def _check(self, scope: Scope, headers: Headers) -> None:
        for name in _SENT_ONCE:
            if len(headers.getlist(name)) > 1:
                raise Malformed(f"the header {name.title()} was sent twice: send it once")
        host = headers.get("host", "")
        if not self._is_own_host(host, scope):
            raise WrongHost(
                f"this server is not {host!r:.100}: start it with --host-name, or use the address "
                "that it printed"
            )
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            raise _too_large()
        if scope["method"] not in _SAFE_METHODS:
            self._check_origin(scope, headers)

    def _is_own_host(self, host: str, scope: Scope) -> bool:
        """Accept an IP address, localhost, a configured name, or a call within this process."""
        name = _hostname(host)
        if not name or "*" in self._hosts or name in self._hosts or name == "localhost":
            return bool(name)
        return _is_address(name) or not _is_address((scope.get("client") or ("",))[0])

    def _check_origin(self, scope: Scope, headers: Headers) -> None:
        """Allow a write from our own page, from an allowed origin, or from outside a browser."""
        page = foreign_page(scope)
        if page is not None and self._allowed_origin(headers) is None:
            host = headers.get("host", "").lower()
            if page.lower() in (f"http://{host}", f"https://{host}"):
                raise NotAllowed(
                    f"this server was reached over {scope['scheme']}, its page over {page!r:.100}: "
                    f"let the proxy send X-Forwarded-Proto, or start with --host-name {page:.100}"
                )
            raise NotAllowed(f"pages on {page!r:.100} may not write here: allow it with --origin")
        cookie = COOKIE in headers.get("cookie", "") and "authorization" not in headers
        if cookie and "origin" not in headers:
            raise NotAllowed(
                "a write with a session cookie needs an Origin header: use the web app, or a "
                "bearer token"
            )

    def _log(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        route = scope.get("route")
        path = getattr(route, "path", "") or ("(page)" if status < 400 else "(none)")
        self._metrics.requests.labels(path, scope["method"], status).observe(seconds)
        log.info(
            "%s %s %d in %.1f ms",
            scope["method"],
            quote(scope["path"]),  # as it was sent, so that no line break ends the record
            status,
            seconds * 1000,
            extra={"request_id": request_id, "status": status, "seconds": seconds},
        )


def _add_headers(scope: Scope, message: Message, request_id: str) -> None:
    """Add the headers of every response, except those that the route has set."""
    headers = [pair for pair in message["headers"] if pair[0] != b"x-request-id"]
    names = {name for name, _ in headers}
    defaults = [*_HEADERS]
    if scope["path"].startswith("/api"):
        defaults.append(_NO_STORE)
    if scope["scheme"] == "https":
        defaults.append(_HSTS)
    missing = [pair for pair in defaults if pair[0] not in names]
    message["headers"] = [*headers, *missing, (b"x-request-id", request_id.encode())]


@lru_cache(maxsize=256)
def _hostname(host: str) -> str:
    """Return the name in a ``Host`` header; "" if that is not a host and a port."""
    match = _HOST.fullmatch(host)
    return match[1].lower().strip("[]") if match else ""


@lru_cache(maxsize=256)
def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _host_and_scheme(given: str) -> tuple[str, str]:
    """Return the name and the scheme of ``--host-name``, which may be written as a URL."""
    try:
        parts = urlsplit(given if "//" in given else f"//{given}")
        return parts.hostname or given.lower(), parts.scheme
    except ValueError:
        return given.lower(), ""


def _foreign_page(headers: Headers, own: str) -> str | None:
    """Return the origin that a browser names, unless it is our own.

    A page that hides its origin (``null``, or a request without one) is still not ours.
    """
    origin = headers.get("origin")
    if origin is not None:
        return None if _is_same_origin(origin, own) else origin
    site = headers.get("sec-fetch-site", "none")
    return None if site in ("none", "same-origin") else f"another origin ({site})"


@lru_cache(maxsize=256)
def _is_same_origin(origin: str, own: str) -> bool:
    try:
        return normalize_origin(origin) == normalize_origin(own)
    except ValueError:
        return False


def _with_size_limit(scope: Scope, receive: Receive) -> Receive:
    """Count the body as it arrives, because a chunked one announces no length."""
    if scope["method"] in _SAFE_METHODS:
        return receive
    size = 0

    async def limited() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > MAX_BODY_BYTES:
            raise _too_large()
        return message

    return limited


def _too_large() -> TooLarge:
    return TooLarge(f"a body may have at most {MAX_BODY_BYTES:,} bytes: send less at once")


# -- CORS: pages on other origins that ``--origin`` names
#
# Browsers ask with a preflight request before such a page may send a token or JSON, and hide every
# response that does not name the page's origin. Cookies are never allowed: sessions are for our own
# page.

_EXPOSED = "Retry-After, X-Request-Id, X-Vercel-Ai-Ui-Message-Stream"
_MAX_AGE = "600"


def normalize_origins(origins: str | Iterable[str]) -> list[str]:
    """Return origins as browsers send them. Raise ``ValueError`` if one is not an origin."""
    listed = [origins] if isinstance(origins, str) else origins
    return [normalize_origin(origin) for origin in listed]


def normalize_origin(origin: str) -> str:
    """Return an origin as browsers send it. Raise ``ValueError`` if it is not an origin."""
    try:
        parts = urlsplit(origin.strip().lower())
        default_port = {"https": 443, "http": 80}[parts.scheme]
        host = parts.hostname
        port = parts.port
    except (AttributeError, KeyError, ValueError):
        host = port = None
    if host is None or origin.count("/") > 2 + origin.endswith("/") or "*" in origin:
        raise ValueError(
            f"{origin!r:.80} is not an origin: write it as https://app.example.com, without a path "
            "or wildcard"
        )
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}" + (f":{port}" if port not in (None, default_port) else "")


def cors_headers(origin: str) -> list[tuple[bytes, bytes]]:
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
