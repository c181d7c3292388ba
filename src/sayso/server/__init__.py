"""The HTTP server: the API, the live feed, the chat and the web app, as one FastAPI app.

Read ``app`` first (what is put together), then ``routes`` with ``auth`` and ``schemas`` (one
request), then ``request_views`` and ``details`` (what is shown to whom). ``remote_agents``,
``feed`` and ``webhooks`` are chapters of their own.

``create_app`` creates the app. To add your own routes to it, return ``JsonResponse`` and declare a
parameter of type ``AnyPrincipal``, ``CurrentChatUser``, ``CurrentReviewer`` or ``CurrentAgent``:
it admits callers with that role and holds their identity.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sayso.server.app import create_app
    from sayso.server.auth import AnyPrincipal, CurrentAgent, CurrentChatUser, CurrentReviewer
    from sayso.server.responses import JsonResponse

__all__ = [
    "AnyPrincipal",
    "CurrentAgent",
    "CurrentChatUser",
    "CurrentReviewer",
    "JsonResponse",
    "create_app",
]

_MODULES = {"create_app": "sayso.server.app", "JsonResponse": "sayso.server.responses"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'sayso.server' has no attribute {name!r}")
    return getattr(import_module(_MODULES.get(name, "sayso.server.auth")), name)
