"""Deploy: production needs approval, staging does not, and a rollback depends.

Scripted by default. To use a real model: python deployment_assistant.py --model openai:gpt-4o
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

import sayso
from sayso.agent.models import Model
from sayso.testing import ScriptedModel, call, say


@sayso.tool(needs_approval=True)
async def deploy_to_production(version: str) -> dict[str, str]:
    """Deploy to the production environment."""
    print(f"  production runs {version} now")
    return {"status": "deployed", "environment": "production", "version": version}


@sayso.tool
async def deploy_to_staging(version: str) -> dict[str, str]:
    """Deploy to the staging environment."""
    print(f"  staging runs {version} now")
    return {"status": "deployed", "environment": "staging", "version": version}


@sayso.tool(needs_approval=lambda args: args["environment"] == "production")
async def rollback(environment: str, version: str) -> dict[str, str]:
    """Roll back to a previous version."""
    return {"status": "rolled back", "environment": environment, "version": version}


TOOLS = [deploy_to_production, deploy_to_staging, rollback]
SCRIPT: list[Any] = [
    call("deploy_to_staging", {"version": "2.5.0"}),
    call("deploy_to_production", {"version": "2.5.0"}, text="Staging looks good."),
    say("Version 2.5.0 is everywhere."),
]


async def main(model: str | Model) -> None:
    agent = sayso.Agent("deployer", model=model, instructions="You deploy.", tools=TOOLS)
    result = await agent.run("Deploy version 2.5.0 to staging, then to production", thread="d-1")
    while result.status == "paused":
        for request in result.interruptions:
            print(f"approval required: {request.tool} {dict(request.args)}")
            result.state.approve(request, by="ana")
        result = await agent.resume(result.state)
    print(result.output or result.error)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=ScriptedModel(SCRIPT))
    asyncio.run(main(parser.parse_args().model))
