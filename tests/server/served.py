"""A real server on a real socket, in a thread of the test."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import httpx
import uvicorn

import sayso
from sayso.inbox import create_token
from sayso.server import create_app
from sayso.server.serving import server_config
from sayso.stores.base import Store
from sayso.testing import ScriptedModel, call, say


class Served:
    """One running server; ``client(token)`` talks to it."""

    def __init__(self, store: Store, **options: Any) -> None:
        self.store = store
        self.app = create_app(options.pop("agents", ()), store=store, **options)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._server = uvicorn.Server(server_config(self.app, grace=2))
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],))
        self._clients: list[httpx.Client] = []

    def start(self) -> Served:
        self._thread.start()
        with httpx.Client(base_url=self.url, transport=httpx.HTTPTransport(retries=5)) as client:
            assert client.get("/healthz").status_code == 200
        return self

    def client(self, token: str | None = None, **headers: str) -> httpx.Client:
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        client = httpx.Client(base_url=self.url, headers=headers, timeout=30)
        self._clients.append(client)
        return client

    def token(self, person: str, role: str = "reviewer", *groups: str) -> str:
        token, _ = create_token(self.store, person, by="test", role=role, groups=groups)
        return token

    def stop(self) -> None:
        for client in self._clients:
            client.close()
        self.app.state.sayso.feed.close()
        self._server.should_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive()
        self._socket.close()


Serve = Callable[..., Served]


def mailer(*turns: Any, sent: list[str] | None = None, **options: Any) -> sayso.Agent:
    """An agent with one gated tool that says what it did."""
    done = [] if sent is None else sent

    @sayso.tool(needs_approval=True, **options)
    def send_email(to: str, body: str = "Hello") -> str:
        """Send an email."""
        done.append(f"{to}: {body}")
        return f"sent to {to}"

    script = turns or (call("send_email", {"to": "ana@example.com"}), say("Done."))
    model = ScriptedModel(list(script))
    return sayso.Agent("mailer", model=model, tools=[send_email])


def opened(client: httpx.Client, key: str = "k1", **body: Any) -> dict[str, Any]:
    """A request that a remote agent opened."""
    answer = client.post(
        "/api/requests",
        json={"tool": "refund", "args": {"amount": 5}, **body},
        headers={"Idempotency-Key": key},
    )
    assert answer.status_code in (200, 201), answer.text
    found: dict[str, Any] = answer.json()
    return found
