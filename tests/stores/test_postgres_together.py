"""PostgreSQL: callers at once share round trips and commits, and nobody pays for another.

Which transactions were shared is read from the database: events of one transaction have its id.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pg_places import PgOpener, Place
from waiting import until

from sayso import sync
from sayso.engine.commands import Command, Finish, Propose, Start
from sayso.errors import Conflict, DuplicateEffect, InvalidCall, NotFound, Paused, StoreError
from sayso.keys import Keyring, new_key
from sayso.rows import Message
from sayso.stores.postgres import PostgresStore
from sayso.stores.postgres.connections import Pipeline
from sayso.stores.postgres.together import CallQueue
from sayso.stores.postgres.transaction import Attempt
from sayso.testing.world import World

LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(%s || ':' || %s, 0))"


@pytest.fixture
def store(open_pg: PgOpener) -> PostgresStore:
    return open_pg()


@pytest.fixture
def world(store: PostgresStore) -> World:
    return World(store, None)  # type: ignore[arg-type]


def said(words: str, thread: str) -> Propose:
    return Propose(thread=thread, run=thread, agent="a", messages=(Message(thread, words),))


def told(store: PostgresStore, thread: str) -> list[str]:
    return [body for _, body in store.messages(thread)]


def commits(place: Place, prefix: str = "t") -> int:
    """In how many transactions the events of some threads were written."""
    like = f"{prefix}%"
    return int(place.sql("SELECT count(DISTINCT xid) FROM event WHERE thread LIKE %s", like)[0][0])


async def gathered(*bodies: Coroutine[Any, Any, Any]) -> list[Any]:
    return await asyncio.gather(*bodies, return_exceptions=True)


def write_all(store: PostgresStore, *commands: Command) -> list[Any]:
    return asyncio.run(gathered(*(sync.write(store, command) for command in commands)))


def read_all(store: PostgresStore, *functions: Callable[[], Any]) -> list[Any]:
    return asyncio.run(gathered(*(sync.read(store, function) for function in functions)))


def kinds(results: Sequence[Any]) -> list[type]:
    return [type(result) for result in results]


# -- commits


def test_eight_tasks_need_one_commit_and_sixteen_need_two(
    store: PostgresStore, place: Place
) -> None:
    write_all(store, *(said("hello", f"u{n}") for n in range(8)))
    assert commits(place, "u") == 1
    write_all(store, *(said("hello", f"t{n}") for n in range(16)))
    assert [told(store, f"t{n}") for n in range(16)] == [["hello"]] * 16
    assert commits(place) == 2


def test_a_task_alone_needs_no_other(store: PostgresStore, place: Place) -> None:
    async def main() -> None:
        for n in range(3):
            await sync.write(store, said("hello", f"t{n}"))

    asyncio.run(main())
    assert commits(place) == 3


def test_a_whole_life_is_shared(world: World, store: PostgresStore, place: Place) -> None:
    """Ask, decide, start, record and finish, by eight tasks at once."""
    world.ask("pay", run="first", thread="first")  # the tool is known from now on
    names = [f"t{n}" for n in range(8)]

    def at_once(*acts: Callable[[], Any]) -> list[Any]:
        """Run acts of the world at once: each of them makes one transaction."""
        sent: list[tuple[Command, ...]] = []
        original = store.transact
        store.transact = lambda *commands: sent.append(commands) or [None]  # type: ignore
        try:
            for act in acts:
                act()
        finally:
            store.transact = original  # type: ignore[method-assign]
        results = asyncio.run(gathered(*(sync.write(store, *each) for each in sent)))
        assert not [result for result in results if isinstance(result, BaseException)]
        return [result[0] for result in results]

    asked = at_once(*(lambda n=n: world.propose(world.new("pay"), run=n, thread=n) for n in names))
    calls = [call for (call,) in asked]
    at_once(*(lambda c=c: world.decide(c) for c in calls))
    started = [c for (c,) in at_once(*(lambda c=c: world.start(c) for c in calls))]
    at_once(*(lambda c=c: world.record(c) for c in started))
    at_once(*(lambda n=n: world.finish(run=n, thread=n) for n in names))
    assert {world.run(name).status for name in names} == {"done"}
    assert {world.call(call).status for call in calls} == {"done"}
    assert commits(place) == 5
    world.check()


def test_what_is_refused_touches_no_other(store: PostgresStore, place: Place) -> None:
    write_all(store, said("zero", "t3"))
    results = write_all(
        store,
        said("one", "t1"),
        said("half a \ud800 pair", "t2"),
        Finish(thread="t3", run="none", status="done", token=0),
        said("a \0 in it", "t4"),
        Propose(thread="t5", run="t5", agent="a", snapshot=object()),  # type: ignore[arg-type]
        said("six", "t6"),
    )
    assert kinds(results)[:4] == [list, InvalidCall, NotFound, InvalidCall]
    assert isinstance(results[4], TypeError | AttributeError)
    assert kinds(results)[5:] == [list]
    assert [told(store, f"t{n}") for n in (1, 2, 4, 5, 6)] == [["one"], [], [], [], ["six"]]
    assert commits(place) == 2


def test_what_the_database_refuses_touches_no_other(store: PostgresStore) -> None:
    """A thread has a live run already, and two callers create the same run."""
    store.transact(said("zero", "t3"))
    same = [Propose(thread=f"t{n}", run="same", agent="a") for n in (1, 2)]
    another = Propose(thread="t3", run="another", agent="a")
    results = write_all(store, said("zero", "t0"), *same, another, said("four", "t4"))
    assert [kinds(results)[n] for n in (0, 3, 4)] == [list, Conflict, list]
    assert {*kinds(results)[1:3]} == {list, Conflict}
    assert [told(store, "t0"), told(store, "t4")] == [["zero"], ["four"]]
    run = store.run("same")
    assert run is not None
    assert isinstance(results[1], list) == (run.thread == "t1")
    assert store.run("another") is None


def test_two_callers_on_one_thread_both_write(store: PostgresStore) -> None:
    results = write_all(store, *(said(str(n), f"t{n % 3}") for n in range(9)))
    assert kinds(results) == [list] * 9
    for n in range(3):
        assert sorted(told(store, f"t{n}")) == [str(n), str(n + 3), str(n + 6)]


def test_a_grant_for_one_use_is_used_once(world: World, store: PostgresStore) -> None:
    """Callers of one transaction must not all see the same number of uses."""
    world.grant("pay", uses_left=3)
    calls = [world.ask("pay", run=f"t{n}", thread=f"t{n}") for n in range(12)]
    assert {call.status for call in calls} == {"ready"}
    starts = [
        Start(thread=c.thread, run=c.run, calls=(c.id,), seen=(c.mac,), owner="w", lease=10**7)
        for c in calls
    ]
    write_all(store, *starts)
    statuses = [world.call(call).status for call in calls]
    assert statuses.count("running") == 3
    (grant,) = store.grants(live_only=False)
    assert grant.uses_left == 0
    world.check()


def test_an_effect_is_had_once(world: World, store: PostgresStore) -> None:
    calls = [
        world.ready(tool="pay", effect_key="refund:1", run=f"t{n}", thread=f"t{n}")
        for n in range(12)
    ]
    starts = [
        Start(thread=c.thread, run=c.run, calls=(c.id,), seen=(c.mac,), owner="w", lease=10**7)
        for c in calls
    ]
    results = write_all(store, *starts)
    assert [world.call(call).status for call in calls].count("running") == 1
    assert kinds(results).count(list) + kinds(results).count(DuplicateEffect) == 12
    world.check()


def test_one_that_is_cancelled_in_time_is_not_written(store: PostgresStore) -> None:
    async def main() -> None:
        tasks = [asyncio.create_task(sync.write(store, said("hello", f"t{n}"))) for n in range(4)]
        await asyncio.sleep(0)  # they wait for each other
        tasks[2].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert kinds(results) == [list, list, asyncio.CancelledError, list]

    asyncio.run(main())
    assert [told(store, f"t{n}") for n in range(4)] == [["hello"], ["hello"], [], ["hello"]]


def test_one_that_is_cancelled_in_the_middle_is_whole_or_not_there(store: PostgresStore) -> None:
    begun = threading.Event()
    store.boundary = lambda name, when: (begun.set(), time.sleep(0.05))[1]

    async def main() -> None:
        tasks = [asyncio.create_task(sync.write(store, said("hello", f"t{n}"))) for n in range(4)]
        await asyncio.to_thread(begun.wait)
        tasks[1].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert kinds(results) == [list, asyncio.CancelledError, list, list]

    asyncio.run(main())
    assert [told(store, f"t{n}") for n in (0, 2, 3)] == [["hello"]] * 3
    assert told(store, "t1") == ["hello"]  # its transaction was committed with the others


def test_a_start_that_is_cancelled_is_undone(store: PostgresStore) -> None:
    async def main() -> None:
        others = [asyncio.create_task(sync.write(store, said("x", f"o{n}"))) for n in range(3)]
        undo = lambda _: [said("undone", "t")]  # noqa: E731
        start = asyncio.create_task(sync.write_start(store, undo, said("started", "t")))
        await asyncio.sleep(0)
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
        await asyncio.gather(*others)

    asyncio.run(main())
    assert told(store, "t") == ["started", "undone"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("shared", [2, 7])
def test_a_connection_that_is_lost_in_the_commit(
    store: PostgresStore, place: Place, monkeypatch: pytest.MonkeyPatch, when: str, shared: int
) -> None:
    """Nothing is lost and nothing is done twice, whether or not the server has committed."""
    real, cut = Attempt.run, list[str]()

    def run(self: Attempt, body: Any, before: Any) -> Any:
        if cut:
            return real(self, body, before)

        def at_the_end(attempt: Attempt) -> None:
            before(attempt)
            cut.append(attempt.xid)
            if when == "before":
                alive = "SELECT 1 FROM pg_stat_activity WHERE pid = %s"
                place.sql("SELECT pg_terminate_backend(%s)", attempt.pid)
                until(lambda: not place.sql(alive, attempt.pid))

        real(self, body, at_the_end)
        self._connection.close()
        raise psycopg.OperationalError("the connection was lost before the answer came")

    monkeypatch.setattr(Attempt, "run", run)
    refused = Propose(thread="r", run="t0", agent="a")
    store.transact(said("zero", "t0"))
    cut.clear()
    results = write_all(store, refused, *(said("hello", f"t{n}") for n in range(shared)))
    assert len(cut) == 1, "it was shared"
    assert kinds(results) == [Conflict, *[list] * shared]
    assert told(store, "t0") == ["zero", "hello"]
    assert [told(store, f"t{n}") for n in range(1, shared)] == [["hello"]] * (shared - 1)
    World(store, None).check()  # type: ignore[arg-type]


def test_a_database_that_was_restored_in_between_takes_none_of_them(
    store: PostgresStore, place: Place
) -> None:
    """Also not one that is run by itself after another one has noticed it."""
    lost: list[str] = []

    def boundary(name: str, when: str) -> None:
        if not lost:
            lost.append(name)
            place.sql("UPDATE meta SET value = 'another' WHERE key = 'identity'")
            store._database._identity = ()  # as if the next connection led elsewhere
            ours = (
                "SELECT pid FROM pg_stat_activity WHERE query LIKE %s AND pid <> pg_backend_pid()"
            )
            for (pid,) in place.sql(ours, f"%{place.schema}%"):
                place.sql("SELECT pg_terminate_backend(%s)", pid)
            until(lambda: not place.sql(ours, f"%{place.schema}%"))

    store.boundary = boundary
    outcomes = store.transact_each([[said("x", f"t{n}")] for n in range(4)])
    assert outcomes is not None
    for outcome in outcomes:
        assert callable(outcome)
        with pytest.raises(StoreError, match="sayso recover"):
            outcome()
    assert store.restored()
    assert [told(store, f"t{n}") for n in range(4)] == [[]] * 4


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


def test_sessions_that_are_killed_again_and_again(store: PostgresStore, place: Place) -> None:
    async def work(name: str) -> None:
        for turn in range(12):
            await sync.write_shielded(store, said(str(turn), name))
            assert await sync.read(store, told, store, name) == [str(n) for n in range(turn + 1)]

    async def main() -> None:
        await asyncio.gather(*(work(f"t{n}") for n in range(8)))

    with killing_sessions(place):
        asyncio.run(main())
    world = World(store, None)  # type: ignore[arg-type]
    world.runs = {f"t{n}": None for n in range(8)}
    world.check()


def test_a_locked_thread_holds_up_its_own_caller_only(store: PostgresStore, place: Place) -> None:
    store.transact(said("zero", "t1"))
    done: dict[str, float] = {}

    async def write(name: str) -> None:
        await sync.write(store, said("hello", name))
        done[name] = time.monotonic()

    async def main() -> None:
        with psycopg.connect(place.url) as other:
            other.execute(LOCK, (store.incarnation, "t1"))
            locked = asyncio.create_task(write("t1"))
            for turn in range(4):
                await asyncio.gather(*(write(f"t{turn}-{n}") for n in range(4)))
            assert not locked.done()
            other.rollback()
        await locked

    asyncio.run(main())
    assert told(store, "t1") == ["zero", "hello"]


def test_a_commit_that_takes_long_holds_up_no_later_one(store: PostgresStore) -> None:
    held, go = threading.Event(), threading.Event()

    def boundary(name: str, when: str) -> None:
        if not held.is_set():
            held.set()
            assert go.wait(20)

    store.boundary = boundary

    async def main() -> None:
        slow = [asyncio.create_task(sync.write(store, said("slow", f"s{n}"))) for n in range(2)]
        await asyncio.to_thread(held.wait)
        await asyncio.wait_for(sync.write(store, said("hello", "t")), 10)
        assert not any(task.done() for task in slow)
        go.set()
        await asyncio.gather(*slow)

    asyncio.run(main())
    assert [told(store, name) for name in ("s0", "s1", "t")] == [["slow"], ["slow"], ["hello"]]


def test_other_processes_hear_of_all_of_them(store: PostgresStore, open_pg: PgOpener) -> None:
    heard: set[str] = set()
    other = open_pg()
    listening = [other.subscribe(f"t{n}", lambda n=n: heard.add(f"t{n}")) for n in range(4)]  # type: ignore[misc]
    write_all(store, *(said("hello", f"t{n}") for n in range(4)))
    until(lambda: heard == {"t0", "t1", "t2", "t3"})
    for each in listening:
        each.cancel()


CROSSING = """
import asyncio, json, sys
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


