"""Check what code inside a guarded run does where DSPy does it, on any OS thread.

The function of a tool can find or build any module and run it. ``install`` changes the places that
such code passes: a tool asks at the gate of the run around it, a request with which the provider of
a model would run tools is not sent, and code that a model wrote is not run.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import dspy
from dspy.clients import execution
from dspy.primitives.local_interpreter import LocalInterpreter
from dspy.primitives.python_interpreter import PythonInterpreter
from pydantic_core import to_jsonable_python

from sayso.adapters.calls import StopSignal, Unlisted, check_unlisted
from sayso.adapters.dspy.asking import AskingTool
from sayso.errors import InvalidCall, Refused
from sayso.gate.framework import (
    FrameworkCall,
    FrameworkThread,
    FrameworkTool,
    Outcome,
    check_validated,
)
from sayso.gate.guarded_runs import Place, current_place, tool_call
from sayso.gate.os_threads import wrap_method
from sayso.types import Json

#: Modules whose model writes code.
_WRITES_CODE = (dspy.ProgramOfThought, dspy.CodeAct, dspy.RLM)
#: Where the tools are defined that only end a loop.
_LOOPS = (dspy.ReAct.__module__, dspy.ReActV2.__module__)


@functools.cache
def install() -> None:
    """Check tools, models and interpreters from now on in this process."""
    wrap_method(dspy.Tool, "__call__", _call_tool)
    wrap_method(dspy.Tool, "acall", _acall_tool)
    wrap_method(dspy.ToolCalls.ToolCall, "execute", _execute)
    wrap_method(execution, "prepare", _prepare)
    wrap_method(dspy.Module, "__call__", functools.partial(_run_code, _WRITES_CODE))
    wrap_method(dspy.Module, "acall", functools.partial(_run_code, _WRITES_CODE))
    for interpreter in (PythonInterpreter, LocalInterpreter):
        wrap_method(interpreter, "execute", functools.partial(_run_code, (interpreter,)))


# -- tools as the gate knows them


class GatedFunction:
    """The function of a tool of a guarded agent: it returns the outcome of the guarded call."""

    def __init__(self, name: str, outcome: Callable[[str], Awaitable[Any]]) -> None:
        self.name = name
        self._outcome = outcome

    async def __call__(self, **kwargs: Any) -> Any:
        return await self._outcome(self.name)


def framework_tool(tool: dspy.Tool) -> FrameworkTool:
    args: Mapping[str, Any] = tool.args or {}
    return FrameworkTool(
        name=str(tool.name),
        description=tool.desc or "",
        parameters={
            "type": "object",
            "properties": dict(args),
            "required": [name for name, rules in args.items() if "default" not in rules],
            "additionalProperties": bool(tool.has_kwargs),
        },
        needs_approval=False if isinstance(tool, AskingTool) else None,
        normalize=lambda args: _normalize(tool, args),
    )


def _normalize(tool: dspy.Tool, args: dict[str, Json]) -> Mapping[str, Json]:
    """Return the arguments as DSPy reads them, with the defaults of nested models too."""
    try:
        return as_shown(tool, tool._validate_and_parse_args(**args))
    except ValueError as error:
        raise InvalidCall(str(error)) from None


def as_shown(tool: dspy.Tool, values: dict[str, Any]) -> dict[str, Json]:
    """Return validated arguments as people see them."""
    parameters: Mapping[str, Any] = tool.args or {}
    defaults = {name: rules["default"] for name, rules in parameters.items() if "default" in rules}
    return {**defaults, **to_jsonable_python(values, by_alias=True, fallback=str)}


# -- tools that code calls


def _call_tool(original: Any, tool: dspy.Tool, **kwargs: Any) -> Any:
    with _place_of(tool) as place:
        if place is None:
            return original(tool, **kwargs)
    return _value(FrameworkThread.inner_sync(place, _inner_call(tool, kwargs, original)))


async def _acall_tool(original: Any, tool: dspy.Tool, **kwargs: Any) -> Any:
    with _place_of(tool) as place:
        if place is None:
            return await original(tool, **kwargs)
    return _value(await FrameworkThread.inner(place, _inner_call(tool, kwargs, original)))


@contextmanager
def _place_of(tool: dspy.Tool) -> Iterator[Place | None]:
    """Yield the place at whose gate a tool has to ask; None if it runs as it is."""
    func: Any = tool.func
    ends_loop = getattr(func, "__module__", "") in _LOOPS and tool.name in ("finish", "submit")
    if ends_loop or isinstance(func, GatedFunction):
        yield None
        return
    with tool_call(id(tool)) as place:
        if place is not None:
            _refuse_added(tool, place)
        yield place


def _refuse_added(tool: dspy.Tool, place: Place) -> None:
    """Raise ``StopSignal`` for a tool that a guarded agent was given after ``guard``."""
    modules = dspy.settings.caller_modules or [None]
    if place.call is None and hasattr(getattr(modules[-1], "react", None), "loop_calls"):
        raise StopSignal(
            InvalidCall(
                f"{tool.name} was added to the agent after guard(...), and would bypass the gate: "
                "add all tools before you call guard(...)",
                "tools",
            )
        )


def _inner_call(tool: dspy.Tool, kwargs: dict[str, Any], original: Any) -> FrameworkCall:
    plain_args: dict[str, Json] = to_jsonable_python(kwargs, by_alias=True, fallback=str)

    async def run(args: dict[str, Json]) -> Any:
        # Pass the objects themselves where nobody has changed them.
        same = {
            name for name, value in args.items() if name in plain_args and plain_args[name] == value
        }
        arguments = {**args, **{name: kwargs[name] for name in same}}
        check_validated(as_shown(tool, tool._validate_and_parse_args(**arguments)))
        with tool_call(id(tool)):
            value = original(tool, **arguments)
            return await value if inspect.isawaitable(value) else value

    return FrameworkCall(
        id="", tool=framework_tool(tool), args=plain_args, run=run, passed=id(tool)
    )


def _value(outcome: Outcome) -> Any:
    """Return a result to the code that made the call. Raises if the tool did not run."""
    if outcome.ok:
        return outcome.text if outcome.notice else outcome.value
    if outcome.call is None:
        raise InvalidCall(outcome.text)
    raise Refused(outcome.text)


def _execute(original: Any, call: Any, functions: Any = None) -> Any:
    """Run ``ToolCall.execute``, which calls the function of a tool and not the tool."""
    if functions is None:  # DSPy looks for the function in the frame of its caller
        frame = sys._getframe(2)
        functions = {call.name: frame.f_locals.get(call.name, frame.f_globals.get(call.name))}
    if current_place() is None:
        return original(call, functions)
    if isinstance(functions, list):
        functions = {tool.name: tool for tool in reversed(functions)}
    tool = functions.get(call.name)
    if tool is None:
        return original(call, {})
    if not isinstance(tool, dspy.Tool):
        tool = dspy.Tool(tool, name=call.name)
    run = tool.acall if inspect.iscoroutinefunction(tool.func) else tool
    return original(call, {call.name: run})


# -- what the model's provider would run

#: The arguments of a model that cannot bring tools of its provider.
_PLAIN_ARGUMENTS = """
    api_base api_key api_version aws_access_key_id aws_profile_name aws_region_name aws_role_name
    aws_secret_access_key aws_session_name aws_session_token azure_ad_token
    azure_ad_token_provider base_url cache custom_llm_provider drop_params extra_headers
    frequency_penalty headers logit_bias logprobs max_completion_tokens max_output_tokens
    max_retries max_tokens messages metadata min_p modalities n num_retries organization
    parallel_tool_calls prediction presence_penalty project prompt prompt_cache prompt_cache_key
    prompt_cache_retention reasoning reasoning_effort repetition_penalty request_timeout
    response_format rollout_id safety_identifier seed service_tier stop stop_sequences store stream
    stream_options temperature text thinking timeout tool_choice top_k top_logprobs top_p truncation
    user verbosity vertex_credentials vertex_location vertex_project
