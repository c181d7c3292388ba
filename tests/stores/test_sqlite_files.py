"""The files of a SQLite store, changed by others: deleted, replaced, linked, damaged."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sqlite3
import stat
import tempfile
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from forked_child import fork
from ordinary_user import ordinary_user

from sayso import Gate, Inbox, Paused
from sayso.audit import verify
from sayso.errors import StoreError, StoreVersion
from sayso.keys import Keyring
from sayso.stores.sqlite import SqliteStore, files
from sayso.testing import FakeClock
from sayso_testing.world import World

Opener = Callable[..., SqliteStore]

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def execute(path: Path, *statements: str) -> list[Any]:
    """What another program does to the file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return [connection.execute(statement).fetchall() for statement in statements]


def is_free(store: SqliteStore) -> bool:
    """Take the lock of the file as a writer does, but without waiting for it."""
    flock = fcntl.flock

    def try_lock(descriptor: int, operation: int) -> None:
        flock(descriptor, operation | fcntl.LOCK_NB if operation == fcntl.LOCK_EX else operation)

    with pytest.MonkeyPatch.context() as patch, suppress(BlockingIOError):
        patch.setattr(files.fcntl, "flock", try_lock)
        with store._sidecar:
            return True
    return False


@pytest.fixture(params=["recently changed", "long unchanged"])
def settle(request: pytest.FixtureRequest) -> Callable[[SqliteStore], None]:
    """A store looks at each file only after its folder has changed, or if that was just now."""

    def age(store: SqliteStore) -> None:
        if request.param == "long unchanged":
            os.utime(store.path.parent, ns=(1, 1_000_000_000_000_000_001))
            assert store.move_cursor("settled", "1", expected="")

    return age


# -- the file deleted or replaced while it is open


def delete(path: Path, other: Path) -> None:
    path.unlink()


def replace_by_another_store(path: Path, other: Path) -> None:
    SqliteStore(other).close()
    os.replace(other, path)


def replace_by_a_copy(path: Path, other: Path) -> None:
    shutil.copy(path, other)
    os.replace(other, path)


def replace_by_something_else(path: Path, other: Path) -> None:
    other.write_text("nothing of ours")
    os.replace(other, path)


def replace_by_a_folder(path: Path, other: Path) -> None:
    path.unlink()
    path.mkdir()


CHANGES = [
    delete,
    replace_by_another_store,
    replace_by_a_copy,
    replace_by_something_else,
    replace_by_a_folder,
]


@pytest.mark.parametrize("change", CHANGES)
def test_missing_file_refuses_every_use(
    world: World,
    path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    change: Callable[[Path, Path], None],
    settle: Callable[[SqliteStore], None],
) -> None:
    call = world.ask()
    tmp_path = tmp_path_factory.mktemp("beside")
    store, kept = world.store, tmp_path / "kept"
    os.link(path, kept)
    settle(store)
    change(path, tmp_path / "other.db")
    files = [kept, beside(path, "-wal"), *([path] if path.is_file() else [])]
    before = [file.read_bytes() for file in files]
    acts: list[Callable[[], object]] = [
        lambda: world.ask("more", key="more"),
        lambda: world.decide(call),
        lambda: store.move_cursor("reader", "1", expected=""),
        store.seal,
        lambda: store.prune(world.clock(), "ops"),
        lambda: store.call(call.id),
        store.tail,
    ]
    for act in acts:
        with pytest.raises(StoreError, match=r"store\.db was (deleted|replaced)") as caught:
            act()
        assert "restart" in str(caught.value)
    assert [file.read_bytes() for file in files] == before
    # Put back, it is the same store as before.
    if path.is_dir():
        path.rmdir()
    os.replace(kept, path)
    assert world.decide(call).status == "ready"
    world.check()


def test_missing_file_starts_no_call(path: Path) -> None:
    gate, inbox = Gate(f"sqlite:///{path}", wait=0), Inbox(f"sqlite:///{path}")
    ran: list[str] = []

    @gate.guard(needs_approval=True)
    def pay(to: str) -> None:
        ran.append(to)

    def work() -> None:
        with gate.run("order"):
            pay("ana")

    with pytest.raises(Paused):
        work()
    (request,) = inbox.pending_sync().items
    inbox.decide_sync(request.id, request.approve(), by="ana")
    path.rename(path.with_name("away.db"))
    for _ in range(2):
        with pytest.raises(StoreError, match="deleted"):
            work()
    assert ran == []
    path.with_name("away.db").rename(path)
    work()
    assert ran == ["ana"]
    gate.close()
    inbox.store.close()


