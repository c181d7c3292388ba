"""Walk every agent that an agent can reach, and put the gate into copies of them.

Agents are reached by handoffs and as tools; ``GuardedAgents`` copies all of these when ``guard`` is
called. Any other agent starts with the SDK's ``Runner``, most often in the body of a tool. The SDK
lets us replace its default runner, and ours starts the guarded copy of such an agent while a
guarded run is active. So it does not matter where the code that starts an agent got it from.

Each copy has a ``LoggedModel``, which stores every reply before its calls are made.

What the provider runs never comes back to us, and the SDK's shell, patch and computer tools run
without a hook. Those are listed as not covered.
"""

from __future__ import annotations

import contextvars
import copy
import inspect
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import chain, count
from typing import Any

from agents import (
    Agent,
    ApplyPatchTool,
    CodeInterpreterTool,
    ComputerTool,
    CustomTool,
    FileSearchTool,
    FunctionTool,
    Handoff,
    HostedMCPTool,
    ImageGenerationTool,
    LocalShellTool,
    Model,
    ModelResponse,
    RunConfig,
    RunContextWrapper,
    RunResult,
    RunResultStreaming,
    ShellTool,
    Tool,
    WebSearchTool,
)
from agents.retry import ModelRetryAdvice, ModelRetryAdviceRequest
from agents.run import AgentRunner, get_default_agent_runner, set_default_agent_runner
from agents.sandbox import SandboxAgent
from agents.usage import Usage
from openai.types.responses import Response, ResponseCompletedEvent

from sayso.adapters.openai_agents.messages import ActiveRun, current_run, require_run
from sayso.adapters.openai_agents.tools import (
    close_answered,
    guard_tool,
    guarded_tool_of,
    record_refusals,
    requested_call,
    stop_unless_refused,
)
from sayso.errors import InvalidCall, Paused
from sayso.gate.coverage import Coverage
from sayso.gate.framework import FrameworkCall
from sayso.gate.options import MAX_WORDS
from sayso.sync import context_value, read

_BY_PROVIDER = (WebSearchTool, FileSearchTool, CodeInterpreterTool, ImageGenerationTool)
_WITHOUT_HOOK = (ApplyPatchTool, ComputerTool, CustomTool, LocalShellTool, ShellTool)

_guarded_agents: contextvars.ContextVar[GuardedAgents | None] = contextvars.ContextVar(
    "sayso_openai_guarded_agents", default=None
)


