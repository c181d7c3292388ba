"""What runs around the code that asks: who waits for that, in there, would wait for ever.

Kept in the context, so that threads, loops and tasks that are begun inside a call know it too, for
as long as the call runs.
"""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from contextlib import contextmanager

from sayso.errors import Conflict
from sayso.rows import RunStatus


class _Work:
    """A call that runs, or a run that is driven."""

    __slots__ = ("call", "over", "place", "run")

    def __init__(self, place: str, run: str, call: str) -> None:
        self.place = place
        self.run = run
        self.call = call
        self.over = False


_around: contextvars.ContextVar[tuple[_Work, ...]] = contextvars.ContextVar(
    "sayso_around", default=()
)


@contextmanager
def working(place: str, run: str, call: str = "") -> Iterator[None]:
    """In here this call runs, or the whole run; ``place`` is the store that has them."""
    work = _Work(place, run, call)
    token = _around.set((*_around.get(), work))
    try:
        yield
    finally:
        work.over = True
        _around.reset(token)


def runs_here(call: str) -> bool:
    """Whether this code is part of that call."""
    return any(work.call == call for work in _around.get() if not work.over)


def refuse_own_call(call: str) -> None:
    """Raise instead of waiting for a call that this code is part of."""
    if runs_here(call):
        raise Conflict(
            f"{call} is what runs here, and would wait for itself: give the call inside it another "
            "key, or make it when the outer one has ended"
        )


def refuse_own_run(place: str, run: str) -> None:
    """Raise instead of waiting for a run that this code is part of."""
    around = (work for work in _around.get() if not work.over)
    if any(work.run == run and work.place == place for work in around):
        raise Conflict(
            f"run {run} is what runs here, and would wait for itself: use another thread, or do it "
            "when this run has ended"
        )


class Due:
    """A run that is gone on with here, if nobody else does."""

    __slots__ = ("run", "taken")

    def __init__(self, run: str) -> None:
        self.run = run
        #: Whether it was ours at some time.
        self.taken = False

    def is_others(self, status: str) -> bool:
        """Whether somebody else has brought it to where it stands, or is about to."""
        return not self.taken and status in _BY_WHO_HAS_IT


_BY_WHO_HAS_IT = (RunStatus.RUNNING, RunStatus.PAUSED, RunStatus.DONE, RunStatus.FAILED)
_due: contextvars.ContextVar[Due | None] = contextvars.ContextVar("sayso_due", default=None)


@contextmanager
def unless_taken(run: str) -> Iterator[Due]:
    """In here this run is left to whoever works on it already, and not waited for."""
    due = Due(run)
    token = _due.set(due)
    try:
        yield due
    finally:
        _due.reset(token)


def due_here(run: str) -> Due | None:
    """The run, if it is to be left to whoever else works on it."""
    due = _due.get()
    return due if due is not None and due.run == run else None


def go_on_with(run: str, *, named: str) -> None:
    """Note that the run which was named is part of this one, which it stands for."""
    if named != run and (due := due_here(named)) is not None:
        due.run = run


def took(run: str) -> None:
    """Note that a run is ours, or was moved by us."""
    due = _due.get()
    if due is not None and due.run == run:
        due.taken = True
