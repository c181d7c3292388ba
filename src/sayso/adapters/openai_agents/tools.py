"""The SDK's tools at a gate: ``needs_approval`` asks, and the invocation runs the stored call.

Also here: results as they are stored, guardrails, decisions that were made on a ``RunState``, tools
that the provider runs (hosted MCP), ``tool_use_behavior``, and ``ask_user``.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Annotated, Any

from agents import (
    Agent,
    FunctionTool,
    FunctionToolResult,
    RunContextWrapper,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolInputGuardrailData,
    ToolOutputFileContent,
    ToolOutputImage,
    ToolOutputText,
    ToolsToFinalOutputResult,
    function_tool,
)
from agents.agent_tool_state import get_agent_tool_state_scope, peek_agent_tool_run_result
from agents.function_schema import function_schema
from agents.tool import _FailureHandlingFunctionToolInvoker as Invoker
from agents.tool import maybe_invoke_function_tool_failure_error_function as text_of_failure
from agents.tool_context import ToolContext
from pydantic import BaseModel, Field

from sayso import codec
from sayso.adapters.calls import hosted_call, normalized
from sayso.adapters.openai_agents.messages import ActiveRun, current_run, require_run
from sayso.errors import InvalidCall, InvalidDecision, Paused, Rejected
from sayso.gate import outcomes
from sayso.gate.framework import (
    SUB_AGENT_TERMS,
    FrameworkCall,
    FrameworkThread,
    FrameworkTool,
    Outcome,
    check_validated,
    pending_calls,
)
from sayso.gate.guarded_runs import Place, note_pause
from sayso.gate.plan import cancel_call
from sayso.inbox import Inbox
from sayso.rows import Call, CallStatus
from sayso.stores.row_checks import request_in
from sayso.sync import read, to_thread, write
from sayso.types import Json, Option, Question, Terms

Invoke = Callable[[ToolContext[Any], str], Awaitable[Any]]
#: How the SDK's own tools invoke themselves, without the check of ``sayso.gate.guarded_runs``.
_invoke_unchecked: Any = Invoker.__call__


def guard_tool(tool: FunctionTool, agent: Agent[Any]) -> FunctionTool:
    """Return a copy of an agent's tool that asks at the gate."""
    copied = copy.copy(tool)
    guarded = GuardedTool(tool, agent, copied)
    copied.needs_approval = guarded.asks
    copied.on_invoke_tool = guarded.invoke
    if tool.tool_input_guardrails is not None:
        copied.tool_input_guardrails = list(map(_on_stored, tool.tool_input_guardrails))
    return copied


def guarded_tool_of(tool: Any) -> GuardedTool | None:
    """Return the guard of a tool, if the tool is one of ours."""
    owner = getattr(getattr(tool, "on_invoke_tool", None), "__self__", None)
    return owner if isinstance(owner, GuardedTool) else None


async def gated_call(
    place: Place, tool: FunctionTool, context: ToolContext[Any], arguments: str
) -> Any:
    """Return the result of a call that code inside a guarded run makes past the gate."""
    try:
        args = codec.parse_arguments(arguments or "")
    except InvalidCall as error:
        return f"The call cannot be read: {error}"
    guarded = GuardedTool(tool)
    described = await guarded.described(context, args, context.tool_call_id)
    call = FrameworkCall(id=context.tool_call_id, tool=described, args=args)
    return await guarded.result(context, call, partial(FrameworkThread.inner, place))


