"""Where blocking and async code meet: worker threads, ``_sync`` twins, and waiting for commits.

Public methods are coroutines, and each gets its ``_sync`` twin from ``sync_twin``. The bodies never
block and never await anything but this module: blocking work goes through ``to_thread``, ``read``
and ``write``; waiting for changes goes through ``CommitWaiter``. On an event loop these use worker
threads. Under ``run_sync`` they simply call the function, so that a coroutine runs to its end in
one step and needs no loop at all.

Code that users wrote may take long or need a loop: ``run_user_function`` and
``run_user_coroutine``.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import inspect
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial, update_wrapper
from queue import SimpleQueue
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from sayso.errors import SaysoError
from sayso.forking import renew_in_child

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

#: Whether ``run_sync`` drives the current coroutine.
_direct: contextvars.ContextVar[bool] = contextvars.ContextVar("sayso_direct", default=False)
#: Whether ``read`` calls a function on the event loop.
_reads_on_loop: contextvars.ContextVar[bool] = contextvars.ContextVar("sayso_reads", default=False)
#: Whether the running loop is one that ``run_on_own_loop`` made.
_own_loop: contextvars.ContextVar[bool] = contextvars.ContextVar("sayso_own_loop", default=False)


# -- worker threads

#: The function to call, and the future of the caller, which gets the result or the error.
_Job = tuple[Callable[[], Any], asyncio.Future[Any]]

#: How many calls to the store run at once, and how many seconds a process that exits waits for
#: them: nothing waits for their results any more.
_STORE_THREADS = 16
_STORE_EXIT_SECONDS = 3.0
#: How many functions of users run at once.
_USER_THREADS = 256
_EXIT_SOON_SECONDS = 1.0


class ThreadPool:
    """Worker threads for event loops: up to ``size``, each started when the others are busy.

    ``ThreadPoolExecutor`` costs twice as much (98 µs of CPU per call, here 44): each call goes
    through two futures and their conditions, which is more work than most reads of a store. The
    loop's default executor also has few threads (six on two cores) and resolves host names: six
    slow tools would block every other run, and every new connection.

    A job that waits for another job of the same pool does not count against ``size``; otherwise all
    threads could wait for one more. At exit, running jobs are completed; ``exit_seconds`` limits
    how long that may take.
    """

    def __init__(self, size: int, exit_seconds: float | None = None) -> None:
        self._size = size
        self._exit_seconds = exit_seconds
        self.after_fork()
        renew_in_child(self)
        atexit.register(self._finish)

    def after_fork(self) -> None:
        """Start without threads and jobs: a forked child has none of its parent's."""
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        #: The number of idle threads; if negative, the number of jobs that wait for one.
        self._free = 0
        self._threads: list[threading.Thread] = []

    def run(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Call the function in a worker thread. A job that is cancelled in time never starts."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._free <= 0 and (
                len(self._threads) < self._size or threading.current_thread() in self._threads
            ):
                name = f"sayso-io_{len(self._threads)}"
                thread = threading.Thread(target=self._work, name=name, daemon=True)
                thread.start()
                self._threads.append(thread)
                self._free += 1
            self._free -= 1
        self._jobs.put((function, future))
        return future

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            function, future = job
            value = error = None
            if not future.cancelled():
                try:
                    value = function()
                except BaseException as raised:  # whatever it is, it belongs to the caller
                    error = raised
            with self._lock:
                self._free += 1
            resolve(future, value, error)
            del job, function, future, value, error  # keep nothing alive while idle

    def _finish(self) -> None:
        """Complete running jobs before the interpreter exits."""
        for _ in self._threads:
            self._jobs.put(None)
        ends = None if self._exit_seconds is None else time.monotonic() + self._exit_seconds
        for thread in self._threads:
            thread.join(None if ends is None else max(ends - time.monotonic(), 0.0))


def resolve(future: asyncio.Future[T], value: T, error: BaseException | None) -> None:
    """Resolve a future of a loop from another OS thread."""
    with suppress(RuntimeError):  # the loop is closed, and nothing waits any more
        future.get_loop().call_soon_threadsafe(_resolve, future, value, error)