def test_two_processes_cross_and_do_not_block_each_other(
    open_pg: PgOpener, place: Place, tmp_path: Path
) -> None:
    secret = new_key()
    store = open_pg(keys=Keyring.parse(secret))
    script = tmp_path / "crossing.py"
    script.write_text(CROSSING)
    args = [sys.executable, str(script), place.url, place.schema, secret]
    both = [
        subprocess.Popen([*args, name, "6"], stdout=subprocess.PIPE, text=True)
        for name in ("one", "two")
    ]
    assert [process.communicate(timeout=120)[0].strip() for process in both] == ["0", "0"]
    for n in range(8):
        words = told(store, f"t{n}")
        assert len(words) == 24
        assert len(set(words)) == 12  # two tasks of each process say the same
    World(store, None).check()  # type: ignore[arg-type]


def test_a_database_that_is_away_is_an_error_for_each(open_pg: PgOpener) -> None:
    store = open_pg(patience=0.5)
    write_all(store, said("hello", "t1"), said("hello", "t2"))
    store._address = "postgresql://127.0.0.1:1/nowhere"
    store._pool.renew()
    began = time.monotonic()
    assert kinds(write_all(store, *(said("x", f"t{n}") for n in range(8)))) == [StoreError] * 8
    functions = [lambda n=n: told(store, f"t{n}") for n in range(8)]  # type: ignore[misc]
    assert kinds(read_all(store, *functions)) == [StoreError] * 8
    assert time.monotonic() - began < 10
    store._pool.close()


