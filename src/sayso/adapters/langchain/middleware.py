"""LangChain's ``HumanInTheLoopMiddleware`` on a gate, and nodes of your own that ask."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from langchain.agents.middleware import human_in_the_loop as theirs
from langchain.agents.middleware.types import ModelRequest, ToolCallRequest
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.runtime import get_runtime

from sayso.adapters.langchain.choke_points import install
from sayso.adapters.langchain.interrupts import (
    InterruptAnswers,
    call_interrupt,
    interrupt_value,
    read_single_answer,
    read_turn_answer,
    running_config,
)
from sayso.adapters.langchain.tools import (
    Result,
    ToolGate,
    check_no_other_agent,
    framework_tool,
    graph_of,
    is_over,
    key_of,
    missing_results,
    reviewer_of,
    text_beside,
    thread_id,
)
from sayso.engine.commands import Finish
from sayso.errors import Conflict, InvalidPolicy, Paused
from sayso.gate import Gate
from sayso.gate.framework import FrameworkCall, FrameworkThread, FrameworkTool
from sayso.gate.lease import supersede
from sayso.policy import Policy
from sayso.rows import LIVE
from sayso.sync import read, run_blocking, to_thread, write
from sayso.types import Request, Terms
from sayso.views import framework_arguments


def _theirs_in_this_package() -> type[Any]:
    """Return LangChain's class with its globals looked up in our package.

    So our package can replace LangChain's module, also where a test patches one of its names.
    """
    home = vars(sys.modules["sayso.adapters.langchain"])
    for name, value in vars(theirs).items():
        if not name.startswith("__"):
            home.setdefault(name, value)
    home.update(interrupt=call_interrupt, get_config=running_config)
    moved: dict[str, Any] = {}
    for name, value in vars(theirs.HumanInTheLoopMiddleware).items():
        if isinstance(value, types.FunctionType) and value.__closure__ is None:
            copy = types.FunctionType(value.__code__, home, name, value.__defaults__)
            copy.__kwdefaults__ = value.__kwdefaults__
            copy.__doc__ = value.__doc__
            moved[name] = copy
    return type("Theirs", (theirs.HumanInTheLoopMiddleware,), moved)


_Theirs: Any = _theirs_in_this_package()


class HumanInTheLoopMiddleware(_Theirs):  # type: ignore[misc]
    """A drop-in for LangChain's middleware of the same name. Without a ``gate`` it behaves exactly
    like it.

    With a ``gate``, each request is also in the inbox, and a decision there counts like one that
    comes through ``Command(resume=...)``. The stored arguments run, once. A wrong answer is refused
    and asked for again. An edit cannot change the tool. The gate's policy comes before
    ``interrupt_on``. As in LangChain, tools that neither of them names run without approval, unless
    the policy has a ``default`` of "ask" or "deny".
    """

    def __new__(cls, *args: Any, gate: Gate | None = None, **options: Any) -> Any:
        if gate is None or issubclass(cls, _GatedMiddleware):
            return object.__new__(cls)
        if cls is HumanInTheLoopMiddleware:
            return object.__new__(_GatedMiddleware)
        return object.__new__(type(cls.__name__, (cls, _GatedMiddleware), {}))

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
            raise TypeError("a policy needs a gate: pass gate=sayso.Gate(...)")
        self.policy = policy


class _GatedMiddleware(HumanInTheLoopMiddleware):
    """The middleware with a gate. It adds no node to the graph that LangChain's does not add."""

    gate: Gate

    def __init__(self, interrupt_on: Mapping[str, Any], **options: Any) -> None:
        super().__init__(interrupt_on, **options)
        install()
        self._tools = ToolGate(
            self.gate,
            policy=self.policy,
            describe=self._describe,
            notice=getattr(self, "edit_notice", ""),  # LangChain 1.4.2 and later
            refusal_node="model",
        )
        self._known: dict[str, Any] = {}

    # -- around the model: close what the last turn left open, and learn the tools

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[..., Any]) -> Any:
        changed = run_blocking(lambda: self._before(request))
        response = handler(changed)
        run_blocking(lambda: self._after(response))
        return response

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[..., Awaitable[Any]]
    ) -> Any:
        response = await handler(await self._before(request))
        await self._after(response)
        return response

    async def _before(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        self._known = {tool.name: tool for tool in request.tools if not isinstance(tool, dict)}
        config = running_config()
        thread = await self._tools.thread(config).open()
        run = await read(self.gate.store, self.gate.store.run, thread.run)
        if run is not None:
            await check_no_other_agent(thread, config)
            # The model is called although calls are open: there is new input.
            over = partial(is_over, config)
            await to_thread(partial(supersede, keys=over), self.gate.store, run, "user")
        return request.override(messages=_answered(request.messages))

    async def _after(self, response: Any) -> None:
        """Finish the run after the model's last reply, if nothing drives the thread.

        A subgraph's last reply finishes it only if nothing else is open.
        """
        config = running_config()
        thread = await self._tools.thread(config).open()
        last = next((m for m in response.result if isinstance(m, AIMessage)), None)
        run = await read(self.gate.store, self.gate.store.run, thread.run)
        is_over = last is not None and not last.tool_calls and not thread.driven
        if not is_over or run is None or run.status not in LIVE:
            return
        if not graph_of(config) or not (run.asked or run.ready or run.owner):
            finish = Finish(thread=thread.thread, run=thread.run, status="done", token=run.token)
            await write(self.gate.store, finish)

    # -- after the model: one interrupt for the whole turn

    def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return run_blocking(lambda: self._turn(state, runtime))

    async def aafter_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return await self._turn(state, runtime)

    async def _turn(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        last = next((m for m in reversed(state["messages"]) if isinstance(m, AIMessage)), None)
        mode = getattr(self, "interrupt_mode", "batched")  # LangChain 1.4.6 and later
        if mode == "per_call" or last is None or not last.tool_calls:
            return None
        config = running_config()
        thread = await self._tools.thread(config).open()
        calls_with_id = [call for call in last.tool_calls if call["id"] is not None]
        keys = [key_of(config, state, call) for call in calls_with_id]
        await check_no_other_agent(thread, config, state, calls_with_id)
        stored_keys = {key for key in keys if await thread.find(key) is not None}
        # A process that has not called the model does not know its tools. Calls without a row are
        # then asked about where they would run.
        calls = [
            FrameworkCall(
                id=key,
                tool=self._described(call, self._known[call["name"]], state, runtime, None),
                args=call["args"],
                note=text_beside(state, str(call["id"])),
            )
            for key, call in zip(keys, calls_with_id, strict=True)
            if call["name"] in self._known and key not in stored_keys
        ]
        try:
            await thread.ask(calls)
        except Conflict:
            await check_no_other_agent(thread, config)
            raise

        answers = InterruptAnswers(thread, f"turn {','.join(keys)}"[:150], reviewer_of(config))
        await answers.settle(keys, _turn_interrupt_value, read_turn_answer)
        return None

    # -- around each call

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[..., Any]) -> Result:
        return self._tools.wrap(request, handler)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[..., Awaitable[Any]]
    ) -> Result:
        return await self._tools.awrap(request, handler)

    def _describe(self, request: ToolCallRequest) -> FrameworkTool:
        runtime = request.runtime
        # Checked here and not at the model, because other middleware may show it fewer tools.
        have = {tool.name for tool in runtime.tools}
        unknown = sorted(set(self.interrupt_on) - have)
        if unknown:
            raise InvalidPolicy(
                f"interrupt_on names {', '.join(unknown)}, but there is no such tool, so nothing "
                f"was run; the tools are: {', '.join(sorted(have))}"
            )
        # A description gets the runtime of the graph, as in the other mode.
        return self._described(
            request.tool_call, request.tool, request.state, get_runtime(), request
        )

    def _described(
        self, call: Any, tool: Any, state: Any, runtime: Any, request: ToolCallRequest | None
    ) -> FrameworkTool:
        """Describe a tool with what ``interrupt_on`` says about it."""
        config = self.interrupt_on.get(call["name"])
        if config is None:
            return framework_tool(tool, needs_approval=False)
        action, _ = self._create_action_and_config(call, config, state, runtime)
        allowed = tuple(dict.fromkeys(config["allowed_decisions"]))
        own = Terms(rule="interrupt_on", allowed=allowed, description=action["description"])

        def when(args: dict[str, Any]) -> Any:  # anything but a boolean is an error, and asks
            with_args: Any = {**call, "args": args}
            if request is not None:
                return config["when"](request.override(tool_call=with_args))
            return self._should_interrupt(with_args, config, state, runtime)

        needed = True if config.get("when") is None else when
        return framework_tool(tool, needs_approval=needed, own=own)


