"""What a guarded call costs, in Python calls and statements: these do not depend on the machine."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType

import pytest

import sayso

#: Python calls of a call that is asked about, approved and run: see docs/benchmarks.md, ``once``.
MOST_CALLS = 800
MOST_STATEMENTS = 32


class Counting:
    """Counts the calls of every OS thread that was started after this."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.on = False

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        if not self.on:
            return
        if event == "call" and frame.f_code.co_filename != __file__:
            self.counts["calls"] += 1
        elif event == "c_call" and getattr(arg, "__qualname__", "") == "Connection.execute":
            self.counts["statements"] += 1


def test_guarded_call_stays_within_its_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where OpenTelemetry is loaded, a call also looks for its trace.
    monkeypatch.delitem(sys.modules, "opentelemetry.trace", raising=False)
    counting = Counting()
    profile = sys.getprofile()
    threading.setprofile(counting)
    try:
        with sayso.Gate(f"sqlite:///{tmp_path}/sayso.db", wait=0) as gate:
            inbox = sayso.Inbox(gate.store)

            @gate.guard(needs_approval=True)
            def send(to: str, subject: str, body: str) -> str:
                return "sent"

            def once(number: int) -> None:
                try:
                    send(f"u{number}@example.com", "hi", "x" * 200)
                except sayso.Paused as paused:
                    (request,) = paused.requests
                inbox.decide_sync(request.id, request.approve(), by="ann")
                with gate.run(request.run):
                    assert send(f"u{number}@example.com", "hi", "x" * 200) == "sent"

            for number in range(5):
                once(number)
                time.sleep(0.03)  # until a store looks at its files less often than a new one
            gc.disable()  # or finalizers of other tests would count
            sys.setprofile(counting)
            counting.on = True
            once(5)
            counting.on = False
    finally:
        gc.enable()
        sys.setprofile(profile)
        threading.setprofile(None)
    assert 0 < counting.counts["calls"] <= MOST_CALLS
    assert 0 < counting.counts["statements"] <= MOST_STATEMENTS
