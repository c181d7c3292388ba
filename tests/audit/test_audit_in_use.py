"""A store verifies while in use and after a crash; a restored copy is reported."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from audit_world import KEY, World, opened

from sayso.audit import verify
from sayso.keys import Keyring
from sayso.stores.sqlite import SqliteStore


@pytest.mark.long
def test_store_in_use_verifies(tmp_path: Path) -> None:
    with opened(World(tmp_path)) as world:
        for n in range(5):
            world.order(f"order-{n}")
        stop = threading.Event()
        errors: list[BaseException] = []

        def work() -> None:
            n = 0
            try:
                while not stop.is_set():
                    world.order(f"busy-{n}")
                    request = world.ask("busy", lambda n=n: world.send(f"{n}@example.com"))
                    world.approve(request)
                    with world.gate.run("busy"):
                        world.send(f"{n}@example.com")
                    if n % 7 == 0:
                        world.store.seal()
                    if n % 11 == 10:
                        world.clock.advance(1)
                        world.store.prune(world.clock(), "ana")
                    n += 1
            except BaseException as error:
                errors.append(error)

        worker = threading.Thread(target=work)
        worker.start()
        try:
            reports = [world.verify() for _ in range(25)]
        finally:
            stop.set()
            worker.join()
        assert errors == []
        assert [report.problems for report in reports] == [[]] * 25
        assert reports[-1].events > reports[0].events


def _meanwhile(world: World, monkeypatch: pytest.MonkeyPatch, read: str, *steps: Any) -> None:
    """Run a step whenever the audit is about to read these rows."""
    take, waiting = world.store.snapshot, list(steps)

    @contextlib.contextmanager
    def snapshot() -> Iterator[Any]:
        with take() as rows:
            reading = getattr(rows, read)

            def read_later(*args: Any) -> Any:
                if waiting:
                    waiting.pop(0)()
                return reading(*args)

            setattr(rows, read, read_later)
            yield rows

    monkeypatch.setattr(world.store, "snapshot", snapshot)


def test_call_may_move_during_verification(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(World(tmp_path)) as world:
        request = world.ask("order-1")
        steps = (
            lambda: world.store.seal(),
            lambda: world.approve(request),
            lambda: world.store.seal(),
            lambda: world.order("order-0"),
        )
        for read in ("chains", "listed_calls", "runs_with_ids", "conversations"):
            _meanwhile(world, monkeypatch, read, *steps)
            assert world.verify().problems == []
            monkeypatch.undo()
            request = world.ask(f"{read}-1")
            steps = (*steps[:1], lambda one=request: world.approve(one), *steps[2:3])


@pytest.mark.parametrize("read", ["threads", "seals", "chain"])
def test_thread_may_be_sealed_during_verification(
    world: World, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    _meanwhile(world, monkeypatch, read, lambda: world.store.seal())
    report = world.verify()
    assert (report.problems, report.seals) == ([], 1)
    assert world.verify().unsealed == 0


@pytest.mark.parametrize(
    "read", ["chains", "listed_calls", "runs_with_ids", "threads", "effects", "call_counts"]
)
def test_run_may_be_pruned_during_verification(
    world: World, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    _meanwhile(world, monkeypatch, read, lambda: world.store.prune(world.clock() + 1, "ana"))
    assert world.verify().problems == []
    assert world.sql("SELECT count(*) FROM call") == [(0,)]


def test_store_verifies_after_death_anywhere(tmp_path: Path) -> None:
    copies = tmp_path / "copies"
    copies.mkdir()

    def boundary(name: str, when: str) -> None:
        folder = copies / f"{len(list(copies.iterdir())):02}-{name}-{when}"
        folder.mkdir()
        for file in (tmp_path / "store").glob("sayso.db*"):
            shutil.copy(file, folder)

    (tmp_path / "store").mkdir()
    world = World(tmp_path / "store", boundary=boundary)
    world.order("order-1")
    world.store.seal()
    world.clock.advance(10)
    world.store.prune(world.clock(), "ana")
    world.close()
    counts = []
    for folder in sorted(copies.iterdir()):
        store = SqliteStore(folder / "sayso.db", keys=Keyring.parse(KEY))
        report = verify(store)
        assert report.problems == []
        counts.append(report.events)
        store.close()
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert counts[-1] == 6


def test_restored_copy_is_reported(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.order("order-1")
    world.close()
    shutil.copy(world.path, tmp_path / "backup")
    world.open()
    world.order("order-2")
    world.close()
    shutil.copy(tmp_path / "backup", world.path)
    world.open()
    report = world.verify()
    assert [str(problem) for problem in report.problems] == [
        "the store went back in time: a copy was restored, or its newest rows were cut"
    ]
    world.store.mark_recovered()
    assert world.verify().ok
    world.close()


def test_cut_unsealed_threads_are_reported(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.order("order-1")
    world.store.seal()
    world.order("order-2")
    for table in ("event", "call", "run"):
        world.sql(f"DELETE FROM {table} WHERE thread = 'order-2'")
    world.sql("DELETE FROM thread WHERE id = 'order-2'")
    del world.store  # as if it had been killed: a store that is closed seals
    world.open()
    assert "its newest rows were cut" in str(world.verify().problems[0])
    world.close()
