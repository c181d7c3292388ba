"""Calls that an agent runs itself, over HTTP: open, wait, release or defer, report."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import pytest
from served import Serve, Served
from waiting import until

from sayso import Policy, Rule
from sayso.audit import verify


class Hook:
    """One run of an agent's hook after another, as the agent calls it."""

    def __init__(self, client: httpx.Client, session: str = "s1") -> None:
        self.client, self.session = client, session

    def open(self, caller: str, command: str = "make", **body: Any) -> dict[str, Any]:
        answer = self.client.post(
            "/api/requests",
            json={
                "tool": "Bash",
                "args": {"command": command},
                "run": self.session,
                "binds": {"cwd": "/src"},
                "caller": caller,
                **body,
            },
        )
        assert answer.status_code in (200, 201), answer.text
        return dict(answer.json())

    def take(self, made: dict[str, Any], caller: str, verb: str = "release") -> dict[str, Any]:
        answer = self.client.post(f"/api/requests/{made['id']}/{verb}", json={"caller": caller})
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def report(self, caller: str, result: Any, session: str = "s1") -> httpx.Response:
        body = {"run": session, "caller": caller, "result": result}
        return self.client.post("/api/requests/released/result", json=body)


@pytest.fixture
def served(serve: Serve) -> Served:
    allow = Rule("Read", verdict="allow")
    deny = Rule("Erase", verdict="deny", description="Never erase.")
    return serve(policy=Policy([allow, deny, Rule("Bash")]))


@pytest.fixture
def hook(served: Served) -> Hook:
    return Hook(served.client(served.token("claude", "agent")))


def decide(served: Served, made: dict[str, Any], type: str = "approve", **more: Any) -> None:
    ana = served.client(served.token("ana"))
    seen = ana.get(f"/api/requests/{made['id']}").json()["digest"]
    body = {"type": type, "seen_digest": seen, **more}
    answer = ana.post(f"/api/requests/{made['id']}/decision", json=body)
    assert answer.status_code == 200, answer.text


def test_approved_call_is_released_once_with_its_arguments(served: Served, hook: Hook) -> None:
    made = hook.open("use:1")
    assert (made["status"], made["execution"]["status"]) == ("pending", "none")
    assert hook.take(made, "use:1")["execution"]["status"] == "none"
    decide(served, made, "edit", args={"command": "make test"})
    taken = hook.take(made, "use:1")
    assert (taken["status"], taken["execution"]["status"]) == ("edited", "released")
    assert taken["args"] == {"command": "make test"}
    run = served.store.run(taken["run"])
    assert run is not None
    assert (run.status, run.owner) == ("done", None)
    assert hook.open("use:1")["id"] != made["id"], "an approval covers one call"
    assert verify(served.store).ok


def test_policy_decides_without_a_person(served: Served, hook: Hook) -> None:
    free = hook.open("use:1", tool="Read")
    assert hook.take(free, "use:1")["execution"]["status"] == "released"
    denied = hook.open("use:2", tool="Erase")
    assert (denied["status"], denied["decision"]["message"]) == ("rejected", "Never erase.")
    assert hook.take(denied, "use:2")["status"] == "rejected"
    run = served.store.run(denied["run"])
    assert run is not None
    assert run.status == "done"
    assert verify(served.store).ok


def test_retried_tool_use_joins_its_request(served: Served, hook: Hook) -> None:
    made = hook.open("use:1")
    assert hook.take(made, "use:1", "defer")["status"] == "pending"
    decide(served, made, "reject", message="use the staging account")
    again = hook.open("use:2")
    assert (again["id"], again["status"]) == (made["id"], "rejected")
    assert again["decision"]["message"] == "use the staging account"
    third = hook.open("use:3")
    assert (third["id"] != made["id"], third["status"]) == (True, "rejected")
    assert third["decision"]["message"] == "use the staging account"
    assert verify(served.store).ok


def test_working_directory_is_part_of_the_call(served: Served, hook: Hook) -> None:
    made = hook.open("use:1")
    hook.take(made, "use:1", "defer")
    assert hook.open("use:1", binds={"cwd": "/etc"})["id"] != made["id"]


def test_hooks_of_tool_use_share_answer(served: Served, hook: Hook) -> None:
    """As with a hook in the user's settings and another one in the project's."""
    first, second = hook.open("use:1"), hook.open("use:1")
    assert first["id"] == second["id"]
    decide(served, first)
    taken = [hook.take(first, "use:1"), hook.take(second, "use:1")]
    assert [one["execution"]["status"] for one in taken] == ["released", "released"]
    assert [one["execution"]["attempts"] for one in taken] == [1, 1]


