"""The models of ADK: what they have said comes from the store, and what their providers would run
is refused.

``install`` changes every class of models and of code executors, and the flow's call of the model,
in this process. Agents outside of guarded runs notice nothing.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from typing import Any

from google.adk.code_executors.base_code_executor import BaseCodeExecutor
from google.adk.flows.llm_flows.base_llm_flow import BaseLlmFlow
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from pydantic_core import to_json

from sayso.adapters.calls import Unlisted, check_unlisted
from sayso.adapters.google_adk.tools import wrap_everywhere
from sayso.adapters.google_adk.turn import current_turn, dumped, name_calls, responses_of
from sayso.gate.coverage import Coverage
from sayso.gate.framework import FrameworkThread, kept, place_of_unguarded
from sayso.gate.guarded_runs import Place, known_place
from sayso.gate.os_threads import wrap_method

_WHY = "the provider may run tools that it brings, without asking first"
#: The fields of a request that cannot bring tools of the provider.
_CONFIG = """
    audio_timestamp audio_transcription_config candidate_count enable_enhanced_civic_answers
    frequency_penalty generation_output_config http_options image_config labels logprobs
    max_output_tokens media_resolution model_armor_config model_selection_config
    presence_penalty response_json_schema response_logprobs response_mime_type
    response_modalities response_schema routing_config safety_settings seed service_tier
    should_return_http_response speech_config stop_sequences store system_instruction
    temperature thinking_config tool_config tools top_k top_p
"""
_HTTP_OPTIONS = """
    aiohttp_client api_version async_client_args base_url base_url_resource_scope client_args
    headers httpx_async_client httpx_client retry_options timeout
"""
#: The fields of ADK's own classes of models that cannot bring tools.
_MODEL = """
    api_key api_version azure_endpoint base_url client client_kwargs include
    include_response_metadata llm_client max_tokens model models parallel_tool_calls reasoning
    retriable_status_codes retry_options service_tier speech_config store truncation
    use_interactions_api
"""
#: The arguments of LiteLLM that cannot.
_LITELLM = """
    api_base api_key api_version aws_access_key_id aws_profile_name aws_region_name
    aws_role_name aws_secret_access_key aws_session_name aws_session_token azure_ad_token
    base_url caching custom_llm_provider drop_params extra_headers fallbacks frequency_penalty
    headers logit_bias logprobs max_completion_tokens max_retries max_tokens metadata n
    num_retries organization parallel_tool_calls presence_penalty reasoning_effort
    request_timeout response_format seed service_tier stop store stream_options temperature
    thinking timeout tool_choice top_logprobs top_p user verbosity vertex_credentials
    vertex_location vertex_project
"""
_PLAIN_CONFIG = frozenset(_CONFIG.split())
_PLAIN_HTTP_OPTIONS = frozenset(_HTTP_OPTIONS.split())
_PLAIN_MODEL = frozenset(_MODEL.split())
_PLAIN_LITELLM = frozenset(_LITELLM.split())
#: The only fields of a tool in a request that are not the provider's own tools.
_OWN_TOOLS = ("function_declarations",)


def list_model(coverage: Coverage, where: str, model: Any, config: Any = None) -> None:
    """Add what the provider of a model would run to the table."""
    for kind, name, why in (*_unlisted_fields(model), *_unlisted_config(config)):
        coverage.missed(where, kind, name, why)


def _unlisted_config(config: types.GenerateContentConfig | None) -> Iterator[Unlisted]:
    if config is None:
        return
    for name, value in _set_fields(config):
        if name == "tools":
            for tool in value:
                yield from _hosted_tools(tool)
        elif name not in _PLAIN_CONFIG:
            yield "request field", name, _WHY
        elif name == "http_options":
            options = types.HttpOptions.model_validate(value)
            for option, _ in _set_fields(options):
                if option not in _PLAIN_HTTP_OPTIONS:
                    yield "request field", option, _WHY


def _hosted_tools(tool: Any) -> Iterator[Unlisted]:
    if not isinstance(tool, types.Tool):
        if not callable(tool):  # ADK declares functions itself
            yield "hosted tool", type(tool).__name__, _WHY
        return
    for name, _ in _set_fields(tool):
        if name not in _OWN_TOOLS:
            yield "hosted tool", name, _WHY


def _set_fields(model: Any) -> Iterator[tuple[str, Any]]:
    extra: Mapping[str, Any] = model.model_extra or {}
    for name in (*type(model).model_fields, *extra):
        value = getattr(model, name)
        if value is not None and value != {} and value != []:
            yield name, value


def _unlisted_fields(model: Any) -> Iterator[Unlisted]:
    if not isinstance(model, BaseLlm):
        return
    for name, value in (getattr(model, "_additional_args", None) or {}).items():
        if name not in _PLAIN_LITELLM and value:
            yield "model setting", name, _WHY
    if type(model).__module__.startswith("google.adk."):
        for name, _ in _set_fields(model):
            if name not in _PLAIN_MODEL:
                yield "model setting", name, _WHY


@functools.cache
def install() -> None:
    """Check models and code executors, and store replies, from now on in this process."""
    wrap_everywhere(BaseLlm, "generate_content_async", _generate)
    wrap_everywhere(BaseLlm, "connect", _connect)
    wrap_everywhere(BaseCodeExecutor, "execute_code", _execute)
    wrap_method(BaseLlmFlow, "_call_llm_async", _call_llm)


def _generate(
    kind: type, original: Any, model: Any, llm_request: LlmRequest, *args: Any, **options: Any
) -> Any:
    check_unlisted([*_unlisted_fields(model), *_unlisted_config(llm_request.config)])
    return original(model, llm_request, *args, **options)


def _connect(kind: type, original: Any, model: Any, *args: Any, **options: Any) -> Any:
    check_unlisted([("live model", model.model, "its replies are not stored: use run_async")])
    return original(model, *args, **options)


def _execute(kind: type, original: Any, executor: Any, *args: Any, **options: Any) -> Any:
    check_unlisted([unlisted_executor(executor)])
    return original(executor, *args, **options)


def unlisted_executor(executor: Any) -> Unlisted:
    why = "it runs code that the model writes, without asking first"
    return "code executor", type(executor).__name__, why


# -- replies


async def _call_llm(
    original: Any, flow: Any, invocation_context: Any, llm_request: LlmRequest, event: Any
) -> AsyncIterator[LlmResponse]:
    async with aclosing(original(flow, invocation_context, llm_request, event)) as live:
        turn = current_turn.get()
        place = known_place()
        replies: Any = live
        if place is not None and place.call is None and turn is not None:
            replies = turn.reply(invocation_context, llm_request.tools_dict, live)
        elif place is not None and place.may_pause:
            replies = _kept_replies(place, invocation_context, llm_request, live)
        async with aclosing(replies):
            async for response in replies:
                yield response


async def _kept_replies(
    place: Place, context: Any, request: LlmRequest, live: AsyncIterator[LlmResponse]
) -> AsyncIterator[LlmResponse]:
    """Yield the stored reply of an agent inside a call, whose code may start from the top again.

    Its request names it: the code may run several agents, side by side.
    """
    contents = [content.model_dump(mode="json", exclude_none=True) for content in request.contents]
    input = to_json([context.agent.name, contents])
    key = f"{place_of_unguarded(place, input).key}/reply"

    async def ask() -> Any:
        responses = [response async for response in live if not response.partial]
        name_calls(responses, key)
        return [dumped(response) for response in responses]

    calls = FrameworkThread(place.gate, place.thread, policy=place.policy)
    for response in responses_of(await kept(await calls.open(), key, ask)):
        yield response
