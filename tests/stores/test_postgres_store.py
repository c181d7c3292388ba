"""PostgreSQL: opening a store, versions, keys, clocks, and transactions of the caller."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from pg_places import PgOpener, Place

import sayso
from sayso.engine.commands import Recover, Start
from sayso.errors import Conflict, KeyMissing, NotFound, StoreError, StoreVersion
from sayso.keys import Keyring, new_key
from sayso.stores import open_store
from sayso.stores.postgres import PostgresStore
from sayso.stores.sql import migrate
from sayso.testing import FakeClock
from sayso_testing.checks import all_events
from sayso_testing.world import World, seconds


def a_world(store: Any) -> World:
    return World(store, None)  # type: ignore[arg-type]


# -- opening


def test_url_opens_the_postgres_store(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAYSO_KEY", new_key())
    mark = "&" if "?" in place.url else "?"
    with psycopg.connect(place.url) as connection:
        assert connection.info.dbname
    store = open_store(f"{place.url}{mark}schema={place.schema}")
    try:
        a_world(store).ask()
        assert place.sql("SELECT count(*) FROM call") == [(1,)]
        assert not store.quick_reads
    finally:
        store.close()


def test_url_parameters_reach_the_database(place: Place) -> None:
    mark = "&" if "?" in place.url else "?"
    options = "options=-c%20statement_timeout%3D4321&application_name=a+b%20c%26d"
    url = f"{place.url}{mark}schema={place.schema}%20x&{options}"
    store = PostgresStore(url, keys=Keyring.ephemeral())
    try:
        assert store.schema == f"{place.schema} x"
        told = "SELECT current_setting('statement_timeout'), current_setting('application_name')"
        assert store._rows(told) == [("4321ms", "a+b c&d")]
    finally:
        store.close()
        place.sql(f'DROP SCHEMA "{store.schema}" CASCADE')


def test_key_is_required(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SAYSO_KEY", raising=False)
    with pytest.raises(KeyMissing, match="SAYSO_KEY"):
        open_store(place.url)


def test_error_hides_the_password() -> None:
    for url in (
        "postgresql://me:secret@127.0.0.1:1/x?connect_timeout=1",
        "postgresql://me@127.0.0.1:1/x?password=secret&connect_timeout=1",
        "postgresql://me@127.0.0.1:1/x?connect_timeout=1&sslpassword=secret",
        "postgresql://me:a/secret@127.0.0.1:1/x?connect_timeout=1",
    ):
        with pytest.raises(StoreError) as raised:
            PostgresStore(url, keys=Keyring.ephemeral())
        assert "secret" not in str(raised.value)
        assert "127.0.0.1" in str(raised.value)


def test_missing_database_fails_at_once(place: Place) -> None:
    with pytest.raises(StoreError, match="nowhere"):
        PostgresStore(place.url.replace("/postgres", "/nowhere", 1), keys=Keyring.ephemeral())


def test_closed_store_refuses_every_use(open_pg: PgOpener) -> None:
    store = open_pg()
    world = a_world(store)
    call = world.ask()
    store.close()
    store.close()
    for act in (lambda: store.call(call.id), store.events, world.ask, store.seal):
        with pytest.raises(StoreError, match="closed"):
            act()


def test_wrong_key_is_refused(open_pg: PgOpener, keys: Keyring) -> None:
    open_pg()
    with pytest.raises(StoreError, match=f"key {keys.primary_id}.*SAYSO_KEY"):
        open_pg(keys=Keyring.parse(new_key()))


# -- versions


def test_concurrent_opens_create_one_store(place: Place, keys: Keyring) -> None:
    names: list[str] = []
    errors: list[BaseException] = []
    barrier = threading.Barrier(6)

    def start() -> None:
        try:
            barrier.wait()
            store = PostgresStore(place.url, schema=place.schema, keys=keys)
            names.append(store.incarnation)
            store.close()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(names) == 6
    assert len(set(names)) == 1


def test_migrations_go_up_and_never_down(
    open_pg: PgOpener, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = a_world(open_pg())
    call = world.decide(world.ask())
    newer = migrate.SCHEMA_VERSION + 1

    def pretend(text: str) -> None:
        monkeypatch.setattr(migrate, "migrations", lambda dialect: ((newer, text),))

    pretend("CREATE TABLE extra (x BIGINT); INSERT INTO nowhere VALUES (1);")
    with pytest.raises(StoreError, match="nowhere"):
        open_pg()
    assert place.sql("SELECT to_regclass('extra')") == [(None,)]
    pretend("CREATE TABLE extra (x BIGINT); INSERT INTO extra SELECT count(*) FROM call;")
    for _ in range(2):
        world.store = open_pg()
        assert place.sql("SELECT x FROM extra") == [(1,)]
    assert world.record(world.start(call)[0]).status == "done"
    world.check()
    monkeypatch.undo()
    with pytest.raises(StoreVersion, match=rf"schema {newer}.*upgrade"):
        open_pg()


def test_foreign_tables_are_not_changed(place: Place, open_pg: PgOpener) -> None:
    with psycopg.connect(place.url, autocommit=True) as connection:
        connection.execute(f'CREATE SCHEMA "{place.schema}"')
    place.sql("CREATE TABLE call (mine TEXT)")
    with pytest.raises(StoreError, match="something else"):
        open_pg()
    assert place.sql("SELECT mine FROM call") == []


# -- clocks


def test_time_is_the_databases(open_pg: PgOpener, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose clock is wrong by hours neither expires early nor steals a lease."""
    monkeypatch.setattr("time.time_ns", lambda: 0)
    monkeypatch.setattr("time.time", lambda: 0.0)
    store = open_pg()
    world = a_world(store)
    call = world.ask(expires_in=3600.0)
    now = store.now()
    assert now > seconds(1_700_000_000)
    assert 0 <= now - call.created < seconds(60)
    assert world.expire(call).status == "asked"
    assert store.overdue() == []
    started = world.running(run="r2", thread="t2", lease=seconds(600))
    assert world.claim("w2", run="r2", thread="t2") is None
    assert world.record(started).status == "done"


