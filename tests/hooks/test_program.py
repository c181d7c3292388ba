"""``sayso hook run`` as a process: it answers, or it denies."""

from __future__ import annotations

import itertools
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from coding_world import World, payload
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from waiting import at_once, until

import sayso
from sayso import Inbox, Policy, Rule
from sayso.audit import verify
from sayso.audit.spans import ApprovalSpans
from sayso.hooks.dialects import parse_payload
from sayso.hooks.program import Config, HookError, Options, answer_to
from sayso.hooks.settings import HookOptions, save_config
from sayso.types import Decision, Request

CLAUDE = payload("claude_pre")


def approve(request: Request) -> Decision:
    return request.approve()


def edit(request: Request) -> Decision:
    return request.edit({**request.args, "command": "ls"})


# -- answers


def test_approved(world: World) -> None:
    ran = world.asked(CLAUDE, approve)
    assert (ran.verdict, ran.code) == ("allow", 0)
    assert ran.said["hookSpecificOutput"]["updatedInput"] == CLAUDE["tool_input"]
    (call,) = world.store.calls_of(f"claude/{CLAUDE['session_id']}")
    assert (call.status, call.title) == ("released", "Run: touch /src/project/plain.txt")
    assert call.note == "as the script says"
    assert verify(world.store).ok


def test_released_call_has_an_approval_span(world: World) -> None:
    provider = TracerProvider()
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with ApprovalSpans(world.store, provider.get_tracer("test")):
        world.asked(CLAUDE, approve)
    (span,) = exporter.get_finished_spans()
    assert [event.name for event in span.events] == [
        *("sayso.asked", "sayso.decided", "sayso.released")
    ]


def test_rejected_with_the_reason(world: World) -> None:
    ran = world.asked(CLAUDE, lambda r: r.reject("not on a Friday"))
    assert (ran.verdict, ran.code) == ("deny", 0)
    assert "not on a Friday" in ran.reason


def test_rejected_call_stays_rejected_until_next_prompt(world: World) -> None:
    world.asked({**CLAUDE, "tool_use_id": "u0"}, lambda r: r.reject("a fraudster"))
    for number in range(1, 5):
        again = world.hook({**CLAUDE, "tool_use_id": f"u{number}"})
        assert (again.verdict, "a fraudster" in again.reason) == ("deny", True)
    assert world.pending() == []
    said = {"hook_event_name": "UserPromptSubmit", "session_id": CLAUDE["session_id"], "prompt": ""}
    assert world.hook(said).code == 0
    shown: list[Request] = []
    ran = world.asked({**CLAUDE, "tool_use_id": "u9"}, lambda r: (shown.append(r), r.approve())[1])
    assert (ran.verdict, [r.by for r in shown[0].refusals]) == ("allow", ["ana"])


