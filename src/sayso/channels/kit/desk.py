"""What people send back from a platform: codes that link accounts, presses of buttons, reasons.

The channel has verified that the platform sent it. Here it is matched with the message that was
sent, with the person who linked the account, and with the request as it is now; then it goes
through ``Inbox.decide`` like every decision. Nothing is taken from the platform but who acts,
where, and what they typed. Whatever does not match decides nothing, and the answer says why.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from sayso.channels.kit.cards import PREFIX, card_of, code_of, outcome_of
from sayso.channels.kit.courier import Observer, read_request
from sayso.channels.kit.planner import Target, delivery_id, new_delivery
from sayso.errors import AlreadyDecided, Conflict, SaysoError
from sayso.inbox import Inbox
from sayso.inbox.accounts import Account, link_account, linked_person
from sayso.rows import Delivery, Proven
from sayso.stores.base import Store
from sayso.sync import to_thread
from sayso.text import inline
from sayso.types import SECOND, Decision, Json, Micros, Request, moment

#: How long the id of an event is remembered, so that its repetition does nothing.
_SEEN: Micros = 2 * 86_400 * SECOND
#: How long a person may take to type a reason.
_ASKED: Micros = 86_400 * SECOND
#: How often, and after how many seconds, to look for a message that is being recorded.
_LOOKS = 20
_LOOK_AGAIN = 0.1

STALE = "This message is out of date: the request has changed since. Use the newer one."
FOREIGN = "This message is not one that Sayso sent here, so nothing was decided."
WRONG_CODE = "This code is not the one in the mail, so nothing was decided."
_UNLINKED = (
    "This account is not linked to a person, so it cannot decide. Get a code on the page of "
    "notifications or with `sayso channels link {}`, and send it here."
)


class Press(NamedTuple):
    """A button that was pressed, as the platform reports it."""

    account: Account
    #: The chat that the message is in, and the platform's ids of it as ``Channel.send`` gave them.
    target: str
    message: str
    #: What the button carries: see ``button_value``.
    value: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What to tell the person who pressed a button.

    ``ask`` is set if they first have to type something: ``reason``, ``answer`` or ``edit``.
    """

    text: str
    ask: str = ""
    #: The message and the request that it is about, where that is known.
    delivery: Delivery | None = None
    request: Request | None = None


def button_value(delivery: Delivery, verb: str) -> str:
    """Return what a button carries: at most 64 bytes, as Telegram requires.

    It gives no right. The digest's prefix shows whether the message is out of date, and the nonce
    whether it is the one that was sent.
    """
    return f"{verb}:{delivery.request}:{delivery.digest[:PREFIX]}:{delivery.nonce}"


class Refused(SaysoError):
    """Nothing was decided; the message says why."""


class _NotRecorded(Refused):
    """The message is being sent, so its ids are not known yet."""


