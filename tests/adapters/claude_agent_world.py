"""A scripted model for Claude Code: a server on loopback that speaks the API of Anthropic."""

from __future__ import annotations

import inspect
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, SdkMcpTool
from pydantic import TypeAdapter

Block = dict[str, Any]
#: Returns the blocks of the next reply, from how many replies made calls, and what it was told.
Reply = Callable[[int, list[tuple[str, str]]], Sequence[Block]]


def say(text: str) -> Block:
    return {"type": "text", "text": text}


def use(name: str, id: str, /, **args: Any) -> Block:
    return {"type": "tool_use", "id": id, "name": name, "input": args}


def in_process(function: Any) -> SdkMcpTool[Any]:
    """Return a function as a tool of the SDK."""
    schema = TypeAdapter(function).json_schema()

    async def handler(args: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": await function(**args)}]}

    return SdkMcpTool(function.__name__, inspect.getdoc(function) or "", schema, handler)


def paying(folder: Path, *tools: Any) -> dict[str, Any]:
    """Return options for Claude with these functions, which pays Ana and then ends."""
    script = [[use("mcp__sayso__pay", "toolu_0", to="ana")], [say("Done.")]]
    fake = FakeAnthropic(lambda replies, told: script[min(replies, 1)])
    return {"options": options(folder, fake), "tools": [in_process(one) for one in tools]}


class FakeAnthropic:
    """The model, as Claude Code sees it."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        #: The bodies of the requests that Claude Code made.
        self.requests: list[dict[str, Any]] = []
        #: Held during a reply, so that the last request is the one that it answers.
        self._replying = threading.Lock()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                self._send(b"{}")

            do_HEAD = do_GET

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])) or b"{}")
                if "count_tokens" in self.path or "/messages" not in self.path:
                    return self._send(b'{"input_tokens": 1}')
                return self._send(fake.stream(body), "text/event-stream")

            def _send(self, data: bytes, type: str = "application/json") -> None:
                self.send_response(200)
                self.send_header("content-type", type)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def stream(self, body: Mapping[str, Any]) -> bytes:
        """Return the next reply as server-sent events."""
        blocks = [part for m in body["messages"] for part in _blocks(m)]
        made = [m for m in body["messages"] if m["role"] == "assistant" and _is_reply(m)]
        told = [(b["tool_use_id"], text(b)) for b in blocks if b.get("type") == "tool_result"]
        with self._replying:
            self.requests.append(dict(body))
            said = list(self.reply(len(made), told))
        events: list[dict[str, Any]] = []
        start = {"id": f"msg_{len(made)}", "type": "message", "role": "assistant", "content": []}
        usage = {"input_tokens": 1, "output_tokens": 1}
        start |= {"model": body["model"], "stop_reason": None, "stop_sequence": None}
        events.append({"type": "message_start", "message": {**start, "usage": usage}})
        for index, block in enumerate(said):
            events += _block_events(index, block)
        stop = "tool_use" if any(b["type"] == "tool_use" for b in said) else "end_turn"
        delta = {"stop_reason": stop, "stop_sequence": None}
        events.append({"type": "message_delta", "delta": delta, "usage": usage})
        events.append({"type": "message_stop"})
        return "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events).encode()


def _is_reply(message: Mapping[str, Any]) -> bool:
    """Return whether the model wrote a message: Claude Code adds one when it resumes a session."""
    return any(block.get("text") != "No response requested." for block in _blocks(message))


def _blocks(message: Mapping[str, Any]) -> list[Block]:
    return message["content"] if isinstance(message["content"], list) else []


def _block_events(index: int, block: Block) -> list[dict[str, Any]]:
    if block["type"] in ("tool_use", "server_tool_use"):
        begun: Block = {**block, "input": {}}
        more = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    else:
        begun, more = {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
    return [
        {"type": "content_block_start", "index": index, "content_block": begun},
        {"type": "content_block_delta", "index": index, "delta": more},
        {"type": "content_block_stop", "index": index},
    ]


def text(result: Mapping[str, Any]) -> str:
    """Return the text of a tool's result."""
    content = result.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


def options(folder: Path, fake: FakeAnthropic, **more: Any) -> ClaudeAgentOptions:
    """Return options for Claude Code that reach only the fake model."""
    home = str(folder)
    quiet = ("DISABLE_TELEMETRY", "DISABLE_AUTOUPDATER", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC")
    env = {"ANTHROPIC_BASE_URL": fake.url, "ANTHROPIC_API_KEY": "x", "HOME": home}
    env |= {"CLAUDE_CONFIG_DIR": f"{home}/claude", **dict.fromkeys(quiet, "1")}
    given = {"tools": [], "setting_sources": [], "cwd": home, "system_prompt": "Help."}
    return ClaudeAgentOptions(**{**given, "model": "claude-sonnet-4-5", "env": env, **more})
