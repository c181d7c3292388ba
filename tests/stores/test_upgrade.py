"""Upgrading with runs paused: a store of each earlier version is decided on and finished."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from long_ago import FOLDER, KEY, LATER, Cast, put_back
from pg_places import Place

import sayso
from sayso.audit import verify
from sayso.keys import Keyring
from sayso.stores.base import Store
from sayso.stores.postgres import PostgresStore
from sayso.stores.sql import migrate
from sayso.stores.sqlite import SqliteStore
from sayso.testing import FakeClock

RECORDED = sorted(FOLDER.glob("*.json"))
#: What a later version may do to the tables.
NEXT = (
    "ALTER TABLE run ADD COLUMN colour TEXT NOT NULL DEFAULT 'grey';"
    "CREATE TABLE extra (n BIGINT);"
    "INSERT INTO extra SELECT count(*) FROM call WHERE status = 'asked';"
)


@pytest.fixture(params=RECORDED, ids=lambda path: path.stem)
def recorded(request: pytest.FixtureRequest) -> Any:
    held = json.loads(request.param.read_text("utf-8"))
    return {**held, "dialect": request.param.stem.partition("-")[0]}


@pytest.fixture
def opener(
    recorded: Any, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[[], Store]]:
    """Opens the recorded store with the code of today, two hours later."""
    clock, opened = FakeClock(recorded["clock"]), list[Store]()
    options: dict[str, Any] = {"clock": clock, "keys": Keyring.parse(KEY)}
    place: Place | None = None
    if recorded["dialect"] == "postgres":
        place = request.getfixturevalue("place")

    def opener() -> Store:
        store: Store = (
            SqliteStore(tmp_path / "store.db", **options)
            if place is None
            else PostgresStore(place.url, schema=place.schema, **options)
        )
        opened.append(store)
        return store

    with pytest.MonkeyPatch.context() as patch:
        made = [
            one for one in migrate.migrations(recorded["dialect"]) if one[0] <= recorded["version"]
        ]
        patch.setattr(migrate, "migrations", lambda dialect: made)
        opener().close()
    if place is None:
        file = sqlite3.connect(tmp_path / "store.db")
        with file:
            put_back(recorded["tables"], file.execute, "?")
        file.close()
    else:
        with psycopg.connect(place.url) as connection:
            connection.execute(f'SET search_path TO "{place.schema}"')
            put_back(
                recorded["tables"], lambda text, row: connection.execute(text.encode(), row), "%s"
            )
            for table, column in (("call", "n"), ("event", "pos")):
                last = f"(SELECT max({column}) FROM {table})"
                connection.execute(
                    f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), {last})".encode()
                )
    clock.advance(LATER)
    yield opener
    for store in opened:
        store.close()


@pytest.fixture(params=["today", "and the next"])
def later(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The migrations as they are, and with one more."""
    if request.param == "today":
        return
    real = migrate.migrations

    def more(dialect: str) -> list[tuple[int, str]]:
        known = real(dialect)
        return [*known, (known[-1][0] + 1, NEXT)]

    monkeypatch.setattr(migrate, "migrations", more)


def test_there_is_one_of_each_version_and_store() -> None:
    names = {path.stem for path in RECORDED}
    for dialect in ("sqlite", "postgres"):
        past = range(1, max(2, migrate.migrations(dialect)[-1][0]))
        assert {f"{dialect}-{version}" for version in past} <= names


@pytest.mark.usefixtures("later")
def test_what_was_paused_is_decided_and_finished(opener: Callable[[], Store]) -> None:
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
