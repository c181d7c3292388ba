"""Check a decision before it is written: text, edits, answers, batches, cancellations, grants.

Every function here raises ``InvalidDecision`` (or ``Conflict``) with a message for the reviewer and
the path of the field that is wrong.
"""

from __future__ import annotations

import posixpath
import secrets
import shlex
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from sayso import codec
from sayso.engine.budgets import BudgetState, budget_state, grant_limits
from sayso.engine.grants import (
    GIVEN_UNDER,
    LONGEST_WINDOW,
    PLAN,
    RUN_TOOL,
    WINDOW,
    WINDOW_RISKS,
    Step,
    covers,
    facts_of,
    plan_scope,
    steps_of,
)
from sayso.errors import Conflict, InvalidCall, InvalidDecision, InvalidPolicy, NotAllowed
from sayso.inbox.people import token_hash
from sayso.passkeys import Assertion
from sayso.policy.limits import LIMIT_FORMS, Limit
from sayso.redaction import find_placeholder, redact, redact_declared, secrets_in
from sayso.rows import LIVE, PLAN_ID, Call, CallStatus, Confirmation, Tool
from sayso.stores.base import Query, Store, matches_scope
from sayso.types import (
    HIGH_RISKS,
    SECOND,
    Approve,
    Decision,
    Edit,
    Grant,
    Json,
    Micros,
    Question,
    Reject,
    Request,
    Respond,
    Reviewer,
    Risk,
    Terms,
    iso,
)
from sayso.views import question_from, question_json

MAX_MESSAGE = 20_000
#: For how many seconds a decision can be undone at most.
MAX_UNDO = 30
#: In seconds; a page may stay open for months.
_LONGEST_READING = 366 * 86_400

_DAY = 86_400.0
#: How many of the latest calls are compared with a grant before it is given.
_PREVIEWED = 100
_CLOSED_UNDECIDED = (CallStatus.CANCELLED, CallStatus.SUPERSEDED, CallStatus.EXPIRED)


# -- decisions


def check_is_decision(decision: object) -> None:
    """Refuse anything that is not one of the four kinds of decision."""
    if not isinstance(decision, Decision) or type(decision) is Decision:
        raise InvalidDecision(
            "decide with Approve(), Edit(args), Reject(message) or Respond(value)"
        )


def decision_words(decision: Decision) -> dict[str, Json]:
    """Return what a passkey signs of a decision; the arguments of an edit as a hash."""
    words: dict[str, Json] = {"type": decision.type}
    if decision.message or isinstance(decision, Reject):
        words["message"] = decision.message
    if isinstance(decision, Reject):
        words["stop"] = decision.stop
    elif isinstance(decision, Respond):
        words["value"] = decision.value
    elif isinstance(decision, Edit):
        changes = codec.canonical({"args": dict(decision.args), "unset": [*decision.unset]})
        words["args"] = codec.sha256(changes)
    return words


def check_confirmation(
    confirmation: Confirmation, request_id: str, seen: str | None, decision: Decision
) -> None:
    """Raise ``NotAllowed`` unless a passkey signed this decision on what was seen."""
    assertion = Assertion.from_json(confirmation.evidence)
    signed = assertion.check()
    expected = {"request": request_id, "digest": seen, "decision": decision_words(decision)}
    key = f"{assertion.algorithm}:{assertion.public_key}"
    same_key = confirmation.public_key == key and confirmation.hash == token_hash(assertion.passkey)
    if not same_key or any(signed.get(name) != value for name, value in expected.items()):
        raise NotAllowed("the passkey signed another decision: look again, and confirm this one")


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
    if not text.isascii():
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


def checked_claim(shown: Mapping[str, Any]) -> str:
    """Return what a page says of how a request was read, as JSON."""
    fits = isinstance(shown, Mapping) and shown.keys() == {"seconds", "complete"}
    seconds: Any = shown["seconds"] if fits else None
    is_time = type(seconds) in (int, float) and 0 <= seconds <= _LONGEST_READING
    if not is_time or not isinstance(shown["complete"], bool):
        raise InvalidDecision(
            'shown must be {"seconds": number, "complete": true or false}', "shown"
        )
    return codec.dumps({"seconds": round(seconds, 1), "complete": shown["complete"]})


def checked_undo(seconds: float) -> Micros:
    """Return for how long a decision can be undone."""
    if type(seconds) not in (int, float) or not 0 <= seconds <= MAX_UNDO:
        raise InvalidDecision(f"undo_seconds must be a number from 0 to {MAX_UNDO}", "undo_seconds")
    return round(seconds * SECOND)


