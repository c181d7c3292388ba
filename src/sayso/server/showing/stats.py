"""Figures about deciding, from the requests themselves."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta, tzinfo

from sayso.inbox.people import may_see
from sayso.rows import Call
from sayso.stores.base import Query, Store
from sayso.text import inline
from sayso.types import Json, Micros, Reviewer, moment
from sayso.views import public_status

#: A page never waits for more than this many requests; the newest count.
_MOST = 20_000
_PAGE = 500
_DECIDED = ("approved", "edited", "rejected", "responded")
_HASTY = 3.0
_STEPS = ((3, "< 3 s"), (10, "3-10 s"), (60, "10-60 s"), (600, "1-10 min"), (3600, "10-60 min"))
_LAST = "> 1 h"


def stats(store: Store, by: Reviewer, days: int, zone: tzinfo = UTC) -> dict[str, Json]:
    """Everything that the insights page draws, over the last days where ``zone`` is: of what this
    person may see.

    ``since`` is where counting begins: later than the days do, if more was asked than is counted.
    """
    now = store.now()
    names = _days(now, days, zone)
    begins = datetime.fromisoformat(names[0]).replace(tzinfo=zone)
    seen, since = _since(store, begins)
    calls = [call for call in seen if may_see(by, call)]
    decided = [call for call in calls if _seconds(call) is not None]
    return {
        "days": days,
        "since": since.isoformat(),
        "whole": since == begins,
        "open": _open(store, by, now),
        "decided": _figures(decided)
        | {"expired": sum(public_status(call) == "expired" for call in calls)},
        "per_day": _per_day(calls, names, zone),
        "tools": _tools(calls),
        "reviewers": _reviewers(decided),
        "histogram": _histogram(decided),
    }


def _days(now: Micros, days: int, zone: tzinfo) -> list[str]:
    """The names of the last days there, the last of them today."""
    today = moment(now).astimezone(zone).date()
    return [f"{today - timedelta(days=back)}" for back in range(days - 1, -1, -1)]


def _since(store: Store, begins: datetime) -> tuple[list[Call], datetime]:
    """Requests opened since then, the newest first; and since when these are all."""
    found: list[Call] = []
    after: int | None = None
    while len(found) < _MOST:
        page = store.page(Query(status="any", sort="newest", after=after, limit=_PAGE))
        found += [call for _, call in page if moment(call.created) >= begins]
        if len(page) < _PAGE or moment(page[-1][1].created) < begins:
            return found, begins
        after = page[-1][0]
    return found, moment(found[-1].created)


def _seconds(call: Call) -> float | None:
    """How long a person took; nothing if no person decided."""
    decision = call.decision
    if decision is None or decision.channel == "policy":
        return None
    return max(decision.at - call.created, 0) / 1_000_000


def _figures(decided: list[Call]) -> dict[str, Json]:
    seconds = sorted(s for s in map(_seconds, decided) if s is not None)
    return {
        "count": len(seconds),
        "median_seconds": statistics.median(seconds) if seconds else None,
        "p95_seconds": seconds[min(int(len(seconds) * 0.95), len(seconds) - 1)]
        if seconds
        else None,
        "under_three_seconds": sum(_is_yes(c) and _seconds_or_0(c) < _HASTY for c in decided),
    }


def _open(store: Store, by: Reviewer, now: Micros) -> dict[str, Json]:
    steps = ((60, "< 1 min"), (600, "1-10 min"), (3600, "10-60 min"), (86_400, "1-24 h"))
    counts: Counter[str] = Counter()
    total, read, after, oldest, more = 0, 0, None, None, True
    while more and read < _MOST:
        page = store.page(Query(status="pending", after=after, limit=_PAGE))
        read += len(page)
        for _, call in page:
            if may_see(by, call):
                total += 1
                oldest = oldest or call.created
                counts[_step((now - call.created) / 1_000_000, steps, "> 1 day")] += 1
        more = len(page) == _PAGE
        after = page[-1][0] if more else None
    labels = [label for _, label in steps] + ["> 1 day"]
    return {
        "count": total,
        "more": more,
        "oldest_at": None if oldest is None else moment(oldest).isoformat(),
        "by_age": [{"label": label, "count": counts[label]} for label in labels],
    }


def _per_day(calls: list[Call], names: list[str], zone: tzinfo) -> list[dict[str, Json]]:
    def day(at: Micros) -> str:
        return f"{moment(at).astimezone(zone):%Y-%m-%d}"

    asked: Counter[str] = Counter()
    decided: Counter[str] = Counter()
    expired: Counter[str] = Counter()
    for call in calls:
        asked[day(call.created)] += 1
        if call.decision is not None and _seconds(call) is not None:
            decided[day(call.decision.at)] += 1
        elif public_status(call) == "expired" and call.expires_at is not None:
            expired[day(call.expires_at)] += 1
    return [
        {"day": name, "asked": asked[name], "decided": decided[name], "expired": expired[name]}
        for name in names
    ]


def _tools(calls: list[Call]) -> list[dict[str, Json]]:
    by_tool: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for call in calls:
        by_tool[call.tool or call.kind][public_status(call)] += 1
    rows = []
    for tool, counts in by_tool.items():
        ended = sum(counts[name] for name in _DECIDED)
        yes = counts["approved"] + counts["edited"]
        row = {name: counts[name] for name in (*_DECIDED, "expired")}
        rate = yes / ended if ended else None
        rows.append({"tool": inline(tool), "asked": counts.total(), **row, "rate": rate})
    return sorted(rows, key=lambda row: (-row["asked"], row["tool"]))


def _reviewers(decided: list[Call]) -> list[dict[str, Json]]:
    by_name: defaultdict[str, list[Call]] = defaultdict(list)
    for call in decided:
        assert call.decision is not None
        by_name[call.decision.by].append(call)
    rows = []
    for name, calls in by_name.items():
        figures = _figures(calls)
        rows.append(
            {
                "name": inline(name),
                "count": figures["count"],
                "median_seconds": figures["median_seconds"],
                "under_three": figures["under_three_seconds"],
            }
        )
    return sorted(rows, key=lambda row: (-row["count"], row["name"]))


def _histogram(decided: list[Call]) -> list[dict[str, Json]]:
    counts = Counter(_step(_seconds_or_0(call), _STEPS, _LAST) for call in decided)
    labels = [label for _, label in _STEPS] + [_LAST]
    return [{"label": label, "count": counts[label]} for label in labels]


def _step(seconds: float, steps: tuple[tuple[int, str], ...], last: str) -> str:
    return next((label for below, label in steps if seconds < below), last)


def _seconds_or_0(call: Call) -> float:
    return _seconds(call) or 0.0


def _is_yes(call: Call) -> bool:
    return public_status(call) in ("approved", "edited")
