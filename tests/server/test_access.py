"""Access: roles, tokens, links, sessions, and pages of other people."""

from __future__ import annotations

import socket
from typing import Any

import httpx
import pytest
from served import FINANCE_ONLY, FOR_FINANCE, Serve, Served, mailer, opened

from sayso import Approve, Inbox, NotAllowed, Policy, Rule
from sayso.inbox import revoke_token
from sayso.inbox.directory import new_link
from sayso.server import create_app
from sayso.server.middleware import COOKIE

ROUTES: list[tuple[str, str, tuple[str, ...]]] = [
    ("GET", "/api/agents", ("agent", "chat", "reviewer", "admin")),
    ("GET", "/api/hooks", ("agent", "reviewer", "admin")),
    ("GET", "/api/me", ("agent", "chat", "reviewer", "admin")),
    ("GET", "/api/requests", ("reviewer", "admin")),
    ("POST", "/api/decisions", ("reviewer", "admin")),
    ("POST", "/api/requests/req_x/decision", ("chat", "reviewer", "admin")),
    ("POST", "/api/requests/req_x/reveal", ("reviewer", "admin")),
    ("GET", "/api/grants", ("reviewer", "admin")),
    ("DELETE", "/api/grants/grt_x", ("reviewer", "admin")),
    ("GET", "/api/refusals", ("reviewer", "admin")),
    ("DELETE", "/api/refusals/ref_x", ("reviewer", "admin")),
    ("POST", "/api/requests", ("agent",)),
    ("GET", "/api/requests/req_x/wait", ("agent",)),
    ("POST", "/api/requests/req_x/claim", ("agent",)),
    ("POST", "/api/requests/req_x/result", ("agent",)),
    ("GET", "/api/runs", ("reviewer", "admin")),
    ("GET", "/api/audit", ("reviewer", "admin")),
    ("POST", "/api/audit/verify", ("reviewer", "admin")),
    ("GET", "/api/stats", ("reviewer", "admin")),
    ("GET", "/api/chats", ("chat", "reviewer", "admin")),
    ("POST", "/api/chat", ("chat", "reviewer", "admin")),
]


@pytest.fixture
def server(serve: Serve) -> Served:
    return serve(agents=[mailer()])


def test_every_route_checks_its_roles(server: Served) -> None:
    clients = {
        role: server.client(server.token(f"the {role}", role))
        for role in ("agent", "chat", "reviewer", "admin")
    }
    nobody = server.client()
    for method, path, roles in ROUTES:
        assert nobody.request(method, path).status_code == 401, path
        for role, client in clients.items():
            code = client.request(method, path).status_code
            assert (code in (401, 403)) == (role not in roles), (method, path, role, code)


@pytest.mark.parametrize("header", ["Bearer nope", "Bearer", "Basic YTpi", "nope", "Bearer é"])
def test_malformed_token_is_refused(server: Served, header: str) -> None:
    answer = server.client().get("/api/me", headers={"Authorization": header.encode()})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"


def test_revoked_token_is_refused(server: Served) -> None:
    client = server.client(server.token("ana"))
    assert client.get("/api/me").json()["name"] == "ana"
    (principal,) = [p for p in server.store.credentials() if p.person == "ana"]
    revoke_token(server.store, principal.id, by="test")
    assert client.get("/api/me").status_code == 401


def signed_in(server: Served, secret: str) -> httpx.Client:
    client = server.client(Origin=server.url)
    answer = client.post("/api/login", json={"token": secret})
    assert answer.status_code == 204, answer.text
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert "SameSite=strict" in answer.headers["set-cookie"]
    return client


def test_link_signs_in_once(server: Served) -> None:
    secret = new_link(server.store, "ana")
    client = signed_in(server, secret)
    me = client.get("/api/me").json()
    assert (me["name"], me["role"], me["assurance"]) == ("ana", "admin", "session")
    second = server.client().post("/api/login", json={"token": secret})
    assert (second.status_code, COOKIE in second.cookies) == (401, False)
    bearer = server.client(secret).get("/api/me")
    assert bearer.status_code == 401  # a link is no token


def test_session_ends_with_its_token(server: Served) -> None:
    token = server.token("ana")
    client = signed_in(server, token)
    assert client.get("/api/requests").status_code == 200
    (principal,) = [p for p in server.store.credentials() if p.id.startswith("tok_")]
    revoke_token(server.store, principal.id, by="test")
    assert client.get("/api/requests").status_code == 401


