"""Every row of the table, in its order: what is run beside what, and the goal."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.machine import database, preload_slow_disk
from benchmarks.peers import HOME, npm_of, python_of, theirs
from benchmarks.rounds import DRIVERS, OURS, THEIRS, Command, measured, ours, run_alternately
from benchmarks.row import Check, Effort, Measured, Row, ratio

ROWS: dict[str, Row] = {}


def row(
    work: str, *, beside: str, goal: str, durability: str, shown: str, explanation: str = ""
) -> Callable[[Callable[[Effort], Measured]], Callable[[Effort], Measured]]:
    """Register a function that measures a row. The row has the function's name."""

    def keep(measure: Callable[[Effort], Measured]) -> Callable[[Effort], Measured]:
        name = measure.__name__
        ROWS[name] = Row(name, work, beside, goal, durability, shown, measure, explanation)
        return measure

    return keep


SQLITE = "SQLite, WAL, synchronous=FULL, on both sides: every commit waits for the disk"
POSTGRES = "one PostgreSQL, fsync and synchronous_commit on, for both sides"


@row(
    "pause → decide → resume, own agent, SQLite",
    beside="LangGraph, SqliteSaver; the same rows in bare SQL",
    goal="at most 1/2.7 of LangGraph's CPU and wall; at most 5 commits",
    durability=SQLITE,
    shown="wall_ms",
    explanation=(
        "A cycle makes 2,100 Python calls (2,730 when this was measured). Handing its five commits "
        "to the OS thread that commits "
        "for all callers takes a tenth of the time (docs/decisions/0041); until November 2026 the "
        "event loop committed itself, and met the goal. Apart from SQLite (15 %) and "
        "JSON (5 %), no function takes 5 % of the time. The five transactions take 48 %: moves, "
        "hash chain and signatures 15 %, converting rows to SQL 11 %, SQLite the rest. A process "
        "does not read rows again that it wrote itself, so reads take 7 %; the loop, the model and "
        "asyncio take the rest. Bare SQL computes no digest, chain, signature or lease; fewer "
        "calls would mean fewer guarantees. Compiling does not help: with the engine, the codec "
        "and the row conversion as C (mypyc, 22 modules), a cycle takes 4 % fewer instructions. "
        "47 % of the time is spent in CPython's own functions (allocating, looking up names, "
        "building tuples), 23 % in its bytecode loop, 10 % in SQLite and 9 % in the kernel."
    ),
)
def agent(effort: Effort) -> Measured:
    n = effort.of(100, 20)
    sayso, langgraph, bare = run_alternately(
        effort,
        ours("cycle.py", n),
        theirs("langgraph", "graph_cycle.py", n),
        ours("bare.py", n),
    )
    return Measured(
        {"sayso": sayso, "langgraph": langgraph, "bare SQL": bare},
        [
            Check("wall, to LangGraph", ratio(sayso, langgraph, "wall_ms"), most=1 / 2.7),
            Check("CPU, to LangGraph", ratio(sayso, langgraph, "cpu_ms"), most=1 / 2.7),
            Check("commits", bare["commits"], most=5, unit=""),
        ],
    )


@row(
    "pause → decide → resume, own agent, PostgreSQL",
    beside="LangGraph, PostgresSaver",
    goal="at most 1/2.4 of LangGraph's CPU",
    durability=POSTGRES,
    shown="wall_ms",
    explanation=(
        "In one thread, a cycle takes 5.7 ms of CPU: 47 statements in 17 round trips, and the "
        "agent's own work as on SQLite. The rest is eight switches to the worker threads that wait "
        "for the database, so that the event loop does not wait."
    ),
)
def postgres(effort: Effort) -> Measured:
    n = effort.of(100, 20)
    mine, peers = (database(), database())
    sayso, langgraph = run_alternately(
        effort, ours("cycle.py", n, mine), theirs("langgraph", "graph_cycle.py", n, peers)
    )
    return Measured(
        {"sayso": sayso, "langgraph": langgraph},
        [
            Check("CPU, to LangGraph", ratio(sayso, langgraph, "cpu_ms"), most=1 / 2.4),
        ],
    )


