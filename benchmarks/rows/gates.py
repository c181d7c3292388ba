"""Without an agent: one guarded call beside holdpoint, and news from one process to another."""

from __future__ import annotations

from benchmarks.machine import database
from benchmarks.peers import theirs
from benchmarks.rounds import alternating, ours
from benchmarks.row import Check, Effort, Measured, ratio, row


@row(
    "ask → approve → run once, no agent",
    beside="holdpoint, with the fsync that it leaves out by default",
    goal="at most 1.2 times its wall",
    durability="SQLite, WAL, synchronous=FULL, on both sides",
    shown="wall_ms",
    explanation=(
        "Four commits on both sides. Of 2.9 ms of CPU without a disk, SQLite takes 0.9 (42 "
        "statements), JSON 0.3, HMAC 0.1; the rest is 2,100 small Python calls. What the peer "
        "does not do: arguments "
        "checked against a schema and run from the stored bytes, a digest, a signed decision "
        "that is verified before the start, a chain of five facts, a lease."
    ),
)
def once(effort: Effort) -> Measured:
    n = effort.of(200, 40)
    sayso, holdpoint = alternating(
        effort, ours("gate.py", n), theirs("holdpoint", "holdpoint_once.py", n)
    )
    return Measured(
        {"sayso": sayso, "holdpoint": holdpoint},
        [Check("wall, to holdpoint", ratio(sayso, holdpoint, "wall_ms"), most=1.2)],
    )


@row(
    "decision → resumed in another process, both stores",
    beside="no peer does this",
    goal="median within 10 ms, 99th percentile within 50 ms",
    durability="the decision is synced to disk before the clock starts",
    shown="p50_ms",
)
def news(effort: Effort) -> Measured:
    n = effort.of(150, 20)
    sqlite, pg = alternating(effort, ours("news.py", n), ours("news.py", n, database()))
    return Measured(
        {"sayso, SQLite": sqlite, "sayso, PostgreSQL": pg},
        [
            Check("median, SQLite", sqlite["p50_ms"], most=10, unit="ms"),
            Check("99th, SQLite", sqlite["p99_ms"], most=50, unit="ms"),
            Check("median, PostgreSQL", pg["p50_ms"], most=10, unit="ms"),
            Check("99th, PostgreSQL", pg["p99_ms"], most=50, unit="ms"),
        ],
    )
