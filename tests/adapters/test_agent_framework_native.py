"""The framework's native requests and responses: guarded agents, ``Gated``, hosted calls."""

from __future__ import annotations

from typing import Any

import pytest
from agent_framework import (
    AgentExecutor,
    AgentSession,
    ChatResponse,
    Content,
    Message,
    MiddlewareFailure,
    SupportsAgentRun,
    WorkflowBuilder,
    tool,
)
from agent_framework_world import Client, World, call
from store_world import pay_of

from sayso import Policy, Rule
from sayso.adapters.agent_framework import Gated, edited, guard, rejected, responded
from sayso.errors import InvalidDecision, NotFound, SaysoError

ASK = Policy([Rule("pay")])


def waiting(world: World, *turns: Any, policy: Policy | None = ASK) -> Any:
    """A guarded agent as people of this framework use it."""
    script = turns or ([call("pay", to="ana", amount=5)], "Done.")
    agent = world.agent(*script, tools=[pay_of(world)])
    return guard(agent, world.gate, policy).as_agent(by="ana")


def user(*contents: Any) -> Message:
    return Message("user", list(contents))


# -- a guarded agent as an agent


async def test_documented_flow_runs_call_once(world: World) -> None:
    assert isinstance(waiting(world), SupportsAgentRun)
    session = AgentSession(session_id="t")
    response = await waiting(world).run("Pay Ana", session=session)
    (request,) = response.user_input_requests
    assert request.type == "function_approval_request"
    assert request.function_call.name == "pay"
    assert request.function_call.parse_arguments() == {"to": "ana", "amount": 5}
    restored = AgentSession.from_dict(session.to_dict())  # in another process
    yes = request.to_function_approval_response(True)
    response = await waiting(world).run(user(yes), session=restored)
    assert (response.text, response.user_input_requests) == ("Done.", [])
    assert world.ran == [("ana", 5)]
    again = await waiting(world).run(user(yes), session=restored)  # once is enough
    assert (again.text, world.ran) == ("Done.", [("ana", 5)])


@pytest.mark.parametrize(
    ("answer", "ran", "told"),
    [
        (lambda request: edited(request, {"to": "bob"}), [("bob", 5)], "paid 5 to bob"),
        (lambda request: edited(request, unset=["amount"]), [("ana", 1)], "paid 1 to ana"),
        (lambda request: rejected(request, "she left"), [], "she left"),
        (lambda request: responded(request, "paid in cash"), [], "paid in cash"),
        (lambda request: request.to_function_approval_response(False), [], "rejected"),
    ],
    ids=["edit", "unset", "reject with a reason", "respond", "reject"],
)
async def test_edits_and_responses_work_in_native_flow(
    world: World, answer: Any, ran: Any, told: str
) -> None:
    session = AgentSession()
    (request,) = (await waiting(world).run("go", session=session)).user_input_requests
    assert (await waiting(world).run(user(answer(request)), session=session)).text == "Done."
    assert world.ran == ran
    assert told in world.results["c1"]


async def test_partial_answers_run_their_calls(world: World) -> None:
    turns = [call("pay", "c1", to="ana"), call("pay", "c2", to="bob")], "Done."
    session = AgentSession()
    first, second = (await waiting(world, *turns).run("go", session=session)).user_input_requests
    response = await waiting(world, *turns).run(
        user(second.to_function_approval_response(True)), session=session
    )
    assert [left.id for left in response.user_input_requests] == [first.id]
    assert world.ran == [("bob", 1)]
    response = await waiting(world, *turns).run(
        user(first.to_function_approval_response(True)), session=session
    )
    assert (response.text, world.ran) == ("Done.", [("bob", 1), ("ana", 1)])


async def test_forged_arguments_in_answer_are_ignored(world: World) -> None:
    session = AgentSession()
    (request,) = (await waiting(world).run("go", session=session)).user_input_requests
    forged = request.to_function_approval_response(True)
    forged.function_call = call("pay", to="eve", amount=900)
    assert (await waiting(world).run(user(forged), session=session)).text == "Done."
    assert world.ran == [("ana", 5)]  # only the id and the yes count


@pytest.mark.parametrize("approved", ["true", 1, None, "yes"])
async def test_approval_other_than_true_rejects(world: World, approved: Any) -> None:
    session = AgentSession()
    (request,) = (await waiting(world).run("go", session=session)).user_input_requests
    answer = request.to_function_approval_response(True)
    answer.approved = approved
    await waiting(world).run(user(answer), session=session)
    assert world.ran == []


