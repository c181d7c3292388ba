"""Grants: standing approvals of calls that are like an approved one. And events without a row."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sayso.engine.commands import AddGrant, Note, RevokeGrant
from sayso.engine.effects import is_remote
from sayso.engine.unit_of_work import UnitOfWork
from sayso.errors import Conflict, NotFound
from sayso.rows import Call, Person, Proven
from sayso.types import (
    ASSURANCE,
    RISKS,
    Grant,
    Json,
    Micros,
    Risk,
    Terms,
    may_be_requester,
)

#: A key in a grant's scope: the reviewers, facts, risk and footprint of the request with which it
#: was given, the assurance of its author, and its run if it is for that run only.
GIVEN_UNDER = "x-given-under"
#: A key in what a suggested grant was given under: it covers no risk that nobody declared.
DECLARED = "declared"


def grant_bytes(grant: Grant) -> bytes:
    """Return what the signature of a grant covers: everything but the uses left, and the steps
    that were taken.

    Workers change those, and have only the row key; the row's MAC covers them.
    """
    parts = (
        *(grant.id, grant.agent, grant.tool, grant.tool_digest, grant.scope, grant.by),
        *(grant.created, grant.ends, grant.revoked),
    )
    return json.dumps(["grant", *parts]).encode()


def is_genuine(work: UnitOfWork, grant: Grant) -> bool:
    """Return whether a process that may sign decisions made this grant."""
    return work.deps.verify(grant_bytes(grant), grant.signature)


def facts_of(call: Call) -> Json:
    """Return the facts that ``binds=`` returned for a call, to compare with those of a grant.

    A call from another machine is also bound to the body that opened it, which is not a fact.
    """
    bound: dict[str, Json] | None = json.loads(call.binds) if call.binds else None
    return bound.get("facts") if bound is not None and is_remote(call.binds) else bound


def covers(grant: Grant, call: Call, matches: Callable[[str, str], bool]) -> bool:
    """Return whether a grant covers a call: its agent, tool, people, facts, risk and scope.

    ``matches`` compares a JSON Schema with arguments. A scope that is not understood covers
    nothing.
    """
    if call.kind != "approval" or call.terms.quorum > 1:
        return False  # it is the approval of one person
    if grant.tool_digest == RUN_TOOL + call.run:
        trusts = step_of(grant, call) is not None if grant.steps else _trusts(grant, call)
        return grant.agent == call.agent and trusts
    if (grant.agent, grant.tool_digest) != (call.agent, call.tool_digest):
        return False
    try:
        scope = json.loads(grant.scope)
        under = scope.pop(GIVEN_UNDER, {})
        if not _given_for(under, grant.by, call):
            return False
        if not call.terms.footprint:
            return "footprint" not in under and matches(grant.scope, call.args)
        footprint = json.loads(call.terms.footprint)
        return in_scope(scope, under["footprint"], footprint, json.loads(call.args))
    except (ValueError, TypeError, AttributeError, LookupError):
        return False


def _given_for(under: Mapping[str, Any], by: str, call: Call) -> bool:
    """Return whether the person who gave the grant could approve this call with that assurance."""
    terms = call.terms
    if not terms.requester_decides and may_be_requester(by, call.requester):
        return False
    if terms.fresh is not None:
        return False  # whoever gave it has not signed in just now
    if under.get("binds") != facts_of(call):
        return False  # it was given under other facts
    if under.get("run", call.run) != call.run:
        return False  # it was given for another run only
    if under.get(DECLARED) and not terms.risk_declared:
        return False
    if RISKS.index(under.get("risk", Risk().level)) < RISKS.index(terms.risk.level):
        return False
    reviewers = under.get("reviewers", ())
    least = under.get("assurance", Terms().assurance)
    theirs = not terms.reviewers or by in terms.reviewers
    if not theirs and not (reviewers and set(reviewers) <= set(terms.reviewers)):
        return False
    return ASSURANCE.index(terms.assurance) <= ASSURANCE.index(least)


# -- trust in a run, for some minutes
#
# A *window* is a grant for whatever one run asks for, up to a risk, until its end or the first
# rejection in that run. Instead of a tool's digest, it has the name of the run.

#: With the run's id, it stands for the digest of a tool.
RUN_TOOL = "run:"
#: The highest risk of calls in a window, and for how many seconds it lasts at most.
WINDOW_RISKS = ("low", "medium")
LONGEST_WINDOW = 8 * 3600
#: The keys of a window's scope: its risk, and, in what it was given under, the person's names.
WINDOW = "window"
_NAMES = "names"


def window_scope(run: str, risk: str, names: Iterable[str], assurance: str) -> str:
    """Return the scope of a window that is given by a person with these names."""
    under = {"run": run, _NAMES: sorted(names), "assurance": assurance}
    return json.dumps({WINDOW: risk, GIVEN_UNDER: under})


def _could_decide(grant: Grant, names: Collection[str], assurance: str, call: Call) -> bool:
    """Return whether the person with these names could have decided a call alone."""
    terms = call.terms
    if not call.tool or "approve" not in terms.decisions or terms.fresh is not None:
        return False
    if not terms.requester_decides and may_be_requester(grant.by, call.requester):
        return False
    is_meant = not terms.reviewers or not set(names).isdisjoint(terms.reviewers)
    return is_meant and ASSURANCE.index(terms.assurance) <= ASSURANCE.index(assurance)


def _is_within(terms: Terms, most: int) -> bool:
    """Return whether the risk is within a window's. One that nobody declared counts as high."""
    return terms.risk_declared and terms.risk.level in WINDOW_RISKS[: most + 1]