# -- restored


def pretend_restored(place: Place) -> None:
    place.sql("UPDATE meta SET value = '1.00000001.2.3' WHERE key = 'identity'")
    place.sql("UPDATE event SET xid = (xid::text::bigint + 1000000)::text::xid8")


def test_restored_database_needs_recovery(open_pg: PgOpener, place: Place) -> None:
    world = a_world(open_pg())
    call = world.decide(world.ask())
    assert not world.store.restored()
    before = world.store.tail()
    world.store.close()
    pretend_restored(place)
    world.store, other = open_pg(), open_pg()
    assert world.store.restored()
    assert other.restored()
    assert world.events() == ["asked", "decided"]
    world.transact(Recover(thread="t", run="r", by="ops"))
    world.store.mark_recovered()
    assert not world.store.restored()
    assert not other.restored(), "another process hears of it"
    assert not open_pg().restored()
    assert world.call(call).status == "in_doubt"
    assert world.events() == ["asked", "decided", "in_doubt"]
    assert before not in ("", world.store.tail())


def test_promoted_standby_is_noticed_by_the_next_change(open_pg: PgOpener) -> None:
    store = open_pg()
    world = a_world(store)
    call = world.decide(world.ask())
    isolation, role, _, tables = store._database._known.split("/", 3)
    store._database._known = f"{isolation}/{role}/00000000/{tables}"  # the timeline that it was
    with pytest.raises(StoreError, match="sayso recover"):
        world.start(call)
    assert world.start(call)[0].status == "running", "another connection, and all is well"


def test_restore_noticed_elsewhere_stops_the_next_start(open_pg: PgOpener, place: Place) -> None:
    """A connection that is made for the start says so, and that start does not happen."""
    store = open_pg()
    world = a_world(store)
    call = world.decide(world.ask())
    start = Start(
        thread="t", run="r", calls=(call.id,), seen=(call.mac,), owner="w1", lease=1_000_000
    )
    pretend_restored(place)
    open_pg()
    store._pool.renew()
    with pytest.raises(StoreError, match="sayso recover"):
        world.transact(start)
    assert store.restored()
    assert world.call(call).status == "ready"


