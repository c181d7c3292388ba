"""``Policy``: ordered rules; the first that matches allows the call, asks, or denies it.

What happens to a call that no rule matches does not depend on whether there are rules: see
``unruled_verdict``.

``Policy.judge`` is a generator, because a predicate may be slow or async and this module has no
clock and no event loop. It yields each predicate with a copy of the arguments; send back what the
predicate returned, or the exception that it raised.

If a predicate raises, people are asked. Whether its rule matches is unknown, so the rules below it
are evaluated too and their requirements are added: unusual arguments must not bypass a stricter
rule.

``tighten`` combines the terms before and after an edit. ``explain`` judges a call and explains why
each rule matched or did not.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from sayso.errors import InvalidPolicy, describe_error
from sayso.policy.condition import Condition
from sayso.policy.limits import stricter_limits
from sayso.policy.rule import DAYS, Args, Predicate, Rule
from sayso.types import (
    ASSURANCE,
    HIGH_RISKS,
    NOTICE_TERMS,
    ON_DUPLICATE,
    OVERTURNS,
    RECORDED,
    REVIEW_TERMS,
    RISKS,
    SETTABLE_TERMS,
    Declared,
    Json,
    Risk,
    Terms,
    ToolCall,
    Verdict,
    VerdictName,
    as_fields,
    stricter_effect,
)

#: Yields a predicate and its arguments; is sent what the predicate returned or raised.
Judging: TypeAlias = Generator[tuple[Predicate, Args], object, Terms]

#: ``Terms.rule`` if no rule matched: what the tool declares decided, or the policy's default did.
NEEDS_APPROVAL = "needs_approval"
DEFAULT = "default"

#: The terms that a rule can set, each with the name of its field of the rule.
_RULE_TERMS = {
    **{name: name for name in (*SETTABLE_TERMS, *NOTICE_TERMS, *REVIEW_TERMS)},
    "notify_via": "notify",
}
_REASON_LENGTH = 500
_VERDICTS = (Verdict.ALLOW, Verdict.ASK, Verdict.DENY)


def unruled_verdict(declared: bool | None, default: Verdict | None) -> tuple[Verdict, str]:
    """Return the verdict on a call that no rule matches, and what decided: the tool or the default.

    ``declared`` is the tool's own ``needs_approval``, or None if it declares nothing: then it asks.
    A default of ``ask`` or ``deny`` tightens what any tool declares; ``allow`` loosens only tools
    that declare nothing.
    """
    own = Verdict.ALLOW if declared is False else Verdict.ASK
    if default is None:
        return own, NEEDS_APPROVAL
    if declared is None or _strictest(own, default) is not own:
        return default, DEFAULT
    return own, NEEDS_APPROVAL


def ask_despite_preset(terms: Terms) -> Terms:
    """Return the terms of a call whose tool or agent asks about it: no preset answers for it."""
    if terms.verdict is Verdict.ALLOW and terms.preset:
        return replace(terms, verdict=Verdict.ASK, rule=NEEDS_APPROVAL, preset=False)
    return terms


def _strictest(*verdicts: Verdict) -> Verdict:
    return max(verdicts, key=_VERDICTS.index)


@dataclass(frozen=True, slots=True)
class RuleResult:
    """The result of one rule. Without an index, no rule matched, and ``name`` says what decided."""

    index: int | None
    name: str
    #: The first condition that was not met: tool, agent, until, days or hours; or "".
    unmet: str
    #: Whether the rule matched, or the error of its predicate. Without an index, what the tool
    #: declares.
    answer: bool | BaseException | None


@dataclass(frozen=True, slots=True)
class Policy:
    """Ordered rules; the first match decides. If none matches, what the tool declares does.

    A tool that declares nothing asks. ``default`` changes that: ``"ask"`` and ``"deny"`` apply to
    every call that no rule matches, ``"allow"`` only to tools that declare nothing. ``digest``
    identifies the content; it is part of every request.
    """

    rules: tuple[Rule, ...] = ()
    default: Verdict | None = None
    digest: str = ""

    def __init__(
        self, rules: Iterable[Rule] = (), *, default: Verdict | VerdictName | None = None
    ) -> None:
        listed = tuple(rules) if isinstance(rules, Iterable) else (rules,)
        if isinstance(rules, Rule) or not all(isinstance(rule, Rule) for rule in listed):
            raise InvalidPolicy("pass a list of rules: Policy([Rule(...), ...])")
        if default is not None and default not in _VERDICTS:
            raise InvalidPolicy(
                f'default={default!r:.80}: use "ask", "deny" or "allow", or leave it out'
            )
        verdict = None if default is None else Verdict(default)
        object.__setattr__(self, "rules", listed)
        object.__setattr__(self, "default", verdict)
        object.__setattr__(self, "digest", _digest(listed, verdict))

    @classmethod
    def from_interrupt_on(
        cls,
        interrupt_on: Mapping[str, bool | Mapping[str, Any]],
        *,
        default: Verdict | VerdictName | None = None,
    ) -> Policy:
        """Read the mapping that LangChain's ``HumanInTheLoopMiddleware`` takes.

        It says nothing about tools that it does not name. LangChain runs those: to do the same,
        pass ``default="allow"``.
        """
        from sayso.policy.loaders import rules_from_interrupt_on

        return cls(rules_from_interrupt_on(interrupt_on), default=default)

    @classmethod
    def preset(cls, name: str) -> Policy:
        """Return a ready-made policy for coding agents: ``watch``, ``balanced`` or ``strict``."""
        from sayso.policy.loaders import preset_rules

        return cls(preset_rules(name))

    @classmethod
    def from_toml(cls, text: str) -> Policy:
        """Read the text of a policy file; docs/policies.md describes the format."""
        from sayso.policy.loaders import content_of_toml

        rules, default = content_of_toml(text)
        return cls(rules, default=default)

    def then(self, other: Policy) -> Policy:
        """Return these rules, followed by those of another policy, with the stricter default."""
        if not other.rules and other.default is None:
            return self
        defaults = [verdict for verdict in (self.default, other.default) if verdict is not None]
        default = _strictest(*defaults) if defaults else None
        return Policy((*self.rules, *other.rules), default=default)

    def how_often_asks(
        self, tool: str, *, agent: str, needs_approval: bool | Predicate | None
    ) -> Literal["always", "sometimes", "never"]:
        """Return how often calls of a tool need approval, judging by its name only."""
        verdicts: set[Verdict] = set()
        for rule in self.rules:
            if rule.concerns(tool, agent):
                allows = rule.verdict is Verdict.ALLOW
                yields = allows and rule.preset and needs_approval is True
                verdicts.add(Verdict.ASK if yields else Verdict(rule.verdict))
                if rule.is_certain:
                    break
        else:
            declared = (True, False) if callable(needs_approval) else (needs_approval,)
            verdicts |= {unruled_verdict(needs, self.default)[0] for needs in declared}
        if verdicts == {Verdict.ASK}:
            return "always"
        return "sometimes" if Verdict.ASK in verdicts else "never"

    def judge(
        self,
        call: ToolCall,
        *,
        agent: str,
        now: datetime,
        own: Terms,
        needs_approval: bool | Predicate | None = None,
        trace: list[RuleResult] | None = None,
    ) -> Judging:
        """Return the terms for one call. ``own`` are the tool's, for what no rule overrides.

        ``needs_approval`` is what the tool declares; None if it declares nothing. Each rule is
        appended to ``trace`` once it was evaluated.
        """
        failed: Terms | None = None
        for index, rule in enumerate(self.rules):
            name = rule.name or f"rule {index + 1}"
            unmet = rule.unmet(call, agent, now)
            answer: bool | BaseException = not unmet
            if answer and rule.when is not None:
                answer = _check_answer((yield rule.when, _deep_copy(call.args)))
            if trace is not None:
                trace.append(RuleResult(index, name, unmet, answer))
            if answer is True:
                return _with_failed(failed, _terms(rule, name, self.digest, own, call))
            if isinstance(answer, BaseException):
                terms = _terms(rule, name, self.digest, own, call)
                failed = _with_failed(failed, _terms_after_error(terms, name, answer))
        declared: bool | BaseException | None = None
        if callable(needs_approval):
            declared = _check_answer((yield needs_approval, _deep_copy(call.args)))
        elif needs_approval is not None:
            declared = _check_answer(needs_approval)
        if isinstance(declared, BaseException):
            verdict, name = unruled_verdict(True, self.default)
            terms = replace(own, policy=self.digest, rule=name)
            terms = replace(_terms_after_error(terms, NEEDS_APPROVAL, declared), verdict=verdict)
        else:
            verdict, name = unruled_verdict(declared, self.default)
            terms = _separate_requester(own, verdict=verdict, policy=self.digest, rule=name)
        if trace is not None:
            trace.append(RuleResult(None, name, "", declared))
        return terms if failed is None else _with_failed(failed, terms)


def _deep_copy(value: Json) -> Any:
    """Copy arguments, so that a predicate that changes them does not change the request."""
    if isinstance(value, Mapping):
        return {name: _deep_copy(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_deep_copy(item) for item in value]
    return value


def _check_answer(answer: object) -> bool | BaseException:
    """Normalize what a predicate returned; anything but a boolean is an error, so people are asked.

    ``0``, ``[]`` or ``None`` would otherwise mean "no approval needed".
    """
    if isinstance(answer, bool | BaseException):
        return answer
    if inspect.iscoroutine(answer):
        answer.close()
    if inspect.isawaitable(answer):
        return TypeError("the predicate is async and was not awaited")
    return TypeError(f"the predicate returned {type(answer).__name__}: return True or False")


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
    combined = tighten(failed, terms)
    rule = failed.rule if terms.verdict is Verdict.ALLOW else combined.rule
    return replace(combined, rule=rule, description=terms.description or failed.description)


def _terms(rule: Rule, name: str, policy: str, own: Terms, call: ToolCall) -> Terms:
    """Return the tool's own terms, overridden by those that the rule sets."""
    changes: dict[str, Any] = {
        term: getattr(rule, field)
        for term, field in _RULE_TERMS.items()
        if getattr(rule, field) is not None
    }
    if rule.effect is not None and isinstance(own, Declared) and "effect" in own.stated:
        # A rule can raise the effect that the tool's author declared, and never lower it.
        changes["effect"] = stricter_effect(own.effect, rule.effect)
    if rule.effect is not None:
        changes["declared"] = True
    if rule.risk is not None:
        changes["risk_declared"] = True
    if rule.limits is not None:
        changes["limits"] = rule.bound_limits
    if rule.description is not None:
        changes["description"] = _describe(rule.description, call)
    changes |= {"verdict": Verdict(rule.verdict), "rule": name, "preset": rule.preset}
    terms = replace(own, policy=policy, **changes)
    if rule.requester_decides is not None:
        return _for_one_call(terms)
    return _separate_requester(terms if rule.risk is None else _for_one_call(terms))


