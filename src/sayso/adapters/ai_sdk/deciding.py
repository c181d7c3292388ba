"""Answers in a post as decisions on what waits: each counts like one made anywhere else.

An answer that does not count is no error of the post. The request waits on, the card is painted
anew, and what was wrong with the answer stands beside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from sayso import codec
from sayso.adapters.ai_sdk.post import Answer, Post
from sayso.adapters.ai_sdk.recipe import APPROVAL
from sayso.adapters.ai_sdk.wire import approval_id
from sayso.engine.asking import doubt_envelope
from sayso.errors import Conflict, InvalidDecision, SaysoError, StoreError
from sayso.inbox import Inbox
from sayso.rows import Call, CallStatus
from sayso.types import Approve, Decision, Edit, Json, Reject, Respond, Reviewer

if TYPE_CHECKING:
    from sayso.agent import Agent

CHANNEL = "chat"

_CHANGED = "what was answered is not what is stored: look at it again"


async def decide(
    agent: Agent, waiting: Iterable[Call], post: Post, by: Reviewer, *, recipe: bool
) -> tuple[set[str], dict[str, str]]:
    """Write the decisions; gives what was decided, and what was wrong with what does not count."""
    open_calls = {call.id: call for call in waiting}
    inbox = Inbox(agent.store, judge=agent.judge)
    decided: set[str] = set()
    problems: dict[str, str] = {}
    for answer in post.answers:
        call = open_calls.get(answer.id)
        if call is None:
            continue
        try:
            decision = decision_on(call, answer, post, recipe=recipe)
            if decision is not None:
                await inbox.decide(call.id, decision, by=by, channel=CHANNEL)
                decided.add(call.id)
                problems.pop(call.id, None)
        except StoreError:
            raise
        except SaysoError as error:
            problems[call.id] = str(error)
    return decided, problems


def decision_on(call: Call, answer: Answer, post: Post, *, recipe: bool) -> Decision | None:
    """The decision that an answer means, bound to what was shown; nothing if it is none."""
    if answer.state == "approval-responded":
        decision = _confirmed(call, answer, post)
    elif call.status is CallStatus.IN_DOUBT:
        return None  # only a card says what is in doubt
    elif call.kind == "question" or "approve" not in call.terms.allowed:
        decision = _answered(call, answer)
    elif recipe and call.rev == 1 and answer.state == "output-available":
        decision = _said(call, answer)
    else:
        return None
    return None if decision is None else replace(decision, seen_digest=_digest(call))


def _digest(call: Call) -> str:
    in_doubt = call.status is CallStatus.IN_DOUBT
    return codec.digest(doubt_envelope(call)) if in_doubt else call.digest


def _confirmed(call: Call, answer: Answer, post: Post) -> Decision | None:
    """A card's yes or no. Its id names the request and the revision that it showed."""
    if type(answer.approved) is not bool:
        return None
    if answer.approval != approval_id(call):
        raise Conflict(_CHANGED)
    if not answer.approved:
        return Reject(answer.reason)
    _check_shown(call, answer)
    if answer.approval in post.results:
        return Respond(post.results[answer.approval])
    if answer.approval not in post.edits:
        return Approve()
    edits = post.edits[answer.approval]
    if not isinstance(edits, dict):
        raise InvalidDecision("an edit gives the new arguments as an object", "args")
    return Edit({**codec.loads(call.args), **edits})


def _said(call: Call, answer: Answer) -> Decision | None:
    """The recipe's Yes or No; any other output of a call that waits is ignored."""
    if answer.output == APPROVAL.NO:
        return Reject()
    if answer.output != APPROVAL.YES:
        return None
    _check_shown(call, answer)
    return Approve()


def _check_shown(call: Call, answer: Answer) -> None:
    """Who shows other arguments than ours has not asked for a yes to ours."""
    if answer.has_input and answer.input != codec.loads(call.args):
        raise Conflict(_CHANGED)


def _answered(call: Call, answer: Answer) -> Decision | None:
    """The answer to a question, or the result of a tool without a body."""
    if answer.state == "output-error":
        return Reject(answer.error)
    if answer.state != "output-available":
        return None
    return Respond(_unwrapped(call, answer.output) if call.kind == "question" else answer.output)


def _unwrapped(call: Call, output: Json) -> Json:
    """A bare answer, or one in the form in which models are told of it."""
    rules = codec.loads(call.args)["schema"] or {}
    wrapped = isinstance(output, dict) and set(output) == {"answer"}
    return output["answer"] if wrapped and "answer" not in rules.get("properties", {}) else output
