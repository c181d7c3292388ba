"""Replay: what a policy, or a grant, would have done with the calls in a store.

Calls are judged by ``Policy.judge``, as when they were made, with the arguments, the agent and the
time that the store has. The store does not have everything that a judgement may depend on, and
``Replay.not_stored`` says for how many calls something was missing. Where it is missing, the call
counts as asked.

No model is called. A call that a model reviewed counts as it answered, if the policy names the same
model; otherwise it counts as asked. Where people decided the same call, or an equal one, the replay
compares their decision with the model's answer.

Limits count the calls of the replay, from none on: those that would have run, and those that people
approved, each when it was made.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sayso import codec
from sayso.engine.budgets import entries_of, grant_limits, has_room, spent_of
from sayso.engine.deciding import model_may_allow
from sayso.engine.grants import covers
from sayso.policy import Policy, judge_sync
from sayso.policy.limits import Limit, bound_limit
from sayso.policy.policy import DEFAULT, NEEDS_APPROVAL
from sayso.rows import Budget, Call
from sayso.stores.base import Store, matches_scope
from sayso.types import Grant, Micros, Terms, ToolCall, Verdict, iso, moment
from sayso.views import public_status

#: How many calls that would have been different are listed; all of them are counted.
MOST_LISTED = 100

#: What happened to a call about which nobody was asked. An earlier rejection of an equal call
#: refuses it, before any policy.
_BEFORE = {"allow": "allowed", "grant": "allowed", "model": "allowed", "deny": "denied"}
_AFTER = {Verdict.ALLOW: "allowed", Verdict.ASK: "asked", Verdict.DENY: "denied"}
_OWN = Terms()
#: What a model said that decided a call, and which of its answers contradict which outcome.
_DECIDED_BY_MODEL = {"model": "allow", "reject": "reject"}
_CONTRADICTIONS = (("allow", "rejected"), ("reject", "approved"), ("reject", "edited"))
_NOT_CALLED = "the model that reviews calls first is not called, so they count as asked"
#: Stands for a rule where the second policy failed.
_FAILED = "error"


class Judged(NamedTuple):
    """What would happen to a call, by which rule, and which fact about it was not stored."""

    after: str
    rule: str
    missing: str = ""
    #: What counts it, if it runs.
    limits: tuple[Limit, ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """A call that would have been treated differently."""

    call: Call
    before: str
    after: str
    rule: str

    @property
    def outcome(self) -> str:
        """How the request ended: ``approved``, ``rejected``, ``pending``, …; "" if nobody was
        asked."""
        return public_status(self.call) if self.before == "asked" else ""

    @property
    def decider(self) -> str | None:
        """The person who decided the request."""
        decision = self.call.decision if self.outcome else None
        return None if decision is None else decision.by

    @property
    def overrules(self) -> bool:
        """Whether people rejected the call, and it would have run without them."""
        return self.outcome == "rejected" and self.after == "allowed"


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A call about which a model said the opposite of what people decided."""

    call: Call
    answer: str
    #: What people decided about it, or about an equal call.
    outcome: str


@dataclass(slots=True)
class Replay:
    """The result of a replay. Counts are by what happened, what would have, and the outcome."""

    calls: int = 0
    changes: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    #: How many calls each rule would decide, by what happened and what would have.
    rules: dict[str, Counter[tuple[str, str]]] = field(default_factory=dict)
    #: The newest ones, those first that people rejected.
    differences: list[Difference] = field(default_factory=list)
    missing: Counter[str] = field(default_factory=Counter)
    #: What models said, and people decided: by model, answer and outcome. The newest
    #: disagreements.
    answers: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    disagreements: list[Disagreement] = field(default_factory=list)

    @property
    def overruled(self) -> int:
        """How many calls would have run although people rejected them."""
        return self.changes["asked", "allowed", "rejected"]

    @property
    def not_stored(self) -> list[str]:
        """Sentences that say which facts the replay had to do without."""
        return [f"{sentence} ({count:,})" for sentence, count in self.missing.items()]

    def add(self, call: Call, judged: Judged) -> None:
        before = _before(call)
        self.calls += 1
        self.rules.setdefault(judged.rule, Counter())[before, judged.after] += 1
        if judged.missing:
            self.missing[judged.missing] += 1
        if before in (judged.after, "refused"):
            return  # a refusal counts before any policy
        difference = Difference(call, before, judged.after, judged.rule)
        self.changes[before, judged.after, difference.outcome] += 1
        if difference.overrules or len(self.differences) < MOST_LISTED:
            self.differences.append(difference)

    def compare(self, reviewed: Iterable[Call], outcomes: Mapping[tuple[str, ...], str]) -> None:
        """Compare what models said of calls with what people decided about equal ones."""
        for call in reviewed:
            by_person = call.source == "person" and call.decision is not None
            outcome = public_status(call) if by_person else outcomes.get(_content_of(call), "")
            if not outcome:
                continue
            answer = answer_of_model(call)
            self.answers[call.terms.reviewer, answer, outcome] += 1
            if (answer, outcome) in _CONTRADICTIONS and len(self.disagreements) < MOST_LISTED:
                self.disagreements.append(Disagreement(call, answer, outcome))

    def listed(self) -> list[Difference]:
        """Return the differences to show."""
        self.differences.sort(key=lambda difference: not difference.overrules)
        return self.differences[:MOST_LISTED]


