"""A stranger, or one person, cannot make the server expensive for others."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
from typing import Any

import httpx
import pytest
from served import Serve, opened

from sayso import audit, codec
from sayso.server import connections, schemas
from sayso.server.service import Limits
from sayso.stores.base import Store

WHOLE = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n%s\r\n"


def test_sign_in_takes_four_kilobytes(serve: Serve) -> None:
    client = serve().client()
    small = client.post("/api/login", json={"token": "x" * 400})
    assert small.status_code == 401
    for large in (b'{"token": "%s"}' % (b"x" * 5000), b" " * 5000, b"[" * 1_000_000):
        assert client.post("/api/login", content=large).status_code == 413
        chunks = (large[start : start + 999] for start in range(0, len(large), 999))
        assert client.post("/api/login", content=chunks).status_code == 413


def test_rate_limited_sign_in_is_not_read(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []
    parse = codec.parse
    monkeypatch.setattr(codec, "parse", lambda raw: parsed.append(len(raw)) or parse(raw))
    client = serve(limits=Limits(per_minute=1, burst=3)).client()
    statuses = [client.post("/api/login", json={"token": f"t{n}"}).status_code for n in range(6)]
    assert statuses == [401] * 3 + [429] * 3
    assert len(parsed) == 3
    assert client.post("/api/login", content=b"x" * 9000).status_code == 429


def test_large_body_is_parsed_off_the_event_loop(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsers: dict[int, str] = {}
    parse = codec.parse

    def parsing(raw: Any) -> Any:
        parsers[len(raw)] = threading.current_thread().name
        return parse(raw)

    monkeypatch.setattr(codec, "parse", parsing)
    server = serve()
    bot = server.client(server.token("bot", "agent"))
    opened(bot, "small")
    opened(bot, "large", args={"text": "x" * 2 * schemas._LARGE})
    (_, loop), (_, worker) = sorted(parsers.items())
    assert loop != worker


def test_one_verification_runs_at_a_time(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve()
    ana, ben = server.client(server.token("ana")), server.client(server.token("ben"))
    begun, ended = threading.Event(), threading.Event()
    verify = audit.verify

    def slow(store: Store) -> Any:
        begun.set()
        assert ended.wait(60)
        return verify(store)

    monkeypatch.setattr(audit, "verify", slow)
    answers: list[httpx.Response] = []
    first = threading.Thread(target=lambda: answers.append(ana.post("/api/audit/verify")))
    first.start()
    assert begun.wait(60)
    refused = ben.post("/api/audit/verify")
    assert (refused.status_code, "retry-after" in refused.headers) == (429, True)
    ended.set()
    first.join()
    assert answers[0].json()["ok"] is True
    assert ben.post("/api/audit/verify").status_code == 200


def test_many_complete_requests_are_all_answered(serve: Serve) -> None:
    server = serve()
    sockets = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(400)]
    try:
        for one in sockets:
            one.sendall(WHOLE % b"")
        for one in sockets:
            one.settimeout(60)
            assert one.recv(100).startswith(b"HTTP/1.1 200")
    finally:
        for one in sockets:
            one.close()


@pytest.mark.long
@pytest.mark.parametrize(
    ("header", "closed"), [(b"", True), (b"X-Forwarded-For: 9.9.9.9\r\n", False)]
)
def test_trusted_proxy_is_not_one_client(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, header: bytes, closed: bool
) -> None:
    monkeypatch.setattr(connections, "PATIENCE", 0.1)
    server = serve(limits=Limits(connections=3))
    sockets = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(10)]
    try:
        for one in sockets:
            one.sendall((WHOLE % header).replace(b"close", b"keep-alive"))
            answer = b""
            while not answer.endswith(b"}"):
                answer += one.recv(10_000)
        if not closed:
            assert select.select(sockets[:7], [], [], 3) == ([], [], [])
            return
        for one in sockets[:7]:
            one.settimeout(3)  # much less than an idle connection is kept
            with contextlib.suppress(ConnectionError):
                assert one.recv(1) == b""
    finally:
        for one in sockets:
            one.close()


@pytest.mark.parametrize("role", ["chat", "agent"])
def test_refused_writes_do_not_fill_the_record(serve: Serve, role: str) -> None:
    server = serve()
    who = server.client(server.token("mallory", role))
    body = [{"id": "req_1", "type": "reject"}]
    statuses = {who.post("/api/decisions", json=body).status_code for _ in range(100)}
    assert statuses == {403}
    if role == "chat":
        one = {"type": "reject"}
        for _ in range(50):
            assert who.post("/api/requests/req_1/decision", json=one).status_code == 404
    admin = server.client(server.token("root", "admin"))
    items = admin.get("/api/audit", params={"limit": 200}).json()["items"]
    refused = [event for event in items if event["type"] == "refused"]
    assert 1 <= len(refused) <= 25
    assert "mallory" in json.dumps(refused[0])
