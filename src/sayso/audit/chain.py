"""Read chains of events, check their hashes, collect problems, and export the record.

Reading is defensive: rows may be damaged. ``read_pages`` narrows down to the first row that cannot
be read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from sayso.engine.unit_of_work import link_bytes
from sayso.errors import SaysoError, UnknownKey
from sayso.keys import Keyring
from sayso.rows import Event, Thread
from sayso.stores.base import Store, StoreReads
from sayso.stores.row_checks import DAMAGE, UNREADABLE

#: How many problems a report lists; the rest are only counted.
MAX_PROBLEMS = 100


@dataclass(frozen=True, slots=True)
class Problem:
    """One row that is wrong.

    ``seq`` is its position in the thread's chain and ``pos`` its position in the store. For a
    missing row, ``pos`` is that of the previous row (0 if there is none). A problem outside of any
    thread has an empty ``thread``; for a seal, ``seq`` is the seal's number.
    """

    thread: str
    seq: int
    pos: int
    what: str

    def __str__(self) -> str:
        where = f"thread {self.thread!r}, row {self.seq}: " if self.thread else ""
        return where + self.what


class Checkpoint(NamedTuple):
    """How far a store was verified. Keep it where agents cannot write.

    It also holds the hash of a seal, so a store that was replaced by an older copy is noticed.
    """

    #: The incarnation of the store, and the cursor after the last event that was verified.
    store: str
    cursor: str
    #: The number and the hash of the last seal.
    seal: int
    seal_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What ``verify`` read and found.

    Problems of the record come first, oldest row first, then rows that do not match the record.
    """

    threads: int
    #: Threads that have not moved since the checkpoint, and were not read again.
    unmoved: int
    events: int
    seals: int
    #: Events after the last seal of their thread.
    unsealed: int
    #: The first ``MAX_PROBLEMS`` problems; ``found`` counts all of them.
    problems: list[Problem]
    found: int
    #: Where the next verification may start, if nothing is wrong.
    checkpoint: Checkpoint

    @property
    def ok(self) -> bool:
        """Return whether no problem was found."""
        return self.found == 0


def _place(problem: Problem) -> tuple[int, str, int]:
    """Return where a problem sorts; what was tampered with may be no number and no text."""
    pos, seq = (n if isinstance(n, int) else 0 for n in (problem.pos, problem.seq))
    return pos, str(problem.thread), seq


class ProblemCollector:
    """Counts problems, and keeps the first ones by their position in the store."""

    def __init__(self) -> None:
        self._kept: list[tuple[bool, Problem]] = []
        self.found = 0

    def add(self, problem: Problem, *, table: bool = False) -> None:
        """Count a problem, and keep it if it is among the first.

        ``table`` problems sort last: if the record is broken, rows differ as a consequence.
        """
        self.found += 1
        self._kept.append((table, problem))
        if len(self._kept) >= 2 * MAX_PROBLEMS:
            self._cut()

    def merge(self, others: ProblemCollector) -> None:
        self._kept += others._kept
        self.found += others.found
        self._cut()

    def _cut(self) -> None:
        self._kept.sort(key=lambda pair: (pair[0], *_place(pair[1])))
        del self._kept[MAX_PROBLEMS:]

    def first(self) -> list[Problem]:
        self._cut()
        return [problem for _, problem in self._kept]


PAGE = 1000

#: What reading a damaged row may raise: from the database, JSON, an enum, an unpacking.
DAMAGE_ERRORS = (SaysoError, *DAMAGE)


def reason_of(error: BaseException) -> str:
    """Return why a row cannot be read. Python's own errors say nothing about the row."""
    return str(error) if isinstance(error, SaysoError | Unreadable) else UNREADABLE


Row = TypeVar("Row")
Key = TypeVar("Key")


class Unreadable(Exception):
    """The row after this key cannot be read, so neither can the rows behind it."""

    def __init__(self, after: object, why: BaseException) -> None:
        super().__init__(reason_of(why))
        self.after = after


