"""Make locks, OS threads and connections survive ``os.fork``.

A forked child has one OS thread, the one that forked. Everything else is a snapshot: a lock that
another OS thread held stays locked forever, a queue has no reader, and a connection still belongs
to the parent. So every object that has any of these starts anew in the child (``renew_in_child``).

A snapshot taken in the middle of a change is useless. SQLite is the important case: it keeps the
locks of a file in variables of the whole process, behind locks of its own. A child that inherits
them half changed hangs, or takes its parent's locks for its own. ``with no_fork.lock:`` marks such
a section: a fork waits until no other OS thread is in one.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Literal, Protocol
from weakref import WeakSet

log = logging.getLogger("sayso")

#: How many seconds a fork waits for OS threads to leave their sections. A commit on a slow disk
#: takes less. If that was not enough, ``cut_short`` says so in the child.
PATIENCE = 10.0


class Renewable(Protocol):
    """An object with locks, OS threads or connections."""

    def after_fork(self) -> None:
        """Start anew. Called in a forked child before anything else runs there."""


_renewables: WeakSet[Any] = WeakSet()
_callbacks: list[Callable[[], object]] = []
_locks: WeakSet[threading.Lock] = WeakSet()


def renew_in_child(owner: Renewable) -> None:
    """Call ``owner.after_fork()`` in every forked child, as long as the owner lives."""
    _renewables.add(owner)


def call_in_child(callback: Callable[[], object]) -> None:
    """Call a function in every forked child, before any owner is renewed."""
    _callbacks.append(callback)


def fork_safe_lock() -> threading.Lock:
    """Create a lock that is free in a forked child, whichever OS thread held it."""
    lock = threading.Lock()
    _locks.add(lock)
    return lock


# -- sections that a fork must not interrupt

#: Held while a section is registered, and from before a fork until after it.
_forking = threading.RLock()
_sections: WeakSet[Any] = WeakSet()
#: What the forking OS thread holds during the fork.
_held: list[Any] = []


class _NoFork(threading.local):
    """One lock per OS thread, so that entering costs nothing but a lock that is free."""

    def __getattr__(self, name: str) -> Any:
        """Make the lock at its first use.

        Finalizers that close connections may run at any moment, here too, and need it.
        """
        if name != "lock":
            raise AttributeError(name)
        lock = threading.RLock()
        with _forking:
            _sections.add(lock)
        return self.__dict__.setdefault("lock", lock)


#: ``with no_fork.lock:`` keeps other OS threads from forking until the block ends. Blocks may be
#: nested. Do not wait for other OS threads inside.
no_fork = _NoFork()


# -- forking


class Process:
    """This process, among those that were forked from one another."""

    #: The number of forks between the first process and this one. Anything that was started under
    #: another number belongs to a parent process.
    forks = 0


process = Process()
_cut_short: Literal["", "own", "other"] = ""
#: The same of the fork that is under way.
_cuts: Literal["", "own", "other"] = ""


def cut_short() -> Literal["", "own", "other"]:
    """Return whether this process was forked inside a section.

    ``"own"``: by the OS thread that was in it. ``"other"``: another OS thread was in it for longer
    than ``PATIENCE``.
    """
    return _cut_short


def _before() -> None:
    global _cuts
    _forking.acquire()
    _cuts = "own" if no_fork.lock._is_owned() else ""
    end = time.monotonic() + PATIENCE
    for lock in list(_sections):
        if lock.acquire(timeout=max(end - time.monotonic(), 0.0)):
            _held.append(lock)
        else:
            _cuts = "other"


def _release() -> None:
    while _held:
        _held.pop().release()
    _forking.release()


def _in_child() -> None:
    global _cut_short
    process.forks += 1
    _cut_short = _cuts
    _release()
    _sections.clear()
    _sections.add(no_fork.lock)
    for lock in list(_locks):
        lock._at_fork_reinit()  # type: ignore[attr-defined]  # as the standard library does
    for renew in [*_callbacks, *(owner.after_fork for owner in list(_renewables))]:
        try:
            renew()
        except Exception:
            log.exception("a part of Sayso could not start anew in a forked process")


os.register_at_fork(before=_before, after_in_parent=_release, after_in_child=_in_child)
