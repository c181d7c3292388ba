"""Streams, and runs that code drives with the SDK's ``Runner`` and ``RunState``."""

from __future__ import annotations

from typing import Any

import pytest
from agents import Agent, HostedMCPTool, RunConfig, Runner, RunState, UserError, function_tool
from agents.testing import ScriptedModel
from openai.types.responses.response_output_item import McpApprovalRequest
from openai_agents_world import World, asking_pay_of, call, outputs, say

import sayso
from sayso.adapters.openai_agents import ask_user, resume
from sayso.audit import verify
from sayso.policy import Rule


async def decided(world: World) -> list[tuple[str, str, str]]:
    """What was decided: how, by whom, and where."""
    made = [request.decision for request in (await world.inbox.history()).items]
    return [(made.type, made.by, made.channel) for made in made if made is not None]


def boss_with_clerk(world: World) -> ScriptedModel:
    """Let the world build an agent whose tool is an agent that pays. Return the outer model."""
    inner = ScriptedModel([[call("pay", to="ana")], [say("paid")]])
    outer = ScriptedModel([[call("clerk", "o1", input="x")], [say("done")]])

    def build() -> Agent[Any]:
        clerk = Agent("Clerk", model=inner, tools=[asking_pay_of(world)])
        return Agent("Boss", model=outer, tools=[clerk.as_tool("clerk", "")])

    world.build = build
    return outer


class TestStreaming:
    async def test_paused_stream_resumes(self, world: World) -> None:
        model = ScriptedModel([[call("pay", to="ana")], [say("done")]])
        world.one(model, asking_pay_of(world))
        stream = world.guarded().stream("go", thread="t-1")
        with pytest.raises(sayso.SaysoError, match="has not ended"):
            _ = stream.result
        kinds = [event.type async for event in stream]
        assert "raw_response_event" in kinds
        (request,) = stream.result.interruptions
        guarded = world.guarded()
        stream = guarded.stream_resume("t-1", decisions=[request.approve()], by="ana")
        names = [e.name async for e in stream if e.type == "run_item_stream_event"]
        assert names == ["tool_output", "message_output_created"]
        assert (stream.result.output, world.ran) == ("done", ["ana"])
        assert len(model.calls) == 2

    async def test_question_pauses_the_stream(self, world: World) -> None:
        model = ScriptedModel([[call("ask_user_question", question="Who?")], [say("done")]])
        world.one(model, ask_user)
        stream = world.guarded().stream("go", thread="t-1")
        async for _ in stream:
            pass
        (request,) = stream.result.interruptions
        stream = world.guarded().stream_resume("t-1", decisions=[request.respond("me")])
        async for _ in stream:
            pass
        assert (stream.result.output, outputs(model)) == ("done", {"call_1": "me"})
        assert len(model.calls) == 2

    async def test_streamed_run_resumes_without_stream(self, world: World) -> None:
        model = ScriptedModel([[call("pay", to="ana")], [say("done")]])
        world.one(model, asking_pay_of(world))
        async for _ in world.guarded().stream("go", thread="t-1"):
            pass
        await world.approve()
        assert (await resume(world.guarded(), "t-1")).output == "done"

    async def test_repeated_call_id_is_numbered(self, world: World) -> None:
        again = [[call("pay", to="ana")], [say("done")]]
        world.one(ScriptedModel([*again, *again]), asking_pay_of(world))
        await world.run()
        await world.approve()
        await world.resume()
        stream = world.guarded().stream("go", thread="t-1")
        ids = [e.item.raw_item.call_id async for e in stream if e.type == "run_item_stream_event"]
        (request,) = stream.result.interruptions
        stream = world.guarded().stream_resume("t-1", decisions=[request.approve()], by="ana")
        told = [e.item async for e in stream if e.type == "run_item_stream_event"]
        assert ids == [told[0].raw_item["call_id"]] == ["call_1_2"]
        assert (stream.result.output, world.ran) == ("done", ["ana", "ana"])


