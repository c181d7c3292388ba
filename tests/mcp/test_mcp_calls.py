"""Long waits: progress, tickets, retries of the same call, clients that leave, restarts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mcp import Client
from mcp_world import ERAS, World, said, ticket_in
from waiting import until_async

from sayso.mcp import calls as mcp_calls
from sayso.mcp.calls import TOOL_USE_ID

TEA = {"item": "tea"}


async def approve_all(world: World, count: int = 1) -> None:
    for request in await world.asked(count):
        await world.inbox.approve(request, by="ana")


@pytest.mark.parametrize("era", ERAS)
async def test_ticket_waits_for_the_result(world: World, era: str) -> None:
    async with world.client(era, world.config(hold=0.3)) as client:
        first = await client.call_tool("order", TEA)
        assert not first.is_error
        again = await client.call_tool("sayso_wait", {"ticket": ticket_in(first)})
        assert ticket_in(again) == ticket_in(first)
        await approve_all(world)
        await until_async(lambda: world.effects)
        ended = await client.call_tool("sayso_wait", {"ticket": ticket_in(first)})
        assert ended.structured_content == {"ordered": "tea", "count": 1}
        # A ticket stays valid: a client may have lost the answer.
        repeated = await client.call_tool("sayso_wait", {"ticket": ticket_in(first)})
        assert repeated.structured_content == {"ordered": "tea", "count": 1}
    assert world.effects == ["order tea 1"]


async def test_repeated_call_finds_its_request(world: World) -> None:
    async with world.client(config=world.config(hold=0.3)) as client:
        first = await client.call_tool("order", TEA)
        second = await client.call_tool("order", {"count": 1, "item": "tea"})
        assert ticket_in(second) == ticket_in(first)
        assert len(await world.inbox.pending()) == 1
        await approve_all(world)
        third = await client.call_tool("order", TEA)
        assert third.structured_content["ordered"] == "tea"
        assert world.effects == ["order tea 1"]
        # It was handed over, so the same call is a new one.
        fourth = await client.call_tool("order", TEA)
        assert ticket_in(fourth) != ticket_in(first)
    assert world.effects == ["order tea 1"]


async def test_waiting_calls_of_an_agent_are_limited(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_calls, "MAX_WAITING", 1)
    async with world.client(config=world.config(hold=0.3)) as client:
        first = await client.call_tool("order", TEA)
        refused = await client.call_tool("order", {"item": "coffee"})
        assert refused.is_error
        assert "already wait for a decision" in said(refused)
        assert ticket_in(await client.call_tool("order", TEA)) == ticket_in(first)
        assert len(await world.inbox.pending()) == 1
    assert world.effects == []


async def test_parallel_equal_calls_are_two(world: World) -> None:
    async with world.client() as client:
        both = [asyncio.create_task(client.call_tool("order", TEA)) for _ in range(2)]
        await approve_all(world, 2)
        await asyncio.gather(*both)
    assert world.effects == ["order tea 1"] * 2


async def test_tool_use_id_identifies_the_call(world: World) -> None:
    async def order(client: Client, id: str, **args: Any) -> Any:
        return await client.call_tool("order", {**TEA, **args}, meta={TOOL_USE_ID: id})

    async with world.client(config=world.config(hold=0.3)) as client:
        first = await order(client, "toolu_1")
        await approve_all(world)
        await until_async(lambda: world.effects)
        done = await order(client, "toolu_1")
        same = await order(client, "toolu_1")
        assert done.structured_content == same.structured_content == {"ordered": "tea", "count": 1}
        assert ticket_in(first)
        other = await order(client, "toolu_1", count=5)
        assert other.is_error
        assert "belongs to another one" in said(other)
        assert "sayso_wait" in said(await order(client, "toolu_2"))
    assert world.effects == ["order tea 1"]


async def test_progress_arrives_during_the_wait(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_calls, "PROGRESS_SECONDS", 0.05)
    heard: list[tuple[float, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, message))

    async with world.client() as client:
        call = asyncio.create_task(client.call_tool("bake", {}, progress_callback=hear))
        await world.asked()
        await until_async(lambda: len(heard) >= 2)
        await approve_all(world)
        assert said(await call) == "a cake"
    values = [value for value, _ in heard]
    assert values == sorted(set(values))
    assert (heard[-1][0], heard[-1][1]) == (3, "step 3")
    assert heard[0][1] == "waiting for a decision"


async def test_hold_depends_on_client_name(world: World) -> None:
    config = world.config(hold=60, clients={"hasty": {"hold": 0.2}})
    from mcp_types import Implementation

    info = Implementation(name="hasty", version="1")
    async with world.client(config=config, client_info=info) as client:
        assert ticket_in(await client.call_tool("order", TEA))


async def test_pending_call_outlives_its_client(world: World) -> None:
    async with world.proxy() as proxy:
        async with Client(proxy.server, mode="legacy", cache=None) as client:
            call = asyncio.create_task(client.call_tool("order", TEA))
            await world.asked()
            call.cancel()
        await approve_all(world)
        await until_async(lambda: world.effects == ["order tea 1"])
        async with Client(proxy.server, mode="legacy", cache=None) as client:
            result = await client.call_tool("order", TEA)
            assert result.structured_content == {"ordered": "tea", "count": 1}
    assert world.effects == ["order tea 1"]


@pytest.mark.parametrize("era", ERAS)
async def test_on_abandon_cancels_the_request(world: World, era: str) -> None:
    async with world.client(era, world.config(on_abandon="cancel")) as client:
        call = asyncio.create_task(client.call_tool("order", TEA))
        await world.asked()
        call.cancel()

        async def gone() -> bool:
            return len(await world.inbox.pending()) == 0

        await until_async(gone)
        (request,) = await world.inbox.history()
        assert request.status == "cancelled"
    assert world.effects == []


async def test_on_abandon_leaves_running_call_in_doubt(
    world: World,
) -> None:
    policy = '[[rule]]\ntool = "slow"\nverdict = "allow"\n'
    async with world.client(config=world.config(on_abandon="cancel"), policy=policy) as client:
        call = asyncio.create_task(client.call_tool("slow", {"seconds": 60}))
        await until_async(lambda: "slow began " in world.effects)
        call.cancel()
        await until_async(lambda: "slow cancelled " in world.effects)
        (request,) = await world.asked()
        assert request.kind == "in_doubt"


async def test_running_call_outlives_its_client(world: World) -> None:
    policy = '[[rule]]\ntool = "slow"\nverdict = "allow"\n'
    async with world.client(policy=policy) as client:
        args = {"seconds": 1}
        call = asyncio.create_task(client.call_tool("slow", args))
        await until_async(lambda: "slow began " in world.effects)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert said(await client.call_tool("slow", args)) == "done"
    assert world.effects == ["slow began ", "slow "]


async def test_request_is_found_again_after_a_restart(world: World) -> None:
    config = world.config(hold=0.3)
    async with world.client(config=config) as client:
        first = await client.call_tool("order", TEA)
    async with world.client("2026-07-28", config) as client:
        second = await client.call_tool("order", TEA)
        assert ticket_in(second) == ticket_in(first)
        assert len(await world.inbox.pending()) == 1


async def test_call_approved_during_downtime_runs(world: World) -> None:
    config = world.config(hold=0.3)
    async with world.client(config=config) as client:
        first = await client.call_tool("order", TEA)
    await approve_all(world)
    assert world.effects == []
    async with world.proxy(config) as proxy:
        # Nobody asked for it again.
        await until_async(lambda: world.effects == ["order tea 1"])
        async with Client(proxy.server, cache=None) as client:
            result = await client.call_tool("sayso_wait", {"ticket": ticket_in(first)})
            assert result.structured_content == {"ordered": "tea", "count": 1}
            # Handed over: a new call asks again.
            assert "needs a person's approval" in said(await client.call_tool("order", TEA))
    assert world.effects == ["order tea 1"]


async def test_result_is_not_delivered_twice(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    listed, go_on = asyncio.Event(), asyncio.Event()
    original = mcp_calls.read

    async def read(store: Any, function: Any, *args: Any) -> Any:
        found = await original(store, function, *args)
        if function.__name__ == "_open_in_store":
            listed.set()
            await go_on.wait()
        return found

    async with (
        world.proxy() as proxy,
        Client(proxy.server, mode="legacy", cache=None) as client,
    ):
        first = asyncio.create_task(client.call_tool("order", TEA))
        await world.asked()
        monkeypatch.setattr(mcp_calls, "read", read)
        # The proxy does this whenever a server's tools are listed again.
        resuming = asyncio.create_task(proxy._calls_of(proxy.config.agent).resume_open_calls())
        await listed.wait()
        await approve_all(world)
        assert (await first).structured_content == {"ordered": "tea", "count": 1}
        go_on.set()
        await resuming
        second = asyncio.create_task(client.call_tool("order", TEA))
        await world.asked()
        assert not second.done()
    assert world.effects == ["order tea 1"]


async def test_undelivered_result_survives_a_restart(world: World) -> None:
    config = world.config(hold=0.3)
    async with world.client(config=config) as client:
        await client.call_tool("order", TEA)
        await approve_all(world)
        await until_async(lambda: world.effects)
    async with world.client(config=config) as client:
        result = await client.call_tool("order", TEA)
        assert result.structured_content == {"ordered": "tea", "count": 1}
        assert "needs a person's approval" in said(await client.call_tool("order", TEA))
    assert world.effects == ["order tea 1"]


async def test_unknown_ticket_is_answered_slowly(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sayso.mcp import front

    monkeypatch.setattr(front, "_UNKNOWN_SECONDS", 0.2)
    async with world.client() as client:
        began = asyncio.get_running_loop().time()
        result = await client.call_tool("sayso_wait", {"ticket": "nope"})
        assert asyncio.get_running_loop().time() - began >= 0.2
        assert result.is_error
        assert "There is no call with the ticket 'nope'" in said(result)
        missing = await client.call_tool("sayso_wait", {})
        assert missing.is_error


async def test_polling_model_is_asked_to_stop(world: World) -> None:
    async with world.client(config=world.config(hold=0.1)) as client:
        result = await client.call_tool("order", TEA)
        for _ in range(3):
            result = await client.call_tool("sayso_wait", {"ticket": ticket_in(result)})
        assert "Stop waiting now" in said(result)


async def test_free_reads_do_not_wait_behind_held_calls(world: World) -> None:
    servers = {"shop": world.shop(trust_hints=True)}
    async with world.client(config=world.config(servers=servers)) as client:
        held = [
            asyncio.create_task(client.call_tool("order", {"item": name})) for name in ("a", "b")
        ]
        requests = await world.asked(2)
        found = await client.call_tool("stock", TEA)
        assert found.structured_content["count"] == 3
        second = next(request for request in requests if request.args["item"] == "b")
        await world.inbox.approve(second, by="ana")
        assert (await held[1]).structured_content["ordered"] == "b"
        assert not held[0].done()
        await approve_all(world)
        await held[0]


async def test_tickets_of_another_session_are_unknown(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sayso.mcp import front

    monkeypatch.setattr(front, "_UNKNOWN_SECONDS", 0.01)
    async with world.client(config=world.config(hold=0.3)) as client:
        first = await client.call_tool("order", TEA)
    async with world.client(config=world.config(hold=0.3, session="other")) as client:
        result = await client.call_tool("sayso_wait", {"ticket": ticket_in(first)})
        assert result.is_error
        again = await client.call_tool("order", TEA)
        assert ticket_in(again) != ticket_in(first)


async def test_slow_allowed_call_returns_a_ticket(world: World) -> None:
    policy = '[[rule]]\ntool = "slow"\nverdict = "allow"\n'
    async with world.client(config=world.config(hold=0.4), policy=policy) as client:
        args = {"seconds": 1.0}
        first = await client.call_tool("slow", args)
        assert "still running" in said(first)
        result = first
        while "sayso_wait" in said(result):
            result = await client.call_tool("sayso_wait", {"ticket": ticket_in(first)})
        assert said(result) == "done"
    assert world.effects == ["slow began ", "slow "]


@pytest.mark.long
async def test_calls_survive_restart_on_postgres(on_postgres: World) -> None:
    world, config = on_postgres, on_postgres.config(hold=0.5)
    async with world.client(config=config) as client:
        first = await client.call_tool("order", TEA)
    await approve_all(world)
    async with world.proxy(config) as proxy:
        await until_async(lambda: world.effects == ["order tea 1"])
        async with Client(proxy.server, cache=None) as client:
            result = await client.call_tool("sayso_wait", {"ticket": ticket_in(first)})
            assert result.structured_content == {"ordered": "tea", "count": 1}
            assert "needs a person's approval" in said(await client.call_tool("order", TEA))
    assert world.effects == ["order tea 1"]
