"""``verify`` names rows of a chain that were edited, deleted, swapped, cut or recomputed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from audit_world import (
    OTHER_KEY,
    World,
    keyed,
    opened,
    places,
    plain,
    posing,
)
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sayso.audit.chain import MAX_PROBLEMS, Problem, ProblemCollector
from sayso.keys import Keyring

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
def test_edited_event_is_named(world: World, change: str) -> None:
    if "NULL" in change:
        change = "hash = CAST(hash AS BLOB)"
    world.sql(f"UPDATE event SET {change} {HERE} = 2")
    assert places(world.verify())[0] == ("order-2", 2)


def test_only_the_edited_row_is_named(world: World) -> None:
    world.sql(f"UPDATE event SET actor = 'eve' {HERE} = 2")
    report = world.verify()
    assert not report.ok
    (problem,) = report.problems
    assert problem == Problem(
        "order-2", 2, 7, "it was changed, or it does not follow the previous row"
    )
    assert str(problem).startswith("thread 'order-2', row 2: it was changed")


def test_thread_head_is_no_second_problem(world: World) -> None:
    world.sql(f"UPDATE event SET hash = '0' || hash {HERE} = 5")
    assert places(world.verify()) == [("order-2", 5)]


def test_unreadable_text_is_named(world: World) -> None:
    world.sql(f"UPDATE event SET actor = CAST(x'ff' AS TEXT) {HERE} = 3")
    report = world.verify()
    assert places(report)[0] == ("order-2", 3)
    assert "it was changed" in report.problems[0].what


def test_invalid_number_is_named(world: World) -> None:
    world.sql(f"UPDATE event SET seq = 'x' {HERE} = 5")
    report = world.verify()
    assert places(report) == [("order-2", 5)]
    assert "it cannot be read" in report.problems[0].what


@pytest.mark.parametrize(("seqs", "first"), [("= 1", 1), ("= 3", 3), ("IN (2, 3)", 2), ("= 5", 5)])
def test_deleted_event_is_named(world: World, seqs: str, first: int) -> None:
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
    assert "is before the row" in report.problems[0].what


def test_duplicated_event_is_named(world: World) -> None:
    world.sql("ALTER TABLE event RENAME TO old")
    world.sql("CREATE TABLE event AS SELECT * FROM old")
    world.sql(f"INSERT INTO event SELECT pos + 90, {_COLUMNS} FROM old {HERE} = 3")
    report = world.verify()
    assert places(report)[0] == ("order-2", 3)
    assert report.problems[0].what == "it appears twice"


_COLUMNS = "thread, seq, at, type, run, call, actor, body, digest, hash"


def test_event_moved_to_another_thread_is_named(world: World) -> None:
    world.sql(f"UPDATE event SET thread = 'elsewhere' {HERE} = 3")
    found = places(world.verify())
    assert ("order-2", 3) in found  # missing
    assert ("elsewhere", 3) in found  # has no thread


# -- the end of a chain


def test_cut_tail_is_named(world: World) -> None:
    world.sql(f"DELETE FROM event {HERE} > 3")
    assert places(world.verify())[0] == ("order-2", 4)


def test_cut_tail_with_fitting_thread_is_named(world: World) -> None:
    world.sql(f"DELETE FROM event {HERE} > 3")
    _shorten(world, 3)
    report = world.verify()
    assert places(report)[0] == ("order-2", 4)
    assert "no key proves" in report.problems[0].what


def test_forged_proof_of_the_end_is_named(world: World) -> None:
    world.sql(f"DELETE FROM event {HERE} > 3")
    _shorten(world, 3)
    for link in (plain, keyed, posing):
        mac = link(b'["head", "order-2", 3, "%s"]' % world.events("order-2")[-1].hash.encode())
        world.sql("UPDATE thread SET mac = ? WHERE id = 'order-2'", mac)
        assert places(world.verify())[0] == ("order-2", 4)


def _shorten(world: World, seq: int) -> None:
    head = f"(SELECT hash FROM event {HERE} = {seq})"
    world.sql(f"UPDATE thread SET seq = {seq}, head = {head} WHERE id = 'order-2'")


def test_tail_cut_below_seal_is_named(tmp_path: Path) -> None:
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
def test_edited_thread_is_named(world: World, change: str, seq: int) -> None:
    world.sql(f"UPDATE thread SET {change} WHERE id = 'order-2'")
    assert places(world.verify())[0] == ("order-2", seq)


def test_event_without_a_thread_is_named(world: World) -> None:
    world.sql("DELETE FROM thread WHERE id = 'order-2'")
    report = world.verify()
    assert places(report)[0] == ("order-2", 1)
    assert report.problems[0].what == "its thread has no row"


def test_thread_without_its_events_is_named(world: World) -> None:
    world.sql("DELETE FROM event WHERE thread = 'order-2'")
    assert places(world.verify())[0] == ("order-2", 1)


def test_unreadable_threads_are_reported(world: World) -> None:
    world.sql("UPDATE thread SET owner = CAST(x'ff' AS TEXT) WHERE id = 'order-2'")
    report = world.verify()
    assert str(report.problems[0]).startswith("thread 'order-2'")
    assert "a value that Sayso never writes" in report.problems[0].what


# -- a chain that was computed anew


@pytest.mark.parametrize("link", [plain, keyed, posing])
def test_chain_computed_without_the_key_is_named(
    world: World, link: Callable[[bytes], str]
) -> None:
    world.rewrite("order-2", link, lambda event: event._replace(actor="eve"))
    report = world.verify()
    assert [place for place in places(report) if place[0] == "order-2"][:5] == [
        ("order-2", seq) for seq in range(1, 6)
    ]


def test_report_names_key_of_foreign_hash(world: World) -> None:
    world.rewrite("order-1", plain)
    world.rewrite("order-2", keyed)
    whats = {problem.thread: problem.what for problem in reversed(world.verify().problems)}
    assert "without the key" in whats["order-1"]
    assert Keyring.parse(OTHER_KEY).primary_id in whats["order-2"]


def test_forged_event_at_the_end_is_named(world: World) -> None:
    last = world.events("order-2")[-1]
    world.write_event(last._replace(seq=6, pos=99, type="late"))
    assert places(world.verify())[0] == ("order-2", 6)


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


@pytest.mark.long
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_bit_is_always_named(flipped: World, data: st.DataObject) -> None:
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


def test_list_of_problems_is_bounded(tmp_path: Path) -> None:
    with opened(World(tmp_path)) as world:
        for n in range(60):
            world.order(f"order-{n}")
        world.sql("UPDATE event SET actor = 'eve'")
        report = world.verify()
        assert not report.ok
        assert len(report.problems) == MAX_PROBLEMS
        assert report.found == 300
        assert [problem.pos for problem in report.problems] == list(range(1, MAX_PROBLEMS + 1))


def test_problems_of_rows_with_wrong_types_are_sorted() -> None:
    problems = ProblemCollector()
    places: list[Any] = [("t", 2, 1), (b"t", 1, 1), ("t", "x", 1), ("t", 1, b"x"), ("t", 1, 1.5)]
    for thread, seq, pos in places:
        problems.add(Problem(thread, seq, pos, "was changed"))
    assert len(problems.first()) == len(places)
