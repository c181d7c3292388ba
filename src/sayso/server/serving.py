"""Listening on ports: the app under uvicorn, and a worker's metrics without it.

``run`` serves the app and shuts down without losing work. ``serve_worker_metrics`` serves
``/metrics`` and the probes of a separate worker from OS threads, so that they respond while an
agent keeps the event loop busy.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import uvicorn
from fastapi import FastAPI

from sayso import codec
from sayso.agent.events import cancel_streams
from sayso.errors import SaysoError
from sayso.server.connections import limited_protocol
from sayso.server.monitoring import METRICS_TYPE, Health, HealthCheck, Metrics, StoreMetrics
from sayso.server.service import Service
from sayso.sync import exit_soon
from sayso.worker import Worker

#: Seconds that open streams get to end on shutdown.
_GRACE = 5
#: Seconds to keep an idle connection. Proxies usually drop theirs after 60. The proxy has to close
#: first: if we did, it might be sending a decision on that connection just then.
KEEP_ALIVE = 75
#: Seconds between switches of OS threads. Shorter than the default, because people wait both for
#: the event loop and for the worker threads that read the store.
_SWITCH_INTERVAL = 0.001


#: Begins a ``host`` that is the path of a unix socket.
UNIX_PREFIX = "unix:"


class PortTaken(SaysoError):
    """The address cannot be listened on."""


# -- the app


def run(app: FastAPI, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve the app until a signal arrives. Call ``ready`` with the URL once it accepts requests.

    Raises ``PortTaken`` if the address is in use. Ctrl-C is ignored after the server has stopped.
    """
    listening = _bind(host, port)
    url = _url(host, listening)
    server = _Server(server_config(app), app.state.sayso, lambda: ready(url))
    logging.getLogger("uvicorn.error").addFilter(_is_not_cancellation)
    sys.setswitchinterval(_SWITCH_INTERVAL)
    signal.signal(signal.SIGINT, lambda *_: None)  # for before and after uvicorn's own handlers
    with listening:
        server.run(sockets=[listening])
    if host.startswith(UNIX_PREFIX):
        Path(host.removeprefix(UNIX_PREFIX)).unlink(missing_ok=True)


def server_config(app: FastAPI, grace: int = _GRACE) -> uvicorn.Config:
    """Return the settings that the app is served with, including the limits on connections."""
    return uvicorn.Config(
        app,
        http=limited_protocol(app.state.sayso.limits),
        log_config=None,
        access_log=False,
        lifespan="on",
        ws="none",
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=grace,
    )


def _is_not_cancellation(record: logging.LogRecord) -> bool:
    """Drop log records about responses that the shutdown cut short."""
    return record.exc_info is None or not isinstance(record.exc_info[1], asyncio.CancelledError)


def _bind(host: str, port: int) -> socket.socket:
    if host.startswith(UNIX_PREFIX):
        return _bind_unix(host.removeprefix(UNIX_PREFIX))
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except (OSError, OverflowError) as error:
        bound.close()
        raise PortTaken(f"cannot listen on {host}:{port} ({error}): use another --port") from None
    return bound


def _bind_unix(path: str) -> socket.socket:
    """Listen on a unix socket for this user and its group, in place of one that nobody serves."""
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            if Path(path).is_socket() and probe.connect_ex(path) == errno.ECONNREFUSED:
                Path(path).unlink()
        umask = os.umask(0o117)
        try:
            bound.bind(path)
        finally:
            os.umask(umask)
    except OSError as error:
        bound.close()
        raise PortTaken(f"cannot listen on {path} ({error}): use another --host") from None
    return bound


def _url(host: str, listening: socket.socket) -> str:
    if host.startswith(UNIX_PREFIX):
        return host
    port = listening.getsockname()[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, service: Service, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._service = service
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.started:
            self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Shut down gracefully. A second Ctrl-C interrupts running calls, which are then in doubt.

        Unlike uvicorn's, it does not raise the signal again: the exit was requested.
        """
        self._service.feed.close()
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
            self._loop.call_soon_threadsafe(self._cut_short)
        self.should_exit = True

    def _cut_short(self) -> None:
        self._service.worker.cut_short()
        cancel_streams()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if self.force_exit:
            # uvicorn skips the lifespan now; nothing in it takes long once calls are cut short.
            await self.lifespan.shutdown()
            exit_soon()


# -- metrics without the app


class Page(NamedTuple):
    """A response."""

    content_type: str
    body: bytes
    status: int = 200


@contextmanager
def serve_worker_metrics(
    address: tuple[str, int], worker: Worker, metrics: Metrics
) -> Iterator[str]:
    """Serve ``/metrics`` and the probes inside this block, and yield the URL.

    Raises ``PortTaken`` if the address is in use.
    """
    health = HealthCheck(worker.store)
    store_metrics = StoreMetrics(worker.store, metrics)

    def show_metrics() -> Page:
        metrics.busy.set(worker.busy)
        store_metrics.refresh_sync()
        return Page(METRICS_TYPE, metrics.render())

    def probe(check: Callable[[], Health]) -> Page:
        status, body = check()
        body["busy"] = worker.busy
        return Page("application/json", codec.dumps(body).encode(), status)

    pages: dict[str, Callable[[], Page]] = {
        "/metrics": show_metrics,
        "/healthz": partial(probe, health.check_sync),
        "/readyz": partial(probe, health.check_ready_sync),
        "/livez": lambda: Page("text/plain", b"", 204),
    }
    with serve_pages(address, pages) as url:
        yield url


@contextmanager
def serve_pages(address: tuple[str, int], pages: Mapping[str, Callable[[], Page]]) -> Iterator[str]:
    """Serve pages by their path, from OS threads, inside this block. Yield the URL.

    Raises ``PortTaken`` if the address is in use.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version = sys_version = ""
        timeout = 10  # an idle client may hold an OS thread no longer than this

        def do_GET(self) -> None:
            show = pages.get(self.path.partition("?")[0])
            if show is None:
                words = f"not found: try {', '.join(pages)}\n"
                self._respond(Page("text/plain", words.encode(), 404))
            else:
                self._respond(show())

        do_HEAD = do_GET

        def _respond(self, page: Page) -> None:
            self.send_response_only(page.status, HTTPStatus(page.status).phrase)
            self.send_header("Content-Type", page.content_type)
            self.send_header("Content-Length", str(len(page.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(page.body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: probes come every few seconds."""

    host, port = address

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        daemon_threads = True

    try:
        server = Server((host, port), Handler)
    except OSError as error:
        message = f"cannot listen on {host}:{port} ({error}): give --metrics another port"
        raise PortTaken(message) from None
    with server:
        threading.Thread(target=server.serve_forever, name="sayso-metrics", daemon=True).start()
        try:
            yield _url(host, server.socket)
        finally:
            server.shutdown()
