"""Run and resume a DSPy agent by its thread.

The loop is DSPy's own, and DSPy keeps its trajectory in a local variable. So every resume restarts
the loop from the beginning, in a copy of the agent whose predictors return stored replies and whose
tools return stored results: the model is not called again, and no tool runs again.

Code in a tool can run any other agent. ``choke_points`` gates its tools; if the call around it can
start from the top again, the replies of its model are stored too, as those of a guarded agent.
"""

from __future__ import annotations

import contextvars
import copy
import functools
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dspy
from dspy.adapters.types.tool import ToolCalls
from pydantic_core import to_json, to_jsonable_python

from sayso import codec
from sayso.adapters.agents import LoggedAgent
from sayso.adapters.calls import StopSignal, raise_stop_causes, settle
from sayso.adapters.conversation import Body, OutputTypes, ReplayLog, load_as, shown
from sayso.adapters.dspy.choke_points import (
    GatedFunction,
    as_shown,
    framework_tool,
    unlisted_arguments,
)
from sayso.errors import Cancelled, InvalidCall, Paused, SaysoError
from sayso.gate import Gate
from sayso.gate.coverage import Coverage
from sayso.gate.framework import (
    CallPlace,
    FrameworkCall,
    FrameworkThread,
    FrameworkTool,
    Outcome,
    check_gate,
    check_validated,
    kept,
    place_of_unguarded,
)
from sayso.gate.guarded_runs import Place, current_place, note_pause, tool_call
from sayso.gate.os_threads import wrap_method
from sayso.gate.run_result import RunResult
from sayso.policy import Policy
from sayso.sync import (
    call_in_new_thread,
    context_value,
    on_loop,
    run_on_own_loop,
    run_user_function,
)
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

    The rules of ``policy`` come before those of the gate. A call that none of them matches needs
    approval. Runs use ``lm`` wherever they happen, or else the model that DSPy is configured with
    there. ``agent`` itself is not changed. Raises ``TypeError`` for other kinds of modules, and
    ``InvalidCall`` with a list of what the model's provider would run, unless ``ungated`` names it.
    """
    check_gate(gate, policy)
    copied = guarded_copy(agent)
    coverage = Coverage(ungated)
    for name in copied.react.loop_calls.guarded:
        coverage.gated(gate.agent, "tool", name)
    for unlisted in unlisted_arguments(getattr(lm, "kwargs", None)):
        coverage.missed(gate.agent, *unlisted)
    coverage.check()
    return GuardedReAct(copied, gate, policy, lm, coverage)


class TurnLog(ReplayLog):
    """What was said in one thread: inputs, replies of the predictors, and answers."""

    format = "dspy"

    inputs: dict[str, Json] | None = None

    def replay(self, body: Body) -> None:
        super().replay(body)
        self.inputs = body.get("inputs", self.inputs)


class GuardedReAct(LoggedAgent[TurnLog], dspy.Module):  # type: ignore[misc]  # no types
    """A durable agent; ``guard`` returns one.

    The input of ``run`` is text for the first input field, or a mapping. As a module of DSPy, it is
    called with its input fields, and with the thread if it continues one; it returns a
    ``Prediction`` and raises ``Paused`` if a request needs a decision first.
    """

    channel = "dspy"
    log_type = TurnLog

    def __init__(
        self, agent: Any, gate: Gate, policy: Policy | None, lm: Any, coverage: Coverage
    ) -> None:
        super().__init__(gate, policy, coverage)
        self.agent = agent
        self._lm = lm

    def named_parameters(self) -> list[tuple[str, Any]]:
        """Return the predictors under the names that the agent has for them, to load its state."""
        parameters: list[tuple[str, Any]] = self.agent.named_parameters()
        return parameters

    def forward(self, *, thread: str | None = None, **inputs: Any) -> dspy.Prediction:
        return self._prediction(self.run_sync(inputs, thread=thread))

    async def aforward(self, *, thread: str | None = None, **inputs: Any) -> dspy.Prediction:
        return self._prediction(await self.run(inputs, thread=thread))

    def _prediction(self, result: RunResult) -> dspy.Prediction:
        if result.status == "paused":
            raise Paused(result.run, result.interruptions)
        if result.status != "done":
            raise Cancelled(f"run {result.run} is {result.status}: {result.error}")
        return result.raw

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

    async def part(self, input: Any, place: CallPlace) -> Any:
        """Run inside a call of another agent: one turn, from the beginning each time."""
        thread = FrameworkThread(self.gate, place.thread, policy=self.policy)
        return await self._run_turn(Turn(thread, 1, prefix=f"{place.key}/"), self._inputs(input))

    def known_tools(self) -> Iterable[FrameworkTool]:
        tools: Mapping[str, FrameworkTool] = self.agent.react.loop_calls.guarded
        return tools.values()

    async def _run_turn(self, turn: Turn, inputs: Mapping[str, Json]) -> Any:
        _refuse_own_calls(self.agent.tools.values())  # also those added since ``guard``
        settings = {} if self._lm is None else {"lm": self._lm}
        with raise_stop_causes(), context_value(_current, turn), dspy.context(**settings):
            prediction = await self.agent.acall(**inputs)
        self.keep_raw(turn.thread.run, prediction)
        outputs = {name: prediction.get(name) for name in self.agent.signature.output_fields}
        return next(iter(outputs.values())) if len(outputs) == 1 else outputs

    def _inputs(self, input: Any) -> dict[str, Json]:
        fields = list(self.agent.signature.input_fields)
        inputs = {fields[0]: input} if isinstance(input, str) else input
        if not isinstance(inputs, Mapping) or not set(inputs) <= set(fields):
            raise InvalidCall(f"pass text, or a mapping of {', '.join(fields)}", "input")
        plain: dict[str, Json] = to_jsonable_python(dict(inputs), fallback=str)
        return plain


# -- the guarded copy of an agent


def guarded_copy(agent: Any) -> Any:
    """Return a copy of an agent that stores its replies and asks before its tools run."""
    # A CodeAct is a subclass of ReAct.
    if isinstance(agent, dspy.ReAct) and hasattr(agent, "react"):
        final_tool = "finish"
    elif isinstance(agent, dspy.ReActV2):
        final_tool = "submit"
    else:
        error = f"guard(...) takes a dspy.ReAct or a dspy.ReActV2, not {type(agent).__name__}"
        if type(agent).__name__ in ("CodeAct", "RLM"):
            error += (
                ": its tools run in code that the model writes, where no gate can ask first. Use "
                "dspy.ReAct or dspy.ReActV2 with the same tools"
            )
        raise TypeError(error)
    # The final tool is the loop's own, and only ends it. The other loop has no tool of that name.
    guarded = {
        name: framework_tool(tool) for name, tool in agent.tools.items() if name != final_tool
    }
    # Copies, because a function that replaces one later was not described to the gate.
    tools = {name: tool.model_copy() for name, tool in agent.tools.items()}
    copied = _copied(agent)
    copied.tools = {n: _guarded_tool(t) if n in guarded else t for n, t in agent.tools.items()}
    copied.react = _logged("reply", agent.react, LoopCalls(final_tool, tools, guarded))
    if hasattr(agent, "extract"):
        copied.extract = _logged("extract", agent.extract)
    return copied


def _copied(module: Any) -> Any:
    """Return a shallow copy of a module, with its callbacks."""
    copied = copy.copy(module)
    copied.callbacks = module.callbacks
    return copied


def _guarded_tool(tool: dspy.Tool) -> dspy.Tool:
    """Return a tool with the same description whose result is the outcome of the guarded call."""

    async def outcome_of(name: str) -> Any:
        try:
            outcome = await current_turn().outcome(name)
        except SaysoError as error:
            raise StopSignal(error) from error
        return outcome.value if outcome.ok and not outcome.notice else outcome.text

    fields = {name: getattr(tool, name) for name in dspy.Tool.model_fields}
    # Not of a class of the user's, which may run more than the function.
    return dspy.Tool.model_construct(**fields | {"func": GatedFunction(str(tool.name), outcome_of)})


@dataclass
class LoopCalls:
    """What the loop of an agent makes of a reply."""

    final_tool: str
    tools: Mapping[str, Any]
    guarded: Mapping[str, FrameworkTool]

    async def expect(self, turn: Turn, prediction: dspy.Prediction, prefix: str) -> None:
        """Tell the turn which calls the loop is about to make."""
        calls = []
        for index, (name, args) in enumerate(_calls_of(prediction)):
            key = f"{prefix} call {index}"
            if name in self.guarded:
                tool = self.tools[name]
                run = _runner(tool)
                guarded_tool = self.guarded[name]
                calls.append(
                    FrameworkCall(id=key, tool=guarded_tool, args=args, run=run, passed=id(tool))
                )
            elif name != self.final_tool:
                await turn.thread.gone(key, name)
        turn.expect(calls)


class LoggedPredictor:
    """Makes a predictor one whose replies are stored.

    Optimizers, ``load`` and ``set_lm`` find it as they find the original, and change only it. What
    they have not changed is the original's.
    """

    original: Any
    logged_as: str
    #: The calls of its replies, if it is the predictor that makes them.
    loop_calls: LoopCalls | None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)

    def __call__(self, **inputs: Any) -> Any:
        raise SaysoError(
            "a guarded agent is async: await agent.run(...), or call agent.run_sync(...)"
        )

    async def acall(self, **inputs: Any) -> dspy.Prediction:
        turn = current_turn()
        fields = self.signature.output_fields
        call: Any = super()

        async def ask() -> Json:
            reply = await call.acall(**inputs)
            return {name: _dumped(reply.get(name)) for name in fields}

        key, stored = await turn.reply(self.logged_as, ask)
        values = {
            name: None if stored[name] is None else load_as(field.annotation, stored[name])
            for name, field in fields.items()
            if name in stored
        }
        prediction = dspy.Prediction(**values)
        if self.loop_calls is not None:
            await self.loop_calls.expect(turn, prediction, key)
        return prediction


def _logged(name: str, module: Any, loop_calls: LoopCalls | None = None) -> Any:
    """Return a copy of a predictor, or of a module around one, that stores replies."""
    if hasattr(module, "predict"):
        copied = _copied(module)
        copied.predict = _logged(name, module.predict)
        return copied
    about = {"original": module, "logged_as": name, "loop_calls": loop_calls}
    kind: Any = type(type(module).__name__, (LoggedPredictor, type(module)), about)
    return kind.__new__(kind)


def _dumped(value: Any) -> Json:
    if isinstance(value, ToolCalls):
        calls = [{"id": c.id, "name": c.name, "args": c.args} for c in value.tool_calls]
        return {"tool_calls": OutputTypes.dump(calls)}
    return OutputTypes.dump(value)


def _calls_of(prediction: dspy.Prediction) -> list[tuple[str, dict[str, Json]]]:
    """Return the calls of a reply: the name of each tool, and the arguments."""
    if "next_tool_name" in prediction:
        return [(str(prediction.next_tool_name), dict(prediction.next_tool_args or {}))]
    tool_calls = ToolCalls.model_validate(prediction.get("tool_calls") or {"tool_calls": []})
    return [(call.name, dict(call.args or {})) for call in tool_calls.tool_calls]


def _runner(tool: dspy.Tool) -> Callable[[dict[str, Json]], Any]:
    """Return a function that runs a tool as DSPy would; sync tools run in a worker thread."""

    async def run(args: dict[str, Json]) -> Any:
        with tool_call(id(tool)):
            values = tool._validate_and_parse_args(**args)
            check_validated(as_shown(tool, values))
            if type(tool).acall is not dspy.Tool.acall:
                return await tool.acall(**args)
            function = tool.func
            if type(tool).__call__ is not dspy.Tool.__call__:
                function = tool
                values = args
            if inspect.iscoroutinefunction(function):
                return await function(**values)
            value = await run_user_function(lambda: function(**values))
            return await value if inspect.isawaitable(value) else value

    return run


# -- agents that code in a tool runs


@functools.cache
def install_loops() -> None:
    """Store the replies of agents that code inside a call runs, from now on in this process."""
    for kind in (dspy.ReAct, dspy.ReActV2):
        loop = kind.aforward
        wrap_method(kind, "forward", functools.partial(_run_loop, loop, _run_sync))
        wrap_method(kind, "aforward", functools.partial(_run_loop, loop, lambda run: run()))


def _run_loop(loop: Any, start: Any, original: Any, agent: Any, **inputs: Any) -> Any:
    place = None if isinstance(agent.react, LoggedPredictor) else current_place()
    if place is None:
        return original(agent, **inputs)
    if not place.may_pause:
        _refuse_own_calls(agent.tools.values())
        return original(agent, **inputs)
    return start(functools.partial(_run_inside, place, agent, loop, inputs))


def _run_sync(run: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    if on_loop():
        return call_in_new_thread(lambda: run_on_own_loop(run))
    return run_on_own_loop(run)


def _refuse_own_calls(tools: Iterable[Any]) -> None:
    """Raise ``InvalidCall`` for a tool whose class runs its function without ``dspy.Tool``."""
    for tool in tools:
        kind = type(tool)
        if (kind.__call__, kind.acall) != (dspy.Tool.__call__, dspy.Tool.acall):
            raise InvalidCall(
                f"{tool.name} was not run: {kind.__name__} calls its function itself, where no "
                "gate can ask first. Use a dspy.Tool with the same function",
                "tools",
            )


async def _run_inside(place: Place, agent: Any, loop: Any, inputs: Mapping[str, Any]) -> Any:
    """Run an agent that has no gate inside a call, whose code may start from the top again."""
    thread = await FrameworkThread(place.gate, place.thread, policy=place.policy).open()
    content = to_json([type(agent).__name__, dict(inputs)], fallback=lambda v: type(v).__name__)
    turn = Turn(thread, 1, prefix=f"{place_of_unguarded(place, content).key}/")
    try:
        with raise_stop_causes(), context_value(_current, turn):
            return await loop(guarded_copy(agent), **inputs)
    except Paused as pause:
        note_pause(pause)  # the code may run the agent on another OS thread
        raise


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

    async def reply(self, name: str, ask: Callable[[], Awaitable[Json]]) -> tuple[str, Json]:
        """Return the next reply of a predictor, stored or new and stored first, and its key."""
        key = f"{self.prefix}turn {self.turn} {name} {self._asked[name]}"
        self._asked[name] += 1
        if self.log is None:
            return key, await kept(self.thread, key, ask)
        reply = self.log.next_reply(name)
        if reply is None:
            reply = await ask()
            await self.log.reply(name, reply, **_shown(reply))
        return key, reply

    def expect(self, calls: Sequence[FrameworkCall]) -> None:
        """Note the calls of a reply, which the framework is about to make."""
        self._calls = list(calls)
        self._outcomes = None

    async def outcome(self, tool: str) -> Outcome:
        """Return the outcome of this tool's next call, after settling all calls of the reply."""
        if self._outcomes is None:
            self._outcomes = await settle(self.thread, self._calls)
        for index, call in enumerate(self._calls):
            if call.tool.name == tool:
                del self._calls[index]
                return self._outcomes[call.id]
        raise SaysoError(f"{tool} was called, but no reply of the model asks for it")


def _shown(reply: Json) -> Body:
    tool_calls = (reply.get("tool_calls") or {}).get("tool_calls", [])
    if reply.get("next_tool_name"):
        tool_calls = [{"name": reply["next_tool_name"], "args": reply.get("next_tool_args")}]
    calls = [(call.get("id") or "", call["name"], codec.dumps(call["args"])) for call in tool_calls]
    content = reply.get("next_thought")
    return shown(content if isinstance(content, str) else "", calls)


def current_turn() -> Turn:
    """Return the turn that is running. Raises ``SaysoError`` if the agent was called directly."""
    turn = _current.get()
    if turn is None:
        raise SaysoError(
            "call run(...) or resume(...) of a guarded agent, which know its thread: "
            "await guard(agent, gate).run('…', thread='t-1')"
        )
    return turn