class GuardedTool:
    """One tool: how it is described, asked about and run."""

    def __init__(
        self,
        tool: FunctionTool,
        agent: Agent[Any] | None = None,
        copied: FunctionTool | None = None,
    ) -> None:
        self.tool = tool
        self.agent_name = "" if agent is None else agent.name
        #: The guarded copy.
        self.copied = copied
        self.needs_approval = tool.needs_approval
        #: Set if the tool is an agent: it has no effect itself, and its calls have rows.
        self.inner: Agent[Any] | None = tool._agent_instance if tool._is_agent_tool else None

    # -- described to the gate

    @cached_property
    def descriptions(self) -> dict[bool, FrameworkTool]:
        """The tool, without and with the need for approval."""
        model = self._model
        asking = FrameworkTool(
            name=self.tool.qualified_name,
            description=self.tool.description,
            parameters=_with_defaults(self.tool.params_json_schema, model),
            needs_approval=True,
            own=Terms() if self.inner is None else SUB_AGENT_TERMS,
            normalize=None if model is None else partial(normalized, model),
        )
        return {True: asking, False: replace(asking, needs_approval=False)}

    @cached_property
    def _model(self) -> type[BaseModel] | None:
        return _arguments(self.tool)

    @property
    def framework_tool(self) -> FrameworkTool:
        """The tool with its own ``needs_approval``; a predicate sees each call."""
        needed = self.needs_approval
        if isinstance(needed, bool):
            return self.descriptions[needed]
        return replace(self.descriptions[True], needs_approval=lambda _: True)

    async def described(self, context: Any, args: Mapping[str, Json], id: str) -> FrameworkTool:
        """Return the tool with what its ``needs_approval`` says about the complete arguments."""
        needed = self.needs_approval
        if not isinstance(needed, bool):
            try:
                complete = codec.loads(self.descriptions[True].intake(args))
                needs: Any = needed(context, complete, id)
                needs = await needs if inspect.isawaitable(needs) else needs
            except Exception:
                needs = True  # a predicate that fails asks
            needed = needs is not False  # and so does one that does not return a boolean
        return self.descriptions[needed]

    def unconditional_call(
        self, active: ActiveRun, key: str, arguments: str
    ) -> FrameworkCall | None:
        """Return the call, if no predicate has to be asked first; None otherwise."""
        if not isinstance(self.needs_approval, bool):
            return None
        try:
            args = codec.parse_arguments(arguments or "")
            return active.new_call(key, self.descriptions[self.needs_approval], args)
        except InvalidCall:
            return None  # invoke() tells the model

    # -- called by the SDK

    async def asks(self, context: RunContextWrapper[Any], args: dict[str, Any], id: str) -> bool:
        """Ask about a call, and return whether it waits; the SDK calls it as ``needs_approval``."""
        active = require_run(self.tool.name)
        key = active.key(self.agent_name, id)
        with active.remember_errors():
            await self._ensure_asked(active, key, context, args, id)
            waits = await read(active.calls.store, active.waits, key)
        if waits:
            note_pause(Paused(active.calls.run))
        return waits

    async def _ensure_asked(
        self, active: ActiveRun, key: str, context: Any, args: dict[str, Json], id: str
    ) -> None:
        if key not in active.judged and await active.calls.find(key) is None:
            active.note_new_call(key)
            described = await self.described(context, args, id)
            await active.calls.ask([active.new_call(key, described, args)])

    async def invoke(self, context: ToolContext[Any], arguments: str) -> Any:
        """Return the result of a call; the SDK calls it as ``on_invoke_tool``."""
        active = require_run(self.tool.name)
        try:
            args = codec.parse_arguments(arguments or "")
        except InvalidCall as error:
            return f"The call cannot be read: {error}"
        try:
            with active.remember_errors():
                return await self._outcome(active, context, args)
        except Paused:
            active.raise_error()
            if self.inner is None or active.stopped:
                if active.manual:
                    raise
                active.stopped = True
            return ""  # the model never sees it
        except asyncio.CancelledError:
            # Most likely a timeout of the SDK. The call is in doubt, and people have to settle it
            # before the model continues.
            active.stopped = True
            raise

    async def _outcome(
        self, active: ActiveRun, context: ToolContext[Any], args: dict[str, Json]
    ) -> Any:
        id = context.tool_call_id
        key = active.key(self.agent_name, id)
        if active.manual:
            # After "always approve" the SDK does not call asks().
            await self._ensure_asked(active, key, context, args, id)
            waiting = await active.calls.find(key)
            if waiting is not None:  # the SDK makes the call, so it was approved on a ``RunState``
                await _decide(active, waiting, yes=True)
        row = await active.calls.find(key)
        judged = args
        notice = ""
        if row is not None and row.original is not None:  # a person edited it
            judged = codec.loads(row.args_to_run)
            notice = outcomes.what_ran(row, codec.canonical(args).decode())
        described = await self.described(context, judged, id)
        call = active.new_call(key, described, args)
        return await self.result(context, call, active.calls.outcome, notice)

    # -- run by the gate

    async def result(
        self,
        context: ToolContext[Any],
        call: FrameworkCall,
        complete: Callable[[FrameworkCall], Awaitable[Outcome]],
        notice: str = "",
    ) -> Any:
        """Complete a call, and return its result for the SDK.

        ``notice`` says that other arguments run than the model wrote.
        """
        raised: list[Exception] = []

        async def run(args: dict[str, Json]) -> Any:
            if self._model is not None:
                # The SDK validates inside of the tool, where nothing can be compared.
                check_validated(normalized(self._model, args))
            try:
                return await self._run(context, call.id, json.dumps(args))
            except Exception as error:
                raised.append(error)
                raise

        dump = dump_result if self.tool.output_json_schema is None else call.dump
        try:
            outcome = await complete(replace(call, run=run, dump=dump))
        except Exception as error:
            # The error is recorded. The tool decides what the model reads about it.
            if error not in raised:
                raise
            text = await text_of_failure(function_tool=self.tool, context=context, error=error)
            if text is None:  # its ``failure_error_function`` is None: the error ends the run
                raise
            return f"{notice} {text}".strip()
        if not outcome.ok or outcome.by_person:
            return outcome.text
        return with_notice(outcome) if outcome.notice else outcome.value

    async def _run(self, context: ToolContext[Any], key: str, arguments: str) -> Any:
        active = current_run()
        if self.inner is None or self.copied is None or active is None:
            return await self._function(with_arguments(context, arguments), arguments)
        with active.in_call(key, (self.inner, self.copied._agent_instance)):
            value = await self._function(context, arguments)
        # Whether the agent has stopped for approval, as the SDK finds out.
        scope = get_agent_tool_state_scope(context)
        tool_call: Any = context.tool_call
        result = peek_agent_tool_run_result(tool_call, scope_id=scope)
        if active.error is not None or getattr(result, "interruptions", None):
            raise Paused(active.calls.run)
        return value

    @cached_property
    def _function(self) -> Invoke:
        """The function of the tool. It raises errors, which the SDK would turn into text."""
        raising = copy.copy(self.tool)
        if not self.tool._is_agent_tool:
            raising._failure_error_function = None
            raising._use_default_failure_error_function = False
        function = raising.on_invoke_tool
        return partial(_invoke_unchecked, function) if isinstance(function, Invoker) else function


