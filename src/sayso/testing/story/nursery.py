"""Processes to kill: one interpreter imports the framework once and forks a child per step."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sayso.testing.story.step import Came, Step, play, stage_class

PATIENCE = 90.0
_SERVE = """
import sys; sys.path[:] = {path!r}
from sayso.testing.story import nursery; nursery.serve({stage!r})
"""


class Nursery:
    """The warm interpreter, as the tests see it. It has one thread and opens nothing, so that a
    fork of it is as good as a fresh process."""

    def __init__(self, stage: str) -> None:
        program = _SERVE.format(path=[p or os.getcwd() for p in sys.path], stage=stage)
        self._process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def spawn(self, step: Step) -> int:
        """Begin a step in a process of its own; gives its id."""
        pid: int = self._ask({"step": asdict(step)})
        return pid

    def wait(self, pid: int) -> Came | None:
        """What came of it; nothing if it was killed."""
        ended = self._ask({"wait": pid})
        if ended.get("error"):
            raise AssertionError(ended["error"])
        came = ended["came"]
        return None if came is None else Came(**{**came, "waiting": tuple(came["waiting"])})

    def _ask(self, request: dict[str, Any]) -> Any:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        assert answer, "the warm interpreter is gone: see what it said on stderr"
        return json.loads(answer)

    def close(self) -> None:
        """End it, and what is left of its children."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


def serve(stage: str) -> None:
    """The interpreter's own loop."""
    speak = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a framework prints is not an answer
    stage_class(stage)
    children: dict[int, Path] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer: Any = _ended(request["wait"], children.pop(request["wait"]))
        else:
            answer = _forked(Step(**request["step"]), children)
        print(json.dumps(answer), file=speak, flush=True)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _forked(step: Step, children: dict[int, Path]) -> int:
    pid = os.fork()
    if pid:
        children[pid] = Path(step.folder, f"told {pid}")
        return pid
    said: dict[str, Any] = {}
    try:
        said["came"] = asdict(play(step))
    except BaseException:
        said["error"] = traceback.format_exc()
    Path(step.folder, f"told {os.getpid()}").write_text(json.dumps(said))
    os._exit(0)


def _ended(pid: int, told: Path) -> dict[str, Any]:
    end = time.monotonic() + PATIENCE
    while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0:
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return {"error": f"it did not end within {PATIENCE} seconds"}
        time.sleep(0.001)
    if told.exists():
        said: dict[str, Any] = json.loads(told.read_text())
        return said
    status = ended[1]
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    return {"came": None} if killed else {"error": f"the child ended with {status}"}
