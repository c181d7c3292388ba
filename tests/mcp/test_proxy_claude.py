"""The real Claude Code behind the proxy, with a scripted model on loopback.

The program is the one in the wheel of the Claude Agent SDK.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from mcp_world import World

from sayso_testing.coding_agents import REAL_AGENTS, FakeModelServer, Turn

pytestmark = pytest.mark.long

SAYSO = Path(sys.executable).with_name("sayso")
SDK = pytest.importorskip(
    "claude_agent_sdk", reason='needs pip install "sayso[claude-agent]" (365 MB)'
)
CLAUDE = Path(SDK.__file__).parent / "_bundled" / "claude"


class CallingModel(FakeModelServer):
    """Calls tools of MCP servers, with the ticket that it got last."""

    def answer(self, path: str, body: Mapping[str, Any]) -> tuple[str, bytes]:
        if "/messages" not in path or "count_tokens" in path:
            return "application/json", b'{"input_tokens":1}'
        results = [
            json.dumps(block.get("content"))
            for message in body.get("messages", [])
            if isinstance(message["content"], list)
            for block in message["content"]
            if block.get("type") == "tool_result"
        ]
        number, turn = self.turn(results) if body.get("tools") else (0, Turn(text="ok"))
        block: dict[str, Any] = {"type": "text", "text": ""}
        delta: dict[str, Any] = {"type": "text_delta", "text": turn.text or "done"}
        if turn.tool:
            args = dict(turn.args)
            if "ticket" in args:
                args = {"ticket": re.findall(r"ticket\W+([0-9a-f]{20})", json.dumps(results))[-1]}
            block = {"type": "tool_use", "id": f"toolu_{number}", "name": turn.tool, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(args)}
        stop = {"stop_reason": "tool_use" if turn.tool else "end_turn", "stop_sequence": None}
        message = {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model"),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
        events = [
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ]
        text = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events)
        return "text/event-stream", text.encode()


def call(tool: str, **args: Any) -> Turn:
    return Turn(f"mcp__sayso__{tool}", args)


async def test_claude_code_waits_and_sees_the_edit(world: World) -> None:
    config = world.config(servers={"shop": world.shop(trust_hints=True)}, hold=3)
    args = ["proxy", "--config", str(world.write(config)), "--store", world.url]
    home = world.folder / "home"
    home.mkdir()
    entry = {"mcpServers": {"sayso": {"command": str(SAYSO), "args": args}}}
    (home / "mcp.json").write_text(json.dumps(entry))
    # The second order is a retry: the model repeats the call, under a new id of its own.
    turns = [
        call("stock", item="tea"),
        call("order", item="tea"),
        call("order", item="tea"),
        call("sayso_wait", ticket=""),
        Turn(text="done"),
    ]
    with CallingModel(turns) as model:
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("SAYSO", "CLAUDE"))},
            "HOME": str(home),
            "CLAUDE_CONFIG_DIR": str(home),
            **REAL_AGENTS["claude"].environment(model),
        }
        tools = ",".join(f"mcp__sayso__{name}" for name in ("stock", "order", "sayso_wait"))
        command = [str(CLAUDE), "-p", "Go.", "--output-format", "json", "--allowedTools", tools]
        process = await asyncio.create_subprocess_exec(
            *(*command, "--mcp-config", str(home / "mcp.json")),
            cwd=home,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            (request,) = await world.asked()
            await asyncio.sleep(4)  # longer than the hold
            await world.inbox.edit(request, {"item": "tea", "count": 4}, by="ana")
            output, errors = await asyncio.wait_for(process.communicate(), 100)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode == 0, output + errors
    stock, held, edited, waited = model.told
    assert "count" in stock
    assert "needs a person's approval" in held
    assert "A person changed the arguments" in edited
    assert "A person changed the arguments" in waited
    assert world.effects == ["stock tea", "order tea 4"]
    assert len(await world.inbox.history()) == 1
