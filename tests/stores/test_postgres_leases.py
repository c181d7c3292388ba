"""PostgreSQL: leases are renewed whatever else holds locks, connections or the server."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import psycopg
import pytest
from freezing import frozen
from pg_places import PgOpener, Place
from postgres_server import PostgresServer
from waiting import until

from sayso import Gate, Inbox
from sayso.keys import Keyring
from sayso.stores.postgres import PostgresStore

LEASE = 1.5
_THREAD_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(%s || ':' || %s, 0))"


class LongCalls:
    """Calls in runs of their own, which run until ``end``."""

    def __init__(self, store: PostgresStore, lease: float = LEASE) -> None:
        self.gate = Gate(store, agent="bot", lease=lease, wait=None)
        self.started: list[str] = []
        self.ending = threading.Event()
        self.workers = ThreadPoolExecutor(8)
        self._outcomes: dict[str, Future[str]] = {}

    def begin(self, *runs: str, effect: str = "once") -> None:
        """Start a call in each of these runs, and wait until all of them run."""
        self.submit(*runs, effect=effect)
        until(lambda: {*runs} <= {*self.started})

    def submit(self, *runs: str, effect: str = "once") -> None:
        """Make a call in each of these runs."""

        def body(run: str) -> str:
            self.started.append(run)
            assert self.ending.wait(60)
            return f"{run} ran"

        work = self.gate.guard(body, name="work", needs_approval=False, effect=effect)

        def call(run: str) -> str:
            with self.gate.run(run):
                return work(run)

        for run in runs:
            self._outcomes[run] = self.workers.submit(call, run)

    def end(self) -> dict[str, str]:
        """Let the calls return. Return the result of each run."""
        self.ending.set()
        return {run: outcome.result(60) for run, outcome in self._outcomes.items()}


def watched(place: Place, store: PostgresStore, seconds: float) -> set[tuple[str, str]]:
    """Close what is overdue for a while, as other processes do. Return runs and statuses seen."""
    inbox, statuses = Inbox(store), set[tuple[str, str]]()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        inbox.pending_sync()
        statuses |= {*place.sql("SELECT run, status FROM call")}
        time.sleep(0.05)
    return statuses


RUNS = ("a", "b", "c")


MakeCalls = Callable[..., LongCalls]


@pytest.fixture
def make_calls() -> Iterator[MakeCalls]:
    made: list[LongCalls] = []

    def make(store: PostgresStore, lease: float = LEASE) -> LongCalls:
        made.append(LongCalls(store, lease))
        return made[-1]

    yield make
    for calls in made:
        calls.ending.set()
        calls.workers.shutdown()


@pytest.fixture
def calls(open_pg: PgOpener, make_calls: MakeCalls) -> LongCalls:
    return make_calls(open_pg())


@pytest.mark.long
@pytest.mark.parametrize("held", ["thread", "row"])
def test_locked_row_delays_no_other_lease(
    calls: LongCalls, open_pg: PgOpener, place: Place, held: str
) -> None:
    calls.begin("held", *RUNS)
    with psycopg.connect(place.url) as session:
        if held == "row":
            session.execute(f"SELECT FROM \"{place.schema}\".run WHERE id = 'held' FOR UPDATE")
        else:
            session.execute(_THREAD_LOCK, (calls.gate.store.incarnation, "held"))
            session.execute(f"SELECT FROM \"{place.schema}\".thread WHERE id = 'held' FOR UPDATE")
        statuses = watched(place, open_pg(), 3 * LEASE)
        assert {status for run, status in statuses if run != "held"} == {"running"}
        assert ("held", "in_doubt") not in statuses
    assert calls.end().items() >= {run: f"{run} ran" for run in RUNS}.items()


@pytest.mark.long
def test_lease_of_locked_thread_is_renewed(
    calls: LongCalls, open_pg: PgOpener, place: Place
) -> None:
    """Only the run's own row must be free: whoever holds its thread does not stop the renewal."""
    calls.begin("held")
    with psycopg.connect(place.url) as session:
        session.execute(_THREAD_LOCK, (calls.gate.store.incarnation, "held"))
        session.execute(f"SELECT FROM \"{place.schema}\".thread WHERE id = 'held' FOR UPDATE")
        time.sleep(2 * LEASE)
    assert watched(place, open_pg(), 0.5) == {("held", "running")}
    assert calls.end() == {"held": "held ran"}


