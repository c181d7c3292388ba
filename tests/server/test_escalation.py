"""Over HTTP, people of the second stage see and decide a request only once it has escalated."""

from __future__ import annotations

from typing import Any

import httpx
from served import Served, opened

import sayso
from sayso.audit import verify
from sayso.stores.memory import MemoryStore
from sayso.testing import FakeClock

RULES = sayso.Policy(
    [
        sayso.Rule(
            "refund",
            reviewers=["group:finance"],
            notify=["push"],
            remind_after=10,
            escalate_after=30,
            escalate_to=["group:leads"],
        )
    ]
)


def listed(client: httpx.Client) -> list[Any]:
    counted = client.get("/api/requests/groups").json()["count"]
    items: list[Any] = client.get("/api/requests").json()["items"]
    assert counted == len(items)
    return items


def test_escalation_opens_request_to_more_people() -> None:
    clock = FakeClock()
    served = Served(MemoryStore(clock=clock), policy=RULES).start()
    try:
        finance = served.client(served.token("ana", "reviewer", "finance"))
        leads = served.client(served.token("ben", "reviewer", "leads"))
        agent = served.client(served.token("shop", "agent"))
        path = f"/api/requests/{opened(agent)['id']}"
        request = finance.get(path).json()
        assert request["notify_via"] == ["push"]
        assert request["escalate_to"] == ["group:leads"]
        assert not request["escalated"]
        assert listed(leads) == []
        assert leads.get(path).status_code == 404
        approval = {"type": "approve", "seen_digest": request["digest"]}
        assert leads.post(f"{path}/decision", json=approval).status_code == 404

        clock.advance(30)
        assert [item["escalated"] for item in listed(finance)] == [True]
        assert [item["id"] for item in listed(leads)] == [request["id"]]
        shown = leads.get(path).json()
        assert shown["reviewers"] == ["group:finance", "group:leads"]
        assert (shown["digest"], shown["escalates_at"]) == (request["digest"], None)
        assert "escalated" in leads.get("/api/audit").text
        decided = leads.post(f"{path}/decision", json=approval)
        assert decided.json()["status"] == "approved"
        assert verify(served.store).problems == []
    finally:
        served.stop()


def test_agent_sends_no_notification_terms() -> None:
    served = Served(MemoryStore(), policy=RULES).start()
    try:
        agent = served.client(served.token("shop", "agent"))
        for name in ("notify", "notify_via", "escalate_to", "escalate_after", "remind_after"):
            body = {"tool": "refund", "args": {}, name: ["group:leads"]}
            refused = agent.post("/api/requests", json=body, headers={"Idempotency-Key": name})
            assert refused.status_code == 422
    finally:
        served.stop()
