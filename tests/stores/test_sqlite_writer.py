"""Group commit: callers share a commit, and each gets its own outcome."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from signal import SIGALRM
from typing import Any

import pytest
from waiting import until

from sayso.engine.commands import Note, Start
from sayso.errors import Conflict, NotFound, SaysoError, StoreError
from sayso.stores.sqlite import SqliteStore
from sayso_testing.checks import all_events
from sayso_testing.world import World, tool_of

Act = Callable[[], object]


def sqlite_of(world: World) -> SqliteStore:
    assert isinstance(world.store, SqliteStore)
    return world.store


def in_one_batch(world: World, acts: list[Act]) -> list[object]:
    """Have callers queue up behind a commit, then let them go: they share one batch.

    Returns what each got or raised, in their order.
    """
    store = sqlite_of(world)
    outcomes: list[object] = [None] * len(acts)
    inside, go = threading.Event(), threading.Event()
    boundary = store.boundary

    def hold(name: str, when: str) -> None:
        if name != "cursor":
            if boundary is not None:
                boundary(name, when)
        elif when == "before":
            inside.set()
            assert go.wait(20)

    def call(number: int, act: Act) -> None:
        try:
            outcomes[number] = act()
        except BaseException as error:
            outcomes[number] = error

    store.boundary = hold
    held = threading.Thread(target=store.move_cursor, args=("held", "1"), kwargs={"expected": ""})
    held.start()
    assert inside.wait(20)
    threads = []
    for number, act in enumerate(acts):
        threads.append(threading.Thread(target=call, args=(number, act)))
        threads[-1].start()
        until(lambda waiting=number + 1: store._writer_thread._queue.qsize() == waiting)  # type: ignore[misc]
    go.set()
    for thread in (held, *threads):
        thread.join(20)
        assert not thread.is_alive(), "a caller waits for ever"
    store.boundary = boundary
    return outcomes


def count_commits(world: World) -> list[str]:
    """A list that grows with every COMMIT of the store's writer."""
    seen: list[str] = []
    writer = sqlite_of(world)._writer
    assert writer is not None
    writer.set_trace_callback(lambda text: seen.append(text) if text == "COMMIT" else None)
    return seen


def test_queued_operations_share_a_commit(world: World) -> None:
    commits = count_commits(world)
    outcomes = in_one_batch(world, [lambda: world.ask() for _ in range(10)])
    assert len({call.id for call in outcomes}) == 10  # type: ignore[attr-defined]
    assert len(commits) == 2  # with the one that they waited for
    assert world.run().asked == 10
    world.check()


def test_single_callers_commit_separately(world: World) -> None:
    commits = count_commits(world)
    for _ in range(3):
        world.ask()
    assert len(commits) == 3


