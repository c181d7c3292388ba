"""Pause, decide, resume and list on a store that is empty or full, and on a short or long thread.

Prints milliseconds, rows and bytes written per cycle, each measured on both stores in turn.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import assent
from assent.stores.sqlite import SqliteStore

CYCLES = 60


def fill(path: Path, requests: int) -> None:
    """Copy one pending request many times, with plain SQL."""
    import sqlite3

    with sqlite3.connect(path) as db:
        for table, columns in (("thread", "id"), ("run", "id,thread"), ("call", "id,run,thread")):
            names = [row[1] for row in db.execute(f"PRAGMA table_info({table})") if row[1] != "n"]
            changed = set(columns.split(","))
            values = ", ".join(f"{n} || '-' || k.value" if n in changed else n for n in names)
            db.execute(
                f"WITH RECURSIVE k(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM k "
                f"WHERE value < {requests}) INSERT INTO {table} ({', '.join(names)}) "
                f"SELECT {values} FROM (SELECT * FROM {table} WHERE id NOT LIKE '@%' LIMIT 1), k"
            )
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


def store_with(folder: str, name: str, requests: int) -> tuple[assent.Gate, assent.Inbox, Any]:
    path = Path(folder) / f"{name}.db"
    gate = assent.Gate(f"sqlite:///{path}", wait=0)
    send = guarded(gate)
    try:
        send("first@example.com", "hi", "x" * 200)
    except assent.Paused:
        gate.close()
    if requests:
        fill(path, requests)
    gate = assent.Gate(f"sqlite:///{path}", wait=0)
    return gate, assent.Inbox(gate.store), guarded(gate)


def guarded(gate: assent.Gate) -> Any:
    @gate.guard(needs_approval=True)
    def send(to: str, subject: str, body: str) -> str:
        return "sent"

    return send


def cycle(gate: assent.Gate, inbox: assent.Inbox, send: Any, i: int) -> dict[str, float]:
    store = gate.store
    assert isinstance(store, SqliteStore)
    rows = store._open_writer().total_changes
    wal = os.path.getsize(f"{store.path}-wal")
    began = time.perf_counter()
    try:
        with gate.run(f"cycle-{i}"):
            send(f"u{i}@example.com", "hi", "x" * 200)
    except assent.Paused as paused:
        request = paused.requests[0]
    asked = time.perf_counter()
    inbox.decide_sync(request.id, request.approve(), by="ann")
    decided = time.perf_counter()
    with gate.run(f"cycle-{i}"):
        send(f"u{i}@example.com", "hi", "x" * 200)
    done = time.perf_counter()
    inbox.pending_sync(limit=50)
    listed = time.perf_counter()
    return {
        "pause_ms": (asked - began) * 1e3,
        "decide_ms": (decided - asked) * 1e3,
        "resume_ms": (done - decided) * 1e3,
        "list_ms": (listed - done) * 1e3,
        "rows": store._open_writer().total_changes - rows,
        "bytes": os.path.getsize(f"{store.path}-wal") - wal,
    }


def main() -> None:
    full = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        small, large = store_with(folder, "small", 50), store_with(folder, "large", full)
        for store, *_ in (small, large):
            assert isinstance(store.store, SqliteStore)
            # Without checkpoints in between, the growth of the WAL is what a cycle writes.
            store.store._open_writer().execute("PRAGMA wal_autocheckpoint=0")
        figures: dict[str, list[dict[str, float]]] = {"small": [], "large": []}
        for i in range(CYCLES + 5):
            figures["small"].append(cycle(*small, i))
            figures["large"].append(cycle(*large, i))
        out: dict[str, float] = {}
        for name, cycles in figures.items():
            for key in cycles[0]:
                out[f"{name}_{key}"] = statistics.median(c[key] for c in cycles[5:])
        print(json.dumps(out))


if __name__ == "__main__":
    main()
