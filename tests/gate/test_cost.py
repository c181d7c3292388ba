"""What asking costs, in Python calls and statements: these do not depend on the machine."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import sayso
from sayso.testing import ScriptedModel, call, say

#: Python calls of a call that is asked about, approved and run: see docs/benchmarks.md, ``once``.
MOST_CALLS = 1_020
MOST_STATEMENTS = 40
#: The same for our own agent that pauses, is decided and resumes, without those of asyncio: see
#: docs/benchmarks.md, ``agent``.
MOST_AGENT_CALLS = 1_595
MOST_AGENT_STATEMENTS = 54

SAYSO = str(Path(sayso.__file__).parent)


class Counting:
    """Counts the calls of every OS thread that was started after this."""

    def __init__(self, *, only_ours: bool = False) -> None:
        self.counts: Counter[str] = Counter()
        self.on = False
        self._only_ours = only_ours

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        if not self.on:
            return
        file = frame.f_code.co_filename
        if event == "call" and file != __file__:
            self.counts["calls"] += not self._only_ours or file.startswith(SAYSO)
        elif event == "c_call" and getattr(arg, "__qualname__", "") == "Connection.execute":
            self.counts["statements"] += 1


@contextmanager
def profiled(counting: Counting) -> Iterator[None]:
    profile = sys.getprofile()
    threading.setprofile(counting)
    sys.setprofile(counting)
    try:
        yield
    finally:
        sys.setprofile(profile)
        threading.setprofile(None)


def test_guarded_call_stays_within_its_cost(tmp_path: Path) -> None:
    counting = Counting()
    with profiled(counting), sayso.Gate(f"sqlite:///{tmp_path}/sayso.db", wait=0) as gate:
        inbox = sayso.Inbox(gate.store)

        @gate.guard(needs_approval=True)
        def send(to: str, subject: str, body: str) -> str:
            return "sent"

        def once(number: int) -> None:
            try:
                send(f"u{number}@example.com", "hi", "x" * 200)
            except sayso.Paused as paused:
                (request,) = paused.requests
            inbox.decide_sync(request.id, request.approve(), by="ann")
            with gate.run(request.run):
                assert send(f"u{number}@example.com", "hi", "x" * 200) == "sent"

        for number in range(5):
            once(number)
        counting.on = True
        once(5)
        counting.on = False
    assert 0 < counting.counts["calls"] <= MOST_CALLS
    assert 0 < counting.counts["statements"] <= MOST_STATEMENTS


def test_agent_that_pauses_stays_within_its_cost(tmp_path: Path) -> None:
    counting = Counting(only_ours=True)

    @sayso.tool(needs_approval=True)
    async def send(to: str, body: str) -> str:
        return f"sent to {to}"

    mail = {"to": "a@example.com", "body": "hello"}
    script = [reply for _ in range(6) for reply in (call("send", mail), say("done"))]
    agent = sayso.Agent(
        "bench",
        model=ScriptedModel(script),
        tools=[send],
        store=f"sqlite:///{tmp_path}/sayso.db",
    )
    inbox = sayso.Inbox(agent.store)

    async def cycle(thread: str) -> None:
        paused = await agent.run("send it", thread=thread)
        (request,) = paused.interruptions
        await inbox.decide(request.id, request.approve(), by="ann")
        done = await agent.resume(thread)
        assert done.output == "done"

    async def cycles() -> None:
        for number in range(5):
            await cycle(f"t-{number}")
        counting.on = True
        await cycle("t-5")
        counting.on = False

    with profiled(counting):
        asyncio.run(cycles())
    agent.close()
    assert 0 < counting.counts["calls"] <= MOST_AGENT_CALLS
    assert 0 < counting.counts["statements"] <= MOST_AGENT_STATEMENTS
