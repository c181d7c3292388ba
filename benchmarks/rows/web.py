"""Over HTTP: an approval in a chat, and an event to many readers."""

from __future__ import annotations

import sys

from benchmarks.peers import npm_of, python_of
from benchmarks.rounds import DRIVERS, OURS, THEIRS, alternating
from benchmarks.row import Check, Effort, Measured, ratio, row


@row(
    "approval POST → `finish`, CPU each",
    beside="AI SDK server and pydantic-ai's adapter, which store nothing",
    goal="twice the AI SDK server's CPU, a third of pydantic-ai's adapter's",
    durability="ours: SQLite, WAL, synchronous=FULL; the peers store nothing",
    shown="cpu_ms",
    explanation=(
        "Half of the adapter, with four durable commits where it makes none. SQLite itself is a "
        "fifth, writing to the socket 7 %; the rest is the agent's loop, the reading of what "
        "moved and the painting of the message, in small pieces. We send 9 chunks where the "
        "peers send 16 and 18, for we tell together what comes within 10 ms."
    ),
)
def chat(effort: Effort) -> Measured:
    driver = (sys.executable, DRIVERS / "chat.py", effort.of(300, 40))
    sayso, ai_sdk, pydantic_ai = alternating(
        effort,
        (*driver, sys.executable, OURS / "server.py"),
        (*driver, "node", npm_of("ai_sdk", "ai_sdk.mjs")),
        (*driver, python_of("pydantic_ai"), THEIRS / "pydantic_ai_server.py"),
    )
    return Measured(
        {"sayso": sayso, "AI SDK": ai_sdk, "pydantic-ai": pydantic_ai},
        [
            Check("CPU, to the AI SDK", ratio(sayso, ai_sdk, "cpu_ms"), most=2),
            Check("CPU, to pydantic-ai", ratio(sayso, pydantic_ai, "cpu_ms"), most=1 / 3),
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
    sayso, uvicorn = alternating(
        effort,
        (*driver, "sayso", sys.executable, OURS / "server.py"),
        (*driver, "bare", sys.executable, THEIRS / "fan_out.py"),
    )
    return Measured(
        {"sayso": sayso, "bare uvicorn": uvicorn},
        [Check("to the last, to uvicorn", ratio(sayso, uvicorn, "last_ms"), most=3)],
    )