@pytest.mark.long
def test_prompt_in_a_store_ends_rejections(world: World, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/local.db"
    world.configure(Config(store=url))
    options = ("--limit", "5")
    with Inbox(url) as inbox:
        assert "No answer yet" in world.hook(CLAUDE, *options).reason
        (request,) = inbox.pending_sync().items
        inbox.reject_sync(request, "no", by="ana")
        world.hook({**CLAUDE, "tool_use_id": "u1"}, *options)  # the answer of the first
        again = world.hook({**CLAUDE, "tool_use_id": "u2"}, *options)
        assert again.reason.endswith("no")
        copilot = {"sessionId": CLAUDE["session_id"], "prompt": "and now?"}
        said = {"hook_event_name": "UserPromptSubmit", "session_id": CLAUDE["session_id"]}
        assert world.hook(copilot).code == world.hook(said).code == 0
        asked = world.hook({**CLAUDE, "tool_use_id": "u3"}, *options)
        assert "No answer yet" in asked.reason
        (request,) = inbox.pending_sync().items
        assert [rejection.message for rejection in request.refusals] == ["no"]


def test_edited(world: World) -> None:
    ran = world.asked(CLAUDE, edit)
    said = ran.said["hookSpecificOutput"]
    assert said["permissionDecision"] == "allow"
    assert said["updatedInput"] == {"command": "ls", "description": "as the script says"}
    assert "A person changed the arguments" in said["additionalContext"]


def test_answered_instead(world: World) -> None:
    ran = world.asked(CLAUDE, lambda r: r.respond("I did it by hand"))
    assert ran.verdict == "deny"
    assert "I did it by hand" in ran.reason


def test_users_rule_allows_and_denies(world: World) -> None:
    assert world.hook(payload("claude_pre", tool_name="Read")).verdict == "allow"
    denied = world.hook(payload("claude_pre", tool_name="WebFetch"))
    assert denied.verdict == "deny"
    assert "No network here." in denied.reason
    assert world.pending() == []


@pytest.mark.long
def test_grant_covers_one_directory(world: World) -> None:
    first = payload("claude_pre", tool_input={"command": "make check"})
    world.hook(first, "--limit", "5")
    (request,) = world.pending()
    yes = {"grant": {"scope": "any", "ends_in": 600}}
    world.inbox.decide_sync(request.id, request.approve(), by="ana", **yes)
    assert world.hook(first).verdict == "allow"
    again = payload("claude_pre", tool_use_id="toolu_9", tool_input={"command": "make check -k"})
    ran = world.hook(again)
    assert (ran.verdict, "updatedPermissions" in json.dumps(ran.said)) == ("allow", False)
    elsewhere = world.hook(again | {"cwd": "/etc", "tool_use_id": "toolu_10"}, "--limit", "5")
    assert (elsewhere.verdict, len(world.pending())) == ("deny", 1)


@pytest.mark.long
@pytest.mark.parametrize("local", [False, True], ids=["server", "store"])
def test_grant_resolves_on_agents_machine(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local: bool
) -> None:
    folders = [tmp_path / name for name in ("project", "first", "second")]
    for folder in folders:
        folder.mkdir()
    project, first, second = folders
    for folder in (first, second):
        (folder / "checker").write_text("#!/bin/sh\n")
        (folder / "checker").chmod(0o755)
    inbox = world.inbox
    if local:
        inbox = Inbox(f"sqlite:///{tmp_path}/local.db")
        world.configure(Config(store=inbox.store.url))
    programs = os.environ["PATH"]
    numbers = itertools.count()

    def ask(command: str, path: Path, cwd: Path = project) -> str:
        use = {"tool_use_id": f"use{next(numbers)}", "cwd": str(cwd)}
        data = payload("claude_pre", tool_input={"command": command}) | use
        monkeypatch.setenv("PATH", f"{path}:{programs}")
        return world.hook(data, "--limit", "5").verdict

    assert ask("checker src", first) == "deny"
    (request,) = inbox.pending_sync().items
    inbox.approve_sync(request, by="ana", grant={"scope": "any"})
    ask("checker src", first)  # it gets the answer of the first
    assert ask("checker src -v", first) == "allow"
    assert ask("checker src -v", second) == "deny"
    assert ask("checker src; touch x", first) == "deny"
    assert ask("checker src -v", first, second) == "deny"
    project.rename(tmp_path / "moved")
    project.symlink_to(second)
    assert ask("checker src -v", first) == "deny"


@pytest.mark.parametrize("name", ["codex_pre", "copilot_pre"])
def test_other_agents(world: World, name: str) -> None:
    assert world.asked(payload(name), approve).verdict == "allow"
    assert world.asked(payload(name, session_id="s2", sessionId="s2"), edit).verdict == "allow"
    denied = world.asked(payload(name, session_id="s3", sessionId="s3"), lambda r: r.reject("no"))
    assert denied.verdict == "deny"


# -- what Codex does not send


@pytest.fixture
def codex(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CodexSession:
    return CodexSession(tmp_path, monkeypatch)


class CodexSession:
    """A session of Codex in a project, with its transcript."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.project = folder / "project"
        self.project.mkdir()
        monkeypatch.chdir(self.project)  # Codex starts its hooks there
        self.transcript = folder / "rollout.jsonl"
        self.transcript.write_text('{"type": "session_meta", "payload": {}}\n')
        self.calls = 0

    def call(self, command: str, **args: Any) -> dict[str, Any]:
        """Note a call in the transcript, and return what Codex sends to its hook."""
        self.calls += 1
        id = f"call_{self.calls}"
        item = {"type": "function_call", "name": "exec_command", "call_id": id}
        item["arguments"] = json.dumps({"cmd": command, **args})
        with self.transcript.open("a") as file:
            file.write(json.dumps({"type": "response_item", "payload": item}) + "\n")
        return payload(
            "codex_pre",
            tool_input={"command": command},
            tool_use_id=id,
            cwd=args.get("workdir", str(self.project)),
            transcript_path=str(self.transcript),
        )


@pytest.fixture
def balanced(tmp_path: Path) -> Iterator[World]:
    """A server with a rule of the user's before the preset ``balanced``."""
    rule = '[[rule]]\nname = "mine"\ntool = "Bash"\nwhere = \'command == "make test"\'\n'
    policy = Policy.from_toml(f'preset = "balanced"\n{rule}verdict = "allow"\n')
    made = World(tmp_path, policy)
    yield made
    made.close()


def test_codex_project_is_fixed(balanced: World, codex: CodexSession, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert balanced.hook(codex.call("touch x")).verdict == "pass"
    asked = balanced.hook(codex.call("touch x", workdir=str(elsewhere)), "--limit", "5")
    assert (asked.verdict, "No answer yet" in asked.reason) == ("deny", True)
    (request,) = balanced.pending()
    assert request.args == {
        "command": "touch x",
        "cwd": str(codex.project),
        "workdir": str(elsewhere),
    }
    inner = codex.project / "inner"
    inner.mkdir()
    assert balanced.hook(codex.call("touch x", workdir=str(inner))).verdict == "pass"


def test_codex_prompt_is_answered(world: World, codex: CodexSession) -> None:
    sent = codex.call("make", login=False) | {"hook_event_name": "PermissionRequest"}
    del sent["tool_use_id"]
    shown: list[Request] = []
    ran = world.asked(sent, lambda r: (shown.append(r), r.approve())[1])
    assert ran.said["hookSpecificOutput"]["decision"] == {"behavior": "allow"}
    assert shown[0].args["login"] is False  # from the transcript, by its command
    edited = world.asked(sent | {"session_id": "s2"}, edit)
    decision = edited.said["hookSpecificOutput"]["decision"]
    assert (decision["behavior"], "make yourself" in decision["message"]) == ("deny", True)


@pytest.mark.parametrize("name", ["gemini_pre", "claude_pre", "copilot_pre"])
def test_model_cannot_name_the_project(balanced: World, tmp_path: Path, name: str) -> None:
    """Some agents ignore an argument that a tool does not have, and pass it on to hooks."""
    project = tmp_path / "work" / "project"
    elsewhere = tmp_path / "work" / "elsewhere"
    arguments = {"file_path": str(elsewhere / "x"), "content": "x", "cwd": str(elsewhere)}
    call = payload(name, cwd=str(project))
    if name == "copilot_pre":
        call |= {"toolName": "create", "toolArgs": arguments}
    else:
        call |= {"tool_name": "write_file", "tool_input": arguments}
    assert balanced.hook(call, "--limit", "5").verdict == "deny"
    assert balanced.pending() == []


def test_codex_terminal_is_denied(balanced: World, codex: CodexSession) -> None:
    assert balanced.hook(codex.call("ls")).verdict == "pass"
    denied = balanced.hook(codex.call("ls", tty=True))
    assert "the model can type later" in denied.reason
    assert "denies this call" in balanced.hook(codex.call("python3")).reason
    assert balanced.pending() == []


@pytest.mark.parametrize("args", [{"shell": "./shell"}, {"sandbox_permissions": "x"}, {"new": 1}])
def test_unsent_argument_asks(balanced: World, codex: CodexSession, args: dict[str, Any]) -> None:
    balanced.hook(codex.call("ls", **args), "--limit", "5")
    (request,) = balanced.pending()
    assert request.args.items() >= args.items()


def test_call_missing_in_transcript_asks(balanced: World, codex: CodexSession) -> None:
    sent = codex.call("ls")
    codex.transcript.write_text("")
    balanced.hook(sent, "--limit", "5")
    (request,) = balanced.pending()
    assert request.args["tty"] == "unknown"
    assert "not known whether it runs in a terminal" in request.description


def test_unsent_arguments_are_not_edited(balanced: World, codex: CodexSession) -> None:
    sent = codex.call("rm x", workdir="/elsewhere")
    ran = balanced.asked(sent, lambda r: r.edit({**r.args, "command": "ls"}))
    assert ran.said["hookSpecificOutput"]["updatedInput"] == {"command": "ls"}


# -- not yet, and again


@pytest.mark.long
@pytest.mark.parametrize("how", ["approve", "reject", "edit"])
def test_retried_call_receives_the_decision(world: World, how: str) -> None:
    first = world.hook(CLAUDE, "--limit", "5")
    assert first.verdict == "deny"
    assert "make exactly the same call again" in first.reason
    (request,) = world.pending()
    assert request.id in first.reason
    if how == "edit":
        world.inbox.decide_sync(request.id, edit(request), by="ana")
    else:
        world.inbox.decide_sync(request.id, getattr(request, how)(), by="ana")
    again = payload("claude_pre_again")
    assert again["tool_use_id"] != CLAUDE["tool_use_id"]
    answered = world.hook(again)
    assert answered.verdict == ("deny" if how == "reject" else "allow")
    assert world.pending() == []
    # The answer was delivered, so the next time a person is asked again, unless one rejected it.
    third = world.hook(payload("claude_pre", tool_use_id="toolu_3"), "--limit", "5")
    assert (third.verdict, len(world.pending())) == ("deny", 0 if how == "reject" else 1)
    assert verify(world.store).ok


@pytest.mark.long
def test_copilot_finds_its_request_without_ids(world: World) -> None:
    sent = payload("copilot_pre")
    assert world.hook(sent, "--limit", "5").verdict == "deny"
    world.decide(approve)
    assert world.hook(sent | {"timestamp": 5}).verdict == "allow"
    assert world.hook(sent, "--limit", "5").verdict == "deny"


@pytest.mark.long
def test_other_session_makes_a_new_request(world: World) -> None:
    world.hook(CLAUDE, "--limit", "5")
    world.decide(approve)
    other = world.hook(payload("claude_pre", session_id="another"), "--limit", "5")
    assert (other.verdict, len(world.pending())) == ("deny", 1)


def test_killed_hook_leaves_no_doubt(world: World) -> None:
    process = world.start()
    process.stdin.write(json.dumps(CLAUDE).encode())
    process.stdin.close()
    world.decide(lambda request: (process.kill(), request.approve())[1])
    process.communicate()
    assert world.hook(CLAUDE).verdict == "allow"
    (call,) = world.store.calls_of(f"claude/{CLAUDE['session_id']}")
    assert call.status == "released"
    assert verify(world.store).ok


@pytest.mark.long
def test_claude_code_may_defer_and_resume(world: World) -> None:
    first = world.hook(CLAUDE, "--limit", "5", "--defer")
    assert first.said["hookSpecificOutput"]["permissionDecision"] == "defer"
    world.decide(approve)
    assert world.hook(CLAUDE, "--defer").verdict == "allow"  # resumed: the same tool use
    codex = world.hook(payload("codex_pre"), "--limit", "5", "--defer")
    assert codex.verdict == "deny"


# -- whose judgement it is: the agent's own rules decide what only a preset allows

LS = payload("claude_pre", tool_input={"command": "ls"})


def prompt(sent: dict[str, Any]) -> dict[str, Any]:
    """Return the prompt of Claude Code for a tool use, which carries no id."""
    suggestions = [{"type": "setMode", "mode": "acceptEdits", "destination": "session"}]
    event = {"hook_event_name": "PermissionRequest", "permission_suggestions": suggestions}
    return {name: value for name, value in (sent | event).items() if name != "tool_use_id"}


@pytest.mark.parametrize("event", ["PreToolUse", "claude_post"])
def test_hook_without_answer_prints_nothing(balanced: World, event: str) -> None:
    sent = LS if event == "PreToolUse" else payload(event, tool_use_id="toolu_0")
    process = balanced.start()
    out, error = process.communicate(json.dumps(sent).encode())
    assert (process.wait(), out) == (0, b""), error


@pytest.mark.parametrize("agent", ["claude", "codex", "copilot"])
def test_preset_leaves_call_to_agent(balanced: World, codex: CodexSession, agent: str) -> None:
    copilot = payload("copilot_pre", toolArgs={"command": "ls"})
    sent = {"claude": LS, "codex": codex.call("ls"), "copilot": copilot}[agent]
    ran = balanced.hook(sent, "--limit", "5")
    assert (ran.verdict, ran.said) == ("pass", {})
    assert balanced.hook(sent, "--replace-prompts").verdict == "allow"


def test_users_rule_over_preset_allows(balanced: World) -> None:
    mine = payload("claude_pre", tool_input={"command": "make test"})
    ran = balanced.hook(mine)
    assert (ran.verdict, "mine" in ran.reason) == ("allow", True)
    assert balanced.hook(prompt(mine)).said["hookSpecificOutput"]["decision"] == {
        "behavior": "allow"
    }
    assert balanced.pending() == []


def test_preset_asks_and_denies(balanced: World) -> None:
    push = payload("claude_pre", tool_input={"command": "git push"})
    assert balanced.asked(push, approve).verdict == "allow"
    again = push | {"tool_use_id": "toolu_1"}
    assert balanced.asked(again, lambda request: request.reject("no")).verdict == "deny"


@pytest.mark.parametrize(("how", "behavior"), [("approve", "allow"), ("reject", "deny")])
def test_prompt_for_unanswered_call_asks(balanced: World, how: str, behavior: str) -> None:
    assert balanced.hook(LS).verdict == "pass"
    ran = balanced.asked(prompt(LS), lambda request: getattr(request, how)())
    decision = ran.said["hookSpecificOutput"]["decision"]
    assert decision["behavior"] == behavior
    assert not {"updatedPermissions", "updatedInput"} & decision.keys()
    (request,) = balanced.inbox.history_sync().items
    assert (request.rule, request.decision and request.decision.source) == (
        "needs_approval",
        "person",
    )
    assert balanced.hook(payload("claude_post", tool_input={"command": "ls"})).code == 0
    if how == "approve":
        request = balanced.inbox.get_sync(request.id)
        assert request.execution.result is not None  # of the request that the person approved
    assert verify(balanced.store).ok


@pytest.mark.long
def test_prompt_after_approval_is_not_asked(world: World) -> None:
    assert world.asked(CLAUDE, approve).verdict == "allow"
    for _ in range(2):
        assert world.hook(prompt(CLAUDE)).verdict == "allow"
    assert len(world.inbox.history_sync().items) == 1
    world.hook(payload("claude_post"))  # it ran: its approval is used
    ran = world.hook(prompt(CLAUDE), "--limit", "5")
    assert (ran.verdict, len(world.pending())) == ("deny", 1)


def test_prompt_after_edit_runs_edited(world: World) -> None:
    said = world.asked(CLAUDE, edit).said["hookSpecificOutput"]
    ran = world.hook(prompt(CLAUDE | {"tool_input": said["updatedInput"]}))
    decision = ran.said["hookSpecificOutput"]["decision"]
    assert decision == {"behavior": "allow"}


@pytest.mark.long
def test_prompt_after_grant_spends_one_use(world: World) -> None:
    first = CLAUDE | {"tool_input": {"command": "make check"}}
    world.hook(first, "--limit", "5")
    (request,) = world.pending()
    grant = {"scope": "any", "ends_in": 600, "uses": 1}
    world.inbox.decide_sync(request.id, request.approve(), by="ana", grant=grant)
    world.hook(first)
    granted = CLAUDE | {"tool_use_id": "toolu_7", "tool_input": {"command": "make check -k"}}
    assert world.hook(granted).verdict == "allow"
    assert world.hook(prompt(granted)).verdict == "allow"
    assert world.pending() == []


@pytest.mark.long
def test_retried_prompt_finds_its_request(balanced: World) -> None:
    balanced.hook(LS)
    first = balanced.start()
    first.stdin.write(json.dumps(prompt(LS)).encode())
    first.stdin.close()
    until(balanced.pending)
    first.kill()
    first.communicate()
    later = balanced.hook(prompt(LS), "--limit", "5")
    assert (later.verdict, len(balanced.pending())) == ("deny", 1)
    # The model was told to try again: the next tool use gets the answer before it runs.
    balanced.decide(approve)
    assert balanced.hook(LS | {"tool_use_id": "toolu_2"}).verdict == "allow"
    assert balanced.hook(prompt(LS)).verdict == "allow"
    assert len(balanced.inbox.history_sync().items) == 1


@pytest.mark.long
def test_next_equal_call_prompts_again(balanced: World) -> None:
    balanced.hook(LS)
    balanced.asked(prompt(LS), approve)
    assert balanced.hook(LS | {"tool_use_id": "toolu_2"}).verdict == "pass"
    asked = balanced.hook(prompt(LS), "--limit", "5")
    assert (asked.verdict, len(balanced.pending())) == ("deny", 1)


def test_prompt_without_tool_use_asks(balanced: World) -> None:
    assert balanced.asked(prompt(LS), approve).verdict == "allow"
    assert balanced.hook(prompt(LS), "--replace-prompts").verdict == "allow"


def test_agents_question_is_not_intercepted(balanced: World) -> None:
    question = prompt(LS) | {"tool_name": "AskUserQuestion", "tool_input": {"questions": []}}
    assert balanced.hook(question).verdict == "pass"
    assert balanced.pending() == []


@pytest.mark.long
def test_prompt_in_a_store(balanced: World, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'local.db'}"
    balanced.configure(Config(store=url, policy="balanced"))
    assert balanced.hook(LS).verdict == "pass"
    assert "No answer yet" in json.dumps(balanced.hook(prompt(LS), "--limit", "6").said)
    with Inbox(url) as inbox:
        (request,) = inbox.pending_sync().items
        inbox.approve_sync(request, by="ana")
    assert balanced.hook(LS | {"tool_use_id": "toolu_2"}).verdict == "allow"
    assert balanced.hook(prompt(LS)).verdict == "allow"


# -- afterwards


@pytest.mark.parametrize("agent", ["claude", "codex", "copilot"])
def test_result_is_recorded(world: World, agent: str) -> None:
    world.asked(payload(f"{agent}_pre"), approve)
    ran = world.hook(payload(f"{agent}_post"))
    assert (ran.code, ran.said, ran.error) == (0, {}, "")
    (request,) = world.inbox.history_sync().items
    assert request.execution.status == "released"
    assert request.execution.result is not None
    assert verify(world.store).ok


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_changed_arguments_are_recorded_with_the_result(world: World, agent: str) -> None:
    world.asked(payload(f"{agent}_pre"), approve)
    sent = payload(f"{agent}_post")
    sent["tool_input"] = {**sent["tool_input"], "command": "rm -rf /"}
    assert world.hook(sent).error == ""
    (request,) = world.inbox.history_sync().items
    result: Any = request.execution.result
    assert result["ran with other arguments than were approved"]["command"] == "rm -rf /"
    assert result["result"] is not None


def test_question_arguments_are_not_replaced(world: World) -> None:
    question = payload("claude_pre", tool_name="AskUserQuestion", tool_input={"questions": []})
    ran = world.asked(question, approve)
    assert ran.verdict == "allow"
    assert "updatedInput" not in ran.said["hookSpecificOutput"]  # it would be the user's answer
    assert "modifiedArgs" not in world.asked(payload("copilot_pre"), approve).said


def test_copilots_result_of_an_edited_call(world: World) -> None:
    world.asked(payload("copilot_pre"), edit)
    sent = payload("copilot_post")
    sent["toolArgs"] = {"command": "ls", "description": "as the script says"}
    assert world.hook(sent).error == ""
    (request,) = world.inbox.history_sync().items
    assert request.execution.result is not None


@pytest.mark.long
def test_unrecorded_result_does_not_fail_the_hook(world: World) -> None:
    ran = world.hook(payload("claude_post"))
    assert (ran.code, ran.said) == (0, {})
    assert "not recorded" in ran.error
    world.configure(Config(server="http://127.0.0.1:9"))
    down = world.hook(payload("claude_post"))
    assert (down.code, down.said) == (0, {})


# -- every error denies


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"{", b"null", b"[]", b"\xff\xfe", b'{"hook_event_name":"PreToolUse"}'),
        json.dumps(payload("claude_pre", tool_input={"command": float("nan")})).encode(),
        json.dumps(payload("claude_pre", tool_input={"n": 2**70})).encode(),
        b'{"hook_event_name":"PreToolUse","session_id":"s","cwd":"/","tool_name":"Bash",'
        b'"tool_input":{"command":"\\ud800"}}',
        json.dumps(payload("claude_pre", session_id="@system")).encode(),
    ],
)
def test_bad_input(world: World, data: bytes) -> None:
    ran = world.hook(data)
    assert (ran.code, ran.said) == (2, {})
    assert "Sayso: not run: " in ran.error


