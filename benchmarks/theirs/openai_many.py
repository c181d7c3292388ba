"""Load a run of the OpenAI Agents SDK with many open requests, and approve all of them."""

from __future__ import annotations

import asyncio
import json
import sys
import time

from agents import Runner, RunState
from openai_scene import MAIL, agent_with, call


async def main(requests: int) -> None:
    asked = [call("send_email", MAIL, f"c{i}") for i in range(requests)]
    agent = agent_with([asked])
    paused = await Runner.run(agent, "send them")
    state = await RunState.from_string(agent, paused.to_state().to_string())
    waiting = state.get_interruptions()
    assert len(waiting) == requests
    wall, cpu = time.perf_counter(), time.process_time()
    for one in waiting:
        state.approve(one)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    print(json.dumps({"wall_ms": wall * 1e3, "cpu_ms": cpu * 1e3}))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
