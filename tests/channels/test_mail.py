"""Mail: a link, and a code that decides, with a real SMTP server."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from fake_mail import Mailbox, running_mailbox
from kit_world import PAGE, KitWorld
from waiting import until_async

import sayso
from sayso.channels.kit.desk import WRONG_CODE
from sayso.channels.mail import MailChannel
from sayso.errors import Unauthenticated
from sayso.inbox import add_person, remove_person
from sayso.inbox.accounts import confirm_address, new_code
from sayso.inbox.directory import revoke_tokens
from sayso.types import Reviewer


@pytest.fixture
def mailbox() -> Iterator[tuple[Mailbox, MailChannel]]:
    with running_mailbox(PAGE) as running:
        yield running


def _linked(world: KitWorld) -> None:
    code = new_code(world.store, Reviewer("ana"), "mail", "ana@example.com")
    with pytest.raises(Unauthenticated):
        confirm_address(world.store, Reviewer("bo"), "mail", code)
    confirm_address(world.store, Reviewer("ana"), "mail", code)


class Reader:
    """What Ana does with the last mail: she reads it, and types its code into the page."""

    def __init__(self, world: KitWorld, box: Mailbox) -> None:
        self.world = world
        self.box = box

    async def mails(self, count: int) -> str:
        """Wait for so many mails, and return the text of the last one."""
        await until_async(lambda: len(self.box.mails) >= count)
        counts = self.world.store.count_deliveries
        await until_async(lambda: not {"due", "updating"} & {state for _, state in counts()})
        return self.box.text(count - 1)

    async def enter(self, text: str, verb: str, *, code: str = "", reason: str = "") -> str:
        """Enter the code of a mail, or another one; return what the page says."""
        found = _CODE.search(text)
        assert found is not None, text
        assert self.world.desk is not None
        answer = await self.world.desk.enter_code(found[1], code or found[2], verb, reason)
        return answer.text


_CODE = re.compile(r"/channels/mail/(\w+)\s+and\s+enter\s+the\s+code\s+([A-Z0-9-]+)")


@pytest.fixture
def reader(world: KitWorld, mailbox: tuple[Mailbox, MailChannel]) -> Reader:
    add_person(world.store, "ana", by="admin", mail="ana@example.com")
    _linked(world)
    return Reader(world, mailbox[0])


async def test_mail_has_link_and_code(
    world: KitWorld, mailbox: tuple[Mailbox, MailChannel], reader: Reader
) -> None:
    async with world.running(mailbox[1]):
        request_id = await world.ask()
        text = await reader.mails(1)
        (mail,) = reader.box.mails
        assert (mail["To"], mail["Auto-Submitted"]) == ("ana@example.com", "auto-generated")
        assert request_id in mail["References"]
        assert f"{PAGE}/inbox/{request_id}" in text
        assert _CODE.search(text)


@pytest.mark.parametrize("verb", ["approve", "reason"])
async def test_code_decides_once(
    world: KitWorld, mailbox: tuple[Mailbox, MailChannel], reader: Reader, verb: str
) -> None:
    async with world.running(mailbox[1]):
        request_id = await world.ask()
        text = await reader.mails(1)
        outcome = await reader.enter(text, verb, reason="too much")
        assert outcome.startswith("Approved by ana, " if verb == "approve" else "Rejected by ana, ")
        again = "reason" if verb == "approve" else "approve"
        assert await reader.enter(text, again, reason="changed my mind") == outcome
    request = await world.inbox.get(request_id)
    assert request.decision is not None
    decided = (request.decision.by, request.decision.channel, request.decision.assurance)
    assert decided == ("ana", "mail", "chat")
    assert world.counts.decisions == [("mail", request.decision.type)]


async def test_wrong_code_decides_nothing(
    world: KitWorld, mailbox: tuple[Mailbox, MailChannel], reader: Reader
) -> None:
    async with world.running(mailbox[1]):
        first = await world.ask()
        text = await reader.mails(1)
        await world.ask("r2", order="B-2")
        other = _CODE.search(await reader.mails(2))
        assert other is not None
        for code in ("AAAA-AAAA-AAAA-AAAA", other[2], "", " "):
            assert await reader.enter(text, "approve", code=code or "-") == WRONG_CODE
        for verb in ("edit", "answer", "option-0", "", "approve:x"):
            assert "Approved" not in await reader.enter(text, verb)
        assert world.desk is not None
        nothing = await world.desk.enter_code("dlv_0000000000000000", other[2], "approve", "")
        assert nothing.text == WRONG_CODE
    assert await world.status(first) == "pending"


@pytest.mark.parametrize("end", ["removed", "unlinked", "decided", "cancelled", "expired", "stale"])
async def test_late_code_says_why(
    world: KitWorld, mailbox: tuple[Mailbox, MailChannel], reader: Reader, end: str
) -> None:
    if end == "expired":
        world.rule = sayso.Rule("*", risk="low", reviewers="ana", expires_in=1)
    async with world.running(mailbox[1]):
        request_id = await world.ask()
        text = await reader.mails(1)
        request = await world.inbox.get(request_id)
        said = {"removed": "not linked", "unlinked": "not linked", "decided": "Rejected by ana"}
        said |= {"cancelled": "Cancelled", "expired": "Expired"}
        said["stale"] = WRONG_CODE  # the code covers the digest of its mail
        if end == "removed":
            await asyncio.to_thread(remove_person, world.store, "ana", by="admin")
        elif end == "unlinked":
            rows = world.store.credentials("ana")
            link = tuple(row.id for row in rows if row.kind == "chat")
            await asyncio.to_thread(revoke_tokens, world.store, "ana", link, by=Reviewer("ana"))
        elif end == "decided":
            await world.inbox.decide(request, request.reject(), by="ana")
        elif end == "cancelled":
            await world.inbox.cancel(request, by="ana")
        elif end == "expired":
            await until_async(lambda: time.time() > request.created_at.timestamp() + 1)
            world.sweep()
        else:
            (row,) = world.store.deliveries_of(request_id)
            other = row._replace(digest="0" * 64)
            await asyncio.to_thread(world.store.put_deliveries, [other])
        assert said[end] in await reader.enter(text, "approve")
    assert (await world.inbox.get(request_id)).status != "approved"


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
async def test_mail_without_code_says_why(
    world: KitWorld,
    mailbox: tuple[Mailbox, MailChannel],
    reader: Reader,
    rule: Any,
    args: Any,
    why: str,
) -> None:
    world.rule = sayso.Rule("*", reviewers=("ana", "bo"), **rule)
    async with world.running(mailbox[1]):
        await world.ask(**args)
        text = " ".join((await reader.mails(1)).split())
    assert why in text
    assert _CODE.search(text) is None
    assert "hunter2" not in text


async def test_mail_that_was_not_recorded_comes_again(
    world: KitWorld, mailbox: tuple[Mailbox, MailChannel], reader: Reader
) -> None:
    """As after kill -9 between sending and recording: mailboxes know it by its Message-ID."""
    async with world.running(mailbox[1]):
        request_id = await world.ask()
        first = await reader.mails(1)
    (row,) = world.store.deliveries_of(request_id)
    lost = row._replace(state="due", message="", next_at=world.store.now())
    await asyncio.to_thread(world.store.put_deliveries, [lost])
    async with world.running(mailbox[1]):
        second = await reader.mails(2)
        assert len({mail["Message-ID"] for mail in reader.box.mails}) == 1
        assert _CODE.findall(first) == _CODE.findall(second)
        assert (await reader.enter(first, "approve")).startswith("Approved by ana, ")
    assert world.counts.decisions == [("mail", "approve")]


async def test_unlinked_address_gets_a_link_only(
    world: KitWorld, mailbox: tuple[Mailbox, MailChannel]
) -> None:
    box, channel = mailbox
    add_person(world.store, "ana", by="admin", mail="ana@example.com")
    add_person(world.store, "bo", by="admin", mail="gone@example.com", groups=("finance",))
    world.rule = sayso.Rule("*", risk="low", reviewers=("ana", "group:finance"))
    async with world.running(channel):
        await world.ask(order="A\r\nBcc: eve@example.com")
        await until_async(lambda: box.mails)
        await until_async(lambda: ("mail", "dead") in world.counts.outcomes)
    (mail,) = box.mails
    assert mail["Bcc"] is None
    assert "Open the request to decide." in box.text()
    assert "code" not in box.text()
