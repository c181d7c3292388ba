"""Export a run of the OpenAI Agents SDK with many turns, load it, and resume it.

python openai_thousand.py build FILE TURNS   really runs the turns, up to the pause
python openai_thousand.py FILE TIMES         measures
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from pathlib import Path

from agents import Runner, RunState
from agents.testing import assistant_message
from openai_scene import MAIL, agent_with, call


async def build(file: Path, turns: int) -> None:
    looks = [[call("look", {"q": "a"}, f"look-{i}")] for i in range(turns - 1)]
    agent = agent_with([*looks, [call("send_email", MAIL, "mail")]])
    paused = await Runner.run(agent, "go", max_turns=turns + 5)
    said = json.dumps(paused.to_input_list(), separators=(",", ":"), default=str)
    file.with_suffix(".talk").write_text(said)
    file.write_text(paused.to_state().to_string())  # the last, because who finds it is content
    print(json.dumps({"open": len(paused.interruptions)}))


async def once(text: str) -> tuple[float, float, int]:
    agent = agent_with([[assistant_message("done")]])
    live = await RunState.from_string(agent, text)
    wall, cpu = time.perf_counter(), time.process_time()
    exported = live.to_string()
    state = await RunState.from_string(agent, exported)
    state.approve(state.get_interruptions()[0])
    done = await Runner.run(agent, state, max_turns=5000)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    assert done.final_output == "done"
    return wall, cpu, len(exported)


async def main(file: Path, times: int) -> None:
    runs = [await once(file.read_text()) for _ in range(times)]
    figures = {
        "wall_ms": statistics.median(run[0] for run in runs) * 1e3,
        "cpu_ms": statistics.median(run[1] for run in runs) * 1e3,
        "state_bytes": runs[0][2],
        "conversation_bytes": len(file.with_suffix(".talk").read_text()),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    if sys.argv[1] == "build":
        asyncio.run(build(Path(sys.argv[2]), int(sys.argv[3])))
    else:
        asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