class GuardedAgents:
    """The guarded copies of one agent and of all agents that it can reach."""

    def __init__(self, coverage: Coverage) -> None:
        self.coverage = coverage
        # By the id of the original, which is kept alive beside its copy.
        self._copies: dict[int, tuple[Agent[Any], Agent[Any]]] = {}
        #: The agents that are tools: the key of their call is their path.
        self._as_tools: set[int] = set()

    @property
    def agents(self) -> list[Agent[Any]]:
        return [copied for _, copied in self._copies.values()]

    def checked_copy(self, agent: Agent[Any]) -> Agent[Any]:
        """Return the guarded copy of an agent.

        Raises ``InvalidCall`` if it cannot be guarded, with a list of what the gate does not reach.
        """
        copied = self.guarded_copy(agent)
        self.coverage.check()
        return copied

    def guarded_copy(self, agent: Any) -> Agent[Any]:
        """Return the guarded copy of an agent, made with all that the agent can reach."""
        known = self._copies.get(id(agent))
        if known is not None:
            return known[1]
        _check(agent)
        if any(other.name == agent.name for other in self.agents):
            raise InvalidCall(
                f"two agents are named {agent.name!r}: a stored state could not tell them apart, "
                "so give each its own name",
                "name",
            )
        copied: Agent[Any] = copy.copy(agent)
        self._copies[id(agent)] = agent, copied
        self._list(agent)
        copied.tools = [self._tool(tool, copied) for tool in agent.tools]
        copied.handoffs = [self._handoff(handoff) for handoff in agent.handoffs]
        copied.mcp_servers = list(agent.mcp_servers)
        copied.model = LoggedModel(copied, agent.model, self.check)
        copied.tool_use_behavior = stop_unless_refused(agent.tool_use_behavior)
        self._guard_listing(copied)
        return copied

    def _tool(self, tool: Tool, agent: Agent[Any]) -> Tool:
        if not isinstance(tool, FunctionTool):
            return tool
        guarded = guard_tool(tool, agent)
        if tool._agent_instance is not None:
            self._as_tools.add(id(tool._agent_instance))
            guarded._agent_instance = self.guarded_copy(tool._agent_instance)
        return guarded

    def _handoff(self, handoff: Any) -> Any:
        if isinstance(handoff, Agent):
            return self.guarded_copy(handoff)
        to = self.guarded_copy(_target(handoff))

        async def invoked(context: RunContextWrapper[Any], arguments: str) -> Agent[Any]:
            # It may choose an agent that guard(...) has not seen.
            return self.checked_copy(await handoff.on_invoke_handoff(context, arguments))

        copied = copy.copy(handoff)
        copied.on_invoke_handoff = invoked
        copied._agent_ref = weakref.ref(to)
        return copied

    def _guard_listing(self, agent: Agent[Any]) -> None:
        """Guard the tools of local MCP servers, which the SDK lists again for every turn."""
        listed = agent.get_mcp_tools

        async def get_mcp_tools(run_context: RunContextWrapper[Any]) -> list[Tool]:
            # The model checks the same, but a run may bring another model.
            self.check(agent.tools, agent.handoffs)
            await record_refusals(run_context)
            tools = await listed(run_context)
            return [tool if guarded_tool_of(tool) else self._tool(tool, agent) for tool in tools]

        setattr(agent, "get_mcp_tools", get_mcp_tools)  # noqa: B010  # on this one object

    # -- what cannot be gated

    def _list(self, agent: Agent[Any]) -> None:
        coverage = self.coverage
        coverage.gated(agent.name, "agent", agent.name)
        for tool in agent.tools:
            _list_tool(tool, agent.name, coverage)
        for server in agent.mcp_servers:
            note = "its tools are gated whenever they are listed"
            coverage.gated(agent.name, "MCP server", server.name, note)
        if agent.prompt is not None:
            given: Mapping[str, Any] = agent.prompt if isinstance(agent.prompt, dict) else {}
            name = str(given.get("id") or "prompt")
            why = "a prompt that the provider keeps may bring tools that the provider runs"
            coverage.missed(agent.name, "stored prompt", name, why)

    def check(self, tools: Sequence[Tool], handoffs: Sequence[Any]) -> None:
        """Raise ``InvalidCall`` for what was added after ``guard`` and would bypass the gate."""
        found = Coverage(self.coverage.ungated)
        for tool in tools:
            if isinstance(tool, FunctionTool) and guarded_tool_of(tool) is None:
                raise InvalidCall(
                    f"{tool.name} was added to its agent after guard(...), and would bypass the "
                    "gate: add all tools before you call guard(...)",
                    "tools",
                )
            if not isinstance(tool, FunctionTool):
                _list_tool(tool, "the agent", found)
        found.check()
        for handoff in handoffs:
            check_guarded(handoff if isinstance(handoff, Agent) else _target(handoff))

    # -- agents that code starts while a guarded run is active

    @contextmanager
    def active(self) -> Iterator[None]:
        """Guard every agent that is started in this context."""
        if not isinstance(get_default_agent_runner(), GuardingRunner):
            set_default_agent_runner(GuardingRunner(get_default_agent_runner()))
        with context_value(_guarded_agents, self):
            yield

    @contextmanager
    def starting(self, agent: Any) -> Iterator[Any]:
        """Yield the guarded copy of an agent that is started in this context."""
        run = current_run()
        if run is None or is_guarded(agent):
            yield agent
        elif not run.path:
            self._check_no_tools(agent)
            yield agent
        else:
            copied, is_tool = self.checked_copy(agent), id(agent) in self._as_tools
            with nullcontext() if is_tool else run.in_call(run.new_path(copied.name)):
                yield copied

    def _check_no_tools(self, agent: Any) -> None:
        """Raise ``InvalidCall`` for an agent with tools that a guardrail or a hook starts: the gate
        cannot pause it there."""
        if agent.name in self.coverage.ungated:
            return
        if agent.tools or agent.handoffs or agent.mcp_servers or agent.prompt is not None:
            raise InvalidCall(
                f"agent {agent.name!r} was started by a guardrail, a hook or the instructions, "
                "where the gate cannot pause it, so it was not run: give it no tools, run it "
                f"inside a tool, or name it in guard(..., ungated=[{agent.name!r}])",
                "ungated",
            )


