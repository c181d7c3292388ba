"""Which database this is: its tables, brought up to date, and whether it went back in time.

A backup that is put back, a copy, or a standby that took over may have lost the last commits. All
of them differ from the database that they come from in something that PostgreSQL itself knows: the
cluster's identifier, its timeline, the number of the database, the number of a table. The store
remembers these; where they differ, nothing starts until ``sayso recover`` was run. What cannot be
seen from inside is a copy of the files put back in their own place: recover after that, too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

import psycopg
from psycopg import errors

from sayso.errors import StoreError
from sayso.keys import Keyring
from sayso.stores.postgres.connections import GONE, Connection, Translate, gone, quoted
from sayso.stores.sql import statements
from sayso.stores.sql.migrate import (
    another,
    check_key,
    check_version,
    damaged,
    migrate,
    read_meta,
    version_of,
)

#: The first eight digits of the name of a log file are the timeline.
TIMELINE = "left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)"
_IDENTITY = (
    f"SELECT (SELECT system_identifier FROM pg_control_system())::text, {TIMELINE}, "
    "(SELECT oid FROM pg_database WHERE datname = current_database())::text, "
    "$1::regclass::oid::text"
)
#: The timeline, the number of a table, and what the table says of the store.
_LINEAGE = (
    "concat({}, ' ', (SELECT concat(tableoid, ' ', value) FROM meta WHERE key = 'incarnation'))"
)
_LOCK = "SELECT pg_advisory_xact_lock(hashtext('sayso'), hashtext($1))"
_TABLES = (
    "SELECT c.relname FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace "
    "WHERE s.nspname = $1 AND c.relkind IN ('r', 'p', 'v', 'm', 'f')"
)
_OLDEST = 140_000
_LONGEST_NAME = 63
_USER = re.compile(r"\w+://[^/@:?]*:")
_QUERY = re.compile(r"\?(?=\w+=|$)")
_SECRET = re.compile(r"\w*password=")
#: What ends a password for PostgreSQL, though it stands in the middle of one.
_UNWRITTEN = re.compile(r"[@/]|%(?![0-9a-fA-F]{2})")


class Database:
    """A schema in a database that holds a store."""

    def __init__(self, schema: str, translate: Translate, url: str) -> None:
        if len(schema.encode()) > _LONGEST_NAME:
            raise StoreError(
                f"the schema {schema!r:.80} has a longer name than PostgreSQL keeps "
                f"({_LONGEST_NAME} bytes), and would be one with others: give it a shorter one"
            )
        self._schema = schema
        self._translate = translate
        self._url = url
        self.incarnation = ""
        #: Reads which tables these are. What a transaction has read from cannot be dropped before
        #: the transaction is over.
        self.lineage = _LINEAGE.format("''")
        self._identity: tuple[str, ...] = ()
        #: What ``lineage`` gave on the last connection that was made.
        self._known = ""
        self.behind = False

    def set_up(self, connection: Connection, keys: Keyring) -> None:
        """Make the tables, or bring them up to date; many may do so at once."""
        if connection.info.server_version < _OLDEST:
            raise StoreError(f"{self._url} is older than PostgreSQL 14: upgrade the server")
        with connection.transaction():
            connection.execute(_LOCK, (self._schema,))
            names = {row[0] for row in connection.execute(_TABLES, (self._schema,))}
            version = version_of(names, self._execute(connection), self._url)
            check_version(version, "postgres", self._url)
            if version == 0:
                self._make_schema(connection)
            # Until the end of this transaction, a table without a schema is one of ours.
            path = quoted(self._schema)
            connection.execute("SELECT set_config('search_path', $1, true)", (path,))
            with connection.pipeline():
                migrate(version, "postgres", self._execute(connection), keys.primary_id)
            try:
                connection.execute(self._translate(statements.CHECK_TABLES))
            except GONE as error:
                raise damaged(self._url, str(error).splitlines()[0]) from error
        facts = self._facts(connection)
        ids = [key.id for key in keys.keys]
        check_key(facts["key"], ids, self._execute(connection), self._url)
        self.incarnation = facts["incarnation"]
        self.greet(connection)

    def _make_schema(self, connection: Connection) -> None:
        there = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = $1", (self._schema,))
        if there.fetchone() is None:
            connection.execute(f"CREATE SCHEMA {quoted(self._schema)}".encode())

    def _execute(self, connection: Connection) -> Any:
        def execute(text: str, values: Sequence[Any]) -> Any:
            return connection.execute(self._translate(text), values)

        return execute

    def _facts(self, connection: Connection) -> dict[str, str]:
        return read_meta(self._execute(connection), self._url)

    # -- going back in time

    def greet(self, connection: Connection) -> None:
        """Look whether this is still the database that it was; each new connection is asked."""
        try:
            identity, facts = self._ask_identity(connection), self._facts(connection)
        except GONE as error:
            raise gone(error, self._url) from error
        if facts["incarnation"] != self.incarnation:
            raise another(self._url)
        if identity and identity != self._identity:
            with connection.transaction():
                connection.execute(_LOCK, (self._schema,))
                self._compare(connection, identity)
            self._identity = identity
            self.lineage = _LINEAGE.format(TIMELINE)
        row = connection.execute(self._translate(f"SELECT {self.lineage}")).fetchone()
        self._known = row[0] if row else ""
        self.behind = self.behind or "restored" in self._facts(connection)

    def check(self, lineage: str) -> None:
        """Refuse to write to other tables than those that were opened, and look anew at them."""
        if lineage == self._known:
            return
        incarnation = lineage.rpartition(" ")[2]
        if not incarnation:
            raise damaged(self._url, "its table meta has no 'incarnation'")
        if incarnation != self.incarnation:
            raise another(self._url)
        self.behind = True  # as far as is known: ``still_behind`` finds out
        raise restored(self._url)

    def _ask_identity(self, connection: Connection) -> tuple[str, ...]:
        table = f"{quoted(self._schema)}.event"
        try:
            row = connection.execute(_IDENTITY, (table,)).fetchone()
        except (errors.InsufficientPrivilege, errors.UndefinedFunction, errors.FeatureNotSupported):
            return ()  # some services hide it; then a restore has to be told by a person
        return tuple(row or ())

    def _compare(self, connection: Connection, identity: tuple[str, ...]) -> None:
        execute = self._execute(connection)
        known, current = self._facts(connection).get("identity"), ".".join(identity)
        if known == current:
            return
        put = (
            "INSERT INTO meta (key, value) VALUES (?, ?) "
            "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        )
        execute(put, ("identity", current))
        if known is not None:
            # Numbers of transactions begin anew: what is written now comes after all else.
            era = execute("SELECT coalesce(max(era), 1) + 1 FROM event", ()).fetchone()[0]
            execute(f"ALTER TABLE event ALTER COLUMN era SET DEFAULT {int(era)}", ())
            execute(put, ("era", str(era)))
            execute(put, ("restored", "yes"))

    def still_behind(self, connection: Connection) -> bool:
        """Look again, because another process may have recovered the store meanwhile."""
        self.behind = "restored" in self._facts(connection)
        return self.behind

    def recovered(self, connection: Connection) -> None:
        """Everything that may have run is in doubt now."""
        self._execute(connection)("DELETE FROM meta WHERE key = ?", ("restored",))
        self.behind = False


def restored(url: str) -> StoreError:
    """The error for a database that went back in time."""
    return StoreError(f"{url} was restored or taken over by a standby: run `sayso recover` first")


def split(url: str) -> tuple[str, str | None]:
    """A URL without the one parameter that is ours, and that: ``?schema=name``.

    What is PostgreSQL's is left as it was written: a plus is no space there.
    """
    password = _password(url)
    if password is not None and _UNWRITTEN.search(url[password]):
        raise StoreError(
            f"the password in {shown(url)} is not written as an address wants it: write @ as %40, "
            "/ as %2F and % as %25, or leave it out, and put it into PGPASSWORD as it is"
        )
    address, query = _parted(url)
    pairs = [pair for pair in query.split("&") if pair]
    rest = "&".join(pair for pair in pairs if not pair.startswith("schema="))
    schema = next((pair[7:] for pair in pairs if pair.startswith("schema=")), None)
    return (f"{address}?{rest}" if rest else address), schema and unquote(schema)


def shown(url: str) -> str:
    """A URL without its passwords, for messages."""
    password = _password(url)
    if password is not None:
        url = url[: password.start - 1] + url[password.stop :]
    address, query = _parted(url)
    rest = "&".join(pair for pair in query.split("&") if not _SECRET.match(pair))
    return f"{address}?{rest}" if rest else address


def _parted(url: str) -> tuple[str, str]:
    """A URL before its parameters, and these; a password may have a question mark in it."""
    query = _QUERY.search(url)
    return (url, "") if query is None else (url[: query.start()], url[query.end() :])


def _password(url: str) -> slice | None:
    """Where the password is, also where it is written as it is, with what ends others."""
    address, _ = _parted(url)
    begin = _USER.match(address)
    end = address.rfind("@")
    return None if begin is None or end < begin.end() else slice(begin.end(), end)


def refused(error: psycopg.Error, url: str) -> StoreError:
    """Why a store could not be opened, and what helps."""
    said = f"{url} is not a store that can be used: {str(error).strip()}"
    if isinstance(error, errors.InsufficientPrivilege):
        said += (
            "; whoever owns the database lets the user make the tables (CREATE SCHEMA sayso "
            "AUTHORIZATION this_user), or use them (GRANT)"
        )
    if isinstance(error, errors.ReadOnlySqlTransaction):
        said += "; give the address of the primary, and look for default_transaction_read_only"
    return StoreError(said)
