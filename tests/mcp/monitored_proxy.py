"""``sayso proxy`` over HTTP with a task that measures how long the event loop is blocked.

Its arguments are a configuration, a store, a policy and a file, in which it keeps the longest
block in seconds of CPU time, so that other programs do not count. Delete the file to measure again.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from sayso.gate import Gate
from sayso.mcp.config import read_config
from sayso.mcp.front import bind, serve_http
from sayso.mcp.proxy import Proxy
from sayso.stores import open_store


async def measure(file: Path) -> None:
    longest = 0.0
    while True:
        began = time.thread_time()
        await asyncio.sleep(0.001)
        block = time.thread_time() - began
        if not file.exists():
            longest = 0.0
        if block > longest:
            longest = block
            file.write_text(str(longest))


async def main(config: str, store: str, policy: str, file: str) -> None:
    opened = open_store(store)
    gates: dict[str, Gate] = {}

    def gate_of(agent: str) -> Gate:
        return gates.setdefault(agent, Gate(opened, policy=Path(policy), agent=agent, wait=None))

    proxy = Proxy(read_config(Path(config)), gate_of)
    measuring = asyncio.create_task(measure(Path(file)))
    async with proxy.running():
        await serve_http(
            proxy.server, bind("127.0.0.1", 0), None, lambda url: print(url, flush=True)
        )
    measuring.cancel()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
