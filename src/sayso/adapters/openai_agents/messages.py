"""The run that tools and model belong to, and its conversation.

The log holds what the user said, each reply of the model before its calls are made, and all items
once the turn is over. The SDK can start a turn again from what the user said: a process that
resumes it replays the stored replies, and calls the model only for those that are missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from agents import ModelResponse, RunConfig, RunContextWrapper, ToolApprovalItem
from agents.usage import deserialize_usage, serialize_usage
from openai.types.responses import ResponseOutputItem
from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_jsonable_python

from sayso.adapters.calls import closing_text
from sayso.adapters.conversation import Body, ReplayLog, shown
from sayso.errors import InvalidCall, SaysoError
from sayso.gate import Gate, os_threads, outcomes
from sayso.gate.framework import FrameworkCall, FrameworkThread, FrameworkTool
from sayso.gate.guarded_runs import current_place
from sayso.policy import Policy
from sayso.rows import CallStatus
from sayso.sync import context_value, to_thread
from sayso.types import Json, Reviewer

_WAITS = (CallStatus.ASKED, CallStatus.IN_DOUBT)

_active: ContextVar[ActiveRun | None] = os_threads.follow(
    ContextVar("sayso_openai_drive", default=None), None
)
#: The keys of the calls around this one, through agents in calls; "" in the outermost run.
_path: ContextVar[str] = os_threads.follow(ContextVar("sayso_openai_path", default=""), "")
#: The agent that the SDK is about to run as a tool, and its guarded copy.
_delegated: ContextVar[tuple[Any, Any]] = os_threads.follow(
    ContextVar("sayso_openai_delegated", default=(None, None)), (None, None)
)


@dataclass
class ActiveRun:
    """One thread while it runs, driven by ``Guarded`` or by hand."""

    calls: FrameworkThread
    #: None if the SDK is driven by hand: then its ``RunState`` is all that is stored.
    log: ItemLog | None = None
    config: RunConfig = field(default_factory=RunConfig)
    #: Who decides if the SDK is driven by hand.
    by: str | Reviewer = "user"
    #: A call paused in its body or timed out. The SDK cannot express that, so the model must not
    #: see this turn.
    stopped: bool = False
    #: The keys of the calls that the policy has judged.
    judged: set[str] = field(default_factory=set)
    #: The first error at the gate inside an agent that is a tool.
    error: SaysoError | None = None
    #: The configurations of agents that are tools and have their own, by path.
    configs: dict[str, RunConfig] = field(default_factory=dict)
    #: What the model wrote beside its calls, by path.
    notes: dict[str, str] = field(default_factory=dict)
    #: The SDK's context of the run in progress, by path. It holds the decisions on its state, and
    #: is another object whenever the SDK is started again.
    contexts: dict[str, RunContextWrapper[Any]] = field(default_factory=dict)
    _keys: dict[tuple[str, str], str] = field(default_factory=dict)
    _made_in: dict[str, RunContextWrapper[Any] | None] = field(default_factory=dict)

    @property
    def manual(self) -> bool:
        """Whether the SDK is driven by hand."""
        return self.log is None

    @property
    def path(self) -> str:
        """The path of calls to the agent that is running, through agents that are tools."""
        return _path.get()

    @property
    def run_config(self) -> RunConfig:
        """The configuration of the agent that is running."""
        return self.configs.get(self.path, self.config)

    @contextmanager
    def open(self) -> Iterator[ActiveRun]:
        with context_value(_active, self), context_value(_path, ""):
            yield self

    @contextmanager
    def in_call(self, key: str, delegated: tuple[Any, Any] = (None, None)) -> Iterator[None]:
        """Enter the run of an agent in a call, under this key.

        ``delegated`` is the agent that the SDK runs there, and its guarded copy.
        """
        with context_value(_path, f"{key}/"), context_value(_delegated, delegated):
            yield

    @contextmanager
    def remember_errors(self) -> Iterator[None]:
        """Remember an error at the gate inside an agent that is a tool.

        The SDK would show it to the outer model, but it must end the whole run.
        """
        try:
            yield
        except SaysoError as error:
            if self.path:
                self.error = self.error or error
            raise

    def raise_error(self) -> None:
        error = self.error
        if error is not None:
            self.error = error if self.path else None
            raise error

    def key(self, agent: str, id: str) -> str:
        """Return the key of a call within the thread, and remember it."""
        key = self._keys[agent, id] = _path.get() + id
        return key

    def new_call(self, key: str, tool: FrameworkTool, args: Mapping[str, Json]) -> FrameworkCall:
        """Return a call that is about to be judged by the policy."""
        self.judged.add(key)
        return FrameworkCall(id=key, tool=tool, args=args, note=self.notes.get(self.path, ""))

    def note_new_call(self, key: str) -> None:
        self._made_in.setdefault(key, self.contexts.get(_path.get()))

    def was_shown(self, key: str) -> bool:
        """Return whether the SDK has stopped since a call was made, so that people could see it."""
        now = self.contexts.get(_path.get())
        return now is None or self._made_in.get(key) is not now

    def is_always_approved(self, tool: str) -> bool:
        """Return whether a person used ``always_approve`` on a state for this tool."""
        context = self.contexts.get(_path.get())
        return context is not None and context.is_tool_approved(tool, "any later call") is True

    def key_of(self, item: ToolApprovalItem) -> str:
        """Return the key of an interruption; an unknown one belongs to the outermost run."""
        id = item.call_id or ""
        return self._keys.get((item.agent.name, id), id)

    def waits(self, key: str) -> bool:
        row = self.calls.row(key)
        return row is not None and row.status in _WAITS


def current_run() -> ActiveRun | None:
    """Return the run that is being driven here, if any."""
    return _active.get()


def delegated_agent() -> tuple[Any, Any]:
    """Return the agent that the SDK is about to run as a tool, and its guarded copy."""
    return _delegated.get()


def require_run(name: str) -> ActiveRun:
    """Return the run that is being driven here. Raises ``InvalidCall`` if there is none, or if it
    has ended."""
    current_place()
    active = _active.get()
    if active is None:
        raise InvalidCall(
            f"{name} is guarded, but this run has no thread: call guarded.run(...), or drive the "
            "SDK by hand inside `async with guarded.thread('t-1'):`",
            "thread",
        )
    return active


# -- the conversation


Items = list[dict[str, Any]]

_outputs: TypeAdapter[list[Any]] = TypeAdapter(list[ResponseOutputItem])


class ItemLog(ReplayLog):
    """What was said in one thread, in the SDK's items."""

    format = "openai-agents"

    def __init__(self, gate: Gate, thread: str, policy: Policy | None = None) -> None:
        super().__init__(gate, thread, policy)
        #: The items before the last input of the user.
        self.history: Items = []
        #: That input, while it is unanswered.
        self.input: Items | None = None

    def replay(self, body: Body) -> None:
        if "input" in body:
            self.history = self.conversation(closed=True)
            self.input = body["input"]
        elif "items" in body:
            self.history = [*self.history[: body["keep"]], *body["items"]]
            self.input = None
        super().replay(body)

    def conversation(self, *, closed: bool = False) -> Items:
        """Return all items up to the user's last input.

        ``closed`` adds the replies that a newer input interrupted, with a result for each call.
        """
        items = [*self.history, *(self.input or ())]
        for reply in self.replies.get("", ()) if closed else ():
            items += reply["output"]
            calls = ("function_call", "mcp_approval_request")
            items += [self._closed(item) for item in reply["output"] if item.get("type") in calls]
        return items

    def _closed(self, item: Mapping[str, Any]) -> dict[str, Any]:
        row = self.calls.row_in_any_run(item.get("call_id") or item["id"])
        if item["type"] == "mcp_approval_request":
            return {
                "type": "mcp_approval_response",
                "approval_request_id": item["id"],
                "approve": row is not None and outcomes.has_result(row),
            }
        output = closing_text(row)
        return {"type": "function_call_output", "call_id": item["call_id"], "output": output}

    def next_response(self, path: str) -> ModelResponse | None:
        """Return the next stored reply on a path; None if the model has to be called."""
        raw = self.next_reply(path)
        if raw is None:
            return None
        return ModelResponse(
            output=_outputs.validate_python(raw["output"]),
            usage=deserialize_usage(raw["usage"]),
            response_id=raw["response_id"],
            request_id=raw["request_id"],
        )

    async def say_input(self, input: Any) -> None:
        """Store what the user said, and drop the SDK's state of an earlier turn."""
        items = [{"role": "user", "content": input}] if isinstance(input, str) else input
        if not isinstance(items, Sequence) or not items:
            raise InvalidCall(
                "the input is empty: pass text, or a list of the SDK's input items", "input"
            )
        stored: Items = to_jsonable_python(list(items), by_alias=True)
        content = input if isinstance(input, str) else json.dumps(stored)
        history = await to_thread(self.conversation, closed=True)
        await self.say(content, input=stored, snapshot="")
        self.history, self.input = history, stored

    async def add_response(self, path: str, response: ModelResponse) -> None:
        """Store a reply of the model, before any of its calls is made."""
        output = [_dump(item) for item in response.output]
        raw = {
            "output": output,
            "usage": serialize_usage(response.usage),
            "response_id": response.response_id,
            "request_id": response.request_id,
        }
        await self.reply(path, raw, **_shown(output))

    async def end_with(self, conversation: Sequence[Any], output: Json, type: str) -> None:
        """Store the items of the whole turn, and its output with the name of its type."""
        items: Items = to_jsonable_python(list(conversation), by_alias=True)
        keep = 0
        while keep < min(len(items), len(self.history)) and items[keep] == self.history[keep]:
            keep += 1
        await self.end(output, type=type, keep=keep, items=items[keep:])


def _dump(item: Any) -> dict[str, Any]:
    if isinstance(item, BaseModel):
        return item.model_dump(mode="json", exclude_unset=True)
    raw: dict[str, Any] = to_jsonable_python(item, by_alias=True)
    return raw


def _shown(output: Items) -> Body:
    parts = [p for item in output if item.get("type") == "message" for p in item["content"]]
    model_calls = [item for item in output if item.get("type") == "function_call"]
    calls = [(item["call_id"], item["name"], item["arguments"]) for item in model_calls]
    return shown("".join(part.get("text") or "" for part in parts), calls)
