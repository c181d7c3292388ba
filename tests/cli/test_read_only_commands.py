"""Commands that only read change no file, and report what is no store."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cli_world import World
from postgres_server import shared_url, why_not

from sayso import Inbox
from sayso.keys import new_key
from sayso.stores.sql import migrate

#: Every command that only reads, with ``ID`` for the id of a request.
READING = {
    "inbox": ("inbox",),
    "show": ("show", "ID"),
    "history": ("history",),
    "grants": ("grants",),
    "grants list": ("grants", "list", "--all"),
    "token list": ("token", "list", "--all"),
    "audit verify": ("audit", "verify"),
    "audit export": ("audit", "export"),
    "audit explain": ("audit", "explain", "ID"),
    "doctor": ("doctor",),
}
WRITER = """
import sys
from sayso import Inbox
from sayso.inbox import create_token
inbox = Inbox(sys.argv[1])
create_token(inbox.store, "eve", by="ana")
print("ready", flush=True)
sys.stdin.readline()
"""
#: Root may write everywhere, so it gives up that capability first. Runs several commands.
POWERLESS = """
import ctypes, json, sys
from typer.testing import CliRunner
from sayso.cli.entry import app_of
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
assert ctypes.CDLL(None).capset(header, (ctypes.c_uint32 * 6)()) == 0
try:
    open(sys.argv[1] + "/sayso.db", "r+b")
except PermissionError:
    for words in json.loads(sys.argv[2]):
        result = CliRunner().invoke(app_of(words[0]), words)
        print(words, result.exit_code, result.output)
"""


@pytest.fixture(params=READING)
def command(request: pytest.FixtureRequest) -> tuple[str, ...]:
    words: tuple[str, ...] = READING[request.param]
    return words


def run(world: World, command: tuple[str, ...], request: str = "req_0", **env: Any) -> str:
    """Run a reading command on a store where all is well."""
    return world.cli(*named(command, request), **env)


def named(command: tuple[str, ...], request: str) -> list[str]:
    return [request if word == "ID" else word for word in command]


def contents(folder: Path) -> dict[str, str]:
    """Return a hash of every file in a folder, by its name."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
    }


