"""What a chat model's request may hold: everything that makes its provider run tools is refused.

A tool that the provider runs never comes back to the gate. Providers add ways to ask for one faster
than anyone could list them, so the fields of a request that are known to run nothing are listed
here, and any other field is refused unless the user names it in ``ungated``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel

from sayso.errors import InvalidCall
from sayso.gate.coverage import Coverage

#: The fields of a request, by the names that LangChain and the providers give them.
_REQUEST = frozenset(
    """
    model model_name model_id temperature top_p top_k n seed stop stop_sequences max_tokens
    max_tokens_to_sample max_completion_tokens max_output_tokens frequency_penalty
    presence_penalty repetition_penalty logit_bias logprobs top_logprobs tools tool_choice
    tool_config parallel_tool_calls strict response_format response_schema response_mime_type
    response_modalities response_json_schema structured_output_format
    ls_structured_output_format output_config output_format output_version stream streaming
    stream_usage stream_options stream_chunk_timeout reasoning reasoning_effort thinking
    thinking_budget thinking_level include_thoughts verbosity service_tier user metadata
    safety_settings cache_control prompt_cache_key truncation context_management inference_geo
    timeout request_timeout default_request_timeout
    """.split()  # noqa: SIM905
)
#: The fields of LangChain's models that say how to reach the provider, or that LangChain itself
#: uses.
_CLIENT = frozenset(
    """
    name cache verbose callbacks tags metadata run_name run_id config custom_get_token_ids
    rate_limiter disable_streaming profile max_retries client async_client root_client
    root_async_client http_client http_async_client http_socket_options base_url api_key
    default_headers default_query additional_headers tiktoken_model_name use_responses_api
    anthropic_api_url anthropic_api_key anthropic_proxy openai_api_key openai_api_base
    openai_organization openai_proxy openai_api_version openai_api_type azure_endpoint
    deployment_name azure_ad_token azure_ad_token_provider azure_ad_async_token_provider
    validate_base_url google_api_key credentials vertexai project location transport
    client_options client_args convert_system_message_to_human region_name
    credentials_profile_name aws_access_key_id aws_secret_access_key aws_session_token
    endpoint_url provider
    """.split()  # noqa: SIM905
)
#: The fields whose keys are fields of the request.
_CARRIERS = ("model_kwargs", "extra_body", "additional_model_request_fields")
_LISTED = _REQUEST | _CLIENT
_HOSTED = "hosted tool"
_FIELD = "request field"
_WHY = {
    _HOSTED: "the provider runs it without asking first",
    _FIELD: "the provider may run tools because of it, without asking first",
}


def check_request(model: BaseChatModel, options: Mapping[str, Any], ungated: Iterable[str]) -> None:
    """Raise ``InvalidCall`` if the provider of a model might run tools for this request."""
    for kind, name in _unlisted(model, options):
        if name not in ungated:
            raise InvalidCall(
                f"the model was not called with the {kind} {name}: {_WHY[kind]}. Take it out of "
                f"the request, or allow it without approval: guard(..., ungated=[{name!r}])",
                "ungated",
            )


def list_unlisted(
    coverage: Coverage, where: str, model: BaseChatModel, options: Mapping[str, Any]
) -> None:
    """Add to a coverage what the provider of a model might run."""
    for kind, name in _unlisted(model, options):
        coverage.missed(where, kind, name, _WHY[kind])


def _unlisted(model: BaseChatModel, options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from _unlisted_in(options)
    names = _checked_fields(type(model))
    yield from _unlisted_in({name: getattr(model, name, None) for name in names})


@cache
def _checked_fields(kind: type[BaseChatModel]) -> tuple[str, ...]:
    """Return the names of a model's fields that may make its provider run tools.

    A field of the user's own class is not part of a request by itself."""
    owners = [k for k in kind.__mro__ if _is_integration(k.__module__.partition(".")[0])]
    fields = getattr(kind, "model_fields", {})  # what a node binds may be no model
    names = {name for owner in owners for name in owner.__annotations__} & {*fields}
    return tuple(sorted(names - _LISTED | names & {"tools"} | {*_CARRIERS}))


@cache
def _is_integration(package: str) -> bool:
    """Return whether a package is an installed one that connects LangChain to a provider."""
    file = str(getattr(sys.modules.get(package), "__file__", None) or "")
    installed = {"site-packages", "dist-packages"} & {*Path(file).parts}
    return bool(installed) and package not in ("langchain_core", "langchain")


def _unlisted_in(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in fields.items():
        if value is None or value is False or value in ({}, [], ()):
            continue
        if name in _CARRIERS and isinstance(value, Mapping):
            yield from _unlisted_in(value)
        elif name == "tools":
            for tool in _provider_tools(value):
                yield _HOSTED, tool
        elif name not in _LISTED:
            yield _FIELD, name


def _provider_tools(tools: Any) -> Iterator[str]:
    """Yield the names of the tools in a model's list that its provider runs itself."""
    for spec in tools if isinstance(tools, list | tuple) else [tools]:
        if hasattr(spec, "model_dump") and not hasattr(spec, "invoke"):
            spec = spec.model_dump(exclude_none=True)
        if not isinstance(spec, Mapping):
            continue  # a function, a class or a tool of LangChain
        spec = {n: value for n, value in spec.items() if value is not None}
        kind = spec.get("type")
        if kind in (None, "function", "custom") and ("function" in spec or "name" in spec):
            continue
        name = spec.get("server_label") or spec.get("name") or kind
        yield from [str(name)] if name else spec.keys() - _GOOGLE_FUNCTIONS


#: Google's list of tools has one entry for all functions, and one for each of its own tools.
_GOOGLE_FUNCTIONS = {"function_declarations", "functionDeclarations"}
