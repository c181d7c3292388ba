"""An agent that is run in the body of a call of another one: what it does is part of that call.

It has no thread. Its calls stand in the run around it, under the key of that call, and the replies
of its model beside them: when the call is made again after a pause, the agent starts at its top,
and what it said and did comes from the store.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from sayso import codec
from sayso.gate.foreign import ForeignThread
from sayso.gate.gate import Gate
from sayso.gate.scope import known, quoted
from sayso.twin import look
from sayso.types import Json


@dataclass(frozen=True, slots=True)
class Within:
    """The place of one agent in the call that it is run in."""

    run: str
    thread: str
    #: The keys of all that it does begin with it.
    key: str


def within(gate: Gate) -> Within | None:
    """A place for an agent that is run here, if here is the body of a framework's call."""
    scope = known(gate.driver)
    if scope is None or scope.alone or scope.steps or not scope.of_call:
        return None
    return Within(scope.name, scope.thread, scope.key(f"agent:{quoted(gate.agent)}"))


async def kept(calls: ForeignThread, key: str, ask: Callable[[], Awaitable[Any]]) -> Any:
    """What was asked for under this key before; else it is asked for now, and kept. An error is
    not. It is kept as text: what no call may hold, a model may write all the same."""
    row = await look(calls.store, calls.row, key)
    if row is not None and row.result is not None:
        return json.loads(codec.loads(row.result))
    said = json.dumps(await ask())

    async def keep() -> Json:
        return said

    return json.loads(await calls.once(key, keep))