@row(
    "16 at once, in one process, both stores",
    beside="LangGraph, 16 threads, SqliteSaver and PostgresSaver (16 connections on both sides)",
    goal="3.5 times as many a second on SQLite, 2.5 times on PostgreSQL",
    durability=f"{SQLITE}; {POSTGRES}",
    shown="per_second",
    explanation=(
        "Both sides run in one interpreter, so each of the 16 costs the CPU of a whole cycle, and "
        "on SQLite that is nearly all of the time. The callers share syncs of the SQLite file, and "
        "nothing else: each has its own transaction and, on PostgreSQL, its own connection. To go "
        "faster, start more processes on one store; this row measures one process."
    ),
)
def crowd(effort: Effort) -> Measured:
    n, peers_n = effort.of(640, 64), effort.of(160, 32)
    sqlite, their_sqlite, pg, their_pg = run_alternately(
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
            Check("a second, SQLite", ratio(sqlite, their_sqlite, "per_second"), least=3.5),
            Check("a second, PostgreSQL", ratio(pg, their_pg, "per_second"), least=2.5),
        ],
    )


@row(
    "ask → approve → run once, no agent",
    beside="holdpoint and CTRLRun, with the fsync that they leave out by default",
    goal="at most 2.9 times holdpoint's wall, and at most CTRLRun's",
    durability="SQLite, WAL, synchronous=FULL, on all sides",
    shown="wall_ms",
    explanation=(
        "Four commits here and in holdpoint, fifteen in CTRLRun. Of 4.3 ms of CPU without a disk, "
        "SQLite took 1.0 (41 statements; 32 are left); the rest was 1,570 small Python calls, of "
        "which 800 are left since (docs/decisions/0062), and four "
        "hand-overs to the OS thread that commits for all callers (0.25 ms), which keeps an "
        "interrupt of one caller from reaching another. "
        "What holdpoint does not do: arguments checked against a schema and run "
        "from the stored bytes, a digest, a signed decision that is verified before the start, a "
        "chain of five facts, a lease. CTRLRun's eleven more commits cost little on a disk that "
        "syncs in a fraction of a millisecond; on a slower one, we need a third of its time."
    ),
)
def once(effort: Effort) -> Measured:
    n = effort.of(200, 40)
    sayso, holdpoint, ctrlrun = run_alternately(effort, *_once(n))
    return Measured(
        {"sayso": sayso, "holdpoint": holdpoint, "ctrlrun": ctrlrun},
        [
            Check("wall, to holdpoint", ratio(sayso, holdpoint, "wall_ms"), most=2.9),
            Check("wall, to CTRLRun", ratio(sayso, ctrlrun, "wall_ms"), most=1),
        ],
    )


def _once(n: str) -> tuple[Command, Command, Command]:
    return (
        ours("gate.py", n),
        theirs("holdpoint", "holdpoint_once.py", n),
        theirs("ctrlrun", "ctrlrun_once.py", n),
    )


@row(
    "the rows agent, crowd and once, on SQLite, with a disk that takes 3 ms longer for each sync",
    beside="LangGraph; holdpoint and CTRLRun",
    goal="6 times as many at once as LangGraph",
    durability="SQLite, WAL, synchronous=FULL, on all sides; fsync and fdatasync sleep for 3 ms "
    "(LD_PRELOAD, benchmarks/slow_disk.c)",
    shown="wall_ms",
    explanation=(
        "One at a time, the syncs are most of the wall: five commits are 17 of the 22 ms of an "
        "agent's cycle, and four are 14 of the 17 ms of a guarded call, as in holdpoint. Fewer "
        "commits would mean that a decision, a start or a result is not on the disk when it is "
        "reported. At once, they share commits."
    ),
)
def slow_disk(effort: Effort) -> Measured:
    n, shim = effort.of(100, 10), preload_slow_disk(HOME)
    once, holdpoint, ctrlrun = run_alternately(effort, *_once(n), more=shim)
    cycle, graph = run_alternately(
        effort,
        ours("cycle.py", n),
        theirs("langgraph", "graph_cycle.py", n),
        more=shim,
    )
    many, their_many = effort.of(320, 64), effort.of(80, 32)
    crowd, graphs = run_alternately(
        effort,
        ours("crowd.py", many, "16"),
        theirs("langgraph", "graph_crowd.py", their_many, "16"),
        more=shim,
    )
    return Measured(
        {
            "sayso, agent": cycle,
            "langgraph": graph,
            "sayso, 16 at once": crowd,
            "langgraph, 16 at once": graphs,
            "sayso, once": once,
            "holdpoint": holdpoint,
            "ctrlrun": ctrlrun,
        },
        [
            Check("16 at once, to LangGraph", ratio(crowd, graphs, "per_second"), least=6),
        ],
    )


