"""Check what code inside a guarded run does where DSPy does it, on any OS thread.

The function of a tool can find or build any module and run it. ``install`` changes the places that
such code passes: a tool asks at the gate of the run around it, a model whose provider would run
tools is not called, and code that a model wrote is not run.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import dspy
from dspy.primitives.local_interpreter import LocalInterpreter
from dspy.primitives.python_interpreter import PythonInterpreter
from pydantic_core import to_jsonable_python

from sayso.adapters.calls import StopSignal
from sayso.adapters.dspy.tools import GatedFunction, as_shown, framework_tool
from sayso.errors import InvalidCall, Refused
from sayso.gate.coverage import Coverage
from sayso.gate.framework import FrameworkCall, FrameworkThread, Outcome, check_validated
from sayso.gate.guarded_runs import Place, current_place, tool_call
from sayso.types import Json

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
#: Modules whose model writes code.
_WRITES_CODE = (dspy.ProgramOfThought, dspy.CodeAct, dspy.RLM)
#: Where the tools are defined that only end a loop.
_LOOPS = (dspy.ReAct.__module__, dspy.ReActV2.__module__)


def list_model(coverage: Coverage, model: Any, where: str) -> None:
    """Add what the provider of a model would run to the table."""
    for kind, name, why in _unlisted(getattr(model, "kwargs", None)):
        coverage.missed(where, kind, name, why)


@functools.cache
def install() -> None:
    """Check tools, models and interpreters from now on in this process."""
    dspy.Tool.__call__ = _gated_call(dspy.Tool.__call__)
    dspy.Tool.acall = _gated_acall(dspy.Tool.acall)
    dspy.ToolCalls.ToolCall.execute = _gated_execute(dspy.ToolCalls.ToolCall.execute)
    for kind, check, names in (
        (dspy.BaseLM, _check_model, ("__call__", "acall")),
        (dspy.Module, _check_module, ("__call__", "acall")),
        (PythonInterpreter, _check_code, ("execute",)),
        (LocalInterpreter, _check_code, ("execute",)),
    ):
        for name in names:
            setattr(kind, name, _checked(getattr(kind, name), check))


def _checked(method: Any, check: Callable[[Any, Mapping[str, Any]], None]) -> Any:
    """Return a method that is called only after a check. A coroutine is checked when it is made."""

    @functools.wraps(method)
    def checked(instance: Any, *args: Any, **kwargs: Any) -> Any:
        check(instance, kwargs)
        return method(instance, *args, **kwargs)

    return checked


# -- tools


def _gated_call(original: Any) -> Any:
    @functools.wraps(original)
    def call(tool: dspy.Tool, **kwargs: Any) -> Any:
        if _asks_nobody(tool):
            return original(tool, **kwargs)
        with tool_call(id(tool)) as place:
            if place is None:
                return original(tool, **kwargs)
        _refuse_added(tool, place)

        async def run(given: dict[str, Any]) -> Any:
            with tool_call(id(tool)):
                return original(tool, **given)

        return _value(FrameworkThread.inner_sync(place, _inner_call(tool, kwargs, run)))

    return call


def _gated_acall(original: Any) -> Any:
    @functools.wraps(original)
    async def acall(tool: dspy.Tool, **kwargs: Any) -> Any:
        if _asks_nobody(tool):
            return await original(tool, **kwargs)
        with tool_call(id(tool)) as place:
            if place is None:
                return await original(tool, **kwargs)
        _refuse_added(tool, place)

        async def run(given: dict[str, Any]) -> Any:
            with tool_call(id(tool)):
                return await original(tool, **given)

        return _value(await FrameworkThread.inner(place, _inner_call(tool, kwargs, run)))

    return acall


def _gated_execute(original: Any) -> Any:
    """Return ``ToolCall.execute``, which calls the function of a tool and not the tool."""

    @functools.wraps(original)
    def execute(call: Any, functions: Any = None) -> Any:
        if functions is None:  # DSPy looks for the function in the frame of its caller
            frame = sys._getframe(1)
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

    return execute


def _asks_nobody(tool: dspy.Tool) -> bool:
    """Return whether a tool has asked already, or only ends its loop."""
    func: Any = tool.func
    own = getattr(func, "__module__", "") in _LOOPS and tool.name in ("finish", "submit")
    return own or isinstance(func, GatedFunction)


def _refuse_added(tool: dspy.Tool, place: Place) -> None:
    """Raise ``StopSignal`` for a tool that a guarded agent was given after ``guard``."""
    modules = dspy.settings.caller_modules or [None]
    if place.call is None and hasattr(getattr(modules[-1], "react", None), "guarded"):
        raise StopSignal(
            InvalidCall(
                f"{tool.name} was added to the agent after guard(...), and would bypass the gate: "
                "add all tools before you call guard(...)",
                "tools",
            )
        )


def _inner_call(tool: dspy.Tool, kwargs: dict[str, Any], call: Callable[..., Any]) -> FrameworkCall:
    shown: dict[str, Json] = to_jsonable_python(kwargs, by_alias=True, fallback=str)

    async def run(args: dict[str, Json]) -> Any:
        # Pass the objects themselves where nobody has changed them.
        same = {name for name, value in args.items() if name in shown and shown[name] == value}
        given = {**args, **{name: kwargs[name] for name in same}}
        check_validated(as_shown(tool, tool._validate_and_parse_args(**given)))
        return await call(given)

    return FrameworkCall(id="", tool=framework_tool(tool), args=shown, run=run, passed=id(tool))


def _value(outcome: Outcome) -> Any:
    """Return a result to the code that made the call. Raises if the tool did not run."""
    if outcome.ok:
        return outcome.text if outcome.notice else outcome.value
    if outcome.call is None:
        raise InvalidCall(outcome.text)
    raise Refused(outcome.text)


# -- models


def _unlisted(options: Mapping[str, Any] | None) -> Iterator[tuple[str, str, str]]:
    """Yield the kind and name of what a provider would run because of these arguments, and why."""
    for name, value in (options or {}).items():
        if name == "tools":
            for spec in value or ():
                if isinstance(spec, Mapping) and spec.get("type") != "function":
                    hosted = str(spec.get("name") or spec.get("type"))
                    yield "hosted tool", hosted, "the provider runs it without asking first"
        elif name not in _PLAIN and value:
            why = "the provider may run tools that it brings, without asking first"
            yield "model argument", name, why


def _check_model(model: Any, kwargs: Mapping[str, Any]) -> None:
    options = {**(getattr(model, "kwargs", None) or {}), **kwargs}
    for kind, name, why in _unlisted(options):
        place = current_place()
        if place is not None and name not in place.ungated:
            raise InvalidCall(
                f"the model was not called: it has the {kind} {name!r}, and {why}. Use another "
                f"model, or allow it without approval: guard(..., ungated=[{name!r}])"
            )


# -- code that a model wrote


def _check_module(module: Any, _: Mapping[str, Any]) -> None:
    if isinstance(module, _WRITES_CODE):
        _check_code(module, _)


def _check_code(runner: Any, _: Mapping[str, Any]) -> None:
    place = current_place()
    name = type(runner).__name__
    if place is not None and name not in place.ungated:
        raise InvalidCall(
            f"{name} was not run: it runs code that a model writes, where no gate can ask first. "
            "Use dspy.ReAct or dspy.ReActV2 with tools, or allow it without approval: "
            f"guard(..., ungated=[{name!r}])"
        )
