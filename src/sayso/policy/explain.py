"""Why a call met the rule that it met: the same judging as in production, with a trace.

Sync predicates are really asked. An async one has nobody here to await it; its rule counts as not
fitting, its step says so, and the explanation is not ``certain``.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sayso.policy.condition import Condition
from sayso.policy.policy import Heard, Policy, fresh, meant
from sayso.policy.rule import DAYS, Args, Predicate, Rule
from sayso.types import Terms, ToolCall

ASYNC = "async predicate, evaluated at run time"

_PLAIN = Terms()


@dataclass(frozen=True, slots=True)
class Step:
    """One rule that was looked at; without an index it is the tool's own declaration."""

    rule: str
    index: int | None
    matched: bool
    why: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The terms for a call, and how each rule that was looked at came to matter or not."""

    terms: Terms
    steps: tuple[Step, ...]
    #: False if an async predicate was left out, so that another rule may decide at run time.
    certain: bool = True


@dataclass(frozen=True, slots=True)
class _Case:
    policy: Policy
    call: ToolCall
    agent: str
    now: datetime
    needs_approval: bool | Predicate


def explain(
    policy: Policy,
    call: ToolCall,
    *,
    agent: str,
    now: datetime,
    own: Terms = _PLAIN,
    needs_approval: bool | Predicate = False,
) -> Explanation:
    """Judge one call, and say of each rule why it fits or does not."""
    trace: list[Heard] = []
    left_out: set[int] = set()
    judging = policy.judge(
        call, agent=agent, now=now, own=own, needs_approval=needs_approval, trace=trace
    )
    try:
        predicate, args = next(judging)
        while True:
            said = _ask(predicate, args)
            if said is None:
                left_out.add(len(trace))  # the trace grows when the answer has been heard
            predicate, args = judging.send(False if said is None else said)
    except StopIteration as end:
        terms: Terms = end.value
    case = _Case(policy, call, agent, now, needs_approval)
    steps = (_step(case, heard, at in left_out) for at, heard in enumerate(trace))
    return Explanation(terms, tuple(steps), certain=not left_out)


def _ask(predicate: Predicate, args: Args) -> bool | BaseException | None:
    """What a sync predicate says or raises; None of an async one."""
    if inspect.iscoroutinefunction(predicate):
        return None
    try:
        said = predicate(args)
        if not inspect.isawaitable(said):
            return meant(said)
    except Exception as error:
        return error
    if inspect.iscoroutine(said):
        said.close()
    return None


def _step(case: _Case, heard: Heard, left_out: bool) -> Step:
    if heard.index is None:
        why = ASYNC if left_out else _by_tool(heard, case.needs_approval)
        return Step(heard.name, None, True, f"no rule settles it; {why}")
    why = ASYNC if left_out else _by_rule(case.policy.rules[heard.index], heard, case)
    return Step(heard.name, heard.index, heard.said is not False, why)


def _by_tool(heard: Heard, needs_approval: bool | Predicate) -> str:
    if callable(needs_approval):
        return _said(f"needs_approval {_called(needs_approval)}", heard.said)
    return f"the tool says needs_approval={needs_approval}"


def _by_rule(rule: Rule, heard: Heard, case: _Case) -> str:
    if heard.unmet:
        return _misfit(rule, heard.unmet, case)
    if rule.when is None:
        return "every condition fits"
    if not isinstance(rule.when, Condition):
        return _said(f"when {_called(rule.when)}", heard.said)
    if isinstance(heard.said, BaseException):
        return _said(f"where {rule.where}", heard.said)
    return rule.when.say(fresh(case.call.args))


def _said(asked: str, said: bool | BaseException) -> str:
    if isinstance(said, BaseException):
        return f"{asked}: could not be evaluated, so it asks ({type(said).__name__}: {said})"
    return f"{asked}: says {'yes' if said else 'no'}"


def _misfit(rule: Rule, unmet: str, case: _Case) -> str:
    if unmet == "tool":
        return f"tool {case.call.name!r} does not match {_listed(rule.tool)}"
    if unmet == "agent":
        return f"agent {case.agent!r} does not match {_listed(rule.agent)}"
    local = rule.local(case.now)
    clock = f"{local:%H:%M} {rule.timezone}"
    if unmet == "days":
        return f"not on {', '.join(rule.days or ())} (now {DAYS[local.weekday()]} {clock})"
    return f"outside hours {rule.hours} (now {clock})"


def _listed(globs: str | Iterable[str]) -> str:
    return " or ".join(repr(glob) for glob in globs)


def _called(function: Predicate) -> str:
    name: str = getattr(function, "__name__", type(function).__name__)
    return name
