"""A guarded graph behaves like the bare one: stream, usage, callbacks, trace, result."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ToolRetryMiddleware
from langchain_core.callbacks import BaseCallbackHandler, get_usage_metadata_callback
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langchain_core.tracers.run_collector import RunCollectorCallbackHandler
from langchain_world import CONFIG, Chat, World
from langgraph.checkpoint.memory import InMemorySaver

import sayso
from sayso.adapters.langchain import GuardedAgent, guard

MESSAGES: Any = {"messages": [{"role": "user", "content": "go"}]}
ALLOW = sayso.Policy([sayso.Rule("*", verdict="allow")])
SCRIPT: Any = [[("c1", "send", {"to": "ana"})], [("c2", "look", {"what": "sky"})], "Done."]
USAGE: Any = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}


class Metered(Chat):
    """A scripted model that reports its usage."""

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        (generation,) = super()._generate(messages).generations
        message = generation.message.model_copy(
            update={
                "usage_metadata": USAGE,
                "response_metadata": {"model_name": "metered"},
                "id": f"reply-{len(messages)}",
            }
        )
        return ChatResult(generations=[ChatGeneration(message=message)])


class Hooks(AgentMiddleware[Any, Any]):
    """Middleware that notes when it is called."""

    def __init__(self, heard: list[str]) -> None:
        self.heard = heard

    async def abefore_model(self, state: Any, runtime: Any) -> None:
        self.heard.append("before_model")

    async def aafter_model(self, state: Any, runtime: Any) -> None:
        self.heard.append("after_model")

    async def awrap_tool_call(self, request: Any, handler: Callable[..., Any]) -> Any:
        self.heard.append(f"before {request.tool_call['name']}")
        result = await handler(request)
        self.heard.append(f"after {result.text}")
        return result


class Listener(BaseCallbackHandler):
    """A callback handler that notes which events it hears."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def on_chain_start(self, *args: Any, name: str = "", **kwargs: Any) -> None:
        self.heard.append(("chain", name))

    def on_chain_end(self, *args: Any, **kwargs: Any) -> None:
        self.heard.append("chain ended")

    def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None:
        self.heard.append("model")

    def on_tool_start(self, tool: Any, text: str, *, inputs: Any = None, **kwargs: Any) -> None:
        self.heard.append((tool["name"], inputs))

    def on_tool_end(self, output: Any, **kwargs: Any) -> None:
        self.heard.append(output.text)


@pytest.fixture
def world() -> World:
    return World(policy=ALLOW)


def agent(world: World, **options: Any) -> Any:
    chat = Metered(script=SCRIPT, seen=[])
    return create_agent(chat, tools=world.tools(), checkpointer=InMemorySaver(), **options)


def runs_of(tracer: RunCollectorCallbackHandler) -> Any:
    def tree(run: Any) -> Any:
        return run.name, run.run_type, run.error, [tree(child) for child in run.child_runs]

    return [tree(run) for run in tracer.traced_runs]


def plain(value: Any) -> Any:
    """Return chunks without the ids that LangGraph and LangChain make up."""
    if isinstance(value, BaseMessage):
        return value.type, value.content, getattr(value, "tool_calls", None)
    if isinstance(value, dict):
        return {n: plain(v) for n, v in value.items() if n in STEADY or n not in MADE_UP}
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


STEADY = {"messages", "langgraph_node", "langgraph_step"}
MADE_UP = {"id", "thread_id", "checkpoint_ns", "langgraph_checkpoint_ns", "langgraph_path"} | {
    "langgraph_triggers",
    "timestamp",
    "checkpoint",
    "config",
    "parent_config",
}


@pytest.mark.parametrize("mode", ["updates", "values", "messages", "tasks", "debug", "checkpoints"])
async def test_stream_has_the_bare_chunks(world: World, mode: Any) -> None:
    bare = [c async for c in agent(world).astream(MESSAGES, CONFIG, stream_mode=mode)]
    stream = guard(agent(world), world.gate).stream("go", thread="t", stream_mode=mode)
    guarded = [chunk async for chunk in stream]
    assert plain(guarded) == plain(bare)
    assert stream.result.status == "done"


