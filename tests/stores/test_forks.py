"""Processes that fork while their threads use a store, as preforking servers do."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from forked_child import fork
from waiting import until

from sayso import Gate, Inbox, Paused, forking
from sayso.audit import verify
from sayso.engine.renewing import Renewal
from sayso.errors import StoreError
from sayso.forking import no_fork
from sayso.gate.lease import RunLease
from sayso.stores import open_store
from sayso.stores.base import Store
from sayso.stores.sqlite import SqliteStore, files

# Python warns that the child of a process with threads may hang. It must not, and this tests it.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

FORKS = 30
#: A child that takes longer hangs. A busy machine needs seconds for what takes milliseconds.
PATIENCE = 20.0


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "sqlite":
        store = open_store(f"sqlite:///{tmp_path / 'store.db'}")
        yield store
        store.close()
    else:
        yield request.getfixturevalue("open_pg")()


def outcome(pid: int) -> str:
    """Wait for a child: ``ended``, ``failed``, or ``hung``, and then it is killed."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return "failed" if os.waitstatus_to_exitcode(status) else "ended"
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "hung"


class Office:
    """A gate, an inbox, and a guarded function that notes each of its runs in a file."""

    def __init__(self, store: Store, folder: Path, wait: float | None = 0) -> None:
        self.store = store
        self.gate = Gate(store, wait=wait)
        self.inbox = Inbox(store)
        self._paid = folder / "paid"

        @self.gate.guard(needs_approval=True)
        def pay(to: str) -> str:
            with self._paid.open("a") as log:
                log.write(f"{to}\n")
            return f"paid {to}"

        self.pay: Any = pay

    def paid(self) -> list[str]:
        return self._paid.read_text().splitlines() if self._paid.exists() else []

    def whole_cycle(self, run: str) -> None:
        """Ask, read, decide, come back and run, ask a question."""
        with contextlib.suppress(Paused), self.gate.run(run):
            self.pay(run)
        (request,) = self.inbox.pending_sync(run=run).items
        assert self.inbox.get_sync(request.id).args == {"to": run}
        self.inbox.decide_sync(request.id, request.approve(), by="ana")
        with self.gate.run(run):
            assert self.pay(run) == f"paid {run}"
        with contextlib.suppress(Paused), self.gate.run(f"{run} asks"):
            self.gate.ask_sync("Which account?")
        assert len(self.inbox.pending_sync(run=f"{run} asks").items) == 1


@contextlib.contextmanager
def busy(*bodies: Callable[[], object]) -> Iterator[None]:
    """Repeat each body in an OS thread of its own until the block is left."""
    over = threading.Event()
    errors: list[BaseException] = []

    def repeat(body: Callable[[], object]) -> None:
        try:
            while not over.is_set():
                body()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=repeat, args=(body,), daemon=True) for body in bodies]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(PATIENCE)
    assert not [thread for thread in threads if thread.is_alive()], "the parent hangs"
    assert not errors, errors


def numbered(name: str, body: Callable[[str], object], done: list[str]) -> Callable[[], None]:
    """Call a body with a new name each time, and note the names that came to an end."""

    def step() -> None:
        run = f"{name} {len(done)}"
        body(run)
        done.append(run)

    return step


def test_every_use_of_sqlite_is_a_section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork in the middle of any statement would leave SQLite's own locks to the child."""
    statements: list[str] = []

    def execute(connection: sqlite3.Connection, statement: str, *values: Any) -> sqlite3.Cursor:
        statements.append(statement)
        assert no_fork.lock._is_owned(), statement  # type: ignore[attr-defined]
        return sqlite3.Connection.execute(connection, statement, *values)

    monkeypatch.setattr(files.Connection, "execute", execute, raising=False)
    with contextlib.closing(SqliteStore(tmp_path / "sayso.db")) as store:
        office = Office(store, tmp_path)
        office.whole_cycle("one")
        assert store.tail()
        assert verify(store).ok
        with watched(store):
            office.whole_cycle("two")
        store.mark_recovered()
        store.prune(store.now(), "ana")
    assert len(statements) > 100


