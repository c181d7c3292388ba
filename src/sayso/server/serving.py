"""Serving the app: a socket that is surely ours, and an end that loses nothing."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType

import uvicorn
from fastapi import FastAPI

from sayso.agent.events import cancel_streams
from sayso.errors import SaysoError
from sayso.server.service import Service
from sayso.threads import leave_soon

#: How long open streams get to end by themselves.
_GRACE = 5
#: How long an idle connection is kept. A proxy keeps its end for 60 seconds, as a rule: whoever
#: closes first must not be the one to whom the other may be sending a decision just then.
IDLE = 75
#: Threads that read the store take turns with the loop this often: people wait for both.
_SWITCH = 0.001


class PortTaken(SaysoError):
    """Nothing can listen there."""


def run(app: FastAPI, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve until a signal; ``ready`` is told the address once it answers.

    After the end a late Ctrl-C does nothing.
    """
    taken = _bound(host, port)
    number = taken.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="on",
        ws="none",
        server_header=False,
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=_GRACE,
    )
    server = _Server(config, app.state.sayso, lambda: ready(f"http://{shown}:{number}"))
    logging.getLogger("uvicorn.error").addFilter(_is_trouble)
    sys.setswitchinterval(_SWITCH)
    signal.signal(signal.SIGINT, lambda *_: None)  # before and after those that the server hears
    with taken:
        server.run(sockets=[taken])


def _is_trouble(record: logging.LogRecord) -> bool:
    """Whether a line is worth it; that the end cut an answer short is not."""
    return record.exc_info is None or not isinstance(record.exc_info[1], asyncio.CancelledError)


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    taken = socket.socket(family, socket.SOCK_STREAM)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind((host, port))
    except (OSError, OverflowError) as error:
        taken.close()
        raise PortTaken(f"cannot listen on {host}:{port} ({error}): use another --port") from None
    taken.set_inheritable(False)
    return taken


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
        """Stop in good order; a second Ctrl-C cuts short what is at work, which is in doubt then.

        Either way the end was asked for.
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
            await self.lifespan.shutdown()  # nothing takes long now, and the app ends as it should
            leave_soon()
