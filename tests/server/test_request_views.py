"""A list is rendered once for all readers, and still current for each of them."""

from __future__ import annotations

import json
from itertools import product
from typing import Any, Literal

import pytest
from served import FINANCE_ONLY, FOR_FINANCE, Serve, Served, opened

from sayso import Inbox, Policy, Reviewer, Rule
from sayso.server import request_views
from sayso.stores.sql import reads


def listed(served: Served, token: str, **params: Any) -> list[dict[str, Any]]:
    answer = served.client(token).get("/api/requests", params=params)
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


def test_card_matches_the_request(serve: Serve) -> None:
    served = serve()
    agent, ana = served.client(served.token("bot", "agent")), served.token("ana")
    args = {"to": "ана@example.com", "body": 'say "yes"\n\u202e', "api_key": "sk-" + "a" * 30}
    opened(agent, args=args, description="Send", note="now", preview={"old": 1})
    for _ in range(2):  # drawn, and kept
        (card,) = listed(served, ana)
        whole = served.client(ana).get(f"/api/requests/{card['id']}").json()
        assert card == {name: whole[name] for name in card}
        assert card["masked"] is True


def test_changed_request_renews_its_card(serve: Serve) -> None:
    served = serve()
    agent = served.client(served.token("bot", "agent"))
    ana, ben = served.token("ana"), served.token("ben")
    made = opened(agent, quorum=2)
    (before,) = listed(served, ana)
    assert (before["votes"], before["can"]) == ([], ["approve", "edit", "reject", "respond"])
    path, yes = f"/api/requests/{made['id']}/decision", {"type": "approve"}
    seen = {"seen_digest": before["digest"]}
    assert served.client(ana).post(path, json=yes | seen).status_code == 200
    (mine,), (theirs,) = listed(served, ana), listed(served, ben)
    assert [vote["by"] for vote in mine["votes"]] == ["ana"]
    assert (mine["can"], mine["why_not"]) == (["reject"], "you already voted")
    assert (theirs["can"], theirs["why_not"]) == (before["can"], "")
    assert served.client(ben).post(path, json=yes | seen).status_code == 200
    assert listed(served, ana) == []
    (closed,) = listed(served, ana, status="closed")
    assert (closed["status"], closed["decision"]["by"]) == ("approved", "ben")


def test_cards_are_hidden_from_other_reviewers(serve: Serve) -> None:
    served = serve(policy=FOR_FINANCE)
    agent = served.client(served.token("bot", "agent"))
    ana, ben = served.token("ana"), served.token("ben", "reviewer", "finance")
    opened(agent, args=FINANCE_ONLY)
    opened(agent, key="k2")
    assert [len(listed(served, token)) for token in (ben, ana, ben)] == [2, 1, 2]
    assert len(listed(served, ben, mine=True)) == 1
    assert listed(served, ana, mine=True) == []


def test_card_cache_is_bounded(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_views, "_MAX_CACHED", 6_000)
    monkeypatch.setattr(request_views, "_MAX_ENTRY", 3_000)
    served = serve()
    agent, ana = served.client(served.token("bot", "agent")), served.token("ana")
    for n in range(8):
        opened(agent, key=f"k{n}", args={"order": n})
    opened(agent, key="large", args={"order": "x" * 5_000})
    for _ in range(2):
        assert [card["args"]["order"] for card in listed(served, ana)][:8] == list(range(8))
    kept = served.app.state.sayso.request_lists._cache
    assert 0 < len(kept) < 8
    assert sum(len(card.json) for card in kept.values()) <= 6_000


def test_thread_accepts_many_requests_of_its_agent(open_server: Served) -> None:
    client = open_server.client()
    made = [opened(client, key=f"k{n}", thread="t1") for n in range(2)]
    assert [one["thread"] for one in made] == ["t1", "t1"]
    assert made[0]["run"] == made[1]["run"]
    for one in made:
        path = f"/api/requests/{one['id']}"
        unclaimed = client.post(f"{path}/result", json={"token": 0, "result": 1})
        assert (unclaimed.status_code, "was not claimed" in unclaimed.text) == (409, True)
        yes = {"type": "approve", "seen_digest": one["digest"]}
        assert client.post(f"{path}/decision", json=yes).status_code == 200
        claimed = client.post(f"{path}/claim").json()
        done = client.post(f"{path}/result", json={"token": claimed["token"], "result": "ok"})
        assert done.status_code == 200
    again = opened(client, key="k0", thread="t1")
    assert (again["id"], again["execution"]["status"]) == (made[0]["id"], "done")
    assert opened(client, key="k2", thread="t1")["status"] == "pending"


