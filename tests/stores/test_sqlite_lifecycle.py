"""One SQLite file in use: a disk that fails, sealing by itself, and letting go of everything."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ordinary_user import ordinary_user
from waiting import until

from sayso.errors import StoreClosed, StoreError
from sayso.keys import Keyring
from sayso.stores.base import Hub
from sayso.stores.sqlite import SqliteStore
from sayso.stores.sqlite.writer import Operation
from sayso.testing import FakeClock
from sayso_testing.checks import all_seals
from sayso_testing.world import World, tool_of

Opener = Callable[..., SqliteStore]


def descriptors() -> set[str]:
    return {os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")}


# -- a disk that does not do its part


def test_read_only_file_is_refused(tmp_path: Path, open_again: Opener) -> None:
    path = tmp_path / "store.db"
    open_again(path).close()
    for file in tmp_path.iterdir():
        file.chmod(0o444)
    tmp_path.chmod(0o555)
    with ordinary_user():
        with pytest.raises(StoreError, match="cannot open"):
            open_again(path)
        with pytest.raises(StoreError):
            open_again(tmp_path / "new.db")
    tmp_path.chmod(0o755)


def test_read_only_disk_refuses_the_decision(world: World) -> None:
    call = world.ask()
    before = world.everything()
    writer = world.store._writer  # type: ignore[attr-defined]
    writer.execute("PRAGMA query_only=1")
    for _ in range(2):
        with pytest.raises(StoreError, match="could not be written"):
            world.decide(call)
    assert world.everything() == before
    writer.execute("PRAGMA query_only=0")
    assert world.decide(call).status == "ready"


def test_full_disk_refuses_without_loss(world: World) -> None:
    world.ask("known")
    before = world.everything()
    writer = world.store._writer  # type: ignore[attr-defined]
    pages = writer.execute("PRAGMA page_count").fetchone()[0]
    writer.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(StoreError, match="full"):
        world.ask("new tool", args={"blob": "x" * 100_000})
    assert world.everything() == before
    writer.execute("PRAGMA max_page_count=1000000")
    world.ask("new tool")
    assert world.store.tool(tool_of("new tool").digest) == tool_of("new tool")
    world.check()


def test_unwritable_mark_keeps_the_commit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    call = world.ask()
    assert world.decide(call).status == "ready"
    assert world.call(call).status == "ready"


# -- sealing by itself


def test_closing_seals_the_store(world: World) -> None:
    world.ask()
    world.reopen()
    assert len(all_seals(world.store)) == 1
    world.reopen()
    assert len(all_seals(world.store)) == 1


# -- letting go


def test_closed_store_refuses_every_use(world: World, open_again: Opener) -> None:
    call = world.ask()
    store = world.store
    store.close()
    store.close()
    for act in (
        lambda: store.call(call.id),
        lambda: store.events(),
        lambda: world.ask(),
        lambda: store.seal(),
    ):
        with pytest.raises(StoreError, match="closed"):
            act()


def test_write_that_meets_the_close_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.ask()
    store = world.store
    assert isinstance(store, SqliteStore)
    put = store._writer_thread.put

    def close_first(operation: Operation) -> None:
        monkeypatch.undo()
        store.close()
        put(operation)

    monkeypatch.setattr(store._writer_thread, "put", close_first)
    with pytest.raises(StoreClosed, match="closed"):
        store.move_cursor("place", "1", expected="")


def test_closing_lets_go_of_every_file_and_thread(
    path: Path, clock: FakeClock, keys: Keyring
) -> None:
    before = descriptors()
    store = SqliteStore(path, clock=clock, keys=keys)
    world = World(store, clock)
    world.ask()
    store.subscribe(None, lambda: None)
    store.calls_of("r")
    store.close()
    until(lambda: _watchers() == 0)
    assert descriptors() == before


def test_subscriptions_share_one_watcher(world: World) -> None:
    for _ in range(50):
        world.store.subscribe("t", lambda: None).cancel()
        subscription = world.store.subscribe("t", lambda: None)
        assert _watchers() <= 2
        subscription.cancel()
    until(lambda: _watchers() == 0)


def _watchers() -> int:
    return sum(thread.name == "sayso-watch" for thread in threading.enumerate())


def test_collected_store_closes_its_files(tmp_path: Path) -> None:
    """As where each request of a web server opens a gate, and none is closed."""
    for n in range(3):
        World(SqliteStore(tmp_path / "store.db"), None).ask(  # type: ignore[arg-type]
            run=f"r{n}", thread=f"t{n}", id=f"req_{n}"
        )
    gc.collect()
    assert not {name for name in descriptors() if name.startswith(str(tmp_path))}


def test_refused_values_leave_no_connection_open(world: World) -> None:
    """SQLite takes text as UTF-8, and what it refuses is not one of its own errors."""
    path = str(world.store.path)  # type: ignore[attr-defined]

    def open_after_reads(times: int) -> int:
        for _ in range(times):
            with pytest.raises(UnicodeEncodeError):
                world.store.call("half \ud800 a pair")
        names = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
        return names.count(path)

    assert open_after_reads(10) == open_after_reads(1)
    assert world.store.call("none") is None


def test_read_that_meets_the_close_leaves_no_connection_open(world: World) -> None:
    store: SqliteStore = world.store  # type: ignore[assignment]

    class Readers(list[Any]):
        def append(self, reader: Any) -> None:
            store.close()
            super().append(reader)

    store._readers = Readers()
    assert store.call("none") is None
    assert not {name for name in descriptors() if name.startswith(str(store.path.parent))}


# -- code that interrupts a commit of its own OS thread


def test_finalizer_writing_in_a_commit_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, other = world.ask(), world.ask(run="r2", thread="t2", id="req_2")
    refused: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", lambda said: refused.append(said.exc_value))

    class Dropped:
        def __del__(self) -> None:
            world.decide(other)

    def collects(name: str, when: str) -> None:
        if when == "before" and not refused:
            dropped = Dropped()
            dropped.itself = dropped  # type: ignore[attr-defined]
            del dropped
            gc.collect()

    world.store.boundary = collects
    assert world.decide(call).status == "ready"
    world.store.boundary = None
    (error,) = refused
    assert isinstance(error, StoreError)
    assert "in the middle of another call" in str(error)
    assert world.call(other).status == "asked"
    assert world.decide(other).status == "ready"
    world.check()


def test_finalizer_may_publish_while_listeners_are_collected() -> None:
    hub, heard = Hub(), list[str]()
    hub.subscribe("a", lambda: heard.append("a"))
    listener = hub.subscribe("b", lambda: heard.append("b"))

    class Dropped:
        def __del__(self) -> None:
            listener.cancel()
            hub.publish(["a"])

    def threads() -> Iterator[str]:
        dropped = Dropped()
        dropped.itself = dropped  # type: ignore[attr-defined]
        del dropped
        gc.collect()
        yield "a"

    hub.publish(threads())
    assert heard == ["a", "a"]


def test_process_with_closed_stores_exits_at_once(tmp_path: Path) -> None:
    code = """
import sys, sayso
stores = [sayso.open_store(f"{sys.argv[1]}/{n}.db") for n in range(3)]
for store in stores:
    store.seal()
    store.close()
print("closed", flush=True)
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "closed\n"
        began = time.monotonic()
        assert process.wait(30) == 0
    assert time.monotonic() - began < 2.5
