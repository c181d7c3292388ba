"""A browser in Python: the client's state machine, strict about what it is sent.

It does what ``useChat`` does with chunks and answers, raises where the real one breaks or where a
stream is merely odd, and posts bodies as they come over the wire. The real client is driven in
``test_ai_sdk_node.py``; this one is for the hundred small cases.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

from sayso.adapters import ai_sdk
from sayso.types import Reviewer

PLAIN = {
    "start": {"messageId"},
    "start-step": set(),
    "finish-step": set(),
    "text-start": {"id"},
    "text-delta": {"id", "delta"},
    "text-end": {"id"},
    "tool-input-available": {"toolCallId", "toolName", "input"},
    "tool-approval-request": {"toolCallId", "approvalId"},
    "tool-output-available": {"toolCallId", "output"},
    "tool-output-error": {"toolCallId", "errorText"},
    "tool-output-denied": {"toolCallId"},
    "data-request": {"id", "data"},
    "finish": {"finishReason"},
    "error": {"errorText"},
}
REASONS = {"stop", "length", "content-filter", "tool-calls", "error", "other"}
ids = itertools.count(1)


def chunks_in(text: str) -> list[dict[str, Any]]:
    """Return the chunks of a response, after checking its framing."""
    assert text.endswith("data: [DONE]\n\n")
    events = [event for event in text.removesuffix("data: [DONE]\n\n").split("\n\n") if event]
    return [json.loads(e.removeprefix("data: ")) for e in events if not e.startswith(":")]


class Browser:
    """One tab with one chat."""

    def __init__(self, agent: Any, chat: str = "c1", by: str | Reviewer = "ana", **flavour: bool):
        self.agent, self.chat, self.by, self.flavour = agent, chat, by, flavour
        self.messages: list[dict[str, Any]] = []
        self.chunks: list[dict[str, Any]] = []
        self.error = ""

    # -- what the page does

    async def say(self, text: str) -> None:
        part = {"type": "text", "text": text}
        self.messages.append({"id": f"u{next(ids)}", "role": "user", "parts": [part]})
        await self.post()

    async def post(self, **more: Any) -> None:
        frames = await self.stream(**more)
        await self.apply(frames)

    async def stream(self, **more: Any) -> AsyncIterator[str]:
        body = json.dumps(self.body(**more)).encode()
        return await ai_sdk.stream(body, self.agent, by=self.by, **self.flavour)

    def body(self, **more: Any) -> dict[str, Any]:
        last = self.messages[-1]
        named = {"messageId": last["id"]} if last["role"] == "assistant" else {}
        base = {"id": self.chat, "messages": self.messages, "trigger": "submit-message"}
        return {**base, **named, **more}

    def respond(self, part: dict[str, Any], approved: bool, reason: str | None = None) -> None:
        assert part["state"] == "approval-requested", part
        part["state"] = "approval-responded"
        part["approval"] = {**part["approval"], "approved": approved}
        if reason is not None:
            part["approval"]["reason"] = reason

    def output(self, part: dict[str, Any], output: Any) -> None:
        part.update(state="output-available", output=output)
        part.pop("approval", None)

    async def decide(self, approved: bool = True, reason: str | None = None, **more: Any) -> None:
        """Answer the only open card, and post."""
        (part,) = self.open_cards
        self.respond(part, approved, reason)
        await self.post(**more)

    async def answer(self, output: Any) -> None:
        """Give the output of the one part that waits for one, and post."""
        (part,) = [p for p in self.tools if p["state"] == "input-available"]
        self.output(part, output)
        await self.post()

    async def resume(self) -> bool:
        """Reconnect: the message is wiped by the first chunk and rebuilt."""
        frames = await ai_sdk.follow(self.agent, self.chat, by=self.by, **self.flavour)
        if frames is None:
            return False
        await self.apply(frames, replay=True)
        return True

    async def reload(self) -> None:
        """Load the page again, with what the server has."""
        self.messages = await ai_sdk.messages(self.agent, self.chat, by=self.by, **self.flavour)

    # -- what the page sees

    @property
    def last(self) -> dict[str, Any]:
        return self.messages[-1]

    @property
    def tools(self) -> list[dict[str, Any]]:
        return [part for part in self.last["parts"] if "toolCallId" in part]

    @property
    def open_cards(self) -> list[dict[str, Any]]:
        return [part for part in self.tools if part["state"] == "approval-requested"]

    @property
    def text(self) -> str:
        return "".join(part["text"] for part in self.last["parts"] if part["type"] == "text")

    @property
    def finish(self) -> str:
        return str(self.chunks[-1].get("finishReason", self.chunks[-1]["type"]))

    def card(self, part: dict[str, Any]) -> dict[str, Any]:
        cards = [p for p in self.last["parts"] if p.get("id") == part["toolCallId"]]
        (found,) = cards
        return dict(found["data"])

    @property
    def posts_again(self) -> bool:
        """Return whether the client would post automatically now, and again without end."""
        window = self._step()
        done = ("output-available", "output-error", "output-denied", "approval-responded")
        answered = [p for p in window if p["state"] == "approval-responded"]
        return bool(answered) and all(p["state"] in done for p in window)

    # -- what the client does with chunks

    async def apply(self, frames: AsyncIterator[str], *, replay: bool = False) -> None:
        text = "".join([frame async for frame in frames])
        self.chunks = chunks_in(text)
        self.error = ""
        if self.messages[-1]["role"] == "user":
            self.messages.append({"id": "", "role": "assistant", "parts": []})
        assert self.chunks[0]["type"] == "start"
        if replay:
            self.last["parts"] = []
        self.open_texts: dict[str, Any] = {}
        stepping = False
        for chunk in self.chunks:
            kind = chunk["type"]
            assert set(chunk) - {"type"} == PLAIN[kind], chunk
            assert None not in [v for k, v in chunk.items() if k not in ("output", "input")], chunk
            if kind in ("start-step", "finish-step"):
                assert stepping == (kind == "finish-step")
                assert not self.open_texts, "a text stays open over the end of its step"
                stepping = not stepping
            self._apply(kind, chunk)
        assert not stepping
        assert kind in ("finish", "error")

    def _apply(self, kind: str, chunk: dict[str, Any]) -> None:
        if kind == "start":
            self.last["id"] = chunk["messageId"]
        elif kind == "start-step":
            self.last["parts"].append({"type": "step-start"})
        elif kind.startswith("text-"):
            self._text(kind, chunk)
        elif kind == "data-request":
            known = [p for p in self.last["parts"] if p.get("id") == chunk["id"]]
            if known:
                known[0]["data"] = chunk["data"]
            else:
                self.last["parts"].append(dict(chunk))
        elif kind == "finish":
            assert chunk["finishReason"] in REASONS
        elif kind == "error":
            self.error = chunk["errorText"]
        elif kind.startswith("tool-"):
            self._tool(kind, chunk)

    def _text(self, kind: str, chunk: dict[str, Any]) -> None:
        if kind == "text-start":
            assert chunk["id"] not in self.open_texts
            self.open_texts[chunk["id"]] = {"type": "text", "text": "", "state": "streaming"}
            self.last["parts"].append(self.open_texts[chunk["id"]])
        elif kind == "text-delta":
            self.open_texts[chunk["id"]]["text"] += chunk["delta"]
        else:
            self.open_texts.pop(chunk["id"])["state"] = "done"

    def _tool(self, kind: str, chunk: dict[str, Any]) -> None:
        if kind == "tool-input-available":
            found = [p for p in self._step() if p["toolCallId"] == chunk["toolCallId"]]
            if not found:
                assert chunk["toolCallId"] not in [p["toolCallId"] for p in self.tools]
                found = [{"toolCallId": chunk["toolCallId"]}]
                self.last["parts"].append(found[0])
            for gone in ("output", "errorText"):
                found[0].pop(gone, None)
            found[0].update(type=f"tool-{chunk['toolName']}", input=chunk["input"])
            found[0]["state"] = "input-available"
            return
        (part,) = [p for p in self.tools if p["toolCallId"] == chunk["toolCallId"]]
        if kind == "tool-approval-request":
            part.update(state="approval-requested", approval={"id": chunk["approvalId"]})
            return
        part["state"] = kind.removeprefix("tool-")
        if kind == "tool-output-denied":
            assert "approval" in part
        for name in ("output", "errorText"):
            if name in chunk:
                part[name] = chunk[name]

    def _step(self) -> list[dict[str, Any]]:
        parts = self.last["parts"] if self.messages and self.last["role"] == "assistant" else []
        starts = [n for n, part in enumerate(parts) if part["type"] == "step-start"]
        return [p for p in parts[(starts or [0])[-1] :] if "toolCallId" in p]
