"""The AG-UI route over HTTP: access and answers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from served import Serve, Served, mailer

from sayso.adapters.chat.views import RunView
from sayso.errors import StoreError
from sayso.testing import say

MESSAGE = {"id": "u1", "role": "user", "content": "Welcome ana"}
BODY = {"threadId": "c1", "runId": "r1", "messages": [MESSAGE]}


def events_of(response: Any) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/event-stream"
    return [json.loads(frame[6:]) for frame in response.text.split("\n\n") if frame]


def test_routes_answer_for_each_agent(serve: Serve) -> None:
    client = serve(agents=[mailer(*[say("Hello.")] * 3)], auth=False).client()
    for n, place in enumerate(("/api/ag-ui", "/api/ag-ui/mailer", "/api/ag-ui?agent=mailer")):
        events = events_of(client.post(place, json={**BODY, "threadId": f"c{n}"}))
        assert events[-1]["outcome"] == {"type": "success"}
    unknown = client.post("/api/ag-ui/nobody", json=BODY)
    assert (unknown.status_code, unknown.text[:21]) == (404, "no agent 'nobody' her")
    assert client.get("/api/ag-ui").status_code == 405


def test_chat_user_decides_own_request(serve: Serve) -> None:
    served = serve(agents=[mailer()])
    ana, eve = (served.client(served.token(name, "chat")) for name in ("ana", "eve"))
    (interrupt,) = events_of(ana.post("/api/ag-ui", json=BODY))[-1]["outcome"]["interrupts"]
    answer = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
    body = {"threadId": "c1", "runId": "r2", "messages": [], "resume": [answer]}
    assert eve.post("/api/ag-ui", json=body).status_code == 404
    assert served.client().post("/api/ag-ui", json=body).status_code == 401
    events = events_of(ana.post("/api/ag-ui", json=body))
    assert events[-1]["outcome"] == {"type": "success"}
    assert any(event["type"] == "TOOL_CALL_RESULT" for event in events)


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"threadId":"c1"}', b'{"threadId":"a/b"}'])
def test_malformed_body_is_answered_with_text(
    open_server: Served, serve: Serve, body: bytes
) -> None:
    client = serve(agents=[mailer(say("Hello."))], auth=False).client()
    response = client.post("/api/ag-ui", content=body)
    assert response.status_code == 400
    assert response.headers["content-type"].startswith("text/plain")


def test_lost_store_ends_with_run_error(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = serve(agents=[mailer(say("Hello."))], auth=False).client()

    def refresh(view: RunView, run: Any = None) -> None:
        raise StoreError("the database is away: try again")

    monkeypatch.setattr(RunView, "refresh", refresh)
    events = events_of(client.post("/api/ag-ui", json=BODY))
    end = {"type": "RUN_ERROR", "message": "the database is away: try again", "code": "StoreError"}
    assert events[-1] == end