@pytest.mark.parametrize(
    "options",
    [
        ("--what",),
        ("--limit", "x"),
        ("--limit", "1"),
        ("--config",),
        ("--config", "hook.json"),
        ("--config", "/nowhere/hook.json"),
    ],
)
def test_wrong_options_deny(world: World, options: tuple[str, ...]) -> None:
    ran = world.hook(CLAUDE, *options)
    assert ran.code == 2
    assert "Sayso: not run: " in ran.error
    assert ran.said == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"server": ""},
        {"server": "ftp://x"},
        {"server": "http://"},
        {"server": "http://ana:secret@127.0.0.1"},
        {"token": "wrong"},
        {"token": ""},
        {"token": "two\r\nlines: 1"},
        {"server": "http://127.0.0.1:9"},
        {"store": "sqlite:///both.db"},
    ],
)
def test_wrong_configuration_denies(world: World, changes: dict[str, str]) -> None:
    world.configure(world.config._replace(**changes))
    ran = world.hook(CLAUDE)
    assert ran.code == 2
    assert "Sayso: not run: " in ran.error
    assert ran.said == {}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"server": 5}', '{"sever": "http://x"}'])
def test_unreadable_configuration_denies(world: World, text: str) -> None:
    world.config_file.write_text(text)
    ran = world.hook(CLAUDE)
    assert (ran.code, ran.said) == (2, {})


