"""Limits on connections, enforced while bytes arrive and before any application code runs.

A connection costs memory, a file descriptor, and time on the event loop that everyone shares. So
that no client can use them up without even sending a request, each connection has a deadline for
what it is doing now:

    head    the request line and the headers: ``HEADER_SECONDS``, and ``MAX_HEADER_BYTES``
    body    the body: ``BODY_SECONDS``, and one more for each ``BODY_RATE`` bytes that arrived
    busy    the application works on a complete request: no deadline, routes have their own
    idle    nothing: the keep-alive time

In every state but ``busy`` a connection waits for its client. A client may have
``Limits.connections`` that wait for more than ``PATIENCE``, so that a burst of whole requests is
answered, however many they are. The process may have as many as it has file descriptors. Beyond
either limit, those that have waited longest are closed: unlike a refusal, that lets an honest
request through while a flood of slow ones continues. A client that does not read its response is
cut off after ``WRITE_SECONDS``.

A trusted proxy (``FORWARDED_ALLOW_IPS``) that names its clients is many clients behind one address,
so the limit of one client does not apply to it.

uvicorn has no such limits of its own, but lets us replace its protocol.
"""

from __future__ import annotations

import asyncio
import ipaddress
import resource
import socket
import time
from collections import defaultdict
from functools import lru_cache
from typing import Any, ClassVar

from uvicorn.middleware.proxy_headers import _TrustedHosts
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from sayso.server.proxy import PEER, UNIX
from sayso.server.service import Limits

MAX_HEADER_BYTES = 64 * 1024
HEADER_SECONDS = 10.0
BODY_SECONDS = 15.0
#: The least bytes per second that a body may arrive with, beyond the first ``BODY_SECONDS``.
BODY_RATE = 32 * 1024
#: Bytes of a body that are not content: the frames of chunks, and trailers.
_MAX_FRAMING = 1024 * 1024
WRITE_SECONDS = 60.0
#: Seconds that a connection may wait before it counts against the limit of its client.
PATIENCE = 1.0
#: Seconds between looks at all deadlines. One timer for all is cheaper than one per request.
_SWEEP = 0.5
#: File descriptors for the store, the agents' tools and everything else in this process.
_RESERVED_FILES = 200
_MOST_FILES = 65_536

_HEAD, _BODY, _BUSY, _IDLE = range(4)


def limited_protocol(limits: Limits) -> type[HttpToolsProtocol]:
    """Return the protocol class for one server, for ``uvicorn.Config(http=...)``."""
    table = ConnectionTable(limits.connections, _raise_file_limit() - _RESERVED_FILES)
    return type("Limited", (LimitedProtocol,), {"table": table})


def _raise_file_limit() -> int:
    """Allow this process as many files as the system lets it have; return how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < limit:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        except (OSError, ValueError):  # macOS has a limit below the one that it reports
            limit = soft
    return limit


class ConnectionTable:
    """The open connections of a server: which of them wait for their client, and since when."""

    def __init__(self, per_client: int, most: int) -> None:
        self._per_client = per_client
        self._most = max(most, per_client)
        self._open: set[LimitedProtocol] = set()
        #: Connections that wait for their client, longest first: all, and by client with the time
        #: since when they do.
        self._waiting: dict[LimitedProtocol, None] = {}
        self._by_client: defaultdict[str, dict[LimitedProtocol, float]] = defaultdict(dict)
        #: The addresses of trusted proxies that have named a client.
        self.proxies: set[str] = set()

    def add(self, connection: LimitedProtocol) -> None:
        """Add a new connection, which waits. Close another one if there are too many."""
        if not self._open:
            connection.loop.call_later(_SWEEP, self._sweep, connection.loop)
        self._open.add(connection)
        self.wait(connection)
        if len(self._open) > self._most:
            next(iter(self._waiting)).cut_off()

    def discard(self, connection: LimitedProtocol) -> None:
        self._open.discard(connection)
        self.work(connection)

    def wait(self, connection: LimitedProtocol) -> None:
        """Note that a connection waits for its client. It keeps its place if it did before."""
        if connection not in self._open:
            return
        self._waiting[connection] = None
        self._by_client[connection.address].setdefault(connection, time.monotonic())

    def work(self, connection: LimitedProtocol) -> None:
        """Note that a connection does not wait any more."""
        self._waiting.pop(connection, None)
        ours = self._by_client[connection.address]
        ours.pop(connection, None)
        if not ours:
            del self._by_client[connection.address]

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = time.monotonic()
        for connection in tuple(self._open):
            connection.check_deadline(now)
        for address, ours in tuple(self._by_client.items()):
            excess = 0 if address in self.proxies else len(ours) - self._per_client
            for connection, since in tuple(ours.items())[: max(excess, 0)]:
                if now - since > PATIENCE:
                    connection.cut_off()
        if self._open:
            loop.call_later(_SWEEP, self._sweep, loop)


@lru_cache(maxsize=4096)
def _client_of(address: str) -> str:
    """Return what counts as one client: an IPv4 address, or the network of an IPv6 address."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return address
    if ip.version == 4:
        return address
    return str(ip.ipv4_mapped or ipaddress.ip_network((int(ip) >> 64 << 64, 64)))


