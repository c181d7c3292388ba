"""A loop asks about several calls in one pause."""

from __future__ import annotations

from typing import Any

import pytest

from sayso import Gate, Inbox, Paused, Rejected
from sayso.stores.memory import MemoryStore

ORDERS = [("ana", 5), ("bob", 7), ("eve", 9)]


def test_pauses_of_loop_are_joined() -> None:
    store = MemoryStore()
    gate = Gate(store, agent="buyer", wait=0)
    inbox = Inbox(store)
    paid: list[Any] = []

    @gate.guard
    def pay(to: str, amount: int) -> str:
        paid.append(to)
        return f"paid {amount}"

    def pay_all() -> list[str]:
        results = []
        with gate.run("orders") as run, run.one_pause() as each:
            for to, amount in ORDERS:
                with each:
                    results.append(pay(to, amount))
        return results

    with pytest.raises(Paused) as first:
        pay_all()
    assert [request.args["to"] for request in first.value.requests] == ["ana", "bob", "eve"]
    inbox.approve_sync(first.value.requests[1].id, by="ana")
    with pytest.raises(Paused) as second:
        pay_all()
    assert [request.args["to"] for request in second.value.requests] == ["ana", "eve"]
    assert paid == ["bob"]
    for request in second.value.requests:
        inbox.approve_sync(request.id, by="ana")
    assert pay_all() == ["paid 5", "paid 7", "paid 9"]
    assert paid == ["bob", "ana", "eve"]


def test_error_ends_the_loop_at_once() -> None:
    store = MemoryStore()
    gate = Gate(store, agent="buyer", wait=0)
    inbox = Inbox(store)

    @gate.guard
    def send(to: str) -> str:
        return to

    with pytest.raises(Paused) as pause, gate.run("mails"):
        send("ana")
    inbox.reject_sync(pause.value.requests[0].id, "no", by="ana")

    def send_all() -> None:
        with gate.run("mails") as run, run.one_pause() as each:
            for to in ("bob", "ana"):
                with each:
                    send(to)

    with pytest.raises(Rejected):
        send_all()
