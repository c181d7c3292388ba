"""Measure pause → decide → resume with LangChain's middleware and LangGraph's saver, n times.

python graph_cycle.py N [URL]   on a new SQLite file if no URL is given
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time

from graph import OWN, agent_on, cycle, saver_at


def main(n: int, url: str | None = None) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        saver_at(url or f"{folder}/graph.db") as saver,
    ):
        agent = agent_on(saver)
        for i in range(20):
            cycle(agent, f"{OWN}warm{i}")
        walls = []
        cpu = time.process_time()
        for i in range(n):
            began = time.perf_counter()
            cycle(agent, f"{OWN}{i}")
            walls.append(time.perf_counter() - began)
        cpu = (time.process_time() - cpu) / n
        print(json.dumps({"wall_ms": statistics.median(walls) * 1e3, "cpu_ms": cpu * 1e3}))


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
