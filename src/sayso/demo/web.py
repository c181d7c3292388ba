"""Serve the demo: scripted agents behind a server, three requests to begin with, and the log."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.responses import Response

import sayso
from sayso.demo import agent
from sayso.demo.coding import CodingAgent
from sayso.demo.tools import Effects
from sayso.server import CurrentChatUser, JsonResponse, create_app

#: What the inbox opens with: threads, and the words that make the agent ask.
WELCOME = {
    "welcome-deploy": "Deploy version 2.5.0 to production",
    "welcome-records": "Delete records older than 90 days",
    "welcome-email": "Send an email to 250 customers",
}


def welcome(url: str, effects: Effects) -> None:
    """Let the agent make three requests that are worth deciding, if nobody asked anything yet."""
    inbox = sayso.Inbox(url)
    asked = inbox.pending_sync(status="any", limit=1)
    inbox.close()
    if not asked.items:
        asking = agent(url, effects)
        for thread, words in WELCOME.items():
            asking.run_sync(words, thread=thread)
        asking.close()


def demo_app(url: str, *, auth: bool = True) -> FastAPI:
    """Return the whole server on one store, with the demo agents and their log."""
    effects = Effects.beside(url)
    welcome(url, effects)
    coding = CodingAgent(url, effects.record)
    served = agent(None, effects, coding.start)
    app = create_app([served], store=url, auth=auth, environment="demo", demo=True)

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