def test_many_parallel_calls_of_one_session(served: Served, hook: Hook) -> None:
    made = [hook.open(f"use:{n}", f"make {n}") for n in range(8)]
    for one in made:
        decide(served, one)
    found: list[str] = []

    def take(n: int) -> None:
        found.append(hook.take(made[n], f"use:{n}")["execution"]["status"])

    threads = [threading.Thread(target=take, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["released"] * 8
    run = served.store.run("claude/s1")
    assert run is not None
    assert run.status == "done"
    assert verify(served.store).ok


def test_reported_result_is_stored_once_after_an_edit(served: Served, hook: Hook) -> None:
    made = hook.open("use:1")
    decide(served, made, "edit", args={"command": "make test"})
    hook.take(made, "use:1")
    told = hook.report("use:1", {"stdout": "ok"}).json()
    assert (told["id"], told["execution"]["result"]) == (made["id"], {"stdout": "ok"})
    assert told["original"] == {"command": "make"}
    assert hook.report("use:1", "other").json()["execution"]["result"] == {"stdout": "ok"}
    assert hook.report("use:2", "none").status_code == 404
    assert verify(served.store).ok


def test_other_agent_cannot_touch_a_released_call(served: Served, hook: Hook) -> None:
    made = hook.open("use:1")
    decide(served, made)
    codex = Hook(served.client(served.token("codex", "agent")))
    for verb in ("release", "defer"):
        path = f"/api/requests/{made['id']}/{verb}"
        assert codex.client.post(path, json={"caller": "use:1"}).status_code == 404
    hook.take(made, "use:1")
    assert codex.report("use:1", "mine").status_code == 404
    assert codex.report("use:1", "mine", "claude/s1").status_code == 404
    assert codex.open("use:1")["id"] != made["id"]


def test_person_is_not_an_agent(served: Served, hook: Hook) -> None:
    made = hook.open("use:1")
    ana = served.client(served.token("ana"))
    answer = ana.post(f"/api/requests/{made['id']}/release", json={"caller": "use:1"})
    assert answer.status_code == 403


@pytest.mark.parametrize("caller", ["", "later", "use:", "toolu_1", "use:" + "x" * 300, 5, None])
def test_caller_has_a_shape(served: Served, hook: Hook, caller: Any) -> None:
    made = hook.open("use:1")
    for verb in ("release", "defer"):
        path = f"/api/requests/{made['id']}/{verb}"
        assert hook.client.post(path, json={"caller": caller}).status_code == 422
    if caller is not None:
        body = {"tool": "Bash", "caller": caller}
        assert hook.client.post("/api/requests", json=body).status_code == 422


def test_changed_policy_asks_again_at_release(serve: Serve) -> None:
    first = serve(policy=Policy([Rule("Bash", verdict="allow")]))
    token = first.token("claude", "agent")
    made = Hook(first.client(token)).open("use:1")
    assert made["status"] == "approved"
    second = serve(store=first.store, policy=Policy([Rule("Bash")]))
    hook = Hook(second.client(token))
    assert hook.take(made, "use:1")["status"] == "pending"
    decide(second, made)
    assert hook.take(made, "use:1")["execution"]["status"] == "released"


def test_waiting_hook_hears_of_the_decision(served: Served, hook: Hook) -> None:
    made, heard = hook.open("use:1"), list[str]()

    def wait() -> None:
        answer = hook.client.get(f"/api/requests/{made['id']}/wait?timeout=30")
        heard.append(answer.json()["status"])

    waiting = threading.Thread(target=wait)
    waiting.start()
    decide(served, made)
    until(lambda: heard == ["approved"])
    waiting.join()


# -- sessions of hooks


def test_hook_sessions_are_sorted_by_last_use(served: Served, hook: Hook) -> None:
    hook.open("use:1")
    (session,) = hook.client.get("/api/hooks").json()["items"]
    assert (session["agent"], session["session"], session["unasked"]) == ("claude", "s1", 0)
    hook.session = "s2"
    hook.open("use:2")
    last, first = served.client(served.token("ana", "reviewer")).get("/api/hooks").json()["items"]
    assert (last["session"], first["session"]) == ("s2", "s1")
    assert last["last_at"] >= first["last_at"]
    prompt = {"run": "s1"}
    hook.client.post("/api/requests/session/prompt", json=prompt)
    assert hook.client.get("/api/hooks").json()["items"][0]["session"] == "s1"


def test_unasked_tool_use_is_reported(
    served: Served, hook: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    body = {"run": "s1", "caller": "use:9", "tool": "Bash", "result": "done"}
    assert hook.client.post("/api/requests/released/result", json=body).status_code == 404
    (session,) = hook.client.get("/api/hooks").json()["items"]
    assert (session["unasked"], session["unasked_tool"]) == (1, "Bash")
    assert "claude used Bash without asking, in session s1" in caplog.text


def test_agents_see_only_their_hook_sessions(served: Served, hook: Hook) -> None:
    hook.open("use:1")
    other = served.client(served.token("codex", "agent"))
    assert other.get("/api/hooks").json()["items"] == []
    chatting = served.client(served.token("cy", "chat"))
    assert chatting.get("/api/hooks").status_code == 403
