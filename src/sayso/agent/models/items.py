"""Output items of the Responses API: what is stored of them, and how they are sent again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sayso.agent.models.base import Message, ModelCall

Item = Mapping[str, Any]

_IN_MESSAGE = {"name", "arguments"}
_NEEDS_ANSWER = {"function_call", "mcp_approval_request"}
_FOREIGN = "chat."  # items of the other API have a type that begins so


def output_text(output: Iterable[Item]) -> tuple[str, str]:
    """The text and the refusal in an output."""
    parts = [part for item in output if _is_message(item) for part in item.get("content") or ()]
    text = "".join(part.get("text") or "" for part in parts if part.get("type") == "output_text")
    refusal = "".join(part.get("refusal") or "" for part in parts if part.get("type") == "refusal")
    return text, refusal


def kept(
    output: Sequence[Item], calls: Sequence[ModelCall], text: str, *, whole: bool
) -> Iterator[dict[str, Any]]:
    """Yield what a stored message must keep of an output beside its text and calls.

    That is nothing where text and calls say it all. Otherwise all items are kept in their order,
    and those whose content is in the message are only marks of their place.
    """
    if not whole:
        output = _without_open_ends(output)
    if _is_plain(output):
        return
    ids = iter(call.id for call in calls)
    one = sum(map(_is_message, output)) == 1
    for item in output:
        present = {key: value for key, value in item.items() if value is not None}
        if item.get("type") == "function_call":
            mark = {key: value for key, value in present.items() if key not in _IN_MESSAGE}
            yield mark | {"call_id": next(ids)}
        elif one and _is_message(item) and item.get("content") == _content(text, item):
            yield {key: value for key, value in present.items() if key != "content"}
        else:
            yield present


def filled(message: Message) -> Iterator[dict[str, Any]]:
    """Yield the input items of a stored assistant message."""
    items = [i for i in message.get("items", ()) if not i["type"].startswith(_FOREIGN)]
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
    """The content of a message that holds this text and nothing else."""
    first = (item.get("content") or [{}])[0]
    nothing = {key: value for key, value in first.items() if not value}
    return [{"type": "output_text", "text": text, **nothing}]


def _is_plain(output: Sequence[Item]) -> bool:
    """Whether there is at most one message, of text alone, and after it nothing but calls."""
    types = [item.get("type") for item in output]
    calls = types[1:] if types[:1] == ["message"] else types
    messages = [item for item in output if _is_message(item)]
    return set(calls) <= {"function_call"} and not any(
        item.get("phase") or item.get("content") != _content(output_text([item])[0], item)
        for item in messages
    )


def _without_open_ends(output: Sequence[Item]) -> list[Item]:
    """Drop what waits for an answer, and reasoning that is then left without what it led to."""
    rest: list[Item] = []
    stays = False
    for item in reversed(output):  # reasoning stays if what came after it does
        kind = item.get("type")
        stays = kind not in _NEEDS_ANSWER and (kind != "reasoning" or stays)
        if stays:
            rest.insert(0, item)
    return rest
