"""The app inside another one, as people mount it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from fastapi import FastAPI
from served import mailer
from starlette.testclient import TestClient

from sayso.server import create_app


def mounted(*, living: bool) -> FastAPI:
    inner = create_app([mailer()], store="memory://", auth=False)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with inner.router.lifespan_context(inner):
            yield

    outer = FastAPI(lifespan=lifespan if living else None)

    @outer.get("/hello")
    def hello() -> str:
        return "hello"

    outer.mount("/", inner)
    return outer


def test_mounted_app_shares_the_lifespan() -> None:
    with TestClient(mounted(living=True)) as client:
        assert client.get("/hello").json() == "hello"
        assert client.get("/healthz").json()["status"] == "ok"
        made = client.post("/api/requests", json={"tool": "refund"}).json()
        assert made["status"] == "pending"
        assert client.get("/inbox").status_code == 200
        parts = [{"type": "text", "text": "Welcome ana"}]
        body = {"id": "c1", "messages": [{"id": "m", "role": "user", "parts": parts}]}
        assert "tool-approval-request" in client.post("/api/chat", json=body).text


def test_create_app_accepts_one_agent_and_refuses_others() -> None:
    app = create_app(mailer(), store="memory://", auth=False)
    (agent,) = TestClient(app).get("/api/agents").json()["items"]
    assert (agent["name"], agent["chat"]) == ("mailer", True)
    for wrong in ("sqlite:///x.db", [mailer], {"mailer": mailer()}):
        with pytest.raises(TypeError, match="is not an agent"):
            create_app(wrong, store="memory://")  # type: ignore[arg-type]


def test_feed_without_lifespan_is_unavailable() -> None:
    with TestClient(mounted(living=False)) as client:
        answer = client.get("/api/events")
        assert answer.status_code == 503
        assert "lifespan" in answer.json()["message"]


def test_decision_without_lifespan_is_stored_with_a_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("sayso"), "propagate", True)
    with TestClient(mounted(living=False)) as client:
        made = client.post("/api/requests", json={"tool": "refund"}).json()
        body = {"type": "approve", "seen_digest": made["digest"]}
        answer = client.post(f"/api/requests/{made['id']}/decision", json=body)
        assert answer.json()["status"] == "approved"
    assert "mounted without its lifespan" in caplog.text


def test_health_without_lifespan_is_unwell() -> None:
    with TestClient(mounted(living=False)) as client:
        answer = client.get("/healthz")
        assert (answer.status_code, "lifespan" in answer.json()["status"]) == (503, True)


def test_mistyped_page_address_is_answered_with_a_page() -> None:
    browser = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    with TestClient(mounted(living=True)) as client:
        for path in ("/inbocks", "/runs2/x", "/%3Cscript%3E"):
            page = client.get(path, headers=browser)
            assert (page.status_code, page.headers["content-type"].partition(";")[0]) == (
                404,
                "text/html",
            )
            assert 'href="/inbox"' in page.text
            assert "script" not in page.text
        for path, headers in (("/inbocks", {}), ("/api/requets", browser)):
            answer = client.get(path, headers=headers)
            assert (answer.status_code, answer.json()["error"]) == (404, "NotFound")


def test_only_assets_are_compressed() -> None:
    """The length of a compressed API answer would depend on secrets next to an attacker's text."""
    app = create_app(mailer(), store="memory://", auth=False)
    with TestClient(app, headers={"Accept-Encoding": "gzip"}) as client:
        client.post("/api/requests", json={"tool": "refund", "args": {"text": "A" * 5_000}})
        plain = client.get("/assets/app.js", headers={"Accept-Encoding": "identity"})
        script = client.get("/assets/app.js")
        assert script.headers["content-encoding"] == "gzip"
        assert "accept-encoding" in script.headers["vary"].lower()
        assert int(script.headers["content-length"]) < len(plain.content) / 2
        assert script.content == plain.content
        unchanged = {"If-None-Match": script.headers["etag"]}
        assert client.get("/assets/app.js", headers=unchanged).status_code == 304
        assert "content-encoding" not in plain.headers
        assert "content-encoding" not in client.get("/assets/icon-192.png").headers
        for path in ("/api/requests", "/inbox"):
            answer = client.get(path)
            assert len(answer.content) > 500
            assert "content-encoding" not in answer.headers
