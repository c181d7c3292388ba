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
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial, update_wrapper
from queue import SimpleQueue
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar
from weakref import WeakKeyDictionary

from sayso.errors import SaysoError
from sayso.forking import renew_in_child

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

#: Whether ``run_sync`` drives the current coroutine.
_direct: contextvars.ContextVar[bool] = contextvars.ContextVar("sayso_direct", default=False)
#: Whether the running loop is one that ``run_on_own_loop`` made.
_own_loop: contextvars.ContextVar[bool] = contextvars.ContextVar("sayso_own_loop", default=False)


# -- worker threads

#: The function to call; the event loop of the caller, and the function to call there with the
#: result or error; and whether the caller no longer waits.
_Job = tuple[
    Callable[[], Any],
    asyncio.AbstractEventLoop,
    Callable[[Any, BaseException | None], object],
    Callable[[], bool],
]

#: How many calls to the store run at once, and how many seconds a process that exits waits for
#: them: nothing waits for their results any more.
_STORE_THREADS, _STORE_EXIT_SECONDS = 16, 3.0
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
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._put((function, loop, partial(_resolve, future), future.cancelled))
        return future

    def run_then(
        self, function: Callable[[], T], tell: Callable[[T | None, BaseException | None], object]
    ) -> None:
        """Call the function in a worker thread, then call ``tell`` on the loop with its outcome."""
        self._put((function, asyncio.get_running_loop(), tell, lambda: False))

    def _put(self, job: _Job) -> None:
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
        self._jobs.put(job)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            function, loop, tell, is_over = job
            value = error = None
            if not is_over():
                try:
                    value = function()
                except BaseException as raised:  # whatever it is, it belongs to the caller
                    error = raised
            with self._lock:
                self._free += 1
            with suppress(RuntimeError):  # the loop is closed, and nothing waits any more
                loop.call_soon_threadsafe(tell, value, error)
            del job, function, loop, tell, is_over, value, error  # keep nothing alive while idle

    def _finish(self) -> None:
        """Complete running jobs before the interpreter exits."""
        for _ in self._threads:
            self._jobs.put(None)
        ends = None if self._exit_seconds is None else time.monotonic() + self._exit_seconds
        for thread in self._threads:
            thread.join(None if ends is None else max(ends - time.monotonic(), 0.0))


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
def _user_threads() -> ThreadPool:
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

#: The time of the last turn that a commit on this OS thread's loop left to other tasks.
_last_turn = threading.local()
_TURN_SECONDS = 0.004


async def to_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a blocking function without blocking the loop, if there is one."""
    if _is_direct():
        return function(*args, **kwargs)
    return await _store_threads().run(partial(function, *args, **kwargs))


class Readable(Protocol):
    """A store to read from. ``quick_reads`` is true if a read takes microseconds."""

    quick_reads: bool


async def read(source: Readable, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function that only reads from a store: in a thread, unless that would cost more."""
    if source.quick_reads or _is_direct():
        return function(*args, **kwargs)
    call = partial(function, *args, **kwargs)
    if _combines(source):
        found: T = await _calls_to(source)[0].soon(call)
        return found
    return await _threads_of(source).run(call)


class Writable(Readable, Protocol):
    """A store to write to. ``transact_now`` commits only if that is too quick for a thread."""

    def transact(self, *commands: Any) -> list[Any]: ...
    def transact_now(self, *commands: Any) -> list[Any] | None: ...
    def transact_each(
        self, batch: Sequence[Sequence[Any]], *, now: bool = False
    ) -> Sequence[Any] | None: ...


#: Commits of two tasks that are fewer seconds apart are worth waiting for each other.
_TOGETHER_SECONDS = 0.005
#: How many calls are made at once: each waits for all of them. Fewer than ``_FEW_TOGETHER`` are not
#: divided.
_MOST_TOGETHER, _FEW_TOGETHER = 32, 8
#: A batch that takes more seconds does not hold up the next one, if the store can do both at once.
_LONG_SECONDS = 0.05

