"""Slack's API on a socket, and what Slack posts or sends, for the real client library."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from aiohttp import web
from slack_sdk.signature import SignatureVerifier
from waiting import until_async

SECRET = "5l4ck"
TEAM = "T1"


class FakeSlack:
    """Keeps the messages of each person's direct messages, and the forms that were opened."""

    def __init__(self) -> None:
        self.messages: dict[tuple[str, str], dict[str, Any]] = {}
        self.told: list[str] = []
        self.views: list[dict[str, Any]] = []
        #: Status, type and body of answers to the next messages, instead of sending them.
        self.refusals: list[tuple[int, str, str]] = []
        #: Where Socket Mode connects to.
        self.socket_url = ""
        self._number = 0
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None: ...

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
                if "json" in self.headers.get("content-type", ""):
                    fields = json.loads(raw or "{}")
                else:
                    fields = {name: values[0] for name, values in parse_qs(raw).items()}
                method = urlsplit(self.path).path.rpartition("/")[2]
                if fake.refusals and method == "chat.postMessage":
                    status, kind, body = fake.refusals.pop()
                    data = body.encode()
                else:
                    status = 200
                    kind = "application/json"
                    data = json.dumps(fake.answer(method, fields)).encode()
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(data)))
                if status == 429:
                    self.send_header("retry-after", "1")
                self.end_headers()
                self.wfile.write(data)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/api/"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method: str, fields: dict[str, Any]) -> dict[str, Any]:
        if method == "auth.test":
            return {"ok": True, "team_id": TEAM, "team": "Acme", "user": "sayso", "user_id": "UB",
                    "bot_id": "B1", "url": "https://acme.slack.com/"}  # fmt: skip
        if method == "apps.connections.open":
            return {"ok": True, "url": self.socket_url}
        if method == "chat.postMessage":
            self._number += 1
            shared = fields["channel"].startswith("#")
            place = fields["channel"] if shared else f"D{fields['channel']}"
            return self._show(place, f"1.{self._number:06}", fields)
        if method == "chat.update":
            return self._show(fields["channel"], fields["ts"], fields)
        if method == "chat.postEphemeral":
            self.told.append(fields["text"])
            return {"ok": True}
        if method == "views.open":
            view = _parsed(fields["view"])
            _check_view(view)
            self.views.append(view)
            return {"ok": True, "view": view}
        raise AssertionError(method)

    def _show(self, channel: str, ts: str, fields: dict[str, Any]) -> dict[str, Any]:
        blocks = _parsed(fields["blocks"])
        _check_blocks(blocks)
        texts = [block["text"]["text"] for block in blocks if "text" in block]
        elements = [e for block in blocks for e in block.get("elements", ())]
        buttons = {element["text"]["text"]: element for element in elements}
        self.messages[channel, ts] = {"text": "\n\n".join(texts), "buttons": buttons}
        return {"ok": True, "channel": channel, "ts": ts}

    # -- what Slack posts

    @staticmethod
    def signed(body: str, content_type: str) -> tuple[dict[str, str], bytes]:
        now = str(int(time.time()))
        signature = SignatureVerifier(SECRET).generate_signature(timestamp=now, body=body)
        assert signature is not None
        headers = {"content-type": content_type, "x-slack-request-timestamp": now}
        return headers | {"x-slack-signature": signature}, body.encode()

    def interaction(self, payload: dict[str, Any]) -> tuple[dict[str, str], bytes]:
        body = urlencode({"payload": json.dumps(payload)})
        return self.signed(body, "application/x-www-form-urlencoded")

    def message(self, user: str, text: str, event: str) -> tuple[dict[str, str], bytes]:
        inner = {"type": "message", "channel_type": "im", "channel": f"D{user}", "user": user}
        body = {"type": "event_callback", "team_id": TEAM, "api_app_id": "A1", "event_id": event}
        body["event"] = {**inner, "text": text, "ts": "9.1"}  # type: ignore[assignment]
        return self.signed(json.dumps(body), "application/json")


class FakeSocket:
    """Slack's side of Socket Mode, in the event loop of the test."""

    def __init__(self) -> None:
        self.connections = 0
        self._open: web.WebSocketResponse | None = None
        self._acknowledgements: dict[str, asyncio.Future[dict[str, Any]]] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Accept connections inside this block, and yield the address."""
        app = web.Application()
        app.router.add_get("/link", self._accept)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"ws://127.0.0.1:{runner.addresses[0][1]}/link"
        finally:
            await runner.cleanup()

    async def send(self, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Send an event or an interaction; return the payload of its acknowledgement."""
        number = str(len(self._acknowledgements))
        acknowledged = self._acknowledgements[number] = asyncio.Future()
        envelope = {"envelope_id": number, "type": kind, "payload": payload}
        await (await self._socket()).send_json(envelope)
        return await asyncio.wait_for(acknowledged, 30)

    async def refresh(self) -> None:
        """Close the connection, as Slack does every few hours. The client opens another one."""
        socket = await self._socket()
        self._open = None
        await socket.close()

    async def _socket(self) -> web.WebSocketResponse:
        await until_async(lambda: self._open is not None)
        assert self._open is not None
        return self._open

    async def _accept(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_json({"type": "hello", "num_connections": 1})
        self.connections += 1
        self._open = socket
        async for message in socket:
            acknowledgement = json.loads(message.data)
            number = acknowledgement["envelope_id"]
            self._acknowledgements[number].set_result(acknowledgement.get("payload", {}))
        return socket


def _parsed(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _check_text(text: dict[str, Any], most: int) -> None:
    assert text["type"] == "plain_text"
    assert 1 <= len(text["text"]) <= most, text


def _check_blocks(blocks: list[dict[str, Any]]) -> None:
    """Check Slack's limits."""
    assert 1 <= len(blocks) <= 50
    for block in blocks:
        if block["type"] in ("header", "section"):
            _check_text(block["text"], 150 if block["type"] == "header" else 3000)
        else:
            assert block["type"] == "actions"
            assert 1 <= len(block["elements"]) <= 25
            ids = [element["action_id"] for element in block["elements"]]
            assert len(set(ids)) == len(ids)
            for element in block["elements"]:
                _check_text(element["text"], 75)
                assert len(element["value"]) <= 2000
                assert len(element["action_id"]) <= 255


def _check_view(view: dict[str, Any]) -> None:
    assert view["type"] == "modal"
    _check_text(view["title"], 24)
    _check_text(view["submit"], 24)
    assert len(view["private_metadata"]) <= 3000
    assert 1 <= len(view["blocks"]) <= 100
    for block in view["blocks"]:
        assert block["type"] == "input"
        _check_text(block["label"], 2000)
        assert len(block["block_id"]) <= 255
        assert len(block["element"].get("initial_value", "")) <= 3000
