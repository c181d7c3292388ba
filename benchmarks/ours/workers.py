"""Resume decided runs with several worker processes: runs per second, and claims in vain.

python workers.py URL PROCESSES RUNS
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing

from scene import OWN, agent_on

import sayso
from sayso.stores import open_store
from sayso.worker import Worker


async def work(url: str) -> None:
    """Work from the first line of standard input to its end, then print the steps."""
    agent, steps = agent_on(url), Counter[str]()
    store = agent.gate.store
    worker = Worker([agent], store, on_step=lambda step: steps.update([step.step]))
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    working = asyncio.create_task(worker.run())
    await asyncio.to_thread(sys.stdin.read)
    worker.stop()
    await working
    agent.close()
    print(json.dumps(steps))


def main(url: str, processes: int, runs: int) -> None:
    agent = agent_on(url)
    with closing(open_store(url)) as store, sayso.Inbox(store) as inbox:
        left = []
        for n in range(runs):
            paused = agent.run_sync("send it", thread=f"{OWN}-{n}")
            left.append(paused.run)
            (request,) = paused.interruptions
            inbox.decide_sync(request.id, request.approve(), by="ana")
        command = [sys.executable, __file__, url]
        team = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(processes)
        ]
        for process in team:
            assert process.stdout is not None
            process.stdout.readline()
        began = time.monotonic()
        for process in team:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        while left:
            run = store.run(left[-1])
            if run is not None and run.status == "done":
                left.pop()
            else:
                time.sleep(0.005)
        took = time.monotonic() - began
    steps: Counter[str] = Counter()
    for process in team:
        steps.update(json.loads(process.communicate()[0]))
    agent.close()
    vain = 100 * steps["left"] / steps["taken"]
    print(json.dumps({"resumes_per_second": runs / took, "in_vain_percent": vain}))


if __name__ == "__main__":
    if sys.argv[2:]:
        main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    else:
        asyncio.run(work(sys.argv[1]))
