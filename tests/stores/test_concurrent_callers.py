"""Callers at once, on one event loop or on several OS threads: each gets its own outcome.

No refusal, error, cancellation, interrupt or wait of one caller reaches another.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from pg_places import PgOpener, Place
from waiting import until

import sayso
from sayso import sync
from sayso.engine.commands import Command, Finish, Propose, Start
from sayso.errors import (
    Conflict,
    DuplicateEffect,
    InvalidCall,
    InvalidDecision,
    NotFound,
    StoreError,
)
from sayso.keys import Keyring, new_key
from sayso.rows import Message
from sayso.stores import open_store
from sayso_testing.world import World

#: How several commands are made at once: returns the result or the error of each.
AtOnce = Callable[..., list[Any]]

LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(%s || ':' || %s, 0))"


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> Any:
    opener = "open_again" if request.param == "sqlite" else "open_pg"
    return request.getfixturevalue(opener)(clock=lambda: time.time_ns() // 1000)


@pytest.fixture
def world(store: Any) -> World:
    return World(store, None)  # type: ignore[arg-type]


def message(words: str, thread: str) -> Propose:
    return Propose(thread=thread, run=thread, agent="a", messages=(Message(thread, words),))


def messages(store: Any, thread: str) -> list[str]:
    return [body for _, body in store.messages(thread)]


def kinds(outcomes: Sequence[Any]) -> list[type]:
    return [type(outcome) for outcome in outcomes]


def as_tasks(store: Any, *commands: Command) -> list[Any]:
    async def main() -> list[Any]:
        writes = (sync.write(store, command) for command in commands)
        return await asyncio.gather(*writes, return_exceptions=True)

    return asyncio.run(main())


def on_os_threads(*functions: Callable[[], Any]) -> list[Any]:
    """Call each function in its own OS thread, all at once; return results and errors."""
    outcomes: list[Any] = [None] * len(functions)
    together = threading.Barrier(len(functions))

    def call(number: int) -> None:
        together.wait(20)
        try:
            outcomes[number] = functions[number]()
        except BaseException as error:
            outcomes[number] = error

    threads = [threading.Thread(target=call, args=(n,)) for n in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return outcomes


def in_os_threads(store: Any, *commands: Command) -> list[Any]:
    return on_os_threads(*(partial(store.transact, command) for command in commands))


@pytest.fixture(params=[as_tasks, in_os_threads], ids=["tasks", "os threads"])
def at_once(request: pytest.FixtureRequest) -> AtOnce:
    at_once: AtOnce = request.param
    return at_once


# -- refusals


def test_invalid_answers_fail_no_other_call(store: Any) -> None:
    """One reviewer answers a question with a value outside its options, again and again."""
    gate = sayso.Gate(store, wait=0)
    inbox = sayso.Inbox(store)
    ran: list[int] = []

    async def ask() -> str:
        options = [sayso.Option("red"), sayso.Option("green")]
        with pytest.raises(sayso.Paused) as paused:
            async with gate.run("question"):
                await gate.ask(sayso.Question("Which colour?", options=options, free_text=False))
        return paused.value.requests[0].id

    async def answer(request: str) -> None:
        shown = await inbox.get(request)
        with pytest.raises(InvalidDecision):
            await inbox.decide(shown, shown.respond("purple"), by="ana")

    async def work(number: int) -> int:
        agent = sayso.Gate(store, agent=f"agent-{number}")

        @agent.guard(needs_approval=False)
        async def add(n: int) -> int:
            ran.append(n)
            return n + 1

        async with agent.run(f"run-{number}"):
            return await add(number)

    async def main() -> list[Any]:
        request = await ask()
        answers = [answer(request) for _ in range(30)]
        calls = [work(number) for number in range(100)]
        outcomes = await asyncio.gather(*calls, *answers, return_exceptions=True)
        assert (await inbox.get(request)).status == "pending"
        return outcomes

    outcomes = asyncio.run(main())
    assert outcomes == [*range(1, 101), *[None] * 30]
    assert sorted(ran) == list(range(100))
    for number in range(100):
        (call,) = store.calls_of(f"run-{number}")
        assert (call.status, call.result) == ("done", str(number + 1))


def test_refused_commands_do_not_affect_others(store: Any, at_once: AtOnce) -> None:
    store.transact(message("zero", "t3"))
    outcomes = at_once(
        store,
        message("one", "t1"),
        message("half a \ud800 pair", "t2"),
        Finish(thread="t3", run="none", status="done", token=0),
        Propose(thread="t3", run="another", agent="a"),
        Propose(thread="t4", run="t4", agent="a", snapshot=object()),  # type: ignore[arg-type]
        message("five", "t5"),
        message("five again", "t5"),
    )
    assert kinds(outcomes)[:4] == [list, InvalidCall, NotFound, Conflict]
    assert isinstance(outcomes[4], TypeError | AttributeError)
    assert kinds(outcomes)[5:] == [list, list]
    assert [messages(store, f"t{n}") for n in range(1, 5)] == [["one"], [], ["zero"], []]
    assert sorted(messages(store, "t5")) == ["five", "five again"]
    assert store.run("another") is None
    World(store, None).check()  # type: ignore[arg-type]


def test_colliding_run_names_do_not_affect_others(store: Any, at_once: AtOnce) -> None:
    same = [Propose(thread=f"t{n}", run="same", agent="a") for n in (1, 2)]
    outcomes = at_once(store, message("zero", "t0"), *same, message("four", "t4"))
    assert [kinds(outcomes)[n] for n in (0, 3)] == [list, list]
    assert {*kinds(outcomes)[1:3]} == {list, Conflict}
    assert [messages(store, "t0"), messages(store, "t4")] == [["zero"], ["four"]]
    run = store.run("same")
    assert run is not None
    assert isinstance(outcomes[1], list) == (run.thread == "t1")


def test_callers_on_one_thread_all_write(store: Any, at_once: AtOnce) -> None:
    assert kinds(at_once(store, *(message(str(n), f"t{n % 3}") for n in range(12)))) == [list] * 12
    for n in range(3):
        assert sorted(map(int, messages(store, f"t{n}"))) == list(range(n, 12, 3))


def start_of(call: Any) -> Start:
    return Start(
        thread=call.thread, run=call.run, calls=(call.id,), seen=(call.mac,), owner="w", lease=10**7
    )


def test_grant_is_spent_once_per_use(world: World, store: Any, at_once: AtOnce) -> None:
    world.grant("pay", uses_left=3)
    calls = [world.ask("pay", run=f"t{n}", thread=f"t{n}") for n in range(12)]
    assert {call.status for call in calls} == {"ready"}
    at_once(store, *map(start_of, calls))
    assert [world.call(call).status for call in calls].count("running") == 3
    (grant,) = store.grants(live_only=False)
    assert grant.uses_left == 0
    world.check()


def test_effect_key_is_taken_once(world: World, store: Any, at_once: AtOnce) -> None:
    calls = [
        world.ready(tool="pay", effect_key="refund:1", run=f"t{n}", thread=f"t{n}")
        for n in range(12)
    ]
    outcomes = at_once(store, *map(start_of, calls))
    assert [world.call(call).status for call in calls].count("running") == 1
    assert kinds(outcomes).count(list) + kinds(outcomes).count(DuplicateEffect) == 12
    world.check()


def test_refused_read_does_not_affect_others(store: Any) -> None:
    store.transact(message("hello", "t"))

    def fail() -> Any:
        return store._rows("SELECT no_such_column FROM run")

    functions = [fail if n % 4 == 0 else partial(messages, store, "t") for n in range(16)]
    expected = [StoreError if n % 4 == 0 else list for n in range(16)]

    async def main() -> list[Any]:
        reads = (sync.read(store, function) for function in functions)
        return await asyncio.gather(*reads, return_exceptions=True)

    assert kinds(asyncio.run(main())) == expected
    assert kinds(on_os_threads(*functions)) == expected


# -- cancelled


def test_cancelled_task_does_not_stop_others(store: Any) -> None:
    begun = threading.Event()
    store.boundary = lambda name, when: (begun.set(), time.sleep(0.02))[1]

    async def main() -> None:
        writes = [sync.write(store, message("hello", f"t{n}")) for n in range(6)]
        tasks = [asyncio.create_task(write) for write in writes]
        await asyncio.to_thread(begun.wait)
        tasks[1].cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert kinds(outcomes) == [list, asyncio.CancelledError, *[list] * 4]

    asyncio.run(main())
    assert [messages(store, f"t{n}") for n in (0, 2, 3, 4, 5)] == [["hello"]] * 5
    assert messages(store, "t1") in (["hello"], [])
    World(store, None).check()  # type: ignore[arg-type]


def test_cancelled_start_is_undone(store: Any) -> None:
    async def main() -> None:
        others = [asyncio.create_task(sync.write(store, message("x", f"o{n}"))) for n in range(3)]
        undo = lambda _: [message("undone", "t")]  # noqa: E731
        start = asyncio.create_task(sync.write_start(store, undo, message("started", "t")))
        await asyncio.sleep(0)
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
        await asyncio.gather(*others)

    asyncio.run(main())
    assert messages(store, "t") == ["started", "undone"]


def test_shielded_write_survives_cancellation(store: Any) -> None:
    async def main() -> None:
        other = asyncio.create_task(sync.write(store, message("x", "o")))
        write = asyncio.create_task(sync.write_shielded(store, message("kept", "t")))
        await asyncio.sleep(0)
        write.cancel()
        await asyncio.gather(other, write, return_exceptions=True)

    asyncio.run(main())
    assert messages(store, "t") == ["kept"]


def test_cancelled_read_does_not_stop_others(store: Any) -> None:
    store.transact(message("hello", "t"))
    store.quick_reads = False

    async def main() -> None:
        tasks = [asyncio.create_task(sync.read(store, messages, store, "t")) for _ in range(4)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert kinds(outcomes) == [list, asyncio.CancelledError, list, list]

    asyncio.run(main())


# -- interrupted

INTERRUPTED = """
import signal, sys, threading
from sayso.engine.commands import Propose
from sayso.keys import Keyring
from sayso.rows import Message
from sayso.stores import open_store

