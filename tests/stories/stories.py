"""Stories whose process is killed: each can be resumed from any state of its store.

``play`` runs in a child. The agent enters its run again and again, and a person decides whatever
is pending, until the agent has its value. Everything it does is counted outside the store, in files
that are appended to and synced: effects as they happen, decisions as they are acknowledged.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from places import open_at
from waiting import until

from sayso import Gate, Inbox, Paused, SaysoError, schema
from sayso.gate.guard import this_call
from sayso.rows import Event
from sayso.stores.base import Store
from sayso.testing import person
from sayso.types import Decision, Request
from sayso_testing.checks import all_events

RUN = "order-17"
BY_HAND = "done by hand"


def append(path: Path, *facts: Any) -> None:
    """Append one line, and sync it to the disk."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(file, json.dumps(facts).encode() + b"\n")
        os.fsync(file)
    finally:
        os.close(file)


def lines(path: Path) -> list[Any]:
    """Return what was appended."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class World:
    """One process with a store, a gate and an inbox, that dies at a chosen point."""

    def __init__(
        self, folder: str, *, kill: tuple[str, int, str] | None, later: float, **options: Any
    ) -> None:
        self.folder = Path(folder)
        self.kill = kill
        self.later = later
        self.points: list[tuple[str, int, str, int]] = []
        self.counts: Counter[str] = Counter()
        self.renewed = threading.Event()
        self.store = open_at(self.folder, boundary=self.cross, clock=self.clock)
        self.gate = Gate(self.store, wait=0, agent="bot", **options)
        self.inbox = Inbox(self.store)

    def clock(self) -> int:
        return time.time_ns() // 1000 + round(self.later * 1_000_000)

    def cross(self, name: str, when: str) -> None:
        """Count a point at which the process may die. This is ``store.boundary``."""
        self.counts[name] += when == "before"
        if self.kill == (name, self.counts[name], when):
            os.kill(os.getpid(), signal.SIGKILL)
        if hasattr(self, "store"):
            events = sum(thread.seq for thread in self.store.threads())
            self.points.append((name, self.counts[name], when, events))
        if (name, when) == ("renew", "after"):
            self.renewed.set()

    def effect(self, what: str) -> str:
        """Perform an effect, which must not happen twice."""
        self.cross("effect", "before")
        call = this_call()
        append(self.folder / "effects", call.id, call.attempt, what)
        self.cross("effect", "after")
        return what

    def decide(self, request: Request, decision: Decision, by: str = "ana", **more: Any) -> None:
        # Two people have to prove that they are two; one name in code is enough elsewhere.
        who = person(self.store, by) if request.quorum > 1 else by
        self.inbox.decide_sync(request.id, decision, by=who, **more)
        append(self.folder / "acks", request.id, decision.type, by)

    def approved(self) -> list[Request]:
        return list(self.inbox.history_sync(status="approved").items)

    def has(self, event: str) -> bool:
        return any(found.type == event for found in events_in(self.store))


def events_in(store: Store) -> list[Event]:
    """Return all events, once the feed has them: PostgreSQL's waits for open transactions, also
    for those of other tests."""
    written = sum(thread.seq for thread in store.threads())

    def found() -> tuple[list[Event]] | None:
        events = [event for _, event in all_events(store)]
        return (events,) if len(events) >= written else None

    return until(found)[0]


class Story:
    """An approved call, and the pattern for the others."""

    value: Any = "paid"
    #: In doubt without any kill, because the story itself is interrupted.
    interrupts = 0
    #: The points at which this story is worth a kill; all of them unless it says otherwise.
    only: tuple[str, ...] = ()
    options: ClassVar[dict[str, Any]] = {"needs_approval": True}
    gate: ClassVar[dict[str, Any]] = {}

    def guarded(self, world: World, **more: Any) -> Callable[..., Any]:
        def pay(to: str, amount: int = 3) -> str:
            return self.effect(world, to, amount)

        return world.gate.guard(**{**self.options, **more})(pay)

    def effect(self, world: World, to: str, amount: int) -> str:
        world.effect(f"{to} {amount}")
        return "paid"

    def agent(self, world: World) -> Any:
        with world.gate.run(RUN):
            return self.guarded(world)("bo")

    def person(self, world: World, doubt: str) -> None:
        for request in world.inbox.pending_sync().items:
            if request.kind == "in_doubt":
                world.decide(request, in_doubt(request, doubt))
            else:
                self.decide(world, request)

    def decide(self, world: World, request: Request) -> None:
        world.decide(request, request.approve())


def in_doubt(request: Request, answer: str) -> Decision:
    """Settle a doubt in one of three ways."""
    if answer == "respond":
        return request.respond(BY_HAND)
    return request.approve() if answer == "approve" else request.reject("let it be")


def play(
    folder: str,
    story: str,
    kill: tuple[str, int, str] | None = None,
    later: float = 0.0,
    doubt: str = "approve",
) -> dict[str, Any]:
    """Play a story from its current state to its end, or until it is killed."""
    from all_stories import STORIES

    chosen: Story = STORIES[story]
    world = World(
        folder, kill=tuple(kill) if kill else None, later=later, **{"lease": 30.0, **chosen.gate}
    )
    value: Any = "never ended"
    for _ in range(12):
        try:
            value = chosen.agent(world)
        except (Paused, KeyboardInterrupt):
            chosen.person(world, doubt)
            continue
        except SaysoError as error:
            value = type(error).__name__
        break
    types = [[event.type, event.call] for event in events_in(world.store)]
    points = list(world.points)
    world.store.boundary = None
    world.gate.close()
    return {"value": value, "points": points, "events": types}


def warm_up() -> None:
    """Import what is imported lazily, before the forks. This starts no OS thread."""

    def pay(to: str, amount: int = 3) -> str:
        return to

    guarded = Gate("memory://", wait=0).guard(needs_approval=True)(pay)
    try:
        guarded("bo")
    except Paused as paused:
        schema.errors(paused.requests[0].schema or {}, {"to": "bo"})


warm_up()
