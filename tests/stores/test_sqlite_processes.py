"""One file and several processes: forks, restored copies, and news from elsewhere."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from forked_child import fork, succeeded

from sayso import Gate
from sayso.engine.commands import Recover
from sayso.errors import SaysoError, StoreError
from sayso.keys import Keyring
from sayso.stores.sqlite import SqliteStore
from sayso.testing import FakeClock
from sayso_testing.world import World

Opener = Callable[..., SqliteStore]

# Python warns that a child of a process with threads may hang: that it does not is what we test.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


# -- forks


def test_forked_child_uses_the_store(world: World) -> None:
    world.ask("before")
    world.store.calls_of("r")

    def child() -> None:
        assert len(world.store.calls_of("r")) == 1
        world.ask("child")
        assert [call.tool for call in world.store.calls_of("r")] == ["before", "child"]
        world.check()
        world.store.close()

    assert succeeded(fork(child))
    assert [call.tool for call in world.store.calls_of("r")] == ["before", "child"]
    world.ask("parent", key="of the parent", id="req_parent")
    world.check()


def test_parent_and_children_write_at_once(world: World) -> None:
    world.propose()

    def child(index: int) -> None:
        for turn in range(10):
            world.propose(says=(f"{index}:{turn}",), run=f"r{index}", thread=f"t{index}")
            world.propose(says=(f"{index}:{turn}",))

    pids = [fork(lambda index=index: child(index)) for index in range(4)]  # type: ignore[misc]
    child(9)
    assert all([succeeded(pid) for pid in pids])
    said = [body for _, body in world.store.messages("t")]
    assert sorted(said) == sorted(f"{i}:{n}" for i in (0, 1, 2, 3, 9) for n in range(10))
    for index in (0, 1, 2, 3, 9):
        assert len(world.store.messages(f"t{index}")) == 10
    world.check()


def test_parents_close_keeps_the_childs_store(world: World, open_again: Opener) -> None:
    """The parent must not take itself for the last, and remove the log that the child writes."""
    world.ask("before")
    reader, writer = os.pipe()
    ready, tell_ready = os.pipe()

    def child() -> None:
        world.ask("child 1")
        os.write(tell_ready, b".")
        os.read(reader, 1)
        world.ask("child 2")
        assert len(world.store.calls_of("r")) == 3

    pid = fork(child)
    os.read(ready, 1)
    world.store.close()
    other = open_again()
    other.close()
    os.write(writer, b".")
    assert succeeded(pid)
    world.store = open_again()
    assert [call.tool for call in world.store.calls_of("r")] == ["before", "child 1", "child 2"]
    world.check()
    for descriptor in (reader, writer, ready, tell_ready):
        os.close(descriptor)


def test_forked_child_hears_its_own_commits(world: World) -> None:
    world.propose()
    subscription = world.store.subscribe("t", lambda: None)
    time.sleep(0.02)

    def child() -> None:
        heard = threading.Event()
        world.store.calls_of("r")
        world.store.subscribe("t", heard.set)
        world.ask()
        assert heard.wait(5)

    assert succeeded(fork(child))
    subscription.cancel()


def test_closed_store_is_closed_in_a_child(world: World) -> None:
    world.store.close()

    def child() -> None:
        with pytest.raises(StoreError, match="closed"):
            world.ask()
        with pytest.raises(StoreError, match="closed"):
            world.store.events()

    assert succeeded(fork(child))


# -- restored copies


@pytest.fixture
def restored(world: World, path: Path, open_again: Opener) -> World:
    """A store that was copied aside, worked on, and put back."""
    world.decide(world.ask("send", id="req_approved", key="send:1"))
    world.ask("pay", id="req_asked")
    world.store.close()
    shutil.copy(path, path.with_suffix(".copy"))
    world.store = open_again()
    call = world.start(world.call("req_approved"))[0]
    world.record(call)
    assert not world.store.restored()
    world.store.close()
    shutil.copy(path.with_suffix(".copy"), path)
    world.store = open_again()
    return world


def recover(world: World) -> None:
    for run in list(world.store.open_runs()):
        world.transact(Recover(thread=run.thread, run=run.id, by="ops"))
    world.store.mark_recovered()


def test_restored_copy_is_noticed(restored: World) -> None:
    assert restored.store.restored()
    assert restored.call("req_approved").status == "ready", "it ran, and this file does not know"


def test_restore_stays_noticed_until_recovery(restored: World) -> None:
    for _ in range(3):
        for _ in range(10):
            restored.propose(restored.new())
        restored.reopen()
        assert restored.store.restored()


def test_recovery_doubts_calls_that_may_have_run(restored: World) -> None:
    recover(restored)
    assert not restored.store.restored()
    assert restored.call("req_approved").status == "in_doubt"
    assert restored.call("req_asked").status == "asked"
    restored.reopen()
    assert not restored.store.restored()
    restored.ask("and on")
    restored.reopen()
    assert not restored.store.restored()
    restored.check()


def test_recovery_applies_to_other_open_stores(restored: World, open_again: Opener) -> None:
    here = restored.store
    restored.store = open_again()
    recover(restored)
    assert not here.restored()


def test_restored_store_starts_no_call(path: Path) -> None:
    ran: list[str] = []

    def work(gate: Gate) -> None:
        with gate.run("order-1"):
            gate.guard(needs_approval=False, name="send")(ran.append)("it")

    gate = Gate(f"sqlite:///{path}")
    with gate.run("order-0"):
        gate.once_sync("a", lambda: 1)
    gate.close()
    shutil.copy(path, path.with_suffix(".copy"))
    gate = Gate(f"sqlite:///{path}")
    work(gate)
    gate.close()
    assert ran == ["it"]
    shutil.copy(path.with_suffix(".copy"), path)
    gate = Gate(f"sqlite:///{path}")
    with pytest.raises(StoreError, match="sayso recover"):
        work(gate)
    assert ran == ["it"]
    gate.store.mark_recovered()
    work(gate)
    assert ran == ["it", "it"], "what the store never knew of is new to it"
    gate.close()


def test_copy_elsewhere_is_not_a_restore(
    world: World, path: Path, tmp_path: Path, open_again: Opener
) -> None:
    """A mark stands beside its file: a copy in another place starts with a mark of its own."""
    world.ask()
    world.store.close()
    (tmp_path / "elsewhere").mkdir()
    shutil.copy(path, tmp_path / "elsewhere" / path.name)
    assert not open_again(tmp_path / "elsewhere" / path.name).restored()


def test_damaged_mark_reports_no_restore(world: World, path: Path, open_again: Opener) -> None:
    mark = path.with_name(path.name + ".mark")
    for content in (None, b"", b"{", b"[1]", b'["x", "y"]', b"\xff" * 300):
        world.ask()
        world.store.close()
        if content is None:
            mark.unlink()
        else:
            mark.write_bytes(content)
        world.store = open_again()
        assert not world.store.restored()


# -- news from other processes

DECIDER = """
import sys, time
from sayso import Inbox

