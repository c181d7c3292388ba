"""Check a decision before it is written: text, edits, answers, batches, cancellations, grants.

Every function here raises ``InvalidDecision`` (or ``Conflict``) with a message for the reviewer and
the path of the field that is wrong.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from sayso import codec
from sayso.engine.grants import GIVEN_UNDER, facts_of
from sayso.errors import Conflict, InvalidCall, InvalidDecision
from sayso.redaction import find_placeholder, redact_declared
from sayso.rows import Call, CallStatus, Tool
from sayso.stores.base import Store
from sayso.types import (
    HIGH_RISKS,
    SECOND,
    Decision,
    Edit,
    Grant,
    Json,
    Micros,
    Question,
    Request,
    Reviewer,
    Terms,
)
from sayso.views import question_from

MAX_MESSAGE = 20_000

_DAY = 86_400.0
_CLOSED_UNDECIDED = (CallStatus.CANCELLED, CallStatus.SUPERSEDED, CallStatus.EXPIRED)


# -- decisions


def check_is_decision(decision: object) -> None:
    """Refuse anything that is not one of the four kinds of decision."""
    if not isinstance(decision, Decision) or type(decision) is Decision:
        raise InvalidDecision(
            "decide with Approve(), Edit(args), Reject(message) or Respond(value)"
        )


def check_alike(decisions: list[Decision], requests: list[Request]) -> None:
    """Allow a batch only for one kind of decision on one tool, and never to approve high risk."""
    if len({d.type for d in decisions}) > 1 or any(isinstance(d, Edit) for d in decisions):
        raise InvalidDecision(
            "a batch takes one kind of decision, and no edits: edit requests one by one", "type"
        )
    if len({(r.agent, r.tool, r.kind) for r in requests}) > 1:
        raise InvalidDecision("a batch takes requests of one agent, tool and kind", "tool")
    risky = [r for r in requests if r.risk.level in HIGH_RISKS]
    if risky and decisions[0].type == "approve":
        raise InvalidDecision(
            f"{risky[0].id} is {risky[0].risk.level} risk: decide it on its own", "risk"
        )


def checked_text(text: object, name: str) -> str:
    """Return a reviewer's text if it can be stored."""
    if not isinstance(text, str):
        raise InvalidDecision(f"{name} must be text", name)
    if len(text) > MAX_MESSAGE:
        raise InvalidDecision(
            f"{name} has {len(text):,} characters, the limit is {MAX_MESSAGE:,}", name
        )
    try:
        codec.canonical(text)
    except InvalidCall as error:
        raise InvalidDecision(f"{name}: {error}", name) from None
    return text


def checked_flag(value: object, name: str) -> bool:
    """Return a reviewer's yes or no."""
    if not isinstance(value, bool):
        raise InvalidDecision(f"{name} must be true or false", name)
    return value


def checked_edit(call: Call, tool: Tool | None, edit: Edit) -> str:
    """Return the complete edited arguments as canonical JSON, valid under the tool's schema."""
    if tool is None:
        raise InvalidDecision("only a tool call can be edited: reject it and say why", "type")
    from sayso.schema import closed, with_defaults

    shown = call.args
    if call.decision is not None and call.decision.type == "edit" and call.original is not None:
        shown = call.original  # the edit that made these arguments may be repeated
    rules = closed(codec.loads(tool.schema)["parameters"], codec.loads(call.args))
    text = _checked(rules, edit.applied_to(codec.loads(shown)), "args")
    masked = find_placeholder(codec.loads(text), "args")
    if masked is not None and find_placeholder(codec.loads(call.args), "args") is None:
        raise InvalidDecision(
            f"{masked}: this is the mask shown in place of a secret: give the secret's value",
            masked,
        )
    # Validated as given, then completed: reviewers and policy see defaults as they will run.
    return _checked(rules, with_defaults(rules, codec.loads(text)), "args")


def checked_value(call: Call, tool: Tool | None, value: Json) -> str:
    """Return an answer, or the result given in place of a run, as canonical JSON."""
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
                raise InvalidDecision("this answer is listed more than once", f"value[{index}]")
        if not value:
            raise InvalidDecision("pick at least one, or reject the question", "value")
    else:
        _check_choice(question, value, "value")
    return _checked({}, value, "value")


def _check_choice(question: Question, value: Json, path: str) -> None:
    answers = [option.answer for option in question.options]
    # 1 == True == 1.0 in Python, but they are three different answers.
    if any(type(value) is type(answer) and value == answer for answer in answers):
        return
    if question.free_text and isinstance(value, str) and value.strip():
        return
    wanted = [repr(answer) for answer in answers] + (
        ["your own words"] if question.free_text else []
    )
    raise InvalidDecision(f"answer with {' or '.join(wanted)}", path)