class GuardingRunner(AgentRunner):
    """The SDK's runner. While a guarded run is active, it runs guarded copies."""

    def __init__(self, inner: AgentRunner) -> None:
        super().__init__()
        self._inner = inner

    async def run(self, starting_agent: Agent[Any], input: Any, **options: Any) -> RunResult:
        with _starting(starting_agent) as agent:
            return await self._inner.run(agent, input, **options)

    def run_sync(self, starting_agent: Agent[Any], input: Any, **options: Any) -> RunResult:
        with _starting(starting_agent) as agent:
            return self._inner.run_sync(agent, input, **options)

    def run_streamed(
        self, starting_agent: Agent[Any], input: Any, **options: Any
    ) -> RunResultStreaming:
        with _starting(starting_agent) as agent:
            return self._inner.run_streamed(agent, input, **options)


def _starting(agent: Any) -> AbstractContextManager[Any]:
    guarded = _guarded_agents.get()
    return nullcontext(agent) if guarded is None else guarded.starting(agent)


def is_guarded(agent: Any) -> bool:
    return isinstance(getattr(agent, "model", None), LoggedModel)


def check_guarded(agent: Agent[Any]) -> None:
    """Raise ``InvalidCall`` for an agent that was added after ``guard``."""
    if not is_guarded(agent):
        raise InvalidCall(
            f"agent {agent.name!r} was added as a handoff after guard(...), and would bypass the "
            "gate: add all handoffs before you call guard(...)",
            "handoffs",
        )


def _check(agent: Any) -> None:
    if not isinstance(agent, Agent) or isinstance(agent, SandboxAgent):
        raise InvalidCall(
            f"{agent!r:.80} cannot be guarded: pass an Agent of the SDK that is not guarded yet, "
            "and no sandbox or realtime agent",
            "agent",
        )
    if is_guarded(agent):
        raise InvalidCall(
            f"agent {agent.name!r} is guarded already: pass the agent that you built to guard(...)",
            "agent",
        )


def _target(handoff: Handoff[Any, Any]) -> Any:
    to = handoff._agent_ref() if handoff._agent_ref is not None else None
    if to is None:
        raise InvalidCall(
            f"the agent of the handoff {handoff.tool_name!r} is unknown: create it with "
            "handoff(agent)",
            "handoffs",
        )
    return to


def _list_tool(tool: Tool, where: str, coverage: Coverage) -> None:
    if isinstance(tool, FunctionTool):
        note = "" if tool._agent_instance is None else "an agent; its own calls are gated too"
        coverage.gated(where, "tool", tool.qualified_name, note)
    elif isinstance(tool, HostedMCPTool):
        _list_hosted(tool, where, coverage)
    elif isinstance(tool, _WITHOUT_HOOK):
        why = (
            f"{type(tool).__name__} would bypass the gate: use a function_tool that does only what "
            "the agent may do"
        )
        coverage.missed(where, "tool", tool.name, why)
    elif isinstance(tool, _BY_PROVIDER):
        coverage.hosted(where, "hosted tool", tool.name)
    elif type(tool).__name__ in ("ToolSearchTool", "ProgrammaticToolCallingTool"):
        note = "it has no effect: the calls that it leads to are gated"
        coverage.gated(where, "hosted tool", tool.name, note)
    else:
        why = f"this adapter does not know {type(tool).__name__}"
        coverage.missed(where, "tool", str(getattr(tool, "name", type(tool).__name__)), why)