def test_commit_into_a_deleted_file_is_not_acknowledged(path: Path, keys: Keyring) -> None:
    """Between the look at the file and the commit it can still be deleted."""
    deleting: list[bool] = []

    def boundary(name: str, when: str) -> None:
        if when == "before" and deleting:
            path.unlink()
            deleting.clear()

    store = SqliteStore(path, keys=keys, boundary=boundary)
    world = World(store, FakeClock())
    world.ask()
    deleting.append(True)
    with pytest.raises(StoreError, match="deleted"):
        world.ask("lost", key="lost")
    with suppress(StoreError):
        store.close()


def test_waiting_caller_learns_of_a_deleted_file(path: Path) -> None:
    gate = Gate(f"sqlite:///{path}", wait=30)
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            gate.ask_sync("Which account?")
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    while not gate.store.waiting().get("asked"):
        pass
    path.unlink()
    thread.join(20)
    assert not thread.is_alive()
    assert "was deleted" in str(errors[0])
    gate.close()


@pytest.mark.parametrize("ending", ["-wal", "-shm"])
def test_removed_log_is_noticed(
    world: World, path: Path, ending: str, settle: Callable[[SqliteStore], None]
) -> None:
    call = world.ask()
    settle(world.store)
    size = path.stat().st_size
    beside(path, ending).unlink()
    for _ in range(2):
        with pytest.raises(StoreError, match=rf"store\.db{ending} was deleted"):
            world.decide(call)
    assert path.stat().st_size == size


def test_loss_of_a_removed_log_is_known(world: World, path: Path, open_again: Opener) -> None:
    world.ask()
    beside(path, "-wal").unlink()
    world.store.close()
    world.store = open_again()
    assert world.store.restored() or world.store.calls_of("r"), "saved, or known to be lost"


@pytest.mark.parametrize("size", ["none", "empty"])
def test_orphaned_log_is_not_replayed(
    world: World, path: Path, open_again: Opener, size: str
) -> None:
    world.ask()
    path.unlink()
    if size == "empty":
        path.touch()
    log = beside(path, "-wal").read_bytes()
    with pytest.raises(StoreError, match=r"store\.db-wal") as caught:
        open_again()
    assert "delete" in str(caught.value)
    assert beside(path, "-wal").read_bytes() == log


def test_copy_restored_by_sqlite_is_noticed(world: World, path: Path, tmp_path: Path) -> None:
    """The file is the same one, and its content is older: ``.restore`` of the sqlite3 program."""
    world.decide(call := world.ask())
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(tmp_path / "c")) as copy:
        source.backup(copy)
    world.start(call)
    assert not world.store.restored()
    with closing(sqlite3.connect(path)) as target, closing(sqlite3.connect(tmp_path / "c")) as copy:
        copy.backup(target)
    with pytest.raises(StoreError, match="sayso recover"):
        world.start(call)
    assert world.store.restored()
    assert world.call(call).status == "ready"
    world.reopen()
    assert world.store.restored()


def test_foreign_store_copied_into_the_file_is_noticed(
    world: World, path: Path, tmp_path: Path
) -> None:
    world.ask()
    other = World(SqliteStore(tmp_path / "other.db", keys=world.store.keys), world.clock)
    other.ask(run="r2", thread="t2", id="req_other")
    other.ask(run="r3", thread="t3", id="req_third")
    with (
        closing(sqlite3.connect(path)) as target,
        closing(sqlite3.connect(tmp_path / "other.db")) as source,
    ):
        source.backup(target)
    for _ in range(2):
        with pytest.raises(StoreError, match="another store"):
            world.ask("more", key="more")
    other.store.close()


def test_meta_row_lost_while_open_is_noticed(world: World, path: Path) -> None:
    call = world.ask()
    execute(path, "DELETE FROM meta WHERE key = 'incarnation'")
    for _ in range(2):
        with pytest.raises(StoreError, match="incarnation"):
            world.decide(call)


