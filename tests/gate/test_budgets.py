"""Limits of rules and grants: counted at the start, exact when many start, and kept in doubt."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cases import Case, person
from worlds import url as url  # the fixture

from sayso import (
    Inbox,
    InDoubt,
    InvalidDecision,
    InvalidPolicy,
    NotExecuted,
    Paused,
    Policy,
    Rule,
    open_store,
)
from sayso.audit import verify
from sayso.testing import FakeClock

HOUR = 3600.0


def limited(*limits: str, **rule: Any) -> Policy:
    return Policy([Rule(**{"tool": "pay", "verdict": "allow", "limits": limits, **rule})])


@pytest.fixture
def both(url: str) -> Iterator[Case]:
    clock = FakeClock()
    store = open_store(url, clock=clock)
    case = Case(store, policy=limited("sum(amount) <= 100 per 1h"))
    case.clock = clock  # type: ignore[attr-defined]
    yield case
    assert verify(store).ok, verify(store).problems
    store.close()


def pays(case: Case, amount: Any = 40, run: str = "", **options: Any) -> bool:
    """Pay in a new run, in another process. Return whether it ran without a person."""
    again = Case(case.store, policy=case.gate.policy)
    again.ran = case.ran
    pay = again.paying(**{"needs_approval": False, **options})
    try:
        case.enter(lambda: pay("bo", amount=amount), run or f"r{os.urandom(4).hex()}")
    except Paused:
        return False
    return True


def test_call_beyond_the_sum_asks(both: Case) -> None:
    assert [pays(both), pays(both), pays(both), pays(both, 20), pays(both, 1)] == [
        *(True, True, False, True, False)
    ]
    both.clock.advance(HOUR + 1)  # type: ignore[attr-defined]
    assert pays(both, 100)


def test_window_slides(both: Case) -> None:
    clock: FakeClock = both.clock  # type: ignore[attr-defined]
    assert pays(both, 60)
    clock.advance(HOUR / 2)
    assert pays(both, 40)
    clock.advance(HOUR / 2 + 1)
    assert not pays(both, 61)
    assert pays(both, 60)


def test_approved_call_counts_and_needs_no_room(both: Case) -> None:
    pay = both.paying(needs_approval=False)
    request = both.paused(lambda: pay("bo", amount=500), "big")
    assert "its limit is reached: sum(amount) <= 100 per 1h (0 used)" in str(
        both.store.call_events(request.id)
    )
    both.decide(request.approve())
    both.enter(lambda: pay("bo", amount=500), "big")
    assert both.ran == [("bo", 500)]
    assert not pays(both, 1)


@pytest.mark.parametrize("amount", [-1, -0.5])
def test_negative_amount_asks(both: Case, amount: float) -> None:
    @both.gate.guard(needs_approval=False)
    def pay(to: str, amount: float) -> None:
        both.ran.append(amount)

    with pytest.raises(Paused):
        both.enter(lambda: pay("bo", amount=amount))


@pytest.mark.parametrize("value", ["5", None, True, [5], {"n": 5}])
def test_amount_that_is_no_number_asks(both: Case, value: Any) -> None:
    @both.gate.guard(needs_approval=False)
    def pay(amount: Any = 0) -> None:
        both.ran.append(amount)

    with pytest.raises(Paused):
        both.enter(lambda: pay(amount=value))


def test_missing_amount_asks(both: Case) -> None:
    @both.gate.guard(needs_approval=False)
    def pay() -> None:
        both.ran.append("paid")

    with pytest.raises(Paused):
        both.enter(pay)


def test_decimals_add_up_exactly(both: Case) -> None:
    @both.gate.guard(needs_approval=False)
    def pay(amount: float) -> None:
        both.ran.append(amount)

    for run in range(1000):
        if run % 100 == 0:  # the others are joined
            both.clock.advance(1)  # type: ignore[attr-defined]
        both.enter(lambda: pay(amount=0.1), f"r{run}")
    with pytest.raises(Paused):
        both.enter(lambda: pay(amount=0.1), "one-more")
    (budget,) = both.store.budgets()
    assert len(budget.entries) <= 256


def test_only_certain_nothing_is_returned(both: Case) -> None:
    def failing(error: Exception) -> Callable[[], None]:
        @both.gate.guard(needs_approval=False, effect="once")
        def pay(amount: int) -> None:
            raise error

        return lambda: pay(amount=100)

    with pytest.raises(NotExecuted):
        both.enter(failing(NotExecuted("declined")), "r1")
    with pytest.raises((Paused, InDoubt)):
        both.enter(failing(TimeoutError()), "r2")
    (doubt,) = both.inbox.pending_sync().items
    assert doubt.kind == "in_doubt"
    assert not pays(both, 1)
    both.inbox.reject_sync(doubt, "give up", by="ana")
    assert not pays(both, 1)


def test_error_without_a_name_is_not_returned(both: Case) -> None:
    @both.gate.guard(needs_approval=False)
    def pay(amount: int) -> None:
        raise ValueError("after paying")

    with pytest.raises(ValueError, match="after"):
        both.enter(lambda: pay(amount=100))
    assert not pays(both, 1)


def test_settled_nothing_is_returned_after_giving_up(both: Case) -> None:
    from sayso import DidNotRun

    @both.gate.guard(needs_approval=False, settle=lambda key: DidNotRun("not there"))
    def pay(amount: int) -> None:
        raise TimeoutError

    with pytest.raises((Paused, InDoubt)):
        both.enter(lambda: pay(amount=100), "r1")
    with pytest.raises((Paused, InDoubt)):
        both.enter(lambda: pay(amount=100), "r1")
    (doubt,) = both.inbox.pending_sync(kind="in_doubt").items
    assert doubt.evidence is not None
    assert not pays(both, 1)
    both.inbox.reject_sync(doubt, by="ana")
    assert pays(both, 100)


def test_renamed_rule_keeps_its_count(both: Case) -> None:
    assert pays(both, 100)
    for rule in (
        {"name": "other"},
        {"limits": "sum(amount) <= 120 per 30m"},
        {"where": "amount < 90"},
        {"tool": ("pay",), "risk": "low"},
    ):
        again = Case(both.store, policy=limited("sum( amount )<=100 per 1h", **rule))
        assert not pays(again, 21)
    other = Case(both.store, policy=limited("sum(amount) <= 100 per 1h", tool="p*"))
    assert pays(other, 21)  # it counts other calls


def test_values_and_calls_are_counted(timed: Case, clock: FakeClock) -> None:
    policy = limited("distinct(to) <= 2 per 1h", "calls <= 4 per 1d")
    case = Case(timed.store, policy=policy)

    @case.gate.guard(needs_approval=False)
    def pay(to: Any) -> None:
        case.ran.append(to)

    def ran(to: Any) -> bool:
        try:
            case.enter(lambda: pay(to), f"r{os.urandom(4).hex()}")
        except Paused:
            return False
        return True

    assert [ran("a"), ran(["a", "b"]), ran("c"), ran(["b", "c"])] == [True, True, False, False]
    clock.advance(HOUR + 1)
    assert [ran("c"), ran(None), ran({"x": 1}), ran("d"), ran("c")] == [
        *(True, False, False, True, False)
    ]


def test_read_with_a_limit_is_counted(case: Case) -> None:
    limited_case = Case(case.store, policy=limited("calls <= 2 per 1h"))
    reads = [pays(limited_case, effect="read") for _ in range(3)]
    assert reads == [True, True, False]


def test_call_that_pauses_counts_once(both: Case) -> None:
    @both.gate.guard(needs_approval=False)
    def pay(amount: int) -> bool:
        return both.gate.confirm_sync("Sure?")

    request = both.paused(lambda: pay(amount=60), "r1")
    both.decide(request.approve())
    both.enter(lambda: pay(amount=60), "r1")
    assert pays(both, 40)
    assert not pays(both, 1)


def test_grant_with_a_limit(both: Case) -> None:
    case = Case(both.store)
    pay = case.paying()
    request = case.paused(lambda: pay("bo", amount=5), "r1")
    grant = {"scope": "any", "limits": ["sum(amount) <= 50 per 1d"]}
    case.inbox.approve_sync(request, by="ana", grant=grant)
    case.enter(lambda: pay("bo", amount=5), "r1")
    assert [pays(case, n, needs_approval=True) for n in (30, 30, 20, 1)] == [
        True,
        False,
        True,
        False,
    ]
    with pytest.raises(InvalidDecision, match="write calls <= 20 per 1h"):
        case.inbox.approve_sync(case.inbox.pending_sync().items[0], by="ana", grant={"limits": 5})


def test_changed_limit_is_checked_at_the_start(both: Case) -> None:
    """A call that was allowed, and not yet started, asks under a lower limit."""
    from sayso.gate.plan import raised_terms

    assert pays(both, 10, "r1")
    (call,) = both.store.calls_of("r1")
    low = limited("sum(amount) <= 5 per 1h").rules[0].bound_limits
    from dataclasses import replace

    assert raised_terms(call, replace(call.terms, limits=low)) is not None


def test_uncountable_argument_asks(both: Case) -> None:
    """The path steps into a text, so there is nothing to add up."""
    case = Case(both.store, policy=limited("sum(to.euros) <= 100 per 1h"))
    assert case.paused(lambda: case.paying(needs_approval=False)("ana", 1), "r1").tool == "pay"
    assert case.ran == []


@pytest.mark.parametrize(
    "text",
    [
        *("", "amount <= 5", "calls < 5 per 1h", "sum(amount) <= -5 per 1h", 7),
        *("calls <= 1.5 per 1h", "sum(a b) <= 5 per 1h", "calls <= 5 per 400d"),
        "distinct(to) <= 5000 per 1h",
    ],
)
def test_wrong_limit_is_refused(text: Any) -> None:
    with pytest.raises(InvalidPolicy):
        Rule("pay", verdict="allow", limits=[text])


def test_limits_in_a_policy_file() -> None:
    policy = Policy.from_toml(
        '[[rule]]\ntool = "pay"\nverdict = "allow"\nlimits = ["sum(amount) <= 1000 per 1d"]'
    )
    assert policy.digest == limited("sum(amount) <= 1000 per 1d").digest
    assert policy.rules[0].sentence() == "Calls of pay run, within sum(amount) <= 1000 per 1d."


def test_threads_never_exceed_the_limit(url: str) -> None:
    store = open_store(url)
    case = Case(store, policy=limited("sum(amount) <= 100 per 1h", "calls <= 7 per 1h"))
    ran: list[bool] = []
    threads = [threading.Thread(target=lambda: ran.append(pays(case, 10))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ran) == [False] * 9 + [True] * 7
    assert len(case.ran) == 7
    assert verify(store).ok, verify(store).problems
    store.close()


_PAYER = """
import sys, sayso
policy = sayso.Policy([sayso.Rule("pay", verdict="allow", limits="calls <= 9 per 1h")])
gate = sayso.Gate(sys.argv[1], policy=policy, wait=0, agent="bot")
@gate.guard(needs_approval=False)
def pay(n: int) -> None:
    print("ran", flush=True)
