"""The real client: ``ai`` and ``@ai-sdk/react``, versions 6 and 7, against a real server.

The scenarios are in ``node/scenarios.mjs``; one process plays them all for one version.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ai_sdk_app import served

NODE = Path(__file__).resolve().parent / "node"
SCENARIOS = re.findall(r"^  async (\w+)\(\)", (NODE / "scenarios.mjs").read_text("utf-8"), re.M)
VERSIONS = ("6", "7")
OLDEST = 20


def cannot(reason: str) -> None:
    """Skip, but never where it matters."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def packages() -> None:
    """The npm packages, installed where they are not there yet."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        cannot("the real client needs Node and npm, and there is none")
    told = subprocess.run(["node", "--version"], capture_output=True, text=True, timeout=60)
    if int(told.stdout.removeprefix("v").partition(".")[0] or 0) < OLDEST:
        cannot(f"the real client needs Node {OLDEST} or newer, this is {told.stdout.strip()}")
    if (NODE / "node_modules" / ".package-lock.json").exists():
        return
    command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run(command, cwd=NODE, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        cannot(f"npm ci failed: {done.stderr[-500:]}")


@pytest.fixture(scope="module", params=VERSIONS)
def outcomes(
    request: pytest.FixtureRequest, packages: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """What came of each scenario: nothing, or what went wrong."""
    with pytest.MonkeyPatch.context() as patch, served(tmp_path_factory.mktemp("labs")) as origin:
        patch.setattr("sayso.demo.script.WORD_SECONDS", 0.0)
        command = ["node", "run.mjs", request.param, origin]
        done = subprocess.run(command, cwd=NODE, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        yield json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(outcomes: dict[str, str], scenario: str) -> None:
    assert outcomes[scenario] == ""
