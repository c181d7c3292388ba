"""Rows of a chain that were edited, deleted, swapped, cut or computed anew are named."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from audit_world import (
    OTHER_KEY,
    SERVER_KEY,
    World,
    edited,
    keyed,
    opened,
    places,
    plain,
    posing,
)
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from assent.audit import verify
from assent.audit.report import MOST_PROBLEMS, Problem
from assent.keys import Keyring, public_key
from assent.rows import SYSTEM_THREAD, Event
from assent.stores.sqlite import SqliteStore

HERE = "WHERE thread = 'order-2' AND seq"


@pytest.mark.parametrize(
    "change",
    [
        "body = replace(body, 'approve', 'reject')",
        "body = '{}'",
        "body = x'00'",
        "actor = 'eve'",
        "at = at + 1",
        "at = 'yesterday'",
        "at = x'00'",
        "type = 'voted'",
        "run = 'order-1'",
        "call = 'req_0'",
        "digest = '0' || digest",
        "hash = '0' || hash",
        "hash = NULL || hash || x''",
    ],
)
def test_an_edited_event_is_named(world: World, change: str) -> None:
    if "NULL" in change:
        change = "hash = CAST(hash AS BLOB)"
    world.sql(f"UPDATE event SET {change} {HERE} = 2")
    assert places(world.verify())[0] == ("order-2", 2)


def test_only_what_was_edited_is_named(world: World) -> None:
    world.sql(f"UPDATE event SET actor = 'eve' {HERE} = 2")
    report = world.verify()
    assert not report.ok
    (problem,) = report.problems
    assert problem == Problem(
        "order-2", 2, 7, "it was changed, or it does not follow on the row before it"
    )
    assert str(problem).startswith("thread 'order-2', row 2: it was changed")


def test_the_head_of_a_thread_is_no_second_problem(world: World) -> None:
    world.sql(f"UPDATE event SET hash = '0' || hash {HERE} = 5")
    assert places(world.verify()) == [("order-2", 5)]


def test_text_that_cannot_be_read_is_named(world: World) -> None:
    world.sql(f"UPDATE event SET actor = CAST(x'ff' AS TEXT) {HERE} = 3")
    report = world.verify()
    assert places(report)[0] == ("order-2", 3)
    assert "cannot be read" in report.problems[0].what


def test_a_number_that_is_none_is_named(world: World) -> None:
    world.sql(f"UPDATE event SET seq = 'x' {HERE} = 5")
    report = world.verify()
    assert places(report) == [("order-2", 5)]
    assert "its number is 'x'" in report.problems[0].what


@pytest.mark.parametrize(("seqs", "first"), [("= 1", 1), ("= 3", 3), ("IN (2, 3)", 2), ("= 5", 5)])
def test_a_deleted_event_is_named(world: World, seqs: str, first: int) -> None:
    world.sql(f"DELETE FROM event {HERE} {seqs}")
    report = world.verify()
    assert places(report) == [("order-2", first)]
    assert "missing" in report.problems[0].what


def test_swapped_events_are_named(world: World) -> None:
    for old, new in ((2, 20), (3, 2), (20, 3)):
        world.sql(f"UPDATE event SET seq = {new} {HERE} = {old}")
    assert places(world.verify())[:2] == [
        ("order-2", 3),
        ("order-2", 2),
    ]  # by their place in the file


def test_events_swapped_in_the_store_are_named(world: World) -> None:
    for old, new in ((7, 70), (8, 7), (70, 8)):
        world.sql(f"UPDATE event SET pos = {new} WHERE pos = {old}")
    report = world.verify()
    assert places(report) == [("order-2", 3)]
    assert "stands before" in report.problems[0].what


def test_an_event_that_is_there_twice_is_named(world: World) -> None:
    world.sql("ALTER TABLE event RENAME TO old")
    world.sql("CREATE TABLE event AS SELECT * FROM old")
    world.sql(f"INSERT INTO event SELECT pos + 90, {_COLUMNS} FROM old {HERE} = 3")
    report = world.verify()
    assert places(report)[0] == ("order-2", 3)
    assert report.problems[0].what == "it is there twice"


_COLUMNS = "thread, seq, at, type, run, call, actor, body, digest, hash"


def test_an_event_moved_to_another_thread_is_named(world: World) -> None:
    world.sql(f"UPDATE event SET thread = 'elsewhere' {HERE} = 3")
    found = places(world.verify())
    assert ("order-2", 3) in found  # missing
    assert ("elsewhere", 3) in found  # has no thread


# -- the end of a chain


def test_a_cut_tail_is_named(world: World) -> None:
    world.sql(f"DELETE FROM event {HERE} > 3")
    assert places(world.verify())[0] == ("order-2", 4)


def test_a_cut_tail_is_named_although_the_thread_was_made_to_fit(world: World) -> None:
    world.sql(f"DELETE FROM event {HERE} > 3")
    _shorten(world, 3)
    report = world.verify()
    assert places(report)[0] == ("order-2", 4)
    assert "no key proves" in report.problems[0].what


def test_a_forged_proof_of_the_end_is_named(world: World) -> None:
    world.sql(f"DELETE FROM event {HERE} > 3")
    _shorten(world, 3)
    for link in (plain, keyed, posing):
        mac = link(b'["head", "order-2", 3, "%s"]' % world.events("order-2")[-1].hash.encode())
        world.sql("UPDATE thread SET mac = ? WHERE id = 'order-2'", mac)
        assert places(world.verify())[0] == ("order-2", 4)


def _shorten(world: World, seq: int) -> None:
    head = f"(SELECT hash FROM event {HERE} = {seq})"
    world.sql(f"UPDATE thread SET seq = {seq}, head = {head} WHERE id = 'order-2'")


def test_a_tail_cut_back_to_an_older_row_of_the_thread_is_named_by_its_seal(tmp_path: Path) -> None:
    with opened(World(tmp_path)) as world:
        request = world.ask("order-2")
        old = world.sql("SELECT seq, head, mac FROM thread WHERE id = 'order-2'")[0]
        world.approve(request)
        world.store.seal()
        world.sql(f"DELETE FROM event {HERE} > 1")
        world.sql("UPDATE thread SET seq = ?, head = ?, mac = ? WHERE id = 'order-2'", *old)
        report = world.verify()
        assert places(report)[0] == ("order-2", 2)
        assert "seal 1 has the rows up to 2" in report.problems[0].what


@pytest.mark.parametrize(
    ("change", "seq"),
    [
        ("seq = 4", 5),
        ("seq = 6", 6),
        ("seq = 'x'", 1),
        ("head = 'x'", 5),
        ("mac = ''", 6),
        ("sealed = 4", 4),
    ],
)
def test_an_edited_thread_is_named(world: World, change: str, seq: int) -> None:
    world.sql(f"UPDATE thread SET {change} WHERE id = 'order-2'")
    assert places(world.verify())[0] == ("order-2", seq)


def test_an_event_without_a_thread_is_named(world: World) -> None:
    world.sql("DELETE FROM thread WHERE id = 'order-2'")
    report = world.verify()
    assert places(report)[0] == ("order-2", 1)
    assert report.problems[0].what == "its thread has no row"


def test_a_thread_without_its_events_is_named(world: World) -> None:
    world.sql("DELETE FROM event WHERE thread = 'order-2'")
    assert places(world.verify())[0] == ("order-2", 1)


def test_threads_that_cannot_be_read_are_told(world: World) -> None:
    world.sql("UPDATE thread SET owner = CAST(x'ff' AS TEXT) WHERE id = 'order-2'")
    report = world.verify()
    assert "threads after 'order-1' cannot be read" in str(report.problems[0])


# -- a chain that was computed anew


@pytest.mark.parametrize("link", [plain, keyed, posing])
def test_a_chain_computed_without_the_key_is_named(
    world: World, link: Callable[[bytes], str]
) -> None:
    world.rewrite("order-2", link, lambda event: event._replace(actor="eve"))
    report = world.verify()
    assert [place for place in places(report) if place[0] == "order-2"][:5] == [
        ("order-2", seq) for seq in range(1, 6)
    ]


def test_the_report_says_with_what_a_foreign_hash_was_made(world: World) -> None:
    world.rewrite("order-1", plain)
    world.rewrite("order-2", keyed)
    whats = {problem.thread: problem.what for problem in reversed(world.verify().problems)}
    assert "without the key" in whats["order-1"]
    assert Keyring.parse(OTHER_KEY).primary_id in whats["order-2"]


def test_a_forged_event_at_the_end_is_named(world: World) -> None:
    last = world.events("order-2")[-1]
    world.write_event(last._replace(seq=6, pos=99, type="late"))
    assert places(world.verify())[0] == ("order-2", 6)


# -- with Ed25519 anybody can make hashes, and the seals and signatures protect them


@pytest.fixture
def server(tmp_path: Path) -> Any:
    with opened(World(tmp_path, SERVER_KEY)) as made:
        made.order("order-1")
        made.ask("order-2")
        made.store.seal()
        assert made.verify().ok
        yield made


def test_a_sealed_chain_computed_anew_is_named(server: World) -> None:
    server.rewrite("order-1", plain, lambda event: event._replace(actor="eve"))
    report = server.verify()
    assert ("order-1", 5) in places(report)
    assert any("seal 1 has another hash" in problem.what for problem in report.problems)


def test_the_oldest_seal_that_does_not_fit_is_named(server: World) -> None:
    request = server.inbox.pending_sync().items[0]
    server.approve(request)
    server.store.seal()
    server.rewrite("order-2", plain, lambda event: event._replace(at=event.at + 1))
    assert ("order-2", 1) in places(server.verify())


def test_a_forged_decision_is_named(server: World) -> None:
    asked = server.events("order-2")[0]
    body = edited(
        asked._replace(type="decided", actor="ana"),
        decision="approve",
        channel="python",
        assurance="code",
        message="",
        value=None,
        signature="x.y",
    )
    server.rewrite("order-2", plain, extra=(body,))
    report = server.verify()
    assert places(report)[0] == ("order-2", 2)
    assert "the signature of ana does not hold" in report.problems[0].what


def test_a_signature_that_was_used_for_something_else_is_named(server: World) -> None:
    asked, decided = server.events("order-2")[0], server.events("order-1")[1]
    copied = decided._replace(run=asked.run, call=asked.call)
    server.rewrite("order-2", plain, extra=(copied,))
    report = server.verify()
    assert places(report)[0] == ("order-2", 2)
    assert "about something else" in report.problems[0].what


@pytest.mark.parametrize(
    ("type", "changes", "what"),
    [
        ("started", {}, "'started' cannot follow on asked"),
        ("invented", {}, "there is no event 'invented'"),
        ("reasked", {"args": 1}, "cannot follow on asked"),
        ("voted", {}, "cannot be understood"),
    ],
)
def test_an_event_that_the_engine_would_not_write_is_named(
    server: World, type: str, changes: dict[str, Any], what: str
) -> None:
    forged = edited(server.events("order-2")[0]._replace(type=type), **changes)
    server.rewrite("order-2", plain, extra=(forged,))
    report = server.verify()
    assert places(report)[0] == ("order-2", 2)
    assert what in report.problems[0].what


def test_another_start_than_the_approved_one_is_named(tmp_path: Path) -> None:
    with opened(World(tmp_path, SERVER_KEY)) as server:
        server.order("order-1")

        def change(event: Event) -> Event:
            return edited(event, digest="0" * 64) if event.type == "started" else event

        server.rewrite("order-1", plain, change)
        report = server.verify()
        assert places(report)[0] == ("order-1", 3)
        assert "something else was started" in report.problems[0].what


def test_what_follows_on_the_end_of_a_call_is_named(server: World) -> None:
    started = server.events("order-1")[2]
    server.rewrite("order-1", plain, extra=(started,))
    assert ("order-1", 6) in places(server.verify())


def test_an_event_of_a_call_that_was_never_made_is_named(server: World) -> None:
    late = server.events("order-1")[3]._replace(type="late", call="req_0")
    server.rewrite("order-1", plain, extra=(late,))
    report = server.verify()
    assert places(report)[0] == ("order-1", 6)
    assert "never made" in report.problems[0].what


def test_the_public_half_is_enough_to_verify(server: World) -> None:
    store = SqliteStore(server.path, keys=Keyring.parse(public_key(SERVER_KEY)))
    assert verify(store).ok
    store.close()


# -- pruning


def _pruned(world: World) -> None:
    world.clock.advance(3600)
    world.order("order-9")
    counts = world.store.prune(world.clock() - 60, "ana")
    assert counts == {"bodies": 15, "calls": 3, "messages": 0, "runs": 3}


def test_a_pruned_store_is_whole_and_sealed(world: World) -> None:
    _pruned(world)
    report = world.verify()
    assert report.ok
    assert (report.threads, report.events, report.unsealed) == (5, 21, 0)
    assert world.sql("SELECT count(*) FROM event WHERE body IS NULL") == [(15,)]


def test_an_edited_event_of_a_pruned_run_is_named(world: World) -> None:
    _pruned(world)
    world.sql(f"UPDATE event SET actor = 'eve' {HERE} = 2")
    assert places(world.verify()) == [("order-2", 2)]


def test_a_body_nulled_by_hand_is_named(world: World) -> None:
    world.sql(f"UPDATE event SET body = NULL {HERE} = 3")
    report = world.verify()
    assert places(report) == [("order-2", 3)]
    assert report.problems[0].what == "its body is missing, and no pruning took it"


def test_a_body_nulled_by_hand_beside_a_pruning_is_named(world: World) -> None:
    _pruned(world)
    world.sql("UPDATE event SET body = NULL WHERE thread = 'order-9' AND seq = 1")
    assert places(world.verify()) == [("order-9", 1)]


def test_a_pruned_run_that_was_entered_again_is_not_pruned(world: World) -> None:
    _pruned(world)
    world.ask("order-2")
    assert world.verify().ok
    world.sql(f"UPDATE event SET body = NULL {HERE} = 6")
    report = world.verify()
    assert places(report) == [("order-2", 6)]
    assert "no pruning took it" in report.problems[0].what


def test_without_the_pruning_in_the_record_every_missing_body_is_named(world: World) -> None:
    _pruned(world)
    world.sql("UPDATE event SET body = replace(body, 'order-2', 'order-0') WHERE type = 'pruned'")
    found = places(world.verify())
    assert (SYSTEM_THREAD, 1) in found
    orders = {f"order-{n}" for n in (1, 2, 3)}
    assert {place for place in found if place[0] in orders} == {
        (thread, seq) for thread in orders for seq in range(1, 6)
    }


def test_the_row_of_a_pruned_call_must_not_come_back(world: World) -> None:
    world.sql("CREATE TABLE kept AS SELECT * FROM call")
    _pruned(world)
    world.sql("INSERT INTO call SELECT * FROM kept WHERE thread = 'order-2'")
    report = world.verify()
    assert places(report) == [("order-2", 4)]
    assert "was pruned, and its row is there again" in report.problems[0].what


def test_a_forged_pruning_does_not_count_until_it_is_sealed(tmp_path: Path) -> None:
    with opened(World(tmp_path, SERVER_KEY)) as server:
        server.order("order-2")
        forged = Event("", 1, server.clock(), "pruned", "eve", None, "", "")
        before = server.clock() + 1
        server.sql(f"INSERT INTO thread VALUES ('{SYSTEM_THREAD}', '', 0, 0, '', '', 0)")
        server.rewrite(
            SYSTEM_THREAD, plain, extra=(edited(forged, runs=["order-2"], before=before),)
        )
        server.sql(f"UPDATE event SET body = NULL {HERE} = 2")
        assert places(server.verify())[0] == ("order-2", 2)
        assert server.store.prune(server.clock() + 1, "ana")["runs"] == 1
        assert server.verify().ok


# -- whatever is changed


COLUMNS = ("thread", "seq", "at", "type", "run", "call", "actor", "body", "digest", "hash")


@pytest.fixture(scope="module")
def flipped(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with opened(World(tmp_path_factory.mktemp("flips"))) as made:
        made.order("order-1")
        made.order("order-2")
        made.store.seal()
        made.ask("order-3")
        yield made


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_flipped_bit_is_always_named(flipped: World, data: st.DataObject) -> None:
    pos = data.draw(st.integers(1, 11), "row")
    column = data.draw(st.sampled_from(COLUMNS), "column")
    thread, seq, old = flipped.sql(f"SELECT thread, seq, {column} FROM event WHERE pos = ?", pos)[0]
    new = _flip(old, data)
    put = f"UPDATE event SET {column} = {{}} WHERE pos = {pos}"
    try:
        flipped.sql(put.format("?" if isinstance(old, int) else "CAST(? AS TEXT)"), new)
    except sqlite3.IntegrityError:
        assume(False)  # that place in that chain is taken
    try:
        found = places(flipped.verify())
        assert (thread, seq) in found
        if column not in ("thread", "seq"):
            assert found[0] == (thread, seq)
    finally:
        flipped.sql(put.format("?"), old)


def _flip(old: int | str, data: st.DataObject) -> int | bytes:
    if isinstance(old, int):
        return old ^ 1 << data.draw(st.integers(0, 40), "bit")
    raw = bytearray(old.encode())
    assume(raw)
    raw[data.draw(st.integers(0, len(raw) - 1), "byte")] ^= 1 << data.draw(st.integers(0, 7), "bit")
    return bytes(raw)


def test_the_list_of_problems_is_bounded(tmp_path: Path) -> None:
    with opened(World(tmp_path)) as world:
        for n in range(60):
            world.order(f"order-{n}")
        world.sql("UPDATE event SET actor = 'eve'")
        report = world.verify()
        assert not report.ok
        assert len(report.problems) == MOST_PROBLEMS
        assert report.found == 300
        assert [problem.pos for problem in report.problems] == list(range(1, MOST_PROBLEMS + 1))
