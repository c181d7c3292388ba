"""What of a conversation is for others: the names of calls stay, what stands in them does not.

A message has what the model wrote, with ids that providers repeat. The rows behind them say whom
they are for. Words go with the calls that they are about: see ``words_for_others``; those of a user
are for whoever may see something that was asked on account of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

from sayso.inbox.people import asks, may_see, requests_in, words_for_others
from sayso.rows import Call
from sayso.stores.base import Query, Store
from sayso.types import Reviewer

#: What is shown instead.
FOR_OTHERS = "(not shown: this call is for other reviewers)"
_RUNS, _REQUESTS = 50, 200


class Veiled(NamedTuple):
    """Of one message, whether its words are for others, and of each call that it makes."""

    words: bool = False
    calls: tuple[bool, ...] = ()


class Veil:
    """One conversation as one person may read it."""

    def __init__(self, store: Store, thread: str, by: Reviewer) -> None:
        self._store = store
        self._thread = thread
        self._by = by
        #: Of the calls read so far, by the id that the model's provider gave them.
        self._made: dict[str, bool] = {}

    def over(self, messages: list[dict[str, Any]]) -> list[Veiled]:
        """What is for others, of messages that follow each other."""
        if self._by.role == "admin":
            return [Veiled(calls=(False,) * len(_calls(message))) for message in messages]
        rows = [self._rows_of(message) for message in messages]
        found = [self._veiled(*both) for both in zip(messages, rows, strict=True)]
        for places in _exchanges(messages):
            first = messages[places[0]]
            begins = first.get("role") == "user"
            turns = [[row for row in rows[place] if row is not None] for place in places]
            before = [] if begins else self._before(first)
            words = list(words_for_others(self._by, (before, *turns)))[1:]
            if begins:
                words[0] = any(words) and not asks(self._by, (row for t in turns for row in t))
            for place, veiled in zip(places, words, strict=True):
                found[place] = found[place]._replace(words=veiled)
        return found

    def _veiled(self, message: dict[str, Any], rows: list[Call | None]) -> Veiled:
        calls = tuple(row is not None and not may_see(self._by, row) for row in rows)
        names = (str(made.get("id", "")) for made in _calls(message))
        self._made.update(zip(names, calls, strict=True))
        return Veiled(self._covers_result(message), calls)

    def _covers_result(self, message: dict[str, Any]) -> bool:
        """Whether a message says what came of a call for others."""
        if message.get("role") != "tool":
            return False
        known = self._made.get(str(message.get("call_id", "")))
        return self._maybe(str(message.get("name", ""))) if known is None else known

    def _rows_of(self, message: dict[str, Any]) -> list[Call | None]:
        """The row behind each call that a message makes."""
        return [self._row(message, place, made) for place, made in enumerate(_calls(message))]

    def _before(self, message: dict[str, Any]) -> list[Call]:
        """What may have been called in an exchange before the first message that is read of it."""
        if "run" in message:
            return self._store.calls_of(message["run"])
        return requests_in(self._store, self._thread)

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


def _calls(message: dict[str, Any]) -> Any:
    return message.get("calls") or ()


def _exchanges(messages: list[dict[str, Any]]) -> list[list[int]]:
    """Where the words of each exchange stand: a user's, and what a run said to them. Words in the
    middle of a run are its own."""
    found: dict[Any, list[int]] = {}
    number, answer = 0, None
    for place in reversed(range(len(messages))):
        message = messages[place]
        if message.get("role") == "assistant":
            answer = message.get("run") or number
        elif message.get("role") == "user":
            answer = number if answer is None else answer
        else:
            continue
        found.setdefault(answer, []).append(place)
        if message.get("role") == "user":
            number, answer = number + 1, None
    return [places[::-1] for places in found.values()]
