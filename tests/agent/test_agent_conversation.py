"""Long conversations: only new messages are read, and the model sees what is stored."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso.agent import conversation
from sayso.stores.base import Store
from sayso.stores.memory import MemoryStore
from sayso.stores.sql import maintenance
from sayso.testing import FakeClock, ScriptedModel, call, say

DAY = 86_400_000_000


@sayso.tool(needs_approval=True)
def send(to: str) -> str:
    """Send it."""
    return f"sent to {to}"


class Keeps(ScriptedModel):
    """Pauses after each message, and records what it was shown."""

    def __init__(self) -> None:
        super().__init__(self._next)
        self.shown: list[list[Any]] = []

    def _next(self, messages: Sequence[Any]) -> Any:
        self.shown.append(copy.deepcopy(list(messages)))
        asks = messages[-1]["role"] == "user" and messages[-1]["content"] == "send"
        return call("send", {"to": "ann"}) if asks else say("noted")


def agent_on(store: Store, model: ScriptedModel | None = None) -> sayso.Agent:
    return sayso.Agent("talker", model=model or Keeps(), tools=[send], store=store)


def shown_to(agent: sayso.Agent) -> list[list[Any]]:
    assert isinstance(agent.model, Keeps)
    return agent.model.shown


async def speak(agent: sayso.Agent, times: int, thread: str = "t") -> None:
    for n in range(times):
        await agent.run(f"say {n}", thread=thread)


async def approve(agent: sayso.Agent, thread: str = "t") -> sayso.RunResult:
    inbox = sayso.Inbox(agent.store)
    (request,) = (await inbox.pending()).items
    await inbox.decide(request.id, request.approve(), by="ann")
    return await agent.resume(thread)


class Reads(MemoryStore):
    """Counts the messages that were read."""

    read = 0

    def messages(self, thread: str, after: int = 0) -> list[tuple[int, str]]:
        rows = super().messages(thread, after)
        self.read += len(rows)
        return rows

    def messages_beyond(self, thread: str, after: int, count: int) -> list[tuple[int, str]] | None:
        was, rows = self.read, super().messages_beyond(thread, after, count)
        self.read = was + len(rows or ())
        return rows


async def test_long_conversation_is_read_once() -> None:
    store = Reads()
    agent = agent_on(store)
    await speak(agent, 30)
    store.read = 0
    await agent.run("send", thread="t")
    await approve(agent)
    assert store.read < 20  # of 60 and more
    assert [m["content"] for m in shown_to(agent)[-1][:2]] == ["say 0", "noted"]
    assert len(shown_to(agent)[-1]) == 63


async def test_messages_of_other_processes_are_shown(store: Store) -> None:
    one, other = agent_on(store), agent_on(store)
    await speak(one, 15)
    await speak(other, 3)
    await one.run("send", thread="t")
    result = await approve(other)
    await one.run("last", thread="t")
    contents = [m["content"] for m in shown_to(one)[-1] if m["role"] == "user"]
    said = [f"say {n}" for n in range(15)] + [f"say {n}" for n in range(3)]
    assert contents == [*said, "send", "last"]
    assert result.output == "noted"


async def test_cache_drops_pruned_messages(timed: Store, clock: FakeClock) -> None:
    agent = agent_on(timed)
    await speak(agent, 15)
    await agent.run("send", thread="t")
    await agent.resume("t")  # it is read once more, with the request in it
    clock.advance(3600 * 24 * 3)
    assert timed.prune(clock() - DAY, "ops")["runs"] == 15
    result = await approve(agent)
    assert result.output == "noted"
    roles = [message["role"] for message in shown_to(agent)[-1]]
    assert roles == ["user", "assistant", "tool"]


async def test_partly_pruned_thread_is_read_again(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs are pruned in batches, in the order of their ids: a thread may have a gap meanwhile."""
    monkeypatch.setattr(maintenance, "PRUNE_RUNS", 1)
    store = sayso.open_store(tmp_path / "s.db", clock=clock)
    agent = agent_on(store)
    threads = [f"t{n}" for n in range(6)]
    for thread in threads:
        await speak(agent, 12, thread)
    clock.advance(3600 * 24 * 3)

    def has_gap(thread: str) -> bool:
        numbers = [number for number, _ in store.messages(thread)]
        return len(numbers) < 24 and {1, 24} <= set(numbers)

    gaps: list[str] = []

    class Died(Exception):
        """Pruning ends between two batches."""

    def pause(seconds: float) -> None:
        gaps.extend(filter(has_gap, threads))
        if gaps:
            raise Died

    monkeypatch.setattr(maintenance.time, "sleep", pause)
    with pytest.raises(Died):
        store.prune(clock() - DAY, "ops")
    for thread in gaps:
        stored = [json.loads(body) for _, body in store.messages(thread)]
        await agent.run("last", thread=thread)
        shown = shown_to(agent)[-1]
        assert [m["content"] for m in shown] == [m["content"] for m in stored] + ["last"]
    store.close()