async def test_usage_is_the_bare_usage(world: World) -> None:
    with get_usage_metadata_callback() as bare:
        await agent(world).ainvoke(MESSAGES, CONFIG)
    with get_usage_metadata_callback() as guarded:
        result = await guard(agent(world), world.gate).run("go", thread="t")
    assert guarded.usage_metadata == bare.usage_metadata
    assert guarded.usage_metadata["metered"]["total_tokens"] == 15
    replies = [m for m in result.raw["messages"] if isinstance(m, AIMessage)]
    assert [reply.usage_metadata for reply in replies] == [USAGE] * 3


async def test_callbacks_and_middleware_run_as_bare(world: World) -> None:
    heard: dict[str, Any] = {}
    for kind in ("bare", "guarded"):
        hooks: list[str] = []
        listener = Listener()
        graph = agent(world, middleware=[Hooks(hooks)])
        if kind == "guarded":
            options = {"callbacks": [listener]}
            await guard(graph, world.gate, config=options).run("go", thread="t")
        else:
            await graph.ainvoke(MESSAGES, {**CONFIG, "callbacks": [listener]})
        heard[kind] = hooks, listener.heard
    assert heard["guarded"] == heard["bare"]
    assert ("send", {"to": "ana"}) in heard["bare"][1]


async def test_trace_is_the_bare_trace(world: World) -> None:
    bare, guarded = RunCollectorCallbackHandler(), RunCollectorCallbackHandler()
    await agent(world).ainvoke(MESSAGES, {**CONFIG, "callbacks": [bare]})
    await guard(agent(world), world.gate, config={"callbacks": [guarded]}).run("go", thread="t")
    assert runs_of(guarded) == runs_of(bare)


def test_pickling_is_refused_with_a_reason(world: World) -> None:
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
        pickle.dumps(agent(world))
    with pytest.raises(TypeError, match=r"cannot be pickled.*import it"):
        pickle.dumps(guard(agent(world), world.gate))


async def test_raw_equals_bare_values(world: World) -> None:
    bare = await agent(world).ainvoke(MESSAGES, CONFIG)
    guarded = guard(agent(world), world.gate)
    result = await guarded.run("go", thread="t")
    assert plain(result.raw) == plain(bare)
    assert result.raw["messages"][-1].usage_metadata == USAGE


async def test_raw_of_pause_has_the_interrupt(world: World) -> None:
    asks = sayso.Policy([sayso.Rule("*")])
    result = await guard(agent(world), world.gate, asks).run("go", thread="t")
    (interrupt,) = result.raw["__interrupt__"]
    assert interrupt.value["request_id"] == result.interruptions[0].id


def flaky(world: World, effect: str) -> GuardedAgent:
    """An agent whose only tool fails the first time, and is retried."""

    @tool
    def fetch(what: str) -> str:
        """Fetch something."""
        world.ran.append(what)
        if len(world.ran) == 1:
            raise ValueError("the line is busy")
        return f"{what} is here"

    chat = Chat(script=[[("c1", "fetch", {"what": "tea"})], "Done."], seen=[])
    retry = ToolRetryMiddleware(max_retries=2, initial_delay=0)
    graph = create_agent(chat, tools=[fetch], middleware=[retry], checkpointer=InMemorySaver())
    rules = [sayso.Rule("fetch", verdict="allow", effect=effect)]
    return guard(graph, world.gate, sayso.Policy(rules))


@pytest.mark.parametrize(("effect", "ran"), [("read", 2), ("once", 1)])
async def test_only_reads_are_retried(world: World, effect: str, ran: int) -> None:
    result = await flaky(world, effect).run("go", thread="t")
    assert (result.output, len(world.ran)) == ("Done.", ran)