# -- reads


class Counted(PostgresStore):
    """Counts the round trips of reads."""

    trips = 0

    def _read_together(self, *args: Any) -> None:
        self.trips += 1
        super()._read_together(*args)

    def _read(self, *args: Any) -> list[Any]:
        self.trips += 1
        return super()._read(*args)


@pytest.fixture
def counted(place: Place, store: PostgresStore) -> Any:
    opened = Counted(place.url, schema=place.schema, keys=store.keys)
    yield opened
    opened.close()


def test_eight_tasks_read_in_one_round_trip(counted: Counted) -> None:
    write_all(counted, *(said(f"hello {n}", f"t{n}") for n in range(8)))

    def three(n: int) -> list[str]:
        assert counted.run(f"t{n}") is not None
        assert counted.thread(f"t{n}") is not None
        return told(counted, f"t{n}")

    counted.trips = 0
    functions = [lambda n=n: three(n) for n in range(8)]  # type: ignore[misc]
    assert read_all(counted, *functions) == [[f"hello {n}"] for n in range(8)]
    assert counted.trips == 3


def test_a_read_that_is_refused_touches_no_other(counted: Counted) -> None:
    def fails() -> Any:
        return counted._rows("SELECT 1 / 0")

    def wrong() -> Any:
        return counted._rows("SELECT ?::text", ("a \0 in it",))

    def raises() -> Any:
        counted._rows("SELECT 1")
        raise Paused("r", [])  # no Exception, and no error either

    def returns() -> Any:
        return ValueError(str(counted._rows("SELECT 2::bigint")))

    def twice() -> Any:
        return counted._rows("SELECT 3::bigint") + counted._rows("SELECT 4::bigint")

    results = read_all(counted, twice, fails, returns, wrong, raises, twice)
    assert kinds(results) == [list, StoreError, ValueError, InvalidCall, Paused, list]
    assert "division by zero" in str(results[1])
    assert results[0] == results[5] == [(3,), (4,)]
    assert str(results[2]) == "[(2,)]"


