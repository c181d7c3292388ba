"""One server's channels over a store, with a platform that the test plays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from waiting import until_async

import sayso
from sayso.channels.kit.cards import Card
from sayso.channels.kit.channel import Undeliverable
from sayso.channels.kit.desk import Answer, Desk, Press, button_value
from sayso.channels.kit.service import ChannelService, ChatChannel
from sayso.inbox import add_person
from sayso.inbox.accounts import Account, LinkedAccount, link_account, linked_person, new_code
from sayso.rows import Delivery
from sayso.stores.base import Store
from sayso.stores.nested_runs import close_overdue
from sayso.types import Reviewer

PAGE = "https://sayso.example"


class FakeChannel:
    """A platform in memory. ``before`` and ``after`` may raise, as a network would."""

    per_second = 10_000.0
    spacing = 0.0
    updates = True
    takes_mail = False

    def __init__(self, name: str = "telegram") -> None:
        self.name = name
        self.sent: list[tuple[Delivery, Card]] = []
        #: What each message shows now, by target and number.
        self.messages: dict[tuple[str, int], Card] = {}
        self.before: Callable[[Delivery], None] = lambda _: None
        self.after: Callable[[Delivery], None] = lambda _: None
        self.blocked: set[str] = set()
        #: 1 for each begin of listening, and 0 for each end.
        self.listening: list[int] = []

    async def send(self, delivery: Delivery, card: Card) -> str:
        self.before(delivery)
        if delivery.target in self.blocked:
            raise Undeliverable("the person blocked the bot")
        self.sent.append((delivery, card))
        number = len(self.sent)
        self.messages[delivery.target, number] = card
        self.after(delivery)
        return json.dumps([number])

    async def update(self, delivery: Delivery, card: Card) -> None:
        self.before(delivery)
        (number,) = json.loads(delivery.message)
        self.messages[delivery.target, number] = card

    async def send_code(self, target: str, code: str) -> None: ...

    async def listen(self, desk: Desk) -> None:
        self.listening.append(1)
        try:
            await asyncio.Event().wait()
        finally:
            self.listening.append(0)

    async def check(self) -> str:
        return "a fake"

    async def close(self) -> None: ...


class Counts:
    """What the server would count."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[str, str]] = []
        self.delays: list[float] = []
        self.decisions: list[tuple[str, str]] = []

    def message(self, channel: str, outcome: str, delay: float | None) -> None:
        self.outcomes.append((channel, outcome))
        if delay is not None:
            self.delays.append(delay)

    def chat_decision(self, channel: str, decision: str) -> None:
        self.decisions.append((channel, decision))


class KitWorld:
    """A store with people who linked accounts, an agent that asks, and a channel."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.channel = FakeChannel()
        self.counts = Counts()
        self.inbox = sayso.Inbox(store)
        self.rule = sayso.Rule("*", risk="low", reviewers=("ana", "group:finance"))
        self.desk: Desk | None = None

    def person(self, name: str, user: str = "", **rights: Any) -> LinkedAccount | None:
        """Add a person, and link an account if ``user`` is given."""
        add_person(self.store, name, by="admin", **rights)
        return self.link(name, user) if user else None

    def link(self, name: str, user: str, channel: str = "") -> LinkedAccount:
        channel = channel or self.channel.name
        code = new_code(self.store, Reviewer(name), channel)
        return link_account(self.store, Account(channel, "", user), code)

    def people(self, *names: str) -> None:
        """Add people; bo is in finance."""
        for name in names:
            add_person(self.store, name, by="admin", groups=("finance",) if name == "bo" else ())

    def code(self, name: str, channel: str) -> str:
        return new_code(self.store, Reviewer(name), channel)

    def is_linked(self, channel: str, user: str, workspace: str = "") -> bool:
        return linked_person(self.store, Account(channel, workspace, user)) is not None

    def account(self, user: str, workspace: str = "") -> Account:
        return Account(self.channel.name, workspace, user)

    async def ask(self, run: str = "r1", **args: Any) -> str:
        """Ask for a refund, and return the request's id."""
        return await asyncio.to_thread(self.ask_sync, run, **args)

    def ask_sync(self, run: str = "r1", **args: Any) -> str:
        policy = sayso.Policy([self.rule])
        gate = sayso.Gate(self.store, policy=policy, agent="assistant", wait=0)
        guarded = gate.guard(refund, needs_approval=True)
        try:
            with gate.run(run):
                guarded(**({"order": "A-17", "euros": 250} | args))
        except sayso.Paused as paused:
            return paused.requests[0].id
        raise AssertionError("nobody was asked")

    def question_sync(self, question: sayso.Question) -> str:
        """Ask a question, and return the request's id."""
        gate = sayso.Gate(self.store, policy=sayso.Policy([self.rule]), agent="assistant", wait=0)
        try:
            with gate.run("q1"):
                gate.ask_sync(question, risk="low", reviewers="ana")
        except sayso.Paused as paused:
            return paused.requests[0].id
        raise AssertionError("nobody was asked")

    def sweep(self) -> bool:
        """Remind people and escalate what is due, as a server does. Return False."""
        for _ in close_overdue(self.store, 100, 5):
            pass
        return False

    @asynccontextmanager
    async def running(self, *channels: ChatChannel) -> AsyncIterator[ChannelService]:
        """Run the channels as a server does."""
        service = ChannelService(self.inbox, channels or [self.channel], PAGE, self.counts)
        await service.begin()
        self.desk = next(iter(service.runners.values())).desk
        task = asyncio.create_task(service.run())
        try:
            yield service
        finally:
            service.stop()
            await task

    async def sends(self, count: int) -> list[tuple[Delivery, Card]]:
        """Wait for so many messages, and return them as they were recorded."""
        await until_async(lambda: len(self.channel.sent) >= count)
        await until_async(
            lambda: not {"due", "updating"} & {s for _, s in self.store.count_deliveries()}
        )
        return [(self.row(row), card) for row, card in self.channel.sent]

    def row(self, row: Delivery) -> Delivery:
        stored = self.store.delivery(row.id)
        assert stored is not None
        return stored

    async def press(self, row: Delivery, verb: str, user: str, **changes: str) -> Answer:
        """Press a button of a message, as the platform reports it."""
        assert self.desk is not None
        press = Press(
            self.account(changes.get("account", user), changes.get("workspace", "")),
            changes.get("target", row.target),
            changes.get("message", row.message),
            changes.get("value", button_value(row, verb)),
        )
        return await self.desk.press(press)

    async def settled(self, text: str) -> None:
        """Wait until every message shows this outcome."""

        def all_show() -> bool:
            return all(text in card.outcome for card in self.channel.messages.values())

        await until_async(all_show, otherwise=lambda: self.channel.messages)

    async def status(self, request_id: str) -> str:
        return (await self.inbox.get(request_id)).status


def refund(order: str, euros: int) -> str:
    return f"{euros} euros refunded"