def _trusts(grant: Grant, call: Call) -> bool:
    """Return whether a window covers a call that the person could have approved alone."""
    try:
        scope = json.loads(grant.scope)
        under = scope[GIVEN_UNDER]
        most = WINDOW_RISKS.index(scope[WINDOW])
        is_theirs = _could_decide(grant, under[_NAMES], under["assurance"], call)
    except (ValueError, TypeError, LookupError):
        return False
    return is_theirs and _is_within(call.terms, most)


# -- plans: a list of exact calls that were approved at once
#
# A plan is a request whose arguments are its steps (``sayso.gate.steps``), so its digest covers the
# whole list. Its approval makes a grant for that run, as a window does, which has the digest of
# each step's tool and the hash of its arguments. ``Grant.steps`` says which call took each step.
#
# In order, a call is covered if it is the first step that is left. Steps that the rules allowed
# when the plan was proposed need no plan, so they hold up none after them. In any order, a call is
# covered if it is one of those left. Every other call asks people, and the plan waits.
#
# A step is taken in the transaction that starts its call. It is left again only if the tool says
# that nothing happened. The plan ends with the run or at its end, and if one of its steps is
# rejected or its person loses the right to decide.

#: The name of the tool that a plan is a call of.
PLAN_TOOL = "plan"
#: The key of a plan's scope that lists its steps.
PLAN = "plan"
#: The scope of the run (``Run.scope``): it changes when the run is opened again.
_RUN_SCOPE = "scope"


class Step(NamedTuple):
    """One call of a plan."""

    tool: str
    tool_digest: str
    args_hash: str
    #: The risk that people were shown.
    risk: str
    #: Of ``binds=``; see ``facts_of``.
    facts: Json = None
    #: The rules allowed it when the plan was proposed.
    allowed: bool = False


def plan_risk(terms: Terms) -> str:
    """Return the risk of a step. One that nobody declared counts as high."""
    level = terms.risk.level
    return level if terms.risk_declared else max(level, "high", key=RISKS.index)


def plan_scope(steps: Sequence[Step], any_order: bool, request: str) -> str:
    """Return the scope of a plan, before the person who approves it is known."""
    return json.dumps({PLAN: steps, "any_order": any_order, "request": request})


