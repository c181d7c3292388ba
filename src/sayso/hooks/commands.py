"""Classify shell commands by what they do, for the policies of coding agents.

A command is parsed, never matched by prefix: ``git status; rm -rf x`` is two commands, ``"r"m`` is
``rm``, ``env A=b sudo x`` runs ``sudo``, and ``bash -c '…'`` runs what is quoted. Each simple
command gets *kinds*; a policy has a verdict for each kind.

The parser is tree-sitter, which recovers from errors. So only forms that are listed here count as
understood. Everything else (a parse error, a form that is not listed, a program or a path that is
only known when the shell runs) is the kind ``unclear``, and a person is asked. A program that is
not listed is ``other``. This is no sandbox: a build script that a command runs can do anything.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

#: Every kind, from least to most serious, with its description.
KINDS: dict[str, str] = {
    "read": "reads files",
    "write": "changes files of the project",
    "other": "runs a program that the policy does not know",
    "outside": "changes files outside the project",
    "network": "uses the network",
    "install": "installs packages",
    "delete": "deletes or overwrites more than one file",
    "publish": "publishes, pushes or deploys",
    "secret": "touches credentials",
    "settings": "changes the settings or hooks of an agent",
    "unclear": "cannot be understood before it runs",
    "privileged": "runs with other rights",
    "download": "runs code from the network",
}

#: A word of a command; None if it is only known when the shell runs.
Word = str | None


class SimpleCommand(NamedTuple):
    """One simple command."""

    words: tuple[Word, ...]
    #: The files that its output goes to; a file that it reads its input from begins with "<".
    writes: tuple[Word, ...] = ()
    #: A network program before it in the same pipe, or "".
    piped_from: str = ""


class UnclearCommand(Exception):
    """The command has a form that is not listed in this module."""


# -- parsing

_GROUPS = frozenset(
    {
        *("program", "list", "subshell", "compound_statement", "do_group", "negated_command"),
        *("for_statement", "while_statement", "if_statement", "elif_clause", "else_clause"),
        *("command_substitution", "process_substitution"),
    }
)
#: Nodes that contain no command. Expressions may contain substitutions, so they are searched.
_LEAVES = frozenset(
    {
        *("comment", "variable_name", "word", "raw_string", "number", "test_operator"),
        *("string_content", "heredoc_start", "heredoc_end", "heredoc_content", "file_descriptor"),
        *("special_variable_name", "ansi_c_string", "extglob_pattern", "regex"),
    }
)
_EXPRESSIONS = frozenset(
    {
        *("string", "concatenation", "simple_expansion", "expansion", "test_command"),
        *("unary_expression", "binary_expression", "parenthesized_expression", "heredoc_body"),
        *("variable_assignment", "variable_assignments", "array", "brace_expression"),
    }
)


@lru_cache(maxsize=1)
def load_parser() -> Parser:
    """Return the parser. Raise ``ImportError`` with what to install."""
    try:
        import tree_sitter_bash
        from tree_sitter import Language, Parser
    except ImportError as error:
        raise ImportError(
            "the policies for coding agents parse shell commands. Install the parser with:\n\n"
            "    pip install 'sayso[hooks]'"
        ) from error
    return Parser(Language(tree_sitter_bash.language()))


#: Replaces each character outside of ASCII while a command is parsed. The grammar's scanner looks
#: characters up in a table of 256, and reads beyond its end for others: ``{`` and a character of a
#: high plane crash the process. To a shell, both are part of a word and of no variable's name.
_PLACEHOLDER = "%"
_OUTSIDE_ASCII = re.compile(r"[^\x00-\x7f]")


@lru_cache(maxsize=512)
def parse(command: str) -> tuple[SimpleCommand, ...]:
    """Return the simple commands of a shell command.

    Raise ``UnclearCommand`` if it is not understood.
    """
    if "\0" in command or len(command) > 20_000:
        raise UnclearCommand("it is too long, or not text")
    parsed = load_parser().parse(_OUTSIDE_ASCII.sub(_PLACEHOLDER, command).encode())
    if parsed.root_node.has_error:
        raise UnclearCommand("it is not a valid shell command")
    return tuple(_SyntaxWalker(command).statements(parsed.root_node))


#: ``[[ … ]]`` evaluates both sides of a comparison of numbers, and the name of a variable.
_ARITHMETIC_TESTS = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-v", "-R"})
_RISKY_VARIABLES = frozenset({"PATH", "IFS", "ENV", "SHELL", "PAGER", "EDITOR", "VISUAL", "HOME"})
_RISKY_VARIABLE_PREFIXES = ("LD_", "GIT_", "BASH_", "DYLD_", "PYTHON", "NODE_")


class _SyntaxWalker:
    """Finds the simple commands in a syntax tree, whose nodes are offsets into ``text``."""

    def __init__(self, text: str) -> None:
        self._text = text

    def statements(self, node: Node, writes: tuple[Word, ...] = ()) -> Iterator[SimpleCommand]:
        kind = node.type
        if node.is_missing:
            raise UnclearCommand("it is incomplete")
        self._refuse_arithmetic(node)
        if kind == "command":
            yield from self._command(node, writes)
        elif kind == "pipeline":
            yield from self._pipeline(node.named_children, writes)
        elif kind == "redirected_statement":
            yield from self._redirected(node, writes)
        elif kind in _GROUPS or kind in _EXPRESSIONS:
            for child in node.named_children:
                yield from self.statements(child, writes if kind in _GROUPS else ())
            if kind == "variable_assignment":
                self._check_assignment(node)
        elif kind not in _LEAVES:
            raise UnclearCommand(f"it has a {kind.replace('_', ' ')}")

    def _refuse_arithmetic(self, node: Node) -> None:
        """Raise where a shell evaluates a string, and so runs a ``$(…)`` in it."""
        marks = {child.type for child in node.children}
        if node.type == "compound_statement" and "((" in marks:
            raise UnclearCommand("it has arithmetic")
        if node.type == "expansion" and marks & {":", "@", "!"}:
            raise UnclearCommand("it has an expansion that evaluates a variable")
        tests = node.type in ("unary_expression", "binary_expression")
        if tests and any(self._source(child) in _ARITHMETIC_TESTS for child in node.children):
            raise UnclearCommand("it has arithmetic in a test")

    def _check_assignment(self, node: Node) -> None:
        """Raise for an assignment that changes what programs do: ``PATH=…``, ``LD_PRELOAD=…``."""
        name = node.child_by_field_name("name")
        text = "" if name is None else self._source(name)
        if text in _RISKY_VARIABLES or text.startswith(_RISKY_VARIABLE_PREFIXES):
            raise UnclearCommand(f"it sets {text}, which changes what programs do")

    def _pipeline(self, parts: Sequence[Node], writes: tuple[Word, ...]) -> Iterator[SimpleCommand]:
        before = ""
        for index, part in enumerate(parts):
            last = index == len(parts) - 1
            found = list(self.statements(part, writes if last else ()))
            for simple in found:
                yield simple._replace(piped_from=before or simple.piped_from)
            names = {program_name(simple.words) for simple in found}
            before = next((name for name in names if name in _NETWORK), before)

    def _redirected(self, node: Node, writes: tuple[Word, ...]) -> Iterator[SimpleCommand]:
        files: list[Word] = list(writes)
        inner: list[Node] = []
        for child in node.named_children:
            if child.type == "file_redirect":
                files += self._redirect(child)
                inner += [part for part in child.named_children if part.type not in _LEAVES]
            elif child.type in ("heredoc_redirect", "herestring_redirect"):
                for part in child.named_children:
                    if part.type == "file_redirect":
                        files += self._redirect(part)
                    elif part.type not in ("heredoc_start", "heredoc_end"):
                        inner.append(part)
            else:
                inner.insert(0, child)
        if not inner:
            yield SimpleCommand((), tuple(files))
        for part in inner:
            yield from self.statements(part, tuple(files))

    def _redirect(self, node: Node) -> list[Word]:
        """Return the file that a redirection writes to, or "<" and the file that it reads."""
        operator = next((child.type for child in node.children if not child.is_named), "")
        target = node.child_by_field_name("destination")
        if operator == "<":
            source = None if target is None else self._value(target)
            return [] if source is None else [f"<{source}"]
        if operator in (">&", "<&") and target is not None and target.type == "number":
            return []
        if operator not in (">", ">>", "&>", "&>>", ">|"):
            raise UnclearCommand(f"it redirects with {operator}")
        value = None if target is None else self._value(target)
        return [] if value in ("/dev/null", "/dev/stdout", "/dev/stderr") else [value]

    def _command(self, node: Node, writes: tuple[Word, ...]) -> Iterator[SimpleCommand]:
        words: list[Word] = []
        files = list(writes)
        for child in node.named_children:
            if child.type == "variable_assignment":
                yield from self.statements(child)
            elif child.type == "command_name":
                words += [self._value(part) for part in child.named_children]
                for part in child.named_children:
                    yield from self.statements(part)
            elif child.type in ("file_redirect", "herestring_redirect"):
                files += self._redirect(child) if child.type == "file_redirect" else []
                for part in child.named_children:
                    if part.type not in _LEAVES:
                        yield from self.statements(part)
            else:
                words.append(self._value(child))
                yield from self.statements(child)
        yield SimpleCommand(tuple(words), tuple(files))

    def _source(self, node: Node) -> str:
        return self._text[node.start_byte : node.end_byte]

    def _value(self, node: Node) -> Word:
        """Return a word as the program gets it; None if only the shell knows."""
        text = self._source(node)
        if node.type in ("word", "number"):
            if re.search(r"(?<!\\)[*?\[{]|^~", text):
                return text if node.type == "word" and "\\" not in text else None
            return re.sub(r"\\(.)", r"\1", text, flags=re.S)
        if node.type == "raw_string":
            return text[1:-1]
        if node.type == "string":
            if all(child.type == "string_content" for child in node.named_children):
                return re.sub(r"\\([\"\\$`\n])", r"\1", text[1:-1])
            return None
        if node.type == "concatenation":
            parts = [self._value(child) for child in node.named_children]
            return None if None in parts else "".join(part or "" for part in parts)
        return None


# -- what programs do


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def program_name(words: Sequence[Word]) -> str:
    """Return the name of the program without its folder; "" if it is not known."""
    first = words[0] if words else ""
    return "" if first is None or re.search(r"[*?\[{~]", first) else posixpath.basename(first)


_READS = _names(
    "ls cat head tail wc pwd echo printf which type file stat du df tree whoami id uname uniq cut "
    "tr diff cmp md5sum sha1sum sha256sum basename dirname realpath readlink test true false [ "
    "grep egrep fgrep rg jq sort find sleep nl tac column comm seq date cd ps hostname"
)
#: Options that make a reading program write or run something.
_UNSAFE_READ_OPTIONS = {
    "sort": ("-o", "--output", "--compress-program"),
    "rg": ("--pre", "--hostname-bin"),
    "tree": ("-o",),
    "find": ("-delete", "-exec", "-execdir", "-ok", "-okdir", "-fprint", "-fls", "-fprintf"),
    "date": ("-s", "--set"),
    "file": ("-C", "--compile"),
    "hostname": ("-F", "-b"),
}
_WRITES = _names("touch mkdir cp mv ln tee rmdir install patch")
_NETWORK = _names(
    "curl wget ssh scp sftp rsync nc ncat netcat telnet ftp dig nslookup ping http https"
)
_PRIVILEGED = _names(
    "sudo su doas pkexec chown chroot mount umount systemctl service useradd usermod passwd visudo "
    "setcap crontab at launchctl iptables sysctl insmod modprobe"
)
_DELETES = _names("shred dd mkfs truncate wipefs")
_PUBLISHES = _names(
    "terraform tofu kubectl helm aws gcloud az gh glab docker podman ansible-playbook pulumi "
    "serverless vercel netlify flyctl heroku twine"
)
_INTERPRETERS = _names(
    "sh bash zsh dash ksh fish python python3 node deno bun ruby perl php eval source ."
)
#: Programs that install packages, and the words that make them do so.
_INSTALLERS = {
    **dict.fromkeys(("pip", "pip3", "pipx", "gem", "brew", "conda", "mamba"), ("install",)),
    **dict.fromkeys(("apt", "apt-get", "dnf", "yum", "apk", "pacman", "zypper"), ("",)),
    **dict.fromkeys(("npm", "pnpm", "bun"), ("install", "i", "add", "ci", "update", "exec")),
    "yarn": ("add", "install", "up", "upgrade", "dlx"),
    **dict.fromkeys(("npx", "uvx", "bunx"), ("",)),
    "uv": ("add", "sync", "pip", "tool", "lock"),
    "poetry": ("add", "install", "update"),
    "cargo": ("install", "add"),
    "go": ("get", "install"),
}
_PUBLISHERS = _names("npm pnpm yarn cargo poetry uv")
_GIT_READS = _names(
    "status diff log show rev-parse ls-files ls-tree blame describe shortlog grep cat-file "
    "merge-base reflog name-rev whatchanged"
)
_GIT_WRITES = _names("add commit mv init stash tag branch switch checkout merge rebase reset")
_GIT_NETWORK = _names("fetch pull clone ls-remote submodule remote")
_UNSAFE_GIT_OPTIONS = (
    *("--output", "-O", "--open-files-in-pager", "--ext-diff", "--textconv", "--exec"),
)

#: Programs that run the rest of their words as a command, with the options that take a value.
_WRAPPERS = {
    "command": (),
    "nohup": (),
    "time": (),
    "nice": ("-n",),
    "timeout": ("-k", "-s"),
    "env": ("-u",),
    "xargs": ("-n", "-I", "-P", "-L", "-d", "-s"),
    "stdbuf": ("-i", "-o", "-e"),
    "setsid": (),
    "exec": (),
}

_SECRETS = re.compile(
    r"(?:^|/)(?:\.env(?:\.(?!example|sample|template)[\w.-]+)?|\.netrc|\.pgpass|\.npmrc|\.pypirc|"
    r"id_(?:rsa|dsa|ecdsa|ed25519)|credentials|\.git-credentials|\.htpasswd|hook\.json|"
    r"[\w.-]+\.(?:pem|key|p12|pfx|keystore|kdbx))$|(?:^|/)\.(?:ssh|aws|gnupg|kube|docker)(?:/|$)|"
    r"(?:^|/)\.config/(?:sayso|gcloud|gh)(?:/|$)|^/etc/(?:shadow|sudoers)|^/proc/\d*/?\w*/?environ"
)
_SETTINGS = re.compile(
    r"(?:^|/)\.(?:claude|codex|copilot|gemini)(?:/|$)|(?:^|/)\.claude\.json$|"
    r"(?:^|/)\.github/(?:hooks|workflows)(?:/|$)|(?:^|/)\.git/(?:hooks|config)|(?:^|/)\.mcp\.json$|"
    r"(?:^|/)\.(?:bashrc|bash_profile|zshrc|profile|zprofile|gitconfig)$|(?:^|/)\.config/sayso/"
)
#: Folders that do not count as a project, even if an agent works in one of them.
_NO_PROJECT = re.compile(
    r"^/?$|^/(?:etc|usr|bin|sbin|lib|boot|dev|proc|sys|root|var|opt)(?:/|$)|"
    r"^/(?:home|Users)/[^/]+/?$|^/[^/]+/?$"
)


def path_kinds(path: Word, cwd: str, *, writing: bool) -> set[str]:
    """Return the kinds of reading or writing a path."""
    if path is None:
        return {"unclear"} if writing else {"read"}
    absolute = posixpath.normpath(posixpath.join(cwd or "/", path))
    kinds: set[str] = set()
    for text in (path, absolute):
        if _SECRETS.search(text):
            kinds.add("secret")
        if writing and _SETTINGS.search(text):
            kinds.add("settings")
    if not writing:
        return kinds | {"read"}
    root = posixpath.normpath(cwd) if cwd else "/"
    inside = not path.startswith("~") and not _NO_PROJECT.match(root)
    inside = inside and (absolute == root or absolute.startswith(f"{root}/"))
    return kinds | {"write" if inside else "outside"}


def command_kinds(command: str, cwd: str) -> set[str]:
    """Return the kinds of a shell command; {"unclear"} if it is not understood."""
    try:
        kinds = set[str]()
        for simple in parse(command):
            kinds |= simple_kinds(simple, cwd)
        return kinds or {"unclear"}
    except (UnclearCommand, RecursionError):
        return {"unclear"}


def simple_kinds(simple: SimpleCommand, cwd: str) -> set[str]:
    kinds = set[str]()
    for path in simple.writes:
        reads = path is not None and path.startswith("<")
        kinds |= path_kinds(path[1:] if reads and path else path, cwd, writing=not reads)
    if not simple.words:
        return kinds
    words = _without_wrappers(simple.words)
    name = program_name(words)
    if not name:
        return kinds | {"unclear"}
    if simple.piped_from and name in _INTERPRETERS:
        kinds.add("download")
    return kinds | _program_kinds(name, words[1:], cwd)


def _without_wrappers(words: Sequence[Word]) -> Sequence[Word]:
    """Return the command that wrappers such as ``env`` and ``timeout`` run."""
    for _ in range(10):
        name = program_name(words)
        if name not in _WRAPPERS:
            return words
        rest = _after_options(name, list(words[1:]))
        if name == "timeout" and rest:
            rest.pop(0)
        if not rest:
            return ("true",)
        words = [*rest, None] if name == "xargs" else rest
    return (None,)


def _after_options(name: str, rest: list[Word]) -> list[Word]:
    """Return the words after a wrapper's own options; [None] if one of them is not known."""
    while rest and rest[0] is not None:
        first = rest[0]
        if name == "env" and "=" in first and not first.startswith("-"):
            if first.partition("=")[0] in _RISKY_VARIABLES or first.startswith(("LD_", "GIT_")):
                return [None]
            rest.pop(0)
        elif not first.startswith("-"):
            break
        elif name == "env" and first not in ("-i", "-u", "--"):
            return [None]
        else:
            del rest[: 2 if first in _WRAPPERS[name] else 1]
    return rest


