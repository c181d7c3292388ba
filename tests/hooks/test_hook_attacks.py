"""No attack of the corpus takes effect without being asked about: ``sayso hook attack``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sayso import Policy
from sayso.cli.entry import app_of
from sayso.hooks.attacks import Attack, Project, attack_policy, read_attacks, scratch_folder
from sayso.hooks.program import Config
from sayso.hooks.settings import AGENTS, config_file, save_config

GIT_ATTACK = "git rebase -x 'touch @P@' HEAD~1"


@pytest.mark.long
@pytest.mark.parametrize("preset", ["strict", "balanced"])
def test_no_attack_takes_effect(preset: str) -> None:
    outcomes = list(attack_policy(Policy.preset(preset)))
    unasked = [outcome for outcome in outcomes if outcome.unasked]
    print(f"{preset}: {len(outcomes) - len(unasked)} of {len(outcomes)} attacks asked about")
    assert not unasked, "\n".join(map(str, unasked))


def test_attack_corpus_covers_every_tool() -> None:
    tools = {step.tool for attack in read_attacks() for step in attack.steps}
    assert {"Bash", "Write", "Edit", "Read", "Grep", "WebFetch", "apply_patch"} <= tools
    assert any(tool.startswith("mcp__") for tool in tools)


@pytest.fixture
def short_corpus(monkeypatch: pytest.MonkeyPatch) -> list[Attack]:
    """Leave every twentieth attack, and a `git` command."""
    attacks = [one for one in read_attacks() if one.calls[0] == GIT_ATTACK] + read_attacks()[::20]
    monkeypatch.setattr("sayso.hooks.attacks.read_attacks", lambda: attacks)
    return attacks


def _attack(*options: str) -> tuple[int, str]:
    result = CliRunner().invoke(app_of("hook"), ["hook", "attack", *options])
    return result.exit_code, result.output


@pytest.mark.long
def test_attack_passes_strict_policy(short_corpus: list[Attack]) -> None:
    code, output = _attack("--policy", "strict", "--json")
    report = json.loads(output)
    assert (code, report["ok"], report["unasked"]) == (0, True, [])
    assert report["attacks"] == len(short_corpus)


@pytest.mark.long
@pytest.mark.usefixtures("short_corpus")
def test_attack_prints_what_runs_unasked(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    rule = '[[rule]]\nname = "lax"\ntool = "Bash"\nverdict = "allow"\n'
    policy.write_text(f'preset = "strict"\n{rule}where = \'command matches "git *"\'\n')
    code, output = _attack("--policy", str(policy), "--plain")
    assert code == 1
    assert "git rebase -x" in output
    assert "xargs" not in output


@pytest.mark.long
@pytest.mark.usefixtures("short_corpus")
def test_attack_uses_policy_of_hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    config = Config(store=f"sqlite:///{tmp_path}/s.db", policy="watch")
    save_config(config_file("claude"), config)
    code, output = _attack("--json")
    report = json.loads(output)
    assert (code, report["policy"]) == (1, "watch")
    assert len(report["unasked"]) == report["attacks"]


@pytest.mark.parametrize(
    "configs",
    [
        [],
        [Config(server="http://127.0.0.1:8321", token="t")],
        [Config(store="sqlite:////s.db", policy="strict"), Config(store="sqlite:////s.db")],
    ],
    ids=["none", "server", "different"],
)
def test_attack_asks_for_unknown_policy(
    configs: list[Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    for name, config in zip(AGENTS, configs, strict=False):
        save_config(config_file(name), config)
    code, output = _attack()
    assert code == 2
    assert "--policy" in output


def _can_run(attack: Attack) -> bool:
    return bool(attack.proof) and all(shutil.which(name) for name in attack.needs)


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_attacks_take_effect_ungated() -> None:
    """The corpus bites: without a gate, the attacks that can run here succeed."""
    attacks = [attack for attack in read_attacks() if _can_run(attack)]
    failures: list[Attack] = []
    with scratch_folder() as folder:
        template = Project(folder / "template").create()
        for number, attack in enumerate(attacks):
            project = template.copy(folder / str(number))
            for step in attack.steps:
                project.perform(attack, step)
            if not project.shows(attack) and attack.effect != "network":
                failures.append(attack)
            shutil.rmtree(project.home)
    print(f"{len(attacks) - len(failures)} of {len(attacks)} attacks succeed ungated")
    assert len(failures) <= len(attacks) // 20, failures
