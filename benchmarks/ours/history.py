"""Measure pause, decide and resume on a thread with many turns, and on a new one.

python history.py TURNS CYCLES

Alternates between both threads. Prints rows and bytes written per cycle of the agent, and the
milliseconds of the same commands at the store. Also prints the agent's own time, which grows with
the conversation because the model reads all of it.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time

import watching  # before anything opens a file
from scene import agent_on, speak
from scene import cycle as run_cycle

import sayso
from sayso.engine.commands import Decide, Finish, NewCall, Propose, Record, Start
from sayso.rows import Message
from sayso.stores.base import Store
from sayso.types import Reviewer, Terms

TURN = [
    {"role": "user", "content": "x" * 200},
    {"role": "assistant", "content": "y" * 200, "calls": [], "run": "before"},
]


async def cycle(agent: sayso.Agent, path: str, thread: str) -> dict[str, float]:
    inbox = sayso.Inbox(agent.store)
    rows, logged = watching.written(path)
    began = time.perf_counter()
    await run_cycle(agent, inbox, thread)
    took = (time.perf_counter() - began) * 1e3
    rows_now, logged_now = watching.written(path)
    return {"agent_ms": took, "rows": rows_now - rows, "bytes": logged_now - logged}


def at_the_store(store: Store, thread: str, i: int) -> float:
    """Return the milliseconds of ask, decide, start, record and finish, without a model."""
    run, request = f"{thread}-{i}", f"req-{thread}-{i}"
    where = {"thread": thread, "run": run}
    new = NewCall(
        id=request,
        key="1.0",
        kind="approval",
        tool="send_email",
        tool_digest="t",
        args="{}",
        args_hash="h",
        nonce="n",
        terms=Terms(),
    )
    said = tuple(Message(run, json.dumps({"role": "user", "content": "x" * 200})) for _ in "ab")
    began = time.perf_counter()
    ((asked,),) = store.transact(Propose(**where, agent="bench", calls=(new,), messages=said))
    yes = {"type": "approve", "by": Reviewer("ann"), "channel": "bench"}
    store.transact(Decide(**where, call=request, seen_digest=asked.digest, **yes))
    decided = store.call(request)
    assert decided is not None
    start = Start(**where, calls=(request,), seen=(decided.mac,), owner="o", lease=30_000_000)
    ((call,),) = store.transact(start)
    record = Record(
        **where, call=request, token=call.token, attempt=call.attempt, ok=True, result="1"
    )
    store.transact(record)
    store.transact(Finish(**where, status="done", token=call.token, messages=said))
    return (time.perf_counter() - began) * 1e3


async def main(turns: int, cycles: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/sayso.db"
        agent = agent_on(f"sqlite:///{path}")
        speak(agent.store, "long", TURN * turns)
        figures: dict[str, list[dict[str, float]]] = {"short": [], "long": []}
        for i in range(cycles + 3):
            figures["short"].append(await cycle(agent, path, f"short-{i}"))
            figures["long"].append(await cycle(agent, path, "long"))
        speak(agent.store, "far", TURN * turns)
        for i in range(cycles + 3):
            figures["short"][i]["store_ms"] = at_the_store(agent.store, f"near-{i}", i)
            figures["long"][i]["store_ms"] = at_the_store(agent.store, "far", i)
        agent.close()
        out = {
            f"{name}_{key}": statistics.median(c[key] for c in taken[3:])
            for name, taken in figures.items()
            for key in taken[0]
        }
        print(json.dumps(out))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
