"""Saved views: per person, on the server, with counts, whatever device saves them."""

from __future__ import annotations

import threading

from served import FINANCE_ONLY, FOR_FINANCE, Serve, opened

from sayso.server.routes.saved_views import MOST_VIEWS


def test_view_is_listed_with_its_count_on_every_device(serve: Serve) -> None:
    server = serve()
    bot = server.client(server.token("bot", "agent"))
    desk = server.client(server.token("ana"))
    phone = server.client(server.token("ana"))
    opened(bot, "k1", args={"to": "Hooli"})
    opened(bot, "k2", args={"to": "Initech"})
    saved = desk.put("/api/me/views/Hooli / high", json={"q": "Hooli tool:refund"})
    assert saved.status_code == 200, saved.text
    (view,) = phone.get("/api/me/views").json()["items"]
    assert view == saved.json()
    assert (view["name"], view["count"], view["yours"]) == ("Hooli / high", 1, 1)
    assert view["filters"]["q"] == "Hooli tool:refund"
    other = server.client(server.token("ben"))
    assert other.get("/api/me/views").json()["items"] == []
    assert phone.delete("/api/me/views/Hooli / high").status_code == 204
    assert desk.get("/api/me/views").json()["items"] == []
    assert desk.delete("/api/me/views/Hooli / high").status_code == 404


def test_saved_view_counts_what_its_person_may_see(serve: Serve) -> None:
    server = serve(policy=FOR_FINANCE)
    bot = server.client(server.token("bot", "agent"))
    opened(bot, "k1", args=FINANCE_ONLY)
    counts = {}
    for name, groups in (("ana", ()), ("fin", ("finance",))):
        client = server.client(server.token(name, "reviewer", *groups))
        counts[name] = client.put("/api/me/views/all", json={"tool": "refund"}).json()["count"]
    assert counts == {"ana": 0, "fin": 1}


def test_view_of_same_name_is_replaced(serve: Serve) -> None:
    server = serve()
    ana = server.client(server.token("ana"))
    for risk in ("low", "high"):
        ana.put("/api/me/views/mine", json={"risk": risk, "mine": True, "expires_within": 3600})
    (view,) = ana.get("/api/me/views").json()["items"]
    assert (view["filters"]["risk"], view["filters"]["mine"]) == ("high", True)


def test_view_with_wrong_filters_is_refused(serve: Serve) -> None:
    server = serve()
    ana = server.client(server.token("ana"))
    for body in ({"risk": "huge"}, {"status": "any"}, {"q": 5}):
        assert ana.put("/api/me/views/x", json=body).status_code == 422
    assert ana.put("/api/me/views/%20", json={}).status_code == 422
    assert ana.put(f"/api/me/views/{'x' * 41}", json={}).status_code == 422
    assert ana.put("/api/me/views/a%E2%80%AEb", json={}).status_code == 422
    assert ana.get("/api/me/views").json()["items"] == []


def test_person_has_only_so_many_views(serve: Serve) -> None:
    server = serve()
    ana = server.client(server.token("ana"))
    for number in range(MOST_VIEWS):
        assert ana.put(f"/api/me/views/view {number}", json={}).status_code == 200
    refused = ana.put("/api/me/views/one more", json={})
    assert refused.status_code == 409
    assert "remove one" in refused.json()["message"]
    assert ana.put("/api/me/views/view 7", json={"q": "new"}).status_code == 200


def test_devices_that_save_at_once_lose_nothing(serve: Serve) -> None:
    server = serve()
    clients = [server.client(server.token("ana")) for _ in range(4)]
    put = [
        threading.Thread(target=client.put, args=(f"/api/me/views/{n}",), kwargs={"json": {}})
        for n, client in enumerate(clients)
    ]
    for thread in put:
        thread.start()
    for thread in put:
        thread.join()
    names = {view["name"] for view in clients[0].get("/api/me/views").json()["items"]}
    assert names == {"0", "1", "2", "3"}


def test_views_that_something_else_wrote_are_empty(serve: Serve) -> None:
    server = serve()
    ana = server.client(server.token("ana"))
    server.store.move_cursor("views:ana", '{"x": {"risk": "<img>"}}', expected="")
    assert ana.get("/api/me/views").json()["items"] == []
    assert ana.put("/api/me/views/x", json={}).status_code == 200
