"""Pruned contents are no gap; contents deleted by hand are."""

from __future__ import annotations

from pathlib import Path

from audit_world import (
    SERVER_KEY,
    World,
    edited,
    opened,
    places,
    plain,
)

from sayso.rows import SYSTEM_THREAD, Event

HERE = "WHERE thread = 'order-2' AND seq"


def _pruned(world: World) -> None:
    world.clock.advance(3600)
    world.order("order-9")
    counts = world.store.prune(world.clock() - 60, "ana")
    assert counts == {"bodies": 15, "calls": 3, "messages": 0, "runs": 3}


def test_pruned_store_verifies_and_is_sealed(world: World) -> None:
    _pruned(world)
    report = world.verify()
    assert report.ok
    assert (report.threads, report.events, report.unsealed) == (5, 21, 0)
    assert world.sql("SELECT count(*) FROM event WHERE body IS NULL") == [(15,)]


def test_edited_event_of_a_pruned_run_is_named(world: World) -> None:
    _pruned(world)
    world.sql(f"UPDATE event SET actor = 'eve' {HERE} = 2")
    assert places(world.verify()) == [("order-2", 2)]


def test_body_nulled_by_hand_is_named(world: World) -> None:
    world.sql(f"UPDATE event SET body = NULL {HERE} = 3")
    report = world.verify()
    assert places(report) == [("order-2", 3)]
    assert report.problems[0].what == "its body is missing, but it was not pruned"


def test_body_nulled_after_pruning_is_named(world: World) -> None:
    _pruned(world)
    world.sql("UPDATE event SET body = NULL WHERE thread = 'order-9' AND seq = 1")
    assert places(world.verify()) == [("order-9", 1)]


def test_reentered_pruned_run_keeps_its_bodies(world: World) -> None:
    _pruned(world)
    world.ask("order-2")
    assert world.verify().ok
    world.sql(f"UPDATE event SET body = NULL {HERE} = 6")
    report = world.verify()
    assert places(report) == [("order-2", 6)]
    assert "it was not pruned" in report.problems[0].what


def test_edited_pruning_event_names_missing_bodies(world: World) -> None:
    _pruned(world)
    world.sql("UPDATE event SET body = replace(body, 'order-2', 'order-0') WHERE type = 'pruned'")
    found = places(world.verify())
    assert (SYSTEM_THREAD, 1) in found
    orders = {f"order-{n}" for n in (1, 2, 3)}
    assert {place for place in found if place[0] in orders} == {
        (thread, seq) for thread in orders for seq in range(1, 6)
    }


def test_returned_row_of_pruned_call_is_named(world: World) -> None:
    world.sql("CREATE TABLE kept AS SELECT * FROM call")
    _pruned(world)
    world.sql("INSERT INTO call SELECT * FROM kept WHERE thread = 'order-2'")
    report = world.verify()
    assert places(report) == [("order-2", 4)]
    assert "was pruned, but its row is back" in report.problems[0].what


def test_forged_pruning_does_not_count(tmp_path: Path) -> None:
    with opened(World(tmp_path, SERVER_KEY)) as server:
        server.order("order-2")
        forged = Event("", 1, server.clock(), "pruned", "eve", None, "", "")
        before = server.clock() + 1
        server.sql(f"INSERT INTO thread VALUES ('{SYSTEM_THREAD}', '', 0, '', 0, '', 1, '', 0, 1)")
        server.rewrite(
            SYSTEM_THREAD, plain, extra=(edited(forged, runs=["order-2"], before=before),)
        )
        server.sql(f"UPDATE event SET body = NULL {HERE} = 2")
        assert places(server.verify())[0] == ("order-2", 2)
        assert server.store.prune(server.clock() + 1, "ana")["runs"] == 1
        assert server.verify().ok
