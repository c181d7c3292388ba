"""Kill a process at every point of a story, and check what must hold afterwards.

Each story is played once to learn the points that it crosses. Then a child is killed at each of
them in turn, in a fresh store, and another process takes the story to its end. What must hold is
computed from the point alone: the commits before it are there and nothing else is, a call that had
started and was not recorded is in doubt, and no other call is.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from all_stories import STORIES
from fork_server import ForkServer
from places import drop, make, open_at
from stories import BY_HAND, events_in, lines

from sayso import codec
from sayso.audit import verify
from sayso.rows import Event
from sayso.testing import check_store

LATER = 3_600.0
ANSWERS = ("approve", "respond", "reject")


@dataclass(frozen=True)
class Point:
    """Where a process dies: the n-th crossing of a boundary, and how many events there were."""

    name: str
    nth: int
    when: str
    events: int

    @property
    def kill(self) -> tuple[str, int, str]:
        return self.name, self.nth, self.when


@dataclass(frozen=True)
class Plot:
    """A story as it goes when no process dies."""

    story: str
    points: tuple[Point, ...]
    events: tuple[tuple[str, str], ...]

    def kills(self) -> list[Point]:
        only = STORIES[self.story].only
        points = [point for point in self.points if not only or point.name in only]
        # How many renewals there are, and when, depends on how busy the machine is.
        return [point for point in points if (point.name, point.nth > 1) != ("renew", True)]

    def hanging(self, point: Point) -> int:
        """Return how many calls had started and not ended at that point."""
        started: set[str] = set()
        for type, call in self.events[: point.events]:
            if type == "started":
                started.add(call)
            elif type in ("recorded", "suspended", "in_doubt"):
                started.discard(call)
        return len(started)

    def doubts(self, point: Point) -> tuple[int, int]:
        """Return how many doubts there must be, and how many of them are not settled yet."""
        chosen = STORIES[self.story]
        raised, waiting, hanging = 0, set[str](), self.hanging(point)
        for type, call in self.events[: point.events]:
            if type == "in_doubt":
                raised += 1
                waiting.add(call)
            elif type in ("decided", "retried", "recorded"):
                waiting.discard(call)
        coming = max(chosen.interrupts - raised - hanging, 0)
        # Nobody is asked about what may simply run again.
        asked = 0 if chosen.options.get("effect") == "idempotent" else hanging
        return raised + hanging + coming, len(waiting) + asked + coming


def plot_of(fork_server: ForkServer, story: str, folder: Path, later: float = 0.0) -> Plot:
    told = fork_server.value("stories:play", folder=str(folder), story=story, later=later)
    assert told["value"] == value_of(story)
    return Plot(
        story,
        tuple(Point(*point) for point in told["points"]),
        tuple((type, call) for type, call in told["events"]),
    )


def value_of(story: str) -> Any:
    value = STORIES[story].value
    return list(value) if isinstance(value, tuple) else value


# -- what holds after a death


def events_of(folder: Path) -> list[Event]:
    store = open_at(folder)
    try:
        events = events_in(store)
        runs = {event.run for event in events if event.run}
        check_store(store, [run for run in runs if store.run(run) is not None])
        return events
    finally:
        store.close()


def check_prefix(plot: Plot, point: Point, folder: Path) -> None:
    """Check that every commit before the death is complete, and that none is partial."""
    types = [event.type for event in events_of(folder)]
    assert types == [type for type, _ in plot.events[: point.events]]


def check_end(plot: Plot, point: Point, told: dict[str, Any], answer: str, folder: Path) -> None:
    events = events_of(folder)
    check_acknowledged(events, folder)
    check_effects(events, folder)
    doubts, asked = plot.doubts(point)
    assert sum(event.type == "in_doubt" for event in events) == doubts
    # What the other side has answered for, nobody had to be asked about.
    later = [codec.loads(e.body or "{}") for e in events[point.events :] if e.type == "settled"]
    asked -= sum(body["answer"] == "ran" for body in later)
    assert told["value"] in expected(plot.story, asked, answer)
    store = open_at(folder)
    try:
        report = verify(store)
        assert report.ok, report
    finally:
        store.close()


def expected(story: str, doubts: int, answer: str) -> list[Any]:
    """Return the results that the agent may have got."""
    value = value_of(story)
    if not doubts or answer == "approve" or story == "free, no run":
        return [value]
    if answer == "reject":
        return ["InDoubt"]
    return [[BY_HAND, "paid"], ["paid", BY_HAND]] if isinstance(value, list) else [BY_HAND]


def check_acknowledged(events: list[Event], folder: Path) -> None:
    """Check that every acknowledged decision is in the record."""
    stored = {
        (event.call, codec.loads(event.body)["decision"], event.actor)
        for event in events
        if event.type in ("decided", "voted") and event.body
    }
    assert {tuple(ack) for ack in lines(folder / "acks")} <= stored


def check_effects(events: list[Event], folder: Path) -> None:
    """Check that no effect happened twice: each has its own attempt, and each attempt a reason."""
    effects = Counter((call, attempt) for call, attempt, _ in lines(folder / "effects"))
    assert max(effects.values(), default=1) == 1
    types: dict[str, list[str]] = {}
    for event in events:
        body = codec.loads(event.body or "{}")
        types.setdefault(event.call, []).append(body.get("decision", event.type))
    for call, happened in types.items():
        again = happened.count("suspended") + happened.count("retried")
        if "in_doubt" in happened:
            again += happened[happened.index("in_doubt") :].count("approve")
        assert happened.count("started") <= 1 + again, happened
        ran = sum(done == call for done, _ in effects)
        if "recorded" in happened and call in {done for done, _ in effects}:
            assert ran <= 1 + again
            assert "in_doubt" in happened or ran == 1, happened
    assert {call for call, _ in effects} <= {c for c, had in types.items() if "started" in had}


# -- the sweep


def sweep(
    fork_server: ForkServer,
    plot: Plot,
    tmp_path: Path,
    first: tuple[str, int, str] | None = None,
    kind: str = "sqlite",
) -> int:
    """Kill a process at every point of a story, resume, and check. Return the number of kills.

    With ``first``, another process had been killed there an hour before.
    """
    deaths = 0
    for number, point in enumerate(plot.kills()):
        every = plot.story == "approved" and plot.hanging(point)
        for answer in ANSWERS if every else (ANSWERS[number % 3],):
            folder = make(tmp_path / f"{number} {answer}", kind)
            if first is not None:
                die(fork_server, plot.story, folder, first)
            later = 0.0 if first is None else LATER
            die(fork_server, plot.story, folder, point.kill, later)
            deaths += 1
            check_prefix(plot, point, folder)
            finish(fork_server, plot, point, folder, answer, later + LATER)
    return deaths


def die(
    fork_server: ForkServer,
    story: str,
    folder: Path,
    kill: tuple[str, int, str],
    later: float = 0.0,
) -> None:
    """Play a story until the process is killed."""
    died = fork_server.run("stories:play", folder=str(folder), story=story, kill=kill, later=later)
    assert died.killed, f"{kill} of {story} was not reached: {died}"


def finish(
    fork_server: ForkServer, plot: Plot, point: Point, folder: Path, answer: str, later: float
) -> None:
    """Finish the story in another process, an hour later."""
    told = fork_server.value(
        "stories:play", folder=str(folder), story=plot.story, later=later, doubt=answer
    )
    check_end(plot, point, told, answer, folder)
    drop(folder)
