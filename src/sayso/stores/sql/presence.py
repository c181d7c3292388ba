"""Which processes have a store open: each keeps a row there, with a heartbeat.

A process that will not know a new key, or the tables of a new version, has to be restarted first.
``sayso keys rotate`` and ``sayso upgrade`` name it from its row.

One OS thread of a process writes the rows in all stores that it has open. Nothing waits for it, and
a call costs nothing more. It writes the first row after ``FIRST_SECONDS``, so a command that ends
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
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from sayso.errors import SaysoError
from sayso.forking import call_in_child
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
        process = _process_from(row)
        processes.setdefault(process._replace(id="", started=0, seen=0), process)
    return list(processes.values())


def _process_from(row: Sequence[Any]) -> LiveProcess:
    process = LiveProcess(*row)
    return process._replace(keys=_texts(process.keys), row_keys=_texts(process.row_keys))


def _texts(text: Any) -> tuple[str, ...]:
    """Parse a list of key ids. Anyone who can write to the table may have changed it."""
    try:
        values = json.loads(text)
    except ValueError:
        return ()
    return tuple(map(str, values)) if isinstance(values, list) else ()


class _Entry:
    """What this process writes about itself into one store, and when it writes it next."""

    def __init__(self) -> None:
        self.id = secrets.token_hex(8)
        self.due = time.monotonic() + FIRST_SECONDS
        self.started: Micros = 0
        #: Held while the row is written, so that a heartbeat cannot follow the end of the row.
        self.writing = threading.Lock()
        self.has_left = False


class _Presence:
    """The stores that this process has open."""

    def __init__(self) -> None:
        self.after_fork()
        call_in_child(self.after_fork)

    def after_fork(self) -> None:
        """Forget the rows of the parent. A store joins again when the child uses it."""
        self._entries: WeakKeyDictionary[Kept, _Entry] = WeakKeyDictionary()
        self._changed = threading.Condition(threading.Lock())
        self._thread: threading.Thread | None = None

    def join(self, store: Kept, *, at_once: bool) -> None:
        with self._changed:
            entry = self._entries.get(store)
            if entry is None:
                entry = self._entries[store] = _Entry()
            if at_once and not entry.started:
                entry.due = time.monotonic()
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(target=self._work, name="sayso-presence", daemon=True)
                self._thread = thread
                thread.start()
            self._changed.notify()

    def leave(self, store: Kept) -> None:
        entry = self._entries.get(store)
        if entry is None:
            return
        entry.has_left = True
        if entry.writing.acquire(timeout=PATIENCE):
            try:
                if entry.started:
                    store.write_presence(sql.DROP_PROCESS, (entry.id,))
            except SaysoError as error:
                log.debug("the row of this process stays until it is stale: %s", error)
            finally:
                entry.writing.release()
        with self._changed:
            self._entries.pop(store, None)
            self._changed.notify()  # the OS thread ends with the last store

    def leave_all(self) -> None:
        for store in list(self._entries):
            self.leave(store)

    def _work(self) -> None:
        """Write the rows that are due, until no store is open."""
        while True:
            with self._changed:
                entries = dict(self._entries)
                if not entries:
                    self._thread = None
                    return
                now = time.monotonic()
                due = [store for store, entry in entries.items() if entry.due <= now]
                if not due:
                    first = min(entry.due for entry in entries.values())
                    del entries  # keep no store alive while waiting
                    self._changed.wait(first - now)
                    continue
            for store in due:
                self._beat(store, entries[store])
            del store, due, entries

    def _beat(self, store: Kept, entry: _Entry) -> None:
        entry.due = time.monotonic() + BEAT_SECONDS
        with entry.writing:
            if entry.has_left:
                return
            try:
                now = store.now()
                process = _this_process(entry.id, store, entry.started or now, now)
                store.write_presence(sql.PUT_PROCESS, process)
                if not entry.started:
                    entry.started = now
                    store.write_presence(sql.DROP_PROCESSES, (now - _KEPT_SECONDS * SECOND,))
            except SaysoError as error:  # other parts of the process say what is wrong
                log.debug("no heartbeat of this process in %s: %s", store.url, error)


def _this_process(id: str, store: Kept, started: Micros, now: Micros) -> Sequence[Any]:
    row_keys = json.dumps([key.id for key in store.keys.rows])
    keys = json.dumps([key.id for key in store.keys.keys])
    about = (socket.gethostname(), os.getpid(), _program(), version("sayso"))
    return (id, *about, store.schema_version(), keys, row_keys, started, now)


def _program() -> str:
    """Return what this process runs: ``sayso serve``, or the name of a script."""
    script = Path(sys.argv[0] if sys.argv else "")
    if script.name == "sayso" or script.parts[-2:] == ("sayso", "__main__.py"):
        return " ".join(["sayso", *sys.argv[1:2]])
    return script.name if script.name not in ("", "-c") else "python"


_presence = _Presence()
atexit.register(_presence.leave_all)


def keep_present(store: Kept) -> None:
    """Keep a row of this process in a store, from a few seconds from now until it is closed.

    Call it whenever a connection is opened: in a forked child, that is the first use of the store.
    """
    _presence.join(store, at_once=False)


def announce(store: Any) -> None:
    """Write the row of this process now, if it keeps one: it is going to work for long."""
    if hasattr(store, "write_presence"):
        _presence.join(store, at_once=True)


def leave(store: Kept) -> None:
    """Delete the row of this process from a store that is about to be closed."""
    _presence.leave(store)