_GatedMiddleware.__name__ = _GatedMiddleware.__qualname__ = "HumanInTheLoopMiddleware"


def _turn_interrupt_value(requests: Sequence[Request], error: str) -> dict[str, Any]:
    """Return the interrupt of a turn in LangChain's form, with the requests' ids and digests."""
    value: dict[str, Any] = {
        "action_requests": [
            {"name": r.tool, "args": framework_arguments(r), "description": r.description}
            for r in requests
        ],
        "review_configs": [
            {"action_name": r.tool, "allowed_decisions": list(r.allowed)} for r in requests
        ],
        "request_ids": [r.id for r in requests],
        "digests": [r.digest for r in requests],
    }
    return {**value, "error": error} if error else value


def _answered(messages: Sequence[BaseMessage]) -> list[Any]:
    """Return the conversation with a result after every call: new input leaves some without."""
    answered: list[Any] = []
    for index, message in enumerate(messages):
        answered.append(message)
        if isinstance(message, AIMessage):
            answered += missing_results(message, messages[index + 1 :])
    return answered


# -- nodes


F = TypeVar("F", bound=Callable[..., Any])


def node(gate: Gate) -> Callable[[F], F]:
    """Make ``gate.ask``, ``gate.confirm`` and ``gate.once`` durable inside a node's function.

    The graph is interrupted where a person is needed. LangGraph then restarts the node from the
    beginning, and what was answered or done before comes from the store.
    """

    def decorate(function: F) -> F:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def wrapped(*args: Any, **kwargs: Any) -> Any:
                return await _run_node(gate, lambda: function(*args, **kwargs))

        else:

            @functools.wraps(function)
            def wrapped(*args: Any, **kwargs: Any) -> Any:
                return run_blocking(lambda: _run_node(gate, lambda: function(*args, **kwargs)))

        guarded: Any = wrapped
        return guarded  # type: ignore[no-any-return]

    return decorate


async def _run_node(gate: Gate, body: Callable[[], Any]) -> Any:
    config = running_config()
    # The task's name is the same each time the node starts over, and different in each turn.
    task = str(config["configurable"]["checkpoint_ns"])
    thread = await FrameworkThread(gate, thread_id(config)).open()
    answers = InterruptAnswers(thread, task, reviewer_of(config))
    while True:
        await answers.settle([task], partial(interrupt_value, task), read_single_answer)
        try:
            with thread.scope(f"{task}/").inside():
                value = body()
                return await value if inspect.isawaitable(value) else value
        except Paused:
            continue  # asked just now: interrupt on the next pass
