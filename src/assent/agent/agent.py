"""A small agent of our own: function calling with approvals and questions built in."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from assent import codec
from assent.agent.events import AgentEvent, Result
from assent.agent.loop import Advance
from assent.agent.models import Model, resolve
from assent.agent.state import RunState
from assent.agent.tool import Tool, as_tool, tool
from assent.engine.commands import Cancel
from assent.errors import Conflict, NotFound, Paused
from assent.gate import Gate
from assent.inbox import Inbox
from assent.policy import Policy
from assent.rows import LIVE, Run
from assent.stores.base import Store
from assent.twin import News
from assent.types import Decision, Request

Channel = Callable[[Request], Awaitable[None]]
Listener = Callable[[AgentEvent], None]


class Agent:
    """Instructions, a model and tools; every call it makes is a row, and what needs a person waits.

    ``model`` is ``"openai:gpt-4o"``, ``"openai-responses:…"`` or a Model object. ``store`` is a URL or a
    store. ``on_change`` says what happens when the agent changed while people thought: ``resume``,
    ``ask`` (what was approved is asked again) or ``refuse``; a changed tool is always asked again.
    """

    def __init__(
        self,
        name: str,
        *,
        model: str | Model,
        instructions: str = "",
        tools: Iterable[Any] = (),
        store: str | Store | None = None,
        policy: Policy | str | Path | None = None,
        output_type: Any = None,
        max_turns: int = 20,
        tool_choice: str | Mapping[str, Any] = "auto",
        parallel_tool_calls: bool | None = None,
        settings: Mapping[str, Any] | None = None,
        on_change: str = "resume",
        channels: Iterable[Channel] = (),
        listeners: Iterable[Listener] = (),
        lease: float = 30.0,
    ) -> None:
        if on_change not in ("resume", "ask", "refuse"):
            raise ValueError(f"on_change={on_change!r}: use resume, ask or refuse")
        if type(max_turns) is not int or max_turns < 1:
            raise ValueError("max_turns is a whole number from 1")
        self.name = name
        self.model = resolve(model)
        self.instructions = instructions
        self.tools = _named(tools)
        self.max_turns = max_turns
        self.tool_choice = tool_choice
        self.parallel_tool_calls = parallel_tool_calls
        self.settings = dict(settings or {})
        self.on_change = on_change
        self.listeners = list(listeners)
        self.output = None
        if output_type is not None:
            from assent.agent.output import OutputType

            self.output = OutputType(output_type)
        self._store = store
        self._policy = policy
        self._channels = tuple(channels)
        self._lease = lease
        self._gate: Gate | None = None

    @property
    def gate(self) -> Gate:
        """The agent's door, opened on first use."""
        if self._gate is None:
            self._gate = Gate(
                self._store or "memory://",
                policy=self._policy,
                agent=self.name,
                wait=0,
                channels=self._channels,
                lease=self._lease,
            )
        return self._gate

    @property
    def store(self) -> Store:
        """Where its runs are kept."""
        return self.gate.store

    def lend(self, store: str | Store) -> None:
        """Give a store to an agent that named none."""
        if self._store is None and self._gate is None:
            self._store = store

    @property
    def digest(self) -> str:
        """What the agent is, as a hash: name, instructions and tools."""
        tools = [[t.name, t.stored.digest] for t in self.tools.values()]
        return codec.digest({"name": self.name, "say": self.instructions, "tools": tools})

    # -- running

    async def run(
        self,
        input: str,
        *,
        thread: str | None = None,
        requester: str = "",
        deps: Any = None,
        max_turns: int | None = None,
    ) -> Result:
        """Answer the user's words; ``paused`` if people are needed first."""
        return await self._begin(
            input, self._tell, thread, requester, deps, max_turns, streams=False
        )

    async def resume(
        self,
        where: RunState | str,
        *,
        decisions: Iterable[Decision] = (),
        by: str = "user",
        deps: Any = None,
    ) -> Result:
        """Go on with a paused run, by its state, its id or its thread, here or in another process."""
        return await self._resume(where, self._tell, list(decisions), by, deps, streams=False)

    def stream(self, input: str, **options: Any) -> AsyncIterator[AgentEvent]:
        """The same as ``run``, as events; the last one holds the result."""
        return self._streamed(
            lambda emit: self._begin(
                input,
                emit,
                options.get("thread"),
                options.get("requester", ""),
                options.get("deps"),
                options.get("max_turns"),
                streams=True,
            )
        )

    def stream_resume(self, where: RunState | str, **options: Any) -> AsyncIterator[AgentEvent]:
        """The same as ``resume``, as events."""
        return self._streamed(
            lambda emit: self._resume(
                where,
                emit,
                list(options.get("decisions", ())),
                options.get("by", "user"),
                options.get("deps"),
                streams=True,
            )
        )

    def run_sync(self, input: str, **options: Any) -> Result:
        return asyncio.run(self.run(input, **options))

    def resume_sync(self, where: RunState | str, **options: Any) -> Result:
        return asyncio.run(self.resume(where, **options))

    async def cancel(self, where: str, *, by: str = "user", reason: str = "cancelled") -> None:
        """Call off a run by its id or its thread; what is running finishes and is recorded."""
        run = await asyncio.to_thread(self._find, where)
        command = Cancel(thread=run.thread, run=run.id, by=by, reason=reason)
        await asyncio.to_thread(self.store.transact, command)

    def cancel_sync(self, where: str, **options: Any) -> None:
        asyncio.run(self.cancel(where, **options))

    def as_tool(self, name: str | None = None, description: str | None = None) -> Tool:
        """This agent as a tool of another; its pauses surface there and resume in here."""
        inner = self
        # The inner run is kept under the outer call, so that starting again only goes on with it.
        from assent.agent.context import Context

        async def ask_agent(ctx: Context, input: str) -> Any:
            return await inner._inside(ctx, input)

        described = description or f"Ask {self.name}: {self.instructions}"[:1000]
        made = tool(name=name or self.name, description=described, idempotent=True)
        return made(ask_agent)

    async def _inside(self, ctx: Any, input: str) -> Any:
        self.lend(ctx._gate.store)
        thread = f"{ctx.thread}/{ctx.call_id}"
        known = await asyncio.to_thread(self.store.last_run, thread)
        if known is None:
            result = await self._begin(
                input,
                self._tell,
                thread,
                "",
                ctx.deps,
                None,
                streams=False,
                parent_call=ctx.call_id,
            )
        else:
            result = await self._resume(thread, self._tell, [], "user", ctx.deps, streams=False)
        if result.status == "paused":
            raise Paused(result.run, result.interruptions)
        if result.status != "done":
            raise RuntimeError(f"{self.name}: {result.error}")
        return result.output

    # -- inside

    def _tell(self, event: AgentEvent) -> None:
        for listener in self.listeners:
            listener(event)

    async def _streamed(
        self, work: Callable[[Listener], Awaitable[Result]]
    ) -> AsyncIterator[AgentEvent]:
        """Run beside the reader: who stops reading does not stop a call in mid-effect."""
        queue: asyncio.Queue[AgentEvent | None] = asyncio.Queue()

        def emit(event: AgentEvent) -> None:
            self._tell(event)
            queue.put_nowait(event)

        task = asyncio.ensure_future(work(emit))
        task.add_done_callback(lambda _: queue.put_nowait(None))
        _running.add(task)
        task.add_done_callback(_running.discard)
        while (event := await queue.get()) is not None:
            yield event
        await task

    async def _begin(
        self,
        input: str,
        emit: Listener,
        thread: str | None,
        requester: str,
        deps: Any,
        max_turns: int | None,
        *,
        streams: bool,
        parent_call: str | None = None,
    ) -> Result:
        if not isinstance(input, str) or not input.strip():
            raise ValueError("say something: run() takes the user's words")
        codec.canonical(input)
        thread = thread or "thread_" + secrets.token_hex(8)
        while True:
            await self._make_room(thread, requester)
            advance = Advance(
                self,
                thread,
                "run_" + secrets.token_hex(8),
                emit,
                requester=requester,
                deps=deps,
                max_turns=max_turns or self.max_turns,
                streams=streams,
                parent_call=parent_call,
            )
            try:
                return await advance.begin(input)
            except Conflict:
                # Somebody else began a run on this thread while our model was thinking.
                if await asyncio.to_thread(self.store.run, advance.run) is not None:
                    raise

    async def _make_room(self, thread: str, requester: str) -> None:
        """New words over a paused run supersede what it asked; over a running one they wait."""
        with closing(News(self.store, thread)) as news:
            while (live := await asyncio.to_thread(self.store.live_run, thread)) is not None:
                now = self.store.now()
                held = live.owner is not None and (live.ready_at or 0) > now
                if held:
                    await news.wait(min(self.gate.lease / 3, 5.0))
                    continue
                command = Cancel(
                    thread=thread,
                    run=live.id,
                    by=requester or "user",
                    reason="the user wrote something new",
                    superseded=True,
                )
                await asyncio.to_thread(self.store.transact, command)

    async def _resume(
        self,
        where: RunState | str,
        emit: Listener,
        decisions: list[Decision],
        by: str,
        deps: Any,
        *,
        streams: bool,
    ) -> Result:
        if isinstance(where, RunState):
            where.check(self.store, self.name)
        run = await asyncio.to_thread(self._find, where)
        inbox = Inbox(self.store)
        if isinstance(where, RunState):
            for staged in where.staged:
                await inbox.decide(
                    staged.decision.request or "", staged.decision, by=staged.by, channel="state"
                )
            where.staged.clear()
        for decision in decisions:
            await inbox.decide(decision.request or "", decision, by=by)
        changed = self._changed(run)
        advance = Advance(
            self,
            run.thread,
            run.id,
            emit,
            deps=deps,
            max_turns=self.max_turns,
            streams=streams,
            parent_call=run.parent_call,
        )
        if changed and self.on_change == "ask":
            advance.ask_again = "the agent changed since the approval"
        return await advance.again(run)

    def _find(self, where: RunState | str) -> Run:
        name = where.run if isinstance(where, RunState) else where
        run = self.store.run(name) or self.store.last_run(name)
        if run is None:
            raise NotFound(f"no run and no thread {name!r} in {self.store.url}")
        if run.agent != self.name:
            raise Conflict(f"run {run.id} belongs to agent {run.agent!r}, not to {self.name!r}")
        return run

    def _changed(self, run: Run) -> bool:
        changed = run.agent_digest not in ("", self.digest)
        if changed and self.on_change == "refuse" and run.status in LIVE:
            raise Conflict(f"agent {self.name!r} changed since run {run.id} paused: cancel it")
        return changed


_running: set[asyncio.Future[Result]] = set()


def _named(tools: Iterable[Any]) -> dict[str, Tool]:
    named: dict[str, Tool] = {}
    for value in tools:
        made = as_tool(value)
        if made.name in named:
            raise ValueError(f"two tools are called {made.name!r}: rename one")
        named[made.name] = made
    return named
