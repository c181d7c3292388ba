"""Which calls of a conversation are for others: their names stay, what stands in them does not.

A message has what the model wrote, with ids that providers repeat. The rows behind them say whom
they are for.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from assent.inbox.seeing import may_see
from assent.rows import Call
from assent.stores.base import Query, Store
from assent.types import Reviewer

#: What is shown instead.
FOR_OTHERS = "(not shown: this call is for other reviewers)"
_RUNS, _REQUESTS = 50, 200


class Veil:
    """One conversation as one person may read it, message by message in order."""

    def __init__(self, store: Store, thread: str, by: Reviewer) -> None:
        self._store = store
        self._thread = thread
        self._by = by
        #: Of the calls read so far, by the id that the model's provider gave them.
        self._made: dict[str, bool] = {}

    def covers(self, message: dict[str, Any]) -> list[bool]:
        """Of each call that a message makes, whether it is for others."""
        found = []
        for place, made in enumerate(message.get("calls") or ()):
            row = None if self._by.role == "admin" else self._row(message, place, made)
            found.append(row is not None and not may_see(self._by, row))
            self._made[str(made.get("id", ""))] = found[-1]
        return found

    def covers_result(self, message: dict[str, Any]) -> bool:
        """Whether a message says what came of a call for others."""
        if message.get("role") != "tool" or self._by.role == "admin":
            return False
        known = self._made.get(str(message.get("call_id", "")))
        return self._maybe(str(message.get("name", ""))) if known is None else known

    def _row(self, message: dict[str, Any], place: int, made: dict[str, Any]) -> Call | None:
        if "turn" in message and "run" in message:  # an agent of ours: turns and places are unique
            return self._store.call_by_key(message["run"], f"{message['turn']}.{place}")
        name = str(made.get("id", ""))
        return next((call for call in self._rows if _is_named(call, name)), None)

    @cached_property
    def _rows(self) -> list[Call]:
        """Every call on the thread, the newest run first."""
        runs = self._store.runs(thread=self._thread, limit=_RUNS)
        return [call for _, run in runs for call in self._store.calls_of(run.id)]

    def _maybe(self, tool: str) -> bool:
        """Whether a result whose call was made long before may be one for others."""
        return any(not may_see(self._by, call) for call in self._requests_for(tool))

    def _requests_for(self, tool: str) -> Iterator[Call]:
        query = Query(status="any", thread=self._thread, tool=tool, sort="newest", limit=_REQUESTS)
        return (call for _, call in self._store.page(query))


def _is_named(call: Call, name: str) -> bool:
    """Whether a framework's call has this id; behind a path, if an agent inside made it."""
    return call.key == name or call.key.endswith(f"/{name}")