def test_finalizer_may_run_while_a_section_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector closes connections at any allocation, also at a thread's first section."""
    locks: list[Any] = []

    def first_section() -> None:
        make_lock = threading.RLock

        def collecting() -> Any:
            monkeypatch.setattr(threading, "RLock", make_lock)
            with no_fork.lock:  # as ``Connection.__del__`` does
                locks.append(no_fork.lock)
            return make_lock()

        monkeypatch.setattr(threading, "RLock", collecting)
        with no_fork.lock:
            locks.append(no_fork.lock)

    thread = threading.Thread(target=first_section)
    thread.start()
    thread.join()
    assert len(locks) == 2
    assert locks[0] is locks[1]


@contextlib.contextmanager
def watched(store: SqliteStore) -> Iterator[None]:
    """Listen while something is written, so that a watcher reads too."""
    listener = store.subscribe(None, lambda: None)
    try:
        yield
    finally:
        listener.cancel()


@pytest.mark.long
def test_child_of_a_busy_process_uses_the_store(store: Store, tmp_path: Path) -> None:
    office = Office(store, tmp_path)
    office.whole_cycle("first")
    done: list[list[str]] = [[], [], []]
    writers = [numbered(f"thread {n}", office.whole_cycle, done[n]) for n in range(3)]
    outcomes: list[str] = []
    children: list[int] = []
    with busy(*writers, lambda: office.inbox.pending_sync(limit=20), store.tail):
        for n in range(FORKS):
            time.sleep(random.uniform(0.0, 0.03))
            children.append(fork(lambda n=n: office.whole_cycle(f"child {n}")))  # type: ignore[misc]
            if n % 3 == 2:
                outcomes += [outcome(pid) for pid in children[-3:]]
    assert outcomes == ["ended"] * FORKS
    expected = ["first", *(run for runs in done for run in runs)]
    expected += [f"child {n}" for n in range(FORKS)]
    assert sorted(office.paid()) == sorted(expected), "each effect happened once"
    assert all(done), "every thread of the parent did something"
    for run in expected:
        found = store.run(run)
        assert found is not None
        assert found.status == "done"
    assert verify(store).ok
    office.whole_cycle("last")


@pytest.mark.long
def test_child_of_a_child_uses_the_store(store: Store, tmp_path: Path) -> None:
    office = Office(store, tmp_path)

    def child(n: int, depth: int) -> None:
        office.whole_cycle(f"child {n} {depth}")
        if depth:
            done: list[str] = []
            name = f"thread {n} {depth}"
            with busy(numbered(name, office.whole_cycle, done), store.tail):
                time.sleep(random.uniform(0.0, 0.03))
                pid = fork(lambda: child(n, depth - 1))
                assert outcome(pid) == "ended"
            office.whole_cycle(f"child {n} {depth} again")

    done: list[str] = []
    with busy(numbered("thread", office.whole_cycle, done)):
        assert [outcome(fork(lambda n=n: child(n, 2))) for n in range(3)] == ["ended"] * 3  # type: ignore[misc]
    paid = office.paid()
    assert len(paid) == len(set(paid)) > 15
    assert verify(store).ok


@pytest.mark.long
def test_fork_inside_a_run_keeps_the_parents_run(store: Store, tmp_path: Path) -> None:
    office = Office(store, tmp_path)
    gate = office.gate

    def child() -> None:
        with gate.run("of the child"):
            assert gate.once_sync("step", lambda: "child") == "child"
        # Still in the parent's run: what the parent has done is done, and the rest is shared.
        assert gate.once_sync("before", lambda: "again") == "before"
        assert gate.once_sync("in the child", lambda: "child") == "child"

    def leaves() -> None:
        with gate.run("order"):
            pid = os.fork()
            if pid:
                assert outcome(pid) == "ended"
                return
        os._exit(0)  # the child left the block, and its parent did not

    with busy(store.tail, numbered("thread", office.whole_cycle, [])):
        with gate.run("order"):
            assert gate.once_sync("before", lambda: "before") == "before"
            assert outcome(fork(child)) == "ended"
            found = store.run("order")
            assert found is not None
            assert found.status == "running"
            assert gate.once_sync("in the child", lambda: "parent") == "child"
        leaves()
    found = store.run("order")
    assert found is not None
    assert found.status == "done"
    assert verify(store).ok


