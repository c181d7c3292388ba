"""Remove one safeguard of the product, in a child process: the fault tests must notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import stories

from sayso import engine
from sayso.engine import UnitOfWork, deciding, running
from sayso.engine.commands import Record, Start
from sayso.gate.guard import this_call
from sayso.rows import Call, CallStatus
from sayso.stores.base import Store


def no_token() -> None:
    """Accept an outcome from any attempt, not only from the one that runs."""

    def record(work: UnitOfWork, command: Record) -> Call:
        call = work.require_call(command.call)
        return running.record(work, replace(command, token=call.token, attempt=call.attempt))

    engine._HANDLERS[Record] = record


def no_wake() -> None:
    """Store a decision without waking its run."""
    deciding.wake_or_end = lambda work, call: None


def no_start_row() -> None:
    """Write the start together with the outcome, not before the effect."""
    opened = stories.open_at

    def open_without(*args: Any, **options: Any) -> Store:
        store = opened(*args, **options)
        transact = store.transact
        begun: list[Start] = []

        def without_start(*commands: Any) -> list[Any]:
            if isinstance(commands[-1], Start):
                (start,) = commands
                begun[:] = [start]
                calls = [store.call(name) for name in start.calls]
                return [tuple(_as_started(store, call) for call in calls if call is not None)]
            if isinstance(commands[0], Record) and begun:
                return transact(begun.pop(), *commands)[1:]
            return transact(*commands)

        store.transact = without_start  # type: ignore[method-assign]
        return store

    stories.open_at = open_without


def _as_started(store: Store, call: Call) -> Call:
    run = store.run(call.run)
    assert run is not None
    return call._replace(status=CallStatus.RUNNING, attempt=call.attempt + 1, token=run.token + 1)


SAFEGUARDS: dict[str, Callable[[], None]] = {
    "token": no_token,
    "wake": no_wake,
    "start": no_start_row,
}


def play(without: str = "", **arguments: Any) -> Any:
    """Play a story of the sweep without a safeguard."""
    if without:
        SAFEGUARDS[without]()
    return stories.play(**arguments)


def call(without: str = "", **arguments: Any) -> Any:
    """Make one call in one run, like ``actors``, without a safeguard. Its effects name the call."""
    import actors

    def noted(path: Path, *facts: Any) -> None:
        named = (this_call().id, *facts[1:]) if path.name == "effects" else facts
        stories.append(path, *named)

    actors.append = noted
    if without:
        SAFEGUARDS[without]()
    return actors.call(**arguments)
