"""A copy of an agent whose predictors remember and whose tools ask."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import dspy
from dspy.adapters.types.tool import ToolCalls
from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from sayso.adapters.dspy._asking import AskingTool
from sayso.adapters.dspy._memory import Memory, Stopped, memory
from sayso.errors import InvalidCall, SaysoError
from sayso.gate.foreign import ForeignCall, ForeignTool, Outcome
from sayso.policy import Predicate
from sayso.threads import off_loop
from sayso.types import Json

Made = Callable[[Any], list[tuple[str, dict[str, Json]]]]


def guarded(agent: Any, needs_approval: bool | Predicate) -> Any:
    """The same agent, remembering and asking; the one given is left as it is."""
    # A CodeAct is one by descent only: its tools run in code that the model writes.
    if isinstance(agent, dspy.ReAct) and hasattr(agent, "react"):
        made, extracts, own = _made_by_react, True, "finish"
    elif isinstance(agent, dspy.ReActV2):
        made, extracts, own = _made_by_react_v2, False, "submit"
    else:
        raise TypeError(f"guard a dspy.ReAct or a dspy.ReActV2, and not {type(agent).__name__}")
    # The loop's own tool ends it, and has no effect; in another loop the name means nothing.
    twin = copy.copy(agent)
    faces = {
        name: foreign_tool(tool, needs_approval)
        for name, tool in agent.tools.items()
        if name != own
    }
    twin.tools = {
        name: _asking(tool) if name in faces else tool for name, tool in agent.tools.items()
    }
    twin.react = Remembering("reply", agent.react, _Step(made, own, agent.tools, faces))
    if extracts:
        twin.extract = Remembering("extract", agent.extract)
    return twin


def faces_of(twin: Any) -> Mapping[str, ForeignTool]:
    """How the gate knows the tools of an agent that was made here."""
    step: _Step = twin.react.step
    return step.faces


def foreign_tool(tool: dspy.Tool, needs_approval: bool | Predicate) -> ForeignTool:
    """A DSPy tool as the gate knows it."""
    args: Mapping[str, Any] = tool.args or {}
    return ForeignTool(
        name=str(tool.name),
        description=tool.desc or "",
        parameters={
            "type": "object",
            "properties": dict(args),
            "required": [name for name, rules in args.items() if "default" not in rules],
            "additionalProperties": bool(tool.has_kwargs),
        },
        needs_approval=not isinstance(tool, AskingTool) and needs_approval,
        read=lambda args: _read(tool, args),
    )


def _read(tool: dspy.Tool, args: dict[str, Json]) -> Mapping[str, Json]:
    """The arguments as DSPy reads them, with every default, also of models in them."""
    known: Mapping[str, Any] = tool.args or {}
    whole = {**{n: rules["default"] for n, rules in known.items() if "default" in rules}, **args}
    given = {name: value for name, value in whole.items() if name in args or value is not None}
    try:
        read = tool._validate_and_parse_args(**given)
    except ValueError as error:
        raise InvalidCall(str(error)) from None
    return {**whole, **to_jsonable_python(read, by_alias=True, fallback=str)}


def _asking(tool: dspy.Tool) -> dspy.Tool:
    """The same face; what it gives is what became of the call."""

    async def guarded(**kwargs: Any) -> Any:
        try:
            return _told(await memory().outcome(str(tool.name)))
        except SaysoError as error:
            raise Stopped(error) from error

    twin = tool.model_copy()
    twin.func = guarded
    return twin


def _told(outcome: Outcome) -> Any:
    return outcome.value if outcome.ok and not outcome.notice else outcome.text


class Remembering:
    """A predictor whose replies are kept."""

    def __init__(self, name: str, inner: Any, step: _Step | None = None) -> None:
        self._name = name
        self._inner = inner
        self.step = step
        self._fields = getattr(inner, "predict", inner).signature.output_fields

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __call__(self, **inputs: Any) -> Any:
        raise SaysoError("a guarded agent is async: await its run(...), or use run_sync(...)")

    async def acall(self, **inputs: Any) -> dspy.Prediction:
        """The reply: from memory, or asked now and kept."""
        now = memory()

        async def ask() -> Json:
            said = await self._inner.acall(**inputs)
            return {name: _dumped(said.get(name)) for name in self._fields}

        kept = await now.reply(self._name, ask)
        values = {name: self._loaded(name, kept[name]) for name in self._fields if name in kept}
        prediction = dspy.Prediction(**values)
        if self.step is not None:
            await self.step.expect(now, now.step(self._name), prediction)
        return prediction

    def _loaded(self, name: str, value: Json) -> Any:
        if value is None:
            return None
        return TypeAdapter(self._fields[name].annotation).validate_python(value)


def _dumped(value: Any) -> Json:
    if isinstance(value, ToolCalls):
        calls = [{"id": c.id, "name": c.name, "args": c.args} for c in value.tool_calls]
        return {"tool_calls": to_jsonable_python(calls, fallback=str)}
    return to_jsonable_python(value, fallback=str)


class _Step:
    """From a reply of the model to the calls that the loop will make."""

    def __init__(
        self, made: Made, own: str, tools: Mapping[str, Any], faces: Mapping[str, ForeignTool]
    ) -> None:
        self._made = made
        self._own = own
        self._tools = tools
        self.faces = faces

    async def expect(self, now: Memory, key: str, prediction: dspy.Prediction) -> None:
        calls = []
        for place, (name, args) in enumerate(self._made(prediction)):
            call_id = f"{key} call {place}"
            if name in self.faces:
                run = _running(self._tools[name])
                face = self.faces[name]
                calls.append(ForeignCall(id=call_id, tool=face, args=args, run=run))
            elif name != self._own:
                await now.thread.gone(call_id, name)
        now.expect(calls)


def _made_by_react(prediction: dspy.Prediction) -> list[tuple[str, dict[str, Json]]]:
    return [(str(prediction.next_tool_name), dict(prediction.next_tool_args or {}))]


def _made_by_react_v2(prediction: dspy.Prediction) -> list[tuple[str, dict[str, Json]]]:
    made = ToolCalls.model_validate(prediction.get("tool_calls") or {"tool_calls": []})
    return [(call.name, dict(call.args or {})) for call in made.tool_calls]


def _running(tool: dspy.Tool) -> Callable[[dict[str, Json]], Any]:
    """DSPy's own way to call a tool; one that is not async does not hold up the loop."""

    async def run(args: dict[str, Json]) -> Any:
        if inspect.iscoroutinefunction(tool.func):
            return await tool.acall(**args)
        value = await off_loop(lambda: tool.func(**tool._validate_and_parse_args(**args)))
        return await value if inspect.isawaitable(value) else value

    return run