def _describe(description: str | Callable[[ToolCall], str], call: ToolCall) -> str:
    if isinstance(description, str):
        return description
    try:
        text: object = description(replace(call, args=_deep_copy(call.args)))
        if inspect.iscoroutine(text):
            text.close()
        if not isinstance(text, str):
            raise TypeError("a description is a string")
    except Exception as error:  # people are asked even if the description cannot be made
        return f"(the description could not be made: {type(error).__name__})"
    return text


def _separate_requester(terms: Terms, **changes: Any) -> Terms:
    """At high risk, the requester must not decide, unless the tool declares that they may."""
    stated = isinstance(terms, Declared) and "requester_decides" in terms.stated
    if not stated and terms.risk.level in HIGH_RISKS:
        changes["requester_decides"] = False
    return _for_one_call(terms, **changes)


@lru_cache(maxsize=256)
def _for_one_call(terms: Terms, **changes: Any) -> Terms:
    """Return plain ``Terms`` with these changes; a ``Declared`` also knows what was stated."""
    if type(terms) is Terms and not changes:
        return terms
    return Terms(**(as_fields(terms) | changes))


def _digest(rules: tuple[Rule, ...], default: Verdict | None) -> str:
    """Hash the default and the content of the rules. A function is hashed by its name.

    Defaults are left out, so that a policy keeps its digest when rules get new fields.
    """
    content: list[Any] = [] if default is None else [default]
    content += [
        {
            field.name: _named(getattr(rule, field.name))
            for field in fields(rule)
            if field.init and getattr(rule, field.name) not in (field.default, (field.default,))
        }
        for rule in rules
    ]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


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
#     overturn                             rejecter, then anyone
#     max_rejections                       the lower one
#     limits                               those of both; for the same count, the lower one
#     expires_in, valid_for, fresh         the shorter one
#     requester_decides                    only if both allow it
#     on_expiry                            cancel, then reject
#     allowed                              what both allow; if nothing, reject
#     reviewers                            those in both lists; an empty list means everyone
#     escalate_to                          those in both lists; an empty list means nobody
#     escalate_after                       the longer one
#     remind_after, notify_via             the shorter one; both lists
#     reviewer                             the same one, or none
#     reviewer_allows                      only if both say so, of the same reviewer
#
# Two lists of reviewers without a common name have no stricter one: a policy knows names and
# groups, not who belongs to a group. Then the new list applies, because it is for the arguments
# that would really run. The old list still had its effect: only a person in it could make the edit.
# The vote of an editor who is not in the new list does not count. Two lists of people to escalate
# to are treated alike.
#
# ``rule`` names both rules, ``policy`` is the digest of the newer one, and ``description`` and
# ``footprint`` belong to the new arguments; these four require nothing. Nor does ``record``:
# requests are always recorded; nor ``declared`` and ``preset``, which say who chose the effect and
# the verdict; nor
# ``max_rejections``, which is about the next call; nor ``limits`` and the reviewer, which are about
# calls that no person decides (``raised_terms``). A new effect key requires nothing either, but
# people see it, so they are asked again.


