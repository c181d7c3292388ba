"""The Responses API over the official client, stateless: every request sends the conversation.

The provider stores nothing unless the settings say so. Reasoning and the work of hosted tools come
back as items that must be sent again in the same order, so a reply keeps them in ``items``. Text
and calls live in the message itself; their items only mark the position.

A reply that was cut short loses its calls and approval requests, and the reasoning that led to
them: the provider rejects reasoning without the item that followed it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sayso.agent.models.base import (
    Finish,
    HostedApproval,
    Message,
    ModelCall,
    ModelError,
    ModelReply,
    ModelRequest,
    TextDelta,
    ToolSpec,
    known_call_ids,
    with_ids,
)
from sayso.agent.models.openai_client import (
    OpenAIModel,
    ToolFormat,
    arguments_text,
    output_format,
    token_counts,
    tool_options,
)

_ENCRYPTED = "reasoning.encrypted_content"
# These models do not reason and reject requests for their reasoning.
_PLAIN_MODELS = re.compile(r"(ft:)?(gpt-3\.5|gpt-4|chatgpt-4)")
# Calls that the caller must run, but that are not function calls.
_UNSUPPORTED = {"apply_patch_call", "computer_call", "custom_tool_call", "local_shell_call"}
_ENDS = ("response.completed", "response.incomplete", "response.failed")


class OpenAIResponses(OpenAIModel):
    """A model behind the Responses API."""

    provider, path = "openai-responses", "responses"

    async def reply(self, request: ModelRequest) -> ModelReply:
        """Return the whole reply. Raises ``ModelError``."""
        return self._read(await self._create(self._body(request)), request)

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        """Yield text as it arrives, then the whole ``ModelReply``."""
        done: dict[int, dict[str, Any]] = {}
        end: dict[str, Any] | None = None
        async with self._events(self._body(request)) as events:
            async for event in events:
                kind = event.get("type")
                if kind == "response.output_text.delta":
                    yield TextDelta(event["delta"])
                elif kind == "response.output_item.done":
                    done[event["output_index"]] = event["item"]
                elif kind in _ENDS:
                    end = event["response"]
                elif kind == "error":
                    raise ModelError(f"{self.name} failed: {event.get('message')}")
        if end is None:
            raise ModelError(f"{self.name} stopped in the middle of its answer; run it again")
        # Some servers omit the output from the last event.
        output = end.get("output") or [done[index] for index in sorted(done)]
        yield self._read({**end, "output": output}, request)

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        settings = {"store": False, **self._settings, **request.settings}
        if "include" not in settings and not _PLAIN_MODELS.match(self._model):
            settings["include"] = [_ENCRYPTED]
        options = tool_options(request, settings, _FORMAT)
        items = list(_input(request.messages))
        body = {"model": self._model, **settings, **options, "input": items}
        if request.instructions:
            body["instructions"] = request.instructions
        if request.output_schema is not None:
            form = {"type": "json_schema", **output_format(request.output_schema)}
            body["text"] = {**(settings.get("text") or {}), "format": form}
        return body

    def _read(self, data: Mapping[str, Any], request: ModelRequest) -> ModelReply:
        cut = self._cut(data)
        output = [item for item in data.get("output") or () if isinstance(item, Mapping)]
        text, refusal = output_text(output)
        call_texts: list[tuple[str, str, str]] = []
        approvals: list[HostedApproval] = []
        for item in output:
            kind, name = item.get("type"), item.get("name") or ""
            arguments = arguments_text(item.get("arguments"))
            if kind in _UNSUPPORTED:
                raise ModelError(
                    f"the model made a {kind}, which the agent cannot run; remove that tool from "
                    "the settings"
                )
            if kind == "function_call":
                call_texts.append((item.get("call_id") or "", name, arguments))
            elif kind == "mcp_approval_request":
                server = item.get("server_label") or ""
                approvals.append(HostedApproval(item["id"], server, name, arguments))
        waits = bool(call_texts or approvals)
        finish: Finish = cut or ("refusal" if refusal else "calls" if waits else "stop")
        used = known_call_ids(request.messages)
        calls = with_ids(call_texts, used) if finish == "calls" else ()
        return ModelReply(
            text=text,
            calls=calls,
            finish=finish,
            refusal=refusal,
            approvals=tuple(approvals) if finish == "calls" else (),
            items=tuple(items_to_store(output, calls, text, complete=finish in ("stop", "calls"))),
            usage=token_counts(data.get("usage")),
            response_id=data.get("id") or "",
        )

    def _cut(self, data: Mapping[str, Any]) -> Finish | None:
        status = data.get("status") or "completed"
        if status == "completed":
            return None
        if status == "incomplete":
            reason = (data.get("incomplete_details") or {}).get("reason")
            return "filter" if reason == "content_filter" else "length"
        error = data.get("error") or {}
        message = error.get("message") or f"the response is {status} and has no answer"
        raise ModelError(f"{self.name} failed: {message}", code=error.get("code") or "")


# --- requests ---


def _input(messages: Iterable[Message]) -> Iterator[dict[str, Any]]:
    for message in messages:
        match message["role"]:
            case "assistant":
                yield from input_items(message)
            case "tool":
                yield {
                    "type": "function_call_output",
                    "call_id": message["call_id"],
                    "output": message["content"],
                }
            case "approval":
                why = {"reason": message["reason"]} if message.get("reason") else {}
                yield {
                    "type": "mcp_approval_response",
                    "approval_request_id": message["request_id"],
                    "approve": message["approve"],
                    **why,
                }
            case role:
                yield {"role": role, "content": message["content"]}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
        "strict": tool.strict,  # always explicit: this API defaults to true
    }


_FORMAT = ToolFormat(
    tool=_tool,
    named=lambda name: {"type": "function", "name": name},
    allowed=lambda mode, tools: {"type": "allowed_tools", "mode": mode, "tools": tools},
)


# --- output items: storing them, and sending them again ---

Item = Mapping[str, Any]

_IN_MESSAGE = {"name", "arguments"}
_NEEDS_ANSWER = {"function_call", "mcp_approval_request"}
_CHAT_ITEM = "chat."  # prefix of the item types of the other API


def output_text(output: Iterable[Item]) -> tuple[str, str]:
    """Return the text and the refusal of an output."""
    parts = [part for item in output if _is_message(item) for part in item.get("content") or ()]
    text = "".join(part.get("text") or "" for part in parts if part.get("type") == "output_text")
    refusal = "".join(part.get("refusal") or "" for part in parts if part.get("type") == "refusal")
    return text, refusal


def items_to_store(
    output: Sequence[Item], calls: Sequence[ModelCall], text: str, *, complete: bool
) -> Iterator[dict[str, Any]]:
    """Yield the items that a stored message must keep besides its text and calls.

    Yields nothing if text and calls cover the output. Otherwise yields all items in order; items
    whose content is in the message are reduced to position markers.
    """
    if not complete:
        output = _without_open_ends(output)
    if _is_plain(output):
        return
    ids = iter(call.id for call in calls)
    one_message = sum(map(_is_message, output)) == 1
    for item in output:
        present = {key: value for key, value in item.items() if value is not None}
        if item.get("type") == "function_call":
            mark = {key: value for key, value in present.items() if key not in _IN_MESSAGE}
            yield mark | {"call_id": next(ids)}
        elif one_message and _is_message(item) and item.get("content") == _content(text, item):
            yield {key: value for key, value in present.items() if key != "content"}
        else:
            yield present


def input_items(message: Message) -> Iterator[dict[str, Any]]:
    """Yield the input items for a stored assistant message."""
    items = [i for i in message.get("items", ()) if not i["type"].startswith(_CHAT_ITEM)]
    calls = {call["id"]: call for call in message.get("calls") or ()}
    if not items:
        text = message.get("content") or message.get("refusal")
        if text:
            yield {"role": "assistant", "content": text}
        items = [{"type": "function_call", "call_id": id} for id in calls]
    for item in items:
        call = calls.get(item.get("call_id", ""))
        if call is not None:
            yield {**item, "name": call["name"], "arguments": call["arguments"]}
        elif _is_message(item) and "content" not in item:
            part = {"type": "output_text", "text": message["content"], "annotations": []}
            yield {**item, "content": [part]}
        else:
            yield dict(item)


def _is_message(item: Item) -> bool:
    return item.get("type") == "message"


def _content(text: str, item: Item) -> list[dict[str, Any]]:
    """Return the content of a message item that holds only this text."""
    first = (item.get("content") or [{}])[0]
    nothing = {key: value for key, value in first.items() if not value}
    return [{"type": "output_text", "text": text, **nothing}]


def _is_plain(output: Sequence[Item]) -> bool:
    """Return whether the output is at most one text message followed only by calls."""
    types = [item.get("type") for item in output]
    calls = types[1:] if types[:1] == ["message"] else types
    messages = [item for item in output if _is_message(item)]
    return set(calls) <= {"function_call"} and not any(
        item.get("phase") or item.get("content") != _content(output_text([item])[0], item)
        for item in messages
    )


def _without_open_ends(output: Sequence[Item]) -> list[Item]:
    """Drop items that wait for an answer, and the reasoning that led to them."""
    rest: list[Item] = []
    stays = False
    for item in reversed(output):  # keep reasoning if the item after it is kept
        kind = item.get("type")
        stays = kind not in _NEEDS_ANSWER and (kind != "reasoning" or stays)
        if stays:
            rest.insert(0, item)
    return rest
