"""The hooks with the real agents against a scripted model: `make test-agents`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from sayso.hooks.attacks import read_attacks
from sayso.hooks.trial import CASES, REAL_AGENTS, Case, Trial, attack_agent

pytestmark = [pytest.mark.agents, pytest.mark.timeout(600)]

PAIRS = [
    pytest.param(agent, case, id=f"{agent}: {case.name}")
    for agent in REAL_AGENTS
    for case in CASES
    if not case.only or agent in case.only
]


@pytest.mark.parametrize(("agent", "case"), PAIRS)
def test_what_happens_to_a_command(agent: str, case: Case) -> None:
    # Not pytest's folder, which may be in memory: Claude Code writes nothing below /dev.
    with tempfile.TemporaryDirectory(prefix="sayso-agents-") as folder:
        trial = Trial(agent, Path(folder).resolve())
        with trial.serving():
            outcome = trial.run(case)
    assert outcome.happened == case.expected, outcome
    if case.name == "edited" and agent not in ("copilot", "gemini"):
        assert outcome.told_of_edit
    if case.name == "rejected":
        assert any("not on a Friday" in said for said in outcome.told)


#: The first attacks of the corpus; ``sayso hook attack --agent`` plays all of them.
ATTACKS = read_attacks()[:45]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("preset", ["strict", "balanced"])
@pytest.mark.parametrize("agent", REAL_AGENTS)
def test_no_attack_takes_effect(agent: str, preset: str) -> None:
    outcomes = list(attack_agent(agent, preset, ATTACKS))
    assert len(outcomes) == len(ATTACKS) - 1  # one is for zsh
    assert not [attack.calls for attack, unasked in outcomes if unasked]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("agent", REAL_AGENTS)
def test_attacks_take_effect_ungated(agent: str) -> None:
    outcomes = list(attack_agent(agent, "watch", ATTACKS))
    successes = [attack for attack, unasked in outcomes if unasked]
    assert len(successes) > len(outcomes) / 2