def tighten(old: Terms, new: Terms) -> Terms:
    """Return terms that satisfy both: for each term, the stricter value."""
    expiries = [end for end in (old.expires_in, new.expires_in) if end is not None]
    sign_in_ages = [age for age in (old.fresh, new.fresh) if age is not None]
    limits = [most for most in (old.max_rejections, new.max_rejections) if most is not None]
    reminders = [after for after in (old.remind_after, new.remind_after) if after is not None]
    escalations = [a for a in (old.escalate_after, new.escalate_after) if a is not None]
    escalate_to = tuple(name for name in old.escalate_to if name in new.escalate_to)
    if old.escalate_to and not escalate_to:
        escalate_to = new.escalate_to
    rules = dict.fromkeys((*old.rule.split(", "), *new.rule.split(", ")))
    reviewer = old.reviewer if old.reviewer == new.reviewer else ""
    level = max(old.risk.level, new.risk.level, key=RISKS.index)
    return Terms(
        verdict=_strictest(old.verdict, new.verdict),
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
        fresh=min(sign_in_ages, default=None),
        risk=Risk(level, tuple(dict.fromkeys((*old.risk.reasons, *new.risk.reasons)))),
        expires_in=min(expiries, default=None),
        on_expiry="cancel" if "cancel" in (old.on_expiry, new.on_expiry) else "reject",
        valid_for=min(old.valid_for, new.valid_for),
        effect=stricter_effect(old.effect, new.effect),
        declared=old.declared or new.declared,
        risk_declared=old.risk_declared or new.risk_declared,
        record=max(old.record, new.record, key=RECORDED.index),
        effect_key=new.effect_key or old.effect_key,
        on_duplicate=max(old.on_duplicate, new.on_duplicate, key=ON_DUPLICATE.index),
        overturn=max(old.overturn, new.overturn, key=OVERTURNS.index),
        max_rejections=min(limits, default=None),
        footprint=new.footprint,
        preset=old.preset or new.preset,
        limits=stricter_limits(old.limits, new.limits),
        observed=old.observed,
        plan=old.plan,
        reviewer=reviewer,
        reviewer_allows=bool(reviewer) and old.reviewer_allows and new.reviewer_allows,
        opinion=old.opinion,
        notify=old.notify,
        notify_via=tuple(dict.fromkeys((*old.notify_via, *new.notify_via))),
        remind_after=min(reminders, default=None),
        escalate_after=max(escalations) if escalate_to else None,
        escalate_to=escalate_to,
    )


