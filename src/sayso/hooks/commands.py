"""Judge shell commands by what they do, for the policies of coding agents.

Whatever is not known to be good is asked about. A command must be one that ``sayso.hooks.shell``
understands, and each program in it must be in the table of ``sayso.hooks.tables``, with options
and operands that are listed there. Paths are resolved first (``sayso.hooks.paths``). The result is
*findings*: the kinds of a command, each with a sentence that says why. A policy has a verdict for
each kind.

This is no sandbox: a program that a person approves can do anything.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sayso.hooks import tables
from sayso.hooks.paths import Files, Findings, Overrun
from sayso.hooks.shell import SimpleCommand, UnclearCommand, parse

#: Every kind, from least to most serious, with its description.
KINDS: dict[str, str] = {
    "read": "reads files",
    "write": "changes files of the project",
    "other": "runs a program, or uses an option, that the policy does not know",
    "outside": "changes files outside the project",
    "network": "uses the network",
    "install": "installs packages",
    "later": "changes a file that other tools run later",
    "delete": "deletes or overwrites more than one file",
    "publish": "publishes, pushes or deploys",
    "secret": "touches credentials",
    "settings": "changes the settings or hooks of an agent",
    "unclear": "cannot be understood before it runs",
    "privileged": "runs with other rights",
    "download": "runs code from the network",
    "interactive": "waits for input that nobody can approve",
}

_MAX_FOLDERS = 6
_MAX_VALUE = 1000
_MAX_LETTERS = 40


class Unlisted(Exception):
    """A program, an option or an operand is not in the table. The message is a sentence."""


def command_kinds(command: str, cwd: str) -> set[str]:
    """Return the kinds of a shell command; {"unclear"} if it is not understood."""
    return {kind for _, findings in judge(command, Files(cwd), cwd) for kind in findings}


def judge(command: str, files: Files, cwd: str) -> list[tuple[str, Findings]]:
    """Return the parts of a shell command, each with its findings."""
    try:
        simple_commands = parse(command)
    except UnclearCommand as error:
        return [(command, {"unclear": str(error)})]
    state = _Judge(files, cwd)
    try:
        parts = [(str(simple), state.simple(simple)) for simple in simple_commands]
    except Overrun as error:
        return [(command, {"unclear": str(error)})]
    if "<<" not in command:  # a here-document is input
        for simple, (_, findings) in zip(simple_commands, parts, strict=True):
            if _waits(simple):
                findings["interactive"] = f"{simple} runs what is typed into it later."
    return parts


def _waits(simple: SimpleCommand) -> bool:
    """Return whether a command starts an interpreter that reads its commands from its user."""
    name, *words = [word.text for word in simple.words]
    options = all(word in ("-i", "-l", "-q", "--login", "--interactive") for word in words)
    interpreter = posixpath.basename(name) in tables.PROMPTING
    return interpreter and options and not simple.piped and not simple.reads


# -- the table


class _Option(NamedTuple):
    #: The kind of its value, or "" if it takes none; "?" if a value may follow in the same word.
    value: str
    marks: str


class _Entry(NamedTuple):
    options: dict[str, _Option]
    operands: tuple[str, ...]
    #: Whether words that begin with a dash are operands.
    plain: bool
    #: Whether each option, and each value, is a separate word.
    single: bool


class _Arguments(NamedTuple):
    """The words after a program: its options, and each value and operand with its kind."""

    #: Each with its value. The values of an option that is given several times are lines.
    options: dict[str, str]
    values: list[tuple[str, str]]


@lru_cache(maxsize=256)
def _entry(text: str) -> _Entry:
    listed, _, operands = text.partition(":")
    options: dict[str, _Option] = {}
    for token in listed.split():
        match = re.fullmatch(r"(--?[\w.#-]*)(=\w+|\?)?([\^>!]*)", token)
        if match is None:
            continue  # the star, or "="
        name, value, marks = match.groups(default="")
        if name.startswith("--") or value or marks or len(name) == 2:
            options[name] = _Option(value.removeprefix("="), marks)
        else:
            options |= {f"-{letter}": _Option("", "") for letter in name[1:]}
    first = listed.split()[:1]
    return _Entry(options, tuple(operands.split()), first == ["*"], first == ["="])


def _arguments(program: str, text: str, words: Sequence[str]) -> _Arguments:
    """Split words by an entry of the table; raise ``Unlisted`` if one of them does not fit."""
    entry = _entry(text)
    options: dict[str, str] = {}
    values: list[tuple[str, str]] = []
    operands: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if entry.plain or not word.startswith("-") or word == "-":
            operands.append(word)
        elif word == "--":
            operands += rest
            break
        elif re.fullmatch(r"-\d+", word) and "-#" in entry.options:
            options["-#"] = word
        else:
            _read_option(program, entry, word, rest, options, values)
    marks = "".join(entry.options[name].marks for name in options)
    needed = [name for name, option in entry.options.items() if "!" in option.marks]
    if needed and "!" not in marks:
        raise Unlisted(f"{program} is only known to be harmless with {needed[-1]}.")
    kinds = list(entry.operands[1:] if "^" in marks else entry.operands)
    if "write" in dict(values):
        kinds = kinds[:1]
    values += _operand_values(program, kinds, operands)
    if ">" in marks:
        values = [("write" if kind == "read" else kind, value) for kind, value in values]
    return _Arguments(options, values)


def _read_option(
    program: str,
    entry: _Entry,
    word: str,
    rest: list[str],
    options: dict[str, str],
    values: list[tuple[str, str]],
) -> None:
    """Add the options in a word, and their values, which may be the next word."""
    for _ in range(_MAX_LETTERS):
        if word in ("", "-"):
            return
        name, equals, value = word.partition("=")
        if not word.startswith("--"):
            name = word[:2]
            equals = value = word[2:]
        option = entry.options.get(name)
        joined = entry.single and len(word) > 2 and not word.startswith("--")
        if option is None or name == "-#" or joined:
            raise Unlisted(f"The option {word} of {program} is not known to be harmless.")
        if option.value not in ("", "?") and not equals and rest:
            value = _next_value(program, name, option, rest)
        options[name] = f"{options[name]}\n{value}" if name in options else value
        if option.value == "?":
            return
        if option.value:
            values.append((option.value.rstrip("2"), value))
            if option.value.endswith("2") and rest:
                rest.pop(0)
            return
        if equals and (word.startswith("--") or ">" in option.marks):
            raise Unlisted(f"The option {name} of {program} is not known with a value.")
        word = "" if word.startswith("--") else f"-{value}"
    raise Unlisted(f"{program} has too many options in one word.")


def _next_value(program: str, name: str, option: _Option, rest: list[str]) -> str:
    """Take the value of an option from the next word.

    Not every program reads a word with a dash as the value, whatever its manual says: for ``git log
    --format --output=x``, the second one is an option.
    """
    value = rest.pop(0)
    if re.match(r"--?[A-Za-z]", value) and "^" not in option.marks:
        raise Unlisted(f"{value} after {name} may be an option to {program}.")
    return value


def _operand_values(
    program: str, kinds: Sequence[str], operands: Sequence[str]
) -> list[tuple[str, str]]:
    """Return each operand with its kind."""
    values: list[tuple[str, str]] = []
    before_last = len(operands) - 1
    for index, operand in enumerate(operands):
        if len(kinds) == 2 and kinds[0].endswith("*"):
            kind = kinds[1] if index == before_last else kinds[0]
        elif index < len(kinds):
            kind = kinds[index]
        elif kinds and kinds[-1].endswith(("*", "+")):
            kind = kinds[-1]
        else:
            raise Unlisted(f"{program} is not known with the operand {operand!r}.")
        values.append((kind.rstrip("*+?"), operand))
    if not operands and kinds and kinds[0].endswith("+"):
        raise Unlisted(f"{program} shows everything without an operand.")
    return values


# -- one command after the other

_INTEGER = re.compile(r"-?\d{1,18}")
_TESTS = frozenset({"-f", "-d", "-e", "-r", "-w", "-x", "-s", "-L", "-h", "-n", "-z"})
_COMPARISONS = frozenset({"=", "==", "!=", "-nt", "-ot", "-ef"})
_NUMBER_COMPARISONS = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
_RECURSIVE = frozenset({"-r", "-R", "--recursive", "--dereference-recursive"})
#: Programs that pass on whole lines of their input, with these options.
_FILTERS = {
    "head": {"-#", "-n", "--lines"},
    "tail": {"-#", "-n", "--lines"},
    "sort": {"-u", "-r"},
    "uniq": set[str](),
    "grep": {"-v", "-i", "-E", "-F", "-w"},
}


#: Subcommands of git that print names and nothing else, with these options.
_GIT_LISTS = {
    "ls-files": {"-c", "-m", "-o", "--cached", "--modified", "--others", "--exclude-standard"},
    "diff": {"--name-only", "--cached", "--staged", "--diff-filter"},
    "grep": {"-l", "-i", "-w", "-E", "-F", "-e"},
}


#: A file of a commit.
_ONE_FILE = re.compile(r"[\w.~^/-]+:[\w./-]+")


class _Judge:
    """Judges the simple commands of one command, in their order."""

    def __init__(self, files: Files, cwd: str) -> None:
        self._files = files
        #: Every folder that the command may run in by now: ``cd`` may fail.
        self._folders = [cwd]
        #: Whether an earlier part changed files, so that what we see is not what it will find.
        self._written = False
        #: Whether an earlier part moved a folder or a link, so that paths lead elsewhere.
        self._moved = False
        #: The folders below which the command before lists files, or None if it prints other text.
        self._listed: list[str] | None = None
        self._downloads = False

    def simple(self, simple: SimpleCommand) -> Findings:
        """Return the findings of the next command."""
        if len(self._folders) > _MAX_FOLDERS:
            raise Overrun("The command changes its directory too often to be analysed.")
        listed = self._listed if simple.piped else None
        self._downloads = self._downloads and simple.piped
        findings: Findings = {}
        roots: list[list[str] | None] = []
        for cwd in tuple(self._folders):
            self._listed = None
            try:
                _add(findings, self._in_folder(simple, cwd, listed))
            except UnclearCommand as error:
                _add(findings, {"unclear": str(error)})
            roots.append(self._listed)
        self._listed = None if None in roots else [root for some in roots for root in some or ()]
        if self._moved:
            _add(findings, {"unclear": "An earlier part of the command moves a folder or a link."})
        self._moved = self._moved or findings.pop("moved", None) is not None
        self._written = self._written or "write" in findings
        self._downloads = self._downloads or "network" in findings
        return findings

    def _in_folder(self, simple: SimpleCommand, cwd: str, listed: list[str] | None) -> Findings:
        findings: Findings = {}
        for path in simple.reads:
            _add(findings, self._files.path(path, cwd, writing=False))
        for path in simple.writes:
            _add(findings, self._files.path(path, cwd, writing=True))
        name = simple.words[0].text
        words: list[str] = []
        for word in simple.words:
            if word.form == "glob":
                words += self._matches(word.text, cwd)
            else:
                words.append(word.text)
        if any(word.form == "variable" for word in simple.words) and name != "echo":
            raise UnclearCommand(
                "The command contains a variable, whose value is only known when it runs."
            )
        if simple.words[0].form not in ("bare", "quoted"):
            raise UnclearCommand("The program is only known when the shell runs the command.")
        if "rm" in words and any(word.form == "glob" for word in simple.words):
            findings["delete"] = "It deletes every file that a pattern matches."
        _add(findings, self._program(words, cwd, listed))
        return findings

    def _matches(self, pattern: str, cwd: str) -> list[str]:
        if self._written:
            raise UnclearCommand(
                "The command changes files before it uses a pattern of file names."
            )
        return self._files.expand(pattern, cwd)

    def _program(self, words: Sequence[str], cwd: str, listed: list[str] | None) -> Findings:
        """Return the findings of a program with its arguments."""
        name = words[0]
        base = posixpath.basename(name)
        findings: Findings = {}
        if self._downloads and base in tables.INTERPRETERS:
            findings["download"] = f"{name} runs what the command before it gets from the network."
        try:
            if name != base:
                raise Unlisted(
                    f"{name} is named by its path, so it may be a program of the project."
                )
            _add(findings, self._listed_program(words, cwd, listed))
        except Unlisted as error:
            first = next((word for word in words[1:] if not word.startswith("-")), "")
            kind = tables.ASKED.get(f"{base} {first}", tables.ASKED.get(base, "other"))
            _add(findings, {kind: str(error)})
        return findings

    def _listed_program(self, words: Sequence[str], cwd: str, listed: list[str] | None) -> Findings:
        name, *rest = words
        if name not in tables.BUILTINS and (why := self._files.program(name)):
            raise Unlisted(why)
        if file := self._files.upwards(cwd, self._obeyed(name)):
            raise Unlisted(f"{name} runs what {file} says.")
        if name == "cd":
            return self._cd(rest, cwd)
        if name in ("test", "["):
            return self._test(name, rest)
        if name == "find":
            return self._find(rest, cwd)
        if name == "git":
            return self._git(rest, cwd)
        if name in tables.WRAPPERS and not (name == "command" and rest[:1] in (["-v"], ["-V"])):
            return self._wrapper(name, list(rest), cwd, listed)
        arguments, changes = _table_arguments(words)
        findings = self._values(name, arguments, cwd)
        if name in ("grep", "egrep", "fgrep") and _RECURSIVE & arguments.options.keys():
            _add(findings, self._recursive_grep(arguments, cwd))
        if name == "rg":
            _add(findings, self._ripgrep(arguments, cwd, listed))
        self._listed = self._names(name, arguments, listed)
        _add(findings, {"write" if changes else "read": ""})
        return findings

    def _obeyed(self, name: str) -> str:
        """Return the names of files that make a program run something else than itself."""
        folder = posixpath.dirname(self._files.find_program(name))
        shims = tables.OBEYED["shims"] if posixpath.basename(folder) == "shims" else ""
        return f"{tables.OBEYED.get(name, '')} {shims}"

    # -- values and paths

    def _values(self, program: str, arguments: _Arguments, cwd: str) -> Findings:
        """Return the findings of the values and operands of a program."""
        findings: Findings = {}
        for kind, text in arguments.values:
            pattern = tables.VALUES.get(kind)
            fits = pattern is None or kind == "text" or len(text) <= _MAX_VALUE
            if not fits or (pattern is not None and not re.fullmatch(pattern, text)):
                raise Unlisted(f"{program} is not known with {text[:80]!r}.")
            if kind == "revision":
                for path in {text, text.rpartition(":")[2]}:
                    _add(findings, self._files.path(path, cwd, writing=False))
            elif pattern is None and text != "-":
                _add(findings, self._path(program, kind, text, cwd))
        targets = [text for kind, text in arguments.values if kind == "write"]
        sources = [text for kind, text in arguments.values if kind in ("source", "moved")]
        for target in targets:
            for source in sources:
                path = posixpath.join(target, posixpath.basename(source.rstrip("/")))
                _add(findings, self._files.path(path, cwd, writing=True))
        return findings

    def _path(self, program: str, kind: str, text: str, cwd: str) -> Findings:
        writing = kind in ("write", "moved")
        findings = self._files.path(text, cwd, writing=writing)
        path = posixpath.join(cwd, text)
        if kind in ("source", "moved") and not self._files.is_plain(path):
            _add(findings, self._tree(path, writing=True))
            if program in ("mv", "git mv") or os.path.islink(path):
                findings["moved"] = ""
        elif kind == "tree":
            _add(findings, self._tree(path))
        return findings

    def _tree(self, path: str, **options: Any) -> Findings:
        if self._written and os.path.isdir(path):
            return {"unclear": "The command changes files before it reads a whole folder."}
        return self._files.tree(path, **options)

    def _recursive_grep(self, arguments: _Arguments, cwd: str) -> Findings:
        findings: Findings = {}
        names = arguments.options.get("--include", "*")
        if "/" in names or "--exclude" in arguments.options:  # which of them counts is complicated
            names = "*"
        follow = bool({"-R", "--dereference-recursive"} & arguments.options.keys())
        roots = [text for kind, text in arguments.values if kind == "read"]
        for root in roots or ["."]:
            _add(findings, self._tree(posixpath.join(cwd, root), names=names, follow=follow))
        return findings

    def _ripgrep(self, arguments: _Arguments, cwd: str, listed: list[str] | None) -> Findings:
        """``rg`` skips hidden files, unless an option or an ignore file says otherwise."""
        options = arguments.options
        if "--files" in options or (listed is not None and "tree" not in dict(arguments.values)):
            return {}
        globs = "\n".join(options.get(name, "!") for name in ("-g", "--glob", "--iglob"))
        wanted_globs = [glob for glob in globs.split("\n") if not glob.startswith("!")]
        names = "\n".join(posixpath.basename(glob) for glob in wanted_globs) or "*"
        if re.search(r"[\[{]", names):
            names = "*"
        hidden = wanted_globs or {"-u", "-.", "--hidden", "--unrestricted"} & options.keys()
        findings: Findings = {}
        roots = [text for kind, text in arguments.values if kind == "tree"]
        for root in roots or ["."]:
            path = posixpath.join(cwd, root)
            shows = bool(hidden) or self._files.shows_hidden(path)
            _add(findings, self._tree(path, hidden=shows, names=names))
        return findings

    def _names(
        self, name: str, arguments: _Arguments, listed: list[str] | None
    ) -> list[str] | None:
        """Return the folders whose file names a program prints, and nothing else; None if other."""
        options = arguments.options.keys()
        roots = [text for kind, text in arguments.values if kind in ("read", "tree")]
        if name in ("rg", "grep") and options & {"-l", "--files", "--files-with-matches"}:
            return roots or ["."]
        if name in _FILTERS and listed is not None and not roots:
            return listed if options <= _FILTERS[name] else None
        return None

    # -- programs with rules of their own

    def _cd(self, words: Sequence[str], cwd: str) -> Findings:
        operands = list(words)
        while operands and operands[0] in ("-P", "-L"):
            operands.pop(0)
        if operands[:1] == ["--"]:
            operands.pop(0)
        if len(operands) != 1 or not operands[0] or operands[0].startswith(("-", "+", "~")):
            return {"unclear": "The directory that cd changes to is only known when it runs."}
        if os.environ.get("CDPATH") and not operands[0].startswith(("/", "./", "../")):
            return {"unclear": "CDPATH is set, so cd may change to another directory."}
        path = posixpath.join(cwd, operands[0])
        folder = self._files.real(path)
        if folder != self._files.real(posixpath.normpath(path)):
            return {"unclear": f"{operands[0]} leads through a symbolic link to another directory."}
        if not self._files.contains(folder):
            return {"unclear": f"cd leaves the project for {folder}, where relative paths differ."}
        if folder not in self._folders:
            self._folders.append(folder)
        return {"read": ""}

    def _test(self, name: str, words: Sequence[str]) -> Findings:
        rest = list(words)
        if name == "[":
            if rest[-1:] != ["]"]:
                raise Unlisted("The test does not end with a bracket.")
            rest.pop()
        if len(rest) > 1 and rest[0] == "!":
            rest.pop(0)
        match rest:
            case [word] if not word.startswith("-"):
                return {"read": ""}
            case [operator, _] if operator in _TESTS:
                return {"read": ""}
            case [_, operator, _] if operator in _COMPARISONS:
                return {"read": ""}
            case [left, operator, right] if operator in _NUMBER_COMPARISONS:
                if _INTEGER.fullmatch(left) and _INTEGER.fullmatch(right):
                    return {"read": ""}
        raise Unlisted(
            f"The test {' '.join(words)!r} is not one that only looks at files and text."
        )

    def _find(self, words: Sequence[str], cwd: str) -> Findings:
        rest = list(words)
        roots: list[str] = []
        while rest and rest[0] in ("-P", "-H"):
            rest.pop(0)
        while rest and not rest[0].startswith(("-", "(", "!")):
            roots.append(rest.pop(0))
        findings: Findings = {"read": ""}
        prints_names = True
        while rest:
            word = rest.pop(0)
            if word == "-exec":
                end = next(
                    (index for index, part in enumerate(rest) if part in (";", "+")), len(rest)
                )
                _add(findings, self._fed(rest[:end], roots or ["."], cwd, placeholder=True))
                del rest[: end + 1]
                prints_names = False
            elif word in ("(", ")", "!", ","):
                continue
            elif word in tables.FIND:
                del rest[: tables.FIND[word]]
                prints_names = prints_names and word not in ("-printf", "-ls")
            else:
                raise Unlisted(f"{word} of find is not known to be harmless.")
        self._listed = (roots or ["."]) if prints_names else None
        return findings

    def _fed(
        self, inner: Sequence[str], roots: Sequence[str], cwd: str, *, placeholder: bool
    ) -> Findings:
        """Return the findings of a program that gets the files below some folders as arguments."""
        if not inner or inner[0] not in tables.INERT:
            raise Unlisted(
                f"{' '.join(inner[:1]) or 'echo'} may not get names of files as arguments."
            )
        if placeholder and any("{}" in word and word != "{}" for word in inner):
            raise Unlisted("{} is only understood as a word.")
        findings: Findings = {}
        for root in roots:
            if placeholder:
                words = [root if word == "{}" else word for word in inner]
            else:
                words = [*inner, root]
            _add(findings, self._program(words, cwd, None))
            _add(findings, self._tree(posixpath.join(cwd, root)))
        return findings

    def _wrapper(self, name: str, words: list[str], cwd: str, listed: list[str] | None) -> Findings:
        """Return the findings of the program that another one runs."""
        entry = _entry(tables.WRAPPERS[name])
        options: dict[str, str] = {}
        values: list[tuple[str, str]] = []
        while words and words[0].startswith("-"):
            word = words.pop(0)
            if word == "--":
                break
            _read_option(name, entry, word, words, options, values)
        values += [(kind, words.pop(0)) for kind in entry.operands if words]
        findings = self._values(name, _Arguments(options, values), cwd)
        if name == "xargs":
            _add(findings, self._xargs(words, "-I" in options, cwd, listed))
            return findings
        while name == "env" and words and "=" in words[0]:
            variable, _, value = words.pop(0).partition("=")
            if variable not in tables.ENVIRONMENT or "/" in value:
                raise Unlisted(f"env sets {variable}, which can change what programs do.")
        if not words:
            return {"secret": f"{name} alone may show every variable, and so credentials."}
        if name == "nohup":
            _add(findings, self._files.path("nohup.out", cwd, writing=True))
        _add(findings, self._program(words, cwd, listed))
        return findings

    def _xargs(
        self, words: Sequence[str], placeholder: bool, cwd: str, listed: list[str] | None
    ) -> Findings:
        if listed is None:
            raise Unlisted("xargs passes on text that is only known when it runs.")
        findings = self._fed(words, listed, cwd, placeholder=placeholder)
        for root in listed:
            _add(findings, self._tree(posixpath.join(cwd, root), plain_names=True))
        return findings

    def _git(self, words: Sequence[str], cwd: str) -> Findings:
        rest = list(words)
        findings: Findings = {}
        while rest and rest[0] in ("-C", "--no-pager"):
            if rest.pop(0) == "-C" and rest:
                cwd = self._files.real(posixpath.join(cwd, rest.pop(0)))
                if not self._files.contains(cwd):
                    findings["unclear"] = f"git works in {cwd}, which is not in the project."
        arguments, changes = _table_arguments(["git", *rest])
        command = rest[0] if rest else ""
        options = arguments.options.keys()
        summary = command == "log" or options & tables.NAMES_ONLY
        prints = command in tables.GIT_PRINTS and not (summary and not options & tables.PATCHES)
        names = [text for kind, text in arguments.values if kind == "revision"]
        if command == "show" and names and all(map(_ONE_FILE.fullmatch, names)):
            prints = False  # only these files, whose paths are judged
        _add(findings, self._values(f"git {command}", arguments, cwd))
        _add(findings, self._files.repository(cwd, changes=changes, prints=prints))
        lists = command in _GIT_LISTS and options <= _GIT_LISTS[command]
        if lists and (command == "ls-files" or options & {"--name-only", "-l"}):
            self._listed = ["."]
        if changes and command == "stash":
            findings["moved"] = ""
            if not {"unclear", "other"} & findings.keys():
                _add(findings, self._files.stashed(cwd, back=rest[1:2] in (["pop"], ["apply"])))
        _add(findings, {"write" if changes else "read": ""})
        return findings


def _table_arguments(words: Sequence[str]) -> tuple[_Arguments, bool]:
    """Return the arguments of a program as the table splits them, and whether it changes files."""
    errors: list[Unlisted] = []
    for length in (3, 2, 1):
        program = " ".join(words[:length])
        for table in (tables.READS, tables.WRITES):
            if length <= len(words) and program in table:
                try:
                    arguments = _arguments(program, table[program], words[length:])
                except Unlisted as error:
                    errors.append(error)
                else:
                    return arguments, table is tables.WRITES
        if errors:
            raise errors[0]
    raise Unlisted(
        f"{' '.join(words[:2])} is not known to only read, or to only change the project."
    )


def _add(findings: Findings, more: Findings) -> None:
    for kind, sentence in more.items():
        findings[kind] = findings.get(kind) or sentence