# -- one file, several names


@pytest.fixture
def linked(path: Path) -> Path:
    link = path.parent / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(path)
    return link


def test_linked_file_shares_lock_and_key(linked: Path, path: Path) -> None:
    """Made through the link, though the file is not there yet."""
    with closing(SqliteStore(linked)) as one, closing(SqliteStore(path)) as two:
        assert one.incarnation == two.incarnation
        assert one.path == two.path == path
        assert one.url == two.url
        with one._sidecar:
            assert not is_free(two)
        assert is_free(two)
        clock = FakeClock()
        call = World(one, clock).ask()
        assert World(two, clock).decide(call).status == "ready"
    assert {file.name for file in linked.parent.iterdir()} == {"link.db"}
    assert {".lock", ".mark", ".key"} <= {
        file.name.removeprefix(path.name) for file in path.parent.iterdir()
    }


def test_linked_folder_is_the_folder(path: Path, open_again: Opener) -> None:
    folder = path.parent / "linked"
    folder.symlink_to(path.parent, target_is_directory=True)
    one, two = open_again(path), open_again(folder / path.name)
    with one._sidecar:
        assert not is_free(two)


def test_retargeted_link_is_noticed(
    linked: Path,
    path: Path,
    tmp_path: Path,
    open_again: Opener,
    clock: FakeClock,
    settle: Callable[[SqliteStore], None],
) -> None:
    world = World(open_again(linked), clock)
    call = world.ask()
    settle(world.store)
    open_again(tmp_path / "other.db")
    linked.unlink()
    linked.symlink_to(tmp_path / "other.db")
    with pytest.raises(StoreError, match=r"link\.db was replaced"):
        world.decide(call)


def test_links_in_a_circle_are_refused(tmp_path: Path, open_again: Opener) -> None:
    (tmp_path / "a.db").symlink_to(tmp_path / "b.db")
    (tmp_path / "b.db").symlink_to(tmp_path / "a.db")
    with pytest.raises(StoreError, match="cannot open"):
        open_again(tmp_path / "a.db")


def test_file_with_two_names_is_refused(world: World, path: Path, open_again: Opener) -> None:
    """Each name would have a log and a lock of its own."""
    call = world.ask()
    os.link(path, path.with_name("second.db"))
    for name in (path, path.with_name("second.db")):
        with pytest.raises(StoreError, match="hard link"):
            open_again(name)
    assert world.decide(call).status == "ready", "a backup may link it for a moment"
    path.with_name("second.db").unlink()
    assert open_again().incarnation == world.store.incarnation


# -- the small files beside it


@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_removed_lock_file_still_excludes_processes(
    open_again: Opener,
    path: Path,
    clock: FakeClock,
    how: str,
    settle: Callable[[SqliteStore], None],
) -> None:
    one = open_again()
    settle(one)
    beside(path, ".lock").unlink()
    if how == "replaced":
        beside(path, ".lock").touch()
    two = open_again()
    with one._sidecar:
        assert not is_free(two)
    with two._sidecar:
        assert not is_free(one)
    World(one, clock).ask()
    World(two, clock).ask(run="r2", thread="t2", id="req_2")


def test_waiting_process_takes_the_new_lock_file(open_again: Opener, path: Path) -> None:
    one, two = open_again(), open_again()
    entered, over = threading.Event(), threading.Event()

    def wait() -> None:
        with two._sidecar:
            entered.set()
            over.wait(30)

    thread = threading.Thread(target=wait)
    with one._sidecar:
        thread.start()
        assert not entered.wait(0.05)
        beside(path, ".lock").unlink()
        beside(path, ".lock").touch()
    assert entered.wait(30)
    assert not is_free(one)
    over.set()
    thread.join()


@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_removed_mark_is_written_again(
    world: World, path: Path, open_again: Opener, how: str
) -> None:
    world.ask()
    mark = beside(path, ".mark")
    mark.unlink()
    if how == "replaced":
        mark.write_text("[]")
    world.ask("more", key="more")
    assert str(world.store.incarnation) in mark.read_text()
    assert stat.S_IMODE(mark.stat().st_mode) & 0o077 == 0 or how == "replaced"


