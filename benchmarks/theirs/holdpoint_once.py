"""Measure ask → approve → run once with holdpoint, with the fsync that it skips by default."""

from __future__ import annotations

import json
import sqlite3
import statistics
import sys
import tempfile
import time
from typing import Any


class Durable(sqlite3.Connection):
    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        return super().execute(sql.replace("synchronous=NORMAL", "synchronous=FULL"), *args)


_connect = sqlite3.connect
sqlite3.connect = lambda *args, **kwargs: _connect(*args, **{**kwargs, "factory": Durable})

from holdpoint import HoldPoint, SQLiteStore  # noqa: E402 - after the patch


def main(n: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        hold = HoldPoint(store=SQLiteStore(f"{folder}/hold.db"))

        @hold.guard(kind="send")
        def send(to: str, subject: str, body: str) -> str:
            return "sent"

        def once(i: int) -> float:
            began = time.perf_counter()
            action = send(to=f"u{i}@example.com", subject="hi", body="x" * 200)
            hold.approve(action.id, actor="ann")
            return time.perf_counter() - began

        for i in range(20):
            once(-i)
        cpu = time.process_time()
        walls = [once(i) for i in range(n)]
        cpu = (time.process_time() - cpu) / n
        print(json.dumps({"wall_ms": statistics.median(walls) * 1e3, "cpu_ms": cpu * 1e3}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
