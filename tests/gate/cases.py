"""A gate, an inbox and a list of effects, for most tests of the gate."""

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
    """One store with a gate and an inbox, and a list of the effects."""

    def __init__(self, store: Store, **options: Any) -> None:
        self.store = store
        self.gate = Gate(store, **{"wait": 0, "agent": "bot", **options})
        self.inbox = Inbox(store)
        self.ran: list[Any] = []

    def paying(self, **options: Any) -> Callable[..., str]:
        """Return a guarded function. ``ran`` lists its effects."""

        @self.gate.guard(**{"needs_approval": True, **options})
        def pay(to: str, amount: int = 3) -> str:
            self.ran.append((to, amount))
            return f"paid {to} {amount}"

        return pay

    def enter(self, call: Callable[[], Any], run: str = RUN, **options: Any) -> Any:
        """Enter a run."""
        with self.gate.run(run, **options):
            return call()

    def paused(self, call: Callable[[], Any], run: str = RUN, **options: Any) -> Request:
        """Enter a run that pauses for one request. Return the request."""
        with pytest.raises(Paused) as caught:
            self.enter(call, run, **options)
        (request,) = caught.value.requests
        return request

    def pending(self, **filters: Any) -> Request:
        """Return the only pending request."""
        (request,) = self.inbox.pending_sync(**filters).items
        return request

    def decide(self, decision: Decision, by: By = "ana", **more: Any) -> Request:
        """Decide the request that the decision was made for."""
        assert decision.request is not None
        if isinstance(by, Somebody):
            by = by.at(self.store)
        return self.inbox.decide_sync(decision.request, decision, by=by, **more)

    def approved(self, call: Callable[[], Any], run: str = RUN, **options: Any) -> Request:
        """Ask, and approve the request."""
        return self.decide(self.paused(call, run, **options).approve())

    def types(self, run: str = RUN) -> list[str]:
        """Return the types of the events of a run so far."""
        return [event.type for event in self.store.chain(run)]


class Somebody(NamedTuple):
    """A person who authenticates with this assurance."""

    name: str
    groups: tuple[str, ...]
    assurance: str

    def at(self, store: Store) -> Reviewer:
        """Return the person, authenticated in a store."""
        if self.assurance == "code":
            return Reviewer(self.name, self.groups)
        if self.assurance == "os-user":
            return os_user()
        return testing.person(store, self.name, *self.groups, assurance=self.assurance)


By: TypeAlias = str | Reviewer | Somebody


def person(name: str, *groups: str, assurance: str = "token") -> Somebody:
    """Return an authenticated person."""
    return Somebody(name, groups, assurance)


def aside(body: Callable[[], Any]) -> threading.Thread:
    """Call a function in another OS thread."""
    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    return thread
