"""Chat Completions over the official client: OpenAI, and every server that speaks the same.

The API (``POST /chat/completions``) is old and much imitated, so what comes back is read with care:
``tool_calls`` may be null or absent, a forced call may finish with "stop", ids may be missing or
repeat, arguments may be empty or no string at all, and the pieces of a stream may lack their index.
What goes out is what OpenAI documents.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any

from sayso.agent.models.base import (
    Finish,
    Message,
    ModelCall,
    ModelError,
    ModelReply,
    ModelRequest,
    TextDelta,
    ToolFace,
)
from sayso.agent.models.chat_stream import ChatStream
from sayso.agent.models.client import Client
from sayso.agent.models.wire import (
    Shape,
    arguments_text,
    content_text,
    known_call_ids,
    output_format,
    token_counts,
    tool_options,
    with_ids,
)

_PATH = "chat.completions"
_PLAIN = {"id", "type", "function", "index"}
_EXTRA = "chat.call"
_CUT: dict[str, Finish] = {
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "filter",
}


class OpenAIChat:
    """A model behind Chat Completions; key and address come from the client's own environment."""

    def __init__(
        self,
        model: str,
        *,
        client: Any = None,
        base_url: str | None = None,
        api_key: str | None = None,
        **settings: Any,
    ) -> None:
        self.name = f"openai:{model}"
        self._model = model
        self._settings = settings
        self._client = Client(client, base_url, api_key)

    async def reply(self, request: ModelRequest) -> ModelReply:
        """Answer in one piece, or raise ModelError."""
        body = self._body(request)
        body.pop("stream_options", None)  # refused without a stream
        return self._read(await self._client.create(self.name, _PATH, body), request)

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        """Answer in pieces; the last one is the whole ModelReply."""
        body = {"stream_options": {"include_usage": True}, **self._body(request)}
        if body["stream_options"] is None:  # some servers do not know them
            del body["stream_options"]
        whole = ChatStream()
        async with self._client.stream(self.name, _PATH, body) as chunks:
            async for chunk in chunks:
                if text := whole.add(chunk):
                    yield TextDelta(text)
        if not whole.finished:
            raise ModelError(f"{self.name} stopped in the middle of its answer; ask again")
        yield self._read(whole.completion(), request)

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        settings = {**self._settings, **request.settings}
        options = tool_options(request, settings, _SHAPE)
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
        made = list(_calls(message))
        cut = _CUT.get(choice.get("finish_reason") or "")
        finish: Finish = cut or ("refusal" if refusal else "calls" if made else "stop")
        used = known_call_ids(request.messages)
        calls = with_ids((c[:3] for c in made), used) if finish == "calls" else ()
        return ModelReply(
            text=content_text(message.get("content")),
            calls=calls,
            finish=finish,
            refusal=refusal,
            items=tuple(_extras(calls, made)),
            usage=token_counts(data.get("usage")),
            response_id=data.get("id") or "",
        )

    def _choice(self, data: Mapping[str, Any]) -> dict[str, Any]:
        choices = data.get("choices") or [{}]
        error = data.get("error") or choices[0].get("error")  # in a body that says 200
        if error:
            said = error.get("message") if isinstance(error, Mapping) else error
            raise ModelError(f"{self.name} failed: {said}")
        if not choices[0]:
            raise ModelError(f"{self.name} gave no answer at all; check base_url=")
        choice: dict[str, Any] = choices[0]
        return choice


# --- what goes out ---


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
                pass  # of a tool that ran at another provider: nothing that this API knows
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


def _tool(tool: ToolFace) -> dict[str, Any]:
    function: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
    }
    if tool.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def _allowed(mode: str, tools: list[Any]) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


_SHAPE = Shape(_tool, _named, _allowed)


# --- what comes back ---


def _calls(message: Mapping[str, Any]) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    for call in message.get("tool_calls") or ():
        function = call.get("function")
        if function is None:
            raise ModelError(
                f"the model made a call of the type {call.get('type')!r}, which the agent cannot "
                "run; remove that tool from the settings"
            )
        extra = {key: value for key, value in call.items() if key not in _PLAIN}
        name, arguments = function.get("name") or "", arguments_text(function.get("arguments"))
        yield call.get("id") or "", name, arguments, extra
    if old := message.get("function_call"):
        yield "", old.get("name") or "", arguments_text(old.get("arguments")), {}


def _extras(
    calls: Iterable[ModelCall], made: Iterable[tuple[str, str, str, dict[str, Any]]]
) -> Iterator[dict[str, Any]]:
    """What a server added to its calls and wants to see again, such as a thought signature."""
    for call, (*_, extra) in zip(calls, made, strict=False):
        if extra:
            yield {"type": _EXTRA, "id": call.id, "extra": extra}
