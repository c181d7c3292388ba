"""Questions from the model and from tools, and their answers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from agent_world import World, asked, error_in, tool_results
from pydantic import BaseModel
from typing_extensions import TypedDict

import sayso
from sayso.testing.scripted_model import call, calls, say

SIGN_IN = [
    {"label": "A password", "value": "password", "description": "what everybody knows"},
    {"label": "A link by mail", "value": "link", "description": None},
]


def question(**changes: Any) -> Any:
    args = {"question": "How?", "options": SIGN_IN, "allow_multiple": False, "free_text": False}
    return call("ask_user_question", {**args, **changes})


def test_question_tool_schema_is_strict() -> None:
    spec = sayso.ask_user.spec
    assert (spec.name, spec.strict) == ("ask_user_question", True)
    properties = spec.parameters["properties"]
    assert sorted(spec.parameters["required"]) == sorted(properties)
    assert {"question", "options", "allow_multiple"} <= set(properties)
    text = json.dumps(spec.parameters)
    assert '"minItems": 2' in text
    assert '"maxItems": 5' in text
    assert text.count('"additionalProperties": false') == 2


async def test_model_asks_and_gets_the_answer(world: World) -> None:
    agent = world.agent(question(), say("A link, then."), tools=[sayso.ask_user])
    result = await agent.run("Help me set up sign-in", thread="t")
    (request,) = result.interruptions
    assert (request.kind, request.allowed) == ("question", ("reject", "respond"))
    assert request.question == sayso.Question(
        "How?",
        options=(
            sayso.Option("A password", "password", "what everybody knows"),
            sayso.Option("A link by mail", "link"),
        ),
    )
    result.state.respond(request, "link", by="ana")
    result = await agent.resume(result.state)
    assert (result.output, tool_results(agent)) == ("A link, then.", ['{"answer":"link"}'])


@pytest.mark.parametrize("answer", ["oauth", "A link by mail", ["link"], None, 1])
async def test_answer_outside_options_is_refused(world: World, answer: Any) -> None:
    agent = world.agent(question(), tools=[sayso.ask_user])
    (request,) = (await agent.run("go", thread="t")).interruptions
    with pytest.raises(sayso.InvalidDecision):
        await agent.resume("t", decisions=[request.respond(answer)])
    assert len(asked(agent)) == 1


async def test_several_options_may_be_chosen(world: World) -> None:
    agent = world.agent(question(allow_multiple=True), say("Ok."), tools=[sayso.ask_user])
    (request,) = (await agent.run("go", thread="t")).interruptions
    for wrong in ("link", [], ["link", "link"], ["link", "oauth"]):
        with pytest.raises(sayso.InvalidDecision):
            await agent.resume("t", decisions=[request.respond(wrong)])
    await agent.resume("t", decisions=[request.respond(["link", "password"])])
    assert tool_results(agent) == ['{"answer":["link","password"]}']


@pytest.mark.parametrize("options", [None, SIGN_IN])
async def test_free_text_is_accepted(world: World, options: Any) -> None:
    asks = question(options=options, free_text=True)
    agent = world.agent(asks, say("Ok."), tools=[sayso.ask_user])
    (request,) = (await agent.run("go", thread="t")).interruptions
    await agent.resume("t", decisions=[request.respond("with a key card")])
    assert tool_results(agent) == ['{"answer":"with a key card"}']


async def test_person_need_not_answer(world: World) -> None:
    agent = world.agent(question(), say("Ok."), tools=[sayso.ask_user])
    (request,) = (await agent.run("go", thread="t")).interruptions
    await agent.resume("t", decisions=[request.reject("ask somebody else")])
    assert error_in(tool_results(agent)[0]) == "The user will not answer. ask somebody else"


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"options": SIGN_IN[:1]}, "at least 2"),
        ({"options": []}, "at least 2"),
        ({"options": SIGN_IN * 3}, "at most 5"),
        ({"options": [SIGN_IN[0], {**SIGN_IN[1], "value": "password"}]}, "same value"),
        ({"options": [{**SIGN_IN[0], "colour": "red"}, SIGN_IN[1]]}, "colour"),
        ({"options": ["a", "b"]}, "options[0]"),
        ({"question": " "}, "needs a text"),
        ({"why": "because"}, "is unknown"),
        ({"options": None, "allow_multiple": True}, "only a question with options"),
        ({"options": [{**SIGN_IN[0], "label": ""}, SIGN_IN[1]]}, "needs a label"),
    ],
)
async def test_invalid_question_goes_back_to_model(
    world: World, changes: dict[str, Any], wrong: str
) -> None:
    agent = world.agent(question(**changes), question(), tools=[sayso.ask_user])
    result = await agent.run("go", thread="t")
    assert wrong in error_in(tool_results(agent)[0])
    assert [r.question.text for r in result.interruptions if r.question] == ["How?"]
    assert len((await world.inbox.pending()).items) == 1


async def test_questions_and_calls_in_one_turn(world: World) -> None:
    both = calls(question(), call("look", {"what": "x"}), call("pay", {"amount": 1, "to": None}))
    agent = world.agent(both, say("Ok."), tools=[sayso.ask_user, world.look, world.pay])
    result = await agent.run("go", thread="t")
    assert [r.kind for r in result.interruptions] == ["question", "approval"]
    answers, pays = result.interruptions
    result = await agent.resume("t", decisions=[pays.approve(), answers.respond("link")])
    assert tool_results(agent) == ['{"answer":"link"}', '{"found":"x"}', "paid 1 to ana"]


# -- typed answers


class Address(BaseModel):
    street: str
    floor: int = 0


class Trip(TypedDict):
    city: str


@pytest.mark.parametrize(
    ("wanted", "good", "bad"),
    [
        (Address, {"street": "Elm Road 3", "floor": 2}, {"floor": 2}),
        (Trip, {"city": "Oslo"}, {"city": 7}),
        (list[Address], [{"street": "Elm Road 3"}], {"street": "Elm Road 3"}),
    ],
)
async def test_typed_answer_is_validated(world: World, wanted: Any, good: Any, bad: Any) -> None:
    form = sayso.ask_user_for(wanted)
    agent = world.agent(call(form.name, {"question": "Where to?"}), say("Ok."), tools=[form])
    (request,) = (await agent.run("go", thread="t")).interruptions
    assert request.question is not None
    assert request.schema == request.question.schema
    with pytest.raises(sayso.InvalidDecision):
        await agent.resume("t", decisions=[request.respond(bad)])
    await agent.resume("t", decisions=[request.respond(good)])
    assert json.loads(tool_results(agent)[0]) == {"answer": good}


def test_typed_question_tools_have_unique_names() -> None:
    assert sayso.ask_user_for(Address).name == "ask_user_for_address"
    assert sayso.ask_user_for(Address, name="where_to").name == "where_to"


# -- asked by a tool


async def test_asking_tool_restarts_from_top(world: World) -> None:
    @sayso.tool
    async def order(ctx: sayso.Context, what: str) -> str:
        """Order something."""
        world.ran.append(("order", ctx.attempt))
        size = await ctx.ask(sayso.Question("Which size?", options=("small", "large")))
        paid = await ctx.once("pay", lambda: world.ran.append(("paid", size)) or "receipt 1")
        sure = await ctx.confirm("Send it?", {"size": size})
        return f"{size} {what}, {paid}, {'sent' if sure else 'kept'}"

    agent = world.agent(call("order", {"what": "pizza"}), say("Done."), tools=[order])
    result = await agent.run("pizza", thread="t")
    (request,) = result.interruptions
    assert (request.kind, request.run, request.status) == ("question", result.run, "pending")
    result = await agent.resume("t")
    assert (result.interruptions, world.effects("order")) == ((request,), [1])
    result = await agent.resume("t", decisions=[request.respond("large")])
    (request,) = result.interruptions
    assert request.args == {"text": "Send it?", "details": {"size": "large"}}
    result = await agent.resume("t", decisions=[request.approve()])
    assert tool_results(agent) == ["large pizza, receipt 1, sent"]
    assert world.ran == [("order", 1), ("order", 2), ("paid", "large"), ("order", 3)]
    # The tool paused to ask, so nothing was ever in doubt.
    kinds = {r.kind for r in (await world.inbox.history(status="any")).items}
    assert kinds == {"question", "approval"}


async def test_tool_learns_that_the_question_was_rejected(world: World) -> None:
    @sayso.tool
    async def order(ctx: sayso.Context) -> str:
        """Order."""
        try:
            return str(await ctx.ask("Which size?"))
        except sayso.Rejected as no:
            return f"no answer: {no}"

    agent = world.agent(call("order"), say("Done."), tools=[order])
    result = await agent.run("go", thread="t")
    await agent.resume("t", decisions=[result.interruptions[0].reject("busy")], by="ana")
    assert tool_results(agent) == ["no answer: ana rejected it: busy"]


async def test_confirmation_in_tool_may_be_rejected(world: World) -> None:
    @sayso.tool
    async def publish(ctx: sayso.Context) -> str:
        """Publish."""
        return "published" if await ctx.confirm("Publish?") else "kept"

    agent = world.agent(call("publish"), say("Done."), tools=[publish])
    result = await agent.run("go", thread="t")
    await agent.resume("t", decisions=[result.interruptions[0].reject()])
    assert tool_results(agent) == ["kept"]


async def test_gated_tool_that_asks_is_approved_once(world: World) -> None:
    @sayso.tool(needs_approval=True)
    async def order(ctx: sayso.Context) -> str:
        """Order."""
        return str(await ctx.ask("Which size?"))

    agent = world.agent(call("order"), say("Done."), tools=[order])
    result = await agent.run("go", thread="t")
    result = await agent.resume("t", decisions=[result.interruptions[0].approve()])
    (request,) = result.interruptions
    assert request.kind == "question"
    result = await agent.resume("t", decisions=[request.respond("large")])
    assert (result.status, tool_results(agent)) == ("done", ["large"])


async def test_asking_tools_wait_independently(world: World) -> None:
    @sayso.tool
    async def order(ctx: sayso.Context, what: str) -> str:
        """Order."""
        world.ran.append(("order", what))
        return f"{what}: {await ctx.ask(f'Which {what}?')}"

    both = calls(call("order", {"what": "pizza"}), call("order", {"what": "wine"}))
    agent = world.agent(both, say("Done."), tools=[order])
    result = await agent.run("go", thread="t")
    first, second = result.interruptions
    result = await agent.resume("t", decisions=[second.respond("red")])
    assert (result.status, result.interruptions) == ("paused", (first,))
    # It waits for a person, so it is not due.
    assert world.store.ready(["assistant"]) == []
    assert world.ran == [("order", "pizza"), ("order", "wine"), ("order", "wine")]
    result = await agent.resume("t", decisions=[first.respond("plain")])
    assert tool_results(agent) == ["pizza: plain", "wine: red"]


async def test_unanswered_question_of_finished_tool_closes(world: World) -> None:
    @sayso.tool
    async def order(ctx: sayso.Context) -> str:
        """Order."""
        try:
            return str(await ctx.ask("Which size?"))
        except sayso.Paused:
            return "a small one, then"

    agent = world.agent(call("order"), say("Done."), tools=[order])
    result = await agent.run("go", thread="t")
    assert (result.status, tool_results(agent)) == ("done", ["a small one, then"])
    assert (await world.inbox.pending()).items == ()


async def test_question_in_tool_expires(slow_world: World, clock: Any) -> None:
    @sayso.tool
    async def order(ctx: sayso.Context) -> str:
        """Order."""
        try:
            return str(await ctx.ask("Which size?", expires_in=60))
        except sayso.Expired:
            return "nobody said"

    agent = slow_world.agent(call("order"), say("Done."), tools=[order])
    await agent.run("go", thread="t")
    clock.advance(61)
    result = await agent.resume("t")
    assert (result.status, tool_results(agent)) == ("done", ["nobody said"])


async def test_pause_without_request_waits_for_resume(
    world: World,
) -> None:
    starts: list[int] = []

    @sayso.tool
    async def wait_for_it(ctx: sayso.Context) -> str:
        starts.append(ctx.attempt)
        if len(starts) < 3:
            raise sayso.Paused(ctx.run, [])
        return "it came"

    agent = world.agent(call("wait_for_it", {}), say("Done."), tools=[wait_for_it])
    result = await asyncio.wait_for(agent.run("go", thread="t"), 20)
    assert (result.status, result.interruptions, starts) == ("paused", (), [1])
    assert (await agent.resume("t")).status == "paused"
    assert (await agent.resume("t")).output == "Done."
    assert (starts, tool_results(agent)) == ([1, 2, 3], ["it came"])