"""
_PLAIN = frozenset(_PLAIN_ARGUMENTS.split())


def unlisted_arguments(arguments: Mapping[str, Any] | None) -> Iterator[Unlisted]:
    """Yield the arguments of a model with which its provider may run tools."""
    for name, value in (arguments or {}).items():
        if name == "tools":
            for spec in value or ():
                if isinstance(spec, Mapping) and spec.get("type") != "function":
                    yield _hosted(str(spec.get("name") or spec.get("type")))
        elif name not in _PLAIN and value:
            yield "model argument", name, "the provider may run tools that it brings"


def _hosted(name: str) -> Unlisted:
    return "hosted tool", name, "the provider runs it without asking first"


def _prepare(
    original: Any, model: Any, prompt: Any, messages: Any, kwargs: Any, **options: Any
) -> Any:
    """Check the request where every call of a model passes."""
    call = original(model, prompt, messages, kwargs, **options)
    if call.request is None:
        unlisted = list(unlisted_arguments({**model.kwargs, **kwargs}))
    else:
        unlisted = [_hosted(t.name) for t in call.request.tools if t.type != "function"]
        unlisted += unlisted_arguments({"extensions": call.request.config.extensions})
    check_unlisted(unlisted)
    return call


# -- code that a model wrote


def _run_code(
    kinds: tuple[type, ...], original: Any, instance: Any, *args: Any, **kwargs: Any
) -> Any:
    """Refuse, inside a guarded run, instances of these classes, which run such code."""
    name = type(instance).__name__
    place = current_place() if isinstance(instance, kinds) else None
    if place is not None and name not in place.ungated:
        raise InvalidCall(
            f"{name} was not run: it runs code that a model writes, where no gate can ask "
            "first. Use dspy.ReAct or dspy.ReActV2 with tools, or allow it without approval: "
            f"guard(..., ungated=[{name!r}])"
        )
    return original(instance, *args, **kwargs)
