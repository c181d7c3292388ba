"""The page "Approve Claude Code from your phone", word for word, with a fake of Telegram."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_telegram import TOKEN, FakeTelegram
from waiting import until

PAGE = Path(__file__).parent.parent.parent / "docs" / "phone.md"


def commands() -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", PAGE.read_text("utf-8"), re.S)
    return [line.removeprefix("$ ") for block in blocks for line in block.strip().split("\n")]


@pytest.fixture
def fake() -> Iterator[FakeTelegram]:
    made = FakeTelegram()
    yield made
    made.close()


@pytest.mark.long
def test_page_leads_from_install_to_approval(tmp_path: Path, fake: FakeTelegram) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    env = {**os.environ, "HOME": str(tmp_path), "SAYSO_TELEGRAM_API": fake.url}
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    env.pop("XDG_DATA_HOME", None)
    (tmp_path / "telegram-token").write_text(TOKEN)
    server: subprocess.Popen[bytes] | None = None
    try:
        for command in commands():
            if command.startswith("pip "):
                continue
            if command.endswith("&"):
                # The page's own port may be taken on this machine.
                line = f"exec {command.removesuffix('&')} --port {port}"
                server = subprocess.Popen(["bash", "-c", line], env=env, cwd=tmp_path)
                until(lambda: any(method == "getMe" for method, _ in fake.calls), seconds=60)
                continue
            ran = subprocess.run(
                ["bash", "-c", command], env=env, cwd=tmp_path, capture_output=True, text=True
            )
            assert ran.returncode == 0, (command, ran.stderr)
            if "channels test" in command:
                assert "@sayso_bot" in ran.stdout
                fake.calls.clear()
            if "channels link" in command:
                fake.write(77, re.findall(r"/start \S+", ran.stdout)[0])
        until(lambda: "is linked" in str(fake.shown(77)))
        assert _hook(tmp_path, env, port, fake) == "allow"
        until(lambda: "Approved by" in fake.shown(77)[-1]["text"])
    finally:
        if server is not None:
            server.send_signal(signal.SIGTERM)
            server.wait(30)


def _hook(home: Path, env: dict[str, str], port: str, fake: FakeTelegram) -> str:
    """Run the hook that was installed, and approve on the phone while it waits."""
    settings = json.loads((home / ".claude" / "settings.json").read_text())
    command = settings["hooks"]["PreToolUse"][0]["hooks"][0]["command"]
    for config in home.rglob("*.json"):
        text = config.read_text()
        if ":8321" in text:
            config.write_text(text.replace(":8321", f":{port}"))
    payload: dict[str, Any] = {
        "session_id": "s1",
        "transcript_path": str(home / "t.jsonl"),
        "cwd": str(home),
        "permission_mode": "default",
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "npm install left-pad", "description": "Add a package"},
        "tool_use_id": "toolu_1",
    }
    hook = subprocess.Popen(
        ["bash", "-c", command],
        env=env,
        cwd=home,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert hook.stdin is not None
    hook.stdin.write(json.dumps(payload).encode())
    hook.stdin.close()
    until(lambda: any("npm install left-pad" in m["text"] for m in fake.shown(77)))
    message = fake.shown(77)[-1]
    assert str(home) in message["text"], message["text"]
    assert list(message["buttons"]) == ["Approve", "Reject", "Reject with a reason…"], message
    fake.press(77, "Approve")
    assert hook.wait(60) == 0
    assert hook.stdout is not None
    with hook.stdout:
        out = json.loads(hook.stdout.read())
    return str(out["hookSpecificOutput"]["permissionDecision"])