def _arguments(tool: FunctionTool) -> type[BaseModel] | None:
    """Return the model with which a decorated function reads its arguments."""
    try:
        function = tool.__wrapped__
    except AttributeError:
        return None
    schema = function_schema(function, strict_json_schema=tool.strict_json_schema)
    return schema.params_pydantic_model


def _with_defaults(rules: Mapping[str, Any], model: type[BaseModel] | None) -> Mapping[str, Any]:
    """Add the defaults that are None, which a strict schema leaves out."""
    properties = rules.get("properties", {})
    fields = {} if model is None else model.model_fields
    nulls = {
        name: {**properties[name], "default": None}
        for name, field in fields.items()
        if field.default is None and name in properties and "default" not in properties[name]
    }
    return {**rules, "properties": {**properties, **nulls}} if nulls else rules


# -- arguments and results


_SHAPES = (ToolOutputText, ToolOutputImage, ToolOutputFileContent)
_TYPES = ("text", "image", "file")


def dump_result(value: Any) -> Json:
    """Return a result as JSON: the SDK's own output types as such, anything else as text."""
    if isinstance(value, list | tuple) and value and all(_is_shape(item) for item in value):
        return [_plain(item) for item in value]
    if _is_shape(value):
        return _plain(value)
    return value if isinstance(value, str) else str(value)