def test_a_read_that_is_cancelled_touches_no_other(store: PostgresStore) -> None:
    store.transact(said("hello", "t"))

    async def main() -> None:
        tasks = [asyncio.create_task(sync.read(store, told, store, "t")) for _ in range(4)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert kinds(results) == [list, asyncio.CancelledError, list, list]

    asyncio.run(main())


def test_reads_whose_connection_is_killed_are_made_again(
    store: PostgresStore, place: Place
) -> None:
    store.transact(said("hello", "t"))

    def kill() -> None:
        asleep = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE %s "
            "AND pid <> pg_backend_pid()"
        )
        until(lambda: bool(place.sql(asleep, "%pg_sleep(0.7)%")))

    with ThreadPoolExecutor(1) as elsewhere:
        killing = elsewhere.submit(kill)
        slow = lambda: store._rows("SELECT pg_sleep(0.7)::text")  # noqa: E731
        results = read_all(store, lambda: told(store, "t"), slow, lambda: told(store, "t"))
        killing.result()
    assert results == [["hello"], [("",)], ["hello"]]


def test_a_slow_read_holds_up_no_later_one(store: PostgresStore) -> None:
    store.transact(said("hello", "t"))

    async def main() -> None:
        read = lambda: store._rows("SELECT pg_sleep(3)::text")  # noqa: E731
        slow = [asyncio.create_task(sync.read(store, read)) for _ in range(2)]
        await asyncio.sleep(0.1)
        for _ in range(3):
            assert await asyncio.wait_for(sync.read(store, told, store, "t"), 2) == ["hello"]
        assert not any(task.done() for task in slow)
        await asyncio.gather(*slow)

    asyncio.run(main())