async def test_wrong_answers_decide_nothing(world: World) -> None:
    session = AgentSession()
    (request,) = (await waiting(world).run("go", session=session)).user_input_requests
    unknown = Content.from_function_approval_response(True, "req_nowhere", call("pay", to="eve"))
    for wrong, error in (
        (edited(request, {"to": 5}), InvalidDecision),
        (edited(request, unset=["to"]), InvalidDecision),
        (edited(request, unset=["iban"]), InvalidDecision),
        (unknown, NotFound),
    ):
        with pytest.raises(error):
            await waiting(world).run(user(wrong), session=session)
        assert (await world.waits()).id == request.id
    await waiting(world).run(user(request.to_function_approval_response(True)), session=session)
    assert world.ran == [("ana", 5)]


async def test_question_of_tool_is_answered_by_host(world: World) -> None:
    async def pay(to: str) -> str:
        bank = await world.gate.ask("Which bank?")
        world.ran.append(bank)
        return f"paid from {bank}"

    def waits() -> Any:
        agent = world.agent([call("pay", to="ana")], "Done.", tools=[pay])
        return guard(agent, world.gate).as_agent()

    session = AgentSession()
    (question,) = (await waits().run("go", session=session)).user_input_requests
    assert (question.type, question.name) == ("function_call", "ask_user_question")
    assert "Which bank?" in str(question.arguments)
    answer = Message("tool", [responded(question, "north")])
    assert (await waits().run(answer, session=session)).text == "Done."
    assert world.ran == ["north"]


async def test_stream_ends_with_the_request(world: World) -> None:
    session = AgentSession()
    stream = waiting(world).run("go", session=session, stream=True)
    updates = [update async for update in stream]
    made, request = [c for update in updates for c in update.contents]
    assert (made.type, made.call_id) == ("function_call", "c1")
    assert request.type == "function_approval_request"
    final = await stream.get_final_response()
    assert [content.id for content in final.user_input_requests] == [request.id]


async def test_stream_has_calls_and_results(world: World) -> None:
    """The same contents as those of the bare framework, in the same order."""
    turns = [call("pay", to="ana", amount=5)], "Done."

    async def contents(agent: Any, given: Any, session: AgentSession) -> list[Any]:
        stream = agent.run(given, session=session, stream=True)
        updates = [update async for update in stream]
        final = [c for m in (await stream.get_final_response()).messages for c in m.contents]
        streamed = [c for update in updates for c in update.contents]
        assert [c.to_dict() for c in final] == [c.to_dict() for c in streamed]
        return [
            (update.role, c.type, c.text or c.result) for update in updates for c in update.contents
        ]

    bare = world.agent(*turns, tools=[pay_of(world)])
    expected = await contents(bare, "go", AgentSession())
    assert [kind for _, kind, _ in expected] == ["function_call", "function_result", "text"]
    allow = Policy([Rule("*", verdict="allow")])
    assert await contents(waiting(world, policy=allow), "go", AgentSession()) == expected
    session = AgentSession()
    first = await contents(waiting(world), "go", session)
    assert [kind for _, kind, _ in first] == ["function_call", "function_approval_request"]
    request = await world.waits()
    yes = Content.from_function_approval_response(True, request.id, call("pay"))
    assert await contents(waiting(world), user(yes), session) == expected[1:]


async def test_agent_has_its_own_name(world: World) -> None:
    agent = world.agent("Done.", name="Clerk", description="Pays people.")
    shown = guard(agent, world.gate).as_agent()
    assert (shown.name, shown.description) == ("Clerk", "Pays people.")
    assert waiting(world).name == "teller"


@pytest.mark.parametrize("stream", [False, True])
async def test_agent_runs_in_agent_executor(world: World, stream: bool) -> None:
    """A plain workflow of the framework, with its own requests and answers."""
    start = AgentExecutor(waiting(world), id="pays")
    workflow = WorkflowBuilder(start_executor=start, output_from=[start]).build()

    async def run(*given: Any, **options: Any) -> Any:
        if not stream:
            return await workflow.run(*given, **options)
        return await workflow.run(*given, stream=True, **options).get_final_response()

    (event,) = (await run("Pay Ana")).get_request_info_events()
    assert event.data.function_call.name == "pay"
    assert world.ran == []
    answers = {event.request_id: event.data.to_function_approval_response(True)}
    result = await run(responses=answers)
    assert world.ran == [("ana", 5)]
    assert "Done." in "".join(output.text for output in result.get_outputs())


