"""Upgrading with runs paused: a store is decided on and finished after its next migration.

A new store is created by ``schema.sql``, without the migrations: both ways give the same tables.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from paused_store import LATER, Cast, pause_runs

import sayso
from sayso.audit import verify
from sayso.keys import Keyring, new_key
from sayso.stores.base import Query, Store, Viewer
from sayso.stores.postgres import PostgresStore
from sayso.stores.sql import migrate
from sayso.stores.sqlite import SqliteStore
from sayso.testing import FakeClock
from sayso.testing.world import World

#: The first migration is frozen: stores exist that were made with it. What comes later is a file of
#: its own, with the next number.
FROZEN = {
    "sqlite": "1f97eec09ff8d38dae600881039eefd03c3567004085f73cc5724380a51ac22c",
    "postgres": "0628e670636d1dbd37d5847ec7356679c3e45ab048c6a2029cd704032e8c9bad",
}

#: What a later version may do to the tables.
NEXT = (
    "ALTER TABLE run ADD COLUMN colour TEXT NOT NULL DEFAULT 'grey';"
    "CREATE TABLE extra (n BIGINT);"
    "INSERT INTO extra SELECT count(*) FROM call WHERE status = 'asked';"
)


@pytest.fixture(params=["sqlite", "postgres"])
def opener(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], Store]]:
    """Opens a store that was left with runs paused, two hours later, by the next version."""
    clock, opened = FakeClock(), list[Store]()
    options: dict[str, Any] = {"clock": clock, "keys": Keyring.parse(new_key())}
    place = request.getfixturevalue("place") if request.param == "postgres" else None

    def opener() -> Store:
        store: Store = (
            SqliteStore(tmp_path / "store.db", **options)
            if place is None
            else PostgresStore(place.url, schema=place.schema, **options)
        )
        opened.append(store)
        return store

    pause_runs(store := opener())
    store.close()
    real = migrate.migrations
    monkeypatch.setattr(
        migrate, "migrations", lambda dialect: [*real(dialect), (len(real(dialect)) + 1, NEXT)]
    )
    clock.advance(LATER)
    yield opener
    for store in opened:
        store.close()


def test_paused_runs_are_decided_and_finished_after_an_upgrade(
    opener: Callable[[], Store],
) -> None:
    store = opener()
    assert verify(store).ok
    cast, inbox = Cast(store), sayso.Inbox(store)
    waiting = {request.thread: request for request in inbox.pending_sync().items}
    assert set(waiting) == {"one", "two", "question", "order-1", "order-2"}
    assert waiting["one"].requester == "bob"
    assert waiting["order-2"].kind == "in_doubt"
    with pytest.raises(sayso.Conflict):
        inbox.decide_sync(waiting["one"].id, sayso.Approve(), by="eve", seen_digest="0" * 64)
    for thread, decision in {
        "one": waiting["one"].edit({"to": "ana", "body": "good day"}),
        "two": waiting["two"].reject("not eve"),
        "question": waiting["question"].respond("blue"),
        "order-1": waiting["order-1"].approve(),
        "order-2": waiting["order-2"].respond("shipped by hand"),
    }.items():
        inbox.decide_sync(waiting[thread].id, decision, by="ana")

    cast = Cast(store := opener())  # another process goes on
    results = {name: cast.agent.resume_sync(name) for name in ("one", "two", "question")}
    assert {result.status for result in results.values()} == {"done"}
    assert "not eve" in str(results["two"].output)
    assert "blue" in str(results["question"].output)
    assert cast.shipped("order-1", "late") == "shipped late"
    assert cast.shipped("order-2", "deadly") == "shipped by hand"
    assert cast.shipped("order-3", "again") == "shipped again"
    assert cast.shipped("order-4", "by the standing yes") == "shipped by the standing yes"
    assert sorted(cast.effects) == [
        "send ana good day",
        "send bea hello",
        "ship again",
        "ship by the standing yes",
        "ship late",
    ]
    assert cast.agent.run_sync("One mail.", thread="one").status == "paused"
    cast = Cast(store := opener())
    assert cast.shipped("order-1", "late") == "shipped late"
    assert cast.effects == []
    assert verify(store).ok


#: Undoes migration 8.
_TO_VERSION_7 = """
DROP INDEX thread_moved; ALTER TABLE thread DROP COLUMN moved;
CREATE INDEX thread_moved ON thread (id) WHERE seq > sealed;
UPDATE meta SET value = '7' WHERE key = 'version';
"""
#: Undoes migrations 7 and 8, except that an index is not as it was.
_TO_VERSION_6 = f"""
{_TO_VERSION_7}
DROP TRIGGER request_added{{on}}; DROP TRIGGER request_changed{{on}};
DROP TABLE request_change; DROP TABLE request_series; DROP TABLE request_total;
UPDATE meta SET value = '6' WHERE key = 'version';
"""
#: Undoes migrations 5 to 8, except that three indexes are not as they were.
_TO_VERSION_4 = f"""
{_TO_VERSION_6}
DROP TRIGGER call_opened{{on}}; DROP TRIGGER call_moved{{on}}; DROP TRIGGER call_deleted{{on}};
DROP INDEX call_open_age; DROP INDEX call_open_expiry; DROP INDEX call_open_requester;
DROP INDEX call_list_status; DROP TABLE request_group; DROP TABLE open_count;
ALTER TABLE call DROP COLUMN request_group; ALTER TABLE call DROP COLUMN decided_by;
ALTER TABLE call DROP COLUMN decided_at;
CREATE INDEX call_open ON call (n); CREATE INDEX call_open_reviewers ON call (n);
CREATE INDEX call_list_status ON call (n); UPDATE meta SET value = '4' WHERE key = 'version';
"""


class OldStore:
    """A store whose newest migrations can be undone."""

    def __init__(self, path: Path, place: Any) -> None:
        """Use ``place`` in PostgreSQL, or without one the SQLite file at ``path``."""
        self.clock = FakeClock()
        self._path, self._place = path, place
        self._options: dict[str, Any] = {"clock": self.clock, "keys": Keyring.parse(new_key())}

    def open(self) -> Store:
        """Open it, which migrates it."""
        if self._place is None:
            return SqliteStore(self._path, **self._options)
        return PostgresStore(self._place.url, schema=self._place.schema, **self._options)

    def undo(self, statements: str, postgres: str = "") -> None:
        """Undo migrations; ``postgres`` is what only PostgreSQL has to drop."""
        if self._place is None:
            with closing(sqlite3.connect(self._path)) as db:
                db.executescript(statements.format(on=""))
        else:
            self._place.sql(f"{statements.format(on=' ON call')} {postgres}")


@pytest.fixture(params=FROZEN)
def old_store(request: pytest.FixtureRequest, tmp_path: Path) -> OldStore:
    place = request.getfixturevalue("place") if request.param == "postgres" else None
    return OldStore(tmp_path / "store.db", place)


def test_what_is_open_is_counted_when_a_store_of_version_4_is_opened(
    old_store: OldStore,
) -> None:
    open_store = old_store.open
    with closing(open_store()) as store:
        pause_runs(store)
        gate = sayso.Gate(store, agent="bank", wait=0)

        @gate.guard(needs_approval=True, reviewers=["group:money", "Zoë"])
        def pay(to: str) -> None: ...

        with suppress(sayso.Paused), gate.run("payment"):
            pay("ana")
        before = store.groups(Query(), Viewer())
        of_zoe = Viewer(names=frozenset(("Zoë",)), only_theirs=True)
        assert sum(group.count for group in before) == 5
    functions = "count_open, count_open_again, sum_open_count, note_change"
    old_store.undo(_TO_VERSION_4, f"DROP FUNCTION {functions} CASCADE; DROP TABLE offer")
    with closing(open_store()) as store:
        assert store.groups(Query(), Viewer()) == before
        assert [group.count for group in store.groups(Query(), of_zoe)] == [1]
        assert store.waiting() == {"asked": 5, "in_doubt": 0}
        assert (store.miscounted(), verify(store).problems) == (0, [])


def test_what_happened_is_counted_when_a_store_of_version_6_is_opened(
    old_store: OldStore,
) -> None:
    clock, open_store = old_store.clock, old_store.open
    began = [clock() + hours * 3600 * 1_000_000 for hours in (0, 1, 30)]
    with closing(open_store()) as store:
        world = World(store, clock, lambda store: store)
        world.ask(run="waits", thread="waits", reviewers=("ana",))
        # One wait for each step that times are rounded to, and for the edges between them.
        for n, waited in enumerate((0, 2.9, 19, 20, 59, 61, 599, 600, 3700, 86_400, 200_000)):
            call = world.ask(run=f"r{n}", thread=f"t{n}")
            clock.advance(waited)
            world.decide(call, ("approve", "reject", "respond")[n % 3], by=f"p{n % 2}")
        expires = world.ask(run="late", thread="late", expires_in=10)
        clock.advance(10)
        world.expire(expires)
        viewers = (Viewer(), Viewer(names=frozenset(("ana",))), Viewer(names=frozenset(("zoe",))))
        before = [store.tallies(viewer, began) for viewer in viewers]
        assert sum(before[0].times.values()) == 11
    old_store.undo(_TO_VERSION_6, "DROP FUNCTION note_change")

    def counted(store: Store) -> list[Any]:
        found = [store.tallies(viewer, began) for viewer in viewers]
        return [(sorted(one.tallies), one.times) for one in found]

    with closing(open_store()) as store:
        assert counted(store) == [(sorted(one.tallies), one.times) for one in before]
        assert (store.wrong_totals({}), verify(store).problems) == (0, [])
        world = World(store, clock, lambda store: store)
        world.decide(world.ask(run="next", thread="next", id="req_next"))
        store.seal()
        assert sum(store.tallies(Viewer(), began).times.values()) == 12
        assert store.wrong_totals({}) == 0


def test_the_next_seal_covers_what_moved_before_an_upgrade_from_version_7(
    old_store: OldStore,
) -> None:
    clock, open_store = old_store.clock, old_store.open
    store = open_store()
    world = World(store, clock, lambda store: store)
    both = world.ask(run="a", thread="a"), world.ask(run="b", thread="b")
    store.seal()
    world.decide(both[0])
    old_store.undo(_TO_VERSION_7)
    with closing(open_store()) as upgraded:
        assert {row.id: row.moved for row in upgraded.threads()} == {"a": 1, "b": 0}
        assert verify(upgraded).unsealed == 1
        world = World(upgraded, clock, lambda store: store)
        world.decide(both[1])
        upgraded.seal()
        report = verify(upgraded)
        assert (report.problems, report.unsealed) == ([], 0)
    store.close()


@pytest.mark.parametrize("dialect", FROZEN)
def test_the_first_migration_is_frozen(dialect: str) -> None:
    number, text = migrate.migrations(dialect)[0]
    assert number == 1
    assert hashlib.sha256(text.encode()).hexdigest() == FROZEN[dialect], (
        "a released migration never changes: add the next number"
    )


# -- new stores


def _sqlite_tables(path: Path) -> dict[str, Any]:
    """Return everything that SQLite knows of the tables of a store, by name."""
    with closing(sqlite3.connect(path)) as db:
        found: dict[str, Any] = {}
        for kind, name, table, text in db.execute(
            "SELECT type, name, tbl_name, sql FROM sqlite_master"
        ):
            # SQLite keeps the text of an added column as the migration wrote it.
            found[f"{kind} {name}"] = table, kind != "table" and " ".join((text or "").split())
        for (table,) in db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table'"
        ).fetchall():
            indexes = db.execute(f"PRAGMA index_list({table})").fetchall()
            found[table] = (
                db.execute("SELECT * FROM pragma_table_list WHERE name = ?", (table,)).fetchall(),
                db.execute(f"PRAGMA table_xinfo({table})").fetchall(),
                {
                    name: (rest, db.execute(f"PRAGMA index_xinfo({name})").fetchall())
                    for _, name, *rest in indexes
                },
            )
        found["version"] = db.execute("SELECT value FROM meta WHERE key = 'version'").fetchall()
    return found


#: Each with the OID of the schema; in the order in which tests print a difference best.
_PG_CATALOG = (
    "SELECT relname, relkind, relpersistence, reloptions FROM pg_class WHERE relnamespace = %s",
    "SELECT relname, attnum, attname, format_type(atttypid, atttypmod), attnotnull, attidentity, "
    "attcollation, attstorage, pg_get_expr(adbin, adrelid) FROM pg_attribute "
    "JOIN pg_class ON pg_class.oid = attrelid "
    "LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum "
    "WHERE relnamespace = %s AND relkind = 'r' AND attnum > 0",
    "SELECT pg_get_indexdef(pg_class.oid) FROM pg_class WHERE relkind = 'i' AND relnamespace = %s",
    "SELECT conname, conrelid::regclass::text, pg_get_constraintdef(oid) FROM pg_constraint "
    "WHERE connamespace = %s",
    "SELECT pg_get_triggerdef(pg_trigger.oid) FROM pg_trigger "
    "JOIN pg_class ON pg_class.oid = tgrelid WHERE relnamespace = %s",
    "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = %s",
)


def _postgres_tables(place: Any) -> list[Any]:
    """Return everything that PostgreSQL knows of the tables of a store."""
    name, schema = "SELECT oid FROM pg_namespace WHERE nspname = %s", place.schema
    ((oid,),) = place.sql(name, schema)
    found = [sorted(map(repr, place.sql(query, oid))) for query in _PG_CATALOG]
    return [*found, place.sql("SELECT value FROM meta WHERE key = 'version'")]


@pytest.mark.parametrize("dialect", FROZEN)
def test_a_new_store_has_the_tables_of_an_upgraded_one(
    dialect: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = request.getfixturevalue("place") if dialect == "postgres" else None
    newest = migrate.migrations(dialect)[-1][0]
    assert newest == migrate.SCHEMA_VERSION, "change schema.sql of both dialects, too"

    def created(path: Path) -> Any:
        OldStore(path, place).open().close()
        if place is None:
            return _sqlite_tables(path)
        found = _postgres_tables(place)
        place.sql(f'DROP SCHEMA "{place.schema}" CASCADE')
        return found

    new = created(tmp_path / "new.db")
    first = migrate.migrations(dialect)[0][1]
    monkeypatch.setattr(migrate, "schema", lambda dialect: first)
    monkeypatch.setattr(migrate, "SCHEMA_VERSION", 1)
    assert created(tmp_path / "upgraded.db") == new
