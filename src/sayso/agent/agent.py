"""A small agent of our own: function calling with approvals and questions built in."""

from __future__ import annotations

import copy
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack
from weakref import WeakKeyDictionary

from sayso import codec
from sayso.agent.asking import checked_choice
from sayso.agent.events import AgentEvent, Result, checked_listeners
from sayso.agent.job import RUN, Emit, Job
from sayso.agent.loop import Advance
from sayso.agent.models import Model, resolve
from sayso.agent.nested import agent_tool, find_run
from sayso.agent.state import RunState
from sayso.agent.streaming import streamed
from sayso.agent.tool import Tool, ToolOptions, as_tool
from sayso.errors import Conflict, InvalidCall
from sayso.gate import Gate
from sayso.gate.gate import DEFAULT_LEASE
from sayso.gate.given import check_asked_in, decisions_from
from sayso.gate.judge import judge_sync
from sayso.gate.options import checked_words
from sayso.gate.reentrancy import go_on_with
from sayso.gate.telling import Channel
from sayso.inbox import Inbox
from sayso.policy import Policy
from sayso.rows import LIVE, Call, Run
from sayso.stores.nested_runs import call_off
from sayso.twin import hop, look, twin
from sayso.types import Decision, Json, Reviewer, Terms, ToolCall, moment

if TYPE_CHECKING:
    from sayso.stores.base import Store

log = logging.getLogger("sayso.agent")

T = TypeVar("T")
Listener = Callable[[AgentEvent], None]

_ON_CHANGE = ("resume", "ask", "refuse")
_LONGEST_NAME = 200


