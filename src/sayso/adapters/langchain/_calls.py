"""The gate in front of LangGraph's tool node: every call of every turn goes through here."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, Protocol, TypeVar

from langchain.agents.middleware.types import ToolCallRequest
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp, ParentCommand

from sayso import codec
from sayso.adapters.langchain._answers import Answers, read_one, shown
from sayso.adapters.langchain._tools import (
    Handover,
    Result,
    answer_to,
    dumped,
    foreign_tool,
    loaded,
    message,
    named,
    turn_of,
    words_with,
)
from sayso.errors import Conflict, InvalidCall, Paused, SaysoError
from sayso.gate import Gate
from sayso.gate.foreign import ForeignCall, ForeignThread, ForeignTool
from sayso.gate.reentrancy import runs_here
from sayso.policy import Policy
from sayso.rows import CallStatus
from sayso.twin import in_thread, look, on_loop, run_sync
from sayso.types import Json, Request

T = TypeVar("T")


#: Where the call that runs here is made. An agent inside a tool has the thread of the agent around
#: it, and its model may repeat an id; but it is a graph of its own, in another place.
_around: ContextVar[tuple[str, str] | None] = ContextVar("sayso_langchain", default=None)


class Faces(Protocol):
    """How a call's tool is to be asked about."""

    def __call__(self, request: ToolCallRequest) -> ForeignTool: ...


class Bubble(Paused):
    """LangGraph's own interrupt on its way through a call, which is put back and not failed."""

    def __init__(self, run: str, cause: GraphBubbleUp) -> None:
        super().__init__(run, ())
        self.cause = cause


