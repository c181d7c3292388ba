"""Statistics about decisions: volumes, times to decide, approval rates."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fastapi import Query as QueryParameter

from sayso.errors import InvalidCall
from sayso.inbox.people import viewer_of
from sayso.server.auth import CurrentReviewer
from sayso.server.monitoring import TallyCache
from sayso.server.openapi import Routes
from sayso.server.responses import JsonResponse
from sayso.server.schemas import StatsView
from sayso.server.service import CurrentService
from sayso.stores.base import DecisionTime, Store, Tally, Viewer
from sayso.stores.listing import APPROVING, DECIDED, took_width
from sayso.text import inline
from sayso.types import SECOND, Json, Micros, Reviewer, iso, micros_of, moment

router = Routes("/api", tag="record")

#: An approval in fewer seconds was hardly read.
_HASTY = 3
_Buckets = tuple[tuple[int, str], ...]
_DECISION_TIMES: _Buckets = (
    *((3, "< 3 s"), (10, "3-10 s"), (60, "10-60 s"), (600, "1-10 min"), (3600, "10-60 min")),
)
_AGES: _Buckets = ((60, "< 1 min"), (600, "1-10 min"), (3600, "10-60 min"), (86_400, "1-24 h"))


@router.get("/stats", "Get decision statistics", StatsView)
def get_stats(
    service: CurrentService,
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
    return JsonResponse(stats(service.tally_cache, who.reviewer, days, where))


def stats(cache: TallyCache, by: Reviewer, days: int, zone: tzinfo = UTC) -> dict[str, Json]:
    """Return the statistics of the last days, over the requests for this person or for everyone.

    Times to a decision are counted in steps (``listing.TOOK_STEPS``), so that medians and
    percentiles are estimates within a step.
    """
    now = cache.store.now()
    today = moment(now).astimezone(zone).date()
    names = [f"{today - timedelta(days=back)}" for back in range(days - 1, -1, -1)]
    starts = [datetime.fromisoformat(name).replace(tzinfo=zone) for name in names]
    begins = [micros_of(start) for start in starts]
    viewer = viewer_of(by)
    tallied = cache.tallies(viewer, begins)
    totals: Counter[str] = Counter()
    for tally in tallied.tallies:
        totals[tally.what] += sum(tally.counts)
    return {
        "days": days,
        "since": starts[0].isoformat(),
        "open": _open(cache.store, viewer, now),
        "decided": _times(tallied.times) | {"expired": totals["expired"]},
        "per_day": _per_day(tallied.tallies, names),
        "tools": _by_tool(tallied.tallies),
        "reviewers": _by_reviewer(tallied.times),
        "histogram": _histogram(tallied.times),
    }


def _times(times: Mapping[DecisionTime, int]) -> dict[str, Json]:
    steps: Counter[int] = Counter()
    hasty = 0
    for time, many in times.items():
        steps[time.seconds] += many
        hasty += many if time.approved and time.seconds < _HASTY else 0
    return {
        "count": steps.total(),
        "median_seconds": _percentile(steps, 0.5),
        "p95_seconds": _percentile(steps, 0.95),
        "under_three_seconds": hasty,
    }


def _percentile(steps: Counter[int], share: float) -> float | None:
    """Estimate a percentile: the decisions of a step are taken to be spread evenly over it."""
    rank = share * steps.total()
    for seconds, many in sorted(steps.items()):
        if rank <= many:
            return round(seconds + took_width(seconds) * rank / many, 2)
        rank -= many
    return None


def _open(store: Store, viewer: Viewer, now: Micros) -> dict[str, Json]:
    ages = [seconds for seconds, _ in _AGES]
    open_ages = store.open_ages(viewer, [now - age * SECOND for age in reversed(ages)])
    counts = [*reversed(open_ages.newer), open_ages.total - sum(open_ages.newer)]
    labels = [*(label for _, label in _AGES), "> 1 day"]
    return {
        "count": open_ages.total,
        "oldest_at": iso(open_ages.oldest),
        "by_age": [
            {"label": label, "count": count} for label, count in zip(labels, counts, strict=True)
        ],
    }


def _per_day(tallies: Iterable[Tally], names: list[str]) -> list[dict[str, Json]]:
    days: list[dict[str, Json]] = [
        {"day": name, "asked": 0, "decided": 0, "expired": 0} for name in names
    ]
    for tally in tallies:
        what = "decided" if tally.what in DECIDED else tally.what
        for day, count in zip(days, tally.counts, strict=True):
            day[what] += count
    return days


def _by_tool(tallies: Iterable[Tally]) -> list[dict[str, Json]]:
    by_tool: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for tally in tallies:
        by_tool[tally.tool or tally.kind][tally.what] += sum(tally.counts)
    rows = []
    for tool, counts in by_tool.items():
        decided = sum(counts[name] for name in DECIDED)
        approved = sum(counts[name] for name in APPROVING)
        row = {name: counts[name] for name in ("asked", *DECIDED, "expired")}
        rows.append({"tool": inline(tool), **row, "rate": approved / decided if decided else None})
    return sorted(rows, key=lambda row: (-row["asked"], row["tool"]))


def _by_reviewer(times: Mapping[DecisionTime, int]) -> list[dict[str, Json]]:
    by_name: defaultdict[str, dict[DecisionTime, int]] = defaultdict(dict)
    for time, many in times.items():
        by_name[time.person][time] = many
    rows = []
    for name, theirs in by_name.items():
        figures = _times(theirs)
        rows.append(
            {
                "name": inline(name),
                "count": figures["count"],
                "median_seconds": figures["median_seconds"],
                "under_three": figures["under_three_seconds"],
            }
        )
    return sorted(rows, key=lambda row: (-row["count"], row["name"]))


def _histogram(times: Mapping[DecisionTime, int]) -> list[dict[str, Json]]:
    """Count decisions by bucket. Each bucket ends where a step does."""
    ends = [seconds for seconds, _ in _DECISION_TIMES]
    counts: Counter[int] = Counter()
    for time, many in times.items():
        counts[bisect_right(ends, time.seconds)] += many
    labels = [*(label for _, label in _DECISION_TIMES), "> 1 h"]
    return [{"label": label, "count": counts[n]} for n, label in enumerate(labels)]
