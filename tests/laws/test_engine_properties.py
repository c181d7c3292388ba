"""No sequence of commands, crashes and races reaches an illegal state, in either store.

Callers at once do not change each other's outcomes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from engine_callers import ConcurrentCallers
from engine_machine import Machine
from hypothesis import HealthCheck, Phase, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import run_state_machine_as_test

from sayso.engine import UnitOfWork, budgets, deciding, grants, proposing, running
from sayso.rows import Call

pytestmark = pytest.mark.timeout(600)  # a minute on an idle machine

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]
STORES = settings(stateful_step_count=40, deadline=None, suppress_health_check=QUIET)
CALLERS = settings(
    max_examples=15, stateful_step_count=10, deadline=None, suppress_health_check=QUIET
)
#: One counterexample is enough to find a mutant.
MUTANT = settings(CALLERS, phases=[Phase.generate], report_multiple_bugs=False)

# The same examples in each run: to find a mutant by chance would fail now and then.
FINDS = settings(
    STORES,
    max_examples=500,
    phases=[Phase.generate],
    report_multiple_bugs=False,
    derandomize=True,
    database=None,
)


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


class TrustMachine(Machine):
    """The same, with more plans: few steps of the machine are one."""

    more_plans = even_more_plans = most_plans = Machine.plan


class LimitMachine(Machine):
    """The same, with more calls."""

    more_calls = even_more_calls = most_calls = Machine.propose


@pytest.mark.long
@pytest.mark.parametrize("safeguard", ["charge", "why_no_room"])
def test_law_finds_limits_that_do_not_count(
    safeguard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty: dict[str, Any] | str = {} if safeguard == "charge" else ""
    # What takes from a budget takes the steps of a plan too: either law may come first.
    law = "a limit was exceeded" + ("|a plan covered" if safeguard == "charge" else "")
    monkeypatch.setattr(running, safeguard, lambda work, call: empty)
    with pytest.raises(AssertionError, match=law):
        run_state_machine_as_test(LimitMachine, settings=FINDS)


def _spares(prefix: str) -> Callable[..., None]:
    """Return an ``end_trust`` that ends no grant whose id begins like this."""

    def end_trust(work: UnitOfWork, call: Call, by: str) -> None:
        loaded = work.grants
        work.grants = {id: grant for id, grant in loaded.items() if not id.startswith(prefix)}
        grants.end_trust(work, call, by)
        work.grants = {**loaded, **work.grants}

    return end_trust


#: Defects of windows, plans and models: what replaces which safeguard, where, and the law that
#: finds it.
MUTANTS: dict[str, tuple[tuple[Any, ...], str, Any, str]] = {
    "window covers any risk": (
        (grants,),
        "_is_within",
        lambda *_: True,
        "a window covered more risk",
    ),
    "rejection ends no window": (
        (deciding,),
        "end_trust",
        _spares("win_"),
        "a window was used after",
    ),
    "rejection ends no plan": ((deciding,), "end_trust", _spares("pln_"), "a plan was used after"),
    "plan covers any call": (
        (grants,),
        "_is_step",
        lambda *_: True,
        "a plan covered|before its turn",
    ),
    "step is not taken": ((budgets,), "take_step", lambda *_: {}, "a plan covered"),
    "plan lasts": (
        (proposing, running),
        "is_of_this_entry",
        lambda *_: True,
        "a plan was used in a later",
    ),
    "model decides alone": ((deciding,), "model_may_allow", lambda _: True, "its rule|a model"),
}


@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS)
def test_law_finds_trust_that_covers_too_much(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    modules, safeguard, replacement, law = MUTANTS[mutant]
    for module in modules:
        monkeypatch.setattr(module, safeguard, replacement)
    with pytest.raises(AssertionError, match=law):
        run_state_machine_as_test(TrustMachine, settings=FINDS)


@pytest.mark.long
@pytest.mark.parametrize("mutant", [SharedErrors, SharedResults])
def test_law_finds_shared_outcomes(mutant: type[ConcurrentCallers]) -> None:
    # It may not fail again in the same way, or at the same step: concurrent callers race.
    with pytest.raises((AssertionError, Flaky)):
        run_state_machine_as_test(mutant, settings=MUTANT)
