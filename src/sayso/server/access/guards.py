"""What stands before every route, as pure ASGI: hosts, origins, sizes, headers, a log line.

A page of another site can make a browser send requests here, but not choose their Origin; a name
that was rebound to this machine arrives with a Host that we are not. Both are refused before any
route looks at them.
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
from sayso.server.access import crossing
from sayso.server.access.signing_in import COOKIE
from sayso.server.metrics import Metrics
from sayso.server.wire.answers import Stopping, TooLarge, WrongHost, answer

log = logging.getLogger("sayso.access")

#: Arguments may have 4 MiB; the JSON around them, and their escapes, need room as well.
MOST_BYTES = 9 * 1024 * 1024
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": _POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
_HEADERS = tuple((name.encode(), value.encode()) for name, value in HEADERS.items())
_API_HEADERS = (*_HEADERS, (b"cache-control", b"no-store"))


class Guards:
    """The outermost layer of the app."""

    def __init__(
        self, app: ASGIApp, *, hosts: Iterable[str], origins: Iterable[str], metrics: Metrics
    ) -> None:
        self._app = app
        self._hosts = frozenset(_name_in(host) for host in hosts)
        self._origins = frozenset(origins)
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, number = time.perf_counter(), secrets.token_hex(6)
        status: int | None = None
        headers = Headers(scope=scope)
        page = self._page(headers)

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                _dress(scope, message, number)
                if page is not None:
                    message["headers"] += crossing.named(page)
            await send(message)

        try:
            try:
                self._check(scope, headers)
                asks = scope["method"] == "OPTIONS" and page is not None
                inner = crossing.preflight(headers) if asks else None
                await (inner or self._app)(scope, _capped(scope, receive), sent)
            except (WrongHost, TooLarge, NotAllowed) as error:
                await answer(error)(scope, receive, sent)
            except asyncio.CancelledError:
                if status is None:
                    await answer(_cut_off())(scope, receive, sent)
                raise
        finally:
            self._count(scope, status or 500, time.perf_counter() - began, number)

    def _page(self, headers: Headers) -> str | None:
        """The page elsewhere that sends this, if it is one that was named."""
        origin = headers.get("origin")
        return origin if origin is not None and origin.lower() in self._origins else None

    def _check(self, scope: Scope, headers: Headers) -> None:
        host = headers.get("host", "")
        if not _is_ours(host, self._hosts):
            raise WrongHost(
                f"this server is not {host!r:.100}: start it with --host-name, or open it by the "
                "name that it printed"
            )
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            raise TooLarge(f"a body has at most {MOST_BYTES:,} bytes: send less at once")
        if scope["method"] not in _SAFE:
            self._check_origin(headers, host)

    def _check_origin(self, headers: Headers, host: str) -> None:
        """A write comes from our own page, from a page that was named, or from no page at all."""
        origin = headers.get("origin")
        if origin is None:
            if COOKIE in headers.get("cookie", "") and "authorization" not in headers:
                raise NotAllowed("a write with a session's cookie needs its Origin: use the page")
            return
        if self._page(headers) is not None:
            return
        if _split(origin).netloc.lower() != host.lower():
            raise NotAllowed(f"a page of {origin!r:.100} may not write here")

    def _count(self, scope: Scope, status: int, seconds: float, number: str) -> None:
        route = scope.get("route")
        path = getattr(route, "path", "") or ("(page)" if status < 400 else "(none)")
        self._metrics.requests.labels(path, scope["method"], status).observe(seconds)
        log.info(
            "%s %s %d in %.1f ms",
            scope["method"],
            scope["path"],
            status,
            seconds * 1000,
            extra={"request_id": number, "status": status, "seconds": seconds},
        )


def _cut_off() -> Stopping:
    """What was done by then is done: a second try is told so, or does it."""
    return Stopping("the server is being stopped, and has not finished this: send it again")


def _dress(scope: Scope, message: Message, number: str) -> None:
    """Put on what every answer wears, where the route has not chosen something else."""
    given = [pair for pair in message["headers"] if pair[0] != b"x-request-id"]
    names = {name for name, _ in given}
    wanted = _API_HEADERS if scope["path"].startswith("/api") else _HEADERS
    missing = [pair for pair in wanted if pair[0] not in names]
    message["headers"] = [*given, *missing, (b"x-request-id", number.encode())]


@lru_cache(maxsize=256)
def _is_ours(host: str, names: frozenset[str]) -> bool:
    """An address, a name without a dot (no public name is one), or a name that we were given."""
    name = _split(f"//{host}").hostname or ""
    if "*" in names or name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return bool(name) and "." not in name
    return True


def _name_in(host: str) -> str:
    """The name alone, also where it was written as in a browser's address bar."""
    return _split(host if "//" in host else f"//{host}").hostname or host.lower()


def _split(url: str) -> SplitResult:
    """The parts of an address; one that cannot be read has none."""
    try:
        return urlsplit(url)
    except ValueError:
        return SplitResult("", "", "", "", "")


def _capped(scope: Scope, receive: Receive) -> Receive:
    """The body, counted as it comes: a length that was not announced counts as well."""
    if scope["method"] in _SAFE:
        return receive
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > MOST_BYTES:
            raise TooLarge(f"a body has at most {MOST_BYTES:,} bytes: send less at once")
        return message

    return counted
