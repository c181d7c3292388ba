"""Ids of calls. Some providers count the calls of each reply anew; to the SDK and to the gate an id
means one call, so one that was given before gets a number, before anything comes of the reply."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, count
from typing import Any

from agents import ModelResponse

from sayso.adapters.openai_agents.drive import Drive
from sayso.twin import look


class Names:
    """The ids of the calls in one reply to ``input``."""

    def __init__(self, drive: Drive, input: Any) -> None:
        self._drive = drive
        self._path = drive.path
        said = input if isinstance(input, list) else ()
        self._before = {item.get("call_id") for item in said if isinstance(item, Mapping)}
        self._names: dict[str, str] = {}

    async def of(self, item: Any) -> Any:
        """The same item; a call under an id of its own."""
        if item.type != "function_call":
            return item
        id = item.call_id
        if id not in self._names:
            self._names[id] = await look(self._drive.calls.store, self._free, id)
        return item.model_copy(update={"call_id": self._names[id]})

    async def of_all(self, reply: ModelResponse) -> ModelResponse:
        """The same reply, likewise."""
        reply.output = [await self.of(item) for item in reply.output]
        return reply

    def _free(self, id: str) -> str:
        numbered = (f"{id}_{number}" for number in count(2))
        return next(name for name in chain([id], numbered) if not self._taken(name))

    def _taken(self, id: str) -> bool:
        """By hand, the same words may be said again: only a conversation tells another call."""
        known = not self._drive.by_hand and self._drive.row(self._path + id) is not None
        return known or id in self._before
