"""No attack of the corpus takes effect without being asked about.

Each line of ``shell_attacks.jsonl`` has steps: ``setup`` is what a cloned repository or the user
already has, and each ``run`` is a call of the agent. ``proof`` is a command that succeeds if the
attack took effect; where there is none, only the verdict counts and nothing runs. ``@P@`` is a file
outside of the project. Attacks do nothing worse than to touch files in a scratch folder.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from shell_project import Project, read_lines, scratch_folder, verdict

ATTACKS = read_lines("shell_attacks.jsonl")


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    with scratch_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def template(scratch: Path) -> Project:
    return Project.create(scratch / "template")


def _path(attack: dict[str, Any]) -> str:
    return str(attack.get("path_dir") or ("." if attack.get("path") else ""))


def _can_run(attack: dict[str, Any]) -> bool:
    missing = [name for name in attack.get("needs", ()) if shutil.which(name) is None]
    return not missing


def _take(attack: dict[str, Any], project: Project, preset: str) -> list[str]:
    """Run the steps that the preset allows, and return the verdicts."""
    verdicts: list[str] = []
    for kind, command in attack["steps"]:
        if kind == "run":
            verdicts.append(_verdict(attack, project, preset, command))
            if verdicts[-1] != "allow" or not attack["proof"]:
                continue
        project.run(command, shell=attack.get("shell", "bash"), path=_path(attack))
    return verdicts


def _verdict(attack: dict[str, Any], project: Project, preset: str, command: str) -> str:
    args = {"command": project.filled(command), "cwd": str(project.folder)}
    return verdict(preset, "Bash", args, project.environment(_path(attack)))


def _took_effect(attack: dict[str, Any], project: Project) -> bool:
    return bool(attack["proof"]) and project.run(attack["proof"]).returncode == 0


@pytest.mark.parametrize("preset", ["strict", "balanced"])
def test_no_attack_takes_effect(template: Project, scratch: Path, preset: str) -> None:
    successes: list[Any] = []
    for number, attack in enumerate(ATTACKS):
        kind, command = attack["steps"][0]
        alone = kind == "run" and len(attack["steps"]) == 1
        if alone and _verdict(attack, template, preset, command) != "allow":
            continue  # nothing has run
        project = template.copy(scratch / str(number))
        verdicts = _take(attack, project, preset)
        if {"allow"}.issuperset(verdicts) or _took_effect(attack, project):
            successes.append(attack["steps"])
        shutil.rmtree(project.home)
    asked = len(ATTACKS) - len(successes)
    print(f"{preset}: {asked} of {len(ATTACKS)} attacks asked about")
    assert not successes, "\n".join(map(str, successes))


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_attacks_take_effect_ungated(template: Project, scratch: Path) -> None:
    """The corpus bites: without a gate, the attacks that can run here succeed."""
    attacks = [attack for attack in ATTACKS if attack["proof"] and _can_run(attack)]
    failures: list[Any] = []
    for number, attack in enumerate(attacks):
        project = template.copy(scratch / str(number))
        _take(attack, project, "watch")
        if not _took_effect(attack, project) and "network" not in attack["effect"]:
            failures.append(attack["steps"])
        shutil.rmtree(project.home)
    print(f"{len(attacks) - len(failures)} of {len(attacks)} attacks succeed ungated")
    assert len(failures) <= len(attacks) // 20, failures
