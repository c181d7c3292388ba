"""A read-only store shows what the next writer will record, and writes nothing."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from homes import Home
from sayso_process import run_python

from sayso.audit import verify
from sayso.engine.commands import Expire, Note
from sayso.errors import NotFound, StoreError
from sayso.keys import Keyring
from sayso.stores.base import Query, SnapshotLost, Store
from sayso.stores.sqlite import ReadOnlySqliteStore, SqliteStore
from sayso.testing import FakeClock
from sayso_testing.world import LEASE, SECOND, World


@pytest.fixture
def both(home: Home, clock: FakeClock) -> Iterator[tuple[World, Store]]:
    """A world on a store, and the same store opened read-only."""
    world = World(home.open(clock=clock), clock)
    reader = home.open_read_only(clock=clock)
    yield world, reader
    reader.close()


def listed(store: Store, status: str, **query: object) -> list[str]:
    return [call.id for _, call in store.page(Query(status=status, **query))]  # type: ignore[arg-type]


def test_expired_request_is_shown_as_expired(both: tuple[World, Store]) -> None:
    world, reader = both
    first = world.ask(expires_in=1)
    second = world.ask(run="r2", thread="t2")
    assert listed(reader, "pending") == [first.id, second.id]
    world.clock.advance(2)
    assert listed(reader, "pending") == [second.id]
    assert listed(reader, "closed") == listed(reader, "expired") == [first.id]
    assert listed(reader, "any", sort="newest") == [second.id, first.id]
    assert [call.status for call in (reader.call(first.id),) if call] == ["expired"]
    tail = world.store.tail()
    world.store.transact(Expire(thread="t", run="r", call=first.id))
    assert world.store.tail() != tail, "nothing was recorded before"
    assert listed(reader, "expired") == listed(world.store, "expired") == [first.id]


def test_call_of_dead_process_is_in_doubt(both: tuple[World, Store]) -> None:
    world, reader = both
    call = world.ask()
    world.decide(call)
    world.start(call)
    assert listed(reader, "pending") == []
    world.clock.advance(2 * LEASE / SECOND)
    assert listed(reader, "pending", kind="in_doubt") == [call.id]
    assert listed(reader, "approved") == []
    shown = reader.call(call.id)
    assert shown is not None
    assert shown.status == "in_doubt"
    stored = world.store.call(call.id)
    assert stored is not None
    assert stored.status == "running"


def test_pages_include_overdue_requests(both: tuple[World, Store]) -> None:
    world, reader = both
    ids = [
        world.ask(run=f"r{n}", thread=f"t{n}", expires_in=1 if n % 2 else None).id for n in range(7)
    ]
    world.clock.advance(2)
    for status, order, expected in (
        ("any", "oldest", ids),
        ("any", "newest", ids[::-1]),
        ("pending", "oldest", ids[::2]),
        ("expired", "newest", ids[1::2][::-1]),
        ("expired", "expiring", ids[1::2]),
    ):
        after = None
        pages: list[str] = []
        while page := reader.page(Query(status=status, sort=order, limit=2, after=after)):
            pages += [call.id for _, call in page]
            after = page[-1][0]
        assert pages == expected, (status, order)


def test_writing_is_refused(both: tuple[World, Store]) -> None:
    world, reader = both
    world.ask()
    before = world.store.tail()
    for write in (
        lambda: reader.transact(Note(thread="t", type="said", actor="eve", body={})),
        lambda: reader.renew([], 1.0),
        lambda: reader.reserve(["agent"], 1, "w"),
        lambda: reader.move_cursor("c", "1", expected=""),
        lambda: reader.prune(0, "eve"),
        reader.seal,
        reader.seal_if_due,
        reader.mark_recovered,
    ):
        with pytest.raises(StoreError, match="was opened read-only"):
            write()
    assert world.store.tail() == before


def test_commit_is_seen_at_once(both: tuple[World, Store]) -> None:
    world, reader = both
    for n in range(3):
        call = world.ask(run=f"r{n}", thread=f"t{n}")
        assert reader.call(call.id) == call
    assert verify(reader) == verify(world.store)
    assert reader.incarnation == world.store.incarnation
    assert not reader.restored()


def test_missing_store_is_not_found(home: Home) -> None:
    with pytest.raises(NotFound):
        home.open_read_only()


# -- SQLite: a file without a log is opened as immutable, and may be written later


@pytest.fixture
def closed(path: Path, keys: Keyring, clock: FakeClock) -> Iterator[ReadOnlySqliteStore]:
    """A store that no other process has open, opened read-only in another process than this."""
    with closing(SqliteStore(path, keys=keys, clock=clock)) as store:
        World(store, clock).ask()
    with closing(ReadOnlySqliteStore(path, keys=keys, clock=clock)) as reader:
        yield reader


WRITE = """
import sys
from contextlib import closing
from sayso.keys import Keyring
from sayso.stores.sqlite import SqliteStore
from sayso.inbox import create_token
with closing(SqliteStore(sys.argv[1], keys=Keyring.parse(sys.argv[2]))) as store:
    create_token(store, "eve", by="ana")
    if sys.argv[3:]:
        print("open", flush=True)
        sys.stdin.readline()
