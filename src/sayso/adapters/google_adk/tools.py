"""The gate around every tool of ADK, whatever code runs it.

All tools are run by ``run_async``, which most classes of tools define themselves. ``install`` puts
the gate into each of these methods, those of classes that are defined later too. Inside a guarded
run, a call that the model of the guarded agent made goes to its turn, and any other call goes
through the gate below the call whose body makes it.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from google.adk.agents.llm.task._finish_task_tool import FinishTaskTool
from google.adk.events.event_actions import EventActions
from google.adk.flows.llm_flows.tools import _caller
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.exit_loop_tool import exit_loop
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.set_model_response_tool import SetModelResponseTool
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.adk.tools.tool_context import ToolContext
from google.adk.tools.transfer_to_agent_tool import transfer_to_agent
from pydantic_core import to_jsonable_python

from sayso import codec
from sayso.adapters.google_adk.turn import ACTIONS, current_turn
from sayso.errors import InvalidCall, Rejected
from sayso.gate import outcomes
from sayso.gate.framework import (
    SUB_AGENT_TERMS,
    FrameworkAgent,
    FrameworkCall,
    FrameworkThread,
    FrameworkTool,
    Outcome,
    check_validated,
    kept,
)
from sayso.gate.guarded_runs import Place, current_place, tool_call
from sayso.gate.os_threads import wrap_method
from sayso.gate.outcomes import in_text
from sayso.sync import context_value
from sayso.types import Json, Question, Terms

Run = Callable[[dict[str, Any]], Awaitable[Any]]

#: The guarded agent that runs here inside a call of another agent.
current_part: ContextVar[FrameworkAgent | None] = ContextVar("sayso_adk_part", default=None)
#: Tools that only steer ADK's loop: they have no effect outside of it.
_STEERING = (FinishTaskTool, SetModelResponseTool)
_STEERING_FUNCTIONS = (exit_loop, transfer_to_agent)


def steers(tool: Any) -> bool:
    """Return whether a tool only steers the loop: it ends it, or names the next agent."""
    if isinstance(tool, AgentTool) and tool._defers_response:
        return True  # its agent runs when the turn goes on, as part of it
    return isinstance(tool, _STEERING) or getattr(tool, "func", None) in _STEERING_FUNCTIONS


# -- the gate in every class

#: The methods that ``wrap_everywhere`` has put into classes.
_wrapped: weakref.WeakSet[Any] = weakref.WeakSet()


def wrap_everywhere(base: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Replace a method by ``wrapper`` in a class and in all classes below it, also in those defined
    later. It gets the class and the original before ``self``."""

    def wrap_in(kind: Any) -> None:
        if getattr(kind, name) not in _wrapped:  # it may come from a class that is not below
            wrap_method(kind, name, functools.partial(wrapper, kind))
            _wrapped.add(vars(kind)[name])

    kinds = [base]
    for kind in kinds:
        wrap_in(kind)
        kinds += [each for each in kind.__subclasses__() if each not in kinds]
    own = vars(base).get("__init_subclass__")

    def init_subclass(kind: Any, /, **options: Any) -> None:
        if own is None:
            super(base, kind).__init_subclass__(**options)
        else:
            own.__func__(kind, **options)
        wrap_in(kind)

    base.__init_subclass__ = classmethod(init_subclass)


@functools.cache
def install() -> None:
    """Put the gate around all tools, from now on in this process."""
    wrap_everywhere(BaseTool, "run_async", _run_tool)
    wrap_everywhere(BaseTool, "check_require_confirmation", _check_confirmation)
    wrap_method(FunctionTool, "_prepare_invocation_args", _prepare_args)
    wrap_method(_caller, "_call_tool_async", _call_tool)


@dataclass(frozen=True)
class _Running:
    """The tool that runs here, and the class whose ``run_async`` runs it."""

    tool: Any
    context: Any
    kind: type


_running: ContextVar[_Running | None] = ContextVar("sayso_adk_tool", default=None)


async def _run_tool(
    kind: type, original: Any, tool: Any, *, args: dict[str, Any], tool_context: ToolContext
) -> Any:
    async def run(args: dict[str, Any]) -> Any:
        with context_value(_running, _Running(tool, tool_context, kind)):
            return await original(tool, args=args, tool_context=tool_context)

    if _is_part_of_call(kind, tool, tool_context):
        return await run(args)
    return await _gated(tool, run, args, tool_context)


