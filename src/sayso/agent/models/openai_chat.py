"""Chat Completions over the official client: OpenAI and compatible servers.

Requests follow OpenAI's documentation. Replies are read defensively, because many servers imitate
this API (``POST /chat/completions``) imperfectly: ``tool_calls`` may be null or absent, a forced
call may finish with "stop", ids may be missing or repeated, arguments may be empty or not a string,
and stream chunks may lack their index.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sayso.agent.models.base import (
    Finish,
    Message,
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
    content_text,
    output_format,
    token_counts,
    tool_options,
)

_PLAIN = {"id", "type", "function", "index"}
_EXTRA = "chat.call"
_CUT: dict[str, Finish] = {
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "filter",
}


class OpenAIChat(OpenAIModel):
    """A model behind Chat Completions."""

    provider, path = "openai", "chat.completions"

    async def reply(self, request: ModelRequest) -> ModelReply:
        """Return the whole reply. Raises ``ModelError``."""
        body = self._body(request)
        body.pop("stream_options", None)  # only valid with stream=True
        return self._read(await self._create(body), request)

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        """Yield text as it arrives, then the whole ``ModelReply``."""
        body = {"stream_options": {"include_usage": True}, **self._body(request)}
        if body["stream_options"] is None:  # set to None for servers that reject it
            del body["stream_options"]
        completed = ChatStream()
        async with self._events(body) as chunks:
            async for chunk in chunks:
                if text := completed.add(chunk):
                    yield TextDelta(text)
        if not completed.finished:
            raise ModelError(f"{self.name} stopped in the middle of its answer; run it again")
        yield self._read(completed.completion(), request)

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        settings = {**self._settings, **request.settings}
        options = tool_options(request, settings, _FORMAT)
        messages = list(_messages(request))
        body = {"model": self._model, **settings, **options, "messages": messages}
        if request.output_schema is not None:
            form = output_format(request.output_schema)
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        return body

    def _read(self, data: Mapping[str, Any], request: ModelRequest) -> ModelReply:
        choice = self._choice(data)
        message = choice.get("message") or {}
        refusal = message.get("refusal") or ""
        model_calls = list(_calls(message))
        cut = _CUT.get(choice.get("finish_reason") or "")
        finish: Finish = cut or ("refusal" if refusal else "calls" if model_calls else "stop")
        used = known_call_ids(request.messages)
        calls = with_ids((c[:3] for c in model_calls), used) if finish == "calls" else ()
        # Some servers expect extra fields back with their calls, such as signatures.
        extras = zip(calls, (extra for *_, extra in model_calls), strict=False)
        return ModelReply(
            text=content_text(message.get("content")),
            calls=calls,
            finish=finish,
            refusal=refusal,
            items=tuple({"type": _EXTRA, "id": c.id, "extra": more} for c, more in extras if more),
            usage=token_counts(data.get("usage")),
            response_id=data.get("id") or "",
        )

    def _choice(self, data: Mapping[str, Any]) -> dict[str, Any]:
        choices = data.get("choices") or [{}]
        error = data.get("error") or choices[0].get("error")
        if error:  # some servers send errors with status 200
            message = error.get("message") if isinstance(error, Mapping) else error
            raise ModelError(f"{self.name} failed: {message}")
        if not choices[0]:
            raise ModelError(f"{self.name} sent no answer; check base_url=")
        choice: dict[str, Any] = choices[0]
        return choice


# --- requests ---


def _messages(request: ModelRequest) -> Iterator[dict[str, Any]]:
    if request.instructions:
        yield {"role": "system", "content": request.instructions}
    for message in request.messages:
        match message["role"]:
            case "assistant":
                yield from _assistant(message)
            case "tool":
                content = message["content"]
                yield {"role": "tool", "tool_call_id": message["call_id"], "content": content}
            case "approval":
                pass  # for a tool hosted by another provider; this API has no equivalent
            case role:
                yield {"role": role, "content": message["content"]}


def _assistant(message: Message) -> Iterator[dict[str, Any]]:
    extras = {i["id"]: i["extra"] for i in message.get("items", ()) if i.get("type") == _EXTRA}
    calls = [
        {
            "id": call["id"],
            "type": "function",
            "function": {"name": call["name"], "arguments": call["arguments"]},
            **extras.get(call["id"], {}),
        }
        for call in message.get("calls") or ()
    ]
    content, refusal = message.get("content") or "", message.get("refusal") or ""
    if content or calls or refusal:
        sent: dict[str, Any] = {"role": "assistant", "content": content or None}
        if refusal:
            sent["refusal"] = refusal
        yield {**sent, "tool_calls": calls} if calls else sent


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
    }
    if tool.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


_FORMAT = ToolFormat(
    tool=_tool,
    named=lambda name: {"type": "function", "function": {"name": name}},
    allowed=lambda mode, tools: {
        "type": "allowed_tools",
        "allowed_tools": {"mode": mode, "tools": tools},
    },
)


# --- replies ---


def _calls(message: Mapping[str, Any]) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    for call in message.get("tool_calls") or ():
        function = call.get("function")
        if function is None:
            raise ModelError(
                f"the model made a call of type {call.get('type')!r}, which the agent cannot run; "
                "remove that tool from the settings"
            )
        extra = {key: value for key, value in call.items() if key not in _PLAIN}
        name, arguments = function.get("name") or "", arguments_text(function.get("arguments"))
        yield call.get("id") or "", name, arguments, extra
    if old := message.get("function_call"):
        yield "", old.get("name") or "", arguments_text(old.get("arguments")), {}


# --- streams ---
#
# A call arrives in chunks that carry its index; only the first has the id and the name. Imitating
# servers leave the index out, give all calls the same one, repeat the id or the name in every
# chunk, invent a new id for each chunk, or increase the index in the middle of a call. So a chunk
# with neither id nor name continues a call, and a chunk that names a function begins a new call if
# its index is new or belongs to another call.


@dataclass(slots=True)
class _PartialCall:
    index: int | None
    id: str = ""
    name: str = ""
    arguments: list[Any] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)

    def add(self, piece: Mapping[str, Any]) -> None:
        function = piece.get("function") or {}
        self.id = self.id or piece.get("id") or ""
        self.name = self.name or function.get("name") or ""
        if function.get("arguments"):
            self.arguments.append(function["arguments"])
        self.extra |= {key: value for key, value in piece.items() if key not in _PLAIN}

    def is_other_than(self, piece: Mapping[str, Any]) -> bool:
        """Return whether a chunk that names a function belongs to another call."""
        function, id = piece.get("function") or {}, piece.get("id")
        if not self.name or not function.get("name"):
            return False
        if function["name"] != self.name or (id and id != self.id):
            return True
        if id or not function.get("arguments"):
            return False
        try:
            json.loads(self.text())
        except ValueError:
            return False
        return True  # the arguments are complete, so these are another call's

    def text(self) -> str:
        return "".join(p if isinstance(p, str) else arguments_text(p) for p in self.arguments)

    def complete(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": self.text()}
        return {**self.extra, "id": self.id, "function": function}


class ChatStream:
    """Collects chunks into the ``completion`` that the server would have sent without streaming."""

    def __init__(self) -> None:
        self._head: dict[str, Any] = {}
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._calls: list[_PartialCall] = []
        self._old_call = _PartialCall(0)
        self._finish = ""

    @property
    def finished(self) -> bool:
        """Whether the server sent a finish reason. If not, the connection was cut."""
        return bool(self._finish)

    def add(self, chunk: Mapping[str, Any]) -> str:
        """Add a chunk and return its text."""
        for key in ("id", "usage", "error"):
            if chunk.get(key):
                self._head[key] = chunk[key]
        for choice in chunk.get("choices") or ():
            if not choice.get("index"):  # with n > 1, ignore the other choices
                return self._add_choice(choice)
        return ""

    def completion(self) -> dict[str, Any]:
        # The sort is stable: calls without an index keep their order of arrival.
        calls = sorted(self._calls, key=lambda call: call.index or 0)
        message: dict[str, Any] = {
            "content": "".join(self._text),
            "refusal": "".join(self._refusal),
            "tool_calls": [call.complete() for call in calls],
        }
        if self._old_call.name:
            message["function_call"] = self._old_call.complete()["function"]
        return {**self._head, "choices": [{"message": message, "finish_reason": self._finish}]}

    def _add_choice(self, choice: Mapping[str, Any]) -> str:
        if choice.get("error"):
            self._head["error"] = choice["error"]
        delta = choice.get("delta") or {}
        self._finish = choice.get("finish_reason") or self._finish
        self._refusal.append(delta.get("refusal") or "")
        for piece in delta.get("tool_calls") or ():
            self._call_of(piece).add(piece)
        if delta.get("function_call"):
            self._old_call.add({"function": delta["function_call"]})
        text = content_text(delta.get("content"))
        self._text.append(text)
        return text

    def _call_of(self, piece: Mapping[str, Any]) -> _PartialCall:
        index = piece.get("index")
        same = [call for call in self._calls if index is None or call.index == index]
        begins = piece.get("id") or (piece.get("function") or {}).get("name")
        if not same and not begins:
            same = self._calls
        if same and not same[-1].is_other_than(piece):
            return same[-1]
        self._calls.append(_PartialCall(index))
        return self._calls[-1]
