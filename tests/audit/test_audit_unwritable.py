"""Nothing happens if it cannot be written."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from audit_world import World, opened

from sayso import (
    StoreError,
)
from sayso.engine.commands import Note


def _read_only(world: World, writer: sqlite3.Connection) -> None:
    writer.execute("PRAGMA query_only = 1")


def _full(world: World, writer: sqlite3.Connection) -> None:
    writer.execute("PRAGMA max_page_count = 1")  # no page more than there are
    notes = [Note(type="filler", actor=f"{n}") for n in range(1000)]
    with pytest.raises(StoreError, match="full"):
        list(map(world.store.transact, notes))


@pytest.mark.parametrize("stop", [_read_only, _full])
def test_unwritable_decision_is_refused(tmp_path: Path, stop: Any) -> None:
    with opened(World(tmp_path)) as world:
        request = world.ask("order-1")
        writer = world.store._writer
        assert writer is not None
        stop(world, writer)
        for decision in (request.approve(), request.reject("no"), request.edit({"to": "eve"})):
            with pytest.raises(StoreError, match="could not be written"):
                world.inbox.decide_sync(request.id, decision, by="ana")
        pending = world.inbox.pending_sync().items
        assert [(r.id, r.status, r.decision) for r in pending] == [(request.id, "pending", None)]
        assert [event.type for event in world.events("order-1")] == ["asked"]
        assert world.verify().ok
        writer.execute("PRAGMA query_only = 0")
        writer.execute("PRAGMA max_page_count = 1000000")
        world.approve(request)
        assert world.verify().ok


def test_tool_is_stored_on_second_try(tmp_path: Path) -> None:
    with opened(World(tmp_path)) as world:
        writer = world.store._writer
        assert writer is not None
        writer.execute("PRAGMA query_only = 1")
        with pytest.raises(StoreError):
            world.ask("order-1")
        writer.execute("PRAGMA query_only = 0")
        assert world.ask("order-1").schema is not None


def test_impossible_command_does_not_stop_the_next_one(tmp_path: Path) -> None:
    with opened(World(tmp_path)) as world:
        with pytest.raises(TypeError):
            world.store.transact(Note(type="odd", actor="ana", body={"odd": object()}))
        world.order("order-1")
        assert world.verify().ok