def test_signing_out_ends_the_session_itself(server: Served) -> None:
    client = signed_in(server, server.token("ana"))
    cookie = client.cookies[COOKIE]
    assert client.post("/api/logout").status_code == 204
    again = server.client(Cookie=f"{COOKIE}={cookie}")
    assert again.get("/api/me").status_code == 401


def test_agent_cannot_sign_in_to_the_page(server: Served) -> None:
    answer = server.client().post("/api/login", json={"token": server.token("bot", "agent")})
    assert answer.status_code == 403


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, 403),  # a cookie without an Origin
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "http://[::1"}, 403),
    ],
)
def test_cookie_write_needs_the_same_origin(
    server: Served, headers: dict[str, str], code: int
) -> None:
    signed = signed_in(server, server.token("ana"))
    client = server.client()
    client.cookies.set(COOKIE, signed.cookies[COOKIE])
    assert client.post("/api/audit/verify", headers=headers).status_code == code
    assert client.post("/api/audit/verify", headers={"Origin": server.url}).status_code == 200


def test_foreign_origin_with_a_token_cannot_write(server: Served) -> None:
    client = server.client(server.token("ana"), Origin="https://evil.example")
    assert client.post("/api/audit/verify").status_code == 403


def test_cors_allows_only_named_origins(serve: Serve) -> None:
    server = serve(agents=[mailer()], origins=["https://app.example.com"])
    token = server.token("ana")
    asks = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type,user-agent",
    }
    page, foreign = "https://app.example.com", "https://evil.example"
    told = server.client().options("/api/chat", headers={**asks, "Origin": page})
    assert told.status_code == 204
    assert told.headers["access-control-allow-origin"] == page
    assert "POST" in told.headers["access-control-allow-methods"]
    assert told.headers["access-control-allow-headers"] == asks["Access-Control-Request-Headers"]
    assert "access-control-allow-credentials" not in told.headers
    for path, code in (("/api/me", 200), ("/api/nope", 404)):
        answer = server.client(token, Origin=page).get(path)
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (code, page)
        assert "Origin" in answer.headers["vary"]
    for method, path in (("OPTIONS", "/api/chat"), ("GET", "/api/me"), ("POST", "/api/chat")):
        answer = server.client(token, Origin=foreign).request(method, path, headers=asks)
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("written", ["https://app.example.com", "HTTPS://App.Example.com:443/"])
def test_origins_are_compared_as_browsers_write_them(serve: Serve, written: str) -> None:
    server = serve(origins=written, hosts="https://approvals.example.com:8443/")
    reviewer = server.client(server.token("ana", "reviewer"))
    headers = {"Origin": "https://app.example.com", "Host": "approvals.example.com"}
    answer = reviewer.post("/api/audit/verify", headers=headers)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://app.example.com"


@pytest.mark.parametrize(
    "wrong",
    ["*", "null", "", "app.example.com", "https://*.example.com", "https://a.example/p", "ftp://a"],
)
def test_malformed_origin_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="is not an origin"):
        create_app(store="memory://", origins=["https://app.example.com", wrong])


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8321", "127.0.0.1.evil.example", "", "[::1"]
)
def test_rebound_name_is_refused(server: Served, host: str) -> None:
    answer = server.client().get("/healthz", headers={"Host": host})
    assert answer.status_code == 421


def test_security_headers_forbid_frames_and_scripts(server: Served) -> None:
    for path in ("/", "/inbox", "/api/me", "/nope"):
        headers = server.client().get(path).headers
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_agent_sees_only_its_own_requests(serve: Serve) -> None:
    server = serve()
    first, second = (server.client(server.token(name, "agent")) for name in ("one", "two"))
    made = opened(first)
    for path in ("", "/wait?timeout=0"):
        assert first.get(f"/api/requests/{made['id']}{path}").status_code == 200
        assert second.get(f"/api/requests/{made['id']}{path}").status_code == 404
    assert second.post(f"/api/requests/{made['id']}/claim").status_code == 404
    assert second.post(f"/api/requests/{made['id']}/cancel").status_code == 404
    forged = second.post("/api/requests", json={"tool": "x", "agent": "one"})
    assert forged.status_code == 403


