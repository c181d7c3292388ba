"""The event loop keeps turning, whatever another program does to the SQLite file."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sayso import Gate, sync
from sayso.engine.commands import Propose
from sayso.errors import StoreError
from sayso.rows import Message
from sayso.stores.sqlite import SqliteStore

#: How long another program holds a lock, and how long the loop may stand still, in seconds.
HELD = 3.0
LONGEST_GAP = 0.7

BEGUN = """
import sqlite3
connection = sqlite3.connect(path, isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
"""

LOCKED = """
import fcntl
file = open(path + ".lock")
fcntl.flock(file, fcntl.LOCK_EX)
"""

#: A process was killed while it wrote the index of the log, and another one recovers the index.
RECOVERING = """
import fcntl, os
file = os.open(path + "-shm", os.O_RDWR)
fcntl.lockf(file, fcntl.LOCK_EX, 3, 120)
os.pwrite(file, bytes(48), 0)
"""

HOLD = """
import sys, time
path, seconds = sys.argv[1], float(sys.argv[2])
{}
print("held", flush=True)
time.sleep(seconds)
"""


@contextmanager
def held_by_another(path: Path, how: str) -> Iterator[None]:
    args = [sys.executable, "-c", HOLD.format(how), str(path), str(HELD)]
    with subprocess.Popen(args, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        yield


async def longest_gap(work: Coroutine[Any, Any, None]) -> float:
    """Run work on this loop; return for how many seconds the loop stood still at most."""
    longest, last = 0.0, time.monotonic()
    task = asyncio.create_task(work)
    while not task.done():
        await asyncio.sleep(0.005)
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    await task
    return longest


@pytest.fixture
def store(open_again: Callable[..., SqliteStore], path: Path) -> SqliteStore:
    store = open_again(clock=lambda: time.time_ns() // 1000)
    store.transact(message("hello", "t"))
    return store


def message(words: str, thread: str) -> Propose:
    return Propose(thread=thread, run=thread, agent="a", messages=(Message(thread, words),))


def messages(store: SqliteStore, thread: str) -> list[str]:
    return [body for _, body in store.messages(thread)]


@pytest.mark.long
@pytest.mark.parametrize("how", [BEGUN, LOCKED], ids=["write lock", "lock file"])
def test_commits_never_block_the_loop(store: SqliteStore, path: Path, how: str) -> None:
    gate = Gate(store)

    @gate.guard(needs_approval=False)
    async def pay(amount: int) -> int:
        return amount

    async def work() -> None:
        writes = [sync.write(store, message("more", f"t{n}")) for n in range(20)]
        assert await asyncio.gather(pay(3), *writes)

    with held_by_another(path, how):
        began = time.monotonic()
        assert asyncio.run(longest_gap(work())) < LONGEST_GAP
        assert time.monotonic() - began > HELD / 2, "nothing was locked"
    assert [messages(store, f"t{n}") for n in range(20)] == [["more"]] * 20


@pytest.mark.long
def test_reads_do_not_wait_for_writers(store: SqliteStore, path: Path) -> None:
    async def work() -> None:
        writes = [asyncio.create_task(sync.write(store, message("x", f"t{n}"))) for n in range(20)]
        await asyncio.sleep(0.1)
        for _ in range(20):
            assert await sync.read(store, messages, store, "t") == ["hello"]
            assert await sync.read(store, store.run, "t") is not None
        assert not any(write.done() for write in writes)
        await asyncio.gather(*writes)

    with held_by_another(path, BEGUN):
        assert asyncio.run(longest_gap(work())) < LONGEST_GAP


def test_recovery_never_blocks_the_loop(store: SqliteStore, path: Path) -> None:
    async def work() -> None:
        assert await sync.read(store, messages, store, "t") == ["hello"]
        assert await sync.read(store, store.run, "t") is not None

    with held_by_another(path, RECOVERING):
        began = time.monotonic()
        assert asyncio.run(longest_gap(work())) < LONGEST_GAP
        assert time.monotonic() - began > HELD / 2, "nothing was locked"


@pytest.mark.long
def test_first_read_after_fork_never_blocks(store: SqliteStore, path: Path) -> None:
    """A child opens the file again, which waits for other processes."""

    async def work() -> None:
        assert await sync.read(store, messages, store, "t") == ["hello"]

    store.after_fork()
    with held_by_another(path, LOCKED):
        began = time.monotonic()
        assert asyncio.run(longest_gap(work())) < LONGEST_GAP
        assert time.monotonic() - began > HELD / 2, "nothing was locked"


@pytest.mark.long
def test_locked_file_is_reported_at_last(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sayso.stores.sqlite.store.BUSY_SECONDS", 0.2)
    with held_by_another(path, BEGUN), pytest.raises(StoreError, match="another program"):
        store.transact(message("more", "t"))
    with held_by_another(path, RECOVERING), pytest.raises(StoreError, match="could not be read"):
        messages(store, "t")
    store.transact(message("more", "t"))
    assert messages(store, "t") == ["hello", "more"]


@pytest.mark.long
def test_commit_occupies_no_worker_thread(store: SqliteStore, path: Path) -> None:
    async def work() -> None:
        with held_by_another(path, LOCKED):
            writes = [sync.write(store, message(f"{n}", "t")) for n in range(100)]
            tasks = [asyncio.ensure_future(write) for write in writes]
            await asyncio.sleep(0.2)
            assert not [name for name in os_threads() - before if name.startswith("sayso-io")]
            await asyncio.gather(*tasks)

    before = os_threads()
    asyncio.run(work())
    assert messages(store, "t") == ["hello", *(f"{n}" for n in range(100))]


def os_threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


@pytest.mark.long
def test_cancelled_commit_writes_nothing(store: SqliteStore, path: Path) -> None:
    async def work() -> None:
        with held_by_another(path, LOCKED):
            first = asyncio.ensure_future(sync.write(store, message("first", "t")))
            cancelled = asyncio.ensure_future(sync.write(store, message("never", "t")))
            await asyncio.sleep(0.2)
            cancelled.cancel()
            last = asyncio.ensure_future(sync.write(store, message("last", "t")))
            await asyncio.gather(first, last)

    asyncio.run(work())
    assert messages(store, "t") == ["hello", "first", "last"]


def test_replaced_transact_is_called(store: SqliteStore) -> None:
    names: list[str] = []
    transact = store.transact

    def counted(*commands: Any) -> list[Any]:
        names.extend(command.name for command in commands)
        return transact(*commands)

    store.transact = counted  # type: ignore[method-assign]
    asyncio.run(sync.write(store, message("counted", "t")))
    assert names == ["propose"]
    assert messages(store, "t") == ["hello", "counted"]


EXITS = """
import asyncio, sys
from sayso import sync
from sayso.engine.commands import Propose
from sayso.rows import Message
from sayso.stores.sqlite import SqliteStore

store = SqliteStore(sys.argv[1])
say = Propose(thread="t", run="t", agent="a", messages=(Message("t", "at exit"),))

async def main():
    task = asyncio.ensure_future(sync.write_shielded(store, say))
    await asyncio.sleep(0)
    task.cancel()

asyncio.run(main())
"""


def test_exit_waits_for_shielded_commit(path: Path) -> None:
    for _ in range(5):
        subprocess.run([sys.executable, "-c", EXITS, str(path)], check=True, timeout=60)
    store = SqliteStore(path)
    try:
        assert messages(store, "t") == ["at exit"] * 5
    finally:
        store.close()
