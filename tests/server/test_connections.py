"""Slow, endless and many connections, over real sockets, delay no one else."""

from __future__ import annotations

import contextlib
import selectors
import socket
import statistics
import time
from collections.abc import Iterator

import pytest
from served import Serve, Served
from waiting import until

from sayso.server import connections
from sayso.server.service import Limits

HEAD = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 1.0)
    monkeypatch.setattr(connections, "BODY_SECONDS", 1.0)


@contextlib.contextmanager
def connected(server: Served) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), 20) as raw:
        yield raw


def everything(raw: socket.socket) -> bytes:
    """What the server still sends before it closes."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while piece := raw.recv(65_536):
            found += piece
    return found


def health_times(server: Served, count: int = 20) -> list[float]:
    """How long new connections take to learn that the server is well."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        with connected(server) as raw:
            raw.sendall(HEAD + b"Connection: close\r\n\r\n")
            assert everything(raw).startswith(b"HTTP/1.1 200 ")
        times.append(time.perf_counter() - began)
    return times


@pytest.mark.parametrize(
    "start",
    [
        HEAD + b"X: ",  # one header without an end
        HEAD + b"X: 1\r\n" * 1_000 + b"Y: ",
        b"GET /",  # an address without an end
        b"POST /api/login HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: a",
    ],
)
def test_endless_header_is_cut_at_its_limit(serve: Serve, start: bytes) -> None:
    server = serve()
    with connected(server) as raw:
        raw.sendall(start)
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 50_000_000:
                sent += raw.send(b"x" * 65_536)
        assert sent < 8_000_000  # what the sockets buffer, not what the server takes
        with contextlib.suppress(ConnectionError):
            assert b" 431 " in raw.recv(100)
    assert max(health_times(server, 5)) < 1


def test_headers_up_to_the_limit_are_fine(serve: Serve) -> None:
    server = serve()
    for size, status in ((60_000, b" 200 "), (66_000, b" 431 ")):
        with connected(server) as raw:
            raw.sendall(HEAD + b"X: " + b"x" * size + b"\r\nConnection: close\r\n\r\n")
            assert status in everything(raw)[:20]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"GET",
        HEAD,
        HEAD + b"\r\n",  # the response comes, and then nothing: the keep-alive time applies
        b"\r\n",
        b"POST /api/login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 90\r\n\r\n{",
        b"POST /api/login HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n5",
        b"POST /nope HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 90\r\n\r\n{",
    ],
)
def test_half_sent_request_is_not_waited_for(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, start: bytes
) -> None:
    monkeypatch.setattr("sayso.server.serving.KEEP_ALIVE", 1)
    server = serve()
    with connected(server) as raw:
        raw.sendall(start)
        began = time.monotonic()
        everything(raw)  # returns once the server has closed the connection
        assert time.monotonic() - began < 5


@pytest.mark.long
@pytest.mark.usefixtures("impatient")
def test_dripping_bytes_do_not_extend_the_time(serve: Serve) -> None:
    server = serve()
    bodies = b"POST /api/login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 900000\r\n\r\n{"
    for start in (HEAD, bodies, HEAD + b"\r\n\r\n"):
        with connected(server) as raw:
            raw.sendall(start)
            began = time.monotonic()
            with contextlib.suppress(ConnectionError):
                while time.monotonic() - began < 6:
                    raw.sendall(b"x" if start != HEAD + b"\r\n\r\n" else b"\r\n")
                    time.sleep(0.05)
            assert time.monotonic() - began < 5


@pytest.mark.long
def test_slow_body_is_accepted(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "BODY_SECONDS", 0.5)
    server = serve(auth=False)
    body = b'{"tool": "refund", "args": {"x": "' + b"x" * 200_000 + b'"}}'
    with connected(server) as raw:
        head = f"POST /api/requests HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}"
        raw.sendall(head.encode() + b"\r\n\r\n")
        for place in range(0, len(body), 20_000):  # 100 kB a second, for two seconds
            raw.sendall(body[place : place + 20_000])
            time.sleep(0.2)
        assert b" 201 " in raw.recv(100)


def test_trailers_and_tiny_chunks_are_bounded(serve: Serve) -> None:
    server = serve()
    start = b"POST /nope HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    for endless in (b"0\r\nX: ", b"1;"):
        with connected(server) as raw, contextlib.suppress(ConnectionError):
            raw.sendall(start + endless)
            sent = 0
            while sent < 50_000_000:
                sent += raw.send(b"x" * 65_536)
        assert sent < 10_000_000


@pytest.mark.long
def test_thousand_slow_connections_delay_nobody(serve: Serve) -> None:
    server = serve()
    quiet = statistics.median(health_times(server))
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(connected(server)) for _ in range(1_000)]
        for n, raw in enumerate(slow):
            with contextlib.suppress(ConnectionError):
                raw.sendall(HEAD if n % 2 else b"POST /api/login HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        times = []
        for _ in range(5):
            for raw in slow:
                with contextlib.suppress(ConnectionError):
                    raw.send(b"X: 1\r\n")
            times += health_times(server, 10)
        assert statistics.median(times) < 0.1, (quiet, times)
        assert sorted(times)[-5] < 0.2, (quiet, times)
        until(lambda: sum(map(is_open, slow)) <= Limits().connections)


def is_open(raw: socket.socket) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(raw, selectors.EVENT_READ)
        return not selector.select(0)


def test_requests_in_progress_stay_open(serve: Serve) -> None:
    server = serve(limits=Limits(connections=3))
    token = server.token("ana")
    head = f"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n"
    with contextlib.ExitStack() as stack:
        streams = []
        for _ in range(6):
            raw = stack.enter_context(connected(server))
            raw.sendall(head.encode())
            found = b""
            while b"welcome" not in found:
                found += raw.recv(10_000)
            streams.append(raw)
        slow = [stack.enter_context(connected(server)) for _ in range(8)]
        until(lambda: sum(map(is_open, slow)) == 3)
        assert [raw for raw in slow if is_open(raw)] == slow[-3:]  # those that waited longest left
        assert all(map(is_open, streams))
        assert health_times(server, 1)


def test_one_person_has_a_bounded_number_of_streams(serve: Serve) -> None:
    server = serve(limits=Limits(streams=3))
    ana, ben = server.client(server.token("ana")), server.client(server.token("ben"))
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            assert stack.enter_context(ana.stream("GET", "/api/events")).status_code == 200
        refused = stack.enter_context(ana.stream("GET", "/api/events"))
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
        assert stack.enter_context(ben.stream("GET", "/api/events")).status_code == 200
    for _ in range(50):
        with ana.stream("GET", "/api/events") as again:
            if again.status_code == 200:
                return
        time.sleep(0.1)
    raise AssertionError("a closed stream still counts")
