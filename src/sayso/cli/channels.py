"""``sayso channels``: link an account, and test a bot; and the channels that the options name."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import unquote, urlsplit

import typer

from sayso.cli import common
from sayso.cli.common import Usage
from sayso.inbox import Inbox, add_person
from sayso.inbox.accounts import CODE_SECONDS, linking_words, new_code
from sayso.inbox.notices import Notices, set_notices
from sayso.keys import vapid_key
from sayso.stores.address import address_of
from sayso.types import Reviewer

if TYPE_CHECKING:
    from sayso.channels.kit.planner import Target
    from sayso.channels.kit.service import ChatChannel
    from sayso.channels.mail import Tls
    from sayso.stores.base import Store

channels = typer.Typer(
    help="Link your accounts, and test the bots that ask people.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

#: What to do if a channel is not configured.
_MISSING = {
    "telegram": "pass --telegram-token-file, or set $SAYSO_TELEGRAM_TOKEN",
    "slack": "pass --slack-token-file, or set $SAYSO_SLACK_TOKEN",
    "mail": "pass --mail-server",
    "push": 'run `pip install "sayso[push]"`, and for a store without a file, set '
    "$SAYSO_VAPID_KEY_FILE",
}

TelegramToken = Annotated[
    Path | None,
    typer.Option(
        "--telegram-token-file",
        metavar="FILE",
        help="Ask people in Telegram with the bot of this token; or $SAYSO_TELEGRAM_TOKEN.",
    ),
]


SlackToken = Annotated[
    Path | None,
    typer.Option(
        "--slack-token-file",
        metavar="FILE",
        help="Ask people in Slack with the bot of this token; or $SAYSO_SLACK_TOKEN.",
    ),
]
MailServer = Annotated[
    str,
    typer.Option(
        "--mail-server",
        metavar="URL",
        help="Send mail through smtps://USER@HOST, from $SAYSO_MAIL_FROM.",
    ),
]


PrivatePush = Annotated[
    bool,
    typer.Option("--push-private", help="Allow push services at private network addresses."),
]


def push_channel(store: Store, page_url: str, *, private: bool) -> Sequence[ChatChannel]:
    """Return the channel to browsers; none without its extra, or a place for its key."""
    try:
        from sayso.channels.push import PushChannel
    except ImportError:
        if private:
            raise Usage('--push-private needs `pip install "sayso[push]"`') from None
        return ()
    key = vapid_key(address_of(store.url).path)
    if key is None:
        return ()
    contact = os.environ.get("SAYSO_PUSH_CONTACT", "")
    if not contact and page_url.startswith("https://"):
        contact = page_url
    return (PushChannel(store, key, contact=contact, allow_private=private),)


def configured_channels(
    telegram_token_file: Path | None,
    slack_token_file: Path | None,
    mail_server: str,
    page_url: str,
) -> Sequence[ChatChannel]:
    """Return the channels that options and the environment name."""
    made: list[ChatChannel] = []
    token = secret_of(telegram_token_file, "SAYSO_TELEGRAM_TOKEN")
    if token:
        try:
            from sayso.channels.telegram import TelegramChannel
        except ImportError as error:
            raise Usage(str(error)) from None
        api = os.environ.get("SAYSO_TELEGRAM_API", "https://api.telegram.org")
        secret = os.environ.get("SAYSO_TELEGRAM_SECRET", "")
        if secret and not page_url.startswith("https://"):
            raise Usage("$SAYSO_TELEGRAM_SECRET asks for a webhook: pass --page-url https://…")
        made.append(TelegramChannel(token, secret=secret, page=page_url, api=api))
    slack = secret_of(slack_token_file, "SAYSO_SLACK_TOKEN")
    if slack:
        try:
            from sayso.channels.slack import SlackChannel
        except ImportError as error:
            raise Usage(str(error)) from None
        app_token = os.environ.get("SAYSO_SLACK_APP_TOKEN", "")
        signing_secret = os.environ.get("SAYSO_SLACK_SIGNING_SECRET", "")
        try:
            made.append(SlackChannel(slack, app_token=app_token, signing_secret=signing_secret))
        except ValueError:
            raise Usage(
                "Slack also needs $SAYSO_SLACK_APP_TOKEN for its socket, or "
                "$SAYSO_SLACK_SIGNING_SECRET for /channels/slack/webhook"
            ) from None
    if mail_server:
        made.append(_mail(mail_server, page_url))
    return made


def _mail(address: str, page_url: str) -> ChatChannel:
    """Return the channel of an SMTP server: ``smtps://user@host:port`` or ``smtp://…``."""
    try:
        from sayso.channels.mail import MailChannel
    except ImportError as error:
        raise Usage(str(error)) from None
    parts = urlsplit(address)
    sender = os.environ.get("SAYSO_MAIL_FROM", "")
    if parts.scheme not in ("smtp", "smtps") or not parts.hostname or parts.password or not sender:
        raise Usage(
            "--mail-server is smtps://USER@HOST or smtp://USER@HOST, without the password, which "
            "is in $SAYSO_MAIL_PASSWORD; $SAYSO_MAIL_FROM is the sender's address"
        )
    loopback = parts.hostname in ("localhost", "127.0.0.1", "::1")
    tls: Tls = "tls" if parts.scheme == "smtps" else "none" if loopback else "starttls"
    return MailChannel(
        parts.hostname,
        parts.port or (465 if tls == "tls" else 587),
        sender,
        page=page_url,
        user=unquote(parts.username or ""),
        password=os.environ.get("SAYSO_MAIL_PASSWORD", ""),
        tls=tls,
    )


