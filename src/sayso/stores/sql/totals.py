"""The statistics of requests, kept as running totals.

A page of statistics wants to know how often something happened in each of some days, in the time
zone of the reader, and over all of them. Counting requests would take longer with each of them, so
the totals are kept:

- A request has a *history*: it was asked, and then decided by a person, or it expired. Times are in
  slots of 15 minutes, because every time zone's day begins with one.
- *Series* count together what happened: ``listing.facts_of`` says in which of them a request is
  counted, by tool, and by person and the seconds taken.
- *Totals* are how often it happened up to the end of a slot. A period of any length is the
  difference of two rows, whatever happened in it.
- *Changes* are the requests that are not counted as they are now. A trigger notes what was counted
  of a request when it changes first. Readers count the few changes themselves, and a seal adds
  them to the totals: so writers neither wait for each other nor update totals.

So a total is what the requests add up to, and the audit can compare them. Requests that were pruned
stay counted, and the record says what of them: the note about the pruning has their histories.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from typing import Any

from sayso import codec
from sayso.errors import Tampered
from sayso.stores.base import DecisionTime, History, OpenAges, Tallies, Tally, Viewer
from sayso.stores.listing import OPEN, SLOT, Series, facts_of, history_of, number_of, sees_group
from sayso.stores.row_checks import DAMAGE, UNREADABLE
from sayso.stores.sql.statements import Dialect, Execute, Rows
from sayso.types import Micros

#: About how many requests one seal adds to the totals; other writers wait for it.
_MOST_CHANGES = 2000
_CHANGED = (
    "SELECT request_change.call, call.thread FROM request_change "
    f"JOIN call ON call.id = request_change.call LIMIT {_MOST_CHANGES}"
)
_LOCKED = "SELECT id FROM thread WHERE id IN ({})"
#: The arguments of ``listing.history_of``.
_HISTORY = (
    "g.kind, g.tool, g.reviewers, call.list_status, call.created, call.decided_at, "
    "call.decided_by, call.expires_at"
)
_GROUP = "LEFT JOIN request_group AS g ON g.id = call.request_group"
_CHANGES = (
    f"SELECT request_change.call, counted, {_HISTORY} FROM request_change "
    f"JOIN call ON call.id = request_change.call {_GROUP} WHERE request_change.call IN ({{}})"
)
_COUNTED = "DELETE FROM request_change WHERE call IN ({})"
_OF_RUNS = f"SELECT call.id, {_HISTORY} FROM call {_GROUP} WHERE call.run IN ({{}})"
_ADD_SERIES = (
    "INSERT INTO request_series (id, what, kind, tool, reviewers, person, took) "
    "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING"
)
_BEGIN_SLOT = (
    "INSERT INTO request_total (series, slot, total) VALUES (?, ?, coalesce((SELECT total "
    "FROM request_total WHERE series = ? AND slot < ? ORDER BY slot DESC LIMIT 1), 0)) "
    "ON CONFLICT (series, slot) DO NOTHING"
)
_ADD = "UPDATE request_total SET total = total + ? WHERE series = ? AND slot >= ?"


def count_changes(execute: Execute, dialect: Dialect) -> None:
    """Add changes to the totals, inside the transaction of a seal; one process makes it.

    Locks the threads of the requests, as everything that changes a request does.
    """
    changed = execute(_CHANGED, ()).fetchall()
    if not changed:
        return
    threads = codec.dumps(sorted({thread for _, thread in changed}))
    locked = execute(_LOCKED.format(dialect.strings) + dialect.lock_free, (threads,)).fetchall()
    names = {row[0] for row in locked}
    count_calls(execute, dialect, [call for call, thread in changed if thread in names])


def count_calls(execute: Execute, dialect: Dialect, calls: Sequence[str]) -> None:
    """Add the changes of some calls, whose threads are locked, to the totals."""
    found = execute(_CHANGES.format(dialect.strings), (codec.dumps(list(calls)),)).fetchall()
    counted: list[str] = []
    histories: Counter[History | None] = Counter()
    for call, before, *now in found:
        try:
            old, new = _counted(before), _history(now)
        except Tampered:
            continue  # the audit reports it
        counted.append(call)
        histories[new] += 1
        histories[old] -= 1
    facts: Counter[tuple[Series, int]] = Counter()
    for history, many in histories.items():
        for fact in [] if history is None else facts_of(history):
            facts[fact] += many
    for series in sorted({series for (series, _), many in facts.items() if many}):
        execute(_ADD_SERIES, (_id_of(series), *series))
    for (series, slot), many in sorted(facts.items()):
        if many:
            number = _id_of(series)
            execute(_BEGIN_SLOT, (number, slot, number, slot))
            execute(_ADD, (many, number, slot))
    execute(_COUNTED.format(dialect.strings), (codec.dumps(counted),))


def count_pruned(execute: Execute, dialect: Dialect, runs: Sequence[str]) -> Counter[History]:
    """Count the requests of runs that are about to be pruned. Return what is counted of them."""
    rows = execute(_OF_RUNS.format(dialect.strings), (codec.dumps(list(runs)),)).fetchall()
    count_calls(execute, dialect, [row[0] for row in rows])
    found: Counter[History] = Counter()
    for _, *row in rows:
        try:
            history = _history(row)
        except Tampered:
            continue
        if history is not None:
            found[history] += 1
    return found


def _history(row: Sequence[Any]) -> History | None:
    return _checked(lambda: history_of(*row))


def _counted(text: str) -> History | None:
    """Return the history that the totals have counted of a request."""
    return _checked(lambda: History(*json.loads(text)) if text else None)


def _checked(read: Callable[[], History | None]) -> History | None:
    """Return what ``read`` returns. Raise ``Tampered`` if it is not the history of a request."""
    try:
        history = read()
        if history is not None:
            if tuple(map(type, history)) != (str, str, str, int, str, int, str, int):
                raise TypeError(f"{history} is not the history of a request")
            _names(history.reviewers)
            json.dumps(history, ensure_ascii=False).encode()  # text that can be stored
    except DAMAGE as error:
        raise Tampered(
            f"the statistics were changed in the database: {UNREADABLE}. Run `sayso audit verify` "
            "to see which, and restore them from a backup"
        ) from error
    return history


@lru_cache(maxsize=4096)
def _names(reviewers: str) -> tuple[str, ...]:
    return tuple(json.loads(reviewers))


@lru_cache(maxsize=4096)
def _id_of(series: Series) -> int:
    return number_of(series)


# -- reading

_END = 1 << 62


def _before(slot: str) -> str:
    """Return the total of the series ``s`` up to a slot, as SQL."""
    return (
        f"coalesce((SELECT total FROM request_total WHERE series = s.id AND slot < {slot} "
        "ORDER BY slot DESC LIMIT 1), 0)"
    )


def seen_by(dialect: Dialect, viewer: Viewer) -> tuple[str, list[str]]:
    """Match the reviewers of requests that a viewer sees as a group."""
    if viewer.names is None:
        return "1 = 1", []
    names = sorted(viewer.names)
    named = " OR ".join([f"? IN ({dialect.reviewers})"] * len(names))
    return (f"({named})" if viewer.only_theirs else f"(reviewers = '[]' OR {named})"), names


def tallies(rows: Rows, dialect: Dialect, viewer: Viewer, since: Sequence[Micros]) -> Tallies:
    """Return the totals at the edges of the periods, and the changes since they were updated.

    One statement reads both, or a change could be counted twice.
    """
    slots = [at // SLOT for at in since]
    seen, names = seen_by(dialect, viewer)
    edges = ", ".join(f"({slot:d})" for slot in (*slots, _END))
    before, over_all = _before("edge"), f"{_before(f'{_END}')} - {_before(f'{slots[0]:d}')}"
    statement = (
        f"WITH edges (edge) AS (VALUES {edges}), s AS (SELECT * FROM request_series WHERE {seen}) "
        "SELECT 1, what, kind, tool, '', '', '', edge, "
        f"CAST(sum({before}) AS BIGINT), 0 FROM s CROSS JOIN edges WHERE took < 0 "
        "GROUP BY what, kind, tool, edge "
        "UNION ALL SELECT 2, what, person, '', '', '', '', took, "
        f"CAST(sum({over_all}) AS BIGINT), 0 FROM s WHERE took >= 0 GROUP BY what, person, took "
        "UNION ALL SELECT 3, counted, g.kind, g.tool, g.reviewers, list_status, decided_by, "
        "created, decided_at, expires_at FROM request_change "
        f"LEFT JOIN call ON call.id = request_change.call {_GROUP}"
    )
    found = _Counts(viewer, slots)
    for part, text, *texts, first, second, third in rows(statement, names):
        if part == 1:
            found.by_tool[text, texts[0], texts[1]][first] += second
        elif part == 2:
            found.times[DecisionTime(texts[0], text == "for", first)] += second
        else:
            kind, tool, reviewers, status, by = texts
            if status is not None:
                now = (kind, tool, reviewers, status, first, second, by, third)
                found.add(_history(now), 1)
            found.add(_counted(text), -1)
    return found.tallies()


class _Counts:
    """What a viewer sees, up to each edge of the periods."""

    def __init__(self, viewer: Viewer, slots: list[int]) -> None:
        self._viewer = viewer
        self._slots = slots
        self.by_tool: defaultdict[tuple[str, str, str], Counter[int]] = defaultdict(Counter)
        self.times: Counter[DecisionTime] = Counter()

    def add(self, history: History | None, many: int) -> None:
        if history is None or not sees_group(self._viewer, _names(history.reviewers)):
            return
        for series, slot in facts_of(history):
            if slot < self._slots[0]:
                continue
            if series.took >= 0:
                time = DecisionTime(series.person, series.what == "for", series.took)
                self.times[time] += many
            else:
                counts = self.by_tool[series.what, series.kind, series.tool]
                for edge in (*self._slots[bisect_right(self._slots, slot) :], _END):
                    counts[edge] += many

    def tallies(self) -> Tallies:
        edges = list(pairwise((*self._slots, _END)))
        found = [
            Tally(*key, tuple(counts[end] - counts[start] for start, end in edges))
            for key, counts in sorted(self.by_tool.items())
        ]
        return Tallies(
            [tally for tally in found if any(tally.counts)],
            {time: many for time, many in self.times.items() if many},
        )


def open_ages(rows: Rows, dialect: Dialect, viewer: Viewer, since: Sequence[Micros]) -> OpenAges:
    """Count the open requests of each group that a viewer sees, by age."""
    seen, names = seen_by(dialect, viewer)
    open_ = ", ".join(repr(name) for name in OPEN)
    here = (
        "FROM call WHERE call.request_group = counted.request_group "
        f"AND call.list_status = counted.list_status AND list_status IN ({open_})"
    )
    first, *others = (
        f"(SELECT count(*) {here} AND created >= {start:d} AND created < {end:d})"
        for start, end in pairwise((*since, _END))
    )
    # If none of a group is older, those of the first period are all but the newer ones.
    columns = ", ".join([f"CASE WHEN oldest < {since[0]:d} THEN {first} END", *others])
    statement = (
        f"SELECT many, oldest, {columns} FROM (SELECT request_group, list_status, many, "
        f"(SELECT min(created) {here}) AS oldest FROM (SELECT request_group, list_status, "
        "sum(many) AS many FROM open_count GROUP BY request_group, list_status "
        "HAVING sum(many) > 0) AS counted WHERE request_group IN "
        f"(SELECT id FROM request_group WHERE {seen})) AS counted"
    )
    total, oldest, newer = 0, list[Micros](), [0] * len(since)
    for many, created, in_first, *in_others in rows(statement, names):
        total += int(many)
        oldest += [] if created is None else [created]
        counts = [int(many) - sum(in_others) if in_first is None else in_first, *in_others]
        newer = [sum(pair) for pair in zip(newer, counts, strict=True)]
    return OpenAges(total, min(oldest, default=None), tuple(newer))


# -- the audit

_PAGE = 10_000
_REQUESTS = (
    f"SELECT call.n, c.counted, {_HISTORY} FROM call {_GROUP} "
    "LEFT JOIN request_change AS c ON c.call = call.id "
    f"WHERE call.n > ? AND call.list_status <> '' ORDER BY call.n LIMIT {_PAGE}"
)
_UNOWNED = (
    "SELECT counted FROM request_change WHERE counted <> '' "
    "AND NOT EXISTS (SELECT 1 FROM call WHERE id = request_change.call AND list_status <> '')"
)
_SERIES = "SELECT id, what, kind, tool, reviewers, person, took FROM request_series"
_TOTALS = (
    "SELECT series, slot, total FROM request_total WHERE (series, slot) > (?, ?) "
    f"ORDER BY series, slot LIMIT {_PAGE}"
)


def wrong_totals(rows: Rows, pruned: Mapping[History, int]) -> int:
    """Return how many series are not what the requests that are left and the pruned ones add up to.

    Raises ``Tampered`` if a request or a change cannot be read.
    """
    missing: Counter[tuple[int, int]] = Counter()
    kept = ((history, 1) for history in _counted_histories(rows))
    for history, many in chain(pruned.items(), kept):
        for series, slot in facts_of(history):
            missing[_id_of(series), slot] += many
    # An id that is no hash of its series may have been exchanged with another.
    known = {number: Series(*series) for number, *series in rows(_SERIES, ())}
    wrong = {number for number, series in known.items() if _id_of(series) != number}
    last, before = (-1 << 63, -1 << 63), 0
    while page := rows(_TOTALS, last):
        for number, slot, total in page:
            before = before if number == last[0] else 0
            missing[number, slot] -= total - before
            last, before = (number, slot), total
            if number not in known:
                wrong.add(number)
    return len(wrong | {number for (number, _), many in missing.items() if many})


def _counted_histories(rows: Rows) -> Iterator[History]:
    """Yield what the totals must have counted of each request that is left."""
    last = -1 << 63
    while page := rows(_REQUESTS, (last,)):
        for _, before, *now in page:
            history = _history(now) if before is None else _counted(before)
            if history is not None:
                yield history
        last = page[-1][0]
    for (text,) in rows(_UNOWNED, ()):
        history = _counted(text)
        if history is not None:
            yield history
