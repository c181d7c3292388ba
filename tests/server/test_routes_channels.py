"""Channels over HTTP: linking, what platforms post, and the page for the code of a mail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fake_push import FakePushService
from fake_telegram import TOKEN, FakeTelegram
from starlette.testclient import TestClient
from waiting import until

import sayso.audit
from sayso.channels.kit.cards import Card
from sayso.channels.kit.desk import Desk
from sayso.channels.push import PushChannel
from sayso.channels.telegram import TelegramChannel
from sayso.inbox import change_person, create_token
from sayso.keys import vapid_key
from sayso.rows import Delivery
from sayso.server import create_app
from sayso.stores import open_store


class SilentMail:
    """A mail channel that keeps the codes that it sends."""

    name = "mail"
    per_second = 100.0
    spacing = 0.0
    updates = False
    takes_mail = True

    def __init__(self) -> None:
        self.codes: list[tuple[str, str]] = []

    async def send(self, delivery: Delivery, card: Card) -> str:
        return "[]"

    async def update(self, delivery: Delivery, card: Card) -> None: ...

    async def send_code(self, target: str, code: str) -> None:
        self.codes.append((target, code))

    async def listen(self, desk: Desk) -> None: ...

    async def check(self) -> str:
        return ""

    async def close(self) -> None: ...


def test_address_is_linked_by_its_code(tmp_path: Path) -> None:
    mail = SilentMail()
    with closing(open_store(f"sqlite:///{tmp_path / 's.db'}")) as store:
        token, _ = create_token(store, "ana", by="admin")
        app = create_app(store=store, channels=[mail], workers=0)
        with TestClient(app, headers={"authorization": f"Bearer {token}"}) as client:
            assert client.post("/api/me/channels/mail/link").status_code == 404  # no address
            client.get("/healthz")
            assert client.post("/api/me/channels/slack/link").status_code == 404
            change_person(store, "ana", by="admin", mail="ana@example.com")
            answer = client.post("/api/me/channels/mail/link")
            assert answer.json()["code"] is None
            ((target, code),) = mail.codes
            assert target == "ana@example.com"
            wrong = client.post("/api/me/channels/mail/confirm", json={"code": code + "x"})
            assert wrong.status_code == 401
            right = client.post("/api/me/channels/mail/confirm", json={"code": code})
            assert right.status_code == 204
            (channel,) = client.get("/api/me/channels").json()["items"]
            (account,) = channel["accounts"]
            assert account["account"] == "ana@example.com"
            path = f"/api/me/channels/mail/accounts/{account['id']}"
            assert [client.delete(path).status_code for _ in range(2)] == [204, 404]


@pytest.mark.parametrize(("name", "verb"), [("telegram", "/start"), ("slack", "link")])
def test_code_comes_in_words_for_its_bot(tmp_path: Path, name: str, verb: str) -> None:
    bot = SilentMail()
    bot.name = name
    bot.takes_mail = False
    with closing(open_store(f"sqlite:///{tmp_path / 's.db'}")) as store:
        token, _ = create_token(store, "ana", by="admin")
        app = create_app(store=store, channels=[bot], workers=0)
        with TestClient(app, headers={"authorization": f"Bearer {token}"}) as client:
            link = client.post(f"/api/me/channels/{name}/link").json()
    assert link["send"] == f"{verb} {link['code']}"
    assert link["open"] is None


@pytest.mark.parametrize("works", [True, False])
def test_link_opens_bot_of_telegram_if_it_answers(tmp_path: Path, works: bool) -> None:
    telegram = FakeTelegram()
    bot = TelegramChannel(TOKEN if works else "77:wrong-token", api=telegram.url)
    with closing(open_store(f"sqlite:///{tmp_path / 's.db'}")) as store:
        token, _ = create_token(store, "ana", by="admin")
        app = create_app(store=store, channels=[bot], workers=0)
        with TestClient(app, headers={"authorization": f"Bearer {token}"}) as client:
            link = client.post("/api/me/channels/telegram/link").json()
    telegram.close()
    url = f"https://t.me/sayso_bot?start={link['code']}"
    assert link["open"] == (url if works else None)


def test_code_page_shows_and_decides_nothing_by_get(tmp_path: Path) -> None:
    with closing(open_store(f"sqlite:///{tmp_path / 's.db'}")) as store:
        app = create_app(store=store, channels=[SilentMail()], workers=0)
        with TestClient(app) as client:
            page = client.get("/channels/mail/abc?code=x&verb=approve")
            assert page.status_code == 200
            assert "Enter the code" in page.text
            assert page.headers["cache-control"] == "no-store"
            wrong = client.post("/channels/mail/abc", data={"code": "<b>", "verb": "approve"})
            assert "nothing was decided" in wrong.text
            assert client.post("/channels/mail/webhook", content=b"x").status_code in (404, 200)
            assert client.post("/channels/telegram/webhook").status_code == 404


@pytest.fixture
def service() -> Iterator[FakePushService]:
    fake = FakePushService()
    yield fake
    fake.close()


class PushServer:
    """A server with push messages and its people."""

    def __init__(self, tmp_path: Path, *channels: Any, **options: Any) -> None:
        path = tmp_path / "s.db"
        self.store = open_store(f"sqlite:///{path}")
        key = vapid_key(path)
        assert key is not None
        push = PushChannel(self.store, key, allow_private=True)
        self.app = create_app(store=self.store, channels=[push, *channels], workers=0, **options)

    def headers(self, name: str, role: str = "reviewer") -> dict[str, str]:
        token, _ = create_token(self.store, name, by="admin", role=role)
        return {"authorization": f"Bearer {token}"}


def test_browser_subscribes_gets_test_message_and_is_removed(
    tmp_path: Path, service: FakePushService
) -> None:
    server = PushServer(tmp_path)
    with closing(server.store), TestClient(server.app, headers=server.headers("ana")) as client:
        path = "/api/me/channels/push"
        (channel,) = client.get("/api/me/channels").json()["items"]
        assert (channel["link"], channel["accounts"]) == ("push", [])
        assert client.post(f"{path}/test").status_code == 404
        assert client.post(f"{path}/link").status_code == 404
        browser = service.browser()
        body = {"endpoint": browser.endpoint, "keys": browser.keys, "device": "My phone"}
        wrong = client.post(f"{path}/accounts", json=body | {"endpoint": "https://[::1]:x/"})
        assert (wrong.status_code, wrong.json()["field"]) == (422, "endpoint")
        assert client.post("/api/me/channels/mail/accounts", json=body).status_code == 404
        answer = client.post(f"{path}/accounts", json=body)
        assert answer.status_code == 201
        account = answer.json()
        assert account["account"] == "My phone"
        assert client.post(f"{path}/accounts", json=body).json() == account
        (channel,) = client.get("/api/me/channels").json()["items"]
        assert channel["accounts"] == [account]
        assert browser.endpoint not in str(channel)
        assert client.post(f"{path}/test").json() == {"sent": 1, "error": None}
        assert browser.notifications["test"]["title"] == "Test message"
        service.refuse = lambda _: (500, {})
        failed = client.post(f"{path}/test").json()
        assert failed["sent"] == 0
        assert "500" in failed["error"]
        root = server.headers("root", "admin")
        details = client.get("/api/people/ana", headers=root).json()
        (row,) = [row for row in details["credentials"] if row["kind"] == "push"]
        assert (row["id"], row["device"]) == (account["id"], "My phone")
        assert browser.endpoint not in str(details)
        removed = client.delete(f"{path}/accounts/{account['id']}")
        assert removed.status_code == 204
        assert client.post(f"{path}/test").status_code == 404
        assert client.post("/channels/push/webhook", content=b"{}").status_code == 404


def test_coding_agent_is_announced_by_title_only(tmp_path: Path, service: FakePushService) -> None:
    server = PushServer(tmp_path)
    with closing(server.store), TestClient(server.app, headers=server.headers("ana")) as client:
        browser = service.browser()
        body = {"endpoint": browser.endpoint, "keys": browser.keys, "device": "My phone"}
        assert client.post("/api/me/channels/push/accounts", json=body).status_code == 201
        asked = {
            "tool": "Bash",
            "args": {"command": "npm install left-pad --token abc", "cwd": "/srv/secret"},
            "title": "Run npm install left-pad",
            "run": "session-1",
            "caller": "use:toolu_1",
        }
        bot = server.headers("claude", "agent")
        headers = bot | {"idempotency-key": "k1"}
        request = client.post("/api/requests", json=asked, headers=headers).json()
        notice = until(lambda: browser.notifications.get(request["id"]))
    assert notice["title"] == "Run npm install left-pad"
    assert notice["body"] == ""
    assert "secret" not in str(notice)


def test_admin_sees_health_without_secrets(tmp_path: Path, service: FakePushService) -> None:
    telegram = FakeTelegram()
    bad = TelegramChannel("77:wrong-token", api=telegram.url)
    telegram.refuse = lambda *_: (401, {"ok": False, "error_code": 401, "description": "No"})
    server = PushServer(tmp_path, bad)
    with closing(server.store), TestClient(server.app, headers=server.headers("ana")) as client:
        root = server.headers("root", "admin")
        assert client.get("/api/channels").status_code == 403
        browser = service.browser()
        body = {"endpoint": browser.endpoint, "keys": browser.keys, "device": "My phone"}
        client.post("/api/me/channels/push/accounts", json=body)

        def health(name: str) -> Any:
            answer = client.get("/api/channels", headers=root)
            assert answer.status_code == 200, answer.text
            assert "wrong-token" not in answer.text
            return {each["name"]: each for each in answer.json()["items"]}[name]

        assert (health("push")["state"], health("push")["sent_at"]) == ("ok", None)
        down = health("telegram")
        assert (down["state"], down["bot"]) == ("down", None)
        assert "does not know this token" in down["error"]
        bot = server.headers("bot", "agent")
        service.refuse = lambda _: (503, {})
        ask = {"tool": "refund", "args": {}}
        client.post("/api/requests", json=ask, headers=bot | {"idempotency-key": "1"})
        failing = until(lambda: health("push")["error"] and health("push"))
        assert failing["state"] == "failing"
        assert failing["waiting"] == 1
        service.refuse = lambda _: None
        until(lambda: health("push")["sent_at"])
        assert (health("push")["state"], health("push")["waiting"]) == ("ok", 0)
    telegram.close()


def test_person_sets_their_quiet_hours(tmp_path: Path) -> None:
    hours = {"quiet_from": "22:00", "quiet_until": "07:00", "zone": "Europe/Berlin"}
    with closing(open_store(f"sqlite:///{tmp_path / 's.db'}")) as store:
        token, _ = create_token(store, "ana", by="admin")
        app = create_app(store=store, workers=0)
        with TestClient(app, headers={"authorization": f"Bearer {token}"}) as client:
            assert client.get("/api/me/notices").json()["quiet_from"] == ""
            answer = client.put("/api/me/notices", json={**hours, "only_away": True})
            assert answer.status_code == 200
            assert client.get("/api/me/notices").json() == answer.json()
            assert answer.json().items() >= {**hours, "only_away": True}.items()
            assert client.put("/api/me/notices", json={"zone": "Mars"}).status_code == 422
            assert client.put("/api/me/notices", json={"quiet": 1}).status_code == 422
            assert client.put("/api/me/notices", json={}).json()["quiet_until_now"] is None
            headers = {"authorization": "Bearer x"}
            assert client.put("/api/me/notices", json={}, headers=headers).status_code == 401
            assert sayso.audit.verify(store).ok
