"""A chat model's request that may make its provider run tools is refused."""

from __future__ import annotations

import copy
import functools
import importlib
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_world import CONFIG, Chat, World, go
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

import sayso
from sayso.adapters.langchain import guard

pytestmark = pytest.mark.filterwarnings("ignore:Parameters .* should be specified explicitly")
SERVERS: Any = [{"type": "url", "url": "https://example.com", "name": "files"}]


# Both packages take seconds to import, which the other workers of a test run need not spend.


@functools.cache
def claude_class() -> Any:
    """Return Anthropic's model, without the network."""
    from langchain_anthropic import ChatAnthropic

    class Claude(ChatAnthropic):
        def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
            return ChatResult(generations=[ChatGeneration(message=AIMessage("Done."))])

        async def _agenerate(self, *args: Any, **kwargs: Any) -> ChatResult:
            return self._generate()

    return Claude


def claude(**options: Any) -> Any:
    own = copy.deepcopy(options)  # LangChain changes the dicts that it is given
    return claude_class()(model_name="claude-sonnet-4-5", api_key="none", **own)


def gemini(**options: Any) -> Any:
    from langchain_google_genai import ChatGoogleGenerativeAI

    return ChatGoogleGenerativeAI(model="gemini-2.5-pro", api_key="none", **options)


@pytest.fixture
def world() -> World:
    return World()


def agent(world: World, model: Any) -> Any:
    return create_agent(model, tools=world.tools(), checkpointer=InMemorySaver())


def calling(model: Any) -> Any:
    """A graph whose node calls the model, out of sight of ``guard``."""
    builder: Any = StateGraph(MessagesState)
    builder.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_edge(START, "model")
    return builder.compile(checkpointer=InMemorySaver())


PLAIN: dict[str, Any] = {
    "plain": {},
    "usual": {
        "temperature": 0.2,
        "max_tokens": 10,
        "timeout": 5.0,
        "max_retries": 1,
        "stop": ["END"],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "default_headers": {"x-team": "mail"},
        "model_kwargs": {"service_tier": "auto"},
    },
}
#: Options of the constructor, and the name that is refused.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "MCP servers": ({"mcp_servers": SERVERS}, "mcp_servers"),
    "betas": ({"betas": ["mcp-client-2025-04-04"]}, "betas"),
    "a container": ({"container": {"skills": [{"skill_id": "pdf"}]}}, "container"),
    "model_kwargs": ({"model_kwargs": {"mcp_servers": SERVERS}}, "mcp_servers"),
    "extra_body": ({"model_kwargs": {"extra_body": {"agents": ["x"]}}}, "agents"),
    "tools": (
        {"model_kwargs": {"tools": [{"type": "web_search_20250305"}]}},
        "web_search_20250305",
    ),
}


@pytest.mark.parametrize("options", PLAIN.values(), ids=PLAIN)
def test_usual_fields_are_accepted(world: World, options: dict[str, Any]) -> None:
    guarded = guard(agent(world, claude(**options)), world.gate)
    assert guarded.run_sync("go", thread="t").output == "Done."


@pytest.mark.parametrize(("options", "name"), REFUSED.values(), ids=REFUSED)
def test_unlisted_field_is_refused_by_guard(
    world: World, options: dict[str, Any], name: str
) -> None:
    with pytest.raises(sayso.InvalidCall, match=f"'{name}' of .*"):
        guard(agent(world, claude(**options)), world.gate)
    guarded = guard(agent(world, claude(**options)), world.gate, ungated=[name])
    assert guarded.run_sync("go", thread="t").output == "Done."


@pytest.mark.parametrize(("options", "name"), REFUSED.values(), ids=REFUSED)
def test_unlisted_field_is_refused_at_call(
    world: World, options: dict[str, Any], name: str
) -> None:
    guarded = guard(calling(claude(**options)), world.gate)
    with pytest.raises(sayso.InvalidCall, match=f"model was not called with the .* {name}: "):
        guarded.run_sync("go", thread="t")
    go(calling(claude(**options)), CONFIG)  # unguarded, it is not touched


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"mcp_servers": SERVERS}, "mcp_servers"),
        ({"extra_body": {"mcp_servers": SERVERS}}, "mcp_servers"),
        ({"tools": [{"type": "code_execution_20250522", "name": "code"}]}, "code"),
        ({"web_search_options": {}, "search": True}, "search"),
    ],
)
def test_unlisted_option_of_bind_is_refused(
    world: World, options: dict[str, Any], name: str
) -> None:
    chat = Chat(script=["Done."], seen=[])
    with pytest.raises(sayso.InvalidCall, match=f"{name}: "):
        guard(calling(chat.bind(**options)), world.gate).run_sync("go", thread="t")
    assert chat.seen == []


def test_google_functions_are_not_run_by_google(world: World) -> None:
    bound = gemini().bind_tools(world.tools())
    assert guard(graph_with(bound), world.gate).coverage() is not None
    searching = gemini().bind_tools([*world.tools(), {"google_search": {}}])
    with pytest.raises(sayso.InvalidCall, match="hosted tool 'google_search'"):
        guard(graph_with(searching), world.gate)


def graph_with(node: Any) -> Any:
    builder: Any = StateGraph(MessagesState)
    builder.add_node("model", node)
    builder.add_edge(START, "model")
    return builder.compile(checkpointer=InMemorySaver())


def test_fields_of_custom_model_are_accepted(world: World) -> None:
    guarded = guard(agent(world, Chat(script=["Done."], seen=[])), world.gate)
    assert guarded.run_sync("go", thread="t").output == "Done."


def test_fields_of_any_installed_model_are_listed(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site-packages" / "acme_models.py"
    package.parent.mkdir()
    package.write_text(
        "from langchain_world import Chat\n"
        "class Acme(Chat):\n"
        "    temperature: float = 0.5\n"
        "    connectors: list = []\n"
    )
    monkeypatch.syspath_prepend(package.parent)
    acme = importlib.import_module("acme_models").Acme
    guard(agent(world, acme(script=[])), world.gate)
    with pytest.raises(sayso.InvalidCall, match="'connectors' of"):
        guard(agent(world, acme(script=[], connectors=["drive"])), world.gate)
