"""Code of a guarded agent runs tools in every way that LangChain has, on any OS thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda, RunnableParallel
from langchain_core.tools import BaseTool, StructuredTool, Tool, tool
from langchain_world import CONFIG, Chat, World
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

import sayso
from sayso.adapters.langchain import guard

pytestmark = pytest.mark.filterwarnings("ignore:This API is in beta")
SEND: Any = [("i1", "send", {"to": "ana"})]
CALL: Any = {"type": "tool_call", "id": "x1", "name": "send", "args": {"to": "ana"}}
SENT = ("send", "ana", "Hello")


class Own(BaseTool):
    """A tool that is a class of the user, without ``args_schema``."""

    name: str = "send"
    description: str = "Send one mail."
    ran: Any

    def _run(self, to: str) -> str:
        self.ran.append(("send", to, "Hello"))
        return f"sent to {to}"


def single(world: World) -> Tool:
    """A tool that takes one string."""

    def send(to: str) -> str:
        world.ran.append(("send", to, "Hello"))
        return f"sent to {to}"

    return Tool("send", send, "Send one mail.")


def asynchronous(world: World) -> StructuredTool:
    """A tool whose function is a coroutine function."""

    async def send(to: str) -> str:
        """Send one mail."""
        world.ran.append(("send", to, "Hello"))
        return f"sent to {to}"

    return StructuredTool.from_function(coroutine=send)


def clerk(world: World, **options: Any) -> Any:
    script = Chat(script=[SEND, "Inner done."], seen=[])
    return create_agent(script, tools=world.tools(), **options)


def graph_with_node(world: World) -> Any:
    builder: Any = StateGraph(MessagesState)
    builder.add_node("tools", ToolNode(world.tools()))
    builder.add_edge(START, "tools")
    return builder.compile()


def functional(world: World) -> Any:
    send = world.tools()[0]

    @task
    def call(made: Any) -> Any:
        return send.invoke(made)

    @entrypoint()
    def flow(input: Any) -> Any:
        return call(CALL).result()

    return flow


MESSAGES: Any = {"messages": [{"role": "user", "content": "go"}]}
TURN: Any = {"messages": [AIMessage("", tool_calls=[CALL])]}

#: How code can run the tool of an agent that was never guarded.
SHAPES: dict[str, Callable[[World], Any]] = {
    "invoke": lambda w: w.tools()[0].invoke({"to": "ana"}),
    "run": lambda w: w.tools()[0].run({"to": "ana"}),
    "a tool call": lambda w: w.tools()[0].invoke(CALL),
    "batch": lambda w: w.tools()[0].batch([{"to": "ana"}]),
    "stream": lambda w: list(w.tools()[0].stream({"to": "ana"})),
    "async": lambda w: asyncio.run(w.tools()[0].ainvoke({"to": "ana"})),
    "async batch": lambda w: asyncio.run(w.tools()[0].abatch([{"to": "ana"}])),
    "a chain": lambda w: (RunnableLambda(lambda to: {"to": to}) | w.tools()[0]).invoke("ana"),
    "parallel": lambda w: RunnableParallel(a=w.tools()[0]).invoke({"to": "ana"}),
    "a retry": lambda w: w.tools()[0].with_retry().invoke({"to": "ana"}),
    "a copy": lambda w: w.tools()[0].model_copy().invoke({"to": "ana"}),
    "its function": lambda w: w.tools()[0].func("ana"),
    "its function, by name": lambda w: single(w).func(to="ana"),
    "its coroutine": lambda w: asyncio.run(asynchronous(w).coroutine("ana")),
    "its method": lambda w: w.tools()[0]._run(to="ana", config={}),
    "its async method": lambda w: asyncio.run(w.tools()[0]._arun(to="ana", config={})),
    "one string": lambda w: single(w).run("ana"),
    "an own class": lambda w: Own(ran=w.ran).invoke({"to": "ana"}),
    "an agent": lambda w: clerk(w).invoke(MESSAGES),
    "an agent, streamed": lambda w: list(clerk(w).stream(MESSAGES)),
    "an agent with its own saver": lambda w: clerk(w, checkpointer=InMemorySaver()).invoke(
        MESSAGES, {"configurable": {"thread_id": "own"}}
    ),
    "an agent with the same thread": lambda w: clerk(w, checkpointer=InMemorySaver()).invoke(
        MESSAGES, CONFIG
    ),
    "an agent without checkpoints": lambda w: clerk(w, checkpointer=False).invoke(MESSAGES),
    "an agent behind a tool": lambda w: (
        RunnableLambda(lambda task: clerk(w).invoke(MESSAGES)["messages"][-1].text)
        .as_tool(arg_types={"task": str}, name="clerk", description="x")
        .invoke({"task": "mail"})
    ),
    "a tool node": lambda w: ToolNode(w.tools()).invoke(TURN),
    "a graph": lambda w: graph_with_node(w).invoke(TURN),
    "a functional graph": lambda w: functional(w).invoke("go"),
}


#: LangGraph runs those only inside a graph.
INSIDE_GRAPH = {"a tool node"}


def shapes_in(*places: Callable[..., Any]) -> list[Any]:
    """Return every shape with every place that it can have."""
    other = {on_os_thread, in_pool}
    return [
        pytest.param(shape, where, id=f"{shape}-{where.__name__}")
        for shape in SHAPES
        for where in places
        if not (shape in INSIDE_GRAPH and where in other)
    ]


def on_os_thread(job: Callable[[], Any]) -> Any:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            job()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    for error in errors:
        raise error


def in_pool(job: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(2) as pool:
        return pool.submit(job).result()


def swallowed(job: Callable[[], Any]) -> Any:
    try:
        return job()
    except BaseException:
        return "nothing happened"


def here(job: Callable[[], Any]) -> Any:
    return job()


def delegating(world: World, shape: str, where: Callable[..., Any]) -> Any:
    @tool
    def delegate(text: str) -> str:
        """Delegate."""
        where(lambda: SHAPES[shape](world))
        return "delegated"

    chat = Chat(script=[[("o1", "delegate", {"text": "mail ana"})], "Done."], seen=[])
    return create_agent(chat, tools=[delegate], checkpointer=InMemorySaver())


def policy(effect: Any) -> sayso.Policy:
    allows = sayso.Rule("*", verdict="allow", effect=effect)
    return sayso.Policy([sayso.Rule("send"), allows])


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(("shape", "where"), shapes_in(here, on_os_thread, in_pool, swallowed))
def test_tool_inside_idempotent_call_asks(
    world: World, shape: str, where: Callable[..., Any]
) -> None:
    guarded = guard(delegating(world, shape, where), world.gate, policy("idempotent"))
    result = guarded.run_sync("go", thread="t")
    (request,) = result.interruptions
    assert (request.tool, world.ran) == ("send", [])
    world.decide()
    assert guarded.resume_sync("t").output == "Done."
    assert world.ran == [SENT]


@pytest.mark.parametrize(("shape", "where"), shapes_in(here, on_os_thread))
def test_tool_inside_call_with_effect_is_denied(
    world: World, shape: str, where: Callable[..., Any]
) -> None:
    guarded = guard(delegating(world, shape, where), world.gate, policy("once"))
    status = "done"
    try:
        status = guarded.run_sync("go", thread="t").status
    except sayso.Refused as refusal:
        status = "done" if "gate.once" in str(refusal) else str(refusal)
    assert status == "done"
    assert (world.ran, world.pending()) == ([], [])


def test_awaited_tool_node_in_call_asks(world: World) -> None:
    @tool
    async def delegate(task: str) -> str:
        """Send a mail."""
        return str(await ToolNode(world.tools()).ainvoke(TURN))

    agent = world.agent([("o1", "delegate", {"task": "mail"})], "Done.", tools=[delegate])
    guarded = guard(agent, world.gate, policy("idempotent"))
    assert guarded.run_sync("go", thread="t").status == "paused"
    world.decide()
    assert guarded.resume_sync("t").output == "Done."
    assert world.ran == [SENT]


@pytest.mark.parametrize("shape", SHAPES)
def test_unguarded_agent_is_not_touched(world: World, shape: str) -> None:
    guard(delegating(world, shape, here), world.gate, policy("idempotent"))
    delegating(world, shape, here).invoke(MESSAGES, CONFIG)
    assert (world.ran, world.pending()) == ([SENT], [])


@pytest.mark.parametrize("shape", SHAPES)
def test_tool_inside_node_asks_or_is_refused(world: World, shape: str) -> None:
    builder: Any = StateGraph(MessagesState)

    def node(state: MessagesState) -> Any:
        SHAPES[shape](world)
        return {"messages": [AIMessage("Done.")]}

    builder.add_node("node", node)
    builder.add_edge(START, "node")
    guarded = guard(builder.compile(checkpointer=InMemorySaver()), world.gate, policy("once"))
    try:
        result = guarded.run_sync("go", thread="t")
    except sayso.Refused:
        result = None
    assert world.ran == []
    if result is not None and result.status == "paused":
        world.decide()
        assert guarded.resume_sync("t").output == "Done."
        assert world.ran == [SENT]


def test_text_tool_accepts_any_argument_name(world: World) -> None:
    chat = Chat(script=[[("c1", "send", {"text": "ana"})], "Done."], seen=[])
    agent = create_agent(chat, tools=[single(world)], checkpointer=InMemorySaver())
    guarded = guard(agent, world.gate)
    assert dict(guarded.run_sync("go", thread="t").interruptions[0].args) == {"__arg1": "ana"}
    world.decide()
    assert guarded.resume_sync("t").output == "Done."
    assert world.ran == [SENT]


def test_function_of_tool_is_unchanged_outside(world: World) -> None:
    guard(delegating(world, "invoke", here), world.gate)

    def send(to: str) -> str:
        """Send one mail."""
        return to

    made = StructuredTool.from_function(send)
    assert made.func is send
    assert made.model_copy().func is send
    assert not hasattr(StructuredTool, "func")


# -- the functional API


def functional_agent(world: World, first: str, second: str) -> Any:
    """A hand-written loop, as LangGraph's documentation shows it."""
    script = [[(first, "send", {"to": "ana"}), (second, "look", {"what": "sky"})], "Done."]
    chat = Chat(script=script, seen=[])
    tools = {one.name: one for one in world.tools()}

    @task
    def ask(messages: Any) -> Any:
        return chat.invoke(messages)

    @task
    def call(made: Any) -> Any:
        return tools[made["name"]].invoke(made)

    @entrypoint(checkpointer=InMemorySaver())
    def agent(messages: Any) -> Any:
        messages = [("user", messages)]
        reply = ask(messages).result()
        while reply.tool_calls:
            calls = [call(made) for made in reply.tool_calls]
            messages = [*messages, reply, *(one.result() for one in calls)]
            reply = ask(messages).result()
        return reply.text

    return agent


@pytest.mark.parametrize("ids", [("c1", "c2"), ("", "")])
@pytest.mark.parametrize("own", [False, True])
def test_functional_agent_asks_and_resumes(world: World, own: bool, ids: Any) -> None:
    """LangGraph keeps the interrupts that it has when the first result is awaited.

    So a task that asks later asks after the resume, as in the bare graph.
    """
    guarded = guard(functional_agent(world, *ids), world.gate)
    asked: list[str] = []

    def enter(text: str | None) -> Any:
        if own:
            value = guarded.graph.invoke(text, CONFIG)
            return None if "__interrupt__" in value else value
        result = guarded.resume_sync("t") if text is None else guarded.run_sync(text, thread="t")
        assert result.status == ("paused" if result.output is None else "done")
        return result.output

    output = enter("go")
    while output is None:
        pending = [request.tool for request in world.pending()]
        assert pending
        assert len(world.ran) == len(asked)
        asked += pending
        world.decide()
        output = enter(None)
    assert output == "Done."
    assert sorted(asked) == ["look", "send"]
    assert sorted(world.ran) == [("look", "sky"), SENT]
