"""The tools of a pydantic-ai agent at a gate: each call has a row, and what runs is what the row
says.

``Gated`` and the other capabilities put every tool of an agent behind a gate, whichever toolset
brings it. They wrap it in a ``GatedToolset``, and ``_Call`` completes each call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    SkipToolExecution,
    ToolFailed,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    ToolCallPart,
    ToolReturn,
    ToolReturnPart,
)
from pydantic_ai.tools import DeferredToolRequests, ToolDefinition, ToolDenied
from pydantic_ai.toolsets import (
    AbstractToolset,
    ApprovalRequiredToolset,
    CombinedToolset,
    ExternalToolset,
    FunctionToolset,
    PrefixedToolset,
    RenamedToolset,
    ToolsetTool,
    WrapperToolset,
)
from pydantic_core import to_jsonable_python

from sayso import codec
from sayso.adapters import release_of
from sayso.adapters.calls import (
    StopSignal,
    ask_again,
    cancel_skipped,
    invalid_arguments,
    raise_stop_causes,
)
from sayso.errors import InvalidCall, Paused
from sayso.gate import Gate
from sayso.gate.framework import (
    CallPlace,
    FrameworkCall,
    FrameworkThread,
    FrameworkTool,
    Outcome,
    check_validated,
    kept,
    place_in_call,
)
from sayso.gate.guarded_runs import Place, current_place, has_passed, note_pause
from sayso.policy import Policy
from sayso.policy.policy import NEEDS_APPROVAL
from sayso.rows import Call, CallStatus
from sayso.sync import read
from sayso.types import Json, Verdict

D = TypeVar("D")


@dataclass
class FixedCapability(AbstractCapability[D], Generic[D]):
    """A capability that belongs to one process, with a fixed place among the others."""

    position: ClassVar[Literal["innermost", "outermost"]] = "innermost"

    @classmethod
    def get_serialization_name(cls) -> str | None:
        return None

    def get_ordering(self) -> CapabilityOrdering:
        return CapabilityOrdering(position=self.position)


@dataclass
class Gated(FixedCapability[D], Generic[D]):
    """Ask before tools run: functions, toolsets, MCP servers, and tools of other capabilities.

    The policy decides which calls need approval. Where no rule matches, the tool does: with
    ``requires_approval=True``, or by raising ``ApprovalRequired``. A call that needs approval is
    deferred in the framework's way, with the id of its request in the metadata under ``sayso``. The
    conversation's id is the thread: pass ``conversation_id=``, or continue with ``conversation=``.

    An approval in ``DeferredToolResults`` only makes the framework call the tool again. What counts
    is the decision on the request, made by someone who may make it. If you deny a call there, or
    give it a result, it does not run and its request is closed.

    An agent that runs inside a tool of a guarded one, without ``DeferredToolRequests`` among its
    output types, pauses the call of that tool. When the call is made again, the agent restarts from
    the beginning.
    """

    gate: Gate
    #: Rules that come before those of the gate.
    policy: Policy | None = None

    async def before_model_request(self, ctx: RunContext[D], request_context: Any) -> Any:
        """Cancel requests whose calls got a result in the framework's own way."""
        thread = await FrameworkThread(self.gate, thread_of(ctx), policy=self.policy).open()
        run = await read(thread.store, thread.store.run, thread.run)
        if run is not None and (run.asked or run.ready):
            await cancel_answered(thread, ctx.messages, lambda id: key_in(ctx.messages, id))
        return request_context

    async def for_run(self, ctx: RunContext[D]) -> AbstractCapability[D]:
        """Inside a call, and without a way to defer, make the agent's run part of that call."""
        output_type = None if ctx.agent is None else ctx.agent.output_type
        if DeferredToolRequests in (
            output_type if isinstance(output_type, list | tuple) else [output_type]
        ):
            return self
        place = place_in_call(self.gate)
        return self if place is None else SubAgentGated(self.gate, self.policy, place)

    def get_wrapper_toolset(self, toolset: AbstractToolset[D]) -> AbstractToolset[D]:
        return GatedToolset(toolset, self.gate, self.policy)


