"""The proxy passes on resources, prompts, completions, changes and elicitations."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    ElicitResult,
    EmptyResult,
    PromptReference,
    ResourceTemplateReference,
    ResourceUpdatedNotification,
    SubscribeRequest,
    SubscribeRequestParams,
    ToolListChangedNotification,
    UnsubscribeRequest,
    UnsubscribeRequestParams,
)
from mcp_world import ERAS, World, said
from waiting import until_async

from sayso.mcp.upstreams import Upstream

ALLOW = '[[rule]]\ntool = "*"\nverdict = "allow"\n'
ALLOW_READS = '[[rule]]\ntool = "*"\nverdict = "allow"\neffect = "read"\n'


@pytest.mark.parametrize("era", ERAS)
async def test_resources_prompts_and_completions(world: World, era: str) -> None:
    async with world.client(era) as client:
        resources = (await client.list_resources()).resources
        assert [str(one.uri) for one in resources] == ["shop://hours"]
        templates = (await client.list_resource_templates()).resource_templates
        assert [one.uri_template for one in templates] == ["shop://items/{item}"]
        (hours,) = (await client.read_resource("shop://hours")).contents
        assert hours.text == "9 to 5"
        (about,) = (await client.read_resource("shop://items/tea")).contents
        assert about.text == "about tea"
        assert [one.name for one in (await client.list_prompts()).prompts] == ["greet"]
        (message,) = (await client.get_prompt("greet", {"name": "Ana"})).messages
        assert message.content.text == "Greet Ana."
        asked: Any
        for asked in (
            PromptReference(name="greet"),
            ResourceTemplateReference(uri="shop://items/{item}"),
        ):
            found = await client.complete(asked, {"name": "name", "value": "x"})
            assert found.completion.values == ["xana", "xbo"]
        with pytest.raises(Exception, match="cannot be read"):
            await client.read_resource("shop://nothing")


async def test_resources_of_two_servers_are_prefixed(world: World) -> None:
    other = world.folder / "other"
    other.mkdir()
    servers = {"a": world.shop(), "b": world.shop(folder=other)}
    async with world.client(config=world.config(servers=servers)) as client:
        found = await client.get_prompt("b__greet", {"name": "Bo"})
        assert found.messages[0].content.text == "Greet Bo."
        ref = PromptReference(name="a__greet")
        completed = await client.complete(ref, {"name": "name", "value": "y"})
        assert completed.completion.values == ["yana", "ybo"]


@pytest.mark.parametrize("behind", ["auto", "legacy"])
async def test_changed_list_is_announced_to_a_legacy_client(world: World, behind: str) -> None:
    heard: list[object] = []

    async def hear(message: object) -> None:
        heard.append(message)

    config = world.config(servers={"shop": world.shop(protocol=behind)})
    async with world.client("legacy", config, ALLOW, message_handler=hear) as client:
        before = {tool.name for tool in (await client.list_tools()).tools}
        assert said(await client.call_tool("grow", {})) == "grown"
        await until_async(lambda: any(isinstance(m, ToolListChangedNotification) for m in heard))
        after = {tool.name for tool in (await client.list_tools()).tools}
        assert after - before == {"sprout"}
        assert said(await client.call_tool("sprout", {})) == "new"


@pytest.mark.long
async def test_changed_list_is_announced_to_a_modern_client(world: World) -> None:
    config = world.config(servers={"shop": world.stdio_shop(protocol="legacy")})
    async with world.client("2026-07-28", config, ALLOW) as client:
        await client.list_tools()
        async with client.listen(tools_list_changed=True) as events:
            await client.call_tool("grow", {})
            async with asyncio.timeout(20):
                async for _ in events:
                    break
        assert "sprout" in {tool.name for tool in (await client.list_tools()).tools}


@pytest.mark.parametrize("behind", ["auto", "legacy"])
@pytest.mark.parametrize("era", ERAS)
async def test_watched_resource_is_reported_when_it_changes(
    world: World, era: str, behind: str
) -> None:
    heard: list[object] = []

    async def hear(message: object) -> None:
        heard.append(message)

    config = world.config(servers={"shop": world.shop(protocol=behind)})
    async with world.client(era, config, ALLOW, message_handler=hear) as client:
        if era == "legacy":
            watch = SubscribeRequest(params=SubscribeRequestParams(uri="shop://hours"))
            await client.session.send_request(watch, EmptyResult)
            await client.call_tool("reopen", {"hours": "8 to 4"})
            await until_async(lambda: ResourceUpdatedNotification in map(type, heard))
            (update,) = [m for m in heard if isinstance(m, ResourceUpdatedNotification)]
            assert str(update.params.uri) == "shop://hours"
        else:
            async with client.listen(resource_subscriptions=["shop://hours"]) as events:
                await client.call_tool("reopen", {"hours": "8 to 4"})
                async with asyncio.timeout(20):
                    update = await anext(aiter(events))
            assert update.uri == "shop://hours"
        (hours,) = (await client.read_resource("shop://hours")).contents
        assert hours.text == "8 to 4"


async def test_unsubscribed_client_hears_nothing(world: World) -> None:
    heard: list[object] = []

    async def hear(message: object) -> None:
        heard.append(message)

    async with world.client("legacy", world.config(), ALLOW, message_handler=hear) as client:
        watch = SubscribeRequest(params=SubscribeRequestParams(uri="shop://hours"))
        await client.session.send_request(watch, EmptyResult)
        await client.call_tool("reopen", {"hours": "8 to 4"})
        await until_async(lambda: ResourceUpdatedNotification in map(type, heard))
        heard.clear()
        leave = UnsubscribeRequest(params=UnsubscribeRequestParams(uri="shop://hours"))
        await client.session.send_request(leave, EmptyResult)
        await client.call_tool("reopen", {"hours": "9 to 5"})
        await asyncio.sleep(0.2)
    assert heard == []


@pytest.mark.long
@pytest.mark.parametrize("behind", ["auto", "legacy"])
async def test_resource_is_watched_after_server_restart(world: World, behind: str) -> None:
    config = world.config(servers={"shop": world.stdio_shop(protocol=behind)}, hold=1)
    async with world.client("2026-07-28", config, ALLOW) as client:
        watched = ["shop://hours", "shop://nothing"]
        async with client.listen(resource_subscriptions=watched) as events:
            await client.call_tool("crash", {})
            async with asyncio.timeout(60):
                while (await client.call_tool("reopen", {"hours": "8 to 4"})).is_error:
                    await asyncio.sleep(0.1)
                update = await anext(aiter(events))
            assert update.uri == "shop://hours"


@pytest.mark.long
@pytest.mark.parametrize("behind", ["auto", "legacy"])
async def test_change_during_server_restart_is_reported(
    world: World, behind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that was started again takes calls before its resources are watched again."""
    subscribe, may_subscribe = Upstream._subscribe, asyncio.Event()
    may_subscribe.set()

    async def delayed(self: Upstream, client: Client, uri: str) -> None:
        await may_subscribe.wait()
        await subscribe(self, client, uri)

    monkeypatch.setattr(Upstream, "_subscribe", delayed)
    config = world.config(servers={"shop": world.stdio_shop(protocol=behind)}, hold=1)
    async with (
        world.client("2026-07-28", config, ALLOW) as client,
        client.listen(resource_subscriptions=["shop://hours"]) as events,
    ):
        may_subscribe.clear()
        await client.call_tool("crash", {})
        async with asyncio.timeout(60):
            while (await client.call_tool("reopen", {"hours": "8 to 4"})).is_error:
                await asyncio.sleep(0.1)
            may_subscribe.set()
            update = await anext(aiter(events))
        assert update.uri == "shop://hours"


