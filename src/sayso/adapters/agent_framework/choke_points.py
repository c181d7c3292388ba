"""The gate where the framework runs functions, for calls that no middleware of ours sees.

A function may run other agents, clients and tools, wherever it finds them. ``install`` changes six
methods of the framework, once per process:

- ``FunctionTool.invoke`` and ``__call__``: a function that runs inside a guarded run, and that has
  not passed the gate, goes through it there.
- ``FunctionInvocationLayer.get_response``: an agent or client that runs inside a call gets the
  middleware of a sub-agent, so that its calls are asked about together, and its replies are kept.
- ``AgentMiddlewareLayer.run``: the agents of a guarded workflow get its middleware.
- ``RawAgent.run`` and ``get_response`` of both clients: neither an agent nor a request may let the
  provider run what nobody has named.

Outside of guarded runs they do what they always did.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from agent_framework import (
    AgentMiddlewareLayer,
    BaseChatClient,
    ChatOptions,
    ChatResponse,
    ChatResponseUpdate,
    FunctionInvocationContext,
    FunctionInvocationLayer,
    FunctionTool,
    RawAgent,
    ResponseStream,
    Workflow,
    WorkflowAgent,
    function_middleware,
)
from pydantic_core import to_jsonable_python

from sayso.adapters.agent_framework.middleware import (
    Gated,
    SubAgentRun,
    as_contents,
    dump_result,
    framework_result,
    framework_tool,
    load_result,
    sub_agent_here,
)
from sayso.gate.coverage import Coverage
from sayso.gate.framework import FrameworkCall, FrameworkThread, check_validated, place_in_call
from sayso.gate.guarded_runs import Place, current_place, known_place, tool_call
from sayso.gate.os_threads import wrap_method
from sayso.sync import context_value, run_blocking
from sayso.types import Json

#: The function that ``invoke`` is about to call.
_invoked: contextvars.ContextVar[FunctionTool | None] = contextvars.ContextVar(
    "sayso_agent_framework_invoked", default=None
)
_NO_MEMBERS: Mapping[int, list[Any]] = MappingProxyType({})
#: The middleware of the agents of the workflow that runs here, by the id of the agent.
members: contextvars.ContextVar[Mapping[int, list[Any]]] = contextvars.ContextVar(
    "sayso_agent_framework_members", default=_NO_MEMBERS
)


@functools.cache
def install() -> None:
    """Put the gate where the framework runs functions, in this process."""
    wrap_method(FunctionTool, "invoke", _invoke)
    wrap_method(FunctionTool, "__call__", _call)
    wrap_method(FunctionInvocationLayer, "get_response", _run_client)
    wrap_method(AgentMiddlewareLayer, "run", _run_agent)
    wrap_method(RawAgent, "run", _start_agent)
    wrap_method(BaseChatClient, "get_response", _request)


# -- functions


async def _invoke(
    invoke: Any, tool: FunctionTool, *, tool_call_id: str | None = None, **given: Any
) -> Any:
    name = (tool.name, tool_call_id)
    with tool_call(name) as place:
        if place is None:
            return await _invoke_original(invoke, tool, tool_call_id=tool_call_id, **given)

    async def run(args: dict[str, Json]) -> Any:
        arguments = {"arguments": args, "tool_call_id": tool_call_id}
        with tool_call(name):
            return await _invoke_original(invoke, tool, **{**more, **arguments})

    own = ("arguments", "context", "skip_parsing")
    direct = {key: value for key, value in given.items() if key not in own}
    more = {key: value for key, value in given.items() if key in own}
    context = given.get("context")
    arguments = given.get("arguments")
    if arguments is None:
        arguments = direct or (None if context is None else context.arguments)
    result = await _complete(place, tool, arguments, run, name)
    return result if given.get("skip_parsing") else as_contents(result)


async def _invoke_original(invoke: Any, tool: FunctionTool, **given: Any) -> Any:
    # An agent that its body runs is another one.
    with context_value(_invoked, tool), context_value(sub_agent_here, None):
        return await invoke(tool, **given)


def _call(call: Any, tool: FunctionTool, *args: Any, **kwargs: Any) -> Any:
    if _invoked.get() is tool:
        # In its body, the function is no longer about to run. A tool may be made of another one.
        _invoked.set(tool.func if isinstance(tool.func, FunctionTool) else None)
        return call(tool, *args, **kwargs)
    place = current_place()
    if place is None or tool.func is None:
        return call(tool, *args, **kwargs)

    name = (tool.name, None)

    async def run(args: dict[str, Json]) -> Any:
        with tool_call(name), context_value(_invoked, tool), context_value(sub_agent_here, None):
            value = tool(**_validated(tool, args))
            return await value if inspect.isawaitable(value) else value

    function: Any = tool.func
    while isinstance(function, FunctionTool):
        function = function.func
    arguments = inspect.signature(function).bind(*args, **kwargs).arguments
    complete = functools.partial(_complete, place, tool, arguments, run, name)
    return complete() if inspect.iscoroutinefunction(function) else run_blocking(complete)


def _validated(tool: FunctionTool, args: dict[str, Json]) -> dict[str, Any]:
    if tool.input_model is None:
        return args
    model = tool.input_model.model_validate(args)
    return {name: getattr(model, name) for name in model.model_fields_set}


async def _complete(
    place: Place,
    tool: FunctionTool,
    arguments: Any,
    run: Callable[[dict[str, Json]], Awaitable[Any]],
    name: tuple[str, str | None],
) -> Any:
    """Complete a call that has not passed the gate."""
    described = framework_tool(tool)

    async def checked_run(args: dict[str, Json]) -> Any:
        if described.normalize is not None:
            check_validated(described.normalize(args))
        return await run(args)

    call = FrameworkCall(
        id="",
        tool=described,
        args=to_jsonable_python({} if arguments is None else arguments, by_alias=True),
        run=checked_run,
        dump=dump_result,
        load=load_result,
        passed=name,
    )
    return framework_result(await FrameworkThread.inner(place, call))


# -- agents and clients


def _run_client(get_response: Any, client: Any, *args: Any, **given: Any) -> Any:
    _check_request(client, given)
    sub_agent = _sub_agent()
    if sub_agent is None:
        if known_place() is not None and sub_agent_here.get() is None:
            given["middleware"] = [*_listed(given.get("middleware")), _check_own_invoke]
        return get_response(client, *args, **given)
    stream = given.pop("stream", False)
    given["middleware"] = [*_listed(given.get("middleware")), *sub_agent.middleware]
    running = sub_agent.run(lambda: get_response(client, *args, **given))
    return _streamed(running) if stream else running


@function_middleware
async def _check_own_invoke(
    context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]
) -> None:
    """Check a function whose class has an ``invoke`` of its own, in which nothing is checked."""
    tool = context.function
    place = current_place()
    if place is None or type(tool).invoke is FunctionTool.invoke:
        await call_next()
        return

    async def run(args: dict[str, Json]) -> Any:
        context.arguments = args
        await call_next()
        return context.result

    name = (tool.name, str(context.metadata["call_id"]))
    context.result = as_contents(await _complete(place, tool, context.arguments, run, name))


def _sub_agent() -> SubAgentRun | None:
    """Return a new run for an agent or client that starts here; None if the call around it cannot
    be paused, or there is none, or the agent has its middleware already."""
    place = None if sub_agent_here.get() is not None else known_place()
    call = None if place is None or not place.may_pause else place_in_call(place.gate)
    if place is None or call is None:
        return None
    calls = FrameworkThread(place.gate, place.thread, policy=place.policy)
    return SubAgentRun(calls, call.key, Gated(place.gate, place.policy))


def _streamed(
    running: Awaitable[ChatResponse[Any]],
) -> ResponseStream[ChatResponseUpdate, ChatResponse[Any]]:
    """Return a response as a stream of its messages."""
    responses: list[ChatResponse[Any]] = []

    async def updates() -> AsyncIterator[ChatResponseUpdate]:
        responses.append(await running)
        for update in responses[0].to_updates():
            yield update

    return ResponseStream(updates(), finalizer=lambda _: responses[0])


def _run_agent(run: Any, agent: Any, *args: Any, **given: Any) -> Any:
    place = known_place()
    if place is not None and place.call is None:
        middleware = members.get().get(id(agent), ())
        given["middleware"] = [*_listed(given.get("middleware")), *middleware]
    return run(agent, *args, **given)


def _listed(values: Any) -> list[Any]:
    """Return what the framework takes as one value, as several or as none, as a list."""
    if values is None:
        return []
    return (
        list(values) if isinstance(values, Sequence) and not isinstance(values, str) else [values]
    )


def _start_agent(run: Any, agent: Any, *args: Any, **given: Any) -> Any:
    place = known_place()
    if place is not None:
        coverage = Coverage(place.ungated)
        list_agent(coverage, agent, agent.name or place.gate.agent, given)
        coverage.check_missed()
    return run(agent, *args, **given)


def _request(get_response: Any, client: Any, *args: Any, **given: Any) -> Any:
    _check_request(client, given)
    return get_response(client, *args, **given)


def _check_request(client: Any, given: Mapping[str, Any]) -> None:
    place = known_place()
    if place is not None:
        coverage = Coverage(place.ungated)
        options = given.get("options") or {}
        list_request(coverage, client, options, given.get("client_kwargs"), place.gate.agent)
        coverage.check_missed()


# -- what agents declare, and what requests may hold
#
# Every function comes back to the gate. What the provider runs itself does not: hosted tools, and
# options with which some providers run more, such as servers and stored prompts. So options are an
# allow-list for each class of chat clients.

#: What the framework passes itself, the options of every client, and those of known clients. No
#: provider runs anything because of them.
_OWN = {
    "additional_function_arguments",
    "compaction_strategy",
    "middleware",
    "session",
    "tokenizer",
}
_COMMON = _OWN.union(ChatOptions.__annotations__)
_FIELDS = {
    "RawOpenAIChatClient": (
        "include max_tool_calls prompt_cache_key prompt_cache_options prompt_cache_retention "
        "reasoning safety_identifier service_tier stream_options top_logprobs truncation verbosity"
    ),
    "RawOpenAIChatCompletionClient": (
        "logprobs prediction prompt_cache_options reasoning_effort service_tier top_logprobs "
        "verbosity"
    ),
    "RawAnthropicClient": "service_tier thinking top_k",
    "RawGeminiChatClient": "response_schema thinking_config top_k",
    "RawMistralChatClient": (
        "guardrails prediction prompt_cache_key prompt_mode reasoning_effort safe_prompt "
        "service_tier"
    ),
    "OllamaChatClient": "min_p num_predict top_k",
}
#: Clients of agents that are defined at the provider, with tools of their own.
_REMOTE = {"AzureAIAgentClient", "RawAzureAIClient", "RawFoundryAgentChatClient"}


def list_agent(
    coverage: Coverage, agent: Any, where: str, options: Mapping[str, Any] | None = None
) -> None:
    """Add what an agent declares to the table. ``options`` are those of its runs."""
    agent_options = options or {}
    if isinstance(agent, RawAgent):
        coverage.gated(where, "agent", where)
        for server in agent.mcp_tools:
            _list_server(coverage, server, where)
        chat = {**agent.default_options, **(agent_options.get("options") or {})}
        chat["tools"] = [
            *_listed(agent.default_options.get("tools")),
            *_listed(agent_options.get("tools")),
        ]
        list_request(coverage, agent.client, chat, agent_options.get("client_kwargs"), where)
    elif isinstance(agent, WorkflowAgent):
        list_workflow(coverage, agent.workflow, where)
    elif type(agent).__module__.split(".")[0].startswith("agent_framework"):
        why = f"{type(agent).__name__} runs elsewhere, and its calls do not come back here"
        coverage.missed(where, "agent", agent.name or where, why)
    else:
        coverage.gated(where, "custom agent", where, "your own code: it asks at the gate itself")


def list_workflow(coverage: Coverage, workflow: Workflow, where: str) -> None:
    """Add what the agents of a workflow declare to the table."""
    for id, executor in workflow.executors.items():
        inner = getattr(executor, "workflow", None)
        agent = getattr(executor, "agent", None)
        if isinstance(inner, Workflow):
            list_workflow(coverage, inner, inner.name)
        elif agent is not None:
            list_agent(coverage, agent, f"{where}/{id}")


def list_request(
    coverage: Coverage,
    client: Any,
    options: Mapping[str, Any],
    arguments: Mapping[str, Any] | None,
    where: str,
) -> None:
    """Add the tools and options of a request to the table."""
    for tool in _listed(options.get("tools")):
        _list_tool(coverage, tool, where)
    classes = {kind.__name__ for kind in type(client).__mro__}
    if classes & _REMOTE:
        why = "the agent is defined at the provider, which runs its tools without asking first"
        coverage.missed(where, "client", type(client).__name__, why)
    allowed_fields = {field for name in classes & _FIELDS.keys() for field in _FIELDS[name].split()}
    fields = {**(arguments or {}), **options}
    for name, value in fields.items():
        if name not in _COMMON | allowed_fields and not name.startswith("_") and value is not None:
            why = f"it is unknown what the provider runs because of it ({type(client).__name__})"
            coverage.missed(where, "request option", name, why)


def _list_tool(coverage: Coverage, tool: Any, where: str) -> None:
    if isinstance(tool, FunctionTool):
        coverage.gated(where, "tool", tool.name)
    elif hasattr(tool, "functions"):
        _list_server(coverage, tool, where)
    elif callable(tool):
        coverage.gated(where, "tool", getattr(tool, "__name__", str(tool)))
    else:
        _list_hosted(coverage, tool, where)


def _list_server(coverage: Coverage, server: Any, where: str) -> None:
    note = "its functions are gated whenever they are listed"
    coverage.gated(where, "MCP server", str(getattr(server, "name", "mcp")), note)


def _list_hosted(coverage: Coverage, tool: Any, where: str) -> None:
    about: Mapping[str, Any] = tool if isinstance(tool, Mapping) else vars(tool)
    kind = str(about.get("type") or type(tool).__name__)
    name = str(about.get("server_label") or about.get("name") or kind)
    if kind == "mcp" and about.get("require_approval", "always") == "always":
        note = "the provider asks before each call"
        coverage.gated(where, "hosted MCP server", name, note)
    elif kind == "mcp":
        why = "the provider runs it without asking: let it require approval"
        coverage.missed(where, "hosted MCP server", name, why)
    else:
        coverage.hosted(where, "hosted tool", name)