def _checked(rules: Mapping[str, Any], value: Json, name: str) -> str:
    """Return ``value`` as canonical JSON if it is valid under the schema ``rules``."""
    from sayso import schema  # imports pydantic, which reading the inbox does not need

    def at(path: str) -> str:
        return f"{name}.{path}" if path and not path.startswith("[") else f"{name}{path}"

    try:
        text = codec.canonical(value).decode()
        wrong = schema.errors(rules, codec.loads(text))
    except InvalidCall as error:
        raise InvalidDecision(f"{name}: {error}", at(error.path)) from None
    if wrong:
        path, message = wrong[0]
        raise InvalidDecision(f"{at(path)}: {message}", at(path))
    return text


def check_cancelled(call: Call) -> None:
    """Raise ``Conflict`` if a call is not cancelled after all; cancelling twice is fine."""
    if call.status in _CLOSED_UNDECIDED:
        return
    if call.status is CallStatus.IN_DOUBT:
        raise Conflict(
            f"{call.id} has started and is in doubt, so it cannot be cancelled: respond with its "
            "result if it ran, approve to run it again, or reject to give up"
        )
    if call.status is CallStatus.RUNNING:
        raise Conflict(f"{call.id} is running: it finishes and its result is recorded")
    raise Conflict(f"{call.id} is {call.status}: there is nothing to cancel")


# -- grants


def new_grant(call: Call, wanted: Mapping[str, Any], by: Reviewer, now: Micros) -> Grant:
    """Build the grant that comes with an approval. It lasts a day by default."""
    if not isinstance(wanted, Mapping):
        raise InvalidDecision("grant: give an object with scope, uses or ends_in", "grant")
    unknown = set(wanted) - {"scope", "uses", "ends_in", "within"}
    if unknown:
        raise InvalidDecision(
            f"grant: unknown field {', '.join(sorted(unknown))}; use scope, uses, ends_in, within",
            "grant",
        )
    if wanted.get("within", "agent") not in ("agent", "run"):
        raise InvalidDecision("grant: within must be 'agent' or 'run'", "grant.within")
    uses, ends_in = wanted.get("uses"), wanted.get("ends_in", _DAY)
    if uses is not None and (type(uses) is not int or not 1 <= uses <= 1_000_000):
        raise InvalidDecision("grant: uses must be a whole number from 1", "grant.uses")
    if type(ends_in) not in (int, float) or not 0 < ends_in <= 366 * _DAY:
        raise InvalidDecision(
            "grant: ends_in must be a number of seconds, at most a year", "grant.ends_in"
        )
    scope = dict(_scope(call, wanted.get("scope", "exact")))
    scope.pop(GIVEN_UNDER, None)
    under: dict[str, Json] = {}
    # A grant covers no call that needs other reviewers, a higher assurance, or other binds than
    # those it was given under.
    if call.terms.reviewers or by.assurance != Terms().assurance:
        under |= {"reviewers": list(call.terms.reviewers), "assurance": by.assurance}
    if (facts := facts_of(call)) is not None:
        under["binds"] = facts
    if wanted.get("within") == "run":
        under["run"] = call.run
    return Grant(
        id="grt_" + secrets.token_hex(6),
        agent=call.agent,
        tool=call.tool,
        tool_digest=call.tool_digest,
        scope=codec.dumps({**scope, GIVEN_UNDER: under} if under else scope),
        by=by.name,
        created=now,
        uses_left=uses,
        ends=now + round(ends_in * SECOND),
    )


def _scope(call: Call, scope: Json) -> Mapping[str, Json]:
    if scope == "exact":
        return {"const": codec.loads(call.args)}
    if scope == "any":
        return {}
    from sayso import schema  # imports pydantic, which reading the inbox does not need

    try:
        schema.check_schema(scope)
    except InvalidCall as error:
        raise InvalidDecision(f"grant: the scope is not a schema: {error}", "grant.scope") from None
    if not schema.matches(scope, codec.loads(call.args)):
        raise InvalidDecision(
            "grant: the scope does not match the call that you are approving", "grant.scope"
        )
    checked: Mapping[str, Json] = scope
    return checked


def grant_scope(grant: Grant) -> dict[str, Json]:
    """Return the arguments that a grant covers, as a schema."""
    return {name: value for name, value in codec.loads(grant.scope).items() if name != GIVEN_UNDER}


def grant_run(grant: Grant) -> str:
    """Return the only run in which a grant is valid; "" if it is valid in all of the agent's."""
    return str(codec.loads(grant.scope).get(GIVEN_UNDER, {}).get("run", ""))


def displayed_scope(store: Store, grant: Grant) -> dict[str, Json]:
    """Return a grant's scope with the arguments that the tool declares secret masked."""
    scope, tool = grant_scope(grant), store.tool(grant.tool_digest)
    if set(scope) == {"const"} and tool is not None:
        scope["const"] = redact_declared(scope["const"], codec.loads(tool.schema)["parameters"])
    return scope
