"""Delete data: sensitive tables need approval; a reason helps the model to try again.

Scripted by default. To use a real model: python delete_data.py --model openai:gpt-4o
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

import sayso
from sayso.agent.models import Model
from sayso.testing import ScriptedModel, call, calls, say

SENSITIVE = {"users", "payments", "accounts"}


async def is_sensitive(args: dict[str, Any]) -> bool:
    """Return whether a call needs approval. Async, because it could query a catalogue."""
    return args["table"] in SENSITIVE


@sayso.tool(needs_approval=is_sensitive, allowed=("approve", "reject"))
async def delete_data(table: str, where: str) -> str:
    """Delete rows from a table."""
    print(f"  deleted from {table} where {where}")
    return "deleted"


SCRIPT: list[Any] = [
    calls(
        call("delete_data", {"table": "logs", "where": "age > 30"}),
        call("delete_data", {"table": "users", "where": "true"}),
    ),
    call("delete_data", {"table": "users", "where": "closed and age > 365"}),
    say("The old rows are gone."),
]


def decide(request: sayso.Request) -> sayso.Decision:
    print(f"needs approval: {dict(request.args)}")
    if request.args["where"].strip() in ("true", "1=1", ""):
        return request.reject("not all of them: only closed accounts")
    return request.approve()


async def main(model: str | Model) -> None:
    agent = sayso.Agent("cleaner", model=model, tools=[delete_data])
    result = await agent.run("Delete old logs and users", thread="clean-1")
    while result.status == "paused":
        decisions = [decide(request) for request in result.interruptions]
        result = await agent.resume("clean-1", decisions=decisions, by="ana")
    print(result.output or result.error)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=ScriptedModel(SCRIPT))
    asyncio.run(main(parser.parse_args().model))
