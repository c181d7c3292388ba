"""What a store says about itself: the statistics of requests, and its vital figures.

Statistics are counted from the covering index ``call_list_status`` alone.

Counting takes longer with each request, so the server keeps slow answers for a minute
(``docs/decisions/0064``). What waits now is read from ``open_count``, at any size.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from math import gcd

from sayso.stores.base import (
    MOST_COUNTED,
    NEVER,
    Backlog,
    DecisionTime,
    OpenAges,
    Tallies,
    Tally,
    Viewer,
    Vitals,
)
from sayso.stores.listing import APPROVING, DECIDED, OPEN, SLOT, TOOK_STEPS
from sayso.stores.sql.maintenance import find_unsealed
from sayso.stores.sql.statements import Dialect, Rows
from sayso.types import Micros, iso

#: From opening a request, if the page said when; else from asking.
_SECONDS = "(decided_at - coalesce(opened_at, created)) / 1000000"
_STEPS = " ".join(
    f"WHEN {_SECONDS} < {end or NEVER} THEN {_SECONDS} / {step} * {step}"
    for end, step in TOOK_STEPS
)
_TOOK = f"CASE WHEN {_SECONDS} < 0 THEN 0 {_STEPS} END"
_EXPIRED_AT = "coalesce(expires_at, created)"
_IS_DECIDED = f"list_status IN ({', '.join(map(repr, DECIDED))}) AND decided_at >= ?"
_MANY = "count(*) FROM call WHERE list_status <> '' AND"
#: What happened, to which group and in which step of time, and how often.
_MOMENTS = (
    f"SELECT 'asked', request_group, (created - ?) / ?, {_MANY} created >= ? GROUP BY 1, 2, 3 "
    f"UNION ALL SELECT list_status, request_group, (decided_at - ?) / ?, {_MANY} {_IS_DECIDED} "
    f"GROUP BY 1, 2, 3 UNION ALL SELECT list_status, request_group, ({_EXPIRED_AT} - ?) / ?, "
    f"{_MANY} list_status = 'expired' AND {_EXPIRED_AT} >= ? GROUP BY 1, 2, 3"
)
_TIMES = (
    f"SELECT list_status, request_group, coalesce(decided_by, ''), {_TOOK}, {_MANY} {_IS_DECIDED} "
    "GROUP BY 1, 2, 3, 4"
)

# Each is a short walk along a partial index, and none reads more than ``MOST_COUNTED`` rows.
_OLDEST = " UNION ALL ".join(
    f"SELECT * FROM (SELECT created FROM call WHERE list_status = '{status}' ORDER BY n LIMIT 1) "
    f"AS first_{status}"
    for status in OPEN
)
# Runs of a ``sayso.Agent`` have an agent digest. The others are resumed by the code that asked.
_DUE = (
    "SELECT count(*), min(ready_at) FROM (SELECT agent_digest, ready_at FROM run "
    f"WHERE ready_at <= ? AND owner IS NULL ORDER BY ready_at LIMIT {MOST_COUNTED}) AS due "
    "WHERE agent_digest <> ''"
)
_OVERDUE = (
    "SELECT count(*), min(expires_at) FROM (SELECT list_status, expires_at FROM call "
    f"WHERE list_status IN ('asked', 'in_doubt') AND coalesce(expires_at, {NEVER}) <= ? "
    f"ORDER BY coalesce(expires_at, {NEVER}) LIMIT {MOST_COUNTED}) AS overdue "
    "WHERE list_status = 'asked'"
)
_BACKLOGS = (
    "SELECT channel, sum(failing), count(due_at), min(due_at) FROM (SELECT channel, "
    "CASE WHEN error <> '' THEN 1 ELSE 0 END AS failing, "
    "CASE WHEN next_at <= ? AND state <> 'seen' THEN next_at END AS due_at "
    f"FROM delivery WHERE next_at IS NOT NULL LIMIT {MOST_COUNTED}) AS waiting GROUP BY channel"
)


def seen_by(dialect: Dialect, viewer: Viewer) -> tuple[str, list[str]]:
    """Match the reviewers of requests that a viewer sees as a group."""
    if viewer.names is None:
        return "1 = 1", []
    names = sorted(viewer.names)
    reviewer_match = " OR ".join([f"? IN ({dialect.reviewers})"] * len(names))
    return (
        f"({reviewer_match})" if viewer.only_theirs else f"(reviewers = '[]' OR {reviewer_match})"
    ), names


def tallies(rows: Rows, dialect: Dialect, viewer: Viewer, since: Sequence[Micros]) -> Tallies:
    """Count what happened to the requests that a viewer sees."""
    visible_groups, names = seen_by(dialect, viewer)
    visible = rows(f"SELECT id, kind, tool FROM request_group WHERE {visible_groups}", names)
    _ = "".join(text for row in visible for text in row[1:])  # raises if one is no text
    groups = {number: (kind, tool) for number, kind, tool in visible}
    starts = [at // SLOT * SLOT for at in since]
    start = starts[0]
    step = gcd(*[at - start for at in starts]) or NEVER
    counts: defaultdict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0] * len(starts))
    for what, group, steps, many in rows(_MOMENTS, (start, step, start) * 3):
        if group in groups:
            period = bisect_right(starts, start + steps * step) - 1
            counts[(what, *groups[group])][period] += many
    times: Counter[DecisionTime] = Counter()
    for what, group, person, seconds, many in rows(_TIMES, (start,)):
        if group in groups:
            times[DecisionTime(person, what in APPROVING, seconds)] += many
    return Tallies([Tally(*key, tuple(each)) for key, each in sorted(counts.items())], dict(times))


def open_ages(rows: Rows, dialect: Dialect, viewer: Viewer, since: Sequence[Micros]) -> OpenAges:
    """Count the open requests of each group that a viewer sees, by age."""
    visible_groups, names = seen_by(dialect, viewer)
    open_ = ", ".join(repr(name) for name in OPEN)
    open_calls = (
        "FROM call WHERE call.request_group = counted.request_group "
        f"AND call.list_status = counted.list_status AND list_status IN ({open_})"
    )
    first, *others = (
        f"(SELECT count(*) {open_calls} AND created >= {start:d} AND created < {end:d})"
        for start, end in pairwise((*since, NEVER))
    )
    # If none of a group is older, those of the first period are all but the newer ones.
    columns = ", ".join([f"CASE WHEN oldest < {since[0]:d} THEN {first} END", *others])
    statement = (
        f"SELECT many, oldest, {columns} FROM (SELECT request_group, list_status, many, "
        f"(SELECT min(created) {open_calls}) AS oldest FROM (SELECT request_group, list_status, "
        "sum(many) AS many FROM open_count GROUP BY request_group, list_status "
        "HAVING sum(many) > 0) AS counted WHERE request_group IN "
        f"(SELECT id FROM request_group WHERE {visible_groups})) AS counted"
    )
    total = 0
    oldest = list[Micros]()
    newer = [0] * len(since)
    for many, created, in_first, *in_others in rows(statement, names):
        total += int(many)
        oldest += [] if iso(created) is None else [created]  # raises if it is no time
        counts = [int(many) - sum(in_others) if in_first is None else in_first, *in_others]
        newer = [sum(pair) for pair in zip(newer, counts, strict=True)]
    return OpenAges(total, min(oldest, default=None), tuple(newer))


def vitals(rows: Rows, now: Micros) -> Vitals:
    """Read what says whether someone works on what a store holds."""
    oldest = [created for (created,) in rows(_OLDEST, ())]
    ((runs_due, runs_due_since),) = rows(_DUE, (now,))
    ((overdue, overdue_since),) = rows(_OVERDUE, (now,))
    unsealed = find_unsealed(rows)
    return Vitals(
        oldest_request=min(oldest, default=None),
        runs_due=runs_due,
        runs_due_since=runs_due_since,
        overdue=overdue,
        overdue_since=overdue_since,
        unsealed=unsealed.events,
        unsealed_since=unsealed.oldest,
        backlogs={row[0]: Backlog(int(row[1]), *row[2:]) for row in rows(_BACKLOGS, (now,))},
    )
