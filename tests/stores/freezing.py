"""Stop all processes of a PostgreSQL (SIGSTOP)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from postgres_server import PostgresServer


def everybody(server: PostgresServer) -> list[int]:
    """Return all processes of the server."""
    assert server._process is not None
    pids = [server._process.pid]
    for pid in pids:
        with suppress(OSError):
            pids += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return pids


@contextmanager
def frozen(server: PostgresServer) -> Iterator[None]:
    """Stop the server inside ``with``, as if its disk hung; connections still open."""
    assert server._process is not None
    os.kill(server._process.pid, signal.SIGSTOP)  # first: it starts the others
    stopped = everybody(server)
    try:
        _signal(stopped, signal.SIGSTOP)
        yield
    finally:
        _signal(stopped, signal.SIGCONT)


def _signal(pids: list[int], which: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):  # it has just ended by itself
            os.kill(pid, which)
