"""``balanced`` does not ask about everyday commands that only read or change the project."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sayso import Policy
from sayso.hooks.attacks import Project, Step, judge, scratch_folder
from sayso.hooks.calls import explain_call

LINES = Path(__file__).with_name("shell_everyday.jsonl").read_text(encoding="utf-8").splitlines()
COMMANDS = [json.loads(line) for line in LINES]
BALANCED = Policy.preset("balanced")


@pytest.fixture(scope="module")
def project() -> Iterator[Project]:
    with scratch_folder() as folder:
        yield Project(folder / "home").create()


def _differences(project: Project, kind: str) -> tuple[list[str], int]:
    """Return the commands of a kind with another verdict than expected, and how many there are."""
    commands = [entry for entry in COMMANDS if entry["kind"] == kind]
    differences: list[str] = []
    for entry in commands:
        args = {"command": entry["command"]}
        if judge(BALANCED, project, Step("Bash", args)) != entry["expect"]:
            findings = explain_call("Bash", {**args, "cwd": str(project.folder)})
            differences.append(f"{entry['command']}: {findings}")
    return differences, len(commands)


def test_balanced_allows_everyday_reading(project: Project) -> None:
    differences, count = _differences(project, "read")
    share = 1 - len(differences) / count
    print(f"balanced allows {share:.1%} of {count} everyday commands that read")
    assert share >= 0.95, "\n".join(differences)


@pytest.mark.parametrize("kind", ["write", "run"])
def test_balanced_knows_everyday_commands(project: Project, kind: str) -> None:
    differences, _ = _differences(project, kind)
    assert not differences, "\n".join(differences)
