"""Pause, decide and resume on a thread with many turns behind it, and on a new one.

Prints rows and bytes written per cycle of the agent, and the milliseconds of the same commands at
the store, each measured on both threads in turn. The agent's own time is printed as well: reading
the conversation for the model is the one part that must grow with it.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time

import assent
from assent.engine.commands import Decide, Finish, NewCall, Propose, Record, Start
from assent.rows import Message
from assent.stores.sqlite import SqliteStore
from assent.testing import ScriptedModel
from assent.testing.scripted_model import call, say
from assent.types import Reviewer, Terms

CYCLES = 25


@assent.tool(needs_approval=True)
def send_email(to: str, body: str) -> str:
    """Send an email."""
    return f"sent to {to}"


def speak(store: SqliteStore, thread: str, turns: int) -> None:
    """Put this many turns of the user and the assistant behind a thread."""
    said = []
    for turn in range(turns):
        said.append({"role": "user", "content": f"{turn} " + "x" * 200})
        said.append({"role": "assistant", "content": "y" * 200, "calls": [], "run": "before"})
    rows = tuple(Message("before", json.dumps(message)) for message in said)
    store.transact(
        Propose(thread=thread, run=f"before-{thread}", agent="bench", messages=rows),
        Finish(thread=thread, run=f"before-{thread}", status="done"),
    )


async def cycle(agent: assent.Agent, thread: str) -> dict[str, float]:
    store = agent.store
    assert isinstance(store, SqliteStore)
    inbox = assent.Inbox(store)
    rows = store._open_writer().total_changes
    wal = os.path.getsize(f"{store.path}-wal")
    began = time.perf_counter()
    paused = await agent.run("send it", thread=thread)
    request = paused.interruptions[0]
    await inbox.decide(request.id, request.approve(), by="ann")
    await agent.resume(thread)
    return {
        "agent_ms": (time.perf_counter() - began) * 1e3,
        "rows": store._open_writer().total_changes - rows,
        "bytes": os.path.getsize(f"{store.path}-wal") - wal,
    }


def at_the_store(store: SqliteStore, thread: str, i: int) -> float:
    """The milliseconds of ask, decide, start, record and finish, without a model."""
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
    ((call,),) = store.transact(Start(**where, calls=(request,), owner="o", lease=30_000_000))
    record = Record(
        **where, call=request, token=call.token, attempt=call.attempt, ok=True, result="1"
    )
    store.transact(record)
    store.transact(Finish(**where, status="done", messages=said))
    return (time.perf_counter() - began) * 1e3


async def main(turns: int) -> None:
    with tempfile.TemporaryDirectory() as folder:

        def answer(messages: list[dict[str, str]]) -> object:
            wanted = {"to": "a@example.com", "body": "hello"}
            return say("done") if messages[-1]["role"] == "tool" else call("send_email", wanted)

        agent = assent.Agent(
            "bench",
            model=ScriptedModel(answer),
            tools=[send_email],
            store=f"sqlite:///{folder}/assent.db",
        )
        assert isinstance(agent.store, SqliteStore)
        agent.store._open_writer().execute("PRAGMA wal_autocheckpoint=0")
        speak(agent.store, "long", turns)
        figures: dict[str, list[dict[str, float]]] = {"short": [], "long": []}
        for i in range(CYCLES):
            figures["short"].append(await cycle(agent, f"short-{i}"))
            figures["long"].append(await cycle(agent, "long"))
        speak(agent.store, "far", turns)
        for i in range(CYCLES):
            figures["short"][i]["store_ms"] = at_the_store(agent.store, f"near-{i}", i)
            figures["long"][i]["store_ms"] = at_the_store(agent.store, "far", i)
        out = {
            f"{name}_{key}": statistics.median(c[key] for c in cycles[3:])
            for name, cycles in figures.items()
            for key in cycles[0]
        }
        print(json.dumps(out))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
