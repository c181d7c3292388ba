"""After an edit, terms can only become stricter."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from policy_world import ALLOW, ASK, DENY

from sayso.policy import is_stricter, tighten, tighten_by_agent
from sayso.types import (
    ASSURANCE,
    DECISIONS,
    EFFECTS,
    NOTICE_TERMS,
    ON_DUPLICATE,
    RECORDED,
    RISKS,
    Risk,
    Terms,
    Verdict,
)


def subset(values: tuple[str, ...]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.sets(st.sampled_from(values)).map(lambda s: tuple(v for v in values if v in s))


some_terms = st.builds(
    Terms,
    verdict=st.sampled_from(list(Verdict)),
    rule=st.sampled_from(["", "a", "b", "a, b", "rule 3"]),
    policy=st.sampled_from(["p1", "p2"]),
    allowed=subset(DECISIONS).filter(bool),
    description=st.sampled_from(["", "old words", "new words"]),
    reviewers=st.lists(st.sampled_from(["ana", "bob", "group:x", "group:y"]), unique=True).map(
        tuple
    ),
    quorum=st.integers(1, 4),
    requester_decides=st.booleans(),
    assurance=st.sampled_from(ASSURANCE),
    fresh=st.none() | st.floats(1, 1e6),
    risk=st.builds(Risk, st.sampled_from(RISKS), subset(("r1", "r2", "r3"))),
    expires_in=st.none() | st.floats(1, 1e6),
    on_expiry=st.sampled_from(["reject", "cancel"]),
    valid_for=st.floats(1, 1e6),
    effect=st.sampled_from(EFFECTS),
    record=st.sampled_from(RECORDED),
    notify_via=subset(("push", "slack:#ops")),
    remind_after=st.none() | st.floats(1, 1e6),
    escalate_after=st.floats(1, 1e6),
    escalate_to=st.just(("group:z",)),
)
ORDER = (ALLOW, ASK, DENY)


def may_decide(terms: Terms, names: set[str]) -> bool:
    """Return whether a person with these names (their own and their groups') is a reviewer."""
    return not terms.reviewers or bool(names & set(terms.reviewers))


def at_least(strict: Terms, lax: Terms) -> None:
    """Check that ``strict`` requires everything that ``lax`` does, except for reviewers."""
    assert ORDER.index(strict.verdict) >= ORDER.index(lax.verdict)
    assert strict.quorum >= lax.quorum
    assert ASSURANCE.index(strict.assurance) >= ASSURANCE.index(lax.assurance)
    assert (strict.fresh or math.inf) <= (lax.fresh or math.inf)
    assert RISKS.index(strict.risk.level) >= RISKS.index(lax.risk.level)
    assert set(strict.risk.reasons) >= set(lax.risk.reasons)
    assert strict.requester_decides <= lax.requester_decides
    assert EFFECTS.index(strict.effect) >= EFFECTS.index(lax.effect)
    assert RECORDED.index(strict.record) >= RECORDED.index(lax.record)
    assert set(strict.allowed) - {"reject"} <= set(lax.allowed)
    assert strict.allowed
    assert (strict.expires_in or 1e9) <= (lax.expires_in or 1e9)
    assert strict.valid_for <= lax.valid_for
    assert (strict.on_expiry == "cancel") >= (lax.on_expiry == "cancel")


@given(some_terms, some_terms)
@example(Terms(allowed=("approve",)), Terms(allowed=("respond",)))
def test_tightened_is_never_laxer_than_either(old: Terms, new: Terms) -> None:
    both = tighten(old, new)
    at_least(both, old)
    at_least(both, new)


@given(
    some_terms, some_terms, st.sets(st.sampled_from(["ana", "bob", "cyd", "group:x", "group:y"]))
)
def test_tightened_reviewers_are_in_both_lists(old: Terms, new: Terms, names: set[str]) -> None:
    both = tighten(old, new)
    disjoint = old.reviewers and new.reviewers and not set(old.reviewers) & set(new.reviewers)
    if may_decide(both, names):
        assert may_decide(new, names)
        assert may_decide(old, names) or disjoint
    assert bool(both.reviewers) == bool(old.reviewers or new.reviewers)


@given(some_terms, some_terms)
def test_tightening_is_idempotent(old: Terms, new: Terms) -> None:
    both = tighten(old, new)
    assert tighten(both, new) == both
    assert tighten(both, both) == both
    # Only the order of names tells old from new, and only where a description does.
    again = tighten(old, both)
    assert not is_stricter(both, again)
    assert not is_stricter(again, both)


@given(some_terms)
def test_same_terms_are_not_stricter(terms: Terms) -> None:
    assert tighten(terms, terms) == terms
    assert not is_stricter(terms, terms)
    words = replace(terms, rule="other", policy="p9", description="other words")
    assert not is_stricter(terms, replace(words, reviewers=terms.reviewers[::-1]))


@given(some_terms, some_terms)
def test_is_stricter_matches_changed_demands(old: Terms, new: Terms) -> None:
    both = tighten(old, new)
    assert is_stricter(old, new) == is_stricter(old, both)
    assert not is_stricter(both, new)
    if not is_stricter(old, new):
        at_least(old, replace(new, risk=Risk(new.risk.level), record=old.record))


@pytest.mark.parametrize(
    "change",
    [
        {"verdict": DENY},
        {"allowed": ("approve",)},
        {"reviewers": ("ana",)},
        {"quorum": 2},
        {"requester_decides": False},
        {"assurance": "token"},
        {"fresh": 300.0},
        {"risk": Risk("medium")},
        {"expires_in": 60.0},
        {"on_expiry": "cancel"},
        {"valid_for": 60.0},
        {"effect": "once"},
        {"effect": "idempotent"},
    ],
)
def test_added_demand_cannot_be_removed(change: dict[str, Any]) -> None:
    lax = Terms(effect="read")
    strict = replace(lax, **change)
    assert is_stricter(lax, strict)
    assert not is_stricter(strict, lax)
    assert tighten(lax, strict) == tighten(strict, lax) == strict


def test_tightening_uses_the_new_description() -> None:
    old = Terms(rule="small", policy="p1", description="pay 5", risk=Risk("low", ("r1",)))
    new = Terms(rule="large", policy="p2", description="pay 500", risk=Risk("low", ("r2",)))
    both = tighten(old, new)
    assert (both.rule, both.policy, both.description) == ("small, large", "p2", "pay 500")
    assert both.risk.reasons == ("r1", "r2")
    assert not is_stricter(old, both)


@pytest.mark.parametrize(
    ("old", "new", "both"),
    [
        ((), (), ()),
        ((), ("ana",), ("ana",)),
        (("ana",), (), ("ana",)),
        (("ana", "bob"), ("bob", "cyd"), ("bob",)),
        (("ana", "bob"), ("bob", "ana"), ("ana", "bob")),
        (("group:x",), ("group:y", "ana"), ("group:y", "ana")),
    ],
)
def test_reviewers_after_an_edit(
    old: tuple[str, ...], new: tuple[str, ...], both: tuple[str, ...]
) -> None:
    assert tighten(Terms(reviewers=old), Terms(reviewers=new)).reviewers == both


@pytest.mark.parametrize(
    ("old", "new", "both"),
    [
        ((), ("ana",), ()),
        (("ana",), (), ()),
        (("ana", "bob"), ("bob", "cyd"), ("bob",)),
        (("group:x",), ("group:y",), ("group:y",)),
    ],
)
def test_escalation_after_an_edit(
    old: tuple[str, ...], new: tuple[str, ...], both: tuple[str, ...]
) -> None:
    """An edit gives nobody a right that neither rule gives."""
    old_terms = Terms(escalate_to=old, escalate_after=60 if old else None)
    new_terms = Terms(escalate_to=new, escalate_after=90 if new else None)
    tightened = tighten(old_terms, new_terms)
    assert tightened.escalate_to == both
    assert tightened.escalate_after == (90 if both else None)
    assert is_stricter(old_terms, new_terms) == (both != old)


sent_terms = st.fixed_dictionaries(
    {},
    optional={
        "allowed": subset(DECISIONS).filter(bool),
        "reviewers": subset(("ana", "bob", "group:x", "group:y")),
        "quorum": st.integers(1, 4),
        "requester_decides": st.booleans(),
        "assurance": st.sampled_from(ASSURANCE),
        "risk": st.builds(Risk, st.sampled_from(RISKS), subset(("r1", "r2", "r3"))),
        "expires_in": st.floats(1, 1e6),
        "on_expiry": st.sampled_from(["reject", "cancel"]),
        "valid_for": st.floats(1, 1e6),
        "effect": st.sampled_from(EFFECTS),
        "effect_key": st.sampled_from(["", "refund:{order}", "other:{order}"]),
        "on_duplicate": st.sampled_from(ON_DUPLICATE),
    },
)
keyed_terms = st.builds(
    replace,
    some_terms,
    effect_key=st.sampled_from(["", "refund:{order}"]),
    on_duplicate=st.sampled_from(ON_DUPLICATE),
)


@given(keyed_terms, sent_terms)
@example(Terms(reviewers=("group:x",)), {"reviewers": ("bob",)})
@example(Terms(), {"valid_for": 1e6})
def test_agent_can_only_tighten(terms: Terms, sent: dict[str, Any]) -> None:
    both = tighten_by_agent(terms, sent)
    at_least(both, terms)
    at_least(both, replace(terms, **{**sent, "reviewers": ()}))
    assert both.reviewers == terms.reviewers
    assert both.notify == sent.get("reviewers", ())
    assert all(getattr(both, name) == getattr(terms, name) for name in NOTICE_TERMS)
    assert "reject" in both.decisions
    assert (both.rule, both.policy, both.description) == (
        terms.rule,
        terms.policy,
        terms.description,
    )
    if terms.effect_key:
        assert both.effect_key == terms.effect_key
        order = ON_DUPLICATE.index
        assert order(both.on_duplicate) >= order(terms.on_duplicate)


@given(keyed_terms, sent_terms)
def test_terms_sent_twice_by_an_agent_change_nothing(terms: Terms, sent: dict[str, Any]) -> None:
    both = tighten_by_agent(terms, sent)
    assert tighten_by_agent(both, sent) == both
    assert tighten_by_agent(terms, {}) == terms