def _resolve(future: asyncio.Future[T], value: T, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(value)
    elif isinstance(error, StopIteration):  # a future cannot carry it, and neither can a coroutine
        wrapped = RuntimeError(f"StopIteration: {error}")
        wrapped.__cause__ = error
        future.set_exception(wrapped)
    else:
        future.set_exception(error)


@cache
def _store_threads() -> ThreadPool:
    return ThreadPool(_STORE_THREADS, _STORE_EXIT_SECONDS)


@cache
def _ordered_thread() -> ThreadPool:
    return ThreadPool(1, _STORE_EXIT_SECONDS)


def _threads_of(store: Any) -> ThreadPool:
    """Return the worker threads for calls to a store.

    Calls to a store that would be quick on the loop (SQLite, used by a framework) share one thread,
    so that they happen in the order in which they were made, as they would on the loop.
    """
    return _ordered_thread() if getattr(store, "in_order", False) else _store_threads()


@cache
def user_threads() -> ThreadPool:
    return ThreadPool(_USER_THREADS)


def exit_soon(code: int = 0) -> None:
    """End the process in a moment, even if functions in worker threads still run.

    Call this when everything is written and the user has asked twice to stop.
    """

    def leave() -> None:
        time.sleep(_EXIT_SOON_SECONDS)
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)

    threading.Thread(target=leave, name="sayso-exit", daemon=True).start()


# -- calls to the store


async def to_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a blocking function without blocking the loop, if there is one."""
    if _is_direct():
        return function(*args, **kwargs)
    return await _store_threads().run(partial(function, *args, **kwargs))


def in_thread(function: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Make an async function of a blocking one, which is called as ``to_thread`` calls it."""

    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return await to_thread(function, *args, **kwargs)

    signature = inspect.signature(function)
    update_wrapper(call, function)
    del call.__wrapped__  # type: ignore[attr-defined]  # or frameworks would take it for blocking
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


class Readable(Protocol):
    """A store to read from. ``quick_reads`` is true if a read takes microseconds."""

    quick_reads: bool


class WouldBlock(Exception):
    """A read that ``must_not_block`` would have to wait. It is made again in a worker thread."""


def must_not_block() -> bool:
    """Return whether ``read`` has called this code on the event loop."""
    return _reads_on_loop.get()


