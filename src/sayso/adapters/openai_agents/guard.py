"""Run and resume an agent of the SDK by its thread.

``GuardedAgents`` copies an agent and every agent that it can reach, and puts the gate into the
copies. ``Guarded`` then lets the SDK's ``Runner`` make every step. While a run waits, the SDK's
``RunState`` is stored with it. The state is only a shortcut: a run can be resumed from the log
alone. So a state that this version of the SDK cannot read, or whose tool is gone, is ignored.

Code that was written for the SDK reads ``result.interruptions``, ``item.name``, ``item.arguments``
and ``result.final_output``, decides with ``result.to_state()`` and ``state.approve(item)``, and
passes the state to ``Runner.run``. All of it works on what a guarded agent returns; underneath are
the requests and the state of the gate.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, TypedDict, Unpack, cast

from agents import (
    Agent,
    AgentOutputSchemaBase,
    AgentsException,
    RunConfig,
    RunContextWrapper,
    RunErrorHandlers,
    RunHooks,
    RunResultStreaming,
    ToolApprovalItem,
    UserError,
)
from agents import Runner as SdkRunner
from agents import RunResult as SdkRunResult
from agents import RunState as SdkRunState

from sayso import codec
from sayso.adapters.agents import OwnResult, StreamingAgent, listener
from sayso.adapters.agents import Stream as EventStream
from sayso.adapters.conversation import OutputTypes
from sayso.adapters.openai_agents.copies import GuardedAgents, check_guarded, install
from sayso.adapters.openai_agents.messages import ActiveRun, ItemLog, current_run
from sayso.adapters.openai_agents.model import LoggedModel
from sayso.adapters.openai_agents.requests import list_settings
from sayso.adapters.openai_agents.tools import (
    ALWAYS,
    CHANNEL,
    close_answered,
    guarded_tool_of,
    hosted_outcome,
)
from sayso.errors import InvalidCall, InvalidDecision, Paused, SaysoError
from sayso.gate import Gate
from sayso.gate.coverage import Coverage
from sayso.gate.framework import (
    CallPlace,
    FrameworkThread,
    FrameworkTool,
    check_gate,
)
from sayso.gate.guarded_runs import guarded_run
from sayso.gate.options import check_known
from sayso.gate.run_result import RunState
from sayso.policy import Policy
from sayso.rows import Call
from sayso.sync import read
from sayso.types import Request, Reviewer
from sayso.views import framework_arguments


class NamedString(str):
    """A string that also has ``.name``, like the object that the SDK has there."""

    __slots__ = ("description",)

    description: str

    def __new__(cls, name: str, description: str = "") -> NamedString:
        string = super().__new__(cls, name)
        string.description = description
        return string

    @property
    def name(self) -> str:
        """The name as a plain string."""
        return str(self)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Interruption(Request):
    """A pending request with the attributes of the SDK's ``ToolApprovalItem``."""

    type: ClassVar[str] = "tool_approval_item"

    #: The SDK's id of the call, with those of the calls around it.
    call_id: str = ""

    @property
    def tool_name(self) -> str | None:
        """The name of the tool; None for a question."""
        return None if self.tool is None else str(self.tool)

    name = tool_name

    #: The SDK's own item, in the process that ran the agent.
    item: ToolApprovalItem | None = None

    @property
    def raw_item(self) -> Any:
        """The call as the model made it, in the process that ran the agent; None elsewhere."""
        return None if self.item is None else self.item.raw_item

    @property
    def arguments(self) -> str:
        """The arguments as JSON with every default, or as the model wrote them if validators
        convert them; ``args`` are the validated ones."""
        return json.dumps(framework_arguments(self), ensure_ascii=False)