def steps_of(grant: Grant) -> list[Step]:
    return [Step(*step) for step in json.loads(grant.scope)[PLAN]]


def add_plan(
    work: UnitOfWork, call: Call, plan: Grant, by: Proven, names: Iterable[str], starts: Micros
) -> Grant:
    """Store the plan that a person with these names has approved with this call."""
    under = {"run": call.run, _NAMES: sorted(names), "assurance": by.assurance}
    scope = json.loads(plan.scope)
    scope[GIVEN_UNDER] = {**under, _RUN_SCOPE: work.require_run().scope}
    return store_grant(
        work,
        replace(
            plan,
            agent=call.agent,
            tool_digest=RUN_TOOL + call.run,
            scope=json.dumps(scope),
            by=by.name,
            steps=("",) * len(scope[PLAN]),
            created=starts,
            ends=starts + round(call.terms.valid_for * 1_000_000),
        ),
    )


def step_of(grant: Grant, call: Call) -> int | None:
    """Return the place of the step that a call has taken, or may take now; None if none."""
    try:
        scope = json.loads(grant.scope)
        under = scope[GIVEN_UNDER]
        if not _could_decide(grant, under[_NAMES], under["assurance"], call):
            return None
        if call.id in grant.steps:
            return grant.steps.index(call.id)
        for place, step in enumerate(steps_of(grant)):
            if grant.steps[place]:
                continue
            if _is_step(step, call):
                return place
            if not scope["any_order"] and not step.allowed:
                return None
    except (ValueError, TypeError, LookupError):
        pass
    return None


def _is_step(step: Step, call: Call) -> bool:
    same = (step.tool_digest, step.args_hash) == (call.tool_digest, call.args_hash)
    within = RISKS.index(plan_risk(call.terms)) <= RISKS.index(step.risk)
    return same and within and step.facts == facts_of(call)


def take_step(work: UnitOfWork, call: Call) -> dict[str, int]:
    """Take the step of a call that starts. Return what its event says about it."""
    grant = work.grants.get(call.grant or "")
    place = step_of(grant, call) if grant is not None and grant.steps else None
    if grant is None or place is None:
        return {}
    steps = (*grant.steps[:place], call.id, *grant.steps[place + 1 :])
    put_grant(work, replace(grant, steps=steps))
    return {"step": place}


def return_step(work: UnitOfWork, call: Call) -> dict[str, int]:
    """Leave the step of a call again, because nothing happened."""
    grant = work.grants.get(call.grant or "")
    if grant is None or call.id not in grant.steps:
        return {}
    place = grant.steps.index(call.id)
    put_grant(work, replace(grant, steps=(*grant.steps[:place], "", *grant.steps[place + 1 :])))
    return {"step_returned": place}


def is_of_this_entry(work: UnitOfWork, grant: Grant) -> bool:
    """Return whether the run of a plan was not opened again since the plan was approved."""
    if not grant.steps:
        return True
    scope: dict[str, Any] = json.loads(grant.scope)
    return bool(scope[GIVEN_UNDER][_RUN_SCOPE] == work.require_run().scope)


def end_trust(work: UnitOfWork, call: Call, by: str) -> None:
    """End the windows of a run with the first rejection in it, and plans with this step."""
    # In the order of their ids: every store writes the same events.
    for _, grant in sorted(work.grants.items()):
        if grant.tool_digest != RUN_TOOL + call.run or not grant.live(work.now):
            continue
        equal = (call.tool_digest, call.args_hash)
        in_plan = grant.steps and any(step[1:3] == equal for step in steps_of(grant))
        if in_plan or not grant.steps:
            revoke(work, grant, by)


# -- grants of commands and files
#
# A call of a coding agent has a footprint (``sayso.hooks.footprints``), and the scope of its grant
# is one of these:
#
#     {"command": ["npm", "test"], "arguments": "any"}    these words, then any others
#     {"command": ["npm", "test"], "arguments": "exact"}  these words, and no others
#     {"path": "src"}                                     this file, or any file of this folder
#     {"const": {...}}                                    these arguments
#
# Each of them also needs the places of the call that it was given with, and no kind that this call
# did not have. A JSON Schema is no such scope: it compares texts.