def _program_kinds(name: str, args: Sequence[Word], cwd: str) -> set[str]:
    known = [arg for arg in args if arg is not None]
    if name in _ARGUMENT_CHECKS:
        return _ARGUMENT_CHECKS[name](args, cwd)
    if name in _INTERPRETERS:
        return _interpreter_kinds(name, args, cwd)
    if name in _INSTALLERS and any(
        _first_word(known) == word or not word for word in _INSTALLERS[name]
    ):
        return {"install", "network"}
    if name in _PUBLISHERS and _first_word(known) == "publish":
        return {"publish", "network"}
    if name in _DELETES:
        return {"delete"} | _written_paths(args, cwd)
    if name in _WRITES:
        return _written_paths(args, cwd)
    if name in _READS:
        return _read_kinds(name, args, cwd)
    plain = next((kinds for names, kinds in _FIXED_KINDS if name in names), {"other"})
    return plain | _secret_args(known, cwd)


def _variable_kinds(args: Sequence[Word], cwd: str) -> set[str]:
    """Classify ``printf`` and ``test``. With ``-v`` they evaluate a variable's name.

    See ``_refuse_arithmetic``.
    """
    if args and (args[0] is None or args[0].startswith("-v") or args[0] == "-R"):
        return {"unclear"}
    return _read_kinds("printf", args, cwd)


