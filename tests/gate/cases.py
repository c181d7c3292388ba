"""A gate, an inbox and what ran: the small world of most tests here."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import pytest

from sayso import Gate, Inbox, Paused, Reviewer, testing
from sayso.inbox import os_user
from sayso.stores.base import Store
from sayso.types import Decision, Request

RUN = "order-17"


class Case:
    """One store with both doors, and a list of the effects."""

    def __init__(self, store: Store, **options: Any) -> None:
        self.store = store
        self.gate = Gate(store, **{"wait": 0, "agent": "bot", **options})
        self.inbox = Inbox(store)
        self.ran: list[Any] = []

    def paying(self, **options: Any) -> Callable[..., str]:
        """A guarded function; what it did is in ``ran``."""

        @self.gate.guard(**{"needs_approval": True, **options})
        def pay(to: str, amount: int = 3) -> str:
            self.ran.append((to, amount))
            return f"paid {to} {amount}"

        return pay

    def enter(self, call: Callable[[], Any], run: str = RUN, **options: Any) -> Any:
        """One entry of a run."""
        with self.gate.run(run, **options):
            return call()

    def paused(self, call: Callable[[], Any], run: str = RUN, **options: Any) -> Request:
        """An entry that has to wait for one request."""
        with pytest.raises(Paused) as caught:
            self.enter(call, run, **options)
        (request,) = caught.value.requests
        return request

    def pending(self, **filters: Any) -> Request:
        """The one request that waits."""
        (request,) = self.inbox.pending_sync(**filters).items
        return request

    def decide(self, decision: Decision, by: By = "ana", **more: Any) -> Request:
        """Answer the request that the decision was made for."""
        assert decision.request is not None
        if isinstance(by, Somebody):
            by = by.at(self.store)
        return self.inbox.decide_sync(decision.request, decision, by=by, **more)

    def approved(self, call: Callable[[], Any], run: str = RUN, **options: Any) -> Request:
        """Ask, and have it approved."""
        return self.decide(self.paused(call, run, **options).approve())

    def types(self, run: str = RUN) -> list[str]:
        """The kinds of events of a run so far."""
        return [event.type for event in self.store.chain(run)]


class Somebody(NamedTuple):
    """A person, who comes through the door that gives this assurance."""

    name: str
    groups: tuple[str, ...]
    assurance: str

    def at(self, store: Store) -> Reviewer:
        """The same person at the door of a store."""
        if self.assurance == "code":
            return Reviewer(self.name, self.groups)
        if self.assurance == "os-user":
            return os_user()
        return testing.person(store, self.name, *self.groups, assurance=self.assurance)


By: TypeAlias = str | Reviewer | Somebody


def person(name: str, *groups: str, assurance: str = "token") -> Somebody:
    """Somebody who has proved who they are."""
    return Somebody(name, groups, assurance)


def aside(body: Callable[[], Any]) -> threading.Thread:
    """Do something in another thread."""
    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    return thread
