"""What a call of a coding agent is about, in parsed and resolved form, for grants.

A grant of a command must not compare texts: ``npm test; curl … | sh`` starts with ``npm test``. So
each call of a shell or a file tool gets a *footprint* when it is judged, and a grant compares
footprints (``sayso.engine.grants``). It is data, so that the engine opens no file:

    kinds    what the call does (``sayso.hooks.commands``), the hook's findings included
    words    the words of a command, if it is one plain command: nothing chained, redirected, or
             only known when it runs. Without them, no grant is possible
    least    how many of the words a grant for "any arguments" has to name; 0 if there is none
    usual    how many it names unless its author says otherwise
    places   where it runs, on the server and, if a hook asks, on the agent's machine: the resolved
             directory, the file of the program, and the files that the call names. Those of the
             project are relative to the directory

Standard library only: the hook imports this module.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from sayso.hooks import tables
from sayso.hooks.calls import (
    EDITORS,
    FOLDERS,
    MACHINE,
    PATH_LISTS,
    PATHS,
    READERS,
    RESOLVED,
    SHELLS,
    call_kinds,
    named_paths,
    unknown_argument,
)
from sayso.hooks.paths import Files
from sayso.hooks.shell import UnclearCommand, parse

#: Tools that pass text on to a program whose language is not analysed.
_OPAQUE = ("PowerShell", "powershell", "pwsh", "write_stdin", "write_bash")
#: The tools whose calls have a footprint.
TOOLS = frozenset((*SHELLS, *READERS, *EDITORS, *_OPAQUE))

#: Kinds of commands for which "any arguments" says too much: the arguments make the harm.
_EXACT_ONLY = frozenset(
    {"delete", "publish", "secret", "settings", "unclear", "privileged", "download"}
)
#: Programs that run their arguments.
_RUNNERS = frozenset({*tables.WRAPPERS, "exec", "eval", "builtin", "ssh", "watch", "parallel"})
#: Programs of which the first argument says what they do: a subcommand, or a file to run.
_WITH_SUBCOMMANDS = tables.INTERPRETERS | {
    name.split()[0]
    for table in (tables.READS, tables.WRITES, tables.ASKED)
    for name in table
    if " " in name
}
_SUBCOMMAND = re.compile(r"[a-z][a-z0-9_:-]*")
_MAX_SUBCOMMANDS = 3
#: A longer command is repeated in every row; a person cannot compare it anyway.
_MAX_LENGTH = 4000
_MAX_FILES = 100


def footprint(tool: str, args: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the footprint of a call of one of ``TOOLS``.

    Return None if the call is about no files: other agents, too, have tools named ``create``.
    """
    if tool in (*READERS, *EDITORS) and args.keys().isdisjoint(("cwd", *PATHS, *PATH_LISTS)):
        return None
    machine = args.get(MACHINE)
    own_args = {name: value for name, value in args.items() if name != MACHINE}
    try:
        kinds = call_kinds(tool, args)
        places = [resolve(tool, own_args)]
        json.dumps(places, ensure_ascii=False).encode()
    except (ValueError, OSError):  # a path with a null byte, or a name that is not text
        return {"kinds": ["unclear"], "places": []}
    if isinstance(machine, Mapping) and RESOLVED in machine:
        places.append(machine[RESOLVED])
    parts: dict[str, Any] = {"kinds": sorted(kinds), "places": places}
    words = plain_words(tool, own_args)
    if words is not None and "unclear" not in kinds:
        least = _least_words(words, kinds)
        usual = 1
        while usual < min(len(words), _MAX_SUBCOMMANDS) and _SUBCOMMAND.fullmatch(words[usual]):
            usual += 1
        usual = max(usual, least) if least > 1 else least
        parts |= {"words": words, "least": least, "usual": usual}
    return parts


def resolve(tool: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the directory, the program and the files of a call, as this machine resolves them."""
    cwd = args.get("cwd")
    files = Files(cwd if isinstance(cwd, str) else "")
    directory = files.project if isinstance(cwd, str) and cwd else ""
    if tool in SHELLS or tool in _OPAQUE:
        folder = next((args[name] for name in FOLDERS if name in args), "")
        if isinstance(folder, str) and folder:
            directory = files.real(_joined(directory, folder))
        words = plain_words(tool, args)
        path = None
        if words:
            name = words[0]
            path = _joined(directory, name) if "/" in name else files.find_program(name)
        return {"directory": directory, "program": files.real(path) if path else ""}
    paths = named_paths(args, writing=tool in EDITORS)
    names_all_files = args.keys().isdisjoint(PATH_LISTS) and not unknown_argument(args)
    if paths is None or len(paths) > _MAX_FILES or not names_all_files:
        return {"directory": directory}
    names = {_relative(files.real(_joined(directory, path)), files) for path in paths or ["."]}
    return {"directory": directory, "files": sorted(names)}


def plain_words(tool: str, args: Mapping[str, Any]) -> list[str] | None:
    """Return the words of a shell call that is one plain command, or None."""
    command = args.get("command", args.get("cmd"))
    if tool not in SHELLS or not isinstance(command, str) or len(command) > _MAX_LENGTH:
        return None
    try:
        commands = parse(command)
    except UnclearCommand:
        return None
    if len(commands) != 1 or commands[0].redirected or "\n" in command.strip():
        return None
    if any(word.form not in ("bare", "quoted") for word in commands[0].words):
        return None
    return [word.text for word in commands[0].words]


def _joined(directory: str, path: str) -> str:
    return path if path.startswith("/") else f"{directory or '/'}/{path}"


def _relative(path: str, files: Files) -> str:
    """Return a resolved path relative to the project, or as it is if it is outside."""
    if not files.contains(path):
        return path
    return path[len(files.project) + 1 :] or "."


def _least_words(words: list[str], kinds: set[str]) -> int:
    program = words[0]
    entry = tables.WRITES.get(program, tables.READS.get(program, "!"))
    if kinds & _EXACT_ONLY or program in _RUNNERS:
        return 0
    if "!" not in entry:  # the table knows its options and operands
        return 1 if kinds <= {"read", "write"} else 0
    names_action = len(words) > 1 and not words[1].startswith("-")
    if program in _WITH_SUBCOMMANDS:
        return 2 if names_action else 0
    return 2 if names_action else 1
