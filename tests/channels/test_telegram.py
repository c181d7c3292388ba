"""Telegram: the story, with the real client library and a fake of its API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from channel_story import ChannelStory
from fake_telegram import TOKEN, FakeTelegram
from kit_world import KitWorld
from telegram.error import BadRequest
from waiting import until_async

import sayso
from sayso.channels.kit.cards import Card
from sayso.channels.kit.channel import TryLater, Undeliverable
from sayso.channels.kit.planner import Target, new_delivery
from sayso.channels.telegram import TelegramChannel


class TelegramPhone:
    shared = "-1001"

    def __init__(self, fake: FakeTelegram, **options: Any) -> None:
        self.fake = fake
        self.channel = TelegramChannel(TOKEN, api=fake.url, spacing=0, **options)
        self._last: dict[str, Any] = {}

    def names(self, user: int) -> tuple[str, str]:
        return str(user), ""

    def shown(self, user: int) -> list[dict[str, Any]]:
        return [
            m
            for m in self.fake.shown(user)
            if "asks" in m["text"]
            or "by ana" in m["text"]
            or "ancelled" in m["text"]
            or "wait for you" in m["text"]
        ]

    def shown_in(self, place: str) -> list[dict[str, Any]]:
        return self.fake.shown(int(place))

    async def link(self, user: int, code: str) -> None:
        self.fake.write(user, f"/start {code}")

    async def press(self, user: int, label: str, **changes: Any) -> str:
        seen = len(self.fake.alerts)
        self._last = self.fake.press(user, label, **changes)
        await until_async(lambda: len(self.fake.alerts) > seen)
        return self.fake.alerts[-1]

    async def reason(self, user: int, text: str) -> str:
        assert await self.press(user, "Reject with a reason…") == ""
        self._last = self.fake.reply(user, text)
        return ""

    async def repeat(self) -> None:
        alerts = len(self.fake.alerts)
        self.fake.repeat(self._last)
        await until_async(lambda: len(self.fake.alerts) > alerts)
        assert "Approved by ana" in self.fake.alerts[-1]


@pytest.fixture
def fake() -> Iterator[FakeTelegram]:
    made = FakeTelegram()
    yield made
    made.close()


@pytest.fixture
def phone(fake: FakeTelegram) -> TelegramPhone:
    return TelegramPhone(fake)


class TestTelegram(ChannelStory):
    pass


async def test_question_is_answered_with_a_button(world: KitWorld, phone: TelegramPhone) -> None:
    world.people("ana")
    async with world.running(phone.channel):
        await TestTelegram().started(world, phone, ("ana", 77))
        question = sayso.Question("Which colour?", ["red", "green"])

        def ask() -> str:
            gate = sayso.Gate(world.store, agent="assistant", wait=0)
            try:
                with gate.run("q1"):
                    gate.ask_sync(question, reviewers=["ana"], risk="low")
            except sayso.Paused as paused:
                return paused.requests[0].id
            raise AssertionError

        request_id = await asyncio.to_thread(ask)
        await until_async(lambda: phone.fake.shown(77)[1:])
        await phone.press(77, "green")
        await until_async(lambda: "Answered by ana" in phone.fake.shown(77)[-1]["text"])
    request = await world.inbox.get(request_id)
    assert request.decision is not None
    assert request.decision.value == "green"


async def test_webhook_needs_its_secret(world: KitWorld, fake: FakeTelegram) -> None:
    phone = TelegramPhone(fake, secret="s3cret", page="https://sayso.example")
    world.people("ana")
    async with world.running(phone.channel) as service:
        desk = service.runners["telegram"].desk
        code = world.code("ana", "telegram")
        body = json.dumps(fake.write(77, f"/start {code}")).encode()
        header = "x-telegram-bot-api-secret-token"
        for headers in ({}, {header: "wrong"}, {header: "ä"}):
            assert await phone.channel.receive(headers, body, desk) == (401, "", "text/plain")
        assert not world.is_linked("telegram", "77")
        assert await phone.channel.receive({header: "s3cret"}, b"[", desk) == (
            400,
            "",
            "text/plain",
        )
        assert await phone.channel.receive({header: "s3cret"}, body, desk) == (
            200,
            "",
            "text/plain",
        )
        assert world.is_linked("telegram", "77")
        answers = len(fake.messages)
        assert await phone.channel.receive({header: "s3cret"}, body, desk) == (
            200,
            "",
            "text/plain",
        )
        assert len(fake.messages) == answers  # the same event once more
    method, fields = next(call for call in fake.calls if call[0] == "setWebhook")
    assert fields["url"] == "https://sayso.example/channels/telegram/webhook"
    assert method == "setWebhook"


def refusal(status: int, words: str) -> tuple[int, dict[str, Any]]:
    return status, {
        "ok": False,
        "error_code": status,
        "description": words,
        "parameters": {"retry_after": 3} if status == 429 else {},
    }


@pytest.mark.filterwarnings("ignore::telegram.warnings.PTBDeprecationWarning")
@pytest.mark.parametrize("way", ["send", "update"])
@pytest.mark.parametrize(
    ("answer", "sending", "updating"),
    [
        (refusal(429, "Too Many Requests"), TryLater, TryLater),
        (refusal(403, "Forbidden: bot was blocked by the user"), Undeliverable, None),
        (refusal(400, "Bad Request: chat not found"), Undeliverable, BadRequest),
        (refusal(400, "Bad Request: message is not modified"), BadRequest, None),
        (refusal(400, "Bad Request: message is too long"), BadRequest, BadRequest),
    ],
)
async def test_refusals_of_the_platform_are_understood(
    phone: TelegramPhone, way: str, answer: Any, sending: Any, updating: Any
) -> None:
    phone.fake.refuse = lambda method, _: None if method == "getMe" else answer
    row = new_delivery("telegram", Target("77"), "", "", "", 0)._replace(message="[5]")
    raised = sending if way == "send" else updating
    with nullcontext() if raised is None else pytest.raises(raised) as caught:
        await getattr(phone.channel, way)(row, Card(title="Refund"))
    if raised is TryLater:
        assert caught.value.wait == 3
    with pytest.raises(Undeliverable, match="send the code to the bot"):
        await phone.channel.send_code("77", "code")
    await phone.channel.close()


@pytest.mark.filterwarnings("ignore::telegram.warnings.PTBDeprecationWarning")
async def test_platform_that_limits_is_obeyed(world: KitWorld, phone: TelegramPhone) -> None:
    refusals = [
        (
            429,
            {
                "ok": False,
                "error_code": 429,
                "description": "Too Many Requests",
                "parameters": {"retry_after": 1},
            },
        )
    ]

    def refuse(method: str, fields: dict[str, Any]) -> Any:
        asked = method == "sendMessage" and "asks" in fields["text"]
        return refusals.pop() if asked and refusals else None

    phone.fake.refuse = refuse
    world.people("ana")
    async with world.running(phone.channel):
        await TestTelegram().started(world, phone, ("ana", 77))
        await world.ask()
        await TestTelegram().one(phone, 77)
    assert not refusals
    assert ("telegram", "failed") in world.counts.outcomes


async def test_text_of_agent_makes_no_markup(world: KitWorld, phone: TelegramPhone) -> None:
    world.people("ana")
    async with world.running(phone.channel):
        await TestTelegram().started(world, phone, ("ana", 77))
        await world.ask(order="<b>x</b> [y](tg://user?id=1)\u202e")
        message = await TestTelegram().one(phone, 77)
    sent = [fields for method, fields in phone.fake.calls if method == "sendMessage"]
    assert all("parse_mode" not in fields for fields in sent)
    assert "⟨U+202E⟩" in message["text"]
