"""``sayso doctor`` on a real PostgreSQL: its findings, and that it changes nothing."""

from __future__ import annotations

import inspect
import re
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cli_world import World
from postgres_server import PostgresServer, shared_url
from waiting import until

from sayso.cli import doctor_stores
from sayso.keys import new_key
from sayso.stores.postgres import PostgresStore

HOURS = 3 * 3_600_000_000
KEY_DATA = re.compile(rb"(K\0\0\0\x0c)....", re.DOTALL)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """Yield a separate server with fsync on. Its socket needs a short path."""
    folder = Path(tempfile.mkdtemp(prefix="sayso-doctor-"))
    made = PostgresServer(folder)
    made.start()
    yield made
    made.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def pg(world: World, server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Return a world whose store is a database of this server."""
    monkeypatch.setenv("SAYSO_KEY", new_key())
    sql(server.url, "DROP DATABASE IF EXISTS doctor")
    sql(server.url, "CREATE DATABASE doctor")
    world.url = server.url_of("doctor")
    yield world
    sql(server.url, "DROP DATABASE doctor WITH (FORCE)")


def sql(url: str, statement: str, *values: Any) -> list[Any]:
    """Run a statement as an administrator."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement, values or None)
        return cursor.fetchall() if cursor.description else []


def checks(world: World, code: int = 0) -> dict[str, dict[str, str]]:
    report = world.json("doctor", code=code)
    assert report["ok"] is (code == 0), report
    return {check["name"]: check for check in report["checks"]}


def test_healthy_database_passes(pg: World) -> None:
    pg.mail()
    found = checks(pg)
    assert found["engine"]["text"].startswith("PostgreSQL ")
    assert found["durable"]["text"] == "fsync is on, and each commit waits for the disk"
    assert found["standby"]["text"].startswith("none: ")
    assert found["schema"]["state"] == found["sessions"]["state"] == found["clock"]["state"] == "ok"
    assert found["waiting"]["text"].startswith("1 ")
    assert "stream" not in found
    assert "from SAYSO_KEY" in found["key"]["text"]


def test_empty_database_stays_empty(pg: World) -> None:
    assert "no store in its schema 'sayso'" in checks(pg, code=1)["store"]["text"]
    assert sql(pg.url, "SELECT to_regclass('sayso.meta')") == [(None,)]


def test_database_encoding_is_reported(pg: World, server: PostgresServer) -> None:
    pg.mail()
    assert "encoding" not in checks(pg)
    sql(pg.url, "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    pg.url = server.url_of("latin")
    try:
        pg.mail()
        found = checks(pg, code=1)["encoding"]
    finally:
        sql(server.url, "DROP DATABASE latin WITH (FORCE)")
    assert "encoding LATIN1" in found["text"]


def test_server_from_base_backup_is_noted(pg: World, server: PostgresServer) -> None:
    """PostgreSQL renames the backup label after it started from one; nothing else is left."""
    pg.mail()
    assert "sayso recover --force" in checks(pg)["restore"]["text"]
    assert checks(pg)["restore"]["state"] == "ok"
    label = server.folder / "data" / "backup_label.old"
    label.touch()
    try:
        found = checks(pg)["restore"]
    finally:
        label.unlink()
    assert found["state"] == "note"
    assert "started from a base backup" in found["text"]


@pytest.mark.parametrize(
    "command",
    ["inbox", "history", "show req_1", "grants", "token list", "audit verify", "audit export"],
)
def test_reading_commands_create_no_store(pg: World, command: str) -> None:
    said = pg.cli(*command.split(), code=4)
    assert "no store in its schema 'sayso'" in said
    assert "--store or SAYSO_STORE" in said
    assert sql(pg.url, "SELECT to_regnamespace('sayso')") == [(None,)]


def test_first_token_creates_the_store(pg: World) -> None:
    pg.token("ana")
    assert "ana" in pg.cli("token", "list")


def test_unreachable_server_hides_the_password(pg: World) -> None:
    pg.url = "postgresql://me:secret@127.0.0.1:1/x"
    said = pg.cli("doctor", code=1)
    assert "cannot be reached" in said
    assert "secret" not in said


def test_missing_key_is_reported(pg: World, monkeypatch: pytest.MonkeyPatch) -> None:
    pg.mail()
    monkeypatch.delenv("SAYSO_KEY")
    assert "SAYSO_KEY is not set" in checks(pg, code=1)["key"]["text"]
    monkeypatch.setenv("SAYSO_KEY", new_key())
    assert "which is missing" in checks(pg, code=1)["store"]["text"]


def test_server_without_fsync_is_wrong(pg: World) -> None:
    pg.mail()
    url = pg.url
    pg.url = f"{url}&options=-csynchronous_commit%3Doff"
    assert "each commit waits for the disk" in checks(pg)["durable"]["text"], "Sayso overrides it"
    pg.url = f"{url}&options=-czero_damaged_pages%3Don"
    assert "zero_damaged_pages is on" in checks(pg, code=1)["durable"]["text"]
    (fsync,) = sql(shared_url(), "SHOW fsync")[0]
    if fsync == "off":  # unless the tests use another server
        pg.url = shared_url()
        assert "fsync is off" in pg.cli("doctor", code=1)


def test_missing_standby_is_reported(pg: World, server: PostgresServer) -> None:
    pg.mail()
    wanted = "SELECT current_setting('synchronous_standby_names')"
    try:
        sql(server.url, "ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        sql(server.url, "SELECT pg_reload_conf()")
        until(lambda: sql(server.url, wanted) == [("nobody",)])
        assert "every commit waits" in checks(pg, code=1)["standby"]["text"]
        pg.url += "&options=-csynchronous_commit%3Dlocal"
        assert "every commit waits" in checks(pg, code=1)["standby"]["text"]
    finally:
        sql(server.url, "ALTER SYSTEM RESET synchronous_standby_names")
        sql(server.url, "SELECT pg_reload_conf()")
        until(lambda: sql(server.url, wanted) == [("",)])


def test_read_only_standby_is_reported(pg: World, server: PostgresServer) -> None:
    pg.mail()
    server.stop()
    mark = server.folder / "data" / "standby.signal"
    mark.touch()
    try:
        server.start()
        assert "this is a read-only standby" in checks(pg, code=1)["server"]["text"]
        server.stop()
    finally:
        mark.unlink()
        server.start()
    assert checks(pg)["durable"]["state"] == "ok"


def test_read_only_server_is_reported(pg: World) -> None:
    pg.mail()
    pg.url += "&options=-cdefault_transaction_read_only%3Don"
    assert "nothing can be written" in checks(pg, code=1)["server"]["text"]


def test_restored_database_is_reported(pg: World) -> None:
    pg.mail()
    sql(pg.url, "UPDATE sayso.meta SET value = '1.00000001.2.3' WHERE key = 'identity'")
    assert "sayso recover" in checks(pg, code=1)["restore"]["text"]
    pg.cli("recover", "--yes")
    assert checks(pg)["restore"]["state"] == "ok"


class Pooler:
    """A pooler between client and server, which gives each session its own backend pid."""

    def __init__(self, server: PostgresServer, folder: Path) -> None:
        self._server = str(server.folder / ".s.PGSQL.5432")
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(folder / ".s.PGSQL.5432"))
        self._socket.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                behind = socket.socket(socket.AF_UNIX)
                behind.connect(self._server)
                for pair in ((client, behind), (behind, client)):
                    threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError), source, sink:
            while data := source.recv(65536):
                sink.sendall(KEY_DATA.sub(lambda found: found[1] + b"\0\0\0\x07", data))

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def test_pooler_is_noted(pg: World, server: PostgresServer) -> None:
    pg.mail()
    assert "pooler" not in checks(pg)
    folder = Path(tempfile.mkdtemp(prefix="sayso-pooler-"))
    pooler = Pooler(server, folder)
    try:
        pg.url = pg.url.replace(str(server.folder), str(folder))
        assert "prepared statements are off" in checks(pg)["pooler"]["text"]
    finally:
        pooler.close()
        shutil.rmtree(folder)


def test_clocks_that_differ_are_wrong(pg: World, monkeypatch: pytest.MonkeyPatch) -> None:
    pg.mail()
    real = time.time
    monkeypatch.setattr("time.time", lambda: real() - 600)
    assert "10 min apart" in checks(pg, code=1)["clock"]["text"]


def test_transaction_blocking_feed_is_reported(pg: World, monkeypatch: pytest.MonkeyPatch) -> None:
    pg.mail()
    monkeypatch.setattr(doctor_stores, "_OPEN_SECONDS", 0.0)
    with psycopg.connect(pg.url) as connection:
        connection.execute("SELECT pg_current_xact_id()")
        said = checks(pg, code=1)["stream"]["text"]
        assert said.startswith(f"session {connection.info.backend_pid} ")
    assert "stream" not in checks(pg)


def test_connections_per_process_match_the_pool() -> None:
    pool = inspect.signature(PostgresStore).parameters["size"].default
    listening = 1
    assert pool + listening == doctor_stores._PER_PROCESS


def test_too_few_connections_are_reported(pg: World, server: PostgresServer) -> None:
    pg.mail()
    ((used, most),) = sql(server.url, doctor_stores._CONNECTIONS)
    held = [psycopg.connect(server.url) for _ in range(most - used - 15)]
    try:
        assert checks(pg)["sessions"]["state"] == "ok"  # 15 are free: enough for a process
        held += [psycopg.connect(server.url) for _ in range(8)]
        assert "raise max_connections" in checks(pg, code=1)["sessions"]["text"]
    finally:
        for connection in held:
            connection.close()


def test_overdue_runs_and_requests_are_reported(pg: World) -> None:
    pg.mail(expires_in=3600)
    sql(pg.url, "UPDATE sayso.call SET expires_at = created - %s", HOURS)
    sql(
        pg.url,
        "UPDATE sayso.run SET agent = 'clerk', agent_digest = 'd', ready_at = created - %s",
        HOURS,
    )
    found = checks(pg, code=1)
    assert "1 run of clerk: ready for 3 h" in found["due"]["text"]
    assert "overdue by 3 h" in found["overdue"]["text"]


def test_newer_or_invalid_schema_is_not_touched(pg: World) -> None:
    pg.mail()
    sql(pg.url, "UPDATE sayso.meta SET value = '99' WHERE key = 'version'")
    assert "newer version" in checks(pg, code=1)["schema"]["text"]
    sql(pg.url, "UPDATE sayso.meta SET value = '0' WHERE key = 'version'")
    assert "cannot be used" in checks(pg, code=1)["store"]["text"]
    version = sql(pg.url, "SELECT value FROM sayso.meta WHERE key = 'version'")
    assert version == [("0",)]


def test_service_that_hides_its_identity_is_noted(pg: World) -> None:
    pg.mail()
    sql(pg.url, "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
    sql(pg.url, "DROP ROLE IF EXISTS guest")
    sql(pg.url, "CREATE ROLE guest LOGIN IN ROLE pg_read_all_data, pg_write_all_data")
    try:
        pg.url = pg.url.replace("postgres@", "guest@", 1)
        found = checks(pg)
        assert "sayso recover --force" in found["identity"]["text"]
    finally:
        pg.url = pg.url.replace("guest@", "postgres@", 1)
        sql(pg.url, "DROP ROLE guest")
