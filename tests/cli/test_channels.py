"""``sayso channels``: when messages reach you, and whether the bots work."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_world import ME, World
from fake_mail import running_mailbox
from fake_telegram import TOKEN, FakeTelegram

from sayso.cli.channels import configured_channels
from sayso.cli.common import Usage
from sayso.inbox import add_person, change_person
from sayso.inbox.accounts import Account, link_account
from sayso.stores import open_store


@pytest.fixture
def telegram(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeTelegram]:
    fake = FakeTelegram()
    monkeypatch.setenv("SAYSO_TELEGRAM_API", fake.url)
    yield fake
    fake.close()


def test_quiet_hours_are_set_and_shown(world: World) -> None:
    hours = ("--from", "22:00", "--until", "07:00", "--zone", "Europe/Berlin")
    assert "at once." in world.cli("channels", "quiet")
    said = " ".join(world.cli("channels", "quiet", *hours, "--only-away").split())
    assert "not from 22:00 to 07:00 (Europe/Berlin), and only while you are away" in said
    assert world.json("channels", "quiet")["quiet_from"] == "22:00"
    world.cli("channels", "quiet", "--from", "22:00", code=1)
    world.cli("channels", "quiet", "--off", "--only-away", code=2)
    assert world.json("channels", "quiet", "--off")["only_away"] is False
    assert "The audit log is intact" in world.cli("audit", "verify")


@pytest.mark.parametrize("where", ["file", "environment"])
def test_bot_is_named(
    world: World, telegram: FakeTelegram, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    path = world.folder / "token"
    path.write_text(TOKEN)
    option: tuple[str, ...] = ("--telegram-token-file", str(path))
    if where == "environment":
        monkeypatch.setenv("SAYSO_TELEGRAM_TOKEN", TOKEN)
        option = ()
    assert "the bot is @sayso_bot" in world.cli("channels", "test", "telegram", *option)
    shown = world.json("channels", "test", "telegram", *option)
    assert shown == {"channel": "telegram", "bot": "@sayso_bot", "sent": 0}
    assert not telegram.messages


def test_wrong_token_is_refused_and_not_shown(
    world: World, telegram: FakeTelegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAYSO_TELEGRAM_TOKEN", "77:secret-token")
    shown = world.cli("channels", "test", "telegram", code=2)
    assert "Telegram does not know this token" in " ".join(shown.split())
    assert "secret-token" not in shown


@pytest.mark.parametrize(
    ("channel", "advice"),
    [
        ("telegram", "--telegram-token-file"),
        ("slack", "--slack-token-file"),
        ("mail", "--mail-server"),
        ("pigeon", "the channels are telegram, slack, mail, push"),
    ],
)
def test_missing_bot_is_explained(world: World, channel: str, advice: str) -> None:
    assert advice in " ".join(world.cli("channels", "test", channel, code=2).split())


def test_message_reaches_accounts_of_caller(
    world: World, telegram: FakeTelegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAYSO_TELEGRAM_TOKEN", TOKEN)
    test = ("channels", "test", "telegram", "--send")
    assert f"{ME} has no account in telegram" in " ".join(world.cli(*test, code=2).split())
    code = world.json("channels", "link", "telegram")["code"]
    store = open_store(world.url)
    link_account(store, Account("telegram", "", "77"), code)
    store.close()
    assert "sent to 1 of your accounts" in world.cli(*test)
    (message,) = telegram.shown(77)
    assert "Test message" in message["text"]
    telegram.refuse = lambda method, _: (
        (403, {"ok": False, "error_code": 403, "description": "Forbidden: bot was blocked"})
        if method == "sendMessage"
        else None
    )
    failure = " ".join(world.cli(*test, code=2).split())
    assert "the bot is @sayso_bot, but a test message was not sent" in failure


def test_mail_server_is_asked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAYSO_MAIL_FROM", "sayso@example.com")
    with running_mailbox("") as (box, _):
        server = f"smtp://127.0.0.1:{box.port}"
        test = ("channels", "test", "mail", "--mail-server", server)
        assert "sayso@example.com at 127.0.0.1" in world.cli(*test)
        store = open_store(world.url)
        add_person(store, ME, by="test", role="admin")
        change_person(store, ME, by="test", mail="me@example.com")
        store.close()
        assert "sent to 1 of your accounts" in world.cli(*test, "--send")
    (mail,) = box.mails
    assert mail["To"] == "me@example.com"


def test_key_of_browsers_is_shown(world: World) -> None:
    assert "the public key " in world.cli("channels", "test", "push")


@pytest.fixture
def no_channels(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in [name for name in os.environ if name.startswith("SAYSO_")]:
        monkeypatch.delenv(name)
    return monkeypatch


async def test_channels_come_from_files_and_variables(
    no_channels: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "telegram").write_text("123:abc\n")
    for name, value in {
        "SAYSO_SLACK_TOKEN": "xoxb-1",
        "SAYSO_SLACK_SIGNING_SECRET": "s",
        "SAYSO_MAIL_FROM": "sayso@example.com",
    }.items():
        no_channels.setenv(name, value)
    made = configured_channels(tmp_path / "telegram", None, "smtps://ana@mail.example", "")
    assert [channel.name for channel in made] == ["telegram", "slack", "mail"]
    for channel in made:
        await channel.close()


@pytest.mark.parametrize(
    ("variables", "telegram", "mail", "message"),
    [
        ({"SAYSO_SLACK_TOKEN": "xoxb-1"}, None, "", "SAYSO_SLACK_APP_TOKEN"),
        ({"SAYSO_TELEGRAM_TOKEN": "1:a", "SAYSO_TELEGRAM_SECRET": "s"}, None, "", "--page-url"),
        ({}, "missing.txt", "", "missing.txt"),
        ({}, None, "smtp://mail.example", "SAYSO_MAIL_FROM is the sender"),
        ({"SAYSO_MAIL_FROM": "a@b.example"}, None, "http://mail.example", "smtps://USER@HOST"),
        ({"SAYSO_MAIL_FROM": "a@b.example"}, None, "smtp://u:p@mail.example", "without the pass"),
    ],
)
def test_unusable_channels_are_explained(
    no_channels: pytest.MonkeyPatch,
    variables: dict[str, str],
    telegram: str | None,
    mail: str,
    message: str,
) -> None:
    for name, value in variables.items():
        no_channels.setenv(name, value)
    with pytest.raises(Usage, match=message):
        configured_channels(None if telegram is None else Path(telegram), None, mail, "")