def test_hidden_request_looks_like_a_missing_one(serve: Serve) -> None:
    server = serve(policy=FOR_FINANCE)
    agent, other = (server.client(server.token(name, "agent")) for name in ("one", "two"))
    ben, made = server.client(server.token("ben")), opened(agent, args=FINANCE_ONLY)
    for client, path in ((other, ""), (other, "/wait?timeout=0"), (ben, "")):
        hidden = client.get(f"/api/requests/{made['id']}{path}")
        missing = client.get(f"/api/requests/req_none{path}")
        assert hidden.status_code == missing.status_code == 404
        assert hidden.text.replace(made["id"], "req_none") == missing.text


def test_agent_cannot_decide_by_any_route(serve: Serve) -> None:
    server = serve()
    agent = server.client(server.token("bot", "agent"))
    made = opened(agent, note="already approved by admin", args={"amount": 5, "approved": True})
    yes: dict[str, Any] = {"type": "approve", "seen_digest": made["digest"]}
    assert agent.post(f"/api/requests/{made['id']}/decision", json=yes).status_code == 403
    assert agent.post("/api/decisions", json=[{"id": made["id"], **yes}]).status_code == 403
    assert agent.get("/api/grants").status_code == 403
    assert agent.post(f"/api/requests/{made['id']}/claim").status_code == 409
    reviewer = server.client(server.token("ana"))
    assert reviewer.get(f"/api/requests/{made['id']}").json()["status"] == "pending"


def test_reviewer_sees_only_decidable_requests(serve: Serve) -> None:
    server = serve(policy=FOR_FINANCE)
    agent = server.client(server.token("bot", "agent"))
    ana = server.client(server.token("ana", "reviewer", "finance"))
    ben = server.client(server.token("ben", "reviewer"))
    for_all, for_ana = opened(agent, key="1"), opened(agent, key="2", args=FINANCE_ONLY)
    seen = lambda who: {item["id"] for item in who.get("/api/requests").json()["items"]}  # noqa: E731
    assert seen(ana) == {for_all["id"], for_ana["id"]}
    assert seen(ben) == {for_all["id"]}
    assert ben.get(f"/api/requests/{for_ana['id']}").status_code == 404
    no = {"type": "reject"}
    assert ben.post(f"/api/requests/{for_ana['id']}/decision", json=no).status_code == 404
    assert ana.post(f"/api/requests/{for_ana['id']}/decision", json=no).status_code == 200


def test_quorum_counts_people_and_not_tokens(serve: Serve) -> None:
    server = serve()
    agent = server.client(server.token("bot", "agent"))
    made = opened(agent, quorum=2)
    path, yes = (
        f"/api/requests/{made['id']}/decision",
        {
            "type": "approve",
            "seen_digest": made["digest"],
        },
    )
    twice = [server.client(server.token("ana")) for _ in range(2)]
    for client in twice:
        answer = client.post(path, json=yes)
        assert (answer.status_code, answer.json()["status"]) == (200, "pending")
    assert len(answer.json()["votes"]) == 1
    done = server.client(server.token("ben")).post(path, json=yes)
    assert done.json()["status"] == "approved"


def test_requester_cannot_decide_high_risk_over_http(serve: Serve) -> None:
    server = serve()
    agent = server.client(server.token("bot", "agent"))
    made = opened(agent, requester="ana", risk={"level": "high", "reasons": ["money"]})
    path, yes = (
        f"/api/requests/{made['id']}/decision",
        {
            "type": "approve",
            "seen_digest": made["digest"],
        },
    )
    assert server.client(server.token("ana")).post(path, json=yes).status_code == 403
    assert server.client(server.token("ben")).post(path, json=yes).status_code == 200


PAGE = "https://app.example.com"


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": PAGE},  # a named origin, as CORS or as a `no-cors` form post
        {"Origin": PAGE, "Content-Type": "text/plain"},
        {"Origin": PAGE, "Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"},
        {"Origin": "null"},
        {"Origin": "null", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "https://127.0.0.1"},
    ],
)
def test_cookie_from_another_origin_is_refused(serve: Serve, headers: dict[str, str]) -> None:
    server = serve(origins=[PAGE])
    cookie = signed_in(server, new_link(server.store, "ana")).cookies[COOKIE]
    client = server.client(Cookie=f"{COOKIE}={cookie}", **headers)
    found = opened(server.client(server.token("bot", "agent")))
    decision = f"/api/requests/{found['id']}/decision"
    for answer in (
        client.post(decision, json={"type": "approve", "seen_digest": found["digest"]}),
        client.post(decision, json={"type": "reject"}),
        client.post(decision, json={"type": "respond", "value": 1}),
        client.post("/api/logout"),
        client.get("/api/me"),
        client.get(f"/api/requests/{found['id']}"),
        client.get("/api/events"),
    ):
        assert answer.status_code == 403, (answer.request.method, answer.request.url)
    own = server.client(Cookie=f"{COOKIE}={cookie}", Origin=server.url)
    assert own.get(f"/api/requests/{found['id']}").json()["status"] == "pending"


