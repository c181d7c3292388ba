"""What a long thread costs: in bytes, in time, and in a run's state."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.peers import HOME, theirs
from benchmarks.rounds import alternating, measured, ours
from benchmarks.row import Check, Effort, Measured, ratio, row


@row(
    "bytes per paused thread; at 500 prior messages",
    beside="LangGraph, SqliteSaver",
    goal="half of LangGraph's; the same with and without the history",
    durability="SQLite files after a checkpoint, growth by the pauses alone",
    shown="long_bytes",
)
def sizes(effort: Effort) -> Measured:
    many, few = effort.of(200, 40), effort.of(40, 10)
    sayso, langgraph = alternating(
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
    goal="the last within 1.1 times the first; all bytes within 3 times the conversation",
    durability="SQLite, WAL, synchronous=FULL, on both sides; bytes are the values in all rows",
    shown="bytes",
    explanation=(
        "Time: what grows is that the model is given all messages, which are first compared with "
        "the stored ones; only new ones are read and copied. "
        "Bytes: an approval adds 0.3 kB to the conversation, and 2.0 kB of record, five facts "
        "with their hashes; that is what the audit is made of."
    ),
)
def hundred(effort: Effort) -> Measured:
    count = effort.of(100, 20)
    sayso, langgraph = alternating(
        effort,
        ours("hundred.py", count, effort.of(5, 1)),
        theirs("langgraph", "graph_hundred.py", count, "1"),
    )
    return Measured(
        {"sayso": sayso, "langgraph": langgraph},
        [
            Check("the last to the first", sayso["last_ms"] / sayso["first_ms"], most=1.1),
            Check(
                "bytes, to the conversation", sayso["bytes"] / sayso["conversation_bytes"], most=3
            ),
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
        sayso, openai = alternating(
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
)
def decide(effort: Effort) -> Measured:
    requests = effort.of(100, 30)
    sayso, openai = alternating(
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
    (figures,) = alternating(effort, ours("history.py", effort.of(1000, 100), effort.of(25, 5)))
    short, long = _halves(figures, "short", "long")
    return Measured(
        {"new thread": short, "1,000 turns": long},
        [
            Check("rows", ratio(long, short, "rows"), most=1.3),
            Check("bytes", ratio(long, short, "bytes"), most=1.3),
            Check("time at the store", ratio(long, short, "store_ms"), most=1.3),
        ],
    )


def _halves(figures: dict[str, float], *names: str) -> list[dict[str, float]]:
    def half(start: str) -> dict[str, float]:
        return {key.removeprefix(start): figures[key] for key in figures if key.startswith(start)}

    return [half(f"{name}_") for name in names]
