"""People over HTTP: who may change them, and how soon a removed right ends."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from served import Serve, Served
from test_feed import reading

from sayso.inbox import change_person, remove_person, set_stand_in
from sayso.stores import open_store
from sayso.types import SECOND

CHANGES = [
    ("GET", "/api/people"),
    ("GET", "/api/people/eve"),
    ("GET", "/api/groups"),
    ("POST", "/api/people"),
    ("POST", "/api/people/ana"),
    ("DELETE", "/api/people/ana"),
    ("GET", "/api/tokens"),
    ("POST", "/api/tokens"),
    ("DELETE", "/api/tokens/tok_1"),
    ("GET", "/api/sessions"),
    ("DELETE", "/api/sessions?person=ana"),
]


@pytest.mark.parametrize("role", ["agent", "chat", "reviewer"])
def test_only_admins_change_people(serve: Serve, role: str) -> None:
    server = serve()
    client = server.client(server.token("eve", role))
    for method, path in CHANGES:
        assert client.request(method, path, json={}).status_code == 403, path


def test_admin_adds_changes_and_removes_person(serve: Serve) -> None:
    server = serve()
    admin = server.client(server.token("boss", "admin"))
    added = admin.post("/api/people", json={"name": "ana", "groups": ["finance"]})
    assert (added.status_code, added.json()["groups"]) == (201, ["finance"])
    assert admin.post("/api/people", json={"name": "ANA"}).status_code == 409
    made = admin.post("/api/tokens", json={"name": "ana", "ends_in": 60}).json()
    ana = server.client(made["token"])
    assert ana.get("/api/me").json()["groups"] == ["finance"]
    moved = admin.post(
        "/api/people/ana", json={"add_groups": ["ops"], "remove_groups": ["finance"]}
    )
    assert moved.json()["person"]["groups"] == ["ops"]
    assert ana.get("/api/me").json()["groups"] == ["ops"]
    assert [t["person"] for t in admin.get("/api/tokens").json()["items"]] == ["boss", "ana"]
    removed = admin.delete("/api/people/ana").json()
    assert [row["id"] for row in removed["credentials"]] == [made["id"]]
    assert ana.get("/api/me").status_code == 401
    assert [p["name"] for p in admin.get("/api/people").json()["items"]] == ["boss"]


def test_admin_links_account_and_sees_last_sign_in(serve: Serve) -> None:
    server = serve()
    admin = server.client(server.token("boss", "admin"))
    token = server.token("ana")
    server.token("ben")
    account = {"account": {"issuer": "https://login.example.com", "subject": "u1"}}
    linked = admin.post("/api/people/ana", json=account).json()["person"]
    assert linked["origin"] == '["https://login.example.com", "u1"]'
    refused = admin.post("/api/people/ben", json=account)
    assert refused.status_code == 409
    assert "belongs to 'ana'" in refused.json()["message"]
    page = server.client(Origin=server.url)
    assert page.post("/api/login", json={"token": token}).status_code == 204
    listed = {row["name"]: row["signed_in_at"] for row in admin.get("/api/people").json()["items"]}
    assert listed["ana"] is not None
    assert listed["ben"] is None
    page.post("/api/logout")
    assert admin.get("/api/people/ana").json()["signed_in_at"] == listed["ana"]


def test_admin_signs_person_out_everywhere(serve: Serve) -> None:
    server = serve()
    admin = server.client(server.token("boss", "admin"))
    token = server.token("ana")
    pages = [server.client(Origin=server.url) for _ in range(2)]
    for page in pages:
        assert page.post("/api/login", json={"token": token}).status_code == 204
    sessions = admin.get("/api/sessions").json()["items"]
    assert {row["person"] for row in sessions} == {"ana"}
    assert sessions[0]["place"] == "127.0.0.1"
    ended = admin.delete("/api/sessions", params={"person": "ana"}).json()["items"]
    assert len(ended) == 2
    assert {page.get("/api/me").status_code for page in pages} == {401}
    assert server.client(token).get("/api/me").status_code == 200


def test_people_are_searched_and_paged(serve: Serve) -> None:
    server = serve()
    admin = server.client(server.token("boss", "admin"))
    server.token("bot", "agent")
    for name, group in (("ana", "finance"), ("ben", "ops"), ("cleo", "finance")):
        added = {"name": name, "groups": [group], "mail": f"{name}@Example.com"}
        assert admin.post("/api/people", json=added).status_code == 201

    def names(**params: str | int | bool) -> list[str]:
        page = {"next": ""}
        found: list[str] = []
        while page["next"] is not None:
            answer = admin.get("/api/people", params={"after": page["next"], "limit": 2, **params})
            page = answer.json()
            assert len(page["items"]) <= int(params.get("limit", 2))
            found += [person["name"] for person in page["items"]]
        return found

    assert names() == ["ana", "ben", "boss", "bot", "cleo"]
    assert names(limit=5) == names()
    assert names(q="finance example.COM") == ["ana", "cleo"]
    assert names(kind="agent") == ["bot"]
    assert names(group="ops") == ["ben"]
    assert names(q="nobody") == []
    away = {"stand_in": "ben", "until": "2099-01-01T00:00:00Z"}
    changed = admin.post("/api/people/ana", json={"add_groups": ["legal"], "away": away})
    assert changed.json()["person"]["stand_in"] == "ben"
    assert names(away=True) == ["ana"]
    assert admin.get("/api/people/ben").json()["stands_in_for"] == ["ana"]
    groups = admin.get("/api/groups", params={"limit": 2}).json()
    assert groups["items"] == [{"name": "finance", "members": 2}, {"name": "legal", "members": 1}]
    rest = admin.get("/api/groups", params={"after": groups["next"]}).json()
    assert rest == {"items": [{"name": "ops", "members": 1}], "next": None}
    assert admin.get("/api/people", params={"limit": 501}).status_code == 422
    assert admin.get("/api/people", params={"kind": "robot"}).status_code == 422


def test_invalid_stand_in_changes_no_group(serve: Serve) -> None:
    server = serve()
    admin = server.client(server.token("boss", "admin"))
    server.token("ana", "reviewer", "finance")
    away = {"stand_in": "nobody-here", "until": "2099-01-01T00:00:00Z"}
    refused = admin.post("/api/people/ana", json={"remove_groups": ["finance"], "away": away})
    assert refused.status_code == 404
    assert admin.get("/api/people/ana").json()["groups"] == ["finance"]


def test_person_lists_and_ends_own_sessions(serve: Serve) -> None:
    server = serve()
    tokens = {name: server.token(name) for name in ("ana", "ben")}
    pages = [server.client(Origin=server.url, **{"User-Agent": f"Browser {n}"}) for n in (1, 2)]
    other = server.client(Origin=server.url)
    for page, name in (*((page, "ana") for page in pages), (other, "ben")):
        assert page.post("/api/login", json={"token": tokens[name]}).status_code == 204
    mine = pages[0].get("/api/me/sessions").json()["items"]
    assert [(one["device"], one["place"]) for one in mine] == [
        ("Browser 1", "127.0.0.1"),
        ("Browser 2", "127.0.0.1"),
    ]
    assert [one["current"] for one in mine] == [True, False]
    assert other.delete(f"/api/me/sessions/{mine[1]['id']}").status_code == 404
    token = server.store.credentials("ana")[0]
    assert pages[0].delete(f"/api/me/sessions/{token.id}").status_code == 404
    assert pages[0].delete(f"/api/me/sessions/{mine[1]['id']}").status_code == 204
    assert [page.get("/api/me").status_code for page in pages] == [200, 401]
    ended = pages[0].delete("/api/me/sessions").json()["items"]
    assert [one["id"] for one in ended] == [mine[0]["id"]]
    assert [page.get("/api/me").status_code for page in (*pages, other)] == [401, 401, 200]


def test_tokens_and_sessions_are_searched_and_paged(serve: Serve) -> None:
    server = serve()
    admin = server.client(server.token("boss", "admin"))
    for name in ("ana", "ben"):
        server.token(name)
    names: list[str] = []
    after: str | None = ""
    while after is not None:
        page = admin.get("/api/tokens", params={"limit": 1, "after": after}).json()
        names += [token["person"] for token in page["items"]]
        after = page["next"]
    assert names == ["boss", "ana", "ben"]
    (found,) = admin.get("/api/tokens", params={"q": "BEN"}).json()["items"]
    assert (found["person"], found["assurance"], found["current"]) == ("ben", "token", False)
    (own,) = admin.get("/api/tokens", params={"person": "boss"}).json()["items"]
    assert own["current"]
    details = admin.get("/api/people/ben").json()
    assert details["credentials"] == [found]
    assert admin.get("/api/sessions", params={"person": "ben"}).json()["items"] == []


@pytest.fixture
def place(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.mark.parametrize("change", ["remove", "move"])
def test_stream_ends_after_change_on_another_server(serve: Serve, place: str, change: str) -> None:
    server = serve(store=place)
    elsewhere = open_store(place)
    ana = server.client(server.token("ana", "reviewer", "finance"))
    with reading(ana) as reader:
        began = time.monotonic()
        if change == "remove":
            remove_person(elsewhere, "ana", by="ops")
        else:
            change_person(elsewhere, "ana", by="ops", remove_groups=("finance",))
        assert reader.next()["event"] == "end"
        assert reader.ended.wait(20)
        assert time.monotonic() - began < 10  # two seconds on an idle machine
    elsewhere.close()


@pytest.mark.long
def test_stream_ends_with_its_token(serve: Serve) -> None:
    server = serve()
    admin = server.client(server.token("boss", "admin"))
    made = admin.post("/api/tokens", json={"name": "ana", "ends_in": 1.5}).json()
    with reading(server.client(made["token"])) as reader:
        assert reader.next()["event"] == "end"
        assert reader.ended.wait(20)


def test_request_shows_stand_in_of_absent_reviewer(serve: Serve) -> None:
    server = serve()
    server.token("ana", "reviewer", "finance")
    boss = server.client(server.token("boss", "admin"))
    ben = server.client(server.token("ben"))
    set_stand_in(server.store, "ana", "ben", server.store.now() + 60 * SECOND, by="ops")
    made = _for_finance(server)
    details = ben.get(f"/api/requests/{made}").json()
    assert [(row["person"], row["stand_in"]) for row in details["stand_ins"]] == [("ana", "ben")]
    body = {"type": "approve", "seen_digest": details["digest"]}
    decided = ben.post(f"/api/requests/{made}/decision", json=body)
    assert decided.status_code == 200
    decision = boss.get(f"/api/requests/{made}").json()["decision"]
    assert (decision["by"], decision["on_behalf_of"]) == ("ben", "ana")


def _for_finance(server: Served) -> str:
    """Ask for something that only the group finance may decide; return the id."""
    from sayso import Gate, Paused

    gate = Gate(server.store, agent="payer", wait=0)

    @gate.guard(needs_approval=True, reviewers="group:finance")
    def pay(to: str) -> None: ...

    with pytest.raises(Paused) as caught, gate.run("r"):
        pay("bo")
    return caught.value.requests[0].id
