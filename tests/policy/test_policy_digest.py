"""The contents of a policy, and the digest that covers all of them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from typing import Any

import pytest
from policy_world import boom, judge, other_predicate

from sayso.errors import InvalidPolicy
from sayso.policy import Policy, Rule


@pytest.mark.parametrize("wrong", [["send_*"], "send_*", [{"tool": "x"}], 5, None, Rule("x")])
def test_policy_refuses_other_than_rules(wrong: Any) -> None:
    with pytest.raises(InvalidPolicy, match="list of rules"):
        Policy(wrong)


def test_policy_accepts_any_iterable_of_rules() -> None:
    assert Policy(Rule(tool) for tool in "ab") == Policy((Rule("a"), Rule("b")))


CHANGES: dict[str, Any] = {
    "overturn": "rejecter",
    "max_rejections": 3,
    "limits": "calls <= 5 per 1h",
    "reviewer": "model:triage",
    "reviewer_allows": True,
    "tool": "delete",
    "agent": "ops",
    "when": boom,
    "where": "amount > 5",
    "hours": "09:00-17:00",
    "days": ["mon"],
    "timezone": "Europe/Berlin",
    "until": "2027-01-31",
    "verdict": "deny",
    "name": "never",
    "allowed": ["approve"],
    "description": "what",
    "reviewers": ["ana"],
    "quorum": 2,
    "requester_decides": False,
    "assurance": "token",
    "fresh": "5m",
    "risk": "high",
    "reasons": ["money"],
    "expires_in": 5,
    "on_expiry": "reject",
    "valid_for": 86_400,
    "effect": "once",
    "effect_key": "refund:{order}",
    "on_duplicate": "result",
    "record": "asked",
    "notify": ["push"],
    "remind_after": "10m",
    "escalate_after": "30m",
    "escalate_to": ["group:leads"],
    "preset": True,
}

#: What else a rule with one of these fields needs.
ALSO: dict[str, dict[str, Any]] = {
    "reasons": {"risk": "high"},
    "escalate_after": {"escalate_to": "ana"},
    "escalate_to": {"escalate_after": 5},
    "reviewer_allows": {"reviewer": "model:other"},
}


def test_digest_covers_every_field() -> None:
    assert set(CHANGES) == {field.name for field in fields(Rule) if field.init}
    digests = {"": Policy([Rule()]).digest, "none": Policy().digest}
    for name, value in CHANGES.items():
        extra = ALSO.get(name, {})
        digests[name] = Policy([Rule(**{name: value}, **extra)]).digest
    assert len(set(digests.values())) == len(digests)


def test_digest_covers_order_and_function() -> None:
    one, other = Rule("a"), Rule("b")
    assert Policy([one, other]).digest != Policy([other, one]).digest
    assert Policy([Rule(when=boom)]).digest != Policy([Rule(when=other_predicate)]).digest
    assert Policy([Rule(where="a > 1")]).digest != Policy([Rule(where="a > 2")]).digest


def test_digest_is_stable_across_processes() -> None:
    source = (
        "from sayso.policy import Policy, Rule\n"
        "policy = Policy([Rule({'c', 'a', 'b'}, reviewers={'ana', 'bob', 'cyd'}, when=len,"
        " expires_in='1h')])"
    )
    script = f"{source}\nprint(policy.digest)"
    seen = set()
    for seed in "12":
        command = [sys.executable, "-c", script]
        env = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
        seen.add(done.stdout.strip())
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    assert seen == {namespace["policy"].digest}
    assert judge(namespace["policy"]).policy in seen