def test_a_read_that_locks_rows_does_not_hold_them_for_the_others(
    world: World, store: PostgresStore, place: Place
) -> None:
    """Workers read due runs under a lock, which must not last as long as a slow read beside it."""
    world.decide(world.ask())
    with ThreadPoolExecutor(1) as elsewhere:
        functions = (
            lambda: [run.id for run in store.ready(["agent"])],
            lambda: store._rows("SELECT pg_sleep(1.5)::text"),
            lambda: [run.id for run in store.ready(["agent"])],
        )
        reading = elsewhere.submit(read_all, store, *functions)
        asleep = "SELECT 1 FROM pg_stat_activity WHERE query LIKE %s AND pid <> pg_backend_pid()"
        until(lambda: bool(place.sql(asleep, "%pg_sleep(1.5)%")))
        assert place.sql("SELECT id FROM run WHERE id = %s FOR UPDATE NOWAIT", "r") == [("r",)]
        assert not reading.done()
        assert reading.result() == [["r"], [("",)], ["r"]]


def test_a_function_that_writes_while_it_reads(store: PostgresStore) -> None:
    """It should not, and yet it must not wait for a connection that its batch holds."""

    def both(n: int) -> list[str]:
        before = told(store, f"t{n}")
        store.transact(said("hello", f"t{n}"))
        return before + told(store, f"t{n}")

    assert read_all(store, *(lambda n=n: both(n) for n in range(6))) == [["hello"]] * 6  # type: ignore[misc]


def test_large_answers_and_many_statements(store: PostgresStore) -> None:
    """Neither side may wait for the other to read first."""
    large = "SELECT repeat('x', 1000000), ?::text"

    def read(n: int) -> int:
        return sum(len(text) for text in store._rows(large, (str(n) * 100_000,))[0])

    assert read_all(store, *(lambda n=n: read(n) for n in range(30))) == [  # type: ignore[misc]
        1_000_000 + len(str(n)) * 100_000 for n in range(30)
    ]