class ToolGate:
    """``wrap_tool_call`` and ``awrap_tool_call`` for a tool node."""

    def __init__(
        self,
        gate: Gate,
        *,
        policy: Policy | None = None,
        face: Faces | None = None,
        notice: str | None = "",
    ) -> None:
        self.gate = gate
        self.policy = policy
        self.notice = notice
        self._face = face or self._plain_face
        #: The tools that it stands in front of, by name.
        self.behind: dict[str, BaseTool] = {}
        self._faces: dict[str, tuple[Any, ForeignTool]] = {}

    def _plain_face(self, request: ToolCallRequest) -> ForeignTool:
        """Without any policy every call is asked about, as everywhere at a gate."""
        assert request.tool is not None
        return self.plain(request.tool)

    def plain(self, tool: BaseTool) -> ForeignTool:
        """How a tool is asked about where nobody says otherwise."""
        known = self._faces.get(tool.name)
        if known is None or known[0] is not tool:
            unruled = self.policy is None and not self.gate.policy.rules
            known = self._faces[tool.name] = (tool, foreign_tool(tool, needs_approval=unruled))
        return known[1]

    def wrap(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Result:
        """The sync colour."""

        async def run(changed: ToolCallRequest) -> Any:
            return handler(changed)

        return directly(lambda: self._called(request, run))

    async def awrap(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Result:
        """The async colour."""
        return await self._called(request, handler)

    def thread(self, config: Mapping[str, Any]) -> ForeignThread:
        """The thread that a config names."""
        return ForeignThread(self.gate, thread_id(config), policy=self.policy)

    async def _called(
        self, request: ToolCallRequest, run: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Result:
        known = var_child_runnable_config.get()
        # Inside a sequence LangChain does not say in which config its later steps are.
        token = var_child_runnable_config.set(known or request.runtime.config)
        try:
            return await self._settled(request, run)
        finally:
            var_child_runnable_config.reset(token)

    async def _settled(
        self, request: ToolCallRequest, run: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Result:
        made, config = request.tool_call, request.runtime.config
        thread = self.thread(config)
        if not made["id"]:
            raise InvalidCall(
                f"the model gave its call of {made['name']} no id: such a call cannot be found "
                "again, so it is not run"
            )
        if request.tool is None:
            gone = await thread.gone(key_of(config, request.state, made), made["name"])
            return message(gone.text, made, ok=False)
        place = _place(request)
        key = key_of(config, request.state, made)
        row = thread.row(key) if _around.get() == place else None
        if row is not None and runs_here(row.id):
            result: Result = await run(request)
            return result  # the same gate stands around this one already
        turn = turn_of(request.state, made)
        await check_alone(thread, config, [key_of(config, request.state, one) for one in turn])
        call = self._foreign(request, run, thread)
        answers = Answers(thread, call.id, by_of(config))

        async def waiting() -> tuple[Request, ...]:
            return await thread.waiting([call.id])

        while True:
            await answers.settle(waiting, partial(shown, str(made["id"])), read_one)
            try:
                outcome = await thread.outcome(call)
                if isinstance(outcome.value, Handover):
                    raise outcome.value.cause
                return answer_to(outcome, made, self.notice)
            except Bubble as bubble:
                raise bubble.cause from None
            except Conflict:
                await check_alone(thread, config, ())
                raise
            except Paused:
                continue  # asked just now, or in doubt: the next look interrupts

    def _foreign(
        self,
        request: ToolCallRequest,
        run: Callable[[ToolCallRequest], Awaitable[Any]],
        thread: ForeignThread,
    ) -> ForeignCall:
        made = request.tool_call

        async def effect(args: dict[str, Json]) -> Any:
            token = _around.set(_place(request))
            try:
                return await run(request.override(tool_call={**made, "args": args}))
            except ParentCommand as cause:
                return Handover(cause)
            except GraphBubbleUp as cause:
                raise Bubble(thread.run, cause) from cause
            finally:
                _around.reset(token)

        return ForeignCall(
            id=key_of(request.runtime.config, request.state, made),
            tool=self._face(request),
            args=made["args"],
            note=words_with(request.state, str(made["id"])),
            run=effect,
            dump=dumped,
            load=lambda stored: loaded(stored, made),
        )


def _place(request: ToolCallRequest) -> tuple[str, str]:
    inside = request.runtime.config.get("configurable") or {}
    return str(inside.get("checkpoint_ns") or ""), str(request.tool_call["id"])


_WAITS = (CallStatus.ASKED, CallStatus.READY)
_OF_A_GRAPH = re.compile(r"[0-9a-f]{8}:[0-9a-f]{16}/")


def key_of(config: Mapping[str, Any], state: Any, call: Mapping[str, Any]) -> str:
    """What a call is found by on its thread: its id, and which graph of a graph it is made in.
    Agents side by side have the thread in common, and their models may repeat an id."""
    return f"{graph_of(config)}{named(state, call)}"


def graph_of(config: Mapping[str, Any]) -> str:
    """What the keys of a graph's calls begin with; nothing, if it is not within another one."""
    inside = config.get("configurable") or {}
    graph = str(inside.get("checkpoint_ns") or "").rpartition("|")[0]
    return f"{_step_of(config)}{codec.sha256(graph.encode())[:16]}/" if graph else ""


def is_over(config: Mapping[str, Any], key: str) -> bool:
    """Whether a call was made by the model of this graph, or in a step of the outermost graph that
    is over: when it takes the next one, nothing of the last can go on."""
    ours = graph_of(config)
    of_a_graph = _OF_A_GRAPH.match(key) is not None
    return key.startswith(ours) or (of_a_graph and not key.startswith(_step_of(config)))


async def check_alone(
    thread: ForeignThread, config: Mapping[str, Any], keys: Sequence[str]
) -> None:
    """Stop where the calls ``keys`` of a turn are not all that an agent has open. LangGraph keeps
    one state for all agents with ``checkpointer=True`` that a node calls: side by side, one takes
    the turn of the other for its own."""
    graph = str((config.get("configurable") or {}).get("checkpoint_ns") or "").rpartition("|")[0]
    if not graph or all(":" in name for name in graph.split("|")):
        return  # its state is the call's own
    for call in await look(thread.store, thread.store.calls_of, thread.run):
        made_here = call.status in _WAITS and call.key.startswith(graph_of(config))
        if made_here and not any(f"{call.key}/".startswith(f"{key}/") for key in keys):
            raise SaysoError(
                f"{call.id} waits in another agent with checkpointer=True that was called by "
                f"{graph!r} at the same time, and LangGraph has one state for both: leave out "
                "checkpointer=True, or put each of these agents into a graph of its own, without "
                "checkpointer, as a node with a name of its own"
            )


def _step_of(config: Mapping[str, Any]) -> str:
    steps = (config.get("configurable") or {}).get("checkpoint_map") or {}
    return f"{codec.sha256(str(steps.get('')).encode())[:8]}:"


def thread_id(config: Mapping[str, Any]) -> str:
    """The thread of a config, without which nothing could be found again."""
    found = (config.get("configurable") or {}).get("thread_id")
    if found is None:
        raise InvalidCall(
            "a guarded agent needs a thread: pass "
            'config={"configurable": {"thread_id": "…"}}, and give it a checkpointer',
            "thread_id",
        )
    return str(found)


def by_of(config: Mapping[str, Any]) -> str:
    """Who answers through LangGraph: ``sayso_by`` in the config says it."""
    return str((config.get("configurable") or {}).get("sayso_by") or "langgraph")


def directly(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a body to its end in the sync colour, also where a loop stands in the way."""
    if on_loop():
        return in_thread(lambda: run_sync(make()))
    return run_sync(make())
