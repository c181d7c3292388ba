"""The story that every channel passes, with its real client library and a fake of its platform."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import pytest
from kit_world import PAGE, KitWorld
from waiting import until_async

import sayso
from sayso.channels.kit.service import ChatChannel
from sayso.inbox import remove_person


class Phone(Protocol):
    """What people see of a platform, and do there. A person is a number."""

    channel: ChatChannel
    #: The address of a channel that several people read.
    shared: str

    def names(self, user: int) -> tuple[str, str]:
        """Return a person's account and workspace."""
        ...

    def shown(self, user: int) -> list[dict[str, Any]]:
        """Return the requests' messages of a person: text, and buttons by label."""
        ...

    def shown_in(self, place: str) -> list[dict[str, Any]]:
        """Return the messages in a shared channel."""
        ...

    async def link(self, user: int, code: str) -> None: ...
    async def press(self, user: int, label: str, **changes: Any) -> str:
        """Press a button of the last message that has it; return what the platform shows then."""
        ...

    async def reason(self, user: int, text: str) -> str:
        """Reject the last message with a reason, however this platform asks for it."""
        ...

    async def repeat(self) -> None:
        """Deliver the last event once more."""
        ...


class ChannelStory:
    """Asked, delivered once, decided, all copies updated; and everything that decides nothing."""

    async def started(self, world: KitWorld, phone: Phone, *people: tuple[str, int]) -> None:
        """Link accounts with codes that are sent from them."""
        for name, user in people:
            code = world.code(name, phone.channel.name)
            await phone.link(user, code)
            names = phone.names(user)
            await until_async(lambda names=names: world.is_linked(phone.channel.name, *names))

    async def one(self, phone: Phone, user: int, count: int = 1) -> dict[str, Any]:
        """Return the newest message of a person once there are so many."""
        await until_async(lambda: len(phone.shown(user)) >= count)
        return phone.shown(user)[-1]

    async def outcome(self, phone: Phone, user: int, words: str) -> None:
        await until_async(
            lambda: words in phone.shown(user)[-1]["text"], otherwise=lambda: phone.shown(user)
        )

    async def test_approval_updates_every_copy(self, world: KitWorld, phone: Phone) -> None:
        world.people("ana", "bo")
        async with world.running(phone.channel):
            await self.started(world, phone, ("ana", 77), ("bo", 78))
            request_id = await world.ask()
            message = await self.one(phone, 77)
            assert "euros: 250" in message["text"]
            assert f"{PAGE}/inbox/{request_id}" in message["text"]
            assert "Approve" in message["buttons"]
            await self.one(phone, 78)
            assert "Approved by ana, " in await phone.press(77, "Approve")
            await self.outcome(phone, 77, "Approved by ana, ")
            await self.outcome(phone, 78, "Approved by ana, ")
            assert phone.shown(77)[-1]["buttons"] == {}
            await phone.repeat()
            assert [len(phone.shown(user)) for user in (77, 78)] == [1, 1]
        request = await world.inbox.get(request_id)
        assert request.status == "approved"
        assert request.decision is not None
        assert (request.decision.by, request.decision.assurance) == ("ana", "chat")
        assert request.decision.channel == phone.channel.name

    async def test_rejection_carries_its_reason(self, world: KitWorld, phone: Phone) -> None:
        world.people("ana")
        async with world.running(phone.channel):
            await self.started(world, phone, ("ana", 77))
            request_id = await world.ask()
            await self.one(phone, 77)
            await phone.reason(77, "too much")
            await self.outcome(phone, 77, "Rejected by ana")
            await self.outcome(phone, 77, "too much")
        request = await world.inbox.get(request_id)
        assert request.decision is not None
        assert (request.status, request.decision.message) == ("rejected", "too much")

    async def test_long_reason_is_cut_in_every_copy(self, world: KitWorld, phone: Phone) -> None:
        world.people("ana")
        async with world.running(phone.channel):
            await self.started(world, phone, ("ana", 77))
            request_id = await world.ask()
            await self.one(phone, 77)
            await world.inbox.reject(request_id, "😡 no! " * 1000, by="ana")
            await self.outcome(phone, 77, "Rejected by ana")
            assert 0 < phone.shown(77)[-1]["text"].count("no!") < 100

    @pytest.mark.parametrize(
        "wrong", ["unlinked", "other person", "forwarded", "made up", "removed"]
    )
    async def test_wrong_press_decides_nothing(
        self, world: KitWorld, phone: Phone, wrong: str
    ) -> None:
        world.people("ana", "bo")
        changes: dict[str, Any] = {
            "unlinked": {"by": 79},
            "other person": {"by": 78},
            "forwarded": {"place": 78, "number": 9},
            "made up": {"data": "approve:req_0000000000000000:00000000:00000000"},
            "removed": {},
        }[wrong]
        async with world.running(phone.channel):
            await self.started(world, phone, ("ana", 77), ("bo", 78))
            request_id = await world.ask()
            await self.one(phone, 77)
            if wrong == "removed":
                await asyncio.to_thread(remove_person, world.store, "ana", by="admin")
            answer = await phone.press(77, "Approve", **changes)
            assert answer
            assert "Approved" not in answer
            assert await world.status(request_id) == "pending"

    @pytest.mark.parametrize(
        ("rule", "args", "why"),
        [
            ({"risk": "high"}, {}, "its risk is high"),
            ({}, {}, "no rule says how risky"),
            ({"risk": "low"}, {"order": "x" * 3000}, "is cut"),
            ({"risk": "low"}, {"order": "password=hunter2hunter2"}, "masked"),
            ({"risk": "low", "assurance": "session"}, {}, "assurance session"),
            ({"risk": "low", "quorum": 2}, {}, "more than one person"),
        ],
        ids=["high risk", "undeclared", "cut", "masked", "assurance", "quorum"],
    )
    async def test_message_without_buttons_says_why(
        self, world: KitWorld, phone: Phone, rule: Any, args: Any, why: str
    ) -> None:
        world.people("ana")
        world.rule = sayso.Rule("*", reviewers=("ana", "bo"), **rule)
        async with world.running(phone.channel):
            await self.started(world, phone, ("ana", 77))
            await world.ask(**args)
            message = await self.one(phone, 77)
        assert why in message["text"]
        assert message["buttons"] == {}
        assert "hunter2" not in message["text"]

    async def test_chat_rule_allows_any_risk(self, world: KitWorld, phone: Phone) -> None:
        world.people("ana")
        world.rule = sayso.Rule("*", reviewers="ana", risk="high", assurance="chat")
        async with world.running(phone.channel):
            await self.started(world, phone, ("ana", 77))
            request_id = await world.ask()
            await self.one(phone, 77)
            await phone.press(77, "Approve")
            await self.outcome(phone, 77, "Approved by ana")
        assert await world.status(request_id) == "approved"

    async def test_decision_elsewhere_updates_the_message(
        self, world: KitWorld, phone: Phone
    ) -> None:
        world.people("ana")
        async with world.running(phone.channel):
            await self.started(world, phone, ("ana", 77))
            request_id = await world.ask()
            await self.one(phone, 77)
            request = await world.inbox.get(request_id)
            await world.inbox.decide(request, request.approve(), by="ana")
            await self.outcome(phone, 77, "Approved by ana")
            await world.ask("r2", order="B-2")
            await self.one(phone, 77, 2)
            await world.inbox.cancel((await world.inbox.pending()).items[0], by="ana")
            await self.outcome(phone, 77, "Cancelled")

    async def test_shared_channel_shows_no_arguments(self, world: KitWorld, phone: Phone) -> None:
        """Also for a call whose message has buttons in direct messages."""
        world.people("ana")
        names = ["ana", "group:finance"]
        notify = [phone.channel.name, f"{phone.channel.name}:{phone.shared}"]
        world.rule = sayso.Rule("*", reviewers=names, risk="low", notify=notify)
        async with world.running(phone.channel):
            await self.started(world, phone, ("ana", 77))
            request_id = await world.ask(order="secret-order")
            assert "Approve" in (await self.one(phone, 77))["buttons"]
            await until_async(lambda: phone.shown_in(phone.shared))
            (message,) = phone.shown_in(phone.shared)
            assert "Approval: refund" in message["text"]
            assert f"{PAGE}/inbox/{request_id}" in message["text"]
            assert message["buttons"] == {}
            await phone.reason(77, "not this private reason")
            await until_async(lambda: "Rejected by ana" in phone.shown_in(phone.shared)[-1]["text"])
            texts = [message["text"], phone.shown_in(phone.shared)[-1]["text"]]
        assert len(phone.shown_in(phone.shared)) == 1
        for words in ("secret-order", "250", "private reason"):
            assert words not in str(texts)
