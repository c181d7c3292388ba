"""The same with CTRLRun, with the fsync that it leaves out by default (synchronous=FULL)."""

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

import ctrlrun  # noqa: E402 - after the patch

POLICY = """
schema: ctrlrun.policy/v1
actions:
  send:
    decision: approve
"""


def main(n: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = ctrlrun.SQLiteStateStore(f"{folder}/ctrlrun.db")
        control = ctrlrun.Control(ctrlrun.Policy.from_yaml(POLICY), store)

        @ctrlrun.protect("send", effect="send:{to}", control=control)
        def send(to: str, subject: str, body: str) -> str:
            return "sent"

        def once(i: int) -> float:
            began = time.perf_counter()
            words = {"to": f"u{i}@example.com", "subject": "hi", "body": "x" * 200}
            try:
                send(**words)
            except ctrlrun.ApprovalRequired as asked:
                store.grant_approval(asked.request_id, "ann")
                with ctrlrun.with_approval(asked.request_id):
                    assert send(**words) == "sent"
            return time.perf_counter() - began

        with ctrlrun.context(agent="mailer"):
            for i in range(20):
                once(-i)
            cpu = time.process_time()
            walls = [once(i) for i in range(1, n + 1)]
            cpu = (time.process_time() - cpu) / n
        print(json.dumps({"wall_ms": statistics.median(walls) * 1e3, "cpu_ms": cpu * 1e3}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
