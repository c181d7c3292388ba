"""``interrupt(value)`` in a graph: how it is shown, and which answers people can give."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_world import MODES, World, answer, go, in_mode
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt

from sayso import InvalidDecision
from sayso.adapters.langchain import GuardedAgent, HumanInTheLoopMiddleware
from sayso.types import Request

ALL = {f"allow_{name}": True for name in ("accept", "edit", "respond", "ignore")}
NO_REJECT = {
    "action_requests": [{"name": "send", "args": {}, "description": ""}],
    "review_configs": [{"action_name": "send", "allowed_decisions": ["approve"]}],
}


@pytest.fixture
def world() -> Any:
    world = World()
    yield world
    world.gate.close()


def shown(**config: Any) -> dict[str, Any]:
    """A request as the agent inbox has it."""
    return {"action_request": {"action": "send", "args": {"to": "ana"}}, "config": config}


def asked(world: World, value: Any, **options: Any) -> tuple[GuardedAgent, Request]:
    builder: Any = StateGraph(dict)
    builder.add_node("ask", lambda state: {"said": interrupt(value, **options)})
    builder.add_edge(START, "ask")
    agent = GuardedAgent(builder.compile(checkpointer=InMemorySaver()), world.gate)
    (request,) = agent.run_sync({"a": 1}, thread="t").interruptions
    return agent, request


EDIT = {"type": "edit", "args": {"action": "send", "args": {"to": "bob"}}}
FIELDS = [{"name": "to", "type": "str"}, {"name": "copies", "type": "int", "required": False}]


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        ("Sure?", True),
        ("Sure?", "yes"),
        ("Sure?", None),
        ({"question": "Sure?", "price": 12}, {"action": "approve", "price": 11}),
        ({"question": "Sure?"}, {}),
        ({"table": "users", "fields": ["name", "mail"]}, True),
        ({"question": "Which?", "options": ["only"]}, ["any"]),
        ({"question": "Which?", "options": [{"odd": 1}, {"odd": 2}]}, 3),
        ({"question": "Which?", "options": ["a", "b"]}, "b"),
        ({"question": "Which?", "choices": [{"label": "A", "value": 1}, 2], "multiple": True}, [2]),
        ({"question": "Which?", "options": ["a", "b"], "free_text": True}, "neither"),
        ({"question": "Fill in", "fields": FIELDS}, {"to": "ana"}),
        ({"question": "How many?", "schema": {"type": "integer"}}, 3),
        (shown(**ALL), [{"type": "accept", "args": None}]),
        (shown(**ALL), {"type": "accept"}),
        (shown(**ALL), [EDIT]),
        ([shown(**ALL)], [{"type": "response", "args": "later"}]),
        ([shown(**ALL)], [{"type": "ignore", "args": None}]),
        ({"action_requests": [{}], "review_configs": []}, "as it is"),
    ],
)
def test_valid_answer_resumes_the_graph(world: World, value: Any, answer: Any) -> None:
    agent, request = asked(world, value)
    result = agent.resume_sync("t", decisions=[request.respond(answer)])
    assert (result.status, result.output["said"]) == ("done", answer)


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        ({"question": "Which?", "options": ["a", "b"]}, "c"),
        ({"question": "Fill in", "fields": FIELDS}, {"to": 1}),
        ({"question": "Fill in", "fields": FIELDS}, "ana"),
        (shown(**ALL), "yes"),
        (shown(**ALL), [{"type": "approve"}]),
        (shown(allow_accept=True), [EDIT]),
        (shown(**ALL), [{**EDIT, "args": {"action": "delete", "args": {}}}]),
        ([shown(**ALL)], []),
    ],
)
def test_invalid_answer_is_refused(world: World, value: Any, answer: Any) -> None:
    agent, request = asked(world, value)
    with pytest.raises(InvalidDecision):
        agent.resume_sync("t", decisions=[request.respond(answer)])
    assert [one.id for one in agent.resume_sync("t").interruptions] == [request.id]


def test_invalid_schema_accepts_any_answer(world: World) -> None:
    agent, request = asked(world, {"question": "What?"}, response_schema={"type": "odd"})
    assert agent.resume_sync("t", decisions=[request.respond(3)]).output["said"] == 3


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("Sure?", {"type": "reject", "message": "no"}),
        ([shown(**ALL)], [{"type": "ignore", "args": None}]),
        (shown(allow_respond=True), [{"type": "response", "args": "no"}]),
    ],
)
def test_rejection_has_the_shape_of_value(world: World, value: Any, said: Any) -> None:
    agent, request = asked(world, value)
    result = agent.resume_sync("t", decisions=[request.reject("no")])
    assert result.output["said"] == said


def test_cancelled_question_returns_a_rejection(world: World) -> None:
    agent, request = asked(world, "Sure?")
    world.inbox.cancel_sync(request.id, by="ana")
    result = agent.resume_sync("t")
    assert result.output["said"]["type"] == "reject"
    assert "cancelled" in result.output["said"]["message"]


@pytest.mark.parametrize("value", [NO_REJECT, shown(allow_accept=True)])
@pytest.mark.parametrize("cancelled", [False, True])
def test_value_without_rejection_asks_again(world: World, value: Any, cancelled: bool) -> None:
    agent, request = asked(world, value)
    for _ in range(2):
        if cancelled:
            world.inbox.cancel_sync(request.id, by="ana")
        else:
            world.inbox.decide_sync(request.id, request.reject("no"), by="ana")
        (again,) = agent.resume_sync("t").interruptions
        assert again.id != request.id
        request = again
    answer: Any = {"type": "accept"}
    if value is NO_REJECT:
        answer = {"decisions": [{"type": "approve"}]}
    assert agent.resume_sync("t", decisions=[request.respond(answer)]).output["said"] == answer


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("reply", "ran", "told"),
    [
        ({"type": "accept", "args": None}, [("send", "ana", "Hello")], "sent to ana"),
        (EDIT, [("send", "bob", "Hello")], "sent to bob"),
        ({"type": "response", "args": "later"}, [], "later"),
        ({"type": "ignore", "args": None}, [], "rejected"),
    ],
)
def test_agent_inbox_reply_is_accepted(
    world: World, mode: Any, reply: Any, ran: Any, told: str
) -> None:
    around = HumanInTheLoopMiddleware({"send": True}, gate=world.gate, **in_mode(mode))
    agent = world.agent([("c1", "send", {"to": "ana"})], "Done.", middleware=[around])
    go(agent)
    for wrong in ([reply, reply], [{**reply, "type": "yes"}], [{"type": "accept"}]):
        assert answer(agent, wrong)["__interrupt__"]
    assert answer(agent, [reply])["messages"][-1].text == "Done."
    assert world.ran == ran
    assert told in world.tool_results()[0]