# -- the middleware alone, in the framework's own flow


def native(world: World, *turns: Any, **options: Any) -> Any:
    script = turns or ([call("pay", to="ana", amount=5)], "Done.")
    tools = options.pop("tools", [pay_of(world)])
    gated = options.pop("gated", None) or Gated(world.gate, ASK)
    return world.agent(*script, tools=tools, middleware=[gated], **options)


@pytest.mark.parametrize("stream", [False, True])
async def test_middleware_works_in_native_flow(world: World, stream: bool) -> None:
    async def run(agent: Any, given: Any) -> Any:
        if not stream:
            return await agent.run(given, session=session)
        return await agent.run(given, session=session, stream=True).get_final_response()

    session = AgentSession()
    agent = native(world)
    (request,) = (await run(agent, "go")).user_input_requests
    assert request.additional_properties["sayso"]["request"] == (await world.waits()).id
    yes = request.to_function_approval_response(True)
    early = await run(agent, user(yes))  # nobody has decided: the call is asked about again
    (request,) = early.user_input_requests
    assert world.ran == []
    await world.decide(lambda request: request.edit({"to": "bob"}))
    saved = session.to_dict()
    response = await run(agent, user(request.to_function_approval_response(True)))
    assert (response.text, world.ran) == ("Done.", [("bob", 5)])
    assert "paid 5 to bob" in world.results["c1"]
    # The same snapshot in a second worker: the bare framework would pay again.
    session = AgentSession.from_dict(saved)
    await run(native(world), user(request.to_function_approval_response(True)))
    assert world.ran == [("bob", 5)]


async def test_bare_framework_runs_snapshot_twice(world: World) -> None:
    pay = tool(pay_of(world), approval_mode="always_require")

    def bare() -> Any:
        return world.agent([call("pay", to="ana")], "Done.", tools=[pay])

    session = AgentSession()
    (request,) = (await bare().run("go", session=session)).user_input_requests
    saved = session.to_dict()
    for _ in range(2):
        again = AgentSession.from_dict(saved)
        await bare().run(user(request.to_function_approval_response(True)), session=again)
    assert world.ran == [("ana", 1), ("ana", 1)]


async def test_middleware_passes_reason_that_bare_loses(
    world: World,
) -> None:
    pay = tool(pay_of(world), approval_mode="always_require")
    agent = world.agent([call("pay", to="ana")], "Done.", tools=[pay])
    session = AgentSession()
    (request,) = (await agent.run("go", session=session)).user_input_requests
    no = request.to_function_approval_response(False)
    no.additional_properties = {"reason": "she left"}
    await agent.run(user(no), session=session)
    assert "she left" not in world.results["c1"]

    session = AgentSession()
    (request,) = (await native(world).run("go", session=session)).user_input_requests
    await world.decide(lambda request: request.reject("she left"))
    back = request.to_function_approval_response(True)  # the decision counts, and not this
    await native(world).run(user(back), session=session)
    assert ("she left" in world.results["c1"], world.ran) == (True, [])


@pytest.mark.parametrize("stream", [False, True])
async def test_native_rejection_is_a_decision(world: World, stream: bool) -> None:
    script = [call("pay", "c1", to="ana"), call("pay", "c2", to="bob")], "Done."
    session = AgentSession()
    asked = (await native(world, *script).run("go", session=session)).user_input_requests
    ana, bob = (one.additional_properties["sayso"]["request"] for one in asked)
    await world.inbox.decide(ana, (await world.inbox.get(ana)).approve(), by="ana")
    answers = [one.to_function_approval_response(one is asked[0]) for one in asked]
    agent = native(world, *script, gated=Gated(world.gate, ASK, by="bea"))
    session = AgentSession.from_dict(session.to_dict())
    if stream:
        await agent.run(user(*answers), session=session, stream=True).get_final_response()
    else:
        await agent.run(user(*answers), session=session)
    request = await world.inbox.get(bob)
    assert request.decision is not None
    assert (request.status, request.decision.by, world.ran) == ("rejected", "bea", [("ana", 1)])
    assert (await world.inbox.pending()).items == ()


