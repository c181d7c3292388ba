"""Slack: a bot that asks in direct messages, with buttons and small forms.

With an app token it opens a socket (Socket Mode), which needs no public address; with a signing
secret it takes what Slack posts to ``/channels/slack/webhook``. Only the team of the bot's token
counts. Text is plain everywhere, so nothing in it can become a mention or a link.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sayso import codec
from sayso.channels.kit.cards import Button, Card
from sayso.channels.kit.channel import Received, TryLater, Undeliverable
from sayso.channels.kit.desk import Answer, Desk, Press, Refused, arguments_from, button_value
from sayso.inbox.accounts import Account
from sayso.rows import Delivery
from sayso.types import Request

try:
    from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
    from slack_bolt.app.async_app import AsyncApp
    from slack_bolt.request.async_request import AsyncBoltRequest
    from slack_sdk.errors import SlackApiError
    from slack_sdk.signature import SignatureVerifier
    from slack_sdk.web.async_client import AsyncWebClient
except ImportError as error:
    raise ImportError('Slack needs `pip install "sayso[slack]"`') from error

_API = "https://slack.com/api/"
#: Slack's own limits, in characters and elements.
_HEADER, _SECTION, _BUTTON, _INPUT = 150, 3000, 75, 3000
_MOST_FIELDS = 20
#: Answers by which Slack says that it will never take a message.
_PERMANENT = {
    *("channel_not_found", "user_not_found", "user_disabled", "is_archived"),
    *("not_in_channel", "cannot_dm_bot", "messages_tab_disabled"),
}
_GONE = {"message_not_found", "cant_update_message", "edit_window_closed"}
_ACTION = re.compile(r"^sayso:")
_HELP = "To link this account, get a code on your page of notifications and send: link CODE"
_LINK = re.compile(r"^\s*(?:/start|link)\s+(\S+)\s*$")


class SlackChannel:
    """A bot in one workspace, by its token (``xoxb-…``)."""

    name = "slack"
    per_second = 10.0
    spacing = 1.0
    updates = True
    takes_mail = False

    def __init__(
        self,
        token: str,
        *,
        app_token: str = "",
        signing_secret: str = "",
        api: str = _API,
        spacing: float = 1.0,
    ) -> None:
        if not app_token and not signing_secret:
            raise ValueError("Slack needs an app token for its socket, or a signing secret")
        self._client = AsyncWebClient(token, base_url=api)
        self._app_token = app_token
        self._verifier = SignatureVerifier(signing_secret) if signing_secret else None
        self._app = AsyncApp(
            client=self._client,
            signing_secret=signing_secret or None,
            request_verification_enabled=bool(signing_secret),
            raise_error_for_unhandled_request=False,
        )
        self._team = ""
        self._desk: Desk | None = None
        self.spacing = spacing
        self._app.action(_ACTION)(self._pressed)
        self._app.view("sayso-form")(self._submitted)
        self._app.event("message")(self._written)

    # -- out

    async def send(self, delivery: Delivery, card: Card) -> str:
        try:
            reply = await self._client.chat_postMessage(
                channel=delivery.target,
                text=card.title,
                blocks=blocks_of(delivery, card),
                unfurl_links=False,
                unfurl_media=False,
                parse="none",
            )
        except SlackApiError as error:
            raise _explained(error) from None
        return json.dumps([reply["channel"], reply["ts"]])

    async def update(self, delivery: Delivery, card: Card) -> None:
        channel, ts = json.loads(delivery.message)
        try:
            await self._client.chat_update(
                channel=channel, ts=ts, text=card.title, blocks=blocks_of(delivery, card)
            )
        except SlackApiError as error:
            if error.response["error"] not in _GONE:
                raise _explained(error) from None

    async def send_code(self, target: str, code: str) -> None:
        raise Undeliverable("send the code to the bot: link and the code")

    async def check(self) -> str:
        me = await self._client.auth_test()
        self._team = str(me["team_id"])
        return f"{me['user']} in {me['team']}"

    async def close(self) -> None: ...

    # -- in

    async def listen(self, desk: Desk) -> None:
        self._desk = desk
        await self.check()
        if not self._app_token:
            return
        handler: Any = AsyncSocketModeHandler(self._app, self._app_token)  # has no types
        try:
            await handler.connect_async()
            await asyncio.Event().wait()
        finally:
            await handler.close_async()

    async def receive(self, headers: Mapping[str, str], body: bytes, desk: Desk) -> Received:
        """Take what Slack posted, if its signature holds."""
        if self._verifier is None:
            return Received(404)
        try:
            genuine = self._verifier.is_valid_request(body, dict(headers))
        except Exception:  # it raises on some signatures instead of refusing them
            genuine = False
        if not genuine:
            return Received(401)
        self._desk = desk
        if not self._team:
            await self.check()
        text = body.decode("utf-8", "replace")
        lists: dict[str, str | Sequence[str]] = {name: [value] for name, value in headers.items()}
        reply = await self._app.async_dispatch(AsyncBoltRequest(body=text, headers=lists))
        kind = reply.first_headers().get("content-type", "text/plain")
        return Received(reply.status, reply.body or "", kind)

    def _account(self, body: Mapping[str, Any]) -> Account | None:
        """Return who acts; ``None`` for another workspace or a guest from one."""
        user = body.get("user") or {}
        team = (body.get("team") or {}).get("id", "")
        if team != self._team or user.get("team_id", team) != self._team:
            return None
        return Account("slack", team, str(user.get("id", "")))

    async def _pressed(self, ack: Any, body: dict[str, Any], client: AsyncWebClient) -> None:
        await ack()
        desk, account = self._desk, self._account(body)
        if desk is None or account is None:
            return
        event = f"press:{body.get('trigger_id', '')}"
        if not await desk.is_new(event):
            return
        message = [body["channel"]["id"], body["message"]["ts"]]
        value = str(body["actions"][0].get("value", ""))
        press = Press(account, account.user, json.dumps(message), value)
        answer = await desk.press(press)
        if answer.ask:
            await client.views_open(
                trigger_id=body["trigger_id"], view=form_of(answer, message, value)
            )
        elif answer.text:
            await self._tell(account.user, message[0], answer.text)
        await desk.handled(event)

    async def _submitted(self, ack: Any, body: dict[str, Any], view: dict[str, Any]) -> None:
        desk, account = self._desk, self._account(body)
        if desk is None or account is None:
            await ack()
            return
        message, value = json.loads(view["private_metadata"])
        states = view["state"]["values"]
        texts = {name: state["value"].get("value") or "" for name, state in states.items()}
        press = Press(account, account.user, json.dumps(message), value)
        if value.startswith("edit:"):
            pair = await desk.press(press)
            shown = {} if pair.request is None else dict(pair.request.args)
            try:
                changes = arguments_from(texts, shown)
            except Refused as error:
                await ack(response_action="errors", errors={next(iter(texts)): str(error)})
                return
            answer = await desk.typed(press, "", changes)
        else:
            answer = await desk.typed(press, next(iter(texts.values()), ""))
        if answer.request is None:
            await ack(response_action="errors", errors={next(iter(texts)): answer.text})
            return
        await ack()

    async def _written(self, event: dict[str, Any], body: dict[str, Any]) -> None:
        desk = self._desk
        if desk is None or event.get("channel_type") != "im" or event.get("bot_id"):
            return
        if body.get("team_id") != self._team or "user" not in event:
            return
        if not await desk.is_new(str(body.get("event_id", ""))):
            return
        account = Account("slack", self._team, str(event["user"]))
        match = _LINK.match(event.get("text", ""))
        reply = _HELP if match is None else await desk.link(account, match[1])
        await self._tell(account.user, str(event["channel"]), reply)
        await desk.handled(str(body.get("event_id", "")))

    async def _tell(self, user: str, channel: str, words: str) -> None:
        """Tell one person something that nobody else in the channel sees."""
        blocks = [{"type": "section", "text": _plain(words, _SECTION)}]
        await self._client.chat_postEphemeral(channel=channel, user=user, text=words, blocks=blocks)


def _plain(words: str, most: int) -> dict[str, Any]:
    shown = words if len(words) <= most else f"{words[: most - 1]}…"
    return {"type": "plain_text", "text": shown or " ", "emoji": False}


def blocks_of(delivery: Delivery, card: Card) -> list[dict[str, Any]]:
    """Return a card as Block Kit."""
    blocks: list[dict[str, Any]] = [{"type": "header", "text": _plain(card.title, _HEADER)}]
    if len(card.title) > _HEADER:
        blocks.append({"type": "section", "text": _plain(card.title, _SECTION)})
    for part in ("\n".join(card.facts), "\n".join(card.lines), card.outcome, card.why, card.link):
        if part:
            blocks.append({"type": "section", "text": _plain(part, _SECTION)})
    if card.buttons:
        elements = [_button(delivery, button) for button in card.buttons if button.verb != "reject"]
        blocks.append({"type": "actions", "elements": elements})
    return blocks


def _button(delivery: Delivery, button: Button) -> dict[str, Any]:
    element = {
        "type": "button",
        "action_id": f"sayso:{button.verb}",
        "text": _plain(button.label, _BUTTON),
        "value": button_value(delivery, button.verb),
    }
    styles = {"approve": "primary", "reason": "danger"}
    return element | ({"style": styles[button.verb]} if button.verb in styles else {})


def form_of(answer: Answer, message: list[str], value: str) -> dict[str, Any]:
    """Return the form that asks for a reason, an answer, or changed arguments."""
    request = answer.request
    if answer.ask == "edit" and request is not None:
        blocks = _fields(request)
    else:
        label = "Reason (the agent reads it)" if answer.ask == "reason" else "Answer"
        blocks = [_input("text", label, "", optional=answer.ask == "reason")]
    titles = {"reason": "Reject", "answer": "Answer", "edit": "Change and approve"}
    return {
        "type": "modal",
        "callback_id": "sayso-form",
        "title": _plain(titles[answer.ask], 24),
        "submit": _plain("Send", 24),
        "private_metadata": json.dumps([message, value]),
        "blocks": blocks,
    }


def _fields(request: Request) -> list[dict[str, Any]]:
    texts = {
        name: value if isinstance(value, str) else codec.dumps(value)
        for name, value in request.args.items()
    }
    return [_input(name, name, text) for name, text in list(texts.items())[:_MOST_FIELDS]]


def _input(block: str, label: str, text: str, *, optional: bool = False) -> dict[str, Any]:
    element = {
        "type": "plain_text_input",
        "action_id": "value",
        "multiline": "\n" in text or block == "text",
        "max_length": _INPUT,
    }
    if text:
        element["initial_value"] = text
    return {
        "type": "input",
        "block_id": block,
        "label": _plain(label, 2000),
        "element": element,
        "optional": optional,
    }


def _explained(error: SlackApiError) -> Exception:
    reason = str(error.response["error"])
    if reason == "ratelimited":
        return TryLater(reason, float(error.response.headers.get("Retry-After", 1)))
    return Undeliverable(reason) if reason in _PERMANENT else error
