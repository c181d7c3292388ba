"""How a channel is doing: two times in the store, which its senders keep, and test messages."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Iterable
from typing import NamedTuple

from sayso.channels.kit.cards import Card
from sayso.channels.kit.channel import Channel
from sayso.channels.kit.planner import Target, new_delivery
from sayso.stores.base import Store
from sayso.text import inline
from sayso.types import Micros

#: Seconds that a platform gets to answer while a person waits.
PATIENCE = 15.0

#: A process stores at most one success and one failure in so many seconds.
_EVERY = 10.0


class Health(NamedTuple):
    """When a message was last sent, and when and why one last failed; 0 for never."""

    sent_at: Micros = 0
    failed_at: Micros = 0
    error: str = ""

    @property
    def failing(self) -> bool:
        return self.failed_at > self.sent_at


def read_health(store: Store, channel: str) -> Health:
    """Return the health of a channel, whichever process sends its messages."""
    text = store.cursor(_name(channel))
    return Health(*json.loads(text)) if text else Health()


async def send_test(channel: Channel, targets: Iterable[Target]) -> tuple[int, str]:
    """Send a test message to addresses of a person.

    Return to how many it was sent, and why not to another one.
    """
    card = Card(title="Test message", facts=("Requests that wait for you are announced here.",))
    sent = 0
    failure = ""
    for target in targets:
        # Another digest each time, or a mailbox would take the second one for a repetition.
        row = new_delivery(channel.name, target, "", secrets.token_hex(8), "test", now=0)
        try:
            async with asyncio.timeout(PATIENCE):
                await channel.send(row, card)
            sent += 1
        except Exception as error:
            failure = inline(str(error) or type(error).__name__)[:300]
    return sent, failure


class HealthNotes:
    """Stores the successes and failures of one channel, as far as this process sees them."""

    def __init__(self, store: Store, channel: str) -> None:
        self._store = store
        self._channel = channel
        self._noted_at = {True: 0.0, False: 0.0}

    def note(self, error: str = "") -> None:
        """Note that a message was sent, or the error with which it was not."""
        sent = not error
        now = time.monotonic()
        if now - self._noted_at[sent] < _EVERY and self._noted_at[sent] > self._noted_at[not sent]:
            return
        self._noted_at[sent] = now
        before = self._store.cursor(_name(self._channel))
        health = Health(*json.loads(before)) if before else Health()
        at = self._store.now()
        after = health._replace(sent_at=at)
        if error:
            after = health._replace(failed_at=at, error=error)
        # Another process may note something at this moment: that is as good.
        self._store.move_cursor(_name(self._channel), json.dumps(after), expected=before)


def _name(channel: str) -> str:
    return f"health:{channel}"
