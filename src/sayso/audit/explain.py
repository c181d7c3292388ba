"""Explain one request: its row, its last event, what differs, and what to do about it.

Other reads refuse a row that was changed, and say so. This one reads it unchecked, replays the
chain of its thread as ``verify`` does, and keeps what concerns this request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sayso.audit.chain import DAMAGE_ERRORS, Problem
from sayso.audit.verify import thread_problems
from sayso.errors import NotFound, StoreError
from sayso.rows import Event
from sayso.stores.base import SnapshotLost, Store, StoreReads

_ATTEMPTS = 3
#: The last is the newest: a call has as many events as people and attempts caused.
_MOST_EVENTS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What is known about one request, whether its row can be trusted or not."""

    id: str
    #: The columns as they are stored, unchecked; ``None`` if the row is missing.
    row: Mapping[str, Any] | None
    #: The last event about it, unchecked; ``None`` if there is none.
    last_event: Event | None
    #: What differs from the record, or hides the request. Empty if all is well.
    differs: tuple[str, ...]
    #: What to do next, as a sentence.
    next_step: str

    @property
    def ok(self) -> bool:
        """Return whether nothing differs."""
        return not self.differs


def explain(store: Store, request_id: str) -> Explanation:
    """Explain a request by its id. Raise ``NotFound`` if no row and no event names it.

    Writes nothing, and works for a row that other reads refuse with ``Tampered``.
    """
    for _ in range(_ATTEMPTS):
        try:
            with store.snapshot() as rows:
                row = rows.call_row(request_id)
                events = rows.call_events(request_id, _MOST_EVENTS)
                if row is None and not events:
                    raise NotFound(
                        f"no request {request_id!r:.80}: see `sayso inbox` and `sayso history`"
                    )
                differs = tuple(_differences(rows, request_id, row, events))
                return Explanation(
                    id=request_id,
                    row=row,
                    last_event=events[-1] if events else None,
                    differs=differs,
                    next_step=_next_step(request_id, row, differs),
                )
        except SnapshotLost:
            continue
    raise StoreError(f"{store.url} could not be read: its connection is lost again and again")


def _differences(
    rows: StoreReads, request_id: str, row: Mapping[str, Any] | None, events: list[Event]
) -> Iterator[str]:
    # The events are chained, so their word counts if the row names another thread or run.
    thread_id = events[-1].thread if events else str((row or {}).get("thread"))
    run_id = events[-1].run if events else str((row or {}).get("run"))
    try:
        thread = rows.thread(thread_id)
    except DAMAGE_ERRORS:
        yield f"the row of its thread {thread_id} cannot be read"
        return
    if thread is None:
        yield f"the row of its thread {thread_id} is missing"
        return
    if not events:
        yield f"call {request_id} is in the table, but no event made it"
    for problem in thread_problems(rows, thread):
        if _concerns(problem, request_id, run_id):
            yield problem.what


def _concerns(problem: Problem, request_id: str, run_id: str) -> bool:
    """Return whether a problem of the thread is about this request, its run, or the whole chain."""
    if problem.what.startswith("call "):
        return problem.what.startswith((f"call {request_id} ", f"call {request_id}:"))
    if problem.what.startswith("run "):
        return problem.what.startswith(f"run {run_id} ")
    return True


def _next_step(request_id: str, row: Mapping[str, Any] | None, differs: tuple[str, ...]) -> str:
    if not differs:
        return "Nothing differs, so there is nothing to repair."
    again = "or let the agent ask again in a new run; this one does not run as it is"
    first = differs[0]
    if "unknown key" in first:
        return "Add the key that it names to SAYSO_KEY or SAYSO_ROW_KEY, after the first key."
    if "the row of its tool" in first:
        digest = (row or {}).get("tool_digest")
        return f"Restore the row of table tool with digest {digest} from a backup, {again}."
    if "search key" in first:
        return (
            f"Decide it by its id, as in `sayso approve {request_id}`: only searches and filters "
            "miss it. To list it again, restore the tables search_key and search_word."
        )
    if first.startswith("run "):
        return f"Restore the row of table run that differs from a backup, {again}."
    if first.startswith("call ") and row is None:
        return f"Restore the row of table call with id {request_id} from a backup, {again}."
    if first.startswith("call ") and "no event made it" in first:
        return "Delete the row: Sayso did not write it, and no process uses it."
    if first.startswith("call "):
        return (
            f"Compare the row with a backup (table call, id {request_id}) and restore it, {again}."
        )
    return (
        "The chain of its thread is broken, so its state is unknown: run `sayso audit verify` to "
        f"see all of it, and restore the thread's events from a backup, {again}."
    )
