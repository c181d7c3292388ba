"""A server that is not Sayso's: one paused call must not take it down."""

from __future__ import annotations

from typing import Any

import pytest
from mcp.client import Client
from mcp.server import MCPServer

import sayso
from sayso.testing import ScriptedReviewer


def server(gate: sayso.Gate, ran: list[str], **options: Any) -> MCPServer:
    """A real MCP server with one guarded tool."""
    mcp = MCPServer("orders")

    @gate.guard(needs_approval=True)
    async def pay(order: str) -> str:
        ran.append(order)
        return f"paid {order}"

    @mcp.tool()
    @sayso.catch_paused(**options)
    async def refund(order: str) -> str:
        async with gate.run(f"refund {order}"):
            return await pay(order)

    return mcp


def text_of(result: Any) -> str:
    return str(result.content[0].text)


async def test_paused_call_returns_a_result() -> None:
    ran: list[str] = []
    gate = sayso.Gate("memory://", wait=0)
    inbox = sayso.Inbox(gate.store)
    async with Client(server(gate, ran)) as client:
        first = text_of(await client.call_tool("refund", {"order": "a-1"}))
        (request,) = (await inbox.pending()).items
        assert request.id in first
        assert "Nothing has run" in first
        await inbox.decide(request.id, request.approve(), by="ana")
        assert text_of(await client.call_tool("refund", {"order": "a-1"})) == "paid a-1"
        assert text_of(await client.call_tool("refund", {"order": "a-1"})) == "paid a-1"
    assert ran == ["a-1"]


async def test_result_of_pause_can_be_customized() -> None:
    gate = sayso.Gate("memory://", wait=0)
    own = server(gate, [], result=lambda paused: f"later: {len(paused.requests)}")
    async with Client(own) as client:
        assert text_of(await client.call_tool("refund", {"order": "a-1"})) == "later: 1"


def test_catch_paused_wraps_sync_functions() -> None:
    gate = sayso.Gate("memory://", wait=0)
    asks = sayso.catch_paused(lambda: gate.confirm_sync("Ship it?"))
    assert "Waiting for a person" in asks()
    yes = ScriptedReviewer(gate.store, [sayso.Request.approve])
    with_people = sayso.Gate(gate.store, wait=5, channels=[yes])
    assert sayso.catch_paused(lambda: with_people.confirm_sync("Ship it?"))() is True


def test_error_passes_through_catch_paused() -> None:
    @sayso.catch_paused
    def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fails()
