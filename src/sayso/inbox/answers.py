"""Whether an answer fits what was asked, said in front of the person who gives it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sayso import codec
from sayso.errors import Conflict, InvalidCall, InvalidDecision
from sayso.hiding import stand_in
from sayso.rows import Call, CallStatus, Tool
from sayso.types import Decision, Edit, Json, Question, Request
from sayso.views import question_from

MAX_MESSAGE = 20_000

_UNDECIDED = (CallStatus.CANCELLED, CallStatus.SUPERSEDED, CallStatus.EXPIRED)


def checked_text(text: object, name: str) -> str:
    """A person's words, as long as they can be stored."""
    if not isinstance(text, str):
        raise InvalidDecision(f"{name} is text", name)
    if len(text) > MAX_MESSAGE:
        raise InvalidDecision(
            f"{name} has {len(text):,} characters, the limit is {MAX_MESSAGE:,}", name
        )
    try:
        codec.canonical(text)
    except InvalidCall as error:
        raise InvalidDecision(f"{name}: {error}", name) from None
    return text


def checked_edit(call: Call, tool: Tool | None, args: object) -> str:
    """An edit's whole arguments as canonical JSON text, valid under the tool's schema."""
    if tool is None:
        raise InvalidDecision("only a tool call can be edited: reject it and say why", "type")
    if not isinstance(args, Mapping):
        raise InvalidDecision("an edit gives the new arguments as an object", "args")
    from sayso.schema import completed

    rules = codec.loads(tool.schema)["parameters"]
    text = _checked(rules, dict(args), "args")
    kept = stand_in(codec.loads(text), "args")
    if kept is not None and stand_in(codec.loads(call.args), "args") is None:
        raise InvalidDecision(
            f"{kept}: this is how a secret is shown, and not the secret: give its value", kept
        )
    # Valid as given; what was left out is shown and judged with its default, as it will run.
    return _checked(rules, completed(rules, codec.loads(text)), "args")


def _checked(rules: Mapping[str, Any], value: Json, name: str) -> str:
    from sayso import schema  # brings pydantic, which reading the inbox does not need

    try:
        text = codec.canonical(value).decode()
        wrong = schema.errors(rules, codec.loads(text))
    except InvalidCall as error:
        raise InvalidDecision(f"{name}: {error}", _path(name, error.path)) from None
    if wrong:
        path, message = wrong[0]
        at = _path(name, path)
        raise InvalidDecision(f"{at}: {message}", at)
    return text


def _path(name: str, path: str) -> str:
    return f"{name}.{path}" if path and not path.startswith("[") else f"{name}{path}"


def checked_value(call: Call, tool: Tool | None, value: Json) -> str:
    """The answer to a question, or the result in place of a run, as canonical JSON text."""
    if call.kind == "question" and call.status is not CallStatus.IN_DOUBT:
        return _checked_answer(question_from(codec.loads(call.args)), value)
    returns = codec.loads(tool.schema).get("returns") if tool is not None else None
    return _checked(returns or {}, value, "value")


def _checked_answer(question: Question, value: Json) -> str:
    if question.schema is not None:
        return _checked(question.schema, value, "value")
    if question.multiple:
        if not isinstance(value, list):
            raise InvalidDecision("this question takes a list of answers", "value")
        for index, item in enumerate(value):
            _check_choice(question, item, f"value[{index}]")
            if item in value[:index]:
                raise InvalidDecision("the same answer twice", f"value[{index}]")
        if not value:
            raise InvalidDecision("pick at least one, or reject the question", "value")
    else:
        _check_choice(question, value, "value")
    return _checked({}, value, "value")


def _check_choice(question: Question, value: Json, path: str) -> None:
    answers = [option.answer for option in question.options]
    # 1 == True == 1.0 in Python, and none of them is the other here.
    if any(type(value) is type(answer) and value == answer for answer in answers):
        return
    if question.free_text and isinstance(value, str) and value.strip():
        return
    wanted = [repr(answer) for answer in answers] + (
        ["your own words"] if question.free_text else []
    )
    raise InvalidDecision(f"answer with {' or '.join(wanted)}", path)


def check_kind(decision: object) -> None:
    """Refuse what is no decision at all."""
    if not isinstance(decision, Decision) or type(decision) is Decision:
        raise InvalidDecision(
            "decide with Approve(), Edit(args), Reject(message) or Respond(value)"
        )


def check_alike(decisions: list[Decision], requests: list[Request]) -> None:
    """Many at once is for like things: one kind of answer, one tool, nothing of high risk."""
    if len({d.type for d in decisions}) > 1 or any(isinstance(d, Edit) for d in decisions):
        raise InvalidDecision("decide many with one kind of decision, and edit one by one", "type")
    if len({(r.agent, r.tool, r.kind) for r in requests}) > 1:
        raise InvalidDecision("decide many only where agent, tool and kind are the same", "tool")
    risky = [r.id for r in requests if r.risk.level in ("high", "critical")]
    if risky and decisions[0].type == "approve":
        raise InvalidDecision(
            f"{risky[0]} is of {requests[0].risk.level} risk: decide it alone", "risk"
        )


def check_called_off(call: Call) -> None:
    """Say why a request is not called off after all; to call it off twice is no mistake."""
    if call.status in _UNDECIDED:
        return
    if call.status is CallStatus.IN_DOUBT:
        raise Conflict(
            f"{call.id} has started, it is in doubt and cannot be called off: decide what became "
            "of it: it did run (respond with its result), run it again (approve), give up (reject)"
        )
    if call.status is CallStatus.RUNNING:
        raise Conflict(f"{call.id} is running: it finishes and is recorded, nothing calls it off")
    raise Conflict(f"{call.id} is {call.status}: there is nothing to call off")
