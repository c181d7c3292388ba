"""Measure what a pause adds to the file, on a new thread and on one with many messages.

python sizes.py THREADS MESSAGES
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile

import payload
from scene import agent_on, speak

TALK = [
    {"role": "user", "content": f"question {'x' * 180}"},
    {"role": "assistant", "content": f"answer {'y' * 180}", "calls": []},
]


async def added(threads: int, messages: int) -> tuple[float, float]:
    """Return what each pause adds to the file, and to the values in its rows."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/sayso.db"
        agent = agent_on(f"sqlite:///{path}")
        await agent.run("send it", thread="warm")
        for i in range(threads if messages else 0):
            speak(agent.store, f"t{i}", TALK * (messages // 2))
        before, values_before = payload.of_file(path), values(path)
        for i in range(threads):
            paused = await agent.run("send it " + "z" * 180, thread=f"t{i}")
            assert paused.interruptions
        grown, more = payload.of_file(path) - before, values(path) - values_before
        agent.close()
        return grown / threads, more


def values(path: str) -> int:
    """Return the bytes of the values of one thread."""
    return sum(payload.of_thread(path, "t0").values())


async def main(threads: int, messages: int) -> None:
    new, new_values = await added(threads, 0)
    long, long_values = await added(threads, messages)
    figures = {"new_bytes": new, "long_bytes": long}
    value_sizes = {"new_values_bytes": new_values, "long_values_bytes": long_values}
    print(json.dumps({**figures, **value_sizes}))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
