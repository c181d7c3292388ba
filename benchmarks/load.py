"""Fill a store with many requests and measure it: ``python -m benchmarks.load --requests 200000``.

Gates, an inbox and the store's own commands ask, decide and run every request, so each row has its
MAC, signature and events, and the store verifies. Hundreds of runs share a commit. They are written
to SQLite on a clock that passes through a year, and copied to PostgreSQL with the same keys, where
the triggers count and index them again: that is faster than asking there. Then the operations of
people, agents and maintenance are timed on both. One run in ten waits for a decision.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import psycopg

import sayso
from benchmarks.scale import about
from sayso.audit import Checkpoint, verify
from sayso.keys import ENVIRONMENT, new_key
from sayso.server.monitoring import TallyCache
from sayso.server.routes.stats import stats
from sayso.stores import open_store
from sayso.stores.base import Query, Store, Viewer
from sayso.stores.sqlite import SqliteStore
from sayso.types import Reviewer
from tests.postgres_server import PostgresServer

RECORD = Path(__file__).with_name("load.json")
YEAR = 365 * 86_400
#: How many runs go on at once, and share the commits of the store.
CROWD = 300
READS = 20
STEPS = 300
#: How many runs are pruned.
PRUNED = 2_000
#: The tables that triggers fill on PostgreSQL, and the one that says which store it is.
_NOT_COPIED = {"meta", "open_count", "call_word", "process"}
CITIES = ("Lisbon", "Graz", "Turku", "Ghent", "Porto", "Lviv", "Brno", "Cork")
REASONS = ("late delivery", "damaged in transit", "wrong size", "ordered twice")


def main() -> None:
    """Fill, measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--requests", type=int, default=1_000_000, help="requests in each store")
    parser.add_argument("--record", action="store_true", help=f"write {RECORD.name}")
    parser.add_argument("--brief", action="store_true", help="replay and verify nothing as a whole")
    parser.add_argument("--keep", type=Path, help="a folder with the filled store, for another run")
    given = parser.parse_args()
    os.environ.setdefault(ENVIRONMENT, new_key())
    folder = Path(tempfile.mkdtemp(prefix="sayso-load-"))
    server = PostgresServer(folder / "pg")
    server.start()
    try:
        figures: dict[str, Any] = {"requests": given.requests, "date": date.today().isoformat()}
        figures["machine"] = about(server.url)
        path = folder / "load.db"
        began = time.monotonic()
        if not (given.keep and brought_back(given.keep, path)):
            fill(path, given.requests)
            figures["fill_seconds"] = round(time.monotonic() - began)
            if given.keep:
                keep(path, given.keep)
        requests = figures["requests"] = counted(path)  # a kept store may have more
        figures["sqlite_bytes"] = path.stat().st_size
        began = time.monotonic()
        copy(path, server.url)
        figures["copy_seconds"] = round(time.monotonic() - began)
        figures["postgres_bytes"] = postgres_size(server.url)
        for name, url in (("sqlite", f"sqlite:///{path}"), ("postgres", server.url)):
            with closing(open_store(url)) as store:
                figures[name] = dict(measured(store, requests, brief=given.brief))
                print(f"{name}: {json.dumps(figures[name])}", flush=True)
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(figures))
    if given.record:
        RECORD.write_text(json.dumps(figures, indent=1) + "\n")
        print(table(figures))


def table(figures: dict[str, Any]) -> str:
    """Return the table of docs/scale.md."""
    rows = ["| milliseconds | SQLite | PostgreSQL |", "|---|---|---|"]
    for name, value in figures["sqlite"].items():
        if name != "pruned runs":
            rows.append(f"| {name} | {value:,} | {figures['postgres'][name]:,} |")
    return "\n".join(rows)


def keep(path: Path, folder: Path) -> None:
    """Keep a filled store and its key for another run."""
    folder.mkdir(exist_ok=True)
    shutil.copy(path, folder / path.name)
    (folder / "key").write_text(os.environ[ENVIRONMENT])


def brought_back(folder: Path, path: Path) -> bool:
    """Copy a store that was kept to ``path``. Return whether there is one."""
    if not (folder / "key").exists():
        return False
    shutil.copy(folder / path.name, path)
    os.environ[ENVIRONMENT] = (folder / "key").read_text()
    return True


def counted(path: Path) -> int:
    """Count the requests of a filled store."""
    with closing(sqlite3.connect(path)) as store:
        (requests,) = store.execute("SELECT count(*) FROM call").fetchone()
    return int(requests)


# -- filling


def guarded(gate: sayso.Gate) -> Callable[..., Any]:
    """Return the guarded function that all requests call."""

    @gate.guard(needs_approval=True, title="Refund {euros} euros to order {order}")
    async def refund(order: str, euros: int, city: str, reason: str) -> str:
        """Give money back."""
        return f"paid {order}"

    return refund


