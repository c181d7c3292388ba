"""Read ``tables.txt``: what coding agents may do without asking.

A line of a section is a program, or a program and its subcommand, then ``|``, and the options and
operands with which it is known to be harmless. Everything else is asked about:

    -abc        three short options without a value
    -n=number   a short option with a value, in the same word or the next
    -#          a number as an option: ``head -5``
    --all       a long option without a value; abbreviations do not count
    --sort=text a long option with a value
    --color?    a long option that may have a value, after ``=``
    -e=text^    a ``^`` at the end: it takes the place of the first operand
    -i>         a ``>`` at the end: it is the last in its word, and files to read are written
    -m=text!    a ``!`` at the end: it, or another one like it, must be given
    *           no word is an option
    =           each option and each value is a separate word
    : a b*      the kinds of the operands; ``*`` and ``+`` repeat one, ``?`` makes it optional

The kinds of values are the keys of ``VALUES``, and these kinds of paths:

    read, write   a path to read; a path in the project to write
    tree          a path to read with everything below it
    source        a path that is copied, links and folders included
    moved         a path that is moved or removed

Standard library only: the hook imports this module.
"""

from __future__ import annotations

import os
import re
import sys

_PATTERN = r"(?:[^\\\n\[{0}]|\\[^\n]|\[\^?[^\\\n{0}\]]+\])*"
_LINE = rf"(?:\d+(?:~\d+)?|\$|/{_PATTERN.format('/')}/)"


def _substitution(mark: str) -> str:
    """Return the expression for a substitution of sed with this mark between its parts."""
    text = _PATTERN.format(mark)
    return rf"s\{mark}{text}\{mark}(?:[^\\\n{mark}]|\\[^\n])*\{mark}[gpiI\d]*"


#: The kinds of values that are not paths, and the expression that they must match as a whole. The
#: hook needs few of them, so they are compiled when they are used.
VALUES: dict[str, str] = {
    # Text that a program only prints, compares or searches for, and paths whose names it lists.
    "text": r"(?s).*",
    "number": r"[+-]?[\d.]+[a-zA-Z]{0,3}",
    "word": r"(?a)[\w.,:%/+-]+",
    "name": r"(?a)[A-Za-z0-9_][\w./-]*",
    "mode": r"0?[0-7]{3}|[ugoa]*[+=-][rwxX]+",
    "date": r"(?s)\+.*",
    "setting": r"(?a)(?:user|core|init|remote|branch|commit|pull|push|diff|merge)\.[\w./-]+",
    # Commands of sed that only print, delete and substitute lines: not e, w, r, or the flags e, w.
    "sed": (
        rf"(?:(?:{_LINE}(?:,(?:[+~]?\d+|{_LINE}))?)?[ ]?!?[ ]?"
        rf"(?:[pdqQ=]|{'|'.join(map(_substitution, '/|,#@:'))})(?:;[ ]?|$))+"
    ),
    # No output to files or programs (no ``>`` after ``print``), no other input, and no function
    # that is not listed.
    "awk": (
        r"(?as)(?!.*(?:system|getline|ENVIRON|ARGV|PROCINFO|SYMTAB|@|\\\n|print.*>(?!=)))"
        r"(?:[^|A-Za-z_]|\|\||[A-Za-z_]\w*+(?!\s*\()|(?:print|printf|length|substr|split|"
        r"tolower|toupper|g?sub|gensub|index|match|sprintf|int|if|for|while|in|return|and|or)\s*+(?=\())*+"
    ),
    # No environment, no modules, no other files.
    "jq": (
        r"(?s)(?!.*(?:\benv\b|\$ENV|\bimport\b|\binclude\b|\bmodulemeta\b|input_filename|\$__prog|\bhalt_error\b))"
        r".*"
    ),
    # Only %s, %b, %q and %%: zsh evaluates the arguments of the others.
    "format": r"(?s)(?!-)(?:[^%]|%-?\d*[sbq]|%%)*",
    "archive": r"-?t[vzjJ]*f",
    "member": r"(?!-)[^:\n]+",
    "psword": r"-?[auxfwlj]+",
    # Columns of ps. Not environ.
    "columns": (
        r"(?:(?:p?pid|[re]?user|[re]?[ug]id|r?group|comm|cmd|args|command|ucmd|%?p?cpu|%?p?mem|rss|vsz|"
        r"sz|stat|state|s|time|cputimes?|etimes?|l?start|start_time|bsdtime|tty|tt|nice|ni|pri|"
        r"pgid|pgrp|sid|sess|session|lwp|tid|nlwp|thcount|psr|wchan|cgroup|unit|label)=?(?:,|$))+"
    ),
    "reflog": r"(?!expire|delete|exists|drop|-).*",
    "env": r"PATH|HOME|USER|SHELL|LANG|PWD|TERM|EDITOR|VIRTUAL_ENV",
    "newline": r"\\n|\n",
    "placeholder": r"\{\}",
    # A revision or a path of git; a credential after a colon is found as a path is.
    "revision": r"(?s)(?!-|:\().*",
}


