"""Measure the first page of the inbox: milliseconds, and how many requests it lists.

python listing.py URL TIMES
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import sayso


def main(url: str, times: int) -> None:
    with sayso.Inbox(url) as inbox:
        for _ in range(5):
            page = inbox.pending_sync(limit=50)
        walls = []
        cpu = time.process_time()
        for _ in range(times):
            began = time.perf_counter()
            page = inbox.pending_sync(limit=50)
            walls.append(time.perf_counter() - began)
        cpu = (time.process_time() - cpu) / times
        figures = {"wall_ms": statistics.median(walls) * 1e3, "cpu_ms": cpu * 1e3}
        print(json.dumps({**figures, "listed": len(page.items)}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