def _chmod_kinds(args: Sequence[Word], cwd: str) -> set[str]:
    known = [arg for arg in args if arg is not None]
    special = any(re.search(r"\+\w*s|^[2467]\d{3}$", arg) for arg in known)
    return {"privileged"} if special else _written_paths(args[1:], cwd)


def _first_word(words: Sequence[str]) -> str:
    return next((word for word in words if not word.startswith("-")), "")


def _written_paths(args: Iterable[Word], cwd: str) -> set[str]:
    """Return the kinds of a program that writes to all paths among its arguments."""
    kinds = set[str]()
    for arg in args:
        if arg is None or not arg.startswith("-"):
            kinds |= path_kinds(arg, cwd, writing=True)
        elif "=" in arg:  # --target-directory=…
            kinds |= path_kinds(arg.partition("=")[2], cwd, writing=True)
    return kinds or {"write"}


def _secret_args(args: Iterable[str], cwd: str) -> set[str]:
    return {"secret"} if any("secret" in path_kinds(a, cwd, writing=False) for a in args) else set()


def _read_kinds(name: str, args: Sequence[Word], cwd: str) -> set[str]:
    known = [arg for arg in args if arg is not None]
    options = _UNSAFE_READ_OPTIONS.get(name, ())
    if any(arg.startswith(option) for arg in known for option in options):
        if name == "find" and "-delete" in known:
            return {"delete"}
        return {"other"}
    if name == "uniq" and len([arg for arg in known if not arg.startswith("-")]) > 1:
        return _written_paths(known[-1:], cwd)  # its second file is written
    if name == "cd":  # outside of the project, later relative paths are no longer clear
        inside = path_kinds(args[0] if args else "~", cwd, writing=True) == {"write"}
        return {"read"} if inside else {"unclear"}
    if name == "find" and None in args:
        return {"unclear"}
    return {"read"} | _secret_args(known, cwd)