# -- what a cloned repository can set


#: Settings of a repository's `env` block: each made the hook ask another place, or run other code.
HOSTILE: dict[str, dict[str, str]] = {
    "the old overrides": {
        "SAYSO_HOOK_SERVER": "http://127.0.0.1:9",
        "SAYSO_HOOK_STORE": "sqlite:///{folder}/hostile.db",
        "SAYSO_HOOK_POLICY": "watch",
        "SAYSO_HOOK_TOKEN": "",
        "SAYSO_STORE": "sqlite:///{folder}/hostile.db",
    },
    "another home": {
        "HOME": "{folder}",
        "XDG_CONFIG_HOME": "{folder}",
        "XDG_DATA_HOME": "{folder}",
    },
    "another program": {"PATH": "{folder}/bin"},
    "modules": {"PYTHONPATH": "{folder}"},
    "start-up files": {"PYTHONSTARTUP": "{folder}/sitecustomize.py", "PYTHONINSPECT": "1"},
    "another standard library": {"PYTHONHOME": "{folder}", "PYTHONPLATLIBDIR": "{folder}"},
    "user packages": {"PYTHONUSERBASE": "{folder}"},
    "another encoding": {"PYTHONIOENCODING": "utf-7", "PYTHONUTF8": "0", "LC_ALL": "C"},
    "an imported debugger": {"PYTHONBREAKPOINT": "sayso.main", "PYTHONWARNINGS": "x::sayso.W"},
    "a virtual environment": {"VIRTUAL_ENV": "{folder}/.venv", "__PYVENV_LAUNCHER__": "{folder}/x"},
    "proxies": {
        "HTTP_PROXY": "http://127.0.0.1:9",
        "http_proxy": "http://127.0.0.1:9",
        "ALL_PROXY": "http://127.0.0.1:9",
    },
    "OpenSSL": {"OPENSSL_CONF": "{folder}/openssl.cnf", "SSL_CERT_FILE": "{folder}/ca.pem"},
    "functions of the shell": {
        "BASH_FUNC_sh%%": "() {{ echo > {folder}/ran; exit 0; }}",
        "BASH_FUNC_exit%%": "() {{ echo > {folder}/ran; }}",
        "ENV": "{folder}/env.sh",
    },
    "a person's token": {"SAYSO_TOKEN": "not an agent's"},
}


