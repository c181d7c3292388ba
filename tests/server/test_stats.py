"""Statistics of decisions: whose days are counted, and which requests."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from served import Served, opened

from sayso import Inbox
from sayso.audit import verify
from sayso.server import monitoring
from sayso.server.monitoring import TallyCache
from sayso.server.routes import stats
from sayso.stores.base import Viewer
from sayso.stores.memory import MemoryStore
from sayso.stores.sqlite import SqliteStore
from sayso.testing import FakeClock
from sayso.types import Micros, Reviewer
from sayso_testing.world import World


def test_days_follow_the_readers_time_zone(open_server: Served) -> None:
    client = open_server.client()
    opened(client)
    at = datetime.fromisoformat(client.get("/api/requests").json()["items"][0]["created_at"])
    for zone, hours in (("UTC", 0), ("Pacific/Kiritimati", 14), ("Pacific/Pago_Pago", -11)):
        figures = client.get("/api/stats", params={"days": 3, "zone": zone}).json()
        there = datetime.fromtimestamp(at.timestamp() + hours * 3600, UTC).date()
        assert [(day["day"], day["asked"]) for day in figures["per_day"]][-1] == (str(there), 1)
    for zone in ("Mars/Olympus", "../../etc/passwd", "\0", ""):
        refused = client.get("/api/stats", params={"zone": zone})
        assert (refused.status_code, refused.json()["field"]) == (422, "zone")


def test_first_day_is_counted_from_midnight() -> None:
    noon: Micros = 1_700_000_000_000_000
    store = MemoryStore(clock=lambda: noon)
    figures = stats.stats(TallyCache(store), Reviewer("ana", role="admin"), 2)
    assert figures["since"] == "2023-11-13T00:00:00+00:00"
    assert [day["day"] for day in figures["per_day"]] == ["2023-11-13", "2023-11-14"]


def test_slow_tallies_are_kept_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(MemoryStore(), FakeClock(), lambda store: store)
    cache = TallyCache(world.store)
    world.ask(run="r1", thread="t1")
    assert len(cache.tallies(Viewer(), [0]).tallies) == 1
    world.decide(world.ask(run="r2", thread="t2"))
    assert len(cache.tallies(Viewer(), [0]).tallies) == 2, "a quick answer is not kept"
    monkeypatch.setattr(monitoring, "_SLOW_SECONDS", 0.0)
    kept = cache.tallies(Viewer(), [0])
    world.decide(world.ask(run="r3", thread="t3"), "reject")
    assert cache.tallies(Viewer(), [0]) is kept
    assert len(cache.tallies(Viewer(names=frozenset(("ana",))), [0]).tallies) == 3
    monkeypatch.setattr(monitoring.time, "monotonic", lambda: float("inf"))
    assert len(cache.tallies(Viewer(), [0]).tallies) == 3


def test_figures_count_events_by_days_of_a_zone(tmp_path: Path) -> None:
    """From midnight in Kathmandu, a quarter to seven in the evening before in UTC."""
    clock = FakeClock(datetime(2026, 3, 1, 18, 0, tzinfo=UTC))
    with closing(SqliteStore(tmp_path / "store.db", clock=clock)) as store:
        world = World(store, clock, lambda store: store)

        def decided(seconds: float, *, by: str = "ana", decision: str = "approve") -> None:
            call = world.ask(run=f"r{clock()}", thread=f"t{clock()}")
            clock.advance(seconds)
            world.decide(call, decision, by=by)

        decided(1)
        clock.set(datetime(2026, 3, 1, 18, 15, tzinfo=UTC))
        decided(2)
        decided(40, decision="reject")
        store.seal()
        clock.set(datetime(2026, 3, 2, 18, 14, tzinfo=UTC))
        decided(300, by="ben")  # asked on the second of March, decided on the third
        expires = world.ask("pay", run="late", thread="late", expires_in=60)
        clock.advance(60)
        world.expire(expires)
        clock.advance(2 * 3600)
        world.ask("pay", run="open", thread="open")
        clock.advance(120)
        zone = ZoneInfo("Asia/Kathmandu")
        figures = stats.stats(TallyCache(store), Reviewer("root", role="admin"), 2, zone)
    assert figures["since"] == "2026-03-02T00:00:00+05:45"
    assert figures["per_day"] == [
        {"day": "2026-03-02", "asked": 3, "decided": 2, "expired": 0},
        {"day": "2026-03-03", "asked": 2, "decided": 1, "expired": 1},
    ]
    assert figures["tools"] == [
        {
            **{"tool": "send", "asked": 3, "approved": 2, "edited": 0, "rejected": 1},
            **{"responded": 0, "expired": 0, "rate": 2 / 3},
        },
        {
            **{"tool": "pay", "asked": 2, "approved": 0, "edited": 0, "rejected": 0},
            **{"responded": 0, "expired": 1, "rate": None},
        },
    ]
    decided_figures = figures["decided"]
    assert (decided_figures["count"], decided_figures["expired"]) == (3, 1)
    assert decided_figures["under_three_seconds"] == 1
    assert 40 <= decided_figures["median_seconds"] <= 45
    assert 300 <= decided_figures["p95_seconds"] <= 330
    assert [(row["name"], row["count"], row["under_three"]) for row in figures["reviewers"]] == [
        ("ana", 2, 1),
        ("ben", 1, 0),
    ]
    assert [bar["count"] for bar in figures["histogram"]] == [1, 0, 1, 1, 0, 0]
    assert figures["open"]["count"] == 1
    assert [bar["count"] for bar in figures["open"]["by_age"]] == [0, 1, 0, 0, 0]


def test_figures_count_every_request(open_server: Served) -> None:
    client = open_server.client()
    for n in range(6):
        opened(client, f"k{n}")
    figures = client.get("/api/stats").json()
    assert (figures["open"]["count"], figures["per_day"][-1]["asked"]) == (6, 6)
    oldest = client.get("/api/requests").json()["items"][0]
    assert figures["open"]["oldest_at"] == oldest["created_at"]


def test_approval_is_timed_from_opening(tmp_path: Path) -> None:
    """What the page says of the reading counts: the request may have waited for a day."""
    clock = FakeClock()
    with closing(SqliteStore(tmp_path / "store.db", clock=clock)) as store:
        inbox = Inbox(store)
        world = World(store, clock, lambda store: store)
        for seconds in (0.4, 90.0, None):
            request = inbox.get_sync(world.ask(run=f"r{seconds}", thread=f"t{seconds}").id)
            clock.advance(86_000)
            shown = None if seconds is None else {"seconds": seconds, "complete": True}
            decided = inbox.decide_sync(request, request.approve(), by="ana", shown=shown)
            assert decided.decision is not None
            assert decided.decision.shown == shown
        figures = stats.stats(TallyCache(store), Reviewer("ana", role="admin"), 7)["decided"]
        assert (figures["count"], figures["under_three_seconds"]) == (3, 1)
        assert 60 < figures["median_seconds"] < 120
        assert verify(store).problems == []


@pytest.mark.parametrize(
    "shown",
    [{}, {"seconds": -1, "complete": True}, {"seconds": 1}, {"seconds": "1", "complete": 1}],
)
def test_malformed_claim_decides_nothing(open_server: Served, shown: dict[str, Any]) -> None:
    client = open_server.client()
    made = opened(client)
    body = {"type": "approve", "seen_digest": made["digest"], "shown": shown}
    answer = client.post(f"/api/requests/{made['id']}/decision", json=body)
    assert answer.status_code == 422, answer.text
    assert client.get(f"/api/requests/{made['id']}").json()["status"] == "pending"
