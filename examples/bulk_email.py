"""Bulk email: more than a hundred recipients need approval, and the reviewer may edit.

Scripted by default. To use a real model: python bulk_email.py --model openai:gpt-4o
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

import sayso
from sayso.agent.models import Model
from sayso.testing import ScriptedModel, call, calls, say

MANY = 100


@sayso.tool(
    needs_approval=lambda args: len(args["recipients"]) > MANY,
    risk="medium",
    preview=lambda recipients, subject, body: f"{len(recipients)} people get {subject!r}",
)
def send_email(recipients: list[str], subject: str, body: str) -> str:
    """Send an email."""
    print(f"  sent {subject!r} to {len(recipients)} recipients")
    return f"sent to {len(recipients)}"


def mail(to: str, count: int) -> Any:
    people = [f"{to}{n}@example.com" for n in range(count)]
    words = {"subject": "WELCOME!!!", "body": "We are glad that you are here."}
    return call("send_email", {"recipients": people, **words})


SCRIPT: list[Any] = [calls(mail("team", 3), mail("customer", 250)), say("Everybody was greeted.")]


async def main(model: str | Model) -> None:
    agent = sayso.Agent("mailer", model=model, tools=[send_email])
    result = await agent.run("Greet the team and all 250 new customers", thread="mail-1")
    while result.status == "paused":
        decisions = []
        for request in result.interruptions:
            print(f"needs approval: {request.preview['shows']}")
            decisions.append(request.edit({"subject": "Welcome"}))
        result = await agent.resume("mail-1", decisions=decisions, by="ana")
    print(result.output or result.error)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=ScriptedModel(SCRIPT))
    asyncio.run(main(parser.parse_args().model))