class State(RunState):
    """A run that waits, with the signatures of the SDK's ``RunState``."""

    __slots__ = ()

    def approve(  # type: ignore[override]
        self, request: Request | str, always_approve: bool = False, *, by: str = "user"
    ) -> None:
        """Stage an approval.

        ``always_approve`` also makes it a grant of ``by`` for the tool, for the rest of this run.
        """
        super().approve(request, by=by, grant=ALWAYS if always_approve else None)

    def reject(
        self,
        request: Request | str,
        message: str = "",
        *,
        rejection_message: str | None = None,
        always_reject: bool = False,
        stop: bool = False,
        by: str = "user",
    ) -> None:
        """Stage a rejection with its reason. Raises ``InvalidDecision`` for ``always_reject``."""
        if always_reject or not isinstance(message, str):
            raise InvalidDecision(
                "calls that were not made yet cannot be rejected: reject this one, and add a rule "
                "to the policy that denies the tool",
                "always_reject",
            )
        super().reject(request, rejection_message or message, stop=stop, by=by)

    def get_interruptions(self) -> list[Request]:
        """Return the pending requests."""
        return list(self.interruptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(OwnResult):
    """What a guarded agent returns, with the attributes of the SDK's result.

    ``new_items``, ``raw_responses``, ``to_input_list()`` and others are those of ``raw``.
    """

    interruptions: tuple[Interruption, ...] = ()

    @property
    def final_output(self) -> Any:
        """The output of the last agent, in its ``output_type``; None while the run waits."""
        return self.output

    def final_output_as(self, cls: Any, raise_if_incorrect_type: bool = False) -> Any:
        """Return the output.

        Raises ``TypeError`` if it has another type and ``raise_if_incorrect_type`` is set.
        """
        if raise_if_incorrect_type and not isinstance(self.output, cls):
            raise TypeError(f"Final output is not of type {cls.__name__}")
        return self.output

    def to_state(self) -> RunState:
        """Return the state, to stage decisions on."""
        return self.state

    @property
    def last_agent(self) -> Agent[Any]:
        """The agent that ran last, as you have built it."""
        last: Any = OwnResult.__getattr__(self, "last_agent")
        return last.model.original if isinstance(last.model, LoggedModel) else last


# -- running and resuming


class Stream(EventStream):
    """The SDK's events, with ``async for event in stream``; then ``stream.result`` is the result.

    The attributes of the SDK's own stream work too: ``stream_events()``, and after the last event
    those of the result, such as ``interruptions``, ``final_output`` and ``new_items``.
    """

    def stream_events(self) -> AsyncIterator[Any]:
        """Return the events."""
        return self.__aiter__()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.result, name)


class Options(TypedDict, total=False):
    """Options for the SDK's runner, used on every run and resume."""

    context: Any
    max_turns: int | None
    hooks: RunHooks[Any] | None
    run_config: RunConfig | None
    error_handlers: RunErrorHandlers[Any] | None


def guard(
    agent: Agent[Any],
    gate: Gate,
    policy: Policy | None = None,
    *,
    ungated: Iterable[str] = (),
    **options: Unpack[Options],
) -> Guarded:
    """Make an agent ask through the gate, with every agent that it hands off to, has as a tool or
    runs in a tool.

    ``agent`` itself is not changed; ``.agent`` is the guarded copy. The SDK's runner gets
    ``options`` (``context``, ``max_turns``, ``hooks``, ``run_config``, ``error_handlers``) on every
    run and resume. The thread keeps the conversation, so there is no session. Raises
    ``InvalidCall`` with a list of what the gate cannot reach, such as tools that the provider runs,
    unless ``ungated`` names it.
    """
    check_gate(gate, policy)
    check_known(options, Options)
    return Guarded(agent, gate, policy, Coverage(ungated), options)