def hostile_repository(folder: Path) -> None:
    """Fill a folder with what would switch the hook off if it were ever run or imported."""
    code = f"open({str(folder / 'ran')!r}, 'w'); import os; os._exit(0)\n"
    for module in ("sayso/__init__", "sitecustomize", "usercustomize", "json", "socket", "os"):
        file = folder / f"{module}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(code)
    for program in ("bin/sayso", "bin/python", "bin/python3", "bin/sh", ".venv/bin/python"):
        file = folder / program
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\ntouch {folder / 'ran'}\nexit 0\n")
        file.chmod(0o755)
    (folder / "pyvenv.cfg").write_text("home = /nowhere\n")
    (folder / "env.sh").write_text(f"touch {folder / 'ran'}\nexit 0\n")
    (folder / "openssl.cnf").write_text("openssl_conf = broken\n")


@pytest.mark.parametrize("name", HOSTILE)
def test_repository_environment_changes_nothing(world: World, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "cloned"
    hostile_repository(folder)
    variables = {key: value.format(folder=folder) for key, value in HOSTILE[name].items()}
    allowed = world.installed_hook(payload("claude_pre", tool_name="Read"), folder, **variables)
    assert (allowed.verdict, allowed.error) == ("allow", "")
    denied = world.installed_hook(payload("claude_pre", tool_name="WebFetch"), folder, **variables)
    assert "No network here." in denied.reason
    assert not (folder / "ran").exists()
    assert not (folder / "hostile.db").exists()


def test_persons_token_is_not_used(world: World) -> None:
    world.configure(world.config._replace(token=""))
    ran = world.installed_hook(CLAUDE, SAYSO_TOKEN=world.config.token)
    assert (ran.code, "refuses the token" in ran.error) == (2, True)


def test_libraries_see_no_hostile_variables(world: World, tmp_path: Path) -> None:
    code = (
        "import os; from sayso.hooks.program import isolate; isolate(); "
        "print(sorted(os.environ)); os.system('/usr/bin/env')"
    )
    variables = {"SSL_CERT_FILE": "/x", "OPENSSL_CONF": "/x", "LD_BIND_NOW": "1", "HOME": "/x"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | variables
    )
    assert done.stdout.splitlines()[0] == "['PATH']"
    assert not any(line.startswith(tuple(variables)) for line in done.stdout.splitlines()[1:])


@pytest.mark.long
def test_store_without_server_starts_isolated(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "cloned"
    hostile_repository(folder)
    world.configure(Config(store=f"sqlite:///{tmp_path}/local.db", policy="watch"))
    asked = world.installed_hook(CLAUDE, folder, PYTHONPATH=str(folder), SAYSO_KEY="short")
    assert (asked.code, asked.error) == (0, "")
    assert not (folder / "ran").exists()


# -- servers


class Answering:
    """A server that is not Sayso."""

    def __init__(self, status: int, body: bytes, delay: float = 0.0) -> None:
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args: Any) -> None:
                pass

            def do_POST(self) -> None:
                time.sleep(delay)
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


RELEASED = {"id": "req_1", "status": "approved", "execution": {"status": "released"}}
OTHER = {
    "args": {"command": "ls"},
    "original": None,
    "caller": "",
    "rule": "",
    "decision": {"type": "approve", "source": "person", "by": "ana"},
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, b"{}"),
        (200, b"{}"),
        (302, b"{}"),
        (404, b'{"error": "NotFound", "message": "no"}'),
        (200, json.dumps(RELEASED).encode()),  # without a decision or arguments
        (200, json.dumps({**RELEASED, **OTHER}).encode()),  # about another call
    ],
)
def test_malformed_server_reply_denies(
    world: World, tmp_path: Path, status: int, body: bytes
) -> None:
    deny_malformed(world, tmp_path / "other.json", status, body)


