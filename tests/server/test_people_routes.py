"""People over HTTP: who may change them, and how soon a lost right counts."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from served import Serve, Served, opened
from test_events import reading

from sayso.inbox import change_person, remove_person, revoke_token, set_stand_in
from sayso.stores import open_store
from sayso.types import SECOND

CHANGES = [
    ("GET", "/api/people"),
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


def test_admin_signs_person_out_everywhere(serve: Serve) -> None:
    server = serve()
    admin = server.client(server.token("boss", "admin"))
    token = server.token("ana")
    pages = [server.client(Origin=server.url) for _ in range(2)]
    for page in pages:
        assert page.post("/api/login", json={"token": token}).status_code == 204
    sessions = admin.get("/api/sessions").json()["items"]
    assert {row["person"] for row in sessions} == {"ana"}
    assert "127.0.0.1" in sessions[0]["device"]
    ended = admin.delete("/api/sessions", params={"person": "ana"}).json()["items"]
    assert len(ended) == 2
    assert {page.get("/api/me").status_code for page in pages} == {401}
    assert server.client(token).get("/api/me").status_code == 200


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


def test_stream_ends_with_its_token(serve: Serve) -> None:
    server = serve()
    admin = server.client(server.token("boss", "admin"))
    made = admin.post("/api/tokens", json={"name": "ana", "ends_in": 1.5}).json()
    with reading(server.client(made["token"])) as reader:
        assert reader.next()["event"] == "end"
        assert reader.ended.wait(20)


def test_long_poll_ends_when_its_token_is_revoked(serve: Serve) -> None:
    server = serve()
    agent = server.client(server.token("bot", "agent"))
    made = opened(agent)
    (row,) = server.store.credentials("bot")
    timer = threading.Timer(0.3, lambda: revoke_token(server.store, row.id, by="ops"))
    timer.start()
    began = time.monotonic()
    answer = agent.get(f"/api/requests/{made['id']}/wait", params={"timeout": 60})
    assert answer.status_code == 401
    assert time.monotonic() - began < 30
    timer.join()


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
