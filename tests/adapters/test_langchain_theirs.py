"""LangChain's own middleware for people, in an agent that is guarded."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware as LangChains
from langchain_world import Chat, World
from langgraph.checkpoint.memory import InMemorySaver

from assent import InvalidDecision, Policy, Rule
from assent.adapters.langchain import guard


@pytest.fixture
def world() -> Any:
    world = World()
    yield world
    world.gate.close()


@pytest.mark.parametrize(
    ("answer", "ran"),
    [
        ({"decisions": [{"type": "approve"}]}, [("look", "a")]),
        ({"decisions": [{"type": "reject", "message": "no"}]}, []),
        (None, []),
    ],
)
def test_langchains_own_middleware_asks_in_the_inbox(world: World, answer: Any, ran: Any) -> None:
    theirs = LangChains({"look": {"allowed_decisions": ["approve", "reject"]}})
    chat = Chat(script=[[("c1", "look", {"what": "a"})], "Done."], seen=[])
    agent = create_agent(chat, world.tools(), middleware=[theirs], checkpointer=InMemorySaver())
    guarded = guard(agent, world.gate, Policy([Rule("send")]))
    (question,) = guarded.run_sync("go", thread="t").interruptions
    for wrong in ("yes", {"decisions": []}, {"decisions": [{"type": "edit"}]}):
        with pytest.raises(InvalidDecision):
            guarded.resume_sync("t", decisions=[question.respond(wrong)])
    decision = question.reject("no") if answer is None else question.respond(answer)
    stands = guarded.resume_sync("t", decisions=[decision])
    assert (stands.output, world.ran) == ("Done.", ran)
