"""Beyond the tools of one agent: agents as tools, handoffs, and servers of tools, near and far."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest
from agents import Agent, HostedMCPTool, function_tool, handoff
from agents.mcp import MCPServer
from agents.testing import ScriptedModel, function_call
from mcp.types import CallToolResult, TextContent
from mcp.types import Tool as MCPTool
from openai.types.responses.response_output_item import McpApprovalRequest
from openai_agents_world import World, asking_pay_of, call, outputs, say

import sayso
from sayso.adapters.openai_agents import ask_user
from sayso.policy import Rule


class Died(BaseException):
    """A process that is gone, as far as the SDK is concerned."""


class TestAgentsAsTools:
    def clerk(self, world: World, model: ScriptedModel, **options: Any) -> Any:
        inner = Agent("Clerk", model=model, tools=[asking_pay_of(world)])
        return inner.as_tool("clerk", "Does the paying.", **options)

    async def test_inner_agent_call_is_decided_in_inbox(self, world: World) -> None:
        inner = ScriptedModel([[call("pay", to="ana")], [say("ana has it")]])
        outer = ScriptedModel([[call("clerk", input="pay ana")], [say("done")]])
        world.build = lambda: Agent("Boss", model=outer, tools=[self.clerk(world, inner)])
        result = await world.run()
        (request,) = result.interruptions
        assert (request.tool, dict(request.args)) == ("pay", {"to": "ana"})
        assert (await world.resume()).status == "paused"
        await world.inbox.decide(request.id, request.edit({"to": "bob"}), by="ana")
        assert (await world.resume()).output == "done"
        assert world.ran == ["bob"]
        assert "paid bob" in outputs(inner)["call_1"]
        assert outputs(outer)["call_1"] == "ana has it"
        assert (len(inner.calls), len(outer.calls)) == (2, 2)

    async def test_agent_tool_and_its_call_both_ask(self, world: World) -> None:
        inner = ScriptedModel([[call("pay", to="ana")], [say("ana has it")]])
        outer = ScriptedModel([[call("clerk", input="pay ana")], [say("done")]])
        world.build = lambda: Agent(
            "Boss", model=outer, tools=[self.clerk(world, inner, needs_approval=True)]
        )
        await world.run()
        assert (await world.the_request()).tool == "clerk"
        assert len(inner.calls) == 0
        await world.approve()
        await world.resume()
        assert (await world.the_request()).tool == "pay"
        await world.approve()
        assert (await world.resume()).output == "done"
        assert world.ran == ["ana"]

    async def test_parallel_agents_may_share_call_ids(self, world: World) -> None:
        """Two inner runs and the outer one use the same id of a call: three calls all the same."""
        first = ScriptedModel([[call("pay", "c1", to="ana")], [say("one")]])
        second = ScriptedModel([[call("pay", "c1", to="bob")], [say("two")]])
        outer = ScriptedModel(
            [
                [
                    call("clerk", "x1", input="ana"),
                    call("aide", "x2", input="bob"),
                    call("pay", "c1", to="eve"),
                ],
                [say("done")],
            ]
        )

        def build() -> Agent[Any]:
            clerk = Agent("Clerk", model=first, tools=[asking_pay_of(world)])
            aide = Agent("Aide", model=second, tools=[asking_pay_of(world)])
            tools = [
                clerk.as_tool("clerk", ""),
                aide.as_tool("aide", ""),
                asking_pay_of(world),
            ]
            return Agent("Boss", model=outer, tools=tools)

        world.build = build
        waiting = {str(r.args["to"]): r for r in (await world.run()).interruptions}
        assert set(waiting) == {"ana", "bob", "eve"}
        bob, eve = waiting["bob"], waiting["eve"]
        await world.inbox.decide(bob.id, bob.approve(), by="ana")
        await world.inbox.decide(eve.id, eve.reject("not her"), by="ana")
        assert (await world.resume()).status == "paused"
        assert world.ran == ["bob"]
        await world.approve()
        assert (await world.resume()).output == "done"
        assert world.ran == ["bob", "ana"]
        told = outputs(outer)
        assert (told["x1"], told["x2"]) == ("one", "two")
        assert "not her" in told["c1"]
        assert [len(model.calls) for model in (first, second, outer)] == [2, 2, 2]

    async def test_agent_three_levels_deep_asks(self, world: World) -> None:
        deepest = ScriptedModel([[call("pay", to="ana")], [say("paid")]])
        middle = ScriptedModel([[call("clerk", "m1", input="x")], [say("told")]])
        outer = ScriptedModel([[call("desk", "o1", input="x")], [say("done")]])

        def build() -> Agent[Any]:
            desk = Agent("Desk", model=middle, tools=[self.clerk(world, deepest)])
            return Agent("Boss", model=outer, tools=[desk.as_tool("desk", "")])

        world.build = build
        assert (await world.run()).status == "paused"
        await world.approve()
        assert (await world.resume()).output == "done"
        assert world.ran == ["ana"]
        assert [len(model.calls) for model in (deepest, middle, outer)] == [2, 2, 2]

    async def test_death_inside_inner_agent_leaves_doubt(self, world: World) -> None:
        """Only the call that had begun is in doubt: an agent has no effect of its own."""

        async def fragile() -> str:
            """Break."""
            world.ran.append("fragile")
            raise Died

        inner = ScriptedModel([[call("fragile", "i1")], [say("whole")]])
        outer = ScriptedModel([[call("clerk", "o1", input="x")], [say("done")]])

        def build() -> Agent[Any]:
            clerk = Agent("Clerk", model=inner, tools=[function_tool(fragile)])
            return Agent("Boss", model=outer, tools=[clerk.as_tool("clerk", "")])

        world.build = build
        with pytest.raises(Died):
            await world.run()
        assert (await world.resume()).status == "paused"
        doubt = await world.the_request()
        assert (doubt.kind, doubt.tool) == ("in_doubt", "fragile")
        await world.inbox.decide(doubt.id, doubt.respond("it broke"), by="ana")
        assert (await world.resume()).output == "done"
        assert (world.ran, outputs(inner)["i1"]) == (["fragile"], "it broke")
        assert (len(inner.calls), len(outer.calls)) == (2, 2)

    async def test_unreadable_inner_call_goes_to_model(self, world: World) -> None:
        broken = function_call("pay", "{", call_id="i1")
        inner = ScriptedModel([[broken], [say("sorry")]])
        outer = ScriptedModel([[call("clerk", "o1", input="x")], [say("done")]])
        world.build = lambda: Agent("Boss", model=outer, tools=[self.clerk(world, inner)])
        assert (await world.run()).output == "done"
        assert "cannot be read" in outputs(inner)["i1"]
        assert outputs(outer)["o1"] == "sorry"

    async def test_tampered_inner_call_ends_the_run(self, world: World) -> None:
        """The SDK makes words of whatever an inner agent raises; a changed row is no such thing."""
        inner = ScriptedModel([[call("pay", "i1", to="ana")], [say("paid")]])
        outer = ScriptedModel([[call("clerk", "o1", input="x")], [say("done")]])
        world.build = lambda: Agent("Boss", model=outer, tools=[self.clerk(world, inner)])
        await world.run()
        await world.approve()
        file = sqlite3.connect(world.url.removeprefix("sqlite:///"))
        with file:
            file.execute("UPDATE call SET args = replace(args, 'ana', 'eve')")
        file.close()
        for _ in range(2):
            with pytest.raises(sayso.Tampered, match=r"was not (run|used)"):
                await world.resume()
        assert (world.ran, len(inner.calls), len(outer.calls)) == ([], 1, 1)

    async def test_inner_agent_question_is_answered(self, world: World) -> None:
        inner = ScriptedModel([[call("ask_user_question", "i1", question="Who?")], [say("me")]])
        outer = ScriptedModel([[call("clerk", "o1", input="x")], [say("done")]])

        def build() -> Agent[Any]:
            clerk = Agent("Clerk", model=inner, tools=[ask_user])
            return Agent("Boss", model=outer, tools=[clerk.as_tool("clerk", "")])

        world.build = build
        (request,) = (await world.run()).interruptions
        assert request.kind == "question"
        await world.inbox.decide(request.id, request.respond("me"), by="ana")
        assert (await world.resume()).output == "done"
        assert (outputs(inner), len(inner.calls), len(outer.calls)) == ({"i1": "me"}, 2, 2)


class TestHandoffs:
    @pytest.mark.parametrize("wrapped", [False, True])
    async def test_handoff_target_resumes(self, world: World, wrapped: bool) -> None:
        desk = ScriptedModel([[call("transfer_to_clerk")]])
        clerk = ScriptedModel([[call("pay", "c2", to="ana")], [say("done")]])

        def build() -> Agent[Any]:
            to = Agent("Clerk", model=clerk, tools=[asking_pay_of(world)])
            return Agent("Desk", model=desk, handoffs=[handoff(to) if wrapped else to])

        world.build = build
        assert (await world.run()).status == "paused"
        await world.approve()
        assert (await world.resume()).output == "done"
        assert world.ran == ["ana"]
        assert (len(desk.calls), len(clerk.calls)) == (1, 2)

    async def test_gated_call_with_handoff_pauses(self, world: World) -> None:
        desk = ScriptedModel([[call("pay", "c1", to="ana"), call("transfer_to_clerk", "c2")]])
        clerk = ScriptedModel([[say("done")]])

        def build() -> Agent[Any]:
            to = Agent("Clerk", model=clerk)
            return Agent("Desk", model=desk, tools=[asking_pay_of(world)], handoffs=[to])

        world.build = build
        assert (await world.run()).status == "paused"
        assert len(clerk.calls) == 0
        await world.approve()
        assert (await world.resume()).output == "done"
        assert (world.ran, outputs(clerk)["c1"]) == (["ana"], "paid ana")


class Shelf(MCPServer):
    """A local MCP server in this process."""

    def __init__(self, world: World, **options: Any) -> None:
        super().__init__(**options)
        self.world = world

    name = "shelf"

    async def connect(self) -> None: ...
    async def cleanup(self) -> None: ...

    async def list_tools(self, run_context: Any = None, agent: Any = None) -> list[MCPTool]:
        schema = {
            "type": "object",
            "properties": {"path": {"type": "string"}},
            "required": ["path"],
        }
        return [
            MCPTool(name="remove", description="Remove a file.", input_schema=schema),
            MCPTool(name="read", description="Read a file.", input_schema=schema),
        ]

    async def call_tool(
        self, tool_name: str, arguments: dict[str, Any] | None, meta: dict[str, Any] | None = None
    ) -> CallToolResult:
        self.world.ran.append((tool_name, arguments))
        return CallToolResult(content=[TextContent(type="text", text=f"{tool_name}: ok")])

    async def list_prompts(self) -> Any:
        raise NotImplementedError

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None) -> Any:
        raise NotImplementedError


class TestLocalMCP:
    def build(self, world: World, model: ScriptedModel, **options: Any) -> None:
        world.build = lambda: Agent("Clerk", model=model, mcp_servers=[Shelf(world, **options)])

    @pytest.mark.parametrize(
        "rule", [{"always": {"tool_names": ["remove"]}}, {"remove": "always", "read": "never"}]
    )
    async def test_require_approval_of_server_asks(self, world: World, rule: Any) -> None:
        model = ScriptedModel(
            [[call("remove", "c1", path="a"), call("read", "c2", path="b")], [say("done")]]
        )
        self.build(world, model, require_approval=rule)
        await world.run()
        assert world.ran == [("read", {"path": "b"})]
        request = await world.the_request()
        await world.inbox.decide(request.id, request.edit({"path": "c"}), by="ana")
        assert (await world.resume()).output == "done"
        assert world.ran[1:] == [("remove", {"path": "c"})]
        assert "remove: ok" in str(outputs(model)["c1"])

    async def test_policy_sees_arguments_of_mcp_call(self, world: World) -> None:
        """What the SDK's rule for such servers cannot see: the arguments of the call."""
        model = ScriptedModel(
            [[call("remove", "c1", path="tmp"), call("remove", "c2", path="/")], [say("done")]]
        )
        self.build(world, model)
        world.policy = sayso.Policy([Rule("remove", where='path == "/"', verdict="deny")])
        assert (await world.run()).output == "done"
        assert world.ran == [("remove", {"path": "tmp"})]


