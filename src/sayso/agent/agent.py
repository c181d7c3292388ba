"""``Agent``: a small function-calling agent with approvals and questions built in."""

from __future__ import annotations

import copy
import logging
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Unpack, runtime_checkable
from weakref import WeakKeyDictionary

from sayso import codec
from sayso.agent.events import (
    AgentEvent,
    Emit,
    checked_listeners,
    streamed,
    wait_for_streams,
)
from sayso.agent.models import Model, resolve
from sayso.agent.run_context import OutputType, RunContext
from sayso.agent.run_loop import RunLoop
from sayso.agent.sub_agent import RUN, agent_tool, find_run
from sayso.agent.tool import Tool, ToolOptions, as_tool
from sayso.errors import Conflict
from sayso.gate import Gate
from sayso.gate.driver import Channel
from sayso.gate.gate import DEFAULT_LEASE, policy_terms
from sayso.gate.lease import resume_outer
from sayso.gate.options import MAX_NAME, MAX_WORDS, checked_string, checked_thread
from sayso.gate.review import Reviews
from sayso.gate.run_result import (
    RunResult,
    RunState,
    run_named,
    take_decisions,
)
from sayso.inbox import Inbox
from sayso.policy import Policy
from sayso.rows import LIVE, Call, Run
from sayso.stores.nested_runs import cancel_with_nested
from sayso.sync import read, run_sync, stream_twin, sync_twin, to_thread
from sayso.types import Decision, Json, Reviewer, Terms, ToolCall

if TYPE_CHECKING:
    from sayso.stores.base import Store

log = logging.getLogger("sayso.agent")

_ON_CHANGE = ("resume", "ask", "refuse")


