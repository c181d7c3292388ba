"""Write the rows of pause → decide → resume again in bare SQL.

Runs the agent on SQLite and records every statement; then runs the writes again on a copy of the
file, in the same transactions and equally durable. Prints the commits and rows of one cycle, and
the milliseconds of the bare one.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from typing import Any

Statement = tuple[str, Any]


class Noting(sqlite3.Connection):
    """A connection that records the statements it executes."""

    noted: list[Statement] | None = None

    def execute(self, sql: str, values: Any = (), /) -> sqlite3.Cursor:
        if Noting.noted is not None:
            Noting.noted.append((sql, values))
        return super().execute(sql, values)


_connect = sqlite3.connect


def _noting(*args: Any, **kwargs: Any) -> sqlite3.Connection:
    return _connect(*args, **{**kwargs, "factory": Noting})


sqlite3.connect = _noting  # type: ignore[assignment]

from scene import agent_on, cycle  # noqa: E402 - after the patch

import sayso  # noqa: E402

WRITES = ("INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "BEGIN", "COMMIT")


async def note(folder: str, n: int) -> list[list[Statement]]:
    """Return the writes of n cycles, and copy the file as it was before them."""
    agent = agent_on(f"sqlite:///{folder}/sayso.db")
    inbox = sayso.Inbox(agent.store)
    for i in range(5):
        await cycle(agent, inbox, f"warm{i}")
    with _connect(f"{folder}/sayso.db") as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    shutil.copy(f"{folder}/sayso.db", f"{folder}/bare.db")
    cycles = []
    for i in range(n):
        Noting.noted = []
        await cycle(agent, inbox, f"t{i}")
        cycles.append([s for s in Noting.noted if s[0].lstrip().upper().startswith(WRITES)])
    Noting.noted = None
    agent.close()
    return cycles


def replay(folder: str, cycles: list[list[Statement]]) -> dict[str, float]:
    db = _connect(f"{folder}/bare.db", isolation_level=None, cached_statements=256)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    warm = max(len(cycles) // 6, 1)
    walls, cpu = [], 0.0
    before = rows = db.total_changes
    for i, statements in enumerate(cycles):
        if i == warm:
            cpu, before = time.process_time(), db.total_changes
        began = time.perf_counter()
        for sql, values in statements:
            db.execute(sql, values)
        walls.append(time.perf_counter() - began)
    timed = len(cycles) - warm
    cpu, rows = (time.process_time() - cpu) / timed, db.total_changes - before
    db.close()
    return {
        "wall_ms": statistics.median(walls[warm:]) * 1e3,
        "cpu_ms": cpu * 1e3,
        "rows": rows / timed,
    }


def main(n: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        cycles = asyncio.run(note(folder, n + max(n // 5, 1)))
        commits = [sum(sql == "COMMIT" for sql, _ in cycle) for cycle in cycles]
        print(json.dumps({**replay(folder, cycles), "commits": statistics.median(commits)}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
