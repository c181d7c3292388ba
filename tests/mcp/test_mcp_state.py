"""Each client finds its own calls, not those of another live connection."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp_world import ERAS, World, ticket_in
from test_mcp_front import connected, listening, token
from test_proxy_faults import children_of, is_alive, on_stdio
from test_proxy_server import command, environment
from waiting import until_async

TEA = {"item": "tea"}


@asynccontextmanager
async def held(client: Client) -> AsyncIterator[asyncio.Task[Any]]:
    """Make a call that waits for a person."""
    call = asyncio.create_task(client.call_tool("order", TEA))
    try:
        yield call
    finally:
        call.cancel()
        await asyncio.wait({call})


@pytest.mark.long
async def test_equal_calls_of_two_processes_are_two(world: World) -> None:
    start = on_stdio(world, world.config())
    # How they are started makes no difference.
    other = start.model_copy(update={"env": {"XDG_STATE_HOME": str(world.folder), "HOME": "/"}})
    async with Client(start) as first, held(first) as one:
        await world.asked(1)
        async with Client(other) as second, held(second) as two:  # it sees the open call
            for request in await world.asked(2):
                await world.inbox.approve(request, by="ana")
            await asyncio.gather(one, two)
    assert world.effects == ["order tea 1"] * 2


@pytest.mark.long
async def test_tickets_of_two_processes_differ(world: World) -> None:
    config = world.config(hold=0.3)
    async with world.client(config=config) as first, world.client(config=config) as second:
        one = ticket_in(await first.call_tool("order", TEA))
        two = ticket_in(await second.call_tool("order", TEA))
        assert one != two
        assert ticket_in(await first.call_tool("order", TEA)) == one
        assert ticket_in(await second.call_tool("order", TEA)) == two
    async with world.client(config=config) as first, world.client(config=config) as second:
        again = {ticket_in(await client.call_tool("order", TEA)) for client in (first, second)}
        assert again == {one, two}


async def test_relisting_does_not_share_calls(world: World) -> None:
    config = world.config(hold=0.3)
    async with (
        world.proxy(config) as one,
        world.proxy(config) as two,
        Client(one.server, mode="legacy") as first,
        Client(two.server, mode="legacy") as second,
    ):
        ticket = ticket_in(await first.call_tool("order", TEA))
        await second.list_tools()
        await two._read_again(two._upstreams[0], "tools")
        assert ticket_in(await second.call_tool("order", TEA)) != ticket


@pytest.mark.parametrize("era", ERAS)
async def test_held_call_is_not_shared(world: World, era: str) -> None:
    config = world.config()
    async with world.client(era, config) as first, held(first):
        await world.asked(1)
        async with world.client(era, config) as second, held(second):
            await world.asked(2)


@pytest.mark.long
async def test_killed_proxy_leaves_its_call(world: World) -> None:
    config = world.config()
    others = set(children_of(os.getpid()))
    lost = asyncio.create_task(make_and_lose(world, config))
    (request,) = await world.asked()
    (proxy,) = [pid for pid in set(children_of(os.getpid())) - others if is_alive(pid)]
    os.kill(proxy, signal.SIGKILL)
    await asyncio.wait({lost})
    async with Client(on_stdio(world, config)) as client, held(client) as again:
        await asyncio.sleep(1)
        assert len(await world.inbox.pending()) == 1
        async with Client(on_stdio(world, config)) as other, held(other) as another:
            # The call has a new owner, which is alive.
            await world.asked(2)
            await world.inbox.approve(request, by="ana")
            assert (await again).structured_content == {"ordered": "tea", "count": 1}
            assert not another.done()
    assert world.effects == ["order tea 1"]


async def make_and_lose(world: World, config: dict[str, Any]) -> None:
    async with Client(on_stdio(world, config)) as client:
        await client.call_tool("order", TEA)


async def test_result_delivered_elsewhere_is_not_delivered_again(world: World) -> None:
    config = world.config(hold=0.3)
    async with world.client(config=config) as client:
        await client.call_tool("order", TEA)
    async with world.proxy(config) as one, world.proxy(config) as two:
        async with Client(two.server, cache=None) as client:
            await client.list_tools()  # it has found the open call
        (request,) = await world.asked()
        await world.inbox.approve(request, by="ana")
        await until_async(lambda: world.effects)
        async with Client(one.server, cache=None) as client:
            assert not ticket_or_none(await client.call_tool("order", TEA))
        async with Client(two.server, cache=None) as client:
            assert ticket_or_none(await client.call_tool("order", TEA))
    assert world.effects == ["order tea 1"]


def ticket_or_none(result: Any) -> str | None:
    return ticket_in(result) if result.structured_content is None else None


@pytest.mark.long
async def test_live_sessions_have_their_own_calls(world: World) -> None:
    with listening(world, world.config(hold=0.5), "--no-auth") as url:
        async with (
            connected(url, None, "legacy") as first,
            connected(url, None, "legacy") as second,
        ):
            one = ticket_in(await first.call_tool("order", TEA))
            two = ticket_in(await second.call_tool("order", TEA))
            assert one != two
            assert ticket_in(await first.call_tool("order", TEA)) == one
        async with connected(url, None, "legacy") as third:
            assert ticket_in(await third.call_tool("order", TEA)) in {one, two}


@pytest.mark.long
async def test_remote_proxies_have_their_own_calls(world: World, served: str) -> None:
    config = world.config(hold=0.5)
    program, *args = command(world, served, config)
    env = environment(world, token(world, "robot"))
    start = StdioServerParameters(command=program, args=args, env=env)
    async with Client(start) as first, Client(start) as second:
        one = ticket_in(await first.call_tool("order", TEA))
        two = ticket_in(await second.call_tool("order", TEA))
        assert one != two
        await world.asked(2)
    async with Client(start) as first, Client(start) as second:
        again = {ticket_in(await client.call_tool("order", TEA)) for client in (first, second)}
        assert again == {one, two}


async def test_unwritable_folder_is_a_warning(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    (world.folder / "sayso.db.proxies").touch()
    async with world.client(config=world.config(hold=0.3)) as client:
        assert ticket_in(await client.call_tool("order", TEA))
    assert "sayso.db.proxies" in caplog.text


async def test_ended_proxy_leaves_no_file(world: World) -> None:
    async with world.client(config=world.config(hold=0.3)) as client:
        await client.list_tools()
        assert len(list((world.folder / "sayso.db.proxies").iterdir())) == 1
    assert list((world.folder / "sayso.db.proxies").iterdir()) == []
