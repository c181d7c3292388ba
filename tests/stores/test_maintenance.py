"""Pruning while another process writes."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from sayso.engine.commands import Cancel, Propose
from sayso.stores.sqlite import SqliteStore

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


def test_other_processes_write_while_runs_are_pruned(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    for number in range(1_000):
        run = f"run-{number}"
        opens = Propose(thread=run, run=run, agent="a", hold=True)
        store.transact(opens, Cancel(thread=run, run=run, by="ops", reason="old"))
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