def secret_of(path: Path | None, variable: str) -> str:
    """Return a secret from its file, or else from the environment."""
    if path is None:
        return os.environ.get(variable, "").strip()
    try:
        return path.read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        raise Usage(f"{path}: {error}") from None


def _person(box: Inbox, token_file: Path | None) -> Reviewer:
    """Return the person who calls; add the operating system's user, who could make any token."""
    by = common.caller(box, token_file).reviewer
    if token_file is None and box.store.person(by.name) is None:
        add_person(box.store, by.name, by=by, role="admin")
    return by


@channels.command("link")
def link(
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="Such as telegram.")],
    json: common.AsJson = False,
    token_file: common.TokenFile = None,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Get a code that links one of your accounts, and send it to the bot.

    The account then decides as you: the person of the token, or of the operating system's user.
    """
    if channel in ("mail", "push"):
        raise Usage(f"{channel} has no bot: use the page of notifications in the web app")
    with common.opened(store, create=True) as box:
        by = _person(box, token_file)
        code = new_code(box.store, by, channel)
    from sayso.cli import output  # loads rich, which `sayso serve` does not need

    body = {"channel": channel, "code": code, "seconds": CODE_SECONDS}
    line = linking_words(channel, code)
    words = f"Within {CODE_SECONDS // 60} minutes, send this to the bot:  {line}"
    output.emit(body, words, json=json)


@channels.command("quiet")
def quiet(
    quiet_from: Annotated[
        str, typer.Option("--from", metavar="HH:MM", help="When your quiet hours begin.")
    ] = "",
    quiet_until: Annotated[
        str, typer.Option("--until", metavar="HH:MM", help="When they end.")
    ] = "",
    zone: Annotated[
        str, typer.Option("--zone", metavar="NAME", help="Your time zone, such as Europe/Berlin.")
    ] = "UTC",
    only_away: Annotated[
        bool, typer.Option("--only-away", help="Send messages only while you are not at the page.")
    ] = False,
    reset: Annotated[bool, typer.Option("--off", help="Send all messages at once again.")] = False,
    json: common.AsJson = False,
    token_file: common.TokenFile = None,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Set when messages reach you; without options, show it.

    Messages of your quiet hours become one digest when these end. Requests of critical risk that
    have escalated are announced at once.
    """
    changes = bool(quiet_from or quiet_until or only_away)
    if reset and changes:
        raise Usage("use --off alone, or say what to set")
    with common.opened(store, create=True) as box:
        by = common.caller(box, token_file).reviewer
        person = box.store.person(by.name)
        notices = Notices() if person is None else Notices.of(person)
        if reset or changes:
            notices = Notices(
                quiet_from=quiet_from, quiet_until=quiet_until, zone=zone, only_away=only_away
            )
            set_notices(box.store, _person(box, token_file), notices)
    from sayso.cli import output

    output.emit(asdict(notices), notices.sentence(), json=json)


@channels.command("test")
def check_bot(
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="Such as telegram.")],
    telegram_token_file: TelegramToken = None,
    slack_token_file: SlackToken = None,
    mail_server: MailServer = "",
    page_url: Annotated[
        str, typer.Option("--page-url", metavar="URL", help="The public URL of the web app.")
    ] = "",
    send: Annotated[
        bool, typer.Option("--send", help="Also send a test message to your accounts.")
    ] = False,
    json: common.AsJson = False,
    token_file: common.TokenFile = None,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Ask the platform whether it knows the bot, and show who the bot is.

    For `push`, which has no bot, this shows the key by which browsers know the server of --store.
    With `--send`, the message goes to the accounts of the person of the token, or of the operating
    system's user.
    """
    from sayso.channels.kit.planner import addresses

    named = configured_channels(telegram_token_file, slack_token_file, mail_server, page_url)
    made = {each.name: each for each in named}
    with ExitStack() as stack:
        targets: Sequence[Target] = ()
        if send or channel == "push":
            box = stack.enter_context(common.opened(store, create=True))
            made |= {each.name: each for each in push_channel(box.store, page_url, private=False)}
        if channel not in made:
            advice = _MISSING.get(channel, f"the channels are {', '.join(_MISSING)}")
            raise Usage(f"{channel:.80} is not configured: {advice}")
        if send:
            person = common.caller(box, token_file).reviewer.name
            targets = addresses(box.store, made[channel], person)
            if not targets:
                raise Usage(f"{person} has no account in {channel}: link one first")
        bot = asyncio.run(_check(made[channel], targets))
    from sayso.cli import output

    words = f"{channel}: the bot is {bot}."
    if send:
        words += f" A test message was sent to {len(targets)} of your accounts."
    output.emit({"channel": channel, "bot": bot, "sent": len(targets)}, words, json=json)


async def _check(channel: ChatChannel, targets: Sequence[Target]) -> str:
    from sayso.channels.kit.health import send_test

    try:
        bot = await channel.check()
        _, failure = await send_test(channel, targets)
    except Exception as error:
        raise Usage(f"{channel.name}: {type(error).__name__}: {error}") from None
    finally:
        await channel.close()
    if failure:
        raise Usage(f"{channel.name}: the bot is {bot}, but a test message was not sent: {failure}")
    return bot
