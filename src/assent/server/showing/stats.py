"""Figures about deciding, from the requests themselves."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import timedelta

from assent.inbox.seeing import may_see
from assent.rows import Call
from assent.stores.base import Query, Store
from assent.text import inline
from assent.types import Json, Micros, Reviewer, moment
from assent.views import public_status

_DAY = 86_400_000_000
#: A page never waits for more than this many requests; the newest count.
_MOST = 20_000
_PAGE = 500
_DECIDED = ("approved", "edited", "rejected", "responded")
_HASTY = 3.0
_STEPS = ((3, "< 3 s"), (10, "3-10 s"), (60, "10-60 s"), (600, "1-10 min"), (3600, "10-60 min"))
_LAST = "> 1 h"


def stats(store: Store, by: Reviewer, days: int) -> dict[str, Json]:
    """Everything that the insights page draws, over the last days: of what this person may see."""
    now = store.now()
    since = now - days * _DAY
    calls = [call for call in _since(store, since) if may_see(by, call)]
    decided = [call for call in calls if _seconds(call) is not None]
    return {
        "days": days,
        "open": _open(store, by, now),
        "decided": _figures(decided)
        | {"expired": sum(public_status(call) == "expired" for call in calls)},
        "per_day": _per_day(calls, now, days),
        "tools": _tools(calls),
        "reviewers": _reviewers(decided),
        "histogram": _histogram(decided),
    }


def _since(store: Store, since: Micros) -> Iterator[Call]:
    """Requests opened since then, the newest first."""
    after: int | None = None
    for _ in range(_MOST // _PAGE):
        page = store.page(Query(status="any", sort="newest", after=after, limit=_PAGE))
        for _, call in page:
            if call.created < since:
                return
            yield call
        if len(page) < _PAGE:
            return
        after = page[-1][0]


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
    total, after, oldest = 0, None, None
    for _ in range(_MOST // _PAGE):
        page = store.page(Query(status="pending", after=after, limit=_PAGE))
        for _, call in page:
            if may_see(by, call):
                total += 1
                oldest = oldest or call.created
                counts[_step((now - call.created) / 1_000_000, steps, "> 1 day")] += 1
        if len(page) < _PAGE:
            break
        after = page[-1][0]
    labels = [label for _, label in steps] + ["> 1 day"]
    return {
        "count": total,
        "oldest_at": None if oldest is None else moment(oldest).isoformat(),
        "by_age": [{"label": label, "count": counts[label]} for label in labels],
    }


def _per_day(calls: list[Call], now: Micros, days: int) -> list[dict[str, Json]]:
    asked: Counter[str] = Counter()
    decided: Counter[str] = Counter()
    expired: Counter[str] = Counter()
    for call in calls:
        asked[f"{moment(call.created):%Y-%m-%d}"] += 1
        if call.decision is not None and _seconds(call) is not None:
            decided[f"{moment(call.decision.at):%Y-%m-%d}"] += 1
        elif public_status(call) == "expired" and call.expires_at is not None:
            expired[f"{moment(call.expires_at):%Y-%m-%d}"] += 1
    last = moment(now)
    names = [f"{last - timedelta(days=back):%Y-%m-%d}" for back in range(days - 1, -1, -1)]
    return [
        {"day": day, "asked": asked[day], "decided": decided[day], "expired": expired[day]}
        for day in names
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
