"""May this call run, must we ask, is it forbidden: ordered rules, first match wins."""

from assent.policy.policy import Judging, Policy, stricter, tightened
from assent.policy.rule import Predicate, Rule, allowed_decisions, seconds

__all__ = [
    "Judging",
    "Policy",
    "Predicate",
    "Rule",
    "allowed_decisions",
    "seconds",
    "stricter",
    "tightened",
]
