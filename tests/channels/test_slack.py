"""Slack: the story over HTTP and in Socket Mode, with the real Bolt and a fake of Slack."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator
from itertools import count
from typing import Any
from urllib.parse import parse_qs

import pytest
from channel_story import ChannelStory
from fake_slack import SECRET, TEAM, FakeSlack, FakeSocket
from kit_world import KitWorld
from waiting import until_async

from sayso.channels.kit.channel import Received
from sayso.channels.slack import SlackChannel
from sayso.types import Reviewer

_events = count(1)


class SlackPhone:
    shared = "#ops"

    def __init__(self, fake: FakeSlack, **options: str) -> None:
        self.fake = fake
        options = options or {"signing_secret": SECRET}
        self.channel = SlackChannel("xoxb-x", api=fake.url, spacing=0, **options)  # type: ignore[arg-type]
        self.desk: Any = None
        self._last: Any = None

    def names(self, user: int) -> tuple[str, str]:
        return f"U{user}", TEAM

    def shown(self, user: int) -> list[dict[str, Any]]:
        return self.shown_in(f"DU{user}")

    def shown_in(self, place: str) -> list[dict[str, Any]]:
        return [m for (where, _), m in sorted(self.fake.messages.items()) if where == place]

    async def post(self, headers: dict[str, str], body: bytes) -> Any:
        return await self.channel.receive(headers, body, self.desk)

    async def link(self, user: int, code: str) -> None:
        reply = await self.post(*self.fake.message(f"U{user}", f"link {code}", f"E{next(_events)}"))
        assert reply.status == 200

    def payload(self, user: int, label: str, **changes: Any) -> dict[str, Any]:
        (channel, ts), message = next(
            pair
            for pair in sorted(self.fake.messages.items(), reverse=True)
            if pair[0][0] == f"DU{user}" and label in pair[1]["buttons"]
        )
        button = dict(message["buttons"][label])
        button["value"] = changes.get("data", button["value"])
        if "place" in changes:
            channel, ts = f"DU{changes['place']}", "1.9"
        return {
            "type": "block_actions",
            "team": {"id": changes.get("team", TEAM)},
            "user": {"id": f"U{changes.get('by', user)}", "team_id": changes.get("team", TEAM)},
            "api_app_id": "A1",
            "trigger_id": f"t{next(_events)}",
            "channel": {"id": channel},
            "message": {"ts": ts},
            "actions": [button | {"type": "button", "block_id": "b"}],
        }

    async def press(self, user: int, label: str, **changes: Any) -> str:
        told, views = len(self.fake.told), len(self.fake.views)
        self._last = self.payload(user, label, **changes)
        assert (await self.post(*self.fake.interaction(self._last))).status == 200
        await until_async(lambda: len(self.fake.told) > told or len(self.fake.views) > views)
        return self.fake.told[-1] if len(self.fake.told) > told else ""

    async def submit(self, user: int, *, team: str = TEAM, **texts: str) -> Any:
        """Send the last form."""
        view = self.fake.views[-1]
        values = {
            block["block_id"]: {"value": {"value": block["element"].get("initial_value", "")}}
            for block in view["blocks"]
        }
        values |= {name: {"value": {"value": text}} for name, text in texts.items()}
        return await self.post(
            *self.fake.interaction(
                {
                    "type": "view_submission",
                    "team": {"id": team},
                    "user": {"id": f"U{user}", "team_id": team},
                    "api_app_id": "A1",
                    "trigger_id": f"t{next(_events)}",
                    "view": view | {"id": "V1", "state": {"values": values}},
                }
            )
        )

    async def reason(self, user: int, text: str) -> str:
        await self.press(user, "Reject with a reason…")
        assert (await self.submit(user, text=text)).status == 200
        return ""

    async def repeat(self) -> None:
        told = len(self.fake.told)
        assert (await self.post(*self.fake.interaction(self._last))).status == 200
        assert len(self.fake.told) == told


@pytest.fixture
def fake() -> Iterator[FakeSlack]:
    made = FakeSlack()
    yield made
    made.close()


class _Phone(SlackPhone):
    """Knows the desk of the world that runs."""

    def __init__(self, fake: FakeSlack, world: KitWorld) -> None:
        super().__init__(fake)
        self._world = world

    async def post(self, headers: dict[str, str], body: bytes) -> Any:
        self.desk = self._world.desk
        return await super().post(headers, body)


@pytest.fixture
def phone(fake: FakeSlack, world: KitWorld) -> _Phone:
    return _Phone(fake, world)


class TestSlack(ChannelStory):
    pass


class _SocketPhone(SlackPhone):
    """Takes in through the socket what Slack would post."""

    def __init__(self, fake: FakeSlack, socket: FakeSocket) -> None:
        super().__init__(fake, app_token="xapp-x")
        self.socket = socket

    async def post(self, headers: dict[str, str], body: bytes) -> Any:
        if headers["content-type"] == "application/json":
            kind = "events_api"
            payload = json.loads(body)
        else:
            kind = "interactive"
            payload = json.loads(parse_qs(body.decode())["payload"][0])
        return Received(200, json.dumps(await self.socket.send(kind, payload)))


@pytest.fixture
async def socket_phone(fake: FakeSlack) -> AsyncIterator[_SocketPhone]:
    socket = FakeSocket()
    async with socket.running() as url:
        fake.socket_url = url
        yield _SocketPhone(fake, socket)


class TestSlackSocket(ChannelStory):
    @pytest.fixture
    def phone(self, socket_phone: _SocketPhone) -> _SocketPhone:
        return socket_phone


async def test_closed_socket_is_opened_again(world: KitWorld, socket_phone: _SocketPhone) -> None:
    phone = socket_phone
    world.people("ana")
    async with world.running(phone.channel):
        await TestSlack().started(world, phone, ("ana", 77))
        request_id = await world.ask()
        await TestSlack().one(phone, 77)
        await phone.socket.refresh()
        await phone.reason(77, "too much")
        await TestSlack().outcome(phone, 77, "Rejected by ana")
    assert phone.socket.connections == 2
    assert await world.status(request_id) == "rejected"


async def test_form_edits_arguments(world: KitWorld, phone: _Phone) -> None:
    world.people("ana")
    async with world.running(phone.channel):
        await TestSlack().started(world, phone, ("ana", 77))
        request_id = await world.ask()
        await TestSlack().one(phone, 77)
        await phone.press(77, "Edit…")
        wrong = await phone.submit(77, euros="many")
        assert json.loads(wrong.body)["response_action"] == "errors"
        assert await world.status(request_id) == "pending"
        await phone.submit(77, euros="25")
        await TestSlack().outcome(phone, 77, "Approved with changes by ana")
    assert (await world.inbox.get(request_id)).args == {"order": "A-17", "euros": 25}


async def test_form_that_comes_too_late_says_so(world: KitWorld, phone: _Phone) -> None:
    world.people("ana")
    async with world.running(phone.channel):
        await TestSlack().started(world, phone, ("ana", 77))
        request_id = await world.ask()
        await TestSlack().one(phone, 77)
        await phone.press(77, "Reject with a reason…")
        foreign = await phone.submit(77, team="T2", text="no")
        assert (foreign.status, foreign.body) == (200, "")
        assert await world.status(request_id) == "pending"
        request = await world.inbox.get(request_id)
        await world.inbox.decide(request, request.approve(), by=Reviewer("bo", ("finance",)))
        late = json.loads((await phone.submit(77, text="no")).body)
        assert late["response_action"] == "errors"
        assert "Approved by bo" in str(late["errors"])
    assert await world.status(request_id) == "approved"


async def test_forged_and_foreign_posts_decide_nothing(world: KitWorld, phone: _Phone) -> None:
    world.people("ana")
    async with world.running(phone.channel):
        await TestSlack().started(world, phone, ("ana", 77))
        request_id = await world.ask()
        await TestSlack().one(phone, 77)
        headers, body = phone.fake.interaction(phone.payload(77, "Approve"))
        for changes in (
            {"x-slack-signature": "v0=00"},
            {"x-slack-signature": "ä"},
            {"x-slack-request-timestamp": "1"},
            {"x-slack-request-timestamp": "x"},
        ):
            assert (await phone.post(headers | changes, body)).status == 401
        foreign = phone.payload(77, "Approve", team="T2")
        assert (await phone.post(*phone.fake.interaction(foreign))).status == 200
        assert await world.status(request_id) == "pending"


@pytest.mark.parametrize(
    "refusal",
    [
        (429, "application/json", '{"ok": false, "error": "ratelimited"}'),
        (503, "text/html", "<html>"),
        (200, "application/json", "{"),
    ],
    ids=["limited", "away", "broken"],
)
async def test_refused_message_is_sent_again(
    world: KitWorld, phone: _Phone, refusal: tuple[int, str, str]
) -> None:
    world.people("ana")
    async with world.running(phone.channel):
        await TestSlack().started(world, phone, ("ana", 77))
        phone.fake.refusals.append(refusal)
        began = time.monotonic()
        await world.ask()
        await TestSlack().one(phone, 77)
        assert refusal[0] != 429 or time.monotonic() - began >= 1
    assert len(phone.shown(77)) == 1
    assert world.counts.outcomes.count(("slack", "failed")) == 1
