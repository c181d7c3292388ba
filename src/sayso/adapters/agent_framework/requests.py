"""What an agent declares, and what its requests may hold.

Every function comes back to the gate. What the provider runs itself does not: hosted tools, and
request options with which some providers run more, such as servers and stored prompts. So options
are an allow-list for each class of chat clients. They are checked once more for each
request of a guarded run, also for those of agents that its functions build.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_framework import ChatOptions, FunctionTool, RawAgent, Workflow, WorkflowAgent

from sayso.gate.coverage import Coverage

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
    given = options or {}
    if isinstance(agent, RawAgent):
        coverage.gated(where, "agent", where)
        for server in agent.mcp_tools:
            _list_server(coverage, server, where)
        chat = {**agent.default_options, **(given.get("options") or {})}
        chat["tools"] = [*_tools(agent.default_options), *_tools(given)]
        list_request(coverage, agent.client, chat, given.get("client_kwargs"), where)
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
    for tool in _tools(options):
        _list_tool(coverage, tool, where)
    classes = {kind.__name__ for kind in type(client).__mro__}
    if classes & _REMOTE:
        why = "the agent is defined at the provider, which runs its tools without asking first"
        coverage.missed(where, "client", type(client).__name__, why)
    known = {field for name in classes & _FIELDS.keys() for field in _FIELDS[name].split()}
    given = {**(arguments or {}), **options}
    for name, value in given.items():
        if name not in _COMMON | known and not name.startswith("_") and value is not None:
            why = f"it is unknown what the provider runs because of it ({type(client).__name__})"
            coverage.missed(where, "request option", name, why)


def _tools(options: Mapping[str, Any]) -> list[Any]:
    tools = options.get("tools")
    if tools is None:
        return []
    return list(tools) if isinstance(tools, Sequence) and not isinstance(tools, str) else [tools]


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
