"""Tools of the OpenAI Agents SDK at a gate: requests, arguments, runs and results."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import (
    Agent,
    Model,
    ModelProvider,
    RunConfig,
    ToolExecutionConfig,
    ToolGuardrailFunctionOutput,
    ToolOutputImage,
    function_tool,
    tool_input_guardrail,
)
from agents.testing import ModelStep, ScriptedModel, function_call
from openai_agents_world import World, call, outputs, say
from pydantic import BaseModel

import sayso
from sayso.adapters.openai_agents import ask_user, guard
from sayso.agent.agent import Resumable
from sayso.policy import Rule


def paying(world: World, **options: Any) -> Any:
    async def pay(to: str, amount: int = 5) -> str:
        """Pay somebody."""
        world.ran.append((to, amount))
        return f"paid {amount} to {to}"

    return function_tool(pay, **options)


async def test_needs_approval_true_pauses_without_a_policy(world: World) -> None:
    model = ScriptedModel([[call("pay", to="ana")], [say("done")]])
    world.one(model, paying(world, needs_approval=True))
    assert isinstance(world.guarded(), Resumable)
    assert (await world.run()).status == "paused"
    request = await world.the_request()
    assert dict(request.args) == {"to": "ana", "amount": 5}
    await world.approve()
    assert (await world.resume()).output == "done"
    assert world.ran == [("ana", 5)]


async def test_text_with_call_becomes_note(world: World) -> None:
    model = ScriptedModel([[say("She asked twice."), call("pay", to="ana")]])
    world.one(model, paying(world, needs_approval=True))
    await world.run()
    assert (await world.the_request()).note == "She asked twice."


async def test_needs_approval_false_runs_at_once(world: World) -> None:
    model = ScriptedModel([[call("pay", to="ana")], [say("done")]])
    world.one(model, paying(world))
    assert (await world.run()).output == "done"
    assert (world.ran, await world.pending()) == ([("ana", 5)], ())


@pytest.mark.parametrize("amount", [None, 5, 500])
async def test_needs_approval_callable_sees_final_arguments(
    world: World, amount: int | None
) -> None:
    seen: list[Any] = []

    async def large(context: Any, args: dict[str, Any], id: str) -> bool:
        seen.append((context.context, args, id))
        return bool(args["amount"] > 100)

    args = {"to": "ana"} if amount is None else {"to": "ana", "amount": amount}
    model = ScriptedModel([[call("pay", **args)], [say("done")]])
    world.one(model, paying(world, needs_approval=large))
    world.options = {"context": "mine"}
    status = (await world.run()).status
    # The bare SDK would not ask the rule at all where a default is filled in.
    assert seen[0] == ("mine", {"to": "ana", "amount": amount or 5}, "call_1")
    assert status == ("paused" if amount == 500 else "done")


async def test_edit_is_checked_by_callable(world: World) -> None:
    def not_bob(context: Any, args: dict[str, Any], id: str) -> bool:
        return bool(args["to"] != "bob")

    model = ScriptedModel([[call("pay", to="ana")], [say("done")]])
    world.one(model, paying(world, needs_approval=not_bob))
    await world.run()
    request = await world.the_request()
    await world.inbox.decide(request.id, request.edit({"to": "bob"}), by="ana")
    assert (await world.resume()).status == "done"
    assert world.ran == [("bob", 5)]
    assert "paid 5 to bob" in outputs(model)["call_1"]
    assert '"to":"ana"' in outputs(model)["call_1"]


async def test_policy_is_evaluated_once(world: World) -> None:
    seen: list[Any] = []

    def when(args: Any) -> bool:
        seen.append(args)
        return True

    world.policy = sayso.Policy([Rule("pay", when=when)])
    world.one(ScriptedModel([[call("pay", to="ana")]]), paying(world))
    await world.run()
    assert seen == [{"to": "ana", "amount": 5}]


async def test_failing_callable_asks(world: World) -> None:
    def broken(context: Any, args: dict[str, Any], id: str) -> bool:
        raise LookupError("no table")

    world.one(ScriptedModel([[call("pay", to="ana")]]), paying(world, needs_approval=broken))
    assert (await world.run()).status == "paused"
    assert world.ran == []


async def test_policy_overrides_needs_approval(world: World) -> None:
    model = ScriptedModel([[call("pay", to="ana")], [say("done")]])
    world.one(model, paying(world, needs_approval=True))
    world.policy = sayso.Policy([Rule("pay", verdict="deny", description="never")])
    assert (await world.run()).status == "done"
    assert world.ran == []
    assert "never" in outputs(model)["call_1"]


@pytest.mark.parametrize("arguments", ["", "{", "[1]", '{"to": NaN}', '{"amount": 3}'])
async def test_unreadable_call_goes_back_to_model(world: World, arguments: str) -> None:
    made = function_call("pay", arguments, call_id="call_1")
    model = ScriptedModel([[made], [say("done")]])
    world.one(model, paying(world, needs_approval=True))
    assert (await world.run()).output == "done"
    assert (world.ran, await world.pending()) == ([], ())
    assert "cannot be read" in outputs(model)["call_1"]


async def test_question_offers_options(world: World) -> None:
    options = [{"label": "Red", "value": "red"}, {"label": "Blue", "value": "blue"}]
    asked = call("ask_user_question", question="Which?", options=options, allow_multiple=True)
    model = ScriptedModel([[asked], [say("done")]])
    world.build = lambda: Agent("Teller", model=model, tools=[ask_user])
    assert (await world.run()).status == "paused"
    request = await world.the_request()
    assert request.question is not None
    assert [option.value for option in request.question.options] == ["red", "blue"]
    with pytest.raises(sayso.InvalidDecision):
        await world.inbox.decide(request.id, request.respond(["green"]), by="ana")
    await world.inbox.decide(request.id, request.respond(["red", "blue"]), by="ana")
    assert (await world.resume()).output == "done"
    assert outputs(model)["call_1"] == '["red","blue"]'


async def test_question_and_calls_share_a_turn(world: World) -> None:
    """One call asks in its body, one waits, one is free: the turn is told when all are there."""
    gate = world.gate()
    model = ScriptedModel(
        [
            [call("ask_user_question", "c1", question="Who?"), call("pay", "c2", to="ana")],
            [say("done")],
        ]
    )
    world.build = lambda: Agent(
        "Teller", model=model, tools=[ask_user, paying(world, needs_approval=True)]
    )
    guarded = guard(world.build(), gate)
    result = await guarded.run("go", thread="t-1")
    assert {request.kind for request in result.interruptions} == {"approval", "question"}
    for request in result.interruptions:
        if request.kind == "approval":
            await world.inbox.decide(request.id, request.approve(), by="ana")
    assert (await guarded.resume("t-1")).status == "paused"
    assert world.ran == [("ana", 5)]
    (question,) = await world.pending()
    await world.inbox.decide(question.id, question.respond("me"), by="ana")
    assert (await guarded.resume("t-1")).output == "done"
    assert outputs(model) == {"c1": "me", "c2": "paid 5 to ana"}
    assert (world.ran, len(model.calls)) == ([("ana", 5)], 2)


async def test_answer_becomes_output_after_reply(world: World) -> None:
    model = ScriptedModel([[call("ask_user_question", question="Who?")]])
    gate = world.gate()
    agent = Agent("Teller", model=model, tools=[ask_user], tool_use_behavior="stop_on_first_tool")
    guarded = guard(agent, gate)
    assert (await guarded.run("go", thread="t-1")).status == "paused"
    request = await world.the_request()
    await world.inbox.decide(request.id, request.respond("me"), by="ana")
    assert (await guarded.resume("t-1")).output == "me"


async def test_interrupted_call_is_in_doubt(world: World) -> None:
    async def slow() -> str:
        """Be stopped in the middle, as the SDK does when the time is over."""
        world.ran.append("slow")
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(3600)
        return "never"

    model = ScriptedModel([[call("slow")], [say("done")]])
    world.one(model, function_tool(slow))
    assert (await world.run()).status == "paused"
    doubt = await world.the_request()
    assert doubt.kind == "in_doubt"
    await world.inbox.decide(doubt.id, doubt.respond("it did"), by="ana")
    assert (await world.resume()).output == "done"
    assert (world.ran, outputs(model)["call_1"]) == (["slow"], "it did")


async def test_failed_tool_is_not_run_again(world: World) -> None:
    async def burst() -> str:
        """Burst."""
        world.ran.append("burst")
        raise LookupError("no bank")

    model = ScriptedModel([[call("burst")], [say("done")]])
    world.one(model, function_tool(burst, failure_error_function=None))
    with pytest.raises(Exception, match="no bank"):
        await world.run()
    assert (await world.resume()).output == "done"
    assert world.ran == ["burst"]
    assert "no bank" in outputs(model)["call_1"]


async def test_results_keep_sdk_types(world: World) -> None:
    async def draw(what: str) -> ToolOutputImage:
        """Draw something."""
        return ToolOutputImage(image_url=f"https://example.com/{what}.png")

    model = ScriptedModel([[call("draw", what="cat")], [say("done")]])
    world.one(model, function_tool(draw, needs_approval=True))
    await world.run()
    request = await world.the_request()
    await world.inbox.decide(request.id, request.edit({"what": "dog"}), by="ana")
    await world.resume()
    words, image = outputs(model)["call_1"]
    assert "dog" in words["text"]
    assert image["image_url"] == "https://example.com/dog.png"


async def test_typed_output_survives_a_resume(world: World) -> None:
    class Bill(BaseModel):
        total: int

    model = ScriptedModel([[say('{"total": 7}')]])
    world.one(model, output_type=Bill)
    assert (await world.run()).output == Bill(total=7)
    assert (await world.resume()).output == Bill(total=7)


class TestGuardrails:
    """Guardrails of the SDK, which may refuse a call in the tool's place."""

    @pytest.mark.parametrize("before", [False, True], ids=["after the yes", "before asking"])
    @pytest.mark.parametrize("stops", [False, True], ids=["continues", "ends the run"])
    async def test_guardrail_refusal_does_not_wait(
        self, world: World, before: bool, stops: bool
    ) -> None:
        @tool_input_guardrail
        def nobody(data: Any) -> ToolGuardrailFunctionOutput:
            return ToolGuardrailFunctionOutput.reject_content("not allowed here")

        model = ScriptedModel([[call("pay", to="ana")], [say("done")]])
        tool = paying(world, needs_approval=True, tool_input_guardrails=[nobody])
        behaviour = "stop_on_first_tool" if stops else "run_llm_again"
        world.one(model, tool, tool_use_behavior=behaviour)
        execution = ToolExecutionConfig(pre_approval_tool_input_guardrails=before)
        world.options = {"run_config": RunConfig(tool_execution=execution)}
        result = await world.run()
        if not before:
            await world.approve()
            result = await world.resume()
        assert (result.status, world.ran) == ("done", [])
        assert result.output == ("not allowed here" if stops else "done")
        assert await world.pending() == ()
        assert (await world.resume()).status == "done"