@dataclass
class CatchStopSignal(FixedCapability[D], Generic[D]):
    """Turn a ``StopSignal`` back into its cause, outside all other capabilities, so that none of
    them handles a pause as an error."""

    position = "outermost"

    async def wrap_tool_execute(
        self, ctx: RunContext[D], *, args: Any, handler: Any, **_: Any
    ) -> Any:
        with raise_stop_causes():
            return await handler(args)


@dataclass
class SubAgentGated(FixedCapability[D], Generic[D]):
    """The gate of an agent that runs inside a call, which also stores its model's replies."""

    gate: Gate
    policy: Policy | None
    place: CallPlace
    #: Raise pauses as ``StopSignal``, because ``CatchStopSignal`` is there to catch it.
    stop_signals: bool = False
    #: The place in a guarded run where the agent was found, if it has no gate.
    found: Place | None = None
    replies: int = 0

    def __post_init__(self) -> None:
        self._calls = FrameworkThread(self.gate, self.place.thread, policy=self.policy)

    async def wrap_model_request(
        self, ctx: RunContext[D], *, request_context: Any, handler: Any
    ) -> ModelResponse:
        """Return the stored reply, or call the model and store its reply before its calls."""
        if self.found is not None:
            self.found.check_open()
        await cancel_answered(self._calls, ctx.messages, lambda id: f"{self._prefix}{id}")
        self.replies += 1
        if self.found is not None and not self.found.may_pause:  # it will not run again
            response: ModelResponse = await handler(request_context)
            return response

        async def ask() -> Json:
            return ModelMessagesTypeAdapter.dump_python(
                [await handler(request_context)], mode="json"
            )

        stored = await kept(self._calls, f"{self._prefix}reply", ask)
        (reply,) = ModelMessagesTypeAdapter.validate_python(stored)
        assert isinstance(reply, ModelResponse)
        return reply

    async def handle_deferred_tool_calls(self, ctx: RunContext[D], *, requests: Any) -> None:
        """Pause the outer call, once everything else in the reply has run."""
        pause = Paused(self.place.run)
        note_pause(pause)  # its code may run the agent on another OS thread
        raise pause

    def get_wrapper_toolset(self, toolset: AbstractToolset[D]) -> AbstractToolset[D]:
        return GatedToolset(
            toolset,
            self.gate,
            self.policy,
            lambda id: (self.place.thread, f"{self._prefix}{id}"),
            stop_signals=self.stop_signals,
            found=self.found,
        )

    @property
    def _prefix(self) -> str:
        """The prefix of the keys of the last reply's calls."""
        return f"{self.place.key}/{self.replies}/"


def name_of(ctx: RunContext[Any], tool: ToolsetTool[Any]) -> Hashable:
    """Return what names a call where the framework runs it.

    An agent inside a tool has its own run, and its model may repeat the id of the outer call. Code
    of a toolset may run another tool in the same context. Toolsets that wrap others may rename a
    tool, but keep its validator.
    """
    return (ctx.run_id, ctx.tool_call_id, id(tool.args_validator))


# -- the gate around every tool


#: Older versions take a ``ToolDenied`` from ``SkipToolExecution`` for a result of the tool.
_READS_DENIALS = release_of("pydantic-ai-slim") >= (2, 28)
_DEFERRED = ("unapproved", "external")
_BODILESS = ("respond", "reject")


class TimedOut(BaseException):
    """The framework stopped a tool that took too long, so what the tool did is unknown."""


