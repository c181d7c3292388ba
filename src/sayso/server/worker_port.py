"""What a worker of its own says over HTTP: its figures, and whether it is well.

Two pages, served by threads, so that they answer while an agent keeps the loop busy.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6

from sayso import codec
from sayso.errors import InvalidCall
from sayso.server.metrics import Metrics
from sayso.server.pulse import Pulse
from sayso.server.serving import PortTaken
from sayso.worker import Worker

_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_LOOPBACK = "127.0.0.1"


def address_of(given: str) -> tuple[str, int]:
    """Read ``port`` or ``address:port``; without an address it is loopback."""
    host, _, port = given.rpartition(":")
    if not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise InvalidCall(f"{given!r:.60} is no place to listen: write 9321, or 0.0.0.0:9321")
    return host.strip("[]") or _LOOPBACK, int(port)


@contextmanager
def worker_port(address: tuple[str, int], worker: Worker, metrics: Metrics) -> Iterator[str]:
    """Serve ``/metrics`` and ``/healthz`` meanwhile; gives where."""
    pulse = Pulse(worker.store)

    class Pages(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version = sys_version = ""
        timeout = 10  # a client that sends nothing holds no thread for longer

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                metrics.busy.set(worker.busy)
                self._answer(200, _TEXT, metrics.page())
            elif path == "/healthz":
                code, body = pulse.felt_sync()
                body["busy"] = worker.busy
                self._answer(code, "application/json", codec.dumps(body).encode())
            else:
                self._answer(404, "text/plain", b"there is /metrics, and /healthz\n")

        do_HEAD = do_GET

        def _answer(self, code: int, kind: str, body: bytes) -> None:
            self.send_response_only(code, HTTPStatus(code).phrase)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Who asks every few seconds is not worth a line each time."""

    host, port = address

    class Server(ThreadingHTTPServer):
        address_family = AF_INET6 if ":" in host else AF_INET
        daemon_threads = True

    try:
        server = Server((host, port), Pages)
    except OSError as error:
        message = f"cannot listen on {host}:{port} ({error}): give --metrics another port"
        raise PortTaken(message) from None
    with server:
        threading.Thread(target=server.serve_forever, name="sayso-port", daemon=True).start()
        try:
            shown = f"[{host}]" if ":" in host else host
            yield f"http://{shown}:{server.server_address[1]}"
        finally:
            server.shutdown()
