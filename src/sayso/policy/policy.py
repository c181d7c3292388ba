"""Ordered rules, first match wins: may this call run, must we ask, is it forbidden.

Judging is a generator, because a rule's predicate may be slow or async and this module knows no
clock and no event loop: it yields each predicate with a fresh copy of the arguments, and is sent
back what the predicate said, or the exception that it raised.

A rule that raises asks. It cannot say whether it meant the call, so the rules below it are heard as
well, and what they demand is added: odd arguments must not lead round a stricter rule.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from datetime import datetime
from typing import Any, Literal, TypeAlias

from sayso.errors import InvalidPolicy, told
from sayso.policy.rule import Args, Predicate, Rule
from sayso.policy.tighten import tightened
from sayso.types import (
    RISKS,
    Declared,
    Effect,
    Json,
    Risk,
    Terms,
    ToolCall,
    Verdict,
    as_fields,
    stricter_effect,
)

#: What judging yields (a predicate, its arguments) and is sent back (its answer or exception).
Judging: TypeAlias = Generator[tuple[Predicate, Args], object, Terms]

#: The name under which a tool's own declaration stands where no rule fits.
OWN = "needs_approval"

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
class Heard:
    """One rule as judging met it; without an index it is the tool's own declaration."""

    index: int | None
    name: str
    unmet: str
    said: bool | BaseException


@dataclass(frozen=True, slots=True)
class Policy:
    """Ordered rules; the first that fits decides. Where none fits, the tool's declaration does."""

    rules: tuple[Rule, ...] = ()
    digest: str = ""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        listed = tuple(rules) if isinstance(rules, Iterable) else (rules,)
        if isinstance(rules, Rule) or not all(isinstance(rule, Rule) for rule in listed):
            raise InvalidPolicy("a policy is made of a list of rules: Policy([Rule(...), ...])")
        object.__setattr__(self, "rules", listed)
        object.__setattr__(self, "digest", _digest(listed))

    @classmethod
    def from_interrupt_on(cls, interrupt_on: Mapping[str, bool | Mapping[str, Any]]) -> Policy:
        """Read the mapping that LangChain's HumanInTheLoopMiddleware takes."""
        from sayso.policy.interrupt_on import rules_from_interrupt_on

        return cls(rules_from_interrupt_on(interrupt_on))

    @classmethod
    def from_toml(cls, text: str) -> Policy:
        """Read a policy file's text; what it may hold is in docs/policies.md."""
        from sayso.policy.toml import rules_from_toml

        return cls(rules_from_toml(text))

    def foresee(
        self, tool: str, *, agent: str, needs_approval: bool | Predicate = False
    ) -> Literal["always", "sometimes", "never"]:
        """Whether people are asked about a tool's calls, as far as its name can tell."""
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
        trace: list[Heard] | None = None,
    ) -> Judging:
        """The terms for one call. ``own`` are the tool's, and hold where no rule says otherwise.

        Each rule that was looked at is added to ``trace``, before the next one is.
        """
        failed: Terms | None = None
        for index, rule in enumerate(self.rules):
            name, unmet = rule.name or f"rule {index + 1}", rule.unmet(call, agent, now)
            said: bool | BaseException = not unmet
            if said and rule.when is not None:
                said = meant((yield rule.when, fresh(call.args)))
            if trace is not None:
                trace.append(Heard(index, name, unmet, said))
            if said is True:
                return _with(failed, terms_of(rule, name, self.digest, own, call))
            if isinstance(said, BaseException):
                terms = terms_of(rule, name, self.digest, own, call)
                failed = _with(failed, _failed(terms, name, said))
        if callable(needs_approval):
            said = meant((yield needs_approval, fresh(call.args)))
        else:
            said = meant(needs_approval)
        if trace is not None:
            trace.append(Heard(None, OWN, "", said))
        return _with(failed, _by_tool(own, self.digest, said))


def fresh(args: Mapping[str, Json]) -> Args:
    """A copy down to the leaves: who changes it changes nothing of what is asked about."""
    return {name: _copied(value) for name, value in args.items()}


