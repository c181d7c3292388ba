"""One SQLite file: opening it, and refusing files of other programs or versions."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sayso.audit import verify
from sayso.errors import StoreError, StoreVersion
from sayso.keys import Keyring, new_key
from sayso.stores import open_store
from sayso.stores.sql import migrate
from sayso.stores.sqlite import SqliteStore, files
from sayso.testing import FakeClock
from sayso_testing.world import World

Opener = Callable[..., SqliteStore]


def rows(path: Path, statement: str) -> list[Any]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(statement).fetchall()
    finally:
        connection.close()


def descriptors() -> set[str]:
    return {os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")}


# -- opening


def test_url_names_the_sqlite_file(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for url, file in [
        ("sqlite:///relative.db", tmp_path / "relative.db"),
        (f"sqlite:///{tmp_path}/absolute.db", tmp_path / "absolute.db"),
    ]:
        store = open_store(url, clock=clock)
        assert store.url == f"sqlite:///{file}"
        assert store.now() == clock()
        assert file.exists()
        assert open_store(store) is store
        store.close()


@pytest.mark.parametrize(
    "url",
    ["sqlite://", "sqlite:///", "sqlite://sayso.db", "sqlite:///:memory:", "mysql://x", "x"],
)
def test_malformed_url_is_refused(url: str) -> None:
    with pytest.raises(StoreError, match="sqlite:///"):
        open_store(url)


def test_missing_folder_is_made(tmp_path: Path, open_again: Opener, clock: FakeClock) -> None:
    store = open_again(tmp_path / "a" / "b" / "store.db")
    World(store, clock).ask()
    assert (tmp_path / "a" / "b" / "store.db").exists()


def test_folder_cannot_be_made_inside_a_file(tmp_path: Path, open_again: Opener) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StoreError, match="cannot open"):
        open_again(tmp_path / "file" / "store.db")


def test_folder_is_no_store(tmp_path: Path, open_again: Opener) -> None:
    (tmp_path / "folder.db").mkdir()
    with pytest.raises(StoreError, match=r"folder\.db"):
        open_again(tmp_path / "folder.db")


def test_files_of_the_store_are_private(world: World, path: Path) -> None:
    for name in (".lock", ".mark"):
        mode = stat.S_IMODE(os.stat(f"{path}{name}").st_mode)
        assert mode & 0o077 == 0, name


def test_sqlite_commits_are_durable(world: World) -> None:
    writer = world.store._writer  # type: ignore[attr-defined]
    assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert writer.execute("PRAGMA synchronous").fetchone() == (2,)


def test_incarnation_survives_reopening(world: World, open_again: Opener, tmp_path: Path) -> None:
    name = world.store.incarnation
    world.reopen()
    assert world.store.incarnation == name
    assert open_again(tmp_path / "other.db").incarnation != name


# -- what is no store


@pytest.mark.parametrize(
    "content",
    [b"just some text, not a database", b"\x00" * 5000, b"SQLite format 3\x00" + b"\xff" * 5000],
    ids=["text", "zeros", "header only"],
)
def test_broken_file_is_refused(path: Path, open_again: Opener, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"store\.db"):
        open_again()
    assert path.read_bytes() == content


def test_later_corruption_is_reported(world: World, path: Path, open_again: Opener) -> None:
    for _ in range(50):
        world.ask(args={"blob": "x" * 500})
    world.store.close()
    data = bytearray(path.read_bytes())
    size = len(data)
    data[4096 * 3 : size - 100] = os.urandom(size - 100 - 4096 * 3)
    path.write_bytes(bytes(data))

    def use() -> None:
        store = open_again()
        World(store, FakeClock()).propose()
        store.calls_of("r")
        store.chain("t")

    with pytest.raises(StoreError, match=r"store\.db"):
        use()


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT)",
        "CREATE TABLE meta (key TEXT, value TEXT)",
        "CREATE TABLE meta (something INTEGER)",
    ],
)
def test_foreign_database_is_refused_unchanged(
    path: Path, open_again: Opener, statement: str
) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()
    with pytest.raises(StoreError, match="something else"):
        open_again()
    assert rows(path, "SELECT sql FROM sqlite_master") == [(statement,)]


def test_empty_file_becomes_a_store(path: Path, open_again: Opener, clock: FakeClock) -> None:
    path.touch()
    World(open_again(), clock).ask()


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "fuse.sshfs"])
def test_network_file_system_is_refused(
    open_again: Opener, path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(files, "_file_system", lambda path: kind)
    with pytest.raises(StoreError, match=f"network file system .{kind}.*local disk"):
        open_again()
    assert not path.exists()


def test_network_file_system_is_found_by_its_mount(
    tmp_path: Path, open_again: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "far away").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "far away")
    point = str(tmp_path / "far away").replace(" ", "\\040")
    mounts = (
        f"/dev/sda / ext4 rw 0 0\nserver:/x {point} nfs4 rw 0 0\ntmpfs {tmp_path}/far tmpfs 0\n"
    )
    read_text = Path.read_text

    def fake(self: Path, *args: Any, **options: Any) -> str:
        return mounts if str(self) == "/proc/self/mounts" else read_text(self, *args, **options)

    monkeypatch.setattr(Path, "read_text", fake)
    for folder in ("far away", "link"):
        with pytest.raises(StoreError, match="nfs4"):
            open_again(tmp_path / folder / "store.db")
    open_again(tmp_path / "far away too.db")


def test_refused_store_leaks_no_descriptor(path: Path, open_again: Opener) -> None:
    path.write_text("not a database")
    before = descriptors()
    for _ in range(5):
        with pytest.raises(StoreError):
            open_again()
    assert descriptors() == before


# -- versions and keys


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Pretends to be a later version, with one more migration."""
    real = migrate.migrations

    def pretend(text: str) -> None:
        number = migrate.SCHEMA_VERSION + 1
        monkeypatch.setattr(migrate, "migrations", lambda dialect: ((number, text),))

    yield pretend
    monkeypatch.setattr(migrate, "migrations", real)


