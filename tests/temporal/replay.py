"""Replay recorded histories with the code of today: ``replay.py FILE...``.

A file is called like the workflow, because its id is part of what a workflow waits for.
"""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from pathlib import Path

from desk_workflows import Hurry, Refund, Visit
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

import sayso
from sayso.adapters.temporal import SaysoPlugin
from sayso.worker.temporal import RunWorkflow


async def main(paths: list[Path]) -> None:
    plugin = SaysoPlugin(sayso.Gate("memory://", agent="desk"))
    replayer = Replayer(workflows=[Refund, Visit, Hurry, RunWorkflow], plugins=[plugin])
    for path in paths:
        await replayer.replay_workflow(WorkflowHistory.from_json(path.stem, path.read_text()))
        print(f"replayed {path.stem}")


if __name__ == "__main__":
    code = 0
    try:
        asyncio.run(main([Path(name) for name in sys.argv[1:]]))
    except Exception:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    os._exit(code)  # the client's threads may abort an interpreter that takes its time to end
