"""LangChain's tools and messages as the gate knows them, and back."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.errors import ParentCommand
from langgraph.types import Command
from pydantic import BaseModel, ValidationError

from sayso.errors import InvalidCall
from sayso.gate.foreign import ForeignTool, Outcome
from sayso.gate.options import MAX_WORDS
from sayso.policy import Predicate
from sayso.types import Json, Terms

#: What a tool may give: a message, or a command that carries one.
Result = ToolMessage | Command[Any]

_SUPERSEDED = "The user wrote something new instead of deciding, so it was not run."
_SERDE = JsonPlusSerializer(pickle_fallback=False)


def foreign_tool(
    tool: BaseTool, needs_approval: bool | Predicate = False, own: Terms | None = None
) -> ForeignTool:
    """A tool by what its model sees of it; injected arguments are nobody's business."""
    schema: Any = tool.tool_call_schema
    read = None
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        model = schema
        schema = model.model_json_schema()

        def read(args: dict[str, Json]) -> Mapping[str, Json]:
            return _validated(model, args)

    return ForeignTool(
        name=tool.name,
        description=tool.description,
        parameters=schema if isinstance(schema, dict) else {"type": "object"},
        version=str((tool.metadata or {}).get("version", "")),
        needs_approval=needs_approval,
        own=own or Terms(),
        read=read,
    )


def _validated(model: type[BaseModel], args: dict[str, Json]) -> Mapping[str, Json]:
    try:
        return model.model_validate(args).model_dump(mode="json", by_alias=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        path = ".".join(str(part) for part in first["loc"])
        raise InvalidCall(f"{path}: {first['msg']}", path) from None


def words_with(state: Any, call_id: str) -> str:
    """What the model said beside a call, for people to read with due doubt."""
    message = _reply_with(state, call_id)
    text = "" if message is None else message.text
    return text[:MAX_WORDS].encode(errors="replace").decode()


def turn_of(state: Any, call: Mapping[str, Any]) -> list[Any]:
    """All calls that the model made together with this one."""
    message = _reply_with(state, str(call["id"]))
    return [call] if message is None else list(message.tool_calls)


def named(state: Any, call: Mapping[str, Any]) -> str:
    """A call's id; if the model has given it before, with which time it is. Some providers count
    the calls of each reply anew."""
    messages = state.get("messages", ()) if isinstance(state, Mapping) else ()
    replies = [message.tool_calls for message in messages if isinstance(message, AIMessage)]
    made = [same for calls in replies if (same := [c for c in calls if c["id"] == call["id"]])]
    *before, last = made or [[]]
    what = call["name"], call["args"]
    place = next((n for n, one in enumerate(last) if (one["name"], one["args"]) == what), 0)
    time = sum(map(len, before)) + place + 1
    return f"{call['id']}" if time == 1 else f"{call['id']}#{time}"


def _reply_with(state: Any, call_id: str) -> AIMessage | None:
    messages = state.get("messages", ()) if isinstance(state, Mapping) else ()
    for message in reversed(messages):
        if isinstance(message, AIMessage) and any(c["id"] == call_id for c in message.tool_calls):
            return message
    return None


# -- results


class Handover(NamedTuple):
    """A tool that ended by sending the outer graph elsewhere; that is its result."""

    cause: ParentCommand


def dumped(result: Result | Handover) -> Json:
    """A result as it is stored: plain text stays plain text, for people read it too."""
    if isinstance(result, Handover):
        return "handed over to another agent"
    if isinstance(result, ToolMessage):
        plain = isinstance(result.content, str) and result.artifact is None
        if plain and result.status == "success" and not result.additional_kwargs:
            return result.content
    kind, data = _SERDE.dumps_typed(result)
    return {"langchain": kind, "data": base64.b64encode(data).decode(), "text": _text_of(result)}


def loaded(stored: Json, tool_call: Mapping[str, Any]) -> Result:
    """A stored result, for the same call."""
    if isinstance(stored, dict) and "langchain" in stored:
        data = base64.b64decode(stored["data"])
        result: Result = _SERDE.loads_typed((stored["langchain"], data))
        return result
    return message(str(stored), tool_call)


def message(text: str, tool_call: Mapping[str, Any], *, ok: bool = True) -> ToolMessage:
    """What the model is told of a call."""
    status: Any = "success" if ok else "error"
    name, id = tool_call["name"], tool_call["id"]
    return ToolMessage(content=text, name=name, tool_call_id=id, status=status)


def unanswered(reply: AIMessage, after: Sequence[BaseMessage]) -> list[ToolMessage]:
    """Answers to those calls of a reply that have none before the next one: a provider would refuse
    to go on."""
    until = takewhile(lambda said: not isinstance(said, AIMessage), after)
    answered = {said.tool_call_id for said in until if isinstance(said, ToolMessage)}
    return [message(_SUPERSEDED, c, ok=False) for c in reply.tool_calls if c["id"] not in answered]


def answer_to(outcome: Outcome, tool_call: Mapping[str, Any], notice: str | None) -> Result:
    """What the framework gets for a call that has ended. ``notice`` stands before what is said of
    other arguments; ``None`` leaves both out."""
    if not outcome.ok or outcome.by_person:
        return message(outcome.text, tool_call, ok=outcome.ok)
    result: Result = outcome.value
    if not outcome.notice or notice is None:
        return result
    return _noted(result, f"{notice} {outcome.notice}".strip(), tool_call["id"])


def _noted(result: Result, notice: str, id: str) -> Result:
    if isinstance(result, ToolMessage):
        return _message_noted(result, notice)
    update = result.update
    if not isinstance(update, dict) or not isinstance(update.get("messages"), list):
        return result
    said = [
        _message_noted(m, notice) if isinstance(m, ToolMessage) and m.tool_call_id == id else m
        for m in update["messages"]
    ]
    return replace(result, update={**update, "messages": said})


def _message_noted(message: ToolMessage, notice: str) -> ToolMessage:
    content = message.content
    if isinstance(content, str):
        text = f"{notice}\n\nTool response:\n{content}" if content else notice
        return message.model_copy(update={"content": text})
    block: Any = notice
    if not all(isinstance(part, str) for part in content):
        block = {"type": "text", "text": notice}
    return message.model_copy(update={"content": [block, *content]})


def _text_of(result: Result) -> str:
    if isinstance(result, ToolMessage):
        return result.text
    update = result.update if isinstance(result.update, dict) else {}
    said = update.get("messages") or []
    return "\n".join(m.text for m in said if isinstance(m, ToolMessage))
