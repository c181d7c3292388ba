"""Judge the calls of coding agents: shell commands, files, searches and fetches.

``call_findings`` returns the parts of a call, each with its kinds (``sayso.hooks.commands``) and a
sentence for people. A policy judges by kinds. The files that a call names may be on another machine
than the server, so the hook judges the call too, and sends what only its machine shows
(``machine_findings``). It comes as the argument ``MACHINE``, and can only make a call more serious.

Standard library only: the hook imports this module.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sayso.hooks.commands import KINDS, judge
from sayso.hooks.paths import Files, Findings, Overrun
from sayso.hooks.tables import CREDENTIALS

#: The names that agents give to the same tools. PowerShell is none: its grammar is another.
SHELLS = ("Bash", "bash", "shell", "local_shell", "exec_command", "run_shell_command")
READERS = (
    *("Read", "Glob", "Grep", "LS", "NotebookRead", "view", "view_image", "read_file", "glob"),
    *("read_many_files", "list_directory", "search_file_content", "grep", "list_dir"),
    *("grep_search", "read", "list"),
)
EDITORS = (
    *("Write", "Edit", "MultiEdit", "NotebookEdit", "write_file", "replace", "create", "edit"),
    *("str_replace_editor", "str_replace", "apply_patch", "write", "multiedit", "patch"),
)
FETCHERS = (
    *("WebFetch", "WebSearch", "web_fetch", "google_web_search", "web_search", "fetch"),
    *("webfetch", "websearch", "codesearch"),
)
#: Tools that act on the conversation only, or whose own calls are gated one by one.
HARMLESS = (
    *("TodoWrite", "TodoRead", "Task", "Agent", "TaskOutput", "BashOutput", "ExitPlanMode"),
    *("AskUserQuestion", "ToolSearch", "update_plan", "read_bash", "list_bash", "report_intent"),
    *("TaskCreate", "TaskGet", "TaskList", "TaskUpdate", "write_todos", "update_topic"),
    *("ask_user", "todowrite", "todoread", "question"),
)

#: The argument with what the hook found on the agent's machine: from a kind to a sentence.
MACHINE = "sayso_machine"
#: Its key with what the hook resolved there (``sayso.hooks.footprints``).
RESOLVED = "resolved"

PATHS = ("file_path", "notebook_path", "absolute_path", "path", "filePath", "dir_path")
PATH_LISTS = ("paths", "file_paths", "include")
_PATTERNS = ("glob", "include", "include_pattern")
#: A pattern of names with an ending, such as ``src/**/*.py``.
_ENDING = re.compile(r"(?:[\w.*/-]*/)?\*[\w-]*(?:\.[\w-]+)+")
#: Codex ignores blanks around a line of a patch.
_PATCHED = re.compile(
    r"^\s*\*\*\* (?:Add File|Update File|Delete File|Move to):\s*(\S.*?)\s*$", re.M
)
#: The arguments with a patch, which names files.
_PATCHES = ("command", "input", "patch", "patchText")
#: The arguments of file tools: none of the others names a file.
_FILE_ARGUMENTS = frozenset(
    (
        *(MACHINE, *PATHS, *PATH_LISTS, *_PATCHES),
        *("cwd", "offset", "limit", "pages", "view_range", "content", "file_text", "description"),
        *("old_string", "new_string", "replace_all", "expected_replacements", "instruction"),
        *("old_str", "new_str", "insert_line", "insert_text", "edits", "new_source", "cell_id"),
        *("cell_type", "edit_mode", "cell_number", "append", "oldString", "newString"),
        *("replaceAll", "allow_multiple", "modified_by_user", "ai_proposed_content"),
    )
)
#: What one of several edits of a file has.
_EDIT_ARGUMENTS = frozenset(
    (
        *PATHS,
        *("old_string", "new_string", "replace_all", "old_str", "new_str"),
        *("oldString", "newString", "replaceAll"),
    )
)
#: The argument of a shell tool that says where the command runs.
FOLDERS = ("workdir", "dir_path")
#: Arguments of a shell tool that do not change what the command does, besides where it runs.
_SHELL_ARGUMENTS = frozenset(
    (
        *(
            "command",
            "cmd",
            "cwd",
            "workdir",
            "dir_path",
            "description",
            "justification",
            "timeout",
        ),
        *("timeout_ms", "run_in_background", "is_background", "mode", "sessionId", "initial_wait"),
        *("yield_time_ms", "max_output_tokens"),
    )
)


def call_kinds(tool: str, args: Mapping[str, Any]) -> set[str]:
    """Return the kinds of a call."""
    return {kind for _, findings in call_findings(tool, args) for kind in findings}


def explain_call(tool: str, args: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Return the parts of a call, each with sentences that say what it does."""
    return [
        (part, [findings[kind] or words for kind, words in KINDS.items() if kind in findings])
        for part, findings in call_findings(tool, args)
    ]


def call_findings(
    tool: str, args: Mapping[str, Any], *, look: bool = True
) -> list[tuple[str, Findings]]:
    """Return the parts of a call, each with its findings. ``look=False`` looks at no files."""
    cwd = args.get("cwd")
    if not isinstance(cwd, str):
        cwd = ""
    try:
        parts = _parts(tool, args, cwd, look)
    except Overrun as error:
        parts = [(tool, {"unclear": str(error)})]
    machine = args.get(MACHINE)
    if machine is not None:
        well_formed = isinstance(machine, Mapping) and machine.keys() <= {*KINDS, RESOLVED}
        findings = (
            dict(machine) if well_formed else {"unclear": "The hook's findings are not understood."}
        )
        findings.pop(RESOLVED, None)
        parts.append(("On the agent's machine", {kind: str(why) for kind, why in findings.items()}))
    return parts


