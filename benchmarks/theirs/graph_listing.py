"""List all open approvals through the saver's list, the only public API across threads.

python graph_listing.py build FILE THREADS   one thread is paused, then copied with plain SQL
python graph_listing.py FILE
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from graph import SAID, agent_on, config, saver_at


def build(path: str, threads: int) -> None:
    with saver_at(path) as saver:
        agent_on(saver).invoke(SAID, config("first"))
        for table in ("checkpoints", "writes"):
            _copy(saver.conn, table, threads - 1)
        saver.conn.commit()
    print(json.dumps({"threads": threads}))


def _copy(db: Any, table: str, times: int) -> None:
    names = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
    values = ", ".join(
        "o.thread_id || '-' || k.number" if name == "thread_id" else f"o.{name}" for name in names
    )
    db.execute(
        f"WITH RECURSIVE k(number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM k "
        f"WHERE number < {times}) INSERT INTO {table} ({', '.join(names)}) "
        f"SELECT {values} FROM (SELECT * FROM {table} WHERE thread_id = 'first') o, k"
    )


def main(path: str) -> None:
    with saver_at(path) as saver:
        wall, cpu = time.perf_counter(), time.process_time()
        seen: set[str] = set()
        found = 0
        for checkpoint in saver.list(None):
            thread = checkpoint.config["configurable"]["thread_id"]
            if thread not in seen:
                seen.add(thread)
                writes = checkpoint.pending_writes or []
                found += any(channel == "__interrupt__" for _, channel, _ in writes)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        print(json.dumps({"wall_ms": wall * 1e3, "cpu_ms": cpu * 1e3, "listed": found}))


if __name__ == "__main__":
    if sys.argv[1] == "build":
        build(sys.argv[2], int(sys.argv[3]))
    else:
        main(sys.argv[1])
