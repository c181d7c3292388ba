"""Sign-in by a trusted proxy: valid headers and tokens, and forged ones."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from live_server import LiveServer
from oidc_provider import NOW, OpenIDProvider, name_claims
from served import Serve, Served
from test_feed import reading

from sayso import audit
from sayso.errors import InvalidPolicy
from sayso.inbox import add_person, change_person, remove_person
from sayso.server.proxy import ProxySettings
from sayso.server.serving import server_config

HEADER = "X-Forwarded-User"


def behind(serve: Serve, *peers: str, **more: Any) -> Served:
    """Return a server whose proxy connects from these peers; by default, this machine."""
    settings = {"header": HEADER, **more}
    return serve(proxy=ProxySettings(peers=peers or ("127.0.0.1",), **settings))


def me(client: httpx.Client, **headers: str) -> httpx.Response:
    return client.get("/api/me", headers={name.replace("_", "-"): v for name, v in headers.items()})


def test_named_peer_signs_person_in(serve: Serve) -> None:
    served = behind(serve)
    answer = me(served.client(), X_Forwarded_User="ana@example.com")
    assert answer.status_code == 200
    named = answer.json()
    assert (named["name"], named["role"]) == ("ana@example.com", "reviewer")
    assert named["assurance"] == "session"
    assert "set-cookie" not in answer.headers
    for _ in range(3):
        assert me(served.client(), X_Forwarded_User="ana@example.com").status_code == 200
    (session,) = served.store.credentials("ana@example.com")
    assert (session.kind, session.opened_by) == ("session", "proxy:proxy")
    person = served.store.person("ana@example.com")
    assert person is not None
    assert json.loads(person.origin) == ["proxy:proxy", "ana@example.com"]
    assert audit.verify(served.store).ok


def test_header_is_off_by_default(serve: Serve) -> None:
    assert me(serve().client(), X_Forwarded_User="ana").status_code == 401


def test_foreign_peer_signs_nobody_in(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    served = behind(serve, "10.9.9.9", "10.8.0.0/16", "unix")
    client = served.client()
    with caplog.at_level(logging.WARNING, "sayso.server"):
        for forwarded in ("10.9.9.9", "10.9.9.9, 127.0.0.1", "unix", "::ffff:10.9.9.9"):
            headers = {"X_Forwarded_For": forwarded, "X_Real_IP": forwarded}
            headers["Forwarded"] = f"for={forwarded}"
            assert me(client, X_Forwarded_User="ana", **headers).status_code == 401
    assert served.store.people() == []
    assert caplog.text.count("ignored x-forwarded-user from 127.0.0.1") == 1


def test_foreign_peer_keeps_own_token(serve: Serve) -> None:
    served = behind(serve, "10.9.9.9")
    client = served.client(served.token("ben"))
    assert me(client, X_Forwarded_User="ana").json()["name"] == "ben"


@pytest.mark.parametrize("forwarded", ["203.0.113.7", "203.0.113.7, 10.0.0.1"])
def test_forwarded_address_is_not_the_peer(serve: Serve, forwarded: str) -> None:
    served = behind(serve)
    answer = me(served.client(), X_Forwarded_User="ana", X_Forwarded_For=forwarded)
    assert answer.status_code == 200
    foreign = behind(serve, "203.0.113.7", "10.0.0.1")
    answer = me(foreign.client(), X_Forwarded_User="ana", X_Forwarded_For=forwarded)
    assert answer.status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        [(HEADER, "ana"), (HEADER, "ben")],
        [(HEADER, "ana"), (HEADER.lower(), "ana")],
        [(HEADER, "ana"), ("X_Forwarded_User", "ben")],
        [("X_Forwarded_User", "ana")],
        [("X-Forwarded_User", "ana")],
        [(HEADER, "")],
        [(HEADER, "ana, ben")],
        [(HEADER, ",ana")],
        [(HEADER, b"ana\xff")],
    ],
    ids=str,
)
def test_ambiguous_header_signs_nobody_in(
    serve: Serve, headers: list[tuple[str, str | bytes]]
) -> None:
    served = behind(serve)
    sent = [(name.encode(), v if isinstance(v, bytes) else v.encode()) for name, v in headers]
    with httpx.Client(base_url=served.url, headers=sent) as client:
        assert client.get("/api/me").status_code == 401
    assert served.store.people() == []


@pytest.mark.parametrize("name", ["server", "local", "group:finance", "a\u200bna", "an\u0430"])
def test_name_that_nobody_may_have_is_refused(serve: Serve, name: str) -> None:
    served = behind(serve)
    with httpx.Client(base_url=served.url, headers={HEADER: name.encode()}) as client:
        assert client.get("/api/me").status_code == 403
    assert served.store.people() == []


def test_known_name_of_another_origin_is_refused(serve: Serve) -> None:
    served = behind(serve)
    add_person(served.store, "ana", by="ops", role="admin")
    answer = me(served.client(), X_Forwarded_User="ana")
    assert (answer.status_code, "sayso people link ana" in answer.text) == (403, True)


def test_removed_person_stays_out(serve: Serve) -> None:
    served = behind(serve)
    client = served.client()
    assert me(client, X_Forwarded_User="ana").status_code == 200
    remove_person(served.store, "ana", by="ops")
    assert me(client, X_Forwarded_User="ana").status_code == 403


def test_groups_come_from_no_other_header(serve: Serve) -> None:
    served = behind(serve)
    answer = me(served.client(), X_Forwarded_User="ana", X_Forwarded_Groups="admins,finance")
    assert answer.json()["groups"] == []
    change_person(served.store, "ana", by="ops", add_groups=["ops"])
    answer = me(served.client(), X_Forwarded_User="ana", X_Forwarded_Groups="admins")
    assert answer.json()["groups"] == ["ops"]


def test_changed_groups_count_at_once(serve: Serve) -> None:
    served = behind(serve, groups_header="X-Forwarded-Groups", admin_groups=("root",))
    client = served.client()
    rights = []
    for groups in ("finance, ops", "ops", "root", "", "ops"):
        answer = me(client, X_Forwarded_User="ana", X_Forwarded_Groups=groups).json()
        rights.append((sorted(answer["groups"]), answer["role"]))
    assert rights == [
        (["finance", "ops"], "reviewer"),
        (["ops"], "reviewer"),
        (["root"], "admin"),
        ([], "reviewer"),
        (["ops"], "reviewer"),
    ]
    twice = [(HEADER, "ana"), ("X-Forwarded-Groups", "ops"), ("X-Forwarded-Groups", "root")]
    with httpx.Client(base_url=served.url, headers=twice) as other:
        assert other.get("/api/me").status_code == 401
    for groups in ("ops,,root", ",", ",".join(f"g{number}" for number in range(501))):
        refused = me(client, X_Forwarded_User="ana", X_Forwarded_Groups=groups)
        assert (refused.status_code, "is not a list of groups" in refused.text) == (401, True)


def test_only_named_groups_sign_in(serve: Serve) -> None:
    served = behind(serve, groups_header="X-Forwarded-Groups", groups=("staff",))
    client = served.client()
    assert me(client, X_Forwarded_User="ana", X_Forwarded_Groups="staff").status_code == 200
    assert me(client, X_Forwarded_User="ana", X_Forwarded_Groups="guests").status_code == 401
    assert me(client, X_Forwarded_User="ana").status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
    ids=str,
)
def test_other_sites_cannot_write_for_person(serve: Serve, headers: dict[str, str]) -> None:
    served = behind(serve)
    client = served.client(**{HEADER: "ana"}, **headers)
    assert client.delete("/api/me/sessions").status_code == 403
    if headers:
        assert client.get("/api/me").status_code == 403
    own = served.client(**{HEADER: "ana"}, Origin=served.url)
    assert own.delete("/api/me/sessions").status_code == 200


def test_stream_ends_when_person_is_removed(serve: Serve) -> None:
    served = behind(serve)
    with reading(served.client(**{HEADER: "ana"})) as reader:
        remove_person(served.store, "ana", by="ops")
        assert reader.next()["event"] == "end"


def test_unix_socket_is_a_peer(serve: Serve, tmp_path: Path) -> None:
    served = behind(serve, "unix")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(tmp_path / "s"))
    listening.listen()
    other = LiveServer(server_config(served.app, grace=2), at=listening)
    other.start()
    try:
        transport = httpx.HTTPTransport(uds=str(tmp_path / "s"))
        with httpx.Client(transport=transport, base_url="http://localhost") as client:
            assert me(client, X_Forwarded_User="ana").json()["name"] == "ana"
        assert me(served.client(), X_Forwarded_User="ana").status_code == 401
    finally:
        other.stop()


# -- signed tokens


@pytest.fixture
def idp() -> Iterator[OpenIDProvider]:
    provider = OpenIDProvider().start()
    yield provider
    provider.stop()


TOKEN = "Cf-Access-Jwt-Assertion"


def signed(serve: Serve, idp: OpenIDProvider, **more: Any) -> Served:
    names = {"header": TOKEN, "issuer": idp.issuer, "audience": "sayso-app"}
    return behind(serve, **{**names, "keys": f"{idp.issuer}/jwks", **more})


def token_of(idp: OpenIDProvider, **claims: Any) -> str:
    base = {"iss": idp.issuer, "aud": ["sayso-app"], "sub": "user-1", "email": "ana@example.com"}
    return idp.sign({**base, "iat": NOW, "exp": NOW + 3600, **claims})


def present(served: Served, token: str) -> httpx.Response:
    return served.client().get("/api/me", headers={TOKEN: token})


def test_signed_token_signs_person_in(serve: Serve, idp: OpenIDProvider) -> None:
    served = signed(serve, idp, groups_claim="groups", admin_groups=("root",))
    first = present(served, token_of(idp, groups=["finance"])).json()
    assert (first["name"], first["groups"]) == ("ana@example.com", ["finance"])
    idp.rotate_key()
    server_keys = served.app.state.sayso.proxy._keys
    server_keys._read_at -= 60  # keys are read again at most every ten seconds
    second = present(served, token_of(idp, groups=["root"])).json()
    assert (second["name"], second["role"]) == ("ana@example.com", "admin")


def test_keys_come_from_file(serve: Serve, idp: OpenIDProvider, tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [idp.key.as_dict(private=False)]}))
    file = tmp_path / "proxy.toml"
    file.write_text(
        f'peers = ["127.0.0.1"]\nheader = "{TOKEN}"\nissuer = "{idp.issuer}"\n'
        'audience = "sayso-app"\nkeys = "keys.json"\n'
    )
    served = serve(proxy=ProxySettings.load(file))
    assert present(served, token_of(idp)).json()["name"] == "ana@example.com"


@pytest.mark.parametrize(
    "wrong",
    [
        {"exp": NOW - 3600},
        {"exp": None},
        {"nbf": NOW + 3600},
        {"iat": None},
        {"aud": "another-app"},
        {"aud": None},
        {"iss": "https://evil.example.com"},
        {"iss": None},
        {"sub": None},
        {"sub": ""},
        {"email": None},
    ],
    ids=name_claims,
)
def test_wrong_token_signs_nobody_in(
    serve: Serve, idp: OpenIDProvider, wrong: dict[str, Any]
) -> None:
    served = signed(serve, idp)
    assert present(served, token_of(idp, **wrong)).status_code == 401
    assert served.store.people() == []


@pytest.mark.parametrize("forge", ["unsigned", "signed_with_public_key", "signed_by_stranger"])
def test_forged_token_signs_nobody_in(serve: Serve, idp: OpenIDProvider, forge: str) -> None:
    served = signed(serve, idp)
    assert present(served, getattr(idp, forge)(token_of(idp))).status_code == 401
    for garbage in ("a.b.c", "ana@example.com", "x" * 60_000):
        assert present(served, garbage).status_code == 401
    assert idp.keys_read <= 2


def test_signed_token_needs_named_peer(serve: Serve, idp: OpenIDProvider) -> None:
    names = {"header": TOKEN, "issuer": idp.issuer, "audience": "sayso-app"}
    served = behind(serve, "10.9.9.9", **names, keys=f"{idp.issuer}/jwks")
    assert present(served, token_of(idp)).status_code == 401


@pytest.mark.long
def test_stream_ends_with_signed_token(serve: Serve, idp: OpenIDProvider) -> None:
    served = signed(serve, idp)
    token = token_of(idp, exp=int(time.time()) + 2)
    with reading(served.client(**{TOKEN: token})) as reader:
        assert reader.next()["event"] == "end"


def test_fresh_sign_in_is_read_from_token(serve: Serve, idp: OpenIDProvider) -> None:
    served = signed(serve, idp)
    store = served.store
    for auth_time, expected in ((None, 0), (NOW - 900, NOW - 900), (NOW - 60, NOW - 60)):
        assert present(served, token_of(idp, auth_time=auth_time)).status_code == 200
        newest = max(store.credentials("ana@example.com"), key=lambda row: row.created)
        assert newest.signed_in == expected * 1_000_000


# -- settings


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"peers": ()}, "peers is empty"),
        ({"peers": ("0.0.0.0/0",)}, "names nobody"),
        ({"peers": ("::/0",)}, "names nobody"),
        ({"peers": ("proxy.example.com",)}, "peers"),
        ({"peers": ("10.0.0.1/8",)}, "host bits"),
        ({"header": "Authorization"}, "another header"),
        ({"header": "X_User"}, "another header"),
        ({"header": ""}, "another header"),
        ({"issuer": "https://a.example"}, "all of issuer"),
        ({"groups": ("staff",)}, "need groups_header"),
        (
            {
                **{"issuer": "https://a.example", "audience": "sayso", "keys": "keys.json"},
                "groups_header": "X-Forwarded-Groups",
            },
            "groups_header is not signed: use groups_claim",
        ),
    ],
    ids=str,
)
def test_wrong_proxy_settings_are_refused(wrong: dict[str, Any], error: str) -> None:
    with pytest.raises(InvalidPolicy, match=error):
        ProxySettings(**{"peers": ("127.0.0.1",), "header": HEADER, **wrong})


def test_proxy_settings_need_their_keys(tmp_path: Path) -> None:
    file = tmp_path / "proxy.toml"
    file.write_text(f'header = "{HEADER}"')
    with pytest.raises(InvalidPolicy, match="peers is missing"):
        ProxySettings.load(file)