def machine_findings(tool: str, args: Mapping[str, Any]) -> Findings:
    """Return the findings that only this machine's files show, from a kind to a sentence."""
    parts = call_findings(tool, args, look=False)
    usual_kinds = {"read", "write", *(kind for _, findings in parts for kind in findings)}
    sentences = [item for _, findings in call_findings(tool, args) for item in findings.items()]
    return {kind: sentence for kind, sentence in sentences if kind not in usual_kinds}


def _parts(tool: str, args: Mapping[str, Any], cwd: str, look: bool) -> list[tuple[str, Findings]]:
    files = Files(cwd, look=look)
    if tool in SHELLS:
        return _shell_parts(tool, args, files, cwd)
    if tool in FETCHERS:
        return [(tool, {"network": ""})]
    if tool in READERS or tool in EDITORS:
        return [(tool, _file_findings(args, files, cwd, writing=tool in EDITORS))]
    return [(tool, {"read": ""} if tool in HARMLESS else {"other": ""})]


def _shell_parts(
    tool: str, args: Mapping[str, Any], files: Files, cwd: str
) -> list[tuple[str, Findings]]:
    commands = [args[name] for name in ("command", "cmd") if name in args]
    folders = [args[name] for name in FOLDERS if name in args]
    unknown = sorted(args.keys() - _SHELL_ARGUMENTS - {MACHINE})
    if len(commands) != 1 or not isinstance(commands[0], str):
        return [(tool, {"unclear": "The call does not contain a command for a POSIX shell."})]
    if args.get("tty", False) is True:
        why = "It runs in a terminal, in which the model can type later without being asked."
        return [(tool, {"interactive": why})]
    if unknown == ["tty"]:
        why = "It is not known whether it runs in a terminal, in which the model can type later."
        return [(tool, {"unclear": why})]
    if unknown:
        return [(tool, {"unclear": f"The argument {unknown[0]} may change how the command runs."})]
    folder = folders[0] if folders else cwd
    if len(folders) > 1 or not isinstance(folder, str):
        return [(tool, {"unclear": "The call does not name one directory for the command."})]
    if folder != cwd:
        folder = files.real(f"{cwd}/{folder}" if not folder.startswith("/") else folder)
        if not files.contains(folder):
            return [(tool, {"unclear": f"The command runs in {folder}, outside the project."})]
    return judge(commands[0], files, folder)


def named_paths(args: Mapping[str, Any], *, writing: bool) -> list[str] | None:
    """Return the paths that a call of a file tool names, or None if it names them otherwise."""
    paths = [args[name] for name in PATHS if name in args]
    for name in PATH_LISTS:
        if isinstance(args.get(name), list):
            paths += args[name]
    edits = args.get("edits")
    for edit in edits if writing and isinstance(edits, list) else ():
        paths += [edit[name] for name in PATHS if isinstance(edit, Mapping) and name in edit]
    for text in (args.get(name) for name in _PATCHES):
        if writing and isinstance(text, str):
            paths += _PATCHED.findall(text)
    if not all(isinstance(path, str) for path in paths) or (writing and not paths):
        return None
    return paths


def unknown_argument(args: Mapping[str, Any]) -> str:
    """Return an argument of a file tool that may name a file in another way, or ""."""
    edits = args.get("edits", [])
    if not isinstance(edits, list):
        return "edits"
    for known, arguments in (
        (_FILE_ARGUMENTS, args),
        *((_EDIT_ARGUMENTS, edit) for edit in edits),
    ):
        if not isinstance(arguments, Mapping):
            return "edits"
        if unknown := sorted(arguments.keys() - known):
            return str(unknown[0])
    return ""


def _pattern_findings(pattern: str, args: Mapping[str, Any], files: Files, cwd: str) -> Findings:
    """Return the findings of reading every file that a pattern of names matches."""
    before, brace, after = pattern.partition("{")
    choices, _, after = after.partition("}")
    names = [f"{before}{choice}{after}" for choice in choices.split(",")] if brace else [pattern]
    if pattern.startswith("!"):
        return {}
    if any(CREDENTIALS.match(name.rstrip("*")) for name in names):
        return {"secret": f"{pattern} matches files that may hold credentials."}
    if all(_ENDING.fullmatch(name) for name in names):
        return {}
    root = next((args[name] for name in PATHS if isinstance(args.get(name), str)), ".")
    bases = [re.sub(r"[\[{].*", "*", name.rpartition("/")[2]) for name in names]
    return files.tree(
        files.real(f"{cwd}/{root}" if not root.startswith("/") else root), names="\n".join(bases)
    )


def _file_findings(args: Mapping[str, Any], files: Files, cwd: str, *, writing: bool) -> Findings:
    paths = named_paths(args, writing=writing)
    if paths is None:
        return {"unclear": "The call does not name the files that it is about."}
    if writing and (unknown := unknown_argument(args)):
        return {"unclear": f"The argument {unknown} may name another file."}
    findings: Findings = {}
    patterns = [args[name] for name in _PATTERNS if isinstance(args.get(name), str)]
    patterns += [path for path in paths if not writing and re.search(r"[*?\[{]", path)]
    for pattern in patterns:
        findings |= _pattern_findings(pattern, args, files, cwd)
    if any(path != path.strip() or "://" in path for path in paths):
        # Some agents remove the spaces first, or read an address.
        findings["unclear"] = "A path begins or ends with a space, or is an address."
    for path in paths:
        for kind, sentence in files.path(path, cwd, writing=writing).items():
            findings.setdefault(kind, sentence)
    return findings or {"read": ""}