async def test_unreported_resource_cannot_be_watched(world: World) -> None:
    (world.folder / "quiet").touch()
    config = world.config(servers={"shop": world.stdio_shop(protocol="legacy")})
    async with world.client("legacy", config) as client:
        watch = SubscribeRequest(params=SubscribeRequestParams(uri="shop://hours"))
        with pytest.raises(MCPError, match="does not report changes of resources"):
            await client.session.send_request(watch, EmptyResult)


async def answer_large(context: object, params: Any) -> ElicitResult:
    assert params.message == "Which size?"
    await asyncio.sleep(0.01)
    return ElicitResult(action="accept", content={"size": "large"})


@pytest.mark.parametrize("behind", ["auto", "legacy"])
@pytest.mark.parametrize("era", ERAS)
async def test_elicitation_reaches_the_clients_user(world: World, era: str, behind: str) -> None:
    config = world.config(servers={"shop": world.shop(protocol=behind)})
    async with (
        world.client(era, config, elicitation_callback=answer_large) as client,
        world.person(lambda request: request.approve()),
    ):
        assert said(await client.call_tool("wrap", {})) == "wrapped large"


@pytest.mark.parametrize("era", ERAS)
async def test_instant_decline_is_a_cancellation(world: World, era: str) -> None:
    async def decline(context: object, params: Any) -> ElicitResult:
        return ElicitResult(action="decline")

    config = world.config(servers={"shop": world.shop(protocol="legacy")})
    async with world.client(era, config, ALLOW, elicitation_callback=decline) as client:
        assert said(await client.call_tool("wrap", {})) == "not wrapped: cancel"


async def test_slow_decline_is_an_answer(world: World) -> None:
    async def decline(context: object, params: Any) -> ElicitResult:
        await asyncio.sleep(0.7)
        return ElicitResult(action="decline")

    config = world.config(servers={"shop": world.shop()})
    async with world.client("legacy", config, ALLOW, elicitation_callback=decline) as client:
        assert said(await client.call_tool("wrap", {})) == "not wrapped: decline"


async def test_client_without_elicitation_does_not_hang(world: World) -> None:
    async with world.client("legacy", policy=ALLOW) as client:
        assert said(await client.call_tool("wrap", {})) == "not wrapped: cancel"


@pytest.mark.parametrize("era", ERAS)
async def test_cancelled_read_is_cancelled_at_the_server(world: World, era: str) -> None:
    async with world.client(era, policy=ALLOW_READS) as client:
        call = asyncio.create_task(client.call_tool("slow", {"seconds": 60}))
        await until_async(lambda: "slow began " in world.effects)
        call.cancel()
        await until_async(lambda: "slow cancelled " in world.effects)
