"""Check what code inside a guarded run does where the framework does it, on any OS thread.

Code in a tool can find or build any agent, and run it. So ``install`` changes the three places that
such code passes: ``Agent.iter``, which all ways to run an agent use, gives an agent without a gate
the one of the guarded run around it; ``FunctionToolset.call_tool`` stops a call that did not pass
the gate; ``Model.prepare_request`` stops a request with which the provider would run tools itself.
Settings of a request can bring such tools, so only settings that are known to bring none are sent.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic

from pydantic_ai import Agent, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.models import Model
from pydantic_ai.native_tools import AbstractNativeTool
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool, WrapperToolset
from pydantic_core import to_json

from sayso.adapters.calls import Unlisted, check_unlisted
from sayso.adapters.pydantic_ai.tools import (
    D,
    FixedCapability,
    Gated,
    GatedToolset,
    SubAgentGated,
    TimedOut,
    name_of,
)
from sayso.errors import InvalidCall
from sayso.gate.framework import place_of_unguarded
from sayso.gate.guarded_runs import current_place, tool_call
from sayso.gate.os_threads import wrap_method


@functools.cache
def install() -> None:
    """Check agents, toolsets and models from now on in this process."""
    wrap_method(Agent, "iter", _iter)
    wrap_method(FunctionToolset, "call_tool", _call_tool)
    wrap_method(Model, "prepare_request", _prepare_request)


@asynccontextmanager
async def _iter(
    original: Any,
    agent: Agent[Any, Any],
    user_prompt: Any = None,
    *,
    capabilities: Iterable[Any] | None = None,
    **options: Any,
) -> AsyncIterator[Any]:
    added = [*(capabilities or ())]
    if not any(map(_asks, (agent.root_capability, *added))):
        added += _gate_here(agent, user_prompt)
    async with original(agent, user_prompt, capabilities=added or None, **options) as run:
        yield run


async def _call_tool(
    original: Any,
    toolset: FunctionToolset[Any],
    name: str,
    tool_args: dict[str, Any],
    ctx: RunContext[Any],
    tool: ToolsetTool[Any],
) -> Any:
    with tool_call(name_of(ctx, tool)) as place:
        if place is None:
            return await original(toolset, name, tool_args, ctx, tool)
    key = place_of_unguarded(place, to_json([name, tool_args], fallback=_type_name)).key
    gated = GatedToolset(
        toolset, place.gate, place.policy, lambda _: (place.thread, key), found=place
    )
    gated.kinds[name] = tool.tool_def.kind
    try:
        return await gated.result(name, tool_args, ctx, tool)
    except TimedOut as error:
        raise ToolFailed(str(error)) from None


def _prepare_request(
    original: Any, model: Model, model_settings: Any, model_request_parameters: Any
) -> Any:
    prepared = original(model, model_settings, model_request_parameters)
    check_unlisted(
        [
            *native_tools(prepared[1].native_tools),
            *unlisted_settings(model.settings),
            *unlisted_settings(model_settings),
        ]
    )
    return prepared


# -- agents


def _asks(capability: Any) -> bool:
    """Return whether a capability, or one inside it, is a gate of ours."""
    leaves: list[Any] = []
    if isinstance(capability, AbstractCapability):
        capability.apply(leaves.append)
    return any(isinstance(leaf, Gated | SubAgentGated) for leaf in leaves)


def _gate_here(agent: Agent[Any, Any], prompt: Any) -> list[AbstractCapability[Any]]:
    """Return the gate for an agent without one: that of the guarded run around it, if any."""
    try:
        place = current_place()
    except InvalidCall:
        return [_UnknownPlace()]
    if place is None:
        return []
    input = to_json([agent.name, prompt], fallback=_type_name)
    inside = place_of_unguarded(place, input)
    return [SubAgentGated(place.gate, place.policy, inside, found=place)]


def _type_name(value: Any) -> str:
    return type(value).__name__


@dataclass
class _UnknownPlace(FixedCapability[D], Generic[D]):
    """Refuses the tools of an agent that may or may not run inside a guarded run."""

    def get_wrapper_toolset(self, toolset: AbstractToolset[D]) -> AbstractToolset[D]:
        return _RefusingToolset(toolset)


class _RefusingToolset(WrapperToolset[D], Generic[D]):
    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[D], tool: ToolsetTool[D]
    ) -> Any:
        current_place()
        return await super().call_tool(name, tool_args, ctx, tool)


# -- what the model's provider would run

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


def native_tools(tools: Iterable[Any]) -> Iterator[Unlisted]:
    """Yield the tools that the provider runs."""
    for tool in tools:
        if isinstance(tool, AbstractNativeTool) and tool.kind not in _HARMLESS:
            name = str(getattr(tool, "id", None) or tool.kind)
            yield "native tool", name, "the provider runs it without asking first"


def unlisted_settings(settings: Any) -> Iterator[Unlisted]:
    """Yield the settings that may bring tools of the provider.

    Settings that a function returns are checked in the request.
    """
    for name, value in settings.items() if isinstance(settings, Mapping) else ():
        if name not in _PLAIN and value:
            yield "model setting", name, "the provider may run tools that it brings"


def settings_of(model: Any) -> Iterator[Any]:
    """Yield the settings of a model and of the models that it wraps."""
    yield getattr(model, "settings", None)
    wrapped = getattr(model, "wrapped", None)
    for inner in (*([] if wrapped is None else [wrapped]), *(getattr(model, "models", None) or ())):
        yield from settings_of(inner)
