"""Asking the model: what it is given, and its reply put in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sayso.agent.conversation import Conversation
from sayso.agent.events import ModelAsked, ModelReplied, Text
from sayso.agent.job import Job
from sayso.agent.models.base import ModelError, ModelReply, ModelRequest, TextDelta
from sayso.agent.models.wire import with_ids


class Asking:
    """The model's side of the conversation."""

    def __init__(self, job: Job, talk: Conversation) -> None:
        self.job = job
        self.talk = talk

    async def reply(self) -> ModelReply:
        """The next reply; its calls have ids of their own, and are none at all if it was cut."""
        model, turn = self.job.agent.model.name, self.talk.turns + 1
        request = self._request()
        self.job.tell(ModelAsked(model, turn))
        reply = await self._streamed(request) if self.job.streams else await self._whole(request)
        self.job.tell(ModelReplied(model, turn, reply.finish, dict(reply.usage)))
        text, refusal = _clean(reply.text), _clean(reply.refusal)
        if reply.finish in ("length", "filter", "refusal"):
            return replace(reply, text=text, refusal=refusal, calls=(), approvals=())
        made = ((_clean(c.id), _clean(c.name), _escaped(c.arguments)) for c in reply.calls)
        calls = with_ids(made, self.talk.ids) if reply.calls else ()
        hosted = tuple(replace(a, arguments=_escaped(a.arguments)) for a in reply.approvals)
        return replace(reply, text=text, refusal=refusal, calls=calls, approvals=hosted)

    async def _whole(self, request: ModelRequest) -> ModelReply:
        reply = _checked(await self.job.agent.model.reply(request), self.job.agent.model.name)
        if reply.text:
            self.job.tell(Text(reply.text))
        return reply

    async def _streamed(self, request: ModelRequest) -> ModelReply:
        reply: ModelReply | None = None
        async for piece in self.job.agent.model.stream(request):
            if isinstance(piece, TextDelta):
                self.job.tell(Text(piece.text))
            else:
                reply = piece
        if reply is None:
            raise ModelError(f"{self.job.agent.model.name} ended its answer without a reply")
        return _checked(reply, self.job.agent.model.name)

    def _request(self) -> ModelRequest:
        agent = self.job.agent
        first = self.talk.turns == 0
        return ModelRequest(
            instructions=agent.instructions,
            messages=self.talk.shown(),
            tools=[tool.face for tool in agent.tools.values()],
            tool_choice=agent.tool_choice if first else unforced(agent.tool_choice),
            parallel_tool_calls=agent.parallel_tool_calls,
            output_schema=None if agent.output is None else agent.output.schema,
            settings=agent.settings,
        )


def _checked(reply: Any, model: str) -> ModelReply:
    """What a model gave, if it is a reply: models may be anybody's."""
    if isinstance(reply, ModelReply):
        return reply
    kind = type(reply).__name__
    raise ModelError(f"{model} gave a {kind}: a model answers with a ModelReply")


def _clean(text: str | None) -> str:
    """The text, if any, without half surrogate pairs and NUL, which not every store takes."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode() if text else ""


def _escaped(json: str) -> str:
    """JSON text with half surrogate pairs written out: it can be stored, and is refused by name."""
    return json.encode(errors="backslashreplace").decode()


def checked_choice(choice: str | Mapping[str, Any]) -> str | Mapping[str, Any]:
    """The choice, if it has a form that can be given to a model; that one knows the rest."""
    if isinstance(choice, str) and choice:
        return choice
    if isinstance(choice, Mapping) and isinstance(choice.get("type"), str):
        inner = choice.get("allowed_tools", choice)
        named = inner.get("tools") if isinstance(inner, Mapping) else None
        if choice["type"] != "allowed_tools" or isinstance(named, list | tuple):
            return choice
    raise ValueError(
        f"tool_choice={choice!r:.80}: use 'auto', 'none', 'required', a tool's name, or a mapping "
        "that says its type, as OpenAI does"
    )


def unforced(choice: str | Mapping[str, Any]) -> str | Mapping[str, Any]:
    """The choice after the first turn: who is always forced to call never comes to an answer."""
    if choice in ("auto", "none"):
        return choice
    if isinstance(choice, str) or choice.get("type") != "allowed_tools":
        return "auto"
    inner = choice.get("allowed_tools")
    if isinstance(inner, Mapping):
        return {**choice, "allowed_tools": {**inner, "mode": "auto"}}
    return {**choice, "mode": "auto"}
