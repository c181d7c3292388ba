"""SQLite stores that lost a file: recorded rows are there, or known to be missing."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sayso_process import run_python

import sayso
from sayso.audit import verify
from sayso.errors import StoreError
from sayso.stores.sqlite import SqliteStore

#: Pays once in a run, as often as it is started, and is killed right after.
_PAY = """
import os, signal, sys
import sayso

gate = sayso.Gate(f"sqlite:///{sys.argv[1]}")
with gate.run("order"):
    gate.guard(needs_approval=False, name="pay")(lambda: print("paid", flush=True))()
print("recorded", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def pay(path: Path) -> subprocess.CompletedProcess[str]:
    return run_python("-c", _PAY, str(path))


def beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def remove_log(path: Path) -> None:
    beside(path, "-wal").unlink()
    beside(path, "-shm").unlink()


@pytest.fixture
def killed(path: Path) -> Path:
    """A young store whose only process was killed after it recorded a payment."""
    process = pay(path)
    assert process.stdout.split() == ["paid", "recorded"], process.stderr
    assert process.returncode == -signal.SIGKILL
    return path


def test_killed_store_keeps_recorded_calls(killed: Path) -> None:
    assert pay(killed).stdout.split() == ["recorded"]


def test_lost_log_stops_every_start(killed: Path) -> None:
    remove_log(killed)
    for _ in range(2):
        process = pay(killed)
        assert process.stdout == ""
        assert "sayso recover" in process.stderr
    with closing(SqliteStore(killed)) as store:
        assert store.restored()
        report = verify(store)
        assert not report.ok
        assert "went back in time" in str(report.problems)


def test_main_file_holds_new_store(path: Path) -> None:
    """Before the first commit returns, so that the log has nothing that cannot be missed."""
    store = SqliteStore(path)
    copy = path.with_name("copy.db")
    shutil.copy(path, copy)
    with closing(sqlite3.connect(f"file:{copy}?immutable=1", uri=True)) as connection:
        (incarnation,) = connection.execute(
            "SELECT value FROM meta WHERE key = 'incarnation'"
        ).fetchone()
    assert incarnation == store.incarnation
    store.close()


def test_copied_main_file_is_same_store(killed: Path, tmp_path: Path) -> None:
    """Without its key it is refused; with it, it is an older copy and not a new store."""
    copy = tmp_path / "elsewhere.db"
    shutil.copy(killed, copy)
    with pytest.raises(sayso.KeyMissing, match=r"elsewhere\.db\.key is missing"):
        SqliteStore(copy)
    shutil.copy(beside(killed, ".key"), beside(copy, ".key"))
    with closing(SqliteStore(killed)) as store, closing(SqliteStore(copy)) as copied:
        assert copied.incarnation == store.incarnation


def test_copied_main_file_put_back_is_noticed(killed: Path, tmp_path: Path) -> None:
    shutil.copy(killed, tmp_path / "copy")
    killed.unlink()
    remove_log(killed)
    shutil.copy(tmp_path / "copy", killed)
    assert "sayso recover" in pay(killed).stderr


def delete(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def replace_by_empty_database(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")


def replace_by_other_store(path: Path) -> None:
    other = path.with_name("other.db")
    shutil.copy(beside(path, ".key"), beside(other, ".key"))
    assert "recorded" in pay(other).stdout
    SqliteStore(other).close()
    os.replace(other, path)


@pytest.mark.long
@pytest.mark.parametrize("with_log", [False, True])
@pytest.mark.parametrize(
    "change", [delete, empty, replace_by_empty_database, replace_by_other_store]
)
def test_mark_without_its_store_is_refused(
    killed: Path, change: Callable[[Path], None], with_log: bool
) -> None:
    if not with_log:
        remove_log(killed)
    mark = beside(killed, ".mark").read_bytes()
    change(killed)
    size = killed.stat().st_size if killed.exists() else None
    for _ in range(2):
        process = pay(killed)
        assert process.stdout == ""
        assert "StoreError" in process.stderr
        assert "delete" in process.stderr
    assert beside(killed, ".mark").read_bytes() == mark
    assert (killed.stat().st_size if killed.exists() else None) == size


@pytest.mark.long
def test_deleting_mark_starts_empty_store(killed: Path) -> None:
    """As the error says."""
    killed.unlink()
    remove_log(killed)
    with pytest.raises(StoreError, match=r"delete \S+store\.db\.mark"):
        SqliteStore(killed)
    beside(killed, ".mark").unlink()
    assert pay(killed).stdout.split() == ["paid", "recorded"]


@pytest.mark.long
@pytest.mark.parametrize("with_log", [False, True])
@pytest.mark.parametrize("size", [1, 100, 4096, 5000, 40960, -4096])
def test_truncated_file_is_never_new_store(killed: Path, size: int, with_log: bool) -> None:
    if not with_log:
        remove_log(killed)
    os.truncate(killed, size if size > 0 else killed.stat().st_size + size)
    process = pay(killed)
    assert "paid" not in process.stdout
    assert process.stdout.split() == ["recorded"] or "StoreError" in process.stderr


@pytest.mark.long
def test_log_removed_under_open_store_is_noticed(killed: Path) -> None:
    """By the process that has it open, and by one that opens it later."""
    gate = sayso.Gate(f"sqlite:///{killed}")
    with gate.run("other"):
        gate.guard(needs_approval=False, name="noop")(lambda: None)()
    remove_log(killed)
    process = pay(killed)
    assert process.stdout == ""
    assert "sayso recover" in process.stderr
    with pytest.raises(StoreError, match=r"-wal was (deleted|replaced)"), gate.run("third"):
        gate.guard(needs_approval=False, name="noop")(lambda: None)()
    gate.close()


@pytest.mark.long
def test_log_of_other_store_is_noticed(killed: Path, tmp_path: Path) -> None:
    """Its pages fit, and its rows are signed with the same key."""
    (tmp_path / "b").mkdir()
    other = tmp_path / "b" / "store.db"
    shutil.copy(beside(killed, ".key"), beside(other, ".key"))
    for _ in range(2):
        pay(other)
    SqliteStore(killed).close()
    shutil.copy(beside(other, "-wal"), beside(killed, "-wal"))
    process = pay(killed)
    assert process.stdout == ""
    assert "StoreError" in process.stderr
