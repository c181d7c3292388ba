"""Telegram: a bot that asks in private chats, with buttons under the message.

It polls (``getUpdates``), which needs no public address, or takes updates at
``/channels/telegram/webhook``, which Telegram signs with a secret. A reason is typed as a reply to
a question of the bot. Text is plain, so nothing in it becomes a link or a mention.
"""

from __future__ import annotations

import contextlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

from sayso.channels.kit.cards import Card
from sayso.channels.kit.channel import Received, TryLater, Undeliverable
from sayso.channels.kit.desk import Desk, Press, button_value
from sayso.errors import SaysoError
from sayso.inbox.accounts import Account
from sayso.rows import Delivery

try:
    from telegram import (
        Bot,
        ForceReply,
        InlineKeyboardButton,
        InlineKeyboardMarkup,
        LinkPreviewOptions,
        Message,
        Update,
    )
    from telegram.error import BadRequest, Forbidden, InvalidToken, RetryAfter
    from telegram.request import HTTPXRequest
except ImportError as error:
    raise ImportError('Telegram needs `pip install "sayso[telegram]"`') from error

_API = "https://api.telegram.org"
_POLL_SECONDS = 30
_MOST_ALERT = 200
_PREVIEW = LinkPreviewOptions(is_disabled=True)
_KINDS = ["message", "callback_query"]
_PROMPTS = {
    "reason": "Reply to this message with your reason.",
    "answer": "Reply to this message with your answer.",
}
_HELP = (
    "This bot asks you for approvals. To link this account, get a code on your page of "
    "notifications or with `sayso channels link telegram`, and send /start CODE here."
)
#: What Telegram says of a message that shows this text already, or that is gone.
_SETTLED = ("not modified", "message to edit not found", "message can't be edited")


