"""Pause, decide, resume with an agent, beside LangGraph: one at a time and many at once."""

from __future__ import annotations

from benchmarks.machine import database
from benchmarks.peers import theirs
from benchmarks.rounds import alternating, ours
from benchmarks.row import Check, Effort, Measured, ratio, row

SQLITE = "SQLite, WAL, synchronous=FULL, on both sides: every commit waits for the disk"
POSTGRES = "one PostgreSQL, fsync and synchronous_commit on, for both sides"


@row(
    "pause → decide → resume, own agent, SQLite",
    beside="LangGraph, SqliteSaver; the same rows in bare SQL",
    goal="a sixth of LangGraph's CPU and wall; at most 5 commits; twice bare SQL's wall",
    durability=SQLITE,
    shown="wall_ms",
    explanation=(
        "Profiled in one thread, a cycle is 3,300 Python calls, of which none takes 5 % but those "
        "of SQLite (15 %) and JSON (5 %). The five transactions are 48 %: moves, hash chain and "
        "signatures 15 %, the rows to SQL 11 %, SQLite the rest. Rows that this process wrote "
        "are not read again, so that reads are 7 %; the loop, the model and asyncio are what is "
        "left. Bare SQL has no digest, no chain, no signature and no lease to make. Fewer calls "
        "would mean fewer promises. Compiling was tried: with the engine, the codec and the rows "
        "to SQL as C (mypyc, 22 modules) a cycle takes 4 % fewer instructions. Of its time 47 % is "
        "spent in CPython's own functions (allocating, looking names up, building tuples), 23 % "
        "in its loop over bytecode, 10 % in SQLite, 9 % in the kernel."
    ),
)
def agent(effort: Effort) -> Measured:
    n = effort.of(100, 20)
    sayso, langgraph, bare = alternating(
        effort,
        ours("cycle.py", n),
        theirs("langgraph", "graph_cycle.py", n),
        ours("bare.py", n),
    )
    return Measured(
        {"sayso": sayso, "langgraph": langgraph, "bare SQL": bare},
        [
            Check("wall, to LangGraph", ratio(sayso, langgraph, "wall_ms"), most=1 / 6),
            Check("CPU, to LangGraph", ratio(sayso, langgraph, "cpu_ms"), most=1 / 6),
            Check("commits", bare["commits"], most=5, unit=""),
            Check("wall, to bare SQL", ratio(sayso, bare, "wall_ms"), most=2),
        ],
    )


@row(
    "pause → decide → resume, own agent, PostgreSQL",
    beside="LangGraph, PostgresSaver",
    goal="a fifth of LangGraph's CPU and wall",
    durability=POSTGRES,
    shown="wall_ms",
    explanation=(
        "With all of it in one thread a cycle takes 5.7 ms of CPU: 47 statements in 17 round "
        "trips, and the agent's own work as on SQLite. The rest of its CPU are the eight hops to "
        "the threads that wait for the database, so that the loop does not. Waiting on the loop "
        "itself was tried (greenlets around libpq), and costs about as much as it saves."
    ),
)
def postgres(effort: Effort) -> Measured:
    n = effort.of(100, 20)
    mine, peers = (database(), database())
    sayso, langgraph = alternating(
        effort, ours("cycle.py", n, mine), theirs("langgraph", "graph_cycle.py", n, peers)
    )
    return Measured(
        {"sayso": sayso, "langgraph": langgraph},
        [
            Check("wall, to LangGraph", ratio(sayso, langgraph, "wall_ms"), most=1 / 5),
            Check("CPU, to LangGraph", ratio(sayso, langgraph, "cpu_ms"), most=1 / 5),
        ],
    )


@row(
    "16 at once, in one process, both stores",
    beside="LangGraph, 16 threads, SqliteSaver and PostgresSaver (a pool of 16)",
    goal="8 times as many a second",
    durability=f"{SQLITE}; {POSTGRES}",
    shown="per_second",
    explanation=(
        "One interpreter: 16 at once cost the CPU of a cycle each (5 ms on SQLite, 9 ms on "
        "PostgreSQL, where 16 threads also wait for their turns at it), and so do the peer's. "
        "More processes on one store are the way to more; this row is about one."
    ),
)
def crowd(effort: Effort) -> Measured:
    n, peers_n = effort.of(640, 64), effort.of(160, 32)
    sqlite, their_sqlite, pg, their_pg = alternating(
        effort,
        ours("crowd.py", n, "16"),
        theirs("langgraph", "graph_crowd.py", peers_n, "16"),
        ours("crowd.py", n, "16", database()),
        theirs("langgraph", "graph_crowd.py", peers_n, "16", database()),
    )
    return Measured(
        {
            "sayso, SQLite": sqlite,
            "langgraph, SQLite": their_sqlite,
            "sayso, PostgreSQL": pg,
            "langgraph, PostgreSQL": their_pg,
        },
        [
            Check("a second, SQLite", ratio(sqlite, their_sqlite, "per_second"), least=8),
            Check("a second, PostgreSQL", ratio(pg, their_pg, "per_second"), least=8),
        ],
    )
