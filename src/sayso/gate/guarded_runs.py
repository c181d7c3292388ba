"""Where a tool runs: inside a guarded run, and with which call, on any OS thread.

``guard`` promises that nothing runs without a decision. Code that a tool runs may find agents and
tools anywhere, so an adapter also checks the place through which its framework passes every tool
call, whatever code makes it. The check asks three questions:

1. Does this code belong to a guarded run? ``_place`` says so. It follows tasks, OS threads and pool
   jobs (``sayso.gate.os_threads``). Where that cannot be known, the tool is refused as long as a
   guarded run is open: in a callback of the event loop, or an OS thread, with an empty context.
2. Has this very call passed the gate? Then the framework runs it as usual.
3. May it ask? A pause starts the body of the call around it from the top again, so only a read or
   an idempotent call may be paused. Otherwise a call that needs a person is refused.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from sayso.errors import InvalidCall, Paused
from sayso.forking import call_in_child
from sayso.gate import os_threads
from sayso.gate.gate import Gate
from sayso.gate.scope import context_is_known
from sayso.policy import Policy
from sayso.rows import Call
from sayso.sync import context_value, on_loop

#: What ``ungated`` names to let the tools of an agent start work in other processes.
PROCESSES = "multiprocessing"

Worker: TypeAlias = asyncio.Task[Any] | threading.Thread


@dataclass(eq=False)
class Work:
    """The state of a guarded run, or of one call of it, while it runs in this process."""

    ended: bool = False
    #: A call inside it waits for a decision.
    paused: Paused | None = None
    os_thread: int = field(default_factory=threading.get_ident)


@dataclass(frozen=True, kw_only=True)
class Place:
    """A place inside a guarded run: between its calls, or in the body of one."""

    gate: Gate
    policy: Policy | None
    thread: str
    ungated: tuple[str, ...]
    work: Work
    #: The call whose body this is; None between calls.
    call: Call | None = None
    #: What names the call that has passed the gate and that the framework is about to run.
    passed: Hashable = None

    @property
    def may_pause(self) -> bool:
        """Whether the code here can start from the top again."""
        return self.call is not None and self.call.terms.effect != "once"

    def check_open(self) -> None:
        """Raise ``InvalidCall`` if the run or the call has ended."""
        if self.work.ended:
            raise InvalidCall(
                f"the tool is called on the thread {self.thread!r} after the call or run that "
                "started this code has ended: wait for the work in the tool that starts it, or "
                "start it outside of the run"
            )


_place: ContextVar[Place | None] = os_threads.follow(ContextVar("sayso_place", default=None), None)
#: The tasks and OS threads that are at work for guarded runs right now.
_marked: weakref.WeakSet[Worker] = weakref.WeakSet()
#: What is at work in this process, in any OS thread.
_at_work: set[Work] = set()


def install() -> None:
    """Make guarded runs follow the work in this process, from now on."""
    os_threads.install(_is_guarded, _is_here, _refuse_process, note_pause)


def _forget_other_threads() -> None:
    """Forget what other OS threads work on: a forked child has only one."""
    os_thread = threading.get_ident()
    for work in _at_work.copy():
        if work.os_thread != os_thread:
            _at_work.discard(work)


call_in_child(_forget_other_threads)


def current_place() -> Place | None:
    """Return the place of this code inside a guarded run; None outside.

    Raises ``InvalidCall`` if the run or the call has ended, or if nobody can know.
    """
    place = _place.get()
    if place is not None:
        place.check_open()
    elif _at_work and not _is_outside():
        raise InvalidCall(
            "a guarded run is open, and it is unknown whether this tool is called by it: the call "
            "is made in an empty or earlier context, or in an OS thread that Python did not start. "
            "Copy the context where the work begins (contextvars.copy_context()), or start the OS "
            "thread with threading.Thread"
        )
    return place


def known_place() -> Place | None:
    """Return the place of this code; None outside, and where nobody can know: tools are refused
    there, and nothing else needs to be."""
    try:
        return current_place()
    except InvalidCall:
        return None


def has_passed(name: Hashable) -> bool:
    """Return whether the call with this name has passed the gate and is about to run."""
    place = _place.get()
    return place is not None and place.passed is not None and place.passed == name


def note_pause(pause: Paused) -> bool:
    """Make the call whose body this is pause when its body ends, whatever the body makes of it.

    Returns whether there is such a call.
    """
    place = _place.get()
    if place is None or place.call is None or place.work.ended:
        return False
    place.work.paused = pause
    return True


@contextmanager
def guarded_run(
    gate: Gate, policy: Policy | None, thread: str, ungated: tuple[str, ...] = ()
) -> Iterator[None]:
    """Make the code inside ``with`` part of a guarded run, unless it is already."""
    place = _place.get()
    if (
        place is not None
        and not place.work.ended
        and (place.call, place.thread, place.ungated) == (None, thread, ungated)
        and (place.gate is gate and place.policy is policy)
    ):
        yield
        return
    with _working() as work:
        place = Place(gate=gate, policy=policy, thread=thread, ungated=ungated, work=work)
        with context_value(_place, place):
            yield


@contextmanager
def also_ungated(names: tuple[str, ...]) -> Iterator[None]:
    """Let the code inside ``with`` use what a guarded agent that starts there names too."""
    place = _place.get()
    if place is not None:
        place = replace(place, ungated=(*place.ungated, *names))
    with context_value(_place, place):
        yield


@contextmanager
def call_body(
    gate: Gate, policy: Policy | None, thread: str, call: Call, passed: Hashable
) -> Iterator[None]:
    """Make the code inside ``with`` the body of a call that has passed the gate.

    If a call inside it had to pause, raise that ``Paused`` at the end, whatever the body made of
    it.
    """
    around = _place.get()
    ungated = () if around is None else around.ungated
    with _working() as work:
        place = Place(
            gate=gate,
            policy=policy,
            thread=thread,
            ungated=ungated,
            work=work,
            call=call,
            passed=passed,
        )
        try:
            with context_value(_place, place):
                yield
        except Exception:
            if work.paused is None:
                raise
    if work.paused is not None:
        raise work.paused


@contextmanager
def _working() -> Iterator[Work]:
    work = Work()
    _at_work.add(work)
    worker = _mark_worker()
    try:
        yield work
    finally:
        if worker is not None:
            _marked.discard(worker)
        work.ended = True
        _at_work.discard(work)


@contextmanager
def tool_call(name: Hashable) -> Iterator[Place | None]:
    """Check a tool call where the framework runs it; ``name`` is what the adapter passed on.

    Yields None if the tool runs as it is: outside of guarded runs, or as a call that has passed the
    gate. Otherwise yields the place, and the call has to go through ``FrameworkThread.inner``.
    """
    place = current_place()
    if place is None or place.passed is None or place.passed != name:
        yield place
        return
    worker = _mark_worker()
    try:
        # In its body the call is no longer about to run: another one must pass the gate itself.
        with context_value(_place, replace(place, passed=None)):
            yield None
    finally:
        if worker is not None:
            _marked.discard(worker)


def _worker() -> Worker:
    """Return the task or OS thread that runs this code, whatever its context."""
    task = asyncio.current_task() if on_loop() else None
    return threading.current_thread() if task is None else task


def _mark_worker() -> Worker | None:
    """Remember that this task or OS thread works for a guarded run. Return it, to forget it where
    that ends; None if it is remembered already."""
    worker = _worker()
    if worker in _marked:
        return None
    _marked.add(worker)
    return worker


def _is_outside() -> bool:
    """Return whether code without a place is certainly no part of a guarded run."""
    if _worker() in _marked:
        return False  # it has left the run by another context
    outside = os_threads.started_outside()
    if outside is not None:
        return outside
    if context_is_known():
        return True
    # In an OS thread that runs guarded agents itself, this may be an empty context.
    os_thread = threading.get_ident()
    return os_threads.is_older() and all(work.os_thread != os_thread for work in _at_work.copy())


def _is_guarded() -> bool | None:
    place = _place.get()
    if place is not None:
        return not place.work.ended
    return False if _is_outside() else None


def _is_here(context: Context) -> bool:
    return context.get(_place) is _place.get()


def _refuse_process(pool: str) -> None:
    place = _place.get()
    if place is None or place.work.ended or PROCESSES in place.ungated:
        return
    raise InvalidCall(
        f"a tool of a guarded agent starts work in another process ({pool}), where nothing can "
        "ask for approval: use OS threads, or allow it for all tools of this agent with "
        f"guard(..., ungated=[{PROCESSES!r}])"
    )
