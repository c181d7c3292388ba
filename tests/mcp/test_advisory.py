"""``sayso mcp``: an agent asks people, and returns for the answer."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp_world import ERAS, World, said

from sayso.gate import Gate
from sayso.mcp import advisory
from sayso.mcp.advisory import AdvisoryServer
from sayso.mcp.calls import TOOL_USE_ID
from sayso.stores import open_store

SAYSO = Path(sys.executable).with_name("sayso")


@asynccontextmanager
async def asking(world: World, era: str = "legacy", hold: float = 30) -> AsyncIterator[Client]:
    store = open_store(world.url)
    made = AdvisoryServer(lambda agent: Gate(store, agent=agent), agent="helper", hold=hold)
    try:
        async with made.running(), Client(made.server, mode=era, cache=None) as client:
            yield client
    finally:
        store.close()


async def answer_of(client: Client, tool: str, **args: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, args)
    assert not result.is_error, said(result)
    found: dict[str, Any] = result.structured_content
    return found


@pytest.mark.parametrize("era", ERAS)
async def test_question_is_answered(world: World, era: str) -> None:
    options = [{"label": "red"}, {"label": "blue", "description": "like the sky"}]
    async with asking(world, era) as client:
        async with world.person(lambda request: request.respond("blue")):
            answer = await answer_of(client, "ask_human", question="Which colour?", options=options)
        assert answer["status"] == "answered"
        assert answer["answer"] == "blue"
        assert answer["by"] == "ana"
        async with world.person(lambda request: request.reject("busy")):
            refused = await answer_of(client, "ask_human", question="And now?")
        assert refused["status"] == "rejected"
        assert "busy" in refused["message"]


@pytest.mark.parametrize("era", ERAS)
async def test_late_approval_is_found_by_ticket(world: World, era: str) -> None:
    async with asking(world, era, hold=0.3) as client:
        wanted = {"action": "Publish the notes", "details": {"version": 3}, "reason": "asked to"}
        pending = await answer_of(client, "request_approval", **wanted)
        assert pending["status"] == "pending"
        again = await answer_of(client, "request_approval", **wanted)
        assert again["ticket"] == pending["ticket"]
        (request,) = await world.asked()
        assert request.args == {"text": "Publish the notes", "details": {"version": 3}}
        assert request.note == "asked to"
        assert request.agent == "helper"
    await world.inbox.approve(request, by="ana")
    async with asking(world, era, hold=5) as client:
        for _ in range(2):
            known = await answer_of(client, "check_request", ticket=pending["ticket"])
            assert known["status"] == "approved"


async def test_calls_with_an_empty_id_are_two_requests(world: World) -> None:
    async with asking(world, hold=0.3) as client:
        for question in ("Which colour?", "Which size?"):
            await client.call_tool("ask_human", {"question": question}, meta={TOOL_USE_ID: ""})
        asked = await world.asked(2)
    assert {request.question.text for request in asked if request.question} == {
        "Which colour?",
        "Which size?",
    }


async def test_agent_withdraws_a_request(world: World) -> None:
    async with asking(world, hold=0.3) as client:
        pending = await answer_of(client, "request_approval", action="Delete it")
        gone = await answer_of(client, "cancel_request", ticket=pending["ticket"])
        assert gone["status"] == "cancelled"
        assert len(await world.inbox.pending()) == 0


async def test_wrong_calls_get_error_messages(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advisory, "_UNKNOWN_SECONDS", 0.01)
    async with asking(world) as client:
        for tool, args, message in (
            ("ask_human", {}, "cannot be read"),
            ("request_approval", {"action": "x", "approved": True}, "cannot be read"),
            ("check_request", {"ticket": "nope"}, "no request with this ticket"),
            ("decide", {}, "There is no tool"),
        ):
            result = await client.call_tool(tool, args)
            assert result.is_error
            assert message in said(result)


@pytest.mark.long
async def test_mcp_command_serves_the_tools(world: World) -> None:
    args = ["mcp", "--store", world.url, "--agent", "robot", "--hold", "1"]
    async with Client(StdioServerParameters(command=str(SAYSO), args=args)) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names == ["ask_human", "request_approval", "check_request", "cancel_request"]
        pending = await answer_of(client, "ask_human", question="Still there?")
        assert pending["status"] == "pending"
    (request,) = await world.asked()
    assert request.agent == "robot"
