"""Sign-in through an OpenID provider and with passkeys, over HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
from oidc_provider import CLIENT, SECRET, OpenIDProvider
from served import Serve, Served, opened
from software_passkey import SoftwarePasskey
from typer.testing import CliRunner

import sayso
from sayso import audit
from sayso.audit.prove import prove
from sayso.audit.replay import ImpossibleEvent, _check_passkey
from sayso.cli.entry import app_of
from sayso.codec import loads
from sayso.inbox import add_person, remove_person
from sayso.inbox.directory import change_person, new_link
from sayso.passkeys import encoded
from sayso.policy import Policy, Rule
from sayso.server.oidc import Settings


@pytest.fixture
def idp() -> Iterator[OpenIDProvider]:
    provider = OpenIDProvider().start()
    yield provider
    provider.stop()


@pytest.fixture
def served(serve: Serve, idp: OpenIDProvider) -> Served:
    return serve_with(serve, idp)


def serve_with(serve: Serve, idp: OpenIDProvider, **more: Any) -> Served:
    names = {"issuer": idp.issuer, "client_id": CLIENT, "client_secret": SECRET}
    server = serve(oidc=Settings(**names, url="http://127.0.0.1:1", **more))
    settings = server.app.state.sayso.oidc.settings
    object.__setattr__(settings, "url", server.url)  # known only once the port is
    return server


def oidc_sign_in(browser: httpx.Client, idp: OpenIDProvider, **query: str) -> httpx.Response:
    """Go through the provider's page as a browser does."""
    begun = browser.get("/api/login/oidc", params=query)
    assert begun.status_code == 302, begun.text
    return browser.get("/api/login/oidc/callback", params=idp.go(begun.headers["location"]))


def browser_of(served: Served) -> httpx.Client:
    """Return a browser on the server's own pages, at a name that passkeys can have."""
    origin = served.url.replace("127.0.0.1", "localhost")
    client = served.client(Origin=origin)
    client.base_url = httpx.URL(origin)
    return client


def signed_in(served: Served, person: str = "ana", role: str = "reviewer") -> httpx.Client:
    """Return a browser that is signed in by a one-time link."""
    browser = browser_of(served)
    link = new_link(served.store, person, role=role)
    assert browser.post("/api/login", json={"token": link}).status_code == 204
    return browser


# -- OpenID Connect


def test_provider_opens_session(served: Served, idp: OpenIDProvider) -> None:
    browser = served.client()
    landed = oidc_sign_in(browser, idp, page="/runs")
    assert (landed.status_code, landed.headers["location"]) == (303, "/runs")
    me = browser.get("/api/me").json()
    assert (me["name"], me["role"], me["groups"]) == ("ana", "reviewer", ["finance"])
    assert me["assurance"] == "session"
    assert audit.verify(served.store).ok


def test_login_page_learns_ways_to_sign_in(served: Served, serve: Serve) -> None:
    assert served.client().get("/api/login").json() == {"oidc": True, "passkeys": True}
    assert serve().client().get("/api/login").json()["oidc"] is False


def test_groups_follow_provider(served: Served, idp: OpenIDProvider) -> None:
    first, second = served.client(), served.client()
    oidc_sign_in(first, idp)
    idp.claims["groups"] = ["ops"]
    oidc_sign_in(second, idp)
    for browser in (first, second):  # the session from before, too
        assert browser.get("/api/me").json()["groups"] == ["ops"]


def test_admin_groups_decide_role(serve: Serve, idp: OpenIDProvider) -> None:
    served = serve_with(serve, idp, admin_groups=("root",))
    browser = served.client()
    idp.claims["groups"] = ["root"]
    oidc_sign_in(browser, idp)
    assert browser.get("/api/me").json()["role"] == "admin"
    idp.claims["groups"] = []
    oidc_sign_in(served.client(), idp)
    assert browser.get("/api/me").json()["role"] == "reviewer"


def test_mail_address_alone_links_no_person(served: Served, idp: OpenIDProvider) -> None:
    add_person(served.store, "ana", by="test", mail="ana@example.com", role="admin")
    browser = served.client()
    refused = oidc_sign_in(browser, idp)
    assert refused.status_code == 403
    assert "sayso people link ana" in refused.text
    assert browser.get("/api/me").status_code == 401
    change_person(served.store, "ana", by="test", account=(idp.issuer, "user-1"))
    assert oidc_sign_in(browser, idp).status_code == 303
    assert browser.get("/api/me").json()["role"] == "admin"


