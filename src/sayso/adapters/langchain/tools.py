"""The gate in front of LangGraph's tool nodes, and LangChain's tools and messages as the gate knows
them.

Every call of every turn goes through ``ToolGate``.
"""

from __future__ import annotations

import base64
import functools
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple

from langchain.agents.middleware.types import ToolCallRequest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tools import BaseTool, Tool
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.errors import GraphBubbleUp, ParentCommand
from langgraph.graph import END
from langgraph.pregel import Pregel
from langgraph.types import Command
from pydantic import BaseModel, create_model

from sayso import codec
from sayso.adapters.calls import PauseSignal, as_shown, validated_values
from sayso.adapters.langchain.interrupts import (
    InterruptAnswers,
    interrupt_value,
    read_single_answer,
)
from sayso.errors import Conflict, InvalidCall, Paused, SaysoError
from sayso.gate import Gate
from sayso.gate.framework import (
    SUB_AGENT_TERMS,
    FrameworkCall,
    FrameworkThread,
    FrameworkTool,
    Outcome,
    check_validated,
)
from sayso.gate.guarded_runs import has_passed
from sayso.gate.options import MAX_WORDS
from sayso.policy import Policy, Predicate
from sayso.rows import CallStatus
from sayso.stores.base import Store
from sayso.sync import context_value, read, run_blocking
from sayso.types import Json, Terms

#: The key in a config under which the running graph is found, inside guarded runs.
GRAPH = "__sayso_graph"
#: The step of the outermost graph in which a call that has passed the gate is running.
_step: ContextVar[str] = ContextVar("sayso_langchain_step", default="")


def call_name(tool: str, call_id: str | None) -> tuple[str, str]:
    """Return what names a call where LangChain runs tools."""
    return tool, call_id or ""


def with_graph(config: Any, graph: Any) -> Any:
    """Return a config that says which graph it belongs to."""
    config = config or {}
    return {**config, "configurable": {**(config.get("configurable") or {}), GRAPH: graph}}


def _graph(config: Mapping[str, Any]) -> Any:
    return (config.get("configurable") or {}).get(GRAPH)


def is_part_of_running_call(config: Mapping[str, Any], thread: str) -> bool:
    """Return whether a graph's interrupts reach the call around it.

    They do not if it was started without the config of the graph that makes the call, for example
    on another OS thread, or with its own thread.
    """
    step = _step.get()
    return bool(step) and thread_id(config, "") == thread and _step_of(config) == step


