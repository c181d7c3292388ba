"""Run and resume a DSPy agent by its thread.

The loop is DSPy's own, and DSPy keeps its trajectory in a local variable. So every resume runs the
loop from its top, in a copy of the agent whose predictors return stored replies and whose tools
return stored results: the model is not called again, and no tool runs again.

Code can build an agent while a tool runs. DSPy passes the callbacks of its context on to everything
that is started there, and ``Tripwire`` is one that stops what has not passed the gate.
"""

from __future__ import annotations

import contextvars
import copy
import inspect
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dspy
from dspy.adapters.types.tool import ToolCalls
from dspy.utils.callback import BaseCallback
from pydantic_core import to_jsonable_python

from sayso import codec
from sayso.adapters.agents import LoggedAgent
from sayso.adapters.calls import outcome_in_words
from sayso.adapters.conversation import Body, OutputTypes, ReplayLog, load_as
from sayso.adapters.dspy.asking import AskingTool
from sayso.adapters.reach import Walk
from sayso.errors import InvalidCall, Paused, SaysoError
from sayso.gate import Gate
from sayso.gate.coverage import Coverage
from sayso.gate.framework import (
    FrameworkCall,
    FrameworkThread,
    FrameworkTool,
    Outcome,
    Within,
    check_gate,
    kept,
    within,
)
from sayso.policy import Policy, Predicate
from sayso.sync import context_value, run_user_function
from sayso.types import Json


def guard(
    agent: Any,
    gate: Gate,
    policy: Policy | None = None,
    *,
    lm: Any = None,
    ungated: Iterable[str] = (),
) -> GuardedReAct:
    """Make a ``dspy.ReAct`` or ``dspy.ReActV2`` durable, and send its tool calls through a gate.

    ``policy`` replaces the gate's own; if neither has rules, every call needs approval. Runs use
    ``lm`` wherever they happen, or else the model that DSPy is configured with there. ``agent``
    itself is not changed. Raises ``TypeError`` for other kinds of modules, and ``InvalidCall`` with
    a list of what the gate cannot reach, such as agents that tools run, unless ``ungated`` names
    it.
    """
    check_gate(gate, policy)
    unruled = policy is None and not gate.policy.rules
    copied, coverage = guarded_copy(agent, unruled), Coverage(ungated)
    _list(agent, gate.agent, framework_tools(copied), lm, coverage)
    coverage.check()
    return GuardedReAct(copied, gate, policy, lm, coverage)


class _ModuleWalk(Walk):
    """Finds the agents that the functions of tools run."""

    targets = (dspy.ReAct, dspy.ReActV2)


def _list(
    agent: Any, where: str, tools: Mapping[str, FrameworkTool], lm: Any, coverage: Coverage
) -> None:
    """Add what an agent can reach to the table."""
    walk = _ModuleWalk()
    for name in tools:
        coverage.gated(where, "tool", name)
        function = agent.tools[name].func
        for held in walk.held(function, "agent"):
            why = (
                f"{name} finds it as {held.by}, and its tools would bypass the gate: guard it too, "
                "and await guarded.run(...) in the tool"
            )
            coverage.missed(where, "agent", f"{type(held.value).__name__} in {name}", why)
    for name in _hosted(getattr(lm, "kwargs", None)):
        coverage.hosted(where, "hosted tool", name)


def _hosted(options: Mapping[str, Any] | None) -> list[str]:
    """Return the names of the tools in a model's options that its provider runs."""
    tools: Iterable[Any] = (options or {}).get("tools") or ()
    specs = [spec for spec in tools if isinstance(spec, Mapping)]
    return [
        str(spec.get("name") or spec.get("type"))
        for spec in specs
        if spec.get("type") != "function"
    ]


class TurnLog(ReplayLog):
    """What was said in one thread: inputs, replies of the predictors, and answers."""

    format = "dspy"

    inputs: dict[str, Json] | None = None

    def replay(self, body: Body) -> None:
        super().replay(body)
        self.inputs = body.get("inputs", self.inputs)


