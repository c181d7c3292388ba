"""Serve the demo: the scripted agents behind a server, three requests to begin with, and the log.

One of the requests comes from a coding agent, which was not written with Sayso: its hook asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.responses import Response

import sayso
from sayso import codec
from sayso.demo import agent
from sayso.demo.tools import Effects
from sayso.hooks.dialects import read
from sayso.hooks.local import ask, ask_store, report
from sayso.rows import CallStatus
from sayso.server import CurrentChatUser, JsonResponse, create_app

#: What the inbox opens with: threads, and the words that make the agent ask.
WELCOME = {
    "welcome-deploy": "Deploy version 2.5.0 to production",
    "welcome-records": "Delete records older than 90 days",
}


def _payload(tool: str, **args: str) -> dict[str, Any]:
    return {
        "hook_event_name": "PreToolUse",
        "session_id": "demo",
        "cwd": "/srv/shop",
        "tool_name": tool,
        "tool_input": args,
        "tool_use_id": f"toolu_demo_{tool}",
    }


#: What Claude Code would send to its hook, one tool use after the other.
CODING = (
    _payload(
        "Edit",
        file_path="/srv/shop/deploy/production.yaml",
        old_string="replicas: 4\nmemory: 2Gi\nmigrate: false\n",
        new_string="replicas: 1\nmemory: 2Gi\nmigrate: true\n",
    ),
    _payload(
        "Bash",
        command="git commit -am 'Migrate on deploy' && git push --force origin main",
        description="Commit the change and push it",
    ),
)


def welcome(url: str, effects: Effects) -> None:
    """Let the agents make three requests that are worth deciding, if nobody asked anything yet."""
    inbox = sayso.Inbox(url)
    asked = inbox.pending_sync(status="any", limit=1)
    inbox.close()
    if not asked.items:
        asking = agent(url, effects)
        for thread, words in WELCOME.items():
            asking.run_sync(words, thread=thread)
        asking.close()
        ask_store(url, "", read(CODING[0]), 0.0)


async def code(url: str, effects: Effects) -> None:
    """Play the coding agent: it asks through its hook, and runs nothing that is not released."""
    gate, inbox = sayso.Gate(url, agent="claude", wait=0), sayso.Inbox(url)
    try:
        for use in map(read, CODING):
            asked = await inbox.search(agent="claude", tool=use.tool, limit=1)
            if any(r.status != "pending" and r.execution.status != "ready" for r in asked.items):
                continue  # it was answered before the demo was started again
            call = await ask(gate, use, None)
            if call.status is CallStatus.RELEASED:
                effects.record(use.tool, use.own_args(codec.loads(call.args)))
                ran = use._replace(moment="ran", result="done, by the demo")
                await report(gate, ran)
    finally:
        gate.close()
        inbox.close()


def demo_app(url: str, *, auth: bool = True) -> FastAPI:
    """Return the whole server on one store, with the demo agents and their log."""
    effects = Effects.beside(url)
    welcome(url, effects)
    app = create_app([agent(None, effects)], store=url, auth=auth, environment="demo", demo=True)
    serving = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with serving(app):
            coding = asyncio.create_task(code(url, effects))
            yield
            coding.cancel()
            await asyncio.gather(coding, return_exceptions=True)

    app.router.lifespan_context = lifespan

    @app.get("/demo/effects", tags=["demo"], summary="What really ran")
    def ran(who: CurrentChatUser) -> JsonResponse:
        """Return one row per real execution of a tool, from the tools' own log."""
        return JsonResponse(effects.all())

    @app.delete("/demo/effects", tags=["demo"], summary="Empty the log", status_code=204)
    def forget(who: CurrentChatUser) -> Response:
        """Empty the log. The store's record stays."""
        effects.clear()
        return Response(status_code=204)

    return app