def test_renewal_resumes_when_row_is_unlocked(
    calls: LongCalls, open_pg: PgOpener, place: Place
) -> None:
    calls.begin("held")
    ends = "SELECT ready_at FROM run WHERE id = 'held'"
    with psycopg.connect(place.url) as session:
        session.execute(f"SELECT FROM \"{place.schema}\".run WHERE id = 'held' FOR UPDATE")
        before = place.sql(ends)
        time.sleep(0.7 * LEASE)
        assert place.sql(ends) == before
    unlocked = time.monotonic()
    until(lambda: place.sql(ends) > before)
    assert time.monotonic() - unlocked < 0.3 * LEASE, "it was not tried again before its end"
    assert calls.end() == {"held": "held ran"}


@pytest.mark.long
def test_idempotent_call_starts_once_despite_a_locked_row(
    calls: LongCalls, open_pg: PgOpener, make_calls: MakeCalls, place: Place
) -> None:
    calls.begin("held")
    calls.begin("other", effect="idempotent")
    again = make_calls(open_pg())
    again.ending.set()
    with psycopg.connect(place.url) as session:
        session.execute(f"SELECT FROM \"{place.schema}\".run WHERE id = 'held' FOR UPDATE")
        session.execute(_THREAD_LOCK, (calls.gate.store.incarnation, "held"))
        time.sleep(LEASE)
        again.submit("other", effect="idempotent")
        time.sleep(LEASE)
        assert again.started == []
    calls.ending.set()
    assert again.end() == {"other": "other ran"}
    assert again.started == []
    assert calls.started.count("other") == 1


def test_full_pool_delays_no_renewal(
    open_pg: PgOpener, make_calls: MakeCalls, place: Place
) -> None:
    store = open_pg(size=2)
    calls = make_calls(store)
    calls.begin(*RUNS)
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(store.snapshot())
        statuses = watched(place, open_pg(), 2 * LEASE)
    assert {status for _, status in statuses} == {"running"}
    assert calls.end() == {run: f"{run} ran" for run in RUNS}


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    folder = Path(mkdtemp(prefix="sayso-lease-"))
    server = PostgresServer(folder, fsync=False)
    server.start()
    yield server
    server.stop(signal.SIGQUIT)
    rmtree(folder, ignore_errors=True)


@pytest.mark.long
def test_leases_survive_frozen_server(
    server: PostgresServer, keys: Keyring, make_calls: MakeCalls
) -> None:
    """It is frozen when the leases are due, and thaws before they end."""
    store, other = PostgresStore(server.url, keys=keys), PostgresStore(server.url, keys=keys)
    calls = make_calls(store, lease=6.0)
    calls.begin(*RUNS)
    with frozen(server):
        time.sleep(3.5)
    statuses = watched(Place(server.url, "sayso"), other, 4.0)
    assert {status for _, status in statuses} == {"running"}
    assert calls.end() == {run: f"{run} ran" for run in RUNS}
    store.close()
    other.close()


@pytest.mark.long
def test_cut_connection_is_replaced_before_lease_ends(
    calls: LongCalls, open_pg: PgOpener, place: Place
) -> None:
    calls.begin(*RUNS)
    killer: Callable[[], object] = lambda: place.sql(  # noqa: E731
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
        "AND query LIKE %s",
        f'%"{place.schema}".run%',
    )
    for _ in range(4):
        killer()
        assert {s for _, s in watched(place, open_pg(), LEASE / 2)} == {"running"}
    assert calls.end() == {run: f"{run} ran" for run in RUNS}