class TelegramChannel:
    """A bot, by its token. With ``secret``, updates arrive by webhook at ``page``."""

    name = "telegram"
    per_second = 25.0
    spacing = 1.0
    updates = True
    takes_mail = False

    def __init__(
        self, token: str, *, secret: str = "", page: str = "", api: str = _API, spacing: float = 1.0
    ) -> None:
        request = HTTPXRequest(connection_pool_size=128)
        polling = HTTPXRequest(connection_pool_size=1, read_timeout=_POLL_SECONDS + 10)
        self._bot = Bot(token, base_url=f"{api}/bot", request=request, get_updates_request=polling)
        self._secret = secret
        self._page = page.rstrip("/")
        self._ready = False
        self.spacing = spacing

    async def _started(self) -> Bot:
        if not self._ready:
            try:
                await self._bot.initialize()
            except InvalidToken:  # its message has the token
                raise SaysoError("Telegram does not know this token: get another one") from None
            self._ready = True
        return self._bot

    # -- out

    async def send(self, delivery: Delivery, card: Card) -> str:
        bot = await self._started()
        try:
            message = await bot.send_message(
                int(delivery.target)
                if delivery.target.lstrip("-").isdecimal()
                else delivery.target,
                card.text(),
                reply_markup=_keyboard(delivery, card),
                link_preview_options=_PREVIEW,
                protect_content=True,
            )
        except RetryAfter as error:
            raise TryLater(str(error), _seconds(error)) from None
        except Forbidden as error:
            raise Undeliverable(str(error)) from None
        except BadRequest as error:
            if "not found" in str(error).lower():
                raise Undeliverable(str(error)) from None
            raise
        return json.dumps([message.message_id])

    async def update(self, delivery: Delivery, card: Card) -> None:
        bot = await self._started()
        (message_id,) = json.loads(delivery.message)
        try:
            await bot.edit_message_text(
                card.text(),
                chat_id=delivery.target,
                message_id=message_id,
                reply_markup=_keyboard(delivery, card),
                link_preview_options=_PREVIEW,
            )
        except RetryAfter as error:
            raise TryLater(str(error), _seconds(error)) from None
        except (BadRequest, Forbidden) as error:
            settled = any(words in str(error).lower() for words in _SETTLED)
            if not isinstance(error, Forbidden) and not settled:
                raise

    async def send_code(self, target: str, code: str) -> None:
        raise Undeliverable("send the code to the bot: /start and the code")

    async def check(self) -> str:
        me = await (await self._started()).get_me()
        return f"@{me.username}"

    async def bot_link(self, code: str) -> str:
        return f"https://t.me/{(await self._started()).username}?start={code}"

    async def close(self) -> None:
        await self._bot.shutdown()

    # -- in

    async def listen(self, desk: Desk) -> None:
        bot = await self._started()
        if self._secret:
            url = f"{self._page}/channels/telegram/webhook"
            await bot.set_webhook(url, secret_token=self._secret, allowed_updates=_KINDS)
            return
        await bot.delete_webhook()
        offset = 0
        while True:
            for update in await bot.get_updates(
                offset=offset, timeout=_POLL_SECONDS, allowed_updates=_KINDS
            ):
                await self._handle(update, desk)
                offset = update.update_id + 1

    async def receive(self, headers: Mapping[str, str], body: bytes, desk: Desk) -> Received:
        """Take an update that was posted, if it has the secret."""
        given = headers.get("x-telegram-bot-api-secret-token", "")
        if not self._secret or not hmac.compare_digest(given.encode(), self._secret.encode()):
            return Received(401)
        try:
            update = Update.de_json(json.loads(body), await self._started())
        except (ValueError, TypeError, KeyError, AttributeError):
            return Received(400)
        await self._handle(update, desk)
        return Received(200)

    async def _handle(self, update: Update, desk: Desk) -> None:
        event = str(update.update_id)
        if not await desk.is_new(event):
            return
        if update.callback_query is not None:
            await self._pressed(update.callback_query, desk)
        elif update.message is not None:
            await self._written(update.message, desk)
        await desk.handled(event)

    async def _pressed(self, query: Any, desk: Desk) -> None:
        message = query.message
        press = Press(
            _account(query.from_user.id),
            "" if message is None else str(message.chat.id),
            "" if message is None else json.dumps([message.message_id]),
            query.data or "",
        )
        answer = await desk.press(press)
        if answer.ask in _PROMPTS:
            prompt = await self._bot.send_message(
                message.chat.id,
                _PROMPTS[answer.ask],
                reply_markup=ForceReply(selective=True),
                reply_to_message_id=message.message_id,
            )
            await desk.asked(press, str(prompt.message_id))
        with contextlib.suppress(BadRequest):  # too old to be answered; the message says it all
            await query.answer(answer.text[:_MOST_ALERT], show_alert=bool(answer.text))

    async def _written(self, message: Message, desk: Desk) -> None:
        if message.chat.type != "private" or message.from_user is None:
            return  # in groups it only speaks
        text = message.text or ""
        account = _account(message.from_user.id)
        words = text.split()
        if len(words) == 2 and words[0] in ("/start", "/link"):
            reply = await desk.link(account, words[1])
        elif message.reply_to_message is not None:
            prompt = str(message.reply_to_message.message_id)
            answer = await desk.replied(account, str(message.chat.id), prompt, text)
            reply = _HELP if answer is None else answer.text
        else:
            reply = _HELP
        await self._bot.send_message(message.chat.id, reply, link_preview_options=_PREVIEW)


def _account(user: int) -> Account:
    return Account("telegram", "", str(user))


def _keyboard(delivery: Delivery, card: Card) -> InlineKeyboardMarkup | None:
    # An edit needs a form: the link leads to one.
    buttons = [button for button in card.buttons if button.verb != "edit"]
    rows = [
        [InlineKeyboardButton(button.label, callback_data=button_value(delivery, button.verb))]
        for button in buttons
    ]
    return InlineKeyboardMarkup(rows) if rows else None


def _seconds(error: RetryAfter) -> float:
    after = error.retry_after
    return float(after if isinstance(after, int) else after.total_seconds())
