"""The run follows the work: an OS thread or pool job has the run of the code that started it.

Python gives tasks a copy of their creator's context, and OS threads an empty one. So the run of a
guarded agent would end at the first ``ThreadPoolExecutor`` in one of its tools. ``install`` changes
that for Sayso's own variables, and for no others, as tracing libraries do for theirs:

- ``threading.Thread`` (``Timer`` and other subclasses too) has the run of the code that called
  ``start``;
- so has an OS thread of ``_thread.start_new_thread``;
- a task has the run of the code that created it, also with a ``context=`` of its own;
- a job of ``ThreadPoolExecutor`` (``loop.run_in_executor`` too) and of ``multiprocessing``'s
  ``ThreadPool`` has the run of the code that submitted it, and a callback of its future that of the
  code that added it; never that of the code that happened to start the pool's OS thread.

A run that has ended is inherited by nothing, and neither is a plain ``gate.run(...)``: there,
``gate.carry`` says which work belongs to the run (``sayso.gate.scope``).

Code can leave its context: ``contextvars.Context().run(function)``. So tasks and jobs are also
remembered by themselves, with what is known of the code that started them (``started_outside``).

A job for another process cannot be followed. Inside a guarded run it is refused.
"""

from __future__ import annotations

import _thread
import asyncio
import functools
import inspect
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, ContextVar
from typing import Any, TypeVar

from sayso.errors import Paused
from sayso.sync import ThreadPool, on_loop, user_threads

T = TypeVar("T")

#: The variables that follow the work, each with its default.
_variables: list[tuple[ContextVar[Any], Any]] = []
#: Whether the code was started outside of guarded runs, in an OS thread or pool job; False if that
#: is unknown, None if nothing of ours was there when it was started.
_started_outside: ContextVar[bool | None] = ContextVar("sayso_started_outside", default=None)
#: The OS threads that were started before ``install``: none of them belongs to a guarded run.
_older: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
_is_guarded: Callable[[], bool | None] | None = None
_is_here: Callable[[Context], bool]
_note_pause: Callable[[Paused], bool]
#: Whether the current job of this OS thread was started outside of guarded runs; False if that is
#: unknown.
_job = threading.local()
#: The attribute of a task that says the same.
_TASK = "_sayso_started_outside"


def follow(variable: ContextVar[T], default: T) -> ContextVar[T]:
    """Let a context variable with this default follow the work."""
    _variables.append((variable, default))
    return variable


def started_outside() -> bool | None:
    """Return whether this task or job was started outside of guarded runs.

    False if it was not, or if that is unknown. None if its start was not seen: then only the
    context says where the code runs.
    """
    if on_loop():
        outside: bool | None = getattr(asyncio.current_task(), _TASK, None)
    else:
        outside = getattr(_job, "outside", None)
    return _started_outside.get() if outside is None else outside


def is_older() -> bool:
    """Return whether the current OS thread was started before ``install``."""
    return threading.current_thread() in _older


def install(
    is_guarded: Callable[[], bool | None],
    is_here: Callable[[Context], bool],
    refuse_process: Callable[[str], None],
    note_pause: Callable[[Paused], bool],
) -> None:
    """Make guarded runs follow the work in this process, from now on.

    ``is_guarded`` says whether the current code belongs to a guarded run that has not ended, or
    None if that is unknown; ``is_here`` whether a context was copied from where the current code
    is in that run. ``refuse_process`` raises if that code may not start work in another
    process. ``note_pause`` pauses the call whose body started an OS thread when that body ends, and
    returns whether there is one.
    """
    import multiprocessing.pool
    import multiprocessing.process
    from concurrent import futures

    global _is_guarded, _is_here, _note_pause
    if _is_guarded is not None:
        return
    _is_guarded = is_guarded
    _is_here = is_here
    _note_pause = note_pause
    _older.update(threading.enumerate())

    def to_process(submit: Any, pool: Any, *args: Any, **kwargs: Any) -> Any:
        refuse_process(type(pool).__name__)
        return submit(pool, *args, **kwargs)

    # A subclass first: it calls the unchanged method of its base.
    interpreters = getattr(futures, "InterpreterPoolExecutor", None)
    if interpreters is not None:
        wrap_method(interpreters, "submit", to_process)
    wrap_method(futures.ThreadPoolExecutor, "submit", _submit)
    wrap_method(futures.Future, "add_done_callback", _submit)  # called in the pool's OS thread
    setattr(user_threads(), "run", functools.partial(_submit, ThreadPool.run, user_threads()))  # noqa: B010
    wrap_method(asyncio.BaseEventLoop, "create_task", _create_task)
    wrap_method(futures.ProcessPoolExecutor, "submit", to_process)
    for name in ("apply_async", "_map_async", "imap", "imap_unordered"):
        wrap_method(multiprocessing.pool.ThreadPool, name, _submit_to_workers)
        wrap_method(multiprocessing.pool.Pool, name, to_process)
    wrap_method(multiprocessing.process.BaseProcess, "start", to_process)
    for owner in (threading.Timer, threading.Thread):  # tracing may have wrapped it in both
        if "start" in vars(owner):
            wrap_method(owner, "start", _start)
    start_low_level = functools.partial(_start_low_level, _thread.start_new_thread)
    _thread.start_new_thread = functools.wraps(_thread.start_new_thread)(start_low_level)
    with suppress(ImportError):
        from anyio._backends._asyncio import AsyncIOBackend

        submit: Any = AsyncIOBackend.run_sync_in_worker_thread
        followed = classmethod(functools.partial(_submit, submit.__func__))
        setattr(AsyncIOBackend, submit.__name__, followed)


