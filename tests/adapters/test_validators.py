"""Arguments that a framework's validators change: the guarded tool gets what the bare one gets.

Each framework runs the same function twice, bare and guarded, with the same scripted call.
"""

from __future__ import annotations

import enum
import itertools
import json
import warnings
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Protocol

import pytest
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, field_validator

import sayso
from sayso.gate.framework import FrameworkAgent

ASK = sayso.Policy([sayso.Rule("act")])
ALLOW = sayso.Policy([sayso.Rule("act", verdict="allow")])
UNSTABLE = "this tool's arguments change on each validation"

#: What validators were given, and what the tool's function got.
SEEN: list[Any] = []
RAN: list[str] = []
COUNTER = itertools.count(1)


def split(value: Any) -> Any:
    SEEN.append(value)
    return value.split(",")  # raises AttributeError for a list


def cents(value: int) -> int:
    SEEN.append(value)
    return value * 100


def numbered(value: str) -> str:
    return f"{value}-{next(COUNTER)}"


Tags = Annotated[list[str], BeforeValidator(split)]
Cents = Annotated[int, AfterValidator(cents)]
Address = Annotated[str, AfterValidator(lambda value: value.strip().lower())]
Numbered = Annotated[str, AfterValidator(numbered)]


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


@dataclass
class Point:
    x: int
    y: int = 7


class Item(BaseModel):
    name: str
    count: int = Field(default=1, alias="howMany")

    @field_validator("name")
    @classmethod
    def _upper(cls, value: str) -> str:
        SEEN.append(value)
        return f"{value}!"


class Order(BaseModel):
    items: list[Item]
    note: str = ""


def ran(**values: Any) -> str:
    RAN.append(repr(values))
    return "ok"


def takes_tags(tags: Tags) -> str:
    return ran(tags=tags)


def takes_cents(amount: Cents) -> str:
    return ran(amount=amount)


def takes_address(to: Address) -> str:
    return ran(to=to)


def takes_defaults(to: str, tags: Tags = ["x"], amount: Cents = 3, note: str | None = None) -> str:  # noqa: B006
    return ran(to=to, tags=tags, amount=amount, note=note)


def takes_union(value: int | str) -> str:
    return ran(value=value)


def takes_dataclass(point: Point) -> str:
    return ran(point=point)


def takes_constraint(amount: Annotated[int, Field(ge=1, le=10)]) -> str:
    return ran(amount=amount)


def takes_converted_constraint(amount: Annotated[int, Field(le=10), AfterValidator(cents)]) -> str:
    return ran(amount=amount)


def takes_dates(day: date, moment: datetime) -> str:
    return ran(day=day, moment=moment)


def takes_enum(size: Size, other: Size = Size.SMALL) -> str:
    return ran(size=size, other=other)


def takes_order(order: Order, urgent: bool = False) -> str:
    return ran(order=order, urgent=urgent)


def takes_numbers(price: Decimal, count: int, share: float) -> str:
    return ran(price=price, count=count, share=share)


def takes_set(names: set[str]) -> str:
    return ran(names=sorted(names))


CASES: dict[str, tuple[Callable[..., str], dict[str, Any]]] = {
    "list from text": (takes_tags, {"tags": "a,b"}),
    "unit": (takes_cents, {"amount": 5}),
    "strip and lower": (takes_address, {"to": "  Ana@Example.org "}),
    "defaults": (takes_defaults, {"to": "ana"}),
    "some defaults": (takes_defaults, {"to": "ana", "tags": "a,b", "note": None}),
    "union of text": (takes_union, {"value": "5"}),
    "union of a number": (takes_union, {"value": 5}),
    "dataclass": (takes_dataclass, {"point": {"x": 1}}),
    "constraint": (takes_constraint, {"amount": 5}),
    "broken constraint": (takes_constraint, {"amount": 50}),
    "constraint before a conversion": (takes_converted_constraint, {"amount": 5}),
    "dates": (takes_dates, {"day": "2026-01-02", "moment": "2026-01-02T03:04:05Z"}),
    "enum": (takes_enum, {"size": "l"}),
    "wrong enum": (takes_enum, {"size": "xl"}),
    "nested models": (takes_order, {"order": {"items": [{"name": "tea", "howMany": 2}]}}),
    "numbers as text": (takes_numbers, {"price": "1.50", "count": "3", "share": 1}),
    "set": (takes_set, {"names": ["b", "a", "b"]}),
}


