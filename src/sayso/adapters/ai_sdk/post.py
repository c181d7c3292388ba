"""What a browser posts, and the little of it that counts: new words, answers, and what it shows.

The history comes along with every post and is trusted by nobody. Of the messages before the last
one only answers are read; of the last one, the words. What the client holds of the message that it
goes on with says how to paint over it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sayso import codec
from sayso.errors import InvalidCall
from sayso.types import Json

#: The longest chat id: a thread takes no more.
_LONGEST_ID = 200
_TRIGGERS = ("submit-message", "regenerate-message")


@dataclass(frozen=True, slots=True)
class Answer:
    """A tool part that looks as if a person had answered it."""

    id: str
    state: str
    #: The approval, where the part has one.
    approval: str = ""
    approved: bool | None = None
    reason: str = ""
    output: Json = None
    error: str = ""
    #: What the person was shown, by the client's own word; missing where the client cut it.
    input: Json = None
    has_input: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """One post, read."""

    chat: str
    regenerates: bool
    #: The message that is gone on with, as the client names it.
    continues: str
    #: The last message, if the user wrote it: its id and its words.
    message: str = ""
    words: str | None = None
    answers: tuple[Answer, ...] = ()
    #: New arguments, or results in place of a run, by the id of the approval.
    edits: Mapping[str, Json] = field(default_factory=dict)
    results: Mapping[str, Json] = field(default_factory=dict)
    #: The client's copies of what the assistant said, by id.
    held: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def read_post(body: object) -> Post:
    """Read a post, or say in one sentence what is wrong with it."""
    data = codec.parse(body) if isinstance(body, bytes | str) else body
    if not isinstance(data, Mapping):
        raise InvalidCall("post a JSON object with id and messages")
    messages = _messages(data)
    trigger = data.get("trigger", "submit-message")
    if trigger not in _TRIGGERS:
        raise InvalidCall(f"trigger: use {' or '.join(_TRIGGERS)}", "trigger")
    last = messages[-1]
    common = {
        "chat": checked_id(data.get("id")),
        "regenerates": trigger == "regenerate-message",
        "continues": _text(data.get("messageId"), "messageId") or last["id"],
    }
    if last["role"] == "user":
        return Post(**common, message=last["id"], words=_words(last))
    spoken = [message for message in messages if message["role"] == "assistant"]
    return Post(
        **common,
        answers=tuple(answer for message in spoken for answer in _answers(message)),
        edits=_by_approval(data, "edits"),
        results=_by_approval(data, "answers"),
        held={message["id"]: message for message in spoken},
    )


def checked_id(chat: object) -> str:
    """A chat's id, which is the name of its thread."""
    if not isinstance(chat, str) or not chat.strip() or len(chat) > _LONGEST_ID:
        raise InvalidCall(f"id: a chat needs an id of 1 to {_LONGEST_ID} characters", "id")
    if "/" in chat or chat.startswith("@"):
        raise InvalidCall("id: a chat's id has no / in it and does not begin with @", "id")
    codec.canonical(chat)
    return chat


def _messages(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The messages with every field that is looked at in its right form."""
    given = data.get("messages", [data["message"]] if "message" in data else None)
    if not isinstance(given, list) or not given:
        raise InvalidCall("messages: post at least one message", "messages")
    return [_message(message, f"messages[{n}]") for n, message in enumerate(given)]


def _message(message: object, path: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise InvalidCall(f"{path}: a message is an object with role and parts", path)
    parts = message.get("parts", [])
    if not isinstance(parts, list) or not all(isinstance(part, Mapping) for part in parts):
        raise InvalidCall(f"{path}.parts: give a list of parts", f"{path}.parts")
    role = _text(message.get("role"), f"{path}.role")
    if role not in ("user", "assistant", "system"):
        raise InvalidCall(f"{path}.role: use user or assistant", f"{path}.role")
    read = [_part(part, f"{path}.parts[{n}]") for n, part in enumerate(parts)]
    return {"id": _text(message.get("id"), f"{path}.id"), "role": role, "parts": read}


def _part(part: Mapping[str, Any], path: str) -> dict[str, Any]:
    kind = _text(part.get("type"), f"{path}.type")
    if not kind.startswith("tool-") and kind != "dynamic-tool":
        return {"type": kind, "text": _text(part.get("text"), f"{path}.text")}
    approval = part.get("approval")
    if approval is not None and not isinstance(approval, Mapping):
        raise InvalidCall(f"{path}.approval: give an object", f"{path}.approval")
    return {
        **part,
        "type": kind,
        "toolCallId": _text(part.get("toolCallId"), f"{path}.toolCallId"),
        "state": _text(part.get("state"), f"{path}.state"),
        "approval": {} if approval is None else {**approval, "id": _text(approval.get("id"), path)},
    }


def _text(value: object, path: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidCall(f"{path}: give a text", path)
    return value


def _words(message: Mapping[str, Any]) -> str:
    if any(part["type"] == "file" for part in message["parts"]):
        raise InvalidCall("files cannot be read here: say it in words", "messages")
    words = "\n".join(p["text"] for p in message["parts"] if p["type"] == "text" and p["text"])
    if not words.strip():
        raise InvalidCall("say something: the message is empty", "messages")
    codec.canonical(words)
    return words


def _answers(message: Mapping[str, Any]) -> Iterator[Answer]:
    for part in message["parts"]:
        # We never send a part that runs at the provider, so nobody was shown one.
        if "toolCallId" not in part or part.get("providerExecuted"):
            continue
        approval = part["approval"]
        yield Answer(
            id=part["toolCallId"],
            state=part["state"],
            approval=approval.get("id", ""),
            approved=approval.get("approved"),
            reason=_text(approval.get("reason"), "approval.reason"),
            output=part.get("output"),
            error=_text(part.get("errorText"), "errorText"),
            input=part.get("input"),
            has_input="input" in part,
        )


def _by_approval(data: Mapping[str, Any], name: str) -> Mapping[str, Json]:
    given = data.get(name, {})
    if not isinstance(given, Mapping):
        raise InvalidCall(f"{name}: give an object, by approval id", name)
    return given