@pytest.mark.long
def test_reply_of_something_else_denies(world: World, tmp_path: Path) -> None:
    # At once, because the hook asks again for five seconds.
    replies = {"words": b"it works", "nothing": b"", "a list": b"[]"}
    at_once(
        *[
            partial(deny_malformed, world, tmp_path / f"{name}.json", 200, body)
            for name, body in replies.items()
        ]
    )


def deny_malformed(world: World, config: Path, status: int, body: bytes) -> None:
    other = Answering(status, body)
    save_config(config, Config(server=other.url))
    ran = world.hook(CLAUDE, "--limit", "8", "--config", str(config))
    other.server.shutdown()
    other.server.server_close()
    assert (ran.code, ran.said) == (2, {}), body


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"args": {"command": "ls"}}, "answered for a different call"),
        ({"masked": True, "original": {}, "args": {}}, "hides secrets from agents"),
        ({"original": {}, "args": {"command": "ls", "cwd": "/etc"}}, "an edit changed cwd"),
    ],
)
def test_unfit_approval_is_an_error(parts: dict[str, Any], message: str) -> None:
    """The program denies a call for each error."""
    use = parse_payload(payload("claude_pre"))
    approved = {**RELEASED, **OTHER, "args": use.shown_args}
    assert answer_to(use, approved, Options()).verdict == "allow"
    with pytest.raises(HookError, match=message):
        answer_to(use, {**approved, **parts}, Options())


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("expired", "Nobody decided in time"),
        ("cancelled", "was cancelled"),
        ("superseded", "was replaced"),
        ("approved", r"did not release req_1 \(approved\)"),
    ],
)
def test_request_that_ended_otherwise_denies(status: str, reason: str) -> None:
    use = parse_payload(payload("claude_pre"))
    ended = {"id": "req_1", "status": status, "execution": {"status": "none"}, "decision": None}
    answer = answer_to(use, ended, Options())
    assert answer.verdict == "deny"
    assert re.search(reason, answer.reason)


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that takes connections and says nothing."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.long
def test_hanging_server_denies(world: World, silent: str) -> None:
    world.configure(Config(server=silent))
    ran = world.hook(CLAUDE, "--limit", "5")
    assert (ran.code, ran.said) == (2, {})
    assert ran.seconds < 15


