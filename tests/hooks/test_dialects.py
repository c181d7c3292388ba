"""What each agent sends and reads, with payloads that were recorded with the real ones."""

from __future__ import annotations

from typing import Any

import pytest
from coding_world import payload

from sayso.hooks.dialects import Answer, ToolUse, UnknownPayload, format_answer, parse_payload

COMMAND = "touch /src/project/plain.txt"


@pytest.mark.parametrize(
    ("name", "dialect", "tool", "id"),
    [
        ("claude_pre", "claude", "Bash", "toolu_0"),
        ("codex_pre", "codex", "Bash", "call_0"),
        ("copilot_pre", "copilot", "bash", ""),
        ("gemini_pre", "gemini", "run_shell_command", ""),
    ],
)
def test_tool_use_is_read(name: str, dialect: str, tool: str, id: str) -> None:
    use = parse_payload(payload(name))
    assert (use.dialect, use.moment, use.tool, use.id) == (dialect, "ask", tool, id)
    assert (use.args["command"], use.cwd) == (COMMAND, "/src/project")
    assert use.shown_args == {"command": COMMAND, "cwd": "/src/project"}
    assert use.title == f"Run: {COMMAND}"


@pytest.mark.parametrize("name", ["claude_post", "codex_post", "copilot_post", "gemini_post"])
def test_result_belongs_to_the_same_tool_use(name: str) -> None:
    before, after = (
        parse_payload(payload(name.replace("post", "pre"))),
        parse_payload(payload(name)),
    )
    assert (after.moment, after.ok) == ("ran", True)
    assert (after.caller, after.run) == (before.caller, before.run)


def test_failure_is_no_success() -> None:
    sent = payload("claude_post", hook_event_name="PostToolUseFailure", error="exit code 1")
    assert (parse_payload(sent).ok, parse_payload(sent).result) == (False, "exit code 1")
    response = {"llmContent": "", "error": {"message": "exit code 1"}}
    assert not parse_payload(payload("gemini_post", tool_response=response)).ok


@pytest.mark.parametrize("name", ["claude_pre", "copilot_pre"])
def test_description_by_the_model_is_no_argument(name: str) -> None:
    """A model that tries again describes the same command in other words."""
    sent = payload(name)
    args = "tool_input" if "tool_input" in sent else "toolArgs"
    other = sent | {args: sent[args] | {"description": "another try"}}
    one, two = parse_payload(sent), parse_payload(other)
    assert one.shown_args == two.shown_args
    assert (one.note, two.note) == ("as the script says", "another try")
    assert one.caller == two.caller
    assert two.own_args(two.shown_args) == other[args]


def test_tools_own_cwd_argument_is_kept() -> None:
    use = parse_payload(payload("claude_pre", tool_name="mcp__x__run", tool_input={"cwd": "/etc"}))
    assert use.shown_args == {"cwd": "/etc"}
    assert use.own_args({"cwd": "/var"}) == {"cwd": "/var"}
    assert use.schema == {"type": "object"}


def test_edit_may_not_move_the_command_elsewhere() -> None:
    use = parse_payload(payload("claude_pre"))
    assert use.schema["properties"]["cwd"] == {"const": "/src/project"}
    assert use.schema["required"] == ["cwd"]


@pytest.mark.parametrize(
    "sent",
    [
        *(None, [], "PreToolUse", 7, {}),
        {"hook_event_name": "Stop", "session_id": "s"},
        {"hook_event_name": ["PreToolUse"], "session_id": "s"},
        {"toolName": "bash"},
        {"sessionId": "s", "toolName": "bash", "toolArgs": "rm -rf"},
        {"sessionId": "s", "toolName": "bash", "toolArgs": "[1]"},
        {"sessionId": "", "toolName": "bash", "toolArgs": {}},
        payload("claude_pre", session_id=""),
        payload("claude_pre", session_id=None),
        payload("claude_pre", tool_input=None),
        payload("claude_pre", tool_input=["ls"]),
        payload("claude_pre", tool_name=""),
        payload("claude_pre", tool_use_id=5),
        payload("claude_pre", cwd=None),
    ],
)
def test_anything_else_is_refused(sent: Any) -> None:
    with pytest.raises(UnknownPayload):
        parse_payload(sent)


def test_arguments_as_text() -> None:
    sent = payload("copilot_pre", toolArgs='{"command": "ls"}')
    assert parse_payload(sent).args == {"command": "ls"}


