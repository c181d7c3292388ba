"""PostgreSQL: the defaults of a role or a database are input, and no promise depends on them."""

from __future__ import annotations

import logging
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from pg_places import Place
from pooler import NEEDED, PgBouncer, bouncer, home, server
from postgres_server import PostgresServer

from sayso.audit import verify
from sayso.errors import StoreError
from sayso.keys import Keyring
from sayso.rows import Call
from sayso.stores.base import Query, Viewer
from sayso.stores.postgres import PostgresStore
from sayso_testing.world import World

__all__ = ["bouncer", "home", "server"]

_numbers = count(1)


class Role:
    """A user of a database, whose settings a test chooses."""

    def __init__(self, url: str, schema: str, *, superuser: bool = False) -> None:
        self.name = f"role_{secrets.token_hex(4)}"
        self.schema = schema
        self._owner = url
        kind = "SUPERUSER" if superuser else "NOSUPERUSER"
        self.sql(f"CREATE ROLE {self.name} LOGIN {kind}")
        database = urlsplit(url).path[1:]
        self.sql(f'GRANT CREATE ON DATABASE "{database}" TO {self.name}')

    @property
    def url(self) -> str:
        """The same server, as this user."""
        return self._owner.replace("postgres@", f"{self.name}@", 1)

    def sql(self, statement: str) -> list[Any]:
        """Run a statement as the owner of the server."""
        with psycopg.connect(self._owner, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def set(self, name: str, value: str) -> None:
        """Change a default of this role, for sessions that begin from now on."""
        self.sql(f"ALTER ROLE {self.name} SET {name} = '{value}'")

    def drop(self) -> None:
        self.sql(f"DROP OWNED BY {self.name} CASCADE")
        self.sql(f"DROP ROLE {self.name}")


@pytest.fixture
def role(place: Place) -> Iterator[Role]:
    role = Role(place.url, place.schema)
    yield role
    role.drop()


@pytest.fixture
def open_as(keys: Keyring) -> Iterator[Callable[..., PostgresStore]]:
    """Return a function that opens the store as a role."""
    with ExitStack() as stack:

        def opener(role: Role, url: str = "", **options: Any) -> PostgresStore:
            store = PostgresStore(url or role.url, schema=role.schema, keys=keys, **options)
            return stack.enter_context(closing(store))

        yield opener


def a_world(store: Any) -> World:
    return World(store, None)  # type: ignore[arg-type]


def live(store: PostgresStore) -> None:
    """Use everything that a store does."""
    world = a_world(store)
    call = world.ask(args={"to": "Zoë 🦉", "n": 1}, note="a \\ and 'quotes'", reviewers=("ana",))
    (started,) = world.start(world.decide(call))
    assert world.record(started).status == "done"
    waiting = world.ask(run="r2", thread="t2", id="req_second", key="second")
    assert [group.count for group in store.groups(Query(), Viewer())] == [1]
    assert store.waiting() == {"asked": 1, "in_doubt": 0}
    world.decide(waiting, "reject")
    world.finish(run="r2", thread="t2")
    assert store.move_cursor("reader", "1", expected="")
    assert store.seal() is not None
    assert store.prune(store.now() + 10**12, "ops")["runs"] >= 1
    report = verify(store)
    assert report.problems == []
    assert abs(store.now() - a_clock(store)) < 5_000_000


def a_clock(store: PostgresStore) -> int:
    statement = "SELECT (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::bigint"
    return int(store._rows(statement)[0][0])


#: Defaults that change nothing, each with a value that is unusual.
HARMLESS = [
    ("default_transaction_isolation", "repeatable read"),
    ("default_transaction_isolation", "serializable"),
    ("default_transaction_deferrable", "on"),
    ("synchronous_commit", "off"),
    ("synchronous_commit", "local"),
    ("synchronous_commit", "remote_write"),
    ("synchronous_commit", "remote_apply"),
    ("statement_timeout", "2s"),
    ("lock_timeout", "1ms"),
    ("idle_in_transaction_session_timeout", "20ms"),
    ("transaction_timeout", "2s"),
    ("row_security", "off"),
    ("standard_conforming_strings", "off"),
    ("backslash_quote", "off"),
    ("transform_null_equals", "on"),
    ("DateStyle", "German, DMY"),
    ("IntervalStyle", "iso_8601"),
    ("TimeZone", "Asia/Kolkata"),
    ("bytea_output", "escape"),
    ("extra_float_digits", "-15"),
    ("client_encoding", "LATIN1"),
    ("client_min_messages", "debug5"),
    ("client_min_messages", "error"),
    ("default_table_access_method", "missing"),
    ("check_function_bodies", "off"),
    ("plan_cache_mode", "force_generic_plan"),
    ("plan_cache_mode", "force_custom_plan"),
    ("enable_indexscan", "off"),
    ("enable_seqscan", "off"),
    ("debug_parallel_query", "on"),
    ("jit_above_cost", "0"),
    ("work_mem", "64kB"),
    ("search_path", "nowhere"),
]


@pytest.mark.parametrize(("name", "value"), HARMLESS)
def test_role_defaults_are_harmless(
    role: Role, open_as: Callable[..., PostgresStore], name: str, value: str
) -> None:
    known = role.sql(f"SELECT 1 FROM pg_settings WHERE name ILIKE '{name}'")
    if not known:
        pytest.skip(f"this version of PostgreSQL has no {name}")
    role.set(name, value)
    live(open_as(role))


def test_database_defaults_are_harmless(
    place: Place, open_as: Callable[..., PostgresStore]
) -> None:
    database = f"settings_{secrets.token_hex(4)}"
    place.sql(f"CREATE DATABASE {database}")
    try:
        role = Role(urlsplit(place.url)._replace(path=f"/{database}").geturl(), "sayso")
        for name, value in HARMLESS:
            if name in ("default_transaction_isolation", "synchronous_commit", "lock_timeout"):
                place.sql(f"ALTER DATABASE {database} SET {name} = '{value}'")
        store = open_as(role)
        live(store)
        store.close()
        role.drop()
    finally:
        place.sql(f"DROP DATABASE {database} WITH (FORCE)")


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_isolation_of_the_role_is_ignored(
    role: Role, open_as: Callable[..., PostgresStore], level: str
) -> None:
    """A snapshot from before the lock would show rows that look as if they had been changed."""
    role.set("default_transaction_isolation", level)
    worlds = [a_world(open_as(role)) for _ in range(3)]

    def ask(number: int) -> Call:
        world = worlds[number % 3]
        return world.ask(run="r", thread="t", id=f"req_{number}", key=f"k{number}")

    with ThreadPoolExecutor(9) as pool:
        assert len(list(pool.map(ask, range(60)))) == 60
    assert verify(worlds[0].store).problems == []


@pytest.mark.parametrize("setting", ["statement_timeout", "transaction_timeout", "lock_timeout"])
def test_short_timeout_waits_for_lock(
    role: Role, open_as: Callable[..., PostgresStore], setting: str
) -> None:
    if not role.sql(f"SELECT 1 FROM pg_settings WHERE name = '{setting}'"):
        pytest.skip(f"this version of PostgreSQL has no {setting}")
    role.set(setting, "100ms")
    store = open_as(role)
    world = a_world(store)
    call = world.ask()
    locked = threading.Event()

    def hold() -> None:
        with psycopg.connect(role._owner) as connection:
            lock = "SELECT pg_advisory_xact_lock(hashtextextended(%s || ':' || %s, 0))"
            connection.execute(lock, [store.incarnation, call.thread])
            locked.set()
            threading.Event().wait(0.8)

    thread = threading.Thread(target=hold)
    thread.start()
    locked.wait(10)
    assert world.decide(call).status == "ready"
    thread.join()


def test_timed_out_session_is_replaced(role: Role, open_as: Callable[..., PostgresStore]) -> None:
    role.set("idle_session_timeout", "200ms")
    world = a_world(open_as(role))
    call = world.ask()
    for status in ("approve", "start"):
        time.sleep(0.5)
        call = world.decide(call) if status == "approve" else world.start(call)[0]
    assert world.record(call).status == "done"


# -- commits survive a crash


@pytest.fixture
def own_server(tmp_path_factory: pytest.TempPathFactory, home: Path) -> Iterator[PostgresServer]:
    """A server that writes its log only every ten seconds, unless a commit waits for it."""
    made = PostgresServer(home / f"own{next(_numbers)}")
    made.start()
    with psycopg.connect(made.url, autocommit=True) as connection:
        for setting in (
            "wal_writer_delay = '10s'",
            "wal_writer_flush_after = '1GB'",
            "bgwriter_lru_maxpages = 0",
            "autovacuum = off",
        ):
            connection.execute(f"ALTER SYSTEM SET {setting}")
    lose_memory(made)
    yield made
    made.stop(signal.SIGQUIT)


def lose_memory(server: PostgresServer) -> None:
    """Kill the server with everything that is not on the disk yet, and start it again."""
    server.kill()
    server.start()


@pytest.mark.long
def test_careless_commit_is_lost(own_server: PostgresServer) -> None:
    """So the tests below can fail."""
    role = Role(own_server.url, "sayso")
    role.set("synchronous_commit", "off")
    with psycopg.connect(role.url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA mine")
        connection.execute("CREATE TABLE mine.lost (n INT)")
        connection.execute("INSERT INTO mine.lost VALUES (1)")
    lose_memory(own_server)
    assert role.sql("SELECT to_regclass('mine.lost')") == [(None,)]


@pytest.mark.long
def test_commit_survives_careless_role(
    own_server: PostgresServer, open_as: Callable[..., PostgresStore]
) -> None:
    role = Role(own_server.url, "sayso")
    role.set("synchronous_commit", "off")
    store = open_as(role)
    lose_memory(own_server)
    world = a_world(store)
    for number in range(2):
        call = world.ask(run=f"r{number}", thread=f"t{number}", id=f"req_{number}")
        lose_memory(own_server)
        (started,) = world.start(world.decide(call))
        assert world.call(started).status == "running"
        world.record(started)
        assert store.move_cursor("reader", str(number + 1), expected=str(number or ""))
        lose_memory(own_server)
        assert world.call(started).status == "done"
        assert store.cursor("reader") == str(number + 1)
    assert verify(store).problems == []


@pytest.mark.long
def test_joined_commit_survives_careless_role(
    own_server: PostgresServer, open_as: Callable[..., PostgresStore]
) -> None:
    role = Role(own_server.url, "sayso")
    role.set("synchronous_commit", "off")
    store = open_as(role)
    with psycopg.connect(role.url) as connection, connection.transaction():
        a_world(store.on(connection)).ask()
    lose_memory(own_server)
    assert [event.type for _, event in store.events()] == ["asked"]


# -- your own transaction


@pytest.mark.parametrize("how", ["chosen", "default"])
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_joined_transaction_is_read_committed(
    role: Role, open_as: Callable[..., PostgresStore], level: str, how: str
) -> None:
    store = open_as(role)
    if how == "default":
        role.set("default_transaction_isolation", level.lower())
    with psycopg.connect(role.url) as connection:
        if how == "chosen":
            name = level.replace(" ", "_")
            connection.isolation_level = psycopg.IsolationLevel[name]
        mine = a_world(store.on(connection))
        connection.rollback()
        with pytest.raises(StoreError, match=f"{level}.*READ COMMITTED"), connection.transaction():
            mine.ask()
    assert store.events() == []


def test_joined_transaction_keeps_your_settings(
    role: Role, open_as: Callable[..., PostgresStore]
) -> None:
    """Except that its commit is durable."""
    store = open_as(role)
    names = ("lock_timeout", "statement_timeout", "row_security", "search_path")
    with psycopg.connect(role.url) as connection, connection.transaction():
        before = [connection.execute(f"SHOW {name}".encode()).fetchone() for name in names]
        a_world(store.on(connection)).ask()
        assert before == [connection.execute(f"SHOW {name}".encode()).fetchone() for name in names]


# -- refused by name


@pytest.fixture
def superuser(place: Place) -> Iterator[Role]:
    role = Role(place.url, place.schema, superuser=True)
    yield role
    role.drop()


def test_replica_role_is_refused_by_name(
    superuser: Role, open_as: Callable[..., PostgresStore]
) -> None:
    store = open_as(superuser)
    with psycopg.connect(superuser.url) as connection:
        mine = a_world(store.on(connection))
        connection.execute("SET session_replication_role = replica")
        with pytest.raises(StoreError, match="session_replication_role"), connection.transaction():
            mine.ask()
    assert store.events() == []
    superuser.set("session_replication_role", "replica")
    with pytest.raises(StoreError, match="session_replication_role"):
        open_as(superuser)
    store._pool.renew()
    with pytest.raises(StoreError, match="session_replication_role"):
        a_world(store).ask()


def test_local_replication_role_is_fine(
    superuser: Role, open_as: Callable[..., PostgresStore]
) -> None:
    superuser.set("session_replication_role", "local")
    live(open_as(superuser))


def test_read_only_role_is_refused_by_name(
    role: Role, open_as: Callable[..., PostgresStore]
) -> None:
    """As some services do while their disk is full. What is there can still be read."""
    role.set("default_transaction_read_only", "on")
    with pytest.raises(StoreError, match="default_transaction_read_only"):
        open_as(role)
    role.sql(f"ALTER ROLE {role.name} RESET default_transaction_read_only")
    call = a_world(open_as(role)).ask()
    role.set("default_transaction_read_only", "on")
    world = a_world(open_as(role, patience=0.3))
    with pytest.raises(StoreError, match=r"read-only.*default_transaction_read_only"):
        world.decide(call)
    assert world.call(call).status == "asked"


@pytest.fixture
def guest(place: Place, role: Role) -> Iterator[Role]:
    """A user of the tables who does not own them."""
    guest = Role(place.url, place.schema)
    yield guest
    guest.drop()


def grant(role: Role, guest: Role) -> None:
    schema = f'"{role.schema}"'
    role.sql(f"GRANT USAGE ON SCHEMA {schema} TO {guest.name}")
    role.sql(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {guest.name}")
    role.sql(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO {guest.name}")


@pytest.mark.parametrize("table", ["call", "meta", "effect"])
def test_row_security_is_refused_by_name(
    role: Role, guest: Role, open_as: Callable[..., PostgresStore], table: str
) -> None:
    owner = a_world(open_as(role))
    owner.ask()
    grant(role, guest)
    store = open_as(guest)
    a_world(store).ask("more", key="more", id="req_more")  # which leaves a connection open
    role.sql(f'ALTER TABLE "{role.schema}".{table} ENABLE ROW LEVEL SECURITY')
    with pytest.raises(StoreError, match=rf"row.security.*{table}|{table}.*row.security"):
        open_as(guest)
    if table == "call":  # which a change reads
        with pytest.raises(StoreError, match="row-level security"):
            a_world(store).ask("again", key="again", id="req_again")
    with psycopg.connect(guest.url) as connection, pytest.raises(StoreError, match=table):
        open_as(role).on(connection)
    owner.ask("third", key="third", id="req_third")  # an owner is not concerned
    assert verify(owner.store).problems == []


# -- functions that others define


_DECOYS = """
CREATE FUNCTION {0}.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS
    $$ SELECT '2001-01-01'::timestamptz $$;
CREATE FUNCTION {0}.set_config(text, text, boolean) RETURNS text LANGUAGE sql AS $$ SELECT $2 $$;
CREATE FUNCTION {0}.hashtextextended(text, bigint) RETURNS bigint LANGUAGE sql AS
    $$ SELECT (random() * 1000000)::bigint $$;
CREATE FUNCTION {0}.pg_advisory_xact_lock(bigint) RETURNS void LANGUAGE sql AS $$ SELECT $$;
CREATE FUNCTION {0}.pg_backend_pid() RETURNS int LANGUAGE sql AS $$ SELECT 1 $$;
"""


def test_functions_of_same_name_are_not_called(
    place: Place, role: Role, open_as: Callable[..., PostgresStore]
) -> None:
    """They come before PostgreSQL's own if a role's search_path says so."""
    decoy = f"decoy_{secrets.token_hex(4)}"
    place.sql(f"CREATE SCHEMA {decoy}")
    try:
        role.sql(f"GRANT USAGE ON SCHEMA {decoy} TO {role.name}")
        role.sql(_DECOYS.format(decoy))
        role.sql(f"ALTER ROLE {role.name} SET search_path = {decoy}, pg_catalog")
        live(open_as(role))
    finally:
        place.sql(f"DROP SCHEMA {decoy} CASCADE")


# -- reported by name


@pytest.mark.long
def test_unsafe_server_is_reported_by_name(
    own_server: PostgresServer, keys: Keyring, caplog: pytest.LogCaptureFixture
) -> None:
    def reload(name: str, value: str) -> None:
        with psycopg.connect(own_server.url, autocommit=True) as connection:
            connection.execute(f"ALTER SYSTEM SET {name} = {value}".encode())
            connection.execute("SELECT pg_reload_conf()")
        own_server.stop()
        own_server.start()

    def warnings() -> list[str]:
        return [message for message in caplog.messages if own_server.url in message]

    caplog.set_level(logging.WARNING)
    with closing(PostgresStore(own_server.url, keys=keys)):
        assert warnings() == []
    reload("data_sync_retry", "on")
    reload("zero_damaged_pages", "on")
    with closing(PostgresStore(own_server.url, keys=keys)) as store:
        live(store)
    assert len(warnings()) == 2
    assert "data_sync_retry is on" in warnings()[0]
    assert "zero_damaged_pages is on" in warnings()[1]


# -- settings that other clients leave behind in a pooler


@pytest.mark.parametrize(
    "leak",
    [
        "default_transaction_isolation = 'repeatable read'",
        "synchronous_commit = off",
        "lock_timeout = 1",
        "statement_timeout = 1000",
        "search_path = nowhere",
        "row_security = off",
    ],
)
@pytest.mark.usefixtures("server")
class TestPooler:
    """PgBouncer in transaction mode hands sessions from client to client as they are."""

    pytestmark = NEEDED

    def test_leaked_session_setting_is_harmless(
        self, bouncer: PgBouncer, keys: Keyring, leak: str
    ) -> None:
        clients = [psycopg.connect(bouncer.url, autocommit=True) for _ in range(3)]
        barrier = threading.Barrier(3)

        def set_in_every_session(client: psycopg.Connection[Any]) -> None:
            with client.transaction():
                client.execute(f"SET {leak}".encode())
                barrier.wait(10)  # so that each client has a session at this moment

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(set_in_every_session, clients))
        try:
            schema = f"leaked {next(_numbers)}"
            with closing(PostgresStore(bouncer.url, schema=schema, keys=keys)) as store:
                live(store)
            name = leak.split()[0]
            shown = clients[0].execute(f"SHOW {name}".encode()).fetchone()
            assert shown is not None
            assert str(shown[0]).removesuffix("ms") in leak.replace("1000", "1s")
        finally:
            clients[0].execute("SELECT 1")
            for client in clients:
                client.close()
