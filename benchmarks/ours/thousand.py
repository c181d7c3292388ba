"""Export the state of a run with many turns, load it, and resume the run.

python thousand.py build FOLDER TURNS   really runs the turns, up to the pause
python thousand.py FOLDER TIMES         measures, each time on a copy of what was built
"""

from __future__ import annotations

import asyncio
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import payload
from scene import agent_on

from sayso.gate.run_result import RunState


async def build(folder: Path, turns: int) -> None:
    folder.mkdir(parents=True)
    agent = agent_on(f"sqlite:///{folder}/sayso.db", looks=turns - 1)
    paused = await agent.run("go", thread="long")
    agent.close()
    (folder / "turns").write_text(str(turns))
    print(json.dumps({"open": len(paused.interruptions)}))


async def once(built: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        for file in built.iterdir():
            shutil.copy(file, folder)
        turns = int((built / "turns").read_text())
        agent = agent_on(f"sqlite:///{folder}/sayso.db", looks=turns - 1)
        paused = await agent.resume("long")  # nothing is decided, so it only returns the state
        said = [json.loads(body) for _, body in agent.store.messages("long")]
        kept = payload.of_thread(f"{folder}/sayso.db", "long")
        wall, cpu = time.perf_counter(), time.process_time()
        text = paused.state.to_json()
        state = RunState.from_json(text, agent.store)
        state.approve(state.interruptions[0])
        done = await agent.resume(state)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        assert done.output == "done"
        agent.close()
        return {
            "wall_ms": wall * 1e3,
            "cpu_ms": cpu * 1e3,
            "state_bytes": len(text),
            "messages_bytes": kept["message"],
            "record_bytes": kept["event"],
            "all_bytes": sum(kept.values()),
            "conversation_bytes": len(json.dumps(said, separators=(",", ":"))),
        }


async def main(built: Path, times: int) -> None:
    runs = [await once(built) for _ in range(times)]
    print(json.dumps({name: statistics.median(run[name] for run in runs) for name in runs[0]}))


if __name__ == "__main__":
    if sys.argv[1] == "build":
        asyncio.run(build(Path(sys.argv[2]), int(sys.argv[3])))
    else:
        asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