def tighten_by_agent(terms: Terms, sent: Mapping[str, Any]) -> Terms:
    """Return the policy's terms, tightened by those that an agent sent; the rest is unchanged.

    Unlike a policy, an agent never chooses who reviews: its reviewers are only whom it suggests to
    notify. An effect key of the policy stays; an agent may add one.
    """
    combined = tighten(terms, replace(terms, **sent))
    changes: dict[str, Any] = {"reviewers": terms.reviewers}
    if "reviewers" in sent:
        changes["notify"] = sent["reviewers"]
    if "effect" in sent:
        changes["declared"] = True
    if terms.effect_key:
        changes["effect_key"] = terms.effect_key
    elif "on_duplicate" in sent:  # the agent decides what a repeat of its own key gets
        changes["on_duplicate"] = sent["on_duplicate"]
    return replace(combined, **changes)


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
        declared=False,
        risk_declared=False,
        preset=False,
        record="all",
        effect_key="",
        on_duplicate="raise",
        max_rejections=None,
        footprint="",
        limits=(),
        observed=(),
        reviewer="",
        reviewer_allows=False,
        opinion=(),
        notify=(),
        notify_via=(),
        remind_after=None,
        escalate_after=None,
        escalate_to=tuple(sorted(terms.escalate_to)),
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
    """One rule that was evaluated. Without an index, no rule matched, and ``rule`` names what
    decided: ``needs_approval`` or ``default``."""

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
    needs_approval: bool | Predicate | None = None,
) -> Explanation:
    """Judge a call as in production, and explain why each rule matched or did not.

    ``needs_approval`` is what the tool declares; None if it declares nothing.
    """
    trace: list[RuleResult] = []
    judging = policy.judge(
        call, agent=agent, now=now, own=own, needs_approval=needs_approval, trace=trace
    )
    terms, skipped = judge_sync(judging, trace)
    steps = []
    for at, result in enumerate(trace):
        if result.index is None:
            why = ASYNC if at in skipped else _why_unruled(policy, result, needs_approval)
            steps.append(Step(result.name, None, True, f"no rule matches; {why}"))
        else:
            rule = policy.rules[result.index]
            why = ASYNC if at in skipped else _why(rule, result, call, agent, now)
            steps.append(Step(result.name, result.index, result.answer is not False, why))
    return Explanation(terms, tuple(steps), certain=not skipped)


