"""PostgreSQL: a server with too few connections, too little time, or no leave to write."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from pg_places import PgOpener, Place
from waiting import until

from sayso.errors import StoreError
from sayso.stores.postgres import connections
from sayso.stores.postgres.transaction import PooledTransaction
from sayso_testing.world import World


def a_world(store: Any) -> World:
    return World(store, None)  # type: ignore[arg-type]


def with_setting(place: Place, setting: str) -> str:
    """The address of a server on which this is set."""
    mark = "&" if "?" in place.url else "?"
    return f"{place.url}{mark}options=-c{setting.replace('=', '%3D')}"


def test_full_server_waits_for_a_returned_connection(
    open_pg: PgOpener, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_pg(size=2)
    refused = threading.Event()

    def full() -> Any:
        refused.set()
        raise psycopg.errors.TooManyConnections("remaining connection slots are reserved")

    with ThreadPoolExecutor(1) as elsewhere:
        with store._pool.connection(time.monotonic() + 20):
            monkeypatch.setattr(store._pool, "_connect", full)
            waiting = elsewhere.submit(store.threads)
            assert refused.wait(20)
        assert waiting.result(20) == []


def test_write_cut_by_statement_timeout_is_retried(open_pg: PgOpener, place: Place) -> None:
    """Many services set ``statement_timeout``; what has run must be recorded all the same."""
    open_pg()  # making the tables may take longer
    url = with_setting(place, "statement_timeout=100")
    world = a_world(open_pg(url))
    world.ask("pay")
    with psycopg.connect(place.url) as somebody, ThreadPoolExecutor(1) as elsewhere:
        somebody.execute(f'LOCK TABLE "{place.schema}".run IN ACCESS EXCLUSIVE MODE')
        asking = elsewhere.submit(world.ask, "pay", run="r2", thread="t2", id="second")
        time.sleep(0.5)
        assert not asking.done()
        somebody.rollback()
        assert asking.result(30).status == "asked"
    world.check()


def test_read_only_session_is_retried_slowly(
    open_pg: PgOpener, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may pass, as when a disk was full or a standby takes over; till then nothing spins."""
    open_pg()
    url = with_setting(place, "default_transaction_read_only=on")
    world = a_world(open_pg(url, patience=1.0))
    tried: list[PooledTransaction] = []
    run = PooledTransaction.run

    def counted(attempt: PooledTransaction, *args: Any) -> Any:
        tried.append(attempt)
        return run(attempt, *args)

    monkeypatch.setattr(PooledTransaction, "run", counted)
    with pytest.raises(StoreError, match="read-only"):
        world.ask("pay")
    assert 2 <= len(tried) < 20


def test_idle_connections_are_closed(open_pg: PgOpener, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a rush each process would keep as many as it ever had, and others get none."""
    store = open_pg(size=5)
    end = time.monotonic() + 20
    with ExitStack() as rush:
        for _ in range(5):
            rush.enter_context(store._pool.connection(end))
    assert len(store._pool._idle) == 5
    for _ in range(10):
        store.threads()
    assert len(store._pool._idle) == 5
    monkeypatch.setattr(connections, "_MAX_IDLE", 0.5)
    time.sleep(0.6)
    for _ in range(10):
        store.threads()
    assert len(store._pool._idle) == 1


def test_connection_timeouts_yield_to_the_address(
    open_pg: PgOpener, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a primary whose power is cut is waited for, while its standby is up."""
    monkeypatch.delenv("PGCONNECT_TIMEOUT", raising=False)
    mark = "&" if "?" in place.url else "?"
    url = f"{place.url}{mark}tcp_user_timeout=60000&connect_timeout=20"
    for store, timeout, silence in (open_pg(), "5", "15000"), (open_pg(url), "20", "60000"):
        with store._pool.connection(time.monotonic() + 20) as connection:
            said = connection.info.get_parameters()
        assert (said["connect_timeout"], said["tcp_user_timeout"]) == (timeout, silence)
        assert said["keepalives_idle"] == "10"
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "7")
    with open_pg()._pool.connection(time.monotonic() + 20) as connection:
        assert connection.info.get_parameters()["connect_timeout"] == "7"


def test_connections_are_lent_in_the_order_of_asking(open_pg: PgOpener) -> None:
    pool = open_pg(size=1)._pool
    order: list[str] = []

    def borrow(name: str) -> None:
        with pool.connection(time.monotonic() + 30):
            order.append(name)

    end = time.monotonic() + 30
    with ThreadPoolExecutor(3) as elsewhere:
        with pool.connection(end):
            for number in range(3):
                elsewhere.submit(borrow, f"waited {number}")
                until(lambda: len(pool.waiting) == number + 1)  # noqa: B023
        borrow("came last")
    assert order == ["waited 0", "waited 1", "waited 2", "came last"]


def test_abandoned_wait_keeps_no_connection(open_pg: PgOpener) -> None:
    store = open_pg(size=1, patience=0.2)
    with (
        store._pool.connection(time.monotonic() + 30),
        ThreadPoolExecutor(1) as elsewhere,
        pytest.raises(StoreError, match="all 1 connections"),
    ):
        elsewhere.submit(store.threads).result()
    assert store.threads() == []


@pytest.mark.long
def test_no_os_thread_starves(open_pg: PgOpener) -> None:
    """Twenty OS threads that never rest, and three connections: each gets its share."""
    world = a_world(open_pg())
    call, end = world.ask(), time.monotonic() + 3

    def read() -> int:
        reads = 0
        while time.monotonic() < end:
            assert world.store.call(call.id) is not None
            reads += 1
        return reads

    with ThreadPoolExecutor(20) as threads:
        reads = [reading.result() for reading in [threads.submit(read) for _ in range(20)]]
    assert min(reads) > sum(reads) / 20 / 10, reads
