"""Write a method once, as a coroutine, and get its ``_sync`` twin.

The bodies never wait on their own: blocking work goes through ``to_thread``, and waiting for
changes goes through ``News``. On an event loop, ``to_thread`` uses a worker thread. Under
``run_sync`` it simply calls the function, so the coroutine runs to its end in one step and needs no
loop at all.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import cache, partial, update_wrapper
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from sayso.errors import SaysoError
from sayso.threads import Threads

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

_direct: contextvars.ContextVar[bool] = contextvars.ContextVar("sayso_direct", default=False)
_apart: contextvars.ContextVar[bool] = contextvars.ContextVar("sayso_apart", default=False)


#: When the loop of this thread last went round between two commits on it.
_gave_way = threading.local()
_TURN_SECONDS = 0.004
#: How long a process that ends waits for a store; nobody waits for its answer any more.
_AT_EXIT = 3.0


@cache
def _workers() -> Threads:
    return Threads(16, _AT_EXIT)


async def to_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a blocking function without blocking the loop, if there is one."""
    if _is_direct():
        return function(*args, **kwargs)
    return await _workers().run(partial(function, *args, **kwargs))


class Readable(Protocol):
    """Something to read from; ``quick_reads`` says that a read takes microseconds."""

    quick_reads: bool


async def read(source: Readable, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function that only reads from a store: in a thread, unless that would cost more."""
    if source.quick_reads:
        return function(*args, **kwargs)
    return await to_thread(function, *args, **kwargs)


class Writable(Readable, Protocol):
    """Something to write to; ``transact_now`` writes if that is not worth a thread."""

    def transact(self, *commands: Any) -> list[Any]: ...
    def transact_now(self, *commands: Any) -> list[Any] | None: ...


async def write(store: Writable, *commands: Any) -> list[Any]:
    """Commit: in a thread, unless that would cost more than the commit."""
    if _is_direct():
        return store.transact(*commands)
    results = store.transact_now(*commands) if store.quick_reads else None
    if results is None:
        return await to_thread(store.transact, *commands)
    await _let_others_in()
    return results


async def write_start(
    store: Writable, undo: Callable[[list[Any]], Sequence[Any]], *commands: Any
) -> list[Any]:
    """Commit what starts something; who is cancelled before hearing of it has not begun, and the
    commands that ``undo`` makes of the results take the start back."""
    if _is_direct():
        return store.transact(*commands)
    if store.quick_reads:
        await _let_others_in()  # not after it: who is cancelled in here has written nothing
        if (results := store.transact_now(*commands)) is not None:
            return results
    writing = _workers().run(partial(store.transact, *commands))
    try:
        return await asyncio.shield(writing)
    except asyncio.CancelledError:
        with suppress(SaysoError):  # then it was not written, or its lease ends by itself
            if back := undo(await asyncio.shield(writing)):
                await asyncio.shield(_workers().run(partial(store.transact, *back)))
        raise


async def write_made(
    store: Writable, make: Callable[P, Any], *args: P.args, **kwargs: P.kwargs
) -> list[Any]:
    """Commit a command that is made by reading first: both in one thread, where it needs one."""
    if store.quick_reads:
        return await write(store, make(*args, **kwargs))
    return await to_thread(lambda: store.transact(make(*args, **kwargs)))


async def _let_others_in() -> None:
    """Give way now and then: a commit on the loop keeps everybody else from it for a moment."""
    now = time.monotonic()
    if now - getattr(_gave_way, "at", 0.0) > _TURN_SECONDS:
        await asyncio.sleep(0)
        _gave_way.at = time.monotonic()


async def write_shielded(store: Writable, *commands: Any) -> list[Any]:
    """The same, to its end also while being cancelled."""
    if _is_direct():
        return store.transact(*commands)
    results = store.transact_now(*commands) if store.quick_reads else None
    if results is not None:
        return results
    writing = _workers().run(partial(store.transact, *commands))
    try:
        return await asyncio.shield(writing)
    except asyncio.CancelledError:
        with suppress(SaysoError):  # it was not written, and that is no news for who is cancelled
            await asyncio.shield(writing)
        raise


def run_sync(body: Coroutine[Any, Any, T]) -> T:
    """Run a body to its end in this thread, without a loop."""
    if on_loop():
        body.close()
        raise SaysoError(
            "a _sync method was called on a running event loop, which it would block: "
            "await the method without _sync, or call it in a thread (asyncio.to_thread)"
        )
    token = _direct.set(True)
    try:
        body.send(None)
    except StopIteration as stop:
        value: T = stop.value
        return value
    finally:
        _direct.reset(token)
        body.close()
    raise AssertionError("a body waited by itself; use hop")


def run_apart(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run what needs a loop in this thread, on one that ends with it."""
    if on_loop():
        raise SaysoError(
            "a _sync method was called on a running event loop, which it would block: "
            "await the method without _sync"
        )
    token = _apart.set(True)
    try:
        return asyncio.run(make())
    finally:
        _apart.reset(token)


def sync_twin(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]], *, apart: bool = False
) -> Callable[Concatenate[S, P], T]:
    """The ``_sync`` twin of an async method: what it takes and says is that of the method.

    ``apart`` is for bodies that need a loop. A class that overrides the method has its twin too.
    """
    name = method.__name__

    def sync(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        body: Callable[P, Coroutine[Any, Any, T]] = getattr(self, name)
        if apart:
            return run_apart(partial(body, *args, **kwargs))
        return run_sync(body(*args, **kwargs))

    update_wrapper(sync, method)
    del sync.__wrapped__  # type: ignore[attr-defined]  # or others would take it for async, and await
    sync.__name__, sync.__qualname__ = f"{name}_sync", f"{method.__qualname__}_sync"
    sync.__signature__ = inspect.signature(method)  # type: ignore[attr-defined]  # for help() and editors
    return sync


def on_lasting_loop() -> bool:
    """Whether this runs on the event loop of whoever called us, which is there for more."""
    return on_loop() and not _apart.get()


def on_loop() -> bool:
    """Whether this thread is running an event loop right now."""
    # ``get_running_loop`` would raise for an answer that is common here.
    return asyncio._get_running_loop() is not None


def _is_direct() -> bool:
    """Whether ``run_sync`` drives; a function that it called may have a loop of its own."""
    return _direct.get() and not on_loop()


async def drive(make: Callable[[], Coroutine[Any, Any, T]], timeout: float | None = None) -> T:
    """Await somebody else's coroutine, on the running loop or on one of its own.

    ``timeout`` is for the latter: what takes longer is left behind. On the running loop, a
    coroutine ends in time by itself.
    """
    if not _is_direct():
        return await make()
    return in_thread(lambda: run_apart(make), timeout)


def in_thread(function: Callable[[], T], timeout: float | None = None) -> T:
    """Call a function in a thread of its own, in this context; TimeoutError leaves it behind."""
    outcome: list[T] = []
    error: list[BaseException] = []
    context = contextvars.copy_context()
    context.run(_direct.set, False)

    def body() -> None:
        try:
            outcome.append(context.run(function))
        except BaseException as raised:
            error.append(raised)

    thread = threading.Thread(target=body, name="sayso-call", daemon=True)
    thread.start()
    thread.join(timeout)
    if error:
        raise error[0]
    if not outcome:
        raise TimeoutError(f"no answer within {timeout} seconds")
    return outcome[0]


class Source(Protocol):
    """Where news come from: a store."""

    def subscribe(self, thread: str | None, listener: Callable[[], None]) -> Any: ...


class News:
    """Waits for commits on one thread of a store, in either colour and without polling."""

    def __init__(self, source: Source, thread: str | None) -> None:
        self._loop = None if _is_direct() else asyncio.get_running_loop()
        self._event: threading.Event | asyncio.Event = (
            threading.Event() if self._loop is None else asyncio.Event()
        )
        self._subscription = source.subscribe(thread, self.wake)

    def wake(self) -> None:
        """Let ``wait`` return; from any thread."""
        if self._loop is None:
            self._event.set()
            return
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:
            self.close()  # the loop is gone, and nobody waits any more

    async def wait(self, timeout: float | None) -> None:
        """Return after the next commit, or when the time is over."""
        if isinstance(self._event, threading.Event):
            self._event.wait(timeout)
        else:
            try:
                # Not wait_for: before Python 3.12 it may swallow a cancellation.
                async with asyncio.timeout(timeout):
                    await self._event.wait()
            except TimeoutError:
                return
        self._event.clear()

    def close(self) -> None:
        """Stop listening."""
        self._subscription.cancel()
