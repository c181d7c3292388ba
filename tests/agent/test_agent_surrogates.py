"""Half a surrogate pair is not valid text: the run continues wherever one appears."""

from __future__ import annotations

import pytest
from agent_world import World

import sayso
from sayso.agent.models.base import HostedApproval, Message, ModelCall, ModelReply
from sayso.testing.scripted_model import ScriptedModel, call, say

HALF = "\ud800"


def last_told(agent: sayso.Agent) -> Message:
    """Return the last message in the model's request."""
    assert isinstance(agent.model, ScriptedModel)
    return agent.model.requests[-1].messages[-1]


@pytest.mark.parametrize("raw", [f'{{"what": "x{HALF}"}}', '{"what": "x\\ud800"}'])
@pytest.mark.parametrize("tool", ["look", "pay"])
async def test_surrogate_in_arguments_is_an_error(world: World, raw: str, tool: str) -> None:
    agent = world.agent(call(tool, raw), say("ok"))
    result = await agent.run("go", thread="t")
    assert (result.status, result.output, world.ran) == ("done", "ok", [])
    assert "half a surrogate pair" in last_told(agent)["content"]


async def test_surrogate_in_call_id_is_replaced(world: World) -> None:
    reply = ModelReply(calls=(ModelCall(f"c{HALF}", "look", '{"what": "x"}'),), finish="calls")
    agent = world.agent(reply, say("ok"))
    assert (await agent.run("go", thread="t")).output == "ok"
    assert last_told(agent)["call_id"] == "c?"


async def test_surrogate_in_hosted_call_is_an_error(world: World) -> None:
    asked = HostedApproval("m1", "shop", "buy", f'{{"what": "{HALF}"}}')
    agent = world.agent(ModelReply(approvals=(asked,), finish="calls"), say("ok"))
    assert (await agent.run("go", thread="t")).output == "ok"
    assert "half a surrogate pair" in last_told(agent)["reason"]


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("error", [ValueError(f"no file {HALF}"), Mute()])
async def test_surrogate_in_error_is_escaped(world: World, error: Exception) -> None:
    @sayso.tool
    def broken() -> str:
        """Break."""
        raise error

    agent = world.agent(call("broken"), say("ok"), tools=[broken])
    assert (await agent.run("go", thread="t")).output == "ok"
    told = last_told(agent)["content"]
    assert "no file \\\\ud800" in told or "Mute: its message could not be read" in told


@pytest.mark.parametrize("error", [ValueError(f"no table {HALF}"), Mute()])
async def test_predicate_raising_surrogate_asks(world: World, error: Exception) -> None:
    def asks(args: object) -> bool:
        raise error

    def shows() -> str:
        raise error

    @sayso.tool(needs_approval=asks, preview=shows)
    def drop() -> str:
        """Drop it."""
        return "gone"

    result = await world.agent(call("drop"), say("ok"), tools=[drop]).run("go", thread="t")
    (request,) = result.interruptions
    assert request.risk.level == "high"
    assert "could not be evaluated" in request.risk.reasons[0]
