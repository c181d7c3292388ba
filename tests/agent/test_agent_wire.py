"""End to end: an agent, the real client, and a server that checks the wire format."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest
from agent_world import World, error_in
from fake_openai import FakeOpenAI, HttpError, Output

import sayso
from sayso.agent import Text
from sayso.agent.models import HostedApproval, ModelReply, OpenAIChat, OpenAIResponses
from sayso.testing.scripted_model import call, calls, refuse, say

PAY = call("pay", {"amount": 3, "to": None}, id="call_pay")
MCP = {
    "type": "mcp",
    "server_label": "shop",
    "server_url": "https://shop.example/mcp",
    "require_approval": "always",
}


@pytest.fixture
def server() -> Iterator[FakeOpenAI]:
    with FakeOpenAI() as server:
        yield server
    assert server.errors == []


@pytest.fixture
async def client(server: FakeOpenAI) -> AsyncIterator[openai.AsyncOpenAI]:
    http = openai.DefaultAsyncHttpxClient(verify=False)
    url = server.base_url
    async with openai.AsyncOpenAI(base_url=url, api_key="sk-test", http_client=http) as client:
        yield client


@pytest.fixture(params=["chat", "responses"])
def model(request: pytest.FixtureRequest, client: openai.AsyncOpenAI) -> Any:
    if request.param == "chat":
        return OpenAIChat("gpt-4o", client=client)
    return OpenAIResponses("gpt-5", client=client)


@pytest.mark.parametrize("streams", [False, True])
async def test_run_pauses_and_resumes_over_wire(
    world: World, server: FakeOpenAI, model: Any, streams: bool
) -> None:
    server.add(calls(PAY, call("look", {"what": "x"})), say("All done."))
    agent = world.agent(model=model, instructions="Be kind.", parallel_tool_calls=True)
    if streams:
        async for _ in agent.stream("pay ana", thread="t"):
            pass
        (request,) = (await world.inbox.pending()).items
        said = ""
        async for event in agent.stream_resume("t", decisions=[request.approve()]):
            said += event.text if isinstance(event, Text) else ""
        assert said == "All done."
    else:
        result = await agent.run("pay ana", thread="t")
        yes = [result.interruptions[0].approve()]
        assert (await agent.resume("t", decisions=yes)).output == "All done."
    assert sorted(world.ran) == [("look", "x"), ("pay", (3, "ana"))]
    assert (server.left, len(server.requests)) == (0, 2)
    body = json.dumps(server.bodies[-1])
    assert "paid 3 to ana" in body
    assert "requester" not in body
    assert "req_" not in body  # requests and decisions never stand in the model's messages


async def test_refusals_and_answers_keep_history_legal(
    world: World, server: FakeOpenAI, model: Any
) -> None:
    """The server refuses a history in which a call has no result, or a result no call."""
    many = calls(PAY, call("pay", {"amount": 4, "to": None}), call("nope"), call("pay", "{bad"))
    server.add(many, say("One."), call("pay", {"amount": 5, "to": None}), say("Two."))
    agent = world.agent(model=model)
    first, second = (await agent.run("go", thread="t")).interruptions
    result = await agent.resume("t", decisions=[first.reject("no"), second.respond("in cash")])
    assert result.output == "One."
    await agent.run("again", thread="t")
    assert (await agent.run("never mind", thread="t")).output == "Two."
    assert (server.left, world.ran) == (0, [])


async def test_typed_answers_and_questions_over_the_wire(
    world: World, server: FakeOpenAI, model: Any
) -> None:
    options = [
        {"label": "Small", "value": "S", "description": None},
        {"label": "Large", "value": "L", "description": "plus 2 euros"},
    ]
    asks = {"question": "Size?", "options": options, "allow_multiple": False, "free_text": None}
    server.add(call("ask_user_question", asks), say('{"value":["L"]}'))
    agent = world.agent(model=model, tools=[sayso.ask_user], output_type=list[str])
    (request,) = (await agent.run("pizza", thread="t")).interruptions
    result = await agent.resume("t", decisions=[request.respond("L")])
    assert result.output == ["L"]


@pytest.mark.parametrize("streams", [False, True])
async def test_truncated_call_is_not_shown(
    world: World, server: FakeOpenAI, model: Any, streams: bool
) -> None:
    server.add(call("pay", {"amount": 3, "to": "ana"}, finish="length"), say("Sorry."))
    agent = world.agent(model=model)
    if streams:
        async for _ in agent.stream("go", thread="t"):
            pass
        result = await agent.resume("t")
    else:
        result = await agent.run("go", thread="t")
    assert (result.status, (await world.inbox.pending()).items) == ("failed", ())
    assert "length limit" in result.error
    assert (await agent.run("again", thread="t")).output == "Sorry."


async def test_refusal_fails_the_run(world: World, server: FakeOpenAI, model: Any) -> None:
    server.add(refuse("I will not."), say("Hello."))
    agent = world.agent(model=model)
    result = await agent.run("go", thread="t")
    assert (result.status, result.refusal) == ("failed", "I will not.")
    assert (await agent.run("hi", thread="t")).output == "Hello."


async def test_retries_are_left_to_the_client(world: World, server: FakeOpenAI, model: Any) -> None:
    server.add(HttpError(500), HttpError(429), say("Hello."))
    assert (await world.agent(model=model).run("hi", thread="t")).output == "Hello."


async def test_forced_choices_over_the_wire(world: World, server: FakeOpenAI, model: Any) -> None:
    server.add(call("look", {"what": "x"}), say("Done."))
    await world.agent(model=model, tool_choice="look").run("go", thread="t")
    first, second = server.bodies
    assert "look" in json.dumps(first["tool_choice"])
    assert "tool_choice" not in second


# -- hosted calls, which the provider runs and only asks about


@pytest.fixture
def responses(client: openai.AsyncOpenAI) -> OpenAIResponses:
    return OpenAIResponses("gpt-5", client=client, tools=[MCP])


def asks_to_buy(id: str = "mcpr_1", server: str = "shop") -> ModelReply:
    wanted = HostedApproval(id, server, "buy", '{"item":"lamp"}')
    return ModelReply(approvals=(wanted,), finish="calls")


@pytest.mark.parametrize("yes", [True, False])
async def test_hosted_call_is_a_request(
    world: World, server: FakeOpenAI, responses: OpenAIResponses, yes: bool
) -> None:
    server.add(asks_to_buy(), say("Done."))
    agent = world.agent(model=responses)
    (request,) = (await agent.run("buy a lamp", thread="t")).interruptions
    assert (request.kind, request.tool, request.args, request.allowed) == (
        "approval",
        "shop.buy",
        {"item": "lamp"},
        ("approve", "reject"),
    )
    with pytest.raises(sayso.InvalidDecision):
        await agent.resume("t", decisions=[request.edit({"item": "car"})])
    decision = request.approve() if yes else request.reject("no lamps")
    result = await agent.resume("t", decisions=[decision])
    assert result.output == "Done."
    answers = [i for i in server.bodies[-1]["input"] if i.get("type") == "mcp_approval_response"]
    expected = {
        "type": "mcp_approval_response",
        "approval_request_id": "mcpr_1",
        "approve": yes,
    }
    assert answers == [expected if yes else {**expected, "reason": "no lamps"}]


async def test_hosted_and_own_calls_in_one_reply(
    world: World, server: FakeOpenAI, responses: OpenAIResponses
) -> None:
    from dataclasses import replace

    both = replace(PAY, approvals=asks_to_buy().approvals)
    server.add(both, say("Done."))
    agent = world.agent(model=responses)
    result = await agent.run("go", thread="t")
    pay, buy = result.interruptions
    result = await agent.resume("t", decisions=[buy.approve()])
    assert (result.status, result.interruptions, world.ran) == ("paused", (pay,), [])
    result = await agent.resume("t", decisions=[pay.approve()])
    assert (result.output, world.ran) == ("Done.", [("pay", (3, "ana"))])


@pytest.mark.parametrize("verdict", ["allow", "deny"])
async def test_policy_answers_hosted_calls(
    world: World, server: FakeOpenAI, responses: OpenAIResponses, verdict: Any
) -> None:
    server.add(asks_to_buy(), say("Done."))
    policy = sayso.Policy([sayso.Rule(tool="shop.*", verdict=verdict)])
    result = await world.agent(model=responses, policy=policy).run("buy a lamp", thread="t")
    assert result.output == "Done."
    assert server.bodies[-1]["input"][-1]["approve"] is (verdict == "allow")


async def test_new_input_rejects_hosted_call(
    world: World, server: FakeOpenAI, responses: OpenAIResponses
) -> None:
    server.add(asks_to_buy(), say("Hello."))
    agent = world.agent(model=responses)
    await agent.run("buy a lamp", thread="t")
    assert (await agent.run("no, wait", thread="t")).output == "Hello."
    (answer,) = [i for i in server.bodies[-1]["input"] if i.get("approve") is not None]
    assert answer["approve"] is False
    assert "wrote something new" in answer["reason"]


async def test_grant_for_hosted_call_names_its_server(
    world: World, server: FakeOpenAI, responses: OpenAIResponses
) -> None:
    agent = world.agent(model=responses)
    server.add(asks_to_buy(), say("Done."))
    (request,) = (await agent.run("buy", thread="t")).interruptions
    await world.inbox.decide(request.id, request.approve(), by="bea", grant={"scope": "any"})
    await agent.resume("t")
    server.add(asks_to_buy("mcpr_2"), say("Again."))
    assert (await agent.run("buy", thread="t")).output == "Again."
    server.add(asks_to_buy("mcpr_3", server="other"))
    assert (await agent.run("buy", thread="t")).status == "paused"


async def test_unreadable_hosted_arguments_are_refused(
    world: World, server: FakeOpenAI, responses: OpenAIResponses
) -> None:
    item = {
        "type": "mcp_approval_request",
        "id": "mcpr_1",
        "name": "buy",
        "arguments": "{nope",
        "server_label": "shop",
    }
    server.add(Output((item,)), say("Done."))
    assert (await world.agent(model=responses).run("buy", thread="t")).output == "Done."
    answer = server.bodies[-1]["input"][-1]
    assert answer["approve"] is False
    assert "not valid JSON" in error_in(answer["reason"])
