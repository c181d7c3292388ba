"""Load one PostgreSQL server: ``python -m benchmarks.scale`` prints the figures of docs/scale.md.

Several processes ask, decide and resume real runs on one server, started here with its data on this
machine's disk and fsync on. Then the store is filled with copies of a paused run, which is faster
than asking a million times, and pages of the inbox are read from it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import psycopg

import sayso
from benchmarks.rounds import measured, ours
from sayso.agent.agent import lend_store
from sayso.keys import ENVIRONMENT, new_key
from sayso.stores.postgres import PostgresStore
from sayso.testing import ScriptedModel, call, say
from tests.postgres_server import PostgresServer

PHASES = ("open", "decide", "resume")
READS = 300


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1000, help="runs in all")
    parser.add_argument("--processes", type=int, default=4, help="that share them")
    parser.add_argument("--rows", default="10000,100000", help="sizes at which pages are read")
    given = parser.parse_args()
    sizes = [int(size) for size in given.rows.split(",") if size]
    os.environ.setdefault(ENVIRONMENT, new_key())
    folder = Path(tempfile.mkdtemp(prefix="sayso-scale-"))
    server = PostgresServer(folder)
    server.start()
    try:
        figures = {**about(server.url), **work(server.url, given.requests, given.processes)}
        figures["pages"] = [pages(server.url, size) for size in sizes]
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(figures))


def about(url: str) -> dict[str, Any]:
    """Describe the machine."""
    ((version,),) = sql(url, "SHOW server_version")
    return {
        "python": platform.python_version(),
        "postgres": version,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }


def sql(url: str, statement: str, *values: Any) -> list[Any]:
    """Run a statement and return its rows."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


# -- ask, decide, resume


def work(url: str, requests: int, processes: int) -> dict[str, Any]:
    """Run the steps one after the other, each in all processes at the same time."""
    each = requests // processes
    with closing(PostgresStore(url)):
        pass  # create the tables before measuring
    before = size(url)
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(processes + 1)
    times = context.Queue()
    team = [
        context.Process(target=share, args=(url, n, each, barrier, times)) for n in range(processes)
    ]
    for process in team:
        process.start()
    count = each * processes
    figures: dict[str, Any] = {"requests": count, "processes": processes}
    for phase in PHASES:
        barrier.wait()
        began = time.monotonic()
        barrier.wait()
        figures[f"{phase}_per_second"] = round(count / (time.monotonic() - began), 1)
        figures[f"bytes_per_thread_after_{phase}"] = (size(url) - before) // count
    cpu = [times.get() for _ in team]
    figures["cpu_ms_per_request"] = round(sum(cpu) * 1000 / count, 2)
    figures["server_cpu_ms_per_request"] = round(server_cpu(url) * 1000 / count, 2)
    barrier.wait()
    for process in team:
        process.join()
    return figures


def server_cpu(url: str) -> float:
    """Return the CPU seconds that Sayso's sessions have used, on Linux."""
    pids = sql(url, "SELECT pid FROM pg_stat_activity WHERE application_name = 'sayso'")
    ticks = 0
    for (pid,) in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def size(url: str) -> int:
    """Return the size of all tables and indexes of the store, in bytes."""
    statement = (
        "SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c "
        "JOIN pg_namespace s ON s.oid = c.relnamespace WHERE s.nspname = 'sayso' AND relkind = 'r'"
    )
    return int(sql(url, statement)[0][0])


def share(url: str, number: int, each: int, barrier: Any, times: Any) -> None:
    """Run the share of one process."""

    @sayso.tool(needs_approval=True)
    def refund(order: str, euros: int) -> str:
        """Give money back."""
        return f"paid {order}"

    def agent(n: int) -> sayso.Agent:
        asks = call("refund", {"order": f"A-{number}-{n}", "euros": 20})
        made = sayso.Agent("clerk", model=ScriptedModel([asks, say("Done.")]), tools=[refund])
        lend_store(made, store)
        return made

    with closing(PostgresStore(url)) as store, sayso.Inbox(store) as inbox:
        agents = [agent(n) for n in range(each)]
        asked: list[Any] = []

        def opened() -> None:
            for n, one in enumerate(agents):
                asked.append(one.run_sync("Refund it", thread=f"order-{number}-{n}"))

        def decided() -> None:
            for result in asked:
                (request,) = result.interruptions
                inbox.decide_sync(request.id, request.approve(), by="ana")

        def resumed() -> None:
            for one, result in zip(agents, asked, strict=True):
                assert one.resume_sync(result.run).status == "done"

        began = time.process_time()
        for phase in (opened, decided, resumed):
            barrier.wait()
            phase()
            barrier.wait()
        times.put(time.process_time() - began)
        barrier.wait()  # the parent reads the sessions before they end


# -- pages


def pages(url: str, rows: int) -> dict[str, Any]:
    """Measure pages of the inbox with this many pending requests."""
    ((there,),) = sql(url, "SELECT count(*) FROM sayso.call WHERE list_status = 'asked'")
    measured(ours("fill.py", url, str(rows), str(there)), {ENVIRONMENT: os.environ[ENVIRONMENT]})
    with closing(PostgresStore(url)) as store, sayso.Inbox(store) as inbox:
        first = inbox.pending_sync(limit=50)
        looks: dict[str, Callable[[], Any]] = {
            "first": lambda: inbox.pending_sync(limit=50),
            "second": lambda: inbox.pending_sync(limit=50, after=first.next),
            "searched": lambda: inbox.search_sync(q="email", limit=50),
            "expiring": lambda: inbox.pending_sync(limit=50, sort="expiring"),
        }
        return {"rows": rows, **{name: timed(url, look) for name, look in looks.items()}}


def timed(url: str, look: Callable[[], Any]) -> dict[str, float]:
    """Return median, 95th percentile and CPU of each side, in milliseconds."""
    took, cpu, theirs = [], time.process_time(), server_cpu(url)
    for _ in range(READS):
        began = time.perf_counter()
        look()
        took.append((time.perf_counter() - began) * 1000)
    return {
        "p50_ms": round(median(took), 2),
        "p95_ms": round(quantiles(took, n=20)[-1], 2),
        "cpu_ms": round((time.process_time() - cpu) * 1000 / READS, 2),
        "server_cpu_ms": round((server_cpu(url) - theirs) * 1000 / READS, 2),
    }


if __name__ == "__main__":
    main()
