"""What must hold in the end, read from the events of a store and from what happened outside it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from pathlib import Path

from stories import lines

from assent import codec
from assent.audit import verify
from assent.rows import Event
from assent.stores.base import Store
from assent.testing.checks import all_events


class Story:
    """The events of one call, read in their order; ``wrongs`` says what must not have been."""

    def __init__(self, effects: Counter[int]) -> None:
        self.effects = effects
        self.attempt = 0
        self.may_start = False
        self.open: str = "asked"
        self.doubts = 0
        self.wrongs: list[str] = []

    def read(self, event: Event) -> None:
        """Go on with the next event."""
        body = codec.loads(event.body or "{}")
        if event.type == "decided":
            self._decided(body["decision"])
        elif event.type == "started":
            if not self.may_start:
                self.wrongs.append("double: started, and nobody had said so")
            self.attempt, self.may_start, self.open = body["attempt"], False, "running"
        elif event.type == "reasked":
            self.may_start, self.open = False, "asked"
        elif event.type == "in_doubt":
            self.doubts += 1
            self.open = "in doubt"
        elif event.type == "recorded":
            self._recorded(event.actor, body["ok"])

    def _decided(self, decision: str) -> None:
        self.may_start = decision == "approve"
        self.open = "approved" if self.may_start else ""

    def _recorded(self, actor: str, ok: bool) -> None:
        if actor != f"attempt:{self.attempt}":
            self.wrongs.append(f"{actor} recorded what attempt {self.attempt} does")
        if ok and not self.effects[self.attempt]:
            self.wrongs.append("done without effect")
        self.open = ""

    def end(self) -> None:
        """Look at the whole."""
        ran = sorted(self.effects.elements())
        if self.open:
            self.wrongs.append(f"lost: {self.open} for ever")
        if (
            len(ran) != len(set(ran))
            or len(ran) > 1 + self.doubts
            or max(ran, default=0) > (self.attempt)
        ):
            self.wrongs.append(f"double: effects of the attempts {ran}")


def stories_of(events: list[Event], folder: Path) -> dict[str, Story]:
    """Every call, and what was wrong with it."""
    effects: dict[str, Counter[int]] = defaultdict(Counter)
    for call, attempt, _ in lines(folder / "effects"):
        effects[call][attempt] += 1
    stories: dict[str, Story] = {}
    for event in events:
        if event.call:
            story = stories.setdefault(event.call, Story(effects[event.call]))
            story.read(event)
    for story in stories.values():
        story.end()
    return stories


def check_record(
    store: Store, folder: Path, runs: Collection[str], listed: Collection[str]
) -> dict[str, int]:
    """Nothing lost, nothing double, nothing done without effect, every doubt shown to people."""
    events = [event for _, event in all_events(store, page=2000)]
    stories = stories_of(events, folder)
    wrongs = {name: story.wrongs for name, story in stories.items() if story.wrongs}
    assert not wrongs, wrongs
    decided = {
        (event.call, codec.loads(event.body or "{}")["decision"], event.actor)
        for event in events
        if event.type == "decided"
    }
    acks = [tuple(ack) for ack in lines(folder / "acks")]
    missing = set(acks) - decided
    assert not missing, f"lost decisions: {missing}"
    doubted = {event.call for event in events if event.type == "in_doubt"}
    late = {event.call for event in events if event.type == "recorded" and _late(event)}
    assert doubted - late <= set(listed), "a doubt that nobody was shown"
    unknown = {call for call, *_ in lines(folder / "effects")} - set(stories)
    assert not unknown, f"effects of no call: {unknown}"
    unfinished = [
        run for run in runs if (found := store.run(run)) is None or found.status != "done"
    ]
    assert not unfinished, f"lost runs: {unfinished}"
    report = verify(store)
    assert report.ok, report
    return {
        "runs": len(runs),
        "decisions": len(acks),
        "effects": len(lines(folder / "effects")),
        "in_doubt": sum(event.type == "in_doubt" for event in events),
        "late": sum(event.type == "late" for event in events) + len(late),
        "lost": 0,
        "double": 0,
        "done_without_effect": 0,
    }


def _late(event: Event) -> bool:
    return bool(codec.loads(event.body or "{}").get("late"))