def _interpreter_kinds(name: str, args: Sequence[Word], cwd: str) -> set[str]:
    """Return the kinds of the code that an interpreter runs, if it is a shell's ``-c`` text."""
    if name in ("sh", "bash", "zsh", "dash") and len(args) >= 2 and args[0] in ("-c", "-lc"):
        return {"unclear"} if args[1] is None else command_kinds(args[1], cwd)
    if name == "eval" and None not in args:
        return command_kinds(" ".join(arg or "" for arg in args), cwd)
    if tuple(args) in (("--version",), ("-V",)):
        return {"read"}
    return {"unclear"} if not args or None in args or name in ("source", ".") else {"other"}


def _rm_kinds(args: Sequence[Word], cwd: str) -> set[str]:
    known = [arg for arg in args if arg is not None]
    many = any(
        (arg.startswith("-") and not arg.startswith("--") and re.search("[rR]", arg))
        or arg == "--recursive"
        or (not arg.startswith("-") and re.search(r"[*?\[{]", arg))
        for arg in known
    )
    return ({"delete"} if many else set()) | _written_paths(args, cwd)


def _sed_kinds(args: Sequence[Word], cwd: str) -> set[str]:
    """Only ``sed -n '1,20p'`` is plain reading: other scripts can write files and run programs."""
    known = [arg for arg in args if arg is not None]
    prints = len(args) >= 2 and args[0] == "-n" and re.fullmatch(r"\d+(,(\d+|\$))?p", args[1] or "")
    if prints and not any(arg.startswith("-") for arg in known[2:]):
        return {"read"} | _secret_args(known[2:], cwd)
    return {"other"}