class Guarded(StreamingAgent[ItemLog, Stream]):
    """An agent that servers and workers can run and resume; ``guard`` returns one."""

    channel = CHANNEL
    log_type = ItemLog
    stream_type = Stream
    result_type = Result
    state_type = State

    def __init__(
        self,
        agent: Agent[Any],
        gate: Gate,
        policy: Policy | None,
        coverage: Coverage,
        options: Options,
    ) -> None:
        install()
        super().__init__(gate, policy, coverage)
        self._context = options.pop("context", None)
        self._config = options.pop("run_config", None) or RunConfig()
        list_settings(self._config.model_settings, gate.agent, coverage)
        self._copies = GuardedAgents(coverage)
        self.agent = self._copies.checked_copy(agent)
        self._agents = self._copies.agents
        self._options: dict[str, Any] = {
            **options,
            # The model is each agent's own LoggedModel. If a tool is gone, it gets an error.
            "run_config": replace(
                self._config, model=None, tool_not_found_behavior="return_error_to_model"
            ),
        }

    # -- run by FrameworkAgent

    async def begin(self, input: Any, thread: str) -> Any:
        log = await self.open_log(thread)
        await log.say_input(input)
        return await self._run_turn(log)

    async def continue_turn(self, log: ItemLog) -> Any:
        if log.input is None:
            raise Paused(log.run)  # it was run by hand: we cannot continue it
        return await self._run_turn(log)

    def place(self) -> CallPlace | None:
        """Return a place only inside a tool of the SDK, where the log can hold the replies."""
        outer = current_run()
        if outer is None or outer.manual:
            return None
        place = super().place()
        return place if place is not None and place.thread == outer.calls.thread else None

    async def part(self, input: Any, place: CallPlace) -> Any:
        outer = current_run()
        assert outer is not None
        calls = FrameworkThread(self.gate, place.thread, policy=self.policy)
        active = ActiveRun(calls, outer.log, self._config)
        with active.open(), active.in_call(place.key):
            result = await self._run_sdk(input, resumed=False)
        if active.stopped or result.interruptions:
            raise Paused(place.run)
        return result.final_output

    @cached_property
    def output_types(self) -> OutputTypes:
        return OutputTypes(output_type(agent) for agent in self._agents)

    def interruption(self, call: Call, request: Request) -> Request:
        values = {field.name: getattr(request, field.name) for field in fields(request)}
        values["agent"] = NamedString(request.agent)
        if request.tool is not None:
            values["tool"] = NamedString(request.tool, request.description)
        raw = self.raw(call.run)
        items = {} if raw is None else {item.call_id: item for item in raw.interruptions}
        item = items.get(call.key.rpartition("/")[2])
        return Interruption(**values, call_id=call.key, item=item)

    def known_tools(self) -> Iterable[FrameworkTool]:
        tools = [guarded_tool_of(tool) for agent in self._agents for tool in agent.tools]
        return [tool.framework_tool for tool in tools if tool is not None]

    async def _run_turn(self, log: ItemLog) -> Any:
        active = ActiveRun(log.calls, log, self._config)
        with active.open():
            state = await restored_state(active, log, self.agent, self._context)
            result = await self._run(active, log, state)
            conversation = result.to_input_list()
            await close_answered(active, conversation)
        output = result.final_output
        type_name = self.output_types.name_of(output)
        await log.end_with(conversation, self.dump_output(output), type_name)
        return output

    async def _run(self, active: ActiveRun, log: ItemLog, state: Any) -> Any:
        """Let the SDK run until it ends or needs approval."""
        start = log.conversation() if state is None else state
        while True:
            result = await self._run_sdk(start, resumed=start is state)
            self.keep_raw(active.calls.run, result)
            if active.stopped:
                raise Paused(active.calls.run)
            if not result.interruptions:
                return result
            ready = await read(self.gate.store, settled_items, active, result.interruptions)
            if not ready:
                await save_state(active, log, result)
                raise Paused(active.calls.run)
            start = state = result.to_state()
            await approve_settled(active, ready, state.approve, state.reject)

    async def _run_sdk(self, start: Any, *, resumed: bool) -> SdkRunResult | RunResultStreaming:
        options = self._options if resumed else {**self._options, "context": self._context}
        emit = listener()
        try:
            if emit is None:
                return await SdkRunner.run(self.agent, start, **options)
            streamed = SdkRunner.run_streamed(self.agent, start, **options)
            async for event in streamed.stream_events():
                emit(event)
            return streamed
        except UserError as error:
            if isinstance(error.__cause__, SaysoError):
                raise error.__cause__ from None
            raise

    # -- run by hand

    @asynccontextmanager
    async def thread(
        self, name: str, *, by: str | Reviewer = "user", requester: str = ""
    ) -> AsyncIterator[Agent[Any]]:
        """Run the SDK by hand in this context: ``Runner.run(guarded.agent, …)``,
        ``result.to_state()``, ``state.approve(item)``.

        Calls are in the inbox under this thread. Decisions on a state are recorded as made by
        ``by``.
        """
        calls = FrameworkThread(self.gate, name, requester=requester, policy=self.policy)
        await calls.open()
        active = ActiveRun(calls, None, self._config, by)
        ungated = self.coverage().ungated
        with active.open(), guarded_run(self.gate, self.policy, name, ungated):
            yield self.agent
        await self.gate.backend.finish(calls.scope(), "done")


def output_type(agent: Agent[Any]) -> Any:
    """Return the type of an agent's output; None if only the SDK could read it."""
    output_type = agent.output_type
    is_schema = isinstance(output_type, AgentOutputSchemaBase)
    return getattr(output_type, "output_type", None) if is_schema else output_type


