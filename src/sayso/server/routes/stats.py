"""Statistics about decisions: volumes, times to decide, approval rates."""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fastapi import APIRouter, Request
from fastapi import Query as QueryParameter

from sayso.errors import InvalidCall
from sayso.inbox.people import viewer_of
from sayso.server.auth import CurrentReviewer
from sayso.server.openapi import errors
from sayso.server.responses import JsonResponse
from sayso.server.schemas import StatsView
from sayso.server.service import service_of
from sayso.stores.base import Outcomes, Store, Viewer
from sayso.sync import to_thread
from sayso.text import inline
from sayso.types import Json, Micros, Reviewer, moment

router = APIRouter(prefix="/api", tags=["record"])

#: Count at most this many requests, the newest ones, so that no page waits for the others.
_MAX_REQUESTS = 20_000
_DECIDED = ("approved", "edited", "rejected", "responded")
_APPROVED = ("approved", "edited")
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
    starts = [datetime.fromisoformat(name).replace(tzinfo=zone) for name in names]
    begins = [round(start.timestamp() * 1_000_000) for start in starts]
    viewer = viewer_of(by)
    everything = store.outcomes(viewer, since=begins[0], limit=_MAX_REQUESTS)
    created = [at for one in everything for at in one.created]
    whole = len(created) < _MAX_REQUESTS
    found = [one for one in everything if one.visible]
    decided = [one for one in found if one.decided]
    return {
        "days": days,
        "since": (starts[0] if whole else moment(min(created))).isoformat(),
        "whole": whole,
        "open": _open(store, viewer, now),
        "decided": _times(decided)
        | {"expired": sum(len(one.created) for one in found if one.list_status == "expired")},
        "per_day": _per_day(found, names, begins),
        "tools": _by_tool(found),
        "reviewers": _by_reviewer(decided),
        "histogram": _histogram(_seconds(decided), _DECISION_TIMES, "> 1 h"),
    }


def _seconds(decided: list[Outcomes]) -> list[float]:
    """Return how long people took to decide."""
    return [
        max(at - made, 0) / 1_000_000
        for one in decided
        for made, at in zip(one.created, one.decided, strict=True)
    ]


def _times(decided: list[Outcomes]) -> dict[str, Json]:
    seconds = sorted(_seconds(decided))
    approved = [one for one in decided if one.list_status in _APPROVED]
    p95 = seconds[min(int(len(seconds) * 0.95), len(seconds) - 1)] if seconds else None
    return {
        "count": len(seconds),
        "median_seconds": statistics.median(seconds) if seconds else None,
        "p95_seconds": p95,
        "under_three_seconds": sum(took < _HASTY for took in _seconds(approved)),
    }


def _open(store: Store, viewer: Viewer, now: Micros) -> dict[str, Json]:
    read = store.outcomes(viewer, status="pending", sort="oldest", limit=_MAX_REQUESTS)
    created = [at for one in read if one.visible for at in one.created]
    ages = [(now - at) / 1_000_000 for at in created]
    return {
        "count": len(created),
        "more": sum(len(one.created) for one in read) == _MAX_REQUESTS,
        "oldest_at": moment(min(created)).isoformat() if created else None,
        "by_age": _histogram(ages, _AGES, "> 1 day"),
    }


def _per_day(
    found: list[Outcomes], names: list[str], begins: list[Micros]
) -> list[dict[str, Json]]:
    def by_day(times: Iterable[Micros]) -> list[int]:
        ordered = sorted(times)
        ends = [bisect_left(ordered, start) for start in begins] + [len(ordered)]
        return [end - start for start, end in pairwise(ends)]

    asked = by_day(at for one in found for at in one.created)
    decided = by_day(at for one in found for at in one.decided)
    expired = by_day(at for one in found for at in one.expired)
    return [
        {"day": name, "asked": asked[n], "decided": decided[n], "expired": expired[n]}
        for n, name in enumerate(names)
    ]


def _by_tool(found: list[Outcomes]) -> list[dict[str, Json]]:
    by_tool: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for one in found:
        by_tool[one.tool or one.kind][one.list_status] += len(one.created)
    rows = []
    for tool, counts in by_tool.items():
        decided = sum(counts[name] for name in _DECIDED)
        approved = sum(counts[name] for name in _APPROVED)
        row = {name: counts[name] for name in (*_DECIDED, "expired")}
        rate = approved / decided if decided else None
        rows.append({"tool": inline(tool), "asked": counts.total(), **row, "rate": rate})
    return sorted(rows, key=lambda row: (-row["asked"], row["tool"]))


def _by_reviewer(decided: list[Outcomes]) -> list[dict[str, Json]]:
    by_name: defaultdict[str, list[Outcomes]] = defaultdict(list)
    for one in decided:
        by_name[one.decided_by].append(one)
    rows = []
    for name, theirs in by_name.items():
        times = _times(theirs)
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
    ordered = sorted(seconds)
    ends = [0, *(bisect_left(ordered, below) for below, _ in buckets), len(ordered)]
    labels = [*(label for _, label in buckets), last]
    return [
        {"label": label, "count": end - start}
        for label, (start, end) in zip(labels, pairwise(ends), strict=True)
    ]
