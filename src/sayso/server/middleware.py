"""The ASGI middleware in front of every route: Host, Origin, body size, headers, access log.

Another site's page can make a browser send requests here, but cannot choose their ``Origin``. A
hostname rebound to this machine arrives with a ``Host`` that is not ours. Both are refused before
any route runs.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import secrets
import time
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sayso.errors import NotAllowed
from sayso.server import cors
from sayso.server.monitoring import Metrics
from sayso.server.responses import Stopping, TooLarge, WrongHost, error_response
from sayso.server.sessions import COOKIE

log = logging.getLogger("sayso.access")

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
_API_HEADERS = (*_HEADERS, (b"cache-control", b"no-store"))


class SecurityMiddleware:
    """The outermost layer of the app."""

    def __init__(
        self, app: ASGIApp, *, hosts: Iterable[str], origins: Iterable[str], metrics: Metrics
    ) -> None:
        self._app = app
        self._hosts = frozenset(_hostname(host) for host in hosts)
        self._origins = frozenset(origins)
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, request_id = time.perf_counter(), secrets.token_hex(6)
        status: int | None = None
        headers = Headers(scope=scope)
        origin = self._allowed_origin(headers)

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                _add_headers(scope, message, request_id)
                if origin is not None:
                    message["headers"] += cors.response_headers(origin)
            await send(message)

        try:
            try:
                self._check(scope, headers)
                preflight = None
                if scope["method"] == "OPTIONS" and origin is not None:
                    preflight = cors.preflight_response(headers)
                app = preflight or self._app
                await app(scope, _with_size_limit(scope, receive), send_with_headers)
            except (WrongHost, TooLarge, NotAllowed) as error:
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
        host = headers.get("host", "")
        if not _is_own_host(host, self._hosts):
            raise WrongHost(
                f"this server is not {host!r:.100}: start it with --host-name, or use the address "
                "that it printed"
            )
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            raise _too_large()
        if scope["method"] not in _SAFE_METHODS:
            self._check_origin(headers, host)

    def _check_origin(self, headers: Headers, host: str) -> None:
        """Allow a write from our own page, from an allowed origin, or from outside a browser."""
        origin = headers.get("origin")
        if origin is None:
            if COOKIE in headers.get("cookie", "") and "authorization" not in headers:
                raise NotAllowed(
                    "a write with a session cookie needs an Origin header: use the web app, or a "
                    "bearer token"
                )
            return
        if self._allowed_origin(headers) is not None:
            return
        if _split(origin).netloc.lower() != host.lower():
            raise NotAllowed(f"pages of {origin!r:.100} may not write here: allow it with --origin")

    def _log(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        route = scope.get("route")
        path = getattr(route, "path", "") or ("(page)" if status < 400 else "(none)")
        self._metrics.requests.labels(path, scope["method"], status).observe(seconds)
        log.info(
            "%s %s %d in %.1f ms",
            scope["method"],
            scope["path"],
            status,
            seconds * 1000,
            extra={"request_id": request_id, "status": status, "seconds": seconds},
        )


def _add_headers(scope: Scope, message: Message, request_id: str) -> None:
    """Add the headers of every response, except those that the route has set."""
    given = [pair for pair in message["headers"] if pair[0] != b"x-request-id"]
    names = {name for name, _ in given}
    wanted = _API_HEADERS if scope["path"].startswith("/api") else _HEADERS
    missing = [pair for pair in wanted if pair[0] not in names]
    message["headers"] = [*given, *missing, (b"x-request-id", request_id.encode())]


@lru_cache(maxsize=256)
def _is_own_host(host: str, names: frozenset[str]) -> bool:
    """Accept an IP address, a configured name, or a name without a dot (none is public)."""
    name = _split(f"//{host}").hostname or ""
    if "*" in names or name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return bool(name) and "." not in name
    return True


def _hostname(host: str) -> str:
    """Return the hostname of ``--host-name``, which may be written as a URL."""
    return _split(host if "//" in host else f"//{host}").hostname or host.lower()


def _split(url: str) -> SplitResult:
    """Split a URL; an invalid one has no parts."""
    try:
        return urlsplit(url)
    except ValueError:
        return SplitResult("", "", "", "", "")


def _with_size_limit(scope: Scope, receive: Receive) -> Receive:
    """Count the body as it arrives, because a chunked one announces no length."""
    if scope["method"] in _SAFE_METHODS:
        return receive
    seen = 0

    async def limited() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > MAX_BODY_BYTES:
            raise _too_large()
        return message

    return limited


def _too_large() -> TooLarge:
    return TooLarge(f"a body may have at most {MAX_BODY_BYTES:,} bytes: send less at once")
