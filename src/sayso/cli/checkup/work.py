"""What waits in a store, and whether anybody is there to take it further."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from sayso import codec
from sayso.channels.layout import name
from sayso.cli.checkup.check import Check, Rows, span
from sayso.stores.base import Query, Store
from sayso.text import many
from sayso.types import Micros

_MOST = 10_000
_NAMED = 5
#: A worker looks every five seconds; what waits for longer than this waits for nobody.
_GRACE = 60.0

# What a person or the clock has settled, and no process has taken since. An agent of ours has a
# digest; other runs are taken further by the code that asked, whenever that comes back.
_DUE = (
    "SELECT agent, agent_digest <> '', count(*), min(ready_at) FROM run "
    "WHERE ready_at <= ? AND owner IS NULL GROUP BY 1, 2 ORDER BY 4"
)
# In these words the index of what waits is found, on either database.
_EXPIRED = (
    "SELECT count(*), min(expires_at) FROM call "
    "WHERE list_status IN ('asked', 'in_doubt') AND list_status = 'asked' "
    "AND coalesce(expires_at, 4611686018427387904) <= ?"
)
# Whatever is due or leased now; the oldest have been waiting for longest.
_TAKEN_UP = "SELECT id, thread, agent FROM run WHERE ready_at IS NOT NULL ORDER BY ready_at LIMIT ?"
_LAST_EVENTS = (
    "SELECT type, body FROM event WHERE thread = ? AND run = ? ORDER BY seq DESC LIMIT 100"
)
_MOST_RUNS = 1000
_UNSEALED = "SELECT coalesce(sum(seq - sealed), 0) FROM thread WHERE seq > sealed"
_FIRST_UNSEALED = (
    "SELECT min(e.at) FROM thread t JOIN event e ON e.thread = t.id AND e.seq = t.sealed + 1 "
    "WHERE t.seq > t.sealed"
)
#: A seal is made with the first commit after a minute; later than this, nobody makes any.
_SEAL_GRACE = 600.0
_LAPSED = "SELECT count(*), min(ready_at) FROM run WHERE ready_at <= ? AND owner IS NOT NULL"


def waiting(store: Store, rows: Rows) -> Iterator[Check]:
    """How much waits for people."""
    yield Check("waiting", "note", f"{_count(store, None, 'request')} pending")
    doubts = _count(store, "in_doubt", "call")
    state: Literal["note", "wrong"] = "note" if doubts.startswith("0 ") else "wrong"
    yield Check("in doubt", state, f"{doubts}: see `sayso inbox --kind in_doubt`")


def _count(store: Store, kind: str | None, noun: str) -> str:
    """How many wait; counted up to a limit, because a page is cheap and a count is not."""
    count, after = 0, None
    while count < _MOST:
        page = store.page(Query(kind=kind, after=after, limit=500))
        count += len(page)
        if len(page) < 500:
            return many(count, noun)
        after = page[-1][0]
    return f"{count:,} {noun}s or more"


def overdue(store: Store, rows: Rows) -> Iterator[Check]:
    """Ends and leases that have passed, and that nobody has closed."""
    now = store.now()
    ((expired, first),) = rows(_EXPIRED, (now,))
    ((lapsed, oldest),) = rows(_LAPSED, (now,))
    seconds = _late(now, *[at for at in (first, oldest) if at is not None])
    words = f"{many(expired, 'request')} and {many(lapsed, 'lease')} past their end"
    if seconds > _GRACE:
        words += f", for {span(seconds)}: start `sayso serve` or `sayso worker`, which close them"
        yield Check("overdue", "wrong", f"{words}; `sayso inbox` does it once")
    else:
        yield Check("overdue", "note", words)


def due(store: Store, rows: Rows) -> Iterator[Check]:
    """Runs that could go on, and nobody takes them further."""
    now = store.now()
    late = [row for row in rows(_DUE, (now,)) if _late(now, row[3]) > _GRACE]
    for agent, _, count, since in [row for row in late if row[1]][:_NAMED]:
        words = (
            f"{many(count, 'run')} of {name(agent)} could go on for {span(_late(now, since))}, "
            "and no worker does it: start `sayso worker` with that agent, or see its log"
        )
        yield Check("due", "wrong", words)
    others = [row for row in late if not row[1]]
    if others:
        count = sum(row[2] for row in others)
        whose = ", ".join(name(row[0]) for row in others[:_NAMED])
        whose += ", …" * (len(others) > _NAMED)
        words = f"decided, until the code that asked comes back: {many(count, 'run')} of {whose}"
        yield Check("due", "note", words)
    if not late:
        yield Check("due", "ok", "no run waits for a worker")


def broken(store: Store, rows: Rows) -> Iterator[Check]:
    """Runs that a worker takes up again and again, and that break each time."""
    found = [_last_failure(rows, *row) for row in rows(_TAKEN_UP, (_MOST_RUNS,))]
    failures = [failure for failure in found if failure is not None]
    for run, agent, body in failures[:_NAMED]:
        words = f"run {name(run)} of {name(agent)} has failed {body['times']} times or more"
        yield Check("broken", "wrong", f"{words}: {body['error']}")
    if len(failures) > _NAMED:
        yield Check("broken", "wrong", f"and {many(len(failures) - _NAMED, 'other run')}")
    if not failures:
        yield Check("broken", "ok", "no run fails each time that a worker takes it up")


def _last_failure(
    rows: Rows, run: str, thread: str, agent: str
) -> tuple[str, str, dict[str, Any]] | None:
    """What a worker left word of, if the run has not moved since."""
    for type, body in rows(_LAST_EVENTS, (thread, run)):
        if type == "broke" and body is not None:
            return run, agent, codec.loads(body)
        if type not in ("claimed", "released", "woken"):
            return None
    return None


def _late(now: Micros, *times: Micros) -> float:
    return (now - min(times)) / 1_000_000 if times else 0.0


def sealed(store: Store, rows: Rows) -> Iterator[Check]:
    """How much of the record no seal protects yet."""
    ((unsealed,),) = rows(_UNSEALED, ())
    ((first,),) = rows(_FIRST_UNSEALED, ())
    late = 0.0 if first is None else _late(store.now(), first)
    words = f"{many(unsealed, 'event')} since the last seal"
    if late <= _SEAL_GRACE:
        yield Check("record", "note", f"{words}; `sayso audit verify` checks them all")
    elif store.keys.can_sign:
        words += f", the oldest {span(late)} ago: the next commit with this key seals them"
        yield Check("record", "note", words)
    else:
        words += (
            f", the oldest {span(late)} ago, and this key only verifies: start `sayso serve` with "
            "the private key, which seals them"
        )
        yield Check("record", "wrong", words)
