"""No sequence of commands, crashes and races reaches an illegal state, in either store.

Callers at once do not change each other's outcomes.
"""

from __future__ import annotations

from typing import Any

import pytest
from engine_callers import ConcurrentCallers
from engine_machine import Machine
from hypothesis import HealthCheck, Phase, settings
from hypothesis.errors import FlakyFailure
from hypothesis.stateful import run_state_machine_as_test

from sayso.engine import grants, running

pytestmark = pytest.mark.timeout(600)  # a minute on an idle machine

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]
STORES = settings(stateful_step_count=40, deadline=None, suppress_health_check=QUIET)
CALLERS = settings(
    max_examples=15, stateful_step_count=10, deadline=None, suppress_health_check=QUIET
)
#: One counterexample is enough to find a mutant.
MUTANT = settings(CALLERS, phases=[Phase.generate], report_multiple_bugs=False)


# 120 are enough to find each of the defects that this machine was written after; `make chaos` goes
# further.
def test_stores_agree_after_any_commands(full_strength: bool) -> None:
    examples = 120 if full_strength else 15
    run_state_machine_as_test(Machine, settings=settings(STORES, max_examples=examples))


@pytest.mark.long
def test_callers_at_once_change_no_outcome() -> None:
    run_state_machine_as_test(ConcurrentCallers, settings=CALLERS)


class SharedErrors(ConcurrentCallers):
    """A store that gives the refusal of one caller to all that share its commit."""

    def _open(self) -> Any:
        store: Any = super()._open()
        commit = store._commit

        def leak(batch: list[Any]) -> None:
            commit(batch)
            errors = [operation.error for operation in batch if operation.error is not None]
            for operation in batch:
                operation.error = errors[0] if errors else None

        store._commit = leak
        return store


class SharedResults(ConcurrentCallers):
    """A store that mixes up the results of callers that share a commit."""

    def _open(self) -> Any:
        store: Any = super()._open()
        commit = store._commit

        def mix(batch: list[Any]) -> None:
            commit(batch)
            results = [operation.result for operation in batch]
            for operation, result in zip(batch, reversed(results), strict=True):
                operation.result = result

        store._commit = mix
        return store


@pytest.mark.long
@pytest.mark.parametrize("safeguard", ["charge", "why_no_room"])
def test_law_finds_limits_that_do_not_count(
    safeguard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty: dict[str, Any] | str = {} if safeguard == "charge" else ""
    monkeypatch.setattr(running, safeguard, lambda work, call: empty)
    mutant = settings(STORES, max_examples=500, phases=[Phase.generate], report_multiple_bugs=False)
    with pytest.raises(AssertionError, match="a limit was exceeded"):
        run_state_machine_as_test(Machine, settings=mutant)


@pytest.mark.long
def test_law_finds_windows_that_cover_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grants, "_is_within", lambda terms, most: True)
    mutant = settings(STORES, max_examples=500, phases=[Phase.generate], report_multiple_bugs=False)
    with pytest.raises(AssertionError, match="a window"):
        run_state_machine_as_test(Machine, settings=mutant)


@pytest.mark.long
@pytest.mark.parametrize("mutant", [SharedErrors, SharedResults])
def test_law_finds_shared_outcomes(mutant: type[ConcurrentCallers]) -> None:
    # It may not fail again in the same way: the tasks of concurrent callers race.
    with pytest.raises((AssertionError, FlakyFailure)):
        run_state_machine_as_test(mutant, settings=MUTANT)
