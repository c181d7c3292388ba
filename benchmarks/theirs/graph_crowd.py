"""Measure pause → decide → resume with LangGraph, many at once in threads: per second.

python graph_crowd.py N AT_ONCE [URL]
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from graph import OWN, agent_on, cycle, saver_at


def main(n: int, at_once: int, url: str | None = None) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        saver_at(url or f"{folder}/graph.db", pool=at_once) as saver,
        ThreadPoolExecutor(at_once) as threads,
    ):
        agent = agent_on(saver)
        list(threads.map(lambda i: cycle(agent, f"{OWN}warm{i}"), range(at_once)))
        cpu, began = time.process_time(), time.perf_counter()
        list(threads.map(lambda i: cycle(agent, f"{OWN}{i}"), range(n)))
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
        print(json.dumps({"per_second": n / took, "cpu_ms": cpu / n * 1e3}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