def test_named_origin_accepts_tokens_but_no_sign_in(serve: Serve) -> None:
    server = serve(origins=[PAGE])
    token = server.token("ana")
    both = server.client(token, Origin=PAGE, Cookie=f"{COOKIE}=x")
    assert both.get("/api/me").json()["name"] == "ana"
    assert both.post("/api/audit/verify").status_code == 200
    answer = server.client(Origin=PAGE).post("/api/login", json={"token": token})
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("host", ["sayso", "testserver", "intranet:8321", "user@127.0.0.1", "a b"])
def test_unknown_host_name_is_refused(serve: Serve, host: str) -> None:
    server = serve(hosts=["approvals"])
    assert server.client().get("/healthz", headers={"Host": host}).status_code == 421
    for own in ("localhost", "LOCALHOST:1", "approvals", "127.0.0.1", "[::1]:8321"):
        assert server.client().get("/healthz", headers={"Host": own}).status_code == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/livez"])
def test_probe_by_address_needs_no_host_name(serve: Serve, path: str) -> None:
    """Kubernetes and load balancers probe the address of a server that has a public name."""
    server = serve(hosts=["https://approvals.example.com"])
    for host in ("10.42.0.7:8321", "[fd00::7]:8321"):
        answer = server.client().get(path, headers={"Host": host})
        assert answer.status_code in (200, 204), (host, answer.text)


def test_repeated_host_or_credential_header_is_refused(server: Served) -> None:
    for name, values in (
        ("Host", ["127.0.0.1", "evil.example"]),
        ("Host", ["127.0.0.1", "127.0.0.1"]),
        ("Origin", [server.url, "https://evil.example"]),
        ("Authorization", ["Bearer a", "Bearer b"]),
    ):
        lines = "".join(f"{name}: {value}\r\n" for value in values)
        host = "" if name == "Host" else f"Host: 127.0.0.1:{server.port}\r\n"
        with socket.create_connection(("127.0.0.1", server.port), 10) as raw:
            raw.sendall(f"GET /healthz HTTP/1.1\r\n{host}{lines}\r\n".encode())
            assert b" 400 " in raw.recv(1000).split(b"\r\n")[0], (name, values)


def test_origin_is_scheme_host_and_port(serve: Serve) -> None:
    server = serve(hosts=["https://approvals.example.com"])
    token = server.token("ana")
    for host, proxied, origin, code in (
        (f"127.0.0.1:{server.port}", "", f"http://127.0.0.1:{server.port}", 204),
        (f"127.0.0.1:{server.port}", "", f"https://127.0.0.1:{server.port}", 403),
        (f"127.0.0.1:{server.port}", "https", f"https://127.0.0.1:{server.port}", 204),
        (f"127.0.0.1:{server.port}", "https", f"http://127.0.0.1:{server.port}", 403),
        ("approvals.example.com", "", "https://approvals.example.com", 204),
        ("approvals.example.com", "", "http://approvals.example.com", 403),
        ("localhost", "", "http://localhost:80", 204),
    ):
        headers = {"Host": host, "Origin": origin}
        headers |= {"X-Forwarded-Proto": proxied} if proxied else {}
        answer = server.client().post("/api/login", json={"token": token}, headers=headers)
        assert answer.status_code == code, (host, proxied, origin, answer.text)


def test_tls_sets_secure_cookie_and_hsts(serve: Serve) -> None:
    server = serve()
    https = {"X-Forwarded-Proto": "https", "Origin": f"https://127.0.0.1:{server.port}"}
    token = server.token("ana")
    answer = server.client(**https).post("/api/login", json={"token": token})
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-sayso_session=")
    for part in ("Secure", "HttpOnly", "Path=/", "SameSite=strict"):
        assert part in cookie
    assert "Domain" not in cookie
    assert "max-age=31536000" in answer.headers["strict-transport-security"]
    name, _, value = cookie.split(";")[0].partition("=")
    assert server.client(Cookie=f"{name}={value}", **https).get("/api/me").status_code == 200
    # Any page of the domain could have set a cookie without the prefix.
    assert server.client(Cookie=f"{COOKIE}={value}", **https).get("/api/me").status_code == 401
    plain = server.client().post("/api/login", json={"token": token})
    assert plain.headers["set-cookie"].startswith("sayso_session=")
    assert "strict-transport-security" not in plain.headers