def _git_kinds(args: Sequence[Word], cwd: str) -> set[str]:
    rest = list(args)
    while len(rest) >= 2 and rest[0] == "-C":
        if path_kinds(rest[1], cwd, writing=True) != {"write"}:
            return {"unclear"}
        del rest[:2]
    if not rest or rest[0] is None or rest[0].startswith("-"):
        return {"read"} if rest in (["--version"], []) else {"unclear"}  # -c can name a program
    sub, options = rest[0], [arg for arg in rest[1:] if arg is not None]
    if any(option.startswith(_UNSAFE_GIT_OPTIONS) for option in options):
        return {"other"}
    if sub in _GIT_READS or (sub == "remote" and options in ([], ["-v"])):
        return {"read"} | _secret_args(options, cwd)
    if _git_deletes(sub, options):
        return {"write", "delete"}
    return _GIT_KINDS.get(sub, {"other"})


def _git_deletes(sub: str, options: Sequence[str]) -> bool:
    """Return whether a git command throws work away."""
    if sub in ("branch", "tag"):
        return any(option in ("-D", "-d", "--delete") for option in options)
    if sub == "reset":
        return "--hard" in options
    if sub == "checkout":
        return "--" in options or "." in options or "-f" in options
    if sub == "stash":
        return _first_word(options) in ("drop", "clear")
    return sub in ("clean", "filter-branch", "gc", "restore")


_GIT_KINDS: dict[str, set[str]] = {
    **{name: {"write"} for name in _GIT_WRITES},
    **{name: {"network"} for name in _GIT_NETWORK},
    "push": {"publish", "network"},
}

#: Programs whose kinds depend on their arguments.
_ARGUMENT_CHECKS: dict[str, Callable[[Sequence[Word], str], set[str]]] = {
    "git": _git_kinds,
    "rm": _rm_kinds,
    "sed": _sed_kinds,
    "chmod": _chmod_kinds,
    "printf": _variable_kinds,
    "test": _variable_kinds,
}
_FIXED_KINDS: tuple[tuple[frozenset[str], set[str]], ...] = (
    (_PRIVILEGED, {"privileged"}),
    (_PUBLISHES, {"publish", "network"}),
    (_NETWORK, {"network"}),
)