def wrap_method(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Replace a method of a class, or a function of a module, by ``wrapper``, which gets the
    original as its first argument."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def patched(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return wrapper(original, self, *args, **kwargs)

    @functools.wraps(original)
    async def patched_async(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return await wrapper(original, self, *args, **kwargs)

    setattr(owner, name, patched_async if inspect.iscoroutinefunction(original) else patched)


def _create_task(create: Any, loop: Any, work: Any, /, **options: Any) -> Any:
    """Create a task. One with a context of its own has the run too, in a copy of that context."""
    assert _is_guarded is not None
    guarded = _is_guarded()
    context = options.get("context")
    if guarded and context is not None and not _is_here(context):
        options["context"] = context.copy()
        for variable, _ in _variables:
            options["context"].run(variable.set, variable.get())
    task = create(loop, work, **options)
    if isinstance(task, asyncio.Task):  # a task factory may make anything
        setattr(task, _TASK, guarded is False)
    return task


def _carried(function: Callable[..., T], *, one_job: bool = True) -> Callable[..., T]:
    """Return a function that runs with the values that the variables have here and now.

    An OS thread that is not ``one_job`` may be a pool's, and do the jobs of others.
    """
    assert _is_guarded is not None
    guarded = _is_guarded()
    if guarded:
        values = [(variable, variable.get()) for variable, _ in _variables]
    else:
        values = [*_variables, (_started_outside, guarded is False)]
    outside: bool | None = guarded is False
    if outside and not one_job:
        outside = None

    def run(*args: Any, **kwargs: Any) -> T:
        tokens = [(variable, variable.set(value)) for variable, value in values]
        outer_job = getattr(_job, "outside", None)
        _job.outside = outside
        try:
            return function(*args, **kwargs)
        finally:
            _job.outside = outer_job
            for variable, token in reversed(tokens):
                variable.reset(token)

    return run


def _carried_thread(target: Callable[..., Any]) -> Callable[..., None]:
    """Return the function of an OS thread, carried. A pause in it pauses the call around it."""

    def run(*args: Any, **kwargs: Any) -> None:
        try:
            target(*args, **kwargs)
        except Paused as pause:
            if not _note_pause(pause):
                raise

    return _carried(run, one_job=False)


def _start(start: Any, thread: threading.Thread) -> None:
    carried = _carried_thread(thread.run)

    def run_once() -> None:
        vars(thread).pop("run", None)  # or the OS thread would keep itself alive
        carried()

    # On the instance: a subclass may define ``run`` without calling that of ``Thread``.
    vars(thread)["run"] = run_once
    try:
        start(thread)
    except BaseException:
        vars(thread).pop("run", None)
        raise


def _start_low_level(start: Any, function: Any, /, *args: Any) -> Any:
    if callable(function):  # otherwise ``start`` refuses it
        function = _carried_thread(function)
    return start(function, *args)


def _submit(submit: Any, pool: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
    if getattr(function, "__module__", "") != "asyncio.futures":  # it only wakes the caller's loop
        function = _carried(function)
    return submit(pool, function, *args, **kwargs)


def _submit_to_workers(
    submit: Any, pool: Any, func: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    function = _carried(func)

    def job(*job_args: Any, **job_kwargs: Any) -> Any:
        try:
            return function(*job_args, **job_kwargs)
        except Paused as pause:  # no ``Exception``: it would end the worker, and its caller hangs
            raise RuntimeError(str(pause)) from pause

    return submit(pool, job, *args, **kwargs)