#: Returns what a tool's validators make of edited arguments as canonical JSON, or None if they are
#: not known here. Raises ``InvalidCall``.
Validate = Callable[[Call, dict[str, Json]], str | None]


class EditedArguments(NamedTuple):
    """What an edit makes of the arguments, as canonical JSON."""

    args: str
    #: What the person wrote, if validators make ``args`` of it (``Call.written``).
    written: str | None = None


def checked_edit(
    call: Call, tool: Tool | None, edit: Edit, validate: Validate | None
) -> EditedArguments:
    """Return the complete edited arguments, valid under the tool's schema.

    ``validate`` is called if the tool's validators change what is written. If they are not known
    here, the agent validates the edit before the start, and asks again if that changes it.
    """
    if tool is None:
        raise InvalidDecision("only a tool call can be edited: reject it and say why", "type")
    from sayso.schema import edit_rules, with_defaults

    current_args = call.args_to_run
    if call.decision is not None and call.decision.type == "edit" and call.written is None:
        current_args = (
            call.original or current_args
        )  # the edit that made these arguments may be repeated
    args = codec.loads(call.args)
    written = None if call.written is None else codec.loads(call.written)
    rules = edit_rules(codec.loads(tool.schema)["parameters"], args, written)
    edited = edit.applied_to(codec.loads(current_args), args)
    has_secrets = call_has_secrets(call, tool)
    text = _checked(rules, edited, "args", quote=not has_secrets)
    if call.terms.plan:
        check_edited_plan(call.args if call.original is None else call.original, text)
    masked = find_placeholder(codec.loads(text), "args")
    if masked is not None and find_placeholder(codec.loads(call.args_to_run), "args") is None:
        raise InvalidDecision(
            f"{masked}: this is the mask shown in place of a secret: give the secret's value",
            masked,
        )
    try:
        validated = None if validate is None else validate(call, codec.loads(text))
    except InvalidCall as error:
        why = "the tool refuses these arguments" if has_secrets else error
        raise InvalidDecision(f"args: {why}", _at("args", error.path)) from None
    if validated is None:
        # Validated as given, then completed: reviewers and policy see defaults as they will run.
        complete = with_defaults(rules, codec.loads(text))
        validated = _checked(rules, complete, "args", quote=not has_secrets)
        if written is None:
            return EditedArguments(validated)
    return EditedArguments(validated, None if text == validated else text)


def call_has_secrets(call: Call, tool: Tool | None) -> bool:
    """Return whether people see a call with masked values, which no error may quote."""
    parameters = None if tool is None else codec.loads(tool.schema)["parameters"]
    texts = (call.args, call.original, call.written)
    values = (codec.loads(text) for text in texts if text is not None)
    return bool(secrets_in(*((value, parameters) for value in values)))


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
    # The answers as people see them.
    visible_answers = redact(answers, None, secrets_in((question_json(question), None))).value
    choices = [repr(answer) for answer in visible_answers] + (
        ["your own words"] if question.free_text else []
    )
    raise InvalidDecision(f"answer with {' or '.join(choices)}", path)


def _checked(rules: Mapping[str, Any], value: Json, name: str, *, quote: bool = True) -> str:
    """Return ``value`` as canonical JSON if it is valid under the schema ``rules``.

    Without ``quote``, the error names no value of the call or of the schema.
    """
    from sayso import schema  # imports pydantic, which reading the inbox does not need

    try:
        text = codec.canonical(value).decode()
        wrong = schema.errors(rules, codec.loads(text), quote=quote)
    except InvalidCall as error:
        raise InvalidDecision(f"{name}: {error}", _at(name, error.path)) from None
    if wrong:
        path, message = wrong[0]
        raise InvalidDecision(f"{_at(name, path)}: {message}", _at(name, path))
    return text


def _at(name: str, path: str) -> str:
    return f"{name}.{path}" if path and not path.startswith("[") else f"{name}{path}"


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


# -- plans


def approved_plan(
    call: Call, decision: Decision, args: str | None, grant: Grant | None
) -> Grant | None:
    """Return what the approval of a plan makes, before the engine knows who approves it.

    ``args`` are those of an edit. None if it is not approved.
    """
    if not isinstance(decision, Approve | Edit):
        return None
    if grant is not None:
        raise InvalidDecision("grant: the approval of a plan covers its own steps only", "grant")
    content = codec.loads(args or call.args)
    scope = plan_scope(list(map(_step, content["steps"])), content["any_order"], call.id)
    plan_id = PLAN_ID + secrets.token_hex(6)
    return Grant(id=plan_id, agent="", tool="", tool_digest="", scope=scope, by="", created=0)


