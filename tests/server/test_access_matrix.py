"""Every operation of the OpenAPI document, by every role, on own, foreign and hidden objects.

``EXPECTED`` is the whole contract. An operation of the document that it does not name, and a name
that the document does not have, fail the test.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from served import FINANCE_ONLY, FOR_FINANCE, Serve, Served, mailer, opened

from sayso.server import create_app
from sayso.server.service import Limits
from sayso.testing import call

#: Who calls: without a token, the agent that asked, another agent, the person who chats, another
#: one, a reviewer outside finance, one in finance, and an admin.
ROLES = ("nobody", "bot", "other", "rita", "sam", "ana", "fin", "root")
MANY = 10**7
TEXT = [{"id": "m", "role": "user", "parts": [{"type": "text", "text": "Send it"}]}]
TOKEN = {"token": 1}
CALLER = {"caller": "use:c1"}
BODIES: dict[str, Any] = {
    "confirm_own_address": {"code": "x"},
    "add_own_account": {"endpoint": "https://x", "keys": {"p256dh": "", "auth": ""}, "device": ""},
    "set_own_notices": {},
    "open_request": {"tool": "refund"},
    "report_released": {"run": "r", **CALLER, "ok": True, "result": "x", "tool": "t"},
    "note_prompt": {"run": "r"},
    "release_request": CALLER,
    "defer_request": CALLER,
    "renew_claim": TOKEN,
    "report_result": {**TOKEN, "ok": True, "result": 1},
    "decide_request": {"type": "reject"},
    "check_edit": {"args": {}},
    "preview_grant": {"scope": "exact"},
    "open_window": {"run": "nobody-here"},
    "save_view": {"q": "refund"},
    "replay_policy": {"policy": 'default = "ask"'},
    "sign_in": {"token": "wrong"},
    "end_sessions": {"name": "nobody-here"},
    "sign_in_with_passkey": {"statement": "{}", "answer": {}},
    "add_passkey": {"statement": "{}", "answer": {}},
    "begin_confirmation": {"type": "reject"},
}

# The statuses of the roles, in their order, by operation and object: a request for all reviewers,
# one for finance only, and one of Rita's chat; "none" if the operation names no object.
_CHATTERS = "401 403 403 200 200 200 200 200"
_CHAT_OWNER = "401 403 403 200 404 404 404 404"
_CHAT_READERS = "401 403 403 200 404 200 200 200"
_REVIEWERS = "401 403 403 403 403 200 200 200"
_OWN_AGENT = "401 200 404 403 403 403 403 403"
_NO_AGENT = "401 404 404 403 403 403 403 403"
_OWN_AGENT_TOO_EARLY = "401 409 404 403 403 403 403 403"
_FINANCE = "401 403 403 403 403 404 200 200"
_SIGNED_IN = "401 200 200 200 200 200 200 200"
_ADMIN = "401 403 403 403 403 403 403 200"
_ALL = "200 200 200 200 200 200 200 200"
EXPECTED: dict[str, dict[str, str]] = {
    "chat": {"none": _CHATTERS, "chat": _CHAT_OWNER},
    "resume_chat": {"chat": _CHAT_READERS},
    "list_messages": {"chat": _CHAT_READERS},
    "chat_with_agent": {"none": _CHATTERS, "chat": _CHAT_OWNER},
    "resume_chat_with_agent": {"chat": _CHAT_READERS},
    "list_messages_with_agent": {"chat": _CHAT_READERS},
    "chat_recipe": {"none": _CHATTERS, "chat": _CHAT_OWNER},
    "resume_chat_recipe": {"chat": _CHAT_READERS},
    "list_messages_recipe": {"chat": _CHAT_READERS},
    "chat_with_agent_recipe": {"none": _CHATTERS, "chat": _CHAT_OWNER},
    "resume_chat_with_agent_recipe": {"chat": _CHAT_READERS},
    "list_messages_with_agent_recipe": {"chat": _CHAT_READERS},
    "run_agent": {"none": _CHATTERS, "chat": _CHAT_OWNER},
    "run_agent_with_name": {"none": _CHATTERS, "chat": _CHAT_OWNER},
    "list_chats": {"none": _CHATTERS},
    "open_request": {"none": "401 201 201 403 403 403 403 403"},
    "list_requests": {"none": _REVIEWERS},
    "wait_for_decision": {"open": _OWN_AGENT, "finance": _OWN_AGENT, "chat": _NO_AGENT},
    "claim_request": {
        "open": _OWN_AGENT_TOO_EARLY,
        "finance": _OWN_AGENT_TOO_EARLY,
        "chat": _NO_AGENT,
    },
    "release_request": {"open": _OWN_AGENT, "finance": _OWN_AGENT, "chat": _NO_AGENT},
    "defer_request": {"open": _OWN_AGENT, "finance": _OWN_AGENT, "chat": _NO_AGENT},
    "report_released": {"none": _NO_AGENT},
    "note_prompt": {"none": "401 200 200 403 403 403 403 403"},
    "renew_claim": {"open": _OWN_AGENT, "finance": _OWN_AGENT, "chat": _NO_AGENT},
    "report_result": {
        "open": _OWN_AGENT_TOO_EARLY,
        "finance": _OWN_AGENT_TOO_EARLY,
        "chat": _NO_AGENT,
    },
    "count_requests": {"none": _REVIEWERS},
    "get_request": {
        "open": "401 200 404 404 404 200 200 200",
        "finance": "401 200 404 404 404 404 200 200",
        "chat": "401 404 404 200 404 200 200 200",
    },
    "reveal_request": {"open": _REVIEWERS, "finance": _FINANCE, "chat": _REVIEWERS},
    "decide_request": {
        "open": "401 403 403 404 404 200 200 200",
        "finance": "401 403 403 404 404 404 200 403",
        "chat": _CHAT_READERS,
    },
    "undo_decision": {
        "open": "401 403 403 404 404 409 409 409",
        "finance": "401 403 403 404 404 404 409 409",
        "chat": "401 403 403 409 404 409 409 409",
    },
    "decide_requests": {"open": _REVIEWERS, "finance": _FINANCE, "chat": _REVIEWERS},
    "cancel_request": {
        "open": "401 200 404 404 404 200 200 200",
        "finance": "401 200 404 404 404 404 200 200",
        "chat": "401 404 404 200 404 200 200 200",
    },
    "check_edit": {
        "open": "401 403 403 404 404 200 200 200",
        "finance": "401 403 403 404 404 404 200 200",
        "chat": _CHAT_READERS,
    },
    "preview_grant": {"open": _REVIEWERS, "finance": _FINANCE, "chat": _REVIEWERS},
    "open_window": {"none": "401 403 403 403 403 404 404 404"},
    "list_suggestions": {"none": _REVIEWERS},
    "accept_suggestion": {"none": "401 403 403 403 403 404 404 404"},
    "replay_policy": {"none": _ADMIN},
    "observe_policy": {"none": _ADMIN},
    "list_grants": {"none": _REVIEWERS},
    "revoke_grant": {"open": _REVIEWERS, "finance": _FINANCE},
    "list_refusals": {"none": _REVIEWERS},
    "lift_refusal": {"open": _REVIEWERS, "finance": _FINANCE},
    "stream_events": {"none": _REVIEWERS},
    "list_runs": {"none": _REVIEWERS},
    "get_run": {"open": _REVIEWERS, "finance": _FINANCE, "chat": _REVIEWERS},
    "list_audit_events": {"none": _REVIEWERS},
    "verify_audit_log": {"none": _REVIEWERS},
    "export_audit_log": {"none": _ADMIN},
    "get_stats": {"none": _REVIEWERS},
    "sign_in": {"none": "401 401 401 401 401 401 401 401"},
    "sign_out": {"none": "401 204 204 204 204 204 204 204"},
    "get_me": {"none": _SIGNED_IN},
    "list_agents": {"none": _SIGNED_IN},
    "list_hooks": {"none": "401 200 200 403 403 200 200 200"},
    "list_sign_ins": {"none": _ALL},
    "begin_passkey_sign_in": {"none": _ALL},
    "sign_in_with_passkey": {"none": "403 403 403 403 403 403 403 403"},
    "list_passkeys": {"none": _SIGNED_IN},
    "begin_passkey": {"none": "401 403 403 403 403 403 403 403"},
    "add_passkey": {"none": "401 403 403 403 403 403 403 403"},
    "remove_passkey": {"none": "401 403 403 403 403 403 403 403"},
    "begin_confirmation": {
        "open": "401 403 403 403 403 403 403 403",
        "finance": "401 403 403 403 403 404 403 403",
        "chat": "401 403 403 403 403 403 403 403",
    },
    "get_health": {"none": _ALL},
    "get_liveness": {"none": "204 204 204 204 204 204 204 204"},
    "get_readiness": {"none": _ALL},
    "get_metrics": {"none": _ALL},
    "add_person": {"none": "401 403 403 403 403 403 403 201"},
    "change_person": {"none": "401 403 403 403 403 403 403 404"},
    "get_person": {"none": "401 403 403 403 403 403 403 404"},
    "list_groups": {"none": _ADMIN},
    "list_own_sessions": {"none": "401 403 403 200 200 200 200 200"},
    "end_own_sessions": {"none": "401 403 403 200 200 200 200 200"},
    "end_own_session": {"none": "401 403 403 404 404 404 404 404"},
    "list_saved_views": {"none": _REVIEWERS},
    "save_view": {"none": _REVIEWERS},
    "remove_saved_view": {"none": "401 403 403 403 403 404 404 404"},
    "list_own_channels": {"none": "401 403 403 200 200 200 200 200"},
    "add_own_account": {"none": "401 403 403 404 404 404 404 404"},
    "test_own_channel": {"none": "401 403 403 404 404 404 404 404"},
    "list_channels": {"none": _ADMIN},
    "get_own_notices": {"none": "401 403 403 200 200 200 200 200"},
    "set_own_notices": {"none": "401 403 403 200 200 200 200 200"},
    "link_own_channel": {"none": "401 403 403 404 404 404 404 404"},
    "confirm_own_address": {"none": "401 403 403 404 404 404 404 404"},
    "unlink_own_account": {"none": "401 403 403 404 404 404 404 404"},
    "create_token": {"none": "401 403 403 403 403 403 403 201"},
    "end_sessions": {"none": "401 403 403 403 403 403 403 422"},
    "list_people": {"none": _ADMIN},
    "list_sessions": {"none": _ADMIN},
    "list_tokens": {"none": _ADMIN},
    "remove_person": {"none": "401 403 403 403 403 403 403 404"},
    "revoke_token": {"none": "401 403 403 403 403 403 403 404"},
}


class World:
    """A server with one person for each role, and new objects on demand."""

    def __init__(self, server: Served) -> None:
        self.server = server
        token = server.token
        self.clients = {
            "nobody": server.client(),
            "bot": server.client(token("bot", "agent")),
            "other": server.client(token("other", "agent")),
            "rita": server.client(token("rita", "chat")),
            "sam": server.client(token("sam", "chat")),
            "ana": server.client(token("ana")),
            "fin": server.client(token("fin", "reviewer", "finance")),
            "root": server.client(token("root", "admin")),
        }
        self._numbers = itertools.count()

    def request(self, kind: str) -> dict[str, Any]:
        """Return a new pending request of this kind."""
        number = next(self._numbers)
        if kind == "chat":
            chat = f"c{number}"
            body = {"id": chat, "messages": TEXT}
            assert self.clients["rita"].post("/api/chat", json=body).status_code == 200
            run = self.server.store.last_run(chat)
            assert run is not None
            (row,) = self.server.store.calls_of(run.id)
            return {"id": row.id, "run": run.id, "thread": chat, "digest": row.digest}
        args = {**(FINANCE_ONLY if kind == "finance" else {"amount": 5}), "number": number}
        return opened(self.clients["bot"], f"k{number}", args=args)

    def decided(self, kind: str, **decision: Any) -> dict[str, Any]:
        made = self.request(kind)
        body = {"seen_digest": made["digest"], **decision}
        answer = self.clients["fin"].post(f"/api/requests/{made['id']}/decision", json=body)
        assert answer.status_code == 200, answer.text
        return made

    def path(self, path: str, kind: str) -> str:
        """Return the path of an operation on a new object of this kind."""
        if "{grant_id}" in path:
            self.decided(kind, type="approve", grant={"scope": "exact"})
            grants = self.clients["root"].get("/api/grants").json()["items"]
            newest = max(grants, key=lambda grant: grant["created_at"])
            return path.format(grant_id=newest["id"])
        if "{refusal_id}" in path:
            self.decided(kind, type="reject")
            refusals = self.clients["root"].get("/api/refusals").json()["items"]
            return path.format(refusal_id=refusals[0]["id"])
        names = dict.fromkeys(re.findall("{([^}]+)}", path), "nobody-here") | {"agent": "mailer"}
        if any(f"{{{name}}}" in path for name in ("request_id", "run_id", "chat_id")):
            made = self.request(kind)
            names |= {"request_id": made["id"], "run_id": made["run"], "chat_id": made["thread"]}
        return path.format(**names)

    def body(self, name: str, kind: str) -> Any:
        if name == "decide_requests":
            return [{"id": self.request(kind)["id"], "type": "reject"}]
        number = next(self._numbers)
        if name.startswith("chat"):
            thread = self.request(kind)["thread"] if kind == "chat" else f"new{number}"
            return {"id": thread, "messages": TEXT}
        if name.startswith("run_agent"):
            thread = self.request(kind)["thread"] if kind == "chat" else f"new{number}"
            message = {"id": "m", "role": "user", "content": "Send it"}
            given = {"tools": [], "context": [], "state": {}, "forwardedProps": {}}
            return {"threadId": thread, "runId": f"r{number}", "messages": [message], **given}
        if name in ("add_person", "create_token"):
            return {"name": f"person-{number}"}
        if name == "open_request":
            return {**BODIES[name], "args": {"number": number}}
        return BODIES.get(name)


def operations() -> Iterator[tuple[str, str, str]]:
    """Yield the name, method and path of each operation of the document."""
    paths = create_app(store="memory://").openapi()["paths"]
    for path, methods in paths.items():
        for method, operation in methods.items():
            yield operation["operationId"], method.upper(), path


OPERATIONS = {name: (method, path) for name, method, path in operations()}


@pytest.fixture
def world(serve: Serve) -> World:
    limits = Limits(per_minute=MANY, burst=MANY, checks=MANY, refusals=MANY, open_requests=MANY)
    agent = mailer(*[call("send_email", {"to": "ana"})] * 2000)
    return World(serve(agents=[agent], policy=FOR_FINANCE, workers=0, limits=limits))


def status_of(client: httpx.Client, method: str, path: str, body: Any) -> int:
    # The live feed never ends: leave after the head of the answer.
    with client.stream(method, path, json=body) as answer:
        return answer.status_code


def test_every_operation_is_in_the_table() -> None:
    assert set(OPERATIONS) == set(EXPECTED)


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
def test_operations_answer_each_role_as_expected(world: World, part: int) -> None:
    names = sorted(OPERATIONS)[part::4]
    found: dict[str, dict[str, str]] = {name: {} for name in names}
    for name in names:
        method, path = OPERATIONS[name]
        for kind in EXPECTED.get(name, ()):
            statuses = []
            for role in ROLES:
                place = world.path(path, "chat" if kind == "none" else kind)
                place += "?timeout=0" if name == "wait_for_decision" else ""
                body = world.body(name, kind)
                statuses.append(status_of(world.clients[role], method, place, body))
            found[name][kind] = " ".join(map(str, statuses))
    assert found == {name: EXPECTED.get(name) for name in names}