@contextmanager
def writer(world: World) -> Iterator[None]:
    """Run a process that has written to the store and has it open; kill it at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, world.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_closed_store_stays_as_it_is(world: World, command: tuple[str, ...]) -> None:
    request = world.mail()
    before = contents(world.folder)
    run(world, command, request)
    assert contents(world.folder) == before


def test_overdue_rows_stay_as_they_are(world: World, command: tuple[str, ...]) -> None:
    request = world.mail(expires_in=0.05)
    world.doubt("r2")
    before = contents(world.folder)
    run(world, command, request, **{"code": 1} if command == ("doctor",) else {})
    assert contents(world.folder) == before


def check_log_is_read(world: World, request: str) -> None:
    before = contents(world.folder)
    assert "sayso.db-wal" in before
    output = [run(world, command, request) for command in READING.values()]
    assert any("eve, reviewer" in text for text in output), "its token is in the log only"
    assert contents(world.folder) == before


def test_log_of_live_writer_is_read(world: World) -> None:
    request = world.mail()
    with writer(world):
        check_log_is_read(world, request)


def test_log_of_killed_writer_is_read(world: World) -> None:
    request = world.mail()
    with writer(world):
        pass
    check_log_is_read(world, request)


def test_log_without_index_is_read(world: World) -> None:
    request = world.mail()
    with writer(world):
        pass
    (world.folder / "sayso.db-shm").unlink()
    check_log_is_read(world, request)


@pytest.mark.parametrize("log", ["no log", "log", "log without index"])
def test_folder_without_write_access_is_read(world: World, log: str) -> None:
    request = world.mail()
    if log != "no log":
        with writer(world):
            pass
    if log == "log without index":
        (world.folder / "sayso.db-shm").unlink()
    before = contents(world.folder)
    for path in (*world.folder.iterdir(), world.folder):
        path.chmod(path.stat().st_mode & ~0o222)
    commands = [named(command, request) for command in READING.values()]
    done = subprocess.run(
        [sys.executable, "-c", POWERLESS, str(world.folder), json.dumps(commands)],
        env={**os.environ, "SAYSO_STORE": world.url, "SAYSO_TOKEN": ""},
        capture_output=True,
        text=True,
    )
    world.folder.chmod(0o755)
    for words in commands:
        assert f"{words} 0 " in done.stdout, done
    assert contents(world.folder) == before


# -- what is no store


def missing(path: Path) -> None:
    pass


def empty(path: Path) -> None:
    path.touch()


def prose(path: Path) -> None:
    path.write_text("Dear diary, nothing ran today.\n" * 100)


def app(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE diary (day TEXT)")


def tableless(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 7")


def folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("made", [missing, empty, prose, app, tableless, folder])
def test_no_store_is_an_error(
    world: World, command: tuple[str, ...], made: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    made(world.folder / "typo.db")
    before = os.listdir(world.folder)
    words = named(command, "req_0")
    code = 4 if made in (missing, empty, tableless) else 1
    code = 1 if command == ("doctor",) else code
    for name in ("typo.db", "sqlite:///typo.db", f"{world.folder}/typo.db"):
        for option in ((), ("--store", name)):
            output = world.cli(*words, *option, code=code, SAYSO_STORE=name, COLUMNS="500")
            assert "intact" not in output
            assert "typo.db" in output + capsys.readouterr().err
    assert os.listdir(world.folder) == before


def test_lost_store_is_an_error(
    world: World, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    request = world.mail()
    path = world.folder / "sayso.db"
    for lose in (path.unlink, path.touch):
        lose()
        before = contents(world.folder)
        output = run(world, command, request, code=1) + capsys.readouterr().err
        assert "says that a store was here" in " ".join(output.replace("┆", "").split())
        assert contents(world.folder) == before


def test_writing_command_creates_no_store(world: World) -> None:
    for words in (("approve", "req_0"), ("cancel", "req_0"), ("prune", "--before", "90d")):
        world.cli(*words, "--store", "typo.db", code=4)
    assert not list(world.folder.iterdir())


def test_older_store_is_not_upgraded(
    world: World,
    command: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    request = world.mail()
    before = contents(world.folder)
    newer = ((migrate.SCHEMA_VERSION + 1, "CREATE TABLE extra (n BIGINT)"),)
    monkeypatch.setattr(migrate, "migrations", lambda dialect: newer)
    if command == ("doctor",):
        assert "the next process that opens it upgrades it" in run(world, command)
    else:
        output = run(world, command, request, code=1)
        assert "which upgrades it" in output + capsys.readouterr().err
    assert contents(world.folder) == before


def test_missing_key_is_not_created(world: World, command: tuple[str, ...]) -> None:
    request = world.mail()
    (world.folder / "sayso.db.key").unlink()
    before = contents(world.folder)
    run(world, command, request, code=1)
    assert contents(world.folder) == before


# -- what the next writer will record


def test_lists_show_overdue_requests(world: World) -> None:
    expired = world.mail(expires_in=0.05)
    pending = world.mail("r2", expires_in=3600)
    assert [one["id"] for one in world.json("inbox")["items"]] == [pending]
    assert [one["id"] for one in world.json("history")["items"]] == [expired]
    assert world.json("show", expired)["status"] == "expired"
    with Inbox(world.url) as inbox:  # the next writer
        assert [request.id for request in inbox.pending_sync()] == [pending]
    assert [one["id"] for one in world.json("history")["items"]] == [expired]
    assert world.cli("audit", "verify").startswith("The audit log is intact")


# -- PostgreSQL


@pytest.fixture
def pg(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Return a world whose store is a schema in PostgreSQL."""
    if why_not():
        pytest.skip(why_not())
    monkeypatch.setenv("SAYSO_KEY", new_key())
    schema = f"read_only_{secrets.token_hex(4)}"
    world.url = f"{shared_url()}{'&' if '?' in shared_url() else '?'}schema={schema}"
    yield world
    with psycopg.connect(shared_url(), autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())


