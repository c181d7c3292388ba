"""Sealing: the heads of the chains that moved, signed; one text for every SQL store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sayso import codec
from sayso.keys import Keyring
from sayso.rows import SYSTEM_THREAD
from sayso.stores import seals
from sayso.stores.seals import Seal, Unsealed, next_seal
from sayso.stores.sql.dialect import SQLITE, Dialect, Execute
from sayso.types import Micros

# The system thread first: a pruning counts, under plain links, once it is sealed.
_MOVED = (
    "SELECT id, seq, head FROM thread WHERE seq > sealed "
    f"ORDER BY id <> '{SYSTEM_THREAD}', id LIMIT ?"
)
_LAST = "SELECT n, at, heads, prev, hash, signature FROM seal ORDER BY n DESC LIMIT 1"
_ADD = "INSERT INTO seal (n, at, heads, prev, hash, signature) VALUES (?, ?, ?, ?, ?, ?)"
_REACH = "UPDATE thread SET sealed = seq WHERE id IN ({})"

# Each thread that moved has an unsealed event at least, so that a seal's worth of threads is enough
# to know that one is due, however many there are.
_UNSEALED = (
    "SELECT coalesce(sum(t.seq - t.sealed), 0), min(e.at), (SELECT max(pos) FROM event) "
    "FROM (SELECT id, seq, sealed FROM thread WHERE seq > sealed LIMIT ?) t "
    "LEFT JOIN event e ON e.thread = t.id AND e.seq = t.sealed + 1"
)


def find_unsealed(rows: Callable[[str, Sequence[Any]], list[Any]]) -> Unsealed:
    """Read what no seal covers."""
    ((count, oldest, pos),) = rows(_UNSEALED, (seals.SEAL_EVENTS,))
    return Unsealed(int(count), oldest, pos or 0)


def seal_moved(
    execute: Execute, keys: Keyring, at: Micros, dialect: Dialect = SQLITE
) -> Seal | None:
    """Seal chains that moved, up to ``MOST_HEADS``, inside the caller's transaction.

    A chain that another writer has locked is left for the next seal.
    """
    if not keys.can_sign:
        return None
    moved = execute(_MOVED + dialect.lock_free, (seals.MOST_HEADS,)).fetchall()
    if not moved:
        return None
    row = execute(_LAST, ()).fetchone()
    names = ("n", "at", "heads", "prev", "hash", "signature")
    last = None if row is None else Seal(**dict(zip(names, row, strict=True)))
    seal = next_seal(keys, last, [(row[0], row[1], row[2]) for row in moved], at)
    execute(_ADD, (seal.n, seal.at, seal.heads, seal.prev, seal.hash, seal.signature))
    # Inside this transaction nobody else moves them, so that ``seq`` is what was signed.
    execute(_REACH.format(dialect.strings), (codec.dumps([row[0] for row in moved]),))
    return seal