class Framework(Protocol):
    """Makes an agent whose model calls ``act`` once with these arguments."""

    def agent(self, function: Callable[..., str], args: dict[str, Any]) -> Any: ...
    async def run_bare(self, agent: Any) -> None: ...
    def guard(self, agent: Any, gate: sayso.Gate) -> FrameworkAgent: ...


class LangChain:
    def agent(self, function: Callable[..., str], args: dict[str, Any]) -> Any:
        from langchain.agents import create_agent
        from langchain_core.tools import StructuredTool
        from langchain_world import Chat
        from langgraph.checkpoint.memory import InMemorySaver

        tool = StructuredTool.from_function(function, name="act", description="Act.")
        chat = Chat(script=[[("c1", "act", args)], "Done."])
        return create_agent(chat, tools=[tool], checkpointer=InMemorySaver())

    async def run_bare(self, agent: Any) -> None:
        messages: Any = {"messages": [("user", "act")]}
        await agent.ainvoke(messages, {"configurable": {"thread_id": "bare"}})

    def guard(self, agent: Any, gate: sayso.Gate) -> FrameworkAgent:
        from sayso.adapters.langchain import guard

        return guard(agent, gate)


class OpenAIAgents:
    def agent(self, function: Callable[..., str], args: dict[str, Any]) -> Any:
        from agents import Agent, function_tool, set_tracing_disabled
        from agents.testing import ScriptedModel, assistant_message, function_call

        set_tracing_disabled(True)
        tool = function_tool(function, name_override="act", strict_mode=False)
        script: Any = [
            [function_call("act", args, call_id="c1")],
            [assistant_message("Done.")],
        ]
        return Agent("Actor", model=ScriptedModel(script), tools=[tool])

    async def run_bare(self, agent: Any) -> None:
        from agents import Runner

        await Runner.run(agent, "act")

    def guard(self, agent: Any, gate: sayso.Gate) -> FrameworkAgent:
        from sayso.adapters.openai_agents import guard

        return guard(agent, gate)


class AgentFramework:
    def agent(self, function: Callable[..., str], args: dict[str, Any]) -> Any:
        from agent_framework import Agent, ChatResponse, Message, tool
        from agent_framework_world import Client, call

        def reply(messages: Any) -> ChatResponse[Any]:
            said = any(message.role == "assistant" for message in messages)
            return ChatResponse(
                messages=[Message("assistant", ["Done." if said else call("act", **args)])]
            )

        return Agent(Client(reply), tools=[tool(function, name="act")])

    async def run_bare(self, agent: Any) -> None:
        await agent.run("act")

    def guard(self, agent: Any, gate: sayso.Gate) -> FrameworkAgent:
        from sayso.adapters.agent_framework import guard

        return guard(agent, gate)


class PydanticAI:
    def agent(self, function: Callable[..., str], args: dict[str, Any]) -> Any:
        from pydantic_ai import Agent, Tool
        from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
        from pydantic_ai.models.function import FunctionModel

        def reply(messages: list[Any], info: Any) -> ModelResponse:
            if any(isinstance(message, ModelResponse) for message in messages):
                return ModelResponse(parts=[TextPart("Done.")])
            return ModelResponse(parts=[ToolCallPart("act", json.dumps(args), "c1")])

        return Agent(FunctionModel(reply), tools=[Tool(function, name="act")])

    async def run_bare(self, agent: Any) -> None:
        await agent.run("act")

    def guard(self, agent: Any, gate: sayso.Gate) -> FrameworkAgent:
        from sayso.adapters.pydantic_ai import guard

        return guard(agent, gate)


