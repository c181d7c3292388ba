"""Routes that read the request by themselves: documented like any other, and nothing in between."""

from __future__ import annotations

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.types import Receive, Scope, Send


class PlainRoute(APIRoute):
    """Calls its endpoint with the request and the parameters of its path.

    FastAPI would solve dependencies and check parameters first, which costs more than a whole
    answer of the chat may. Errors go to the handlers of the app, as everywhere.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that was matched."""
        if scope["method"] not in (self.methods or ()):
            await super().handle(scope, receive, send)
            return
        response = await self.endpoint(Request(scope, receive, send), **scope["path_params"])
        await response(scope, receive, send)
