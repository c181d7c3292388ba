"""``Policy``: ordered rules; the first that matches allows the call, asks, or denies it.

``Policy.judge`` is a generator, because a predicate may be slow or async and this module has no
clock and no event loop. It yields each predicate with a copy of the arguments; send back what the
predicate returned, or the exception that it raised.

If a predicate raises, people are asked. Whether its rule matches is unknown, so the rules below it
are evaluated too and their requirements are added: unusual arguments must not bypass a stricter
rule.

``tighten`` combines the terms before and after an edit. ``explain`` judges a call and says why each
rule matched or did not.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, Literal, TypeAlias

from sayso.errors import InvalidPolicy, describe_error
from sayso.policy.condition import Condition
from sayso.policy.rule import DAYS, Args, Predicate, Rule
from sayso.types import (
    ASSURANCE,
    ON_DUPLICATE,
    RECORDED,
    RISKS,
    Declared,
    Json,
    Risk,
    Terms,
    ToolCall,
    Verdict,
    as_fields,
    stricter_effect,
)

#: Yields a predicate and its arguments; is sent what the predicate returned or raised.
Judging: TypeAlias = Generator[tuple[Predicate, Args], object, Terms]

#: ``Terms.rule`` if no rule matched and the tool's own ``needs_approval`` decided.
NEEDS_APPROVAL = "needs_approval"

_TERM_NAMES = (
    "allowed",
    "reviewers",
    "quorum",
    "requester_decides",
    "assurance",
    "risk",
    "expires_in",
    "on_expiry",
    "valid_for",
    "record",
    "effect_key",
    "on_duplicate",
)
_REASON_LENGTH = 500


@dataclass(frozen=True, slots=True)
class Evaluated:
    """One rule that was evaluated. Without an index, it is the tool's own ``needs_approval``."""

    index: int | None
    name: str
    unmet: str
    said: bool | BaseException


@dataclass(frozen=True, slots=True)
class Policy:
    """Ordered rules; the first match decides. If none matches, the tool's ``needs_approval`` does.

    ``digest`` identifies the content; it is part of every request.
    """

    rules: tuple[Rule, ...] = ()
    digest: str = ""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        listed = tuple(rules) if isinstance(rules, Iterable) else (rules,)
        if isinstance(rules, Rule) or not all(isinstance(rule, Rule) for rule in listed):
            raise InvalidPolicy("pass a list of rules: Policy([Rule(...), ...])")
        object.__setattr__(self, "rules", listed)
        object.__setattr__(self, "digest", _digest(listed))

    @classmethod
    def from_interrupt_on(cls, interrupt_on: Mapping[str, bool | Mapping[str, Any]]) -> Policy:
        """Read the mapping that LangChain's ``HumanInTheLoopMiddleware`` takes."""
        from sayso.policy.loaders import rules_from_interrupt_on

        return cls(rules_from_interrupt_on(interrupt_on))

    @classmethod
    def preset(cls, name: str) -> Policy:
        """Return a ready-made policy for coding agents: ``watch``, ``balanced`` or ``strict``."""
        from sayso.policy.loaders import preset_rules

        return cls(preset_rules(name))

    @classmethod
    def from_toml(cls, text: str) -> Policy:
        """Read the text of a policy file; docs/policies.md describes the format."""
        from sayso.policy.loaders import rules_from_toml

        return cls(rules_from_toml(text))

    def how_often_asks(
        self, tool: str, *, agent: str, needs_approval: bool | Predicate = False
    ) -> Literal["always", "sometimes", "never"]:
        """Return how often calls of a tool need approval, as far as its name tells."""
        said: set[Verdict] = set()
        for rule in self.rules:
            if rule.concerns(tool, agent):
                said.add(Verdict(rule.verdict))
                if rule.is_certain:
                    break
        else:
            if callable(needs_approval):
                return "sometimes"
            said.add(Verdict.ASK if needs_approval else Verdict.ALLOW)
        if said == {Verdict.ASK}:
            return "always"
        return "sometimes" if Verdict.ASK in said else "never"

    def judge(
        self,
        call: ToolCall,
        *,
        agent: str,
        now: datetime,
        own: Terms,
        needs_approval: bool | Predicate = False,
        trace: list[Evaluated] | None = None,
    ) -> Judging:
        """Return the terms for one call. ``own`` are the tool's, for what no rule overrides.

        Each rule is appended to ``trace`` once it was evaluated.
        """
        failed: Terms | None = None
        for index, rule in enumerate(self.rules):
            name, unmet = rule.name or f"rule {index + 1}", rule.unmet(call, agent, now)
            said: bool | BaseException = not unmet
            if said and rule.when is not None:
                said = _as_answer((yield rule.when, _deep_copy(call.args)))
            if trace is not None:
                trace.append(Evaluated(index, name, unmet, said))
            if said is True:
                return _with_failed(failed, _terms(rule, name, self.digest, own, call))
            if isinstance(said, BaseException):
                terms = _terms(rule, name, self.digest, own, call)
                failed = _with_failed(failed, _terms_after_error(terms, name, said))
        if callable(needs_approval):
            said = _as_answer((yield needs_approval, _deep_copy(call.args)))
        else:
            said = _as_answer(needs_approval)
        if trace is not None:
            trace.append(Evaluated(None, NEEDS_APPROVAL, "", said))
        by: dict[str, Any] = {"policy": self.digest, "rule": NEEDS_APPROVAL}
        if isinstance(said, BaseException):
            terms = _terms_after_error(replace(own, **by), NEEDS_APPROVAL, said)
        else:
            verdict = Verdict.ASK if said else Verdict.ALLOW
            terms = _separate_requester(own, verdict=verdict, **by)
        return _with_failed(failed, terms)