class Agent:
    """Instructions, a model and tools. Calls that need approval pause the run.

    ``model`` is ``"openai:gpt-4o"``, ``"openai-responses:…"`` or a ``Model`` object. ``store`` is a
    URL, a path or a store. ``on_change`` says what to do with a paused run after the agent's
    definition changed: ``resume`` it, ``ask`` again for what was approved, or ``refuse``. A call
    whose tool changed is always asked again. ``listeners`` receive every event, ``channels`` every
    new request. ``models`` are functions that rules can name as first reviewers.
    """

    def __init__(
        self,
        name: str,
        *,
        model: str | Model,
        instructions: str = "",
        tools: Iterable[Any] = (),
        store: str | Path | Store | None = None,
        policy: Policy | str | Path | None = None,
        output_type: Any = None,
        max_turns: int = 20,
        tool_choice: str | Mapping[str, Any] = "auto",
        parallel_tool_calls: bool | None = None,
        settings: Mapping[str, Any] | None = None,
        on_change: str = "resume",
        channels: Iterable[Channel] = (),
        listeners: Iterable[Emit] = (),
        lease: float = DEFAULT_LEASE,
        models: Mapping[str, Reviews] | None = None,
    ) -> None:
        if not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME:
            raise ValueError(
                f"an agent needs a name of 1 to {MAX_NAME} characters, for policies, grants "
                "and the audit log"
            )
        if not isinstance(instructions, str):
            raise ValueError(f"instructions must be text, not {type(instructions).__name__}")
        if on_change not in _ON_CHANGE:
            raise ValueError(f"on_change={on_change!r}: use {', '.join(_ON_CHANGE)}")
        self.name = name
        self.model = resolve(model)
        self.instructions = instructions
        self.tools = _tools_by_name(tools)
        self.max_turns = _checked_turns(max_turns)
        self.tool_choice = _checked_choice(tool_choice)
        self.parallel_tool_calls = parallel_tool_calls
        self.settings = dict(settings or {})
        self.on_change = on_change
        self.listeners = checked_listeners(listeners)
        # Without a declared type, an answer is a string.
        self.output = None if output_type in (None, str) else OutputType(output_type)
        self._store = store
        self._policy = policy
        self._channels = tuple(channels)
        self._lease = lease
        self._models = models
        self._gate: Gate | None = None
        #: As a sub-agent: its gates on the stores of outer agents.
        self._gates: WeakKeyDictionary[Gate, Gate] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"Agent({self.name!r}, tools={list(self.tools)!r})"

    # -- definition

    @property
    def gate(self) -> Gate:
        """The agent's gate, opened on first use."""
        if self._gate is None:
            self._gate = Gate(
                "memory://" if self._store is None else self._store,
                policy=self._policy,
                agent=self.name,
                wait=0,
                channels=self._channels,
                lease=self._lease,
                models=self._models,
            )
        return self._gate

    @property
    def store(self) -> Store:
        """The store that keeps the agent's runs."""
        return self.gate.store

    @property
    def digest(self) -> str:
        """A hash of the definition: name, model, instructions, tools and output type."""
        tools = tuple((t.name, t.stored.digest) for t in self.tools.values())
        shape = None if self.output is None else codec.dumps(self.output.schema)
        return _digest(self.name, self.model.name, shape, self.instructions, tools)

    @property
    def names(self) -> tuple[str, ...]:
        """The agents whose runs it can resume: itself and its sub-agents."""
        inner = [t.inner.names for t in self.tools.values() if t.inner is not None]
        return tuple(dict.fromkeys((self.name, *(name for names in inner for name in names))))

    def as_tool(self, **options: Unpack[ToolOptions]) -> Tool:
        """Return this agent as a tool for another. Its pauses surface in the outer run."""
        return agent_tool(self, **options)

    # -- running

    async def run(
        self,
        input: str,
        *,
        thread: str | None = None,
        requester: str = "",
        deps: Any = None,
        max_turns: int | None = None,
    ) -> RunResult:
        """Run the agent. ``status`` is ``"paused"`` if a request needs a decision."""
        ctx = self._new_run(self._tell, thread, requester=requester, deps=deps, max_turns=max_turns)
        return await self._start(ctx, input)

    def stream(
        self,
        input: str,
        *,
        thread: str | None = None,
        requester: str = "",
        deps: Any = None,
        max_turns: int | None = None,
    ) -> AsyncIterator[AgentEvent]:
        """Run the agent and yield its events. The last one, ``Ended``, holds the result.

        If you stop reading, the run continues until it pauses or ends; ``stream_sync`` waits for
        that.
        """

        async def work(emit: Emit) -> RunResult:
            options = {"requester": requester, "deps": deps, "max_turns": max_turns}
            return await self._start(self._new_run(emit, thread, streams=True, **options), input)

        return streamed(work, self._tell)

    async def resume(
        self,
        where: RunState | str,
        *,
        decisions: Iterable[Decision] = (),
        by: str | Reviewer = "user",
        deps: Any = None,
        wait: float | None = None,
    ) -> RunResult:
        """Resume a run by its state, id or thread, in this process or another.

        While another process works on the run, wait for its outcome: at most ``wait`` seconds, then
        raise ``Leased``. ``None`` waits forever.
        """
        return await self._resume(where, decisions, by, deps, self._tell, wait=wait)

    def stream_resume(
        self,
        where: RunState | str,
        *,
        decisions: Iterable[Decision] = (),
        by: str | Reviewer = "user",
        deps: Any = None,
    ) -> AsyncIterator[AgentEvent]:
        """Resume a run and yield its events, like ``stream``."""
        return streamed(
            lambda emit: self._resume(where, decisions, by, deps, emit, streams=True), self._tell
        )

    async def cancel(
        self, where: RunState | str, *, by: str = "user", reason: str = "called off"
    ) -> None:
        """Cancel a run. Calls that are running finish and are recorded."""
        await to_thread(lambda: cancel_with_nested(self.store, self._find(where), by, reason))

    def close(self) -> None:
        """Close the store."""
        if self._gate is not None:
            self._gate.close()

    run_sync = sync_twin(run, own_loop=True)
    resume_sync = sync_twin(resume, own_loop=True)
    cancel_sync = sync_twin(cancel, own_loop=True)
    stream_sync = stream_twin(stream, wait_for_streams)
    stream_resume_sync = stream_twin(stream_resume, wait_for_streams)

    # -- internals

    def _new_run(self, emit: Emit, thread: str | None, **options: Any) -> RunContext:
        inner = options.get("parent_call") is not None  # its thread is named after the outer one
        thread = checked_thread(thread, MAX_WORDS if inner else MAX_NAME)
        checked_string(options.get("requester", ""), "requester", MAX_NAME)
        if options.get("max_turns") is not None:
            _checked_turns(options["max_turns"])
        run = RUN + secrets.token_hex(8)
        return RunContext(agent=self, thread=thread, run=run, emit=emit, **options)

    async def _start(self, ctx: RunContext, input: str) -> RunResult:
        if not isinstance(input, str) or not input.strip():
            raise ValueError("the input is empty: pass the user's message to run()")
        codec.canonical(input)
        return await RunLoop(ctx).start(input)

    async def _resume(
        self,
        where: RunState | str,
        decisions: Iterable[Decision],
        by: str | Reviewer,
        deps: Any,
        emit: Emit,
        *,
        streams: bool = False,
        wait: float | None = None,
    ) -> RunResult:
        run = await read(self.store, self._find, where)
        resume_outer(run.id, named=str(where))
        changed = run.agent_digest not in ("", self.digest)
        if changed and self.on_change == "refuse" and run.status in LIVE:
            raise Conflict(
                f"agent {self.name!r} changed since run {run.id} began, and on_change is 'refuse': "
                "resume it with the agent as it was, or cancel it"
            )
        inbox = Inbox(self.store, judge=partial(judge_edit, self))
        await take_decisions(inbox, self.store, where, run.thread, decisions, by=by)
        limit = None if run.snapshot is None else codec.loads(run.snapshot).get("max_turns")
        ctx = RunContext(
            agent=self,
            thread=run.thread,
            run=run.id,
            emit=emit,
            requester=run.requester,
            deps=deps,
            max_turns=limit,
            streams=streams,
            parent_call=run.parent_call,
        )
        return await RunLoop(ctx).resume(run, wait)

    def _find(self, where: RunState | str) -> Run:
        return find_run(self.store, run_named(where, self.store, self.name), self.name)

    def _tell(self, event: AgentEvent) -> None:
        """Call the listeners. One that raises affects neither the run nor the others."""
        for listener in self.listeners:
            try:
                listener(event)
            except Exception:
                log.exception("run %s: a listener failed on %s", event.run, type(event).__name__)

    # -- for servers, workers and outer agents

    @property
    def _has_store(self) -> bool:
        return self._store is not None or self._gate is not None

    def _on_store_of(self, outer: Gate) -> Agent:
        """Return the agent on an outer agent's store and channels, unless it has its own store."""
        if self._store is not None:
            return self
        bound = copy.copy(self)
        if outer not in self._gates:
            bound._store, bound._gate = outer.store, None
            bound._channels = self._channels or outer.channels
            self._gates[outer] = bound.gate
        bound._gate = self._gates[outer]
        return bound

    async def _run_for_call(self, input: str, thread: str, **options: Any) -> RunResult:
        return await self._start(self._new_run(self._tell, thread, **options), input)


