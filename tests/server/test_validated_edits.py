"""Edits of calls whose validators change the arguments, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel, field_validator
from served import Serve

import sayso
from sayso.adapters.langchain import GuardedAgent, guard
from sayso.channels.card import card
from sayso.stores.memory import MemoryStore


class Labels(BaseModel):
    tags: list[str]

    @field_validator("tags", mode="before")
    @classmethod
    def _split(cls, value: str) -> list[str]:
        if not value:
            raise ValueError("name a tag")
        return value.split(",")


class Chat(FakeMessagesListChatModel):
    def bind_tools(self, tools: Any, **kwargs: Any) -> Chat:
        return self


RAN: list[list[str]] = []


def label(tags: list[str]) -> str:
    RAN.append(tags)
    return "labelled"


@pytest.fixture
def agent() -> GuardedAgent:
    RAN.clear()
    calls: Any = [{"name": "label", "args": {"tags": "a,b"}, "id": "c1"}]
    model = Chat(responses=[AIMessage("", tool_calls=calls), AIMessage("Done.")])
    tool = StructuredTool.from_function(label, description="Label.", args_schema=Labels)
    gate = sayso.Gate(MemoryStore(), agent="labeller", policy=sayso.Policy([sayso.Rule("*")]))
    return guard(create_agent(model, tools=[tool], checkpointer=InMemorySaver()), gate)


def test_check_returns_validated_edit(agent: GuardedAgent, serve: Serve) -> None:
    result = agent.run_sync("go", thread="t")
    (request,) = result.interruptions
    served = serve(store=agent.gate.store, agents=[agent], workers=0)
    client = served.client(served.token("ana"))
    body = client.get(f"/api/requests/{request.id}").json()
    assert (body["args"], body["written"]) == ({"tags": ["a", "b"]}, {"tags": "a,b"})
    assert body["shown"]["written"] == {"tags": "a,b"}
    edit = {"args": {"tags": "c,d"}}
    check = client.post(f"/api/requests/{request.id}/check", json=edit).json()
    assert (check["ok"], check["validated"]) == (True, {"tags": ["c", "d"]})
    decision = {"type": "edit", **edit, "seen_digest": body["digest"]}
    decided = client.post(f"/api/requests/{request.id}/decision", json=decision).json()
    assert (decided["args"], decided["written"]) == ({"tags": ["c", "d"]}, {"tags": "c,d"})
    assert agent.resume_sync("t").status == "done"
    assert RAN == [["c", "d"]]


def test_edit_that_the_tool_refuses_decides_nothing(agent: GuardedAgent, serve: Serve) -> None:
    (request,) = agent.run_sync("go", thread="t").interruptions
    served = serve(store=agent.gate.store, agents=[agent], workers=0)
    client = served.client(served.token("ana"))
    edit = {"args": {"tags": ""}}
    check = client.post(f"/api/requests/{request.id}/check", json=edit).json()
    assert (check["ok"], check["validated"]) == (False, None)
    assert "name a tag" in check["errors"][0]["message"]
    decision = {"type": "edit", **edit, "seen_digest": request.digest}
    refused = client.post(f"/api/requests/{request.id}/decision", json=decision)
    assert (refused.status_code, "name a tag" in refused.text) == (422, True)
    assert client.get(f"/api/requests/{request.id}").json()["status"] == "pending"


def test_only_a_tool_call_can_be_edited(serve: Serve) -> None:
    served = serve(auth=False)
    gate = sayso.Gate(served.store, wait=0)
    with pytest.raises(sayso.Paused) as paused, gate.run("r1"):
        gate.confirm_sync("Publish?")
    path = f"/api/requests/{paused.value.requests[0].id}/check"
    check = served.client().post(path, json={"args": {"text": "Do not"}}).json()
    assert check["errors"] == [{"field": "args", "message": "only a tool call can be edited"}]


def test_unknown_validators_ask_again(agent: GuardedAgent) -> None:
    (request,) = agent.run_sync("go", thread="t").interruptions
    inbox = sayso.Inbox(agent.gate.store)
    inbox.edit_sync(request, {"tags": "c,d"}, by="ana")
    (again,) = agent.resume_sync("t").interruptions
    assert (again.args, again.written, RAN) == ({"tags": ["c", "d"]}, {"tags": "c,d"}, [])
    inbox.approve_sync(again, by="ana")
    agent.resume_sync("t")
    assert RAN == [["c", "d"]]


def test_terminal_card_shows_both_forms(agent: GuardedAgent) -> None:
    (request,) = agent.run_sync("go", thread="t").interruptions
    words = "\n".join(line.text for line in card(request, request.created_at))
    assert "What the model wrote, before the tool's validators" in words
    assert "a,b" in words
