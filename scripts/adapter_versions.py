"""Run each adapter's story at both ends of the range of versions that its extra allows.

    python scripts/adapter_versions.py                          # every adapter, both ends
    python scripts/adapter_versions.py openai-agents            # one of them
    python scripts/adapter_versions.py openai-agents --at 0.21.0    # at any version

Each version gets a virtual environment of its own, made with uv, with the packages that the
extra's floors name at exactly these versions, or with the newest ones. Prints a line for each, and
fails if a story fails.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from programs import uv

ROOT = Path(__file__).resolve().parent.parent

#: The adapters' extras, and the tests that are their story. LangChain's has two ways in, and the
#: drop-in of its middleware depends on more of LangChain than ``guard`` does; so do the copies of
#: Agent Framework's workflows.
STORIES = {
    "agent-framework": [
        "tests/adapters/test_story_agent_framework.py",
        "tests/adapters/test_agent_framework_workflow.py",
        "tests/adapters/test_agent_framework_workflow_types.py",
        "tests/adapters/test_agent_framework_coverage.py",
    ],
    "dspy": ["tests/adapters/test_story_dspy.py"],
    "google-adk": [
        "tests/adapters/test_story_google_adk.py",
        "tests/adapters/test_google_adk_coverage.py",
        "tests/adapters/test_google_adk_guard.py",
    ],
    "langchain": [
        "tests/adapters/test_story_langchain.py",
        "tests/adapters/test_langchain_choke_points.py",
        "tests/adapters/test_langchain_graphs.py",
        "tests/adapters/test_langchain_bypasses.py",
    ],
    "openai-agents": ["tests/adapters/test_story_openai_agents.py"],
    "pydantic-ai": ["tests/adapters/test_story_pydantic_ai.py"],
}
#: What the tests themselves need.
TOOLS = ["hypothesis", "pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist", "sybil"]
MORE_TOOLS = {
    "google-adk": ["litellm"],
    "langchain": ["aiosqlite", "langgraph-checkpoint-sqlite"],
}


def extras() -> dict[str, list[str]]:
    """Return the requirements of each extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: dict[str, list[str]] = project["optional-dependencies"]
    return found


def floors(extra: str) -> list[str]:
    """Return the requirements of an extra at their lowest versions."""
    pinned = []
    for requirement in extras()[extra]:
        name, floor = re.findall(r"^([\w-]+)>=([\w.]+)", requirement)[0]
        pinned.append(f"{name}=={floor}" if floor.count(".") > 1 else f"{name}=={floor}.0")
    return pinned


def story(extra: str, pins: list[str], folder: Path) -> bool:
    """Run a story with these versions. Return whether it passed."""
    python = folder / "bin" / "python"
    tool = [uv(), "--quiet"]
    subprocess.run([*tool, "venv", "--python", sys.executable, str(folder)], check=True)
    ours = str(ROOT) if pins else f"{ROOT}[{extra}]"
    wanted = [*pins, *TOOLS, *MORE_TOOLS.get(extra, ()), "-e", ours]
    subprocess.run([*tool, "pip", "install", "--python", str(python), *wanted], check=True)
    done = subprocess.run(
        [str(python), "-m", "pytest", "-q", "-n", "1", "--dist", "loadfile", *STORIES[extra]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    names = [re.split("[=><]", pin)[0] for pin in pins or extras()[extra]]
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr[-300:]
    print(f"{extra}: {', '.join(version(python, name) for name in names)}: {last}", flush=True)
    if done.returncode:
        print(done.stdout[-4000:], done.stderr[-2000:], flush=True)
    return done.returncode == 0


def version(python: Path, name: str) -> str:
    """Return a package and its installed version."""
    code = f"from importlib.metadata import version; print(version({name!r}))"
    found = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True)
    return f"{name} {found.stdout.strip()}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else "")
    parser.add_argument("extra", nargs="*", choices=[*STORIES, []], help="an adapter's extra")
    parser.add_argument("--at", help="one version of its framework, instead of both ends")
    given = parser.parse_args()
    passed = True
    for extra in given.extra or STORIES:
        ends = [floors(extra), []]
        if given.at is not None:
            ends = [[f"{re.split('[>=]', extras()[extra][0])[0]}=={given.at}"]]
        for pins in ends:
            with tempfile.TemporaryDirectory() as folder:
                passed = story(extra, pins, Path(folder) / "venv") and passed
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
