"""Outputs have the framework's types, where the run ends and in every later process."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest
from pydantic import BaseModel, ConfigDict, Field, computed_field

import sayso
from sayso.gate.framework import FrameworkAgent
from sayso.gate.lease import RunLease
from sayso.stores.sqlite import SqliteStore


class Part(BaseModel):
    price: float


class Order(BaseModel):
    """A model that reads and writes a field under two names, and computes another."""

    model_config = ConfigDict(extra="forbid")

    item: str
    count: int = Field(validation_alias="howMany", serialization_alias="amount")
    parts: list[Part] = []

    @computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return 2 * self.count


class Refusal(BaseModel):
    """Another type, with a field of the same name."""

    item: str
    why: str = ""


@dataclass
class Ticket:
    item: str
    count: int


ORDER = Order.model_validate({"item": "pizza", "howMany": 2, "parts": [{"price": 1.5}]})
WRITTEN = {"item": "pizza", "howMany": 2, "parts": [{"price": 1.5}]}


#: Returns the gate of another process, some hours later.
Gates = Callable[..., sayso.Gate]


class Ran(list[str]):
    """What the tool did, and the model that all processes ask in turn."""

    model: Any = None


class World(Protocol):
    """Makes the guarded agent of one framework, anew each time, like a process of its own."""

    def __call__(
        self, output_type: Any, written: Any, ran: Ran, gate: sayso.Gate
    ) -> FrameworkAgent: ...


def openai_agents(output_type: Any, written: Any, ran: Ran, gate: sayso.Gate) -> Any:
    from agents import Agent, AgentOutputSchema, function_tool, set_tracing_disabled
    from agents.testing import ScriptedModel, assistant_message, function_call

    from sayso.adapters.openai_agents import guard

    set_tracing_disabled(True)

    def bake(what: str) -> str:
        ran.append(what)
        return "baked"

    model = isinstance(output_type, type) and issubclass(output_type, BaseModel)
    whole = written if model else {"response": written}
    call = function_call("bake", {"what": "pizza"}, call_id="c1")
    last = assistant_message(json.dumps(whole))
    ran.model = ran.model or ScriptedModel([[call], [last]])
    agent = Agent(
        "Cook",
        model=ran.model,
        tools=[function_tool(bake, needs_approval=True)],
        output_type=AgentOutputSchema(output_type, strict_json_schema=False),
    )
    return guard(agent, gate)


def pydantic_ai(output_type: Any, written: Any, ran: Ran, gate: sayso.Gate) -> Any:
    from pydantic_ai import Agent, Tool
    from pydantic_ai.messages import ModelResponse, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    from sayso.adapters.pydantic_ai import guard

    def bake(what: str) -> str:
        ran.append(what)
        return "baked"

    def reply(messages: list[Any], info: Any) -> ModelResponse:
        if not any(isinstance(message, ModelResponse) for message in messages):
            return ModelResponse(parts=[ToolCallPart("bake", {"what": "pizza"}, "c1")])
        whole = written if isinstance(written, dict) else {"response": written}
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, whole, "out")])

    tools = [Tool(bake, requires_approval=True)]
    return guard(Agent(FunctionModel(reply), tools=tools, output_type=output_type), gate)


def agent_framework(output_type: Any, written: Any, ran: Ran, gate: sayso.Gate) -> Any:
    from agent_framework import Agent, ChatResponse, Message, tool
    from agent_framework_world import Client, call

    from sayso.adapters.agent_framework import guard

    @tool(approval_mode="always_require")
    def bake(what: str) -> str:
        ran.append(what)
        return "baked"

    def reply(messages: Any) -> ChatResponse[Any]:
        said = any(message.role == "assistant" for message in messages)
        content = json.dumps(written) if said else call("bake", what="pizza")
        return ChatResponse(messages=[Message("assistant", [content])])

    options: Any = {"response_format": output_type}
    return guard(Agent(Client(reply), tools=[bake], default_options=options), gate)


def dspy(output_type: Any, written: Any, ran: Ran, gate: sayso.Gate) -> Any:
    import dspy
    from dspy.utils import DummyLM

    from sayso.adapters.dspy import guard

    def bake(what: str) -> str:
        ran.append(what)
        return "baked"

    signature = dspy.Signature("wish -> order").with_updated_fields("order", type_=output_type)
    steps = [
        {"next_thought": "", "next_tool_name": "bake", "next_tool_args": '{"what": "pizza"}'},
        {"next_thought": "", "next_tool_name": "finish", "next_tool_args": "{}"},
        {"reasoning": "", "order": json.dumps(written)},
    ]
    ran.model = ran.model or DummyLM(steps)
    return guard(dspy.ReAct(signature, [bake]), gate, lm=ran.model)


ALL = [openai_agents, pydantic_ai, agent_framework, dspy]


@pytest.fixture
def gates(tmp_path: Path) -> Iterator[Gates]:
    made: list[sayso.Gate] = []

    def gate(hours: int = 0) -> sayso.Gate:
        clock = lambda: time.time_ns() // 1000 + hours * 3_600_000_000  # noqa: E731
        store = SqliteStore(tmp_path / "sayso.db", clock=clock)
        made.append(sayso.Gate(store, agent="cook", wait=0))
        return made[-1]

    yield gate
    for one in made:
        one.close()


async def finished(make: World, output_type: Any, written: Any, gates: Gates, ran: Ran) -> Any:
    """The result of a run with one approval, each step in a process of its own."""
    result = await make(output_type, written, ran, gates()).run("cook", thread="t")
    (request,) = result.interruptions
    decisions = [request.approve()]
    return await make(output_type, written, ran, gates()).resume("t", decisions=decisions)


@pytest.mark.parametrize("make", ALL)
async def test_model_output_survives_a_resume(make: World, gates: Gates) -> None:
    ran = Ran()
    result = await finished(make, Order, WRITTEN, gates, ran)
    assert (result.status, type(result.output), result.output) == ("done", Order, ORDER)
    later = await make(Order, WRITTEN, ran, gates()).resume("t")
    assert (type(later.output), later.output, later.error) == (Order, ORDER, "")
    assert ran == ["pizza"]


@pytest.mark.parametrize("make", [openai_agents, pydantic_ai, dspy])
@pytest.mark.parametrize(
    ("output_type", "written", "wanted"),
    [
        (list[Order], [WRITTEN], [ORDER]),
        (Ticket, {"item": "pizza", "count": 2}, Ticket("pizza", 2)),
        (int, 3, 3),
    ],
    ids=["list", "dataclass", "int"],
)
async def test_other_output_types_survive_a_resume(
    make: World, output_type: Any, written: Any, wanted: Any, gates: Gates
) -> None:
    ran = Ran()
    for result in (
        await finished(make, output_type, written, gates, ran),
        await make(output_type, written, ran, gates()).resume("t"),
    ):
        assert (type(result.output), result.output) == (type(wanted), wanted)


@pytest.mark.parametrize("make", ALL)
async def test_output_survives_a_dying_process(
    make: World, gates: Gates, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = Ran()

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(RunLease, "finish", dies)
        with pytest.raises(KeyboardInterrupt):
            await finished(make, Order, WRITTEN, gates, ran)
    later = await make(Order, WRITTEN, ran, gates(1)).resume("t")  # when its lease is over
    assert (type(later.output), later.output, ran) == (Order, ORDER, ["pizza"])


@pytest.mark.parametrize("make", ALL)
async def test_changed_output_type_is_reported(make: World, gates: Gates) -> None:
    class Other(BaseModel):
        price: float

    ran = Ran()
    await finished(make, Order, WRITTEN, gates, ran)
    later = await make(Other, WRITTEN, ran, gates()).resume("t")
    assert later.status == "done"
    assert (later.output["count"], later.error) == (
        2,
        "the stored output does not fit the current output type",
    )


async def test_infinite_number_survives_a_resume(gates: Gates) -> None:
    ran = Ran()
    for result in (
        await finished(pydantic_ai, Part, {"price": "inf"}, gates, ran),
        await pydantic_ai(Part, {"price": "inf"}, ran, gates()).resume("t"),
    ):
        assert result.output == Part(price=float("inf"))


# -- OpenAI Agents


async def test_handoff_target_decides_output_type(gates: Gates) -> None:
    from agents import Agent
    from agents.testing import ScriptedModel, assistant_message, function_call

    from sayso.adapters.openai_agents import guard

    def build() -> Any:
        said = [[assistant_message('{"item": "pizza"}')]]
        clerk = Agent("Clerk", model=ScriptedModel(said), output_type=Refusal)
        hands = ScriptedModel([[function_call("transfer_to_clerk", {}, call_id="h")]])
        boss = Agent("Boss", model=hands, handoffs=[clerk], output_type=Part)
        return guard(boss, gates())

    assert (await build().run("go", thread="t")).output == Refusal(item="pizza")
    assert (await build().resume("t")).output == Refusal(item="pizza")


async def test_tool_result_is_not_parsed_as_output(
    gates: Gates,
) -> None:
    from agents import Agent, function_tool
    from agents.testing import ScriptedModel, function_call

    from sayso.adapters.openai_agents import guard

    def count() -> str:
        return "3"

    def build() -> Any:
        model = ScriptedModel([[function_call("count", {}, call_id="c")]])
        tools = [function_tool(count)]
        agent = Agent("A", model=model, tools=tools, tool_use_behavior="stop_on_first_tool")
        agent.output_type = int
        return guard(agent, gates())

    assert (await build().run("go", thread="t")).output == "3"
    assert (await build().resume("t")).output == "3"


# -- pydantic-ai


async def test_union_output_keeps_its_member(
    gates: Gates,
) -> None:
    from pydantic_ai import Agent, ToolOutput
    from pydantic_ai.messages import ModelResponse, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    from sayso.adapters.pydantic_ai import guard

    class First(BaseModel):
        item: str
        why: str = ""

    def reply(messages: list[Any], info: Any) -> ModelResponse:
        return ModelResponse(parts=[ToolCallPart("no", {"item": "pizza"}, "out")])

    def build() -> Any:
        types: Any = [ToolOutput(First, name="yes"), ToolOutput(Refusal, name="no"), str]
        return guard(Agent(FunctionModel(reply), output_type=types), gates())

    for result in (await build().run("go", thread="t"), await build().resume("t")):
        assert (type(result.output), result.output) == (Refusal, Refusal(item="pizza"))


async def test_output_function_survives_a_resume(gates: Gates) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    from sayso.adapters.pydantic_ai import guard

    def ordered(item: str) -> Ticket:
        return Ticket(item, 7)

    def reply(messages: list[Any], info: Any) -> ModelResponse:
        name = info.output_tools[0].name
        return ModelResponse(parts=[ToolCallPart(name, {"item": "pizza"}, "out")])

    def build() -> Any:
        return guard(Agent(FunctionModel(reply), output_type=ordered), gates())

    for result in (await build().run("go", thread="t"), await build().resume("t")):
        assert result.output == Ticket("pizza", 7)


# -- Agent Framework


async def test_response_has_framework_attributes(gates: Gates) -> None:
    ran = Ran()
    waiting = await agent_framework(Order, WRITTEN, ran, gates()).run("cook", thread="t")
    (content,) = waiting.user_input_requests
    assert (content.type, waiting.text) == ("function_approval_request", "")
    decisions = [waiting.interruptions[0].approve()]
    done = await agent_framework(Order, WRITTEN, ran, gates()).resume("t", decisions=decisions)
    assert (done.value, json.loads(done.text)["item"]) == (ORDER, "pizza")
    assert (done.user_input_requests, done.output) == ([], ORDER)


@pytest.mark.parametrize("stream", [False, True])
async def test_native_response_has_typed_value(gates: Gates, stream: bool) -> None:
    from agent_framework import AgentSession, Message

    ran = Ran()

    async def said(message: Any) -> Any:
        agent = agent_framework(None, WRITTEN, ran, gates()).as_agent(by="ana")
        options = {"response_format": Order}
        going = agent.run(message, session=session, options=options, stream=stream)
        return await (going.get_final_response() if stream else going)

    session = AgentSession(session_id="t")
    (request,) = (await said("cook")).user_input_requests
    yes = Message("user", [request.to_function_approval_response(True)])
    for response in (await said(yes), await said(yes)):  # the second comes from the store
        assert (type(response.value), response.value) == (Order, ORDER)
    assert ran == ["pizza"]


def test_tools_of_run_are_refused(gates: Gates) -> None:
    agent = agent_framework(None, WRITTEN, Ran(), gates()).as_agent(by="ana")
    for wrong in ({"tools": [print]}, {"options": {"tools": [print]}}):
        with pytest.raises(sayso.InvalidCall, match=r"pass tools to guard\(\.\.\.\)"):
            agent.run("cook", **wrong)


# -- LangChain


async def test_structured_response_survives_a_resume(gates: Gates, tmp_path: Path) -> None:
    from langchain.agents import create_agent
    from langchain.agents.structured_output import ToolStrategy
    from langchain_core.tools import tool
    from langchain_world import Chat
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
    from langgraph.checkpoint.sqlite import SqliteSaver

    from sayso.adapters.langchain import guard

    ran = Ran()

    @tool
    def bake(what: str) -> str:
        """Bake something."""
        ran.append(what)
        return "baked"

    file = sqlite3.connect(tmp_path / "graph.db", check_same_thread=False)

    def build() -> FrameworkAgent:
        said = [[("c1", "bake", {"what": "pizza"})], [("o1", "Refusal", {"item": "pizza"})]]
        chat = Chat(script=said, seen=[])
        saver = SqliteSaver(file, serde=JsonPlusSerializer(allowed_msgpack_modules=[Refusal]))
        agent: Any = create_agent(
            chat, [bake], response_format=ToolStrategy(Refusal), checkpointer=saver
        )
        return guard(agent, gates())

    (request,) = (await build().run("cook", thread="t")).interruptions
    done = await build().resume("t", decisions=[request.approve()])
    for result in (done, await build().resume("t")):
        assert (type(result.output), result.output) == (Refusal, Refusal(item="pizza"))
    assert ran == ["pizza"]
    file.close()
