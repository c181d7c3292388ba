"""What coding agents send to a hook, and what they expect from it.

Each agent starts the hook with one JSON object on its standard input, and reads one from its
standard output. ``parse_payload`` recognizes the agent by the shape of the object. Anything else
is an error, and the hook denies on errors.

Payloads were recorded with Claude Code 2.1.197, Codex 0.166.0, Copilot CLI 1.0.102 and Gemini CLI
0.61.0 (``tests/hooks/payloads``); Claude Code 2.1.325 was tried as well. OpenCode 1.18 has plugins
instead: ours (``opencode.js``) sends the payload, in the shape of the others.

Standard library only: the hook has to start quickly.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Payload = Mapping[str, Any]

#: How many characters of a result are stored.
MAX_RESULT = 16_000
#: The longest title of a request.
_MAX_TITLE = 200


class UnknownPayload(ValueError):
    """The input does not come from an agent that we know."""


class ToolUse(NamedTuple):
    """One tool use of an agent, before or after it ran."""

    #: Which agent: a key of ``DIALECTS``.
    dialect: str
    #: The agent's own name of the event.
    event: str
    #: "ask" before the tool runs, "prompt" if the agent would ask its user, "ran" afterwards; or
    #: "said": the user has written something new, and no tool is used.
    moment: str
    session: str
    cwd: str
    tool: str
    args: dict[str, Any]
    #: The id of this tool use, or "" if the agent sends none.
    id: str = ""
    #: After it ran: whether it succeeded, and what it returned.
    ok: bool = True
    result: Any = None
    #: Arguments that the agent does not send to its hook, and that a hook cannot change.
    unsent: Mapping[str, Any] = {}

    @property
    def caller(self) -> str:
        """How Sayso identifies this tool use: by its id, or by its tool and arguments."""
        return self.caller_of(self.shown_args)

    def caller_of(self, shown: Mapping[str, Any]) -> str:
        if self.id:
            return f"use:{self.id}"
        import hashlib  # only agents without ids need it

        called = json.dumps([self.tool, shown, self.cwd], sort_keys=True)
        return f"args:{hashlib.sha256(called.encode()).hexdigest()}"

    def known_as(self, caller: str) -> ToolUse:
        """Return the tool use with the id that Sayso knows it by: a prompt carries none."""
        kind, _, id = caller.partition(":")
        return self._replace(id=id) if kind == "use" else self

    @property
    def note(self) -> str:
        """The model's description of a shell command.

        It is not an argument: a model that makes the same call again words it differently.
        """
        note = self.args.get("description") if self.tool.lower() in _SHELLS else None
        return note if isinstance(note, str) else ""

    @property
    def run(self) -> str:
        return self.session[:100]

    @property
    def short_result(self) -> Any:
        """The result, or its beginning if it is long: a file that was read may be huge."""
        text = json.dumps(self.result, ensure_ascii=False)
        if len(text) <= MAX_RESULT:
            return self.result
        return {"beginning": text[:MAX_RESULT], "characters": len(text)}

    @property
    def fixed(self) -> dict[str, Any]:
        """The arguments that people see and no hook can change: where it runs, for example."""
        where = {"cwd": self.cwd} if self.cwd and "cwd" not in self.args else {}
        return {**self.unsent, **where}

    @property
    def shown_args(self) -> dict[str, Any]:
        """The arguments that people approve: the tool's own, and the fixed ones."""
        args = dict(self.args)
        if self.note:
            args.pop("description", None)  # it is shown as the note
        return {**args, **self.fixed}

    def own_args(self, shown: Mapping[str, Any]) -> dict[str, Any]:
        """Return the tool's own part of approved arguments."""
        own = {name: value for name, value in shown.items() if name not in self.fixed}
        return {**own, "description": self.note} if self.note else own

    @property
    def schema(self) -> dict[str, Any]:
        """The schema that an edit must match: it keeps the fixed arguments.

        The directory becomes part of the tool, so that a grant holds in one directory only.
        """
        if not self.fixed:
            return {"type": "object"}
        properties = {name: {"const": value} for name, value in self.fixed.items()}
        return {"type": "object", "properties": properties, "required": [*properties]}

    @property
    def title(self) -> str:
        for name, verb in _TITLES:
            value = self.args.get(name)
            if isinstance(value, str) and value.strip():
                first, *more = value.strip().splitlines()
                title = f"{verb}{first}{' …' if more else ''}"
                return title if len(title) <= _MAX_TITLE else f"{title[: _MAX_TITLE - 2]} …"
        return f"Use {self.tool}"


#: The tools that run a shell command.
_SHELLS = ("bash", "shell", "powershell", "run_shell_command")

#: The title is made from the first of these arguments that a call has.
_TITLES = (
    ("command", "Run: "),
    ("file_path", "Change file "),
    ("filePath", "Change file "),
    ("notebook_path", "Change notebook "),
    ("absolute_path", "Open "),
    ("path", "Open "),
    ("url", "Fetch "),
    ("query", "Search for "),
    ("prompt", "Start an agent: "),
)