async def read(source: Readable, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function that only reads from a store: in a thread, unless that would cost more."""
    if _is_direct():
        return function(*args, **kwargs)
    if source.quick_reads:
        token = _reads_on_loop.set(True)
        try:
            return function(*args, **kwargs)
        except WouldBlock:
            pass  # the file is locked
        finally:
            _reads_on_loop.reset(token)
    return await _threads_of(source).run(partial(function, *args, **kwargs))


class Writable(Readable, Protocol):
    """A store to write to."""

    def transact(self, *commands: Any) -> list[Any]: ...


async def write(store: Writable, *commands: Any) -> list[Any]:
    """Commit. If the caller is cancelled before the commit began, nothing is written."""
    if _is_direct():
        return store.transact(*commands)
    return await _writing(store, commands)


async def write_built(
    store: Writable, build: Callable[P, Any], *args: P.args, **kwargs: P.kwargs
) -> list[Any]:
    """Commit a command that is built by reading first; both use one worker thread, if any."""
    if _is_direct():
        return store.transact(build(*args, **kwargs))
    if store.quick_reads:
        return await _writing(store, (await read(store, build, *args, **kwargs),))
    return await _threads_of(store).run(lambda: store.transact(build(*args, **kwargs)))


async def write_shielded(store: Writable, *commands: Any) -> list[Any]:
    """Commit, to the end even if the caller is cancelled."""
    return await write_start(store, lambda _: (), *commands)


async def write_start(
    store: Writable, undo: Callable[[list[Any]], Sequence[Any]], *commands: Any
) -> list[Any]:
    """Commit commands that start something, and undo the start if the caller is cancelled.

    ``undo`` makes the commands from the results.
    """
    if _is_direct():
        return store.transact(*commands)
    writing = _writing(store, commands)
    try:
        return await asyncio.shield(writing)
    except asyncio.CancelledError:
        with suppress(SaysoError):  # then it was not written, or the lease of its start expires
            if back := undo(await asyncio.shield(writing)):
                await asyncio.shield(_writing(store, back))
        raise


def _writing(store: Writable, commands: Sequence[Any]) -> asyncio.Future[list[Any]]:
    # A store with an OS thread that commits needs no other one to wait for it.
    soon = getattr(store.transact, "soon", None)
    if soon is not None:
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        if soon(store, future, *commands):
            return future
    return _threads_of(store).run(partial(store.transact, *commands))


# -- sync twins


_REFUSED = (
    "a _sync method was called on a running event loop, which it would block: "
    "await the method without _sync, or call it in a thread (asyncio.to_thread)"
)


def run_sync(body: Coroutine[Any, Any, T], refused: str = _REFUSED) -> T:
    """Run a coroutine to its end in this OS thread, without a loop.

    Raises ``SaysoError`` with the text ``refused`` on an event loop.
    """
    if on_loop():
        body.close()
        raise SaysoError(refused)
    token = _direct.set(True)
    try:
        body.send(None)
    except StopIteration as stop:
        value: T = stop.value
        return value
    finally:
        _direct.reset(token)
        body.close()
    raise AssertionError("a coroutine of a _sync method awaited a loop; use sayso.sync")


def run_blocking(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine and return its result, in a new OS thread if an event loop runs here."""
    if on_loop():
        return call_in_new_thread(lambda: run_sync(make()))
    return run_sync(make())


class context_value(Generic[T]):
    """Give a context variable this value inside the block."""

    __slots__ = ("_token", "_value", "_variable")

    def __init__(self, variable: contextvars.ContextVar[T], value: T) -> None:
        self._variable = variable
        self._value = value

    def __enter__(self) -> None:
        self._token = self._variable.set(self._value)

    def __exit__(self, *exception: object) -> None:
        self._variable.reset(self._token)


def run_on_own_loop(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine that needs a loop in this OS thread, on a new loop."""
    if on_loop():
        raise SaysoError(_REFUSED)
    with context_value(_own_loop, True), asyncio.Runner() as runner:
        return runner.run(make())


def stream_twin(
    method: Callable[Concatenate[S, P], AsyncIterator[T]],
    at_end: Callable[[], Coroutine[Any, Any, None]],
) -> Callable[Concatenate[S, P], Iterator[T]]:
    """Return the ``_sync`` twin of a method that returns an async iterator.

    The events come from a new loop, which runs only while the caller waits for the next one. When
    the caller stops reading, or the events end, ``at_end`` runs on that loop.
    """
    name = method.__name__

    def sync(self: S, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        if on_loop():
            raise SaysoError(_REFUSED)
        make: Callable[P, AsyncIterator[T]] = getattr(self, name)
        return _read_on_own_loop(make(*args, **kwargs), at_end)

    _as_twin(sync, method)
    signature = inspect.signature(method)
    returned = str(signature.return_annotation).replace("AsyncIterator", "Iterator")
    sync.__signature__ = signature.replace(return_annotation=returned)  # type: ignore[attr-defined]
    return sync


def _read_on_own_loop(
    events: AsyncIterator[T], at_end: Callable[[], Coroutine[Any, Any, None]]
) -> Iterator[T]:
    over = object()

    async def following() -> T | object:
        return await anext(events, over)

    context = contextvars.copy_context()
    context.run(_own_loop.set, True)
    with asyncio.Runner() as runner:
        try:
            while (event := runner.run(following(), context=context)) is not over:
                yield event  # type: ignore[misc]
        finally:
            runner.run(at_end(), context=context)


def sync_twin(
    method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]], *, own_loop: bool = False
) -> Callable[Concatenate[S, P], T]:
    """Return the ``_sync`` twin of an async method, with its signature and docstring.

    Set ``own_loop`` for bodies that need a loop. The twin calls the method by name, so that it
    follows a subclass that overrides the method.
    """
    name = method.__name__

    def sync(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        body: Callable[P, Coroutine[Any, Any, T]] = getattr(self, name)
        if own_loop:
            return run_on_own_loop(partial(body, *args, **kwargs))
        return run_sync(body(*args, **kwargs))

    _as_twin(sync, method)
    return sync


def _as_twin(sync: Callable[..., Any], method: Callable[..., Any]) -> None:
    update_wrapper(sync, method)
    del sync.__wrapped__  # type: ignore[attr-defined]  # or frameworks would take it for async
    sync.__name__ = f"{method.__name__}_sync"
    sync.__qualname__ = f"{method.__qualname__}_sync"
    sync.__signature__ = inspect.signature(method)  # type: ignore[attr-defined]  # for help() and editors


def on_loop() -> bool:
    """Return whether this OS thread is running an event loop right now."""
    # ``get_running_loop`` raises if there is none, which is common here.
    return asyncio._get_running_loop() is not None


def on_callers_loop() -> bool:
    """Return whether this runs on the caller's event loop, which outlives the call."""
    return on_loop() and not _own_loop.get()


def _is_direct() -> bool:
    """Return whether ``run_sync`` drives; a function that it called may have a loop of its own."""
    return _direct.get() and asyncio._get_running_loop() is None


# -- users' code


async def run_user_function(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a user's sync function in a worker thread, in the current context."""
    context = contextvars.copy_context()
    job = partial(context.run, function, *args, **kwargs)
    body = _body.get()
    return await user_threads().run(job if body is None else partial(body.run, job))


class Body:
    """The body of a call, which may run on in a worker thread after its caller was cancelled."""

    def __init__(self, ended: Callable[[], None]) -> None:
        """``ended`` is called once no worker thread runs a part."""
        self._ended = ended
        self._lock = threading.Lock()
        #: The caller, and worker threads that run functions of the body.
        self._parts = 1

    def __enter__(self) -> Body:
        self._token = _body.set(self)
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            _body.reset(self._token)
        finally:
            self.leave()

    @property
    def in_worker_thread(self) -> bool:
        """Whether a worker thread still runs a part of the body."""
        return self._parts > 1

    def run(self, function: Callable[[], T]) -> T:
        """Call a function that is part of the body."""
        with self._lock:
            self._parts += 1
        try:
            return function()
        finally:
            self.leave()

    def leave(self) -> None:
        """Note that a part has ended."""
        with self._lock:
            self._parts -= 1
            is_over = self._parts == 0
        if is_over:
            self._ended()


_body: contextvars.ContextVar[Body | None] = contextvars.ContextVar("sayso_body", default=None)


async def awaited(value: Awaitable[T]) -> T:
    """Await a value: a coroutine for functions that take no other awaitable."""
    return await value


async def run_user_coroutine(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Await a user's coroutine, on the running loop or on one of its own."""
    if not _is_direct():
        return await make()
    return call_in_new_thread(lambda: run_on_own_loop(make))


def call_in_new_thread(function: Callable[[], T], timeout: float | None = None) -> T:
    """Call a function in a new OS thread, in this context. On ``TimeoutError`` it is abandoned."""
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


async def call_within(seconds: float, function: Callable[[], Any]) -> Any:
    """Call a user's function, async or not. On ``TimeoutError`` it is abandoned."""
    if _is_direct():

        def call() -> Any:
            value = function()
            if not inspect.isawaitable(value):
                return value
            return run_on_own_loop(lambda: awaited(value))

        return call_in_new_thread(call, seconds)
    async with asyncio.timeout(seconds):
        value = await run_user_function(function)
        return await value if inspect.isawaitable(value) else value


# -- waiting for commits


class Subscribable(Protocol):
    """A store that calls listeners after commits."""

    def subscribe(self, thread: str | None, listener: Callable[[], None]) -> Any: ...


class CommitWaiter:
    """Waits for commits on one thread of a store, or on any, on a loop or without one."""

    def __init__(self, source: Subscribable, thread: str | None) -> None:
        self._loop = None if _is_direct() else asyncio.get_running_loop()
        self._event: threading.Event | asyncio.Event = (
            threading.Event() if self._loop is None else asyncio.Event()
        )
        self._subscription = source.subscribe(thread, self.wake)

    def wake(self) -> None:
        """Make ``wait`` return. Call this from any OS thread."""
        if self._loop is None:
            self._event.set()
            return
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:
            self.close()  # the loop is closed, and nothing waits any more

    async def wait(self, timeout: float | None) -> None:
        """Return after the next commit, or after ``timeout`` seconds."""
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
        self._subscription.cancel()