class GuardedReAct(LoggedAgent[TurnLog]):
    """A durable agent; ``guard`` returns one. Its input is text for the first input field, or a
    mapping."""

    channel = "dspy"
    log_type = TurnLog

    def __init__(
        self, agent: Any, gate: Gate, policy: Policy | None, lm: Any, coverage: Coverage
    ) -> None:
        super().__init__(gate, policy, coverage)
        self.agent = agent
        self._lm = lm

    async def begin(self, input: Any, thread: str) -> Any:
        """Start a new turn of the thread with these inputs."""
        inputs = self._inputs(input)
        log = await self.open_log(thread)
        await log.say(input if isinstance(input, str) else codec.dumps(inputs), inputs=inputs)
        return await self._turn(log, inputs)

    async def continue_turn(self, log: TurnLog) -> Any:
        """Run the last turn again from the beginning, with everything that is stored of it."""
        if log.inputs is None:
            raise InvalidCall(f"thread {log.thread!r} has no input to continue with: run it first")
        return await self._turn(log, log.inputs)

    async def _turn(self, log: TurnLog, inputs: Mapping[str, Json]) -> Any:
        output = await self._run_turn(Turn(log.calls, log.turn, log), inputs)
        content = output if isinstance(output, str) else ""
        await log.end(self.dump_output(output), content=content)
        return output

    async def load_output(self, thread: str, stored: Json) -> Any:
        fields = self.agent.signature.output_fields
        values = {next(iter(fields)): stored} if len(fields) == 1 else stored
        loaded = {n: load_as(fields[n].annotation, value) for n, value in values.items()}
        return next(iter(loaded.values())) if len(fields) == 1 else loaded

    def place(self) -> Within | None:
        return within(self.gate)

    async def part(self, input: Any, place: Within) -> Any:
        """Run as part of a call of another agent: one turn, from its top each time."""
        now = FrameworkThread(self.gate, place.thread, policy=self.policy)
        return await self._run_turn(Turn(now, 1, prefix=f"{place.key}/"), self._inputs(input))

    def known_tools(self) -> Iterable[FrameworkTool]:
        return framework_tools(self.agent).values()

    async def _run_turn(self, memory: Turn, inputs: Mapping[str, Json]) -> Any:
        given = [one for one in dspy.settings.callbacks or () if not isinstance(one, Tripwire)]
        settings = {"callbacks": [*given, Tripwire(self.coverage().ungated)]}
        if self._lm is not None:
            settings["lm"] = self._lm
        try:
            with context_value(_current, memory), dspy.context(**settings):
                prediction = await self.agent.acall(**inputs)
        except StopSignal as stopped:
            raise stopped.cause from None
        outputs = {name: prediction.get(name) for name in self.agent.signature.output_fields}
        return next(iter(outputs.values())) if len(outputs) == 1 else outputs

    def _inputs(self, input: Any) -> dict[str, Json]:
        fields = list(self.agent.signature.input_fields)
        inputs = {fields[0]: input} if isinstance(input, str) else input
        if not isinstance(inputs, Mapping) or not set(inputs) <= set(fields):
            raise InvalidCall(f"pass text, or a mapping of {', '.join(fields)}", "input")
        told: dict[str, Json] = to_jsonable_python(dict(inputs), fallback=str)
        return told


# -- the guarded copy of an agent


Made = Callable[[Any], list[tuple[str, dict[str, Json]]]]


def guarded_copy(agent: Any, needs_approval: bool | Predicate) -> Any:
    """Return a copy of an agent that stores its replies and asks before its tools run."""
    # A CodeAct is a subclass of ReAct.
    if isinstance(agent, dspy.ReAct) and hasattr(agent, "react"):
        made, extracts, own = _react_calls, True, "finish"
    elif isinstance(agent, dspy.ReActV2):
        made, extracts, own = _react_v2_calls, False, "submit"
    else:
        said = f"guard(...) takes a dspy.ReAct or a dspy.ReActV2, not {type(agent).__name__}"
        if type(agent).__name__ in ("CodeAct", "RLM"):
            said += (
                ": its tools run in code that the model writes, where no gate can ask first. Use "
                "dspy.ReAct or dspy.ReActV2 with the same tools"
            )
        raise TypeError(said)
    # The loop's own tool only ends it. In the other loop the name has no meaning.
    copied = copy.copy(agent)
    guarded = {
        name: framework_tool(tool, needs_approval)
        for name, tool in agent.tools.items()
        if name != own
    }
    copied.tools = {
        name: _guarded_tool(tool) if name in guarded else tool for name, tool in agent.tools.items()
    }
    # Copies: what is put in their place later was not described to the gate.
    run = {name: tool.model_copy() for name, tool in agent.tools.items()}
    copied.react = LoggedPredictor("reply", agent.react, _CallReader(made, own, run, guarded))
    if extracts:
        copied.extract = LoggedPredictor("extract", agent.extract)
    return copied


