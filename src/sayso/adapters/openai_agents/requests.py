"""What an agent declares, and what a request lets the provider run.

What the provider runs never comes back to the gate: hosted tools, stored prompts, and fields of a
request with which it runs more. So the fields are an allow-list. ``guard`` lists what an agent
declares; each request of a guarded run is checked once more, because agents change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from agents import (
    Agent,
    ApplyPatchTool,
    CodeInterpreterTool,
    ComputerTool,
    CustomTool,
    FileSearchTool,
    FunctionTool,
    HostedMCPTool,
    ImageGenerationTool,
    LocalShellTool,
    ModelSettings,
    ShellTool,
    Tool,
    WebSearchTool,
)

from sayso.errors import InvalidCall
from sayso.gate.coverage import Coverage

_BY_PROVIDER = (WebSearchTool, FileSearchTool, CodeInterpreterTool, ImageGenerationTool)
_WITHOUT_HOOK = (ApplyPatchTool, ComputerTool, CustomTool, LocalShellTool, ShellTool)

# fmt: off
#: The settings of a model that cannot make the provider run anything.
_SETTINGS = frozenset((
    "temperature", "top_p", "frequency_penalty", "presence_penalty", "tool_choice",
    "parallel_tool_calls", "truncation", "max_tokens", "reasoning", "verbosity", "metadata",
    "store", "prompt_cache_retention", "include_usage", "response_include", "top_logprobs",
    "extra_headers", "extra_query", "retry", "context_management", "prompt_cache_options",
    "preserve_raw_usage", "timeout",
))
#: The same for the fields in ``extra_body`` and ``extra_args``.
_EXTRAS = frozenset((
    "user", "seed", "stop", "n", "logit_bias", "logprobs", "service_tier", "safety_identifier",
    "prompt_cache_key", "top_k", "min_p", "top_a", "repetition_penalty", "reasoning_effort",
    "modalities", "prediction",
))
# fmt: on


def list_agent(agent: Agent[Any], coverage: Coverage) -> None:
    """Add what an agent declares to the table."""
    coverage.gated(agent.name, "agent", agent.name)
    for server in agent.mcp_servers:
        note = "its tools are gated whenever they are listed"
        coverage.gated(agent.name, "MCP server", server.name, note)
    list_request(agent.name, agent.tools, agent.model_settings, agent.prompt, coverage)


def list_request(
    where: str,
    tools: Iterable[Tool],
    settings: ModelSettings | None,
    prompt: Any,
    coverage: Coverage,
) -> None:
    """Add the tools, the prompt and the fields of a request to the table."""
    for tool in tools:
        _list_tool(tool, where, coverage)
    if prompt is not None:
        name = str((prompt.get("id") if isinstance(prompt, dict) else None) or "prompt")
        why = "a prompt that the provider keeps may bring tools that the provider runs"
        coverage.missed(where, "stored prompt", name, why)
    list_settings(settings, where, coverage)


def _list_tool(tool: Tool, where: str, coverage: Coverage) -> None:
    if isinstance(tool, FunctionTool):
        note = "" if tool._agent_instance is None else "an agent; its own calls are gated too"
        coverage.gated(where, "tool", tool.qualified_name, note)
    elif isinstance(tool, HostedMCPTool):
        _list_hosted(tool, where, coverage)
    elif isinstance(tool, _WITHOUT_HOOK):
        coverage.missed(where, "tool", tool.name, without_hook(tool))
    elif isinstance(tool, _BY_PROVIDER):
        coverage.hosted(where, "hosted tool", tool.name)
    elif type(tool).__name__ in ("ToolSearchTool", "ProgrammaticToolCallingTool"):
        note = "it has no effect: the calls that it leads to are gated"
        coverage.gated(where, "hosted tool", tool.name, note)
    else:
        why = f"this adapter does not know {type(tool).__name__}"
        coverage.missed(where, "tool", str(getattr(tool, "name", type(tool).__name__)), why)


def without_hook(tool: Any) -> str:
    """Say why one of the SDK's own tools cannot be guarded."""
    return (
        f"{type(tool).__name__} would bypass the gate: use a function_tool that does only what the "
        "agent may do"
    )


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


def list_settings(settings: ModelSettings | None, where: str, coverage: Coverage) -> None:
    """List the fields of a request that are not known to be free of tools."""
    for field in () if settings is None else fields(settings):
        value = getattr(settings, field.name)
        if value is None or field.name in _SETTINGS:
            continue
        is_extra = field.name in ("extra_body", "extra_args") and isinstance(value, Mapping)
        unknown = [str(key) for key in value if key not in _EXTRAS] if is_extra else [field.name]
        if unknown:
            why = f"{', '.join(unknown)} may bring tools that the provider runs"
            coverage.missed(where, "request field", field.name, why)
