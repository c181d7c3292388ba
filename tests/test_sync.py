"""Blocking functions run in OS threads: as many as needed, and to their end."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from forked_child import in_child

from sayso.sync import ThreadPool, run_user_function


async def test_pool_returns_result_or_raises() -> None:
    threads = ThreadPool(2)
    assert await threads.run(lambda: 3) == 3
    with pytest.raises(KeyError):
        await threads.run(lambda: {}["gone"])
    with pytest.raises(RuntimeError, match="StopIteration"):
        await threads.run(lambda: next(iter(())))


async def test_pool_limits_parallel_work() -> None:
    threads, gate, busy = ThreadPool(3), threading.Event(), threading.Semaphore(0)

    def work() -> str:
        busy.release()
        assert gate.wait(60)
        return threading.current_thread().name

    answers = [threads.run(work) for _ in range(9)]
    for _ in range(3):
        assert await asyncio.to_thread(busy.acquire, timeout=60)
    assert not busy.acquire(blocking=False)  # six wait
    gate.set()
    assert len(set(await asyncio.gather(*answers))) <= 3


async def test_free_thread_is_reused() -> None:
    threads = ThreadPool(8)
    seen = {await threads.run(lambda: threading.current_thread().name) for _ in range(50)}
    assert len(seen) == 1


async def test_cancelled_queued_work_never_starts() -> None:
    threads, gate, ran = ThreadPool(1), threading.Event(), []
    first = threads.run(lambda: gate.wait(60))
    second = threads.run(lambda: ran.append("second"))
    second.cancel()
    third = threads.run(lambda: ran.append("third"))
    gate.set()
    await asyncio.gather(first, third)
    assert ran == ["third"]


async def test_cancelled_waiter_does_not_stop_work() -> None:
    threads, began, done = ThreadPool(1), threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        assert done.wait(60)

    answer = threads.run(work)
    await asyncio.to_thread(began.wait, 60)
    answer.cancel()
    done.set()
    assert await threads.run(lambda: "next") == "next"


def test_closed_loop_does_not_break_pool() -> None:
    threads, gate = ThreadPool(1), threading.Event()

    async def leave() -> None:
        threads.run(lambda: gate.wait(60))

    asyncio.run(leave())
    gate.set()

    async def come_back() -> int:
        return await threads.run(lambda: 4)

    assert asyncio.run(come_back()) == 4


def test_started_work_finishes_before_exit(tmp_path: Path) -> None:
    code = """
import asyncio, sys, threading, time
from pathlib import Path
from sayso.sync import ThreadPool, run_user_function
threads, began = ThreadPool(2), threading.Event()

def work():
    began.set()
    time.sleep(0.3)
    Path(sys.argv[1]).write_text("done")

async def main():
    threads.run(work)
    began.wait(60)

asyncio.run(main())
"""
    place = tmp_path / "told"
    subprocess.run([sys.executable, "-c", code, str(place)], check=True, timeout=60)
    assert place.read_text() == "done"


async def test_nested_waits_do_not_deadlock() -> None:
    threads = ThreadPool(1)

    def outer(depth: int) -> int:
        async def inner() -> int:
            return 1 + await threads.run(lambda: outer(depth - 1))

        return asyncio.run(inner()) if depth else 0

    answers = [threads.run(lambda: outer(3)) for _ in range(4)]
    assert await asyncio.wait_for(asyncio.gather(*answers), 60) == [3] * 4


async def test_function_sees_the_context_that_called_it() -> None:
    mark = contextvars.ContextVar("mark", default="none")
    mark.set("ours")
    assert await run_user_function(mark.get) == "ours"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_starts_new_threads() -> None:
    threads, begun, over = ThreadPool(1), threading.Event(), threading.Event()

    async def blocked() -> None:
        answer = threads.run(lambda: (begun.set(), over.wait(60)))
        await asyncio.to_thread(begun.wait)
        assert in_child(lambda: asyncio.run(work()))
        over.set()
        await answer

    async def work() -> None:
        assert await threads.run(lambda: 3) == 3
        assert await run_user_function(lambda: 4) == 4

    asyncio.run(blocked())