@lru_cache(maxsize=256)
def _digest(
    name: str, model: str, shape: str | None, say: str, tools: tuple[tuple[str, str], ...]
) -> str:
    what = {"name": name, "model": model, "output": shape}
    return codec.digest({**what, "say": say, "tools": [list(tool) for tool in tools]})


def _checked_turns(most: int) -> int:
    if type(most) is not int or most < 1:
        raise ValueError(f"max_turns={most!r}: pass a whole number from 1")
    return most


def _checked_choice(choice: str | Mapping[str, Any]) -> str | Mapping[str, Any]:
    """Check the form of a tool choice. The model checks the rest."""
    if isinstance(choice, str) and choice:
        return choice
    if isinstance(choice, Mapping) and isinstance(choice.get("type"), str):
        inner = choice.get("allowed_tools", choice)
        tool_names = inner.get("tools") if isinstance(inner, Mapping) else None
        if choice["type"] != "allowed_tools" or isinstance(tool_names, list | tuple):
            return choice
    raise ValueError(
        f"tool_choice={choice!r:.80}: use 'auto', 'none', 'required', a tool's name, or a mapping "
        "with a type, as OpenAI does"
    )


def _tools_by_name(tools: Iterable[Any]) -> dict[str, Tool]:
    if not isinstance(tools, Iterable) or isinstance(tools, str):
        raise TypeError(f"tools={tools!r:.80}: pass a list of tools")
    tools_by_name: dict[str, Tool] = {}
    for value in tools:
        tool = as_tool(value)
        if tool.name in tools_by_name:
            raise ValueError(f"two tools are called {tool.name!r}: rename one")
        tools_by_name[tool.name] = tool
    return tools_by_name


# --- what servers and workers accept ---


@runtime_checkable
class Resumable(Protocol):
    """An agent that servers and workers can run and resume: ``Agent`` or a framework's agent."""

    @property
    def name(self) -> str:
        """The name under which its calls are stored."""

    async def run(self, input: str, *, thread: str | None = None, requester: str = "") -> RunResult:
        """Run the agent. ``status`` is ``"paused"`` if a request needs a decision."""

    async def resume(self, where: str) -> RunResult:
        """Resume a run, by its id or its thread."""


def store_of(agent: Resumable) -> Store | None:
    """Return an agent's store, or None if it has none yet."""
    if isinstance(agent, Agent) and not agent._has_store:
        return None
    store: Store | None = getattr(getattr(agent, "gate", None), "store", None)
    return store


def judge_edit(agent: Agent, call: Call, args: Mapping[str, Json]) -> Terms:
    """Return the policy's terms for edited arguments, while the reviewer edits them."""
    tool = agent.tools.get(call.tool)
    if call.agent != agent.name or tool is None:
        return call.terms  # the call's own agent re-checks before the start
    edited = ToolCall(call.tool, args)
    return run_sync(policy_terms(agent.gate, edited, tool.own, tool.needs_approval))


def lend_store(agent: Resumable, store: str | Store) -> None:
    """Give a store to an ``Agent`` that has none."""
    if isinstance(agent, Agent) and not agent._has_store:
        agent._store = store


def store_mismatch(agent: Resumable, store: Store) -> str:
    """Return an error text if an agent uses another store, else an empty string.

    A worker on this store would never see the agent's runs.
    """
    own = store_of(agent)
    if own is None or own.incarnation == store.incarnation:
        return ""
    return f"{agent.name} uses the store {own.url}, not {store.url}"


def nested_stores(agent: object, store: Store) -> Iterator[tuple[Store, Store]]:
    """Yield the stores of sub-agents that have their own, each with the store of the outer agent.

    ``store`` is the store that ``agent`` runs on.
    """
    inners = [tool.inner for tool in agent.tools.values()] if isinstance(agent, Agent) else []
    for inner in inners:
        if isinstance(inner, Agent):
            own = store if inner._store is None else inner.store
            if own.incarnation != store.incarnation:
                yield own, store
            yield from nested_stores(inner, own)
