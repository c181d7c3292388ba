"""Five agents of five frameworks, with one inbox for all of them.

    python examples/five_frameworks.py       # everything in one process, scripted

Or decide yourself, with as many processes as you like, all in one folder:

    export PYTHONPATH=where/the/examples/are
    python -m five_frameworks dspy           # asks and exits; the others work the same way
    sayso serve                             # decide in the web app, or with `sayso inbox`
    sayso worker five_frameworks:dspy       # resumes the run after a decision

The scripted models look only at the conversation, so any process can continue it.
"""

import asyncio
import contextlib
import json
import sqlite3
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import sayso

warnings.simplefilter("ignore")  # some frameworks warn when imported
STORE, BOOK = "sqlite:///sayso.db", Path("payments.txt")
ASKED, LAST, ARGS = "Pay Ana.", "Ana has her money.", {"to": "ana", "euros": 20}


def desk(name: str) -> tuple[sayso.Gate, Callable[..., str]]:
    """Return the gate of one agent, and a tool that logs what it did."""

    def pay(to: str, euros: int) -> str:
        """Pay someone."""
        with BOOK.open("a") as book:
            book.write(f"{name} paid {euros} euros to {to}\n")
        return f"paid {euros} euros"

    policy = sayso.Policy([sayso.Rule("pay")])
    return sayso.Gate(STORE, policy=policy, agent=name, wait=0), pay


def langchain() -> Any:
    from langchain.agents import create_agent
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langgraph.checkpoint.sqlite import SqliteSaver

    from sayso.adapters.langchain import guard

    class Model(BaseChatModel):
        _llm_type = "scripted"

        def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
            return self

        def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
            call = {"name": "pay", "args": ARGS, "id": "call_1"}
            heard = isinstance(messages[-1], ToolMessage)
            said = AIMessage(LAST) if heard else AIMessage("", tool_calls=[call])
            return ChatResult(generations=[ChatGeneration(message=said)])

    gate, pay = desk("langchain")
    file = sqlite3.connect("checkpoints.db", check_same_thread=False)
    return guard(create_agent(Model(), [pay], checkpointer=SqliteSaver(file)), gate)


def openai_agents() -> Any:
    from agents import Agent, Model, ModelResponse, Usage, function_tool, set_tracing_disabled
    from agents.testing import assistant_message, function_call

    from sayso.adapters.openai_agents import guard

    class Scripted(Model):
        async def get_response(
            self, system_instructions: Any, input: Any, *rest: Any, **more: Any
        ) -> ModelResponse:
            heard = "function_call_output" in str(input)
            said = assistant_message(LAST) if heard else function_call("pay", ARGS, call_id="c")
            return ModelResponse(output=[said], usage=Usage(), response_id=None)

        def stream_response(self, *args: Any, **more: Any) -> Any:
            raise NotImplementedError

    set_tracing_disabled(True)
    gate, pay = desk("openai_agents")
    return guard(Agent("Teller", model=Scripted(), tools=[function_tool(pay)]), gate)


def agent_framework() -> Any:
    import agent_framework as af

    from sayso.adapters.agent_framework import guard

    class Client(
        af.FunctionInvocationLayer[Any], af.ChatMiddlewareLayer[Any], af.BaseChatClient[Any]
    ):
        def _inner_get_response(self, *, messages: Any, **options: Any) -> Any:
            async def reply() -> Any:
                heard = messages[-1].role == "tool"
                call = af.Content.from_function_call("call_1", "pay", arguments=ARGS)
                said = af.Message("assistant", [LAST if heard else call])
                return af.ChatResponse(messages=[said])

            return reply()

    gate, pay = desk("agent_framework")
    return guard(af.Agent(Client(), tools=[pay]), gate)


def dspy() -> Any:
    import dspy
    from dspy.utils import DummyLM

    from sayso.adapters.dspy import guard

    pays = {"next_tool_name": "pay", "next_tool_args": json.dumps(ARGS)}
    ends = {"next_tool_name": "finish", "next_tool_args": "{}"}
    script = {  # keyed by what the conversation already contains
        "observation_1": {"reasoning": "That is all.", "answer": LAST},
        "observation_0": {"next_thought": "Done.", **ends},
        ASKED: {"next_thought": "Let me pay.", **pays},
    }
    gate, pay = desk("dspy")
    return guard(dspy.ReAct("question -> answer", tools=[pay]), gate, lm=DummyLM(script))


def pydantic_ai() -> Any:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    from sayso.adapters.pydantic_ai import guard

    def reply(messages: Any, info: Any) -> ModelResponse:
        heard = any(isinstance(message, ModelResponse) for message in messages)
        return ModelResponse(parts=[TextPart(LAST) if heard else ToolCallPart("pay", ARGS, "c")])

    gate, pay = desk("pydantic_ai")
    return guard(Agent(FunctionModel(reply), tools=[pay]), gate)


FIVE = {
    make.__name__: make for make in (langchain, openai_agents, agent_framework, dspy, pydantic_ai)
}


async def ask(agents: Sequence[Any]) -> None:
    for agent in agents:
        result = await agent.run(ASKED, thread=agent.name)
        print(f"{agent.name}: {result.status}")


async def play() -> None:
    agents = [make() for make in FIVE.values()]
    await ask(agents)
    inbox = sayso.Inbox(STORE)
    for request in await inbox.pending():
        print(f"{request.agent} needs approval: {request.tool} {dict(request.args)}")
        await inbox.decide(request.id, request.approve(), by="ana")
    for agent in agents:
        print(f"{agent.name}: {(await agent.resume(agent.name)).output}")
    print(BOOK.read_text(), end="")


if __name__ == "__main__":
    if sys.argv[1:]:
        asyncio.run(ask([FIVE[name]() for name in sys.argv[1:]]))
    else:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            asyncio.run(play())
