"""PostgreSQL: the schema of a store may have any name that the server keeps."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from urllib.parse import quote, urlsplit

import psycopg
import pytest
from pg_places import PgOpener, Place
from psycopg import sql

from sayso import Gate
from sayso.errors import StoreError
from sayso.keys import Keyring
from sayso.rows import Call
from sayso.stores.postgres import PostgresStore
from sayso_testing.world import World


@pytest.mark.parametrize("name", ["?", "$1", "%s", 'a"b; --', "a\\b\\1", "Ünï", "a.b"])
def test_quoted_schema_name_is_found_again(place: Place, keys: Keyring, name: str) -> None:
    schema = f"{place.schema} {name}"
    try:
        for seen in (0, 1):
            with closing(PostgresStore(place.url, schema=schema, keys=keys)) as store:
                world = World(store, None)  # type: ignore[arg-type]
                assert len(store.threads()) == seen
                world.ask(run=f"r{seen}", thread=f"t{seen}", id=f"req_{seen}")
                world.check()
    finally:
        with psycopg.connect(place.url, autocommit=True) as connection:
            drop = sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema))
            connection.execute(drop)


@pytest.mark.parametrize("name", ["a" * 64, "é" * 32])
def test_overlong_schema_name_is_refused(place: Place, keys: Keyring, name: str) -> None:
    """Cut, it may be the name of somebody else's store."""
    with pytest.raises(StoreError, match="is too long"):
        PostgresStore(place.url, schema=name, keys=keys)


# -- the schema changed by others while the store is open


def drop(place: Place) -> None:
    place.sql(f'DROP SCHEMA "{place.schema}" CASCADE')


def acts(world: World, call: Call) -> list[Callable[[], object]]:
    store = world.store
    return [
        lambda: world.ask("more", key="more"),
        lambda: world.decide(call),
        lambda: store.move_cursor("reader", "1", expected=""),
        store.seal,
        lambda: store.prune(store.now(), "ops"),
    ]


@pytest.mark.parametrize("connections", ["old", "new"])
def test_dropped_schema_fails_at_once(place: Place, open_pg: PgOpener, connections: str) -> None:
    world = World(open_pg(), None)  # type: ignore[arg-type]
    call = world.ask()
    drop(place)
    began = time.monotonic()
    for act in [*acts(world, call), world.store.tail, lambda: world.store.call(call.id)]:
        if connections == "new":
            world.store._pool.renew()  # type: ignore[attr-defined]
        with pytest.raises(StoreError, match="dropped") as caught:
            act()
        assert "backup" in str(caught.value)
    assert time.monotonic() - began < 20, "nobody waits for tables to come back"


@pytest.mark.parametrize("connections", ["old", "new"])
def test_recreated_store_is_another_store(
    place: Place, open_pg: PgOpener, connections: str
) -> None:
    world = World(open_pg(), None)  # type: ignore[arg-type]
    call = world.ask()
    drop(place)
    other = open_pg()
    assert other.incarnation != world.store.incarnation
    World(other, None).ask()  # type: ignore[arg-type]  # with the same names
    for act in acts(world, call):
        if connections == "new":
            world.store._pool.renew()  # type: ignore[attr-defined]
        with pytest.raises(StoreError, match="another store") as caught:
            act()
        assert "Restart" in str(caught.value)
    assert [event.type for _, event in other.events()] == ["asked"]
    assert other.seals() == []


def test_recreated_store_starts_no_call(place: Place, open_pg: PgOpener) -> None:
    ran: list[str] = []

    def work(gate: Gate) -> None:
        with gate.run("order"):
            gate.guard(needs_approval=False, name="pay")(ran.append)("it")

    gate = Gate(open_pg(), wait=0)
    work(gate)
    drop(place)
    open_pg()
    for _ in range(2):
        with pytest.raises(StoreError, match="another store"):
            work(gate)
    assert ran == ["it"]


def test_replaced_tables_need_recovery(place: Place, open_pg: PgOpener) -> None:
    """As ``pg_restore --clean`` does: the same store, in other tables."""
    world = World(open_pg(), None)  # type: ignore[arg-type]
    world.decide(call := world.ask())
    schema = place.schema
    place.sql(f'ALTER SCHEMA "{schema}" RENAME TO "{schema} old"')
    try:
        place.sql(f'CREATE SCHEMA "{schema}"')
        tables = place.sql("SELECT tablename FROM pg_tables WHERE schemaname = %s", f"{schema} old")
        for (name,) in tables:
            like = f'(LIKE "{schema} old".{name} INCLUDING ALL)'
            place.sql(f'CREATE TABLE "{schema}".{name} {like}')
            columns = f'INSERT INTO "{schema}".{name} OVERRIDING SYSTEM VALUE'
            place.sql(f'{columns} SELECT * FROM "{schema} old".{name}')
        with pytest.raises(StoreError, match="sayso recover"):
            world.start(call)
        assert world.store.restored()
        assert world.call(call).status == "ready"
    finally:
        place.sql(f'DROP SCHEMA "{schema} old" CASCADE')


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM meta WHERE key = 'incarnation'",
        "UPDATE meta SET value = 'x' WHERE key = 'incarnation'",
    ],
)
def test_every_write_checks_the_incarnation(place: Place, open_pg: PgOpener, damage: str) -> None:
    world = World(open_pg(), None)  # type: ignore[arg-type]
    call = world.ask()
    place.sql(damage)
    for act in acts(world, call):
        with pytest.raises(StoreError, match=r"another store|damaged"):
            act()
    assert place.sql("SELECT type FROM event") == [("asked",)]