def _copied(value: Json) -> Json:
    if isinstance(value, Mapping):
        return {name: _copied(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_copied(item) for item in value]
    return value


def meant(said: object) -> bool | BaseException:
    """Normalize what a predicate returned; anything but a boolean is an error, so that it asks.

    ``0``, ``[]`` or ``None`` would otherwise pass for "no approval needed".
    """
    if isinstance(said, bool | BaseException):
        return said
    if inspect.iscoroutine(said):
        said.close()
    if inspect.isawaitable(said):
        return TypeError("the predicate is async, and was not awaited")
    return TypeError(f"the predicate returned {type(said).__name__}: return True or False")


def _by_tool(own: Terms, policy: str, said: bool | BaseException) -> Terms:
    if isinstance(said, BaseException):
        return _failed(replace(own, policy=policy, rule=OWN), OWN, said)
    verdict = Verdict.ASK if said else Verdict.ALLOW
    return _guarded(own, policy=policy, rule=OWN, verdict=verdict)


def _failed(terms: Terms, rule: str, error: BaseException) -> Terms:
    """A rule that cannot say no must not say yes: ask, and show why."""
    reason = f"{rule} could not be evaluated: {told(error)}"[:_REASON_LENGTH]
    level = max(terms.risk.level, "high", key=RISKS.index)
    risk = Risk(level, (*terms.risk.reasons, reason))
    return _guarded(_plain(replace(terms, verdict=Verdict.ASK, risk=risk)))


def _with(failed: Terms | None, terms: Terms) -> Terms:
    """The terms, and those of the rules above that raised."""
    if failed is None:
        return terms
    both = tightened(failed, terms)
    rule = failed.rule if terms.verdict is Verdict.ALLOW else both.rule
    return replace(both, rule=rule, description=terms.description or failed.description)


def terms_of(rule: Rule, name: str, policy: str, own: Terms, call: ToolCall) -> Terms:
    """The tool's own terms, overridden where the rule says something."""
    changes: dict[str, Any] = {
        term: getattr(rule, term) for term in _TERM_NAMES if getattr(rule, term) is not None
    }
    if rule.effect is not None:
        changes["effect"] = _effect(own, rule.effect)
    if rule.description is not None:
        changes["description"] = _described(rule.description, call)
    terms = replace(own, verdict=Verdict(rule.verdict), rule=name, policy=policy, **changes)
    if rule.requester_decides is not None:
        return _plain(terms)
    return _guarded(terms if rule.risk is None else _plain(terms))


def _effect(own: Terms, by_rule: Effect) -> Effect:
    """What a tool's author declared, raised by a rule; where the author is silent, the rule's."""
    if isinstance(own, Declared) and "effect" in own.stated:
        return stricter_effect(own.effect, by_rule)
    return by_rule


def _described(description: str | Callable[[ToolCall], str], call: ToolCall) -> str:
    if isinstance(description, str):
        return description
    try:
        said: object = description(replace(call, args=fresh(call.args)))
        if inspect.iscoroutine(said):
            said.close()
        if not isinstance(said, str):
            raise TypeError("a description is a text")
    except Exception as error:  # a description never stands in the way of asking
        return f"(the description could not be made: {type(error).__name__})"
    return said


def _guarded(terms: Terms, **changes: Any) -> Terms:
    """Who asks for something of high risk does not decide it, unless it is said that they may."""
    stated = isinstance(terms, Declared) and "requester_decides" in terms.stated
    if not stated and RISKS.index(terms.risk.level) >= RISKS.index("high"):
        changes["requester_decides"] = False
    return _plain(terms, **changes)


def _plain(terms: Terms, **changes: Any) -> Terms:
    """The same terms, as those of one call, with some changes."""
    if type(terms) is Terms and not changes:
        return terms
    return Terms(**(as_fields(terms) | changes))


def _digest(rules: tuple[Rule, ...]) -> str:
    """What the policy says, as a hash; a function counts by its name, since it has no bytes.

    What is left at its default is left out, so that a rule keeps its digest when rules learn more.
    """
    shown = [
        {
            field.name: _named(getattr(rule, field.name))
            for field in fields(rule)
            if field.init and not _is_default(getattr(rule, field.name), field.default)
        }
        for rule in rules
    ]
    return hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()


def _is_default(value: object, default: object) -> bool:
    return default is not MISSING and value in (default, (default,))


def _named(value: object) -> object:
    if isinstance(value, Risk):
        return [value.level, *value.reasons]
    if not callable(value):
        return value
    value = inspect.unwrap(value)
    home = getattr(value, "__module__", "?")
    return f"{home}.{getattr(value, '__qualname__', type(value).__qualname__)}"
