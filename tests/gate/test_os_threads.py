"""A call from an OS thread without the open run joins the run, or is refused."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cases import RUN, Case, aside

import sayso
from sayso import Gate, InvalidCall, Paused
from sayso.stores import open_store
from sayso.stores.base import Store
from sayso.testing import ScriptedModel
from sayso.testing.scripted_model import call, say


@pytest.fixture
def pay(case: Case) -> Callable[[int], int]:
    """A guarded function that needs nobody, so that nothing but its run keeps it from running."""

    @case.gate.guard(needs_approval=False)
    def pay(amount: int) -> int:
        case.ran.append(amount)
        return amount

    return pay


def in_thread(body: Callable[[], Any]) -> Any:
    """Call something in a bare thread, and give what it gave or raise what it raised."""
    outcome: list[Any] = []
    error: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(body())
        except BaseException as raised:
            error.append(raised)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    if error:
        raise error[0]
    return outcome[0]


def in_pool(body: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(body).result(60)


# -- inside a run


def test_pool_inside_a_run_is_refused(case: Case, pay: Any) -> None:
    for _ in range(2):
        with pytest.raises(InvalidCall) as caught, case.gate.run(RUN), ThreadPoolExecutor() as pool:
            list(pool.map(pay, [1, 2]))
        for word in (repr(RUN), "gate.carry(", "asyncio.to_thread", "with gate.run("):
            assert word in str(caught.value)
    assert (case.ran, case.store.events()) == ([], [])


def test_carried_function_joins_the_run(case: Case, pay: Any) -> None:
    for _ in range(2):
        with case.gate.run(RUN), ThreadPoolExecutor() as pool:
            assert list(pool.map(case.gate.carry(pay), [1, 2])) == [1, 2]
    assert sorted(case.ran) == [1, 2]
    assert {found.run for found in case.store.calls_of(RUN)} == {RUN}
    assert len(case.store.runs()) == 1


@pytest.mark.parametrize("there", [in_thread, in_pool])
@pytest.mark.parametrize("door", ["call", "ask", "confirm", "once", "async call"])
def test_every_door_refuses(case: Case, pay: Any, there: Any, door: str) -> None:
    @case.gate.guard(needs_approval=False)
    async def pay_later(amount: int) -> int:
        case.ran.append(amount)
        return amount

    doors: dict[str, Callable[[], Any]] = {
        "call": lambda: pay(1),
        "ask": lambda: case.gate.ask_sync("Sure?"),
        "confirm": lambda: case.gate.confirm_sync("Sure?"),
        "once": lambda: case.gate.once_sync("step", lambda: case.ran.append(1)),
        "async call": lambda: asyncio.run(pay_later(1)),
    }
    with pytest.raises(InvalidCall, match=r"gate\.carry"), case.gate.run(RUN):
        there(doors[door])
    assert (case.ran, case.store.events()) == ([], [])
    if door in ("ask", "confirm"):
        with pytest.raises(Paused), case.gate.run(RUN):
            there(case.gate.carry(doors[door]))
    else:
        with case.gate.run(RUN):
            there(case.gate.carry(doors[door]))
        assert case.ran == [1]
    assert [run.id for _, run in case.store.runs()] == [RUN]


def test_copied_context_joins_the_run(case: Case, pay: Any) -> None:
    with case.gate.run(RUN):
        context = contextvars.copy_context()
        assert in_thread(lambda: context.run(pay, 1)) == 1
        assert asyncio.run(asyncio.to_thread(pay, 2)) == 2
    assert {found.run for found in case.store.calls_of(RUN)} == {RUN}
    assert case.ran == [1, 2]


async def test_executors_of_an_event_loop(case: Case, pay: Any) -> None:
    loop = asyncio.get_running_loop()
    async with case.gate.run(RUN):
        with pytest.raises(InvalidCall, match=r"gate\.carry"):
            await loop.run_in_executor(None, pay, 1)
        assert await loop.run_in_executor(None, case.gate.carry(pay), 2) == 2
        assert await asyncio.to_thread(pay, 3) == 3
    assert case.ran == [2, 3]
    assert len(case.store.calls_of(RUN)) == 2


async def test_async_function_can_be_carried(case: Case) -> None:
    @case.gate.guard(needs_approval=False)
    async def pay(amount: int) -> int:
        return amount

    async with case.gate.run(RUN):
        carried = case.gate.carry(pay)
    other = contextvars.Context()
    task = asyncio.get_running_loop().create_task(carried(1), context=other)
    assert await task == 1
    assert in_thread(lambda: asyncio.run(carried(2))) == 2
    assert len(case.store.calls_of(RUN)) == 2


def test_pool_older_than_the_run_is_refused(case: Case, pay: Any) -> None:
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(pay, 1).result() == 1  # no run is open: it gets one of its own
        with pytest.raises(InvalidCall, match=r"gate\.carry"), case.gate.run(RUN):
            pool.submit(pay, 2).result()
        assert pool.submit(pay, 3).result() == 3
    assert case.ran == [1, 3]


def test_gate_made_in_a_pool_thread_is_refused(case: Case, pay: Any) -> None:
    def job() -> int:
        return Gate(case.store, wait=0).guard(needs_approval=False)(_doubled)(1)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(job).result() == 2
        with pytest.raises(InvalidCall, match=r"gate\.carry"), case.gate.run(RUN):
            pool.submit(job).result()


def _doubled(amount: int) -> int:
    return 2 * amount


def test_pool_inside_a_body_is_refused(case: Case, pay: Any) -> None:
    @case.gate.guard(needs_approval=False)
    def order() -> list[int]:
        with ThreadPoolExecutor() as pool:
            return list(pool.map(pay, [1, 2]))

    @case.gate.guard(needs_approval=False)
    def careful() -> list[int]:
        with ThreadPoolExecutor() as pool:
            return list(pool.map(case.gate.carry(pay), [1, 2]))

    with pytest.raises(InvalidCall, match=r"gate\.carry"):
        case.enter(order)
    assert case.enter(careful, "other") == [1, 2]
    keys = {found.key for found in case.store.calls_of("other")}
    assert sum("/" in key for key in keys) == 2  # they belong to the body that made them


def test_calls_from_many_threads_have_distinct_keys(case: Case, pay: Any) -> None:
    for _ in range(2):
        with case.gate.run(RUN), ThreadPoolExecutor(16) as pool:
            assert list(pool.map(case.gate.carry(pay), [7] * 48)) == [7] * 48
    assert case.ran == [7] * 48
    assert len({found.key for found in case.store.calls_of(RUN)}) == 48


def test_pause_in_a_thread_pauses_the_run(case: Case) -> None:
    def job() -> list[str]:
        with case.gate.run(RUN), ThreadPoolExecutor() as pool:
            return list(pool.map(case.gate.carry(case.paying()), ["bo", "cy"]))

    with pytest.raises(Paused):
        job()
    for _ in range(3):  # the pool may have given up the second call when the first one paused
        for request in case.inbox.pending_sync():
            case.decide(request.approve())
        with suppress(Paused):
            assert job() == ["paid bo 3", "paid cy 3"]
    assert sorted(case.ran) == [("bo", 3), ("cy", 3)]
    assert len(case.store.calls_of(RUN)) == 2


# -- an agent's tools


@pytest.mark.parametrize("carries", [False, True])
async def test_pool_inside_a_tool(make_store: Callable[..., Store], carries: bool) -> None:
    store = make_store()
    case = Case(store)

    @case.gate.guard(needs_approval=False)
    def pay(amount: int) -> int:
        case.ran.append(amount)
        return amount

    @sayso.tool
    def order(ctx: sayso.Context) -> str:
        function = case.gate.carry(pay) if carries else pay
        with ThreadPoolExecutor() as pool:
            list(pool.map(function, [1, 2]))
            # The context knows its call, in whichever thread it is used.
            return pool.submit(ctx.once_sync, "step", lambda: "done").result()

    model = ScriptedModel([call("order", {}), say("Done.")])
    agent = sayso.Agent("shop", model=model, tools=[order], store=store)
    result = await agent.run("go", thread="t")
    (made,) = [one for one in store.calls_of(result.run) if one.tool == "order"]
    if carries:
        assert (made.status, sorted(case.ran)) == ("done", [1, 2])
        assert len(store.calls_of(result.run)) == 4  # the tool, two payments, one step
    else:
        assert (made.status, case.ran) == ("failed", [])
        assert "gate.carry" in (made.result or "")


# -- outside of the run


def test_threads_with_separate_runs_do_not_interfere(case: Case, pay: Any) -> None:
    barrier = threading.Barrier(8)

    def request(number: int) -> int:
        with case.gate.run(f"order-{number}"):
            barrier.wait(60)
            return pay(number)

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(request, range(8))) == list(range(8))
    assert len(case.store.runs()) == 8


def test_calls_without_a_run_run_in_parallel(case: Case) -> None:
    barrier = threading.Barrier(8)

    @case.gate.guard(needs_approval=False)
    def pay(amount: int) -> int:
        barrier.wait(60)  # all of them are in their bodies at once
        return amount

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(pay, range(8))) == list(range(8))


def test_bare_call_of_the_main_thread_is_outside(case: Case, pay: Any) -> None:
    inside, done = threading.Event(), threading.Event()

    def other() -> None:
        with case.gate.run(RUN):
            inside.set()
            done.wait(60)

    thread = aside(other)
    assert inside.wait(60)
    assert pay(1) == 1
    done.set()
    thread.join(60)
    assert case.store.calls_of(RUN) == []


async def test_thread_of_another_task_is_outside_the_run(case: Case, pay: Any) -> None:
    inside, done = asyncio.Event(), asyncio.Event()

    async def other() -> None:
        async with case.gate.run(RUN):
            inside.set()
            await done.wait()

    task = asyncio.create_task(other())
    await inside.wait()
    assert await asyncio.to_thread(pay, 1) == 1
    assert await asyncio.to_thread(pay, 2) == 2
    done.set()
    await task
    assert case.store.calls_of(RUN) == []
    assert len(case.store.runs()) >= 2


def test_run_on_another_store_does_not_apply(case: Case, pay: Any) -> None:
    other = Case(open_store("memory://"))
    with other.gate.run(RUN):
        assert in_thread(lambda: pay(1)) == 1
    same = Case(case.store)
    with pytest.raises(InvalidCall, match=r"gate\.carry"), same.gate.run(RUN):
        in_thread(lambda: pay(2))


def test_run_left_by_an_error_is_closed(case: Case, pay: Any) -> None:
    with pytest.raises(ValueError, match="oops"), case.gate.run(RUN):
        raise ValueError("oops")
    assert in_thread(lambda: pay(1)) == 1


def test_run_of_a_dropped_generator_is_closed(case: Case, pay: Any) -> None:
    def job() -> Any:
        with case.gate.run(RUN):
            yield

    started = job()
    next(started)
    with pytest.raises(InvalidCall, match=r"gate\.carry"):
        in_thread(lambda: pay(1))
    started.close()
    gc.collect()
    assert in_thread(lambda: pay(2)) == 2


def test_carry_outside_a_run_is_refused(case: Case, pay: Any) -> None:
    with pytest.raises(InvalidCall, match="needs an open run"):
        case.gate.carry(pay)


# -- processes


def _child(gate: Gate, amounts: list[int], paid: str) -> list[int]:
    @gate.guard(needs_approval=False)
    def pay(amount: int) -> int:
        with open(paid, "a") as file:
            file.write(f"{os.getpid()} {amount}\n")
        return amount

    return [pay(amount) for amount in amounts]


def test_forked_child_is_part_of_the_run(tmp_path: Path) -> None:
    """It inherits the context of the thread that forks, and so the run."""
    gate = Gate(f"sqlite:///{tmp_path / 'sayso.db'}", wait=0)
    paid = tmp_path / "paid"
    fork = multiprocessing.get_context("fork")
    for _ in range(2):
        with gate.run(RUN):
            child = fork.Process(target=_child, args=(gate, [1, 2], str(paid)))
            child.start()
            child.join(60)
            assert child.exitcode == 0
    assert len(paid.read_text().splitlines()) == 2
    assert len(gate.store.calls_of(RUN)) == 2
    gate.close()


def _threads_of_a_child(gate: Gate, paid: str, done: Any) -> None:
    """In the child the runs of the parent's other threads are not open."""
    done.put(in_thread(lambda: _child(gate, [1], paid)))


