"""How a channel is doing, as admins see it: two times in the store, which its senders keep."""

from __future__ import annotations

import json
import time
from typing import NamedTuple

from sayso.stores.base import Store
from sayso.types import Micros

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