def version(path: Path) -> int:
    return int(rows(path, "SELECT value FROM meta WHERE key = 'version'")[0][0])


def test_store_of_an_older_version_is_migrated(
    world: World, path: Path, newer: Callable[[str], None]
) -> None:
    call = world.decide(world.ask(args={"to": "bo"}, note="from before"))
    world.store.seal()
    before, was = world.everything(), version(path)
    newer(
        "-- a comment; with a semicolon\n"
        "ALTER TABLE call ADD COLUMN colour TEXT NOT NULL DEFAULT 'grey';\n"
        "CREATE TABLE extra (x INTEGER);\n"
        "INSERT INTO extra SELECT count(*) FROM call;\n"
    )
    world.reopen()
    assert version(path) == was + 1
    assert rows(path, "SELECT x FROM extra") == [(1,)]
    assert rows(path, "SELECT colour FROM call") == [("grey",)]
    assert world.everything() == before
    assert world.record(world.start(call)[0]).status == "done"
    world.reopen()
    assert rows(path, "SELECT x FROM extra") == [(1,)], "a migration ran twice"
    world.check()


def test_store_of_a_newer_version_is_refused(
    world: World,
    path: Path,
    open_again: Opener,
    newer: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    was = version(path)
    with monkeypatch.context() as later:
        text = "CREATE TABLE extra (x)"
        later.setattr(migrate, "migrations", lambda dialect: ((was + 1, text),))
        world.reopen()
        world.ask()
        world.store.close()
    sentence = f"newer version of Sayso .schema {was + 1}, this one knows {was}.*upgrade"
    with pytest.raises(StoreVersion, match=sentence):
        open_again()
    assert version(path) == was + 1


def test_failed_migration_changes_nothing(
    world: World, path: Path, open_again: Opener, newer: Callable[[str], None]
) -> None:
    world.ask()
    world.store.seal()
    before, was = world.everything(), version(path)
    world.store.close()
    newer("CREATE TABLE extra (x);\nINSERT INTO nowhere VALUES (1);\n")
    with pytest.raises(StoreError, match="nowhere"):
        open_again()
    assert version(path) == was
    assert rows(path, "SELECT 1 FROM sqlite_master WHERE name = 'extra'") == []
    newer("CREATE TABLE extra (x)")
    world.reopen()
    assert world.everything() == before


def test_wrong_key_is_refused(world: World, open_again: Opener, keys: Keyring) -> None:
    world.ask()
    world.store.close()
    with pytest.raises(StoreError, match=f"key {keys.primary_id}.*SAYSO_KEY"):
        open_again(keys=Keyring.parse(new_key()))


def test_new_key_in_front_keeps_the_store_valid(open_again: Opener, clock: FakeClock) -> None:
    old, new = new_key(), new_key()
    world = World(open_again(keys=Keyring.parse(old)), clock)
    world.ask()
    world.store.close()
    both = Keyring.parse(f"{new},{old}")
    world.store = open_again(keys=both)
    world.ask()
    world.store.seal()
    world.check()


def test_key_file_is_created_next_to_the_store(path: Path, clock: FakeClock) -> None:
    for _ in range(2):
        store = SqliteStore(path, clock=clock)
        assert stat.S_IMODE(os.stat(f"{path}.key").st_mode) == 0o600
        World(store, clock).ask()
        store.close()


def test_folder_url_is_refused_without_files(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    with pytest.raises(StoreError, match=r"names a folder: write sqlite:///.*data/sayso\.db"):
        open_store(f"sqlite:///{folder}")
    assert list(tmp_path.iterdir()) == [folder]


def test_sqlite_url_parameters_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="takes none: leave out what follows"):
        open_store(f"sqlite:///{tmp_path}/sayso.db?mode=ro")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", ["an app's", "no"])
def test_foreign_file_is_refused_without_a_key_error(tmp_path: Path, content: str) -> None:
    """Not that its key is missing; and nothing is put beside it."""
    file = tmp_path / "app.db"
    if content == "no":
        file.write_text("Dear diary")
    else:
        with contextlib.closing(sqlite3.connect(file)) as connection:
            connection.execute("CREATE TABLE users (name)")
    with pytest.raises(StoreError, match=r"not a Sayso store|not a database"):
        open_store(f"sqlite:///{file}")
    assert list(tmp_path.iterdir()) == [file]


# -- values that Sayso never writes


@pytest.mark.parametrize("value", ["x", b"x", 1.5, 9e999])
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE run SET ready_at = ?",
        "UPDATE call SET held_until = ?",
        "UPDATE call SET reminds_at = ?",
        "UPDATE call SET escalates_at = ?",
    ],
)
def test_forged_time_does_not_end_the_worker(
    open_again: Opener, path: Path, clock: FakeClock, statement: str, value: Any
) -> None:
    """A worker waits until the next call is due; no MAC covers when that is."""
    store = open_again()
    world = World(store, clock)
    world.ask(expires_in=60.0)
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute(statement, (value,))
    due = store.next_due()
    assert due is not None
    assert due - clock() == 60_000_000


