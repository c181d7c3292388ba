"""May this call run, must we ask, is it forbidden: ordered rules, first match wins."""

from assent.policy.explain import Explanation, Step, explain
from assent.policy.policy import Heard, Judging, Policy
from assent.policy.rule import Predicate, Rule, seconds
from assent.policy.tighten import stricter, tightened

__all__ = [
    "Explanation",
    "Heard",
    "Judging",
    "Policy",
    "Predicate",
    "Rule",
    "Step",
    "explain",
    "seconds",
    "stricter",
    "tightened",
]
