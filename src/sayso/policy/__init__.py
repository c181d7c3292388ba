"""Policies: ordered rules that allow a call, require approval for it, or deny it.

Read ``rule`` (what a rule matches and requires) and ``policy`` (judge a call, tighten, explain).
``condition`` parses the ``where`` of a rule, ``template`` fills in effect keys and titles, and
``loaders`` reads rules from TOML and from LangChain's ``interrupt_on``.
"""

from sayso.policy.limits import parse_duration
from sayso.policy.policy import (
    Explanation,
    Judging,
    Policy,
    Step,
    ask_despite_preset,
    explain,
    is_stricter,
    judge_sync,
    tighten,
    tighten_by_agent,
)
from sayso.policy.rule import Predicate, Rule

__all__ = [
    "Explanation",
    "Judging",
    "Policy",
    "Predicate",
    "Rule",
    "Step",
    "ask_despite_preset",
    "explain",
    "is_stricter",
    "judge_sync",
    "parse_duration",
    "tighten",
    "tighten_by_agent",
]