class Runner:
    """The SDK's ``Runner`` for guarded agents: import this one instead.

    Each run has its own thread, named in its state. Use ``guarded.run`` to choose the name.
    """

    @staticmethod
    async def run(starting_agent: Guarded, input: Any, **options: Any) -> Result:
        """Run a guarded agent with the user's input, or continue it from a state."""
        _check_runner(starting_agent, options)
        if isinstance(input, RunState):
            return cast(Result, await starting_agent.resume(input))
        return cast(Result, await starting_agent.run(input))

    @staticmethod
    def run_sync(starting_agent: Guarded, input: Any, **options: Any) -> Result:
        """Run or continue a guarded agent, and wait for its result."""
        _check_runner(starting_agent, options)
        if isinstance(input, RunState):
            return cast(Result, starting_agent.resume_sync(input))
        return cast(Result, starting_agent.run_sync(input))

    @staticmethod
    def run_streamed(starting_agent: Guarded, input: Any, **options: Any) -> Stream:
        """Run or continue a guarded agent, and stream the SDK's events."""
        _check_runner(starting_agent, options)
        if isinstance(input, RunState):
            return starting_agent.stream_resume(input)
        return starting_agent.stream(input)


def _check_runner(agent: Any, options: dict[str, Any]) -> None:
    if not isinstance(agent, Guarded):
        raise TypeError(
            f"this Runner runs what guard(agent, gate) returns, not {type(agent).__name__}: guard "
            "the agent, or import Runner from agents"
        )
    if options:
        raise InvalidCall(
            f"pass {', '.join(options)} to guard(...): a run may continue in another process",
            next(iter(options)),
        )


# -- the SDK's state of a run


async def save_state(
    active: ActiveRun, log: ItemLog, result: SdkRunResult | RunResultStreaming
) -> None:
    """Store the SDK's state of a run that waits.

    Requests of an inner agent are not in it: the log alone finds them.
    """
    if any(active.key_of(item) != item.call_id for item in result.interruptions):
        return
    try:
        raw = result.to_state().to_json(context_serializer=lambda _: {})
    except AgentsException:
        return
    # In ASCII, because a model may write half a surrogate pair.
    await log.append(snapshot=json.dumps({"state": raw, "given": log.given, "turn": log.turn}))


async def restored_state(
    active: ActiveRun, log: ItemLog, agent: Agent[Any], context: Any
) -> SdkRunState[Any, Any] | None:
    """Return the stored state with the decisions made since; None if there is none to use."""
    run = await read(log.store, log.store.run, log.run)
    if run is None or not run.snapshot:
        return None
    stored = codec.loads(run.snapshot)
    if stored.get("turn") != log.turn:
        return None  # of an earlier turn
    # With a wrapper of our own, the cost of a decision does not grow with their number.
    wrapper: RunContextWrapper[Any] = RunContextWrapper(context=context)
    try:
        state = await SdkRunState.from_json(agent, stored["state"], context_override=wrapper)
        items = state.get_interruptions()
        if not await _has_all_tools(items, wrapper):
            return None
    except AgentsException:
        return None
    ready = await read(log.store, settled_items, active, items)
    await approve_settled(active, ready, wrapper.approve_tool, wrapper.reject_tool)
    log.given = dict(stored["given"])
    return state


async def _has_all_tools(
    items: Sequence[ToolApprovalItem], wrapper: RunContextWrapper[Any]
) -> bool:
    for agent in {id(item.agent): item.agent for item in items}.values():
        names = {tool.name for tool in await agent.get_all_tools(wrapper)}
        if any(
            item.agent is agent and item.tool_name not in names and not _is_hosted(item)
            for item in items
        ):
            return False
    return True


def settled_items(active: ActiveRun, items: Sequence[ToolApprovalItem]) -> list[ToolApprovalItem]:
    """Return the interruptions that no longer wait for a decision."""
    return [item for item in items if not active.waits(active.key_of(item))]


async def approve_settled(
    active: ActiveRun,
    items: Sequence[ToolApprovalItem],
    approve: Callable[[ToolApprovalItem], None],
    reject: Callable[..., None],
) -> None:
    """Let the SDK continue with these calls.

    Each of our calls counts as approved for the SDK: the tool returns the outcome when it is
    invoked. The SDK's own approval only counts for calls that the provider runs.
    """
    for item in items:
        check_guarded(item.agent)
        outcome = None
        if _is_hosted(item):
            outcome = await hosted_outcome(active, active.key_of(item), item.raw_item)
        if outcome is None or outcome.ok:
            approve(item)
        else:
            reject(item, rejection_message=outcome.text)


def _is_hosted(item: ToolApprovalItem) -> bool:
    return getattr(item.raw_item, "type", None) == "mcp_approval_request"
