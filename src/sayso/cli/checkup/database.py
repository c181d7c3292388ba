"""A PostgreSQL database, before the store in it is opened: can it keep what it acknowledges?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from sayso.cli.checkup.check import Check, Looking, schema_check, span
from sayso.errors import NotFound, StoreError
from sayso.stores.postgres.connections import connect, translator
from sayso.stores.postgres.database import shown, split
from sayso.stores.sql.migrate import migrations, version_of

_PATIENCE = 10
_OPEN_SECONDS = 60.0
_NAMES = ("fsync", "full_page_writes", "synchronous_commit", "synchronous_standby_names")
_SETTINGS = "SELECT name, setting FROM pg_settings WHERE name = ANY($1)"
_TABLES = (
    "SELECT c.relname FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace "
    "WHERE s.nspname = $1 AND c.relkind = 'r'"
)
# Whoever may not see others' sessions sees no state of theirs.
_STANDBYS = (
    "SELECT count(*), count(sync_state), "
    "count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')) FROM pg_stat_replication"
)
_CONNECTIONS = (
    "SELECT count(*), current_setting('max_connections')::int FROM pg_stat_activity "
    "WHERE backend_type = 'client backend'"
)
_OLDEST = (
    "SELECT pid, extract(epoch FROM clock_timestamp() - xact_start)::float FROM pg_stat_activity "
    "WHERE backend_xid IS NOT NULL AND xact_start IS NOT NULL ORDER BY xact_start LIMIT 1"
)
_IDENTITY = "SELECT system_identifier, pg_current_wal_insert_lsn() FROM pg_control_system()"


class Database:
    """Reads the database without changing it."""

    def __init__(self, url: str) -> None:
        self._url = shown(url)
        address, schema = split(url)
        self._schema = schema or "sayso"
        self._translate = translator(self._schema)
        try:
            if "connect_timeout" not in conninfo_to_dict(address):
                address = make_conninfo(address, connect_timeout=_PATIENCE)
            self._connection = connect(address, prepare=False)
        except psycopg.Error as error:
            raise StoreError(f"{self._url} cannot be reached: {str(error).strip()}") from error

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Read rows of the store."""
        return self._ask(self._translate(statement), *values)

    def _ask(self, statement: str | bytes, *values: Any) -> list[Any]:
        text = statement.encode() if isinstance(statement, str) else statement
        try:
            return self._connection.execute(text, values or None).fetchall()
        except psycopg.Error as error:
            raise StoreError(f"{self._url} could not be read: {str(error).strip()}") from error

    def look(self) -> Looking:
        """Everything about the server, and the version of the tables."""
        ((version,),) = self._ask("SHOW server_version")
        yield Check("engine", "ok", f"PostgreSQL {version}, psycopg {psycopg.__version__}")
        if self._ask("SELECT pg_is_in_recovery()") == [(True,)]:
            words = "this is a standby, which can only be read: give the address of the primary"
            yield Check("server", "wrong", words)
            return False
        if self._ask("SHOW transaction_read_only") == [("on",)]:
            words = (
                "nothing can be written: default_transaction_read_only is on, as some services set "
                "it while their disk is full"
            )
            yield Check("server", "wrong", words)
        ((encoding,),) = self._ask("SHOW server_encoding")
        if encoding not in ("UTF8", "SQL_ASCII"):
            words = f"the database is in {encoding}, which cannot keep every text: make one in UTF8"
            yield Check("encoding", "wrong", words)
        settings = dict(self._ask(_SETTINGS, list(_NAMES)))
        for look in (self._durable, self._standby):
            yield from look(settings)
        for look_at in (self._identity, self._pooler, self._connections, self._oldest):
            yield from look_at()
        return (yield from self._tables())

    def tables(self) -> set[str]:
        """The tables of the store; to look for one is not to make one."""
        names = {row[0] for row in self._ask(_TABLES, self._schema)}
        if not names:
            raise NotFound(
                f"{self._url} has no store in its schema {self._schema!r}: start a server or a "
                "worker, which makes it, or name another with --store or SAYSO_STORE"
            )
        return names

    def _tables(self) -> Looking:
        names = self.tables()
        version = version_of(
            names, lambda text, _: self._connection.execute(self._translate(text)), self._url
        )
        newest = migrations("postgres")[-1][0]
        yield schema_check(version, newest)
        return version == newest

    def _durable(self, settings: dict[str, str]) -> Iterator[Check]:
        commit = settings["synchronous_commit"]
        if settings["fsync"] == "off":
            words = "fsync is off: a power cut loses what was acknowledged; set fsync = on"
            yield Check("durable", "wrong", words)
        elif commit == "off":
            words = (
                "synchronous_commit is off: a crash forgets decisions and starts, and what was "
                "started may run twice; set it to on"
            )
            yield Check("durable", "wrong", words)
        elif settings["full_page_writes"] == "off":
            words = "full_page_writes is off: right only where the disk never tears a page"
            yield Check("durable", "note", words)
        else:
            yield Check("durable", "ok", f"fsync is on, synchronous_commit is {commit}")

    def _standby(self, settings: dict[str, str]) -> Iterator[Check]:
        ((standbys, visible, in_step),) = self._ask(_STANDBYS)
        loss = "what was decided in the last moments may be lost when one takes over"
        if not settings["synchronous_standby_names"]:
            who = f"{standbys} standbys, and none is waited for: {loss}" if standbys else ""
            alone = "none: with this machine's disk goes all since the last backup"
            yield Check("standby", "note", who or alone)
        elif settings["synchronous_commit"] == "local":
            words = f"synchronous_commit is local, so that no standby is waited for: {loss}"
            yield Check("standby", "wrong", words)
        elif not standbys or (visible and not in_step):
            words = "a synchronous one is asked for and none is there: every commit waits for it"
            yield Check("standby", "wrong", words)
        else:
            yield Check("standby", "ok", "a commit counts when a standby has it too")

    def _identity(self) -> Iterator[Check]:
        try:
            self._ask(_IDENTITY)
        except StoreError:
            words = (
                "this service does not tell when it was put back: run `sayso recover --force` "
                "after every restore or change of primary"
            )
            yield Check("identity", "note", words)

    def _pooler(self) -> Iterator[Check]:
        """Whoever stands in between has told us a number of its own."""
        if self._ask("SELECT pg_backend_pid()") != [(self._connection.info.backend_pid,)]:
            words = (
                "there is one in between: prepared statements are not used, and what other "
                "processes do is found by looking twice a second"
            )
            yield Check("pooler", "note", words)

    def _connections(self) -> Iterator[Check]:
        ((used, most),) = self._ask(_CONNECTIONS)
        words = f"{used} of {most} are in use; a server or worker takes up to 11"
        state: Any = "ok"
        if used + 11 > most:
            words, state = f"{words}: raise max_connections, or put a pooler in between", "wrong"
        yield Check("sessions", state, words)

    def _oldest(self) -> Iterator[Check]:
        found = self._ask(_OLDEST)
        if found and found[0][1] > _OPEN_SECONDS:
            pid, seconds = found[0]
            words = (
                f"session {pid} has written in a transaction that is open for {span(seconds)}: "
                "the live feed and webhooks wait for it to end"
            )
            yield Check("stream", "wrong", words)

    def close(self) -> None:
        """Let go of the database."""
        self._connection.close()
