"""Edits with unknown arguments, and approvals with arguments, are refused in front of the person.

A tool would drop what it does not know, or fail, when nobody looks any more.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import StructuredTool
from langchain_world import World, answer, go, interrupts
from test_event_loop import MAKERS, Make

import sayso
from sayso import schema
from sayso.adapters.langchain import HumanInTheLoopMiddleware, guard
from sayso.gate.run_result import decision_from

RULES = sayso.Policy([sayso.Rule("*")])


@pytest.mark.parametrize("make", MAKERS)
async def test_unknown_argument_is_refused_in_every_framework(make: Make, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    gate = sayso.Gate(tmp_path / "sayso.db", policy=RULES, agent="teller", wait=0)
    guarded, inbox = make(gate, tmp_path / "other"), sayso.Inbox(gate.store)
    (request,) = (await guarded.run("go", thread="t")).interruptions
    wrong = {"to": "bob", "bcc": "eve"}
    with pytest.raises(sayso.InvalidDecision, match="bcc: there is no such field"):
        await guarded.resume("t", decisions={"decisions": [{"type": "edit", "args": wrong}]})
    with pytest.raises(sayso.InvalidDecision, match=r"args\.bcc: there is no such field"):
        await inbox.decide(request.id, request.edit(wrong), by="ana")
    yes = {"type": "approve", "args": {"to": "bob"}}
    with pytest.raises(sayso.InvalidDecision, match="args does not go with 'approve'"):
        await guarded.resume("t", decisions={"decisions": [yes]})
    assert (await inbox.get(request.id)).status == "pending"
    result = await guarded.resume("t", decisions=[request.edit({"to": "bob"})])
    assert result.output == "Done."
    gate.close()


@pytest.fixture
def world() -> World:
    return World()


ONE = [("c1", "send", {"to": "ana"})]
SHOWN = {"action": "send", "args": {"to": "ana", "text": "Hello"}}


class TestThroughLangGraph:
    def test_langgraph_approval_with_arguments_is_refused(self, world: World) -> None:
        graph = guard(world.agent(ONE, "Done."), world.gate).graph
        go(graph)
        answer(graph, {"type": "approve", "args": {"to": "eve", "text": "Hello"}})
        (shown,) = interrupts(graph)
        assert "args does not go with 'approve'" in shown["error"]
        assert world.ran == []

    def test_approval_with_edited_action_is_refused(self, world: World) -> None:
        asks = HumanInTheLoopMiddleware({"send": True}, gate=world.gate)
        agent = world.agent(ONE, "Done.", middleware=[asks])
        go(agent)
        action = {"name": "send", "args": {"to": "eve"}}
        answer(agent, {"decisions": [{"type": "approve", "edited_action": action}]})
        (shown,) = interrupts(agent)
        assert "edited_action does not go with 'approve'" in shown["error"]
        assert world.ran == []

    @pytest.mark.parametrize(
        "accepted", [None, {"action": "send", "args": {"to": "ana", "text": "Hello"}}]
    )
    def test_approval_may_repeat_shown_arguments(self, world: World, accepted: Any) -> None:
        graph = guard(world.agent(ONE, "Done."), world.gate).graph
        go(graph)
        answer(graph, [{"type": "accept", "args": accepted}])
        assert world.ran == [("send", "ana", "Hello")]

    def test_approval_with_other_arguments_is_refused(self, world: World) -> None:
        graph = guard(world.agent(ONE, "Done."), world.gate).graph
        go(graph)
        answer(graph, [{"type": "accept", "args": {"action": "send", "args": {"to": "eve"}}}])
        (shown,) = interrupts(graph)
        assert "args does not go with 'approve'" in shown["error"]
        assert world.ran == []

    def test_open_json_schema_allows_other_fields(self, world: World) -> None:
        """As MCP servers list them: a JSON Schema, and no model to read arguments with."""
        rules = {"type": "object", "properties": {"to": {"type": "string"}}}

        def post(**args: Any) -> str:
            world.ran.append(args)
            return "posted"

        made = StructuredTool(name="post", description="Post.", args_schema=rules, func=post)
        script = [[("c1", "post", {"to": "ana", "extra": 1})], "Done."]
        guarded = guard(world.agent(*script, tools=[made]), world.gate)
        (request,) = guarded.run_sync("go", thread="t").interruptions
        with pytest.raises(sayso.InvalidDecision, match="bcc: there is no such field"):
            world.inbox.edit_sync(request, {"to": "bob", "extra": 1, "bcc": "eve"}, by="ana")
        world.inbox.edit_sync(request, {"to": "bob", "extra": 2}, by="ana")
        assert guarded.resume_sync("t").output == "Done."
        assert world.ran == [{"to": "bob", "extra": 2}]


def test_rejection_with_arguments_is_refused(world: World) -> None:
    guarded = guard(world.agent(ONE, "Done."), world.gate)
    (request,) = guarded.run_sync("go", thread="t").interruptions
    with pytest.raises(sayso.InvalidDecision, match="args does not go with 'reject'"):
        decision_from({"type": "reject", "args": {"to": "eve"}}, request)


def test_stop_is_valid_only_with_rejection(world: World) -> None:
    guarded = guard(world.agent(ONE, "Done."), world.gate)
    (request,) = guarded.run_sync("go", thread="t").interruptions
    with pytest.raises(sayso.InvalidDecision, match="stop does not go with 'approve'; only a rej"):
        decision_from({"type": "approve", "stop": True}, request)
    with pytest.raises(sayso.InvalidDecision, match="stop: use true or false"):
        decision_from({"type": "reject", "stop": "yes"}, request)
    stop = {"decisions": [{"type": "reject", "message": "no", "stop": True}]}
    assert guarded.resume_sync("t", decisions=stop, by="ana").status == "cancelled"


def test_open_schema_stays_open() -> None:
    for rules in ({"type": "object"}, {"properties": {"a": {}}, "additionalProperties": True}):
        assert schema.closed(rules) == rules
