"""Pruning: what it reads, and other processes that write meanwhile."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from homes import Home

from sayso.engine.commands import Cancel, Propose
from sayso.stores.base import Store
from sayso.stores.sql import maintenance
from sayso.stores.sqlite import SqliteStore
from sayso.testing import FakeClock

WRITER = """
import sys, time
from sayso.stores.sqlite import SqliteStore
store, waits = SqliteStore(sys.argv[1]), []
print("ready", flush=True)
stopped = False
while not stopped:
    began = time.monotonic()
    stopped = store.move_cursor("stop", "2", expected="1")
    waits.append(time.monotonic() - began)
    time.sleep(0.002)
print(max(waits), flush=True)
"""


def end_runs(store: Store, numbers: range) -> None:
    """Begin and cancel a run in a thread of its own, for each number."""
    for number in numbers:
        run = f"run-{number}"
        opens = Propose(thread=run, run=run, agent="a", hold=True)
        store.transact(opens, Cancel(thread=run, run=run, by="ops", reason="old"))


def test_runs_to_prune_are_found_along_an_index(home: Home) -> None:
    """However many newer runs there are, and without reading the events of all threads."""
    store: Any = home.open()
    end_runs(store, range(20))
    of_status = (0, "", store.now(), store.now(), 100)
    values = (*of_status * 3, 100)
    explain = "EXPLAIN QUERY PLAN" if home.dialect == "sqlite" else "EXPLAIN"
    rows = store._rows(f"{explain} {maintenance._OVER_AFTER}", values)
    plan = "\n".join(str(row[-1]) for row in rows)
    if home.dialect == "sqlite":
        assert plan.count("INDEX run_state (status=? AND (created,id)") == 3, plan
    assert "Anti Join" not in plan
    assert "SCAN event" not in plan


def test_pruning_reads_threads_together(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    store: Any = home.open()
    counts: list[int] = []
    prune = maintenance.prune

    def counting(execute: Any, *rest: Any) -> Any:
        def counted(text: str, values: Any = ()) -> Any:
            counts[-1] += text.startswith("SELECT")
            return execute(text, values)

        counts.append(0)
        return prune(counted, *rest)

    monkeypatch.setattr("sayso.stores.sql.store.prune", counting)
    for numbers in (range(5), range(5, 55)):
        end_runs(store, numbers)
        assert store.prune(store.now() + 1, "ops")["runs"] == len(numbers)
    assert counts[0] == counts[1]


def test_prune_keeps_runs_of_threads_that_went_on(home: Home) -> None:
    clock = FakeClock()
    store = home.open(clock=clock)
    end_runs(store, range(3))
    clock.advance(60)
    limit = store.now()
    again = Propose(thread="run-1", run="run-1b", agent="a", hold=True)
    store.transact(again, Cancel(thread="run-1", run="run-1b", by="ops", reason="old"))
    end_runs(store, range(3, 5))
    assert store.prune(limit, "ops")["runs"] == 2
    assert [store.run(f"run-{n}") is None for n in range(5)] == [True, False, True, False, False]


def test_other_processes_write_while_runs_are_pruned(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    end_runs(store, range(1_000))
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        began = time.monotonic()
        assert store.prune(store.now(), "ops")["runs"] == 1_000
        took = time.monotonic() - began
        assert store.move_cursor("stop", "1", expected="")
        longest = float(writer.stdout.readline())
    assert longest < took / 2, f"a write waited {longest:.2f} s of {took:.2f} s of pruning"
    store.close()
