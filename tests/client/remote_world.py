"""A real server on a real socket, people who decide, and a network that loses answers."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
from live_server import LiveServer
from waiting import PATIENCE, until

import sayso
from sayso.inbox import create_token
from sayso.server import create_app
from sayso.server.serving import server_config
from sayso.stores import open_store

Decide = Callable[[sayso.Request], sayso.Decision]


def reserved() -> socket.socket:
    """Yield a reserved port on which nothing listens yet."""
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    return taken


class Server:
    """One server in an OS thread, on a new store or on an existing one."""

    def __init__(self, url: str, at: socket.socket | None = None, **options: Any) -> None:
        self.app = create_app(store=url, **options)
        # A copy, so that the port stays ours when the server closes it.
        copy = None if at is None else at.dup()
        self._server = LiveServer(server_config(self.app, grace=1), copy)
        self.url = self._server.url

    def start(self) -> Server:
        self._server.start()
        return self

    @property
    def metrics(self) -> Any:
        return self.app.state.sayso.metrics

    def stop(self) -> None:
        self.app.state.sayso.feed.close()
        self._server.stop()


class People:
    """People who decide, with their own inbox on the same store."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.inbox = sayso.Inbox(url)
        self._threads: list[threading.Thread] = []

    def token(self, name: str, role: str = "agent") -> str:
        with closing(open_store(self.url)) as store:
            token, _ = create_token(store, name, by="test", role=role)
        return token

    def pending(self) -> list[sayso.Request]:
        return list(self.inbox.pending_sync().items)

    def next(self) -> sayso.Request:
        return until(self.pending)[0]

    def decide(self, how: Decide) -> sayso.Request:
        """Decide the next request, once there is one."""
        request = self.next()
        return self.inbox.decide_sync(request.id, how(request), by="ana")

    def will(self, *hows: Decide) -> None:
        """Decide the next requests in the background."""
        thread = threading.Thread(target=lambda: [self.decide(how) for how in hows], daemon=True)
        thread.start()
        self._threads.append(thread)

    def close(self) -> None:
        for thread in self._threads:
            thread.join(PATIENCE)
        self.inbox.close()


def yes(request: sayso.Request) -> sayso.Decision:
    return request.approve()


class Lossy:
    """A proxy that passes requests on and drops the first answer to some of them."""

    def __init__(self, target: str, loses: Callable[[str, str], bool]) -> None:
        #: Each request that came through, with the number of times that it did.
        self.seen: Counter[str] = Counter()
        world = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args: object) -> None:
                pass

            def _forward(self) -> None:
                length = int(self.headers.get("content-length", 0))
                body = self.rfile.read(length)
                kept = ("authorization", "idempotency-key", "content-type")
                headers = {name: self.headers[name] for name in kept if name in self.headers}
                with httpx.Client(trust_env=False, timeout=60, verify=False) as client:
                    answer = client.request(
                        self.command, target + self.path, content=body, headers=headers
                    )
                what = f"{self.command} {self.path.partition('?')[0]}"
                world.seen[what] += 1
                if world.seen[what] == 1 and loses(self.command, self.path):
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                self.send_response(answer.status_code)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer.content)))
                self.end_headers()
                self.wfile.write(answer.content)

            do_GET = do_POST = _forward

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = False
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE)
