"""One request and one person: read it, decide it, and hear when somebody else does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sayso.errors import AlreadyDecided, Expired
from sayso.inbox import Inbox
from sayso.rows import Event
from sayso.stores.base import Subscription
from sayso.types import Decision, Request, Reviewer

_EARLIER = 100


@dataclass(frozen=True, slots=True)
class Desk:
    """Where one person looks at one request."""

    inbox: Inbox
    id: str
    by: Reviewer | None = None
    token: str | None = None
    channel: str = "terminal"
    grant: Mapping[str, Any] | None = None

    def read(self) -> Request:
        """The request as of now."""
        return self.inbox.get_sync(self.id)

    def decide(self, decision: Decision) -> Request:
        """Give this person's answer; a late one hears that it was late."""
        grant = self.grant if decision.type == "approve" else None
        try:
            return self.inbox.decide_sync(
                self.id,
                decision,
                by=self.by,
                token=self.token,
                channel=self.channel,
                grant=grant,
            )
        except AlreadyDecided as error:
            if self.read().status == "expired":
                raise Expired(f"request {self.id} has expired; nothing will run") from error
            raise

    def events(self) -> list[Event]:
        """What happened to the request so far."""
        return self.inbox.events_sync(self.id)

    def earlier(self, request: Request) -> Sequence[Request]:
        """The last requests of the same agent and tool that were closed."""
        if request.tool is None:
            return ()
        page = self.inbox.history_sync(agent=request.agent, tool=request.tool, limit=_EARLIER)
        return page.items

    def listen(self, listener: Callable[[], None]) -> Subscription:
        """Be told when something happens on the request's thread."""
        return self.inbox.store.subscribe(self.read().thread, listener)
