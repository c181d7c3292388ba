"""A real server on a real socket, in a thread of the test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
from live_server import LiveServer

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
        self.server = LiveServer(server_config(self.app, grace=2))
        self.port, self.url = self.server.port, self.server.url
        self._clients: list[httpx.Client] = []

    def start(self) -> Served:
        self.server.start()
        return self

    def client(self, token: str | None = None, **headers: str) -> httpx.Client:
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        # No TLS here, and to load the certificates takes longer than most tests.
        client = httpx.Client(base_url=self.url, headers=headers, timeout=60, verify=False)
        self._clients.append(client)
        return client

    def token(self, person: str, role: str = "reviewer", *groups: str) -> str:
        token, _ = create_token(self.store, person, by="test", role=role, groups=groups)
        return token

    def stop(self) -> None:
        for client in self._clients:
            client.close()
        self.app.state.sayso.feed.close()
        self.server.stop()


Serve = Callable[..., Served]


def mailer(*turns: Any, sent: list[str] | None = None, **options: Any) -> sayso.Agent:
    """Return an agent with one gated tool."""
    done = [] if sent is None else sent

    @sayso.tool(needs_approval=True, **options)
    def send_email(to: str, body: str = "Hello") -> str:
        """Send an email."""
        done.append(f"{to}: {body}")
        return f"sent to {to}"

    script = turns or (call("send_email", {"to": "ana@example.com"}), say("Done."))
    model = ScriptedModel(list(script))
    return sayso.Agent("mailer", model=model, tools=[send_email])


#: Arguments of calls that only finance may see and decide, under the policy ``FOR_FINANCE``.
FINANCE_ONLY = {"amount": 5, "audience": "finance"}
FOR_FINANCE = sayso.Policy(
    [
        sayso.Rule(
            "*",
            when=lambda args: args.get("audience") == "finance",
            reviewers=["group:finance"],
        )
    ]
)


def opened(client: httpx.Client, key: str = "k1", **body: Any) -> dict[str, Any]:
    """Open a request as a remote agent. Return it."""
    answer = client.post(
        "/api/requests",
        json={"tool": "refund", "args": {"amount": 5}, **body},
        headers={"Idempotency-Key": key},
    )
    assert answer.status_code in (200, 201), answer.text
    found: dict[str, Any] = answer.json()
    return found
