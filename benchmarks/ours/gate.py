"""Measure ask → approve → run once with a Gate, n times: milliseconds each, wall and CPU."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time

import sayso


def main(n: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        gate = sayso.Gate(f"sqlite:///{folder}/sayso.db", wait=0)
        inbox = sayso.Inbox(gate.store)

        @gate.guard(needs_approval=True)
        def send(to: str, subject: str, body: str) -> str:
            return "sent"

        def once(i: int) -> float:
            began = time.perf_counter()
            try:
                send(f"u{i}@example.com", "hi", "x" * 200)
            except sayso.Paused as paused:
                request = paused.requests[0]
                inbox.decide_sync(request.id, request.approve(), by="ann")
                with gate.run(paused.run):
                    send(f"u{i}@example.com", "hi", "x" * 200)
            return time.perf_counter() - began

        for i in range(20):
            once(-i)
        cpu = time.process_time()
        walls = [once(i) for i in range(n)]
        cpu = (time.process_time() - cpu) / n
        print(json.dumps({"wall_ms": statistics.median(walls) * 1e3, "cpu_ms": cpu * 1e3}))
        gate.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
