"""The real client: ``@ag-ui/client`` against a real server.

The scenarios are in ``node/scenarios.mjs``; one process plays them all. The client validates every
event, and its warnings count as failures.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from chat_labs import install_packages, play

pytestmark = pytest.mark.long

NODE = Path(__file__).resolve().parent / "node"
SCENARIOS = re.findall(r"^  async (\w+)\(\)", (NODE / "scenarios.mjs").read_text("utf-8"), re.M)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What came of each scenario: nothing, or what went wrong."""
    install_packages(NODE)
    return play(NODE, tmp_path_factory.mktemp("labs"))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(outcomes: dict[str, str], scenario: str) -> None:
    assert outcomes[scenario] == ""
