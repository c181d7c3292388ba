"""What a full store costs: a page of the inbox, a cycle, a server that has nothing to do."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.machine import database
from benchmarks.peers import theirs
from benchmarks.rounds import alternating, measured, ours
from benchmarks.row import Check, Effort, Measured, ratio, row


@contextmanager
def filled(*sizes: str) -> Iterator[list[str]]:
    """Stores with so many open requests each: first all SQLite files, then all databases."""
    with tempfile.TemporaryDirectory() as folder:
        urls = [f"sqlite:///{folder}/{size}.db" for size in sizes] + [database() for _ in sizes]
        for url, size in zip(urls, sizes * 2, strict=True):
            measured(ours("fill.py", url, size))
        yield urls


@row(
    "first page of 100,000 open requests, both stores",
    beside="LangGraph, SqliteSaver's list: all that its public face has, at 10,000",
    goal="within 5 ms, and flat (1.3 times) from 1,000 to 100,000",
    durability="reads only",
    shown="wall_ms",
)
def page(effort: Effort) -> Measured:
    few, many, peers = effort.of(1000, 100), effort.of(100_000, 2000), effort.of(10_000, 500)
    times = effort.of(200, 20)
    with filled(few, many) as urls, tempfile.TemporaryDirectory() as folder:
        graph = Path(folder) / "graph.db"
        measured(theirs("langgraph", "graph_listing.py", "build", graph, peers))
        *pages, langgraph = alternating(
            effort,
            *(ours("listing.py", url, times) for url in urls),
            theirs("langgraph", "graph_listing.py", graph),
        )
    few_lite, many_lite, few_pg, many_pg = pages
    return Measured(
        {
            "sayso, SQLite, 1,000": few_lite,
            "sayso, SQLite, 100,000": many_lite,
            "sayso, PostgreSQL, 1,000": few_pg,
            "sayso, PostgreSQL, 100,000": many_pg,
            "langgraph, SQLite, 10,000": langgraph,
        },
        [
            Check("page, SQLite", many_lite["wall_ms"], most=5, unit="ms"),
            Check("page, PostgreSQL", many_pg["wall_ms"], most=5, unit="ms"),
            Check("100,000 to 1,000, SQLite", ratio(many_lite, few_lite, "wall_ms"), most=1.3),
            Check("100,000 to 1,000, PostgreSQL", ratio(many_pg, few_pg, "wall_ms"), most=1.3),
        ],
    )


@row(
    "100,000 paused runs: `sayso serve` over them, both stores",
    beside="the same over 10,000",
    goal="no memory each (20 bytes are the noise), idle CPU below 1 %, ready within 1 s",
    durability="nothing is written",
    shown="memory_bytes",
    explanation=(
        "Ready: nearly all of it are imports, whatever is in the store, and two thirds of these "
        "are FastAPI, pydantic and typer. Measured with bytecode in place, as pip leaves it; "
        "without, as in a checkout where none is written, our own modules take 0.24 s more."
    ),
)
def idle(effort: Effort) -> Measured:
    few, many = effort.of(10_000, 100), effort.of(100_000, 2000)
    seconds = effort.of(5, 2)
    with filled(few, many) as urls:
        served = alternating(effort, *(ours("idle.py", url, seconds) for url in urls))
    few_lite, many_lite, few_pg, many_pg = served
    runs = float(many) - float(few)
    checks = []
    for store, small, large in (
        ("SQLite", few_lite, many_lite),
        ("PostgreSQL", few_pg, many_pg),
    ):
        each = max((large["memory_bytes"] - small["memory_bytes"]) / runs, 0.0)
        checks += [
            Check(f"memory each, {store}", each, most=20, unit="bytes"),
            Check(f"idle CPU, {store}", large["idle_cpu_percent"], most=1, unit="%"),
            Check(f"ready, {store}", large["ready_ms"], most=1000, unit="ms"),
        ]
    return Measured(
        {
            "SQLite, 10,000": few_lite,
            "SQLite, 100,000": many_lite,
            "PostgreSQL, 10,000": few_pg,
            "PostgreSQL, 100,000": many_pg,
        },
        checks,
    )


@row(
    "pause, decide, resume, list with 100,000 open requests",
    beside="an almost empty store of ours",
    goal="each within 1.3 times",
    durability="SQLite, WAL, synchronous=FULL",
    shown="resume_ms",
)
def growth(effort: Effort) -> Measured:
    (figures,) = alternating(effort, ours("growth.py", effort.of(100_000, 2000), effort.of(60, 10)))
    steps = ("pause_ms", "decide_ms", "resume_ms", "list_ms", "rows", "bytes")
    small = {step: figures[f"small_{step}"] for step in steps}
    large = {step: figures[f"large_{step}"] for step in steps}
    return Measured(
        {"50 open": small, "100,000 open": large},
        [Check(step.removesuffix("_ms"), ratio(large, small, step), most=1.3) for step in steps],
    )


@row(
    "resumes per second with 1, 2 and 4 worker processes, PostgreSQL",
    beside="one process",
    goal="2 processes beat 1 where there are 2 cores; below 5 % of claims in vain",
    durability="PostgreSQL, fsync on",
    shown="resumes_per_second",
)
def workers(effort: Effort) -> Measured:
    runs, crews = effort.of(200, 20), ("1", "2", "4")
    sides = [ours("workers.py", database(), crew, runs) for crew in crews]
    one, two, four = alternating(effort, *sides)
    return Measured(
        {"1 process": one, "2 processes": two, "4 processes": four},
        [
            Check("2 processes to 1", ratio(two, one, "resumes_per_second"), least=1.2),
            Check("in vain, 4 processes", four["in_vain_percent"], most=5, unit="%"),
        ],
    )