def test_joined_transaction_in_a_recreated_store_is_refused(
    place: Place, open_pg: PgOpener
) -> None:
    store = open_pg()
    with psycopg.connect(place.url) as connection:
        mine = store.on(connection)
        connection.rollback()
        drop(place)
        other = open_pg()
        world = World(mine, None)  # type: ignore[arg-type]
        with pytest.raises(StoreError, match="another store"), connection.transaction():
            world.ask()
    assert other.events() == []


@pytest.mark.parametrize("key", ["version", "incarnation", "key"])
def test_missing_meta_row_is_named(place: Place, open_pg: PgOpener, key: str) -> None:
    open_pg().close()
    place.sql(f"DELETE FROM meta WHERE key = '{key}'")
    with pytest.raises(StoreError, match=f"damaged.*{key}"):
        open_pg()


@pytest.mark.parametrize("version", ["one", "1.5", "-1", "0", ""])
def test_malformed_version_is_damage(place: Place, open_pg: PgOpener, version: str) -> None:
    open_pg().close()
    place.sql(f"UPDATE meta SET value = '{version}' WHERE key = 'version'")
    with pytest.raises(StoreError, match=r"damaged.*version"):
        open_pg()


@pytest.mark.parametrize(
    "change",
    [
        "DROP TABLE credential",
        "ALTER TABLE call RENAME COLUMN args TO arguments",
        "ALTER TABLE run DROP COLUMN snapshot",
    ],
)
def test_changed_tables_are_refused(place: Place, open_pg: PgOpener, change: str) -> None:
    open_pg().close()
    place.sql(change)
    with pytest.raises(StoreError, match=r"damaged.*development version"):
        open_pg()


def test_table_changed_while_open_is_reported(place: Place, open_pg: PgOpener) -> None:
    world = World(open_pg(), None)  # type: ignore[arg-type]
    world.ask()
    place.sql("ALTER TABLE call RENAME COLUMN args TO arguments")
    with pytest.raises(StoreError, match="dropped or changed"):
        world.ask("more", key="more")
    with pytest.raises(StoreError, match="dropped or changed"):
        world.store.calls_of("r")


def test_search_path_of_the_role_is_ignored(place: Place, keys: Keyring) -> None:
    """Neither a role's own, nor tables and functions of the same names that it leads to."""
    decoy = f"decoy_{secrets.token_hex(4)}"
    path = quote(f"-csearch_path={decoy},public,pg_catalog")
    with psycopg.connect(place.url, autocommit=True) as connection:
        connection.execute(f'CREATE SCHEMA "{decoy}"')
        try:
            for table in ("meta", "thread", "call", "event"):
                connection.execute(f'CREATE TABLE "{decoy}".{table} (nothing INT)')
            mark = "&" if "?" in place.url else "?"
            url = f"{place.url}{mark}options={path}"
            with closing(PostgresStore(url, schema=place.schema, keys=keys)) as store:
                world = World(store, None)  # type: ignore[arg-type]
                world.record(world.start(world.decide(world.ask()))[0])
                world.check()
            for table in ("meta", "thread", "call", "event"):
                count = connection.execute(f'SELECT count(*) FROM "{decoy}".{table}')
                assert count.fetchone() == (0,)
        finally:
            connection.execute(f'DROP SCHEMA "{decoy}" CASCADE')


@pytest.fixture
def database(place: Place) -> Iterator[str]:
    """A database that may be dropped."""
    name = f"sayso_{secrets.token_hex(4)}"
    place.sql(f"CREATE DATABASE {name}")
    yield name
    place.sql(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.mark.long
def test_recreated_database_is_reported(place: Place, database: str, keys: Keyring) -> None:
    name, url = database, urlsplit(place.url)._replace(path=f"/{database}").geturl()
    with closing(PostgresStore(url, keys=keys, patience=5.0)) as store:
        world = World(store, None)  # type: ignore[arg-type]
        call = world.ask()
        place.sql(f"DROP DATABASE {name} WITH (FORCE)")
        with pytest.raises(StoreError, match=f"{name}"):
            world.decide(call)
        place.sql(f"CREATE DATABASE {name}")
        with pytest.raises(StoreError, match="dropped"):
            world.decide(call)
        with closing(PostgresStore(url, keys=keys)) as other:
            with pytest.raises(StoreError, match="another store"):
                world.ask("more", key="more")
            assert other.events() == []
