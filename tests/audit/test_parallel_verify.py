"""Verify in several processes, and from a checkpoint."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from audit_world import KEY, World, opened
from typer.testing import CliRunner

from sayso.audit import Checkpoint, verify
from sayso.audit.verify import _StoreCheck
from sayso.cli.main import app
from sayso.errors import InvalidCall, StoreError


@pytest.mark.long
def test_parallel_verification_finds_the_same(tmp_path: Path) -> None:
    with opened(World(tmp_path)) as world:
        for number in range(12):
            world.order(f"order-{number:02}")
        world.store.seal()
        whole = verify(world.store, jobs=3)
        assert (whole.ok, whole.threads, whole.events) == (True, 12, 60)
        world.sql("UPDATE event SET actor = 'eve' WHERE thread = 'order-03' AND seq = 2")
        world.sql("UPDATE call SET result = '\"forged\"' WHERE thread = 'order-11'")
        world.sql("DELETE FROM run WHERE id = 'order-07'")
        one, three, many = (verify(world.store, jobs=jobs) for jobs in (1, 3, 40))
        assert {problem.thread for problem in one.problems} == {
            "order-03",
            "order-07",
            "order-11",
        }
        assert one == three == many


def test_checkpoint_skips_unmoved_threads(tmp_path: Path) -> None:
    with opened(World(tmp_path)) as world:
        for number in range(6):
            world.order(f"order-{number}")
        world.store.seal()
        first = world.verify()
        request = world.ask("later")
        world.order("order-9")
        again = verify(world.store, since=first.checkpoint)
        assert (again.ok, again.threads, again.unmoved, again.events) == (True, 2, 6, 6)
        world.approve(request)
        world.sql("UPDATE event SET actor = 'eve' WHERE thread = 'later' AND seq = 1")
        broken = verify(world.store, since=again.checkpoint)
        assert [problem.thread for problem in broken.problems] == ["later"]


@pytest.mark.parametrize(
    "attack",
    [
        "UPDATE thread SET head = 'x' WHERE id = 'order-1'",
        "UPDATE thread SET seq = 4 WHERE id = 'order-1'",
        "UPDATE thread SET owner = 'eve' WHERE id = 'order-1'",
        "DELETE FROM thread WHERE id = 'order-1'",
    ],
)
def test_skipped_thread_row_is_still_checked(world: World, attack: str) -> None:
    world.store.seal()
    checkpoint = world.verify().checkpoint
    world.sql(attack)
    assert not verify(world.store, since=checkpoint).ok


def test_old_events_are_only_found_without_the_checkpoint(world: World) -> None:
    world.store.seal()
    checkpoint = world.verify().checkpoint
    world.sql("UPDATE event SET actor = 'eve' WHERE thread = 'order-1' AND seq = 2")
    assert verify(world.store, since=checkpoint).ok
    assert not world.verify().ok


def test_older_copy_is_reported(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.order("order-1")
    world.close()
    shutil.copytree(tmp_path, tmp_path / "copy")
    world.open()
    world.order("order-2")
    world.store.seal()
    checkpoint = world.verify().checkpoint
    world.close()
    old = World(tmp_path / "copy")  # with the mark beside it, so nothing else shows
    assert verify(old.store).ok
    report = verify(old.store, since=checkpoint)
    assert "was verified earlier, and is missing" in str(report.problems[0])
    old.order("another")
    old.store.seal()
    report = verify(old.store, since=checkpoint)
    assert "is not the one that was verified earlier" in str(report.problems[0])
    old.close()


def test_checkpoint_of_another_store_is_refused(world: World) -> None:
    with pytest.raises(InvalidCall, match="of another store"):
        verify(world.store, since=Checkpoint("other", "", 0, ""))


@pytest.mark.long
def test_command_keeps_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    world = World(tmp_path)
    monkeypatch.setenv("SAYSO_KEY", KEY)
    world.order("order-1")
    world.order("order-2")
    world.close()

    def run(*more: str) -> tuple[int, str]:
        options = ["--store", str(world.path), "--checkpoint", "seen.json", *more]
        done = CliRunner().invoke(app, ["audit", "verify", *options])
        return done.exit_code, done.output

    code, text = run("--json", "--jobs", "2")
    assert (code, json.loads(text)["events"]) == (0, 10)
    kept = Path("seen.json").read_text()
    code, text = run()
    assert "2 threads unchanged since" in " ".join(text.replace("┆", " ").split())
    world.sql("UPDATE thread SET head = 'x' WHERE id = 'order-1'")
    assert run()[0] == 1
    assert Path("seen.json").read_text() == kept
    Path("seen.json").write_text("{}")
    code, text = run()
    assert (code, "is not a checkpoint" in text, "delete it" in text) == (2, True, True)


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (lambda: os._exit(9), "a process of the audit died: verify with jobs=1"),
        (lambda: throw(StoreError("the disk is away")), "the disk is away"),
    ],
)
def test_audit_with_a_lost_process_is_no_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: Callable[[], None], message: str
) -> None:
    """A share of the threads that nobody checked must not count as intact."""
    with opened(World(tmp_path)) as world:
        for number in range(4):
            world.order(f"order-{number}")
        check_threads = _StoreCheck._check_threads

        def check_or_end(self: _StoreCheck, after: str, last: str | None) -> None:
            check_threads(self, after, last)
            if last is None:
                end()

        monkeypatch.setattr(_StoreCheck, "_check_threads", check_or_end)
        with pytest.raises(StoreError, match=message):
            verify(world.store, jobs=2)


def throw(error: Exception) -> None:
    raise error
