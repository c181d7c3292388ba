"""Cached rows are never older than the file, whichever process wrote to it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from sayso.engine.commands import Note, ReadRun, RemovePerson
from sayso.errors import AlreadyDecided, NotAllowed, NotFound, StoreError, Tampered
from sayso.rows import SYSTEM_THREAD
from sayso.stores.sqlite import SqliteStore
from sayso.stores.sqlite import store as sqlite
from sayso.types import Reviewer
from sayso_testing.world import World


def selects(world: World) -> list[str]:
    """A list that grows with every row that the writer reads."""
    seen: list[str] = []
    assert isinstance(world.store, SqliteStore)
    writer = world.store._writer
    assert writer is not None
    writer.set_trace_callback(lambda s: seen.append(s) if s.startswith("SELECT id") else None)
    return seen


def test_written_rows_are_not_read_again(world: World) -> None:
    call = world.ask()
    read = selects(world)
    world.decide(call)
    (started,) = world.start(world.call(call))
    world.record(started)
    assert [s for s in read if " person " not in s and " refusal " not in s] == []
    world.check()


def test_writes_of_another_store_are_seen(
    world: World, open_again: Callable[..., SqliteStore]
) -> None:
    call = world.ask()
    other = World(open_again(), world.clock)
    other.decide(call)
    with pytest.raises(AlreadyDecided):
        world.decide(call, "reject")
    (started,) = world.start(world.call(call))
    assert started.token == 1
    other.record(started)
    (again,) = world.start(started, owner="w2")
    assert (again.status, again.attempt) == ("done", 1)
    world.check()


@pytest.mark.parametrize("elsewhere", [False, True], ids=["own", "other store"])
def test_new_rows_are_seen_where_there_were_none(
    world: World, open_again: Callable[..., SqliteStore], elsewhere: bool
) -> None:
    first = world.ask(args={"to": "eve"})
    world.decide(world.ask(args={"to": "bob"}), by="ann")  # neither refusals, grants nor a person
    other = World(open_again(), world.clock) if elsewhere else world
    other.decide(first, "reject")
    assert world.ask(args={"to": "eve"}).status == "rejected"
    grant = other.grant(uses_left=1)
    assert world.ask(args={"to": "cleo"}).grant == grant.id
    other.person("ann")
    other.transact(RemovePerson(person="ann", by=Reviewer("ops")))
    with pytest.raises(NotAllowed, match="ann was removed"):
        world.decide(world.ask(args={"to": "dora"}), by="ann")
    world.check()


def test_row_changed_by_sql_is_noticed(world: World, path: Path) -> None:
    call = world.ready()
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("UPDATE call SET args = ? WHERE id = ?", ('{"to":"eve"}', call.id))
    with pytest.raises(Tampered, match=call.id):
        world.start(call)


def test_reads_use_the_written_rows(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    call = world.ask()
    monkeypatch.setattr(world.store, "_rows", lambda *_: pytest.fail("it read the database"))
    assert world.store.call(call.id) == world.store.call_by_key(call.run, call.key)
    assert world.store.calls_of(call.run, [call.key]) == [world.store.call(call.id)]
    run = world.store.run(call.run)
    assert run is not None
    assert run.asked == 1


def test_reads_see_writes_of_another_process(
    world: World, open_again: Callable[..., SqliteStore]
) -> None:
    call = world.ask()
    other = World(open_again(), world.clock)
    other.decide(call)
    assert world.call(call).status == "ready"
    assert world.store.calls_of(call.run, [call.key])[0].status == "ready"
    run = world.store.run(call.run)
    assert run is not None
    assert (run.asked, run.ready) == (0, 1)


def test_reads_skip_an_unfinished_commit(world: World) -> None:
    call = world.ask()
    seen: list[str] = []

    def look(name: str, when: str) -> None:
        found = world.store.call(call.id)
        assert found is not None
        seen.append(f"{when}: {found.status}")

    world.store.boundary = look
    world.decide(call)
    assert seen == ["before: asked", "after: ready"]


def test_reads_of_a_changed_row_are_refused(world: World, path: Path) -> None:
    call = world.ready()
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("UPDATE call SET args = ? WHERE id = ?", ('{"to":"eve"}', call.id))
        other.execute("UPDATE run SET requester = 'eve'")
    with pytest.raises(Tampered, match=call.id):
        world.store.call(call.id)
    with pytest.raises(Tampered, match=call.id):
        world.store.call_by_key(call.run, call.key)
    with pytest.raises(Tampered, match=f"run {call.run}"):
        world.store.run(call.run)


def test_reads_of_a_deleted_store_are_refused(world: World, path: Path) -> None:
    call = world.ask()
    path.unlink()
    with pytest.raises(StoreError, match="was deleted"):
        world.store.call(call.id)


def test_reads_in_a_moved_folder_are_refused(world: World, path: Path) -> None:
    call = world.ask()
    elsewhere = path.parent.with_name("elsewhere")
    path.parent.rename(elsewhere)
    with pytest.raises(StoreError, match="was deleted"):
        world.store.call(call.id)
    elsewhere.rename(path.parent)


def test_rolled_back_rows_are_not_cached(world: World) -> None:
    call = world.ask()
    writer = world.store._writer  # type: ignore[attr-defined]
    seen: list[int] = []

    def interrupted(name: str, when: str) -> None:
        seen.append(world.store._row_cache.runs["r"].ready)  # type: ignore[attr-defined]
        raise KeyboardInterrupt

    world.store.boundary = interrupted
    with pytest.raises(KeyboardInterrupt):
        world.decide(call)
    assert seen == [1]
    world.store.boundary = None
    assert not writer.in_transaction
    assert world.call(call).status == "asked"
    assert world.decide(call).status == "ready"
    assert world.run().ready == 1
    world.check()


def test_failed_commit_is_not_remembered(world: World) -> None:
    call = world.ask()
    writer = world.store._writer  # type: ignore[attr-defined]
    pages = writer.execute("PRAGMA page_count").fetchone()[0]
    writer.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(StoreError, match="full"):
        world.decide(call, "edit", args={"blob": "x" * 100_000})
    writer.execute("PRAGMA max_page_count=1000000")
    assert world.decide(call).rev == 1
    world.check()


def test_unwritten_thread_is_not_cached(world: World) -> None:
    with pytest.raises(NotFound):
        world.transact(ReadRun(thread="t", run="r"))
    world.ask()
    world.check()


def test_system_thread_continues_with_the_cache(world: World) -> None:
    note = Note(thread=SYSTEM_THREAD, type="refused", actor="ann")
    call = world.ask()
    world.transact(note)
    world.decide(call, grant=world.grant())
    world.transact(note)
    world.check()


def test_memory_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "_MOST_ROWS", 10)
    for i in range(30):
        call = world.ask(run=f"r{i}", thread=f"t{i}")
    rows = world.store._row_cache  # type: ignore[attr-defined]
    assert len(rows.threads) + len(rows.runs) + len(rows.calls) <= 13
    world.decide(call)
    world.ask(run="big", thread="big", args={"blob": "x" * 50_000})
    assert "big" in rows.threads
    assert all(len(kept.args) < 20_000 for kept in rows.calls.values())
    world.check()