def _list_hosted(tool: HostedMCPTool, where: str, coverage: Coverage) -> None:
    config: Mapping[str, Any] = dict(tool.tool_config)
    if tool.on_approval_request is not None:
        label = config.get("server_label")
        raise InvalidCall(
            f"the hosted MCP server {label!r} has an on_approval_request, which would decide "
            "without the gate: remove it, and give the gate a policy with rules for "
            f"'{label}.*' instead",
            "on_approval_request",
        )
    label = str(config.get("server_label") or config.get("connector_id") or tool.name)
    asks = config.get("require_approval", "always")
    never = asks.get("never") if isinstance(asks, Mapping) else asks != "always"
    if never:
        why = "the provider runs it without asking: set require_approval to 'always'"
        coverage.missed(where, "hosted MCP server", label, why)
    else:
        coverage.gated(where, "hosted MCP server", label, "the provider asks before each call")


# -- the model of an agent, with a log


class LoggedModel(Model):
    """Wrap the model of one agent."""

    def __init__(
        self, agent: Agent[Any], model: str | Model | None, check: Callable[..., None]
    ) -> None:
        self.agent = agent
        self.wrapped = model
        #: Raises ``InvalidCall`` if a tool or a handoff would bypass the gate.
        self._check = check
        #: The real model, once it was needed: a run that only replays needs none.
        self._used: Model | None = None

    # -- called by the runner

    async def get_response(self, *args: Any, **options: Any) -> ModelResponse:
        request = _request(Model.get_response, self, *args, **options)
        active = require_run(self.agent.name)
        reply = await self._stored_reply(active, request["input"])
        if reply is None:
            reply = await self._real_model(active.run_config).get_response(*args, **options)
            reply = await CallIds(active, request["input"]).of_all(reply)
            await self._store_reply(active, reply)
        await self._ask(active, reply.output, request)
        return reply

    async def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        request = _request(Model.stream_response, self, *args, **options)
        active = require_run(self.agent.name)
        reply = await self._stored_reply(active, request["input"])
        if reply is not None:
            await self._ask(active, reply.output, request)
            yield _completed(reply)
            return
        done: list[Any] = []
        ids = CallIds(active, request["input"])
        model = self._real_model(active.run_config)
        async for event in model.stream_response(*args, **options):
            if event.type in ("response.output_item.added", "response.output_item.done"):
                event = event.model_copy(update={"item": await ids.of(event.item)})
            if event.type == "response.output_item.done":
                done.append(event.item)
            if event.type == "response.completed":
                reply = await ids.of_all(_reply(event.response, done))
                response = event.response.model_copy(update={"output": reply.output})
                event = event.model_copy(update={"response": response})
                await self._store_reply(active, reply)
                await self._ask(active, reply.output, request)
            yield event

    async def close(self) -> None:
        if self._used is not None:
            await self._used.close()

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        return None if self._used is None else self._used.get_retry_advice(request)

    async def _cleanup_on_run_end(self, owner: object) -> None:
        if self._used is not None:
            await self._used._cleanup_on_run_end(owner)

    # -- internals

    def _real_model(self, config: RunConfig) -> Model:
        """Return the real model, found as the runner finds it."""
        chosen = self.wrapped if config.model is None else config.model
        if not isinstance(chosen, Model):
            chosen = config.model_provider.get_model(chosen)
        self._used = chosen
        return chosen

    async def _stored_reply(self, active: ActiveRun, input: Any) -> ModelResponse | None:
        if active.stopped:
            raise Paused(active.calls.run)
        with active.remember_errors():
            await close_answered(active, input)
        return None if active.log is None else active.log.next_response(active.path)

    async def _store_reply(self, active: ActiveRun, reply: ModelResponse) -> None:
        if active.log is not None:
            with active.remember_errors():
                await active.log.add_response(active.path, reply)

    async def _ask(
        self, active: ActiveRun, output: Sequence[Any], request: Mapping[str, Any]
    ) -> None:
        """Ask about the calls of a reply in one commit, before the runner makes them."""
        tools, handoffs = request["tools"], request["handoffs"]
        active.notes[active.path] = _text_of(output)
        with active.remember_errors():
            self._check(tools, handoffs)
            made_by = {tool.name: guarded_tool_of(tool) for tool in tools}
            elsewhere = {handoff.tool_name for handoff in handoffs}
            asked: list[FrameworkCall | None] = []
            for item in output:
                if item.type == "mcp_approval_request":
                    with suppress(InvalidCall):  # hosted_outcome tells the provider
                        asked.append(requested_call(active.key(self.agent, item.id), item))
                elif item.type == "function_call" and item.name not in elsewhere:
                    key, made = active.key(self.agent, item.call_id), made_by.get(item.name)
                    if made is None:
                        await active.calls.gone(key, item.name)
                    else:
                        asked.append(made.unconditional_call(active, key, item.arguments))
            calls = [call for call in asked if call is not None]
            for call in calls:
                active.note_new_call(call.id)
            await active.calls.ask(calls)


