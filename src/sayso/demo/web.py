"""Serve the demo: the scripted agent behind a server, and the log of what really ran."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.responses import Response

from sayso.demo import agent
from sayso.demo.tools import Effects
from sayso.server import CurrentChatUser, JsonResponse, create_app


def demo_app(url: str, *, auth: bool = True) -> FastAPI:
    """Return the whole server on one store, with the demo agent and its log."""
    effects = Effects.beside(url)
    app = create_app([agent(None, effects)], store=url, auth=auth, environment="demo", demo=True)

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