async def test_rejection_by_non_reviewer_cancels_request(world: World) -> None:
    rules = Policy([Rule("pay", reviewers=["group:finance"])])
    session = AgentSession()
    agent = native(world, gated=Gated(world.gate, rules))
    (asked,) = (await agent.run("go", session=session)).user_input_requests
    request = await world.waits()
    await agent.run(user(asked.to_function_approval_response(False)), session=session)
    assert ((await world.inbox.get(request.id)).status, world.ran) == ("cancelled", [])


async def test_guard_around_middleware_asks_once(world: World) -> None:
    guarded = guard(native(world), world.gate, ASK)
    await guarded.run("go", thread="t")
    await world.decide(lambda request: request.edit({"to": "bob"}))
    assert (await guarded.resume("t")).status == "done"
    assert world.ran == [("bob", 5)]


async def test_nothing_runs_without_a_session(world: World) -> None:
    with pytest.raises(MiddlewareFailure, match="session"):
        await native(world).run("go")
    assert world.ran == []


async def test_tampered_row_stops_the_run(world: World) -> None:
    await guard(native(world), world.gate, ASK).run("go", thread="t")
    await world.decide(lambda request: request.approve())
    world.store.close()
    import sqlite3

    file = sqlite3.connect(world.folder / "sayso.db")
    with file:
        file.execute("UPDATE call SET args = replace(args, 'ana', 'eve')")
    file.close()
    fresh = World(world.folder)
    with pytest.raises(SaysoError, match=r"was not (run|used)"):
        await guard(native(fresh), fresh.gate, ASK).resume("t")
    assert fresh.ran == []
    fresh.close()


# -- calls that the provider makes


def hosted(id: str, **args: Any) -> Content:
    made = Content.from_function_call(
        call_id=id, name="search", arguments=args, hosted=True, server_name="docs"
    )
    return Content.from_function_approval_request(id=id, function_call=made)


def with_service(world: World, *requests: Content) -> Any:
    """An agent whose provider asks before it calls a tool of an MCP server."""
    told: list[Any] = world.ran

    def reply(messages: Any) -> ChatResponse[Any]:
        world.shown.append(list(messages))
        contents = [content for message in messages for content in message.contents]
        answers = [c for c in contents if c.type == "function_approval_response"]
        if not answers:
            return ChatResponse(messages=[Message("assistant", list(requests))])
        told.extend((answer.id, answer.approved) for answer in answers)
        return ChatResponse(messages=[Message("assistant", ["Found it."])])

    from agent_framework import Agent

    return guard(Agent(Client(reply), tools=[pay_of(world)]), world.gate)


async def test_hosted_call_runs_after_approval(world: World) -> None:
    result = await with_service(world, hosted("m1", query="prices")).run("go", thread="t")
    (request,) = result.interruptions
    assert (request.tool, dict(request.args)) == ("docs.search", {"query": "prices"})
    assert set(request.allowed) == {"approve", "reject"}
    await world.decide(lambda request: request.approve())
    result = await with_service(world, hosted("m1", query="prices")).resume("t")
    assert (result.status, result.output, world.ran) == ("done", "Found it.", [("m1", True)])


async def test_hosted_calls_are_answered_together(world: World) -> None:
    both = hosted("m1", query="prices"), hosted("m2", query="salaries")
    result = await with_service(world, *both).run("go", thread="t")
    first, second = result.interruptions
    await world.inbox.decide(second.id, second.reject("none of its business"), by="ana")
    result = await with_service(world, *both).resume("t")
    assert (result.status, world.ran) == ("paused", [])
    await world.inbox.decide(first.id, first.approve(), by="ana")
    result = await with_service(world, *both).resume("t")
    assert (result.status, world.ran) == ("done", [("m1", True), ("m2", False)])
    assert any("none of its business" in words for words in world.prompts)
    # What was asked about then is not told again.
    assert (await with_service(world).run("thanks", thread="t")).status == "done"
    assert "function_approval_response" not in world.kinds


async def test_policy_allows_hosted_call(world: World) -> None:
    free = Policy([Rule("docs.*", verdict="allow")])
    guarded = with_service(world, hosted("m1", query="prices"))
    guarded.policy = free
    result = await guarded.run("go", thread="t")
    assert (result.status, world.ran) == ("done", [("m1", True)])