GEMINI = {
    "hook_event_name": "BeforeTool",
    "session_id": "s",
    "cwd": "/src",
    "tool_name": "run_shell_command",
    "tool_input": {"command": "ls", "directory": "x"},
}


def answered(sent: dict[str, Any], answer: Answer) -> dict[str, Any]:
    return format_answer(parse_payload(sent), answer)


EDIT = Answer(verdict="allow", reason="ok", args={"command": "ls"}, notice="changed")


def test_claude_and_codex_answers_are_rendered() -> None:
    for name in ("claude_pre", "codex_pre"):
        assert answered(payload(name), Answer(verdict="deny", reason="no")) == {
            "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "deny",
                "permissionDecisionReason": "no",
            }
        }
        said = answered(payload(name), EDIT)["hookSpecificOutput"]
        assert (said["updatedInput"], said["additionalContext"]) == ({"command": "ls"}, "changed")
        assert answered(payload(name), Answer(verdict="pass")) == {}


def test_prompt_answer_ignores_permission_suggestions() -> None:
    suggestion = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}
    sent = payload(
        "claude_pre", hook_event_name="PermissionRequest", permission_suggestions=[suggestion]
    )
    del sent["tool_use_id"]
    assert parse_payload(sent).moment == "prompt"
    assert answered(sent, EDIT) == {
        "hookSpecificOutput": {
            "hookEventName": "PermissionRequest",
            "decision": {"behavior": "allow", "updatedInput": {"command": "ls"}},
        }
    }
    denied = answered(sent, Answer(verdict="deny", reason="no"))["hookSpecificOutput"]
    assert denied["decision"] == {"behavior": "deny", "message": "no"}


def test_copilot_answer_is_rendered() -> None:
    assert answered(payload("copilot_pre"), Answer(verdict="deny", reason="no")) == {
        "permissionDecision": "deny",
        "permissionDecisionReason": "no",
    }
    said = answered(payload("copilot_pre"), EDIT)
    assert (said["permissionDecision"], said["modifiedArgs"]) == ("allow", {"command": "ls"})


def test_gemini_answer_is_rendered() -> None:
    assert parse_payload(GEMINI).dialect == "gemini"
    assert answered(GEMINI, Answer(verdict="deny", reason="no")) == {
        "decision": "deny",
        "reason": "no",
    }
    whole = EDIT._replace(args={"command": "ls -l", "directory": "x"})
    said = answered(GEMINI, whole)
    assert said["decision"] == "allow"
    assert said["hookSpecificOutput"]["tool_input"] == {"command": "ls -l", "directory": "x"}
    # It merges arguments, so one that was removed would still be there.
    assert answered(GEMINI, EDIT)["decision"] == "deny"


OPENCODE = {
    "hook_event_name": "tool.execute.before",
    "session_id": "ses_1",
    "cwd": "/src",
    "tool_name": "bash",
    "tool_use_id": "call_1",
    "tool_input": {"command": "ls -l"},
}


def test_opencode_answer_is_rendered() -> None:
    use = parse_payload(OPENCODE)
    assert (use.dialect, use.moment, use.id) == ("opencode", "ask", "call_1")
    denied = {"decision": "deny", "reason": "no"}
    assert answered(OPENCODE, Answer(verdict="deny", reason="no")) == denied
    edited = {"decision": "allow", "reason": "ok", "tool_input": {"command": "ls"}}
    assert answered(OPENCODE, EDIT) == {**edited, "notice": "changed"}


def test_long_results_are_cut() -> None:
    use = parse_payload(payload("claude_post", tool_response={"stdout": "x" * 50_000}))
    assert use.short_result["characters"] > 50_000
    assert len(use.short_result["beginning"]) == 16_000


@pytest.mark.parametrize(
    ("args", "title"),
    [
        ({"command": "a\nb"}, "Run: a …"),
        ({"command": "x" * 500}, "Run: " + "x" * 193 + " …"),
        ({"file_path": "/src/a.py"}, "Change file /src/a.py"),
        ({"url": "https://example.com"}, "Fetch https://example.com"),
        ({"command": 5}, "Use Bash"),
        ({}, "Use Bash"),
    ],
)
def test_titles(args: dict[str, Any], title: str) -> None:
    use: ToolUse = parse_payload(payload("claude_pre", tool_input=args))
    assert use.title == title
