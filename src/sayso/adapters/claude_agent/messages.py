"""The conversation with Claude, as messages of its API, and as a transcript for Claude Code.

Claude Code keeps its own transcript in a file. It is not used: a process that resumes a thread may
run on another machine, and nothing authenticates the file. The log holds the same messages, and
Claude Code gets a transcript that is made of them.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from claude_agent_sdk import ContentBlock, TextBlock, ThinkingBlock, ToolUseBlock

from sayso import codec
from sayso.adapters.conversation import Body, ConversationLog, shown
from sayso.gate import Gate
from sayso.policy import Policy

Block = dict[str, Any]


class MessageLog(ConversationLog):
    """What was said in one thread, in messages of Claude's API."""

    format = "claude-agent"

    def __init__(self, gate: Gate, thread: str, policy: Policy | None = None) -> None:
        super().__init__(gate, thread, policy)
        #: ``{"role": ..., "content": [...]}``, in order; consecutive blocks of a reply are one.
        self.messages: list[Body] = []
        #: Results of the last reply's calls that were stored one by one, by call.
        self.results: dict[str, Block] = {}

    def replay(self, body: Body) -> None:
        if "blocks" not in body:
            return
        if body["role"] == "user":
            self._close()
            self.messages.append({"role": "user", "content": body["blocks"]})
        elif body["role"] == "tool":
            self.results |= {block["tool_use_id"]: block for block in body["blocks"]}
        else:
            self._add(body["id"], body["blocks"])

    def _add(self, id: str, blocks: Sequence[Block]) -> None:
        last = self.messages[-1] if self.messages else {}
        if last.get("id") == id:
            last["content"] = [*last["content"], *blocks]
        else:
            self._close()
            self.messages.append({"role": "assistant", "id": id, "content": list(blocks)})

    def _close(self) -> None:
        """Put the results of the last reply's calls behind it."""
        results = [self.results[id] for id in self.calls_made if id in self.results]
        if results:
            self.messages.append({"role": "user", "content": results})
        self.results = {}

    @property
    def calls_made(self) -> dict[str, Block]:
        """The calls of the last reply, by their ids."""
        last = self.messages[-1] if self.messages else {}
        blocks = last.get("content", ()) if last.get("role") == "assistant" else ()
        return {block["id"]: block for block in blocks if block["type"] == "tool_use"}

    @property
    def open_calls(self) -> list[Block]:
        """The calls of the last reply that have no stored result, in the model's order."""
        return [block for id, block in self.calls_made.items() if id not in self.results]

    @property
    def open_keys(self) -> list[str]:
        return [self.key(block["id"]) for block in self.open_calls]

    def key(self, id: str) -> str:
        """Return the key of a call in the last reply. Earlier replies may have used its id."""
        replies = [m["content"] for m in self.messages if m["role"] == "assistant"]
        uses = [any(b["type"] == "tool_use" and b["id"] == id for b in r) for r in replies]
        return id if sum(uses) < 2 else f"{id}#{sum(uses)}"

    async def say_prompt(self, prompt: str | Sequence[Block]) -> None:
        blocks = [{"type": "text", "text": prompt}] if isinstance(prompt, str) else list(prompt)
        texts = [block["text"] for block in blocks if block.get("type") == "text"]
        await self.say(" ".join(texts), blocks=blocks)
        self._close()
        self.messages.append({"role": "user", "content": blocks})

    async def add_reply(self, id: str, blocks: Sequence[Block], *, last: bool = False) -> None:
        """Store a part of a reply, before its calls are made; the ``last`` one with the end."""
        uses = [block for block in blocks if block["type"] == "tool_use"]
        calls = [(block["id"], block["name"], codec.dumps(block["input"])) for block in uses]
        text = "".join(block["text"] for block in blocks if block["type"] == "text")
        data = {"id": id, "blocks": list(blocks)}
        await self.append({"role": "assistant", **shown(text, calls), **data}, last=last)
        self._add(id, blocks)

    async def add_results(self, results: Iterable[Block]) -> None:
        """Store results of the last reply's calls that are not stored yet."""
        results_by_id = self.results
        calls = self.calls_made
        new = [
            b
            for b in results
            if b["tool_use_id"] in calls and b["tool_use_id"] not in results_by_id
        ]
        if new:
            text = " ".join(text_of(block["content"]) for block in new)
            await self.append({"role": "tool", "content": text, "blocks": new})
            self.results |= {block["tool_use_id"]: block for block in new}

    def transcript(self, session: str, folder: str, version: str) -> list[dict[str, Any]]:
        """Return the conversation so far as entries of Claude Code's transcript."""
        self._close()
        common = {
            "isSidechain": False,
            "userType": "external",
            "cwd": folder,
            "sessionId": session,
            "version": version,
        }
        entries: list[dict[str, Any]] = []
        parent: str | None = None
        for message, content in zip(self.messages, _with_own_ids(self.messages), strict=True):
            own = str(uuid.uuid4())
            body: dict[str, Any] = {"role": message["role"], "content": content}
            if message["role"] == "assistant":
                body |= {"id": message["id"], "type": "message", "model": "claude"}
                body |= {"stop_reason": None, "stop_sequence": None}
                body["usage"] = {"input_tokens": 0, "output_tokens": 0}
            now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
            entry = {"parentUuid": parent, "uuid": own, "timestamp": now}
            entries.append({**common, **entry, "type": message["role"], "message": body})
            parent = own
        return entries


def _with_own_ids(messages: Sequence[Body]) -> Iterator[list[Block]]:
    """Yield the content of each message, without ids of calls that a later reply may repeat.

    Claude Code removes calls that repeat an id. Anthropic's own ids never do, and keep their names
    so that its cache of prompts applies.
    """
    uses: Counter[str] = Counter()
    for message in messages:
        blocks: list[Block] = message["content"]
        uses.update({block["id"] for block in blocks if block["type"] == "tool_use"})
        renamed: list[Block] = []
        for block in blocks:
            name = {"tool_use": "id", "tool_result": "tool_use_id"}.get(block["type"])
            if name is None or (block[name].startswith("toolu_") and uses[block[name]] == 1):
                renamed.append(block)
            else:
                own_id = f"{block[name]}-{uses[block[name]]}"
                renamed.append({**block, name: own_id})
        yield renamed


def dump_block(block: ContentBlock) -> Block | None:
    """Return a block of a reply as Claude's API has it; None for one that cannot be sent again."""
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    if isinstance(block, ToolUseBlock):
        return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.input}
    if isinstance(block, ThinkingBlock) and block.signature:
        return {"type": "thinking", "thinking": block.thinking, "signature": block.signature}
    return None


def result_block(id: str, content: Any, *, is_error: bool = False) -> Block:
    """Return the result of a call as Claude's API has it."""
    block = {"type": "tool_result", "tool_use_id": id, "content": content}
    return {**block, **({"is_error": True} if is_error else {})}


def text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = [part for part in content or () if isinstance(part, Mapping)]
    return "".join(str(part.get("text", "")) for part in parts)
