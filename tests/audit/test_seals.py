"""Edited and deleted seals are reported, and so are the events they covered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from audit_world import KEY, OTHER_KEY, SERVER_KEY, World, opened, places, plain

from sayso import codec
from sayso.audit import verify
from sayso.engine.commands import Note
from sayso.keys import Keyring, public_key, row_key
from sayso.stores import seals
from sayso.stores.memory import MemoryStore
from sayso.stores.seals import next_seal, seal_bytes
from sayso.stores.sqlite import SqliteStore


@pytest.mark.parametrize(
    "change",
    [
        "heads = replace(heads, 'order-2', 'order-0')",
        "heads = replace(heads, '5,', '4,')",
        "at = at + 1",
        "prev = 'x'",
        "hash = '0' || hash",
        "signature = '0' || signature",
        "signature = NULL || signature",
        "heads = 'x'",
        "heads = '[[1]]'",
        "heads = x'ff'",
        "at = 9e999",
        "prev = x'ff'",
        "hash = x'ff'",
    ],
)
def test_edited_seal_is_named(sealed: World, change: str) -> None:
    if "NULL" in change:
        change = "signature = CAST(signature AS BLOB)"
    sealed.sql(f"UPDATE seal SET {change} WHERE n = 1")
    report = sealed.verify()
    assert places(report)[0] == ("", 1)
    assert str(report.problems[0]).startswith("seal 1 ")


def test_edited_seal_with_fitting_hash_is_named(sealed: World) -> None:
    seal = sealed.store.seals()[1]
    heads = seal.heads.replace("order-4", "order-0")
    hash = codec.sha256(seal_bytes(seal.n, seal.at, heads, seal.prev))
    sealed.sql("UPDATE seal SET heads = ?, hash = ? WHERE n = 2", heads, hash)
    report = sealed.verify()
    assert places(report)[0] == ("", 2)
    assert "signature" in report.problems[0].what


def test_seal_made_with_another_key_is_named(sealed: World) -> None:
    first, second = sealed.store.seals()
    forged = next_seal(Keyring.parse(OTHER_KEY), first, codec.loads(second.heads), second.at)
    values = (forged.heads, forged.hash, forged.signature)
    sealed.sql("UPDATE seal SET heads = ?, hash = ?, signature = ? WHERE n = 2", *values)
    assert places(sealed.verify())[0] == ("", 2)


def test_seal_of_another_history_is_named(sealed: World) -> None:
    """Signed with the right key, but in a diverged copy of the store."""
    first, second = sealed.store.seals()
    keys = Keyring.parse(KEY)
    other = next_seal(keys, None, codec.loads(first.heads), first.at + 1)
    forked = next_seal(keys, other, codec.loads(second.heads), second.at)
    values = (forked.prev, forked.hash, forked.signature)
    sealed.sql("UPDATE seal SET prev = ?, hash = ?, signature = ? WHERE n = 2", *values)
    report = sealed.verify()
    assert places(report) == [("", 2)]
    assert "does not follow" in report.problems[0].what


def test_seal_that_holds_no_heads_is_named(sealed: World) -> None:
    last = sealed.store.seals()[1]
    odd = next_seal(Keyring.parse(KEY), last, [("order-1",)], last.at)  # type: ignore[list-item]
    values = (odd.n, odd.at, odd.heads, odd.prev, odd.hash, odd.signature)
    sealed.sql("INSERT INTO seal VALUES (?, ?, ?, ?, ?, ?)", *values)
    report = sealed.verify()
    assert places(report) == [("", 3)]
    assert "heads that cannot be read" in report.problems[0].what


def test_seals_that_cannot_be_read_are_reported(sealed: World) -> None:
    sealed.sql("UPDATE seal SET heads = CAST(x'ff' AS TEXT) WHERE n = 2")
    report = sealed.verify()
    assert places(report) == [("", 2), ("order-4", 1)]
    assert "was changed" in report.problems[0].what


def test_deleted_seal_is_named(sealed: World) -> None:
    sealed.sql("DELETE FROM seal WHERE n = 1")
    report = sealed.verify()
    assert places(report)[0] == ("", 1)
    assert "is missing" in report.problems[0].what
    assert {("order-1", 5), ("order-2", 5), ("order-3", 5)} < set(places(report))


def test_several_deleted_seals_are_named(sealed: World) -> None:
    sealed.ask("order-5")
    sealed.store.seal()
    sealed.sql("DELETE FROM seal WHERE n < 3")
    assert "1 to 2" in sealed.verify().problems[0].what


def test_missing_newest_seal_is_named(sealed: World) -> None:
    sealed.sql("DELETE FROM seal WHERE n = 2")
    report = sealed.verify()
    assert places(report) == [("order-4", 1)]
    assert "that seal is missing" in report.problems[0].what
    assert report.unsealed == 1


def test_missing_seals_are_all_named(sealed: World) -> None:
    sealed.sql("DELETE FROM seal")
    report = sealed.verify()
    assert places(report) == [("order-1", 5), ("order-2", 5), ("order-3", 5), ("order-4", 1)]
    assert report.unsealed == 16


def test_thread_denying_its_seal_is_named(sealed: World) -> None:
    sealed.sql("UPDATE thread SET sealed = 0 WHERE id = 'order-2'")
    report = sealed.verify()
    assert places(report) == [("order-2", 5)]
    assert "only row 0 is" in report.problems[0].what


def test_unmarked_moved_thread_is_named(sealed: World) -> None:
    sealed.ask("order-5")
    sealed.sql("UPDATE thread SET moved = 0 WHERE id = 'order-5'")
    report = sealed.verify()
    assert places(report) == [("order-5", 1)]
    assert "not marked as moved" in report.problems[0].what


def test_sealed_thread_marked_moved_is_named(sealed: World) -> None:
    sealed.sql("UPDATE thread SET moved = 1 WHERE id = 'order-2'")
    report = sealed.verify()
    assert places(report) == [("order-2", 5)]
    assert "marked as moved" in report.problems[0].what


def test_thread_sealed_past_its_end_is_named(sealed: World) -> None:
    sealed.sql("UPDATE thread SET sealed = 9 WHERE id = 'order-2'")
    assert places(sealed.verify()) == [("order-2", 9)]


def test_missing_thread_is_named(sealed: World) -> None:
    for table in ("event", "call", "run"):
        sealed.sql(f"DELETE FROM {table} WHERE thread = 'order-2'")
    sealed.sql("DELETE FROM thread WHERE id = 'order-2'")
    report = sealed.verify()
    assert places(report) == [("order-2", 1)]
    assert "seal 1 has its rows up to 5" in report.problems[0].what


def test_sealed_tail_that_was_cut_is_named(sealed: World) -> None:
    sealed.sql("DELETE FROM event WHERE thread = 'order-2' AND seq > 2")
    head = sealed.events("order-2")[-1].hash
    sealed.sql("UPDATE thread SET seq = 2, head = ?, sealed = 2 WHERE id = 'order-2'", head)
    assert places(sealed.verify())[0] == ("order-2", 3)


def test_rewritten_chain_under_seal_is_named(sealed: World) -> None:
    sealed.rewrite("order-2", plain)
    assert places(sealed.verify())[0] == ("order-2", 1)


# -- how stores seal


def test_close_seals_the_store(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.ask("order-1")
    world.close()
    world.open()
    report = world.verify()
    assert (report.ok, report.seals, report.unsealed) == (True, 1, 0)
    world.close()
    world.open()
    assert world.verify().seals == 1  # nothing moved, so nothing is sealed
    world.close()


def test_store_closes_without_sealing(world: World, caplog: pytest.LogCaptureFixture) -> None:
    writer = world.store._writer
    assert writer is not None
    writer.execute("PRAGMA query_only = 1")
    world.close()
    assert "not sealed yet" in caplog.text
    world.open()
    assert world.verify().ok


@pytest.mark.parametrize("make", [SqliteStore, MemoryStore])
def test_event_count_triggers_a_seal(
    make: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seals, "SEAL_EVENTS", 7)
    world = World(tmp_path)
    if make is MemoryStore:
        world.close()
        world.use(MemoryStore(clock=world.clock))
    world.order("order-1")
    assert world.verify().seals == 0
    world.order("order-2")
    report = world.verify()
    assert (report.ok, report.seals) == (True, 1)
    world.close()


def test_time_seals_with_the_next_commit(tmp_path: Path) -> None:
    with opened(World(tmp_path)) as world:
        world.ask("order-1")
        assert world.verify().seals == 0
        world.clock.advance(60)
        world.ask("order-2")
        report = world.verify()
        assert (report.ok, report.seals, report.unsealed) == (True, 1, 0)


def test_more_threads_than_one_seal_holds(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seals, "MOST_HEADS", 2)
    newest = world.store.seal()
    assert newest is not None
    assert newest.n == 2
    report = world.verify()
    assert (report.ok, report.seals, report.unsealed) == (True, 2, 0)


def test_refused_command_seals_nothing(tmp_path: Path) -> None:
    with opened(World(tmp_path)) as world:
        request = world.ask("order-1")
        world.clock.advance(60)
        with pytest.raises(Exception, match="not what you saw"):
            world.inbox.decide_sync(request.id, request.approve(), by="ana", seen_digest="x")
        assert world.verify().seals == 0


@pytest.mark.parametrize("kind", ["sqlite", "memory"])
def test_process_that_cannot_sign_does_not_seal(kind: str, tmp_path: Path) -> None:
    keys = Keyring.parse(public_key(SERVER_KEY), rows=row_key(SERVER_KEY))
    store: Any = MemoryStore(keys=keys)
    if kind == "sqlite":
        store = SqliteStore(tmp_path / "sayso.db", keys=keys)
    store.transact(Note(type="seen", actor="ana"))
    assert store.seal() is None
    store.prune(store.now(), "ana")
    report = verify(store)
    assert (report.ok, report.seals, report.unsealed) == (True, 0, 2)
    store.close()


def test_seals_verify_after_key_rotation(world: World) -> None:
    world.store.seal()
    world.close()
    world.open(f"{OTHER_KEY},{KEY}")
    world.order("order-4")
    world.store.seal()
    report = world.verify()
    assert (report.ok, report.seals, report.unsealed) == (True, 2, 0)
    world.sql("UPDATE event SET actor = 'eve' WHERE thread = 'order-1' AND seq = 3")
    assert places(world.verify()) == [("order-1", 3)]


def test_rows_of_unknown_key_are_named(world: World) -> None:
    world.close()
    world.open(f"{OTHER_KEY},{KEY}")
    world.order("order-4")
    world.close()
    store = SqliteStore(world.path, keys=Keyring.parse(KEY))
    report = verify(store)
    assert {thread for thread, _ in places(report)} == {"", "order-4"}
    assert any("unknown key" in problem.what for problem in report.problems)
    store.close()
    world.open(f"{OTHER_KEY},{KEY}")
