"""The source of a key: a variable or a private file, created once by parallel processes."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sayso.errors import KeyMissing, StoreError
from sayso.keys import Keyring, new_key, row_key

SECRET = "hunter2hunter2"


def test_environment_wins(tmp_path: Path) -> None:
    key = new_key()
    ring = Keyring.for_store(tmp_path / "a.db", {"SAYSO_KEY": key})
    assert ring.primary_id == Keyring.parse(key).primary_id
    assert list(tmp_path.iterdir()) == []


def test_empty_variable_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyMissing, match="SAYSO_KEY is empty"):
        Keyring.for_store(tmp_path / "a.db", {"SAYSO_KEY": ""})


def test_missing_variable_uses_key_file(tmp_path: Path) -> None:
    ring = Keyring.for_store(tmp_path / "a.db", {})
    assert ring.primary_id == Keyring.beside(tmp_path / "a.db").primary_id
    assert not ring.is_ephemeral


def test_missing_variable_and_file_is_an_error() -> None:
    with pytest.raises(KeyMissing, match="set SAYSO_KEY to what it prints"):
        Keyring.for_store(None, {})


def test_key_file_is_private_to_owner(tmp_path: Path) -> None:
    old_mask = os.umask(0)
    try:
        Keyring.beside(tmp_path / "a.db")
    finally:
        os.umask(old_mask)
    (file,) = tmp_path.iterdir()
    assert file.name == "a.db.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text().startswith("hmac:")


def test_linked_database_has_one_key(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "data" / "a.db")
    ring = Keyring.beside(tmp_path / "link.db")
    assert ring.primary_id == Keyring.beside(tmp_path / "data" / "a.db").primary_id
    assert not (tmp_path / "link.db.key").exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o660, 0o666, 0o777])
def test_readable_key_file_is_refused(tmp_path: Path, mode: int) -> None:
    database = tmp_path / "my data.db"
    ring = Keyring.beside(database)
    file = tmp_path / "my data.db.key"
    file.chmod(mode)
    with pytest.raises(KeyMissing, match="chmod 600 ") as caught:
        Keyring.beside(database)
    line = str(caught.value).partition("run: ")[2]
    subprocess.run(line, shell=True, check=True)
    assert Keyring.beside(database).primary_id == ring.primary_id


@pytest.mark.parametrize("target", ["real.key", "nowhere.key"])
def test_symbolic_link_is_refused(tmp_path: Path, target: str) -> None:
    (tmp_path / "real.key").write_text(new_key())
    (tmp_path / "real.key").chmod(0o600)
    (tmp_path / "a.db.key").symlink_to(tmp_path / target)
    with pytest.raises(KeyMissing, match="symbolic link"):
        Keyring.beside(tmp_path / "a.db")
    assert not (tmp_path / "nowhere.key").exists()


@pytest.mark.parametrize("content", [b"", b"\n", SECRET.encode(), b"\xff" * 40])
def test_file_without_a_key_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "a.db.key"
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(KeyMissing, match=re.escape(str(file))) as caught:
        Keyring.beside(tmp_path / "a.db")
    assert SECRET not in str(caught.value)
    assert file.read_bytes() == content


def test_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.db.key", 0o600)
    with pytest.raises(KeyMissing):
        Keyring.beside(tmp_path / "a.db")


def test_missing_folder_is_a_store_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"No such file or directory.*set SAYSO_KEY"):
        Keyring.beside(tmp_path / "missing" / "a.db")


def test_full_disk_leaves_no_key_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(StoreError, match="No space left"):
        Keyring.beside(tmp_path / "a.db")
    assert list(tmp_path.iterdir()) == []


RACER = """
import sys
from pathlib import Path
from sayso.keys import Keyring
print("ready", flush=True)
sys.stdin.readline()
print(*(Keyring.beside(Path(sys.argv[1], f"{n}.db")).primary_id for n in range(20)))
"""


def test_parallel_processes_make_one_key(tmp_path: Path) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(20)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    answers = {racer.communicate()[0] for racer in racers}
    assert len(answers) == 1
    assert len(set(answers.pop().split())) == 20
    assert {file.name for file in tmp_path.iterdir()} == {f"{n}.db.key" for n in range(20)}


def test_key_of_store_being_created_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, key, lexists = tmp_path / "store.db", new_key(), os.path.lexists

    def make_meanwhile(file: str) -> bool:
        found = lexists(file)
        if not path.exists():
            Path(file).write_text(key)
            Path(file).chmod(0o600)
            path.write_text("rows")
        return found

    monkeypatch.setattr(os.path, "lexists", make_meanwhile)
    assert Keyring.beside(path).primary_id == Keyring.parse(key).primary_id


def test_key_file_of_a_variable_is_read(tmp_path: Path) -> None:
    key, rows = new_key(), row_key()
    for name, text in (("key", key), ("rows", rows)):
        (tmp_path / name).write_text(f"{text}\n")
        (tmp_path / name).chmod(0o440)
    environ = {
        "SAYSO_KEY_FILE": str(tmp_path / "key"),
        "SAYSO_ROW_KEY_FILE": str(tmp_path / "rows"),
    }
    ring = Keyring.for_store(None, environ)
    assert ring.primary_id == Keyring.parse(key).primary_id
    assert ring.row_key.text == rows
    assert ring.source == str(tmp_path / "key")


def test_systemd_credentials_are_read(tmp_path: Path) -> None:
    key, rows = new_key(), row_key()
    (tmp_path / "sayso-key").write_text(key)
    (tmp_path / "sayso-row-key").write_text(rows)
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    ring = Keyring.for_store(None, environ)
    assert ring.primary_id == Keyring.parse(key).primary_id
    assert ring.row_key.text == rows
    other = new_key()
    assert Keyring.for_store(None, {**environ, "SAYSO_KEY": other}).source == "SAYSO_KEY"


def test_two_sources_are_refused(tmp_path: Path) -> None:
    environ = {"SAYSO_KEY": new_key(), "SAYSO_KEY_FILE": str(tmp_path / "key")}
    with pytest.raises(KeyMissing, match="both set"):
        Keyring.for_store(None, environ)


def test_missing_key_file_is_refused(tmp_path: Path) -> None:
    environ = {"SAYSO_KEY_FILE": str(tmp_path / "key")}
    with pytest.raises(KeyMissing, match="cannot be read"):
        Keyring.for_store(tmp_path / "a.db", environ)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o666])
def test_key_file_of_others_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "key"
    file.write_text(new_key())
    file.chmod(mode)
    with pytest.raises(KeyMissing, match="chmod 600"):
        Keyring.for_store(None, {"SAYSO_KEY_FILE": str(file)})
