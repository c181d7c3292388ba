"""A push service on a socket, and the browsers behind it, which decrypt what it takes."""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import http_ece
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from py_vapid import Vapid02

from sayso.inbox.push import Subscription


def encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


class Browser:
    """A browser with the notifications that its service worker shows, by tag."""

    def __init__(self, endpoint: str) -> None:
        self._private = ec.generate_private_key(ec.SECP256R1())
        self._auth = os.urandom(16)
        public = self._private.public_key()
        raw = public.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        self.endpoint = endpoint
        self.keys = {"p256dh": encoded(raw), "auth": encoded(self._auth)}
        self.received: list[dict[str, Any]] = []
        self.notifications: dict[str, dict[str, Any]] = {}

    def subscription(self, key: str, label: str = "Ana's phone") -> Subscription:
        return Subscription(label, self.endpoint, self.keys["p256dh"], self.keys["auth"], key)

    def take(self, body: bytes) -> None:
        content = http_ece.decrypt(
            body, private_key=self._private, auth_secret=self._auth, version="aes128gcm"
        )
        message = json.loads(content)
        self.received.append(message)
        self.notifications[message["tag"]] = message


class FakePushService:
    """Takes messages as RFC 8030 says: with the key of the server that subscribed only."""

    def __init__(self) -> None:
        self.browsers: list[Browser] = []
        self.headers: list[dict[str, str]] = []
        #: Answers with a status and headers first, if it returns them.
        self.refuse: Callable[[Browser], tuple[int, dict[str, str]] | None] = lambda _: None
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None: ...

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                status, more = fake.answer(self.path, headers, body)
                self.send_response(status)
                for name, value in more.items():
                    self.send_header(name, value)
                self.send_header("content-length", "0")
                self.end_headers()

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def browser(self) -> Browser:
        self.browsers.append(Browser(f"{self.url}/push/{len(self.browsers)}"))
        return self.browsers[-1]

    def answer(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str]]:
        browser = self.browsers[int(path.rpartition("/")[2])]
        refusal = self.refuse(browser)
        if refusal is not None:
            return refusal
        if not Vapid02.verify(headers["authorization"]) or len(headers["topic"]) > 32:
            return 403, {}
        assert headers["content-encoding"] == "aes128gcm"
        assert int(headers["ttl"]) > 0
        assert len(body) <= 4096
        self.headers.append(headers)
        browser.take(body)
        return 201, {"location": f"{self.url}/message/{len(self.headers)}"}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
