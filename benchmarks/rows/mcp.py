"""Over MCP: a read through the proxy."""

from __future__ import annotations

import sys

from benchmarks.rounds import DRIVERS, alternating
from benchmarks.row import Check, Effort, Measured, ratio, row


@row(
    "a free read through the MCP proxy, and 100 at once",
    beside="the same server and client, connected directly",
    goal="3 ms more at the median, 60 % of the throughput",
    durability='none: free reads with `record = "asked"` are not stored',
    shown="p50_ms",
)
def proxy(effort: Effort) -> Measured:
    driver = (sys.executable, DRIVERS / "mcp_reads.py", effort.of(500, 30))
    sayso, direct = alternating(effort, (*driver, "proxy"), (*driver, "direct"))
    added = sayso["p50_ms"] - direct["p50_ms"]
    return Measured(
        {"sayso proxy": sayso, "direct": direct},
        [
            Check("more at the median", added, most=3, unit="ms"),
            Check("reads per second, to direct", ratio(sayso, direct, "per_s"), least=0.6),
        ],
    )
