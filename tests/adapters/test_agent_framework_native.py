"""The framework's own flow of requests and responses: guarded agents, ``Gated``, hosted calls."""

from __future__ import annotations

from typing import Any

import pytest
from agent_framework import (
    AgentSession,
    ChatResponse,
    Content,
    Message,
    MiddlewareFailure,
    SupportsAgentRun,
    tool,
)
from agent_framework_bench import Bench, Client, call
from bench import pay_of

from sayso import Policy, Rule
from sayso.adapters.agent_framework import Gated, edited, guard, rejected, responded
from sayso.errors import InvalidDecision, NotFound, SaysoError

ASK = Policy([Rule("pay")])


def waiting(bench: Bench, *turns: Any, policy: Policy | None = ASK) -> Any:
    """A guarded agent as people of this framework use it."""
    script = turns or ([call("pay", to="ana", amount=5)], "Done.")
    agent = bench.agent(*script, tools=[pay_of(bench)])
    return guard(agent, bench.gate, policy).as_agent(by="ana")


def user(*contents: Any) -> Message:
    return Message("user", list(contents))


# -- a guarded agent as an agent


async def test_the_flow_of_the_document(bench: Bench) -> None:
    assert isinstance(waiting(bench), SupportsAgentRun)
    session = AgentSession(session_id="t")
    response = await waiting(bench).run("Pay Ana", session=session)
    (request,) = response.user_input_requests
    assert request.type == "function_approval_request"
    assert request.function_call.name == "pay"
    assert request.function_call.parse_arguments() == {"to": "ana", "amount": 5}
    restored = AgentSession.from_dict(session.to_dict())  # in another process
    yes = request.to_function_approval_response(True)
    response = await waiting(bench).run(user(yes), session=restored)
    assert (response.text, response.user_input_requests) == ("Done.", [])
    assert bench.ran == [("ana", 5)]
    again = await waiting(bench).run(user(yes), session=restored)  # once is enough
    assert (again.text, bench.ran) == ("Done.", [("ana", 5)])


@pytest.mark.parametrize(
    ("answer", "ran", "told"),
    [
        (lambda request: edited(request, {"to": "bob"}), [("bob", 1)], "paid 1 to bob"),
        (lambda request: rejected(request, "she left"), [], "she left"),
        (lambda request: responded(request, "paid in cash"), [], "paid in cash"),
        (lambda request: request.to_function_approval_response(False), [], "rejected"),
    ],
    ids=["edit", "reject with a reason", "respond", "reject"],
)
async def test_what_the_framework_has_no_words_for(
    bench: Bench, answer: Any, ran: Any, told: str
) -> None:
    session = AgentSession()
    (request,) = (await waiting(bench).run("go", session=session)).user_input_requests
    assert (await waiting(bench).run(user(answer(request)), session=session)).text == "Done."
    assert bench.ran == ran
    assert told in bench.results["c1"]


async def test_answers_may_come_one_by_one(bench: Bench) -> None:
    turns = [call("pay", "c1", to="ana"), call("pay", "c2", to="bob")], "Done."
    session = AgentSession()
    first, second = (await waiting(bench, *turns).run("go", session=session)).user_input_requests
    response = await waiting(bench, *turns).run(
        user(second.to_function_approval_response(True)), session=session
    )
    assert [left.id for left in response.user_input_requests] == [first.id]
    assert bench.ran == [("bob", 1)]
    response = await waiting(bench, *turns).run(
        user(first.to_function_approval_response(True)), session=session
    )
    assert (response.text, bench.ran) == ("Done.", [("bob", 1), ("ana", 1)])


async def test_a_forged_answer(bench: Bench) -> None:
    session = AgentSession()
    (request,) = (await waiting(bench).run("go", session=session)).user_input_requests
    forged = request.to_function_approval_response(True)
    forged.function_call = call("pay", to="eve", amount=900)
    assert (await waiting(bench).run(user(forged), session=session)).text == "Done."
    assert bench.ran == [("ana", 5)]  # only the id and the yes count


@pytest.mark.parametrize("approved", ["true", 1, None, "yes"])
async def test_what_is_not_a_yes_is_a_no(bench: Bench, approved: Any) -> None:
    session = AgentSession()
    (request,) = (await waiting(bench).run("go", session=session)).user_input_requests
    answer = request.to_function_approval_response(True)
    answer.approved = approved
    await waiting(bench).run(user(answer), session=session)
    assert bench.ran == []


async def test_wrong_answers_count_for_nothing(bench: Bench) -> None:
    session = AgentSession()
    (request,) = (await waiting(bench).run("go", session=session)).user_input_requests
    unknown = Content.from_function_approval_response(True, "req_nowhere", call("pay", to="eve"))
    for wrong, error in (
        (edited(request, {"to": 5}), InvalidDecision),
        (edited(request, {"amount": 5}), InvalidDecision),
        (unknown, NotFound),
    ):
        with pytest.raises(error):
            await waiting(bench).run(user(wrong), session=session)
        assert (await bench.waits()).id == request.id
    await waiting(bench).run(user(request.to_function_approval_response(True)), session=session)
    assert bench.ran == [("ana", 5)]


