"""A process that is stopped (SIGSTOP) in the middle of a commit on a SQLite store."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_STOPS = """
import signal, sys, threading
from sayso.engine.commands import Note
from sayso.stores.sqlite import SqliteStore

def stop(name, when):
    if when == "before":
        print("stops", flush=True)
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # before this OS thread goes on

store = SqliteStore(sys.argv[1], boundary=stop)
store.transact(Note(thread="theirs", type="noted", actor="them", body={}))
store.boundary = None
store.close()
"""


@contextmanager
def stopped_writer(path: Path, key: str) -> Iterator[subprocess.Popen[str]]:
    """It holds the file; SIGCONT lets it write its one event and end."""
    child = subprocess.Popen(
        [sys.executable, "-c", _STOPS, str(path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "SAYSO_KEY": key},
        text=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "stops\n"
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        yield child
    finally:
        child.kill()
        child.communicate()
