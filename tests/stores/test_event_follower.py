"""Events are delivered in order and at least once, whatever fails meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from waiting import until_async

from sayso import Gate, Paused
from sayso.rows import Event
from sayso.stores import event_follower
from sayso.stores.event_follower import EventFollower
from sayso.stores.sqlite import SqliteStore


async def test_failed_delivery_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_follower, "_FIRST_TRY", 0.001)
    monkeypatch.setattr(event_follower, "_POLL_SECONDS", 0.01)
    store = SqliteStore(tmp_path / "sayso.db")
    gate = Gate(store, wait=0)
    failures: list[Exception] = [RuntimeError("away"), OSError("still away")]
    delivered: list[tuple[str, str]] = []

    async def deliver(events: Sequence[Event]) -> None:
        if failures:
            raise failures.pop()
        delivered.extend((event.run, event.type) for event in events)

    follower = EventFollower(store, "test", lambda event: event.type == "asked", deliver)
    await follower.begin()
    following = asyncio.create_task(follower.run())
    for run in ("r1", "r2"):
        with pytest.raises(Paused):
            async with gate.run(run):
                await gate.confirm("Publish?")
    await until_async(lambda: len(delivered) == 2)
    assert (delivered, failures) == ([("r1", "asked"), ("r2", "asked")], [])
    store.close()  # then there is nothing to follow any more
    await asyncio.wait_for(following, 20)
    assert len(delivered) == 2