class Dspy:
    def agent(self, function: Callable[..., str], args: dict[str, Any]) -> Any:
        import dspy
        from dspy.utils import DummyLM

        self.lm = DummyLM(
            [
                {"next_thought": "", "next_tool_name": "act", "next_tool_args": json.dumps(args)},
                {"next_thought": "", "next_tool_name": "finish", "next_tool_args": "{}"},
                {"reasoning": "", "answer": "Done."},
            ]
        )
        return dspy.ReAct("question -> answer", [dspy.Tool(function, name="act")])

    async def run_bare(self, agent: Any) -> None:
        import dspy

        with dspy.context(lm=self.lm):
            await agent.acall(question="act")

    def guard(self, agent: Any, gate: sayso.Gate) -> FrameworkAgent:
        from sayso.adapters.dspy import guard

        return guard(agent, gate, lm=self.lm)


class GoogleADK:
    def agent(self, function: Callable[..., str], args: dict[str, Any]) -> Any:
        from google.adk.agents import LlmAgent
        from google.adk.tools.function_tool import FunctionTool
        from google_adk_world import Turns, call
        from harness_google_adk import FakeModel

        tool = FunctionTool(function)
        tool.name = "act"
        script = Turns([[call("act", "c1", **args)], "Done."])
        return LlmAgent(name="actor", model=FakeModel(script=script), tools=[tool])

    async def run_bare(self, agent: Any) -> None:
        from harness_google_adk import run_bare

        await run_bare(agent, "act")

    def guard(self, agent: Any, gate: sayso.Gate) -> FrameworkAgent:
        from sayso.adapters.google_adk import guard

        return guard(agent, gate)


FRAMEWORKS = [LangChain, OpenAIAgents, AgentFramework, PydanticAI, Dspy, GoogleADK]
#: DSPy ignores validators in ``Annotated``, and has those of nested models.
CONVERTING = [LangChain, OpenAIAgents, AgentFramework, PydanticAI]


@pytest.fixture(params=FRAMEWORKS, ids=lambda kind: kind.__name__)
def framework(request: pytest.FixtureRequest) -> Framework:
    made: Framework = request.param()
    return made


@pytest.fixture
def gate_of(tmp_path: Path) -> Iterator[Callable[[sayso.Policy], sayso.Gate]]:
    gates: list[sayso.Gate] = []

    def gate(policy: sayso.Policy) -> sayso.Gate:
        gates.append(sayso.Gate(tmp_path / "sayso.db", agent="actor", policy=policy, wait=0))
        return gates[-1]

    SEEN.clear()
    RAN.clear()
    yield gate
    for one in gates:
        one.close()


async def of_bare(framework: Framework, function: Callable[..., str], args: Any) -> list[str]:
    """Run the bare agent, and return what its tool got."""
    RAN.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            await framework.run_bare(framework.agent(function, args))
        except Exception:
            assert RAN == []  # the framework lets the agent fail
    bare = list(RAN)
    RAN.clear()
    return bare


async def start(framework: Framework, function: Any, args: Any, gate: sayso.Gate) -> Any:
    guarded = framework.guard(framework.agent(function, args), gate)
    return guarded, await guarded.run("act", thread="t")


@pytest.mark.parametrize("case", CASES)
async def test_allowed_call_agrees_with_bare(framework: Framework, case: str, gate_of: Any) -> None:
    function, args = CASES[case]
    bare = await of_bare(framework, function, args)
    await settled(start(framework, function, args, gate_of(ALLOW)))
    assert bare == RAN


@pytest.mark.parametrize("case", CASES)
async def test_approved_call_agrees_with_bare(
    framework: Framework, case: str, gate_of: Any
) -> None:
    function, args = CASES[case]
    bare = await of_bare(framework, function, args)
    started = await settled(start(framework, function, args, gate_of(ASK)))
    if started is not None and started[1].interruptions:
        guarded, result = started
        assert RAN == []
        (request,) = result.interruptions
        await guarded.resume("t", decisions=[request.approve()])
    assert bare == RAN