def test_many_threads_need_fewer_commits_than_operations(world: World) -> None:
    commits = count_commits(world)
    each, number = 10, 16

    def work(index: int) -> None:
        for _ in range(each):
            world.propose(says=("hello",), run=f"r{index}", thread=f"t{index}")

    threads = [threading.Thread(target=work, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(commits) < number * each
    for index in range(number):
        assert len(world.store.messages(f"t{index}")) == each


def test_refused_operation_does_not_affect_its_batch(world: World) -> None:
    world.ask(id="req_taken", run="r0", thread="t0")

    def odd(value: Any) -> object:
        return world.store.transact(Note(type="odd", actor="x", body={"value": value}))

    outcomes = in_one_batch(
        world,
        [
            lambda: world.ask("first"),
            lambda: world.finish(run="none"),
            lambda: world.ask(id="req_taken"),
            lambda: odd({1, 2}),
            lambda: odd("half \ud800 a pair"),
            lambda: world.propose(snapshot=object()),
            lambda: world.ask("last"),
        ],
    )
    assert [isinstance(outcome, Exception) for outcome in outcomes] == [False, *[True] * 5, False]
    assert isinstance(outcomes[1], NotFound)
    assert all(isinstance(outcomes[n], SaysoError) for n in (1, 2, 4))
    assert all(isinstance(outcomes[n], TypeError | AttributeError) for n in (3, 5))
    assert [call.tool for call in world.store.calls_of("r")] == ["first", "last"]
    world.check()


def test_unstorable_value_fails_only_its_caller(world: World) -> None:
    """The database refuses it in a way that ends the transaction of the whole batch."""
    store = sqlite_of(world)
    assert store._writer is not None
    store._writer.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 100_000)
    outcomes = in_one_batch(
        world,
        [
            lambda: world.ask("first"),
            lambda: world.ask("large", args={"blob": "x" * 200_000}),
            lambda: world.finish(run="none"),
            lambda: world.ask("last"),
        ],
    )
    assert [isinstance(outcome, Exception) for outcome in outcomes] == [False, True, True, False]
    assert isinstance(outcomes[1], StoreError)
    assert "too big" in str(outcomes[1])
    assert isinstance(outcomes[2], NotFound)
    assert [call.tool for call in world.store.calls_of("r")] == ["first", "last"]
    world.check()


def test_full_disk_is_reported_to_each(world: World) -> None:
    world.propose()
    before = world.everything()

    def full(name: str, when: str) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    world.store.boundary = full
    outcomes = in_one_batch(world, [lambda: world.ask("new") for _ in range(4)])
    world.store.boundary = None
    assert all(isinstance(outcome, StoreError) for outcome in outcomes)
    assert len(set(map(id, outcomes))) == 4
    assert world.everything() == before
    world.ask("new")
    assert world.store.tool(tool_of("new").digest) is not None


# -- interrupted


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, RuntimeError])
@pytest.mark.parametrize("when", ["before", "after"])
def test_failed_batch_neither_loses_nor_repeats(
    world: World, when: str, error: type[BaseException]
) -> None:
    world.propose()
    raised: list[str] = []

    def boundary(name: str, now: str) -> None:
        if now == when and not raised:
            raised.append(name)
            raise error("now")

    world.store.boundary = boundary
    names = [f"tool-{number}" for number in range(5)]
    outcomes = in_one_batch(world, [lambda name=name: world.ask(name) for name in names])  # type: ignore[misc]
    world.store.boundary = None
    assert raised
    # A batch that fails before its commit is made again, one by one.
    failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert [type(outcome) for outcome in failed] == ([error] if when == "after" else [])
    assert sorted(call.tool for call in world.store.calls_of("r")) == names
    for name in names:
        assert world.store.tool(tool_of(name).digest) is not None
    world.check()