def test_after_all_this_the_connections_are_idle(store: PostgresStore) -> None:
    bad = said("half a \ud800 pair", "t2")
    write_all(store, said("x", "t1"), bad, Propose(thread="t3", run="t1", agent="a"))
    read_all(store, lambda: store._rows("SELECT 1 / 0"), lambda: store._rows("SELECT 1"))
    for connection in store._pool._idle:
        with Pipeline(connection, store._translate) as pipe:
            assert pipe.send("SELECT 1::bigint", ()).fetchall() == [(1,)]
    assert len(store._pool._idle) <= 3


# -- callers on several OS threads


def on_os_threads(*functions: Callable[[], Any]) -> list[Any]:
    """Call each function in an OS thread of its own, all at once; return results and errors."""
    results: list[Any] = [None] * len(functions)
    together = threading.Barrier(len(functions))

    def call(number: int) -> None:
        together.wait(20)
        try:
            results[number] = functions[number]()
        except BaseException as error:
            results[number] = error

    threads = [threading.Thread(target=call, args=(n,)) for n in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return results


def waiting_in(queue: CallQueue[Any], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list of all calls that queue from now on."""
    queued: list[Any] = []
    real = queue._outcome
    monkeypatch.setattr(queue, "_outcome", lambda call: (queued.append(call), real(call))[1])
    return queued


def queued_behind(
    store: PostgresStore,
    monkeypatch: pytest.MonkeyPatch,
    *commands: Command,
    meanwhile: Callable[[], object] = lambda: None,
) -> list[Any]:
    """Run commands, each in an OS thread, while three others hold all connections."""
    go, held = threading.Event(), list[str]()

    def boundary(name: str, when: str) -> None:
        held.append(name)
        assert go.wait(60)

    store.boundary = boundary
    queued = waiting_in(store._commits, monkeypatch)
    first = [threading.Thread(target=store.transact, args=(said("x", f"f{n}"),)) for n in range(3)]
    for thread in first:
        thread.start()
    until(lambda: len(held) == 3)

    def let_go() -> None:
        until(lambda: len(queued) == len(commands))
        meanwhile()
        go.set()

    with ThreadPoolExecutor(1) as elsewhere:
        going = elsewhere.submit(let_go)
        results = on_os_threads(*(partial(store.transact, each) for each in commands))
        going.result()
    for thread in first:
        thread.join()
    return results


def test_twelve_os_threads_need_few_commits(
    store: PostgresStore, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = queued_behind(store, monkeypatch, *(said("hello", f"t{n}") for n in range(12)))
    assert kinds(results) == [list] * 12
    assert [told(store, f"t{n}") for n in range(12)] == [["hello"]] * 12
    # Two workers took what was there when they began, and one of them took the rest.
    assert commits(place) <= 3
    assert commits(place, "f") == 3


def test_what_is_refused_on_one_os_thread_touches_no_other(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.transact(said("zero", "t3"))
    results = queued_behind(
        store,
        monkeypatch,
        said("one", "t1"),
        said("half a \ud800 pair", "t2"),
        Finish(thread="t3", run="none", status="done", token=0),
        Propose(thread="t3", run="another", agent="a"),
        said("a \0 in it", "t4"),
        said("five", "t5"),
        said("five again", "t5"),
    )
    assert kinds(results) == [list, InvalidCall, NotFound, Conflict, InvalidCall, list, list]
    assert [told(store, f"t{n}") for n in range(1, 5)] == [["one"], [], ["zero"], []]
    assert sorted(told(store, "t5")) == ["five", "five again"]
    World(store, None).check()  # type: ignore[arg-type]


def test_os_threads_read_in_few_round_trips(
    counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_all(counted, *(said(f"hello {n}", f"t{n}") for n in range(12)))
    queued, go = waiting_in(counted._reads, monkeypatch), threading.Event()
    real = counted._pool.connection
    monkeypatch.setattr(counted._pool, "connection", lambda end: (go.wait(60), real(end))[1])
    counted.trips = 0

    def let_go() -> None:
        until(lambda: len(queued) == 9)
        go.set()

    with ThreadPoolExecutor(1) as elsewhere:
        going = elsewhere.submit(let_go)
        results = on_os_threads(*(partial(told, counted, f"t{n}") for n in range(12)))
        going.result()
    assert results == [[f"hello {n}"] for n in range(12)]
    assert counted.trips <= 6  # three alone, and three batches


def test_a_read_on_one_os_thread_that_is_refused_touches_no_other(store: PostgresStore) -> None:
    store.transact(said("hello", "t"))

    def fails() -> Any:
        return store._rows("SELECT 1 / 0")

    functions = [fails if n % 4 == 0 else lambda: told(store, "t") for n in range(16)]
    for _ in range(5):
        results = on_os_threads(*functions)
        assert kinds(results) == [StoreError if n % 4 == 0 else list for n in range(16)]


def test_a_locked_thread_holds_up_its_own_os_thread_only(
    store: PostgresStore, place: Place
) -> None:
    store.transact(said("zero", "locked"))
    with psycopg.connect(place.url) as other, ThreadPoolExecutor(5) as elsewhere:
        other.execute(LOCK, (store.incarnation, "locked"))
        waiting = [elsewhere.submit(store.transact, said("hello", "locked")) for _ in range(2)]
        for turn in range(3):
            results = on_os_threads(
                *(partial(store.transact, said("hello", f"t{turn}-{n}")) for n in range(12))
            )
            assert kinds(results) == [list] * 12
        assert not any(each.done() for each in waiting)
        other.rollback()
        assert [len(each.result(20)) for each in waiting] == [1, 1]
    assert told(store, "locked") == ["zero", "hello", "hello"]


def test_sessions_of_os_threads_that_are_killed_again_and_again(
    store: PostgresStore, place: Place
) -> None:
    def work(name: str) -> None:
        for turn in range(8):
            store.transact(said(str(turn), name))
            assert told(store, name) == [str(n) for n in range(turn + 1)]

    with killing_sessions(place):
        results = on_os_threads(*(partial(work, f"t{n}") for n in range(16)))
    assert results == [None] * 16
    world = World(store, None)  # type: ignore[arg-type]
    world.runs = {f"t{n}": None for n in range(16)}
    world.check()


def test_a_store_restored_while_callers_queue_takes_none_of_them(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They did not know of it when they called, even if it is known once it is their turn."""
    results = queued_behind(
        store,
        monkeypatch,
        *(said("x", f"t{n}") for n in range(6)),
        meanwhile=lambda: setattr(store._database, "behind", True),
    )
    assert kinds(results) == [StoreError] * 6
    assert "sayso recover" in str(results[0])
    assert [told(store, f"t{n}") for n in range(6)] == [[]] * 6
    store._database.behind = False


INTERRUPTED = """
import os, signal, sys, threading, time
from sayso.engine.commands import Propose
from sayso.keys import Keyring
from sayso.rows import Message
from sayso.stores.postgres import PostgresStore

url, schema, key = sys.argv[1:]
store = PostgresStore(url, schema=schema, keys=Keyring.parse(key))
done = {}
over = threading.Event()

def work(name):
    for n in range(25):
        words = str(n)
        said = Propose(thread=name, run=name, agent="a", messages=(Message(name, words),))
        store.transact(said)
        done[name] = n

def annoy():
    while not over.wait(0.004):
        os.kill(os.getpid(), signal.SIGINT)

threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(12)]
for thread in threads:
    thread.start()
annoyer = threading.Thread(target=annoy)
interrupts = 0
annoyer.start()
while any(thread.is_alive() for thread in threads):
    try:
        said = Propose(thread="main", run="main", agent="a", messages=(Message("main", "x"),))
        store.transact(said)
        time.sleep(0.001)
    except KeyboardInterrupt:
        interrupts += 1
while True:
    try:
        over.set()
        annoyer.join()
        break
    except KeyboardInterrupt:
        pass
print(interrupts > 3, sorted(set(done.values())), len(done))
store.close()
"""


def test_an_interrupt_touches_no_other_os_thread(
    open_pg: PgOpener, place: Place, tmp_path: Path
) -> None:
    secret = new_key()
    store = open_pg(keys=Keyring.parse(secret))
    script = tmp_path / "interrupted.py"
    script.write_text(INTERRUPTED)
    args = [sys.executable, str(script), place.url, place.schema, secret]
    ran = subprocess.run(args, capture_output=True, text=True, timeout=120)
    assert ran.stdout.strip() == "True [24] 12", ran.stderr
    for n in range(12):
        assert told(store, f"t{n}") == [str(turn) for turn in range(25)]
    World(store, None).check()  # type: ignore[arg-type]