inbox = Inbox(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    request = inbox.get_sync(line.strip())
    began = time.monotonic()
    inbox.decide_sync(request.id, request.approve(), by="ana")
    print(began, flush=True)
"""


def test_decision_in_another_process_notifies_listeners(path: Path) -> None:
    """The strict figure is the benchmark's; on a busy machine a second has to do."""
    store = SqliteStore(path)
    world = World(store, None)  # type: ignore[arg-type]
    calls = [world.ask(run=f"r{n}", thread=f"t{n}") for n in range(15)]
    command = [sys.executable, "-c", DECIDER, store.url]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as child:  # type: ignore[call-overload]
        assert child.stdout.readline() == "ready\n"
        waits = []
        for call in calls:
            heard = threading.Event()
            subscription = store.subscribe(call.thread, heard.set)
            child.stdin.write(f"{call.id}\n")
            child.stdin.flush()
            while world.call(call).status == "asked":
                assert heard.wait(10)
                heard.clear()
            waits.append(time.monotonic() - float(child.stdout.readline()))
            subscription.cancel()
        child.stdin.close()
    assert statistics.median(waits) < 1.0
    store.close()


def test_subscription_ignores_other_threads(path: Path, keys: Keyring) -> None:
    store, other = (SqliteStore(path, keys=keys) for _ in range(2))
    world = World(other, FakeClock())
    world.propose(world.new(), run="r1", thread="t1")
    heard = {name: threading.Event() for name in ("t1", "t2")}
    subscriptions = [store.subscribe(name, event.set) for name, event in heard.items()]
    assert heard["t1"].wait(5), "what happened since this store was opened is news too"
    heard["t1"].clear()
    world.propose(world.new(), run="r2", thread="t2")
    assert heard["t2"].wait(5)
    assert not heard["t1"].wait(0.05)
    for subscription in subscriptions:
        subscription.cancel()
    store.close()
    other.close()


WRITER = """
import sys
from sayso import Inbox
from sayso.errors import AlreadyDecided

inbox = Inbox(sys.argv[1])
sys.stdin.readline()
won = told = 0
for page in [inbox.pending_sync(limit=500)]:
    for request in page.items:
        try:
            inbox.decide_sync(request.id, request.approve(), by=sys.argv[2])
            won += 1
        except AlreadyDecided:
            told += 1
print(won, told)
"""


def test_racing_processes_decide_each_request_once(path: Path) -> None:
    store = SqliteStore(path)
    world = World(store, None)  # type: ignore[arg-type]
    calls = [world.ask(run=f"r{n}", thread=f"t{n}") for n in range(20)]
    children = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, store.url, f"person-{n}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(4)
    ]
    results = []
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        out, err = child.communicate(timeout=60)
        assert child.returncode == 0, err
        results.append([int(word) for word in out.split()])
    assert sum(won for won, _ in results) == len(calls)
    for call in calls:
        assert world.events(call=call) == ["asked", "decided"]
    world.check()
    store.close()


def test_two_stores_share_one_file(open_again: Opener, clock: FakeClock) -> None:
    one, two = World(open_again(), clock), World(open_again(), clock)
    call = one.ask()
    two.runs = one.runs
    assert two.decide(call).status == "ready"
    with pytest.raises(SaysoError):
        one.decide(call, "reject")
    one.record(one.start(call)[0])
    assert two.call(call).status == "done"
    two.check()
