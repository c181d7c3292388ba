"""Group commit: many callers share a commit, and nobody pays for another's trouble."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sayso.engine.commands import Note, Start
from sayso.errors import Conflict, NotFound, SaysoError, StoreError
from sayso.stores.sqlite import SqliteStore
from sayso.testing.checks import all_events
from sayso.testing.world import World, tool_of

Act = Callable[[], object]


def sqlite_of(world: World) -> SqliteStore:
    assert isinstance(world.store, SqliteStore)
    return world.store


def in_one_batch(world: World, acts: list[Act]) -> list[object]:
    """Have callers queue up behind the writer, then let them go: they share one batch.

    Gives what each got or raised, in their order. Any of them may carry the batch.
    """
    store = sqlite_of(world)
    outcomes: list[object] = [None] * len(acts)

    def call(number: int, act: Act) -> None:
        try:
            outcomes[number] = act()
        except BaseException as error:
            outcomes[number] = error

    threads = []
    with store._writer_lock:
        for number, act in enumerate(acts):
            threads.append(threading.Thread(target=call, args=(number, act)))
            threads[-1].start()
            while len(store._queue) <= number:
                threading.Event().wait(0.001)
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive(), "a caller waits for ever"
    assert not store._queue
    return outcomes


def count_commits(world: World) -> list[str]:
    """A list that grows with every COMMIT of the store's writer."""
    seen: list[str] = []
    writer = sqlite_of(world)._writer
    assert writer is not None
    writer.set_trace_callback(lambda text: seen.append(text) if text == "COMMIT" else None)
    return seen


def test_who_queues_together_commits_together(world: World) -> None:
    commits = count_commits(world)
    outcomes = in_one_batch(world, [lambda: world.ask() for _ in range(10)])
    assert len({call.id for call in outcomes}) == 10  # type: ignore[attr-defined]
    assert len(commits) == 1
    assert world.run().asked == 10
    world.check()


def test_a_lone_caller_commits_alone(world: World) -> None:
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


def test_a_refused_operation_does_not_hurt_its_neighbours(world: World) -> None:
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


def test_a_refused_operation_that_carries_the_batch_does_not_hurt_it(world: World) -> None:
    outcomes = in_one_batch(world, [lambda: world.finish(run="none"), lambda: world.ask()])
    assert isinstance(outcomes[0], NotFound)
    assert len(world.store.calls_of("r")) == 1


def test_a_full_disk_is_told_to_everybody(world: World) -> None:
    world.propose()
    before = world.everything()
    writer = sqlite_of(world)._writer
    assert writer is not None
    writer.execute("PRAGMA query_only=1")
    outcomes = in_one_batch(world, [lambda: world.ask("new") for _ in range(4)])
    assert all(isinstance(outcome, StoreError) for outcome in outcomes)
    assert world.everything() == before
    writer.execute("PRAGMA query_only=0")
    world.ask("new")
    assert world.store.tool(tool_of("new").digest) is not None


# -- interrupted


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, RuntimeError])
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupted_batch_loses_nothing_and_repeats_nothing(
    world: World, when: str, error: type[BaseException]
) -> None:
    world.propose()
    interrupted: list[str] = []

    def boundary(name: str, now: str) -> None:
        if now == when and not interrupted:
            interrupted.append(name)
            raise error("now")

    world.store.boundary = boundary
    names = [f"tool-{number}" for number in range(5)]
    outcomes = in_one_batch(world, [lambda name=name: world.ask(name) for name in names])  # type: ignore[misc]
    world.store.boundary = None
    stopped = [name for name, got in zip(names, outcomes, strict=True) if isinstance(got, error)]
    assert len(stopped) == 1, "only who carried the batch was interrupted"
    assert not any(isinstance(got, BaseException) and type(got) is not error for got in outcomes)
    stored = [call.tool for call in world.store.calls_of("r")]
    # Who was interrupted before the commit has done nothing, and nobody does it later instead.
    assert sorted(stored) == [name for name in names if when == "after" or name not in stopped]
    world.ask("later")
    assert sorted(call.tool for call in world.store.calls_of("r"))[1:] == sorted(stored)
    for name in stored:
        assert world.store.tool(tool_of(name).digest) is not None
    world.check()


def test_a_refusal_of_the_first_try_is_not_kept_for_the_second(world: World) -> None:
    """After an interruption the batch runs again, and by then it may be right."""
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
    decide = lambda: world.decide(call)  # noqa: E731
    outcomes = in_one_batch(world, [lambda: world.ask("first"), decide])
    world.store.boundary = None
    assert any(isinstance(outcome, KeyboardInterrupt) for outcome in outcomes)
    if isinstance(outcomes[0], KeyboardInterrupt):
        assert not isinstance(outcomes[1], BaseException)
        assert world.call(call).status == "ready"


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


def test_real_interrupts_lose_nothing_and_repeat_nothing(path: Path) -> None:
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


def test_a_refused_start_does_not_keep_others_from_writing(
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
