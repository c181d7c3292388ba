"""LangChain: two emails in one turn; one is edited and sent, the other rejected.

Scripted by default. To use a real model: python langchain_mail.py --model openai:gpt-4o
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolCall
from langgraph.checkpoint.memory import InMemorySaver

import sayso
from sayso.adapters.langchain import guard


def send_email(to: str, text: str = "Welcome!!!") -> str:
    """Send an email."""
    print(f"  sent {text!r} to {to}")
    return f"sent to {to}"


class Scripted(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **kwargs: Any) -> Scripted:
        return self


CALLS = [
    ToolCall(name="send_email", args={"to": "ana@example.com"}, id="call_1"),
    ToolCall(name="send_email", args={"to": "all@example.com"}, id="call_2"),
]
SCRIPT = [AIMessage("", tool_calls=CALLS), AIMessage("Ana was greeted, the others were not.")]


async def main(model: Any) -> None:
    gate = sayso.Gate(policy=sayso.Policy([sayso.Rule("send_email")]), agent="mailer", wait=0)
    agent = create_agent(model, [send_email], checkpointer=InMemorySaver())
    mailer = guard(agent, gate)
    result = await mailer.run("Welcome the new customers in Oslo.", thread="welcome")
    ana, others = result.interruptions
    print(f"{result.status}: {ana.args['to']} and {others.args['to']} need approval")
    inbox = sayso.Inbox(gate.store)  # or decide in the web app or a terminal
    await inbox.decide(ana.id, ana.edit({"text": "Welcome"}), by="ben")
    print(f"{len((await mailer.resume('welcome')).interruptions)} left")
    await inbox.decide(others.id, others.reject("one by one, please"), by="cy")
    print((await mailer.resume("welcome")).output)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=Scripted(messages=iter(SCRIPT)))
    asyncio.run(main(parser.parse_args().model))
