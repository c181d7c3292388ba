"""List what an agent declares, and refuse what its model's provider would run.

Every toolset goes through the gate, whichever capability brings it. Native tools do not: the
provider runs them and does not ask. Settings of the request can bring more of them, so only
settings that are known to bring none are sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic_ai.native_tools import AbstractNativeTool
from pydantic_ai.toolsets import (
    CombinedToolset,
    ExternalToolset,
    FunctionToolset,
    WrapperToolset,
)

from sayso.gate.coverage import Coverage

#: Native tools without an effect: they only find tools, or their calls come back to the agent.
_HARMLESS = ("tool_search", "memory")

#: The settings of a request that cannot bring tools, by the prefix of their names. Each class of
#: models has its own prefix; those without one are for all models.
_PLAIN_SETTINGS = {
    "": """max_tokens temperature top_p top_k timeout request_timeout first_event_timeout
        max_retries parallel_tool_calls tool_choice seed presence_penalty frequency_penalty
        logit_bias stop_sequences extra_headers thinking citations cache service_tier""",
    "anthropic": """metadata thinking cache_tool_definitions service_tier cache_instructions
        cache_messages cache effort task_budget code_execution_tool_version eager_input_streaming
        betas speed context_management""",
    "bedrock": """guardrail_config performance_configuration request_metadata
        additional_model_response_fields_paths cache_tool_definitions cache_instructions
        cache_messages service_tier inference_profile""",
    "cerebras": "disable_reasoning clear_thinking",
    "decision": "boolean_threshold route_threshold",
    "google": """safety_settings thinking_config labels video_resolution logprobs top_logprobs
        cloud_service_tier model_armor_config""",
    "groq": "reasoning_format reasoning_effort",
    "mcp": "model_preferences",
    "mistral": "prompt_cache_key",
    "openai": """reasoning_effort logprobs top_logprobs store user moderation text_verbosity
        service_tier prediction prompt_cache_key prompt_cache_retention prompt_cache_options
        prompt_cache_diagnostics cache_instructions continuous_usage_stats include_raw_annotations
        reasoning_mode reasoning_context reasoning_summary send_reasoning_ids truncation
        previous_response_id conversation_id include_code_execution_outputs
        include_web_search_sources include_file_search_results context_management background
        transport""",
    "openrouter": """models provider transforms reasoning usage cache_instructions cache_messages
        cache_tool_definitions""",
    "snowflake": "reasoning",
    "typesafe": "boolean_threshold tool_call_threshold",
    "xai": """logprobs top_logprobs user store_messages previous_response_id
        include_encrypted_content include_code_execution_output include_web_search_output
        include_inline_citations include_mcp_output include_x_search_output
        include_collections_search_output include_attachment_search_output reasoning_effort
        max_turns agent_count""",
    "zai": "clear_thinking",
}
_PLAIN = frozenset(
    f"{prefix}_{name}" if prefix else name
    for prefix, names in _PLAIN_SETTINGS.items()
    for name in names.split()
)


def list_agent(coverage: Coverage, agent: Any, where: str, options: Mapping[str, Any]) -> None:
    """Add what an agent declares to the table."""
    coverage.gated(where, "agent", where)
    for toolset in (*agent.toolsets, *(options.get("toolsets") or ())):
        _list_toolset(coverage, toolset, where)
    root = getattr(agent, "root_capability", None)
    capabilities = [root, *(options.get("capabilities") or ())]
    for capability in capabilities:
        if hasattr(capability, "get_native_tools"):
            _list_native(coverage, capability.get_native_tools(), where)
    models = (getattr(agent, "model", None), options.get("model"))
    settings = (getattr(agent, "model_settings", None), options.get("model_settings"))
    for each in (*settings, *(found for model in models for found in _settings_of(model))):
        _list_settings(coverage, each, where)


def check_request(coverage: Coverage, request: Any, where: str) -> None:
    """Raise ``InvalidCall`` if the provider would run a tool that ``ungated`` does not name.

    What a request holds is known only when it is made.
    """
    _list_native(coverage, request.model_request_parameters.native_tools, where)
    for settings in (request.model_settings, *_settings_of(request.model)):
        _list_settings(coverage, settings, where)
    coverage.check()


def _list_toolset(coverage: Coverage, toolset: Any, where: str) -> None:
    if isinstance(toolset, FunctionToolset):
        for tool in toolset.tools.values():
            coverage.gated(where, "tool", tool.name)
    elif isinstance(toolset, ExternalToolset):
        for definition in toolset.tool_defs:
            coverage.gated(where, "tool", definition.name, "its result comes from outside")
    elif isinstance(toolset, CombinedToolset):
        for inner in toolset.toolsets:
            _list_toolset(coverage, inner, where)
    elif isinstance(toolset, WrapperToolset):
        _list_toolset(coverage, toolset.wrapped, where)
    else:
        note = "its tools are gated whenever they are listed"
        coverage.gated(where, type(toolset).__name__, toolset.id or toolset.label, note)


def _list_native(coverage: Coverage, tools: Iterable[Any], where: str) -> None:
    for tool in tools:
        if isinstance(tool, AbstractNativeTool) and tool.kind not in _HARMLESS:
            name = str(getattr(tool, "id", None) or tool.kind)
            coverage.hosted(where, "native tool", name)


def _list_settings(coverage: Coverage, settings: Any, where: str) -> None:
    if not isinstance(settings, Mapping):  # a function, whose settings are checked in the request
        return
    for name, value in settings.items():
        if name not in _PLAIN and value:
            why = "the provider may run tools that it brings, without asking first"
            coverage.missed(where, "model setting", name, why)


def _settings_of(model: Any) -> Iterator[Any]:
    """Yield the settings of a model and of the models that it wraps."""
    yield getattr(model, "settings", None)
    wrapped = getattr(model, "wrapped", None)
    for inner in (*([] if wrapped is None else [wrapped]), *(getattr(model, "models", None) or ())):
        yield from _settings_of(inner)
