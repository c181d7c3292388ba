"""The whole story on the adapter of docs/writing-an-adapter.md, and the suite bites.

Each fault is one small change of that adapter. The test of the suite that stands for it passes
with the whole adapter, as all others do, and must fail with the faulty one.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from harness_loop import FAULTY, LoopHarness
from loop_faults import FAULTS

from sayso import SaysoError
from sayso.testing import AdapterSuite
from sayso_testing.adapter_steps import ForkServer, Scenario


class TestLoop(AdapterSuite):
    harness = LoopHarness


def _no_fork_server() -> ForkServer:
    raise NotImplementedError("these tests need one process")


@pytest.mark.parametrize("fault", FAULTS)
def test_suite_catches_fault(fault: str, tmp_path: Path) -> None:
    scenario = Scenario(FAULTY[fault], tmp_path, _no_fork_server)
    test = getattr(AdapterSuite(), FAULTS[fault].test)
    with pytest.raises((AssertionError, ValueError, KeyError, TypeError, SaysoError)):
        test(scenario)
    scenario.close()