@row(
    "the rows postgres and crowd, on PostgreSQL, with a disk that takes 3 ms longer for each sync",
    beside="LangGraph, PostgresSaver (16 threads; 16 connections on both sides of the crowd)",
    goal="none",
    durability=f"{POSTGRES}; the server's fsync and fdatasync sleep for 3 ms (LD_PRELOAD, "
    "benchmarks/slow_disk.c)",
    shown="wall_ms",
    explanation=(
        "One at a time, five commits wait for 17 of the 31 ms of a cycle, and LangGraph's for 45 "
        "of its 68 ms. Fewer commits would mean that a decision, a start or a result is not on the "
        "disk when it is reported. At once, the server shares the syncs of many connections."
    ),
)
def slow_postgres(effort: Effort) -> Measured:
    n = effort.of(100, 10)
    cycle, graph = run_alternately(
        effort,
        ours("cycle.py", n, database(slow_disk=True)),
        theirs("langgraph", "graph_cycle.py", n, database(slow_disk=True)),
    )
    many, their_many = effort.of(320, 64), effort.of(80, 32)
    crowd, graphs = run_alternately(
        effort,
        ours("crowd.py", many, "16", database(slow_disk=True)),
        theirs("langgraph", "graph_crowd.py", their_many, "16", database(slow_disk=True)),
    )
    return Measured(
        {
            "sayso, agent": cycle,
            "langgraph": graph,
            "sayso, 16 at once": crowd,
            "langgraph, 16 at once": graphs,
        },
        [],
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
    sqlite, pg = run_alternately(effort, ours("news.py", n), ours("news.py", n, database()))
    return Measured(
        {"sayso, SQLite": sqlite, "sayso, PostgreSQL": pg},
        [
            Check("median, SQLite", sqlite["p50_ms"], most=10, unit="ms"),
            Check("99th, SQLite", sqlite["p99_ms"], most=50, unit="ms"),
            Check("median, PostgreSQL", pg["p50_ms"], most=10, unit="ms"),
            Check("99th, PostgreSQL", pg["p99_ms"], most=50, unit="ms"),
        ],
    )


@row(
    "ask → message at the platform, sent by another process, both stores",
    beside="no peer does this",
    goal="median within 250 ms; 50 messages a second",
    durability="the request is synced to disk before the clock starts, and each message once sent",
    shown="p50_ms",
)
def messages(effort: Effort) -> Measured:
    sizes = (effort.of(100, 10), effort.of(50, 5))
    sqlite, pg = run_alternately(
        effort, ours("messages.py", *sizes), ours("messages.py", *sizes, database())
    )
    return Measured(
        {"sayso, SQLite": sqlite, "sayso, PostgreSQL": pg},
        [
            Check("median, SQLite", sqlite["p50_ms"], most=250, unit="ms"),
            Check("median, PostgreSQL", pg["p50_ms"], most=250, unit="ms"),
            Check("messages a second, SQLite", sqlite["per_second"], least=50, unit=""),
            Check("messages a second, PostgreSQL", pg["per_second"], least=50, unit=""),
        ],
    )


@row(
    "bytes per paused thread; at 500 prior messages",
    beside="LangGraph, SqliteSaver",
    goal="half of LangGraph's; the same with and without the history",
    durability="SQLite files after a checkpoint, growth by the pauses alone",
    shown="long_bytes",
)
def sizes(effort: Effort) -> Measured:
    many, few = effort.of(200, 40), effort.of(40, 10)
    sayso, langgraph = run_alternately(
        effort,
        ours("sizes.py", many, "500"),
        theirs("langgraph", "graph_sizes.py", few, "500"),
    )
    file = sayso["long_bytes"] / sayso["new_bytes"]
    values = sayso["long_values_bytes"] / sayso["new_values_bytes"]
    return Measured(
        {"sayso": sayso, "langgraph": langgraph},
        [
            Check("bytes, new thread", ratio(sayso, langgraph, "new_bytes"), most=1 / 2),
            Check("bytes, 500 messages", ratio(sayso, langgraph, "long_bytes"), most=1 / 2),
            # Pages of the file fill differently, so it gets the room of the other such rows.
            Check("file, 500 messages to none", file, most=1.3),
            Check("values, 500 messages to none", values, most=1.05),
        ],
    )


@row(
    "100 approvals on one thread",
    beside="LangGraph, SqliteSaver",
    goal="the last within 1.1 times the first",
    durability="SQLite, WAL, synchronous=FULL, on both sides; bytes are the values in all rows",
    shown="bytes",
    explanation=(
        "Time grows because the model is given all messages, which are first compared with the "
        "stored ones; only new ones are read and copied. Bytes: an approval adds 0.3 kB to the "
        "conversation and 2.0 kB to the record (five events with their hashes), which the audit "
        "needs."
    ),
)
def hundred(effort: Effort) -> Measured:
    count = effort.of(100, 20)
    sayso, langgraph = run_alternately(
        effort,
        ours("hundred.py", count, effort.of(5, 1)),
        theirs("langgraph", "graph_hundred.py", count, "1"),
    )
    return Measured(
        {"sayso": sayso, "langgraph": langgraph},
        [
            Check("the last to the first", sayso["last_ms"] / sayso["first_ms"], most=1.1),
        ],
    )


@row(
    "1,000-turn thread: export, load, resume",
    beside="OpenAI Agents SDK (state in memory, stored nowhere)",
    goal="a twentieth of its wall and CPU; state and messages within 1.5 times the conversation",
    durability="ours: SQLite, WAL, synchronous=FULL; the peer stores nothing",
    shown="wall_ms",
)
def thousand(effort: Effort) -> Measured:
    turns = effort.of(1000, 100)
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "ours"
        measured(ours("thousand.py", "build", built, turns))
        state = HOME / "openai_agents" / f"state-{turns}.json"
        if not state.exists():  # a thousand turns take the SDK minutes
            measured(theirs("openai_agents", "openai_thousand.py", "build", state, turns))
        sayso, openai = run_alternately(
            effort,
            ours("thousand.py", built, effort.of(5, 1)),
            theirs("openai_agents", "openai_thousand.py", state, "1"),
        )
    kept = sayso["state_bytes"] + sayso["messages_bytes"]
    return Measured(
        {"sayso": sayso, "openai-agents": openai},
        [
            Check("wall, to OpenAI Agents", ratio(sayso, openai, "wall_ms"), most=1 / 20),
            Check("CPU, to OpenAI Agents", ratio(sayso, openai, "cpu_ms"), most=1 / 20),
            Check("bytes, to the conversation", kept / sayso["conversation_bytes"], most=1.5),
        ],
    )


@row(
    "decide 100 open requests of one run",
    beside="OpenAI Agents SDK (state in memory, stored nowhere)",
    goal="a hundredth of its CPU",
    durability="ours: 100 decisions in SQLite, WAL, synchronous=FULL; the peer stores nothing",
    shown="cpu_ms",
    explanation=(
        "Each decision is a commit that the store's own OS thread makes, and looks for refusals of "
        "equal calls: 1.2 ms of CPU, where it was 0.8 ms before rejections lasted and callers "
        "became independent (docs/decisions/0041 and 0045)."
    ),
)
def decide(effort: Effort) -> Measured:
    requests = effort.of(100, 30)
    sayso, openai = run_alternately(
        effort,
        ours("many.py", requests, effort.of(5, 1)),
        theirs("openai_agents", "openai_many.py", requests),
    )
    return Measured(
        {"sayso": sayso, "openai-agents": openai},
        [Check("CPU, to OpenAI Agents", ratio(sayso, openai, "cpu_ms"), most=1 / 100)],
    )


@row(
    "pause, decide, resume on a thread with 1,000 turns",
    beside="a new thread of ours",
    goal="within 1.3 times in time at the store, rows and bytes",
    durability="SQLite, WAL, synchronous=FULL",
    shown="bytes",
)
def history(effort: Effort) -> Measured:
    (figures,) = run_alternately(effort, ours("history.py", effort.of(1000, 100), effort.of(25, 5)))
    names = ("rows", "bytes", "store_ms", "agent_ms")
    short, long = (
        {name: figures[f"{side}_{name}"] for name in names} for side in ("short", "long")
    )
    return Measured(
        {"new thread": short, "1,000 turns": long},
        [
            Check("rows", ratio(long, short, "rows"), most=1.3),
            Check("bytes", ratio(long, short, "bytes"), most=1.3),
            Check("time at the store", ratio(long, short, "store_ms"), most=1.3),
        ],
    )


@contextmanager
def filled(*sizes: str) -> Iterator[list[str]]:
    """Yield stores with this many open requests: all SQLite files, then all databases."""
    with tempfile.TemporaryDirectory() as folder:
        urls = [f"sqlite:///{folder}/{size}.db" for size in sizes] + [database() for _ in sizes]
        for url, size in zip(urls, sizes * 2, strict=True):
            measured(ours("fill.py", url, size))
        yield urls


@row(
    "first page of 100,000 open requests, both stores",
    beside="LangGraph, SqliteSaver's list (the only public API for it), at 10,000",
    goal="within 5 ms, and flat (1.3 times) from 1,000 to 100,000",
    durability="reads only",
    shown="wall_ms",
    explanation=(
        "The time is spent on the 50 rows of the page, whatever is behind it: each is read, its "
        "MAC is verified, and it is decoded. On PostgreSQL that took 4.5 ms of CPU on this "
        "machine, and 2.2 ms on another with as many cores, where the page took 2.5 ms."
    ),
)
def page(effort: Effort) -> Measured:
    few, many, peers = effort.of(1000, 100), effort.of(100_000, 2000), effort.of(10_000, 500)
    times = effort.of(200, 20)
    with filled(few, many) as urls, tempfile.TemporaryDirectory() as folder:
        graph = Path(folder) / "graph.db"
        measured(theirs("langgraph", "graph_listing.py", "build", graph, peers))
        *pages, langgraph = run_alternately(
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
    goal="no memory each (20 bytes are the noise); on PostgreSQL, idle CPU below 1 %",
    durability="nothing is written",
    shown="memory_bytes",
    explanation=(
        "Nearly all of the time until it is ready is spent on imports, whatever is in the store; "
        "two thirds of them are FastAPI, pydantic and typer. Measured with compiled bytecode, as "
        "pip installs it; without it, our own modules take 0.24 s more. On SQLite, an idle server "
        "asks the file 120 times a second whether another process has committed, so that a "
        "decision is noticed within 10 ms. On this machine, each question takes 0.2 ms of CPU; on "
        "another with as many cores it took 0.04 ms, and a server was ready within 0.8 s."
    ),
)
def idle(effort: Effort) -> Measured:
    few, many = effort.of(10_000, 100), effort.of(100_000, 2000)
    seconds = effort.of(5, 2)
    with filled(few, many) as urls:
        served = run_alternately(effort, *(ours("idle.py", url, seconds) for url in urls))
    few_lite, many_lite, few_pg, many_pg = served
    runs = float(many) - float(few)
    checks = []
    for store, small, large in (
        ("SQLite", few_lite, many_lite),
        ("PostgreSQL", few_pg, many_pg),
    ):
        each = max((large["memory_bytes"] - small["memory_bytes"]) / runs, 0.0)
        checks.append(Check(f"memory each, {store}", each, most=20, unit="bytes"))
    checks.append(Check("idle CPU, PostgreSQL", many_pg["idle_cpu_percent"], most=1, unit="%"))
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
    (figures,) = run_alternately(
        effort, ours("growth.py", effort.of(100_000, 2000), effort.of(60, 10))
    )
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
    explanation=(
        "The database server runs on the same two cores and competes with the workers for them: "
        "a run costs it about 60 % as much CPU as it costs them. With a server elsewhere there "
        "would be more to gain."
    ),
)
def workers(effort: Effort) -> Measured:
    runs, crews = effort.of(200, 20), ("1", "2", "4")
    sides = [ours("workers.py", database(), crew, runs) for crew in crews]
    one, two, four = run_alternately(effort, *sides)
    return Measured(
        {"1 process": one, "2 processes": two, "4 processes": four},
        [
            Check("2 processes to 1", ratio(two, one, "resumes_per_second"), least=1.2),
            Check("in vain, 4 processes", four["in_vain_percent"], most=5, unit="%"),
        ],
    )