def arguments(number: int) -> dict[str, Any]:
    """Return what request ``number`` asks for."""
    city = CITIES[number % len(CITIES)]
    reason = REASONS[number % len(REASONS)]
    return {"order": f"A-{number}", "euros": 1 + number % 500, "city": city, "reason": reason}


def fill(path: Path, requests: int) -> None:
    """Ask, decide and run: nine of ten requests to their end."""
    start = time.time_ns() // 1000 - YEAR * 1_000_000
    done = 0

    def clock() -> int:
        return start + YEAR * 1_000_000 * done // requests

    async def run_all(store: Store) -> None:
        nonlocal done
        gate, inbox = sayso.Gate(store, agent="clerk", wait=0), sayso.Inbox(store)
        refund = guarded(gate)
        for first in range(0, requests, CROWD):
            numbers = range(first, min(first + CROWD, requests))
            asked = await asyncio.gather(*(ask(gate, refund, number) for number in numbers))
            approved = [request for n, request in zip(numbers, asked, strict=True) if n % 10]
            await asyncio.gather(*(inbox.approve(request, by="ana") for request in approved))
            await asyncio.gather(*(resume(gate, refund, n) for n in numbers if n % 10))
            done = numbers.stop

    with closing(SqliteStore(path, clock=clock)) as store:
        asyncio.run(run_all(store))


async def ask(gate: sayso.Gate, refund: Callable[..., Any], number: int) -> Any:
    """Open the run of a request, and return the request."""
    try:
        async with gate.run(f"order-{number}"):
            await refund(**arguments(number))
    except sayso.Paused as paused:
        return paused.requests[0]
    raise AssertionError(f"order-{number} did not pause")


async def resume(gate: sayso.Gate, refund: Callable[..., Any], number: int) -> None:
    """Continue the run of a request that was approved, to its end."""
    async with gate.run(f"order-{number}"):
        assert await refund(**arguments(number)) == f"paid A-{number}"


def copy(path: Path, url: str) -> None:
    """Copy the rows of a SQLite store to a new store on PostgreSQL that has the same keys."""
    with closing(open_store(url)):
        pass  # create the tables
    with closing(sqlite3.connect(path)) as source, psycopg.connect(url) as target:
        target.execute("SET search_path TO sayso")
        for table, columns in tables(source):
            names = ", ".join(columns)
            target.execute(f"DELETE FROM {table}".encode())
            statement = f"COPY {table} ({names}) FROM STDIN".encode()
            with target.cursor().copy(statement) as writer:
                for row in source.execute(f"SELECT {names} FROM {table} ORDER BY 1"):
                    writer.write_row(row)
        for table, column in (("event", "pos"), ("call", "n")):
            target.execute(
                f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), "
                f"(SELECT max({column}) FROM {table}))".encode()
            )
    with psycopg.connect(url, autocommit=True) as target:
        target.execute("VACUUM ANALYZE")


def tables(source: sqlite3.Connection) -> Iterator[tuple[str, list[str]]]:
    """Yield the tables to copy, with their columns; calls after what they name."""
    statement = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name = 'call', name"
    for (table,) in source.execute(statement).fetchall():
        if table not in _NOT_COPIED and not table.startswith("sqlite_"):
            columns = source.execute(f"PRAGMA table_info({table})").fetchall()
            yield table, [column[1] for column in columns]


def postgres_size(url: str) -> int:
    """Return the size of the database in bytes."""
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
    return int(row[0]) if row else 0


# -- measuring