@pytest.mark.long
def test_endless_input_denies_after_the_limit(world: World) -> None:
    process = world.start("--limit", "5")
    process.stdin.write(b'{"hook_event_name":')
    process.stdin.flush()
    assert process.wait(30) == 2
    out, error = process.communicate()
    assert out == b""
    assert b"no answer within 5 seconds" in error


@pytest.mark.long
def test_server_death_during_the_wait_denies(world: World) -> None:
    process = world.start("--limit", "30")
    process.stdin.write(json.dumps(CLAUDE).encode())
    process.stdin.close()
    while not world.pending():
        time.sleep(0.05)
    world.app.state.sayso.feed.close()
    world.server.stop()
    out, error = process.communicate()
    assert (process.wait(), out) == (2, b"")
    assert b"cannot be reached" in error


def test_closed_stdout_fails_the_hook(world: World) -> None:
    process = world.start()
    process.stdout.close()
    sent = payload("claude_pre", tool_name="Read")
    _, error = process.communicate(json.dumps(sent).encode())
    assert process.wait() == 2, error


def test_missing_program_denies(world: World, tmp_path: Path) -> None:
    for program in (tmp_path / "gone", tmp_path / "not executable", tmp_path / "broken"):
        if program.name != "gone":
            program.write_text("#!/nowhere/python\n")
            program.chmod(0o644 if "not" in program.name else 0o755)
        command = HookOptions(config=str(world.config_file), python=str(program)).command()
        done = subprocess.run(
            command, shell=True, input=json.dumps(CLAUDE).encode(), capture_output=True
        )
        assert (done.returncode, done.stdout) == (2, b"")