class TimeUp(Exception):
    pass

store = open_store(sys.argv[1], keys=Keyring.parse(sys.argv[2]))
done = {f"t{n}": 0 for n in range(12)}
errors = []
over = threading.Event()

def say(name, n):
    message = Message(name, str(n))
    store.transact(Propose(thread=name, run=name, agent="a", messages=(message,)))

def work(name):
    try:
        while not over.is_set():
            say(name, done[name])
            done[name] += 1
    except BaseException as error:
        errors.append(error)

inside = []

def interrupt(*_):
    # In the store's code alone: this script is not what is tested.
    if inside:
        inside.clear()
        raise TimeUp("of the main OS thread")

threads = [threading.Thread(target=work, args=(name,)) for name in done]
for thread in threads:
    thread.start()
signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, 0.003, 0.003)
interrupts, told, n = 0, [], 0
while interrupts < 150:
    n += 1
    try:
        inside.append(n)
        say("main", n)
        told.append(n)
        inside.clear()
    except TimeUp:
        interrupts += 1
signal.setitimer(signal.ITIMER_REAL, 0)
over.set()
for thread in threads:
    thread.join()
assert not errors, errors
store.close()
print(*done.values())
print(*told)
"""


@pytest.mark.long
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_signal_exception_reaches_only_its_os_thread(
    database: str, request: pytest.FixtureRequest
) -> None:
    """A signal handler raises in the main OS thread while twelve others commit."""
    secret = new_key()
    if database == "sqlite":
        url = f"sqlite:///{request.getfixturevalue('path')}"
    else:
        place: Place = request.getfixturevalue("place")
        url = f"{place.url}{'&' if '?' in place.url else '?'}schema={quote(place.schema)}"
    args = [sys.executable, "-c", INTERRUPTED, url, secret]
    ran = subprocess.run(args, capture_output=True, text=True, timeout=150, check=False)
    assert ran.returncode == 0, ran.stderr
    counts, told = ([int(word) for word in line.split()] for line in ran.stdout.splitlines())
    store = open_store(url, keys=Keyring.parse(secret))
    try:
        for n, count in enumerate(counts):
            assert messages(store, f"t{n}") == [str(number) for number in range(count)]
        main = [int(words) for words in messages(store, "main")]
        assert sorted(set(main)) == main, "something was done twice"
        assert set(told) <= set(main), "something that was reported as committed is lost"
        World(store, None).check()  # type: ignore[arg-type]
    finally:
        store.close()


# -- a database that fails


def test_failing_database_is_reported_to_each(open_pg: PgOpener) -> None:
    store = open_pg(patience=0.5)
    store.transact(message("hello", "t1"))
    store._address = "postgresql://127.0.0.1:1/nowhere"
    store._pool.renew()
    began = time.monotonic()
    outcomes = as_tasks(store, *(message("x", f"t{n}") for n in range(8)))
    assert kinds(outcomes) == [StoreError] * 8
    assert time.monotonic() - began < 10
    store._pool.close()


@contextmanager
def killing_sessions(place: Place) -> Iterator[None]:
    """Kill the sessions of the store again and again."""
    over = threading.Event()

    def kill() -> None:
        while not over.wait(0.03):
            place.sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'sayso' AND pid <> pg_backend_pid() AND query LIKE %s",
                f"%{place.schema}%",
            )

    with ThreadPoolExecutor(1) as elsewhere:
        killing = elsewhere.submit(kill)
        try:
            yield
        finally:
            over.set()
            killing.result()


def test_killed_sessions_lose_no_message(open_pg: PgOpener, place: Place) -> None:
    store = open_pg()

    async def work(name: str) -> None:
        for turn in range(12):
            await sync.write_shielded(store, message(str(turn), name))
            stored = await sync.read(store, messages, store, name)
            assert stored == [str(n) for n in range(turn + 1)]

    async def main() -> None:
        await asyncio.gather(*(work(f"t{n}") for n in range(8)))

    with killing_sessions(place):
        asyncio.run(main())
    world = World(store, None)  # type: ignore[arg-type]
    world.runs = {f"t{n}": None for n in range(8)}
    world.check()


# -- waits


def test_locked_thread_delays_only_its_callers(open_pg: PgOpener, place: Place) -> None:
    store = open_pg()
    store.transact(message("zero", "locked"))
    with psycopg.connect(place.url) as other, ThreadPoolExecutor(2) as elsewhere:
        other.execute(LOCK, (store.incarnation, "locked"))
        delayed = [elsewhere.submit(store.transact, message("x", "locked")) for _ in range(2)]
        for turn in range(3):
            commands = [message("hello", f"t{turn}-{n}") for n in range(12)]
            assert kinds(as_tasks(store, *commands)) == [list] * 12
            assert kinds(in_os_threads(store, *commands)) == [list] * 12
        assert not any(each.done() for each in delayed)
        other.rollback()
        assert [len(each.result(20)) for each in delayed] == [1, 1]
    assert messages(store, "locked") == ["zero", "x", "x"]


@pytest.mark.long
def test_slow_read_does_not_delay_others(open_pg: PgOpener) -> None:
    store = open_pg()
    store.transact(message("hello", "t"))

    async def main() -> None:
        slow_read = partial(store._rows, "SELECT pg_sleep(3)::text")
        slow = [asyncio.create_task(sync.read(store, slow_read)) for _ in range(2)]
        await asyncio.sleep(0.1)
        for _ in range(3):
            read = sync.read(store, messages, store, "t")
            assert await asyncio.wait_for(read, 2) == ["hello"]
        assert not any(task.done() for task in slow)
        await asyncio.gather(*slow)

    asyncio.run(main())


CROSSING = """
import asyncio, sys
import psycopg
from sayso import sync
from sayso.engine.commands import Propose
from sayso.keys import Keyring
from sayso.rows import Message
from sayso.stores.postgres import PostgresStore