class Names:
    """Names of files and folders: is a path one of them, or in one of them?"""

    def __init__(self, patterns: list[str], exceptions: list[str]) -> None:
        files = [pattern.casefold() for pattern in patterns if not pattern.endswith("/")]
        folders = [pattern.casefold() for pattern in patterns if pattern.endswith("/")]
        self._folders = tuple(f"/{name}" for name in folders if not name.startswith("/"))
        self._roots = tuple(name for name in folders if name.startswith("/"))
        self._paths = frozenset(name for name in files if name.startswith("/"))
        self._files = frozenset(name for name in files if "*" not in name)
        self._suffixes = tuple(name[1:] for name in files if name.startswith("*"))
        self._prefixes = tuple(name[:-1] for name in files if name.endswith("*"))
        self._both = [name.split("*", 1) for name in files if "*" in name[1:-1]]
        self._exceptions = frozenset(exceptions)

    def match(self, path: str) -> bool:
        """Return whether a path is one of these files, or in one of these folders."""
        lower = path.casefold()  # as file systems do that ignore case
        name = lower.rstrip("/").rpartition("/")[2]
        if name in self._exceptions or lower in self._exceptions:
            return False
        slashed = f"/{lower}/".replace("//", "/")
        return (
            name in self._files
            or lower in self._paths
            or name.endswith(self._suffixes)
            or name.startswith(self._prefixes)
            or slashed.startswith(self._roots)
            or any(folder in slashed for folder in self._folders)
            or any(name.startswith(head) and name.endswith(tail) for head, tail in self._both)
        )


def _load() -> tuple[dict[str, dict[str, str]], dict[str, list[str]]]:
    """Return the lines of each section, by name; and the words of each section without names."""
    with open(f"{os.path.splitext(__file__)[0]}.txt", encoding="utf-8") as file:
        text = file.read()
    lines: dict[str, dict[str, str]] = {}
    words: dict[str, list[str]] = {}
    for section in text.split("\n[")[1:]:
        title, _, body = section.partition("]\n")
        body = re.sub(r"^#.*\n", "", body, flags=re.M)
        if "|" not in body:
            words[title] = body.split()
            continue
        entries = lines[title] = {}
        for line in body.replace("\n    ", " ").splitlines():
            names, _, entry = line.partition(" |")
            for part, options in lines["parts"].items():
                entry = entry.replace(f"@{part}", options)
            entries |= dict.fromkeys(names.split(", "), entry) if names else {}
    return lines, words


_LINES, _WORDS = _load()
READS = _LINES["reads"]
if sys.platform == "darwin":  # there, the word after -i is a suffix, and the next one the script
    READS["sed"] = READS["sed"].replace("-i> --in-place>", "")
WRITES = _LINES["writes"]
WRAPPERS = _LINES["wrappers"]
OBEYED = _LINES["obeyed"]
GIT_SETTINGS = {
    section: frozenset(names.split()) for section, names in _LINES["git settings"].items()
}
ASKED = {
    name: kind for kind, names in _LINES["asked"].items() for name in names.strip().split(", ")
}
#: Tests and actions of ``find``, each with the number of its values.
FIND = dict.fromkeys(_WORDS["find"], 0) | dict.fromkeys(_WORDS["find value"], 1)
INERT = frozenset(_WORDS["inert"])
BUILTINS = frozenset(_WORDS["builtin"])
INTERPRETERS = frozenset(_WORDS["interpreter"])
PROMPTING = frozenset(_WORDS["prompting"])
NAMES_ONLY = frozenset(_WORDS["names only"])
PATCHES = frozenset(_WORDS["patches"])
GIT_PRINTS = frozenset(_WORDS["git prints"])
ENVIRONMENT = frozenset(_WORDS["environment"])
CREDENTIALS = Names(_WORDS["credentials"], _WORDS["public"])
SETTINGS = Names(_WORDS["settings"], [])
LATER = Names(_WORDS["later"], [])
