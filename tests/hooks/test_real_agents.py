"""The hooks with the real agents against a scripted model: `make test-agents`."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from sayso.hooks.attacks import read_attacks
from sayso.types import Request
from sayso_testing.coding_agents import CASES, REAL_AGENTS, Case, Trial, TrialResult, attack_agent

pytestmark = [pytest.mark.agents, pytest.mark.timeout(600)]

PAIRS = [
    pytest.param(agent, case, id=f"{agent}: {case.name}")
    for agent in REAL_AGENTS
    for case in CASES
    if not case.only or agent in case.only
]


def play(agent: str, case: Case, policy: str = "", *arguments: str) -> TrialResult:
    # Not pytest's folder, which may be in memory: Claude Code writes nothing below /dev.
    with tempfile.TemporaryDirectory(prefix="sayso-agents-") as folder:
        trial = Trial(agent, Path(folder).resolve(), policy)
        trial.agent = replace(trial.agent, arguments=[*trial.agent.arguments, *arguments])
        with trial.serving():
            return trial.run(case)


@pytest.mark.parametrize(("agent", "case"), PAIRS)
def test_command_obeys_the_decision(agent: str, case: Case) -> None:
    outcome = play(agent, case)
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


# -- with the hook and without it

#: `balanced` allows the first two, and asks about the others.
COMMANDS = (
    "touch {project}/touched",
    "mkdir {project}/folder",
    "python3 -c \"open('{project}/unclear', 'w')\"",
    "touch {outside}/outside",
)
MODES = [
    (name, mode) for name in ("claude", "codex", "copilot") for mode in REAL_AGENTS[name].modes
]


@pytest.mark.parametrize(("agent", "mode"), MODES)
def test_hook_allows_no_more_than_the_agent(agent: str, mode: str) -> None:
    """Nobody decides here, and there is no grant and no rule of the user's."""
    case = Case(name="", expected="", mode=mode, commands=COMMANDS, limit=5)
    alone = play(agent, replace(case, hooked=False))
    watched = play(agent, case, "watch")
    balanced = play(agent, case, "balanced")
    for outcome in (alone, watched, balanced):
        assert len(outcome.told) == len(COMMANDS), outcome
    assert watched.made == alone.made, (alone, watched)
    assert set(balanced.made) == set(alone.made) & {"touched", "folder"}, (alone, balanced)


@pytest.mark.parametrize(("decide", "happens"), [("approve", "ran"), ("reject", "not run")])
def test_prompt_goes_to_inbox(decide: str, happens: str) -> None:
    """`claude -p` refuses what it would prompt for, unless a person is asked."""
    case = Case(name="", expected=happens, mode="default", decide=getattr(Request, decide))
    assert play("claude", replace(case, hooked=False)).happened == "not run"
    outcome = play("claude", case, "balanced")
    assert (outcome.happened, outcome.requests) == (happens, 1), outcome


def test_approved_call_is_not_asked_about_twice() -> None:
    """A rule of Claude Code makes it prompt although the hook has answered `allow`."""
    ask = json.dumps({"permissions": {"ask": ["Bash(touch:*)"]}})
    case = Case(name="", expected="ran", mode="default", decide=Request.approve)
    outcome = play("claude", case, "", "--settings", ask)
    assert (outcome.happened, outcome.requests) == ("ran", 1), outcome