@pytest.mark.parametrize("value", ["x", b"\xff", 9e999, -(2**63)])
@pytest.mark.parametrize("column", ["event.at", "thread.id", "thread.seq", "thread.head"])
def test_forged_event_or_thread_does_not_keep_a_store_from_sealing(
    open_again: Opener, path: Path, clock: FakeClock, column: str, value: Any
) -> None:
    World(open_again(), clock).ask()
    table, name = column.split(".")
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        place = "thread" if table == "event" else "id"
        database.execute(f"UPDATE {table} SET {name} = ? WHERE {place} = 't'", (value,))
    clock.advance(3600)
    store = open_again()
    world = World(store, clock)
    world.ask(run="r2", thread="t2", id="req_second", key="second")
    clock.advance(3600)
    store.seal_if_due()
    sealed = [thread for seal in store.seals() for thread, *_ in json.loads(seal.heads)]
    assert "t2" in sealed


@pytest.mark.parametrize("change", ["n = 9223372036854775807", "hash = x'ff'"])
def test_forged_last_seal_stops_nothing_but_seals(
    open_again: Opener, path: Path, clock: FakeClock, change: str
) -> None:
    store = open_again()
    World(store, clock).ask()
    store.close()
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute(f"UPDATE seal SET {change}")
    clock.advance(3600)
    store = open_again()
    World(store, clock).ask(run="r2", thread="t2", id="req_second", key="second")
    clock.advance(3600)
    assert store.seal_if_due() is None
    assert not verify(store).ok
    store.close()
