"""The seals: a chain of their own, each signing the heads of the chains that moved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sayso import codec
from sayso.audit.reading import DAMAGE, Unreadable, pages
from sayso.audit.report import Problem, Problems
from sayso.errors import UnknownKey
from sayso.stores.base import StoreReads
from sayso.stores.seals import Seal, seal_bytes

_PAGE = 16  # a seal may hold ten thousand heads


class Head(NamedTuple):
    """The newest sealed place of one thread, and the number of the seal that says so."""

    seq: int
    hash: str
    n: int


class Seals:
    """What the seals prove: the newest sealed head of each thread.

    One head per thread is enough: it fixes every row before it, and with them the heads of all
    older seals. Only a thread that does not fit is looked up in those (``first_broken``).
    """

    def __init__(self, store: StoreReads, problems: Problems) -> None:
        self._store = store
        self._problems = problems
        self._n, self._hash = 0, ""
        self._stuck = False
        self.count = 0
        self.heads: dict[str, Head] = {}
        #: How far broken seals say that they reach: they prove nothing, but they are not missing.
        self.claimed: dict[str, int] = {}

    def catch_up(self) -> None:
        """Read the seals that came since the last time."""
        try:
            for seal in () if self._stuck else self._from(self._n):
                self._read(seal)
        except Unreadable as error:
            self._stuck = True
            self._say(self._n + 1, f"cannot be read, nor can those after it: {error}")

    def _from(self, after: int) -> Iterator[Seal]:
        return pages(self._store.seals, lambda seal: seal.n, after, _PAGE)

    def _read(self, seal: Seal) -> None:
        self.count += 1
        wrong = self._wrong(seal)
        try:
            heads = {thread: Head(seq, hash, seal.n) for thread, seq, hash in _heads(seal)}
        except DAMAGE:
            heads, wrong = {}, wrong or "has heads that cannot be read"
        if wrong:
            self._say(seal.n, wrong)
            self.claimed.update({thread: head.seq for thread, head in heads.items()})
        else:
            self.heads.update(heads)
        self._n, self._hash = seal.n, seal.hash

    def _wrong(self, seal: Seal) -> str:
        if seal.n > self._n + 1:
            missing = (
                f"{self._n + 1}" if seal.n == self._n + 2 else f"{self._n + 1} to {seal.n - 1}"
            )
            self._say(self._n + 1, f"is missing (gone: {missing})")
        elif seal.prev != self._hash:
            return "does not follow the one before it"
        if codec.sha256(seal_bytes(seal.n, seal.at, seal.heads, seal.prev)) != seal.hash:
            return "was changed: its hash does not fit"
        try:
            genuine = self._store.keys.verify(seal.hash.encode(), seal.signature)
        except UnknownKey as error:
            return f"has a signature that cannot be checked: {error}"
        return "" if genuine else "has a signature that does not hold"

    def _say(self, n: int, what: str) -> None:
        self._problems.add(Problem("", n, 0, f"seal {n} {what}"))

    def reach(self, thread: str) -> int:
        """How far the thread was sealed, by whatever seal."""
        head = self.heads.get(thread)
        return max(0 if head is None else head.seq, self.claimed.get(thread, 0))

    def first_broken(self, thread: str) -> Head | None:
        """The oldest sealed head of a thread that its chain no longer has."""
        for seal in self._from(0):
            for name, seq, hash in _heads(seal):
                if name == thread:
                    event = self._store.chain(thread, seq - 1, 1)
                    if not event or (event[0].seq, event[0].hash) != (seq, hash):
                        return Head(seq, hash, seal.n)
        return None


def _heads(seal: Seal) -> list[tuple[str, int, str]]:
    return [(str(thread), int(seq), str(hash)) for thread, seq, hash in codec.loads(seal.heads)]