async def test_a_question_of_a_tool_is_a_call_that_the_host_answers(bench: Bench) -> None:
    async def pay(to: str) -> str:
        bank = await bench.gate.ask("Which bank?")
        bench.ran.append(bank)
        return f"paid from {bank}"

    def waits() -> Any:
        agent = bench.agent([call("pay", to="ana")], "Done.", tools=[pay])
        return guard(agent, bench.gate).as_agent()

    session = AgentSession()
    (question,) = (await waits().run("go", session=session)).user_input_requests
    assert (question.type, question.name) == ("function_call", "ask_user_question")
    assert "Which bank?" in str(question.arguments)
    answer = Message("tool", [responded(question, "north")])
    assert (await waits().run(answer, session=session)).text == "Done."
    assert bench.ran == ["north"]


async def test_a_stream_ends_with_the_request(bench: Bench) -> None:
    session = AgentSession()
    stream = waiting(bench).run("go", session=session, stream=True)
    updates = [update async for update in stream]
    (request,) = [c for update in updates for c in update.contents]
    assert request.type == "function_approval_request"
    final = await stream.get_final_response()
    assert [content.id for content in final.user_input_requests] == [request.id]


# -- the middleware alone, in the framework's own flow


def native(bench: Bench, *turns: Any, **options: Any) -> Any:
    script = turns or ([call("pay", to="ana", amount=5)], "Done.")
    tools = options.pop("tools", [pay_of(bench)])
    gated = options.pop("gated", None) or Gated(bench.gate, ASK)
    return bench.agent(*script, tools=tools, middleware=[gated], **options)


@pytest.mark.parametrize("stream", [False, True])
async def test_the_middleware_in_the_frameworks_own_flow(bench: Bench, stream: bool) -> None:
    async def run(agent: Any, given: Any) -> Any:
        if not stream:
            return await agent.run(given, session=session)
        return await agent.run(given, session=session, stream=True).get_final_response()

    session = AgentSession()
    agent = native(bench)
    (request,) = (await run(agent, "go")).user_input_requests
    assert request.additional_properties["sayso"]["request"] == (await bench.waits()).id
    yes = request.to_function_approval_response(True)
    early = await run(agent, user(yes))  # nobody has decided: the call is asked about again
    (request,) = early.user_input_requests
    assert bench.ran == []
    await bench.decide(lambda request: request.edit({"to": "bob"}))
    saved = session.to_dict()
    response = await run(agent, user(request.to_function_approval_response(True)))
    assert (response.text, bench.ran) == ("Done.", [("bob", 5)])
    assert "paid 5 to bob" in bench.results["c1"]
    # The same snapshot in a second worker: the bare framework would pay again.
    session = AgentSession.from_dict(saved)
    await run(native(bench), user(request.to_function_approval_response(True)))
    assert bench.ran == [("bob", 5)]


async def test_the_bare_framework_runs_a_stored_snapshot_twice(bench: Bench) -> None:
    pay = tool(pay_of(bench), approval_mode="always_require")

    def bare() -> Any:
        return bench.agent([call("pay", to="ana")], "Done.", tools=[pay])

    session = AgentSession()
    (request,) = (await bare().run("go", session=session)).user_input_requests
    saved = session.to_dict()
    for _ in range(2):
        again = AgentSession.from_dict(saved)
        await bare().run(user(request.to_function_approval_response(True)), session=again)
    assert bench.ran == [("ana", 1), ("ana", 1)]


async def test_a_reason_is_lost_by_the_bare_framework_and_told_by_the_middleware(
    bench: Bench,
) -> None:
    pay = tool(pay_of(bench), approval_mode="always_require")
    agent = bench.agent([call("pay", to="ana")], "Done.", tools=[pay])
    session = AgentSession()
    (request,) = (await agent.run("go", session=session)).user_input_requests
    no = request.to_function_approval_response(False)
    no.additional_properties = {"reason": "she left"}
    await agent.run(user(no), session=session)
    assert "she left" not in bench.results["c1"]

    session = AgentSession()
    (request,) = (await native(bench).run("go", session=session)).user_input_requests
    await bench.decide(lambda request: request.reject("she left"))
    back = request.to_function_approval_response(True)  # the decision counts, and not this
    await native(bench).run(user(back), session=session)
    assert ("she left" in bench.results["c1"], bench.ran) == (True, [])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_no_in_the_frameworks_own_form_is_a_decision(bench: Bench, stream: bool) -> None:
    script = [call("pay", "c1", to="ana"), call("pay", "c2", to="bob")], "Done."
    session = AgentSession()
    asked = (await native(bench, *script).run("go", session=session)).user_input_requests
    ana, bob = (one.additional_properties["sayso"]["request"] for one in asked)
    await bench.inbox.decide(ana, (await bench.inbox.get(ana)).approve(), by="ana")
    answers = [one.to_function_approval_response(one is asked[0]) for one in asked]
    agent = native(bench, *script, gated=Gated(bench.gate, ASK, by="bea"))
    session = AgentSession.from_dict(session.to_dict())
    if stream:
        await agent.run(user(*answers), session=session, stream=True).get_final_response()
    else:
        await agent.run(user(*answers), session=session)
    request = await bench.inbox.get(bob)
    assert request.decision is not None
    assert (request.status, request.decision.by, bench.ran) == ("rejected", "bea", [("ana", 1)])
    assert (await bench.inbox.pending()).items == ()


