"""Start and kill hundreds of processes: one interpreter imports everything and forks children.

``ForkServer`` starts that interpreter. It has one OS thread and opens no store, so a fork of it is
as good as a new process, at a hundredth of the cost. ``spawn("actors:decide", folder=…)`` calls a
function of a module in this folder in a child, and ``wait`` returns how the child ended.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sayso.stores.postgres import store
from sayso_testing.adapter_steps import Interpreter

MODULES = ("actors", "stories", "all_stories")
PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended: by a signal, or with what its function returned or raised."""

    signal: int
    value: Any = None
    error: str = ""

    @property
    def killed(self) -> bool:
        return self.signal == signal.SIGKILL


class ForkServer(Interpreter):
    """The client side of the interpreter that forks."""

    def __init__(self, *more: Path) -> None:
        """Also load ``more`` files whose functions may be called."""
        super().__init__(__file__, *map(str, more))

    def spawn(self, task: str, **arguments: Any) -> int:
        """Start a child. Return its process id."""
        pid: int = self._ask({"task": task, "arguments": arguments})
        return pid

    def wait(self, pid: int) -> Ended:
        """Wait for a child."""
        return Ended(**self._ask({"wait": pid}))

    def run(self, task: str, **arguments: Any) -> Ended:
        """Start a child and wait for it."""
        return self.wait(self.spawn(task, **arguments))

    def value(self, task: str, **arguments: Any) -> Any:
        """Run a child that must not be killed. Return its value."""
        ended = self.run(task, **arguments)
        assert (ended.signal, ended.error) == (0, ""), ended.error or ended
        return ended.value


def _serve() -> None:
    more = [Path(name) for name in sys.argv[1:]]
    sys.path += [str(path.parent) for path in more]
    sys.path.append(str(Path(__file__).parents[1]))  # what several folders of tests share
    for module in (*MODULES, *(path.stem for path in more)):
        importlib.import_module(module)
    gc.freeze()  # so that collections in the children do not copy all that was imported
    store.PATIENCE = PATIENCE  # other tests keep transactions open on the same server
    children: set[int] = set()
    with tempfile.TemporaryDirectory() as folder:
        for line in sys.stdin:
            request = json.loads(line)
            if "wait" in request:
                answer: Any = _wait(folder, request["wait"])
                children.discard(request["wait"])
            else:
                answer = _fork(folder, request["task"], request["arguments"])
                children.add(answer)
            print(json.dumps(answer), flush=True)
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _fork(folder: str, task: str, arguments: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    said: dict[str, Any] = {}
    try:
        module, _, function = task.partition(":")
        said["value"] = getattr(sys.modules[module], function)(**arguments)
    except BaseException:
        said["error"] = traceback.format_exc()
    Path(folder, str(os.getpid())).write_text(json.dumps(said))
    os._exit(0)


def _wait(folder: str, pid: int) -> dict[str, Any]:
    end = time.monotonic() + PATIENCE
    if hasattr(os, "pidfd_open"):  # on Linux; elsewhere, poll
        with open(os.pidfd_open(pid), "rb") as process:
            select.select([process], [], [], PATIENCE)
    while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0:
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return {"signal": 0, "error": f"it did not end within {PATIENCE} seconds"}
        time.sleep(0.0005)
    status = ended[1]
    told = Path(folder, str(pid))
    said = json.loads(told.read_text()) if told.exists() else {}
    return {"signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, **said}


if __name__ == "__main__":
    _serve()
