"""``sayso demo`` in a separate process, and a chat with it."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import httpx
from sayso_process import start
from waiting import PATIENCE, until


class Demo:
    """A running demo, and a chat with it."""

    def __init__(self, folder: Path, *options: str, port: str = "0") -> None:
        self.began = time.monotonic()
        command = ("demo", "--port", port, "--no-open", *options)
        env = {**os.environ, "TMPDIR": str(folder)}
        self.process = start(*command, cwd=folder, env=env)
        assert self.process.stdout is not None
        self.printed = ""
        while "Ctrl-C" not in self.printed:
            line = self.process.stdout.readline()
            assert line, self.process.communicate()[1]
            self.printed += line
        (self.url,) = re.findall(r"Open (http://[\d.:]+)", self.printed)
        self.http = httpx.Client(base_url=self.url, timeout=PATIENCE)
        self.chats = 0

    def stop(self) -> tuple[int, str]:
        self.http.close()
        self.process.send_signal(signal.SIGINT)
        _, errors = self.process.communicate()
        return self.process.wait(), errors

    def say(self, words: str) -> str:
        """Start a chat. Return its id."""
        self.chats += 1
        chat = f"chat-{self.chats}"
        parts = [{"type": "text", "text": words}]
        body = {"id": chat, "messages": [{"id": "m1", "role": "user", "parts": parts}]}
        answer = self.http.post("/api/chat", json=body)
        assert answer.status_code == 200, answer.text
        return chat

    def open(self, chat: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.http.get(
            "/api/requests", params={"thread": chat}
        ).json()["items"]
        return items

    def decide(self, request: dict[str, Any], type: str = "approve", **more: Any) -> None:
        body = {"type": type, "seen_digest": request["digest"], **more}
        answer = self.http.post(f"/api/requests/{request['id']}/decision", json=body)
        assert answer.status_code == 200, answer.text

    def until_decided(self, request_id: str) -> Any:
        """Return the request, once it is decided."""

        def decided() -> Any:
            found = self.http.get(f"/api/requests/{request_id}").json()
            return found if found["status"] != "pending" else None

        return until(decided)

    def run_of(self, chat: str) -> dict[str, Any]:
        runs = self.http.get("/api/runs", params={"thread": chat}).json()["items"]
        return runs[0] if runs else {}

    def until_it_waits_or_ends(self, chat: str) -> None:
        """Wait until the agent has resumed, and waits for people again or is done."""

        def rests() -> bool:
            return self.run_of(chat)["status"] == "done" or bool(self.open(chat))

        until(rests)

    def final(self, chat: str) -> str:
        """Return the agent's final answer, once the run has ended."""

        def done() -> Any:
            run = self.run_of(chat)
            return run if run.get("status") == "done" else None

        return str(until(done)["output"])

    def ran(self) -> list[tuple[str, dict[str, Any]]]:
        return [(row["tool"], row["args"]) for row in self.http.get("/demo/effects").json()]