def test_refusal_of_failed_batch_is_dropped(world: World) -> None:
    """The operations run again, and by then one that was refused may be right."""
    world.propose()
    call = world.ask(expires_in=10)
    tries: list[str] = []

    def boundary(name: str, now: str) -> None:
        tries.append(name)
        if len(tries) == 1:
            world.clock.set(world.clock() - 20_000_000)
            raise KeyboardInterrupt

    world.clock.advance(15)
    world.store.boundary = boundary
    outcomes = in_one_batch(world, [lambda: world.ask("first"), lambda: world.decide(call)])
    world.store.boundary = None
    assert not [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert world.call(call).status == "ready"


def test_finalizer_that_writes_is_refused(world: World) -> None:
    """It runs in the OS thread that commits, and would wait for itself."""
    refusals: list[StoreError] = []

    class Late:
        def __del__(self) -> None:
            try:
                world.ask("late")
            except StoreError as error:
                refusals.append(error)

    late = [Late()]
    world.store.boundary = lambda name, when: late.clear()
    world.ask("first")
    world.store.boundary = None
    assert "nothing was written" in str(refusals[0])
    assert [call.tool for call in world.store.calls_of("r")] == ["first"]


def test_interrupted_caller_is_still_published(world: World) -> None:
    """Its operation was in a commit already, and others wait for what it changed."""
    store = sqlite_of(world)
    heard, inside, go = threading.Event(), threading.Event(), threading.Event()
    listener = store.subscribe("t", heard.set)

    def hold(name: str, when: str) -> None:
        inside.set()
        assert go.wait(20)

    class Stop(Exception):
        pass

    def stop(*_: object) -> None:
        raise Stop

    store.boundary = hold
    releasing = threading.Thread(target=lambda: (heard.wait(0.3), go.set()))
    before = signal.signal(SIGALRM, stop)
    try:
        signalling = threading.Thread(
            target=lambda: (inside.wait(20), os.kill(os.getpid(), SIGALRM))
        )
        signalling.start()
        with pytest.raises(Stop):
            world.ask("first")
    finally:
        signal.signal(SIGALRM, before)
    store.boundary = None
    releasing.start()
    assert heard.wait(20)
    releasing.join()
    assert [call.tool for call in store.calls_of("r")] == ["first"]
    listener.cancel()


STORM = """
import os, signal, sys, threading, time
from sayso.stores.sqlite import SqliteStore
from sayso.engine.commands import Propose
from sayso.rows import Message

store = SqliteStore(sys.argv[1])
seconds = float(sys.argv[2])
done, over = [], threading.Event()

def work(index):
    n = 0
    while not over.is_set():
        say(index, n)
        done.append(f"{index}:{n}")
        n += 1

def say(index, n):
    name = f"t{index}"
    store.transact(
        Propose(thread=name, run=name, agent="a", messages=(Message(name, f"{index}:{n}"),))
    )

def annoy():
    while not over.is_set():
        time.sleep(0.003)
        os.kill(os.getpid(), signal.SIGINT)

def interrupt(*_):
    # Once each time, and in the store's code alone: this script is not what is tested.
    if inside:
        inside.clear()
        raise KeyboardInterrupt

inside = []
signal.signal(signal.SIGINT, interrupt)
threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
annoyer = threading.Thread(target=annoy)
interrupts = n = 0
end = time.monotonic() + seconds
for thread in (*threads, annoyer):
    thread.start()
while time.monotonic() < end:
    n += 1
    try:
        inside.append(n)
        say("main", n)
        done.append(f"main:{n}")
        inside.clear()
    except KeyboardInterrupt:
        interrupts += 1
over.set()
for thread in threads:
    thread.join()
annoyer.join()
store.close()
print(interrupts)
print("\\n".join(done))
"""


@pytest.mark.long
def test_real_interrupts_neither_lose_nor_repeat(path: Path) -> None:
    """Ctrl-C again and again, in the middle of whatever the main thread does."""
    command = [sys.executable, "-c", STORM, str(path), "1.0"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    interrupts, *done = ran.stdout.split()
    assert int(interrupts) > 0
    store = SqliteStore(path)
    world = World(store, None)  # type: ignore[arg-type]
    stored = [body for name in ("main", *range(4)) for _, body in store.messages(f"t{name}")]
    assert len(set(stored)) == len(stored), "something was done twice"
    assert set(done) <= set(stored), "something that was acknowledged is gone"
    assert len(set(stored) - set(done)) <= int(interrupts)
    for name in range(4):
        numbers = [int(body.split(":")[1]) for _, body in store.messages(f"t{name}")]
        assert numbers == list(range(len(numbers)))
    world.check()
    assert {event.type for _, event in all_events(store)} <= {"began", "said"}
    store.close()


def test_refused_start_does_not_block_other_writers(
    world: World, open_again: Callable[..., SqliteStore]
) -> None:
    """The error is kept, and with it all that the transaction has read."""
    other = World(open_again(), world.clock)
    call = world.decide(world.ask())
    other.ask(run="r2", thread="t2", id="req_2")
    start = Start(
        thread=call.thread, run=call.run, calls=(call.id,), seen=("no",), owner="w", lease=10
    )
    with pytest.raises(Conflict) as kept:
        world.transact(start)
    other.ask(run="r3", thread="t3", id="req_3")
    world.ask(run="r4", thread="t4", id="req_4")
    assert kept.value.__traceback__ is not None
