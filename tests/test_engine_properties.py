"""No sequence of commands, crashes and races reaches an illegal state, in either store."""

from __future__ import annotations

import pytest
from engine_machine import Machine
from hypothesis import HealthCheck, settings

pytestmark = pytest.mark.timeout(600)  # a minute on an idle machine

# Enough to find each of the defects that this machine was written after; `make chaos` goes further.
Machine.TestCase.settings = settings(
    max_examples=120,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

TestStores = Machine.TestCase