def test_forked_child_does_not_finish_the_run(store: Store, tmp_path: Path) -> None:
    gate = Gate(store, wait=0)
    with gate.run("order") as scope:
        gate.once_sync("before", lambda: None)
        pid = fork(lambda: scope.__exit__(None, None, None))
        assert outcome(pid) == "ended"
        found = store.run("order")
        assert found is not None
        assert found.status == "running"
        gate.once_sync("after", lambda: None)
    found = store.run("order")
    assert found is not None
    assert found.status == "done"


@pytest.mark.parametrize("end", ["returns", "raises", "exits", "pauses"])
def test_forking_call_is_recorded_only_by_the_parent(store: Store, end: str) -> None:
    gate = Gate(store, wait=0)
    parent = os.getpid()

    @gate.guard(needs_approval=False)
    def work() -> str:
        pid = os.fork()
        if pid:
            assert outcome(pid) == "ended"
            return "the parent's"
        if end == "raises":
            raise ValueError("in the child")
        if end == "exits":
            raise SystemExit
        if end == "pauses":
            raise Paused("r", [])
        return "the child's"

    try:
        with gate.run("order"):
            result = work()
    except BaseException:
        if os.getpid() != parent:
            os._exit(0)
        raise
    finally:
        if os.getpid() != parent:
            os._exit(1)
    assert result == "the parent's"
    (call,) = store.calls_of("order")
    assert call.status == "done"
    assert [event.type for event in store.chain("order")] == [
        "allowed",
        "started",
        "recorded",
        "finished",
    ]


def test_forked_child_works_on_a_new_event_loop(store: Store, tmp_path: Path) -> None:
    office = Office(store, tmp_path, wait=None)
    gate = office.gate

    async def step(name: str) -> str:
        async with gate.run(name):
            return str(await gate.once("step", lambda: name))

    async def parent() -> list[str]:
        tasks = [asyncio.create_task(step(f"parent {n}")) for n in range(20)]
        await asyncio.sleep(0.01)
        pids = [fork(lambda n=n: asyncio.run(step(f"child {n}"))) for n in range(5)]  # type: ignore[misc]
        await asyncio.gather(*tasks)
        return [await asyncio.to_thread(outcome, pid) for pid in pids]

    assert asyncio.run(parent()) == ["ended"] * 5
    for name in [*(f"parent {n}" for n in range(20)), *(f"child {n}" for n in range(5))]:
        found = store.run(name)
        assert found is not None
        assert found.status == "done"


def test_waiting_child_receives_its_decision(store: Store, tmp_path: Path) -> None:
    """Neither the watcher nor the listeners of the parent are in the child."""
    office = Office(store, tmp_path, wait=PATIENCE)
    inbox = office.inbox

    def ask() -> None:
        with office.gate.run("of the child"):
            assert office.pay("bo") == "paid bo"

    def approve(run: str) -> None:
        found = until(lambda: inbox.pending_sync(run=run).items)
        inbox.decide_sync(found[0].id, found[0].approve(), by="ana")

    subscription = store.subscribe(None, lambda: None)
    pid = fork(ask)
    approve("of the child")
    assert outcome(pid) == "ended"
    assert office.paid() == ["bo"]
    subscription.cancel()


