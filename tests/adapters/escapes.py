"""Ways to run a job out of the sight of context variables: on OS threads, and without.

Each runs the job to its end, and ignores what it raises.
"""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import contextvars
import functools
import multiprocessing.pool
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio.to_thread

Job = Callable[[], Any]

_STARTED_BEFORE = ThreadPoolExecutor(1)
_STARTED_BEFORE.submit(int).result()
_OTHER_LOOP = asyncio.new_event_loop()
threading.Thread(target=_OTHER_LOOP.run_forever, daemon=True).start()


def in_empty_context(job: Job) -> None:
    contextvars.Context().run(job)


def in_task_with_empty_context(job: Job) -> None:
    async def main() -> None:
        empty = contextvars.Context()
        await asyncio.create_task(asyncio.to_thread(job), context=empty)

    asyncio.run(main())


def in_callback_with_empty_context(job: Job) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        def call() -> None:
            running = loop.run_in_executor(None, ignoring(job))
            running.add_done_callback(done.set_result)

        loop.call_soon(call, context=contextvars.Context())
        await done

    asyncio.run(main())


def in_subclass_of_thread(job: Job) -> None:
    class Own(threading.Thread):
        def run(self) -> None:
            with contextlib.suppress(BaseException):
                job()

    own = Own()
    own.start()
    own.join()


def in_timer(job: Job) -> None:
    timer = threading.Timer(0.001, ignoring(job))
    timer.start()
    timer.join()


def in_low_level_thread(job: Job) -> None:
    done = threading.Event()

    def run() -> None:
        ignoring(job)()
        done.set()

    _thread.start_new_thread(run, ())
    done.wait()


def in_pool_started_before(job: Job) -> None:
    _STARTED_BEFORE.submit(job).result()


def in_callback_of_future(job: Job) -> None:
    done = threading.Event()

    def call(_: Any) -> None:
        ignoring(job)()
        done.set()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).add_done_callback(call)
    done.wait()


def in_thread_pool_of_multiprocessing(job: Job) -> None:
    with multiprocessing.pool.ThreadPool(1) as pool:
        pool.apply(job)


def in_executor_of_loop(job: Job) -> None:
    async def main() -> None:
        await asyncio.get_running_loop().run_in_executor(None, job)

    asyncio.run(main())


def in_worker_of_anyio(job: Job) -> None:
    async def main() -> None:
        await anyio.to_thread.run_sync(job)

    asyncio.run(main())


def in_loop_of_other_thread(job: Job) -> None:
    async def run() -> None:
        await asyncio.to_thread(job)

    asyncio.run_coroutine_threadsafe(run(), _OTHER_LOOP).result()


def in_thread_inside_pool(job: Job) -> None:
    in_pool_started_before(functools.partial(in_subclass_of_thread, job))


def ignoring(job: Job) -> Job:
    @functools.wraps(job)
    def run() -> None:
        with contextlib.suppress(BaseException):
            job()

    return run


WAYS = [
    in_empty_context,
    in_task_with_empty_context,
    in_callback_with_empty_context,
    in_subclass_of_thread,
    in_timer,
    in_low_level_thread,
    in_pool_started_before,
    in_callback_of_future,
    in_thread_pool_of_multiprocessing,
    in_executor_of_loop,
    in_worker_of_anyio,
    in_loop_of_other_thread,
    in_thread_inside_pool,
]