def test_equal_provider_name_is_another_person(served: Served, idp: OpenIDProvider) -> None:
    oidc_sign_in(served.client(), idp)
    idp.claims["sub"] = "user-2"
    assert oidc_sign_in(served.client(), idp).status_code == 403


def test_removed_person_cannot_sign_in(served: Served, idp: OpenIDProvider) -> None:
    browser = served.client()
    oidc_sign_in(browser, idp)
    remove_person(served.store, "ana", by="test")
    assert browser.get("/api/me").status_code == 401
    assert oidc_sign_in(browser, idp).status_code == 403


def test_callback_of_another_browser_opens_no_session(served: Served, idp: OpenIDProvider) -> None:
    mine, theirs = served.client(), served.client()
    begun = theirs.get("/api/login/oidc")
    stolen = idp.go(begun.headers["location"])
    assert mine.get("/api/login/oidc/callback", params=stolen).status_code == 401
    mine.get("/api/login/oidc")  # with an attempt of its own
    assert mine.get("/api/login/oidc/callback", params=stolen).status_code == 401
    assert mine.get("/api/me").status_code == 401


def test_callback_works_once(served: Served, idp: OpenIDProvider) -> None:
    browser = served.client()
    begun = browser.get("/api/login/oidc")
    reply = idp.go(begun.headers["location"])
    assert browser.get("/api/login/oidc/callback", params=reply).status_code == 303
    assert browser.get("/api/login/oidc/callback", params=reply).status_code == 401


def test_hostile_reason_is_shown_as_text(served: Served) -> None:
    browser = served.client()
    begun = browser.get("/api/login/oidc")
    state = dict(parse_qsl(urlsplit(begun.headers["location"]).query))["state"]
    reply = {"state": state, "error": "x", "error_description": "<script>alert(1)</script>"}
    page = browser.get("/api/login/oidc/callback", params=reply)
    assert page.status_code == 401
    assert "<script>" not in page.text


@pytest.mark.parametrize("page", ["//evil.example.com", "/\\evil.example.com", "https://e.com"])
def test_sign_in_leads_to_own_page(served: Served, idp: OpenIDProvider, page: str) -> None:
    landed = oidc_sign_in(served.client(), idp, page=page)
    assert landed.headers["location"] == "/"


def test_provider_ends_sessions(served: Served, idp: OpenIDProvider) -> None:
    browser, other = served.client(), served.client()
    idp.claims["sid"] = "s-1"
    oidc_sign_in(browser, idp)
    forged = other.post("/api/login/oidc/logout", data={"logout_token": "a.b.c"})
    assert forged.status_code == 401
    assert browser.get("/api/me").status_code == 200
    token = idp.logout_token(sid="s-1")
    assert other.post("/api/login/oidc/logout", data={"logout_token": token}).status_code == 200
    assert browser.get("/api/me").status_code == 401


def test_unconfigured_provider_is_not_found(serve: Serve) -> None:
    assert serve().client().get("/api/login/oidc").status_code == 404


# -- passkeys


def with_passkey(served: Served, person: str = "ana") -> tuple[httpx.Client, SoftwarePasskey]:
    browser = signed_in(served, person)
    device = SoftwarePasskey(served.url.replace("127.0.0.1", "localhost"))
    begun = browser.post("/api/passkeys/registration/options").json()
    answer = device.create(begun["options"])
    added = browser.post(
        "/api/passkeys",
        json={"statement": begun["statement"], "answer": answer, "name": "My phone"},
    )
    assert added.status_code == 201, added.text
    return browser, device


def passkey_sign_in(browser: httpx.Client, device: SoftwarePasskey) -> dict[str, Any]:
    begun = browser.post("/api/login/passkey/options").json()
    return {"statement": begun["statement"], "answer": device.get(begun["options"])}


def test_passkey_opens_session(serve: Serve) -> None:
    served = serve()
    owner, device = with_passkey(served)
    (listed,) = owner.get("/api/passkeys").json()["items"]
    assert listed["device"] == "My phone"
    browser = browser_of(served)
    body = passkey_sign_in(browser, device)
    assert browser.post("/api/login/passkey", json=body).status_code == 204
    me = browser.get("/api/me").json()
    assert (me["name"], me["assurance"]) == ("ana", "session")
    assert audit.verify(served.store).ok


def test_passkey_answer_works_once(serve: Serve) -> None:
    served = serve()
    owner, device = with_passkey(served)
    thief = browser_of(served)
    body = passkey_sign_in(owner, device)
    assert owner.post("/api/login/passkey", json=body).status_code == 204
    assert thief.post("/api/login/passkey", json=body).status_code == 401