@pytest.mark.parametrize("sort", ["oldest", "newest", "expiring"])
def test_page_of_large_requests_is_short(
    open_server: Served, sort: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = open_server.client()
    sizes = (10, 4_000, 3_000, 20_000, 10, 10, 3_000, 30_000)
    made = [opened(client, key=f"k{n}", args={"a": "x" * size}) for n, size in enumerate(sizes)]
    monkeypatch.setattr(request_views, "_MAX_PAGE", 15_000)
    seen, counts, after = [], [], None
    while after is not None or not counts:
        given = {"sort": sort, "limit": 5, **({} if after is None else {"after": after})}
        page = client.get("/api/requests", params=given).json()
        seen += [item["id"] for item in page["items"]]
        counts.append(len(page["items"]))
        after = page["next"]
    assert sorted(seen) == sorted(one["id"] for one in made)
    assert len(seen) == len(set(seen))
    assert min(counts) == 1  # the largest by itself
    assert 3 <= max(counts) <= 5


@pytest.mark.parametrize("sort", ["oldest", "newest", "expiring"])
def test_search_of_common_words_is_continued(
    open_server: Served,
    sort: Literal["oldest", "newest", "expiring"],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = open_server.client()
    cities = ["graz", "ghent"] * 6 + ["graz ghent"] + ["graz", "ghent"] * 6
    made = [opened(client, key=f"k{n}", args={"city": city}) for n, city in enumerate(cities)]
    both = next(request["id"] for request in made if request["args"]["city"] == "graz ghent")
    monkeypatch.setattr(reads, "MANY_CALLS", 4)
    ids = list[str]()
    sizes = list[int]()
    params: dict[str, Any] = {"q": "graz ghent", "sort": sort}
    after = None
    while after is not None or not sizes:
        page = client.get("/api/requests", params=params).json()
        ids += [item["id"] for item in page["items"]]
        sizes.append(len(page["items"]))
        after = params["after"] = page["next"]
    assert ids == [both]
    assert sizes[0] == 0
    assert len(sizes) >= 3
    groups = client.get("/api/requests/groups", params={"q": "graz ghent"}).json()
    assert (groups["count"], groups["at_least"], groups["yours"]) == (0, True, 0)
    nothing = client.get("/api/requests/groups", params={"q": "lisbon"}).json()
    assert (nothing["count"], nothing["at_least"]) == (0, False)
    # A whole page takes as long as it takes.
    (request,) = Inbox(open_server.store).pending_sync(q="graz ghent", sort=sort)
    assert request.id == both


@pytest.mark.parametrize(
    "bad",
    ["status=x", "kind=x", "risk=x", "sort=x", "after=x", "limit=0", "expires_within=0"],
)
def test_invalid_filter_names_its_field(open_server: Served, bad: str) -> None:
    answer = open_server.client().get(f"/api/requests?{bad}")
    assert (answer.status_code, answer.json()["error"]) == (422, "InvalidCall")
    assert answer.json()["field"] == bad.partition("=")[0]


def counted(served: Served, token: str, **params: Any) -> dict[str, Any]:
    answer = served.client(token).get("/api/requests/groups", params=params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_groups_count_only_visible_requests(serve: Serve) -> None:
    served = serve(policy=FOR_FINANCE)
    agent = served.client(served.token("bot", "agent"))
    ana, ben = served.token("ana"), served.token("ben", "reviewer", "finance")
    for n in range(3):
        opened(agent, tool="pay", key=f"p{n}")
    opened(agent, tool="pay", risk={"level": "high", "reasons": ["much"]}, key="h")
    opened(agent, tool="send", args=FINANCE_ONLY, key="s")
    seen = counted(served, ben)
    assert seen["count"] == 5
    assert [(g["tool"], g["risk"], g["count"]) for g in seen["items"]] == [
        ("pay", "high", 1),
        ("pay", "low", 3),
        ("send", "low", 1),
    ]
    assert set(seen["items"][0]) == {
        *("kind", "agent", "tool", "risk", "count", "at_least", "expires_at", "oldest_at"),
    }
    assert seen["values"]["tool"] == [{"value": "pay", "count": 4}, {"value": "send", "count": 1}]
    assert counted(served, ana)["count"] == 4
    assert [v["value"] for v in counted(served, ana)["values"]["tool"]] == ["pay"]
    assert counted(served, ben, mine=True)["count"] == 1
    # The values of a filter do not vanish when it is on, so that another one can be chosen.
    high = counted(served, ben, tool="pay", risk="high")
    assert high["count"] == 1
    assert high["values"]["risk"] == [{"value": "high", "count": 1}, {"value": "low", "count": 3}]
    assert high["values"]["tool"] == [{"value": "pay", "count": 1}]


def test_yours_counts_what_a_person_may_decide(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = Rule(tool="pay", verdict="ask", quorum=2, reviewers=["group:finance"])
    served = serve(policy=Policy([rule]))
    agent = served.client(served.token("bot", "agent"))
    made = [opened(agent, tool="pay", key=f"p{n}") for n in range(3)]
    opened(agent, tool="send", key="s")
    ana, root = served.token("ana", "reviewer", "finance"), served.token("root", "admin")
    assert [counted(served, who)["yours"] for who in (ana, root)] == [4, 1]
    body = {"type": "approve", "seen_digest": made[0]["digest"]}
    path = f"/api/requests/{made[0]['id']}/decision"
    assert served.client(ana).post(path, json=body).json()["status"] == "pending"
    assert counted(served, ana)["yours"] == 3  # it waits for a second person
    assert counted(served, ana, status="any")["yours"] == 0
    monkeypatch.setattr(request_views, "_MOST_JUDGED", 1)
    assert [counted(served, who)["yours"] for who in (ana, root)] == [4, 1]


def test_groups_and_list_refuse_the_same_filters(serve: Serve) -> None:
    served = serve()
    ana = served.client(served.token("ana"))
    for params in ({"status": "bogus"}, {"kind": "bogus"}, {"risk": "bogus"}):
        listed_, grouped = (
            ana.get(path, params=params) for path in ("/api/requests", "/api/requests/groups")
        )
        assert (grouped.status_code, grouped.json()) == (listed_.status_code, listed_.json())
    agent = served.client(served.token("bot", "agent"))
    assert agent.get("/api/requests/groups").status_code == 403


def test_search_tells_nothing_of_hidden_requests(serve: Serve) -> None:
    """Neither a count nor a next page answers whether a request of others has a word."""
    served = serve(policy=FOR_FINANCE)
    agent = served.client(served.token("bot", "agent"))
    ana = served.client(served.token("ana"))
    opened(agent, key="visible", args={"city": "graz"})
    for n in range(request_views._MAX_STORE_PAGES + 2):
        opened(agent, key=f"k{n}", args={**FINANCE_ONLY, "why": "merger in graz"})

    def answers(word: str, **params: Any) -> Any:
        page = ana.get("/api/requests", params={"q": word, "limit": 1, **params}).json()
        groups = ana.get("/api/requests/groups", params={"q": word}).json()
        return len(page["items"]), page["next"], groups["count"], groups["at_least"]

    for sort in ("oldest", "newest", "expiring"):
        assert answers("merger", sort=sort) == answers("lisbon", sort=sort) == (0, None, 0, False)
        assert answers("graz", sort=sort) == (1, None, 1, False)


@pytest.mark.parametrize("limit", [1, 4])
def test_pages_of_any_search_have_every_visible_request(
    serve: Serve, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = serve(policy=FOR_FINANCE)
    agent, finance = (
        served.client(served.token("bot", "agent")),
        served.client(served.token("ben", "reviewer", "finance")),
    )
    for n in range(24):
        city = ("graz", "ghent", "graz ghent")[n % 3]
        args = {"amount": n, "city": city} | (FINANCE_ONLY if n % 4 else {})
        made = opened(agent, key=f"k{n}", args=args, expires_in=3600 + n if n % 5 else None)
        if n % 6 == 0:
            no = {"type": "reject", "seen_digest": made["digest"]}
            path = f"/api/requests/{made['id']}/decision"
            assert finance.post(path, json=no).status_code == 200
    lists = served.app.state.sayso.request_lists
    readers = [Reviewer("ana"), Reviewer("cy", groups=("finance",))]

    def pages(by: Reviewer, mine: bool, most: int, **filters: Any) -> list[str]:
        ids, after = list[str](), None
        for _ in range(200):
            given = {**filters, "limit": most, "after": after}
            page = json.loads(lists.page(by, given, mine=mine))
            ids += [item["id"] for item in page["items"]]
            after = page["next"]
            if after is None:
                return ids
        raise AssertionError("the pages do not end")

    for by, mine, status, sort, q in product(
        readers,
        (False, True),
        ("pending", "closed", "any"),
        ("oldest", "newest", "expiring"),
        (None, "graz", "graz ghent", "refund", "lisbon"),
    ):
        filters = {"status": status, "sort": sort, "q": q}
        whole = pages(by, mine, 200, **filters)
        with monkeypatch.context() as small:
            small.setattr(reads, "MANY_CALLS", 3)
            small.setattr(reads, "MANY_ENTRIES", 3)
            small.setattr(request_views, "_STORE_PAGE", 2)
            small.setattr(request_views, "_MAX_STORE_PAGES", 2)
            assert pages(by, mine, limit, **filters) == whole, filters