def in_scope(
    scope: Mapping[str, Any], given: Mapping[str, Any], footprint: Mapping[str, Any], args: object
) -> bool:
    """Return whether a footprint is in a scope that was given with another footprint."""
    if not set(footprint["kinds"]) <= {*given["kinds"], "read"} or "unclear" in footprint["kinds"]:
        return False
    places = footprint["places"]
    given_places = given["places"]
    match scope:
        case {"command": [_, *_] as words, "arguments": "any" | "exact" as rest, **more}:
            called = footprint.get("words", [])  # a list of commands has none
            if rest == "any":
                called = called[: len(words)]
            return not more and called == words and places == given_places
        case {"path": str(path), **more}:
            directories = [place["directory"] for place in given_places]
            return (
                not more
                and directories == [place["directory"] for place in places]
                and all(_is_below(path, place.get("files", ())) for place in places)
            )
        case {"const": value, **more}:
            same = json.dumps(value, sort_keys=True) == json.dumps(args, sort_keys=True)
            return not more and same and places == given_places
    return False


def _is_below(folder: str, files: Sequence[str]) -> bool:
    """Return whether these files of the project are this path, or in this folder."""
    return bool(files) and all(
        not file.startswith("/")
        and ".." not in file.split("/")
        and (folder in (".", file) or file.startswith(f"{folder}/"))
        for file in files
    )


def sign_grant(work: UnitOfWork, grant: Grant) -> Grant:
    """Sign and write a grant that is new or was just revoked."""
    return put_grant(work, replace(grant, signature=work.deps.sign(grant_bytes(grant))))


def put_grant(work: UnitOfWork, grant: Grant) -> Grant:
    """Write a grant whose signature still covers it."""
    work.touched_grants[grant.id] = work.grants[grant.id] = grant
    return grant


def store_grant(work: UnitOfWork, grant: Grant) -> Grant:
    grant = sign_grant(work, grant)
    work.emit_system(
        "granted",
        actor=grant.by,
        grant=grant.id,
        agent=grant.agent,
        tool=grant.tool,
        tool_digest=grant.tool_digest,
        scope=grant.scope,
        uses=grant.uses_left,
        ends=grant.ends,
    )
    return grant


def add_grant(work: UnitOfWork, command: AddGrant) -> Grant:
    if command.grant.id in work.grants:
        raise Conflict(f"grant {command.grant.id} already exists: use another id")
    return store_grant(work, replace(command.grant, created=work.now))


def revoke_grant(work: UnitOfWork, command: RevokeGrant) -> Grant:
    """Revoke a grant. Idempotent."""
    grant = work.grants.get(command.grant)
    if grant is None:
        raise NotFound(f"no grant {command.grant}: see `sayso grants`")
    return grant if grant.revoked is not None else revoke(work, grant, command.by)


def revoke(work: UnitOfWork, grant: Grant, actor: str) -> Grant:
    grant = sign_grant(work, replace(grant, revoked=work.now))
    work.emit_system("revoked", actor=actor, grant=grant.id)
    return grant


def rests_on_rights(grant: Grant, person: Person) -> bool:
    """Return whether the person who gave a grant could still give it."""
    under = json.loads(grant.scope).get(GIVEN_UNDER, {})
    reviewers = under.get("reviewers", ())
    may_grant = person.role in ("reviewer", "admin")
    if not person.names.issuperset(under.get(_NAMES, ())):
        return False
    return may_grant and (not reviewers or not person.names.isdisjoint(reviewers))


def note(work: UnitOfWork, command: Note) -> None:
    if command.type == "opened":
        if work.thread.seq:
            raise Conflict(f"the thread {command.thread!r:.80} exists already: read who owns it")
        work.set_owner(command.actor)
    work.emit(command.type, actor=command.actor, **command.body)
