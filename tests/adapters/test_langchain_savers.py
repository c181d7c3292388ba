"""The guarded agent on PostgreSQL's savers, in both colours; the story runs on SQLite's."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

import pytest
from langchain_world import World
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from postgres_server import NoPostgres, shared_url

from sayso.adapters.langchain import guard

CALLS: Any = [("c1", "send", {"to": "ana"}), ("c2", "look", {"what": "sky"})]


@pytest.fixture(scope="module")
def url() -> str:
    try:
        return shared_url()
    except NoPostgres as none:
        pytest.skip(str(none))


def scripted(world: World, saver: Any) -> Any:
    return guard(world.agent(CALLS, "Done.", saver=saver), world.gate)


def test_sync_postgres_saver_resumes(url: str) -> None:
    world = World()
    thread = f"sync {id(world)}"

    def open_saver() -> AbstractContextManager[Any]:
        return PostgresSaver.from_conn_string(url)

    with open_saver() as saver:
        saver.setup()
        assert len(scripted(world, saver).run_sync("go", thread=thread).interruptions) == 2
    world.decide()
    with open_saver() as saver:
        assert scripted(world, saver).resume_sync(thread).output == "Done."
        assert scripted(world, saver).resume_sync(thread).output == "Done."
    assert sorted(world.ran) == [("look", "sky"), ("send", "ana", "Hello")]


def test_async_postgres_saver_resumes(url: str) -> None:
    world = World()
    thread = f"async {id(world)}"

    def open_saver() -> AbstractAsyncContextManager[Any]:
        return AsyncPostgresSaver.from_conn_string(url)

    async def begin() -> None:
        async with open_saver() as saver:
            await saver.setup()
            assert (await scripted(world, saver).run("go", thread=thread)).status == "paused"

    async def go_on() -> Any:
        async with open_saver() as saver:
            return await scripted(world, saver).resume(thread)

    asyncio.run(begin())
    world.decide()
    assert asyncio.run(go_on()).output == "Done."
    assert sorted(world.ran) == [("look", "sky"), ("send", "ana", "Hello")]
