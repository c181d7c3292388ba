"""PostgreSQL: a client frozen inside a transaction delays others only briefly."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest
from pg_places import PgOpener, Place
from waiting import until

import sayso
from sayso.errors import StoreError
from sayso.rows import CallStatus
from sayso.stores.postgres import PostgresStore, transaction
from sayso_testing.world import World

_HELD = "SELECT pg_advisory_xact_lock(hashtextextended(%s || ':' || %s, 0))"


def a_world(store: PostgresStore) -> World:
    return World(store, None)  # type: ignore[arg-type]


def until_overdue(store: PostgresStore, *threads: str) -> None:
    until(lambda: {due.thread for due in store.overdue()} == set(threads))


def test_expiry_skips_a_locked_thread(open_pg: PgOpener, place: Place) -> None:
    """The inbox closes what is overdue, but for what somebody is at work on."""
    store = open_pg()
    world = a_world(store)
    held = world.ask(run="r1", thread="held", expires_in=0.05)
    free = world.ask(run="r2", thread="free", expires_in=0.05)
    until_overdue(store, "held", "free")
    with psycopg.connect(place.url) as frozen:
        frozen.execute(_HELD, (store.incarnation, "held"))
        pending = sayso.Inbox(store).pending_sync()
        assert [request.id for request in pending.items] == [held.id]
        assert world.call(free).status is CallStatus.EXPIRED
        assert world.call(held).status is CallStatus.ASKED
    assert not sayso.Inbox(store).pending_sync().items
    assert world.call(held).status is CallStatus.EXPIRED


def test_decision_on_a_locked_thread_times_out(
    open_pg: PgOpener, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "LOCK_MS", 100)
    store = open_pg(patience=0.5)
    world = a_world(store)
    call = world.ask(thread="t")
    with psycopg.connect(place.url) as frozen:
        frozen.execute(_HELD, (store.incarnation, "t"))
        with pytest.raises(StoreError, match="lock"):
            world.decide(call, "approve")
        assert world.call(call).status is CallStatus.ASKED
    world.decide(call, "approve")
    assert world.call(call).status is CallStatus.READY


def test_frozen_transaction_is_ended_by_the_server(
    open_pg: PgOpener, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who was frozen before its commit finds that nothing was done, and does it then."""
    with psycopg.connect(place.url) as connection:
        if connection.info.server_version < 170_000:
            pytest.skip("a server before 17 knows no end for a transaction")
    monkeypatch.setattr(transaction, "FROZEN_MS", 500)
    slow, quick = open_pg(), open_pg()
    call = a_world(quick).ask(thread="t")
    frozen, woken = threading.Event(), threading.Event()

    def freeze(name: str, when: str) -> None:
        if when == "before" and not frozen.is_set():
            frozen.set()
            assert woken.wait(60)

    slow.boundary = freeze
    outcome: list[Any] = []

    def decide() -> None:
        try:
            outcome.append(a_world(slow).decide(call, "approve"))
        except sayso.SaysoError as error:
            outcome.append(error)

    thread = threading.Thread(target=decide)
    thread.start()
    try:
        assert frozen.wait(30)
        rejected = a_world(quick).decide(call, "reject")
        assert rejected.status is CallStatus.REJECTED
    finally:
        woken.set()
        thread.join(60)
    assert isinstance(outcome[0], sayso.AlreadyDecided)
    assert a_world(quick).call(call).status is CallStatus.REJECTED