@dataclass
class GatedToolset(WrapperToolset[D], Generic[D]):
    """Wrap all tools of an agent, inside every other hook."""

    gate: Gate
    policy: Policy | None = None
    #: Returns the thread and the key of a call by its id. By default the conversation says both.
    locate: Callable[[str], tuple[str, str]] | None = None
    #: Raise pauses as ``StopSignal``, because ``CatchStopSignal`` is there to catch it.
    stop_signals: bool = False
    #: The place in a guarded run where the agent was found, if it has no gate.
    found: Place | None = None
    #: The kind of each tool by name; ``unapproved`` and ``external`` ones the framework defers.
    kinds: dict[str, str] = field(default_factory=dict)

    async def get_tools(self, ctx: RunContext[D]) -> dict[str, ToolsetTool[D]]:
        """Return the tools, all of them callable, so that the gate sees deferred ones too."""
        tools = await super().get_tools(ctx)
        self.kinds.update({n: t.tool_def.kind for n, t in tools.items()})
        return {name: _callable(tool) for name, tool in tools.items()}

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[D], tool: ToolsetTool[D]
    ) -> Any:
        if has_passed(name_of(ctx, tool)):  # an outer toolset of ours has asked already
            return await super().call_tool(name, tool_args, ctx, tool)
        try:
            return await self.result(name, tool_args, ctx, tool, deferred=True)
        except (SkipToolExecution, ApprovalRequired, CallDeferred) as stop:
            raise (StopSignal(stop) if self.stop_signals else stop) from None

    async def result(
        self,
        name: str,
        tool_args: dict[str, Any],
        ctx: RunContext[D],
        tool: ToolsetTool[D],
        *,
        deferred: bool = False,
    ) -> Any:
        """Complete a call. Raises ``Paused`` if it waits, or defers it in the framework's way."""
        id = ctx.tool_call_id or ""
        if self.locate is None:
            name_of_thread, key = thread_of(ctx), key_in(ctx.messages, id)
        else:
            name_of_thread, key = self.locate(id)
        thread = await FrameworkThread(self.gate, name_of_thread, policy=self.policy).open()
        call = _Call(self, thread, key, name, ctx, tool)
        try:
            return _framework_result(await call.outcome(tool_args))
        except (Paused, TimedOut):
            if not deferred:
                raise
        raise await call.deferral()


@dataclass
class _Call(Generic[D]):
    toolset: GatedToolset[D]
    thread: FrameworkThread
    #: The key of its row.
    id: str
    name: str
    ctx: RunContext[D]
    tool: ToolsetTool[D]
    #: Set if the tool itself asked to be deferred.
    wants: ApprovalRequired | CallDeferred | None = None
    #: What the model wrote, and what the framework has made of it for this call.
    given: tuple[dict[str, Json], dict[str, Any]] | None = None

    @property
    def external(self) -> bool:
        """Whether the result comes from elsewhere, so that nothing runs here."""
        return self.toolset.kinds.get(self.name) == "external"

    async def outcome(self, values: dict[str, Any]) -> Outcome:
        """Complete the call, for which the framework has validated what the model wrote."""
        await self._check_edit()
        written = written_arguments(self.ctx)
        self.given = self._shown(values) if written is None else written, values
        call = FrameworkCall(
            id=self.id,
            tool=self._framework_tool(),
            args=self.given[0],
            run=self._run,
            dump=dump_result,
            load=load_result,
            passed=name_of(self.ctx, self.tool),
        )
        place = self.toolset.found
        if place is None:
            return await self.thread.outcome(call)
        place.check_open()
        return await FrameworkThread.inner(place, call, self.id)

    def _framework_tool(self) -> FrameworkTool:
        kind = self.toolset.kinds.get(self.name, "")
        return replace(framework_tool(self.tool.tool_def, kind), normalize=self._normalize)

    def _normalize(self, args: dict[str, Json]) -> Mapping[str, Json]:
        """Return the arguments as the tool reads them, with every default."""
        return self._shown(self._validated(args))

    def _shown(self, values: Any) -> dict[str, Json]:
        shown: dict[str, Json] = to_jsonable_python(values, by_alias=True)
        properties = self.tool.tool_def.parameters_json_schema.get("properties", {})
        if len(shown) == 1 and not shown.keys() & properties.keys():
            (inner,) = shown.values()  # one parameter that is a model: its fields are the arguments
            shown = inner if isinstance(inner, dict) else shown
        defaults = {n: p["default"] for n, p in properties.items() if "default" in p}
        return {**defaults, **shown}

    def _validated(self, args: dict[str, Json]) -> dict[str, Any]:
        if self.given is not None and self.given[0] == args:
            return self.given[1]
        text, context = codec.dumps(args), self.ctx.validation_context
        try:
            values: dict[str, Any] = self.tool.args_validator.validate_json(text, context=context)
        except ValidationError as error:
            raise invalid_arguments(error) from None
        return values

    async def _check_edit(self) -> None:
        """Ask people again, not the model, if the tool does not accept an edit."""
        row = await self.thread.find(self.id)
        if row is None or row.original is None or row.status is not CallStatus.READY:
            return
        try:
            values = self._validated(
                self._framework_tool().framework_args(codec.loads(row.args_to_run))
            )
            checks = self.tool.args_validator_func
            checked = checks(self.ctx, **values) if checks is not None else None
            if inspect.isawaitable(checked):
                await checked
        except (InvalidCall, ModelRetry, ToolFailed) as error:
            await ask_again(self.thread, row, f"the tool does not accept the edit: {error}")

    async def _run(self, args: dict[str, Json]) -> Any:
        place = current_place()
        assert place is not None
        row = place.call
        assert row is not None
        values = self._validated(args)
        check_validated(self._shown(values))
        try:
            return await self.toolset.wrapped.call_tool(
                self.name, values, _with_decision(self.ctx, row), self.tool
            )
        except (ApprovalRequired, CallDeferred) as wants:
            if row.decision is None:
                raise InvalidCall(
                    f"{self.name} asks for approval itself, but a rule makes its calls reads, "
                    "which run without a record: remove effect='read' from the rule"
                ) from None
            self.wants = wants
            raise Paused(row.run) from None
        except ModelRetry as error:
            if isinstance(error.__context__, TimeoutError) and "Timed out" in error.message:
                raise TimedOut(error.message) from None
            raise

    async def deferral(self) -> ApprovalRequired | CallDeferred:
        """Return the framework's exception for a deferred call, with its request."""
        row = await self.thread.find(self.id)
        if row is None:  # a read, in whose body another call waits
            return ApprovalRequired()
        if self.wants is not None and row.status is CallStatus.READY:
            terms = replace(row.terms, verdict=Verdict.ASK)
            if isinstance(self.wants, CallDeferred):
                terms = replace(terms, allowed=_BODILESS)
            await ask_again(self.thread, row, "the tool itself asks for approval", terms)
            row = await self.thread.find(self.id) or row
        metadata = dict((self.wants.metadata if self.wants is not None else None) or {})
        metadata["sayso"] = {"request": row.id, "digest": row.digest, "thread": row.thread}
        deferred = self.external or isinstance(self.wants, CallDeferred)
        return CallDeferred(metadata) if deferred else ApprovalRequired(metadata)