async def test_model_cannot_change_stored_messages(store: Store) -> None:
    class Spoils(Keeps):
        async def reply(self, request: Any) -> Any:
            reply = await super().reply(request)
            for message in request.messages:
                for made in message.get("calls", ()):
                    made.clear()
                message.clear()
            return reply

    agent = agent_on(store, Spoils())
    for _ in range(8):
        await agent.run("send", thread="t")
        assert (await approve(agent)).output == "noted"
    last = shown_to(agent)[-1]
    roles = ["user", "assistant", "tool", "assistant"]
    assert [message["role"] for message in last] == [*roles * 7, *roles[:3]]
    assert last[-2]["calls"][0]["name"] == last[1]["calls"][0]["name"] == "send"


async def test_model_cannot_change_later_requests(store: Store) -> None:
    class Late(Keeps):
        before: Sequence[Any] = ()

        async def reply(self, request: Any) -> Any:
            reply = await super().reply(request)
            for message in self.before:
                for made in message.get("calls", ()):
                    made["name"] = "spoilt"
            self.before = request.messages
            return reply

    agent = agent_on(store, Late())
    for _ in range(8):
        await agent.run("send", thread="t")
        assert (await approve(agent)).output == "noted"
    names = [
        made["name"] for shown in shown_to(agent) for m in shown for made in m.get("calls", ())
    ]
    assert set(names) == {"send"}


async def test_tool_cannot_change_stored_messages(store: Store) -> None:
    @sayso.tool(name="send")
    def spoil(ctx: sayso.Context, to: str) -> str:
        """Send it."""
        for message in ctx.messages:
            message.clear()
        return to

    agent = sayso.Agent("talker", model=Keeps(), tools=[spoil], store=store)
    for _ in range(8):
        assert (await agent.run("send", thread="t")).output == "noted"
    assert {m["content"] for m in shown_to(agent)[-1] if m["role"] == "user"} == {"send"}


async def test_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Reads()
    agent = agent_on(store)
    await speak(agent, 15, "first")
    monkeypatch.setattr(conversation, "_MOST_BYTES", 45_000)
    await speak(agent, 15, "second")
    store.read = 0
    await speak(agent, 1, "second")
    assert store.read < 5
    store.read = 0
    await speak(agent, 1, "first")
    assert store.read >= 30


async def test_usage_of_run_is_counted_once(store: Store) -> None:
    def uses(messages: Sequence[Any]) -> Any:
        asks = [m.get("content") for m in messages[-3:]].count("send") and len(messages) < 28
        reply = call("send", {"to": "ann"}) if asks else say("noted")
        return replace(reply, usage={"input_tokens": 5})

    agent = agent_on(store, ScriptedModel(uses))
    await speak(agent, 12)
    await agent.run("send", thread="t")
    paused = await approve(agent)
    assert (paused.status, paused.usage) == ("paused", {"input_tokens": 10})
    again = await agent.resume("t")
    assert again.usage == {"input_tokens": 10}
    done = await approve(agent)
    assert (done.output, done.usage) == ("noted", {"input_tokens": 15})
