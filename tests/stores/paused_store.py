"""A store with runs paused in it, and the code that goes on with them after an upgrade."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import sayso
from sayso.stores.base import Store
from sayso.testing import ScriptedModel, call, calls, say

#: Seconds until the upgrade: longer than any lease, and an approval is still valid.
LATER = 7200


class Died(BaseException):
    """The process was gone, right after an effect."""


class Cast:
    """An agent and a shop, as the user's code has them before and after the upgrade."""

    def __init__(self, store: Store) -> None:
        self.effects: list[str] = []
        effects = self.effects

        @sayso.tool(needs_approval=True)
        def send(to: str, body: str = "hello") -> str:
            """Send a mail."""
            effects.append(f"send {to} {body}")
            return f"sent to {to}"

        options = [{"label": "Red", "value": "red"}, {"label": "Blue", "value": "blue"}]
        script = {
            "One mail.": call("send", {"to": "ana"}),
            "Two mails.": calls(call("send", {"to": "ben"}), call("send", {"to": "eve"})),
            "Ask me.": call("ask_user_question", {"question": "Which one?", "options": options}),
        }

        def reply(messages: Any) -> Any:
            last = messages[-1]
            if last["role"] == "user":
                return script.get(str(last["content"]), say("Good day."))
            return say("Final answer: " + str(last["content"]))

        self.agent = sayso.Agent(
            "clerk", model=ScriptedModel(reply), tools=[send, sayso.ask_user], store=store
        )
        self.gate = sayso.Gate(store, agent="shop", wait=0)

        @self.gate.guard(needs_approval=True)
        def ship(order: str) -> str:
            effects.append(f"ship {order}")
            return f"shipped {order}"

        self.ship: Callable[..., str] = ship

    def shipped(self, run: str, order: str) -> str:
        with self.gate.run(run):
            return self.ship(order)


def pause_runs(store: Store) -> None:
    """Leave everything in a store that it may hold while people think."""
    cast, inbox = Cast(store), sayso.Inbox(store)
    cast.agent.run_sync("Hello.", thread="one")
    cast.agent.run_sync("One mail.", thread="one", requester="bob")
    cast.agent.run_sync("Two mails.", thread="two")
    cast.agent.run_sync("Ask me.", thread="question")
    decided = next(r for r in inbox.pending_sync().items if (r.args or {}).get("to") == "ben")
    inbox.decide_sync(decided.id, decided.edit({"to": "bea"}), by="ana")
    for run, order in (("order-1", "late"), ("order-2", "deadly"), ("order-3", "again")):
        try:
            cast.shipped(run, order)
        except sayso.Paused:
            if order != "late":
                (request,) = inbox.pending_sync(thread=run).items
                grant = {"scope": "any", "uses": 2} if order == "again" else None
                inbox.decide_sync(request.id, request.approve(), by="ana", grant=grant)
    store.boundary = partial(die, cast.effects)
    with suppress(Died):
        cast.shipped("order-2", "deadly")
    store.boundary = None
    store.seal()


def die(effects: list[str], name: str, when: str) -> None:
    """Write nothing any more, once the effect has happened."""
    if "ship deadly" in effects:
        raise Died
