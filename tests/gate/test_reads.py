"""A read changes nothing: it takes no lease, is never in doubt, and may be tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from cases import RUN, Case
from waiting import until_async

import sayso
from sayso import CallFailed, Cancelled, Paused, Policy, Rule
from sayso.audit import verify
from sayso.rows import RunStatus


class Flaky(Exception):
    """What a search engine does on a bad day."""


def searching(case: Case, fails: int = 0, **options: Any) -> Callable[[str], str]:
    """A guarded search that fails so many times first."""

    @case.gate.guard(**{"needs_approval": False, "effect": "read", **options})
    def search(query: str) -> str:
        case.ran.append(query)
        if len(case.ran) <= fails:
            raise Flaky("no answer")
        return f"found {query}"

    return search


# -- reads that nobody is asked about


def test_allowed_read_is_one_commit(case: Case) -> None:
    search = searching(case)
    assert case.enter(lambda: search("tea")) == "found tea"
    assert case.types() == ["allowed", "read_recorded", "finished"]
    assert case.enter(lambda: search("tea")) == "found tea"
    assert case.ran == ["tea"]
    assert verify(case.store).ok


def test_failure_is_raised_and_not_the_end(case: Case) -> None:
    search = searching(case, fails=3)
    with case.gate.run(RUN):
        for _ in range(2):
            with pytest.raises(Flaky):
                search("tea")
    with pytest.raises(Flaky):
        case.enter(lambda: search("tea"))
    assert case.store.calls_of(RUN) == []
    assert case.enter(lambda: search("tea")) == "found tea"
    assert case.enter(lambda: search("tea")) == "found tea"
    assert case.ran == ["tea"] * 4
    assert len(case.store.calls_of(RUN)) == 1


def test_repeated_read_after_a_result_runs_again(case: Case) -> None:
    search = searching(case)
    with case.gate.run(RUN):
        assert (search("tea"), search("tea")) == ("found tea", "found tea")
    assert len(case.ran) == 2


def test_read_takes_no_lease(case: Case) -> None:
    @case.gate.guard(needs_approval=False, effect="read")
    def search(query: str) -> str:
        run = case.store.run(RUN)
        assert run is None or run.owner is None
        return query

    with case.gate.run(RUN):
        assert (search("a"), search("b")) == ("a", "b")


def test_unrecorded_read_leaves_no_row(case: Case) -> None:
    search = searching(case, record="asked")
    assert case.enter(lambda: search("tea")) == "found tea"
    assert search("milk") == "found milk"
    assert case.store.run(RUN) is None
    assert case.store.events() == []


def test_asked_read_is_recorded_despite_record_asked(case: Case) -> None:
    search = searching(case, needs_approval=True, record="asked")
    case.approved(lambda: search("tea"))
    assert case.enter(lambda: search("tea")) == "found tea"
    assert [call.status for call in case.store.calls_of(RUN)] == ["done"]


def test_only_reads_may_be_unrecorded(case: Case) -> None:
    def pay(to: str) -> str:
        return to

    for made in (case.gate.guard, sayso.tool):
        with pytest.raises(sayso.InvalidPolicy, match="only a read can be left out"):
            made(effect="once", record="asked")(pay)


def test_rule_may_declare_a_read(case: Case) -> None:
    rules = [Rule("search", verdict="allow", effect="read", record="asked")]
    other = Case(case.store, policy=Policy(rules))

    @other.gate.guard
    def search(query: str) -> str:
        return query

    assert other.enter(lambda: search("tea")) == "tea"
    assert case.store.calls_of(RUN) == []


def test_interrupted_read_leaves_no_doubt(case: Case) -> None:
    search = searching(case)
    failing = [KeyboardInterrupt(), None]

    @case.gate.guard(needs_approval=False, effect="read")
    def interrupted(query: str) -> str:
        error = failing.pop(0)
        if error is not None:
            raise error
        return search(query)

    with pytest.raises(KeyboardInterrupt):
        case.enter(lambda: interrupted("tea"))
    assert not case.inbox.pending_sync().items
    assert case.enter(lambda: interrupted("tea")) == "found tea"


def test_cancelled_run_refuses_reads(case: Case) -> None:
    search, pay = searching(case), case.paying()
    case.paused(lambda: pay("ana"))
    case.inbox.cancel_sync(RUN, by="ana")
    with pytest.raises(Cancelled):
        case.enter(lambda: search("tea"))
    assert case.ran == []


def test_read_may_ask_in_its_body(case: Case) -> None:
    @case.gate.guard(needs_approval=False, effect="read")
    def search() -> str:
        case.ran.append("search")
        return f"in {case.gate.ask_sync('Where?')}"

    request = case.paused(search)
    assert case.store.run(RUN).status is RunStatus.PAUSED  # type: ignore[union-attr]
    case.decide(request.respond("Rome"))
    assert case.enter(search) == "in Rome"
    assert case.ran == ["search", "search"]


async def test_several_tasks_read_at_once(case: Case) -> None:
    inside = 0

    @case.gate.guard(needs_approval=False, effect="read")
    async def search(query: str) -> int:
        nonlocal inside
        inside += 1
        await until_async(lambda: inside == 3)
        return inside

    async with case.gate.run(RUN):
        assert await asyncio.gather(*(search(q) for q in "abc")) == [3, 3, 3]


# -- reads that a person approved


def test_one_approval_covers_all_retries_of_a_read(case: Case) -> None:
    search = searching(case, fails=3, needs_approval=True)
    request = case.approved(lambda: search("tea"))

    def twice() -> None:
        with pytest.raises(Flaky):
            search("tea")
        search("tea")

    with pytest.raises(Flaky):
        case.enter(twice)
    execution = case.inbox.get_sync(request.id).execution
    assert (execution.attempts, execution.result) == (2, "Flaky: no answer")
    with pytest.raises(Flaky):
        case.enter(lambda: search("tea"))
    assert case.enter(lambda: search("tea")) == "found tea"
    assert case.enter(lambda: search("tea")) == "found tea"
    assert case.ran == ["tea"] * 4
    shown = case.inbox.get_sync(request.id)
    assert (shown.status, shown.execution.attempts) == ("approved", 4)
    assert verify(case.store).ok
    assert "in_doubt" not in case.types()


def test_run_without_the_failed_read_finishes(case: Case) -> None:
    search = searching(case, fails=1, needs_approval=True)
    request = case.approved(lambda: search("tea"))
    with case.gate.run(RUN), pytest.raises(Flaky):
        search("tea")
    assert case.store.run(RUN).status is RunStatus.DONE  # type: ignore[union-attr]
    execution = case.inbox.get_sync(request.id).execution
    assert (execution.status, execution.result) == ("failed", "Flaky: no answer")
    with pytest.raises(CallFailed, match="no answer"):
        case.enter(lambda: search("tea"))
    assert verify(case.store).ok


def test_interrupted_approved_read_runs_again(case: Case) -> None:
    failing = [KeyboardInterrupt(), None]

    @case.gate.guard(needs_approval=True, effect="read")
    def search(query: str) -> str:
        error = failing.pop(0)
        if error is not None:
            raise error
        return query

    case.approved(lambda: search("tea"))
    with pytest.raises(KeyboardInterrupt):
        case.enter(lambda: search("tea"))
    assert not case.inbox.pending_sync().items
    assert case.enter(lambda: search("tea")) == "tea"


def test_failed_read_outside_run_raises(case: Case) -> None:
    async def channel(request: sayso.Request) -> None:
        await case.inbox.decide(request.id, request.approve(), by="ana")

    gate = sayso.Gate(case.store, agent="bot", wait=None, channels=[channel])

    @gate.guard(needs_approval=True, effect="read")
    def search(query: str) -> str:
        raise Flaky("no answer")

    with pytest.raises(Flaky):
        search("tea")
    (request,) = case.inbox.history_sync().items
    assert request.execution.status == "failed"
    assert case.store.run(request.run).status is RunStatus.FAILED  # type: ignore[union-attr]


def test_approved_read_is_still_checked_again(case: Case) -> None:
    branch = ["main"]

    @case.gate.guard(needs_approval=True, effect="read", binds=lambda: {"branch": branch[0]})
    def log(path: str) -> str:
        case.ran.append(path)
        raise Flaky("no answer")

    case.approved(lambda: log("a"))
    with pytest.raises(Flaky):
        case.enter(lambda: log("a"))
    branch[0] = "production"
    with pytest.raises(Paused):
        case.enter(lambda: log("a"))
    assert case.ran == ["a"]


def test_rule_that_forbids_reading_asks_again(case: Case) -> None:
    search = searching(case, fails=1, needs_approval=True)
    case.approved(lambda: search("tea"))
    with pytest.raises(Flaky):
        case.enter(lambda: search("tea"))
    stricter = Case(case.store, policy=Policy([Rule("search", effect="once")]))
    again = searching(stricter, needs_approval=True)
    request = stricter.paused(lambda: again("tea"))
    assert request.effect == "once"