def read_pages(
    read: Callable[[Key, int], list[Row]], key_of: Callable[[Row], Key], after: Key, limit: int
) -> Iterator[Row]:
    """Yield all rows, page by page. Raise ``Unreadable`` at the first that cannot be read."""
    while True:
        try:
            rows = read(after, limit)
        except DAMAGE_ERRORS as error:
            # Halve the page until it is the row itself.
            if limit == 1:
                raise Unreadable(after, error) from error
            limit = (limit + 1) // 2
            continue
        yield from rows
        if len(rows) < limit:
            return
        after = key_of(rows[-1])


def chain_of(store: StoreReads, thread: str, after: int = 0) -> Iterator[Event]:
    return read_pages(lambda k, n: store.chain(thread, k, n), lambda e: e.seq, after, PAGE)


def threads_of(store: StoreReads, after: str, page: int) -> Iterator[Thread]:
    return read_pages(store.threads, lambda t: t.id, after, page)


PLAIN_HASH = "sha256"


def is_keyed(event: Event) -> bool:
    """Return whether only a holder of the key can have computed this hash."""
    return _hash_scheme(event) != PLAIN_HASH


def hash_problem(keys: Keyring, previous: str, event: Event) -> str:
    """Return what is wrong with an event's hash, or an empty text."""
    try:
        if keys.check_link(link_bytes(previous, event), event.hash):
            return ""
    except UnknownKey as error:
        return f"its hash cannot be checked: {error}"
    except DAMAGE_ERRORS:
        return "it was changed: its columns cannot be hashed"
    maker = _hash_scheme(event)
    if maker == PLAIN_HASH and not keys.link(b"").startswith(PLAIN_HASH):
        return "its hash was made without the key"
    return "it was changed, or it does not follow the previous row"


def body_problem(event: Event) -> str:
    """Return what is wrong with an event's body, or an empty text; a missing body passes."""
    if event.body is None:
        return ""
    # Text that is not UTF-8 was decoded with escapes, and is the same bytes again.
    body = event.body.encode("utf-8", "surrogateescape") if isinstance(event.body, str) else b""
    return "" if hashlib.sha256(body).hexdigest() == event.digest else "its body was changed"


def _hash_scheme(event: Event) -> str:
    return str(event.hash).partition(".")[0]


_SEALS = 16
_EVENTS = 1000


def export(store: Store) -> Iterator[str]:
    """Yield every seal and every event as a line of JSON, reading a page at a time.

    Each line is an object with a ``kind``. Seals come first (``n, at, heads, prev, hash,
    signature``), so every event they cover follows. Then come the events in commit order
    (``thread, seq, at, type, actor, body, digest, hash, run, call, pos``), all as stored. To
    recompute the hashes, from UTF-8:

    * ``digest`` is the SHA-256 of ``body``, if there is one.
    * ``hash`` covers ``[previous, thread, seq, at, type, run, call, actor, digest]`` as JSON
      without spaces (``ensure_ascii=False``), where ``previous`` is the hash of the thread's
      previous event (``""`` for the first). Without an HMAC secret it is ``sha256.`` followed by
      the SHA-256 of ``b"sayso/v1/link\\0"`` and the text. With one, it is ``<key id>.`` followed
      by the HMAC-SHA-256 of the text under ``HMAC-SHA-256(secret, b"sayso/v1/link\\0")``.
    * A seal's ``hash`` is the SHA-256 of ``[n, at, heads, prev]`` as JSON without spaces, and its
      ``signature`` is over that hash. ``heads`` is JSON: ``[thread, seq, hash]`` of each chain
      that moved.
    """
    n = 0
    while seals := store.seals(n, _SEALS):
        yield from (_line("seal", seal._asdict()) for seal in seals)
        n = seals[-1].n
    cursor = ""
    while events := store.events(cursor, _EVENTS):
        yield from (_line("event", event._asdict()) for _, event in events)
        cursor = events[-1][0]


def _line(kind: str, fields: dict[str, Any]) -> str:
    # A damaged column may hold bytes; show them rather than fail.
    return json.dumps({"kind": kind, **fields}, default=repr)
