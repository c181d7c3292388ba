"""The agent that every script of ours runs: one guarded tool, and a model that answers at once."""

from __future__ import annotations

import json
import secrets
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import sayso
from sayso.agent.models.base import ModelReply, ModelRequest, TextDelta
from sayso.engine.commands import Finish, Propose
from sayso.rows import Message
from sayso.stores.base import Store
from sayso.testing import call, calls, say

#: Threads of this process begin with it: a database may hold those of an earlier round.
OWN = secrets.token_hex(4)
MAIL = {"to": "a@example.com", "body": "hello"}
WORDS = "The quick brown fox jumps over the lazy dog, then files a ticket. " * 3


@sayso.tool(needs_approval=True)
def send_email(to: str, body: str) -> str:
    """Send an email."""
    return f"sent to {to}"


@sayso.tool
def look(q: str) -> str:
    """Look something up."""
    return "saw " + WORDS


class Instant:
    """Looks ``looks`` times, sends ``mails`` times (``at_once`` in one reply), and is done."""

    name = "instant"

    def __init__(self, *, mails: int = 1, looks: int = 0, at_once: int = 1) -> None:
        self._mails, self._looks, self._at_once = mails, looks, at_once

    async def reply(self, request: ModelRequest) -> ModelReply:
        turn = 0
        for message in reversed(request.messages):
            if message["role"] == "user":
                break
            turn += message["role"] == "assistant"
        if turn < self._looks:
            return call("look", {"q": "a"}, id=f"look-{turn}")
        if turn < self._looks + self._mails:
            wanted = [call("send_email", MAIL, id=f"mail-{turn}-{i}") for i in range(self._at_once)]
            return calls(*wanted)
        return say("done")

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        yield await self.reply(request)


def agent_on(store: str | Store | None, **script: int) -> sayso.Agent:
    """Return the agent on a store."""
    tools = [send_email, look]
    return sayso.Agent("bench", model=Instant(**script), tools=tools, store=store, max_turns=5000)


def bench() -> sayso.Agent:
    """Return the agent for the command line, which gives it a store."""
    return agent_on(None)


def speak(store: Store, thread: str, messages: list[dict[str, Any]]) -> None:
    """Store a conversation on a thread."""
    rows = tuple(Message("before", json.dumps(message)) for message in messages)
    store.transact(
        Propose(thread=thread, run=f"before-{thread}", agent="bench", messages=rows),
        Finish(thread=thread, run=f"before-{thread}", status="done", token=0),
    )


async def cycle(agent: sayso.Agent, inbox: sayso.Inbox, thread: str) -> None:
    """Pause, decide, resume."""
    paused = await agent.run("send it", thread=thread)
    request = paused.interruptions[0]
    await inbox.decide(request.id, request.approve(), by="ann")
    done = await agent.resume(thread)
    assert done.output == "done"


async def timed(once: Callable[[int], Awaitable[None]], n: int, warm: int = 20) -> dict[str, float]:
    """Return milliseconds each: wall (the median) and CPU (the mean)."""
    for i in range(warm):
        await once(-i - 1)
    walls = []
    cpu = time.process_time()
    for i in range(n):
        began = time.perf_counter()
        await once(i)
        walls.append(time.perf_counter() - began)
    cpu = (time.process_time() - cpu) / n
    return {"wall_ms": statistics.median(walls) * 1e3, "cpu_ms": cpu * 1e3}