def _step(step: Mapping[str, Any]) -> Step:
    return Step(
        tool=step["tool"],
        tool_digest=step["tool_digest"],
        args_hash=codec.sha256(codec.canonical(step["args"])),
        risk=step["risk"],
        facts=step.get("facts"),
        allowed=step.get("allowed", False),
    )


def check_edited_plan(before: str, after: str) -> None:
    """Raise ``InvalidDecision`` unless an edit only removes steps, or changes their arguments."""
    old = codec.loads(before)
    new = codec.loads(after)
    if old["any_order"] != new["any_order"]:
        raise InvalidDecision("args.any_order: the order of a plan cannot be edited", "any_order")
    left = iter(old["steps"])
    for place, step in enumerate(new["steps"]):
        if not any(_without_args(step) == _without_args(one) for one in left):
            raise InvalidDecision(
                f"args.steps[{place}]: steps can be removed, and their arguments edited; nothing "
                "else changes, and no step is added",
                f"args.steps[{place}]",
            )


def _without_args(step: Mapping[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in step.items() if name not in ("args", "title")}


# -- grants


def new_grant(call: Call, wanted: Mapping[str, Any], by: Reviewer, now: Micros) -> Grant:
    """Build the grant that comes with an approval. It lasts a day by default."""
    if not isinstance(wanted, Mapping):
        raise InvalidDecision("grant: give an object with scope, uses or ends_in", "grant")
    fields = ("scope", "uses", "ends_in", "within", "limits")
    if unknown := set(wanted).difference(fields):
        names = ", ".join(sorted(unknown))
        raise InvalidDecision(f"grant: unknown field {names}; use {', '.join(fields)}", "grant")
    if wanted.get("within", "agent") not in ("agent", "run"):
        raise InvalidDecision("grant: within must be 'agent' or 'run'", "grant.within")
    uses = wanted.get("uses")
    ends_in = wanted.get("ends_in", _DAY)
    if uses is not None and (type(uses) is not int or not 1 <= uses <= 1_000_000):
        raise InvalidDecision("grant: uses must be a whole number from 1", "grant.uses")
    if type(ends_in) not in (int, float) or not 0 < ends_in <= 366 * _DAY:
        raise InvalidDecision(
            "grant: ends_in must be a number of seconds, at most a year", "grant.ends_in"
        )
    scope = _scope(call, wanted.get("scope", "exact"))
    under = _given_under(call, by)
    if wanted.get("within") == "run":
        under["run"] = call.run
    if limits := _limits(wanted.get("limits", ())):
        under["limits"] = limits
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


def window_length(max_risk: object, ends_in: object) -> Micros:
    """Return how long a window lasts. Raise ``InvalidDecision`` if there can be no such window."""
    if max_risk not in WINDOW_RISKS:
        names = " or ".join(WINDOW_RISKS)
        raise InvalidDecision(f"max_risk {max_risk!r:.40}: use {names}", "max_risk")
    number = isinstance(ends_in, int | float) and not isinstance(ends_in, bool)
    if not number or not 0 < ends_in <= LONGEST_WINDOW:  # type: ignore[operator]
        hours = LONGEST_WINDOW // 3600
        raise InvalidDecision(f"ends_in {ends_in!r:.40}: use seconds, up to {hours} h", "ends_in")
    return round(ends_in * SECOND)  # type: ignore[operator]


def window_views(store: Store, run: str, calls: Collection[Call]) -> list[dict[str, Json]]:
    """Return the windows of a run as JSON, each with the calls that it let run."""
    return [
        {
            "id": grant.id,
            "by": grant.by,
            "max_risk": grant_scope(grant)[WINDOW],
            "created_at": iso(grant.created),
            "ends_at": iso(grant.ends),
            "ended_at": iso(grant.revoked),
            "live": grant.live(store.now()),
            "calls": [call.tool for call in calls if call.grant == grant.id],
        }
        for grant in store.grants(live_only=False)
        if grant_run(grant) == run and WINDOW in grant_scope(grant)
    ]


def _limits(wanted: object) -> list[Json]:
    """Return the limits of a grant as text. Raise ``InvalidDecision``."""
    if not isinstance(wanted, list | tuple):
        raise InvalidDecision(f"grant: limits is a list: write {LIMIT_FORMS}", "grant.limits")
    try:
        return list(dict.fromkeys(Limit.parse(text).text for text in wanted))
    except InvalidPolicy as error:
        raise InvalidDecision(f"grant: {error}", "grant.limits") from None


def _given_under(call: Call, by: Reviewer) -> dict[str, Json]:
    """Return the limits of a grant that come from its call and its author.

    It covers no call that needs other reviewers or a higher assurance, or that has other binds,
    more risk or other kinds than this one.
    """
    under: dict[str, Json] = {}
    if call.terms.risk.level != Risk().level:
        under["risk"] = call.terms.risk.level
    if call.terms.footprint:
        footprint = codec.loads(call.terms.footprint)
        under["footprint"] = {name: footprint[name] for name in ("kinds", "places")}
    if call.terms.reviewers or by.assurance != Terms().assurance:
        under |= {"reviewers": list(call.terms.reviewers), "assurance": by.assurance}
    if (facts := facts_of(call)) is not None:
        under["binds"] = facts
    return under


def _scope(call: Call, scope: Json) -> dict[str, Json]:
    if call.terms.footprint:
        return _footprint_scope(call, scope)
    if scope == "exact":
        return {"const": codec.loads(call.args)}
    if scope == "any":
        return {}
    from sayso import schema  # imports pydantic, which reading the inbox does not need

    if isinstance(scope, Mapping) and not scope.keys().isdisjoint(("command", "path")):
        raise _bad_scope("command and path are for the commands and files of coding agents")
    plain_scope = dict(scope) if isinstance(scope, Mapping) else scope
    try:
        whole_text = schema.whole_text(plain_scope)
    except InvalidCall as error:
        raise _bad_scope(f"the scope is not a schema: {error}") from None
    args = codec.loads(call.args)
    unknown = whole_text.get("properties", {}).keys() - args.keys()
    if unknown and whole_text.get("additionalProperties") is not False:
        raise _bad_scope(f"the call has no argument {min(unknown)!r}, so it would limit nothing")
    if not schema.matches(whole_text, args):
        raise _bad_scope(
            "the scope does not match the call that you are approving (a pattern has to match "
            "the whole text)"
        )
    return whole_text


def _bad_scope(why: str) -> InvalidDecision:
    return InvalidDecision(f"grant: {why}", "grant.scope")


def grant_scopes(call: Call) -> list[dict[str, Json]]:
    """Return the scopes that a grant for a command or a file can have, the narrowest first.

    Returns an empty list for calls without a footprint. Raises ``InvalidDecision`` if no grant can
    say what it would cover.
    """
    if not call.terms.footprint:
        return []
    if call.original is not None:  # an edit does not always come with a new footprint
        raise _bad_scope("the arguments were edited: approve this call alone")
    footprint = codec.loads(call.terms.footprint)
    kinds = set(footprint["kinds"])
    places = footprint["places"]
    words: list[Json] | None = footprint.get("words")
    if words is not None:
        usual = footprint["usual"]
        least = footprint["least"]
        lengths = range(usual, least - 1, -1) if least else ()
        return [
            {"command": words, "arguments": "exact"},
            *({"command": words[:length], "arguments": "any"} for length in lengths),
        ]
    if "unclear" in kinds or not places or "program" in places[0]:
        raise _bad_scope(
            "only one plain command can be allowed in advance, without lists, pipes, redirections, "
            "variables and patterns, and only calls that name their files: approve this call alone"
        )
    exact: dict[str, Json] = {"const": codec.loads(call.args)}
    files = [place.get("files", []) for place in places]
    file_names = sorted({name for names in files for name in names})
    if not all(files) or any(name.startswith("/") for name in file_names):
        return [exact]
    paths = list(file_names) if len(file_names) == 1 else []
    if kinds <= {"read", "write"}:  # other kinds are about this file, not about its folder
        folder = posixpath.dirname(file_names[0]) if paths else posixpath.commonpath(file_names)
        paths += [folder or ".", *_folders_above(folder)]
    return [exact, *({"path": path} for path in dict.fromkeys(paths))]


def _folders_above(folder: str) -> list[str]:
    """Return the folders of the project that contain a folder, from the nearest on."""
    folders: list[str] = []
    while folder:
        folder = posixpath.dirname(folder)
        folders.append(folder or ".")
    return folders


def _footprint_scope(call: Call, scope: Json) -> dict[str, Json]:
    """Return the scope of a grant for a command or a file. Raise ``InvalidDecision``."""
    exact, *wider = grant_scopes(call)
    if scope == "exact":
        return exact
    if scope == "any" and wider:
        return wider[0] if "command" in exact else wider[-1]
    if isinstance(scope, Mapping) and "command" in scope:
        scope = {"arguments": "any", **scope}
    for choice in (exact, *wider):
        if scope == choice:
            return choice
    if not wider:
        raise _bad_scope(
            "this call can only be allowed with exactly these arguments: use the scope 'exact'"
        )
    choices = ", ".join(codec.dumps(choice) for choice in (exact, *wider))
    raise _bad_scope(f"use 'exact', 'any' or one of these scopes: {choices:.2000}")


def covered_calls(store: Store, call: Call, grant: Grant, status: str) -> list[Call]:
    """Return the latest pending or closed calls that a grant, given with ``call``, covers."""
    query = Query(status=status, agent=call.agent, tool=call.tool, sort="newest", limit=_PREVIEWED)
    return [
        other
        for _, other in store.page(query)
        if other.id != call.id and not other.refusals and covers(grant, other, matches_scope)
    ]


def grant_scope(grant: Grant) -> dict[str, Json]:
    """Return what a grant covers: a schema of arguments, a command, a path, or the steps of a plan.

    Of a step, only its tool: its arguments may be secret, and are in the request.
    """
    scope: dict[str, Json] = codec.loads(grant.scope)
    scope.pop(GIVEN_UNDER, None)
    return scope if not grant.steps else {**scope, PLAN: [step.tool for step in steps_of(grant)]}


def steps_left(grant: Grant) -> int | None:
    """Return how many steps of a plan are left; None if the grant is no plan."""
    return grant.steps.count("") if grant.steps else None


def grant_run(grant: Grant) -> str:
    """Return the only run in which a grant is valid; "" if it is valid in all of the agent's."""
    return str(codec.loads(grant.scope).get(GIVEN_UNDER, {}).get("run", ""))


def in_live_run(store: Store, grant: Grant) -> bool:
    """Return whether the run has not ended that a window or a plan is for."""
    if not grant.tool_digest.startswith(RUN_TOOL):
        return True
    run = store.run(grant_run(grant))
    return run is not None and run.status in LIVE


def grant_budgets(store: Store, grants: Collection[Grant]) -> dict[str, list[BudgetState]]:
    """Return the limits of grants, each with what was used of it, by the grant's id."""
    limits = {grant.id: grant_limits(grant) for grant in grants}
    stored = {budget.key: budget for budget in store.budgets()} if any(limits.values()) else {}
    now = store.now()
    return {
        name: [budget_state(stored.get(limit.key), limit, now) for limit in listed]
        for name, listed in limits.items()
    }


def rule_budgets(store: Store) -> list[tuple[str, BudgetState]]:
    """Return the limits of rules that calls were counted for, each with its tools and agents."""
    now = store.now()
    states: list[tuple[str, BudgetState]] = []
    for budget in store.budgets():
        _, *whose = codec.loads(budget.key)
        if len(whose) == 2:
            tools, agents = whose
            by = "" if agents == ["*"] else f" by {', '.join(agents)}"
            limits = [Limit.parse(text)._replace(key=budget.key) for text in budget.limits]
            name = f"{', '.join(tools)}{by}"
            states += [(name, budget_state(budget, limit, now)) for limit in limits]
    return states


def budget_json(state: BudgetState) -> dict[str, Json]:
    used = float(state.used)
    most = float(state.most)
    return {"limit": state.limit, "used": used, "most": most, "frees_at": iso(state.frees_at)}


def scope_sentence(grant: Grant, scope: Mapping[str, Json] | None = None) -> str:
    """Return what a grant for a command or a path covers, or "" for other grants.

    ``scope`` is another scope for the same call, or the grant's own with secrets masked.
    """
    footprint = codec.loads(grant.scope).get(GIVEN_UNDER, {}).get("footprint")
    scope = grant_scope(grant) if scope is None else scope
    if PLAN in scope:
        order = "in any order" if scope["any_order"] else "in this order"
        return f"Each once, {order}: {', '.join(scope[PLAN])} ({scope['request']})"
    if WINDOW in scope:
        return f"Everything that run {grant_run(grant)} asks for, up to risk {scope[WINDOW]}"
    if footprint is None or "const" in scope:
        return ""
    directory = footprint["places"][-1]["directory"]
    where = f" in {directory}" if directory else ""
    if "path" in scope:
        return f"{'All files' if scope['path'] == '.' else scope['path']}{where}"
    if scope["arguments"] == "any":
        return f"{shlex.join(scope['command'])}, with any arguments,{where}"
    return f"Exactly {shlex.join(scope['command'])}{where}"


def displayed_scope(store: Store, grant: Grant) -> dict[str, Json]:
    """Return a grant's scope with the arguments that the tool declares secret masked."""
    scope = grant_scope(grant)
    tool = store.tool(grant.tool_digest)
    parameters = None if tool is None else codec.loads(tool.schema)["parameters"]
    for part in {"const", "properties"} & set(scope):
        scope[part] = redact_declared(scope[part], parameters)
    return scope