# -- in a transaction of somebody else


@pytest.fixture
def mine(place: Place, open_pg: PgOpener) -> Any:
    open_pg()
    place.sql("CREATE TABLE orders (id TEXT)")
    with psycopg.connect(place.url) as connection:
        connection.execute(f'SET search_path TO "{place.schema}"')
        connection.commit()
        yield connection
        connection.rollback()


def test_joined_request_appears_at_your_commit(open_pg: PgOpener, mine: Any, place: Place) -> None:
    store = open_pg()
    heard = threading.Event()
    subscription = open_pg().subscribe("t", heard.set)
    mine.execute("INSERT INTO orders VALUES ('o1')")
    call = a_world(store.on(mine)).ask("pay")
    assert store.on(mine).call(call.id) == call
    assert store.call(call.id) is None
    assert not heard.wait(0.1)
    mine.commit()
    assert heard.wait(20)
    assert store.call(call.id) == call
    assert place.sql("SELECT id FROM orders") == [("o1",)]
    a_world(store).check()
    subscription.cancel()


def test_joined_request_vanishes_at_your_rollback(open_pg: PgOpener, mine: Any) -> None:
    store = open_pg()
    mine.execute("INSERT INTO orders VALUES ('o1')")
    call = a_world(store.on(mine)).ask("new tool", description="Pays for zebras")
    mine.rollback()
    assert store.call(call.id) is None
    world = a_world(store)
    again = world.ask("new tool", description="Pays for zebras")
    assert store.tool(again.tool_digest) is not None, "nothing of it may be remembered"


def test_refused_command_keeps_your_transaction(open_pg: PgOpener, mine: Any, place: Place) -> None:
    store = open_pg()
    mine.execute("INSERT INTO orders VALUES ('o1')")
    inside = a_world(store.on(mine))
    with pytest.raises(NotFound):
        inside.finish(run="none")
    kept = inside.ask()
    with pytest.raises(Conflict):
        inside.ask(id=kept.id, run="r2", thread="t2")
    mine.commit()
    assert place.sql("SELECT id FROM orders") == [("o1",)]
    assert store.call(kept.id) is not None


def test_call_start_in_your_transaction_is_refused(open_pg: PgOpener, mine: Any) -> None:
    """A start that I roll back would be forgotten, and the effect come a second time."""
    store, effects = open_pg(), list[str]()

    def shop(where: Any, *, asks: bool, effect: sayso.Effect = "once") -> Callable[[str], str]:
        gate = sayso.Gate(where, agent="shop", wait=0)

        @gate.guard(needs_approval=asks, effect=effect)
        def ship(order: str) -> str:
            effects.append(order)
            return "shipped"

        def shipped(order: str) -> str:
            with gate.run(order):
                return ship(order)

        return shipped

    with pytest.raises(sayso.Paused):
        shop(store.on(mine), asks=True)("asked")
    mine.commit()
    inbox = sayso.Inbox(store)
    (request,) = inbox.pending_sync().items
    sayso.Inbox(store.on(mine)).decide_sync(request.id, request.approve(), by="ana")
    mine.commit()
    mine.execute("INSERT INTO orders VALUES ('o1')")
    for asks, order in ((True, "asked"), (False, "free")):
        with pytest.raises(StoreError, match="ship cannot run inside your transaction"):
            shop(store.on(mine), asks=asks)(order)
    mine.commit()
    assert effects == []
    assert mine.execute("SELECT id FROM orders").fetchall() == [("o1",)]
    assert shop(store, asks=True)("asked") == "shipped"
    assert shop(store.on(mine), asks=True)("asked") == "shipped"  # what is recorded is given back
    assert effects == ["asked"]
    assert shop(store.on(mine), asks=False, effect="idempotent")("again") == "shipped"
    mine.commit()
    assert effects == ["asked", "again"]
    a_world(store).check()


