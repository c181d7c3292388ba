"""Mail: a link, and a code that decides, with a real SMTP server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

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


@pytest.mark.parametrize("wrong", ["", "code", "removed", "stale"])
async def test_code_in_mail_decides(
    world: KitWorld, mailbox: tuple[Mailbox, MailChannel], wrong: str
) -> None:
    box, channel = mailbox
    add_person(world.store, "ana", by="admin", mail="ana@example.com")
    _linked(world)
    async with world.running(channel):
        request_id = await world.ask()
        await until_async(lambda: ("mail", "sent") in world.store.count_deliveries())
        (mail,) = box.mails
        assert mail["To"] == "ana@example.com"
        assert mail["Auto-Submitted"] == "auto-generated"
        assert request_id in mail["References"]
        assert f"{PAGE}/inbox/{request_id}" in box.text()
        found = re.search(
            r"/channels/mail/(\w+)\s+and\s+enter\s+the\s+code\s+([A-Z0-9-]+)", box.text()
        )
        assert found is not None, box.text()
        code = "AAAA-AAAA-AAAA-AAAA" if wrong == "code" else found[2]
        if wrong == "removed":
            await asyncio.to_thread(remove_person, world.store, "ana", by="admin")
        if wrong == "stale":
            request = await world.inbox.get(request_id)
            await world.inbox.decide(request, request.reject(), by="ana")
        assert world.desk is not None
        answer = await world.desk.enter_code(found[1], code, "reason", "too much")
        if wrong:
            words = {"code": WRONG_CODE, "removed": "not linked", "stale": "Rejected by ana"}[wrong]
            assert words in answer.text
        else:
            assert answer.text.startswith("Rejected by ana, ")
    request = await world.inbox.get(request_id)
    decided = request.decision
    assert (decided is not None and decided.channel == "mail") == (wrong == "")


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
