"""The record as JSON Lines, for others to keep and to check.

Each line is an object with a ``kind``: first the seals (``n, at, heads, prev, hash, signature``),
then the events in the order of their commits (``thread, seq, at, type, actor, body, digest, hash,
run, call, pos``), all as they are stored. Seals come first, so that every event which they cover
follows. To compute them again, from UTF-8:

* ``digest`` is the SHA-256 of ``body``, where there is one;
* ``hash`` covers the text ``json.dumps([previous, thread, seq, at, type, run, call, actor, digest],
  ensure_ascii=False)`` in Python's spacing, where ``previous`` is the hash of the thread's event
  before (``""`` at the first): ``sha256.`` and the SHA-256 of ``b"sayso/v1/link\\0"`` and the
  text, or, with an HMAC secret, ``<key id>.`` and the HMAC-SHA-256 of the text under
  ``HMAC-SHA-256(secret, b"sayso/v1/link\\0")``;
* a seal's ``hash`` is the SHA-256 of ``[n, at, heads, prev]`` as JSON without spaces, its
  ``signature`` is over that hash, and ``heads`` is itself JSON: ``[thread, seq, hash]`` of each
  chain that had moved.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from sayso.stores.base import StoreReads

_SEALS = 16
_EVENTS = 1000


def export(store: StoreReads) -> Iterator[str]:
    """Every seal and every event, a line each, without holding more than a page of them."""
    n = 0
    while seals := store.seals(n, _SEALS):
        yield from (_line("seal", asdict(seal)) for seal in seals)
        n = seals[-1].n
    cursor = ""
    while events := store.events(cursor, _EVENTS):
        yield from (_line("event", event._asdict()) for _, event in events)
        cursor = events[-1][0]


def _line(kind: str, fields: dict[str, Any]) -> str:
    # A damaged column may hold bytes; it is written so that it can be seen.
    return json.dumps({"kind": kind, **fields}, default=repr)
