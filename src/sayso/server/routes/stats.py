"""Statistics about decisions: volumes, times to decide, approval rates."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fastapi import APIRouter, Request
from fastapi import Query as QueryParameter

from sayso.errors import InvalidCall
from sayso.inbox.people import may_see
from sayso.rows import Call
from sayso.server.auth import CurrentReviewer
from sayso.server.openapi import errors
from sayso.server.responses import JsonResponse
from sayso.server.schemas import StatsView
from sayso.server.service import service_of
from sayso.stores.base import Query, Store
from sayso.sync import to_thread
from sayso.text import inline
from sayso.types import Json, Micros, Reviewer, moment
from sayso.views import public_status

router = APIRouter(prefix="/api", tags=["record"])

#: Count at most this many requests, the newest ones, so that no page waits for the others.
_MAX_REQUESTS = 20_000
_PAGE = 500
_DECIDED = ("approved", "edited", "rejected", "responded")
#: An approval in fewer seconds was hardly read.
_HASTY = 3.0
_Buckets = tuple[tuple[int, str], ...]
_DECISION_TIMES: _Buckets = (
    *((3, "< 3 s"), (10, "3-10 s"), (60, "10-60 s"), (600, "1-10 min"), (3600, "10-60 min")),
)
_AGES: _Buckets = ((60, "< 1 min"), (600, "1-10 min"), (3600, "10-60 min"), (86_400, "1-24 h"))


@router.get(
    "/stats",
    summary="Get decision statistics",
    response_model=StatsView,
    responses=errors(401, 403, 422),
)
async def get_stats(
    request: Request,
    who: CurrentReviewer,
    days: Annotated[int, QueryParameter(ge=1, le=366, description="how many days back")] = 7,
    zone: Annotated[
        str, QueryParameter(max_length=64, description="the time zone of days: Europe/Lisbon")
    ] = "UTC",
) -> JsonResponse:
    """Return times to decision, volumes, approval rates, and approvals in under three seconds."""
    try:
        where = UTC if zone == "UTC" else ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidCall(f"unknown time zone {zone!r:.40}", "zone") from None
    return JsonResponse(
        await to_thread(stats, service_of(request).store, who.reviewer, days, where)
    )


def stats(store: Store, by: Reviewer, days: int, zone: tzinfo = UTC) -> dict[str, Json]:
    """Return the statistics of the last days, over the requests that this person may see.

    ``since`` is where counting begins. It is later than the first day if there were too many
    requests to count; ``whole`` is then false.
    """
    now = store.now()
    today = moment(now).astimezone(zone).date()
    names = [f"{today - timedelta(days=back)}" for back in range(days - 1, -1, -1)]
    begins = datetime.fromisoformat(names[0]).replace(tzinfo=zone)
    found, since = _requests_since(store, begins)
    calls = [call for call in found if may_see(by, call)]
    decided = [call for call in calls if _seconds(call) is not None]
    return {
        "days": days,
        "since": since.isoformat(),
        "whole": since == begins,
        "open": _open(store, by, now),
        "decided": _times(decided)
        | {"expired": sum(public_status(call) == "expired" for call in calls)},
        "per_day": _per_day(calls, names, zone),
        "tools": _by_tool(calls),
        "reviewers": _by_reviewer(decided),
        "histogram": _histogram(
            [_seconds(call) or 0.0 for call in decided], _DECISION_TIMES, "> 1 h"
        ),
    }


def _requests_since(store: Store, begins: datetime) -> tuple[list[Call], datetime]:
    """Return requests opened since then, newest first, and the time since which they are all."""
    found: list[Call] = []
    after: int | None = None
    while len(found) < _MAX_REQUESTS:
        page = store.page(Query(status="any", sort="newest", after=after, limit=_PAGE))
        found += [call for _, call in page if moment(call.created) >= begins]
        if len(page) < _PAGE or moment(page[-1][1].created) < begins:
            return found, begins
        after = page[-1][0]
    return found, moment(found[-1].created)


def _seconds(call: Call) -> float | None:
    """Return how long a person took to decide, or ``None`` if no person did."""
    decision = call.decision
    if decision is None or decision.channel == "policy":
        return None
    return max(decision.at - call.created, 0) / 1_000_000


def _times(decided: list[Call]) -> dict[str, Json]:
    seconds = sorted(s for s in map(_seconds, decided) if s is not None)
    p95 = seconds[min(int(len(seconds) * 0.95), len(seconds) - 1)] if seconds else None
    return {
        "count": len(seconds),
        "median_seconds": statistics.median(seconds) if seconds else None,
        "p95_seconds": p95,
        "under_three_seconds": sum(
            public_status(call) in ("approved", "edited") and (_seconds(call) or 0.0) < _HASTY
            for call in decided
        ),
    }


def _open(store: Store, by: Reviewer, now: Micros) -> dict[str, Json]:
    ages: list[float] = []
    read, after, oldest, more = 0, None, None, True
    while more and read < _MAX_REQUESTS:
        page = store.page(Query(status="pending", after=after, limit=_PAGE))
        read += len(page)
        for _, call in page:
            if may_see(by, call):
                oldest = oldest or call.created
                ages.append((now - call.created) / 1_000_000)
        more = len(page) == _PAGE
        after = page[-1][0] if more else None
    return {
        "count": len(ages),
        "more": more,
        "oldest_at": None if oldest is None else moment(oldest).isoformat(),
        "by_age": _histogram(ages, _AGES, "> 1 day"),
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


def _by_tool(calls: list[Call]) -> list[dict[str, Json]]:
    by_tool: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for call in calls:
        by_tool[call.tool or call.kind][public_status(call)] += 1
    rows = []
    for tool, counts in by_tool.items():
        decided = sum(counts[name] for name in _DECIDED)
        approved = counts["approved"] + counts["edited"]
        row = {name: counts[name] for name in (*_DECIDED, "expired")}
        rate = approved / decided if decided else None
        rows.append({"tool": inline(tool), "asked": counts.total(), **row, "rate": rate})
    return sorted(rows, key=lambda row: (-row["asked"], row["tool"]))


def _by_reviewer(decided: list[Call]) -> list[dict[str, Json]]:
    by_name: defaultdict[str, list[Call]] = defaultdict(list)
    for call in decided:
        assert call.decision is not None
        by_name[call.decision.by].append(call)
    rows = []
    for name, calls in by_name.items():
        times = _times(calls)
        rows.append(
            {
                "name": inline(name),
                "count": times["count"],
                "median_seconds": times["median_seconds"],
                "under_three": times["under_three_seconds"],
            }
        )
    return sorted(rows, key=lambda row: (-row["count"], row["name"]))


def _histogram(seconds: list[float], buckets: _Buckets, last: str) -> list[dict[str, Json]]:
    """Count seconds by bucket: each has an upper bound and a label; ``last`` has no bound."""
    counts = Counter(
        next((label for below, label in buckets if value < below), last) for value in seconds
    )
    labels = [*(label for _, label in buckets), last]
    return [{"label": label, "count": counts[label]} for label in labels]