"""


@pytest.mark.long
def test_write_of_closed_file_is_seen(
    closed: ReadOnlySqliteStore, path: Path, key_text: str
) -> None:
    assert closed.credentials() == []
    run_python("-c", WRITE, str(path), key_text).check_returncode()
    assert [token.person for token in closed.credentials()] == ["eve"]


@pytest.mark.long
def test_snapshot_of_written_file_is_lost(
    closed: ReadOnlySqliteStore, path: Path, key_text: str
) -> None:
    with closed.snapshot() as rows:
        assert len(rows.threads()) == 1
        run_python("-c", WRITE, str(path), key_text).check_returncode()
        with pytest.raises(SnapshotLost):
            rows.threads()
    assert verify(closed).ok


def test_writer_in_this_process_is_refused(
    closed: ReadOnlySqliteStore, path: Path, keys: Keyring
) -> None:
    assert len(closed.threads()) == 1
    with pytest.raises(StoreError, match=r"this process has opened .* read-only: close"):
        SqliteStore(path, keys=keys)
    closed.close()
    SqliteStore(path, keys=keys).close()


def test_unreadable_place_is_explained(path: Path, keys: Keyring, clock: FakeClock) -> None:
    def refused(name: Path, message: str) -> None:
        with pytest.raises(StoreError, match=message):
            ReadOnlySqliteStore(name, keys=keys, clock=clock)

    SqliteStore(path, keys=keys, clock=clock).close()
    refused(path.parent, "is a folder: name the file of the store in it")
    refused(path / "store.db", "cannot open .*: Not a directory")
    journal = path.with_name(f"{path.name}-journal")
    journal.write_bytes(b"half a transaction")
    refused(path, "is being created, or the process that created it died")
    journal.unlink()
    ReadOnlySqliteStore(path, keys=keys, clock=clock).close()


def test_reader_next_to_writer_is_fine(path: Path, keys: Keyring, clock: FakeClock) -> None:
    with closing(SqliteStore(path, keys=keys, clock=clock)) as store:
        world = World(store, clock)
        with closing(ReadOnlySqliteStore(path, keys=keys, clock=clock)) as reader:
            call = world.ask()
            assert reader.call(call.id) == call
        world.decide(call)
    assert not path.with_name("store.db-wal").exists(), "closing the last one empties the log"


def test_copy_is_deleted_at_the_end(
    path: Path, keys: Keyring, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(SqliteStore(path, keys=keys, clock=clock)) as store:
        call = World(store, clock).ask()
        copy = tmp_path / "copied" / "store.db"
        copy.parent.mkdir()
        for name in ("store.db", "store.db-wal"):
            shutil.copyfile(tmp_path / name, copy.parent / name)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    with closing(ReadOnlySqliteStore(copy, keys=keys, clock=clock)) as reader:
        assert reader.call(call.id) == call
        assert verify(reader, jobs=2).ok
        assert len(list(scratch.iterdir())) == 1
    assert not list(scratch.iterdir())
    assert sorted(os.listdir(copy.parent)) == ["store.db", "store.db-wal"]
