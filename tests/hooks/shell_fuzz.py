"""Compare the parser with real shells: every program that a shell runs must be one that we derived.

A generator makes commands of everything that the grammar knows, and of much that it must refuse.
Those that ``parse`` finds clear are run by bash (and zsh), in a scratch folder, without rights, and
with a PATH that has nothing but programs that write their arguments down.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from sayso.hooks.attacks import UNPRIVILEGED
from sayso.hooks.paths import Files
from sayso.hooks.shell import SimpleCommand, UnclearCommand, parse

PROGRAMS = ("p", "q", "pr.x")
_STUB = """#!/bin/sh
printf '%s\\0' "$#" "${0##*/}" "$@" >> "$SAYSO_LOG"
"""
_DRIVER = """
number=0
while IFS= read -r -d '' command; do
    number=$((number + 1))
    mkdir "$number" && cd "$number" || exit 1
    : > a; : > b.py; : > c.py; : > .hidden; mkdir d; : > d/e.py
    timeout 10 env -i PATH="$STUBS" HOME=/home/none SAYSO_LOG="$PWD/../$number.log" \\
        "$SHELL_PROGRAM" $SHELL_OPTIONS -c "$command" </dev/null >/dev/null 2>&1
    cd ..
done
"""
_SHELLS = {"bash": "--norc --noprofile", "zsh": "-f"}

_WORDS = (
    *(
        "a",
        "b.py",
        "d/e.py",
        "-n",
        "--opt=v",
        "--",
        "-",
        "1",
        "22",
        "x.y:z",
        "%1",
        "@",
        "+x",
        "a,b",
        "a=b",
        "=",
    ),
    *(
        "'x y'",
        '"x y"',
        "a\\ b",
        "''",
        '""',
        "'a'b\"c\"",
        '"a\\"b"',
        '"\\$x"',
        '"\\n"',
        '"a\\\\b"',
        "\\-n",
        "'*'",
    ),
    *(
        '"*.py"',
        "\\*",
        "*",
        "*.py",
        "?.py",
        "d/*",
        "nothing*",
        "**",
        "[ab].py",
        "[",
        "]",
        "{}",
        "{a,b}",
        "{1..2}",
    ),
    *(
        "HEAD~1",
        "HEAD^",
        "@{u}",
        "@{u}..HEAD",
        "~",
        "~/x",
        "a~",
        "x=~",
        "a:~",
        "=p",
        "#x",
        "x#y",
        "!",
        "!=",
        "x!y",
    ),
    *(
        '"a!b"',
        '"a! b"',
        '"a!"',
        "^x",
        "$HOME",
        '"$PWD"',
        "$?",
        '"$?x"',
        "$x",
        '"$x"',
        "${x}",
        "$'x'",
        '$"x"',
    ),
    *(
        "$((1))",
        "$(p)",
        "`p`",
        '"$(p)"',
        '"`p`"',
        '"a$"',
        '"a$|b"',
        "'$x'",
        "a\\\nb",
        '"a\\\nb"',
        "'a\nb'",
        '"a\nb"',
    ),
    *(
        "\u00e9",
        "'\u00e9'",
        "\u00a0",
        "'\u200b'",
        "<(p)",
        "(p)",
        "a(b)",
        "$",
        "a$",
        "\\",
        "'",
        '"',
        "\\;",
        "\\|",
        "\\(",
    ),
    *(
        "if",
        "then",
        "fi",
        "do",
        "{",
        "}",
        "[[",
        "]]",
        "time",
        "\r",
        "\t",
        "x\x01",
        "a;b",
        "a|b",
        "a&b",
        "a>b",
        "2>x",
    ),
)
_SEPARATORS = (
    *(
        " ; ",
        "; ",
        " && ",
        " || ",
        " | ",
        "\n",
        " \n ",
        "&&",
        "||",
        "|",
        ";",
        " & ",
        "&",
        ";;",
        "|&",
        " |\n",
        "&&\n",
    ),
    *(" # x\n", "\n# x y\n", "\\\n", "\n\n"),
)
_REDIRECTIONS = (
    *(
        "> f",
        ">f",
        ">> f",
        "2> f",
        "2>f",
        "2>&1",
        ">&2",
        "1>&2",
        "< a",
        "<a",
        "&> f",
        "3> f",
        "12> f",
        "> 'f g'",
    ),
    *(
        '> "f"',
        "> f*",
        "> $x",
        ">| f",
        "<> a",
        ">& f",
        "<<< x",
        "<<'E'\nx $y\nE",
        "<<E\nx\nE",
        "<<E\n$(p)\nE",
    ),
    *(
        "<< 'E'\nE",
        '<<"E"\n`p`\nE',
        "<<-E\n\tE",
        "<<'E' > f\nx\nE",
        "<<'E' | q\nx\nE",
        "2>&1 > f",
        "> f 2>&1",
    ),
)
_SPECIAL = "|&;<>(){}[]$`\"'\\\n\t *?~=!#^%@-a1 "


def random_command(choose: random.Random) -> str:
    """Return a command that may or may not be clear."""
    parts: list[str] = []
    for _ in range(choose.randint(1, 3)):
        words = [choose.choice(PROGRAMS)]
        simple = choose.random() < 0.6
        for _ in range(choose.randint(0, 4)):
            words.append(choose.choice(_WORDS[:40] if simple else _WORDS))
        if choose.random() < 0.35:
            place = len(words) if choose.random() < 0.8 else choose.randint(0, len(words))
            words.insert(place, choose.choice(_REDIRECTIONS))
        parts.append(choose.choice([" ", " ", " ", "  ", "\t"]).join(words))
    if choose.random() < 0.15:
        end = choose.choice(["; fi", "; else p; fi", "\nfi"])
        parts[0] = f"if {parts[0]}; then {parts[-1]}{end}"
    command = parts[0]
    for part in parts[1:]:
        command += choose.choice(_SEPARATORS[:7] if choose.random() < 0.6 else _SEPARATORS) + part
    if choose.random() < 0.3:
        place = choose.randint(0, len(command))
        drop = choose.randint(0, 1)
        command = command[:place] + choose.choice(_SPECIAL) + command[place + drop :]
    return command


class Difference(NamedTuple):
    """A command that a shell understands in another way than we do."""

    shell: str
    command: str
    derived: list[tuple[str, ...]]
    ran: list[tuple[str, ...]]
    files: set[str]


def clear_commands(count: int, choose: random.Random) -> list[str]:
    """Return that many generated commands that are clear and can be run without harm."""
    commands: list[str] = []
    while len(commands) < count:
        command = random_command(choose)
        try:
            simple_commands = parse(command)
        except UnclearCommand:
            continue
        if all(simple.words[0].text in PROGRAMS for simple in simple_commands):
            commands.append(command)
    return commands


def differences(commands: list[str], shell: str, folder: Path) -> list[Difference]:
    """Run commands with a shell, and return those of which we derived something else."""
    stubs = folder / "stubs"
    stubs.mkdir()
    for name in PROGRAMS:
        (stubs / name).write_text(_STUB)
        (stubs / name).chmod(0o755)
    runs = folder / "runs"
    subprocess.run(["mkdir", runs], check=True, **UNPRIVILEGED)
    subprocess.run(
        ["bash", "-c", _DRIVER],
        input=b"".join(command.encode() + b"\0" for command in commands),
        cwd=runs,
        env={
            "PATH": "/usr/bin:/bin",
            "STUBS": str(stubs),
            "SHELL_PROGRAM": shutil.which(shell) or shell,
            "SHELL_OPTIONS": _SHELLS[shell],
        },
        check=True,
        timeout=600 + len(commands),
        **UNPRIVILEGED,
    )
    results = [
        _compare(command, shell, runs / str(number))
        for number, command in enumerate(commands, start=1)
    ]
    return [result for result in results if result is not None]


def _compare(command: str, shell: str, folder: Path) -> Difference | None:
    ran = _logged(folder.with_suffix(".log"))
    simple_commands = parse(command)
    present = {
        entry for entry in os.listdir(folder) if entry not in ("a", "b.py", "c.py", ".hidden", "d")
    }
    written = {target for simple in simple_commands for target in simple.writes}
    derived = [_words(simple, folder, present) for simple in simple_commands]
    unmatched = Counter(ran)
    # The most exact first: a word that only the shell knows matches anything.
    for words in sorted(derived, key=lambda words: (None in words, -len(words))):
        same = [other for other in unmatched if unmatched[other] and _same(words, other)]
        match = max(same, key=len, default=None)
        if match is not None:
            unmatched[match] -= 1
    extra = +unmatched
    # Programs may be left out for a reason: ||, else, a file that is missing, a pattern of zsh.
    uncertain = any(sign in command for sign in ("||", "if", "<", "*", "?"))
    uncertain = uncertain or any("/" in target for target in written)
    missing = not uncertain and len(ran) != len(derived) and shell == "bash"
    if extra or missing or not present <= written:
        return Difference(
            shell,
            command,
            [tuple(word or "$" for word in words) for words in derived],
            ran,
            present,
        )
    return None


def _logged(log: Path) -> list[tuple[str, ...]]:
    fields = log.read_bytes().decode().split("\0")[:-1] if log.exists() else []
    ran: list[tuple[str, ...]] = []
    while fields:
        end = int(fields[0]) + 2
        ran.append(tuple(fields[1:end]))
        fields = fields[end:]
    return ran


def _words(simple: SimpleCommand, folder: Path, created: set[str]) -> tuple[str | None, ...]:
    """Return the words of a command, with None for words that only the shell knows."""
    words: list[str | None] = []
    for word in simple.words:
        if word.form == "glob":
            matches = Files(str(folder)).expand(word.text, str(folder))
            words += [None] if created else sorted(matches)
        else:
            words.append(None if word.form == "variable" else word.text)
    return tuple(words)


def _same(derived: tuple[str | None, ...], ran: tuple[str, ...]) -> bool:
    if None in derived:
        known = derived[: derived.index(None)]
        after = derived[len(known) + 1 :]
        tail = after if None not in after else ()
        return ran[: len(known)] == known and (not tail or ran[-len(tail) :] == tail)
    return derived == ran
