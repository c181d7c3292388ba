"""A front end in Python: it applies events as ``@ag-ui/client`` does, and is strict about them.

Every event is validated with the models of ``ag-ui-protocol``. The real client is driven in
``test_ag_ui_node.py``.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

from ag_ui.core import Event, RunAgentInput
from pydantic import BaseModel, TypeAdapter

from sayso.adapters import ag_ui
from sayso.types import Reviewer

EVENT: TypeAdapter[Any] = TypeAdapter(Event)
ids = itertools.count(1)


def events_in(text: str) -> list[dict[str, Any]]:
    """Return the events of a response, after checking each with the protocol's own models."""
    frames = [frame for frame in text.split("\n\n") if frame and not frame.startswith(":")]
    events = [json.loads(frame.removeprefix("data: ")) for frame in frames]
    for event in events:
        model = EVENT.validate_python(event)
        check_known(model)
        assert model.model_dump(mode="json", by_alias=True) == event
    return events


def check_known(value: object) -> None:
    """Fail if a model has a field that the protocol does not describe."""
    if isinstance(value, BaseModel):
        assert not value.model_extra, value
        for name in type(value).model_fields:
            check_known(getattr(value, name))
    elif isinstance(value, list):
        for item in value:
            check_known(item)


class Screen:
    """One tab with one thread."""

    def __init__(self, agent: Any, thread: str = "t1", by: str | Reviewer = "ana") -> None:
        self.agent = agent
        self.thread = thread
        self.by = by
        self.messages: list[dict[str, Any]] = []
        self.interrupts: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []

    # -- what the page does

    async def say(self, text: str, **more: Any) -> None:
        self.messages.append({"id": f"u{next(ids)}", "role": "user", "content": text})
        await self.run(**more)

    async def resolve(self, payload: Any, **more: Any) -> None:
        """Answer the only interrupt."""
        (interrupt,) = self.interrupts
        await self.run(resume=[entry(interrupt, payload, **more)])

    async def run(self, **more: Any) -> None:
        await self.apply(await self.stream(**more))

    async def stream(self, **more: Any) -> AsyncIterator[str]:
        body = self.body(**more)
        RunAgentInput.model_validate(body)
        return await ag_ui.stream(json.dumps(body).encode(), self.agent, by=self.by)

    def body(self, **more: Any) -> dict[str, Any]:
        base = {"threadId": self.thread, "runId": f"r{next(ids)}", "messages": self.messages}
        return {**base, "tools": [], "context": [], "state": {}, "forwardedProps": {}, **more}

    # -- what the page sees

    @property
    def end(self) -> dict[str, Any]:
        return self.events[-1]

    @property
    def outcome(self) -> str:
        """How the run ended: the type of its outcome, or the code of its error."""
        end = self.end
        return str(end["outcome"]["type"] if "outcome" in end else end["code"])

    @property
    def kinds(self) -> list[str]:
        return [event["type"] for event in self.events]

    @property
    def calls(self) -> list[tuple[str, Any]]:
        functions = [c["function"] for m in self.messages for c in m.get("toolCalls", ())]
        return [(f["name"], json.loads(f["arguments"])) for f in functions]

    @property
    def results(self) -> list[str]:
        return [m["content"] for m in self.messages if m["role"] == "tool"]

    @property
    def text(self) -> str:
        return str(self.messages[-1].get("content", ""))

    # -- what the client does with events

    async def apply(self, frames: AsyncIterator[str]) -> None:
        self.events = events_in("".join([frame async for frame in frames]))
        assert self.kinds[0] == "RUN_STARTED"
        assert self.kinds[-1] in ("RUN_FINISHED", "RUN_ERROR")
        self.texts: set[str] = set()
        for event in self.events:
            self._apply(event["type"], event)
        assert not self.texts

    def _apply(self, kind: str, event: dict[str, Any]) -> None:
        if kind == "MESSAGES_SNAPSHOT":
            known = {m["id"]: m for m in event["messages"]}
            assert len(known) == len(event["messages"])
            held = [known.pop(m["id"]) for m in self.messages if m["id"] in known]
            self.messages = [*held, *known.values()]
            if event["messages"]:
                assert self.messages == event["messages"], "in another order"
        elif kind.startswith("TEXT_MESSAGE"):
            self._apply_text(kind, event)
        elif kind == "TOOL_CALL_START":
            assert event["toolCallId"] not in [
                c["id"] for m in self.messages for c in m.get("toolCalls", ())
            ]
            function = {"name": event["toolCallName"], "arguments": ""}
            message = self._message(event["parentMessageId"])
            call = {"id": event["toolCallId"], "type": "function", "function": function}
            message.setdefault("toolCalls", []).append(call)
        elif kind == "TOOL_CALL_ARGS":
            self._call(event["toolCallId"])["function"]["arguments"] += event["delta"]
        elif kind == "TOOL_CALL_RESULT":
            self._call(event["toolCallId"])
            fields = {name: event[name] for name in ("content", "toolCallId", "role")}
            metadata = {"metadata": event["metadata"]} if "metadata" in event else {}
            assert event["messageId"] not in [m["id"] for m in self.messages]
            place = self._place_of_result(event["toolCallId"])
            self.messages.insert(place, {"id": event["messageId"], **fields, **metadata})
        elif kind == "RUN_FINISHED":
            self.interrupts = event["outcome"].get("interrupts", [])

    def _apply_text(self, kind: str, event: dict[str, Any]) -> None:
        message = self._message(event["messageId"])
        if kind == "TEXT_MESSAGE_START":
            self.texts.add(message["id"])
        assert message["id"] in self.texts
        if kind == "TEXT_MESSAGE_CONTENT":
            message["content"] = message.get("content", "") + event["delta"]
        elif kind == "TEXT_MESSAGE_END":
            self.texts.remove(message["id"])

    def _place_of_result(self, call: str) -> int:
        """Return the place after the message of the call, and after results that are there."""
        owners = [[c["id"] for c in m.get("toolCalls", ())] for m in self.messages]
        place = next(n for n, calls in enumerate(owners, 1) if call in calls)
        while place < len(self.messages) and self.messages[place]["role"] == "tool":
            place += 1
        return place

    def _message(self, name: str) -> dict[str, Any]:
        for message in self.messages:
            if message["id"] == name:
                return message
        self.messages.append({"id": name, "role": "assistant"})
        return self.messages[-1]

    def _call(self, name: str) -> dict[str, Any]:
        (call,) = [c for m in self.messages for c in m.get("toolCalls", ()) if c["id"] == name]
        return dict(call)


def entry(interrupt: dict[str, Any], payload: Any, **more: Any) -> dict[str, Any]:
    return {"interruptId": interrupt["id"], "status": "resolved", "payload": payload, **more}


def cancelled(interrupt: dict[str, Any]) -> dict[str, Any]:
    return {"interruptId": interrupt["id"], "status": "cancelled"}
