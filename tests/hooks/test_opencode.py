"""The plugin for OpenCode, in Node: it denies unless the hook answers."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sayso.hooks.settings import plugin_text

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")

_DRIVER = """
import { Sayso } from "./sayso.mjs"
const plugin = await Sayso({ directory: "/src" })
const input = { tool: "bash", sessionID: "s", callID: "c" }
const args = { command: "ls", timeout: 5 }
let error = null
try {
  await plugin["tool.execute.before"](input, { args })
} catch (problem) {
  error = problem.message
}
const output = { output: "done" }
await plugin["tool.execute.after"]({ ...input, args }, output)
console.log(JSON.stringify({ args, error, output: output.output }))
"""


def use_tool(folder: Path, command: str, timeout: float = 20) -> dict[str, Any]:
    """Make a call with a hook that runs this command. Return what happened to it."""
    hook = {"type": "command", "command": command, "timeout": timeout}
    events = ("tool.execute.before", "tool.execute.after", "chat.message")
    (folder / "sayso.mjs").write_text(plugin_text({"hooks": {event: [hook] for event in events}}))
    (folder / "driver.mjs").write_text(_DRIVER)
    done = subprocess.run(
        ["node", "driver.mjs"], cwd=folder, capture_output=True, text=True, timeout=60, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def answer(folder: Path, **output: Any) -> str:
    """Return a command that keeps the payload, and prints an answer."""
    (folder / "answer.json").write_text(json.dumps(output))
    return f"cat >> {folder}/payload; cat {folder}/answer.json"


def test_allowed_call_stays_unchanged(tmp_path: Path) -> None:
    found = use_tool(tmp_path, f"cat > {tmp_path}/payload")
    assert (found["error"], found["args"]) == (None, {"command": "ls", "timeout": 5})
    payload = json.loads((tmp_path / "payload").read_text())
    assert payload["hook_event_name"] == "tool.execute.after"
    assert (payload["tool_use_id"], payload["tool_response"]) == ("c", "done")


def test_rejected_call_throws_reason(tmp_path: Path) -> None:
    found = use_tool(tmp_path, answer(tmp_path, decision="deny", reason="not on a Friday"))
    assert found["error"] == "not on a Friday"


def test_edit_replaces_every_argument(tmp_path: Path) -> None:
    command = answer(
        tmp_path, decision="allow", tool_input={"command": "pwd"}, notice="It changed."
    )
    found = use_tool(tmp_path, command)
    assert found == {"args": {"command": "pwd"}, "error": None, "output": "It changed.\ndone"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("echo broken >&2; exit 2", "broken"),
        ("exit 1", "ended with 1"),
        ("kill -9 $$", "ended with null"),
        ("echo no JSON", "not JSON"),
        ("echo 5", "is not an object"),
        ("echo '{}'; exit 2", "ended with 2"),
        ("/nowhere/python", "not found"),
        ("exec sleep 20", "more than 0.5 seconds"),
    ],
)
def test_failing_hook_denies(tmp_path: Path, command: str, error: str) -> None:
    timeout = 0.5 if "sleep" in command else 20
    assert error in str(use_tool(tmp_path, command, timeout)["error"])
