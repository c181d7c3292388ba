"""May this call run, must we ask, is it forbidden: ordered rules, first match wins."""

from sayso.policy.explain import Explanation, Step, explain
from sayso.policy.policy import Heard, Judging, Policy
from sayso.policy.rule import Predicate, Rule, seconds
from sayso.policy.tighten import stricter, tightened, tightened_by_agent

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
    "tightened_by_agent",
]
