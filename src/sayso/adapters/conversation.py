"""The conversation of a thread: one log for all adapters.

A process that resumes a thread has nothing but the store, so an adapter appends to this log what
its framework cannot be asked for again: what the user said, each reply of the model *before* any of
its calls is made, and the answer. Nothing is rewritten, so a pause costs the same however long the
conversation is.

Every message has the fields that ``sayso.Agent`` stores (``role``, ``content``, ``calls``), so that
pages and terminals can show it, plus the framework's own data under names that the adapter chooses.
``format`` says whose data it is: agents of several frameworks may have spoken in one thread, and
each reads its own messages.

The store authenticates what is read here. Each message row carries a MAC over its thread, number,
run and body, and the thread's row carries one over the number of messages. If a message was
changed, added, moved or removed by anything that does not hold the row key, ``load`` raises
``Tampered`` and the model is not called.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, ClassVar, cast

from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic_core import to_jsonable_python

from sayso import codec
from sayso.adapters.calls import closing_text
from sayso.engine.commands import Propose
from sayso.gate import Gate
from sayso.gate.framework import FrameworkThread
from sayso.policy import Policy
from sayso.rows import Call, Message
from sayso.sync import to_thread
from sayso.types import Json

Body = dict[str, Any]

_SHOWN = ("role", "content", "calls")


def shown(content: str, calls: Iterable[tuple[str | None, str | None, str]]) -> Body:
    """Return a reply in the fields that pages and terminals show.

    Each call is its id, the name of its tool and the arguments as JSON.
    """
    calls_json = [{"id": id, "name": name, "arguments": args} for id, name, args in calls]
    return {"content": content, **({"calls": calls_json} if calls_json else {})}


class ConversationLog:
    """What is stored of one thread. Subclass it to read the data of one framework."""

    #: The framework whose data the messages hold.
    format: ClassVar[str]

    def __init__(self, gate: Gate, thread: str, policy: Policy | None = None) -> None:
        self.gate = gate
        self.store = gate.store
        self.thread = thread
        self.calls = FrameworkThread(gate, thread, policy=policy)
        #: How many times the user has spoken.
        self.turn = 0
        #: ``{"output": ..., "type": ...}`` if the last turn has its answer. If the run is still
        #: live, only its end is missing.
        self.answer: dict[str, Json] | None = None
        self._last = 0
        # Agents that run side by side in calls share a log, on any OS thread, and each write counts
        # the messages.
        self._writing = threading.Lock()

    @cached_property
    def run(self) -> str:
        return self.calls.run

    async def load(self) -> None:
        """Read the thread. Raises ``Tampered`` if anything but Sayso wrote to it."""
        await to_thread(self._load)

    def _load(self) -> None:
        if self.calls.lease is not None:
            self.calls.lease.check_free()
        assert self.run  # found here, in a worker thread
        rows = self.store.messages(self.thread)
        if rows:
            self._last = rows[-1][0]
        elif (thread := self.store.thread(self.thread)) is not None:
            self._last = thread.messages  # more than none, if all of them were pruned
        for _, text in rows:
            body = codec.loads(text)
            if body.get("format") == self.format:
                self.replay(body)
                if body["role"] == "user":
                    self.turn += 1
                self.answer = body.get("answer")

    def replay(self, body: Body) -> None:
        """Apply one stored message to the state of the log."""

    async def append(self, *bodies: Body, snapshot: str | None = None, last: bool = False) -> None:
        """Store messages, and the run's snapshot if there is one, in one commit.

        The first messages of a run take its thread in this commit; the ``last`` are stored when the
        run ends. Raises ``Conflict`` if another process has added messages since ``load``.
        """
        lease = self.calls.lease
        if lease is not None and (last or not lease.is_open):
            messages = self._command(bodies, snapshot)
            if last:
                lease.last_messages += (messages,)
            else:
                await lease.open(messages)
            self._last += len(bodies)
        else:
            await to_thread(self._append, bodies, snapshot)

    def _append(self, bodies: Sequence[Body], snapshot: str | None) -> None:
        with self._writing:
            self.store.transact(self._command(bodies, snapshot))
            self._last += len(bodies)

    def _command(self, bodies: Sequence[Body], snapshot: str | None) -> Propose:
        return Propose(
            thread=self.thread,
            run=self.run,
            agent=self.gate.agent,
            messages=tuple(Message(self.run, self._text(body)) for body in bodies),
            snapshot=snapshot,
            hold=True,
            after=self._last,
        )

    async def say(self, content: str, *, snapshot: str | None = None, **data: Any) -> None:
        """Store what the user said, before the model is called."""
        await self.append({"role": "user", "content": content, **data}, snapshot=snapshot)
        self.turn += 1
        self.answer = None

    async def end(
        self, output: Json, *before: Body, content: str = "", type: str = "", **data: Any
    ) -> None:
        """Store the answer to what the user said, after the messages that led to it.

        ``type`` is the name of its type, for ``OutputTypes.load``.
        """
        answer = {"output": output, **({"type": type} if type else {})}
        body = {"role": "assistant", "content": content, **data, "answer": answer}
        await self.append(*before, body, last=True)
        self.answer = answer

    def _text(self, body: Body) -> str:
        message = {**body, "format": self.format}
        text = codec.dumps(message)
        try:
            text.encode()
        except UnicodeEncodeError:
            # Half a surrogate pair is not text. People see a question mark in its place; the
            # framework gets back what its model wrote.
            text_json = codec.dumps({name: message[name] for name in _SHOWN if name in message})
            text = json.dumps({**message, **codec.loads(text_json.encode(errors="replace"))})
        return text

    # -- calls that the framework will not make

    @property
    def open_keys(self) -> list[str]:
        """The keys of the last reply's calls without a result, in the model's order.

        The adapter overrides it, if its framework makes several calls at a time.
        """
        return []

    async def closing_texts(self) -> list[tuple[Call | None, str]]:
        """Return, for each open call of the last reply, its row and a text about it for the model.

        New input from the user leaves calls without a result, and providers insist on one.
        """
        rows = [await to_thread(self.calls.row_in_any_run, key) for key in self.open_keys]
        return [(row, closing_text(row)) for row in rows]


class ReplayLog(ConversationLog):
    """The log of a framework that restarts each turn from the beginning.

    The replies of the model are stored in order, by path: a name for the agent, or the part of it,
    that asked for them. When a turn is repeated, the stored replies are returned first.
    """

    def __init__(self, gate: Gate, thread: str, policy: Policy | None = None) -> None:
        super().__init__(gate, thread, policy)
        self.replies: dict[str, list[Any]] = {}
        #: How many replies this process has returned, by path.
        self.given: dict[str, int] = {}

    def replay(self, body: Body) -> None:
        if "reply" in body:
            self.replies.setdefault(body["path"], []).append(body["reply"])
        else:
            self.replies = {}  # a new turn, or the end of one

    def next_reply(self, path: str) -> Any:
        """Return the next stored reply on a path; None if the model has to be called."""
        number, stored = self.given.get(path, 0), self.replies.get(path, [])
        if number >= len(stored):
            return None
        self.given[path] = number + 1
        return stored[number]

    async def reply(self, path: str, reply: Any, **shown: Json) -> None:
        """Store a reply of the model, before any of its calls is made."""
        await self.append({"role": "assistant", **shown, "path": path, "reply": reply})
        self.replies.setdefault(path, []).append(reply)
        self.given[path] = len(self.replies[path])

    async def say(self, content: str, *, snapshot: str | None = None, **data: Any) -> None:
        await super().say(content, snapshot=snapshot, **data)
        self.replies = {}


class OutputTypes:
    """The types that an agent's answers may have, to load a stored answer as the framework made it.

    A stored answer is JSON, under the names of the fields: a model may read and write a field under
    two different aliases.
    """

    def __init__(self, types: Iterable[Any]) -> None:
        self._types = {type_name(kind): kind for kind in types if kind not in (None, str)}

    def __bool__(self) -> bool:
        """Return whether any answer is more than text."""
        return bool(self._types)

    @staticmethod
    def dump(value: Any) -> Json:
        """Return an answer as JSON. Numbers that JSON cannot represent become text."""
        return _finite(to_jsonable_python(value, by_alias=False, round_trip=True, fallback=str))

    def name_of(self, value: Any) -> str:
        """Return the name of an answer's type; "" if it is none of these, such as plain text."""
        for name, kind in self._types.items():
            try:
                loaded = load_as(kind, self.dump(value))
            except (ValueError, PydanticUserError):  # no such value, or no type for validation
                continue
            if type(loaded) is type(value) and loaded == value:
                return name
        return ""

    def load(self, answer: dict[str, Json]) -> Any:
        """Return a stored answer in its own type.

        Raises ``ValueError`` if it no longer fits that type, or the agent no longer has it.
        """
        name = cast(str, answer.get("type", ""))
        if not name:
            return answer["output"]
        if name not in self._types:
            raise ValueError(f"the agent no longer has the output type {name}")
        return load_as(self._types[name], answer["output"])


def load_as(type: Any, stored: Json) -> Any:
    """Return a value that ``OutputTypes.dump`` stored. Raises ``ValueError`` if it does not fit."""
    adapter: TypeAdapter[Any] = TypeAdapter(type)
    try:
        return adapter.validate_json(codec.dumps(stored), by_alias=False, by_name=True)
    except UnicodeEncodeError:  # half a surrogate pair
        return adapter.validate_python(stored, by_alias=False, by_name=True)


def _finite(plain: Any) -> Any:
    if isinstance(plain, float) and not math.isfinite(plain):
        return str(plain)
    if isinstance(plain, dict):
        return {name: _finite(value) for name, value in plain.items()}
    return [_finite(value) for value in plain] if isinstance(plain, list) else plain


def type_name(kind: Any) -> str:
    """Return the name of a type, the same in every process."""
    qualified = getattr(kind, "__qualname__", "")
    return f"{kind.__module__}.{qualified}" if isinstance(kind, type) and qualified else repr(kind)
