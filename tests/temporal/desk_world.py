"""A store with people at it, and worker processes that come and go."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

from dev_server import LAUNCH, DevServer
from sayso_process import Process, PythonForks
from waiting import until

import sayso

HERE = Path(__file__).parent
#: What workers import.
IMPORTED = (
    *("temporalio.client", "temporalio.worker", "sayso.adapters.temporal", "sayso.testing"),
    *("sayso.worker.temporal", "sayso.cli.serve", "sayso.stores.sqlite", "jsonschema"),
)


def _environment() -> dict[str, str]:
    return {n: v for n, v in os.environ.items() if not n.startswith(("SAYSO_", "TEMPORAL_"))}


class Desk:
    """A store, the people at it, and worker processes that come and go."""

    def __init__(self, folder: Path, server: DevServer, python: PythonForks) -> None:
        self.folder = folder
        self.server = server
        self._python = python
        self.url = f"sqlite:///{folder / 'sayso.db'}"
        self.inbox = sayso.Inbox(self.url)
        self._queue = f"desk-{uuid4().hex[:8]}"  # what another test left is not done here
        self._processes: list[Process | subprocess.Popen[bytes]] = []

    def worker(self) -> Process:
        """Start a worker of the user's."""
        script = str(HERE / "desk_worker.py")
        return self.fork(script, self.server.address, self._queue, self.url, str(self.folder))

    def begin(self, type: str, id: str, *input: Any) -> None:
        """Start a workflow of the user's."""
        self.server.begin(type, id, self._queue, *input)

    def fork(self, *command: str, **environment: str) -> Process:
        """Start a program in a fork of an interpreter that has imported Temporal's SDK."""
        env = {**_environment(), **environment}
        with self.log.open("ab") as log:
            process = self._python.start_logged(*command, cwd=self.folder, env=env, log=log)
        self._processes.append(process)
        return process

    def process(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a process that does not outlive the test."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", LAUNCH, *command],
                cwd=self.folder,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._processes.append(process)
        return process

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def effects(self) -> list[str]:
        """What really happened."""
        path = self.folder / "effects"
        return path.read_text().splitlines() if path.exists() else []

    def waiting(self, count: int = 1) -> list[sayso.Request]:
        """The requests that people see, as soon as there are so many."""

        def look() -> list[sayso.Request] | None:
            found = self.inbox.pending_sync().items
            return list(found) if len(found) == count else None

        return until(look, otherwise=self.said)

    def said(self) -> str:
        """The last words of the workers."""
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        self.inbox.close()
