"""One process asks, another decides, a third resumes; one sleeps through its lease."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from actors import open_at
from fork_server import ForkServer
from stories import lines
from waiting import until

from sayso import Inbox, Request
from sayso.engine.commands import Recover
from sayso.rows import RunStatus
from sayso.testing import check_store

RUN = "order-17"
ENOUGH = 30.0


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[Inbox]:
    inbox = Inbox(open_at(str(tmp_path)))
    yield inbox
    check_store(inbox.store, [RUN])
    inbox.close()


def pending(inbox: Inbox, kind: str = "approval") -> Request:
    """The one request that waits, as soon as it does."""
    until(lambda: inbox.pending_sync(kind=kind).items)
    (request,) = inbox.pending_sync(kind=kind).items
    return request


def approve(inbox: Inbox, kind: str = "approval") -> Request:
    request = pending(inbox, kind)
    return inbox.decide_sync(request.id, request.approve(), by="ana")


def ready(fork_server: ForkServer, inbox: Inbox, folder: Path) -> None:
    """A call that was asked about in one process and approved in another."""
    assert fork_server.value("actors:call", folder=str(folder), run=RUN) == "Paused"
    approve(inbox)


def effects(folder: Path) -> list[list[object]]:
    return [effect[1:] for effect in lines(folder / "effects")]


@pytest.mark.parametrize("task", ["actors:call", "actors:call_async"])
def test_decision_elsewhere_wakes_the_waiter(
    task: str, fork_server: ForkServer, inbox: Inbox, tmp_path: Path
) -> None:
    options = {"wait": None} if task == "actors:call" else {}
    pid = fork_server.spawn(task, folder=str(tmp_path), run=RUN, **options)
    approve(inbox)
    began = time.monotonic()
    assert fork_server.wait(pid).value == "paid bo by attempt 1"
    assert time.monotonic() - began < 5
    assert effects(tmp_path) == [[1, "bo"]]


def test_reentry_returns_stored_result(
    fork_server: ForkServer, inbox: Inbox, tmp_path: Path
) -> None:
    ready(fork_server, inbox, tmp_path)
    for _ in range(3):
        got = fork_server.value("actors:call", folder=str(tmp_path), run=RUN)
        assert got == "paid bo by attempt 1"
    assert effects(tmp_path) == [[1, "bo"]]
    assert inbox.store.run(RUN).status is RunStatus.DONE


def test_two_processes_take_turns_in_run(
    fork_server: ForkServer, inbox: Inbox, tmp_path: Path
) -> None:
    ready(fork_server, inbox, tmp_path)
    folder = str(tmp_path)
    assert fork_server.value("actors:call", folder=folder, run=RUN, to="cy") == "Paused"
    approve(inbox)
    first = fork_server.spawn("actors:call", folder=folder, run=RUN, hold="go")
    until(lambda: effects(tmp_path))
    same = fork_server.spawn("actors:call", folder=folder, run=RUN, hold="go")
    other = fork_server.spawn("actors:call", folder=folder, run=RUN, to="cy")
    time.sleep(0.4)
    assert effects(tmp_path) == [[1, "bo"]]
    (tmp_path / "go").touch()
    assert [fork_server.wait(pid).value for pid in (first, same, other)] == [
        "paid bo by attempt 1",
        "paid bo by attempt 1",
        "paid cy by attempt 1",
    ]
    assert effects(tmp_path) == [[1, "bo"], [1, "cy"]]


@pytest.mark.long
def test_heartbeat_keeps_a_long_call(fork_server: ForkServer, inbox: Inbox, tmp_path: Path) -> None:
    ready(fork_server, inbox, tmp_path)
    folder = str(tmp_path)
    pid = fork_server.spawn("actors:call", folder=folder, run=RUN, hold="go", lease=1.0)
    until(lambda: effects(tmp_path))
    attached = fork_server.spawn("actors:call", folder=folder, run=RUN, lease=1.0)
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        assert inbox.pending_sync().items == ()
        time.sleep(0.05)
    (tmp_path / "go").touch()
    assert fork_server.wait(pid).value == "paid bo by attempt 1"
    assert fork_server.wait(attached).value == "Leased"  # it does not wait, and hears so at once
    assert effects(tmp_path) == [[1, "bo"]]


# -- a process that slept through its lease


def asleep(fork_server: ForkServer, inbox: Inbox, folder: Path, stop: str) -> int:
    """A process that stopped at a point of an approved call, and whose lease has lapsed since."""
    ready(fork_server, inbox, folder)
    pid = fork_server.spawn("actors:call", folder=str(folder), run=RUN, lease=0.5, stop=stop)
    until((folder / "stopped").exists)
    return pid


def test_late_result_closes_undecided_doubt(
    fork_server: ForkServer, inbox: Inbox, tmp_path: Path
) -> None:
    pid = asleep(fork_server, inbox, tmp_path, "effect")
    request = pending(inbox, "in_doubt")
    os.kill(pid, signal.SIGCONT)
    assert fork_server.wait(pid).value == "paid bo by attempt 1"
    late = inbox.get_sync(request.id)
    assert (late.status, late.execution.status) == ("approved", "done")
    assert fork_server.value("actors:call", folder=str(tmp_path), run=RUN) == "paid bo by attempt 1"
    assert effects(tmp_path) == [[1, "bo"]]


def test_late_result_after_decision_is_recorded(
    fork_server: ForkServer, inbox: Inbox, tmp_path: Path
) -> None:
    pid = asleep(fork_server, inbox, tmp_path, "effect")
    request = pending(inbox, "in_doubt")
    inbox.decide_sync(request.id, request.respond("it did, I looked"), by="ana")
    os.kill(pid, signal.SIGCONT)
    fork_server.wait(pid)
    assert fork_server.value("actors:call", folder=str(tmp_path), run=RUN) == "it did, I looked"
    events = inbox.events_sync(request.id)
    assert [event.type for event in events][-3:] == ["in_doubt", "decided", "late"]
    assert "paid bo by attempt 1" in (events[-1].body or "")
    assert effects(tmp_path) == [[1, "bo"]]


def test_late_result_after_rerun_is_recorded(
    fork_server: ForkServer, inbox: Inbox, tmp_path: Path
) -> None:
    pid = asleep(fork_server, inbox, tmp_path, "effect")
    request = approve(inbox, "in_doubt")
    again = fork_server.value("actors:call", folder=str(tmp_path), run=RUN)
    os.kill(pid, signal.SIGCONT)
    fork_server.wait(pid)
    assert again == "paid bo by attempt 2"
    assert fork_server.value("actors:call", folder=str(tmp_path), run=RUN) == again
    assert effects(tmp_path) == [[1, "bo"], [2, "bo"]]
    assert [event.type for event in inbox.events_sync(request.id)][-1] == "late"


@pytest.mark.long
def test_late_result_does_not_end_next_attempt(
    fork_server: ForkServer, inbox: Inbox, tmp_path: Path
) -> None:
    pid = asleep(fork_server, inbox, tmp_path, "effect")
    request = approve(inbox, "in_doubt")
    again = fork_server.spawn("actors:call", folder=str(tmp_path), run=RUN, hold="go", held=2)
    until(lambda: len(effects(tmp_path)) == 2)
    os.kill(pid, signal.SIGCONT)
    fork_server.wait(pid)
    assert [event.type for event in inbox.events_sync(request.id)][-1] == "late"
    assert inbox.get_sync(request.id).execution.status == "running"
    (tmp_path / "go").touch()
    assert fork_server.wait(again).value == "paid bo by attempt 2"
    assert fork_server.value("actors:call", folder=str(tmp_path), run=RUN) == "paid bo by attempt 2"


def test_process_sleeping_before_effect_skips_it(
    fork_server: ForkServer, inbox: Inbox, tmp_path: Path
) -> None:
    pid = asleep(fork_server, inbox, tmp_path, "start after")
    time.sleep(0.6)
    os.kill(pid, signal.SIGCONT)
    assert fork_server.wait(pid).value == "Paused"
    assert effects(tmp_path) == []
    approve(inbox, "in_doubt")
    assert fork_server.value("actors:call", folder=str(tmp_path), run=RUN) == "paid bo by attempt 2"
    assert effects(tmp_path) == [[2, "bo"]]


def test_ctrl_c_in_the_effect_is_in_doubt(
    fork_server: ForkServer, inbox: Inbox, tmp_path: Path
) -> None:
    ready(fork_server, inbox, tmp_path)
    assert (
        fork_server.value("actors:interrupted", folder=str(tmp_path), run=RUN)
        == "KeyboardInterrupt"
    )
    request = pending(inbox, "in_doubt")
    reason = inbox.events_sync(request.id)[-1].body or ""
    assert "interrupted by KeyboardInterrupt" in reason
    inbox.decide_sync(request.id, request.reject("let it be"), by="ana")
    assert fork_server.value("actors:call", folder=str(tmp_path), run=RUN) == "InDoubt"
    assert effects(tmp_path) == [[1, "bo"]]


def test_effect_since_backup_is_in_doubt(
    fork_server: ForkServer, inbox: Inbox, tmp_path: Path
) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    people = Inbox(open_at(str(folder)))
    ready(fork_server, people, folder)
    people.close()
    shutil.copytree(folder, tmp_path / "backup")
    assert fork_server.value("actors:call", folder=str(folder), run=RUN) == "paid bo by attempt 1"
    for name in ("sayso.db", "sayso.db-wal"):
        (folder / name).unlink(missing_ok=True)
    shutil.copy(tmp_path / "backup" / "sayso.db", folder)
    assert fork_server.value("actors:call", folder=str(folder), run=RUN) == "StoreError"
    people = Inbox(open_at(str(folder)))
    assert people.store.restored()
    for run in people.store.open_runs():
        people.store.transact(Recover(thread=run.thread, run=run.id, by="ops"))
    people.store.mark_recovered()
    assert fork_server.value("actors:call", folder=str(folder), run=RUN) == "Paused"
    request = pending(people, "in_doubt")
    people.decide_sync(request.id, request.respond("it had run"), by="ana")
    assert fork_server.value("actors:call", folder=str(folder), run=RUN) == "it had run"
    assert effects(folder) == [[1, "bo"]]
    people.close()


# -- the rest


async def test_watch_sees_other_processes(
    fork_server: ForkServer, inbox: Inbox, tmp_path: Path
) -> None:
    heard: list[str] = []

    async def listen() -> None:
        async for event in inbox.watch():
            heard.append(event.type)
            if event.type == "finished":
                return

    listening = asyncio.create_task(listen())
    await asyncio.sleep(0.05)
    await asyncio.to_thread(ready, fork_server, inbox, tmp_path)
    await asyncio.to_thread(fork_server.value, "actors:call", folder=str(tmp_path), run=RUN)
    await asyncio.wait_for(listening, ENOUGH)
    assert heard == ["asked", "decided", "started", "recorded", "finished"]


async def test_watch_replays_from_a_cursor(
    fork_server: ForkServer, inbox: Inbox, tmp_path: Path
) -> None:
    await asyncio.to_thread(ready, fork_server, inbox, tmp_path)
    events = inbox.watch(after="")
    assert [(await anext(events)).type, (await anext(events)).type] == ["asked", "decided"]
    await events.aclose()


def test_store_survives_a_fork(fork_server: ForkServer, tmp_path: Path) -> None:
    told = fork_server.value("actors:forked", folder=str(tmp_path))
    assert told == {
        "before": ["before", "before async"],
        "parent": ["parent", "parent async"],
        "again": ["again", "again async"],
        "child": 0,
    }
    store = open_at(str(tmp_path))
    check_store(store, ["before sync", "child sync", "child async", "parent sync", "again async"])
    store.close()