class Answer(NamedTuple):
    """The hook's answer to the agent."""

    #: "allow"; "deny"; "defer" (Claude Code ends and asks again when it is resumed); or "pass": the
    #: agent's own rules decide.
    verdict: str
    reason: str = ""
    #: The tool's own arguments, if a person changed them.
    args: dict[str, Any] | None = None
    #: Text for the model, besides the reason.
    notice: str = ""


class Dialect(NamedTuple):
    """How one agent talks to its hooks."""

    #: Returns the object to print.
    write: Callable[[ToolUse, Answer], dict[str, Any]]
    #: Whether ``defer`` ends the agent until it is resumed.
    defers: bool = False
    #: Whether the agent runs its hooks in parallel, and takes the arguments of the last to finish.
    last_wins: bool = False


def parse_payload(payload: object) -> ToolUse:
    """Return the tool use in a payload. Raise ``UnknownPayload`` if no agent would send it."""
    if not isinstance(payload, Mapping):
        raise UnknownPayload("the input is not a JSON object")
    use = _read_event(payload) or _read_copilot(payload)
    if use is not None:
        return use
    keys = ", ".join(sorted(str(key) for key in payload)[:20])
    raise UnknownPayload(f"no known agent sends this (it has {keys or 'no keys'})")


def format_answer(use: ToolUse, answer: Answer) -> dict[str, Any]:
    """Return what to print for an agent before it uses a tool."""
    return {} if answer.verdict == "pass" else DIALECTS[use.dialect].write(use, answer)


def _text(payload: Payload, name: str, *, required: bool = True) -> str:
    value = payload.get(name, "")
    if not isinstance(value, str) or (required and not value.strip()):
        raise UnknownPayload(f"{name} is missing, or not text")
    return value


def _object(payload: Payload, name: str) -> dict[str, Any]:
    value = payload.get(name)
    if isinstance(value, str):  # Copilot sends some arguments as JSON text
        try:
            value = json.loads(value)
        except ValueError:
            raise UnknownPayload(f"{name} is not a JSON object") from None
    if not isinstance(value, Mapping):
        raise UnknownPayload(f"{name} is not a JSON object")
    return dict(value)


# -- Claude Code, Codex, Gemini CLI and OpenCode: payloads with the name of an event

#: Who sends each event, and its moment. Codex sends those of Claude Code, with the id of its turn.
_EVENTS = {
    "PreToolUse": ("claude", "ask"),
    "PermissionRequest": ("claude", "prompt"),
    "PostToolUse": ("claude", "ran"),
    "PostToolUseFailure": ("claude", "ran"),
    "BeforeTool": ("gemini", "ask"),
    "AfterTool": ("gemini", "ran"),
    "UserPromptSubmit": ("claude", "said"),
    "BeforeAgent": ("gemini", "said"),
    # Our plugin for OpenCode (``opencode.js``) sends these.
    "tool.execute.before": ("opencode", "ask"),
    "tool.execute.after": ("opencode", "ran"),
    "chat.message": ("opencode", "said"),
}


def _read_event(payload: Payload) -> ToolUse | None:
    event = str(payload.get("hook_event_name", ""))
    if event not in _EVENTS:
        return None
    dialect, moment = _EVENTS[event]
    failed = event == "PostToolUseFailure"
    response = payload.get("tool_response")
    gemini_error = event == "AfterTool" and isinstance(response, Mapping) and response.get("error")
    return ToolUse(
        dialect="codex" if dialect == "claude" and "turn_id" in payload else dialect,
        event=event,
        moment=moment,
        session=_text(payload, "session_id"),
        cwd=_text(payload, "cwd", required=False),
        tool="" if moment == "said" else _text(payload, "tool_name"),
        args={} if moment == "said" else _object(payload, "tool_input"),
        id=_text(payload, "tool_use_id", required=False),
        ok=not failed and not gemini_error,
        result=payload.get("error") if failed else response,
    )


def _write_claude(use: ToolUse, answer: Answer) -> dict[str, Any]:
    if use.moment == "prompt":
        decision: dict[str, Any] = {"behavior": answer.verdict}
        if answer.verdict == "deny":
            decision["message"] = answer.reason
        elif answer.args is not None:
            decision["updatedInput"] = answer.args
        return _specific(use, {"decision": decision})
    output: dict[str, Any] = {"permissionDecision": answer.verdict}
    output["permissionDecisionReason"] = answer.reason
    if answer.notice:
        output["additionalContext"] = answer.notice
    if answer.args is not None:
        output["updatedInput"] = answer.args
    return _specific(use, output)


def _write_codex(use: ToolUse, answer: Answer) -> dict[str, Any]:
    if use.moment == "prompt" and answer.args is not None:  # Codex would show its own prompt
        call = json.dumps(answer.args, ensure_ascii=False)
        why = f"A person approved another call instead, which you have to make yourself: {call}"
        answer = Answer(verdict="deny", reason=why)
    return _write_claude(use, answer)