def framework_tool(tool: ToolDefinition, kind: str) -> FrameworkTool:
    """Describe a tool to the gate. ``kind`` says how the framework would treat its calls."""
    return FrameworkTool(
        name=tool.name,
        description=tool.description or "",
        parameters=tool.parameters_json_schema,
        needs_approval=kind in _DEFERRED,
        decisions=_BODILESS if kind == "external" else None,
    )


def _callable(tool: ToolsetTool[D]) -> ToolsetTool[D]:
    if tool.tool_def.kind not in _DEFERRED:
        return tool
    return replace(tool, tool_def=replace(tool.tool_def, kind="function"))


def thread_of(ctx: RunContext[Any]) -> str:
    """Return the thread of a conversation. A run without a conversation id is its own thread."""
    name = ctx.conversation_id or ctx.run_id
    assert name is not None
    return name


def written_arguments(ctx: RunContext[Any]) -> dict[str, Json] | None:
    """Return the arguments of the current call as the model wrote them, or None if its message is
    not known here."""
    for message in reversed(ctx.messages):
        for part in message.parts if isinstance(message, ModelResponse) else ():
            if isinstance(part, ToolCallPart) and part.tool_call_id == ctx.tool_call_id:
                return codec.parse_arguments(part.args_as_json_str())
    return None


def _with_decision(ctx: RunContext[D], row: Call) -> RunContext[D]:
    """Tell the tool through its context that it was approved, and by whom."""
    decision = row.decision
    by_rule = decision is None or decision.type == "allow"  # a read may run without a record
    about = {
        "request": row.id,
        "by": "" if decision is None else decision.by,
        "edited_from": None if row.original is None else codec.loads(row.original),
    }
    metadata = {**(ctx.tool_call_metadata or {}), "sayso": about}
    approved = not by_rule or row.terms.rule != NEEDS_APPROVAL
    return replace(ctx, tool_call_approved=approved, tool_call_metadata=metadata)