async def _call_tool(
    original: Any, tool: Any, args: dict[str, Any], tool_context: ToolContext
) -> Any:
    """Gate the flow's own call of a tool, for a tool whose ``run_async`` was replaced."""
    if getattr(tool.run_async, "__func__", None) in _wrapped:
        return await original(tool, args, tool_context)
    return await _gated(tool, lambda args: original(tool, args, tool_context), args, tool_context)


def _is_part_of_call(kind: type, tool: Any, context: Any) -> bool:
    """Return whether a method continues the call that runs here: a call of ``super()``, or a tool
    of ADK that hands its call to another one of the same name."""
    running = _running.get()
    if running is None or running.context is not context:
        return False
    if running.tool is tool:
        order = type(tool).__mro__
        return order.index(kind) > order.index(running.kind)
    ours = type(running.tool).__module__.startswith("google.adk.")
    delegates = ours and not isinstance(running.tool, FunctionTool)
    return delegates and running.tool.name == tool.name


async def _gated(tool: Any, run: Run, args: dict[str, Any], context: ToolContext) -> Any:
    with tool_call(_name_of(tool, context)) as place:
        long_running = getattr(tool, "is_long_running", False)
        if place is None or steers(tool) or (long_running and tool.name in place.ungated):
            return await run(args)
    turn = current_turn.get()
    key = None if turn is None or place.call is not None else turn.key_of(context)
    call = _framework_call(tool, run, args, context)
    if turn is not None and key is not None:
        return _result(await turn.outcome(replace(call, id=key), context))
    part = current_part.get()
    if part is not None:
        place = replace(place, gate=part.gate, policy=part.policy)
    return _result(await FrameworkThread.inner(place, call))


def _name_of(tool: Any, context: ToolContext) -> tuple[int, int]:
    """Return what names a call where ADK runs it: each call has a context."""
    return (id(tool), id(context))


def _result(outcome: Outcome) -> Any:
    """Return what the tool returns to ADK. ``error`` marks what is no result."""
    if not outcome.ok:
        return {"error": outcome.text}
    if outcome.notice:
        return f"{outcome.notice} Its result: {outcomes.as_text(_plain(outcome.value))}"
    return outcome.value


# -- one call


def _framework_call(
    tool: Any, run_tool: Run, args: dict[str, Any], context: ToolContext
) -> FrameworkCall:
    described = framework_tool(tool, context)

    async def run(args: dict[str, Json]) -> Any:
        place = current_place()
        assert place is not None
        assert place.call is not None
        row = place.call
        calls = FrameworkThread(place.gate, place.thread, policy=place.policy)
        key = f"{row.key}/confirmation"
        stored_call = None
        if row.attempt > 1 or row.is_read:  # it may have asked before it was paused
            stored_call = await calls.find(key)
        with tool_call(_name_of(tool, context)):
            value = None if stored_call is not None else await run_tool(args)
            requests = context.actions.requested_tool_confirmations
            request = requests.pop(context.function_call_id or "", None)
            if stored_call is None and request is None:
                return value

            async def stored() -> Json:
                assert request is not None
                dumped: dict[str, Json] = request.model_dump(mode="json")
                return dumped

            request = ToolConfirmation.model_validate(await kept(calls, key, stored))
            context.tool_confirmation = await _confirm(place, tool.name, args, request)
            return await run_tool(args)

    return FrameworkCall(
        id="",
        tool=described,
        args=to_jsonable_python(args, by_alias=True, fallback=in_text),
        run=run,
        dump=functools.partial(_dump_result, context),
        load=functools.partial(_load_result, context),
        passed=_name_of(tool, context),
    )


async def _confirm(
    place: Place, name: str, args: Mapping[str, Json], request: ToolConfirmation
) -> ToolConfirmation:
    """Ask people for the confirmation that a tool requests in its body."""
    text = request.hint or f"{name} asks for a confirmation"
    if request.payload is None:
        confirmed = await place.gate.confirm(text, {"tool": name, "args": dict(args)})
        return ToolConfirmation(hint=request.hint, confirmed=confirmed)
    example = codec.dumps(request.payload)
    question = Question(
        f"{text}\n{name} expects a payload such as {example}",
        schema={
            "type": "object",
            "properties": {"confirmed": {"type": "boolean"}, "payload": {}},
            "required": ["confirmed"],
            "additionalProperties": False,
        },
    )
    try:
        answer = await place.gate.ask(question)
    except Rejected:
        return ToolConfirmation(hint=request.hint, confirmed=False)
    return ToolConfirmation.model_validate({"hint": request.hint, **answer})


async def _check_confirmation(
    kind: type, original: Any, tool: Any, args: dict[str, Any], tool_context: ToolContext
) -> Any:
    """Ask ADK for no confirmation where the gate asks."""
    if _asks_tool.get() or current_place() is None:
        return await original(tool, args, tool_context)
    return False