def framework_tools(copied: Any) -> Mapping[str, FrameworkTool]:
    """Return the tools of a guarded copy as the gate knows them, by name."""
    reader: _CallReader = copied.react.reader
    return reader.guarded


def framework_tool(tool: dspy.Tool, needs_approval: bool | Predicate) -> FrameworkTool:
    """Describe a DSPy tool to the gate."""
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
        needs_approval=not isinstance(tool, AskingTool) and needs_approval,
        normalize=lambda args: _normalize(tool, args),
    )


def _normalize(tool: dspy.Tool, args: dict[str, Json]) -> Mapping[str, Json]:
    """Return the arguments as DSPy reads them, with every default, including those of nested
    models."""
    known: Mapping[str, Any] = tool.args or {}
    whole = {**{n: rules["default"] for n, rules in known.items() if "default" in rules}, **args}
    given = {name: value for name, value in whole.items() if name in args or value is not None}
    try:
        read = tool._validate_and_parse_args(**given)
    except ValueError as error:
        raise InvalidCall(str(error)) from None
    return {**whole, **to_jsonable_python(read, by_alias=True, fallback=str)}


def _guarded_tool(tool: dspy.Tool) -> dspy.Tool:
    """Return a tool with the same description whose result is the outcome of the guarded call."""

    async def guarded(**kwargs: Any) -> Any:
        try:
            outcome = await current_turn().outcome(str(tool.name))
        except SaysoError as error:
            raise StopSignal(error) from error
        return outcome.value if outcome.ok and not outcome.notice else outcome.text

    copied = tool.model_copy()
    copied.func = guarded
    _gated.add(guarded)
    return copied


#: The functions of guarded tools.
_gated: weakref.WeakSet[Any] = weakref.WeakSet()


class LoggedPredictor:
    """A predictor whose replies are stored."""

    def __init__(self, name: str, inner: Any, reader: _CallReader | None = None) -> None:
        self._name = name
        self._inner = inner
        self.reader = reader
        self._fields = getattr(inner, "predict", inner).signature.output_fields

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __call__(self, **inputs: Any) -> Any:
        raise SaysoError(
            "a guarded agent is async: await agent.run(...), or call agent.run_sync(...)"
        )

    async def acall(self, **inputs: Any) -> dspy.Prediction:
        """Return the stored reply, or ask the predictor and store its reply."""
        now = current_turn()

        async def ask() -> Json:
            said = await self._inner.acall(**inputs)
            return {name: _dumped(said.get(name)) for name in self._fields}

        kept = await now.reply(self._name, ask)
        values = {
            name: None if kept[name] is None else load_as(field.annotation, kept[name])
            for name, field in self._fields.items()
            if name in kept
        }
        prediction = dspy.Prediction(**values)
        if self.reader is not None:
            await self.reader.expect(now, now.step(self._name), prediction)
        return prediction


def _dumped(value: Any) -> Json:
    if isinstance(value, ToolCalls):
        calls = [{"id": c.id, "name": c.name, "args": c.args} for c in value.tool_calls]
        return {"tool_calls": OutputTypes.dump(calls)}
    return OutputTypes.dump(value)


class _CallReader:
    """Read from a reply which calls the loop will make."""

    def __init__(
        self, made: Made, own: str, tools: Mapping[str, Any], guarded: Mapping[str, FrameworkTool]
    ) -> None:
        self._made = made
        self._own = own
        self._tools = tools
        self.guarded = guarded

    async def expect(self, now: Turn, key: str, prediction: dspy.Prediction) -> None:
        calls = []
        for place, (name, args) in enumerate(self._made(prediction)):
            call_id = f"{key} call {place}"
            if name in self.guarded:
                run = _runner(self._tools[name])
                tool = self.guarded[name]
                calls.append(FrameworkCall(id=call_id, tool=tool, args=args, run=run))
            elif name != self._own:
                await now.thread.gone(call_id, name)
        now.expect(calls)


