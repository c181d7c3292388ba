"""The demo on a page: the scripted agent behind a server, and what really ran beside it."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.responses import Response

from sayso.demo import agent
from sayso.demo.effects import Effects
from sayso.server import CurrentChatUser, JsonResponse, create_app


def demo_app(url: str, *, auth: bool = True) -> FastAPI:
    """The whole server on one store, with the demo agent and its log of effects."""
    effects = Effects.beside(url)
    app = create_app([agent(None, effects)], store=url, auth=auth, environment="demo", demo=True)

    @app.get("/demo/effects", tags=["demo"], summary="What really ran")
    def ran(who: CurrentChatUser) -> JsonResponse:
        """One row per real execution of a tool, as the tools themselves wrote it down."""
        return JsonResponse(effects.all())

    @app.delete("/demo/effects", tags=["demo"], summary="Forget what ran", status_code=204)
    def forget(who: CurrentChatUser) -> Response:
        """Response the log; the record of the store stays."""
        effects.clear()
        return Response(status_code=204)

    return app
