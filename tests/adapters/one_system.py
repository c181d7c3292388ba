"""Processes around one store: agents of ``examples/five_frameworks.py``, a server, workers.

All are forks of one interpreter that has imported the frameworks, which takes longest.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

import httpx
from sayso_process import Process, PythonForks
from waiting import until

ROOT = Path(__file__).parents[2]
FIVE = ("langchain", "openai_agents", "agent_framework", "dspy", "pydantic_ai")
PATIENCE = 120.0
#: DSPy first: it looks through all modules that are loaded, again and again.
IMPORTED = (
    *("dspy.utils", "langchain.agents", "langgraph.checkpoint.sqlite", "agents.testing"),
    *("agent_framework", "pydantic_ai.models.function"),
    *(f"sayso.adapters.{name}" for name in FIVE),
    *("sayso.cli.serve", "sayso.cli.decide", "sayso.worker", "sayso.stores.sqlite", "jsonschema"),
    *("sayso.server.serving", "sayso.server.app", "sayso.server.logs", "sayso.server.monitoring"),
    *("uvicorn.protocols.http.httptools_impl", "uvloop"),
)


class OneSystem:
    """A folder with a store, and the processes that use it."""

    def __init__(self, folder: Path, python: PythonForks) -> None:
        self.folder = folder
        self._python = python
        mine = {name: v for name, v in os.environ.items() if not name.startswith("SAYSO_")}
        self._env = {**mine, "PYTHONPATH": str(ROOT / "examples"), "NO_COLOR": "1"}
        self._log = (folder / "log").open("w+")
        self._running: list[Process] = []
        self.http = httpx.Client(timeout=PATIENCE)

    # -- processes

    def start(self, *command: str) -> Process:
        process = self._python.start(*command, cwd=self.folder, env=self._env, stderr=self._log)
        self._running.append(process)
        return process

    def begin(self, *names: str) -> Process:
        """Start a process with these agents: each asks, and then the process ends."""
        return self.start("-m", "five_frameworks", *names)

    def ended(self, process: Process) -> str:
        """Return the output of a process that must succeed."""
        printed, _ = process.communicate(timeout=PATIENCE)
        self._running.remove(process)
        assert process.returncode == 0, self.log()
        return printed

    def hear(self, process: Process, words: str) -> str:
        """Return the rest of the first output line that begins with these words."""
        assert process.stdout is not None
        watch = threading.Timer(PATIENCE, process.kill)  # ends the reading too
        watch.start()
        line = process.stdout.readline()
        watch.cancel()
        assert line.startswith(words), line + self.log()
        return line.removeprefix(words)

    def is_at(self, server: Process) -> str:
        """Return the address of a server, once it answers."""
        (url,) = re.findall(r"http://[\d.:]+", self.hear(server, "Sayso is at "))
        self.http.base_url = url
        return str(url)

    def stop(self) -> None:
        """Stop all processes, and check that none printed an error."""
        for process in self._running:
            process.send_signal(signal.SIGTERM)
        for process in list(self._running):
            self.ended(process)
        assert "Traceback" not in self.log(), self.log()

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def close(self) -> None:
        """Kill what a failed test left."""
        for process in self._running:
            process.kill()
            process.communicate()
        self.http.close()
        self._log.close()

    # -- people

    def waiting(self) -> dict[str, dict[str, Any]]:
        """Return the pending requests, by agent."""
        items = self.http.get("/api/requests").raise_for_status().json()["items"]
        assert len({item["agent"] for item in items}) == len(items)
        return {item["agent"]: item for item in items}

    def on_the_web(self, request: dict[str, Any], type: str, **more: Any) -> httpx.Response:
        """Decide as the page does, with its own POST."""
        body = {"type": type, "seen_digest": request["digest"], **more}
        return self.http.post(f"/api/requests/{request['id']}/decision", json=body)

    def in_a_terminal(self, request: dict[str, Any], command: str, *more: str) -> None:
        """``sayso approve ID --digest …``"""
        line = ("sayso", command, request["id"], "--digest", request["digest"], "--json", *more)
        decided = json.loads(self.ended(self.start(*line)))
        assert decided["id"] == request["id"]

    # -- what came of it

    def finished(self) -> dict[str, Any]:
        """Return the answers of all five, once every run is done."""

        def look() -> dict[str, Any] | None:
            runs = self.http.get("/api/runs").raise_for_status().json()["items"]
            mine = [run for run in runs if run["agent"] in FIVE]
            if len(mine) != len(FIVE) or any(run["status"] != "done" for run in mine):
                return None
            return {run["agent"]: run["output"] for run in mine}

        return until(look, seconds=PATIENCE, otherwise=self.log)

    def decided(self) -> dict[str, tuple[str, str]]:
        """Return the decision and its channel, by agent."""
        items = self.http.get("/api/requests", params={"status": "closed"}).json()["items"]
        return {i["agent"]: (i["decision"]["type"], i["decision"]["channel"]) for i in items}

    def paid(self) -> list[str]:
        """Return the effects, from a file outside of all processes."""
        return sorted((self.folder / "payments.txt").read_text().splitlines())