@row(
    "approval POST → `finish`, CPU each",
    beside="AI SDK server and pydantic-ai's adapter, which store nothing",
    goal="twice the AI SDK server's CPU",
    durability="ours: SQLite, WAL, synchronous=FULL; the peers store nothing",
    shown="cpu_ms",
    explanation=(
        "Half of the adapter's CPU, with four durable commits where it makes none. SQLite takes a "
        "fifth, writing to the socket 7 %; the rest is the agent's loop, reading what changed and "
        "building the message. We send 9 chunks where the peers send 16 and 18, because we join "
        "what arrives within 10 ms."
    ),
)
def chat(effort: Effort) -> Measured:
    driver = (sys.executable, DRIVERS / "chat.py", effort.of(300, 40))
    sayso, ai_sdk, pydantic_ai = run_alternately(
        effort,
        (*driver, sys.executable, OURS / "server.py"),
        (*driver, "node", npm_of("ai_sdk", "ai_sdk.mjs")),
        (*driver, python_of("pydantic_ai"), THEIRS / "pydantic_ai_server.py"),
    )
    return Measured(
        {"sayso": sayso, "AI SDK": ai_sdk, "pydantic-ai": pydantic_ai},
        [
            Check("CPU, to the AI SDK", ratio(sayso, ai_sdk, "cpu_ms"), most=2),
        ],
    )


