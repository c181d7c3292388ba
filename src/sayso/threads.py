"""Threads that do for an event loop what would block it.

``ThreadPoolExecutor`` does the same at twice the price (98 µs of CPU a call, here 44): each call
goes through two futures and their conditions, which is more work than most reads of a store. And
the loop's own has few threads (six on two cores), which look up the names of hosts as well: six
slow tools would hold up every other run, and every new connection.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from sayso.forking import renew_in_child

P = ParamSpec("P")
T = TypeVar("T")

#: Where the answer goes, and what is to be called.
_Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]


#: How long what ends by itself is given to do so.
_GRACE = 1.0
#: How many functions of users run at once.
_MOST = 256


@cache
def _for_functions() -> Threads:
    return Threads(_MOST)


async def off_loop(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function that somebody else wrote, and that may take its time."""
    context = contextvars.copy_context()
    return await _for_functions().run(partial(context.run, function, *args, **kwargs))


def leave_soon(code: int = 0) -> None:
    """End the process in a moment, though functions in threads, which nothing can stop, still run.

    For who was told twice to stop, and has written everything.
    """

    def leave() -> None:
        time.sleep(_GRACE)
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)

    threading.Thread(target=leave, name="sayso-leave", daemon=True).start()


class Threads:
    """At most so many, each started when the others are busy; at exit they end what they do.

    One that waits for another of them does not count, or all might wait for one more. What takes
    longer than ``patience`` at exit is left where it is.
    """

    def __init__(self, most: int, patience: float | None = None) -> None:
        self._most = most
        self._patience = patience
        self.after_fork()
        renew_in_child(self)
        atexit.register(self._finish)

    def after_fork(self) -> None:
        """Start without OS threads and jobs: those of a parent are not in a forked child."""
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        #: How many wait for a job; below nothing, so many jobs wait for a thread.
        self._free = 0
        self._threads: list[threading.Thread] = []

    def run(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Call it in a thread, for the running loop; what is cancelled in time never begins."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        with self._lock:
            if self._free <= 0 and (len(self._threads) < self._most or self._is_one_of_them()):
                self._start()
            self._free -= 1
        self._jobs.put((loop, answer, function))
        return answer

    def _start(self) -> None:
        name = f"sayso-io_{len(self._threads)}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)
        self._free += 1

    def _is_one_of_them(self) -> bool:
        return threading.current_thread() in self._threads

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            loop, answer, function = job
            value = error = None
            if not answer.cancelled():
                try:
                    value = function()
                except BaseException as raised:  # the waiting coroutine's, whatever it is
                    error = raised
            with self._lock:
                self._free += 1
            with suppress(RuntimeError):  # the loop is gone, and nobody waits any more
                loop.call_soon_threadsafe(_tell, answer, value, error)
            del job, loop, answer, function, value, error  # nothing is kept while waiting

    def _finish(self) -> None:
        """Let what was begun come to its end before the interpreter goes."""
        for _ in self._threads:
            self._jobs.put(None)
        ends = None if self._patience is None else time.monotonic() + self._patience
        for thread in self._threads:
            thread.join(None if ends is None else max(ends - time.monotonic(), 0.0))


def _tell(answer: asyncio.Future[T], value: T, error: BaseException | None) -> None:
    if answer.cancelled():
        return
    if error is None:
        answer.set_result(value)
    elif isinstance(error, StopIteration):  # no future can carry it, as no coroutine can
        wrapped = RuntimeError(f"StopIteration: {error}")
        wrapped.__cause__ = error
        answer.set_exception(wrapped)
    else:
        answer.set_exception(error)
