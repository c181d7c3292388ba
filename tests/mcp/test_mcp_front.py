"""The HTTP front: both eras, tokens, and who sees which call."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp_world import ERAS, World, start_proxy, ticket_in
from waiting import until_async

from sayso.inbox import create_token

TEA = {"item": "tea"}


def token(world: World, name: str, role: str = "agent") -> str:
    made, _ = create_token(world.inbox.store, name, by="test", role=role)
    return made


@contextmanager
def listening(world: World, config: dict[str, Any], *options: str) -> Iterator[str]:
    """Start a proxy on a free port, and return its URL."""
    args = ["--config", str(world.write(config)), "--store", world.url, "--listen", "127.0.0.1:0"]
    process = start_proxy(*args, *options)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("Sayso proxy is at http://127.0.0.1:"), line
        yield line.split()[4]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        process.communicate()


@contextlib.asynccontextmanager
async def connected(url: str, token: str | None, mode: str = "auto") -> Any:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with (
        create_mcp_http_client(headers=headers) as http,
        Client(
            streamable_http_client(url, http_client=http, max_sse_event_size=None),
            mode=mode,
            cache=None,
        ) as client,
    ):
        yield client


def test_missing_token_is_refused_with_hint(world: World) -> None:
    agent = token(world, "robot")
    person = token(world, "ana", "reviewer")
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    accept = {"Accept": "application/json, text/event-stream"}
    with listening(world, world.config()) as url, httpx.Client(headers=accept) as http:
        refused = http.post(url, json=body)
        assert refused.status_code == 401
        challenge = refused.headers["WWW-Authenticate"]
        assert challenge.startswith("Bearer ")
        where = challenge.split('resource_metadata="')[1].split('"')[0]
        metadata = http.get(where).json()
        assert metadata["resource"] == url
        assert metadata["bearer_methods_supported"] == ["header"]
        for wrong in ("nonsense", person):
            again = http.post(url, json=body, headers={"Authorization": f"Bearer {wrong}"})
            assert again.status_code == 401
        foreign = http.post(
            url, json=body, headers={"Authorization": f"Bearer {agent}", "Host": "evil.example"}
        )
        assert foreign.status_code == 421


@pytest.mark.long
@pytest.mark.parametrize("era", ERAS)
async def test_client_with_a_token_asks_as_that_agent(world: World, era: str) -> None:
    robot = token(world, "robot")
    other = token(world, "other")
    with listening(world, world.config(hold=1)) as url:
        async with connected(url, robot, era) as client, connected(url, other, era) as stranger:
            held = await client.call_tool("order", TEA)
            (request,) = await world.asked()
            assert request.agent == "robot"
            theirs = await stranger.call_tool("sayso_wait", {"ticket": ticket_in(held)})
            assert theirs.is_error
            await world.inbox.approve(request, by="ana")
            result = await client.call_tool("sayso_wait", {"ticket": ticket_in(held)})
            assert result.structured_content == {"ordered": "tea", "count": 1}
            async with world.person(lambda request: request.approve()):
                mine = await stranger.call_tool("order", TEA)
            assert not mine.is_error
    assert world.effects == ["order tea 1"] * 2


async def test_returning_client_gets_its_call(world: World) -> None:
    config = world.config(hold=60)
    with listening(world, config, "--no-auth") as url:
        async with connected(url, None, "legacy") as client:
            call = asyncio.create_task(client.call_tool("order", TEA))
            (request,) = await world.asked()
            call.cancel()
        async with connected(url, None, "2026-07-28") as client:
            again = asyncio.create_task(client.call_tool("order", TEA))
            await asyncio.sleep(0.3)
            assert len(await world.inbox.pending()) == 1
            await world.inbox.approve(request, by="ana")
            assert (await again).structured_content == {"ordered": "tea", "count": 1}
    assert world.effects == ["order tea 1"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--listen", "0.0.0.0:0", "--no-auth"], "would let anyone call the tools"),
        (["--listen", "nowhere"], "write [ADDRESS:]PORT"),
        (["--stdio", "--listen", "1"], "not both"),
        (["--no-auth"], "--no-auth is for --listen"),
        (["--server", "http://127.0.0.1:1"], "SAYSO_TOKEN"),
    ],
)
def test_conflicting_options_are_refused(world: World, options: list[str], message: str) -> None:
    path = world.write({"mcpServers": {"shop": {"command": "true"}}})
    process = start_proxy("--config", str(path), "--store", world.url, *options)
    _, errors = process.communicate()
    assert process.returncode == 2
    assert message in errors
    assert "Traceback" not in errors


async def test_result_waits_for_reconnecting_client(
    world: World,
) -> None:
    config = world.config(hold=60)
    accept = {"Accept": "application/json, text/event-stream"}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}}
    hello["clientInfo"] = {"name": "t", "version": "1"}
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call"}
    with listening(world, config, "--no-auth") as url:
        async with httpx.AsyncClient(headers=accept, timeout=30) as http:
            first = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
            opened = await http.post(url, json=first)
            headers = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
            ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            await http.post(url, json=ready, headers=headers)
            body = {**call, "params": {"name": "order", "arguments": TEA}}
            async with http.stream("POST", url, json=body, headers=headers):
                (request,) = await world.asked()
            # The connection is closed here, in the middle of the call.
        await world.inbox.approve(request, by="ana")
        await until_async(lambda: world.effects == ["order tea 1"])
        async with connected(url, None) as client:
            result = await client.call_tool("order", TEA)
            assert result.structured_content == {"ordered": "tea", "count": 1}
    assert world.effects == ["order tea 1"]
