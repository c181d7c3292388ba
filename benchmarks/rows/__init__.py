"""Every row of the table, by its name and in the table's order."""

from __future__ import annotations

from benchmarks import row
from benchmarks.rows import agents, gates, mcp, starting, stores, threads, web

_ORDER = (agents, gates, threads, stores, web, mcp, starting)

ROWS = {
    name: found
    for module in _ORDER
    for name, found in row.REGISTERED.items()
    if found.measure.__module__ == module.__name__
}