def _request(method: Any, *args: Any, **options: Any) -> dict[str, Any]:
    """Return the arguments of a request by name; the SDK passes some of them by position."""
    return inspect.signature(method).bind(*args, **options).arguments


def _text_of(output: Sequence[Any]) -> str:
    """Return what the model wrote beside the calls of a reply, unverified."""
    parts = [part for item in output if item.type == "message" for part in item.content]
    return "".join(getattr(part, "text", None) or "" for part in parts)[:MAX_WORDS]


def _reply(response: Response, done: list[Any]) -> ModelResponse:
    """Return a streamed reply; some servers leave the items out of the last event."""
    usage, used = Usage(requests=1), response.usage
    if used is not None:
        usage.input_tokens, usage.output_tokens = used.input_tokens, used.output_tokens
        usage.total_tokens = used.total_tokens
    return ModelResponse(output=response.output or done, usage=usage, response_id=response.id)


def _completed(reply: ModelResponse) -> ResponseCompletedEvent:
    """Return a stored reply as a stream of one event."""
    response = Response(
        id=reply.response_id or "stored",
        created_at=time.time(),
        model="stored",
        object="response",
        output=reply.output,
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
    )
    return ResponseCompletedEvent(response=response, sequence_number=0, type="response.completed")


# -- ids of calls


class CallIds:
    """Make the ids of the calls in a reply unique in the thread.

    Some providers restart their ids at every reply. To the SDK and to the gate an id means one
    call, so a repeated id gets a number before the reply is used.
    """

    def __init__(self, active: ActiveRun, input: Any) -> None:
        self._active = active
        self._path = active.path
        items = input if isinstance(input, list) else ()
        self._known_ids = {item.get("call_id") for item in items if isinstance(item, Mapping)}
        self._names: dict[str, str] = {}

    async def of(self, item: Any) -> Any:
        """Return the item; a call gets its own id."""
        if item.type != "function_call":
            return item
        id = item.call_id
        if id not in self._names:
            self._names[id] = await read(self._active.calls.store, self._unused_id, id)
        return item.model_copy(update={"call_id": self._names[id]})

    async def of_all(self, reply: ModelResponse) -> ModelResponse:
        reply.output = [await self.of(item) for item in reply.output]
        return reply

    def _unused_id(self, id: str) -> str:
        numbered = (f"{id}_{number}" for number in count(2))
        return next(name for name in chain([id], numbered) if not self._is_used(name))

    def _is_used(self, id: str) -> bool:
        """Return whether the thread has a call with this id.

        By hand, the same input may be run again, so only the conversation counts.
        """
        stored = not self._active.manual and self._active.calls.row(self._path + id) is not None
        return stored or id in self._known_ids
