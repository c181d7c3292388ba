"""Interrupts of a graph's own nodes as questions in the inbox, and their answers back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from langgraph.types import Interrupt

from sayso import codec
from sayso.adapters.langchain._breakpoints import Stop
from sayso.adapters.langchain._shapes import question_of, refusal
from sayso.errors import Paused, Refused, Rejected
from sayso.gate import Gate
from sayso.gate.foreign import MOST_WAITING, ForeignThread
from sayso.gate.recheck import called_off
from sayso.rows import Call, CallStatus
from sayso.stores.base import Query
from sayso.twin import look, write

_KEY = "interrupt:"
_UNANSWERED = (CallStatus.REJECTED, CallStatus.EXPIRED, CallStatus.CANCELLED)


class Questions:
    """The questions of one thread."""

    def __init__(self, gate: Gate, thread: str) -> None:
        self.gate = gate
        self.thread = ForeignThread(gate, thread)

    async def put(self, interrupts: Iterable[Interrupt]) -> None:
        """Ask people what a node asked with ``interrupt(value)``."""
        for interrupt in interrupts:
            key, row = self._last(interrupt)
            if _is_ours(interrupt.value) or row is not None:
                continue
            with suppress(Paused, Rejected), self.thread.scope().inside():
                await self.gate.ask(question_of(interrupt), key=key, wait=0)

    def answers(self, interrupts: Iterable[Interrupt]) -> Any:
        """What to resume with: a command with the answers that are there, or nothing."""
        from langgraph.types import Command

        found: dict[str, Any] = {}
        for interrupt in interrupts:
            _, row = self._last(interrupt)
            if row is None:
                continue
            if row.status is CallStatus.RESPONDED:
                found[interrupt.id] = codec.loads(row.result or "null")
            elif row.status in _UNANSWERED:
                found[interrupt.id] = refusal(interrupt.value, _why(row))
        return Command(resume=found) if found else None

    async def stays(self, stop: Stop, *, asks: bool) -> bool:
        """Whether people want a graph to stay where it stopped by itself; raises ``Paused`` until
        they have said it. One that has just stopped ``asks``, also where it did before. Any other
        was asked about, or died on the way to that, or was cut short elsewhere and goes on."""
        key, last, times = f"breakpoint:{stop.place}", "", 1
        while self._row("confirm", key) is not None:
            last, times = key, times + 1
            key = f"breakpoint:{stop.place}#{times}"
        if not (asks or last or stop.meant):
            return False
        text = f"The graph has stopped before {', '.join(stop.names)}. Shall it go on?"
        with self.thread.scope().inside():
            try:
                key = key if asks else last or key
                return not await self.gate.confirm(
                    text, {"next": list(stop.names)}, key=key, wait=0
                )
            except Refused:
                return True

    async def tidy(self, interrupts: Iterable[Interrupt]) -> None:
        """Call off what the graph does not wait for any more: somebody answered it in LangGraph."""
        key_of = self.thread.scope().named_key
        waits = {key_of("ask", f"{_KEY}{interrupt.id}") for interrupt in interrupts}
        ours = key_of("ask", _KEY)
        store = self.thread.store
        query = Query(status="pending", run=self.thread.run, limit=MOST_WAITING)
        for _, row in await look(store, store.page, query):
            if row.key.startswith(ours) and row.key.partition("#")[0] not in waits:
                await write(store, called_off(row, "the graph has gone on without it"))

    def _row(self, subject: str, key: str) -> Call | None:
        """The row of what was asked under this key."""
        return self.thread.row(self.thread.scope().named_key(subject, key))

    def _last(self, interrupt: Interrupt) -> tuple[str, Call | None]:
        """The question about an interrupt, and where it stands. What takes no refusal is asked
        anew when nobody answered it: the graph could not go on."""
        key = base = f"{_KEY}{interrupt.id}"
        takes_no = refusal(interrupt.value, "") is not None
        asked = 1
        while (row := self._row("ask", key)) is not None:
            if row.status not in _UNANSWERED or takes_no:
                break
            asked += 1
            key = f"{base}#{asked}"
        return key, row


def _why(row: Call) -> str:
    if row.decision is not None:
        return row.decision.message
    return f"nobody answered: the question was {row.status}"


def _is_ours(value: Any) -> bool:
    """Whether it stands in the inbox already, as what it is."""
    return isinstance(value, Mapping) and ("request_id" in value or "request_ids" in value)
