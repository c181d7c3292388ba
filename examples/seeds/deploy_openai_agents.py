"""The deployment assistant of the OpenAI Agents SDK, which asks before it touches production.

The three marked lines put it behind a gate. Without them it is a program of the bare SDK.
"""

import asyncio
import json
from typing import Any

from agents import Agent, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call

import sayso  # added
from sayso.adapters.openai_agents import Runner, guard  # was: from agents import Runner

set_tracing_disabled(True)
SCRIPT = [
    [function_call("deploy_to_staging", {"version": "2.5.0"}, call_id="c1")],
    [
        function_call("deploy_to_production", {"version": "2.5.0"}, call_id="c2"),
        function_call("rollback", {"environment": "production", "version": "2.4"}, call_id="c3"),
    ],
    [assistant_message("Version 2.5.0 is in production.")],
]


@function_tool(needs_approval=True)
def deploy_to_production(version: str) -> str:
    """Deploy to production environment"""
    print(f"  production runs {version}")
    return "deployed"


@function_tool
def deploy_to_staging(version: str) -> str:
    """Deploy to staging environment"""
    print(f"  staging runs {version}")
    return "deployed"


async def is_production(ctx: Any, args: dict[str, Any], call_id: str) -> bool:
    return bool(args["environment"] == "production")


@function_tool(needs_approval=is_production)
def rollback(environment: str, version: str) -> str:
    """Rollback to previous version"""
    print(f"  {environment} runs {version}")
    return "rolled back"


async def deploy_app() -> None:
    tools: Any = [deploy_to_production, deploy_to_staging, rollback]
    agent: Any = Agent("Deployment Assistant", model=ScriptedModel(SCRIPT), tools=tools)
    agent = guard(agent, sayso.Gate("sayso.db", agent="deployer", wait=0))  # added
    result: Any = await Runner.run(agent, "Deploy version 2.5.0 to production")
    while result.interruptions:
        state = result.to_state()
        for interruption in result.interruptions:
            print(f"approval required: {interruption.name} {json.loads(interruption.arguments)}")
            if interruption.name == "rollback":
                state.reject(interruption)
            else:
                state.approve(interruption)
        result = await Runner.run(agent, state)
    print(result.final_output)


if __name__ == "__main__":
    asyncio.run(deploy_app())