class Chunked(BaseHTTPRequestHandler):
    """A proxy that cuts the replies of a server into chunks."""

    protocol_version = "HTTP/1.1"
    upstream = ""

    def log_message(self, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name: self.headers[name] for name in ("authorization", "content-type")}
        sent = urllib.request.Request(self.upstream + self.path, body, headers)
        with urllib.request.urlopen(sent) as reply:
            content = reply.read()
        self.send_response(200)
        self.send_header("Transfer-Encoding", "Chunked")
        self.end_headers()
        for start in range(0, len(content), 50):
            part = content[start : start + 50]
            self.wfile.write(b"%X;x=1\r\n%s\r\n" % (len(part), part))
        self.wfile.write(b"0\r\n\r\n")


def test_chunked_replies_are_read(world: World) -> None:
    handler = type("Handler", (Chunked,), {"upstream": world.server.url})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as proxy:
        threading.Thread(target=proxy.serve_forever, args=(0.01,), daemon=True).start()
        address = f"http://127.0.0.1:{proxy.server_address[1]}/"
        world.configure(world.config._replace(server=address))
        assert world.hook(payload("claude_pre", tool_name="Read")).verdict == "allow"
        proxy.shutdown()


# -- a store on this machine


@pytest.mark.long
def test_local_store(world: World, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'local.db'}"
    policy = tmp_path / "policy.toml"
    policy.write_text('[[rule]]\ntool = "Read"\nverdict = "allow"\n[[rule]]\nverdict = "ask"\n')
    world.configure(Config(store=url, policy=str(policy)))
    assert world.installed_hook(payload("claude_pre", tool_name="Read")).verdict == "allow"
    first = world.hook(CLAUDE, "--limit", "6")
    assert first.verdict == "deny", first.error
    assert "make exactly the same call again" in first.reason
    with Inbox(url) as inbox:
        (request,) = inbox.pending_sync().items
        inbox.approve_sync(request, by="ana")
    again = world.hook(payload("claude_pre_again"))
    assert again.verdict == "allow"
    sent = payload("claude_post", tool_use_id="toolu_1")
    assert world.hook(sent).error == ""
    with Inbox(url) as inbox:
        assert inbox.get_sync(request.id).execution.status == "released"
        assert verify(inbox.store).ok


def test_unusable_local_store_denies(world: World) -> None:
    for url in ("sqlite:////dev/null/x.db", "what://x", "postgresql://127.0.0.1:9/x"):
        world.configure(Config(store=url))
        ran = world.hook(CLAUDE, "--limit", "20")
        assert (ran.code, ran.said) == (2, {}), url


# -- speed


def test_hook_loads_only_the_standard_library() -> None:
    path = f"import sys; sys.path.append({str(Path(sayso.__file__).parents[1])!r})\n"
    code = (
        "import sys; import sayso.cli.entry; import sayso.hooks.program\n"
        "bad = {'typer', 'rich', 'pydantic', 'fastapi', 'httpx', 'asyncio', 'sqlite3'}\n"
        "bad |= {'sayso.gate', 'sayso.engine', 'cryptography', 'jsonschema', 'dataclasses'}\n"
        "bad |= {'http.client', 'ssl', 'hashlib', 'urllib.parse', 'threading', 'pathlib'}\n"
        "print(sorted(bad & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", path + code], capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.long
def test_hook_starts_quickly(world: World) -> None:
    """CPU time, because other tests run at the same time; the goal is 60 ms on an idle machine."""
    took = []
    for _ in range(5):
        before = os.times()
        world.installed_hook(payload("claude_pre", tool_name="Read"))
        after = os.times()
        took.append(
            after.children_user
            + after.children_system
            - before.children_user
            - before.children_system
        )
    assert min(took) < 0.15, took


def test_failing_rule_asks(tmp_path: Path) -> None:
    def broken(args: dict[str, Any]) -> bool:
        raise RuntimeError("boom")

    policy = Policy([Rule("Read", verdict="allow", when=broken), Rule("*", verdict="allow")])
    world = World(tmp_path, policy)
    try:
        ran = world.hook(payload("claude_pre", tool_name="Read"), "--limit", "5")
        assert (ran.verdict, len(world.pending())) == ("deny", 1)
    finally:
        world.close()