def test_forked_child_forgets_the_runs_of_other_threads(tmp_path: Path) -> None:
    gate = Gate(f"sqlite:///{tmp_path / 'sayso.db'}", wait=0)
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with gate.run(RUN):
            inside.set()
            leave.wait(60)

    thread = aside(other)
    assert inside.wait(60)
    fork = multiprocessing.get_context("fork")
    done = fork.SimpleQueue()
    child = fork.Process(target=_threads_of_a_child, args=(gate, str(tmp_path / "paid"), done))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert done.get() == [1]
    leave.set()
    thread.join(60)
    gate.close()


def _spawned(url: str, run: str, paid: str) -> list[int]:
    with Gate(url, wait=0) as gate, gate.run(run):
        return _child(gate, [1, 2], paid)


@pytest.mark.long
def test_spawned_process_enters_the_run_by_name(tmp_path: Path) -> None:
    url, paid = f"sqlite:///{tmp_path / 'sayso.db'}", str(tmp_path / "paid")
    spawn = multiprocessing.get_context("spawn")
    with Gate(url, wait=0) as gate, gate.run(RUN), ProcessPoolExecutor(1, spawn) as pool:
        for _ in range(2):
            assert pool.submit(_spawned, url, RUN, paid).result(120) == [1, 2]
    assert len(Path(paid).read_text().splitlines()) == 2


def test_last_exit_of_two_entries_finishes_the_run(tmp_path: Path) -> None:
    """Two threads work on one run, and the first to leave takes nothing away from the other."""
    gate = Gate(f"sqlite:///{tmp_path / 'a.db'}", wait=0)
    first_left, second_entered = threading.Event(), threading.Event()
    results: list[str] = []

    @gate.guard(needs_approval=False)
    def pay(to: str) -> str:
        return f"paid {to}"

    def second() -> None:
        with gate.run("order-17"):
            results.append(pay("ana"))
            second_entered.set()
            assert first_left.wait(20)
            results.append(pay("bo"))

    thread = threading.Thread(target=second)
    with gate.run("order-17"):
        thread.start()
        assert second_entered.wait(20)
        assert pay("ana") == "paid ana"
    run = gate.store.run("order-17")
    assert run is not None
    assert run.status == "running"
    first_left.set()
    thread.join(20)
    assert results == ["paid ana", "paid bo"]
    run = gate.store.run("order-17")
    assert run is not None
    assert run.status == "done"
    types = [event.type for event in gate.store.chain("order-17")]
    assert types.count("finished") == 1
    assert "reopened" not in types
    gate.close()