class TestByHand:
    async def test_state_is_approved_in_another_process(self, world: World) -> None:
        model = ScriptedModel([[call("pay", to="ana")], [say("done")], [say("again")]])
        world.one(model, asking_pay_of(world))
        async with world.guarded().thread("t-1", requester="rita") as agent:
            result = await Runner.run(agent, "go")
        (item,) = result.interruptions
        request = await world.the_request()
        assert (item.tool_name, request.tool, request.requester) == ("pay", "pay", "rita")
        text = result.to_state().to_string()
        async with world.guarded().thread("t-1", by="ana") as agent:
            state = await RunState.from_string(agent, text)
            state.approve(state.get_interruptions()[0])
            result = await Runner.run(agent, state)
            assert result.final_output == "done"
            again = await Runner.run(agent, await self.approved(agent, text))
        # The bare SDK would have paid a second time.
        assert (world.ran, again.final_output) == (["ana"], "again")
        assert await decided(world) == [("approve", "ana", "openai-agents")]
        run = world.inbox.store.run("teller:t-1")
        assert run is not None
        assert run.status == "done"

    async def approved(self, agent: Agent[Any], text: str) -> Any:
        state = await RunState.from_string(agent, text)
        state.approve(state.get_interruptions()[0])
        return state

    async def test_repeated_call_id_is_numbered(self, world: World) -> None:
        model = ScriptedModel(2 * [[call("pay", to="ana")], [say("done")]])
        world.one(model, asking_pay_of(world))
        guarded, said = world.guarded(), []
        for _ in range(2):
            async with guarded.thread("t-1", by="ana") as agent:
                result = await Runner.run(agent, [*said, {"role": "user", "content": "go"}])
                state = result.to_state()
                state.approve(result.interruptions[0])
                said = (await Runner.run(agent, state)).to_input_list()
        assert world.ran == ["ana", "ana"]
        assert outputs(model) == {"call_1": "paid ana", "call_1_2": "paid ana"}

    async def test_reject_closes_the_request(self, world: World) -> None:
        model = ScriptedModel([[call("pay", to="ana")], [say("done")]])
        world.one(model, asking_pay_of(world))
        async with world.guarded().thread("t-1", by="ana") as agent:
            result = await Runner.run(agent, "go")
            state = result.to_state()
            state.reject(result.interruptions[0], rejection_message="not today")
            result = await Runner.run(agent, state)
        assert (result.final_output, world.ran) == ("done", [])
        assert outputs(model)["call_1"] == "not today"
        assert await decided(world) == [("reject", "ana", "openai-agents")]

    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize("inside", [False, True])
    async def test_rejection_in_state_applies_at_once(
        self, world: World, stream: bool, inside: bool
    ) -> None:
        calls = [call("pay", "c/1", to="ana"), call("pay", "c/2", to="bob")]
        model, outer = ScriptedModel([calls]), ScriptedModel([[call("clerk", "o1", input="x")]])

        def build() -> Agent[Any]:
            clerk = Agent("Clerk", model=model, tools=[asking_pay_of(world)])
            boss = Agent("Boss", model=outer, tools=[clerk.as_tool("clerk", "")])
            return boss if inside else clerk

        world.build = build
        async with world.guarded().thread("t-1") as agent:
            text = (await Runner.run(agent, "go")).to_state().to_string()
        async with world.guarded().thread("t-1", by="ana") as agent:
            state = await RunState.from_string(agent, text)
            state.reject(state.get_interruptions()[0], rejection_message="not today")
            if stream:
                streamed = Runner.run_streamed(agent, state)
                async for _ in streamed.stream_events():
                    pass
            else:
                await Runner.run(agent, state)
        # The other one still waits, so that the model was told nothing yet.
        assert await decided(world) == [("reject", "ana", "openai-agents")]
        (closed,) = (await world.inbox.history()).items
        assert closed.decision is not None
        assert (closed.args["to"], closed.decision.message) == ("ana", "not today")
        assert (len(await world.pending()), len(model.calls), world.ran) == (1, 1, [])

    async def always(self, world: World, *calls: Any, item: int = 0) -> Any:
        """Let the model make calls, one reply each, and approve one of the first with "always"."""
        model = ScriptedModel([*calls, [say("done")]])
        world.one(model, asking_pay_of(world))
        async with world.guarded().thread("t-1", by="ana") as agent:
            result = await Runner.run(agent, "go")
            state = result.to_state()
            state.approve(result.interruptions[item], always_approve=True)
            return await Runner.run(agent, state)

    async def test_always_is_a_grant(self, world: World) -> None:
        first, second = [call("pay", "c1", to="ana")], [call("pay", "c2", to="bob")]
        result = await self.always(world, first, second)
        assert (result.final_output, world.ran) == ("done", ["ana", "bob"])
        (grant,) = await world.inbox.grants()
        assert (grant.by, grant.tool) == ("ana", "pay")
        # The record says that ana has seen the first call only.
        assert await decided(world) == [("approve", "ana", "openai-agents")]
        store = world.inbox.store
        rows = [store.call_by_key("teller:t-1", id) for id in ("c1", "c2")]
        assert [row and row.decision and row.decision.type for row in rows] == ["approve", "grant"]
        assert [row and row.grant for row in rows] == [None, grant.id]
        assert verify(store).ok

    async def test_always_ends_with_the_run(self, world: World) -> None:
        await self.always(world, [call("pay", "c1", to="ana")])
        world.one(ScriptedModel([[call("pay", "c9", to="eve")]]), asking_pay_of(world))
        async with world.guarded().thread("t-2", by="ana") as agent:
            assert len((await Runner.run(agent, "go")).interruptions) == 1
        assert world.ran == ["ana"]

    async def test_always_covers_no_call_with_other_terms(self, world: World) -> None:
        world.policy = sayso.Policy([Rule("pay", where='to == "eve"', reviewers=["bea"])])
        first, second = [call("pay", "c1", to="ana")], [call("pay", "c2", to="eve")]
        with pytest.raises(sayso.Paused):
            await self.always(world, first, second)
        assert world.ran == ["ana"]
        assert (await world.the_request()).args["to"] == "eve"
        assert await decided(world) == [("approve", "ana", "openai-agents")]

    async def test_always_needs_the_second_reviewer(self, world: World) -> None:
        world.policy = sayso.Policy([Rule("pay", quorum=2)])
        with pytest.raises(UserError, match="with a token"):
            await self.always(world, [call("pay", "c1", to="ana")])
        assert (world.ran, await world.inbox.grants()) == ([], [])

    async def test_revoked_grant_asks_again(self, world: World) -> None:
        async def take_back(to: str) -> str:
            """Pay somebody."""
            world.ran.append(to)
            for grant in await world.inbox.grants():
                await world.inbox.revoke(grant, by="bea")
            return "paid"

        first, second = [call("pay", "c1", to="ana")], [call("pay", "c2", to="bob")]
        model = ScriptedModel([first, second, [say("done")]])
        tool = function_tool(take_back, name_override="pay", needs_approval=True)
        world.one(model, tool)
        async with world.guarded().thread("t-1", by="ana") as agent:
            state = (await Runner.run(agent, "go")).to_state()
            state.approve(state.get_interruptions()[0], always_approve=True)
            with pytest.raises(sayso.Paused):
                await Runner.run(agent, state)
        assert (world.ran, (await world.the_request()).args["to"]) == (["ana"], "bob")

    async def test_always_does_not_cover_hosted_tool(self, world: World) -> None:
        wanted = [
            McpApprovalRequest(
                id=id, type="mcp_approval_request", name="wipe", server_label="git", arguments="{}"
            )
            for id in ("r1", "r2")
        ]
        server: Any = {"type": "mcp", "server_label": "git", "server_url": "https://example.com"}
        model = ScriptedModel([[wanted[0]], [wanted[1]], [say("done")]])
        world.policy = sayso.Policy([Rule("git.*")])
        world.one(model, HostedMCPTool(tool_config=server))
        async with world.guarded().thread("t-1", by="ana") as agent:
            state = (await Runner.run(agent, "go")).to_state()
            state.approve(state.get_interruptions()[0], always_approve=True)
            with pytest.raises(sayso.Paused):
                await Runner.run(agent, state)
        assert await decided(world) == [("approve", "ana", "openai-agents")]
        assert len(model.calls) == 2  # the provider was not told to make the second call

    async def test_inbox_decision_overrides_state(self, world: World) -> None:
        model = ScriptedModel([[call("pay", to="ana")], [say("done")]])
        world.one(model, asking_pay_of(world))
        async with world.guarded().thread("t-1") as agent:
            result = await Runner.run(agent, "go")
            request = await world.the_request()
            await world.inbox.decide(request.id, request.edit({"to": "bob"}), by="bea")
            state = result.to_state()
            state.approve(result.interruptions[0])
            await Runner.run(agent, state)
        assert world.ran == ["bob"]
        assert await decided(world) == [("edit", "bea", "python")]

    async def test_state_cannot_approve_for_other_reviewers(self, world: World) -> None:
        world.policy = sayso.Policy([Rule("pay", reviewers=["bea"])])
        world.one(ScriptedModel([[call("pay", to="ana")]]), asking_pay_of(world))
        async with world.guarded().thread("t-1", by="ana") as agent:
            result = await Runner.run(agent, "go")
            state = result.to_state()
            state.approve(result.interruptions[0])
            with pytest.raises(UserError, match="ana may not decide"):
                await Runner.run(agent, state)
        assert (world.ran, len(await world.pending())) == ([], 1)

    async def test_late_handoff_is_refused_with_other_model(self, world: World) -> None:
        calls = [[call("transfer_to_clerk", "h1")], [call("pay", to="ana")], [say("done")]]
        guarded = world.guarded()
        guarded.agent.handoffs.append(Agent("Clerk", tools=[asking_pay_of(world)]))
        async with guarded.thread("t-1") as agent:
            with pytest.raises(sayso.InvalidCall, match="bypass the gate"):
                await Runner.run(agent, "go", run_config=RunConfig(model=ScriptedModel(calls)))
        assert world.ran == []

    async def test_late_tool_asks_with_other_model(self, world: World) -> None:
        config = RunConfig(model=ScriptedModel([[call("pay", to="ana")], [say("done")]]))
        guarded = world.guarded()
        guarded.agent.tools.append(asking_pay_of(world))
        async with guarded.thread("t-1") as agent:
            result = await Runner.run(agent, "go", run_config=config)
        assert (len(result.interruptions), world.ran) == (1, [])
        assert (await world.the_request()).tool == "pay"

    async def test_nothing_runs_without_a_thread(self, world: World) -> None:
        model = ScriptedModel([[call("pay", to="ana")]])
        world.one(model, asking_pay_of(world))
        with pytest.raises(sayso.InvalidCall, match="has no thread"):
            await Runner.run(world.guarded().agent, "go")
        assert (world.ran, len(model.calls)) == ([], 0)

    async def test_hosted_tool_is_approved_by_state(self, world: World) -> None:
        wanted = McpApprovalRequest(
            id="r1", type="mcp_approval_request", name="wipe", server_label="git", arguments="{}"
        )
        server: Any = {"type": "mcp", "server_label": "git", "server_url": "https://example.com"}
        model = ScriptedModel([[wanted], [say("done")]])
        world.one(model, HostedMCPTool(tool_config=server))
        async with world.guarded().thread("t-1", by="ana") as agent:
            result = await Runner.run(agent, "go")
            assert (await world.the_request()).tool == "git.wipe"
            state = result.to_state()
            state.approve(result.interruptions[0])
            assert (await Runner.run(agent, state)).final_output == "done"
        assert await decided(world) == [("approve", "ana", "openai-agents")]

    async def test_one_hosted_call_is_rejected(self, world: World) -> None:
        wanted = [
            McpApprovalRequest(
                id=id, type="mcp_approval_request", name="wipe", server_label="git", arguments="{}"
            )
            for id in ("r1", "r2")
        ]
        server: Any = {"type": "mcp", "server_label": "git", "server_url": "https://example.com"}
        world.one(ScriptedModel([wanted]), HostedMCPTool(tool_config=server))
        async with world.guarded().thread("t-1", by="ana") as agent:
            result = await Runner.run(agent, "go")
            state = result.to_state()
            state.reject(result.interruptions[0], rejection_message="not today")
            assert len((await Runner.run(agent, state)).interruptions) == 1
        assert await decided(world) == [("reject", "ana", "openai-agents")]
        assert len(await world.pending()) == 1

    async def test_agent_as_tool_is_approved_by_state(self, world: World) -> None:
        boss_with_clerk(world)
        async with world.guarded().thread("t-1", by="ana") as agent:
            result = await Runner.run(agent, "go")
            state = result.to_state()
            state.approve(result.interruptions[0])
            assert (await Runner.run(agent, state)).final_output == "done"
        assert world.ran == ["ana"]

    async def test_refused_inner_approval_leaves_run_usable(self, world: World) -> None:
        world.policy = sayso.Policy([Rule("pay", reviewers=["bea"])])
        outer = boss_with_clerk(world)
        async with world.guarded().thread("t-1", by="ana") as agent:
            result = await Runner.run(agent, "go")
            text = result.to_state().to_string()
            with pytest.raises(UserError, match="ana may not decide"):
                await Runner.run(agent, await self.approved(agent, text))
            assert (world.ran, len(outer.calls)) == ([], 1)
            request = await world.the_request()
            await world.inbox.decide(request.id, request.approve(), by="bea")
            result = await Runner.run(agent, await self.approved(agent, text))
        assert (result.final_output, world.ran) == ("done", ["ana"])

    async def test_resume_leaves_manual_run_paused(self, world: World) -> None:
        world.one(ScriptedModel([[call("pay", to="ana")]]), asking_pay_of(world))
        async with world.guarded().thread("t-1") as agent:
            await Runner.run(agent, "go")
        await world.approve()
        assert (await world.guarded().resume("t-1")).status == "paused"
        assert world.ran == []
