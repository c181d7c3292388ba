"""Tasks of one event loop that commit at the same time are committed together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sayso import sync
from sayso.engine.commands import Propose
from sayso.errors import StoreError
from sayso.keys import Keyring
from sayso.rows import Message
from sayso.stores.sqlite import SqliteStore

KEYS = Keyring.ephemeral()


class Traced(SqliteStore):
    """Counts commits."""

    commits = 0

    def _commit_own(self, writer: Any, pos: int) -> None:
        self.commits += 1
        super()._commit_own(writer, pos)


@pytest.fixture
def store(path: Path) -> Iterator[Traced]:
    opened = Traced(path, keys=KEYS)
    yield opened
    opened.close()


def said(words: str, thread: str) -> Propose:
    return Propose(thread=thread, run=thread, agent="a", messages=(Message(thread, words),))


def told(store: SqliteStore, thread: str) -> list[str]:
    return [body for _, body in store.messages(thread)]


async def write_all(store: SqliteStore, *commands: Propose) -> list[Any]:
    writes = (sync.write(store, command) for command in commands)
    return await asyncio.gather(*writes, return_exceptions=True)


@pytest.fixture(params=[0.0, 1.0], ids=["quick disk", "slow disk"])
def pace(request: pytest.FixtureRequest, store: Traced) -> float:
    store._pace = float(request.param)
    return store._pace


@pytest.mark.usefixtures("pace")
def test_sixteen_tasks_need_a_few_commits(store: Traced) -> None:
    asyncio.run(write_all(store, *(said("hello", f"t{n}") for n in range(16))))
    assert [told(store, f"t{n}") for n in range(16)] == [["hello"]] * 16
    assert store.commits <= 2


@pytest.mark.usefixtures("pace")
def test_more_than_fit_into_one_commit(store: Traced) -> None:
    asyncio.run(write_all(store, *(said("hello", f"t{n}") for n in range(100))))
    assert [told(store, f"t{n}") for n in range(100)] == [["hello"]] * 100
    assert store.commits <= 6


@pytest.mark.usefixtures("pace")
def test_what_is_refused_touches_no_other(store: Traced) -> None:
    # The third is refused by the engine: another run of the thread is live. The fourth cannot be
    # stored at all.
    one, two, third, fourth, five = (
        said("one", "t1"),
        said("two", "t2"),
        Propose(thread="t1", run="another", agent="a"),
        said("half a \ud800 pair", "t4"),
        said("five", "t5"),
    )
    results = asyncio.run(write_all(store, one, two, third, fourth, five))
    assert [isinstance(result, Exception) for result in results] == [
        False,
        False,
        True,
        True,
        False,
    ]
    assert [told(store, f"t{n}") for n in (1, 2, 4, 5)] == [["one"], ["two"], [], ["five"]]
    assert store.run("another") is None


def test_one_that_is_cancelled_in_time_is_not_written(store: Traced) -> None:
    async def main() -> None:
        tasks = [asyncio.create_task(sync.write(store, said("hello", f"t{n}"))) for n in range(4)]
        await asyncio.sleep(0)  # the first is written, the others wait for each other
        tasks[2].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [
            list,
            list,
            asyncio.CancelledError,
            list,
        ]

    store._pace = 0.0
    asyncio.run(main())
    assert [told(store, f"t{n}") for n in range(4)] == [["hello"], ["hello"], [], ["hello"]]


@pytest.mark.usefixtures("pace")
def test_a_start_that_is_cancelled_is_undone(store: Traced) -> None:
    def undo(_: list[Any]) -> list[Propose]:
        return [said("undone", "t2")]

    async def main() -> None:
        others = [asyncio.create_task(sync.write(store, said("x", f"o{n}"))) for n in range(3)]
        start = asyncio.create_task(sync.write_start(store, undo, said("started", "t2")))
        await asyncio.sleep(0)
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
        await asyncio.gather(*others)

    asyncio.run(main())
    assert told(store, "t2") in (["started", "undone"], [])


@pytest.mark.usefixtures("pace")
def test_a_shielded_write_is_made_although_its_caller_is_cancelled(store: Traced) -> None:
    async def main() -> None:
        other = asyncio.create_task(sync.write(store, said("x", "o")))
        write = asyncio.create_task(sync.write_shielded(store, said("kept", "t")))
        await asyncio.sleep(0)
        write.cancel()
        await asyncio.gather(other, write, return_exceptions=True)

    asyncio.run(main())
    assert told(store, "t") == ["kept"]


def test_a_disk_that_fails_fails_them_all(store: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(writer: Any, pos: int) -> None:
        raise OSError(28, "No space left on device")

    store._pace = 0.0
    monkeypatch.setattr(store, "_commit_own", full)
    results = asyncio.run(write_all(store, *(said("hello", f"t{n}") for n in range(5))))
    assert {type(result) for result in results} == {StoreError}
    monkeypatch.undo()
    assert [told(store, f"t{n}") for n in range(5)] == [[]] * 5
    asyncio.run(write_all(store, said("later", "t1")))
    assert told(store, "t1") == ["later"]


def test_a_task_alone_commits_without_waiting(store: Traced) -> None:
    async def main() -> None:
        for n in range(3):
            body = sync.write_shielded(store, said("hello", f"t{n}"))
            with pytest.raises(StopIteration):
                body.send(None)

    store._pace = 0.0
    asyncio.run(main())
    assert store.commits == 3
