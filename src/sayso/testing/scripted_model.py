"""A model that replies from a script, for tests and demos.

    model = ScriptedModel([call("send_email", {"to": "ana"}), say("Sent.")])
    agent = sayso.Agent("assistant", model=model, tools=[send_email])

A script is a list of steps, or a function from the messages so far to the next step. A step is
text, a reply made by ``say``, ``call`` or ``calls``, a ``sayso.ToolCall``, a list of calls, an
exception to raise, or a function as above.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from sayso import codec
from sayso.agent.models.base import (
    Finish,
    Message,
    ModelCall,
    ModelError,
    ModelReply,
    ModelRequest,
    TextDelta,
    known_call_ids,
)
from sayso.types import ToolCall

Answer: TypeAlias = ModelReply | str | ToolCall | Sequence[ModelReply | ToolCall]
Chooser: TypeAlias = Callable[[Sequence[Message]], Answer | Awaitable[Answer]]
Step: TypeAlias = Answer | BaseException | Chooser


def say(text: str, *, finish: Finish = "stop") -> ModelReply:
    """Return a text reply. With ``finish="length"`` it counts as truncated."""
    return ModelReply(text, finish=finish)


def refuse(text: str) -> ModelReply:
    """Return a reply in which the model refuses."""
    return ModelReply(refusal=text, finish="refusal")


def call(
    name: str,
    arguments: Mapping[str, Any] | str | None = None,
    *,
    id: str = "",
    text: str = "",
    finish: Finish = "calls",
) -> ModelReply:
    """Return a reply with one tool call.

    Arguments given as text are sent unchanged, even if they are not JSON. Without an ``id``, the
    call gets the next free one: ``call_1``, ``call_2`` and so on.
    """
    raw = arguments if isinstance(arguments, str) else codec.dumps(dict(arguments or {}))
    return ModelReply(text, calls=(ModelCall(id, name, raw),), finish=finish)


def calls(*replies: ModelReply) -> ModelReply:
    """Return a reply with several calls, in this order: ``calls(call("a"), call("b"))``."""
    return replace(
        replies[0],
        text="".join(reply.text for reply in replies),
        calls=tuple(model_call for reply in replies for model_call in reply.calls),
    )


def _as_reply(step: Any) -> ModelReply:
    if isinstance(step, ModelReply):
        return step
    if isinstance(step, str):
        return say(step)
    if isinstance(step, ToolCall):
        return call(step.name, step.args, id=step.id)
    if isinstance(step, list | tuple) and step:
        return calls(*map(_as_reply, step))
    raise TypeError(
        f"{step!r:.80} is not a step of a script: use text, say(...), call(...), or a list of calls"
    )


class ScriptedModel:
    """A ``Model`` that follows a script, and lists the requests it got in ``requests``.

    Each reply uses the next step. With ``by_turn=True``, the number of replies in the conversation
    chooses the step, so that another process can continue the script.
    """

    def __init__(
        self,
        steps: Iterable[Step] | Chooser,
        *,
        name: str = "scripted",
        delay: float = 0.0,
        by_turn: bool = False,
    ) -> None:
        self.name = name
        self.requests: list[ModelRequest] = []
        self._choose = steps if callable(steps) else None
        self._steps = () if callable(steps) else tuple(steps)
        self._delay = delay
        self._by_turn = by_turn
        self._used = 0

    @property
    def left(self) -> int:
        """Return how many steps have not been used."""
        return len(self._steps) - self._used

    async def reply(self, request: ModelRequest) -> ModelReply:
        """Reply with the next step. Raises ``ModelError`` if there are none left."""
        self.requests.append(replace(request, messages=tuple(request.messages)))
        answer = _as_reply(await _resolve(self._next(request.messages), request.messages))
        model_calls = answer.calls if answer.finish == "calls" else ()  # as every model has to
        return replace(answer, calls=_with_ids(model_calls, request.messages))

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        """Reply with the next step, and stream its text word by word."""
        answer = await self.reply(request)
        for word in re.findall(r"\s*\S+\s*$|\s*\S+|\s+$", answer.text):
            await asyncio.sleep(self._delay)
            yield TextDelta(word)
        yield answer

    def _next(self, messages: Sequence[Message]) -> Step:
        if self._choose is not None:
            return self._choose
        turn = sum(message["role"] == "assistant" for message in messages)
        position = turn if self._by_turn else self._used
        if position >= len(self._steps):
            raise ModelError(
                f"the script of {self.name!r} has {len(self._steps)} steps, and the model was "
                f"asked for step {position + 1}: add one, or find out why it was asked again"
            )
        self._used = max(self._used, position + 1)
        return self._steps[position]


async def _resolve(step: Step, messages: Sequence[Message]) -> Answer:
    if isinstance(step, BaseException):
        raise step
    if not callable(step):
        return step
    answer = step(messages)
    return await answer if inspect.isawaitable(answer) else answer


def _with_ids(
    model_calls: Iterable[ModelCall], messages: Sequence[Message]
) -> tuple[ModelCall, ...]:
    used = known_call_ids(messages)
    numbered = []
    for model_call in model_calls:
        number = len(used) + 1
        while f"call_{number}" in used:
            number += 1
        numbered.append(model_call if model_call.id else replace(model_call, id=f"call_{number}"))
        used.add(numbered[-1].id)
    return tuple(numbered)
