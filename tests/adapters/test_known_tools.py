"""The server's list of agents behind adapters: their tools, and which of them ask."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from starlette.testclient import TestClient

import sayso
from sayso.gate.framework import FrameworkAgent
from sayso.policy import Policy
from sayso.server import create_app


def send(to: str, body: str = "Hello") -> str:
    """Send a message."""
    return to + body


def look_up(name: str) -> str:
    """Look somebody up."""
    return name


def openai_agents(gate: sayso.Gate, policy: Policy | None) -> FrameworkAgent:
    from agents import Agent, function_tool

    from sayso.adapters.openai_agents import guard

    careful = function_tool(send, needs_approval=True)
    sometimes = function_tool(look_up, name_override="find", needs_approval=_asks)
    other = Agent("other", tools=[sometimes])
    return guard(
        Agent("a", tools=[careful, function_tool(look_up)], handoffs=[other]), gate, policy
    )


async def _asks(*_: Any) -> bool:
    return True


def langchain(gate: sayso.Gate, policy: Policy | None) -> FrameworkAgent:
    from langchain.agents import create_agent
    from langchain_core.language_models import FakeListChatModel
    from langgraph.checkpoint.memory import InMemorySaver

    from sayso.adapters.langchain import guard

    agent = create_agent(
        FakeListChatModel(responses=["."]), tools=[send, look_up], checkpointer=InMemorySaver()
    )
    return guard(agent, gate, policy)


def pydantic_ai(gate: sayso.Gate, policy: Policy | None) -> FrameworkAgent:
    from pydantic_ai import Agent, FunctionToolset, Tool
    from pydantic_ai.models.test import TestModel

    from sayso.adapters.pydantic_ai import guard

    more = FunctionToolset(tools=[look_up])
    agent = Agent(
        TestModel(),
        tools=[Tool(send, requires_approval=True), look_up],
        toolsets=[more.prefixed("far").approval_required(), more.renamed({"find": "look_up"})],
    )
    return guard(agent, gate, policy)


def dspy(gate: sayso.Gate, policy: Policy | None) -> FrameworkAgent:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from dspy import ReAct

    from sayso.adapters.dspy import guard

    return guard(ReAct("question -> answer", tools=[send, look_up]), gate, policy)


def agent_framework(gate: sayso.Gate, policy: Policy | None) -> FrameworkAgent:
    from agent_framework import Agent, FunctionTool, tool
    from agent_framework_world import Client

    from sayso.adapters.agent_framework import guard

    asked = tool(send, approval_mode="always_require")
    bodiless = FunctionTool(name="find", description="Find.", input_model={"type": "object"})
    return guard(Agent(Client(lambda _: None), tools=[asked, look_up, bodiless]), gate, policy)


def google_adk(gate: sayso.Gate, policy: Policy | None) -> FrameworkAgent:
    from google.adk.agents import LlmAgent
    from google.adk.tools import FunctionTool

    from sayso.adapters.google_adk import guard

    asked = FunctionTool(send, require_confirmation=True)
    return guard(LlmAgent(name="mailer", tools=[asked, look_up]), gate, policy)


MADE = {make.__name__: make for make in (openai_agents, langchain, pydantic_ai, dspy)}
MADE["agent_framework"] = agent_framework
MADE["google_adk"] = google_adk


def listed(make: Any, policy: Policy | None = None) -> dict[str, dict[str, Any]]:
    gate = sayso.Gate("memory://", agent="mailer")
    app = create_app([make(gate, policy)], store=gate.store, auth=False)
    (agent,) = TestClient(app).get("/api/agents").json()["items"]
    assert agent["chat"] is False  # its framework's runner takes it further
    return {tool["name"]: tool for tool in agent["tools"]}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_server_lists_tools_of_adapters(make: Any) -> None:
    tools = listed(make)
    assert tools["send"]["description"].startswith("Send a message.")
    assert set(tools["send"]["schema"]["properties"]) == {"to", "body"}
    assert tools["send"]["needs_approval"] == "always"
    assert set(tools["send"]) == {"name", "description", "schema", "needs_approval", "allowed"}
    asks_all = make in (langchain, dspy)  # which have no word of their own for it
    assert tools["look_up"]["needs_approval"] == ("always" if asks_all else "never")
    assert {"submit", "finish"}.isdisjoint(tools)


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_policy_overrides_tool_flags_in_list(make: Any) -> None:
    rules = [sayso.Rule("send", where='to == "all"', verdict="deny"), sayso.Rule("look*")]
    tools = listed(make, Policy([*rules, sayso.Rule("send", verdict="ask")]))
    assert tools["look_up"]["needs_approval"] == "always"
    assert tools["send"]["needs_approval"] == "sometimes"
    assert listed(make, Policy([sayso.Rule(verdict="deny")]))["send"]["needs_approval"] == "never"


def test_list_covers_special_tools() -> None:
    assert listed(openai_agents)["find"]["needs_approval"] == "sometimes"
    renamed = listed(pydantic_ai)
    assert renamed["far_look_up"]["needs_approval"] == "sometimes"
    assert renamed["find"]["needs_approval"] == "never"
    answered = listed(agent_framework)["find"]
    assert (answered["needs_approval"], answered["allowed"]) == ("always", ["respond", "reject"])


def test_list_applies_policy_of_sayso_agent() -> None:
    mail, find = sayso.tool(send), sayso.tool(needs_approval=True)(look_up)
    policy = Policy([sayso.Rule("send", agent="mail*"), sayso.Rule("look*", agent="other")])
    agent = sayso.Agent("mailer", model=_model(), tools=[mail, find], policy=policy)
    app = create_app([agent], store="memory://", auth=False)
    (shown,) = TestClient(app).get("/api/agents").json()["items"]
    assert [tool["needs_approval"] for tool in shown["tools"]] == ["always", "always"]


def _model() -> Any:
    from sayso.testing import ScriptedModel

    return ScriptedModel(["Hello."])


def test_failing_framework_is_listed_without_tools() -> None:
    class Broken(FrameworkAgent):
        def known_tools(self) -> Any:
            raise RuntimeError("no idea")

    gate = sayso.Gate("memory://", agent="broken")
    broken = Broken(gate, sayso.Inbox(gate.store))
    app = create_app([broken], store=gate.store, auth=False)
    (shown,) = TestClient(app).get("/api/agents").json()["items"]
    assert (shown["name"], shown["tools"]) == ("broken", [])


def test_adapter_agent_has_no_chat_route() -> None:
    gate = sayso.Gate("memory://", agent="theirs")
    theirs = FrameworkAgent(gate, sayso.Inbox(gate.store))
    client = TestClient(create_app([theirs], store=gate.store, auth=False))
    answer = client.post("/api/chat/theirs", json={"id": "c", "messages": []})
    assert answer.status_code == 404
    assert "start it in Python with run(...), and decide in the inbox" in answer.text
