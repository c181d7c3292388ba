"""OpenAI Agents SDK: a deployment is approved in another process, a rollback rejected.

Scripted by default. To use a real model: python openai_agents_deploy.py gpt-4o
"""

import asyncio
import sys
import tempfile
from typing import Any

from agents import Agent, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call

import sayso
from sayso.adapters.openai_agents import guard

SCRIPT = [
    [function_call("deploy", {"version": "2.5.0"}, call_id="c1")],
    [function_call("rollback", {"place": "staging", "version": "2.4.0"}, call_id="c2")],
    [function_call("rollback", {"place": "production", "version": "2.4.0"}, call_id="c3")],
    [assistant_message("Production stays with 2.5.0.")],
]
set_tracing_disabled(True)


@function_tool(needs_approval=True)
def deploy(version: str) -> str:
    print(f"  production runs {version} now")
    return "deployed"


async def is_production(ctx: Any, args: dict[str, Any], call_id: str) -> bool:
    return bool(args["place"] == "production")


@function_tool(needs_approval=is_production)
def rollback(place: str, version: str) -> str:
    print(f"  {place} runs {version} now")
    return "rolled back"


async def main(model: Any, store: str) -> None:
    def deployer() -> Any:  # as each process builds it
        agent = Agent("Deployer", model=model, tools=[deploy, rollback])
        return guard(agent, sayso.Gate(store, agent="deployer", wait=0))

    result = await deployer().run("Ship version 2.5.0.", thread="ship")
    while result.status == "paused":
        (request,) = result.interruptions
        print(f"approval required: {request.tool} {dict(request.args)}")
        decision = request.approve() if request.tool == "deploy" else request.reject("no need")
        await sayso.Inbox(store).decide(request.id, decision, by="ana")
        result = await deployer().resume("ship")
    print(result.output)


if __name__ == "__main__":
    model = sys.argv[1] if sys.argv[1:] else ScriptedModel(SCRIPT)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(model, f"sqlite:///{folder}/sayso.db"))