def _peer_of(transport: asyncio.Transport) -> str:
    """Return the address at the other end, or ``UNIX``. No header changes it."""
    connection = transport.get_extra_info("socket")
    if connection is not None and connection.family == socket.AF_UNIX:
        return UNIX
    address = transport.get_extra_info("peername")
    return str(address[0]).partition("%")[0] if address else ""


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol, with the limits of this module."""

    table: ClassVar[ConnectionTable]
    address = ""
    _peer = ""
    _state = _HEAD
    _deadline = 0.0
    #: Bytes of the current head, or of the current body with and without its framing.
    _head = _raw = _content = 0
    _unread_since: float | None = None
    _closed = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = _client_of(self.client[0] if self.client else "")
        self._peer = _peer_of(transport)
        self._enter(_HEAD, HEADER_SECONDS)
        self.table.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        self.table.discard(self)
        super().connection_lost(exc)

    # -- bytes from the client

    def data_received(self, data: bytes) -> None:
        if self._state == _IDLE:
            self._enter(_HEAD, HEADER_SECONDS)
        while data and not self.transport.is_closing():
            # At most what is left of the limit, so that a head beyond it is never kept.
            room = MAX_HEADER_BYTES - self._head if self._state == _HEAD else MAX_HEADER_BYTES
            piece = data[:room]
            data = data[room:]
            if self._state == _HEAD:
                self._head += len(piece)
            else:
                self._raw += len(piece)
            super().data_received(piece)
            if self._state == _HEAD and self._head >= MAX_HEADER_BYTES:
                self._refuse(431, f"the headers exceed {MAX_HEADER_BYTES:,} bytes: send less")
            elif self._state == _BODY and self._raw - self._content > _MAX_FRAMING:
                self._refuse(400, "the body has too many or too small chunks: send larger ones")

    def on_message_begin(self) -> None:
        self._enter(_HEAD, HEADER_SECONDS)
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._state == _HEAD:  # not a trailer, which no application reads
            super().on_header(name, value)
            if name.lower() == b"x-forwarded-for" and self._is_trusted():
                self.table.proxies.add(self.address)

    def on_headers_complete(self) -> None:
        self._enter(_BODY, BODY_SECONDS)
        self.scope["state"][PEER] = self._peer
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._content += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._state = _BUSY
        if self.cycle.response_complete:  # an error was sent before the whole body was here
            self._enter(_IDLE, self.timeout_keep_alive)
        else:
            self.table.work(self)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._state == _BUSY and self.cycle.response_complete and not self._closed:
            self._enter(_IDLE, self.timeout_keep_alive)

    def _enter(self, state: int, seconds: float) -> None:
        """Begin to wait for the client, for this long."""
        if self._state in (_BUSY, _IDLE) or state == _BODY:
            self._head = self._raw = self._content = 0
        self._state = state
        self._deadline = time.monotonic() + seconds
        self.table.wait(self)

    def _is_trusted(self) -> bool:
        """Return whether the peer is a proxy whose headers name the real client."""
        peer = self.client[0] if self.client else ""
        return peer in _TrustedHosts(self.config.forwarded_allow_ips or "")

    # -- bytes to the client

    def pause_writing(self) -> None:
        self._unread_since = time.monotonic()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._unread_since = None
        super().resume_writing()

    # -- ends

    def check_deadline(self, now: float) -> None:
        """Close the connection if its client is too slow."""
        if self._unread_since is not None and now - self._unread_since > WRITE_SECONDS:
            self.cut_off()
        if self._state == _BUSY or now < self._deadline or self._closed:
            return
        if self._state == _IDLE:
            self.cut_off()
        elif self._state == _HEAD:
            self._refuse(408, "the headers took too long: send the request again")
        elif now >= self._deadline + self._content / BODY_RATE and not self.flow.read_paused:
            self._refuse(408, "the body took too long: send the request again")

    def cut_off(self) -> None:
        """Close the connection now, without a response."""
        self._closed = True
        self.table.discard(self)
        self.transport.abort()

    def _refuse(self, status: int, why: str) -> None:
        """Close the connection with a response, unless one is on its way."""
        self._closed = True
        self.table.discard(self)
        if self.cycle is None or not self.cycle.response_started or self.cycle.response_complete:
            body = b'{"error":"%s","message":"%s"}' % (_NAMES[status], why.encode())
            self.transport.write(STATUS_LINE[status] + _RESPONSE % len(body) + body)
        self.transport.close()

    def timeout_keep_alive_handler(self) -> None:
        if not self._closed:
            super().timeout_keep_alive_handler()


_NAMES: dict[int, Any] = {400: b"Malformed", 408: b"TooSlow", 431: b"TooLarge"}
_RESPONSE = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
