"""``sayso coverage``: the tools that an agent called, and what decided each call."""

from __future__ import annotations

import pytest
from cli_world import World

import sayso


def test_coverage_counts_calls_by_decision(world: World) -> None:
    policy = sayso.Policy([sayso.Rule("look", verdict="allow"), sayso.Rule("drop", verdict="deny")])
    gate = sayso.Gate(world.url, agent="clerk", policy=policy, wait=0)

    @gate.guard
    def look() -> str:
        return "seen"

    @gate.guard
    def drop() -> str:
        return "dropped"

    @gate.guard
    def pay(amount: int) -> str:
        return f"{look()}, paid {amount}"

    look()
    look()
    with pytest.raises(sayso.Denied):
        drop()
    for amount in (5, 7):
        with pytest.raises(sayso.Paused), gate.run(f"pay {amount}"):
            pay(amount)
    (first, _) = world.json("inbox")["items"]
    world.cli("approve", first["id"], "--digest", first["digest"])
    with gate.run(first["run"]):
        pay(first["args"]["amount"])
    gate.close()

    rows = world.json("coverage", "clerk")
    counts = {(r["tool"], r["inside"], r["decided_by"], r["denied"]): r["calls"] for r in rows}
    assert counts == {
        ("drop", False, "rule", True): 1,
        ("look", False, "rule", False): 2,
        ("look", True, "rule", False): 1,
        ("pay", False, "person", False): 1,
        ("pay", False, "", False): 1,
    }
    text = world.cli("coverage", "clerk")
    assert "inside a call" in text
    assert "a person" in text


def test_unknown_agent_is_named(world: World) -> None:
    world.mail()
    assert "'nobody'" in world.cli("coverage", "nobody", code=4)
