"""A framework outside of the versions that are tested is refused with a sentence, at import."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from sayso import adapters

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
#: The adapters of frameworks, by the extras that install them.
ADAPTERS = {
    "agent-framework": "agent_framework",
    "claude-agent": "claude_agent",
    "dspy": "dspy",
    "google-adk": "google_adk",
    "langchain": "langchain",
    "openai-agents": "openai_agents",
    "pydantic-ai": "pydantic_ai",
    "temporal": "temporal",
}


def installed(folder: Path, name: str, version: str, *requires: str) -> None:
    """Say that a package is installed, as an installer does."""
    place = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    place.mkdir()
    lines = [f"Requires-Dist: {one}" for one in requires]
    text = "\n".join(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines])
    (place / "METADATA").write_text(text + "\n")


def imported(folder: Path, extra: str, name: str, version: str) -> str:
    """Import an adapter where another version is installed; return the error."""
    ours = [f"{one}; extra == '{extra}'" for one in EXTRAS[extra]]
    installed(folder, "sayso", "0.1.0", *ours)
    installed(folder, name, version)
    code = (
        f"import sys; sys.path.insert(0, {str(folder)!r})\nimport sayso.adapters.{ADAPTERS[extra]}"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.stderr.strip().rsplit("\n", 1)[-1]


@pytest.mark.parametrize(
    ("extra", "version"),
    [*((extra, "0.0.1") for extra in sorted(ADAPTERS)), ("pydantic-ai", "99.0.0")],
)
def test_untested_version_is_refused(extra: str, version: str, tmp_path: Path) -> None:
    (name, _, _) = EXTRAS[extra][0].partition(">=")
    if extra == "claude-agent":
        pytest.importorskip("claude_agent_sdk", reason='needs pip install "sayso[claude-agent]"')
    said = imported(tmp_path, extra, name, version)
    assert said.startswith(f"ImportError: {name} {version} is installed, and Sayso is tested with")
    assert said.endswith(f'pip install "sayso[{extra}]"')


@pytest.mark.parametrize("extra", sorted(ADAPTERS))
def test_every_adapter_declares_a_range(extra: str) -> None:
    for requirement in EXTRAS[extra]:
        wanted = requirement.partition(";")[0]
        assert ">=" in wanted, requirement
        assert "<" in wanted, requirement


@pytest.mark.parametrize(
    ("one", "other"), [("1.4", "1.4.0"), ("2.0.0", "2"), ("1.2rc1", "1.2"), ("0.2.182", "0.2.182")]
)
def test_equal_releases_compare_equal(one: str, other: str) -> None:
    assert adapters._release(one) == adapters._release(other)


@pytest.mark.parametrize(("one", "other"), [("1.9", "1.10"), ("1.4", "1.4.1"), ("0.99", "1")])
def test_earlier_release_compares_lower(one: str, other: str) -> None:
    assert adapters._release(one) < adapters._release(other)
