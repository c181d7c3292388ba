"""Receivers of webhooks on real sockets, and requests to deliver."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from remote_world import Server
from standardwebhooks import Webhook

import sayso
from sayso.server.webhooks import Endpoint

#: Not random: it is part of the names of tests, which are the same in every process.
SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()


class Received(NamedTuple):
    """One POST as it arrived."""

    path: str
    headers: dict[str, str]
    data: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def body(self) -> Any:
        """The verified body: the library raises where the signature does not hold."""
        return Webhook(SECRET).verify(self.data, self.headers)

    @property
    def type(self) -> str:
        return str(self.body["type"])


class Receiver:
    """Keeps what it gets; answers with the next of ``statuses``, then with 204.

    What is about one of the runs in ``refuses`` is answered with 500.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.got: list[Received] = []
        self.connections = 0
        self.statuses: list[int] = []
        self.refuses: set[str] = set()
        self.location = ""
        #: What is asked while this is not set hangs.
        self.answers = threading.Event()
        self.answers.set()
        world = self

        class Handler(BaseHTTPRequestHandler):
            def setup(self) -> None:
                world.connections += 1
                super().setup()

            def log_message(self, *args: object) -> None:
                pass

            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                received = Received(self.path, headers, data)
                world.got.append(received)
                status = world.statuses.pop(0) if world.statuses else 204
                if world.refuses and received.body["data"]["run"] in world.refuses:
                    status = 500
                world.answers.wait(60)
                self.send_response(status)
                if world.location:
                    self.send_header("location", world.location)
                self.end_headers()

            do_GET = do_POST

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/hook"
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        )
        self._thread.start()

    def endpoint(self, **options: Any) -> Endpoint:
        options = {"allow_private": True, "pause": 0.05, **options}
        return Endpoint(options.pop("url", self.url), SECRET, **options)

    @property
    def types(self) -> list[str]:
        return [received.type for received in self.got]

    def of(self, request: str) -> list[str]:
        """The types of what was told of one request."""
        return [one.type for one in self.got if one.body["data"]["id"] == request]

    def runs(self) -> list[str]:
        """The runs of what was told, in the order of arrival."""
        return [one.body["data"]["run"] for one in self.got]

    def close(self) -> None:
        self.answers.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(30)


@contextmanager
def asking(url: str, agent: str = "bot") -> Iterator[sayso.Gate]:
    """A gate beside the server, on the same store."""
    gate = sayso.Gate(url, agent=agent, wait=0)
    try:
        yield gate
    finally:
        gate.close()


def ask(gate: sayso.Gate, run: str, **options: Any) -> sayso.Request:
    """A request for 5 euros, whoever will decide it."""

    @gate.guard(needs_approval=True, **options)
    def pay(to: str, password: str) -> str:
        return f"paid {to}"

    try:
        with gate.run(run, requester="rita"):
            pay("ana", "hunter2-secret")
    except sayso.Paused as paused:
        return paused.requests[0]
    raise AssertionError("it was not asked")


def notes(inbox: sayso.Inbox) -> list[dict[str, Any]]:
    """What the record says of webhooks that were given up."""
    events = inbox.store.events("", 10_000)
    return [json.loads(e.body or "{}") for _, e in events if e.type == "webhook_dead"]


def count(server: Server, outcome: str) -> float:
    """How many deliveries ended like this, as Prometheus would read it."""
    labels = {"outcome": outcome}
    value = server.metrics.registry.get_sample_value("sayso_webhooks_total", labels)
    return value or 0.0
