"""Seals: what one signs, and when the next one is due.

A seal signs the heads of the chains that moved since their last seal, and is chained to the seal
before it. One is due when the *store* holds ``SEAL_EVENTS`` unsealed events, or when its oldest
unsealed event is ``SEAL_SECONDS`` old. The next process that commits and can sign makes it, also
for events of other processes: a process that ends without ``close()`` leaves nothing unsealed.

What is unsealed is read from the rows themselves (each thread knows how far it is sealed), so there
is no counter that every commit would have to update. ``SealSchedule`` avoids that query on the
normal commit: from one look it knows a position and a time before which no seal can be due.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from sayso import codec
from sayso.keys import Keyring
from sayso.types import Micros

SEAL_EVENTS = 1000
SEAL_SECONDS = 60.0
#: How many threads one seal holds. A seal is one transaction, and other writers wait for it.
MOST_HEADS = 1000
#: When to try again after a seal that left something out: another process had it locked.
_RETRY_SECONDS = 1.0
_RETRY_EVENTS = 100


class Seal(NamedTuple):
    """The signed heads of the chains that moved, chained to the seal before it."""

    n: int
    at: Micros
    heads: str
    prev: str
    hash: str
    signature: str


def next_seal(
    keys: Keyring, last: Seal | None, heads: Sequence[tuple[str, int, str]], at: Micros
) -> Seal:
    """Make the seal over these (thread, seq, head), chained to the last one and signed."""
    n, prev = (1, "") if last is None else (last.n + 1, last.hash)
    text = codec.dumps([list(head) for head in heads])
    digest = codec.sha256(seal_bytes(n, at, text, prev))
    return Seal(
        n=n, at=at, heads=text, prev=prev, hash=digest, signature=keys.sign(digest.encode())
    )


def seal_bytes(n: int, at: Micros, heads: str, prev: str) -> bytes:
    # A seal that was changed may hold text that is no UTF-8.
    return codec.dumps([n, at, heads, prev]).encode("utf-8", "surrogateescape")


seal_from = Seal._make


def seal_all(make: Callable[[], Seal | None]) -> Seal | None:
    """Make seals until one has room left, and so holds all chains; return the newest."""
    newest: Seal | None = None
    while seal := make():
        newest = seal
        if len(codec.loads(seal.heads)) < MOST_HEADS:
            break
    return newest


class Unsealed(NamedTuple):
    """The events that no seal covers: how many there are, and when the oldest was written.

    ``events`` may be counted up to ``SEAL_EVENTS`` only. ``pos`` is the position of the store's
    newest event.
    """

    events: int
    oldest: Micros | None
    pos: int

    def is_due(self, now: Micros) -> bool:
        late = self.oldest is not None and now - self.oldest >= round(SEAL_SECONDS * 1_000_000)
        return late or self.events >= SEAL_EVENTS


class SealSchedule:
    """When a process has to look for unsealed events again.

    Nothing can be due before the position at which the events seen so far plus all newer ones reach
    ``SEAL_EVENTS``, nor before the oldest event seen so far, or the first after the look, is
    ``SEAL_SECONDS`` old. Positions may have gaps; then the look comes early and finds nothing due.
    """

    def __init__(self) -> None:
        self._pos = 0
        self._at: Micros = 0

    def may_be_due(self, pos: int, now: Micros) -> bool:
        """Return whether a seal may be due after a commit that reached ``pos``."""
        return pos >= self._pos or now >= self._at

    def seal_if_due(
        self, now: Micros, find: Callable[[], Unsealed], make: Callable[[], Seal | None]
    ) -> Seal | None:
        """Find what is unsealed, make a seal if one is due, and plan the next look."""
        seal = None
        unsealed = find()
        if unsealed.is_due(now):
            seal = make()
            unsealed = find()
        self.looked(unsealed, now)
        return seal

    def looked(self, unsealed: Unsealed, now: Micros) -> None:
        """Plan the next look from what this one found; call it after sealing, too."""
        if unsealed.is_due(now):  # it was just tried
            self._pos = unsealed.pos + _RETRY_EVENTS
            self._at = now + round(_RETRY_SECONDS * 1_000_000)
            return
        self._pos = unsealed.pos + SEAL_EVENTS - unsealed.events
        oldest = now if unsealed.oldest is None else min(unsealed.oldest, now)
        self._at = oldest + round(SEAL_SECONDS * 1_000_000)