def _framework_result(outcome: Outcome) -> Any:
    """Return a result. Refusals are raised, because other hooks expect results."""
    value, text = outcome.value, outcome.text
    if outcome.ok and outcome.notice:
        if not isinstance(value, ToolReturn):
            return text
        return ToolReturn(text, content=value.content, metadata=value.metadata, tools=value.tools)
    if outcome.ok:
        return value
    failed = outcome.call is None or outcome.call.status is CallStatus.FAILED
    if failed or not _READS_DENIALS:
        raise ToolFailed(text)
    raise SkipToolExecution(ToolDenied(text))


# -- tools that are known without a run


def declared(toolset: Any) -> Iterator[FrameworkTool | AbstractToolset[Any]]:
    """Yield the tools of a toolset under the names that the model sees, and each toolset whose
    tools are only known in a run, such as an MCP server."""
    if isinstance(toolset, FunctionToolset):
        yield from (framework_tool(t.tool_def, t.tool_def.kind) for t in toolset.tools.values())
    elif isinstance(toolset, ExternalToolset):
        yield from (framework_tool(tool, "external") for tool in toolset.tool_defs)
    elif isinstance(toolset, CombinedToolset):
        yield from (part for inner in toolset.toolsets for part in declared(inner))
    elif isinstance(toolset, WrapperToolset):
        yield from (_renamed(part, toolset) for part in declared(toolset.wrapped))
    else:
        yield toolset


def _renamed(tool: Any, by: WrapperToolset[Any]) -> FrameworkTool | AbstractToolset[Any]:
    if not isinstance(tool, FrameworkTool):
        return by
    if isinstance(by, PrefixedToolset):
        return replace(tool, name=f"{by.prefix}_{tool.name}")
    if isinstance(by, RenamedToolset):
        new = {old: name for name, old in by.name_map.items()}
        return replace(tool, name=new.get(tool.name, tool.name))
    if isinstance(by, ApprovalRequiredToolset) and tool.needs_approval is False:
        return replace(tool, needs_approval=lambda _: True)  # its predicate sees each call
    return tool


# -- calls that an agent's messages hold


def key_in(messages: Sequence[ModelMessage], id: str) -> str:
    """Return the key of a call in the last reply, counted in the messages alone."""
    replies = [message for message in messages if isinstance(message, ModelResponse)]
    return numbered(id, sum(any(c.tool_call_id == id for c in r.tool_calls) for r in replies))


def numbered(id: str, count: int) -> str:
    """Number an id that earlier replies have too: some providers restart at every reply."""
    return id if count < 2 else f"{id}#{count}"


async def cancel_answered(
    calls: FrameworkThread, messages: Sequence[ModelMessage], key: Callable[[str], str]
) -> None:
    """Cancel calls that are still open although the last message holds their results."""
    last = messages[-1] if messages else None
    parts = last.parts if isinstance(last, ModelRequest) else ()
    # Older versions answer a call of an unknown tool with a request to try again.
    answered = [part for part in parts if isinstance(part, ToolReturnPart | RetryPromptPart)]
    await cancel_skipped(calls, [key(part.tool_call_id) for part in answered])


# -- results


_tool_return: TypeAdapter[ToolReturn[Any]] = TypeAdapter(ToolReturn)


def dump_result(value: Any) -> Json:
    """Return a tool's result as JSON.

    What is more than JSON (a file, a ``ToolReturn``) is stored with its kind, and the framework's
    own type adapter reads it back. Only files that the tool really returned count as files.
    """
    wrapped = value if isinstance(value, ToolReturn) else ToolReturn(value)
    stored: dict[str, Json] = _tool_return.dump_python(wrapped, mode="json", by_alias=True)
    plain = stored["return_value"]
    if wrapped is value or _is_tool_return(plain):
        return stored
    again = _tool_return.validate_python({"return_value": plain, "kind": "tool-return"})
    return plain if again.return_value == plain and not stored.get(_FILES) else stored


def load_result(stored: Json) -> Any:
    """Return a stored result as the framework expects it."""
    return _tool_return.validate_python(stored) if _is_tool_return(stored) else stored


_FILES = "content_file_digests"


def _is_tool_return(stored: Json) -> bool:
    is_object = isinstance(stored, dict) and stored.get("kind") == "tool-return"
    return is_object and "return_value" in stored
