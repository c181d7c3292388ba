"""LangChain's ``HumanInTheLoopMiddleware``, and the same on a gate."""

from __future__ import annotations

import sys
import types
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from langchain.agents.middleware import human_in_the_loop as theirs
from langchain.agents.middleware.types import ModelRequest, ToolCallRequest
from langchain_core.messages import AIMessage, BaseMessage

from sayso.adapters.langchain import _wire
from sayso.adapters.langchain._answers import Answers, read_turn
from sayso.adapters.langchain._calls import (
    ToolGate,
    by_of,
    check_alone,
    directly,
    graph_of,
    is_over,
    key_of,
)
from sayso.adapters.langchain._tools import Result, foreign_tool, unanswered, words_with
from sayso.engine.commands import Finish
from sayso.errors import Conflict, InvalidPolicy
from sayso.gate import Gate
from sayso.gate.foreign import ForeignCall, ForeignTool
from sayso.gate.lease import supersede
from sayso.policy import Policy
from sayso.rows import LIVE
from sayso.twin import hop, write
from sayso.types import Request, Terms


def _standing_in() -> type[Any]:
    """LangChain's class with its names looked up in our package, so that this package can stand in
    the place of its module, also where a test replaces one of those names."""
    home = vars(sys.modules["sayso.adapters.langchain"])
    for name, value in vars(theirs).items():
        if not name.startswith("__"):
            home.setdefault(name, value)
    home.update(interrupt=_wire.interrupt, get_config=_wire.get_config)
    moved: dict[str, Any] = {}
    for name, value in vars(theirs.HumanInTheLoopMiddleware).items():
        if isinstance(value, types.FunctionType) and value.__closure__ is None:
            copy = types.FunctionType(value.__code__, home, name, value.__defaults__)
            copy.__kwdefaults__ = value.__kwdefaults__
            copy.__doc__ = value.__doc__
            moved[name] = copy
    return type("Theirs", (theirs.HumanInTheLoopMiddleware,), moved)


_Theirs: Any = _standing_in()


class HumanInTheLoopMiddleware(_Theirs):  # type: ignore[misc]
    """A drop-in for LangChain's middleware of that name; without a ``gate`` it *is* that one.

    With a ``gate`` each request also stands in the inbox, and a decision there counts like one that
    comes through ``Command(resume=...)``. The stored arguments run, once; a wrong answer is refused
    and asked for again; an edit cannot make it another tool. What the gate's policy says of a call
    comes before ``interrupt_on``.
    """

    def __new__(cls, *args: Any, gate: Gate | None = None, **options: Any) -> Any:
        if gate is None or issubclass(cls, _AtGate):
            return object.__new__(cls)
        if cls is HumanInTheLoopMiddleware:
            return object.__new__(_AtGate)
        return object.__new__(type(cls.__name__, (cls, _AtGate), {}))

    def __init__(
        self,
        interrupt_on: Mapping[str, Any],
        *,
        gate: Gate | None = None,
        policy: Policy | None = None,
        **options: Any,
    ) -> None:
        super().__init__(interrupt_on, **options)
        self.gate = gate
        if policy is not None and gate is None:
            raise TypeError("a policy needs a gate that keeps to it: gate=sayso.Gate(...)")
        self.policy = policy