class Provider(ModelProvider):
    """Where the models of a name come from."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.names: list[str | None] = []

    def get_model(self, model_name: str | None) -> Model:
        self.names.append(model_name)
        return self.model


@pytest.mark.parametrize("chosen", [None, "better"])
async def test_model_provider_of_run_config_is_used(world: World, chosen: str | None) -> None:
    provider = Provider(ScriptedModel([[say("done")]]))
    world.build = lambda: Agent("Teller", model="good")
    world.options = {"run_config": RunConfig(model=chosen, model_provider=provider)}
    assert (await world.run()).output == "done"
    assert set(provider.names) == {chosen or "good"}


async def test_failed_model_is_asked_again(world: World) -> None:
    model = ScriptedModel([[call("pay", to="ana")], LookupError("no network"), [say("done")]])
    world.one(model, paying(world))
    with pytest.raises(LookupError, match="no network"):
        await world.run()
    assert (await world.resume()).output == "done"
    assert world.ran == [("ana", 5)]


async def test_agent_runs_two_threads_at_once(world: World) -> None:
    begun = asyncio.Barrier(2)

    async def meet(who: str) -> str:
        """Wait for the other one."""
        await asyncio.wait_for(begun.wait(), 60)
        world.ran.append(who)
        return who

    def reply(made: Any) -> Any:
        (words, *rest) = made.input
        text = words["content"]
        return [say(f"met {text}")] if rest else [call("meet", who=text)]

    model = ScriptedModel([ModelStep.respond(reply) for _ in range(4)])
    world.one(model, function_tool(meet))
    guarded = world.guarded()
    ends = await asyncio.gather(*(guarded.run(who, thread=who) for who in ("ana", "bob")))
    assert [result.output for result in ends] == ["met ana", "met bob"]
    assert sorted(world.ran) == ["ana", "bob"]
