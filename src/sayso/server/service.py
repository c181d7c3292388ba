"""What every route works with: the store, its two doors, the agents, the feed and the worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sayso.agent.agent import Resumable
from sayso.errors import NotFound
from sayso.gate import Gate
from sayso.inbox import Inbox
from sayso.server.access.limits import Limits
from sayso.server.feed import Feed
from sayso.server.metrics import Metrics
from sayso.server.pulse import Pulse
from sayso.server.showing.cards import Cards
from sayso.stores.base import Store

if TYPE_CHECKING:
    from fastapi import Request as HttpRequest

    from sayso.worker import Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One server on one store; it keeps nothing that a restart would miss."""

    store: Store
    inbox: Inbox
    #: What it shows in lists.
    cards: Cards
    #: The door of agents on other machines.
    gate: Gate
    agents: Mapping[str, Resumable]
    default: str
    worker: Worker
    feed: Feed
    limits: Limits
    metrics: Metrics
    pulse: Pulse
    auth: bool
    environment: str
    demo: bool

    def agent(self, name: str | None) -> Resumable:
        """The agent of that name, or the default one."""
        found = self.agents.get(self.default if name is None else name)
        if not self.agents:
            raise NotFound("there is no agent here: start the server with one, as module:agent")
        if found is None:
            known = ", ".join(self.agents) or "none"
            raise NotFound(f"there is no agent {name!r} here; there is: {known}")
        return found


def service_of(request: HttpRequest) -> Service:
    """The service behind the app that got this request."""
    service: Service = request.app.state.sayso
    return service