def measured(store: Store, requests: int, *, brief: bool = False) -> Iterator[tuple[str, float]]:
    """Yield each operation and how many milliseconds it takes; of reads and steps, the median.

    If ``brief``, leave out what reads the whole store, which takes many minutes.
    """
    inbox = sayso.Inbox(store)
    middle = f"A-{requests // 2}"

    def page(**query: Any) -> object:
        return store.page(Query(limit=50, **query))

    reads: dict[str, Callable[[], Any]] = {
        "page": lambda: inbox.pending_sync(limit=50),
        "page, newest first": lambda: inbox.search_sync(status="any", sort="newest", limit=50),
        "search, one order": lambda: inbox.search_sync(q=middle, status="any", limit=50),
        "search, a word of every request": lambda: inbox.search_sync(q="refund", limit=50),
        "search, two common words": lambda: inbox.search_sync(q="lisbon delivery", limit=50),
        "search, common words and a rare one": lambda: inbox.search_sync(
            q="refund lisbon 401", limit=50
        ),
        # No request of an odd number is open, and no request from Lisbon arrived in a wrong size.
        "search, a word of no open request": lambda: inbox.search_sync(q="graz", limit=50),
        "search, the same by expiry": lambda: page(text="graz", sort="expiring"),
        "search, the same and a common word": lambda: inbox.search_sync(q="refund graz", limit=50),
        "search, a common word, by expiry": lambda: page(text="lisbon", sort="expiring"),
        "search, the newest of a common word": lambda: inbox.search_sync(
            q="graz", status="any", sort="newest", limit=50
        ),
        "search, two words of no open request together": lambda: inbox.search_sync(
            q="lisbon wrong", limit=50
        ),
        "search, two words of no request together": lambda: inbox.search_sync(
            q="graz late", status="any", sort="newest", limit=50
        ),
        "search, a quick page of these": lambda: store.quick_page(
            Query(text="graz late", status="any", sort="newest", limit=50)
        ),
        "groups": lambda: store.groups(Query(), Viewer()),
        "groups of a word of every request": lambda: store.groups(Query(text="refund"), Viewer()),
        "groups of two words": lambda: store.groups(Query(text="refund lisbon"), Viewer()),
        "groups of a word of no open request": lambda: store.groups(Query(text="graz"), Viewer()),
    }
    for name, read in reads.items():
        yield name, timed(read)
    admin = Reviewer("root", role="admin")
    for days in (7, 30, 365):
        look = lambda days=days: stats(TallyCache(store), admin, days)  # noqa: E731
        yield f"insights, {days} days", timed(look, times=3)
    yield from asyncio.run(steps(store, inbox))
    if brief:
        checkpoint = now_verified(store)
    else:
        policy = sayso.Policy([sayso.Rule("refund", verdict="allow", where="euros < 100")])
        began = time.monotonic()
        replay = inbox.replay_sync(policy, since="400d")
        assert replay.calls >= requests, replay.calls
        yield "replay of a policy, all", round((time.monotonic() - began) * 1000)
        began = time.monotonic()
        first = verify(store)
        assert first.ok, first.problems
        yield "verify, all", round((time.monotonic() - began) * 1000)
        checkpoint = first.checkpoint
    asyncio.run(steps(store, inbox))
    store.seal()
    began = time.monotonic()
    since = verify(store, since=checkpoint)
    assert since.ok, since.problems
    yield f"verify, {STEPS} requests since a checkpoint", round((time.monotonic() - began) * 1000)
    before = oldest(store) + YEAR * 1_000_000 * PRUNED // requests
    began, cpu = time.monotonic(), time.process_time()
    pruned = store.prune(before, "ops")
    yield "prune, a run", round((time.monotonic() - began) * 1000 / pruned["runs"], 2)
    cpu = time.process_time() - cpu
    yield "prune, a run: CPU of our process", round(cpu * 1000 / pruned["runs"], 2)
    yield "pruned runs", pruned["runs"]


def now_verified(store: Store) -> Checkpoint:
    """Return the checkpoint that verifying everything would give now."""
    store.seal()
    cursor = store.tail()
    seal = None
    while seals := store.seals(0 if seal is None else seal.n):
        seal = seals[-1]
    assert seal is not None
    return Checkpoint(store.incarnation, cursor, seal.n, seal.hash)


def timed(look: Callable[[], Any], times: int = READS) -> float:
    """Return the median in milliseconds, after one look that is not counted."""
    look()
    took = []
    for _ in range(times):
        began = time.perf_counter()
        look()
        took.append((time.perf_counter() - began) * 1000)
    return round(median(took), 2)


async def steps(store: Store, inbox: sayso.Inbox) -> list[tuple[str, float]]:
    """Ask, decide and resume one after the other; return the median of each."""
    gate = sayso.Gate(store, agent="clerk", wait=0)
    refund = guarded(gate)
    took: dict[str, list[float]] = {"ask": [], "decide": [], "resume": []}
    first = time.time_ns()  # no run has such a number yet
    for number in range(first, first + STEPS):
        began = time.perf_counter()
        request = await ask(gate, refund, number)
        asked = time.perf_counter()
        await inbox.approve(request, by="ana")
        decided = time.perf_counter()
        await resume(gate, refund, number)
        resumed = time.perf_counter()
        times = (asked - began, decided - asked, resumed - decided)
        for name, seconds in zip(took, times, strict=True):
            took[name].append(seconds * 1000)
    return [(name, round(median(each), 2)) for name, each in took.items()]


def oldest(store: Store) -> int:
    """Return when the first request was created."""
    page = sayso.Inbox(store).search_sync(status="any", sort="oldest", limit=1)
    return int(page.items[0].created_at.timestamp() * 1_000_000)


if __name__ == "__main__":
    main()