def _react_calls(prediction: dspy.Prediction) -> list[tuple[str, dict[str, Json]]]:
    return [(str(prediction.next_tool_name), dict(prediction.next_tool_args or {}))]


def _react_v2_calls(prediction: dspy.Prediction) -> list[tuple[str, dict[str, Json]]]:
    made = ToolCalls.model_validate(prediction.get("tool_calls") or {"tool_calls": []})
    return [(call.name, dict(call.args or {})) for call in made.tool_calls]


def _runner(tool: dspy.Tool) -> Callable[[dict[str, Json]], Any]:
    """Return an async function that runs a tool as DSPy would; sync tools run in a worker
    thread."""

    async def run(args: dict[str, Json]) -> Any:
        try:
            with context_value(_tool, str(tool.name)):
                if inspect.iscoroutinefunction(tool.func):
                    return await tool.acall(**args)
                read = tool._validate_and_parse_args(**args)
                value = await run_user_function(lambda: tool.func(**read))
                return await value if inspect.isawaitable(value) else value
        except StopSignal as stopped:
            raise stopped.cause from None

    return run


#: The tool whose function is running.
_tool: contextvars.ContextVar[str] = contextvars.ContextVar("sayso_dspy_tool", default="")


class Tripwire(BaseCallback):  # type: ignore[misc]  # DSPy ships no types
    """Stop a tool that starts inside a guarded run and has not passed the gate.

    What the function of a tool calls directly belongs to its call. A module in between has a model
    that chooses, and a code interpreter runs what a model wrote.
    """

    def __init__(self, ungated: tuple[str, ...]) -> None:
        super().__init__()
        self._ungated = ungated

    def on_tool_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Raise ``StopSignal`` for a tool that a module inside the function of a tool calls, and
        for one of the agent's own that was added to it after ``guard``."""
        modules, name = _modules_inside(), str(instance.name)
        if (instance.func.__module__ or "").startswith("dspy."):
            return  # `finish` and `submit` only end the loop
        if modules:
            self._stop(name, modules)
        elif not _tool.get() and instance.func not in _gated:
            raise StopSignal(
                InvalidCall(
                    f"{name} was added to the agent after guard(...), and would bypass the gate: "
                    "add all tools before you call guard(...)",
                    "tools",
                )
            )

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Raise ``StopSignal`` for a model whose provider would run tools: a run uses the model
        that DSPy is configured with, and ``guard`` may not have seen it."""
        given = inputs.get("kwargs") or inputs
        for name in (*_hosted(getattr(instance, "kwargs", None)), *_hosted(given)):
            if name not in self._ungated and not _tool.get():
                raise StopSignal(
                    SaysoError(
                        f"the model was not called: its provider would run {name}, and does not "
                        "ask first. Use another model, or let it run without anyone being asked: "
                        f"guard(..., ungated=[{name!r}])"
                    )
                )

    def on_module_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Raise ``StopSignal`` for a module of DSPy whose model writes code, before it starts an
        interpreter."""
        if isinstance(instance, dspy.ProgramOfThought | dspy.CodeAct | dspy.RLM):
            self._stop(type(instance).__name__, [instance])

    def on_interpreter_execute_start(
        self, call_id: str, instance: Any, inputs: dict[str, Any]
    ) -> None:
        """Raise ``StopSignal`` for code that another module lets a model write."""
        self._stop(type(instance).__name__, _modules_inside())

    def _stop(self, name: str, modules: Sequence[Any]) -> None:
        names = [name, *(f"{type(one).__name__} in {_tool.get()}" for one in modules)]
        if not {*names} & {*self._ungated}:
            raise StopSignal(
                SaysoError(
                    f"{name} was not run: it was called past the gate, by code that guard(...) "
                    "could not see. Guard an agent that is built while another one runs, and await "
                    "guard(agent, gate).run(...) there; or let it run without anyone being asked: "
                    f"guard(..., ungated=[{names[-1]!r}])"
                )
            )