def test_joined_gate_reads_a_later_answer(open_pg: PgOpener, mine: Any) -> None:
    store = open_pg()
    gate, inbox = sayso.Gate(store.on(mine), agent="shop", wait=0), sayso.Inbox(store)
    for expected in (True, "blue"):
        with gate.run(f"order {expected}"):
            ask = gate.confirm_sync if expected is True else gate.ask_sync
            with pytest.raises(sayso.Paused):
                ask("Well?")
            mine.commit()
            (request,) = inbox.pending_sync().items
            answer = request.approve() if expected is True else request.respond(expected)
            inbox.decide_sync(request.id, answer, by="ana")
        with gate.run(f"order {expected}"):
            assert ask("Well?") == expected
        mine.commit()
        assert store.run(f"order {expected}").status == "done"  # type: ignore[union-attr]


def test_my_rows_may_have_any_form(open_pg: PgOpener, place: Place) -> None:
    rows: Callable[..., Any] = psycopg.rows.dict_row
    with psycopg.connect(place.url, row_factory=rows) as connection:
        assert a_world(open_pg().on(connection)).ask().status == "asked"


def test_joining_needs_a_transaction_on_the_store(open_pg: PgOpener, place: Place) -> None:
    store = open_pg()
    with psycopg.connect(place.url, autocommit=True) as connection:
        with pytest.raises(StoreError, match="no transaction"):
            a_world(store.on(connection)).ask()
        with connection.transaction():
            a_world(store.on(connection)).ask()
    other = PostgresStore(place.url, schema=f"{place.schema} 2", keys=store.keys)
    other.close()
    place.sql(f'DROP SCHEMA "{place.schema} 2" CASCADE')
    missing = pytest.raises(StoreError, match="does not see")
    with psycopg.connect(place.url) as connection, missing:
        other.on(connection)


def test_cursor_moves_when_your_transaction_commits(open_pg: PgOpener, mine: Any) -> None:
    store = open_pg()
    for end, position in ((mine.rollback, ""), (mine.commit, "1.2.3")):
        assert store.on(mine).move_cursor("reader", "1.2.3", expected="")
        end()
        assert store.cursor("reader") == position
    assert not store.on(mine).move_cursor("reader", "1.2.4", expected="")


def test_joined_store_leaves_maintenance_to_the_store(open_pg: PgOpener, mine: Any) -> None:
    joined = open_pg().on(mine)
    for work in (joined.seal, joined.snapshot, joined.prune):
        with pytest.raises(StoreError, match="needs a transaction of its own"):
            work()


def test_connection_to_another_store_cannot_be_joined(open_pg: PgOpener, mine: Any) -> None:
    store = open_pg()
    mine.execute("UPDATE meta SET value = 'another' WHERE key = 'incarnation'")
    with pytest.raises(StoreError, match="leads to another store"):
        store.on(mine)


async def test_async_connection_cannot_be_joined(open_pg: PgOpener, place: Place) -> None:
    store = open_pg()
    async with await psycopg.AsyncConnection.connect(place.url) as connection:
        for wrong in (connection, place.url, None):
            with pytest.raises(StoreError, match=f"not a {type(wrong).__name__}"):
                store.on(wrong)  # type: ignore[arg-type]


def test_chain_is_never_read_backwards(open_pg: PgOpener, mine: Any) -> None:
    """Who began to write before others went on with the thread has to begin again."""
    store = open_pg()
    mine.execute("INSERT INTO orders VALUES ('o1')")
    a_world(store).ask()
    with pytest.raises(Conflict, match="roll"):
        a_world(store.on(mine)).ask("later", key="later", id="req_later")
    mine.rollback()
    a_world(store.on(mine)).ask("later", key="later", id="req_later")
    mine.commit()
    assert [event.seq for _, event in all_events(store)] == [1, 2]


def test_fake_clock_serves_tests(open_pg: PgOpener) -> None:
    clock = FakeClock()
    world = World(open_pg(clock=clock), clock)
    call = world.ask(expires_in=5)
    clock.advance(5)
    assert world.expire(call).status == "expired"