def test_session_keeps_the_assurance_of_its_sign_in(serve: Serve) -> None:
    server = serve(policy=Policy([Rule("refund", assurance="session")]))
    found = opened(server.client(server.token("bot", "agent")))
    path = f"/api/requests/{found['id']}/decision"
    yes = {"type": "approve", "seen_digest": found["digest"]}
    pasted = signed_in(server, server.token("ana"))
    assert pasted.get("/api/me").json()["assurance"] == "token"
    refused = pasted.post(path, json=yes)
    assert (refused.status_code, refused.json()["error"]) == (403, "NotAllowed")
    by_link = signed_in(server, new_link(server.store, "ben", role="reviewer"))
    assert by_link.get("/api/me").json()["assurance"] == "session"
    decided = by_link.post(path, json=yes)
    assert (decided.status_code, decided.json()["decision"]["assurance"]) == (200, "session")


def test_link_does_not_replace_a_session_unasked(server: Served) -> None:
    client = signed_in(server, new_link(server.store, "ana"))
    secret = new_link(server.store, "mallory")
    refused = client.post("/api/login", json={"token": secret})
    assert (refused.status_code, refused.json()["error"]) == (409, "Conflict")
    assert "'ana'" in refused.json()["message"]
    assert client.get("/api/me").json()["name"] == "ana"
    assert client.post("/api/login", json={"token": new_link(server.store, "ana")}).is_success
    ana = client.cookies[COOKIE]
    assert client.post("/api/login", json={"token": secret, "switch": True}).status_code == 204
    assert client.get("/api/me").json()["name"] == "mallory"
    assert server.client(Cookie=f"{COOKIE}={ana}").get("/api/me").status_code == 401


@pytest.mark.parametrize(
    "name",
    ["an\u200ba", "an\u202ea", "an\x1b[2Ka", "an\x00a", "a" * 5000, "\u2066ana", "ana\ufeff", " "],
)
def test_name_with_hidden_characters_gets_no_token(server: Served, name: str) -> None:
    with pytest.raises(NotAllowed):
        server.token(name)
    with pytest.raises(NotAllowed):
        server.token(name, "agent")


def test_name_spellings_count_once_in_quorum(serve: Serve) -> None:
    server = serve(policy=Policy([Rule("refund", quorum=2)]))
    found = opened(server.client(server.token("bot", "agent")))
    path = f"/api/requests/{found['id']}/decision"
    yes = {"type": "approve", "seen_digest": found["digest"]}
    for spelling in ("Zo\u00eb", "Zoe\u0308", "\uff3ao\u00eb"):
        assert server.client(server.token(spelling)).post(path, json=yes).status_code == 200
    voted = server.client(server.token("ana")).get(f"/api/requests/{found['id']}").json()
    assert (voted["status"], [vote["by"] for vote in voted["votes"]]) == ("pending", ["Zo\u00eb"])


@pytest.mark.parametrize("name", ["bot", "BOT", "\uff42ot"])
def test_asking_agents_name_cannot_decide(serve: Serve, name: str) -> None:
    server = serve(auth=False)
    found = opened(server.client(), agent="bot")
    with pytest.raises(NotAllowed, match="is the agent that requested"):
        Inbox(server.store).decide_sync(
            found["id"], Approve(), by=name, seen_digest=found["digest"]
        )


def test_agents_have_separate_run_and_thread_names(serve: Serve) -> None:
    server = serve()
    bot, eve = (server.client(server.token(name, "agent")) for name in ("bot", "eve"))
    for named in ({"run": "order-17"}, {"thread": "t-1"}, {"run": "r", "thread": "t-2"}):
        first, second = (opened(client, key=str(named), **named) for client in (bot, eve))
        assert first["run"].startswith("bot/")
        assert second["run"] == first["run"].replace("bot/", "eve/")
        assert second["thread"] == first["thread"].replace("bot/", "eve/")
        again = opened(bot, key=str(named), **named)
        assert (again["id"], again["run"]) == (first["id"], first["run"])
    with pytest.raises(NotAllowed, match="/"):
        server.token("bot/order-17", "agent")