class Agent:
    """Instructions, a model and tools; every call it makes is a row, and what needs a person waits.

    ``model`` is ``"openai:gpt-4o"``, ``"openai-responses:…"`` or a Model object. ``store`` is a URL
    or a store. ``on_change`` says what happens when the agent changed while people thought:
    ``resume``, ``ask`` (what was approved is asked again) or ``refuse``; a changed tool is always
    asked again. ``listeners`` get every event, ``channels`` each new request.
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
        listeners: Iterable[Listener] = (),
        lease: float = DEFAULT_LEASE,
    ) -> None:
        if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST_NAME:
            raise ValueError(
                f"an agent needs a name of 1 to {_LONGEST_NAME} characters: policies, grants and "
                "the record know it by it"
            )
        if not isinstance(instructions, str):
            raise ValueError(f"instructions are text, not {type(instructions).__name__}")
        if on_change not in _ON_CHANGE:
            raise ValueError(f"on_change={on_change!r}: use {', '.join(_ON_CHANGE)}")
        self.name = name
        self.model = resolve(model)
        self.instructions = instructions
        self.tools = _named(tools)
        self.max_turns = _checked_turns(max_turns)
        self.tool_choice = checked_choice(tool_choice)
        self.parallel_tool_calls = parallel_tool_calls
        self.settings = dict(settings or {})
        self.on_change = on_change
        self.listeners = checked_listeners(listeners)
        self.output = None
        if output_type not in (None, str):  # which an answer is anyway
            from sayso.agent.output import OutputType

            self.output = OutputType(output_type)
        self._store = store
        self._policy = policy
        self._channels = tuple(channels)
        self._lease = lease
        self._gate: Gate | None = None
        #: Its gates on the stores of agents that it is a tool of.
        self._gates: WeakKeyDictionary[Gate, Gate] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"Agent({self.name!r}, tools={list(self.tools)!r})"

    # -- what it is

    @property
    def gate(self) -> Gate:
        """The agent's door, opened on first use."""
        if self._gate is None:
            self._gate = Gate(
                "memory://" if self._store is None else self._store,
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

    @property
    def names_store(self) -> bool:
        """Whether it has a store, so that none can be lent to it."""
        return self._store is not None or self._gate is not None

    def lend(self, store: str | Store) -> None:
        """Give a store to an agent that named none."""
        if not self.names_store:
            self._store = store

    def within(self, outer: Gate) -> Agent:
        """This agent on the store of an outer one, and its channels, where it names none itself."""
        if self._store is not None:
            return self
        bound = copy.copy(self)
        if outer not in self._gates:
            bound._store, bound._gate = outer.store, None
            bound._channels = self._channels or outer.channels
            self._gates[outer] = bound.gate
        bound._gate = self._gates[outer]
        return bound

    @property
    def digest(self) -> str:
        """What the agent is, as a hash: name, model, instructions, tools and output."""
        tools = tuple((t.name, t.stored.digest) for t in self.tools.values())
        shape = None if self.output is None else codec.dumps(self.output.schema)
        return _digest(self.name, self.model.name, shape, self.instructions, tools)

    @property
    def names(self) -> tuple[str, ...]:
        """Whose runs it can take further: its own, and those of agents that are tools of it."""
        inner = [t.inner.names for t in self.tools.values() if t.inner is not None]
        return tuple(dict.fromkeys((self.name, *(name for names in inner for name in names))))

    def as_tool(self, **options: Unpack[ToolOptions]) -> Tool:
        """This agent as a tool of another; its pauses surface there and resume in here."""
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
    ) -> Result:
        """Answer the user's words; ``paused`` if people are needed first."""
        job = self._job(self._tell, thread, requester=requester, deps=deps, max_turns=max_turns)
        return await self._begin(job, input)

    def stream(
        self,
        input: str,
        *,
        thread: str | None = None,
        requester: str = "",
        deps: Any = None,
        max_turns: int | None = None,
    ) -> AsyncIterator[AgentEvent]:
        """The same as ``run``, as events; the last one holds the result."""

        async def work(emit: Emit) -> Result:
            options = {"requester": requester, "deps": deps, "max_turns": max_turns}
            return await self._begin(self._job(emit, thread, streams=True, **options), input)

        return streamed(work, self._tell)

    async def resume(
        self,
        where: RunState | str,
        *,
        decisions: Iterable[Decision] = (),
        by: str | Reviewer = "user",
        deps: Any = None,
        wait: float | None = None,
    ) -> Result:
        """Resume a run, by its state, its id or its thread, here or in another process.

        While another process works on the run, wait for its outcome: at most ``wait`` seconds, then
        raise ``Leased``. None waits for ever.
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
        """The same as ``resume``, as events."""
        return streamed(
            lambda emit: self._resume(where, decisions, by, deps, emit, streams=True), self._tell
        )

    async def cancel(
        self, where: RunState | str, *, by: str = "user", reason: str = "called off"
    ) -> None:
        """Call off a run; what is running finishes and is recorded."""
        await hop(self._cancel, where, by, reason)

    run_sync = twin(run, apart=True)
    resume_sync = twin(resume, apart=True)
    cancel_sync = twin(cancel, apart=True)

    async def run_inside(
        self, input: str, thread: str, call: str, *, requester: str, deps: Any
    ) -> Result:
        """Begin a run for a call of an outer agent."""
        job = self._job(self._tell, thread, requester=requester, deps=deps, parent_call=call)
        return await self._begin(job, input)

    def close(self) -> None:
        """Let go of the store."""
        if self._gate is not None:
            self._gate.close()

    # -- inside

    def _job(self, emit: Emit, thread: str | None, **options: Any) -> Job:
        thread = "thread_" + secrets.token_hex(8) if thread is None else thread
        _check_thread(thread, inner=options.get("parent_call") is not None)
        checked_words(options.get("requester", ""), "requester", _LONGEST_NAME)
        if options.get("max_turns") is not None:
            _checked_turns(options["max_turns"])
        run = RUN + secrets.token_hex(8)
        return Job(agent=self, thread=thread, run=run, emit=emit, **options)

    async def _begin(self, job: Job, input: str) -> Result:
        if not isinstance(input, str) or not input.strip():
            raise ValueError("say something: run() takes the user's words")
        codec.canonical(input)
        return await Advance(job).begin(input)

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
    ) -> Result:
        run = await look(self.store, self._find, where)
        go_on_with(run.id, named=str(where))
        self._refuse_change(run)
        decided = await self._decide(where, run, decisions, by)
        limit = None if run.snapshot is None else codec.loads(run.snapshot).get("max_turns")
        job = Job(
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
        return await Advance(job).again(None if decided else run, wait)

    def _find(self, where: RunState | str) -> Run:
        if isinstance(where, RunState):
            where.check(self.store, self.name)
            where = where.run
        if not isinstance(where, str):
            kind = type(where).__name__
            raise InvalidCall(f"give result.state, a run's id or a thread, not {kind}", "where")
        return find_run(self.store, where, self.name)

    def _refuse_change(self, run: Run) -> None:
        changed = run.agent_digest not in ("", self.digest)
        if changed and self.on_change == "refuse" and run.status in LIVE:
            raise Conflict(
                f"agent {self.name!r} changed since run {run.id} began, and on_change is 'refuse': "
                "resume it with the agent as it was, or cancel it"
            )

    async def _decide(
        self, where: RunState | str, run: Run, given: Iterable[Decision], by: str | Reviewer
    ) -> bool:
        """Write what was staged and what was given; each counts like one made anywhere else."""
        all_staged = where.staged if isinstance(where, RunState) else []
        decisions = decisions_from(given, ())
        if not (all_staged or decisions):
            return False
        await look(self.store, check_asked_in, self.store, run.thread, decisions)
        inbox = Inbox(self.store, judge=self.judge)
        for staged in all_staged:
            name = staged.decision.request or ""
            await inbox.decide(name, staged.decision, by=staged.by, channel="state")
        all_staged.clear()
        for decision in decisions:
            await inbox.decide(decision.request or "", decision, by=by)
        return True

    def judge(self, call: Call, args: Mapping[str, Json]) -> Terms:
        """What the policy says of edited arguments, in front of the person who edits."""
        tool = self.tools.get(call.tool)
        if call.agent != self.name or tool is None:
            return call.terms  # its own agent looks again before the start
        judging = self.gate.policy.judge(
            ToolCall(call.tool, args),
            agent=self.name,
            now=moment(self.store.now()),
            own=tool.own,
            needs_approval=tool.needs_approval,
        )
        return judge_sync(judging)

    def _cancel(self, where: RunState | str, by: str, reason: str) -> None:
        call_off(self.store, self._find(where), by, reason)

    def _tell(self, event: AgentEvent) -> None:
        """Tell the listeners; one that raises disturbs neither the run nor the others."""
        for listener in self.listeners:
            try:
                listener(event)
            except Exception:
                log.exception("run %s: a listener failed on %s", event.run, type(event).__name__)


@lru_cache(maxsize=256)
def _digest(
    name: str, model: str, shape: str | None, say: str, tools: tuple[tuple[str, str], ...]
) -> str:
    what = {"name": name, "model": model, "output": shape}
    return codec.digest({**what, "say": say, "tools": [list(tool) for tool in tools]})


def _checked_turns(most: int) -> int:
    if type(most) is not int or most < 1:
        raise ValueError(f"max_turns={most!r}: give a whole number from 1")
    return most


def _check_thread(name: str, *, inner: bool) -> None:
    if not isinstance(name, str) or not name.strip() or (len(name) > _LONGEST_NAME and not inner):
        raise InvalidCall(f"a thread needs a name of 1 to {_LONGEST_NAME} characters", "thread")
    checked_words(name, "thread")
    if name.startswith("@"):
        raise InvalidCall("names that begin with @ are kept for the store itself", "thread")


def _named(tools: Iterable[Any]) -> dict[str, Tool]:
    if not isinstance(tools, Iterable) or isinstance(tools, str):
        raise TypeError(f"tools={tools!r:.80}: give a list of tools")
    named: dict[str, Tool] = {}
    for value in tools:
        made = as_tool(value)
        if made.name in named:
            raise ValueError(f"two tools are called {made.name!r}: rename one")
        named[made.name] = made
    return named
