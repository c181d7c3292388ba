"""Measure the milliseconds from a decision here until a worker in another process resumes the run.

python news.py N [URL]   from the moment the decision is committed to the call's first line
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time

from scene import OWN, agent_on

import sayso


async def ask(url: str, n: int) -> list[sayso.Request]:
    """Runs that wait for a person."""
    agent = agent_on(url)
    paused = [await agent.run("send it", thread=f"{OWN}{i}") for i in range(n)]
    agent.close()
    return [result.interruptions[0] for result in paused]


def main(n: int, url: str | None = None) -> None:
    warm = 5
    with tempfile.TemporaryDirectory() as folder:
        url = url or f"sqlite:///{folder}/sayso.db"
        requests = asyncio.run(ask(url, n + warm))
        worker = subprocess.Popen(
            [sys.executable, str(__file__).replace("news.py", "news_worker.py"), url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert worker.stdout is not None
        assert worker.stdin is not None
        assert worker.stdout.readline() == "ready\n"
        inbox = sayso.Inbox(url)
        waits = []
        for request in requests:
            # People do not decide in time with anything that looks regularly.
            time.sleep(0.02 + random.random() * 0.02)
            inbox.decide_sync(request.id, request.approve(), by="ann")
            committed = time.time()
            waits.append((float(worker.stdout.readline()) - committed) * 1e3)
        worker.stdin.close()
        assert worker.wait(60) == 0
        inbox.close()
        waits = sorted(waits[warm:])
        p99 = waits[min(len(waits) - 1, int(len(waits) * 0.99))]
        print(json.dumps({"p50_ms": statistics.median(waits), "p99_ms": p99}))


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
