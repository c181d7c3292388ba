"""The kit: who gets which message, once, and what a button decides."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from kit_world import PAGE, FakeChannel, KitWorld
from waiting import until_async

import sayso
import sayso.audit
from sayso.channels.kit.cards import card_of
from sayso.channels.kit.courier import read_request
from sayso.channels.kit.desk import FOREIGN, STALE, Press, button_value
from sayso.channels.kit.planner import Planner, delivery_id
from sayso.channels.kit.service import ChannelService
from sayso.gate.backend import StoreBackend
from sayso.inbox import create_token, remove_person, revoke_token, set_stand_in
from sayso.inbox.accounts import linked_person, new_code
from sayso.rows import Call, Delivery
from sayso.types import SECOND, EarlierRejection, Reviewer


async def test_press_decides_and_updates_every_copy(world: KitWorld) -> None:
    world.person("ana", "77")
    world.person("bo", "78", groups=("finance",))
    world.person("eve", "79")
    async with world.running():
        request_id = await world.ask()
        (ana, card), (bo, _) = sorted(await world.sends(2), key=lambda pair: pair[0].target)
        assert [row.target for row in (ana, bo)] == ["77", "78"]
        assert [button.verb for button in card.buttons] == ["approve", "edit", "reject", "reason"]
        assert "euros: 250" in card.text()
        answer = await world.press(ana, "approve", "77")
        assert answer.text.startswith("Approved by ana, ")
        await world.settled("Approved by ana, ")
        assert await world.status(request_id) == "approved"
        late = await world.press(bo, "reject", "78")
        assert late.text.startswith("Approved by ana, ")
    request = await world.inbox.get(request_id)
    assert request.decision is not None
    assert (request.decision.assurance, request.decision.channel) == ("chat", "telegram")
    assert world.counts.decisions == [("telegram", "approve")]
    assert (
        sorted(world.counts.outcomes) == [("telegram", "sent")] * 2 + [("telegram", "updated")] * 2
    )


async def test_reason_and_edit_are_typed(world: KitWorld) -> None:
    world.person("ana", "77")
    async with world.running():
        first = await world.ask("r1")
        second = await world.ask("r2")
        rows = {row.request: row for row, _ in await world.sends(2)}
        asked = await world.press(rows[first], "reason", "77")
        assert asked.ask == "reason"
        press = _press(world, rows[first], "reason")
        assert world.desk is not None
        await world.desk.asked(press, "91")
        assert await world.desk.replied(press.account, "77", "92", "no") is None
        answer = await world.desk.replied(press.account, "77", "91", "too much")
        assert answer is not None
        assert answer.text.endswith(": too much")
        answer = await world.desk.typed(_press(world, rows[second], "edit"), "", {"euros": 25})
        assert answer.text.startswith("Approved with changes by ana")
        assert (await world.inbox.get(second)).args == {"order": "A-17", "euros": 25}
    assert await world.status(first) == "rejected"


async def test_late_reply_decides_nothing(world: KitWorld) -> None:
    world.person("ana", "77")
    async with world.running():
        request_id = await world.ask()
        ((row, _),) = await world.sends(1)
        press = _press(world, row, "reason")
        assert world.desk is not None
        await world.desk.asked(press, "91")
        waiting = world.store.delivery(delivery_id("telegram", "77", "", "", "reply:91"))
        assert waiting is not None
        world.store.put_deliveries([waiting._replace(next_at=world.store.now())])
        answer = await world.desk.replied(press.account, "77", "91", "too much")
        assert answer is not None
        assert answer.text == "That was too long ago: press the button again."
    assert await world.status(request_id) == "pending"


async def test_question_is_answered_with_own_words(world: KitWorld) -> None:
    world.person("ana", "77")
    question = sayso.Question("Which colour?", ["red", sayso.Option("sea", 2)], free_text=True)
    async with world.running():
        request_id = await asyncio.to_thread(world.question_sync, question)
        ((row, card),) = await world.sends(1)
        assert "• sea = 2" in card.text()
        verbs = [button.verb for button in card.buttons]
        assert verbs[:3] == ["option-0", "option-1", "answer"]
        assert (await world.press(row, "answer", "77")).ask == "answer"
        assert world.desk is not None
        await world.desk.typed(_press(world, row, "answer"), "green")
    request = await world.inbox.get(request_id)
    assert request.decision is not None
    assert (request.status, request.decision.value) == ("responded", "green")


async def test_confirmation_is_shown_whole(world: KitWorld) -> None:
    world.person("ana", "77")
    gate = sayso.Gate(world.store, agent="assistant", wait=0)

    def ask() -> None:
        with pytest.raises(sayso.Paused), gate.run("r1"):
            gate.confirm_sync("Publish\nnow?", {"to": "all"}, risk="low", reviewers="ana")

    async with world.running():
        await asyncio.to_thread(ask)
        ((row, card),) = await world.sends(1)
        assert tuple(card.lines[:3]) == ("│ Publish", "│ now?", "to: all")
        assert (await world.press(row, "approve", "77")).text.startswith("Approved by ana")


async def test_rule_for_recent_sign_in_takes_the_buttons(world: KitWorld) -> None:
    world.rule = sayso.Rule("*", risk="low", reviewers="ana", fresh="5m")
    world.person("ana", "77")
    async with world.running():
        request_id = await world.ask()
        ((row, card),) = await world.sends(1)
        assert (card.buttons, "its rule requires a recent sign-in" in card.why) == ((), True)
        assert "recent sign-in" in (await world.press(row, "approve", "77")).text
    assert await world.status(request_id) == "pending"


async def test_press_that_comes_second_shows_the_first_decision(world: KitWorld) -> None:
    """Another person decides between the look at the request and the decision."""
    world.person("ana", "77")
    async with world.running():
        request_id = await world.ask()
        ((row, _),) = await world.sends(1)
        decide = world.inbox.decide

        async def decide_second(*args: Any, **options: Any) -> Any:
            request = await world.inbox.get(request_id)
            await decide(request, request.reject("no"), by=Reviewer("bo", groups=("finance",)))
            return await decide(*args, **options)

        world.inbox.decide = decide_second  # type: ignore[method-assign]
        answer = await world.press(row, "approve", "77")
        assert answer.text.startswith("Rejected by bo")
    assert world.counts.decisions == []


def _press(world: KitWorld, row: Delivery, verb: str) -> Press:
    return Press(world.account("77"), row.target, row.message, button_value(row, verb))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"target": "79"}, FOREIGN),
        ({"message": "[99]"}, "copy of a message"),
        ({"value": "approve:req_0000000000000000:00000000:00000000"}, FOREIGN),
        ({"value": "approve"}, FOREIGN),
        ({"account": "79"}, "not linked"),
        ({"account": "78"}, "was for ana"),
        ({"workspace": "T2"}, "not linked"),
    ],
)
async def test_press_that_does_not_match_decides_nothing(
    world: KitWorld, changes: dict[str, str], reason: str
) -> None:
    world.person("ana", "77")
    world.person("bo", "78")
    async with world.running():
        request_id = await world.ask()
        ((row, _),) = await world.sends(1)
        answer = await world.press(row, "approve", "77", **changes)
        assert reason in answer.text
        forged = await world.press(row, "option-0", "77")
        assert forged.text == "This button does not exist."
    assert await world.status(request_id) == "pending"


async def test_stale_message_decides_nothing(world: KitWorld) -> None:
    world.rule = sayso.Rule("*", risk="low", quorum=2)
    world.person("ana", "77")
    async with world.running():
        request_id = await world.ask()
        ((old, card),) = await world.sends(1)
        assert "more than one person" in card.why
        request = await world.inbox.get(request_id)
        token, _ = create_token(world.store, "ana", by="admin")
        await world.inbox.decide(request, request.edit({"euros": 9}), token=token)
        await world.sends(2)
        answer = await world.press(old, "approve", "77")
        assert answer.text == STALE
        new = [card for card in world.channel.messages.values() if not card.outcome]
        assert len(new) == 1
        assert "euros: 9" in new[0].text()


@pytest.mark.parametrize("taken", ["person", "link"])
async def test_removed_person_decides_nothing(world: KitWorld, taken: str) -> None:
    linked = world.person("ana", "77")
    assert linked is not None
    world.person("bo", "78", groups=("finance",))
    async with world.running():
        request_id = await world.ask()
        rows = {row.target: row for row, _ in await world.sends(2)}
        if taken == "person":
            remove_person(world.store, "ana", by="admin")
        else:
            (link,) = [c for c in world.store.credentials("ana") if c.kind == "chat"]
            revoke_token(world.store, link.id, by="admin")
        answer = await world.press(rows["77"], "approve", "77")
        assert "not linked" in answer.text
        assert await world.status(request_id) == "pending"
        await world.ask("r2")
        await world.sends(3)
        assert [row.target for row, _ in world.channel.sent[2:]] == ["78"]


async def test_account_links_one_person_by_one_code(world: KitWorld) -> None:
    world.person("ana", "77")
    world.person("bo")
    async with world.running():
        assert world.desk is not None
        assert "linked to a person already" in await world.desk.link(
            world.account("77"), new_code(world.store, Reviewer("bo"), "telegram")
        )
        code = new_code(world.store, Reviewer("bo"), "telegram")
        assert "unknown" in await world.desk.link(world.account("78"), code + "x")
        assert "unknown" in await world.desk.link(
            world.account("78")._replace(channel="slack"), code
        )
        assert await world.desk.link(world.account("78"), code) == (
            "This account is linked to bo now."
        )
        assert "used" in await world.desk.link(world.account("79"), code)
        (link,) = [c for c in world.store.credentials("ana") if c.kind == "chat"]
        revoke_token(world.store, link.id, by="admin")
        code = new_code(world.store, Reviewer("bo"), "telegram")
        assert "linked to bo" in await world.desk.link(world.account("77"), code)
    person = linked_person(world.store, world.account("77"))
    assert person is not None
    assert (person.name, person.assurance) == ("bo", "chat")
    assert sayso.audit.verify(world.store).ok


async def test_many_requests_are_one_digest(world: KitWorld) -> None:
    world.person("ana", "77")
    for number in range(12):
        await world.ask(f"early-{number}")  # before the channel was configured
    async with world.running():
        for number in range(40):
            await world.ask(f"r{number}")
        ((row, card),) = await world.sends(1)
        assert row.step == "digest"
        assert card.title.endswith("requests wait for you")
        for request in await world.inbox.pending(limit=60):
            await world.inbox.decide(request, request.reject(), by="ana")
        await until_async(lambda: world.store.count_deliveries() == {("telegram", "closed"): 1})
        request_id = await world.ask("after")
        assert (await world.sends(2))[1][0].request == request_id


@pytest.mark.parametrize("long", ["an earlier rejection", "many rejections", "a risk"])
async def test_facts_that_are_cut_take_the_buttons(world: KitWorld, long: str) -> None:
    """Facts are read before one decides, like arguments."""
    world.person("ana", "77")
    async with world.running():
        await world.ask()
        ((row, _),) = await world.sends(1)
    pair = read_request(world.store, row.request)
    assert pair is not None
    call, request = pair
    rejections = {"an earlier rejection": ["😡" * 1000], "many rejections": ["no"] * 40}
    refusals = [
        EarlierRejection(id=f"ref_{number}", by="ana", message=message)
        for number, message in enumerate(rejections.get(long, []))
    ]
    reasons = ("new to us " * 300,) if long == "a risk" else ()
    risk = replace(request.risk, reasons=reasons)
    request = replace(request, refusals=tuple(refusals), risk=risk)
    card = card_of(call, request, row, PAGE, datetime.now(UTC))
    assert card.buttons == ()
    assert "is cut" in card.why
    assert len(card.text().encode("utf-16-le")) < 2 * 4096


async def test_stand_in_gets_messages_of_absent_person(world: KitWorld) -> None:
    world.person("ana", "77")
    world.person("cleo", "80")
    set_stand_in(world.store, "ana", "cleo", world.store.now() + 3600 * SECOND, by="admin")
    async with world.running():
        request_id = await world.ask()
        ((row, _),) = await world.sends(1)
        assert (row.target, row.person) == ("80", "cleo")
        answer = await world.press(row, "approve", "80")
        assert answer.text.startswith("Approved by cleo for ana, ")
    assert await world.status(request_id) == "approved"


async def test_people_are_reminded_once_unless_they_voted(world: KitWorld) -> None:
    world.person("ana", "77")
    world.person("ben", "78")
    world.rule = sayso.Rule(
        "*", reviewers=("ana", "ben"), quorum=2, notify=["telegram"], remind_after=0.3
    )
    async with world.running():
        request_id = await world.ask()
        await world.sends(2)
        token, _ = create_token(world.store, "ben", by="admin")
        request = await world.inbox.get(request_id)
        await world.inbox.decide(request, request.approve(), token=token)
        await until_async(lambda: world.sweep() or len(world.channel.sent) == 3)
        row, _ = (await world.sends(3))[2]
        assert (row.person, row.step.partition("-")[0]) == ("ana", "reminder")
        for _ in range(3):
            world.sweep()
    assert len(world.channel.sent) == 3


async def test_escalation_notifies_new_people_in_channel_of_rule(world: KitWorld) -> None:
    world.person("ana", "77")
    world.person("ben", "78", groups=("leads",))
    world.person("cleo", "80", groups=("leads",))
    remove_person(world.store, "cleo", by="admin")
    world.rule = sayso.Rule(
        "*",
        risk="low",
        reviewers="ana",
        notify=["telegram:ana"],
        escalate_after=0.3,
        escalate_to=("group:leads", "dan"),
    )
    async with world.running():
        request_id = await world.ask()
        await until_async(lambda: world.sweep() or len(world.channel.sent) == 2)
        (first, _), (second, _) = await world.sends(2)
        assert [(row.person, row.step) for row in (first, second)] == [
            ("ana", "asked"),
            ("ben", "escalated"),
        ]
        answer = await world.press(second, "approve", "78")
        assert answer.text.startswith("Approved by ben, ")
    assert await world.status(request_id) == "approved"


async def test_lost_record_repeats_one_message(world: KitWorld) -> None:
    """A process that dies between sending and recording leaves a row that another one takes."""
    world.person("ana", "77")

    def die(_: object) -> None:
        world.channel.after = lambda _: None
        raise OSError("the process is gone")

    world.channel.after = die
    async with world.running():
        request_id = await world.ask()
        pairs = await world.sends(2)
        assert pairs[0][0].id == pairs[1][0].id
        assert pairs[1][0].message == "[2]"
        await world.press(pairs[1][0], "approve", "77")
    assert await world.status(request_id) == "approved"


async def test_channel_that_is_down_delays_only_itself(world: KitWorld) -> None:
    world.person("ana", "77")
    other = FakeChannel("slack")

    def fail(_: object) -> None:
        raise OSError("no route")

    other.before = fail
    async with world.running(world.channel, other):
        await world.ask()
        await world.sends(1)
    assert len(world.channel.sent) == 1


async def test_blocked_bot_gives_the_message_up(world: KitWorld) -> None:
    world.person("ana", "77")
    world.channel.blocked.add("77")
    async with world.running():
        request_id = await world.ask()
        await until_async(lambda: ("telegram", "dead") in world.counts.outcomes)
        await until_async(lambda: world.store.count_deliveries() == {("telegram", "dead"): 1})
    assert await world.status(request_id) == "pending"


async def test_one_of_two_processes_sends(world: KitWorld) -> None:
    """Two servers have the same channel: one sends, and the other takes over when it stops."""
    world.person("ana", "77")
    first = ChannelService(world.inbox, [world.channel], PAGE, world.counts)
    await first.begin()
    running = asyncio.create_task(first.run())
    await until_async(lambda: world.channel.listening == [1])
    async with world.running():
        for number in range(5):
            await world.ask(f"r{number}")
        await world.sends(5)
        first.stop()
        await running
        await world.ask("later")
        await world.sends(6)
    assert len({row.id for row, _ in world.channel.sent}) == 6
    assert world.channel.listening == [1, 0, 1, 0]


async def test_sender_that_lost_its_lease_stops(
    world: KitWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sayso.channels.kit.lease._RENEW", 0.05)
    async with world.running():
        await until_async(lambda: world.channel.listening == [1])
        name = "lease:channel:telegram"
        ends = world.store.now() + SECOND
        await until_async(
            lambda: world.store.move_cursor(name, f"{ends} x", expected=world.store.cursor(name))
        )
        await until_async(lambda: world.channel.listening == [1, 0])
        await until_async(lambda: world.channel.listening == [1, 0, 1])
        assert world.store.now() >= ends


async def test_message_waits_while_a_model_reviews(
    world: KitWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """People are not notified of what a model decides in the meantime."""

    async def reviewing(backend: StoreBackend, call: Call) -> Call:
        return call

    world.person("ana", "77")
    world.rule = replace(world.rule, reviewer="model:slow")
    monkeypatch.setattr(StoreBackend, "review", reviewing)
    request = await world.ask()
    planner = Planner(world.store, world.channel)
    planner.plan([event for _, event in world.store.events() if planner.wants(event)])
    (row,) = world.store.deliveries_of(request)
    assert row.next_at == row.created + 10 * SECOND