def _modules_inside() -> list[Any]:
    """Return the modules that were started inside the function of a guarded agent's tool."""
    found: list[Any] = []
    for one in reversed(dspy.settings.caller_modules or []):
        if isinstance(getattr(one, "react", None), LoggedPredictor):
            break
        found.append(one)
    return found


# -- one turn


_current: contextvars.ContextVar[Turn | None] = contextvars.ContextVar("sayso_dspy", default=None)


@dataclass
class Turn:
    """One turn of a thread while it runs: the replies of the model, and the outcomes of calls."""

    thread: FrameworkThread
    turn: int
    #: Holds the replies. An agent that runs inside a call has none: its replies have rows.
    log: TurnLog | None = None
    #: The prefix of all keys inside a call.
    prefix: str = ""
    _asked: Counter[str] = field(default_factory=Counter)
    _calls: list[FrameworkCall] = field(default_factory=list)
    _outcomes: dict[str, Outcome] | None = None

    async def reply(self, name: str, ask: Callable[[], Awaitable[Json]]) -> Json:
        """Return the next reply of a predictor: the stored one, or a new one, which is stored
        first."""
        key = self.key(f"{name} {self._asked[name]}")
        self._asked[name] += 1
        if self.log is None:
            return await kept(self.thread, key, ask)
        reply = self.log.next_reply(name)
        if reply is None:
            reply = await ask()
            await self.log.reply(name, reply, **_shown(reply))
        return reply

    def step(self, name: str) -> str:
        """Return the prefix of the keys of the last reply's calls."""
        return self.key(f"{name} {self._asked[name] - 1}")

    def key(self, what: str) -> str:
        """Return a key within this turn."""
        return f"{self.prefix}turn {self.turn} {what}"

    def expect(self, calls: Sequence[FrameworkCall]) -> None:
        """Note the calls of a reply, which the framework is about to make."""
        self._calls = list(calls)
        self._outcomes = None

    async def outcome(self, tool: str) -> Outcome:
        """Return the outcome of the next call of this tool, after settling all calls of the
        reply."""
        if self._outcomes is None:
            self._outcomes = await self._settle()
        for place, call in enumerate(self._calls):
            if call.tool.name == tool:
                del self._calls[place]
                return self._outcomes[call.id]
        raise SaysoError(f"{tool} was called, but no reply of the model asks for it")

    async def _settle(self) -> dict[str, Outcome]:
        """Settle all calls of a reply: ask about all of them in one commit, and let none that
        may run wait for one that may not."""
        await self.thread.ask(self._calls)
        outcomes: dict[str, Outcome] = {}
        paused: Paused | None = None
        for call in self._calls:
            try:
                outcomes[call.id] = await outcome_in_words(self.thread, call)
            except Paused as pause:
                paused = pause
        if paused is not None:
            raise paused
        return outcomes


def _shown(reply: Json) -> dict[str, Any]:
    """Return a reply in the fields that pages and terminals show."""
    made = (reply.get("tool_calls") or {}).get("tool_calls", [])
    if reply.get("next_tool_name"):
        made = [{"name": reply["next_tool_name"], "args": reply.get("next_tool_args")}]
    calls = [
        {"id": call.get("id") or "", "name": call["name"], "arguments": codec.dumps(call["args"])}
        for call in made
    ]
    content = reply.get("next_thought")
    shown: dict[str, Any] = {"content": content if isinstance(content, str) else ""}
    return {**shown, "calls": calls} if calls else shown


class StopSignal(BaseException):
    """One of our errors on its way out. DSPy's loop turns every ``Exception`` into text for the
    model."""

    def __init__(self, cause: SaysoError) -> None:
        super().__init__(str(cause))
        self.cause = cause


def current_turn() -> Turn:
    """Return the turn that is running. Raises ``SaysoError`` if the agent was called directly."""
    found = _current.get()
    if found is None:
        raise SaysoError(
            "call run(...) or resume(...) of a guarded agent, which know its thread: "
            "await guard(agent, gate).run('…', thread='t-1')"
        )
    return found
