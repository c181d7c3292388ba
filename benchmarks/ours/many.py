"""Approve all open requests of a run: milliseconds in total.

python many.py REQUESTS TIMES
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time

from scene import agent_on

import sayso


async def main(requests: int, times: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        agent = agent_on(f"sqlite:///{folder}/sayso.db", at_once=requests)
        inbox = sayso.Inbox(agent.store)
        walls, cpus = [], []
        for i in range(times + 1):
            paused = await agent.run("send them", thread=f"t{i}")
            yes = [request.approve() for request in paused.interruptions]
            wall, cpu = time.perf_counter(), time.process_time()
            outcomes = await inbox.decide_many(yes, by="ann")
            cpus.append(time.process_time() - cpu)
            walls.append(time.perf_counter() - wall)
            assert len(outcomes) == requests
            assert not any(outcome.error for outcome in outcomes)
        agent.close()
        wall, cpu = statistics.median(walls[1:]), statistics.median(cpus[1:])
        print(json.dumps({"wall_ms": wall * 1e3, "cpu_ms": cpu * 1e3}))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