url, schema, key, name, turns = sys.argv[1:]
store = PostgresStore(url, schema=schema, keys=Keyring.parse(key))
deadlocks = 0
may = store._may_try_again

def counted(error, *rest):
    global deadlocks
    deadlocks += isinstance(error, psycopg.errors.DeadlockDetected)
    return may(error, *rest)

store._may_try_again = counted

async def work(thread):
    for n in range(int(turns)):
        words = f"{name} {thread} {n}"
        said = Propose(thread=thread, run=thread, agent="a", messages=(Message(thread, words),))
        await sync.write(store, said)

async def main():
    threads = [f"t{n}" for n in range(8)]
    if name == "two":
        threads.reverse()
    await asyncio.gather(*(work(thread) for thread in threads + threads))

asyncio.run(main())
store.close()
print(deadlocks)
"""


@pytest.mark.long
def test_two_processes_do_not_deadlock(open_pg: PgOpener, place: Place) -> None:
    secret = new_key()
    store = open_pg(keys=Keyring.parse(secret))
    args = [sys.executable, "-c", CROSSING, place.url, place.schema, secret]
    both = [
        subprocess.Popen([*args, name, "6"], stdout=subprocess.PIPE, text=True)
        for name in ("one", "two")
    ]
    assert [process.communicate(timeout=120)[0].strip() for process in both] == ["0", "0"]
    for n in range(8):
        words = messages(store, f"t{n}")
        assert len(words) == 24
        assert len(set(words)) == 12  # two tasks of each process say the same
    World(store, None).check()  # type: ignore[arg-type]


def test_other_process_hears_every_commit(open_pg: PgOpener) -> None:
    store, other = open_pg(), open_pg()
    heard: set[str] = set()
    listeners = [other.subscribe(f"t{n}", partial(heard.add, f"t{n}")) for n in range(4)]
    as_tasks(store, *(message("hello", f"t{n}") for n in range(4)))
    until(lambda: heard == {"t0", "t1", "t2", "t3"})
    for listener in listeners:
        listener.cancel()