#: A value, or the error that was raised; or a function to call for it, which may take long.
_Outcome = tuple[Any, BaseException | None] | Callable[[], Any]


class _Batches(ABC):
    """The calls of one kind that the tasks of one loop make to one store.

    Calls that are made while others are under way are collected. The next batch is then one call of
    the store in one worker thread, and each task gets its own result or error.
    """

    def __init__(self, store: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self._loop = loop
        self._waiting: list[tuple[asyncio.Future[Any], Any]] = []
        #: Identifies the batch that the next one waits for.
        self._batch: object | None = None
        #: Whether one task made the last calls, so that it need not wait for others.
        self._alone = False
        #: When it began, and what ends the waiting if it takes long.
        self._began = 0.0
        self._late: asyncio.TimerHandle | None = None

    @abstractmethod
    def _run(self, calls: list[Any]) -> Sequence[_Outcome]:
        """Make these calls, in a worker thread."""

    def _run_now(self, calls: list[Any]) -> Sequence[_Outcome] | None:
        """Make these calls on the loop if that costs less than a worker thread, else ``None``."""
        return None

    def soon(self, call: Any) -> asyncio.Future[Any]:
        """Make a call together with those of other tasks. Cancelled in time, it is not made."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.append((future, call))
        self._plan()
        return future

    def _plan(self) -> None:
        if not self._waiting:
            return
        if self._batch is None:
            self._batch, self._began = object(), self._loop.time()
            if self._alone:
                self._start()
            else:
                self._loop.call_soon(self._start)
        elif self._late is None and _combines(self._store):
            when = self._began + _LONG_SECONDS
            self._late = self._loop.call_at(when, self._over, self._batch)

    def _start(self) -> None:
        wanted = [each for each in self._waiting if not each[0].done()]
        most = _MOST_TOGETHER
        if _combines(self._store) and len(wanted) > _FEW_TOGETHER:
            # The loop runs the tasks of one half while the database works for the other.
            most = min(max(_FEW_TOGETHER, len(wanted) // 2), most)
        batch, self._waiting = wanted[:most], wanted[most:]
        calls = [call for _, call in batch]
        self._alone = len(batch) == 1 and _combines(self._store)
        try:
            outcomes = self._run_now(calls) if batch else []
        except BaseException:  # an interrupt: nothing waits for the outcome any more
            for future, _ in batch:
                future.cancel()
            self._over(self._batch)
            raise
        if outcomes is not None:
            self._tell(batch, outcomes)
            self._over(self._batch)
            return
        done = partial(self._done, batch, self._batch)
        _threads_of(self._store).run_then(partial(self._run, calls), done)

    def _done(
        self, batch: list[Any], token: object, outcomes: Any, error: BaseException | None
    ) -> None:
        self._tell(batch, outcomes if error is None else [(None, error) for _ in batch])
        self._over(token)

    def _tell(self, batch: list[Any], outcomes: Sequence[_Outcome]) -> None:
        for (future, _), outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, tuple):
                _resolve(future, *outcome)
            elif not future.done():
                _threads_of(self._store).run_then(outcome, partial(_resolve, future))

    def _over(self, token: object) -> None:
        """Start the next batch, if this is the one that it waits for."""
        if self._batch is not token:
            return
        self._batch = None
        if self._late is not None:
            self._late.cancel()
            self._late = None
        self._plan()


class _Reads(_Batches):
    """Functions that read from a store that answers several in one round trip."""

    def _run(self, calls: list[Callable[[], Any]]) -> Sequence[_Outcome]:
        return _read_each(self._store, calls)


def _read_each(store: Any, functions: list[Callable[[], Any]]) -> Sequence[Any]:
    if len(functions) == 1:
        return [(functions[0](), None)]
    outcomes: Sequence[Any] = store.read_each(functions)
    return outcomes


class _Commits(_Batches):
    """Transactions of a store that commits several at once.

    Each is a list of commands or, if the store combines reads, a function that reads and returns
    it. A task that commits alone to a store that reads quickly does so at once. Where several tasks
    commit at about the same time, the loop runs all of them up to their commits, and these are made
    together: one transaction, one wait for the disk, and at most one hand-over to a worker thread.
    """

    #: The task that committed last (none: several did), and when.
    _task: asyncio.Task[Any] | None = None
    _at = 0.0

    def now(self, commands: Sequence[Any]) -> list[Any] | None:
        """Commit at once; return ``None`` if others are about to commit, or it might take long."""
        task = asyncio.current_task()
        together = task is not self._task and time.monotonic() - self._at < _TOGETHER_SECONDS
        if self._batch is not None or together:
            return None
        results: list[Any] | None = self._store.transact_now(*commands)
        self._task, self._at = task, time.monotonic()
        return results

    def _run_now(self, calls: list[Sequence[Any]]) -> Sequence[_Outcome] | None:
        outcomes = self._store.transact_each(calls, now=True)
        return None if outcomes is None else [_outcome(each) for each in outcomes]

    def _run(self, calls: list[Any]) -> Sequence[_Outcome]:
        if builds := [call for call in calls if callable(call)]:
            built = iter(_read_each(self._store, builds))
            made = [next(built) if callable(call) else (call, None) for call in calls]
        else:
            made = [(call, None) for call in calls]
        batch = [commands for commands, error in made if error is None]
        outcomes = iter(self._store.transact_each(batch) if batch else ())
        return [_outcome(next(outcomes) if error is None else error) for _, error in made]

    def _tell(self, batch: list[Any], outcomes: Sequence[_Outcome]) -> None:
        super()._tell(batch, outcomes)
        self._task, self._at = None, time.monotonic()


def _outcome(outcome: Any) -> _Outcome:
    if isinstance(outcome, BaseException):
        return None, outcome
    return (outcome, None) if isinstance(outcome, list) else outcome


_calls = threading.local()


def _calls_to(store: Readable) -> tuple[_Reads, _Commits]:
    loop = asyncio.get_running_loop()
    if getattr(_calls, "loop", None) is not loop:
        _calls.loop, _calls.of = loop, WeakKeyDictionary()
    of: WeakKeyDictionary[Readable, tuple[_Reads, _Commits]] = _calls.of
    found = of.get(store)
    if found is None:
        found = of[store] = (_Reads(store, loop), _Commits(store, loop))
    return found


def _commits_to(store: Writable) -> _Commits:
    return _calls_to(store)[1]


def _combines(store: Readable) -> bool:
    """Return whether a store does what several callers ask at once (``read_each``)."""
    return hasattr(store, "read_each")


async def write(store: Writable, *commands: Any) -> list[Any]:
    """Commit: in a thread, unless that would cost more than the commit."""
    if _is_direct():
        return store.transact(*commands)
    results = _commits_to(store).now(commands) if store.quick_reads else None
    if results is None:
        return await _writing(store, commands)
    await _yield_to_loop()
    return results


async def write_start(
    store: Writable, undo: Callable[[list[Any]], Sequence[Any]], *commands: Any
) -> list[Any]:
    """Commit commands that start something, and undo the start if the caller is cancelled.

    ``undo`` makes the commands from the results.
    """
    if _is_direct():
        return store.transact(*commands)
    if store.quick_reads:
        await _yield_to_loop()  # before the commit: if this is cancelled, nothing was written
        if (results := _commits_to(store).now(commands)) is not None:
            return results
    return await _shielded(store, commands, undo)


async def _shielded(
    store: Writable, commands: Sequence[Any], undo: Callable[[list[Any]], Sequence[Any]]
) -> list[Any]:
    writing = _writing(store, commands)
    try:
        return await asyncio.shield(writing)
    except asyncio.CancelledError:
        with suppress(SaysoError):  # then it was not written, or the lease of its start expires
            if back := undo(await asyncio.shield(writing)):
                await asyncio.shield(_writing(store, back))
        raise


def _writing(store: Writable, commands: Sequence[Any]) -> asyncio.Future[list[Any]]:
    if store.quick_reads or _combines(store):
        return _commits_to(store).soon(commands)
    return _threads_of(store).run(partial(store.transact, *commands))


async def write_built(
    store: Writable, build: Callable[P, Any], *args: P.args, **kwargs: P.kwargs
) -> list[Any]:
    """Commit a command that is built by reading first; if that needs a thread, both use one."""
    if store.quick_reads or _is_direct():
        return await write(store, build(*args, **kwargs))
    if _combines(store):
        results: list[Any] = await _commits_to(store).soon(lambda: [build(*args, **kwargs)])
        return results
    return await _threads_of(store).run(lambda: store.transact(build(*args, **kwargs)))


async def write_shielded(store: Writable, *commands: Any) -> list[Any]:
    """Commit, to the end even if the caller is cancelled."""
    if _is_direct():
        return store.transact(*commands)
    results = _commits_to(store).now(commands) if store.quick_reads else None
    return await _shielded(store, commands, lambda _: ()) if results is None else results


async def _yield_to_loop() -> None:
    """Let other tasks run now and then: each commit on the loop blocks them for a moment."""
    now = time.monotonic()
    if now - getattr(_last_turn, "at", 0.0) > _TURN_SECONDS:
        await asyncio.sleep(0)
        _last_turn.at = time.monotonic()


# -- sync twins


def run_sync(body: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in this OS thread, without a loop."""
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
    raise AssertionError("a coroutine of a _sync method awaited a loop; use sayso.sync")


@contextmanager
def context_value(variable: contextvars.ContextVar[T], value: T) -> Iterator[None]:
    """Give a context variable this value inside the block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def _on_a_loop() -> SaysoError:
    return SaysoError(
        "a _sync method was called on a running event loop, which it would block: "
        "await the method without _sync"
    )


def run_on_own_loop(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine that needs a loop in this OS thread, on a new loop."""
    if on_loop():
        raise _on_a_loop()
    with context_value(_own_loop, True), asyncio.Runner() as runner:
        runner.get_loop().set_task_factory(_main_task)
        return runner.run(_run_main(make))


class _MainTask(asyncio.Task[T]):
    """A task with a short ``repr``.

    ``asyncio.Runner`` asks ``signal`` for its handler of Ctrl-C, and that formats the handler with
    its task into an error that nobody sees: a twentieth of a short run of an agent.
    """

    __repr__ = object.__repr__


def _main_task(loop: asyncio.AbstractEventLoop, body: Any, **options: Any) -> asyncio.Task[Any]:
    return _MainTask(body, loop=loop, **options)


async def _run_main(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    asyncio.get_running_loop().set_task_factory(None)
    return await make()


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
            raise _on_a_loop()
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
    return _direct.get() and not on_loop()


# -- users' code


async def run_user_function(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a user's sync function in a worker thread, in the current context."""
    context = contextvars.copy_context()
    return await _user_threads().run(partial(context.run, function, *args, **kwargs))


async def awaited(value: Awaitable[T]) -> T:
    """Await a value: a coroutine for functions that take no other awaitable."""
    return await value


async def run_user_coroutine(
    make: Callable[[], Coroutine[Any, Any, T]], timeout: float | None = None
) -> T:
    """Await a user's coroutine, on the running loop or on one of its own.

    ``timeout`` applies to a loop of its own: raise ``TimeoutError`` and abandon the coroutine. On
    the running loop, the coroutine has to limit its time itself.
    """
    if not _is_direct():
        return await make()
    return call_in_new_thread(lambda: run_on_own_loop(make), timeout)


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
