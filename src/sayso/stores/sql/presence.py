"""Which processes have a store open: each keeps a row there, with a heartbeat.

A process that will not know a new key, or the tables of a new version, has to be restarted first.
``sayso keys rotate`` and ``sayso upgrade`` name it from its row.

An OS thread writes the row of each store that is open. Nothing waits for it, and a call costs
nothing more. It writes the first row after ``FIRST_SECONDS``, so a command that ends
sooner writes none; servers and workers do so at once (``announce``). The row goes when the store is
closed or the process exits. If it is killed, the row is stale after ``STALE_SECONDS``.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import secrets
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakKeyDictionary, ref

from sayso.errors import SaysoError
from sayso.forking import call_in_child, fork_safe_lock
from sayso.keys import Keyring
from sayso.rows import LiveProcess
from sayso.stores.sql import statements as sql
from sayso.stores.sql.statements import Rows
from sayso.types import SECOND, Micros

log = logging.getLogger("sayso.stores")

BEAT_SECONDS = 15.0
FIRST_SECONDS = 10.0
STALE_SECONDS = 60
#: How long a heartbeat, or the end of a row, waits for a store that is busy or away.
PATIENCE = 2.0
#: Rows of processes that were killed are deleted after this many seconds.
_KEPT_SECONDS = 86_400


class Kept(Protocol):
    """A store that other processes can open, too."""

    url: str
    keys: Keyring

    def now(self) -> Micros: ...

    def schema_version(self) -> int:
        """Return the version of the tables that this process reads and writes."""

    def write_presence(self, statement: str, values: Sequence[Any]) -> None:
        """Run a statement that changes the table ``process``, in a transaction of its own."""


def live_processes(rows: Rows, now: Micros) -> list[LiveProcess]:
    """Read the processes whose heartbeat is recent, oldest first.

    A process that has opened the store twice, with the same keys, is returned once.
    """
    processes: dict[Any, LiveProcess] = {}
    for row in rows(sql.LOAD_PROCESSES, (now - STALE_SECONDS * SECOND,)):
        process = LiveProcess(*row)
        keys = _texts(process.keys)
        process = process._replace(keys=keys, row_keys=_texts(process.row_keys))
        processes.setdefault(process._replace(id="", started=0, seen=0), process)
    return list(processes.values())


def _texts(text: Any) -> tuple[str, ...]:
    """Parse a list of key ids. Anyone who can write to the table may have changed it."""
    try:
        values = json.loads(text)
    except ValueError:
        return ()
    return tuple(map(str, values)) if isinstance(values, list) else ()


class _Heartbeat:
    """The row of this process in one store, and the OS thread that writes it."""

    def __init__(self, store: Kept) -> None:
        self._store = ref(store)
        self._id = secrets.token_hex(8)
        self._started: Micros = 0
        self._wake = threading.Event()
        #: Held while the row is written, so that a heartbeat cannot follow the end of the row.
        self._writing = threading.Lock()
        self._has_left = False
        with suppress(RuntimeError):  # a process that exits starts no OS thread
            threading.Thread(target=self._work, name="sayso-presence", daemon=True).start()

    def write_now(self) -> None:
        """Write the row at once, if it was not written yet."""
        if not self._started:
            self._wake.set()

    def leave(self, store: Kept) -> None:
        self._has_left = True
        self._wake.set()
        if self._writing.acquire(timeout=PATIENCE):
            try:
                if self._started:
                    store.write_presence(sql.DROP_PROCESS, (self._id,))
            except SaysoError as error:
                log.debug("the row of this process stays until it is stale: %s", error)
            finally:
                self._writing.release()

    def _work(self) -> None:
        seconds = FIRST_SECONDS
        while True:
            self._wake.wait(seconds)
            self._wake.clear()
            store = self._store()
            if store is None or self._has_left:
                return
            self._beat(store)
            del store  # keep no store alive while waiting
            seconds = BEAT_SECONDS

    def _beat(self, store: Kept) -> None:
        with self._writing:
            if self._has_left:
                return
            try:
                now = store.now()
                row_keys = json.dumps([key.id for key in store.keys.rows])
                keys = json.dumps([key.id for key in store.keys.keys])
                about = (socket.gethostname(), os.getpid(), _program(), version("sayso"))
                times = (self._started or now, now)
                row = (self._id, *about, store.schema_version(), keys, row_keys, *times)
                store.write_presence(sql.PUT_PROCESS, row)
                if not self._started:
                    self._started = now
                    store.write_presence(sql.DROP_PROCESSES, (now - _KEPT_SECONDS * SECOND,))
            except SaysoError as error:  # other parts of the process say what is wrong
                log.debug("no heartbeat of this process in %s: %s", store.url, error)


def _program() -> str:
    """Return what this process runs: ``sayso serve``, or the name of a script."""
    script = Path(sys.argv[0] if sys.argv else "")
    if script.name == "sayso" or script.parts[-2:] == ("sayso", "__main__.py"):
        return " ".join(["sayso", *sys.argv[1:2]])
    return script.name if script.name not in ("", "-c") else "python"


#: By store. A forked child has none, and a store joins again when the child uses it.
_heartbeats: WeakKeyDictionary[Kept, _Heartbeat] = WeakKeyDictionary()
_lock = fork_safe_lock()
call_in_child(_heartbeats.clear)


def keep_present(store: Kept) -> _Heartbeat:
    """Keep a row of this process in a store, from a few seconds from now until it is closed.

    Call it whenever a connection is opened: in a forked child, that is the first use of the store.
    """
    with _lock:
        if store not in _heartbeats:
            _heartbeats[store] = _Heartbeat(store)
        return _heartbeats[store]


def announce(store: Any) -> None:
    """Write the row of this process now, if it keeps one: it is going to work for long."""
    if hasattr(store, "write_presence"):
        keep_present(store).write_now()


def leave(store: Kept) -> None:
    """Delete the row of this process from a store that is about to be closed."""
    if store in _heartbeats:
        _heartbeats[store].leave(store)
        _heartbeats.pop(store, None)


@atexit.register
def _leave_all() -> None:
    for store in list(_heartbeats):
        leave(store)
