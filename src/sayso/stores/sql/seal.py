"""Sealing: the heads of the chains that moved, signed; one text for every SQL store."""

from __future__ import annotations

from collections.abc import Sequence

from sayso.keys import Keyring
from sayso.stores.base import Seal, next_seal
from sayso.stores.sql.dialect import SQLITE, Dialect, Execute
from sayso.types import Micros

#: How many threads one seal holds; more than these get another seal at once.
MOST_HEADS = 10_000

_MOVED = "SELECT id, seq, head FROM thread WHERE seq > sealed ORDER BY id LIMIT ?"
_LAST = "SELECT n, at, heads, prev, hash, signature FROM seal ORDER BY n DESC LIMIT 1"
_ADD = "INSERT INTO seal (n, at, heads, prev, hash, signature) VALUES (?, ?, ?, ?, ?, ?)"
_REACH = "UPDATE thread SET sealed = ? WHERE id = ?"


def seal_moved(
    execute: Execute, keys: Keyring, at: Micros, dialect: Dialect = SQLITE
) -> Seal | None:
    """Seal every chain that moved, inside the caller's transaction; gives the newest seal.

    What another writer has locked moves just now, and is sealed the next time.
    """
    newest: Seal | None = None
    moved = _MOVED + dialect.lock_free
    while keys.can_sign and (heads := execute(moved, (MOST_HEADS,)).fetchall()):
        newest = _seal(execute, keys, [(row[0], row[1], row[2]) for row in heads], at)
    return newest


def _seal(
    execute: Execute, keys: Keyring, heads: Sequence[tuple[str, int, str]], at: Micros
) -> Seal:
    row = execute(_LAST, ()).fetchone()
    names = ("n", "at", "heads", "prev", "hash", "signature")
    last = None if row is None else Seal(**dict(zip(names, row, strict=True)))
    seal = next_seal(keys, last, heads, at)
    execute(_ADD, (seal.n, seal.at, seal.heads, seal.prev, seal.hash, seal.signature))
    for thread, seq, _ in heads:
        execute(_REACH, (seq, thread))
    return seal