async def test_a_no_of_somebody_who_may_not_decide_closes_the_request(bench: Bench) -> None:
    rules = Policy([Rule("pay", reviewers=["group:finance"])])
    session = AgentSession()
    agent = native(bench, gated=Gated(bench.gate, rules))
    (asked,) = (await agent.run("go", session=session)).user_input_requests
    request = await bench.waits()
    await agent.run(user(asked.to_function_approval_response(False)), session=session)
    assert ((await bench.inbox.get(request.id)).status, bench.ran) == ("cancelled", [])


async def test_two_gates_around_one_call_ask_once(bench: Bench) -> None:
    guarded = guard(native(bench), bench.gate, ASK)
    await guarded.run("go", thread="t")
    await bench.decide(lambda request: request.edit({"to": "bob"}))
    assert (await guarded.resume("t")).status == "done"
    assert bench.ran == [("bob", 5)]


async def test_without_a_session_nothing_runs(bench: Bench) -> None:
    with pytest.raises(MiddlewareFailure, match="session"):
        await native(bench).run("go")
    assert bench.ran == []


async def test_what_was_tampered_with_stops_the_run(bench: Bench) -> None:
    await guard(native(bench), bench.gate, ASK).run("go", thread="t")
    await bench.decide(lambda request: request.approve())
    bench.store.close()
    import sqlite3

    file = sqlite3.connect(bench.folder / "sayso.db")
    with file:
        file.execute("UPDATE call SET args = replace(args, 'ana', 'eve')")
    file.close()
    fresh = Bench(bench.folder)
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


def with_service(bench: Bench, *requests: Content) -> Any:
    """An agent whose provider asks before it calls a tool of an MCP server."""
    told: list[Any] = bench.ran

    def reply(messages: Any) -> ChatResponse[Any]:
        bench.shown.append(list(messages))
        contents = [content for message in messages for content in message.contents]
        answers = [c for c in contents if c.type == "function_approval_response"]
        if not answers:
            return ChatResponse(messages=[Message("assistant", list(requests))])
        told.extend((answer.id, answer.approved) for answer in answers)
        return ChatResponse(messages=[Message("assistant", ["Found it."])])

    from agent_framework import Agent

    return guard(Agent(Client(reply), tools=[pay_of(bench)]), bench.gate)


async def test_a_hosted_call_is_approved(bench: Bench) -> None:
    stands = await with_service(bench, hosted("m1", query="prices")).run("go", thread="t")
    (request,) = stands.interruptions
    assert (request.tool, dict(request.args)) == ("docs.search", {"query": "prices"})
    assert set(request.allowed) == {"approve", "reject"}
    await bench.decide(lambda request: request.approve())
    stands = await with_service(bench, hosted("m1", query="prices")).resume("t")
    assert (stands.status, stands.output, bench.ran) == ("done", "Found it.", [("m1", True)])


async def test_hosted_calls_are_answered_when_all_are_decided(bench: Bench) -> None:
    both = hosted("m1", query="prices"), hosted("m2", query="salaries")
    stands = await with_service(bench, *both).run("go", thread="t")
    first, second = stands.interruptions
    await bench.inbox.decide(second.id, second.reject("none of its business"), by="ana")
    stands = await with_service(bench, *both).resume("t")
    assert (stands.status, bench.ran) == ("paused", [])
    await bench.inbox.decide(first.id, first.approve(), by="ana")
    stands = await with_service(bench, *both).resume("t")
    assert (stands.status, bench.ran) == ("done", [("m1", True), ("m2", False)])
    assert any("none of its business" in words for words in bench.words)
    # What was asked about then is not told again.
    assert (await with_service(bench).run("thanks", thread="t")).status == "done"
    assert "function_approval_response" not in bench.kinds


async def test_a_policy_answers_for_a_hosted_call(bench: Bench) -> None:
    free = Policy([Rule("docs.*", verdict="allow")])
    guarded = with_service(bench, hosted("m1", query="prices"))
    guarded.policy = free
    stands = await guarded.run("go", thread="t")
    assert (stands.status, bench.ran) == ("done", [("m1", True)])