def wanted(id: str, name: str = "delete_repo", arguments: str = '{"repo":"x"}') -> Any:
    return McpApprovalRequest(
        id=id, type="mcp_approval_request", name=name, server_label="git", arguments=arguments
    )


class TestHostedMCP:
    def build(self, world: World, model: ScriptedModel) -> None:
        server: Any = {"type": "mcp", "server_label": "git", "server_url": "https://example.com"}
        world.build = lambda: Agent("Clerk", model=model, tools=[HostedMCPTool(tool_config=server)])

    def answers(self, model: ScriptedModel) -> dict[str, Any]:
        assert model.last_call is not None
        return {
            item["approval_request_id"]: (item["approve"], item.get("reason", ""))
            for item in model.last_call.input
            if item.get("type") == "mcp_approval_response"
        }

    async def test_hosted_calls_are_decided_separately(self, world: World) -> None:
        model = ScriptedModel([[wanted("r1"), wanted("r2")], [say("done")]])
        self.build(world, model)
        first, second = (await world.run()).interruptions
        assert (first.tool, dict(first.args)) == ("git.delete_repo", {"repo": "x"})
        assert set(first.allowed) == {"approve", "reject"}
        await world.inbox.decide(first.id, first.approve(), by="ana")
        assert (await world.resume()).status == "paused"
        await world.inbox.decide(second.id, second.reject("keep it"), by="ana")
        assert (await world.resume()).output == "done"
        answers = self.answers(model)
        assert answers["r1"] == (True, "")
        assert answers["r2"][0] is False
        assert "keep it" in answers["r2"][1]
        assert len(model.calls) == 2

    async def test_policy_answers_hosted_calls(self, world: World) -> None:
        rules = [Rule("git.read*", verdict="allow"), Rule("git.*", verdict="deny")]
        world.policy = sayso.Policy(rules)
        model = ScriptedModel([[wanted("r1", "read_repo"), wanted("r2")], [say("done")]])
        self.build(world, model)
        assert (await world.run()).output == "done"
        assert [yes for yes, _ in self.answers(model).values()] == [True, False]

    async def test_hosted_call_cannot_be_edited(self, world: World) -> None:
        world.policy = sayso.Policy([Rule("git.*", allowed=["approve", "edit"])])
        self.build(world, ScriptedModel([[wanted("r1")]]))
        (request,) = (await world.run()).interruptions
        with pytest.raises(sayso.InvalidDecision, match="not allowed"):
            await world.inbox.decide(request.id, request.edit({"repo": "y"}), by="ana")

    async def test_hosted_call_in_agent_tool_asks(self, world: World) -> None:
        inner = ScriptedModel([[wanted("r1")], [say("gone")]])
        outer = ScriptedModel([[call("clerk", "o1", input="x")], [say("done")]])
        self.build(world, inner)
        clerk = world.build
        world.build = lambda: Agent("Boss", model=outer, tools=[clerk().as_tool("clerk", "")])
        assert (await world.run()).status == "paused"
        await world.approve()
        assert (await world.resume()).output == "done"
        assert (self.answers(inner), outputs(outer)) == ({"r1": (True, "")}, {"o1": "gone"})

    async def test_hosted_call_with_unreadable_arguments_is_rejected(self, world: World) -> None:
        model = ScriptedModel([[wanted("r1", arguments="{")], [say("done")]])
        self.build(world, model)
        assert (await world.run()).output == "done"
        assert self.answers(model)["r1"][0] is False