@dataclass
class ToolGate:
    """``wrap_tool_call`` and ``awrap_tool_call`` for a tool node."""

    gate: Gate
    policy: Policy | None = None
    #: Returns the tool of a call as the gate should ask about it.
    describe: Callable[[ToolCallRequest], FrameworkTool] | None = None
    notice: str | None = ""
    #: The node to go to after a refusal, where a result would end the run.
    refusal_node: str | None = None

    def wrap(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Result:
        """Guard a call; the ``wrap_tool_call`` of a tool node."""

        async def run(changed: ToolCallRequest) -> Any:
            return handler(changed)

        return run_blocking(lambda: self.awrap(request, run))

    async def awrap(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Result:
        """Guard a call; the ``awrap_tool_call`` of a tool node."""
        made = request.tool_call
        if made["id"] is None:
            raise InvalidCall(
                f"the model's call of {made['name']} has no id, so it could not be found again "
                "after a pause; it was not run"
            )
        # Inside a sequence, LangChain does not set the config for later steps.
        config = var_child_runnable_config.get() or request.runtime.config
        with context_value(var_child_runnable_config, config):
            if has_passed(call_name(made["name"], made["id"])):
                # Another gate in front of this tool node has asked about it.
                result: Result = await handler(request)
                return result
            return await self._run_gated(request, handler)

    def thread(self, config: Mapping[str, Any]) -> FrameworkThread:
        return FrameworkThread(self.gate, thread_id(config), policy=self.policy)

    async def _run_gated(
        self, request: ToolCallRequest, run: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Result:
        made, config = request.tool_call, request.runtime.config
        thread = await self.thread(config).open()
        if request.tool is None:
            gone = await thread.gone(key_of(config, request.state, made), made["name"])
            return tool_message(gone.text, made, ok=False)
        reply = _reply_with(request.state, str(made["id"]))
        turn = [made] if reply is None else reply.tool_calls
        await check_no_other_agent(thread, config, request.state, turn)
        step = _step_of(config)

        async def effect(noting: BaseTool, args: dict[str, Json]) -> Any:
            with context_value(_step, step):
                return await run(request.override(tool=noting, tool_call={**made, "args": args}))

        call = framework_call(
            request.tool,
            {**made},
            thread.run,
            effect,
            id=key_of(config, request.state, made),
            shown=None if self.describe is None else self.describe(request),
            note=text_beside(request.state, str(made["id"])),
        )
        answers = InterruptAnswers(thread, call.id, reviewer_of(config))
        show = partial(interrupt_value, str(made["id"]))
        new = thread.has_new_input or await thread.find(call.id) is None
        if not new:
            await answers.settle([call.id], show, read_single_answer)
        while True:
            try:
                return self._result(request, await thread.outcome(call, new=new))
            except PauseSignal as bubble:
                raise bubble.cause from None
            except Conflict:
                await check_no_other_agent(thread, config)
                if not new or call.raised:
                    raise
                new = False  # it has a row, of other arguments
            except Paused:  # asked just now, or in doubt
                new = False
                await answers.settle([call.id], show, read_single_answer)

    def _result(self, request: ToolCallRequest, outcome: Outcome) -> Result:
        """Return the result of a call.

        A refusal goes back to the model, even where LangChain would make the tool's result the
        output (``return_direct``).
        """
        if isinstance(outcome.value, ParentCommandResult):
            raise ParentCommand(outcome.value.command)
        result = result_for(outcome, request.tool_call, self.notice)
        direct = request.tool is not None and request.tool.return_direct
        if outcome.ok or not direct:
            return result
        node = _node_after(request.runtime.config) or self.refusal_node
        return result if node is None else Command(update={"messages": [result]}, goto=node)


def framework_call(
    tool: BaseTool,
    made: Mapping[str, Any],
    run: str,
    effect: Callable[[BaseTool, dict[str, Json]], Awaitable[Any]],
    *,
    id: str = "",
    shown: FrameworkTool | None = None,
    note: str = "",
) -> FrameworkCall:
    """Return a call for the gate. ``effect`` runs the tool in the copy that it gets.

    Where LangGraph interrupts a graph inside it, the call pauses instead of failing. Without an
    ``id`` it is found by its tool and arguments.
    """
    raised: list[Exception] = []
    noting = observed(tool, made["args"], raised)

    async def body(args: dict[str, Json]) -> Any:
        try:
            return await effect(noting, args)
        except ParentCommand as cause:
            return ParentCommandResult(cause.args[0])
        except GraphBubbleUp as cause:
            raise PauseSignal(run, cause) from cause

    return FrameworkCall(
        id=id,
        tool=shown or described(tool),
        note=note,
        args=written_arguments(tool, made["args"]),
        run=body,
        raised=raised,
        dump=dump_result,
        load=lambda stored: load_result(stored, made),
        passed=call_name(made["name"], made["id"]),
    )


def observed(tool: BaseTool, written: Mapping[str, Json], raised: list[Exception]) -> BaseTool:
    """Return a copy of a tool that reports its validated arguments, and notes what its function
    raises.

    ``handle_tool_error`` of the tool and ``handle_tool_errors`` of its node turn exceptions into
    results, which do not say whether the effect happened.
    """
    copied = tool.model_copy()
    sync, asynchronous = copied._run, copied._arun
    known = _known(tool)

    @functools.wraps(sync)
    def run(*args: Any, **kwargs: Any) -> Any:
        known.check(args, kwargs, written)
        try:
            return sync(*args, **kwargs)
        except Exception as error:
            raised.append(error)
            raise

    @functools.wraps(asynchronous)
    async def arun(*args: Any, **kwargs: Any) -> Any:
        known.check(args, kwargs, written)
        try:
            return await asynchronous(*args, **kwargs)
        except Exception as error:
            raised.append(error)
            raise

    vars(copied).update(_run=run, _arun=arun)
    return copied


def is_observed(tool: BaseTool) -> bool:
    """Return whether a tool is a copy for a call that has passed the gate."""
    return "_run" in vars(tool)


_WAITS = (CallStatus.ASKED, CallStatus.READY)
_OF_A_GRAPH = re.compile(r"[0-9a-f]{8}:[0-9a-f]{16}/")


def key_of(config: Mapping[str, Any], state: Any, call: Mapping[str, Any]) -> str:
    """Return the key of a call on its thread: its id, and the subgraph that makes it.

    Agents side by side share a thread, and their models may repeat an id.
    """
    if state is None:  # made in a node of the user, or in a task: those are named by LangGraph
        task = codec.sha256(str(config["configurable"]["checkpoint_ns"]).encode())[:8]
        call_id = call["id"] or codec.sha256(codec.canonical([call["name"], call["args"]]))[:16]
        return f"{graph_of(config)}{call_id}@{task}"
    return f"{graph_of(config)}{numbered_id(state, call, graph=_graph(config))}"


def graph_of(config: Mapping[str, Any]) -> str:
    """Return the prefix of the keys of a subgraph's calls; "" for the outermost graph."""
    graph = _namespace_of_graph(config)
    return f"{_step_of(config)}{codec.sha256(graph.encode())[:16]}/" if graph else ""


def _namespace_of_graph(config: Mapping[str, Any]) -> str:
    return _namespace(config).rpartition("|")[0]


def _namespace(config: Mapping[str, Any]) -> str:
    return str((config.get("configurable") or {}).get("checkpoint_ns") or "")


def is_over(config: Mapping[str, Any], key: str) -> bool:
    """Return whether a call was made by this graph's model, or in an earlier step of the outermost
    graph.

    When the outermost graph takes its next step, nothing of the last one can continue.
    """
    ours = graph_of(config)
    of_a_graph = _OF_A_GRAPH.match(key) is not None
    return key.startswith(ours) or (of_a_graph and not key.startswith(_step_of(config)))


async def check_no_other_agent(
    thread: FrameworkThread, config: Mapping[str, Any], state: Any = None, turn: Sequence[Any] = ()
) -> None:
    """Raise ``SaysoError`` if an agent has other open calls than those of its turn.

    LangGraph keeps one state for all agents with ``checkpointer=True`` that a node calls. Run side
    by side, they would continue each other's turns.
    """
    graph = _namespace_of_graph(config)
    if not graph or all(":" in name for name in graph.split("|")):
        return  # each call has its own state
    keys = [key_of(config, state, call) for call in turn]
    for call in await read(thread.store, thread.store.calls_of, thread.run):
        made_here = call.status in _WAITS and call.key.startswith(graph_of(config))
        if made_here and not any(f"{call.key}/".startswith(f"{key}/") for key in keys):
            raise SaysoError(
                f"{call.id} is waiting in another agent with checkpointer=True that was called by "
                f"{graph!r} at the same time, {_ONE_STATE}"
            )


async def check_all_ran(store: Store, run: str) -> None:
    """Raise ``SaysoError`` if a graph ended without a call of an agent in it that was approved.

    Of two agents that share a state, one may end the turn of the other before either notices.
    """
    for call in await read(store, store.calls_of, run):
        if call.status is CallStatus.READY and _OF_A_GRAPH.match(call.key):
            raise SaysoError(
                f"the graph ended, and {call.id} was approved and did not run: if its agent has "
                f"checkpointer=True and was called beside another one, {_ONE_STATE}"
            )


_ONE_STATE = (
    "LangGraph has one state for both: leave out checkpointer=True, or put each of these agents "
    "into its own graph, without checkpointer, as a node with its own name"
)


def _step_of(config: Mapping[str, Any]) -> str:
    steps = (config.get("configurable") or {}).get("checkpoint_map") or {}
    return f"{codec.sha256(str(steps.get('')).encode())[:8]}:"


def thread_id(config: Mapping[str, Any], default: str | None = None) -> str:
    """Return the thread of a config. Raises ``InvalidCall`` if there is none, and no default."""
    value = (config.get("configurable") or {}).get("thread_id", default)
    if value is None:
        raise InvalidCall(
            "a guarded agent needs a thread: pass "
            'config={"configurable": {"thread_id": "…"}}, and use a checkpointer',
            "thread_id",
        )
    return str(value)


def reviewer_of(config: Mapping[str, Any]) -> str:
    """Return who answers through LangGraph: ``sayso_by`` in the config."""
    return str((config.get("configurable") or {}).get("sayso_by") or "langgraph")


# -- tools and messages


#: What a tool may return: a message, or a command that carries one.
Result = ToolMessage | Command[Any]

_SUPERSEDED = "The user wrote something new instead of deciding, so it was not run."
_SERDE = JsonPlusSerializer(pickle_fallback=False)


def described(tool: BaseTool) -> FrameworkTool:
    """Describe a tool. It declares nothing, so its calls need approval."""
    return _known(tool).described


def _delegates(tool: BaseTool) -> bool:
    """Return whether a tool is one with which a framework itself runs a sub-agent: the ``task``
    tool of deepagents, or a graph's ``as_tool``."""
    function: Any = vars(tool).get("func") or vars(tool).get("coroutine")
    module = getattr(function, "__module__", "")
    if module == "langchain_core.tools.convert":
        return isinstance(inspect.getclosurevars(function).nonlocals.get("runnable"), Pregel)
    return module == "deepagents.middleware.subagents"


def framework_tool(
    tool: BaseTool, needs_approval: bool | Predicate | None = None, own: Terms | None = None
) -> FrameworkTool:
    """Describe a tool by what its model sees. Injected arguments are left out."""
    schema: Any = _TAKES_TEXT if _takes_text(tool) else tool.tool_call_schema
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        schema = schema.model_json_schema()
    known = _known(tool)
    return FrameworkTool(
        name=tool.name,
        description=tool.description,
        parameters=schema if isinstance(schema, dict) else {"type": "object"},
        version=str((tool.metadata or {}).get("version", "")),
        needs_approval=needs_approval,
        own=own or Terms(),
        normalize=known.normalize if known.validates else None,
    )


#: What models see of a tool that takes one string and declares no arguments.
_TEXT = "__arg1"
_TAKES_TEXT = {"type": "object", "properties": {_TEXT: {"type": "string"}}, "required": [_TEXT]}


def _takes_text(tool: BaseTool) -> bool:
    return isinstance(tool, Tool) and tool.args_schema is None


def written_arguments(tool: BaseTool, args: dict[str, Json]) -> dict[str, Json]:
    """Return arguments under the names that models see: a tool that takes one string takes it under
    any name."""
    return {_TEXT: next(iter(args.values()))} if _takes_text(tool) and len(args) == 1 else args


class _KnownTool:
    """What the gate knows of a tool, and how LangChain validates its arguments.

    It validates with ``args_schema``. ``tool_call_schema``, which the model sees, lacks some of its
    validators, and the arguments that are injected when the tool runs.
    """

    def __init__(self, tool: BaseTool) -> None:
        self.tool = tool
        model: Any = tool.args_schema
        self.validates = isinstance(model, type) and issubclass(model, BaseModel)
        if self.validates:
            visible: Any = tool.tool_call_schema
            self._injected = frozenset(model.model_fields) - frozenset(visible.model_fields)
            self._model = _without(model, self._injected) if self._injected else model

    @functools.cached_property
    def described(self) -> FrameworkTool:
        return framework_tool(self.tool, own=SUB_AGENT_TERMS if _delegates(self.tool) else None)

    def normalize(self, args: Mapping[str, Json]) -> dict[str, Json]:
        return self.shown(validated_values(self._model, args), args)

    def shown(self, values: Mapping[str, Any], written: Mapping[str, Json]) -> dict[str, Json]:
        """Return the values that the model chose, of those that the function gets."""
        names = {*self._model.model_fields, *written} - self._injected
        return as_shown(self._model, {n: v for n, v in values.items() if n in names})

    def check(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], written: Any) -> None:
        if self.validates:
            positional = dict(zip(self._model.model_fields, args, strict=False))
            check_validated(self.shown({**positional, **kwargs}, written))


_tools: dict[str, _KnownTool] = {}


def _known(tool: BaseTool) -> _KnownTool:
    known = _tools.get(tool.name)
    if known is None or known.tool is not tool:
        known = _tools[tool.name] = _KnownTool(tool)
    return known


@functools.lru_cache(maxsize=1024)
def _without(model: type[BaseModel], names: frozenset[str]) -> type[BaseModel]:
    """Return a model with the same validators that does not need these fields."""
    optional: dict[str, Any] = {name: (Any, None) for name in names}
    return create_model(model.__name__, __base__=model, **optional)


def text_beside(state: Any, call_id: str) -> str:
    """Return what the model wrote beside a call, unverified."""
    message = _reply_with(state, call_id)
    text = "" if message is None else message.text
    return text[:MAX_WORDS].encode(errors="replace").decode()


def numbered_id(state: Any, call: Mapping[str, Any], graph: Any = None) -> str:
    """Return a call's id, made unique in the thread.

    Some providers restart their ids at every reply, and summarizing removes earlier replies from
    the history. So the id of the reply, which LangGraph keeps unique, is part of it. Calls are
    counted only if the reply has no id, or its graph has no checkpoints to remember it.
    """
    reply = _reply_with(state, call["id"])
    calls = [] if reply is None else [c for c in reply.tool_calls if c["id"] == call["id"]]
    target = call["name"], call["args"]
    index = next((n for n, c in enumerate(calls) if (c["name"], c["args"]) == target), 0)
    starts_over = getattr(graph, "checkpointer", None) is False
    if reply is not None and reply.id and not starts_over:
        digest = codec.sha256(reply.id.encode())[:8]
        return f"{call['id']}@{digest}" + (f"#{index + 1}" if index else "")
    replies = [message for message in _messages(state) if isinstance(message, AIMessage)]
    ids = [c["id"] for message in replies for c in message.tool_calls]
    number = ids.count(call["id"]) - len(calls) + index + 1
    return f"{call['id']}" if number == 1 else f"{call['id']}#{number}"


def _reply_with(state: Any, call_id: str) -> AIMessage | None:
    for message in reversed(_messages(state)):
        if isinstance(message, AIMessage):
            for call in message.tool_calls:
                if call["id"] == call_id:
                    return message
    return None


def _messages(state: Any) -> Sequence[Any]:
    return state.get("messages", ()) if isinstance(state, Mapping) else ()


def _node_after(config: Mapping[str, Any]) -> str | None:
    """Return the one node that the running tool node may go to, besides the end: a refusal goes
    there. None if there are several."""
    node = _namespace(config).rpartition("|")[2].partition(":")[0]
    builder = getattr(_graph(config), "builder", None)
    if builder is None:
        return None
    branches = builder.branches.get(node, {}).values()
    ends = {to for branch in branches for to in (branch.ends or {}).values()} - {END}
    return ends.pop() if len(ends) == 1 else None


# -- results


class ParentCommandResult(NamedTuple):
    """The result of a tool that sent the outer graph to another node."""

    command: Command[Any]


def dump_result(result: Any) -> Json:
    """Return a result as JSON. Plain text stays plain text, because people read it too."""
    if isinstance(result, ParentCommandResult):
        return {**dump_result(result.command), "parent": True, "text": "handed over"}
    if isinstance(result, ToolMessage):
        plain = isinstance(result.content, str) and result.artifact is None
        if plain and result.status == "success" and not result.additional_kwargs:
            return result.content
    elif not isinstance(result, Command | list):
        return result  # what the tool returned to code that called it
    kind, data = _SERDE.dumps_typed(result)
    return {"langchain": kind, "data": base64.b64encode(data).decode(), "text": _text_of(result)}


def load_result(stored: Json, tool_call: Mapping[str, Any]) -> Any:
    if isinstance(stored, dict) and "langchain" in stored:
        data = base64.b64decode(stored["data"])
        result: Any = _SERDE.loads_typed((stored["langchain"], data))
        return ParentCommandResult(result) if stored.get("parent") else result
    return stored if tool_call["id"] is None else tool_message(str(stored), tool_call)


def tool_message(text: str, tool_call: Mapping[str, Any], *, ok: bool = True) -> ToolMessage:
    status: Any = "success" if ok else "error"
    name, id = tool_call["name"], tool_call["id"]
    return ToolMessage(content=text, name=name, tool_call_id=id, status=status)


def missing_results(reply: AIMessage, after: Sequence[BaseMessage]) -> list[ToolMessage]:
    """Return results for those calls of a reply that have none before the next reply.

    Providers reject a conversation with unanswered calls.
    """
    results = takewhile(lambda message: not isinstance(message, AIMessage), after)
    answered = {result.tool_call_id for result in results if isinstance(result, ToolMessage)}
    return [
        tool_message(_SUPERSEDED, c, ok=False) for c in reply.tool_calls if c["id"] not in answered
    ]


def result_for(outcome: Outcome, tool_call: Mapping[str, Any], notice: str | None) -> Result:
    """Return what the framework gets for a finished call.

    ``notice`` is put before the note that other arguments ran; ``None`` leaves both out.
    """
    if not outcome.ok or outcome.by_person:
        return tool_message(outcome.text, tool_call, ok=outcome.ok)
    result: Result = outcome.value
    if not outcome.notice or notice is None:
        return result
    noted: Result = _with_notice(result, f"{notice} {outcome.notice}".strip(), tool_call["id"])
    return noted


def _with_notice(result: Any, notice: str, id: str) -> Any:
    if isinstance(result, Command) and isinstance(result.update, dict):
        messages = result.update.get("messages")
        if isinstance(messages, list):
            noted = [_with_notice(message, notice, id) for message in messages]
            return replace(result, update={**result.update, "messages": noted})
    if not isinstance(result, ToolMessage) or result.tool_call_id != id:
        return result
    content = result.content
    if isinstance(content, str):
        text = f"{notice}\n\nTool response:\n{content}" if content else notice
        return result.model_copy(update={"content": text})
    block: Any = notice
    if not all(isinstance(part, str) for part in content):
        block = {"type": "text", "text": notice}
    return result.model_copy(update={"content": [block, *content]})


def _text_of(result: Result) -> str:
    if isinstance(result, ToolMessage):
        return result.text
    update = result.update if isinstance(result.update, dict) else {}
    messages = update.get("messages") or []
    return "\n".join(m.text for m in messages if isinstance(m, ToolMessage))
