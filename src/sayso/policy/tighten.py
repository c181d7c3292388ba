"""What holds after an edit: the old terms and the new ones at once.

The edited arguments are put to the policy again, and it may only tighten. Each term has an order,
and the stricter end of it wins:

    verdict, quorum, assurance, risk     the higher one
    effect                               once before idempotent before read
    record                               all before asked
    effect_key                           the new one, or the old one where there is none
    on_duplicate                         raise before result
    expires_in, valid_for                the shorter one
    requester_decides                    only if both say so
    on_expiry                            cancel before reject
    allowed                              what both allow; if that is nothing, reject
    reviewers                            who stands in both lists; an empty list is everybody

Two lists of reviewers that share no name have no stricter end: a policy knows names and groups, not
who is in them. Then the new list holds, because it is the policy's word on what would really run.
The old list is not passed over: only somebody in it could make the edit. The vote of an editor who
is not in the new list must not count.

``rule`` names both rules, ``policy`` is the digest of the one that looked last, and ``description``
tells of the new arguments; none of the three is a demand. Nor is ``record``: what people were asked
about is always recorded. A key that changed is no demand either, but what people see, so that they
are asked again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sayso.types import (
    ASSURANCE,
    ON_DUPLICATE,
    RECORDED,
    RISKS,
    Risk,
    Terms,
    Verdict,
    stricter_effect,
)

_VERDICTS = (Verdict.ALLOW, Verdict.ASK, Verdict.DENY)


def tightened(old: Terms, new: Terms) -> Terms:
    """Both terms at once: after an edit the policy may only demand more than before."""
    return Terms(
        verdict=max(old.verdict, new.verdict, key=_VERDICTS.index),
        rule=_both_rules(old.rule, new.rule),
        policy=new.policy,
        description=new.description,
        allowed=tuple(name for name in old.allowed if name in new.allowed) or ("reject",),
        reviewers=_shared(old.reviewers, new.reviewers),
        quorum=max(old.quorum, new.quorum),
        requester_decides=old.requester_decides and new.requester_decides,
        assurance=max(old.assurance, new.assurance, key=ASSURANCE.index),
        risk=_worse(old.risk, new.risk),
        expires_in=_sooner(old.expires_in, new.expires_in),
        on_expiry="cancel" if "cancel" in (old.on_expiry, new.on_expiry) else "reject",
        valid_for=min(old.valid_for, new.valid_for),
        effect=stricter_effect(old.effect, new.effect),
        record=max(old.record, new.record, key=RECORDED.index),
        effect_key=new.effect_key or old.effect_key,
        on_duplicate=max(old.on_duplicate, new.on_duplicate, key=ON_DUPLICATE.index),
    )


def tightened_by_agent(terms: Terms, sent: Mapping[str, Any]) -> Terms:
    """Return the policy's terms, tightened by those that an agent sent; the rest is unchanged.

    Unlike a policy, an agent never chooses who reviews: a list that shares no name with the
    policy's counts for nothing. An effect key of the policy holds; an agent may add one.
    """
    both = tightened(terms, replace(terms, **sent))
    asked = sent.get("reviewers") or ()
    shared = tuple(name for name in terms.reviewers if name in asked)
    changes: dict[str, Any] = {"reviewers": shared or terms.reviewers or asked}
    if terms.effect_key:
        changes["effect_key"] = terms.effect_key
    elif "on_duplicate" in sent:  # what a repeat of the agent's own key gets is its own business
        changes["on_duplicate"] = sent["on_duplicate"]
    return replace(both, **changes)


def stricter(old: Terms, new: Terms) -> bool:
    """Whether the new terms demand anything that the old ones did not."""
    return _demands(tightened(old, new)) != _demands(old)


def _demands(terms: Terms) -> Terms:
    """The terms without their words, and without an order where order means nothing."""
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


def _both_rules(old: str, new: str) -> str:
    both = dict.fromkeys((*old.split(", "), *new.split(", ")))
    return ", ".join(name for name in both if name)


def _shared(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    if not old or not new:
        return old or new
    return tuple(name for name in old if name in new) or new


def _worse(old: Risk, new: Risk) -> Risk:
    level = max(old.level, new.level, key=RISKS.index)
    return Risk(level, tuple(dict.fromkeys((*old.reasons, *new.reasons))))


def _sooner(old: float | None, new: float | None) -> float | None:
    ends = [end for end in (old, new) if end is not None]
    return min(ends, default=None)