def answer_of_model(call: Call) -> str:
    """Return what a model said of a call that it reviewed; "" of every other call."""
    if call.decision is not None and call.asked and call.source == "model":
        return _DECIDED_BY_MODEL[call.decision.type]
    return call.terms.opinion[0] if call.terms.opinion else ""


def _content_of(call: Call) -> tuple[str, ...]:
    """Return what equal calls have in common."""
    return call.agent, call.tool, call.args if call.original is None else call.original


def _before(call: Call) -> str:
    decided = "" if call.decision is None else call.decision.type
    if decided == "reject" and not call.asked:
        return "refused"
    if decided == "reject" and call.source == "model":
        return "denied"
    return _BEFORE.get(decided, "asked")


def replay_policy(store: Store, policy: Policy, since: Micros, most: int | None = None) -> Replay:
    """Judge the calls that were made since a time by a policy, or the newest of them."""
    counts = any(rule.limits for rule in policy.rules)
    return _replay(store.calls_since(since), most, lambda call: _judge(policy, call), counts)


def replay_grant(
    store: Store,
    grant: Grant,
    since: Micros,
    most: int | None = None,
    sees: Callable[[Call], bool] = lambda call: True,
) -> Replay:
    """Return which calls since a time a grant would have covered, had it been given before.

    Only calls for which ``sees`` returns True are judged.
    """
    limits = tuple(grant_limits(grant))
    numbers = itertools.count(1)

    def judge(call: Call) -> Judged | None:
        if not sees(call):
            return None
        before = _before(call)
        fits = before == "asked" and not call.refusals and _covers(grant, call)
        if fits and grant.uses_left is not None and next(numbers) > grant.uses_left:
            fits = False
        if fits:
            return Judged("allowed", "the grant", limits=limits)
        return Judged(before, "not covered")

    calls = store.calls_since(since, grant.agent, grant.tool)
    return _replay(calls, most, judge, bool(limits) or grant.uses_left is not None)


def replay_observed(store: Store, since: Micros, most: int | None = None) -> Replay:
    """Return what the second policy said of the calls since a time, when they were made."""
    return _replay(store.calls_since(since), most, _observed, False)


def _observed(call: Call) -> Judged | None:
    if not call.terms.observed:
        return None
    verdict, rule, _ = call.terms.observed
    if verdict == "error":
        return Judged(_before(call), _FAILED, f"it could not judge some calls: {rule}")
    return Judged(_AFTER[Verdict(verdict)], rule)


def as_asked_first(call: Call) -> Call:
    """Return a call with the arguments that the agent sent, before any edit."""
    return call if call.original is None else call._replace(args=call.original)


def _covers(grant: Grant, call: Call) -> bool:
    return covers(grant, as_asked_first(call), matches_scope)


def _replay(
    calls: Iterator[Call],
    most: int | None,
    judge: Callable[[Call], Judged | None],
    in_order: bool,
) -> Replay:
    """Judge calls. With ``in_order``, the oldest first, because they use up a limit."""
    replay = Replay()
    # A question, a confirmation or a step of ``gate.once`` is not judged by a policy.
    judgeable = (
        call
        for call in itertools.islice(calls, most)
        if call.terms.policy and call.kind == "approval"
    )
    judged_calls: Iterator[tuple[Call, Judged | None]]
    if in_order:
        judged_calls = _judged_in_order(judgeable, judge)
    else:
        judged_calls = ((call, judge(call)) for call in judgeable)
    reviewed: list[Call] = []
    outcomes: dict[tuple[str, ...], str] = {}
    for call, judged in judged_calls:
        if judged is not None:
            replay.add(call, judged)
            if answer_of_model(call):
                reviewed.append(call)
            elif call.asked and call.decision is not None and call.source == "person":
                outcomes.setdefault(_content_of(call), public_status(call))
    replay.compare(reviewed, outcomes)
    if most is not None and next(calls, None) is not None:
        replay.missing["older calls were left out, after the newest"] = most
    return replay


