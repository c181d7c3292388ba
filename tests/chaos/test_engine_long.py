"""The state machine of engine and stores, for much longer."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "laws"))
from engine_machine import Machine

LONG = settings(
    max_examples=1000,
    stateful_step_count=80,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.chaos
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("turn", range(3))
def test_no_long_sequence_reaches_an_illegal_state(turn: int) -> None:
    run_state_machine_as_test(Machine, settings=LONG)
