"""Measure pause, decide, resume and list on an almost empty store and on a full one.

python growth.py REQUESTS CYCLES   prints milliseconds, rows and bytes per cycle, alternating
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

import watching  # before anything opens a file
from fill import fill

import sayso


@dataclass
class Place:
    """One store, and the function that it guards."""

    path: str
    gate: sayso.Gate
    inbox: sayso.Inbox
    send: Callable[[str, str, str], str]


def place(path: str, requests: int) -> Place:
    url = f"sqlite:///{path}"
    fill(url, requests)
    gate = sayso.Gate(url, wait=0)

    @gate.guard(needs_approval=True)
    def send(to: str, subject: str, body: str) -> str:
        return "sent"

    return Place(path, gate, sayso.Inbox(gate.store), send)


def cycle(at: Place, i: int) -> dict[str, float]:
    rows, logged = watching.written(at.path)
    began = time.perf_counter()
    try:
        with at.gate.run(f"cycle-{i}"):
            at.send(f"u{i}@example.com", "hi", "x" * 200)
    except sayso.Paused as paused:
        request = paused.requests[0]
    asked = time.perf_counter()
    at.inbox.decide_sync(request.id, request.approve(), by="ann")
    decided = time.perf_counter()
    with at.gate.run(f"cycle-{i}"):
        at.send(f"u{i}@example.com", "hi", "x" * 200)
    done = time.perf_counter()
    at.inbox.pending_sync(limit=50)
    listed = time.perf_counter()
    rows_now, logged_now = watching.written(at.path)
    return {
        "pause_ms": (asked - began) * 1e3,
        "decide_ms": (decided - asked) * 1e3,
        "resume_ms": (done - decided) * 1e3,
        "list_ms": (listed - done) * 1e3,
        "rows": rows_now - rows,
        "bytes": logged_now - logged,
    }


def main(requests: int, cycles: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        places = {
            "small": place(f"{folder}/small.db", 50),
            "large": place(f"{folder}/large.db", requests),
        }
        figures: dict[str, list[dict[str, float]]] = {name: [] for name in places}
        for i in range(cycles + 5):
            for name, at in places.items():
                figures[name].append(cycle(at, i))
        for at in places.values():
            at.gate.close()
        out = {
            f"{name}_{key}": statistics.median(c[key] for c in taken[5:])
            for name, taken in figures.items()
            for key in taken[0]
        }
        print(json.dumps(out))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