class Desk:
    """Takes what comes in through one channel."""

    def __init__(
        self, inbox: Inbox, channel: str, page: str, observer: Observer, moved: Callable[[], None]
    ) -> None:
        self._inbox = inbox
        self._store: Store = inbox.store
        self._channel = channel
        self._page = page
        self._observer = observer
        self._moved = moved

    # -- once per event

    async def is_new(self, event: str) -> bool:
        """Return whether an event of the platform was not handled before."""
        return await to_thread(self._store.delivery, self._event_id(event)) is None

    async def handled(self, event: str) -> None:
        """Remember that an event was handled. A crash before this lets the platform repeat it."""
        now = self._store.now()
        row = new_delivery(self._channel, Target(event[:200]), "", "", "event", now)
        row = row._replace(id=self._event_id(event), state="seen", next_at=now + _SEEN)
        await to_thread(self._store.put_deliveries, [row])

    def _event_id(self, event: str) -> str:
        return delivery_id(self._channel, event[:200], "", "", "event")

    # -- linking

    async def link(self, account: Account, code: str) -> str:
        """Link an account with a code that a signed-in person got; return what to answer."""
        try:
            linked = await to_thread(link_account, self._store, account, code)
        except SaysoError as error:
            return f"Not linked: {error}"
        return f"This account is linked to {inline(linked.person.name)} now."

    # -- deciding

    async def press(self, press: Press) -> Answer:
        """Handle a button: decide, or say what to type first, or say why neither."""
        try:
            verb, delivery, request, person = await self._match(press)
            if verb in ("reason", "answer", "edit"):
                return Answer("", verb, delivery, request)
            decision = _decision(request, verb)
            return await self._decide(request, decision, person, delivery)
        except SaysoError as error:
            return Answer(str(error))

    async def typed(
        self, press: Press, text: str, fields: Mapping[str, Json] | None = None
    ) -> Answer:
        """Decide with what a person typed after they pressed a button.

        ``fields`` are the arguments that an edit changes.
        """
        try:
            verb, delivery, request, person = await self._match(press)
            decision: Decision
            if verb == "answer":
                decision = request.respond(text)
            elif verb == "edit":
                if not fields:
                    raise Refused("Nothing was changed, so nothing was decided: press Approve.")
                decision = request.edit(dict(fields))
            else:
                decision = request.reject(text.strip())
            return await self._decide(request, decision, person, delivery)
        except SaysoError as error:
            return Answer(str(error))

    async def _decide(
        self, request: Request, decision: Decision, person: Proven, delivery: Delivery
    ) -> Answer:
        name = self._channel
        try:
            decided = await self._inbox.decide(
                request.id, decision, by=person, seen_digest=request.digest, channel=name
            )
        except AlreadyDecided:
            decided = await self._inbox.get(request.id)
        except Conflict:
            return Answer(STALE, delivery=delivery)
        else:
            self._observer.chat_decision(name, decision.type)
        self._moved()
        now = moment(self._store.now())
        outcome = outcome_of(decided, now) or "Your approval counts; more people have to approve."
        return Answer(outcome, delivery=delivery, request=decided)

    async def _match(self, press: Press) -> tuple[str, Delivery, Request, Proven]:
        """Match a press; wait a moment for a message that was sent and is not recorded yet."""
        for _ in range(_LOOKS - 1):
            try:
                return await to_thread(self._matched, press)
            except _NotRecorded:
                await asyncio.sleep(_LOOK_AGAIN)
        return await to_thread(self._matched, press)

    def _matched(self, press: Press) -> tuple[str, Delivery, Request, Proven]:
        """Return the message, its request and who pressed; raise ``Refused`` if one is wrong."""
        person = linked_person(self._store, press.account)
        if person is None:
            raise Refused(_UNLINKED.format(self._channel))
        verb, request_id, prefix, nonce = (*press.value.split(":"), "", "", "", "")[:4]
        rows = self._store.deliveries_of(request_id)
        mine = [
            row
            for row in rows
            if (row.channel, row.target, row.nonce) == (self._channel, press.target, nonce)
        ]
        if not mine or not nonce:
            raise Refused(FOREIGN)
        (delivery,) = mine[:1]
        if delivery.person != person.name:
            raise Refused(f"This message was for {inline(delivery.person) or 'a shared channel'}.")
        pair = read_request(self._store, request_id)
        if pair is None:
            raise Refused("This request is no longer stored.")
        call, request = pair
        now = moment(self._store.now())
        if outcome := outcome_of(request, now):
            raise Refused(outcome)
        if delivery.message != press.message:
            error = _NotRecorded if delivery.state == "due" else Refused
            raise error("This is a copy of a message that was sent again: use the newer one.")
        stale = delivery.digest != request.digest or delivery.digest[:PREFIX] != prefix
        if stale:
            raise Refused(STALE)
        card = card_of(call, request, delivery, self._page, now)
        if verb not in [button.verb for button in card.buttons]:
            raise Refused(card.why or "This button does not exist.")
        return verb, delivery, request, person

    async def enter_code(self, delivery_id: str, code: str, verb: str, reason: str) -> Answer:
        """Decide with the code of a mail."""
        row = await to_thread(self._store.delivery, delivery_id)
        if row is None or row.channel != self._channel or not row.message:
            return Answer(WRONG_CODE)
        expected = code_of(self._store.keys, row)
        given = code.upper().replace(" ", "")
        if not hmac.compare_digest(given.encode(), expected.encode()):
            return Answer(WRONG_CODE)
        account = Account(self._channel, "", row.target)
        press = Press(account, row.target, row.message, button_value(row, verb))
        if verb == "reason":
            return await self.typed(press, reason)
        return await self.press(press)

    # -- questions in a separate message that the person replies to

    async def asked(self, press: Press, prompt: str) -> None:
        """Remember that the reply to the message ``prompt`` completes a press."""
        now = self._store.now()
        row = new_delivery(self._channel, Target(press.target), "", "", f"reply:{prompt}", now)
        content = json.dumps([press.message, press.value])
        # With a MAC: what is typed next would otherwise count for whatever the row says.
        signed = json.dumps([content, self._store.keys.row_mac(_reply_bytes(row.id, content))])
        row = row._replace(state="seen", message=signed, next_at=now + _ASKED)
        await to_thread(self._store.put_deliveries, [row])

    async def replied(self, account: Account, target: str, prompt: str, text: str) -> Answer | None:
        """Complete a press with the reply to a message; ``None`` if it asked for nothing."""
        row_id = delivery_id(self._channel, target, "", "", f"reply:{prompt}")
        row = await to_thread(self._store.delivery, row_id)
        if row is None or row.state != "seen" or row.next_at is None:
            return None
        if row.next_at <= self._store.now():
            return Answer("That was too long ago: press the button again.")
        content, mac = json.loads(row.message)
        if not self._store.keys.check_row(_reply_bytes(row_id, content), mac):
            return Answer(FOREIGN)
        message, value = json.loads(content)
        return await self.typed(Press(account, target, message, value), text)


def _reply_bytes(row_id: str, content: str) -> bytes:
    return f"reply\0{row_id}\0{content}".encode()


def _decision(request: Request, verb: str) -> Decision:
    if verb == "approve":
        return request.approve()
    if verb == "reject":
        return request.reject()
    question = request.question
    number = verb.removeprefix("option-")
    if question is None or not number.isdecimal() or int(number) >= len(question.options):
        raise Refused("This button does not exist.")
    return request.respond(question.options[int(number)].answer)


def arguments_from(texts: Mapping[str, str], shown: Mapping[str, Any]) -> dict[str, Json]:
    """Return the arguments that a form changed. A value that was no text is read as JSON."""
    changed: dict[str, Json] = {}
    for name, text in texts.items():
        before = shown.get(name)
        value: Json = text
        if not isinstance(before, str):
            try:
                value = json.loads(text)
            except ValueError:
                raise Refused(f"{inline(name)}: write JSON, such as {json.dumps(before)}") from None
        if value != before:
            changed[name] = value
    return changed
