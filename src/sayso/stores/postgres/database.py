"""The database of a store: its address, its tables, and whether it went back in time.

A restored backup, a copy, or a standby that took over may lack the last commits. Each differs from
its original in something that PostgreSQL knows: the cluster's identifier, its timeline, the OID of
the database or of a table. The store remembers these; if they differ, nothing starts until you run
``sayso recover``. A copy of the data directory restored in place cannot be detected: run
``sayso recover`` after that, too.

Every transaction reads the *fence* with its first lock: the timeline, the table, the store's
incarnation, the version of the tables, and two settings of the session. A transaction whose fence
differs is not committed. A transaction that has read the table ``meta`` keeps others from dropping
or locking it until it is over, so the fence that it read holds until its commit.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

import psycopg
from psycopg import errors
from psycopg.rows import tuple_row

from sayso.errors import NotFound, StoreError
from sayso.keys import Keyring
from sayso.stores.postgres.connections import (
    GONE,
    READ_ONLY,
    Connection,
    Translate,
    gone,
    quoted,
    transaction_settings,
)
from sayso.stores.sql import statements
from sayso.stores.sql.migrate import (
    another,
    check_key,
    check_version,
    damaged,
    migrate,
    newest_version,
    read_meta,
    upgraded,
    version_of,
)

log = logging.getLogger("sayso.stores")

#: The first eight digits of a WAL file's name are the timeline.
TIMELINE = "left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)"
_IDENTITY = (
    f"SELECT (SELECT system_identifier FROM pg_control_system())::text, {TIMELINE}, "
    "(SELECT oid FROM pg_database WHERE datname = current_database())::text, "
    "$1::regclass::oid::text"
)
#: What every transaction must find unchanged. ``replica`` would turn off the triggers that count.
_FENCE = (
    "pg_catalog.concat(pg_catalog.current_setting('transaction_isolation'), '/', "
    "pg_catalog.current_setting('session_replication_role'), '/', {timeline}, '/', "
    "(SELECT pg_catalog.concat(pg_catalog.max(tableoid), '/', "
    "pg_catalog.max(value) FILTER (WHERE key = 'version'), '/', "
    "pg_catalog.max(value) FILTER (WHERE key = 'incarnation')) FROM meta))"
)
#: Tables whose rows a policy of row security hides from this user.
_HIDDEN = (
    "SELECT c.relname FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace "
    "WHERE s.nspname = $1 AND c.relkind = 'r' AND row_security_active(c.oid) ORDER BY 1"
)
#: Settings that a store cannot change, with the value that loses data in a crash.
UNSAFE = {
    "fsync": "off",
    "zero_damaged_pages": "on",
    "ignore_checksum_failure": "on",
    "data_sync_retry": "on",
}
_LOCK = (
    "SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtext('sayso'), pg_catalog.hashtext($1))"
)
TABLES = (
    "SELECT c.relname FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace "
    "WHERE s.nspname = $1 AND c.relkind IN ('r', 'p', 'v', 'm', 'f')"
)
_OLDEST = 140_000
_LONGEST_NAME = 63
_USER = re.compile(r"\w+://[^/@:?]*:")
_QUERY = re.compile(r"\?(?=\w+=|$)")
_SECRET = re.compile(r"\w*password=")
#: Characters that must be percent-encoded in a password.
_UNENCODED = re.compile(r"[@/]|%(?![0-9a-fA-F]{2})")


class Database:
    """The schema that holds a store."""

    def __init__(self, schema: str, translate: Translate, url: str) -> None:
        if len(schema.encode()) > _LONGEST_NAME:
            raise StoreError(
                f"the schema name {schema!r:.80} is too long: PostgreSQL cuts names after "
                f"{_LONGEST_NAME} bytes. Choose a shorter one"
            )
        self._schema = schema
        self._translate = translate
        self._url = url
        self.incarnation = ""
        self._version = str(newest_version("postgres"))
        #: The SQL of the fence.
        self.fence = _FENCE.format(timeline="''")
        self._identity: tuple[str, ...] = ()
        #: The fence that a transaction has to find, as of the newest connection.
        self._known = ""
        self.behind = False

    def set_up(self, connection: Connection, keys: Keyring, *, create: bool = True) -> None:
        """Create or migrate the tables. Safe if several processes do so at once."""
        if connection.info.server_version < _OLDEST:
            raise StoreError(f"{self._url} is older than PostgreSQL 14: upgrade the server")
        check_visible(connection, self._schema, self._url)
        with self._locked(connection):
            names = {row[0] for row in connection.execute(TABLES, (self._schema,))}
            version = version_of(names, self._execute(connection), self._url)
            check_version(version, "postgres", self._url)
            if version == 0 and not create:
                raise no_store(self._url, self._schema)
            if 0 < version < newest_version("postgres"):
                # Wait for the transactions of processes that have the store open, and keep others
                # from beginning: they find another version in their fence then.
                connection.execute(self._translate("LOCK TABLE meta IN ACCESS EXCLUSIVE MODE"))
            if version == 0:
                schema_exists = "SELECT 1 FROM pg_namespace WHERE nspname = $1"
                if connection.execute(schema_exists, (self._schema,)).fetchone() is None:
                    connection.execute(f"CREATE SCHEMA {quoted(self._schema)}".encode())
            # Until the end of this transaction, unqualified table names are ours.
            connection.execute(f"SET LOCAL search_path = {quoted(self._schema)}".encode())
            connection.execute("SET LOCAL default_table_access_method = heap")
            with connection.pipeline():
                migrate(version, "postgres", self._execute(connection), keys.primary_id)
            try:
                connection.execute(self._translate(statements.CHECK_TABLES))
            except GONE as error:
                raise damaged(self._url, str(error).splitlines()[0]) from error
        facts = self._meta(connection)
        ids = [key.id for key in keys.keys]
        check_key(facts["key"], ids, self._execute(connection), self._url)
        self.incarnation = facts["incarnation"]
        self.greet(connection)
        # Log the settings of the server with which a crash loses data.
        settings = "SELECT name, setting FROM pg_settings WHERE name = ANY($1) ORDER BY name"
        for name, value in connection.execute(settings, (list(UNSAFE),)):
            if value == UNSAFE[name]:
                log.warning(
                    "%s is %s on the server of %s: a crash can lose decisions and starts, so that "
                    "a call runs twice. Change it in postgresql.conf",
                    *(name, value, self._url),
                )

    @contextmanager
    def _locked(self, connection: Connection) -> Iterator[None]:
        """Begin a transaction that no other process sets up or compares this store in."""
        with connection.transaction():
            settings = transaction_settings(connection.info.server_version, 0, 0, 0)
            connection.execute(f"SELECT {settings}".encode())
            connection.execute(_LOCK, (self._schema,))
            yield

    def _execute(self, connection: Connection) -> Any:
        def execute(text: str, values: Sequence[Any]) -> Any:
            return connection.execute(self._translate(text), values)

        return execute

    def _meta(self, connection: Connection) -> dict[str, str]:
        return read_meta(self._execute(connection), self._url)

    @property
    def schema_version(self) -> int:
        """The version of the tables when this process opened the store."""
        return int(self._version)

    # -- going back in time

    def greet(self, connection: Connection) -> None:
        """Check on a new connection that this is still the same database.

        Raises ``StoreError`` if another store took its place.
        """
        check_visible(connection, self._schema, self._url)
        try:
            identity = identity_of(connection, self._schema)
            facts = self._meta(connection)
        except GONE as error:
            raise gone(error, self._url) from error
        if facts["incarnation"] != self.incarnation:
            raise another(self._url)
        if facts["version"] != self._version:
            raise upgraded(self._url, facts["version"], self._version)
        if identity and identity != self._identity:
            with self._locked(connection):
                self._compare(connection, identity)
            self._identity = identity
            self.fence = _FENCE.format(timeline=TIMELINE)
        row = connection.execute(self._translate(f"SELECT {self.fence}")).fetchone()
        _, replication_role, tables = row[0].split("/", 2) if row else ("", "", "")
        _check_triggers(replication_role, self._url)
        self._known = f"read committed/origin/{tables}"
        self.behind = self.behind or "restored" in self._meta(connection)

    def check(self, fence: str) -> None:
        """Raise ``StoreError`` if a transaction with this fence must not be committed."""
        if fence == self._known:
            return
        isolation, replication_role, tables = fence.split("/", 2)
        _, _, version, incarnation = tables.split("/")
        if isolation != "read committed":
            raise StoreError(
                f"nothing was written to {self._url}: your transaction is {isolation.upper()}, and "
                "may not see what others have committed since it began. Begin it as READ COMMITTED"
            )
        _check_triggers(replication_role, self._url)
        if not incarnation:
            raise damaged(self._url, "its table meta has no 'incarnation'")
        if incarnation != self.incarnation:
            raise another(self._url)
        if version != self._version:
            raise upgraded(self._url, version, self._version)
        if tables != self._known.split("/", 2)[2]:
            self.behind = True  # as far as known here; ``still_behind`` looks again
            raise restored(self._url)

    def _compare(self, connection: Connection, identity: tuple[str, ...]) -> None:
        execute = self._execute(connection)
        stored_identity = self._meta(connection).get("identity")
        current_identity = ".".join(identity)
        if stored_identity == current_identity:
            return
        put = (
            "INSERT INTO meta (key, value) VALUES (?, ?) "
            "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        )
        execute(put, ("identity", current_identity))
        if stored_identity is not None:
            # Transaction ids start again, so a new era sorts after everything before it.
            era = execute("SELECT coalesce(max(era), 1) + 1 FROM event", ()).fetchone()[0]
            execute(f"ALTER TABLE event ALTER COLUMN era SET DEFAULT {int(era)}", ())
            execute(put, ("era", str(era)))
            execute(put, ("restored", "yes"))

    def still_behind(self, connection: Connection) -> bool:
        """Look again: another process may have recovered the store."""
        self.behind = "restored" in self._meta(connection)
        return self.behind

    def recovered(self, connection: Connection) -> None:
        """Clear the mark of a restored database."""
        with self._locked(connection):
            self._execute(connection)("DELETE FROM meta WHERE key = ?", ("restored",))
        self.behind = False


def identity_of(connection: Connection, schema: str) -> tuple[str, ...]:
    """Return what tells a database from a copy of it; empty if the server hides that."""
    try:
        row = connection.execute(_IDENTITY, (f"{quoted(schema)}.event",)).fetchone()
    except (errors.InsufficientPrivilege, errors.UndefinedFunction, errors.FeatureNotSupported):
        return ()  # some hosted services hide it; run `sayso recover` after a restore there
    return tuple(row or ())


def no_store(url: str, schema: str) -> NotFound:
    """Return the error for a database without a store."""
    return NotFound(
        f"{url} has no store in its schema {schema!r}: start a server or a worker to create it, or "
        "name another with --store or SAYSO_STORE"
    )


def check_visible(connection: psycopg.Connection[Any], schema: str, url: str) -> None:
    """Raise ``StoreError`` if row security hides rows of a store from this user."""
    cursor = psycopg.RawCursor(connection, row_factory=tuple_row)
    tables = [name for (name,) in cursor.execute(_HIDDEN, (schema,))]
    if tables:
        raise StoreError(
            f"row security hides rows of {', '.join(tables)} in {url} from this user, so that "
            "calls would seem to be new: disable it on these tables, or connect as a user with "
            "BYPASSRLS"
        )


def _check_triggers(replication_role: str, url: str) -> None:
    if replication_role == "replica":
        raise StoreError(
            f"nothing was written to {url}: session_replication_role is replica, which turns off "
            "the triggers that count requests. Reset it for this role and this session"
        )


def restored(url: str) -> StoreError:
    """Return the error for a database that went back in time."""
    return StoreError(f"{url} was restored or taken over by a standby: run `sayso recover` first")


def split_schema(url: str) -> tuple[str, str | None]:
    """Split ``?schema=name`` off a URL; return the rest of the URL, and the name.

    PostgreSQL's own parameters stay as they are: a plus is not a space there.
    """
    password = _password(url)
    if password is not None and _UNENCODED.search(url[password]):
        raise StoreError(
            f"the password in {without_password(url)} is not percent-encoded: write @ as %40, / as "
            "%2F and % as %25, or leave it out and set PGPASSWORD"
        )
    address, query = _split_query(url)
    pairs = [pair for pair in query.split("&") if pair]
    rest = "&".join(pair for pair in pairs if not pair.startswith("schema="))
    schema = next((pair[7:] for pair in pairs if pair.startswith("schema=")), None)
    return (f"{address}?{rest}" if rest else address), schema and unquote(schema)


def without_password(url: str) -> str:
    """Return a URL without its passwords, for messages."""
    password = _password(url)
    if password is not None:
        url = url[: password.start - 1] + url[password.stop :]
    address, query = _split_query(url)
    rest = "&".join(pair for pair in query.split("&") if not _SECRET.match(pair))
    return f"{address}?{rest}" if rest else address


def _split_query(url: str) -> tuple[str, str]:
    """Split a URL before its parameters; a password may contain a question mark."""
    query = _QUERY.search(url)
    return (url, "") if query is None else (url[: query.start()], url[query.end() :])


def _password(url: str) -> slice | None:
    """Return where the password is, also if it is not percent-encoded."""
    address, _ = _split_query(url)
    begin = _USER.match(address)
    end = address.rfind("@")
    return None if begin is None or end < begin.end() else slice(begin.end(), end)


def refused(error: psycopg.Error, url: str) -> StoreError:
    """Return the error for a store that could not be opened."""
    message = f"cannot open the store {url}: {str(error).strip()}"
    if isinstance(error, errors.InsufficientPrivilege):
        message += (
            "; ask the owner of the database to let this user create the tables (CREATE SCHEMA "
            "sayso AUTHORIZATION this_user) or use them (GRANT)"
        )
    if isinstance(error, errors.ReadOnlySqlTransaction):
        message += f"; {READ_ONLY}"
    return StoreError(message)
