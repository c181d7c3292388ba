"""UI message stream v1: headers, the cookbook's recipe, tool parts and whole messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sayso.adapters.chat.response import EVENT_STREAM, Chunk
from sayso.adapters.chat.views import (
    CallSlot,
    Exchange,
    Guest,
    Outcome,
    Reply,
    ToolView,
    tool_views,
    words_of,
)

if TYPE_CHECKING:
    from sayso.agent import Agent


HEADERS: Mapping[str, str] = {**EVENT_STREAM, "x-vercel-ai-ui-message-stream": "v1"}
DONE = "data: [DONE]\n\n"
CARD_TYPE = "data-request"


# -- the recipe


class APPROVAL:
    """The two answers that page and server share."""

    YES = "Yes, confirmed."
    NO = "No, denied."


#: The output of a denied call, as the recipe's server sends it.
DENIED = "Error: User denied access to tool execution"


def tools_requiring_confirmation(agent: Agent) -> list[str]:
    """Return the names of the tools that may need approval, by the policy or by themselves."""
    policy = agent.gate.policy
    return [
        tool.name
        for tool in agent.tools.values()
        # Questions, and tools without a body, are answered instead of confirmed.
        if tool.function is not None
        and policy.how_often_asks(tool.name, agent=agent.name, needs_approval=tool.needs_approval)
        != "never"
    ]


def part_views(slot: CallSlot, *, recipe: bool, guest: Guest | None = None) -> list[ToolView]:
    """Return the views of a call and of what it asked, as cards or for the recipe."""
    views = tool_views(slot, guest)
    return [_for_recipe(view) for view in views] if recipe else views


def _for_recipe(view: ToolView) -> ToolView:
    """Return a view without a card. The recipe's Yes names no revision, so it only counts for the
    first; later ones, and calls in doubt, keep their cards.
    """
    if not view.approval.endswith(".r1"):
        return view
    end, card = view.end, dict(view.card)
    card.pop("approvalId", None)
    if end is not None and end.kind == "denied":
        rejected = card["status"] == "rejected"
        end = Outcome("output", DENIED) if rejected else Outcome("error", end.value)
    return replace(view, approval="", end=end, card=card)


def end_chunk(outcome: Outcome) -> Chunk:
    """Return the chunk with the outcome of a call, without the call's id."""
    if outcome.kind == "output":
        return {"type": "tool-output-available", "output": outcome.value}
    if outcome.kind == "error":
        return {"type": "tool-output-error", "errorText": outcome.value}
    return {"type": "tool-output-denied"}


# -- whole messages


def user_message(run: str, words: str, *, guest: Guest | None = None) -> dict[str, Any]:
    text = words if guest is None else guest.redact(words)
    return {"id": f"{run}.user", "role": "user", "parts": [{"type": "text", "text": text}]}


def assistant_message(
    exchange: Exchange, *, recipe: bool, guest: Guest | None = None
) -> dict[str, Any]:
    """Return the answer so far as a UIMessage, with the run's id, so a stream can continue it."""
    words = words_of(exchange.replies, guest)
    replies = zip(exchange.replies, words, strict=True)
    parts = [part for reply, text in replies for part in _parts(reply, text, recipe, guest)]
    return {"id": exchange.run, "role": "assistant", "parts": parts}


def _parts(reply: Reply, text: str, recipe: bool, guest: Guest | None) -> Iterator[dict[str, Any]]:
    yield {"type": "step-start"}
    if text:
        yield {"type": "text", "text": text, "state": "done"}
    for slot in reply.slots:
        for view in part_views(slot, recipe=recipe, guest=guest):
            if view.warning:
                yield {"type": "text", "text": view.warning, "state": "done"}
            yield _tool(view)
            if view.card is not None:
                yield {"type": CARD_TYPE, "id": view.id, "data": view.card}


def _tool(view: ToolView) -> dict[str, Any]:
    part: dict[str, Any] = {"type": f"tool-{view.name}", "toolCallId": view.id}
    part |= {"state": "input-available", "input": view.input}
    if view.end is not None:
        end = end_chunk(view.end)
        part["state"] = end.pop("type").removeprefix("tool-")
        part |= end
    if view.end is not None and view.end.kind == "denied":
        part["approval"] = {"id": view.approval, "approved": False, "reason": view.end.reason}
    elif view.approval and view.pending:
        part["state"] = "approval-requested"
        part["approval"] = {"id": view.approval}
    elif view.approval and view.end is not None:
        part["approval"] = {"id": view.approval, "approved": True}
    return part
