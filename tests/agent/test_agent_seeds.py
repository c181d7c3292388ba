"""The examples of the seed documents, with the public API only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from agent_world import World, asked, error_in, tool_results

import sayso
from sayso.testing.scripted_model import call, calls, say

# -- function calling, with a question tool (the first half of the OpenAI document)

OPTIONS = [
    {"label": "Password", "value": "password", "description": "classic"},
    {"label": "OAuth", "value": "oauth", "description": "an account elsewhere"},
    {"label": "Magic link", "value": "magic_link", "description": "by mail"},
]
ASK = {
    "question": "How shall users sign in?",
    "options": OPTIONS,
    "allow_multiple": False,
    "free_text": None,
}


async def test_interactive_agent_asks_and_continues(world: World) -> None:
    agent = world.agent(
        call("ask_user_question", ASK),
        call("ask_user_question", {**ASK, "allow_multiple": True}),
        say("Set up."),
        tools=[sayso.ask_user],
        instructions="You are a helpful assistant that asks clarifying questions.",
        max_turns=10,
    )
    result = await agent.run("Help me set up authentication for my app", thread="t")
    (question,) = result.interruptions
    for wrong in (4, "passwort", ["oauth"]):
        with pytest.raises(sayso.InvalidDecision):
            await agent.resume("t", decisions=[question.respond(wrong)])
    result = await agent.resume("t", decisions=[question.respond("oauth")])
    assert tool_results(agent) == ['{"answer":"oauth"}']
    result = await agent.resume(
        "t", decisions=[result.interruptions[0].respond(["oauth", "password"])]
    )
    assert result.output == "Set up."
    # The full history, in the order of the API: each call is followed by its result.
    roles = [message["role"] for message in asked(agent)[-1].messages]
    assert roles == ["user", "assistant", "tool", "assistant", "tool"]


async def test_safe_execution(world: World) -> None:
    """Bad JSON, unknown tools and failures are errors that only the model sees."""

    @sayso.tool
    def divide(a: float, b: float) -> float:
        """Divide."""
        return a / b

    many = calls(
        call("divide", {"a": 1, "b": 2}),
        call("divide", {"a": 1, "b": 0}),
        call("divide", "{not json"),
        call("multiply", {"a": 1, "b": 2}),
    )
    agent = world.agent(many, say("Done."), tools=[divide])
    assert (await agent.run("go", thread="t")).output == "Done."
    good, zero, broken, unknown = tool_results(agent)
    assert good == "0.5"
    assert error_in(zero) == "The call failed: ZeroDivisionError: float division by zero"
    assert error_in(broken).startswith("not valid JSON")
    assert "there is no tool 'multiply'" in error_in(unknown)


async def test_maximum_iterations(world: World) -> None:
    agent = world.agent(*[call("look", {"what": "x"})] * 10, max_turns=10)
    result = await agent.run("go", thread="t")
    assert (result.status, len(asked(agent))) == ("failed", 10)
    assert "10 turns" in result.error


@pytest.mark.parametrize(
    "choice",
    ["auto", "required", "none", {"type": "function", "function": {"name": "ask_user_question"}}],
)
async def test_tool_choice_reaches_the_model(world: World, choice: Any) -> None:
    agent = world.agent(say("Done."), tools=[sayso.ask_user], tool_choice=choice)
    await agent.run("go", thread="t")
    assert asked(agent)[0].tool_choice == choice


# -- approvals of an agent's calls (its second half)


class Company:
    """The tools of the examples."""

    def __init__(self, world: World) -> None:
        self.world = world

    def tools(self) -> list[Any]:
        ran = self.world.ran.append

        @sayso.tool(needs_approval=True)
        async def deploy_to_production(version: str) -> dict[str, str]:
            """Deploy to production environment."""
            ran(("production", version))
            return {"status": "deployed", "environment": "production", "version": version}

        @sayso.tool(needs_approval=False)
        async def deploy_to_staging(version: str) -> dict[str, str]:
            """Deploy to staging environment."""
            ran(("staging", version))
            return {"status": "deployed", "environment": "staging", "version": version}

        async def in_production(args: Mapping[str, Any]) -> bool:
            return bool(args["environment"] == "production")

        @sayso.tool(needs_approval=in_production)
        async def rollback(environment: str, version: str) -> dict[str, str]:
            """Rollback to previous version."""
            ran(("rollback", environment))
            return {"status": "rolled back", "environment": environment, "version": version}

        @sayso.tool(needs_approval=lambda args: args["table"] in {"users", "payments", "accounts"})
        def delete_data(table: str, where: str) -> int:
            """Delete data from database."""
            ran(("delete", table))
            return 12

        @sayso.tool(needs_approval=lambda args: len(args["recipients"]) > 100)
        def send_email(recipients: list[str], subject: str, body: str) -> str:
            """Send email."""
            ran(("mail", len(recipients)))
            return "sent"

        return [deploy_to_production, deploy_to_staging, rollback, delete_data, send_email]


def mail(count: int) -> Any:
    to = [f"c{n}@example.com" for n in range(count)]
    return call("send_email", {"recipients": to, "subject": "Hello", "body": "Welcome."})


@pytest.mark.parametrize(
    ("step", "pauses", "effect"),
    [
        (call("deploy_to_production", {"version": "2.5.0"}), True, ("production", "2.5.0")),
        (call("deploy_to_staging", {"version": "2.5.0"}), False, ("staging", "2.5.0")),
        (
            call("rollback", {"environment": "production", "version": "2.4.0"}),
            True,
            ("rollback", "production"),
        ),
        (
            call("rollback", {"environment": "staging", "version": "2.4.0"}),
            False,
            ("rollback", "staging"),
        ),
        (call("delete_data", {"table": "users", "where": "1=1"}), True, ("delete", "users")),
        (call("delete_data", {"table": "logs", "where": "1=1"}), False, ("delete", "logs")),
        (mail(100), False, ("mail", 100)),
        (mail(101), True, ("mail", 101)),
    ],
)
@pytest.mark.parametrize("approved", [True, False])
async def test_always_never_and_conditional_approvals(
    world: World, step: Any, pauses: bool, effect: Any, approved: bool
) -> None:
    agent = world.agent(step, say("Final."), tools=Company(world).tools())
    result = await agent.run("go", thread="t")
    assert bool(result.interruptions) is pauses
    for interruption in result.interruptions:
        assert world.ran == []
        assert interruption.tool is not None
        if approved:
            result.state.approve(interruption)
        else:
            result.state.reject(interruption)
    if pauses:
        result = await agent.resume(result.state)
    assert (result.status, result.output) == ("done", "Final.")
    assert world.ran == ([effect] if approved or not pauses else [])


# -- approvals outside the chat history (the decision record of the agent framework)


def flight_agent(world: World, *steps: Any) -> sayso.Agent:
    @sayso.tool(needs_approval=True)
    async def book_flight(destination: str, day: str) -> str:
        """Book a flight."""
        world.ran.append(("flight", (destination, day)))
        return "booked"

    return world.agent(*steps, tools=[book_flight])


FLIGHT = call("book_flight", {"destination": "Paris", "day": "Friday"}, text="I found a good one.")


async def test_chat_agent_flow(world: World) -> None:
    """Ask, store the request, decide from the request itself, and run again."""
    agent = flight_agent(world, FLIGHT, say("Booked."))
    response = await agent.run("Please book me a flight for Friday to Paris.", thread="t")
    while response.interruptions:
        decisions = []
        for request in response.interruptions:
            assert (request.tool, request.note) == ("book_flight", "I found a good one.")
            assert request.args == {"destination": "Paris", "day": "Friday"}
            decisions.append(request.approve())
        response = await agent.resume("t", decisions=decisions)
    assert (response.output, world.ran) == ("Booked.", [("flight", ("Paris", "Friday"))])
    stored = [json.loads(body) for _, body in world.store.messages("t")]
    assert [m["role"] for m in stored] == ["user", "assistant", "tool", "assistant"]
    assert "req_" not in json.dumps(stored)
    assert "approve" not in json.dumps(stored)
    # The record of who said yes is beside the history, and stays.
    (record,) = (await world.inbox.history()).items
    assert record.decision is not None
    assert (record.status, record.decision.type) == ("approved", "approve")


async def test_chat_agent_flow_with_rejection(world: World) -> None:
    agent = flight_agent(world, FLIGHT, say("Not booked."))
    response = await agent.run("Please book me a flight for Friday to Paris.", thread="t")
    response = await agent.resume("t", decisions=[response.interruptions[0].reject()])
    assert (response.output, world.ran) == ("Not booked.", [])
    assert error_in(tool_results(agent)[0]) == "A person rejected this call, so it was not run."


async def test_open_request_belongs_to_its_thread(
    world: World,
) -> None:
    first = flight_agent(world, FLIGHT)
    await first.run("Please book me a flight for Friday to Paris.", thread="t")
    del first
    (request,) = (await world.inbox.pending(thread="t")).items
    agent = flight_agent(world, say("Booked."))
    assert (await agent.resume("t")).interruptions == (request,)
    assert (await agent.resume("t", decisions=[request.approve()])).output == "Booked."


async def test_custom_agent_flow(world: World) -> None:
    """An agent with its own steps keeps its progress and continues where it was."""

    @sayso.tool
    async def plan_trip(ctx: sayso.Context, city: str) -> str:
        """Plan a trip, step by step."""
        price = await ctx.once("price", lambda: world.ran.append(("price", city)) or 120)
        if not await ctx.confirm(f"Book {city} for {price} euros?", {"city": city}):
            return "not booked"
        seat = await ctx.ask(sayso.Question("Which seat?", options=("aisle", "window")))
        await ctx.once("book", lambda: world.ran.append(("book", (city, seat))))
        return f"booked {city}, {seat}, {price} euros"

    agent = world.agent(call("plan_trip", {"city": "Paris"}), say("Have fun."), tools=[plan_trip])
    response = await agent.run("Plan my trip", thread="t")
    (request,) = response.interruptions
    # Not of a function call, but of a text, which is in the digest.
    assert (request.tool, request.args["text"]) == (None, "Book Paris for 120 euros?")
    response = await agent.resume("t", decisions=[request.approve()])
    response = await agent.resume("t", decisions=[response.interruptions[0].respond("window")])
    assert (response.output, tool_results(agent)) == (
        "Have fun.",
        ["booked Paris, window, 120 euros"],
    )
    assert world.ran == [("price", "Paris"), ("book", ("Paris", "window"))]
