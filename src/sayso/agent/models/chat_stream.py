"""The pieces of a streamed chat completion, put together again.

A call comes in pieces that carry its index; id and name are in the first piece only. Servers that
imitate the API leave the index out, or give all calls the same one, or repeat the id or the name in
every piece, or make up a new id for each, or count the index up in the middle of a call. So a piece
with neither id nor name goes on with a call, and one that names a function begins a new call where
its index is new or belongs to another call.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sayso.agent.models.wire import arguments_text, content_text


@dataclass(slots=True)
class _Call:
    index: int | None
    id: str = ""
    name: str = ""
    arguments: list[Any] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)

    def add(self, piece: Mapping[str, Any]) -> None:
        function = piece.get("function") or {}
        self.id = self.id or piece.get("id") or ""
        self.name = self.name or function.get("name") or ""
        if function.get("arguments"):
            self.arguments.append(function["arguments"])
        known = ("id", "index", "type", "function")
        self.extra |= {key: value for key, value in piece.items() if key not in known}

    def is_other_than(self, piece: Mapping[str, Any]) -> bool:
        """Whether a piece that names a function cannot belong to this call."""
        function, id = piece.get("function") or {}, piece.get("id")
        if not self.name or not function.get("name"):
            return False
        if function["name"] != self.name or (id and id != self.id):
            return True
        return not id and bool(function.get("arguments")) and self._is_complete()

    def _is_complete(self) -> bool:
        try:
            json.loads(self.text())
        except ValueError:
            return False
        return True

    def text(self) -> str:
        return "".join(p if isinstance(p, str) else arguments_text(p) for p in self.arguments)

    def whole(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": self.text()}
        return {**self.extra, "id": self.id, "function": function}


class ChatStream:
    """Collects chunks; ``completion`` is what the server would have sent in one piece."""

    def __init__(self) -> None:
        self._head: dict[str, Any] = {}
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._calls: list[_Call] = []
        self._old_call = _Call(0)
        self._finish = ""

    @property
    def finished(self) -> bool:
        """Whether the server said how the answer ended; otherwise it was cut on the way."""
        return bool(self._finish)

    def add(self, chunk: Mapping[str, Any]) -> str:
        """Take one chunk and return the text in it."""
        for key in ("id", "usage", "error"):
            if chunk.get(key):
                self._head[key] = chunk[key]
        for choice in chunk.get("choices") or ():
            if not choice.get("index"):  # with n > 1 the others are for nobody
                return self._add_choice(choice)
        return ""

    def completion(self) -> dict[str, Any]:
        """The answer in one piece."""
        # Sorting is stable: calls without an index stay where they came.
        calls = sorted(self._calls, key=lambda call: call.index or 0)
        message: dict[str, Any] = {
            "content": "".join(self._text),
            "refusal": "".join(self._refusal),
            "tool_calls": [call.whole() for call in calls],
        }
        if self._old_call.name:
            message["function_call"] = self._old_call.whole()["function"]
        return {**self._head, "choices": [{"message": message, "finish_reason": self._finish}]}

    def _add_choice(self, choice: Mapping[str, Any]) -> str:
        if choice.get("error"):
            self._head["error"] = choice["error"]
        delta = choice.get("delta") or {}
        self._finish = choice.get("finish_reason") or self._finish
        self._refusal.append(delta.get("refusal") or "")
        for piece in delta.get("tool_calls") or ():
            self._call_of(piece).add(piece)
        if delta.get("function_call"):
            self._old_call.add({"function": delta["function_call"]})
        text = content_text(delta.get("content"))
        self._text.append(text)
        return text

    def _call_of(self, piece: Mapping[str, Any]) -> _Call:
        index = piece.get("index")
        same = [call for call in self._calls if index is None or call.index == index]
        if not same and not _begins(piece):
            same = self._calls
        if same and not same[-1].is_other_than(piece):
            return same[-1]
        self._calls.append(_Call(index))
        return self._calls[-1]


def _begins(piece: Mapping[str, Any]) -> bool:
    return bool(piece.get("id") or (piece.get("function") or {}).get("name"))
