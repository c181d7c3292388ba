"""The worker process of ``news.py``. Its tool prints when it is called; it ends at end of input."""

from __future__ import annotations

import asyncio
import sys
import time

from scene import Instant

import sayso
from sayso.stores import open_store
from sayso.worker import Worker


@sayso.tool(needs_approval=True)
def send_email(to: str, body: str) -> str:
    """Send an email."""
    print(time.time(), flush=True)
    return f"sent to {to}"


async def main(url: str) -> None:
    store = open_store(url)
    agent = sayso.Agent("bench", model=Instant(), tools=[send_email], store=store)
    worker = Worker([agent], store)
    working = asyncio.create_task(worker.run())
    loop = asyncio.get_running_loop()
    loop.call_later(0.5, lambda: print("ready", flush=True))
    await loop.run_in_executor(None, sys.stdin.read)
    worker.stop()
    await working
    store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