def _write_gemini(use: ToolUse, answer: Answer) -> dict[str, Any]:
    more: dict[str, Any] = {"additionalContext": answer.notice} if answer.notice else {}
    if answer.args is not None:
        # Gemini merges these over its own arguments, so one that an edit removed would still apply.
        removed = sorted(use.args.keys() - answer.args.keys())
        if removed:
            why = f"An edit removed {', '.join(removed)}, which this agent cannot do: not run."
            return {"decision": "deny", "reason": why}
        more["tool_input"] = answer.args
    output = {"decision": answer.verdict, "reason": answer.reason}
    return {**output, **(_specific(use, more) if more else {})}


def _write_opencode(use: ToolUse, answer: Answer) -> dict[str, Any]:
    output: dict[str, Any] = {"decision": answer.verdict, "reason": answer.reason}
    if answer.args is not None:
        output |= {"tool_input": answer.args, "notice": answer.notice}
    return output


def _specific(use: ToolUse, output: dict[str, Any]) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": use.event, **output}}


# -- Codex: what it does not send

#: How much of the end of a transcript is searched for a call, and for how many seconds.
_TRANSCRIPT_END = 4 * 1024 * 1024
_TRANSCRIPT_SECONDS = 0.5
#: Arguments of its shell tool that are sent, or that do not change what a command does.
_CODEX_SENT = ("cmd", "workdir", "yield_time_ms", "max_output_tokens", "justification")


def complete_codex(use: ToolUse, payload: Payload, session_folder: str) -> ToolUse:
    """Add what Codex 0.166 does not send: the project, and arguments of its shell tool.

    It sends the directory that the model chose for this call as ``cwd``, and starts the hook in the
    folder of the session, which is the project. Whether the command gets a terminal, in which the
    model can type later, and which shell runs it, is only in its transcript.
    """
    unsent: dict[str, Any] = {}
    if use.cwd != session_folder:
        unsent["workdir"] = use.cwd
    if use.tool == "Bash":
        args = _transcribed_args(use, payload)
        if args is None:
            unsent["tty"] = "unknown"
        else:
            unsent |= {name: args[name] for name in args if name not in _CODEX_SENT}
    return use._replace(cwd=session_folder, unsent=unsent)


def _transcribed_args(use: ToolUse, payload: Payload) -> dict[str, Any] | None:
    """Return the arguments of a call in the transcript, or None if it is not there."""
    ends = time.monotonic() + _TRANSCRIPT_SECONDS
    while True:
        try:
            with open(_text(payload, "transcript_path"), "rb") as file:
                file.seek(max(file.seek(0, os.SEEK_END) - _TRANSCRIPT_END, 0))
                lines = file.read().splitlines()
        except (OSError, UnknownPayload):
            return None
        for line in reversed(lines):
            args = _transcribed_call(line, use) if b"function_call" in line else None
            if args is not None:
                return args
        if time.monotonic() > ends:
            return None
        time.sleep(0.02)  # Codex writes it at the same moment


def _transcribed_call(line: bytes, use: ToolUse) -> dict[str, Any] | None:
    """Return the arguments in a line of a transcript, if it is this call. A prompt has no id."""
    try:
        item = json.loads(line)["payload"]
        if item["type"] != "function_call" or (use.id and item["call_id"] != use.id):
            return None
        args = json.loads(item["arguments"])
        return args if args["cmd"] == use.args.get("command") or use.moment == "ran" else None
    except (ValueError, KeyError, TypeError):
        return None


# -- Copilot: flat answers, no event name and no ids


def _read_copilot(payload: Payload) -> ToolUse | None:
    if "sessionId" in payload and "prompt" in payload and "toolName" not in payload:
        session = _text(payload, "sessionId")
        return ToolUse("copilot", "userPromptSubmitted", "said", session, "", "", {})
    if "toolName" not in payload or "sessionId" not in payload:
        return None
    ran = "toolResult" in payload
    result = payload.get("toolResult")
    kind = result.get("resultType", "success") if isinstance(result, Mapping) else "success"
    return ToolUse(
        dialect="copilot",
        event="postToolUse" if ran else "preToolUse",
        moment="ran" if ran else "ask",
        session=_text(payload, "sessionId"),
        cwd=_text(payload, "cwd", required=False),
        tool=_text(payload, "toolName"),
        args=_object(payload, "toolArgs"),
        ok=kind == "success",
        result=result,
    )


def _write_copilot(use: ToolUse, answer: Answer) -> dict[str, Any]:
    reason = answer.reason or answer.notice
    output = {"permissionDecision": answer.verdict, "permissionDecisionReason": reason}
    return output if answer.args is None else {**output, "modifiedArgs": answer.args}


DIALECTS: dict[str, Dialect] = {
    "claude": Dialect(_write_claude, defers=True, last_wins=True),
    "codex": Dialect(_write_codex, last_wins=True),
    "copilot": Dialect(_write_copilot),
    "gemini": Dialect(_write_gemini),
    "opencode": Dialect(_write_opencode),
}