def _judged_in_order(
    calls: Iterable[Call], judge: Callable[[Call], Judged | None]
) -> Iterator[tuple[Call, Judged | None]]:
    """Judge the oldest call first, within the limits. Return the newest first."""
    budgets: dict[str, Budget] = {}
    judged_calls: list[tuple[Call, Judged | None]] = []
    for call in sorted(calls, key=lambda call: (call.created, call.id)):
        judged = judge(call)
        if judged is not None and judged.limits:
            judged = _within_limits(as_asked_first(call), judged, budgets)
        judged_calls.append((call, judged))
    return reversed(judged_calls)


def _within_limits(call: Call, judged: Judged, budgets: dict[str, Budget]) -> Judged:
    """Return what happens to a call under its limits, and count it if it runs."""
    args = codec.loads(call.args)
    for limit in judged.limits:
        amounts = limit.amounts(args)
        budget = budgets.get(limit.key)
        is_full = amounts is None or not has_room(budget, limit, amounts, call.created)
        if judged.after == "allowed" and is_full:
            judged = judged._replace(after="asked")
    if judged.after == "allowed" or (judged.after == "asked" and call.attempt > 0):
        counted: set[str] = set()
        for limit in judged.limits:
            added = [] if limit.key in counted else entries_of(call, limit, call.created)
            counted.add(limit.key)
            budgets[limit.key] = spent_of(budgets.get(limit.key), limit, added, call.created)
    return judged


def _judge(policy: Policy, call: Call) -> Judged:
    args = codec.loads(call.args if call.original is None else call.original)
    declared = _declared(call)
    tool_call = ToolCall(call.tool, args)
    judging = policy.judge(
        tool_call, agent=call.agent, now=moment(call.created), own=_OWN, needs_approval=declared
    )
    terms, skipped = judge_sync(judging)
    missing = ""
    if skipped:
        missing = "async predicates are not called, and count as not matching"
    elif declared is None and terms.rule in (NEEDS_APPROVAL, DEFAULT):
        missing = "whether the tool itself needs approval is not stored, so it asks"
    elif terms.preset:
        missing = "files and links are looked up as they are now, not as they were"
    limits = tuple(map(bound_limit, terms.limits))
    after = _AFTER[terms.verdict]
    if terms.reviewer and not call.refusals:
        same = call.terms.reviewer == terms.reviewer and answer_of_model(call)
        if not same:
            missing = missing or _NOT_CALLED
        elif same == "reject":
            after = "denied"
        elif same == "allow" and model_may_allow(call._replace(terms=terms)):
            after = "allowed"
    return Judged(after, terms.rule, missing, limits)


def _declared(call: Call) -> bool | None:
    """Return what the tool declared, as far as the row says: None if it does not."""
    if call.terms.rule != NEEDS_APPROVAL:
        return None
    return _before(call) != "allowed"


def replay_json(replay: Replay) -> dict[str, Any]:
    """Return a replay as JSON."""
    return {
        "calls": replay.calls,
        "changes": [
            {"before": before, "after": after, "outcome": outcome or None, "count": count}
            for (before, after, outcome), count in sorted(replay.changes.items())
        ],
        "rules": [
            {
                "rule": rule,
                "calls": counts.total(),
                "before": dict(_summed(counts, 0)),
                "after": dict(_summed(counts, 1)),
            }
            for rule, counts in replay.rules.items()
        ],
        "overruled": replay.overruled,
        "differences": [
            {
                "id": difference.call.id,
                "tool": difference.call.tool,
                "agent": difference.call.agent,
                "by": difference.decider,
                "before": difference.before,
                "after": difference.after,
                "rule": difference.rule,
                "outcome": difference.outcome or None,
                "created_at": iso(difference.call.created),
            }
            for difference in replay.listed()
        ],
        "answers": [
            {"model": model, "answer": answer, "outcome": outcome, "count": count}
            for (model, answer, outcome), count in sorted(replay.answers.items())
        ],
        "disagreements": [
            {
                "id": disagreement.call.id,
                "tool": disagreement.call.tool,
                "agent": disagreement.call.agent,
                "model": disagreement.call.terms.reviewer,
                "answer": disagreement.answer,
                "outcome": disagreement.outcome,
                "created_at": iso(disagreement.call.created),
            }
            for disagreement in replay.disagreements
        ],
        "not_stored": replay.not_stored,
    }


def _summed(counts: Counter[tuple[str, str]], place: int) -> Counter[str]:
    summed: Counter[str] = Counter()
    for states, count in counts.items():
        summed[states[place]] += count
    return summed
