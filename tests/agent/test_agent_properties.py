"""Whatever the model calls and people decide, in any order: nothing runs twice or unapproved, no
request is in vain, the history stays legal, and no run is due without work."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from itertools import chain
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

import sayso
from sayso.agent import Agent, RunResult
from sayso.agent.models import ModelError
from sayso.audit import verify
from sayso.inbox import Inbox
from sayso.rows import CallStatus
from sayso.stores.memory import MemoryStore
from sayso.testing import check_store
from sayso.testing.scripted_model import ScriptedModel, call, calls, say

KINDS = (
    *("free", "gated", "asks", "asks twice", "gated asks", "bodyless", "question", "fails"),
    *("denied", "unknown", "unreadable", "nested", "idempotent"),
)
SIZE = {
    "question": "Size?",
    "options": [
        {"label": "S", "value": "S", "description": None},
        {"label": "L", "value": "L", "description": None},
    ],
    "allow_multiple": False,
    "free_text": False,
}


class Play:
    """A random conversation on one store, with a new agent for every step."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.store = MemoryStore()
        self.inbox = Inbox(self.store)
        self.effects: Counter[tuple[str, int]] = Counter()
        self.turns = data.draw(
            st.lists(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4), max_size=3)
        )
        self.approved: set[str] = set()

    # -- the agent

    def agent(self) -> Agent:
        inner = Agent("inner", model=ScriptedModel(self._inner), tools=[self._gated()])
        return Agent(
            "outer",
            model=ScriptedModel(self._speak),
            tools=[*self._tools(), inner, sayso.ask_user],
            store=self.store,
            policy=sayso.Policy([sayso.Rule(tool="denied", verdict="deny")]),
        )

    def _speak(self, messages: Any) -> Any:
        if self.data.draw(st.integers(0, 19)) == 11:
            raise ModelError("gone")
        last = max(n for n, message in enumerate(messages) if message["role"] == "user")
        turn = sum(message["role"] == "assistant" for message in messages[last:])
        if turn >= len(self.turns):
            return say("Done.")
        return calls(*(self._wants(kind, n) for n, kind in enumerate(self.turns[turn])))

    def _wants(self, kind: str, n: int) -> Any:
        if kind == "question":
            return call("ask_user_question", SIZE)
        if kind == "unreadable":
            return call("free", "{nope")
        if kind == "nested":
            return call("inner", {"input": "go"})
        return call(kind.replace(" ", "_"), {"n": n} if kind != "unknown" else {})

    @staticmethod
    def _inner(messages: Any) -> Any:
        if any(message["role"] == "tool" for message in messages):
            return say("Inner done.")
        return call("gated", {"n": 7})

    def _ran(self, ctx: sayso.Context) -> None:
        self.effects[ctx.call_id, ctx.attempt] += 1

    def _gated(self) -> Any:
        @sayso.tool(needs_approval=True)
        async def gated(ctx: sayso.Context, n: int) -> str:
            """Wait for a yes."""
            self._ran(ctx)
            assert ctx.call_id in self.approved
            return "ran"

        return gated

    def _tools(self) -> list[Any]:
        @sayso.tool
        async def free(ctx: sayso.Context, n: int) -> str:
            """Just run."""
            self._ran(ctx)
            return "ran"

        @sayso.tool(effect="idempotent")
        def idempotent(ctx: sayso.Context, n: int) -> str:
            """Run, in a thread."""
            self._ran(ctx)
            return "ran"

        @sayso.tool
        async def fails(ctx: sayso.Context, n: int) -> str:
            """Fail."""
            self._ran(ctx)
            raise OSError("smoke")

        @sayso.tool
        async def asks(ctx: sayso.Context, n: int) -> str:
            """Ask, then run."""
            try:
                said = await ctx.ask(f"Question {n}?")
            except sayso.Rejected:
                said = "nothing"
            await ctx.once("effect", lambda: self._ran(ctx))
            return f"ran with {said}"

        @sayso.tool
        async def asks_twice(ctx: sayso.Context, n: int) -> str:
            """Ask twice, then run."""
            yes = await ctx.confirm(f"First {n}?") and await ctx.confirm(f"Second {n}?")
            await ctx.once("effect", lambda: self._ran(ctx))
            return f"ran with {yes}"

        @sayso.tool(needs_approval=True)
        async def gated_asks(ctx: sayso.Context, n: int) -> str:
            """Wait for a yes, then ask."""
            assert ctx.call_id in self.approved
            return await asks(ctx, n)

        @sayso.tool
        def bodyless(n: int) -> str: ...

        @sayso.tool
        async def denied(ctx: sayso.Context, n: int) -> str:
            """Never run."""
            raise AssertionError

        return [
            *(free, idempotent, fails, asks, asks_twice, gated_asks, bodyless, denied),
            self._gated(),
        ]

    # -- what happens

    async def play(self) -> None:
        await self._talk()
        report = verify(self.store)
        assert report.ok, report

    async def _talk(self) -> None:
        result = await self._tried(lambda agent: agent.run("go", thread="t"))
        for _ in range(30):
            await self._check(result)
            run = self.store.last_run("t")
            if run is None or run.status in ("done", "failed", "cancelled"):
                return
            result = await self._step(result)
        result = await self._finish(result)
        await self._check(result)

    async def _step(self, result: RunResult | None) -> RunResult | None:
        what = self.data.draw(st.integers(0, 19))
        if what == 7:
            return await self._tried(lambda agent: agent.run("something new", thread="t"))
        if what == 13:
            await self.agent().cancel("t")
            return await self._tried(lambda agent: agent.resume("t"))
        if what == 16 or result is None:
            return await self._tried(lambda agent: agent.resume("t"))
        chosen = [r for r in result.interruptions if self.data.draw(st.booleans())]
        decisions = [self._decision(request) for request in chosen]
        if what % 2:
            for decision in decisions:
                await self.inbox.decide(decision.request or "", decision, by="ana")
            return await self._tried(lambda agent: agent.resume("t"))
        return await self._tried(lambda agent: agent.resume("t", decisions=decisions))

    async def _finish(self, result: RunResult | None) -> RunResult | None:
        """Approve everything until the run ends."""
        for _ in range(60):
            if result is not None and result.status != "paused":
                return result
            requests = result.interruptions if result is not None else ()
            for request in requests:
                decision = self._yes(request)
                await self.inbox.decide(request.id, decision, by="ana")
            result = await self._tried(lambda agent: agent.resume("t"))
        raise AssertionError("it does not end")

    def _yes(self, request: sayso.Request) -> sayso.Decision:
        if "approve" in request.allowed:
            self.approved.add(request.id)
            return request.approve()
        return request.respond("S")

    def _decision(self, request: sayso.Request) -> sayso.Decision:
        how = self.data.draw(st.sampled_from(sorted(request.allowed)))
        if how == "approve":
            return self._yes(request)
        if how == "edit":
            self.approved.add(request.id)
            return request.edit({"n": 8})
        return request.respond("S") if how == "respond" else request.reject("no")

    async def _tried(self, act: Any) -> RunResult | None:
        try:
            result: RunResult = await act(self.agent())
        except ModelError:
            return None
        return result

    # -- what must hold

    async def _check(self, result: RunResult | None) -> None:
        assert max(self.effects.values(), default=1) == 1
        runs = [run.id for _, run in self.store.runs(limit=1000)]
        check_store(self.store, runs)
        self._check_history()
        if result is None:
            return
        pending = {r.id for r in (await self.inbox.pending(limit=500)).items}
        assert {r.id for r in result.interruptions} == pending
        assert bool(pending) == (result.status == "paused")
        assert self.store.ready(["outer", "inner"]) == []
        for done in chain.from_iterable(map(self.store.calls_of, runs)):
            if result.status == "done" and done.thread == "t":
                assert done.status not in (CallStatus.READY, CallStatus.RUNNING)

    def _check_history(self) -> None:
        """Every call is followed by its results, in order, before the next message."""
        said = [json.loads(body) for _, body in self.store.messages("t")]
        waiting: list[str] = []
        for message in said:
            if message["role"] == "tool":
                assert waiting.pop(0) == message["call_id"]
            else:
                assert waiting == []
                waiting = [made["id"] for made in message.get("calls", ())]


@given(data=st.data())
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
def test_any_play_keeps_the_laws(data: st.DataObject) -> None:
    asyncio.run(Play(data).play())
