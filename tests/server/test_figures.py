"""The figures about deciding: whose days are counted, and that a count with an end says so."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from served import Served, opened

from sayso.server.routes import stats
from sayso.stores.memory import MemoryStore
from sayso.types import Micros, Reviewer


def test_days_are_those_of_who_reads(open_server: Served) -> None:
    client = open_server.client()
    opened(client)
    at = datetime.fromisoformat(client.get("/api/requests").json()["items"][0]["created_at"])
    for zone, hours in (("UTC", 0), ("Pacific/Kiritimati", 14), ("Pacific/Pago_Pago", -11)):
        figures = client.get("/api/stats", params={"days": 3, "zone": zone}).json()
        there = datetime.fromtimestamp(at.timestamp() + hours * 3600, UTC).date()
        assert [(day["day"], day["asked"]) for day in figures["per_day"]][-1] == (str(there), 1)
        assert figures["whole"]
    for zone in ("Mars/Olympus", "../../etc/passwd", "\0", ""):
        refused = client.get("/api/stats", params={"zone": zone})
        assert (refused.status_code, refused.json()["field"]) == (422, "zone")


def test_the_first_day_is_counted_from_its_morning() -> None:
    noon: Micros = 1_700_000_000_000_000
    store = MemoryStore(clock=lambda: noon)
    figures = stats.stats(store, Reviewer("ana", role="admin"), 2)
    assert figures["since"] == "2023-11-13T00:00:00+00:00"
    assert [day["day"] for day in figures["per_day"]] == ["2023-11-13", "2023-11-14"]


def test_too_many_to_count_is_said(open_server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    client = open_server.client()
    for n in range(6):
        opened(client, f"k{n}")
    whole = client.get("/api/stats").json()
    assert (whole["open"]["count"], whole["open"]["more"], whole["whole"]) == (6, False, True)
    monkeypatch.setattr(stats, "_MAX_REQUESTS", 4)
    cut = client.get("/api/stats").json()
    assert (cut["open"]["count"], cut["open"]["more"], cut["whole"]) == (4, True, False)
    newest = client.get("/api/requests", params={"sort": "newest"}).json()["items"]
    assert cut["since"] == newest[3]["created_at"]