def judge_sync(judging: Judging, trace: Sequence[RuleResult] = ()) -> tuple[Terms, set[int]]:
    """Return the terms that a policy makes, and where in ``trace`` async predicates were left out.

    A rule whose predicate is async counts as not matching.
    """
    skipped: set[int] = set()
    try:
        predicate, args = next(judging)
        while True:
            answer = _call_sync(predicate, args)
            if answer is None:
                skipped.add(len(trace))  # the rule is appended after the answer was sent
            predicate, args = judging.send(False if answer is None else answer)
    except StopIteration as end:
        terms: Terms = end.value
    return terms, skipped


def _call_sync(predicate: Predicate, args: Args) -> bool | BaseException | None:
    """Return what a sync predicate returns or raises, or None if it is async."""
    if inspect.iscoroutinefunction(predicate):
        return None
    try:
        answer = predicate(args)
        if not inspect.isawaitable(answer):
            return _check_answer(answer)
    except Exception as error:
        return error
    if inspect.iscoroutine(answer):
        answer.close()
    return None


def _why(rule: Rule, result: RuleResult, call: ToolCall, agent: str, now: datetime) -> str:
    if result.unmet == "tool":
        return f"tool {call.name!r} does not match {_any_of(rule.tool)}"
    if result.unmet == "agent":
        return f"agent {agent!r} does not match {_any_of(rule.agent)}"
    if result.unmet:
        local = rule.local(now)
        clock = f"{local:%H:%M} {rule.timezone}"
        if result.unmet == "until":
            return f"it ended at {rule.until} (now {local:%Y-%m-%d %H:%M} {rule.timezone})"
        if result.unmet == "days":
            return f"not on {', '.join(rule.days or ())} (now {DAYS[local.weekday()]} {clock})"
        return f"outside hours {rule.hours} (now {clock})"
    if rule.when is None:
        return "every condition matches"
    if not isinstance(rule.when, Condition):
        return _predicate_result(f"when {_function_name(rule.when)}", result.answer)
    if isinstance(result.answer, BaseException):
        return _predicate_result(f"where {rule.where}", result.answer)
    return rule.when.explain(call.args)


def _why_unruled(
    policy: Policy, result: RuleResult, needs_approval: bool | Predicate | None
) -> str:
    if result.name == DEFAULT:
        return f"the policy's default is {policy.default}"
    if callable(needs_approval):
        return _predicate_result(f"needs_approval {_function_name(needs_approval)}", result.answer)
    if needs_approval is None:
        return "the tool declares nothing, so it asks"
    return f"the tool says needs_approval={needs_approval}"


def _predicate_result(predicate: str, answer: bool | BaseException | None) -> str:
    if isinstance(answer, BaseException):
        return (
            f"{predicate}: could not be evaluated, so it asks ({type(answer).__name__}: {answer})"
        )
    return f"{predicate}: returned {answer}"


def _any_of(globs: str | Iterable[str]) -> str:
    return " or ".join(repr(glob) for glob in globs)


def _function_name(function: Predicate) -> str:
    name: str = getattr(function, "__name__", type(function).__name__)
    return name
