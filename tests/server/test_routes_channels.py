"""Channels over HTTP: linking, what platforms post, and the page for the code of a mail."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from starlette.testclient import TestClient

from sayso.channels.kit.cards import Card
from sayso.channels.kit.desk import Desk
from sayso.inbox import change_person, create_token
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
