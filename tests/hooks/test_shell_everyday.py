"""``balanced`` does not ask about everyday commands that only read or change the project."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from shell_project import Project, read_lines, scratch_folder, verdict

from sayso.hooks.calls import explain_call

COMMANDS = read_lines("shell_everyday.jsonl")


@pytest.fixture(scope="module")
def project() -> Iterator[Project]:
    with scratch_folder() as folder:
        yield Project.create(folder / "home")


def _differences(project: Project, kind: str) -> tuple[list[str], int]:
    """Return the commands of a kind with another verdict than expected, and how many there are."""
    commands = [entry for entry in COMMANDS if entry["kind"] == kind]
    differences: list[str] = []
    for entry in commands:
        args = {"command": entry["command"], "cwd": str(project.folder)}
        if verdict("balanced", "Bash", args, project.environment()) != entry["expect"]:
            differences.append(f"{entry['command']}: {explain_call('Bash', args)}")
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