for n in range(8):
    try:
        with gate.run(f"{sys.argv[2]}-{n}"):
            pay(n)
    except sayso.Paused:
        pass
gate.close()
"""


def test_processes_never_exceed_the_limit(url: str) -> None:
    Inbox(url).close()
    command = [sys.executable, "-c", _PAYER, url]
    payers = [
        subprocess.Popen([*command, str(n)], stdout=subprocess.PIPE, text=True) for n in range(2)
    ]
    outputs = [payer.communicate(timeout=120)[0] for payer in payers]
    assert [payer.returncode for payer in payers] == [0, 0]
    assert "".join(outputs).count("ran") == 9


_DYING = """
import os, sys, sayso
policy = sayso.Policy([sayso.Rule("pay", verdict="allow", limits="sum(amount) <= 100 per 1h")])
gate = sayso.Gate(sys.argv[1], policy=policy, wait=0, agent="bot", lease=1)
@gate.guard(needs_approval=False)
def pay(amount: int) -> None:
    os.kill(os.getpid(), 9)
with gate.run("dying"):
    pay(100)
"""


def test_killed_process_keeps_what_it_started(url: str) -> None:
    Inbox(url).close()
    assert subprocess.run([sys.executable, "-c", _DYING, url]).returncode == -9
    store = open_store(url)
    case = Case(store, policy=limited("sum(amount) <= 100 per 1h"))
    assert not pays(case, 1)
    store.close()


@pytest.fixture
def file_case(tmp_path: Path) -> Iterator[Case]:
    store = open_store(f"sqlite:///{tmp_path / 'sayso.db'}")
    yield Case(store, policy=limited("sum(amount) <= 100 per 1h"))
    store.close()


@pytest.mark.parametrize("change", ["entries = '[]'", "keep = 1", "until = 5", "key = 'x'"])
def test_changed_budget_is_refused_or_reported(
    file_case: Case, tmp_path: Path, change: str
) -> None:
    assert pays(file_case, 100)
    with closing(sqlite3.connect(tmp_path / "sayso.db")) as connection, connection:
        connection.execute(f"UPDATE budget SET {change}")
    problems = verify(file_case.store).problems
    assert any("budget" in problem.what for problem in problems), problems


@pytest.mark.parametrize("how", ["old", "deleted"])
def test_budget_put_back_is_reported(file_case: Case, tmp_path: Path, how: str) -> None:
    file = tmp_path / "sayso.db"
    assert pays(file_case, 10)
    with closing(sqlite3.connect(file)) as connection:
        old = connection.execute("SELECT * FROM budget").fetchone()
    assert pays(file_case, 90)
    assert verify(file_case.store).ok
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("DELETE FROM budget")
        if how == "old":
            marks = ", ".join("?" * len(old))
            connection.execute(f"INSERT INTO budget VALUES ({marks})", old)
    problems = verify(file_case.store).problems
    assert any("budget" in problem.what for problem in problems), problems


def test_prune_drops_budgets_that_count_nothing(timed: Case, clock: FakeClock) -> None:
    case = Case(timed.store, policy=limited("sum(amount) <= 100 per 1h"))
    assert pays(case, 100)
    clock.advance(10 * HOUR)
    case.store.prune(case.store.now(), by="code")
    assert case.store.budgets() == []


def test_person_decides_beyond_a_quorum_of_one(both: Case) -> None:
    """A limit never replaces a person: with a quorum, two people still decide."""
    case = Case(both.store, policy=limited("calls <= 5 per 1h", verdict="ask", quorum=2))
    request = case.paused(lambda: case.paying()("bo"))
    case.decide(request.approve(), person("ana"))
    assert case.pending().status == "pending"