def with_notice(outcome: Outcome) -> Any:
    """Return a result with the note that other arguments ran."""
    stored = dump_result(outcome.value)
    if isinstance(stored, str):
        return outcome.text
    parts = stored if isinstance(stored, list) else [stored]
    return [{"type": "text", "text": outcome.notice}, *parts]


def _is_shape(value: Any) -> bool:
    if isinstance(value, dict):
        return value.get("type") in _TYPES
    return isinstance(value, _SHAPES)


def _plain(value: Any) -> Json:
    if isinstance(value, dict):
        return value
    plain: dict[str, Json] = value.model_dump(mode="json", exclude_none=True)
    return plain


# -- guardrails


def _on_stored(guardrail: ToolInputGuardrail[Any]) -> ToolInputGuardrail[Any]:
    """Return a guardrail that after an edit checks the arguments that will run.

    The SDK shows it what the model wrote.
    """

    async def judged(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        active = require_run(data.context.tool_name)
        key = f"{active.path}{data.context.tool_call_id}"
        row = await active.calls.find(key)
        if row is not None and row.original is not None:
            data = replace(data, context=with_arguments(data.context, row.args_to_run))
        return await guardrail.run(data)

    return ToolInputGuardrail(judged, guardrail.get_name())


def with_arguments(context: ToolContext[Any], arguments: str) -> ToolContext[Any]:
    """Return the context of a call as if the model had written these arguments."""
    changed = copy.copy(context)
    changed.tool_arguments = arguments
    return changed


# -- what the SDK answers in a tool's place


CHANNEL = "openai-agents"
#: ``always_approve=True``: every call of this tool, for the rest of this run.
ALWAYS: Mapping[str, Any] = {"scope": "any", "within": "run"}

_OPEN = (CallStatus.ASKED, CallStatus.READY)


async def record_refusals(context: RunContextWrapper[Any]) -> None:
    """Record refusals on a ``RunState``, which show when the SDK lists the tools to continue."""
    active = current_run()
    if active is None or not active.manual:
        return
    active.contexts[active.path] = context
    store = active.calls.store
    for row in await read(store, pending_calls, store, active.calls.run):
        id = row.key.removeprefix(active.path)
        names = (row.tool, row.tool.partition(".")[2])  # the SDK knows a hosted one by the second
        for name in names if id else ():
            if name and context.is_tool_approved(name, id) is False:
                why = context.get_rejection_message(name, id) or ""
                with active.remember_errors():
                    await _decide(active, row, yes=False, why=why)
                break


async def close_answered(active: ActiveRun, conversation: Any) -> None:
    """Close open calls that have a result in the conversation, by a guardrail or by hand."""
    run = await read(active.calls.store, active.calls.store.run, active.calls.run)
    if run is None or not (run.asked or run.ready):
        return  # nothing is open
    for key, yes, why in _answers(conversation):
        row = await active.calls.find(active.path + key)
        if row is None or row.status not in _OPEN:
            continue
        if active.manual:
            await _decide(active, row, yes=yes, why=why)
        elif not yes:
            reason = f"the agent continued without it: {why}"
            await write(active.calls.store, cancel_call(row, reason))
        if yes and await read(active.calls.store, active.waits, active.path + key):
            raise Paused(active.calls.run)  # or the provider would make the call


def _answers(conversation: Any) -> Iterable[tuple[str, bool, str]]:
    for item in conversation if isinstance(conversation, list) else ():
        kind = item.get("type") if isinstance(item, Mapping) else None
        if kind == "function_call_output":
            output = item.get("output")
            yield str(item.get("call_id")), False, output if isinstance(output, str) else ""
        elif kind == "mcp_approval_response":
            yes, why = item.get("approve") is True, str(item.get("reason") or "")
            yield str(item.get("approval_request_id")), yes, why


async def _decide(active: ActiveRun, row: Call, *, yes: bool, why: str = "") -> None:
    """Record a decision that was made by hand, unless the request is decided already.

    ``always_approve`` is a grant. A call that it does not cover waits for people, although the SDK
    would let it pass: no person has seen it.
    """
    if row.status is not CallStatus.ASKED or (yes and not active.was_shown(row.key)):
        return
    store = active.calls.store
    request = await to_thread(request_in, store, row)
    decision = request.approve() if yes else request.reject(why)
    grant = ALWAYS if yes and active.is_always_approved(row.tool) else None
    decide = partial(Inbox(store).decide, row.id, decision, by=active.by, channel=CHANNEL)
    try:
        await decide(grant=grant)
    except InvalidDecision:  # a command of which no grant could say what it covers
        if grant is None:
            raise
        await decide()


# -- hosted MCP tools, which the provider runs


def requested_call(key: str, request: Any) -> FrameworkCall:
    """Return the call that the provider asks about, or raise ``InvalidCall``."""
    args = codec.parse_arguments(request.arguments or "{}")
    return hosted_call(key, f"{request.server_label}.{request.name}", args)


async def hosted_outcome(active: ActiveRun, key: str, request: Any) -> Outcome:
    """Return the decision for the provider: approved, or rejected with a reason."""
    try:
        return await active.calls.outcome(requested_call(key, request))
    except InvalidCall as error:
        return Outcome(ok=False, value=None, text=f"The call cannot be read: {error}")


# -- tool_use_behavior


_REFUSED = (CallStatus.REJECTED, CallStatus.EXPIRED, CallStatus.CANCELLED, CallStatus.SUPERSEDED)


def stop_unless_refused(behavior: Any) -> Any:
    """Return a ``tool_use_behavior`` that does not end the run with a refusal.

    A tool's result may be the agent's output, but a refusal always goes to the model. Custom
    behaviours are returned as they are.
    """
    if behavior != "stop_on_first_tool" and not isinstance(behavior, dict):
        return behavior

    async def final_output(
        context: RunContextWrapper[Any], results: Sequence[FunctionToolResult]
    ) -> ToolsToFinalOutputResult:
        last: FunctionToolResult | None = results[0]
        if isinstance(behavior, dict):
            names = behavior.get("stop_at_tool_names", [])
            matching = (
                r for r in results if r.tool.name in names or r.tool.qualified_name in names
            )
            last = next(matching, None)
        if last is None or await _was_refused(last):
            return ToolsToFinalOutputResult(is_final_output=False, final_output=None)
        return ToolsToFinalOutputResult(is_final_output=True, final_output=last.output)

    return final_output


async def _was_refused(result: FunctionToolResult) -> bool:
    raw: Any = None if result.run_item is None else result.run_item.raw_item
    id = raw.get("call_id") if isinstance(raw, dict) else getattr(raw, "call_id", None)
    active = require_run(result.tool.name)
    row = await active.calls.find(f"{active.path}{id}")
    return row is not None and row.status in _REFUSED


# -- ask_user


@dataclass(frozen=True)
class Choice:
    """One choice that the model offers."""

    label: str
    value: str
    description: str | None = None


async def _ask_user_question(
    question: str,
    options: Annotated[list[Choice], Field(min_length=2, max_length=5)] | None = None,
    allow_multiple: bool = False,
    free_text: bool = False,
) -> str:
    """Ask the user a question and wait for the answer.

    Args:
        question: What to ask, in full.
        options: Two to five choices; leave out for an answer in the user's own words.
        allow_multiple: Whether several choices may be picked.
        free_text: Whether the user may also answer in their own words.
    """
    choices = tuple(Option(o.label, o.value, o.description or "") for o in options or ())
    user_question = Question(
        question, choices, multiple=allow_multiple, free_text=free_text or not choices
    )
    try:
        answer: Any = await require_run("ask_user_question").calls.gate.ask(user_question)
    except Rejected as no:
        decision = None if no.request is None else no.request.decision
        return f"The user will not answer. {'' if decision is None else decision.message}".strip()
    return answer if isinstance(answer, str) else codec.dumps(answer)


#: Asks in the inbox of the gate that guards the agent. The answer is the tool's result.
ask_user = function_tool(_ask_user_question, name_override="ask_user_question")
