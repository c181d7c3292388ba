"""What the fake OpenAI server sends: replies as bodies, and bodies as the events of a stream."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from sayso.agent.models.base import ModelReply

Body = dict[str, Any]

_FINISH = {"calls": "tool_calls", "length": "length", "filter": "content_filter"}
_INCOMPLETE = {"length": "max_output_tokens", "filter": "content_filter"}
_CREATED = 1_767_225_600
_PIECE = 7  # characters: small enough to cut words and numbers in two


class Ids:
    """Ids as the real server makes them, but countable: ``call_1``, ``fc_1``, ``call_2``."""

    def __init__(self) -> None:
        self._counters: defaultdict[str, itertools.count[int]] = defaultdict(
            lambda: itertools.count(1)
        )

    def new(self, prefix: str) -> str:
        return f"{prefix}_{next(self._counters[prefix])}"


def chat_body(reply: ModelReply, request: Body, ids: Ids) -> Body:
    """A reply as a chat completion."""
    message: Body = {
        "role": "assistant",
        "content": reply.text or None,
        "refusal": reply.refusal or None,
    }
    if reply.calls:
        message["tool_calls"] = [
            {
                "id": call.id or ids.new("call"),
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in reply.calls
        ]
    finish = _FINISH.get(reply.finish, "stop")
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    return {
        "id": ids.new("chatcmpl"),
        "object": "chat.completion",
        "created": _CREATED,
        "model": request["model"],
        "choices": [choice],
        "usage": _usage(reply, "prompt_tokens", "completion_tokens"),
    }


def chat_events(body: Body, *, usage: bool) -> Iterator[Any]:
    """A chat completion as the chunks of a stream."""
    head = {key: value for key, value in body.items() if key not in ("choices", "usage")}
    head["object"] = "chat.completion.chunk"
    choice = body["choices"][0]
    for delta in [*_deltas(choice["message"]), {}]:
        finish = None if delta else choice["finish_reason"]
        yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    if usage:
        yield {**head, "choices": [], "usage": body["usage"]}
    yield "[DONE]"


def response_body(reply: ModelReply, request: Body, ids: Ids) -> Body:
    """A reply as a response; its ``items`` come first in the output, as they are."""
    output = [_completed(dict(item), request, ids) for item in reply.items]
    if reply.text or reply.refusal:
        output.append(_message(reply, ids))
    output += [_approval(asked) for asked in reply.approvals]
    output += [
        {
            "type": "function_call",
            "id": ids.new("fc"),
            "call_id": call.id or ids.new("call"),
            "name": call.name,
            "arguments": call.arguments,
            "status": "completed",
        }
        for call in reply.calls
    ]
    reason = _INCOMPLETE.get(reply.finish)
    if reason and output and "status" in output[-1]:
        output[-1]["status"] = "incomplete"
    return response(output, request, ids) | {
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "usage": _usage(reply, "input_tokens", "output_tokens"),
    }


def response(output: list[Body], request: Body, ids: Ids) -> Body:
    """A completed response around these output items."""
    return {
        "id": ids.new("resp"),
        "object": "response",
        "created_at": _CREATED,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": request["model"],
        "output": output,
        "parallel_tool_calls": request.get("parallel_tool_calls", True),
        "tool_choice": request.get("tool_choice", "auto"),
        "tools": request.get("tools", []),
        "store": request.get("store", True),
        "usage": _usage(ModelReply(), "input_tokens", "output_tokens"),
    }


def response_events(body: Body) -> Iterator[Body]:
    """A response as the events of a stream, numbered."""
    for number, event in enumerate(_response_events(body)):
        yield {**event, "sequence_number": number}


def _response_events(body: Body) -> Iterator[Body]:
    begun = {**body, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(body.get("output", ())):
        place = {"item_id": item.get("id", ""), "output_index": index}
        empty = {"arguments": "", "content": [], "status": "in_progress"}
        added = {key: empty.get(key, value) for key, value in item.items()}
        yield {"type": "response.output_item.added", "output_index": index, "item": added}
        yield from _item_events(item, place)
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": f"response.{body['status']}", "response": body}


def _item_events(item: Body, place: Body) -> Iterator[Body]:
    if item["type"] == "function_call":
        kind = "response.function_call_arguments"
        for piece in _pieces(item["arguments"]):
            yield {"type": f"{kind}.delta", **place, "delta": piece}
        yield {"type": f"{kind}.done", **place, "arguments": item["arguments"]}
    if item["type"] == "message":
        for number, part in enumerate(item["content"]):
            yield from _part_events(part, {**place, "content_index": number})


def _part_events(part: Body, place: Body) -> Iterator[Body]:
    key = "text" if part["type"] == "output_text" else "refusal"
    kind = f"response.{part['type']}"
    more: Body = {"logprobs": []} if key == "text" else {}
    yield {"type": "response.content_part.added", **place, "part": {**part, key: ""}}
    for piece in _pieces(part[key]):
        yield {"type": f"{kind}.delta", **place, "delta": piece, **more}
    yield {"type": f"{kind}.done", **place, key: part[key], **more}
    yield {"type": "response.content_part.done", **place, "part": part}


def _deltas(message: Body) -> Iterator[Body]:
    role = {"role": "assistant", "content": None if message.get("tool_calls") else ""}
    yield role
    for key in ("content", "refusal"):
        for piece in _pieces(message.get(key) or ""):
            yield {key: piece}
    for index, call in enumerate(message.get("tool_calls") or ()):
        function = {**call["function"], "arguments": ""}
        yield {"tool_calls": [{**call, "index": index, "function": function}]}
        for piece in _pieces(call["function"]["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _completed(item: Body, request: Body, ids: Ids) -> Body:
    """Reasoning in a script may be as short as ``{"type": "reasoning"}``."""
    if item["type"] != "reasoning":
        return item
    item = {"id": ids.new("rs"), "summary": [], **item}
    if "reasoning.encrypted_content" in (request.get("include") or ()):
        item.setdefault("encrypted_content", f"gAAAA{item['id']}")
    return item


def _message(reply: ModelReply, ids: Ids) -> Body:
    parts: list[Body] = []
    if reply.text:
        parts.append({"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []})
    if reply.refusal:
        parts.append({"type": "refusal", "refusal": reply.refusal})
    message = {"type": "message", "id": ids.new("msg"), "role": "assistant"}
    return {**message, "status": "completed", "content": parts}


def _approval(asked: Any) -> Body:
    return {
        "type": "mcp_approval_request",
        "id": asked.id,
        "server_label": asked.server,
        "name": asked.name,
        "arguments": asked.arguments,
    }


def _usage(reply: ModelReply, taken: str, made: str) -> Mapping[str, int]:
    counts = {"input_tokens": 11, "output_tokens": 7, **reply.usage}
    total = counts["input_tokens"] + counts["output_tokens"]
    return {taken: counts["input_tokens"], made: counts["output_tokens"], "total_tokens": total}


def _pieces(text: str) -> Iterator[str]:
    return (text[at : at + _PIECE] for at in range(0, len(text), _PIECE))
