"""Measure pause → decide → resume, many at once in one process: per second, and CPU each.

python crowd.py N AT_ONCE [URL]
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time

from scene import OWN, agent_on, cycle

import sayso
from sayso.stores import open_store


async def main(n: int, at_once: int, url: str | None = None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        if url is None:
            store = open_store(f"sqlite:///{folder}/sayso.db")
        else:
            store = open_store(url, size=at_once)  # as many connections as the peer has
        agent = agent_on(store)
        inbox = sayso.Inbox(agent.store)
        await asyncio.gather(*(cycle(agent, inbox, f"{OWN}warm{i}") for i in range(at_once)))
        numbers = iter(range(n))

        async def one_after_another() -> None:
            for i in numbers:
                await cycle(agent, inbox, f"{OWN}{i}")

        cpu, began = time.process_time(), time.perf_counter()
        await asyncio.gather(*(one_after_another() for _ in range(at_once)))
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
        print(json.dumps({"per_second": n / took, "cpu_ms": cpu / n * 1e3}))
        agent.close()
        store.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
