"""Costs do not grow with history: a pause, a decision and a resume write the same rows each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_world import World, asked

from sayso.engine.commands import Finish, Propose
from sayso.rows import Message
from sayso.stores.sqlite import SqliteStore
from sayso.testing.scripted_model import ScriptedModel, call, calls, say

PAY = call("pay", {"amount": 3, "to": None})


class Counted:
    """A store in a file that counts commits and changed rows."""

    def __init__(self, path: Path) -> None:
        self.commits: list[str] = []
        self.store = SqliteStore(path, boundary=self._crossed)
        self.world = World(self.store)

    def _crossed(self, name: str, when: str) -> None:
        if when == "after":
            self.commits.append(name)

    @property
    def rows(self) -> int:
        writer = self.store._writer
        return 0 if writer is None else writer.total_changes

    def grow(self, thread: str, turns: int) -> None:
        """Write a conversation of this many turns at once."""
        for start in range(0, turns, 100):
            run = f"old-{thread}-{start}"
            said = []
            for n in range(start, min(start + 100, turns)):
                said.append({"role": "user", "content": f"question {n} " + "x" * 100})
                reply = {"role": "assistant", "content": f"answer {n}", "calls": [], "run": run}
                said.append(reply)
            messages = tuple(Message(run, json.dumps(m)) for m in said)
            opens = Propose(thread=thread, run=run, agent="assistant", messages=messages)
            self.store.transact(opens, Finish(thread=thread, run=run, status="done", token=0))


@pytest.fixture
def counted(tmp_path: Path) -> Iterator[Counted]:
    counted = Counted(tmp_path / "a.db")
    yield counted
    counted.store.close()


async def one_approval(counted: Counted, thread: str) -> dict[str, Any]:
    """Return rows and commits of each of the three steps."""
    world = counted.world
    agent = world.agent(PAY, say("Done."))
    counts: dict[str, Any] = {}

    def counting(name: str, rows: int, commits: int) -> None:
        counts[name] = (counted.rows - rows, counted.commits[commits:])

    before = counted.rows, len(counted.commits)
    result = await agent.run("pay ana", thread=thread)
    counting("pause", *before)
    before = counted.rows, len(counted.commits)
    (request,) = result.interruptions
    await world.inbox.decide(request.id, request.approve(), by="ana")
    counting("decide", *before)
    before = counted.rows, len(counted.commits)
    assert (await agent.resume(thread)).status == "done"
    counting("resume", *before)
    counts["state"] = len(result.state.to_json())
    return counts


async def test_rows_do_not_grow_with_turns(counted: Counted) -> None:
    await one_approval(counted, "warm")  # the tool itself is stored once
    counted.grow("brief", 1)
    counted.grow("large", 1000)
    assert await one_approval(counted, "large") == await one_approval(counted, "brief")
    assert len(counted.store.messages("large")) == 2004


async def test_gated_call_needs_five_commits(counted: Counted) -> None:
    counts = await one_approval(counted, "t")
    assert counts["pause"][1] == ["propose"]
    assert counts["decide"][1] == ["decide"]
    assert counts["resume"][1] == ["claim+start", "record", "propose+finish"]


@pytest.mark.long
async def test_approvals_on_thread_cost_the_same(
    counted: Counted,
) -> None:
    seen = [await one_approval(counted, "t") for _ in range(100)]
    assert seen[99] == seen[1]
    assert len(counted.world.ran) == 100


async def test_hundred_requests_share_few_commits(counted: Counted) -> None:
    world = counted.world
    many = calls(*(call("pay", {"amount": n, "to": None}) for n in range(100)))
    agent = world.agent(many, say("Done."))
    result = await agent.run("go", thread="t")
    assert len(result.interruptions) == 100
    # One decision and its resume write the same rows, however many others are open.
    costs = []
    for request in result.interruptions[:3]:
        before = counted.rows
        await agent.resume("t", decisions=[request.approve()])
        costs.append(counted.rows - before)
    assert len(set(costs)) == 1
    for request in result.interruptions[3:]:
        result.state.approve(request, by="ana")
    result = await agent.resume(result.state)
    assert (result.status, len(asked(agent))) == ("done", 2)
    assert sorted(amount for amount, _ in world.effects("pay")) == list(range(100))


async def test_resume_costs_the_same_every_turn(counted: Counted) -> None:
    """The pauses belong to one run, not only to one thread."""
    world = counted.world
    agent = world.agent(model=ScriptedModel([*[PAY] * 30, say("Done.")]), max_turns=50)
    result = await agent.run("go", thread="t")
    costs = []
    while result.status == "paused":
        before = counted.rows
        result = await agent.resume("t", decisions=[result.interruptions[0].approve()])
        costs.append(counted.rows - before)
    assert len(costs) == 30
    assert len(set(costs[1:-1])) == 1
