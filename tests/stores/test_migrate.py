"""Upgrading with runs paused: a store is decided on and finished after its next migration."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest
from homes import Home
from paused_store import LATER, Cast, pause_runs

import sayso
from sayso.audit import verify
from sayso.stores.base import Store
from sayso.stores.sql import migrate
from sayso.testing import FakeClock

#: What a later version may do to the tables.
NEXT = (
    "ALTER TABLE run ADD COLUMN colour TEXT NOT NULL DEFAULT 'grey';"
    "CREATE TABLE extra (n BIGINT);"
    "INSERT INTO extra SELECT count(*) FROM call WHERE status = 'asked';"
)


@pytest.fixture
def opener(home: Home, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Store]:
    """Opens a store that was left with runs paused, two hours later, by the next version."""
    store = home.open(clock=clock)
    pause_runs(store)
    store.close()
    next_version = migrate.SCHEMA_VERSION + 1
    monkeypatch.setattr(migrate, "migrations", lambda dialect: ((next_version, NEXT),))
    clock.advance(LATER)
    return lambda: home.open(clock=clock)


def test_paused_runs_finish_after_upgrade(
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
    assert cast.agent.run_sync("One mail.", thread="one", requester="bob").status == "paused"
    cast = Cast(store := opener())
    assert cast.shipped("order-1", "late") == "shipped late"
    assert cast.effects == []
    assert verify(store).ok


@pytest.mark.parametrize("version", [1, 8])
def test_store_of_unreleased_version_is_refused(home: Home, version: int) -> None:
    home.open().close()
    home.sql(f"UPDATE meta SET value = '{version}' WHERE key = 'version'")
    with pytest.raises(sayso.StoreVersion, match=f"schema {version}.*open another store"):
        home.open()
    home.sql("UPDATE meta SET value = '9' WHERE key = 'version'")
    with closing(home.open()) as store:
        assert verify(store).ok


def test_new_store_runs_later_migrations(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrate, "migrations", lambda dialect: ((10, NEXT),))
    with closing(home.open()):
        assert home.sql("SELECT value FROM meta WHERE key = 'version'") == [("10",)]
        assert home.sql("SELECT n FROM extra") == [(0,)]