#: The gate itself asks whether a call needs a confirmation.
_asks_tool: ContextVar[bool] = ContextVar("sayso_adk_asks_tool", default=False)


# -- what a tool is


def framework_tool(tool: Any, context: Any = None) -> FrameworkTool:
    """Describe a tool to the gate."""
    delegates = isinstance(tool, AgentTool)
    # The flag of ADK, with its default, is what a tool declares.
    flag = False if delegates else getattr(tool, "_require_confirmation", None)

    async def needs_confirmation(args: Mapping[str, Json]) -> bool:
        with context_value(_asks_tool, True):
            return bool(await tool.check_require_confirmation(dict(args), context))

    parameters = _parameters(tool)
    described = FrameworkTool(
        name=tool.name,
        description=tool.description or "",
        parameters=parameters,
        needs_approval=needs_confirmation if callable(flag) else flag,
        own=SUB_AGENT_TERMS if delegates else Terms(),
    )
    if not isinstance(tool, FunctionTool) or not parameters["properties"]:
        return described
    forms: dict[bytes, Mapping[str, Json]] = {}

    def normalize(args: dict[str, Json]) -> Mapping[str, Json]:
        written = codec.canonical(args)
        if written not in forms:  # the same form is shown to people and judged by rules
            forms[written] = _normalize(tool, described, args)
        return forms[written]

    return replace(described, normalize=normalize)


def _parameters(tool: Any) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments."""
    declaration = tool._get_declaration()
    parameters: Any = getattr(declaration, "parameters_json_schema", None)
    if parameters is None and getattr(declaration, "parameters", None) is not None:
        parameters = declaration.parameters.json_schema.model_dump(
            mode="json", by_alias=True, exclude_none=True
        )
    return {"type": "object", "properties": {}, **(parameters or {})}


def _normalize(
    tool: FunctionTool, described: FrameworkTool, args: dict[str, Json]
) -> Mapping[str, Json]:
    """Return the arguments as ADK reads them, with every default."""
    unknown = [name for name in args if name not in described.parameters["properties"]]
    if unknown:
        raise InvalidCall(f"{unknown[0]}: {tool.name} has no such argument", unknown[0])
    values, errors = tool._preprocess_args_with_validation(args)
    if errors:
        raise InvalidCall(" ".join(errors[0].split()))
    missing = [name for name in tool._get_mandatory_args() if name not in values]
    if missing:
        raise InvalidCall(f"{missing[0]}: the argument is missing", missing[0])
    return _as_shown(described.parameters, values)


def _as_shown(parameters: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Json]:
    """Return the values that a tool's function gets as JSON, with the defaults of its schema."""
    properties: Mapping[str, Any] = parameters["properties"]
    defaults = {n: rules["default"] for n, rules in properties.items() if "default" in rules}
    declared = {name: _plain(value) for name, value in values.items() if name in properties}
    return {**defaults, **declared}


def _plain(value: Any) -> Any:
    if isinstance(value, set | frozenset):  # its order differs between processes
        value = sorted(value, key=repr)
    return to_jsonable_python(value, by_alias=True, fallback=in_text)


def _prepare_args(
    original: Any, tool: FunctionTool, args: dict[str, Any], tool_context: ToolContext
) -> Any:
    """Compare arguments between ADK's validation and the tool's function."""
    running = _running.get()
    if running is not None and running.tool is tool and not _asks_tool.get():
        parameters = _parameters(tool)
        if parameters["properties"]:
            check_validated(_as_shown(parameters, args))
    return original(tool, args, tool_context)


# -- results


def _dump_result(context: ToolContext, value: Any) -> Json:
    """Return a tool's result as JSON, with what the tool did to the state and to the run."""
    dumped = context.actions.model_dump(exclude={"requested_tool_confirmations"})
    actions = {name: action for name, action in dumped.items() if action not in (None, {}, [])}
    plain: Json = _plain(value)
    return {"result": plain, ACTIONS: _plain(actions)} if actions else plain


def _load_result(context: ToolContext, stored: Json) -> Any:
    """Return a stored result, and repeat what its tool did to the state and to the run."""
    if not isinstance(stored, dict) or ACTIONS not in stored:
        return stored
    actions = EventActions.model_validate(stored[ACTIONS])
    for name in actions.model_fields_set - {"state_delta"}:
        setattr(context.actions, name, getattr(actions, name))
    context.state.update(actions.state_delta)
    return stored["result"]