def test_fork_during_a_commit_keeps_the_parents_commit(
    tmp_path: Path,
) -> None:
    """As from a signal handler: the OS thread that commits is the one that forks."""
    children: list[int] = []
    seen: list[str] = []
    parent = os.getpid()

    def boundary(name: str, when: str) -> None:
        if "propose" in name and when == "before" and not children:
            children.append(os.fork())

    store = SqliteStore(tmp_path / "store.db", boundary=boundary)
    gate = Gate(store, wait=0)
    try:
        with gate.run("order"):
            seen.append(gate.once_sync("step", lambda: "done"))
    except StoreError as error:
        if os.getpid() != parent:
            with pytest.raises(StoreError, match="forked"):
                SqliteStore(tmp_path / "store.db")
            other = SqliteStore(tmp_path / "other.db")
            other.close()
            store.close()
            os._exit(0 if "forked" in str(error) else 2)
        raise
    finally:
        if os.getpid() != parent:
            os._exit(1)
    assert outcome(children[0]) == "ended"
    assert seen == ["done"]
    with gate.run("order-2"):
        gate.once_sync("step", lambda: "done")
    assert verify(store).ok
    store.close()


def test_child_releases_lock_of_killed_parent(tmp_path: Path) -> None:
    """The lock between processes belongs to an open file, which a child inherits."""
    path = tmp_path / "store.db"
    reader, writer = os.pipe()

    def parent() -> None:
        children: list[int] = []

        def boundary(name: str, when: str) -> None:
            if children:
                os.write(writer, b".")
                time.sleep(PATIENCE)

        gate = Gate(SqliteStore(path, boundary=boundary), wait=0)
        children.append(fork(lambda: time.sleep(2 * PATIENCE)))
        os.write(writer, str(children[0]).encode().ljust(20))
        with gate.run("order"):
            gate.once_sync("step", int)

    SqliteStore(path).close()
    pid = fork(parent)
    child = int(os.read(reader, 20))
    os.read(reader, 1)  # the parent is in the middle of a commit
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    store = SqliteStore(path)
    try:
        with Gate(store, wait=0).run("order"):
            Gate(store, wait=0).once_sync("step", int)
    finally:
        os.kill(child, signal.SIGKILL)
        store.close()
        os.close(reader)
        os.close(writer)


def test_fork_in_stuck_section_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forking, "PATIENCE", 0.05)
    inside, over = threading.Event(), threading.Event()

    def boundary(name: str, when: str) -> None:
        inside.set()
        over.wait(2 * PATIENCE)

    store = SqliteStore(tmp_path / "store.db", boundary=boundary)
    gate = Gate(store, wait=0)

    def write() -> None:
        with gate.run("order"):
            gate.once_sync("step", lambda: "done")

    def child() -> None:
        with pytest.raises(StoreError, match="forked"):
            write()
        with pytest.raises(StoreError, match="forked"):
            store.tail()
        other = Gate(f"sqlite:///{tmp_path / 'other.db'}", wait=0)
        with other.run("order"):
            assert other.once_sync("step", lambda: "done") == "done"

    thread = threading.Thread(target=write)
    thread.start()
    assert inside.wait(PATIENCE)
    assert outcome(fork(child)) == "ended"
    over.set()
    thread.join()
    found = store.run("order")
    assert found is not None
    assert found.status == "done"
    store.close()


def test_child_drops_lease_during_renewal(store: Store) -> None:
    renewing = threading.Event()
    forked = threading.Event()

    class SlowLease(RunLease):
        def extend(self, renewal: Renewal, began: float) -> None:
            renewing.set()
            forked.wait(PATIENCE)

    gate = Gate(store, wait=0)

    @gate.guard(needs_approval=False)
    def work() -> str:
        (call,) = store.calls_of("order")
        lease = SlowLease(store, "other", 0.03).on("order", "order")
        lease.keep(call.token, time.monotonic())
        assert renewing.wait(PATIENCE)
        child = outcome(fork(lease.drop))
        forked.set()
        lease.drop()
        return child

    with gate.run("order"):
        assert work() == "ended"