def _deep_copy(value: Json) -> Any:
    """Copy arguments, so that a predicate that changes them does not change the request."""
    if isinstance(value, Mapping):
        return {name: _deep_copy(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_deep_copy(item) for item in value]
    return value


def _as_answer(said: object) -> bool | BaseException:
    """Normalize what a predicate returned; anything but a boolean is an error, so people are asked.

    ``0``, ``[]`` or ``None`` would otherwise mean "no approval needed".
    """
    if isinstance(said, bool | BaseException):
        return said
    if inspect.iscoroutine(said):
        said.close()
    if inspect.isawaitable(said):
        return TypeError("the predicate is async and was not awaited")
    return TypeError(f"the predicate returned {type(said).__name__}: return True or False")


def _terms_after_error(terms: Terms, rule: str, error: BaseException) -> Terms:
    """Return the terms if a predicate raised: ask, at high risk, and show why."""
    reason = f"{rule} could not be evaluated: {describe_error(error)}"[:_REASON_LENGTH]
    level = max(terms.risk.level, "high", key=RISKS.index)
    risk = Risk(level, (*terms.risk.reasons, reason))
    return _separate_requester(_for_one_call(replace(terms, verdict=Verdict.ASK, risk=risk)))


def _with_failed(failed: Terms | None, terms: Terms) -> Terms:
    """Add the requirements of the rules above whose predicates raised."""
    if failed is None:
        return terms
    both = tighten(failed, terms)
    rule = failed.rule if terms.verdict is Verdict.ALLOW else both.rule
    return replace(both, rule=rule, description=terms.description or failed.description)


def _terms(rule: Rule, name: str, policy: str, own: Terms, call: ToolCall) -> Terms:
    """Return the tool's own terms, overridden by those that the rule sets."""
    changes: dict[str, Any] = {
        term: getattr(rule, term) for term in _TERM_NAMES if getattr(rule, term) is not None
    }
    if rule.effect is not None:
        # A rule can raise the effect that the tool's author declared, and never lower it.
        declared = isinstance(own, Declared) and "effect" in own.stated
        changes["effect"] = stricter_effect(own.effect, rule.effect) if declared else rule.effect
    if rule.description is not None:
        changes["description"] = _describe(rule.description, call)
    terms = replace(own, verdict=Verdict(rule.verdict), rule=name, policy=policy, **changes)
    if rule.requester_decides is not None:
        return _for_one_call(terms)
    return _separate_requester(terms if rule.risk is None else _for_one_call(terms))


def _describe(description: str | Callable[[ToolCall], str], call: ToolCall) -> str:
    if isinstance(description, str):
        return description
    try:
        said: object = description(replace(call, args=_deep_copy(call.args)))
        if inspect.iscoroutine(said):
            said.close()
        if not isinstance(said, str):
            raise TypeError("a description is a string")
    except Exception as error:  # people are asked even if the description cannot be made
        return f"(the description could not be made: {type(error).__name__})"
    return said


def _separate_requester(terms: Terms, **changes: Any) -> Terms:
    """At high risk, the requester must not decide, unless the tool says that they may."""
    stated = isinstance(terms, Declared) and "requester_decides" in terms.stated
    if not stated and RISKS.index(terms.risk.level) >= RISKS.index("high"):
        changes["requester_decides"] = False
    return _for_one_call(terms, **changes)


def _for_one_call(terms: Terms, **changes: Any) -> Terms:
    """Return plain ``Terms`` with these changes; a ``Declared`` also knows what was stated."""
    if type(terms) is Terms and not changes:
        return terms
    return Terms(**(as_fields(terms) | changes))


def _digest(rules: tuple[Rule, ...]) -> str:
    """Hash what the rules say. A function counts by its name, since it has no bytes.

    Defaults are left out, so that a policy keeps its digest when rules get new fields.
    """
    shown = [
        {
            field.name: _named(getattr(rule, field.name))
            for field in fields(rule)
            if field.init and getattr(rule, field.name) not in (field.default, (field.default,))
        }
        for rule in rules
    ]
    return hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()


def _named(value: object) -> object:
    if isinstance(value, Risk):
        return [value.level, *value.reasons]
    if not callable(value):
        return value
    value = inspect.unwrap(value)
    home = getattr(value, "__module__", "?")
    return f"{home}.{getattr(value, '__qualname__', type(value).__qualname__)}"


# --- tightening ---
#
# Edited arguments are checked against the policy again, which may only tighten. Each term has an
# order, and the stricter value applies:
#
#     verdict, quorum, assurance, risk     the higher one
#     effect                               once, then idempotent, then read
#     record                               all, then asked
#     effect_key                           the new one, or the old one if there is no new one
#     on_duplicate                         raise, then result
#     expires_in, valid_for                the shorter one
#     requester_decides                    only if both say so
#     on_expiry                            cancel, then reject
#     allowed                              what both allow; if nothing, reject
#     reviewers                            who is in both lists; an empty list means everyone
#
# Two lists of reviewers without a common name have no stricter one: a policy knows names and
# groups, not who belongs to a group. Then the new list applies, because it is for the arguments
# that would really run. The old list still had its effect: only a person in it could make the edit.
# The vote of an editor who is not in the new list does not count.
#
# ``rule`` names both rules, ``policy`` is the digest of the newer one, and ``description`` belongs
# to the new arguments; these three require nothing. Nor does ``record``: requests are always
# recorded. A new effect key requires nothing either, but people see it, so they are asked again.

_VERDICTS = (Verdict.ALLOW, Verdict.ASK, Verdict.DENY)


def tighten(old: Terms, new: Terms) -> Terms:
    """Return terms that satisfy both: for each term, the stricter value."""
    expiries = [end for end in (old.expires_in, new.expires_in) if end is not None]
    rules = dict.fromkeys((*old.rule.split(", "), *new.rule.split(", ")))
    level = max(old.risk.level, new.risk.level, key=RISKS.index)
    return Terms(
        verdict=max(old.verdict, new.verdict, key=_VERDICTS.index),
        rule=", ".join(name for name in rules if name),
        policy=new.policy,
        description=new.description,
        allowed=tuple(name for name in old.allowed if name in new.allowed) or ("reject",),
        reviewers=tuple(name for name in old.reviewers if name in new.reviewers)
        or new.reviewers
        or old.reviewers,
        quorum=max(old.quorum, new.quorum),
        requester_decides=old.requester_decides and new.requester_decides,
        assurance=max(old.assurance, new.assurance, key=ASSURANCE.index),
        risk=Risk(level, tuple(dict.fromkeys((*old.risk.reasons, *new.risk.reasons)))),
        expires_in=min(expiries, default=None),
        on_expiry="cancel" if "cancel" in (old.on_expiry, new.on_expiry) else "reject",
        valid_for=min(old.valid_for, new.valid_for),
        effect=stricter_effect(old.effect, new.effect),
        record=max(old.record, new.record, key=RECORDED.index),
        effect_key=new.effect_key or old.effect_key,
        on_duplicate=max(old.on_duplicate, new.on_duplicate, key=ON_DUPLICATE.index),
    )


def tighten_by_agent(terms: Terms, sent: Mapping[str, Any]) -> Terms:
    """Return the policy's terms, tightened by those that an agent sent; the rest is unchanged.

    Unlike a policy, an agent never chooses who reviews: a list without a common name with the
    policy's has no effect. An effect key of the policy stays; an agent may add one.
    """
    both = tighten(terms, replace(terms, **sent))
    asked = sent.get("reviewers") or ()
    shared = tuple(name for name in terms.reviewers if name in asked)
    changes: dict[str, Any] = {"reviewers": shared or terms.reviewers or asked}
    if terms.effect_key:
        changes["effect_key"] = terms.effect_key
    elif "on_duplicate" in sent:  # the agent decides what a repeat of its own key gets
        changes["on_duplicate"] = sent["on_duplicate"]
    return replace(both, **changes)


def is_stricter(old: Terms, new: Terms) -> bool:
    """Return whether the new terms require anything that the old ones did not."""
    return _requirements(tighten(old, new)) != _requirements(old)


def _requirements(terms: Terms) -> Terms:
    """Return the terms without the fields that require nothing, and with lists in one order."""
    return replace(
        terms,
        rule="",
        policy="",
        description="",
        record="all",
        effect_key="",
        on_duplicate="raise",
        risk=Risk(terms.risk.level),
        reviewers=tuple(sorted(terms.reviewers)),
        allowed=tuple(sorted(terms.allowed)),
    )


# --- explaining ---
#
# Sync predicates are really called. Async ones are not, because nothing here could await them:
# their rule counts as not matching, its step says so, and the explanation is not ``certain``.

ASYNC = "async predicate, evaluated at run time"

_DEFAULT_TERMS = Terms()


@dataclass(frozen=True, slots=True)
class Step:
    """One rule that was evaluated. Without an index, it is the tool's own ``needs_approval``."""

    rule: str
    index: int | None
    matched: bool
    why: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The terms for a call, and why each rule matched or did not."""

    terms: Terms
    steps: tuple[Step, ...]
    #: False if an async predicate was left out, so that another rule may decide at run time.
    certain: bool = True


def explain(
    policy: Policy,
    call: ToolCall,
    *,
    agent: str,
    now: datetime,
    own: Terms = _DEFAULT_TERMS,
    needs_approval: bool | Predicate = False,
) -> Explanation:
    """Judge one call as in production, and say why each rule matched or did not."""
    trace: list[Evaluated] = []
    left_out: set[int] = set()
    judging = policy.judge(
        call, agent=agent, now=now, own=own, needs_approval=needs_approval, trace=trace
    )
    try:
        predicate, args = next(judging)
        while True:
            said = _call_sync(predicate, args)
            if said is None:
                left_out.add(len(trace))  # the rule is appended after the answer was sent
            predicate, args = judging.send(False if said is None else said)
    except StopIteration as end:
        terms: Terms = end.value
    steps = []
    for at, rule in enumerate(trace):
        if at in left_out:
            why = ASYNC
        elif rule.index is not None:
            why = _why(policy.rules[rule.index], rule, call, agent, now)
        elif callable(needs_approval):
            why = _predicate_said(f"needs_approval {_name_of(needs_approval)}", rule.said)
        else:
            why = f"the tool says needs_approval={needs_approval}"
        if rule.index is None:
            steps.append(Step(rule.name, None, True, f"no rule matches; {why}"))
        else:
            steps.append(Step(rule.name, rule.index, rule.said is not False, why))
    return Explanation(terms, tuple(steps), certain=not left_out)


def _call_sync(predicate: Predicate, args: Args) -> bool | BaseException | None:
    """Return what a sync predicate returns or raises, or None if it is async."""
    if inspect.iscoroutinefunction(predicate):
        return None
    try:
        said = predicate(args)
        if not inspect.isawaitable(said):
            return _as_answer(said)
    except Exception as error:
        return error
    if inspect.iscoroutine(said):
        said.close()
    return None


def _why(rule: Rule, evaluated: Evaluated, call: ToolCall, agent: str, now: datetime) -> str:
    if evaluated.unmet == "tool":
        return f"tool {call.name!r} does not match {_any_of(rule.tool)}"
    if evaluated.unmet == "agent":
        return f"agent {agent!r} does not match {_any_of(rule.agent)}"
    if evaluated.unmet:
        local = rule.local(now)
        clock = f"{local:%H:%M} {rule.timezone}"
        if evaluated.unmet == "days":
            return f"not on {', '.join(rule.days or ())} (now {DAYS[local.weekday()]} {clock})"
        return f"outside hours {rule.hours} (now {clock})"
    if rule.when is None:
        return "every condition matches"
    if not isinstance(rule.when, Condition):
        return _predicate_said(f"when {_name_of(rule.when)}", evaluated.said)
    if isinstance(evaluated.said, BaseException):
        return _predicate_said(f"where {rule.where}", evaluated.said)
    return rule.when.say(call.args)


def _predicate_said(predicate: str, said: bool | BaseException) -> str:
    if isinstance(said, BaseException):
        return f"{predicate}: could not be evaluated, so it asks ({type(said).__name__}: {said})"
    return f"{predicate}: returned {said}"


def _any_of(globs: str | Iterable[str]) -> str:
    return " or ".join(repr(glob) for glob in globs)


def _name_of(function: Predicate) -> str:
    name: str = getattr(function, "__name__", type(function).__name__)
    return name