def test_passkey_made_for_another_person_is_not_added(serve: Serve) -> None:
    served = serve()
    ana, ben = signed_in(served), signed_in(served, "ben")
    device = SoftwarePasskey(served.url.replace("127.0.0.1", "localhost"))
    begun = ana.post("/api/passkeys/registration/options").json()
    body = {"statement": begun["statement"], "answer": device.create(begun["options"])}
    refused = ben.post("/api/passkeys", json=body)
    assert (refused.status_code, "for another person" in refused.text) == (403, True)
    assert ben.get("/api/passkeys").json()["items"] == []
    assert ana.post("/api/passkeys", json=body).status_code == 201


def test_passkey_statement_serves_one_purpose_on_one_site(careful: Served) -> None:
    """What a passkey signed for a decision opens no session, and another site has no part in it."""
    request = opened(careful.client(careful.token("bot", "agent")))
    browser, device = with_passkey(careful)
    signed_decision = confirm(browser, device, request)["passkey"]
    thief = browser_of(careful)
    refused = thief.post("/api/login/passkey", json=signed_decision)
    assert (refused.status_code, "no answer to a sign-in" in refused.text) == (403, True)
    body = passkey_sign_in(browser, device)
    elsewhere = json.loads(body["statement"]) | {"origin": "https://evil.example"}
    refused = thief.post("/api/login/passkey", json={**body, "statement": json.dumps(elsewhere)})
    assert (refused.status_code, "for another site" in refused.text) == (403, True)
    assert thief.get("/api/me").status_code == 401


def test_removed_passkey_ends_its_sessions(serve: Serve) -> None:
    served = serve()
    owner, device = with_passkey(served)
    browser = browser_of(served)
    browser.post("/api/login/passkey", json=passkey_sign_in(browser, device))
    (listed,) = owner.get("/api/passkeys").json()["items"]
    assert owner.delete(f"/api/passkeys/{listed['id']}").status_code == 204
    assert browser.get("/api/me").status_code == 401
    body = passkey_sign_in(browser, device)
    assert browser.post("/api/login/passkey", json=body).status_code == 401


def test_passkey_id_is_no_secret(serve: Serve) -> None:
    served = serve()
    _, device = with_passkey(served)
    for headers in ({"Authorization": f"Bearer {encoded(device.id)}"}, {}):
        stranger = browser_of(served)
        stranger.headers.update(headers)
        stranger.cookies.set("sayso_session", encoded(device.id))
        assert stranger.get("/api/me").status_code == 401


def test_person_removes_only_own_passkeys(serve: Serve) -> None:
    served = serve()
    owner, _ = with_passkey(served)
    (listed,) = owner.get("/api/passkeys").json()["items"]
    other = signed_in(served, "ben")
    assert other.delete(f"/api/passkeys/{listed['id']}").status_code == 404
    assert other.get("/api/passkeys").json()["items"] == []


# -- confirming decisions


POLICY = Policy([Rule("refund", assurance="passkey", name="refunds")])


@pytest.fixture
def careful(serve: Serve) -> Served:
    return serve(policy=POLICY)


def confirm(
    browser: httpx.Client, device: SoftwarePasskey, request: dict[str, Any], **decision: Any
) -> dict[str, Any]:
    """Return the body of a decision that a passkey confirms."""
    body = {"type": "approve", "seen_digest": request["digest"], **decision}
    begun = browser.post(f"/api/requests/{request['id']}/confirmation", json=body)
    assert begun.status_code == 200, begun.text
    answer = device.get(begun.json()["options"])
    return {**body, "passkey": {"statement": begun.json()["statement"], "answer": answer}}


def decide(browser: httpx.Client, request: dict[str, Any], body: Any) -> httpx.Response:
    return browser.post(f"/api/requests/{request['id']}/decision", json=body)


def test_session_without_passkey_cannot_decide(careful: Served) -> None:
    request = opened(careful.client(careful.token("bot", "agent")))
    browser = signed_in(careful)
    refused = decide(browser, request, {"type": "approve", "seen_digest": request["digest"]})
    assert refused.status_code == 403
    assert "passkey" in refused.json()["message"]


