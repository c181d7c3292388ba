"""Read a full store: ``python -m benchmarks.full`` prints figures and writes ``plans.txt``.

A store is filled with copies of a few runs, each with MACs of its own, so that every row is one
that Sayso would hand out. Then everything that a page of the web app reads is read from it, on
SQLite and on a PostgreSQL that is started here. ``plans.txt`` has what the databases say about each
statement.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import psycopg

import sayso
from sayso.engine.row_macs import row_mac
from sayso.keys import ENVIRONMENT, new_key
from sayso.rows import Call, call_from, call_values, run_from, run_values
from sayso.server.monitoring import TallyCache
from sayso.server.routes.stats import stats
from sayso.stores import open_store
from sayso.stores.base import NEVER, Query, Store, Viewer, engine_deps
from sayso.stores.sql import statements as sql
from sayso.types import Reviewer
from tests.postgres_server import PostgresServer

PLANS = Path(__file__).with_name("plans.txt")
READS = 20
Mac = Callable[[bytes], str]
_BATCH = 5000
PEOPLE = ("ana", "ben", "cleo", "dan", "eve")
#: What is asked: the tools of the store, and the terms of each.
TOOLS: dict[str, dict[str, Any]] = {
    "refund": {},
    "pay": {"reviewers": ["group:money"]},
    "ship": {"reviewers": ["ben", "ana"]},
    "mail": {"expires_in": 30 * 86_400},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000, help="requests in all")
    parser.add_argument("--open", type=int, default=100_000, help="how many of them are open")
    parser.add_argument("--plans", type=Path, default=PLANS, help="where to write the plans")
    given = parser.parse_args()
    os.environ.setdefault(ENVIRONMENT, new_key())
    folder = Path(tempfile.mkdtemp(prefix="sayso-full-"))
    server = PostgresServer(folder / "pg")
    server.start()
    figures: dict[str, Any] = {"requests": given.requests, "open": given.open}
    figures["load"] = round(os.getloadavg()[0], 1)
    plans: list[str] = [f"{given.requests:,} requests, {given.open:,} of them open."]
    try:
        for name, url in (("sqlite", f"sqlite:///{folder}/full.db"), ("postgres", server.url)):
            fill(url, given.open, given.requests - given.open)
            figures[name], its_plans = read(url)
            plans += [f"\n# {name}", *its_plans]
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    given.plans.write_text("\n".join(plans) + "\n")
    print(json.dumps(figures))


# -- filling


def fill(url: str, pending: int, closed: int) -> None:
    """Copy a few runs with an open request, and a few with a closed one, until there are enough."""
    with closing(open_store(url)) as store:
        mac = engine_deps(store.keys).mac
        asked = [pattern(store, tool, terms) for tool, terms in TOOLS.items()]
        done = [pattern(store, tool, terms, decide=True) for tool, terms in TOOLS.items()]
    with closing(connected(url)) as database:
        for each, count in ((asked, pending), (done, closed)):
            for call_id in each:
                copy(database, mac, url.startswith("sqlite"), call_id, count // len(each))
        database.commit()
    if not url.startswith("sqlite"):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")


def connected(url: str) -> Any:
    if url.startswith("sqlite"):
        return sqlite3.connect(url.removeprefix("sqlite:///"))
    connection = psycopg.connect(url, cursor_factory=psycopg.ClientCursor)
    connection.execute("SET search_path TO sayso")
    return connection


def pattern(store: Store, tool: str, terms: dict[str, Any], *, decide: bool = False) -> str:
    """Ask for a call, and approve it and let it run if wanted; return its id."""
    gate = sayso.Gate(store, agent="clerk", wait=0)

    def body(order: str, euros: int = 20) -> str:
        """Do something about an order."""
        return f"{tool} {order}"

    guarded = gate.guard(needs_approval=True, name=tool, **terms)(body)
    run = f"{tool}-{'closed' if decide else 'open'}"
    with suppress(sayso.Paused), gate.run(run):
        guarded("A-17")
    inbox = sayso.Inbox(store)
    (request,) = [one for one in inbox.pending_sync() if one.thread == run]
    if decide:
        by = sayso.Reviewer("ana", groups=("money",))
        inbox.decide_sync(request.id, request.approve(), by=by)
        with gate.run(run):
            guarded("A-17")
    return request.id


def copy(database: Any, mac: Mac, lite: bool, call_id: str, count: int) -> None:
    """Copy a call and its run with new names, times and MACs."""
    mark = "?" if lite else "%s"
    shown = sql.LISTED
    row = database.execute(
        f"SELECT {sql.CALL}, {shown} FROM call WHERE id = {mark}", (call_id,)
    ).fetchone()
    call = call_from(row)
    listed = dict(zip(shown.split(", "), row[len(Call._fields) :], strict=True))
    run = run_from(
        database.execute(f"SELECT {sql.RUN} FROM run WHERE id = {mark}", (call.run,)).fetchone()
    )

    def rows() -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        for n in range(count):
            later = n * 500_000
            new_run = run._replace(
                id=f"{run.id}-{n}", thread=f"{run.thread}-{n}", created=run.created - later
            )
            new = call._replace(
                id=f"{call.id}-{n}",
                run=new_run.id,
                thread=new_run.thread,
                created=call.created - later,
            )
            # People who take between a second and two hours.
            person, took = PEOPLE[n % len(PEOPLE)], n * 7919 % 7200 * 1_000_000
            # Half of the requests are about Graz, and the others about Ghent.
            place = listed | {"words": f" a-{n} {'graz' if n % 2 else 'ghent'}"}
            if listed["decided_by"] is not None:
                place |= {"decided_by": person, "decided_at": new.created + took}
            new_run = new_run._replace(mac=row_mac(new_run, mac))
            yield (
                run_values(new_run),
                (
                    *call_values(new._replace(mac=row_mac(new, mac))),
                    *place.values(),
                ),
            )

    pairs = rows()
    while batch := list(islice(pairs, _BATCH)):
        for table, columns, values in (
            ("run", sql.RUN, [run_row for run_row, _ in batch]),
            ("call", f"{sql.CALL}, {shown}", [call_row for _, call_row in batch]),
        ):
            add(database, lite, table, columns, values)
    event(database, lite, call_id, count)


def add(database: Any, lite: bool, table: str, columns: str, rows: list[tuple[Any, ...]]) -> None:
    if lite:
        marks = ", ".join("?" * len(rows[0]))
        database.executemany(f"INSERT INTO {table} ({columns}) VALUES ({marks})", rows)
        return
    with database.cursor().copy(f"COPY {table} ({columns}) FROM STDIN") as writer:
        for row in rows:
            writer.write_row([value if value is None else str(value) for value in row])


def event(database: Any, lite: bool, call_id: str, count: int) -> None:
    """Copy the event that asked; nothing that is measured reads it, but the table is full."""
    numbers = (
        f"(WITH RECURSIVE k(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM k "
        f"WHERE value < {count}) SELECT value FROM k)"
        if lite
        else f"(SELECT generate_series(1, {count}) AS value)"
    )
    own = {"thread", "run", "call"}
    names = sql.EVENT.removesuffix(", pos").split(", ")
    values = ", ".join(f"o.{n} || '-' || k.value" if n in own else f"o.{n}" for n in names)
    database.execute(
        f"INSERT INTO event ({', '.join(names)}) SELECT {values} FROM "
        f"(SELECT * FROM event WHERE call = '{call_id}' AND type = 'asked') o, {numbers} k"
    )


# -- reading


def looks(store: Any) -> dict[str, Callable[[], Any]]:
    """What is measured: the reads of the inbox, of the runs, of Insights and of a health check."""
    member = Viewer(names=frozenset(("ana", "group:money")))
    stranger = Viewer(names=frozenset(("zoe",)))
    admin, reviewer = Reviewer("root", role="admin"), Reviewer("ana", ("money",), role="reviewer")
    return {
        "inbox page": lambda: store.page(Query(limit=50)),
        "inbox page, expiring": lambda: store.page(Query(limit=50, sort="expiring")),
        "groups, admin": lambda: store.groups(Query(), Viewer()),
        "groups, reviewer": lambda: store.groups(Query(), member),
        "groups, nobody's reviewer": lambda: store.groups(Query(), stranger),
        "groups, for me": lambda: store.groups(
            Query(), Viewer(names=member.names, only_theirs=True)
        ),
        "groups, searched": lambda: store.groups(Query(text="refund"), member),
        "groups, a common word": lambda: store.groups(Query(text="graz"), Viewer()),
        "search, an order": lambda: store.quick_page(Query(text="a-77")),
        "search, a common word": lambda: store.quick_page(Query(text="graz")),
        "search, two common words": lambda: store.quick_page(Query(text="graz refund")),
        "search, two words that are never together": lambda: store.quick_page(
            Query(text="graz ghent")
        ),
        "search, the same in any status, newest first": lambda: store.quick_page(
            Query(text="graz ghent", status="any", sort="newest")
        ),
        "search, the same by expiry": lambda: store.quick_page(
            Query(text="graz ghent", sort="expiring")
        ),
        "search, a tool by expiry": lambda: store.quick_page(Query(tool="pay", sort="expiring")),
        "search, younger than all": lambda: store.quick_page(Query(created_after=NEVER)),
        "search, older than all, of any status": lambda: store.quick_page(
            Query(created_before=0, status="any")
        ),
        "search, younger than all, by expiry": lambda: store.quick_page(
            Query(created_after=NEVER, sort="expiring")
        ),
        "waiting": store.waiting,
        "health": lambda: (store.tail(), store.restored()),
        "overdue": lambda: store.overdue(1),
        "runs of a status and agent": lambda: store.runs(status="paused", agent="clerk"),
        "insights, admin": lambda: stats(TallyCache(store), admin, 7),
        "insights, reviewer": lambda: stats(TallyCache(store), reviewer, 7),
        "insights, 90 days": lambda: stats(TallyCache(store), admin, 90),
    }


def read(url: str) -> tuple[dict[str, float], list[str]]:
    """Return the median of each look in milliseconds, and the plans of its statements."""
    figures: dict[str, float] = {}
    plans: list[str] = []
    with closing(open_store(url)) as store:
        for name, look in looks(store).items():
            look()
            took = []
            for _ in range(READS):
                began = time.perf_counter()
                look()
                took.append((time.perf_counter() - began) * 1000)
            figures[name] = round(median(took), 2)
            plans += [f"\n## {name}: {figures[name]} ms", *query_plans(store, look)]
    return figures, plans


def query_plans(store: Any, look: Callable[[], Any]) -> list[str]:
    """Return what the database says about each statement of a look."""
    lite = store.url.startswith("sqlite")
    explain = "EXPLAIN QUERY PLAN" if lite else "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF)"
    rows, found = store._rows, list[str]()

    def noting(statement: str, values: Any = ()) -> list[Any]:
        if statement.startswith(("SELECT", "WITH")):
            found.append(f"\n{statement}")
            plan = rows(f"{explain} {statement}", values)
            found.extend(f"    {line[-1]}" for line in plan)
        return list(rows(statement, values))

    store._rows = noting
    try:
        look()
    finally:
        del store._rows
    return found


if __name__ == "__main__":
    main()
