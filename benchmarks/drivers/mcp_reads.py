"""Read from an MCP server, directly or through the proxy: one at a time, and 100 at once.

python mcp_reads.py N direct|proxy
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from mcp import Client, StdioServerParameters

SERVER = Path(__file__).parents[1] / "ours" / "mcp_server.py"
AT_ONCE = 100


def behind_proxy(folder: Path) -> StdioServerParameters:
    """The same server behind ``sayso proxy``, with its hints trusted and reads not recorded."""
    entry = {
        "command": sys.executable,
        "args": [str(SERVER)],
        "sayso": {"trust_hints": True, "record": "asked"},
    }
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"bench": entry}}))
    args = ["-m", "sayso.cli.entry", "proxy", "--config", str(config)]
    args += ["--store", f"sqlite:///{folder}/sayso.db"]
    return StdioServerParameters(command=sys.executable, args=args)


async def one_by_one(client: Client, n: int) -> float:
    """Return the median milliseconds of a read."""
    took = []
    for key in range(n):
        began = time.perf_counter()
        await client.call_tool("look", {"key": key})
        took.append(time.perf_counter() - began)
    return statistics.median(took) * 1e3


async def at_once(client: Client) -> float:
    """Return the reads per second when 100 are made at the same time."""
    began = time.perf_counter()
    await asyncio.gather(*(client.call_tool("look", {"key": key}) for key in range(AT_ONCE)))
    return AT_ONCE / (time.perf_counter() - began)


async def main(n: int, way: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        direct = StdioServerParameters(command=sys.executable, args=[str(SERVER)])
        target = direct if way == "direct" else behind_proxy(Path(folder))
        async with Client(target) as client:
            await client.list_tools()
            await one_by_one(client, 20)
            await at_once(client)
            p50 = await one_by_one(client, n)
            rate = statistics.median([await at_once(client) for _ in range(5)])
    print(json.dumps({"p50_ms": p50, "per_s": rate}))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