def test_read_only_folder_allows_an_open_store(open_again: Opener) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with ordinary_user():
            world = World(open_again(folder / "store.db"), FakeClock())
            call = world.ask()
            folder.chmod(0o555)
            assert world.decide(call).status == "ready"
            world.store.calls_of("r")
            world.check()
            world.store.close()
            with pytest.raises(StoreError, match=r"new\.db"):
                open_again(folder / "new.db")
            folder.chmod(0o777)


# -- what the store says of itself


@pytest.mark.parametrize("key", ["version", "incarnation", "key"])
@pytest.mark.parametrize("damage", ["DELETE FROM meta", "UPDATE meta SET value = ''"])
def test_damaged_meta_row_is_named(
    world: World, path: Path, open_again: Opener, key: str, damage: str
) -> None:
    world.ask()
    world.store.close()
    execute(path, f"{damage} WHERE key = '{key}'")
    with pytest.raises(StoreError, match=rf"store\.db is damaged.*{key}") as caught:
        open_again()
    assert "backup" in str(caught.value)


@pytest.mark.parametrize("version", ["one", "1.5", "-1", "0", "0x1", " "])
def test_malformed_version_is_damage(
    world: World, path: Path, open_again: Opener, version: str
) -> None:
    world.store.close()
    execute(path, f"UPDATE meta SET value = '{version}' WHERE key = 'version'")
    with pytest.raises(StoreError, match=r"damaged.*version"):
        open_again()


def test_store_of_a_newer_version_is_refused(world: World, path: Path, open_again: Opener) -> None:
    world.store.close()
    execute(path, "UPDATE meta SET value = '9999' WHERE key = 'version'")
    with pytest.raises(StoreVersion, match="upgrade sayso"):
        open_again()


@pytest.mark.parametrize(
    "change",
    [
        "DROP TABLE credential",
        "DROP TABLE cursor",
        "ALTER TABLE call RENAME COLUMN args TO arguments",
        "ALTER TABLE event RENAME TO events",
        "ALTER TABLE run DROP COLUMN snapshot",
    ],
)
def test_changed_tables_are_refused(
    world: World, path: Path, open_again: Opener, change: str
) -> None:
    """As in a store that a development version has made."""
    world.store.close()
    execute(path, change)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"store\.db") as caught:
        open_again()
    assert "backup" in str(caught.value) or "something else" in str(caught.value)
    assert path.read_bytes() == before


def test_database_of_another_program_is_not_changed(
    world: World, path: Path, open_again: Opener
) -> None:
    """Also where a store was before, and its mark still is."""
    world.store.close()
    path.unlink()
    execute(path, "CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="something else"):
        open_again()
    assert path.read_bytes() == before


# -- made by many at once


@pytest.mark.long
def test_concurrent_processes_create_one_store(tmp_path: Path) -> None:
    for attempt in range(5):
        path = tmp_path / str(attempt) / "store.db"
        start, go = os.pipe()
        reader, writer = os.pipe()
        pids = [_maker(path, start, go, writer) for _ in range(6)]
        os.close(go)
        os.close(writer)
        ended = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        with open(reader) as names:
            made = names.read().split()
        os.close(start)
        assert ended == [0] * 6
        assert len(made) == 6
        assert len(set(made)) == 1
        with closing(SqliteStore(path)) as store:
            assert len(store.threads()) == 6
            assert verify(store).ok


def _maker(path: Path, start: int, go: int, writer: int) -> int:
    def make() -> None:
        os.close(go)
        os.read(start, 1)  # until the parent closes its end
        store = SqliteStore(path)
        name = f"r{os.getpid()}"
        World(store, FakeClock()).ask(run=name, thread=name, id=f"req_{name}")
        os.write(writer, f"{store.incarnation}\n".encode())
        store.close()

    return fork(make)


# -- a system without locks of files


def test_due_runs_are_reserved_without_file_locks(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(files.fcntl, "lockf", no_locks)
    world.decide(world.ask())
    reserve = world.store.reserve
    assert [run.id for run in reserve(("agent",), 8, "w1")] == ["r"]
    assert reserve(("agent",), 8, "w2") == []
    world.claim("w1")
    world.clock.advance(31)
    assert [run.id for run in reserve(("agent",), 8, "w2")] == ["r"]