def tables(world: World) -> dict[str, list[Any]]:
    """Return the rows of every table, each with the transaction that wrote it."""
    schema = world.url.partition("schema=")[2]
    with psycopg.connect(shared_url()) as connection:
        names = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = %s", [schema]
        ).fetchall()
        return {
            name: connection.execute(
                f'SELECT xmin, t.* FROM {schema}."{name}" t ORDER BY ctid'.encode()
            ).fetchall()
            for (name,) in names
        }


def test_postgres_rows_stay_as_they_are(pg: World, command: tuple[str, ...]) -> None:
    request = pg.mail(expires_in=0.05)
    pg.doubt("r2")
    before = tables(pg)
    run(pg, command, request, **{"code": 1} if command == ("doctor",) else {})
    assert tables(pg) == before


def test_reading_needs_only_select(pg: World, command: tuple[str, ...]) -> None:
    request = pg.mail()
    schema = pg.url.partition("schema=")[2]
    role = f"auditor_{secrets.token_hex(4)}"
    with psycopg.connect(shared_url(), autocommit=True) as connection:
        for statement in (
            f"CREATE ROLE {role} LOGIN PASSWORD 'x'",
            f"GRANT USAGE ON SCHEMA {schema} TO {role}",
            f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}",
        ):
            connection.execute(statement.encode())
        pg.url += f"&options=-c%20role%3D{role}"
        try:
            run(pg, command, request, **{"code": 1} if command == ("doctor",) else {})
        finally:
            connection.execute(f"DROP OWNED BY {role}".encode())
            connection.execute(f"DROP ROLE {role}".encode())


def test_postgres_without_store_is_an_error(pg: World, command: tuple[str, ...]) -> None:
    code = 1 if command == ("doctor",) else 4
    run(pg, command, code=code)
    assert not tables(pg)


def test_unreachable_postgres_is_an_error(
    world: World,
    command: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SAYSO_KEY", new_key())
    world.url = "postgresql://ana:secret@127.0.0.1:1/none"
    output = run(world, command, code=1) + capsys.readouterr().err
    assert "cannot be reached" in output
    assert "secret" not in output


def test_older_postgres_store_is_not_upgraded(
    pg: World, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    request = pg.mail()
    before = tables(pg)
    newer = ((migrate.SCHEMA_VERSION + 1, "CREATE TABLE extra (n BIGINT)"),)
    monkeypatch.setattr(migrate, "migrations", lambda dialect: newer)
    run(pg, command, request, code=1)  # this server does not sync, says the doctor
    assert tables(pg) == before


# -- audit explain


def test_explain_shows_the_difference(world: World) -> None:
    request = world.mail()
    assert world.json("audit", "explain", request[:8])["ok"] is True
    with closing(sqlite3.connect(world.folder / "sayso.db")) as connection, connection:
        connection.execute("UPDATE call SET agent = 'eve'")
    found = world.json("audit", "explain", request, code=1)
    assert found["row"]["agent"] == "eve"
    assert found["last_event"]["type"] == "asked"
    assert found["differs"][0].startswith(f"call {request} does not match the record")
    assert found["next"].startswith("Compare the row with a backup")
    output = world.cli("audit", "explain", request, code=1)
    for words in ("agent: eve", "Last event: asked by", "Differs: call", "Next: Compare"):
        assert words in output
    world.cli("audit", "explain", "req_none", code=4)


def test_explain_says_that_the_row_is_missing(world: World) -> None:
    request = world.mail()
    with closing(sqlite3.connect(world.folder / "sayso.db")) as connection, connection:
        connection.execute("DELETE FROM call")
    assert "Its row is missing." in world.cli("audit", "explain", request, code=1)


# -- audit prove


def test_prove_needs_a_decision_with_a_passkey(world: World) -> None:
    request = world.mail()
    world.cli("reject", request, "-m", "no")
    assert "was confirmed with a passkey" in world.cli("audit", "prove", request, code=4)
    with closing(sqlite3.connect(world.folder / "sayso.db")) as connection, connection:
        connection.execute("UPDATE call SET agent = 'eve'")
    assert f"{request} cannot be proved. Compare the row" in world.cli(
        "audit", "prove", request, code=1
    )
    assert not list(world.folder.glob("*.html"))
