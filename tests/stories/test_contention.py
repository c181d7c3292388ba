"""Many people and processes at the same requests: one outcome each, and none is starved."""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from actors import many_deciders, open_at, paying
from fork_server import ForkServer
from stories import lines
from waiting import until

from sayso import Gate, Inbox, Paused
from sayso.audit import verify
from sayso.testing import check_store

REQUESTS = 50
THREADS = 100
PROCESSES = 20


def ask_many(folder: Path, number: int) -> list[str]:
    """Requests that wait, each in a run of its own."""
    gate = Gate(open_at(str(folder)), wait=0, agent="bot")
    pay = paying(gate, str(folder))
    runs = [f"run {n}" for n in range(number)]
    for run in runs:
        with pytest.raises(Paused), gate.run(run):
            pay("bo")
    gate.close()
    return runs


def all_there(folder: Path, number: int) -> None:
    """Let the others begin as soon as every one of them is ready."""
    until(lambda: len(lines(folder / "there")) == number)
    (folder / "go").touch()


@pytest.mark.long
def test_parallel_deciders_get_one_outcome(fork_server: ForkServer, tmp_path: Path) -> None:
    runs = ask_many(tmp_path, REQUESTS)
    store = open_at(str(tmp_path))
    requests = list(Inbox(store).pending_sync(limit=500).items)
    folder = str(tmp_path)
    pids = [
        fork_server.spawn("actors:deciders", folder=folder, people=[f"p{n}a", f"p{n}b"])
        for n in range(PROCESSES)
    ]
    all_there(tmp_path, PROCESSES)
    told = many_deciders(store, requests, [f"t{n}" for n in range(THREADS)])
    for pid in pids:
        ended = fork_server.wait(pid)
        assert not ended.error, ended.error
        told += ended.value
    check_one_outcome_each(store, told)
    check_store(store, runs)
    assert verify(store).ok
    store.close()


def check_one_outcome_each(store: Any, told: list[Any]) -> None:
    people = THREADS + 2 * PROCESSES
    assert len(told) == people * REQUESTS
    assert {outcome for _, _, outcome, _, _ in told} == {"won", "lost"}
    winners: dict[str, list[str]] = defaultdict(list)
    for request, by, outcome, _, _ in told:
        if outcome == "won":
            winners[request].append(by)
    assert {len(by) for by in winners.values()} == {1}
    assert len(winners) == REQUESTS
    assert {(request, who) for request, _, _, who, _ in told} == {
        (request, by[0]) for request, by in winners.items()
    }
    for request, (by,) in winners.items():
        decision = Inbox(store).get_sync(request).decision
        assert decision is not None
        assert decision.by == by


@pytest.mark.long
def test_no_process_starves(fork_server: ForkServer, tmp_path: Path) -> None:
    """In three seconds, unless other programs keep the machine busy: then its scheduler needs
    longer to be fair, and a process that starves does so in twelve seconds too."""
    busy = os.getloadavg()[0] > 3 * (os.cpu_count() or 1)
    fair = is_fair(fork_server, tmp_path / "short", 3.0)
    assert fair or (busy and is_fair(fork_server, tmp_path / "long", 12.0))


def is_fair(fork_server: ForkServer, folder: Path, seconds: float) -> bool:
    """Let all processes commit for some time, and return whether each had its turns in time."""
    folder.mkdir()
    open_at(str(folder)).close()
    pids = [
        fork_server.spawn("actors:write_for", folder=str(folder), name=f"p{n}", seconds=seconds)
        for n in range(PROCESSES)
    ]
    all_there(folder, PROCESSES)
    told = [fork_server.wait(pid) for pid in pids]
    assert [ended.error for ended in told if ended.error] == []
    counts = [ended.value["count"] for ended in told]
    with closing(open_at(str(folder))) as store:
        assert len(store.events("", 10**6)) == sum(counts)
        check_store(store)
    fair = sum(counts) / PROCESSES
    longest = max(ended.value["longest"] for ended in told)
    return bool(min(counts) >= fair / 5 and longest < seconds * 2.5 / 3)


def test_several_processes_resume_the_same_runs(fork_server: ForkServer, tmp_path: Path) -> None:
    runs = ask_many(tmp_path, REQUESTS)
    store = open_at(str(tmp_path))
    inbox = Inbox(store)
    for number, request in enumerate(inbox.pending_sync(limit=500).items):
        decision = request.reject() if number % 5 == 0 else request.approve()
        inbox.decide_sync(request.id, decision, by="ana")
    pids = [
        fork_server.spawn("actors:resume_all", folder=str(tmp_path), runs=runs, seed=seed)
        for seed in range(8)
    ]
    all_there(tmp_path, 8)
    told = [fork_server.wait(pid) for pid in pids]
    assert [ended.error for ended in told if ended.error] == []
    approved = [run for number, run in enumerate(runs) if number % 5]
    for ended in told:
        assert {run for run, got in ended.value.items() if got == "paid bo"} == set(approved)
        assert {got for run, got in ended.value.items() if run not in approved} == {"Rejected"}
    effects = lines(tmp_path / "effects")
    assert sorted(effects) == sorted([run, 1, "bo"] for run in approved)
    check_store(store, runs)
    assert verify(store).ok
    store.close()
