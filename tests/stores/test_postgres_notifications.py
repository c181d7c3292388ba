"""PostgreSQL: notifications of other processes arrive at once, own ones are not read."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest
from pg_places import PgOpener

from sayso.stores.postgres import store as postgres
from sayso.stores.postgres.store import Watcher
from sayso_testing.world import World


def a_world(store: Any) -> World:
    return World(store, None)  # type: ignore[arg-type]


class Looks:
    """Counts the looks that watchers take: none is due for a while unless they hear."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._count = 0
        self._more = threading.Condition()
        tell = Watcher._tell

        def counted(watcher: Watcher, connection: Any) -> None:
            tell(watcher, connection)
            with self._more:
                self._count += 1
                self._more.notify_all()

        monkeypatch.setattr(postgres, "POLL_SECONDS", 600.0)
        monkeypatch.setattr(Watcher, "_tell", counted)

    def reach(self, count: int) -> int:
        """Wait for so many; gives how many there are then."""
        with self._more:
            assert self._more.wait_for(lambda: self._count >= count, 60)
            return self._count


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


def test_subscriber_hears_local_and_foreign_commits(open_pg: PgOpener, looks: Looks) -> None:
    here, there = open_pg(), open_pg()
    heard = threading.Semaphore(0)
    subscription = here.subscribe(None, heard.release)
    try:
        assert looks.reach(1) == 1
        world = a_world(here)
        for _ in range(5):
            world.ask("pay")
            assert heard.acquire(timeout=0)  # told before the commit returned
        a_world(there).ask("pay", run="r2", thread="elsewhere", id="other")
        assert heard.acquire(timeout=60)
        assert looks.reach(2) == 2  # news come in order: there was no look for those of here
    finally:
        subscription.cancel()


def test_replaced_backend_pid_is_forgotten(open_pg: PgOpener) -> None:
    store = open_pg(size=1)
    pool = store._pool
    a_world(store).ask("pay")
    (connection,) = pool._idle
    pid = connection.info.backend_pid
    assert pool.is_ours(pid)
    pool.renew()
    assert not pool.is_ours(pid)
    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")