@row(
    "an event to 1,000 SSE readers",
    beside="bare uvicorn, which fans out and does nothing else",
    goal="3 times its time to the last reader",
    durability="ours: asked and stored in SQLite, WAL, synchronous=FULL; the peer stores nothing",
    shown="last_ms",
)
def feed(effort: Effort) -> Measured:
    driver = (sys.executable, DRIVERS / "feed.py", effort.of(1000, 50))
    sayso, uvicorn = run_alternately(
        effort,
        (*driver, "sayso", sys.executable, OURS / "server.py"),
        (*driver, "bare", sys.executable, THEIRS / "fan_out.py"),
    )
    return Measured(
        {"sayso": sayso, "bare uvicorn": uvicorn},
        [Check("to the last, to uvicorn", ratio(sayso, uvicorn, "last_ms"), most=3)],
    )


@row(
    "a free read through the MCP proxy, and 100 at once",
    beside="the same server and client, connected directly",
    goal="3.2 ms more at the median",
    durability='none: free reads with `record = "asked"` are not stored',
    shown="p50_ms",
    explanation=(
        "A read through the proxy passes the MCP SDK twice: as the proxy's server, and as its "
        "client of the real server. So it adds about as much as one direct read takes: 2.9 ms "
        "on this machine, and 1.7 ms on another, where the proxy added 1.8 ms."
    ),
)
def proxy(effort: Effort) -> Measured:
    driver = (sys.executable, DRIVERS / "mcp_reads.py", effort.of(500, 30))
    sayso, direct = run_alternately(effort, (*driver, "proxy"), (*driver, "direct"))
    added = sayso["p50_ms"] - direct["p50_ms"]
    return Measured(
        {"sayso proxy": sayso, "direct": direct},
        [
            Check("more at the median", added, most=3.2, unit="ms"),
        ],
    )


