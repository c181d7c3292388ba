"""Count the results of a fault test, from the store and from files outside it.

Effects and acknowledged decisions stand in files that no store knows of. Each count of a wrong is
the length of a list of what was wrong, so that a failing test says which calls they were.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from stories import lines

from sayso import codec
from sayso.audit import verify
from sayso.rows import LIVE, Event
from sayso.stores.base import Store
from sayso_testing.checks import all_events

#: What a result says of the attempt that it is of.
_ATTEMPT = re.compile(r"by attempt (\d+)")


@dataclass
class Tally:
    """Counts of what happened, and lists of what must not have happened."""

    WRONGS: ClassVar[tuple[str, ...]] = (
        "lost",
        "double",
        "done_without_effect",
        "stale",
        "unlisted",
        "unknown",
        "reopened",
        "asked_twice",
        "broken",
    )

    runs: int = 0
    decisions: int = 0
    effects: int = 0
    in_doubt: int = 0
    #: Of those in doubt: how many had happened.
    in_doubt_ran: int = 0
    late: int = 0
    #: Acknowledged and not in the record, or decided and never gone on with.
    lost: list[str] = field(default_factory=list)
    #: Effects and starts beyond those that people had said yes to.
    double: list[str] = field(default_factory=list)
    done_without_effect: list[str] = field(default_factory=list)
    #: Results that are not of the attempt they are recorded for.
    stale: list[str] = field(default_factory=list)
    #: Doubts that no person was shown.
    unlisted: list[str] = field(default_factory=list)
    #: Effects of calls or attempts that the store knows nothing of.
    unknown: list[str] = field(default_factory=list)
    #: What moved in a run after it had finished, and runs that finished more than once.
    reopened: list[str] = field(default_factory=list)
    #: Requests beyond those that the model makes in a run.
    asked_twice: list[str] = field(default_factory=list)
    #: What is wrong with the record itself.
    broken: list[str] = field(default_factory=list)

    def wrongs(self) -> dict[str, list[str]]:
        """Return the violations, if there are any."""
        return {name: getattr(self, name) for name in self.WRONGS if getattr(self, name)}

    def counts(self) -> dict[str, int]:
        """Return all counts."""
        return {
            name: len(found) if isinstance(found, list) else found
            for name, found in vars(self).items()
        }

    def check(self) -> dict[str, int]:
        """Return the counts. Raise if there are violations."""
        wrongs = {name: found[:20] for name, found in self.wrongs().items()}
        assert not wrongs, f"{self.counts()}: {wrongs}"
        return self.counts()


class Story:
    """The events of one call, in order."""

    def __init__(self, name: str, effects: Counter[int], tally: Tally) -> None:
        self.name = name
        self.effects = effects
        self.tally = tally
        self.attempt = 0
        self.approvals = 0
        self.may_start = False
        self.started: set[int] = set()
        self.doubted: set[int] = set()
        self.believed = False
        self.recorded = 0

    def read(self, event: Event) -> None:
        """Apply the next event."""
        body = codec.loads(event.body or "{}")
        if event.type == "decided":
            self.may_start = body["decision"] == "approve"
            self.approvals += self.may_start
        elif event.type == "started":
            if not self.may_start:
                self.tally.double.append(f"{self.name}: started, and nobody had said so")
            self.attempt, self.may_start = body["attempt"], False
            self.started.add(self.attempt)
        elif event.type == "suspended":
            self._suspended()
        elif event.type == "reasked":
            self.may_start = False
        elif event.type == "in_doubt":
            self.tally.in_doubt += 1
            self.doubted.add(self.attempt)
        elif event.type == "recorded":
            self._recorded(event.actor, body)
        elif event.type == "late":
            self.tally.late += 1

    def _suspended(self) -> None:
        """Return whether it was suspended before it ran, so that it may start again."""
        self.may_start = True
        if self.effects[self.attempt]:
            self.tally.double.append(f"{self.name}: put back, and attempt {self.attempt} had run")

    def _recorded(self, actor: str, body: dict[str, object]) -> None:
        self.believed = bool(body.get("late"))
        self.tally.late += self.believed
        self.recorded = self.attempt
        if actor != f"attempt:{self.attempt}":
            self.tally.stale.append(f"{self.name}: {actor} spoke for attempt {self.attempt}")
        if body["ok"] and not self.effects[self.attempt]:
            self.tally.done_without_effect.append(self.name)

    def end(self, result: str | None) -> None:
        """Check the call as a whole."""
        said = _ATTEMPT.search(result or "")
        if self.recorded and said and int(said[1]) != self.recorded:
            self.tally.stale.append(f"{self.name}: {said[0]} stands for {self.recorded}")
        self.tally.in_doubt_ran += sum(self.effects[attempt] > 0 for attempt in self.doubted)
        strange = set(self.effects) - self.started
        self.tally.unknown += [f"{self.name}: attempt {attempt}" for attempt in strange]
        beyond = self.effects.total() - min(len(self.effects), self.approvals)
        self.tally.double += [f"{self.name}: effects {dict(self.effects)}"] * beyond


def take_stock(
    store: Store, folder: Path, runs: Collection[str], listed: Collection[str] | None = None
) -> Tally:
    """Count at any moment. ``listed`` are the doubts that people were shown."""
    tally = Tally(runs=len(runs))
    events = [event for _, event in all_events(store, page=2000)]
    stories = _read(events, folder, tally)
    for name, story in stories.items():
        found = store.call(name)
        story.end(None if found is None else found.result)
    _count_decisions(events, folder, tally)
    _count_stranded(store, runs, tally)
    if listed is not None:
        shown = {name for name, story in stories.items() if story.doubted and not story.believed}
        tally.unlisted += sorted(shown - set(listed))
    tally.broken += [str(problem) for problem in verify(store).problems]
    return tally


def _read(events: Iterable[Event], folder: Path, tally: Tally) -> dict[str, Story]:
    effects: dict[str, Counter[int]] = defaultdict(Counter)
    for call, attempt, _ in lines(folder / "effects"):
        effects[call][attempt] += 1
        tally.effects += 1
    stories: dict[str, Story] = {}
    for event in events:
        if event.call:
            if event.call not in stories:
                stories[event.call] = Story(event.call, effects[event.call], tally)
            stories[event.call].read(event)
    tally.unknown += sorted(set(effects) - set(stories))
    return stories


def _count_decisions(events: Iterable[Event], folder: Path, tally: Tally) -> None:
    decided = {
        (event.call, codec.loads(event.body or "{}")["decision"], event.actor)
        for event in events
        if event.type == "decided"
    }
    acks = [tuple(ack) for ack in lines(folder / "acks")]
    tally.decisions = len(acks)
    tally.lost += [f"{ack}: acknowledged" for ack in acks if ack not in decided]


def _count_endings(store: Store, tally: Tally) -> None:
    """Count events after the end of a run: only a late result may follow."""
    finished: set[str] = set()
    for _, event in all_events(store, page=2000):
        if event.run in finished and event.type != "late":
            tally.reopened.append(f"{event.run}: {event.type} {event.call} after the end")
        if event.type == "finished":
            finished.add(event.run)


def _count_stranded(store: Store, runs: Iterable[str], tally: Tally) -> None:
    """Count runs that are missing, and runs that could continue and are in no queue."""
    for name in runs:
        run = store.run(name)
        if run is None:
            tally.lost.append(f"{name}: the run is gone")
        elif run.status in LIVE and run.ready_at is None and not (run.asked or run.in_doubt):
            tally.lost.append(f"{name}: nobody will go on with it")


def check_record(
    store: Store, folder: Path, runs: Collection[str], listed: Collection[str], calls: int
) -> dict[str, int]:
    """Check that everything was done once, and every doubt shown. Each run made ``calls``."""
    tally = take_stock(store, folder, runs, listed)
    _count_endings(store, tally)
    for name in runs:
        run = store.run(name)
        if run is not None and run.status != "done":
            tally.lost.append(f"{name}: the run is {run.status}")
        made = Counter(call.args for call in store.calls_of(name))
        if len(made) != calls or made.total() != calls:
            tally.asked_twice.append(f"{name}: {dict(made)}")
    return tally.check()
