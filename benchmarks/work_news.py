"""A decision made in one process, heard in another that waits: milliseconds, median and worst."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time

import assent

DECIDER = """
import sys, time, assent
inbox = assent.Inbox(sys.argv[1])
for line in sys.stdin:
    request = inbox.get_sync(line.strip())
    time.sleep(0.02)
    began = time.time()
    inbox.decide_sync(request.id, request.approve(), by="ann")
    print(began, time.time(), flush=True)
"""


def main(n: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/assent.db"
        told: list[assent.Request] = []

        async def tell(request: assent.Request) -> None:
            told.append(request)
            decider.stdin.write(f"{request.id}\n")
            decider.stdin.flush()

        gate = assent.Gate(url, wait=None, channels=[tell])
        decider = subprocess.Popen(
            [sys.executable, "-c", DECIDER, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        began: list[float] = []

        @gate.guard(needs_approval=True)
        def act(n: int) -> float:
            began.append(time.time())
            return 0.0

        waits = []
        for i in range(n):
            act(i)
            committed = float(decider.stdout.readline().split()[1])
            waits.append((began[-1] - committed) * 1e3)
        decider.stdin.close()
        decider.wait()
        waits.sort()
        p99 = waits[min(len(waits) - 1, int(len(waits) * 0.99))]
        print(json.dumps({"p50_ms": statistics.median(waits), "p99_ms": p99}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