@pytest.mark.parametrize(
    "decision",
    [
        {"type": "approve"},
        {"type": "reject", "message": "not this one", "stop": True},
        {"type": "respond", "value": {"refunded": 5}},
        {"type": "edit", "args": {"amount": 4}},
    ],
    ids=lambda decision: decision["type"],
)
def test_passkey_confirms_decision(careful: Served, decision: dict[str, Any]) -> None:
    request = opened(careful.client(careful.token("bot", "agent")))
    browser, device = with_passkey(careful)
    decided = decide(browser, request, confirm(browser, device, request, **decision))
    assert decided.status_code == 200, decided.text
    assert decided.json()["decision"]["assurance"] == "passkey"
    assert audit.verify(careful.store).ok
    page = prove(careful.store, request["id"])
    assert request["id"] in page
    file = careful.store.path.with_name("proof.html")  # type: ignore[attr-defined]
    words = ["audit", "prove", request["id"][:9], "--output", str(file)]
    made = CliRunner().invoke(app_of("audit"), [*words, "--store", careful.store.url])
    assert (made.exit_code, file.read_text("utf-8")) == (0, page), made.output
    file.unlink()
    file.mkdir()
    failed = CliRunner().invoke(app_of("audit"), [*words, "--store", careful.store.url])
    assert failed.exit_code == 2
    assert "cannot be written" in failed.output


def test_passkey_confirmation_covers_one_decision(careful: Served) -> None:
    bot = careful.client(careful.token("bot", "agent"))
    first, second = opened(bot), opened(bot, "k2", args={"amount": 500})
    browser, device = with_passkey(careful)
    body = confirm(browser, device, first)
    for wrong in (
        {**body, "seen_digest": second["digest"]},
        {**body, "type": "reject"},
    ):
        assert decide(browser, second, wrong).status_code in (403, 409)
        assert decide(browser, first, {**wrong, "type": "reject"}).status_code == 403
    assert decide(browser, first, body).status_code == 200


def test_passkey_of_another_person_cannot_confirm(careful: Served) -> None:
    request = opened(careful.client(careful.token("bot", "agent")))
    browser, _ = with_passkey(careful)
    _, theirs = with_passkey(careful, "ben")
    body = confirm(browser, theirs, request)
    assert decide(browser, request, body).status_code == 401


def test_changed_statement_cannot_confirm(careful: Served) -> None:
    request = opened(careful.client(careful.token("bot", "agent")))
    browser, device = with_passkey(careful)
    body = confirm(browser, device, request)
    statement = body["passkey"]["statement"]
    for wrong in ("", "{}", "[]", statement.replace(request["id"], "req_other"), statement + " "):
        body["passkey"]["statement"] = wrong
        assert decide(browser, request, body).status_code == 403


def test_forged_event_of_passkey_is_reported(careful: Served) -> None:
    request = opened(careful.client(careful.token("bot", "agent")))
    browser, device = with_passkey(careful)
    decide(browser, request, confirm(browser, device, request))
    (event,) = [
        event for _, event in careful.store.events() if event.type == "decided" and event.call
    ]
    body = loads(event.body or "{}")
    _check_passkey(event, body)
    for change in ({"decision": "reject"}, {"digest": "x"}, {"passkey": None}):
        with pytest.raises(ImpossibleEvent):
            _check_passkey(event, {**body, **change})


def test_rule_asks_for_recent_sign_in(serve: Serve) -> None:
    served = serve(policy=Policy([Rule("refund", fresh="0.5s", name="refunds")]))
    bot = served.client(served.token("bot", "agent"))
    request = opened(bot)
    body = {"type": "approve", "seen_digest": request["digest"]}
    token = served.client(served.token("ben"))
    assert decide(token, request, body).status_code == 403
    browser = signed_in(served)
    time.sleep(0.6)
    refused = decide(browser, request, body)
    assert refused.status_code == 403
    assert "sign in again" in refused.json()["message"]
    with pytest.raises(sayso.NotAllowed):
        served.app.state.sayso.inbox.approve_sync(request["id"], by="ana")
    slow = serve(policy=Policy([Rule("refund", fresh="5m", name="refunds")]))
    request = opened(slow.client(slow.token("bot", "agent")))
    body["seen_digest"] = request["digest"]
    assert decide(signed_in(slow), request, body).status_code == 200


def test_sign_in_without_its_time_is_not_recent(served: Served, idp: OpenIDProvider) -> None:
    """A provider with a session of its own sends the browser back without asking the person."""
    for auth_time in (None, int(time.time()) - 900):
        idp.wrong = {"auth_time": auth_time}
        assert oidc_sign_in(served.client(), idp).status_code == 303
        newest = max(served.store.credentials("ana"), key=lambda row: row.created)
        assert newest.signed_in == (auth_time or 0) * 1_000_000
