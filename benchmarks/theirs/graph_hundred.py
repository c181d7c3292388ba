"""Measure many approvals on one LangGraph thread, one at a time.

python graph_hundred.py APPROVALS THREADS
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from typing import Any

from graph import SAID, YES, agent_on, config, saver_at

PAYLOAD = (
    "SELECT sum(length(checkpoint) + length(metadata)) FROM checkpoints WHERE thread_id = ?",
    "SELECT sum(length(value)) FROM writes WHERE thread_id = ?",
)


Took = tuple[float, float]


def approvals(agent: Any, n: int, thread: str) -> list[Took]:
    """Wall and CPU of each: resume with the decision, and the next pause."""
    agent.invoke(SAID, config(thread))
    took = []
    for _ in range(n):
        wall, cpu = time.perf_counter(), time.process_time()
        result = agent.invoke(YES, config(thread))
        took.append((time.perf_counter() - wall, time.process_time() - cpu))
    assert result["messages"][-1].content == "done"
    return took


def medians(took: Iterable[Took]) -> list[float]:
    return [statistics.median(column) * 1e3 for column in zip(*took, strict=True)]


def main(n: int, threads: int) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        saver_at(f"{folder}/graph.db") as saver,
    ):
        agent = agent_on(saver, mails=n)
        approvals(agent_on(saver, mails=10), 10, "warm")
        took = [approvals(agent, n, f"t{i}") for i in range(threads)]
        kept = sum(saver.conn.execute(sql, ("t0",)).fetchone()[0] for sql in PAYLOAD)
        messages = agent.get_state(config("t0")).values["messages"]
        said = [message.model_dump(exclude_defaults=True) for message in messages]
        first, first_cpu = medians(each for one in took for each in one[:5])
        last, last_cpu = medians(each for one in took for each in one[-6:-1])
        figures = {
            "first_ms": first,
            "last_ms": last,
            "first_cpu_ms": first_cpu,
            "last_cpu_ms": last_cpu,
            "bytes": kept,
            "conversation_bytes": len(json.dumps(said, separators=(",", ":"), default=str)),
        }
        print(json.dumps(figures))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
