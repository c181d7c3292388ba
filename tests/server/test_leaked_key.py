"""The procedure of docs/keys.md for a key that has leaked, with two servers at work."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime

import httpx
import pytest
from served import Serve, Served, opened
from typer.testing import CliRunner

from sayso.cli.entry import app_of
from sayso.errors import StoreError, UnknownKey
from sayso.inbox import create_token
from sayso.keys import Keyring, new_key
from sayso.stores import open_store


def approve(client: httpx.Client, request: dict[str, str]) -> int:
    body = {"type": "approve", "seen_digest": request["digest"]}
    return client.post(f"/api/requests/{request['id']}/decision", json=body).status_code


def ready(server: Served) -> int:
    return server.client().get("/readyz").status_code


def test_server_without_a_key_is_not_ready(
    each_url: str, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = new_key(), new_key()
    monkeypatch.setenv("SAYSO_KEY", first)
    server = serve(store=each_url, workers=0)
    assert ready(server) == 200
    with closing(open_store(each_url, keys=Keyring.parse(f"{second},{first}"))) as other:
        create_token(other, "ana", by="test")
    answer = server.client().get("/readyz")
    assert answer.status_code == 503
    assert Keyring.parse(second).primary_id in answer.json()["store"]
    assert server.client().head("/readyz").status_code == 503
    assert server.client().get("/healthz").status_code == 200
    assert server.client().get("/livez").status_code == 204


@pytest.mark.long
def test_leaked_key_is_replaced_while_servers_run(
    each_url: str, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaked, new = new_key(), new_key()
    old_id = Keyring.parse(leaked).primary_id

    def restarted(servers: list[Served], keys: str) -> list[Served]:
        """Restart one server after the other; the other one works meanwhile."""
        monkeypatch.setenv("SAYSO_KEY", keys)
        for n, server in enumerate(servers):
            assert ready(servers[1 - n]) == 200
            server.stop()
            servers[n] = serve(store=each_url, workers=0)
        return servers

    def sayso(*words: str) -> str:
        result = CliRunner().invoke(app_of(words[0]), [*words, "--store", each_url])
        assert result.exit_code == 0, result.output
        return result.output

    monkeypatch.setenv("SAYSO_KEY", leaked)
    servers = [serve(store=each_url, workers=0) for _ in range(2)]
    ana = servers[0].token("ana", "admin")
    before = opened(servers[0].client(servers[0].token("bot", "agent")))
    leaked_at = datetime.now(UTC)
    with closing(open_store(each_url, keys=Keyring.parse(leaked))) as thief:
        stolen, _ = create_token(thief, "eve", by="ops", role="admin")
    forged = opened(servers[1].client(servers[1].token("late bot", "agent")), key="k2")
    assert approve(servers[0].client(stolen), forged) == 200

    servers = restarted(servers, f"{leaked},{new}")
    servers = restarted(servers, f"{new},{leaked}")
    since = ("--from", leaked_at.isoformat())
    done = sayso("keys", "distrust", old_id, *since, "--remove", "eve", "--keep", "late bot")
    assert f"asked again: {forged['id']}" in done
    servers = restarted(servers, new)

    for server in servers:
        assert ready(server) == 200
        assert server.client(stolen).get("/api/me").status_code == 401
        assert server.client(ana).get("/api/me").status_code == 200
        again = server.client(ana).get(f"/api/requests/{forged['id']}").json()
        assert again["status"] == "pending"
    assert approve(servers[1].client(ana), before) == 200
    assert old_id not in sayso("keys", "list")
    with (
        closing(open_store(each_url, keys=Keyring.parse(leaked))) as thief,
        pytest.raises((UnknownKey, StoreError)),
    ):
        create_token(thief, "eve", by="ops", role="admin")
