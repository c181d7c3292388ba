"""When a worker looks at the store: not at every commit of others, and never too late."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from served import mailer
from waiting import until_async

import sayso
from sayso.agent.agent import lend_store
from sayso.channels.kit import sender
from sayso.engine.commands import Note
from sayso.inbox import Inbox
from sayso.server import app, create_app, feed, webhooks
from sayso.stores.memory import MemoryStore
from sayso.stores.sqlite import SqliteStore
from sayso.worker import Worker, worker


class Counting(MemoryStore):
    """Counts what is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()

    def ready(self, *args: Any, **options: Any) -> Any:
        self.asked["ready"] += 1
        return super().ready(*args, **options)

    def next_due(self, *args: Any) -> Any:
        self.asked["next_due"] += 1
        return super().next_due(*args)


@asynccontextmanager
async def working(store: Counting, agent: sayso.Agent) -> AsyncIterator[Worker]:
    lend_store(agent, store)
    crew = Worker([agent], store)
    task = asyncio.create_task(crew.run())
    await until_async(lambda: store.asked["ready"])
    try:
        yield crew
    finally:
        crew.stop()
        await asyncio.wait_for(task, 60)


async def decided(store: Counting, agent: sayso.Agent, thread: str) -> str:
    result = await agent.run("Welcome ana", thread=thread)
    request = result.interruptions[0]
    await Inbox(store).decide(request.id, request.approve(), by="ben")
    return result.run


@pytest.fixture(autouse=True)
def _only_by_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker would find by itself after a while is found by nothing else here."""
    monkeypatch.setattr(worker, "POLL_SECONDS", 3600.0)


async def test_work_in_progress_is_not_searched_through() -> None:
    store = Counting()
    async with working(store, mailer()):
        before = store.asked.copy()
        for n in range(20):
            store.transact(Note(thread="t", type="said", actor=f"{n}"))
            looks = store.asked["next_due"]
            await until_async(lambda looks=looks: store.asked["next_due"] > looks)
        assert store.asked["ready"] == before["ready"]


async def test_worker_takes_a_due_run() -> None:
    sent: list[str] = []
    store, agent = Counting(), mailer(sent=sent)
    async with working(store, agent):
        run = await decided(store, agent, "t")
        await until_async(lambda: store.run(run).status == "done")  # type: ignore[union-attr]
    assert sent == ["ana@example.com: Hello"]


async def test_worker_takes_runs_of_leaving_workers() -> None:
    sent: list[str] = []
    store, agent = Counting(), mailer(sent=sent)
    async with working(store, agent) as crew:
        with crew.leaving("t"):
            looks = store.asked["ready"]
            run = await decided(store, agent, "t")
            await until_async(lambda: store.asked["ready"] > looks)
            assert (crew.busy, sent) == (0, [])
        await until_async(lambda: store.run(run).status == "done")  # type: ignore[union-attr]
    assert sent == ["ana@example.com: Hello"]


async def test_worker_finds_a_late_commit_by_polling(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "POLL_SECONDS", 0.05)
    sent: list[str] = []
    store, agent = Counting(), mailer(sent=sent)
    async with working(store, agent) as crew:
        crew._seen = store.now() + 3_600_000_000  # as if it had looked past it already
        run = await decided(store, agent, "t")
        await until_async(lambda: store.run(run).status == "done")  # type: ignore[union-attr]
    assert sent == ["ana@example.com: Hello"]


async def test_restored_store_is_logged_in_one_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, agent = Counting(), mailer()
    lend_store(agent, store)
    await decided(store, agent, "t")
    monkeypatch.setattr(store, "restored", lambda: True)
    async with working(store, agent):
        await until_async(lambda: "sayso recover" in caplog.text)
    assert "Traceback" not in caplog.text


async def test_agent_on_another_store_is_refused() -> None:
    """It would be waited for in vain."""
    agent = mailer()
    lend_store(agent, MemoryStore())
    with pytest.raises(ValueError, match="uses the store memory://, not memory://"):
        Worker([agent], MemoryStore())
    with pytest.raises(ValueError, match="uses the store"):
        create_app(agent, store="memory://")


async def test_stop_does_not_wait_for_a_lost_store() -> None:
    looks, back = threading.Event(), threading.Event()

    class Away(MemoryStore):
        def next_due(self, *args: Any) -> Any:
            looks.set()
            back.wait(60)
            return super().next_due(*args)

    store = Away()
    store.quick_reads = False
    crew = Worker([], store)
    task = asyncio.create_task(crew.run())
    try:
        await until_async(looks.is_set)
        crew.stop()
        await asyncio.wait_for(task, 20)
        assert not back.is_set()
    finally:
        back.set()


def test_stop_after_the_end_is_no_error() -> None:
    crew = Worker([], MemoryStore())

    async def work() -> None:
        task = asyncio.create_task(crew.run())
        await asyncio.sleep(0)
        crew.stop()
        await task

    asyncio.run(work())
    crew.stop()


@pytest.mark.parametrize("concurrency", [-1, 1.5, True, "4"])
def test_concurrency_must_be_a_whole_number(concurrency: Any) -> None:
    with pytest.raises(ValueError, match="pass a whole number, or 0 for none"):
        Worker([], MemoryStore(), concurrency=concurrency)


async def test_closed_store_ends_worker_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "POLL_SECONDS", 0.05)
    store = SqliteStore(tmp_path / "sayso.db")
    task = asyncio.create_task(Worker([], store).run())
    await asyncio.sleep(0.2)
    store.close()
    await asyncio.wait_for(task, 20)
    assert len(caplog.records) == 1
    assert "is closed: open it again" in caplog.text


async def test_closed_store_ends_background_tasks_of_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "POLL_SECONDS", 0.05)
    for module, name in ((app, "SEAL_CHECK"), (feed, "_POLL"), (sender, "_POLL")):
        monkeypatch.setattr(module, name, 0.05)
    monkeypatch.setenv("SAYSO_KEY", "k" * 43)
    store = SqliteStore(tmp_path / "sayso.db")
    endpoint = webhooks.Endpoint("https://example.com/hook", f"whsec_{'s' * 32}")
    server = create_app(store=store, webhooks=[endpoint])
    others = asyncio.all_tasks()
    async with server.router.lifespan_context(server):
        live = server.state.sayso.feed
        reader = asyncio.create_task(anext(live.follow(store.tail(), 60.0)))
        await until_async(lambda: live.readers)
        store.close()
        await until_async(lambda: asyncio.all_tasks() <= others)
    await asyncio.gather(reader, return_exceptions=True)
    assert [record.name for record in caplog.records] == ["sayso.worker"]
