"""Load any chat server: pause, then time the approval.

python chat.py N COMMAND...   the command prints a port as its first line

Prints the median time from the approval's POST to its end, the server's CPU time each, and the
number of chunks of the answer. Every server streams the same nine words, one at a time.
"""

from __future__ import annotations

import http.client
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

ANSWER = "Final answer: the weather in New York is sunny."
_USER = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "weather please"}]}


class Chat:
    """One kept connection to a server that speaks the UI-message stream."""

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port)

    def post(self, body: dict[str, Any]) -> str:
        headers = {"content-type": "application/json"}
        self._http.request("POST", "/api/chat", body=json.dumps(body), headers=headers)
        answer = self._http.getresponse()
        text = answer.read().decode()
        assert answer.status == 200, text
        return text

    def paused(self, chat: str) -> dict[str, Any]:
        """Bring a chat to its approval; gives the body that answers it."""
        text = self.post({"id": chat, "messages": [_USER], "trigger": "submit-message"})
        first = {chunk["type"]: chunk for chunk in reversed(chunks_of(text))}
        call, asked = first["tool-input-available"], first["tool-approval-request"]
        part = {
            "type": f"tool-{call['toolName']}",
            "toolCallId": call["toolCallId"],
            "state": "approval-responded",
            "input": call["input"],
            "approval": {"id": asked["approvalId"], "approved": True},
        }
        message = first["start"].get("messageId", "m1")
        answer = {"id": message, "role": "assistant", "parts": [{"type": "step-start"}, part]}
        return {
            "id": chat,
            "messages": [_USER, answer],
            "trigger": "submit-message",
            "messageId": message,
        }


def chunks_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


def answered(text: str) -> int:
    """The number of chunks of an approval's answer, which must be the whole answer, told once."""
    chunks = chunks_of(text)
    types = [chunk["type"] for chunk in chunks]
    assert "tool-output-available" in types, text
    assert types[-1] == "finish", text
    assert "".join(c["delta"] for c in chunks if c["type"] == "text-delta") == ANSWER, text
    return len(chunks)


def cpu_of(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(port: int, pid: int, n: int) -> dict[str, float]:
    chat = Chat(port)
    for i in range(30):
        chat.post(chat.paused(f"warm-{i}"))
    bodies = [chat.paused(f"chat-{i}") for i in range(n)]
    began, walls, texts = cpu_of(pid), [], []
    for body in bodies:
        start = time.perf_counter()
        texts.append(chat.post(body))
        walls.append(time.perf_counter() - start)
    cpu = (cpu_of(pid) - began) / n
    return {
        "wall_ms": statistics.median(walls) * 1e3,
        "cpu_ms": cpu * 1e3,
        "chunks": statistics.median(map(answered, texts)),
    }


def main(n: int, command: list[str]) -> None:
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            port = int(server.stdout.readline())
            print(json.dumps(measure(port, server.pid, n)))
        finally:
            server.terminate()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