class _AtGate(HumanInTheLoopMiddleware):
    """The same with a gate. It adds no node to the graph that LangChain's has not."""

    gate: Gate

    def __init__(self, interrupt_on: Mapping[str, Any], **options: Any) -> None:
        super().__init__(interrupt_on, **options)
        self._tools = ToolGate(
            self.gate, policy=self.policy, face=self._face, notice=self.edit_notice
        )
        self._known: dict[str, Any] = {}

    # -- around the model: what the turn before left, and which tools there are

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[..., Any]) -> Any:
        changed = directly(lambda: self._before(request))
        response = handler(changed)
        directly(lambda: self._after(response))
        return response

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[..., Awaitable[Any]]
    ) -> Any:
        response = await handler(await self._before(request))
        await self._after(response)
        return response

    async def _before(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        self._known = {tool.name: tool for tool in request.tools if not isinstance(tool, dict)}
        config = _wire.get_config()
        thread = self._tools.thread(config)
        run = self.gate.store.run(thread.run)
        if run is not None:
            await check_alone(thread, config, ())
            # The model is asked although calls are open: somebody wrote something new.
            over = partial(is_over, config)
            await hop(partial(supersede, keys=over), self.gate.store, run, "user")
        return request.override(messages=_answered(request.messages))

    async def _after(self, response: Any) -> None:
        """Where nobody drives the thread, its run ends with the model's last words; with those of a
        graph within the graph only if nothing else is open."""
        config = _wire.get_config()
        thread = self._tools.thread(config)
        last = next((m for m in response.result if isinstance(m, AIMessage)), None)
        run = self.gate.store.run(thread.run)
        ended = last is not None and not last.tool_calls and not thread.driven
        if not ended or run is None or run.status not in LIVE:
            return
        if not graph_of(config) or not (run.asked or run.ready or run.owner):
            finish = Finish(thread=thread.thread, run=thread.run, status="done", token=run.token)
            await write(self.gate.store, finish)

    # -- after the model: one interrupt for the whole turn

    def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return directly(lambda: self._turn(state, runtime))

    async def aafter_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return await self._turn(state, runtime)

    async def _turn(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        last = next((m for m in reversed(state["messages"]) if isinstance(m, AIMessage)), None)
        if self.interrupt_mode == "per_call" or last is None or not last.tool_calls:
            return None
        config = _wire.get_config()
        thread = self._tools.thread(config)
        made = [call for call in last.tool_calls if call["id"]]
        keys = [key_of(config, state, call) for call in made]
        await check_alone(thread, config, keys)
        # In a process that has not asked the model its tools are not known here: what has no row
        # yet is then asked about where it would run.
        calls = [
            ForeignCall(
                id=key,
                tool=self._described(call, self._known[call["name"]], state, runtime, None),
                args=call["args"],
                note=words_with(state, str(call["id"])),
            )
            for key, call in zip(keys, made, strict=True)
            if call["name"] in self._known and thread.row(key) is None
        ]
        try:
            await thread.ask(calls)
        except Conflict:
            await check_alone(thread, config, ())
            raise

        async def waiting() -> tuple[Request, ...]:
            return await thread.waiting(keys)

        answers = Answers(thread, f"turn {','.join(keys)}"[:150], by_of(config))
        await answers.settle(waiting, _batch, read_turn)
        return None

    # -- around each call

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[..., Any]) -> Result:
        return self._tools.wrap(request, handler)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[..., Awaitable[Any]]
    ) -> Result:
        return await self._tools.awrap(request, handler)

    def _face(self, request: ToolCallRequest) -> ForeignTool:
        runtime = request.runtime
        # Here and not where the model is asked: other middleware may show it fewer tools.
        have = {tool.name for tool in runtime.tools}
        unknown = sorted(set(self.interrupt_on) - have)
        if unknown:
            raise InvalidPolicy(
                f"interrupt_on names {', '.join(unknown)}, which no tool is called, so nothing is "
                f"run; the tools are: {', '.join(sorted(have))}"
            )
        return self._described(request.tool_call, request.tool, request.state, runtime, request)

    def _described(
        self, call: Any, tool: Any, state: Any, runtime: Any, request: ToolCallRequest | None
    ) -> ForeignTool:
        """The tool with what ``interrupt_on`` says of it."""
        config = self.interrupt_on.get(call["name"])
        if config is None:
            return foreign_tool(tool)
        action, _ = self._create_action_and_config(call, config, state, runtime)
        allowed = tuple(dict.fromkeys(config["allowed_decisions"]))
        own = Terms(rule="interrupt_on", allowed=allowed, description=action["description"])
        needed: Any = True
        if config.get("when") is not None:
            needed = self._when(call, config, state, runtime, request)
        return foreign_tool(tool, needs_approval=needed, own=own)

    def _when(
        self, call: Any, config: Any, state: Any, runtime: Any, request: ToolCallRequest | None
    ) -> Callable[[dict[str, Any]], bool]:
        def says(args: dict[str, Any]) -> bool:
            looked_at: Any = {**call, "args": args}
            if request is not None:
                said: bool = config["when"](request.override(tool_call=looked_at))
            else:
                said = self._should_interrupt(looked_at, config, state, runtime)
            return said  # no boolean is an error, so that it asks

        return says


_AtGate.__name__ = _AtGate.__qualname__ = "HumanInTheLoopMiddleware"


def _batch(requests: Sequence[Request], error: str) -> dict[str, Any]:
    """The interrupt of a turn, in LangChain's form, with the ids in the inbox beside it."""
    value: dict[str, Any] = {
        "action_requests": [
            {"name": r.tool, "args": dict(r.args), "description": r.description} for r in requests
        ],
        "review_configs": [
            {"action_name": r.tool, "allowed_decisions": list(r.allowed)} for r in requests
        ],
        "request_ids": [r.id for r in requests],
        "digests": [r.digest for r in requests],
    }
    return {**value, "error": error} if error else value


def _answered(messages: Sequence[BaseMessage]) -> list[Any]:
    """The conversation with an answer after every call: new words may have left some without."""
    whole: list[Any] = []
    for place, message in enumerate(messages):
        whole.append(message)
        if isinstance(message, AIMessage):
            whole += unanswered(message, messages[place + 1 :])
    return whole
