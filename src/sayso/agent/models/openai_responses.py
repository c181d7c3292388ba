"""The Responses API over the official client, stateless: the whole conversation goes each time.

Nothing is stored at the provider unless the settings say so. What a reasoning model thought, and
what a hosted tool did, comes back as items that must be sent again in their order; so a reply keeps
them in ``items``. Text and calls are in the message itself, and the items only mark their places.

A reply that was cut short loses its calls and its requests for approval, and with them the
reasoning that led there: the provider refuses reasoning without what followed it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any

from sayso.agent.models.base import (
    Finish,
    HostedApproval,
    Message,
    ModelError,
    ModelReply,
    ModelRequest,
    TextDelta,
    ToolFace,
)
from sayso.agent.models.client import Client
from sayso.agent.models.items import filled, kept, output_text
from sayso.agent.models.wire import (
    Shape,
    arguments_text,
    known_call_ids,
    output_format,
    token_counts,
    tool_options,
    with_ids,
)

_PATH = "responses"
_ENCRYPTED = "reasoning.encrypted_content"
# These do not reason, and refuse to be asked for their reasoning.
_PLAIN_MODELS = re.compile(r"(ft:)?(gpt-3\.5|gpt-4|chatgpt-4)")
# Calls that somebody has to run on this side, and that are no functions.
_FOREIGN = {"apply_patch_call", "computer_call", "custom_tool_call", "local_shell_call"}
_ENDS = ("response.completed", "response.incomplete", "response.failed")


class OpenAIResponses:
    """A model behind the Responses API; key and address come from the client's own environment."""

    def __init__(
        self,
        model: str,
        *,
        client: Any = None,
        base_url: str | None = None,
        api_key: str | None = None,
        **settings: Any,
    ) -> None:
        self.name = f"openai-responses:{model}"
        self._model = model
        self._settings = settings
        self._client = Client(client, base_url, api_key)

    async def reply(self, request: ModelRequest) -> ModelReply:
        """Answer in one piece, or raise ModelError."""
        data = await self._client.create(self.name, _PATH, self._body(request))
        return self._read(data, request)

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        """Answer in pieces; the last one is the whole ModelReply."""
        done: dict[int, dict[str, Any]] = {}
        end: dict[str, Any] | None = None
        async with self._client.stream(self.name, _PATH, self._body(request)) as events:
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
            raise ModelError(f"{self.name} stopped in the middle of its answer; ask again")
        # Some servers leave the output out of the last event.
        output = end.get("output") or [done[index] for index in sorted(done)]
        yield self._read({**end, "output": output}, request)

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        settings = {"store": False, **self._settings, **request.settings}
        if "include" not in settings and not _PLAIN_MODELS.match(self._model):
            settings["include"] = [_ENCRYPTED]
        options = tool_options(request, settings, _SHAPE)
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
        _refuse_foreign(output)
        text, refusal = output_text(output)
        made = [_call(item) for item in output if item.get("type") == "function_call"]
        asked = [_approval(i) for i in output if i.get("type") == "mcp_approval_request"]
        waits = bool(made or asked)
        finish: Finish = cut or ("refusal" if refusal else "calls" if waits else "stop")
        used = known_call_ids(request.messages)
        calls = with_ids(made, used) if finish == "calls" else ()
        return ModelReply(
            text=text,
            calls=calls,
            finish=finish,
            refusal=refusal,
            approvals=tuple(asked) if finish == "calls" else (),
            items=tuple(kept(output, calls, text, whole=finish in ("stop", "calls"))),
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
        said = error.get("message") or f"the response is {status}, and there is no answer in it"
        raise ModelError(f"{self.name} failed: {said}", code=error.get("code") or "")


# --- what goes out ---


def _input(messages: Iterable[Message]) -> Iterator[dict[str, Any]]:
    for message in messages:
        match message["role"]:
            case "assistant":
                yield from filled(message)
            case "tool":
                yield {
                    "type": "function_call_output",
                    "call_id": message["call_id"],
                    "output": message["content"],
                }
            case "approval":
                yield _approval_response(message)
            case role:
                yield {"role": role, "content": message["content"]}


def _approval_response(message: Message) -> dict[str, Any]:
    answer = {
        "type": "mcp_approval_response",
        "approval_request_id": message["request_id"],
        "approve": message["approve"],
    }
    return {**answer, "reason": message["reason"]} if message.get("reason") else answer


def _tool(tool: ToolFace) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
        "strict": tool.strict,  # always said: this API takes true where nothing is
    }


def _named(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name}


def _allowed(mode: str, tools: list[Any]) -> dict[str, Any]:
    return {"type": "allowed_tools", "mode": mode, "tools": tools}


_SHAPE = Shape(_tool, _named, _allowed)


# --- what comes back ---


def _call(item: Mapping[str, Any]) -> tuple[str, str, str]:
    return item.get("call_id") or "", item.get("name") or "", arguments_text(item.get("arguments"))


def _approval(item: Mapping[str, Any]) -> HostedApproval:
    return HostedApproval(
        id=item["id"],
        server=item.get("server_label") or "",
        name=item.get("name") or "",
        arguments=arguments_text(item.get("arguments")),
    )


def _refuse_foreign(output: Iterable[Mapping[str, Any]]) -> None:
    for item in output:
        if item.get("type") in _FOREIGN:
            raise ModelError(
                f"the model made a {item['type']}, which the agent cannot run; remove that tool "
                "from the settings"
            )
