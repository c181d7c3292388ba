"""Measure many approvals on one thread, one at a time: the first, the last, and all bytes.

python hundred.py APPROVALS THREADS
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable

import payload
from scene import agent_on

import sayso

Took = tuple[float, float]


async def approvals(agent: sayso.Agent, inbox: sayso.Inbox, thread: str) -> list[Took]:
    """Wall and CPU of each: decide, resume, and the next pause."""
    result = await agent.run("send it", thread=thread)
    took = []
    while result.interruptions:
        request = result.interruptions[0]
        wall, cpu = time.perf_counter(), time.process_time()
        await inbox.decide(request.id, request.approve(), by="ann")
        result = await agent.resume(thread)
        took.append((time.perf_counter() - wall, time.process_time() - cpu))
    assert result.output == "done"
    return took


def medians(took: Iterable[Took]) -> list[float]:
    return [statistics.median(column) * 1e3 for column in zip(*took, strict=True)]


async def main(n: int, threads: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/sayso.db"
        agent = agent_on(f"sqlite:///{path}", mails=n)
        inbox = sayso.Inbox(agent.store)
        await approvals(agent, inbox, "warm")
        took = [await approvals(agent, inbox, f"t{i}") for i in range(threads)]
        said = [json.loads(body) for _, body in agent.store.messages("t0")]
        agent.close()
        kept = payload.of_thread(path, "t0")
        # Five at either end, because one alone is mostly chance; the very last also ends the run.
        first, first_cpu = medians(each for one in took for each in one[:5])
        last, last_cpu = medians(each for one in took for each in one[-6:-1])
        figures = {
            "first_ms": first,
            "last_ms": last,
            "first_cpu_ms": first_cpu,
            "last_cpu_ms": last_cpu,
            "bytes": sum(kept.values()),
            "record_bytes": kept["event"],
            "conversation_bytes": len(json.dumps(said, separators=(",", ":"))),
        }
        print(json.dumps(figures))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
