"""Failed and rejected calls: messages to the model, records, and the final output."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agents import (
    Agent,
    StopAtTools,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrailData,
    function_tool,
    tool_input_guardrail,
)
from agents.testing import ScriptedModel
from agents.tool_context import ToolContext
from openai_agents_world import World, call, outputs, say

import sayso
from sayso.adapters.openai_agents import ask_user, guard

DEFAULT = "An error occurred while running the tool. Please try again."


def breaks(**options: Any) -> Any:
    def pay(amount: int) -> str:
        raise ValueError("no such account")

    return function_tool(pay, needs_approval=True, **options)


async def execution(world: World) -> Any:
    (request,) = (await world.inbox.history()).items
    return request.execution


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, DEFAULT),
        ({"failure_error_function": lambda _, e: f"sorry: {e}"}, "sorry: no such account"),
    ],
)
async def test_failed_tool_is_recorded_and_reported(
    world: World, options: dict[str, Any], told: str
) -> None:
    model = ScriptedModel([[call("pay", amount=1)], [say("Done.")]])
    world.one(model, breaks(**options))
    await world.run()
    await world.approve()
    assert (await world.resume()).output == "Done."
    assert outputs(model) == {"call_1": told}
    ended = await execution(world)
    assert (ended.status, ended.result) == ("failed", "ValueError: no such account")


async def test_failed_tool_still_reports_the_edit(world: World) -> None:
    model = ScriptedModel([[call("pay", amount=1)], [say("Done.")]])
    world.one(model, breaks())
    await world.run()
    request = await world.the_request()
    await world.inbox.decide(request.id, request.edit({"amount": 2}), by="ana")
    await world.resume()
    said = outputs(model)["call_1"]
    assert said.endswith(DEFAULT)
    assert '{"amount":2} instead of {"amount":1}' in said


async def test_rejected_question_is_no_error(world: World) -> None:
    model = ScriptedModel([[call("ask_user_question", question="Who?")], [say("Done.")]])
    world.one(model, ask_user)
    await world.run()
    request = await world.the_request()
    await world.inbox.decide(request.id, request.reject("ask Bob"), by="ana")
    assert (await world.resume()).status == "done"
    assert outputs(model) == {"call_1": "The user will not answer. ask Bob"}


async def test_rejected_inner_question_gives_reason(world: World) -> None:
    gate = world.gate()

    @function_tool
    async def publish() -> str:
        return str(await gate.ask(sayso.Question("Where?")))

    model = ScriptedModel([[call("publish")], [say("Done.")]])
    world.one(model, publish)
    guarded = guard(world.build(), gate)
    await guarded.run("go", thread="t-1")
    request = await world.the_request()
    await world.inbox.decide(request.id, request.reject("nowhere"), by="ana")
    assert (await guarded.resume("t-1")).status == "done"
    assert "ana rejected it: nowhere" in outputs(model)["call_1"]


@pytest.mark.parametrize(
    "behavior", ["stop_on_first_tool", StopAtTools(stop_at_tool_names=["pay"])]
)
@pytest.mark.parametrize("yes", [True, False])
async def test_rejection_never_becomes_final_output(world: World, behavior: Any, yes: bool) -> None:
    @function_tool(needs_approval=True)
    def pay(amount: int) -> str:
        return f"paid {amount}"

    model = ScriptedModel([[call("pay", amount=1)], [say("Ana was not paid.")]])
    world.build = lambda: Agent("Teller", model=model, tools=[pay], tool_use_behavior=behavior)
    await world.run()
    request = await world.the_request()
    decision = request.approve() if yes else request.reject("no money")
    await world.inbox.decide(request.id, decision, by="ana")
    result = await world.resume()
    assert result.output == ("paid 1" if yes else "Ana was not paid.")
    if not yes:
        assert "no money" in outputs(model)["call_1"]


@pytest.mark.parametrize("amount", [50, 500])
async def test_guardrails_and_tool_see_edited_arguments(world: World, amount: int) -> None:
    seen: list[Any] = []

    @tool_input_guardrail
    def at_most_100(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        if json.loads(data.context.tool_arguments)["amount"] > 100:
            return ToolGuardrailFunctionOutput.reject_content("that is too much")
        return ToolGuardrailFunctionOutput.allow()

    def pay(context: ToolContext[Any], amount: int) -> str:
        seen.append((amount, json.loads(context.tool_arguments)))
        return f"paid {amount}"

    model = ScriptedModel([[call("pay", amount=550 - amount)], [say("Done.")]])
    world.one(model, function_tool(pay, needs_approval=True, tool_input_guardrails=[at_most_100]))
    await world.run()
    request = await world.the_request()
    await world.inbox.decide(request.id, request.edit({"amount": amount}), by="ana")
    assert (await world.resume()).status == "done"
    refused = outputs(model)["call_1"] == "that is too much"
    assert (seen, refused) == (([], True) if amount > 100 else ([(50, {"amount": 50})], False))