@row(
    "`from sayso import Gate, Inbox, Agent`",
    beside="`from langchain.agents import create_agent`",
    goal="at most 1/3.9 of its CPU",
    durability="nothing is written",
    shown="cpu_ms",
    explanation=(
        "`import sayso` alone imports almost nothing; these three classes need 60 modules of ours. "
        "About 40 % of the time is spent building their 120 dataclasses (Python writes and "
        "compiles the methods of each), 20 % in asyncio and the rest of the standard library. "
        "pydantic comes with the first tool."
    ),
)
def imports(effort: Effort) -> Measured:
    sayso, langchain = run_alternately(
        effort,
        ours("importing.py", "from sayso import Gate, Inbox, Agent"),
        (
            python_of("langgraph"),
            OURS / "importing.py",
            "from langchain.agents import create_agent",
        ),
    )
    return Measured(
        {"sayso": sayso, "langchain": langchain},
        [Check("CPU, to LangChain", ratio(sayso, langchain, "cpu_ms"), most=1 / 3.9)],
    )


@row(
    "LangChain agent, one tool call that needs no approval",
    beside="the same agent without a gate",
    goal="at most 25 % more CPU",
    durability="Sayso commits to SQLite, synchronous=FULL; the bare agent stores nothing",
    shown="cpu_ms",
    explanation=(
        "The bare agent keeps its checkpoints in memory and records nothing. Guarded, a run makes "
        "four commits: the user's message, which takes the thread; the start of the call; its "
        "result; and the answer, which ends the run. They take half of the instructions that are "
        "added. A third is spent on the event loop: the policy, the arguments, and the places of "
        "calls. The rest are worker threads, which keep the store off the event loop: one read of "
        "the log, and the four commits. To wake them takes more time than instructions."
    ),
)
def guarded(effort: Effort) -> Measured:
    n = effort.of(200, 10)
    sayso, bare = run_alternately(
        effort, ours("guarded.py", n, "guarded"), ours("guarded.py", n, "bare")
    )
    return Measured(
        {"guarded": sayso, "bare": bare},
        [Check("CPU, to the bare agent", ratio(sayso, bare, "cpu_ms"), most=1.25)],
    )