async def settled(work: Awaitable[Any]) -> Any:
    """Return the outcome, or None if the framework lets the agent fail for invalid arguments."""
    try:
        return await work
    except Exception:
        assert RAN == []
        return None


@pytest.mark.parametrize("kind", CONVERTING)
async def test_validators_see_only_written_values(kind: Any, gate_of: Any) -> None:
    guarded, result = await start(kind(), takes_tags, {"tags": "a,b"}, gate_of(ASK))
    assert set(SEEN) == {"a,b"}
    (request,) = result.interruptions
    await guarded.resume("t", decisions=[request.approve()])
    assert (RAN, set(SEEN)) == ([repr({"tags": ["a", "b"]})], {"a,b"})


@pytest.mark.parametrize("kind", CONVERTING)
async def test_people_see_both_forms(kind: Any, gate_of: Any) -> None:
    _, result = await start(kind(), takes_tags, {"tags": "a,b"}, gate_of(ASK))
    (request,) = result.interruptions
    assert (dict(request.args), dict(request.written)) == ({"tags": ["a", "b"]}, {"tags": "a,b"})


@pytest.mark.parametrize("kind", CONVERTING)
async def test_rules_judge_validated_values(kind: Any, gate_of: Any) -> None:
    dear = sayso.Rule("act", when=lambda args: args["amount"] > 400)
    rules = sayso.Policy([dear, sayso.Rule("act", verdict="allow")])
    _, result = await start(kind(), takes_cents, {"amount": 5}, gate_of(rules))
    assert (result.status, RAN) == ("paused", [])


@pytest.mark.parametrize("kind", CONVERTING)
async def test_edit_changes_written_arguments(kind: Any, gate_of: Any) -> None:
    guarded, result = await start(kind(), takes_tags, {"tags": "a,b"}, gate_of(ASK))
    (request,) = result.interruptions
    result = await guarded.resume("t", decisions=[request.edit({"tags": "c,d"})])
    if result.interruptions:  # its validators are not known before a run: people see both forms
        (request,) = result.interruptions
        assert (request.args, request.written) == ({"tags": ["c", "d"]}, {"tags": "c,d"})
        result = await guarded.resume("t", decisions=[request.approve()])
    assert (result.status, RAN) == ("done", [repr({"tags": ["c", "d"]})])


class Named(BaseModel):
    name: Numbered


def takes_numbered(who: Named) -> str:
    return ran(who=who)


ANA = {"who": {"name": "ana"}}


async def test_unstable_validator_is_refused(framework: Framework, gate_of: Any) -> None:
    gate = gate_of(ASK)
    guarded, result = await start(framework, takes_numbered, ANA, gate)
    (request,) = result.interruptions
    await guarded.resume("t", decisions=[request.approve()])
    assert RAN == []
    closed = await sayso.Inbox(gate.store).get(request.id)
    assert UNSTABLE in str(closed.execution.result)


async def test_unstable_validator_runs_if_allowed(framework: Framework, gate_of: Any) -> None:
    await start(framework, takes_numbered, ANA, gate_of(ALLOW))
    assert len(RAN) == 1


@pytest.mark.parametrize("kind", [LangChain, OpenAIAgents, Dspy])
async def test_rules_judge_value_of_run(kind: Any, gate_of: Any) -> None:
    """A value that changes after the rules allowed the call is judged again."""
    first = f"ana-{next(COUNTER) + 1}"
    rules = sayso.Policy(
        [
            sayso.Rule("act", verdict="allow", when=lambda args: args["who"]["name"] == first),
            sayso.Rule("act", verdict="deny"),
        ]
    )
    framework: Framework = kind()
    await start(framework, takes_numbered, ANA, gate_of(rules))
    assert RAN == []
