"""Interrupts of a graph's own nodes as questions in the inbox, and their answers back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from langgraph.types import Interrupt

from assent import codec
from assent.adapters.langchain._answers import of_their_own, refusal
from assent.errors import InvalidCall, Paused, Rejected
from assent.gate import Gate
from assent.gate.foreign import ForeignThread
from assent.rows import CallStatus
from assent.types import Question

_TEXTS = ("question", "text", "message", "description")


class Questions:
    """The questions of one thread."""

    def __init__(self, gate: Gate, thread: str) -> None:
        self.gate = gate
        self.thread = ForeignThread(gate, thread)

    async def put(self, interrupts: Iterable[Interrupt]) -> None:
        """Ask people what a node asked with ``interrupt(value)``."""
        for interrupt in interrupts:
            if _is_ours(interrupt.value) or self.thread.row(_key(interrupt)) is not None:
                continue
            with suppress(Paused, Rejected), self.thread.scope().inside():
                await self.gate.ask(_question(interrupt), key=_key(interrupt), wait=0)

    def answers(self, interrupts: Iterable[Interrupt]) -> Any:
        """What to resume with: a command with the answers that are there, or nothing."""
        from langgraph.types import Command

        found: dict[str, Any] = {}
        for interrupt in interrupts:
            row = self.thread.row(_key(interrupt))
            if row is None:
                continue
            if row.status is CallStatus.RESPONDED:
                found[interrupt.id] = codec.loads(row.result or "null")
            elif row.status is CallStatus.REJECTED:
                said = row.decision.message if row.decision is not None else ""
                no = refusal(interrupt.value, said)
                found.update({interrupt.id: no} if no is not None else {})
        return Command(resume=found) if found else None


def _key(interrupt: Interrupt) -> str:
    return f"interrupt:{interrupt.id}"


def _is_ours(value: Any) -> bool:
    """Whether it stands in the inbox already, as what it is."""
    return isinstance(value, Mapping) and ("request_id" in value or "request_ids" in value)


def _question(interrupt: Interrupt) -> Question:
    """A text as it is; of anything else, what it says and then all of it."""
    value, schema = interrupt.value, interrupt.response_schema
    text = value if isinstance(value, str) and value.strip() else ""
    if not text:
        words = value if isinstance(value, Mapping) else {}
        said = [words[name] for name in _TEXTS if isinstance(words.get(name), str)]
        try:
            whole = codec.canonical(value).decode()
        except InvalidCall:
            whole = repr(value)
        text = "\n\n".join([*said[:1], whole])
    return Question(text, schema=schema if isinstance(schema, dict) else of_their_own(value))
