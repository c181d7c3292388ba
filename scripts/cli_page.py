"""Write docs/cli.md from the commands themselves; --check only compares."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from sayso.channels.prompt import TABLES, Key
from sayso.cli.exits import MEANINGS
from sayso.cli.main import app

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"

HEAD = """\
# The command line

<!-- Written by scripts/cli_page.py from the commands themselves: run `make docs`, do not edit. -->

Every command works on one store: `--store URL`, else `SAYSO_STORE`, else `sqlite:///sayso.db` in
the working folder. Where nobody says which, `sayso serve` and `sayso worker` take the one that
their agents name; agents that name none are lent it. A store that is not there is made by `serve`,
`worker`, `chat` and `token create`, and by no other command.

```console
$ sayso inbox                     # what waits
$ sayso show req_1f               # one request, whole; the beginning of an id is enough
$ sayso approve req_1f            # shows the card and asks
$ sayso inbox --decide            # goes through all of them
```

**Who decides** is the user of the operating system (recorded with assurance `os-user`), or the
owner of the token in `SAYSO_TOKEN` or `--token-file` (assurance `token`). There is no option that
names somebody else.

**In a script** nothing is ever asked. An approval or an edit names the digest of what the script
saw, and a request that has changed since then is a conflict:

```console
$ digest=$(sayso show req_1f --json | jq -r .digest)
$ sayso approve req_1f --digest "$digest" --json
```

"""

PROMPT = """\
## The prompt

In a terminal a request is shown as a card. Everything in the first column is ours. What an agent
wrote stands behind a gutter, with hidden characters written out, and rows that wrap begin with `┆`.

- There is no default: Enter alone asks again, and five answers that make no sense leave the request
  pending. So do Ctrl-C, Ctrl-D and a closed terminal.
- Keys that were typed before the card was drawn, or within 0.3 seconds after, do not count. A paste
  decides nothing.
- What was not shown cannot be approved: a long card has pages, and `a` waits for the last one, or
  for the tool's name, typed. A request of high risk always wants the name.
- Without a terminal on both sides, with `CI` set or with `TERM=dumb`, nobody is asked: exit code 3.
- A decision that somebody makes elsewhere closes the prompt and says who it was.
- `NO_COLOR` and `--plain` are obeyed; 40 columns are enough.

"""

INBOX = """\
`sayso inbox --decide` shows a numbered list. A number opens one request, `w` walks through all of
them, and `1,3-5 a` (or `r`) decides several of the same agent and tool, after all of them were
shown and their number was typed; never where the risk is high.

"""

COMMON = ("json", "plain", "token_file", "store")


def page() -> str:
    """The whole page."""
    root = typer.main.get_command(app)
    commands = dict(walk(root, "sayso"))
    parts = [HEAD, "## Exit codes\n\n", *exit_codes(), "\n", PROMPT, *keys(), INBOX]
    parts += ["## Options that most commands take\n\n", *common(commands.values())]
    for name, command in commands.items():
        parts += section(name, command)
    return "".join(parts)


def walk(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The commands, each with its whole name; of a group, those inside."""
    inside = getattr(command, "commands", None)
    if inside is None:
        yield name, command
        return
    for short, one in inside.items():
        yield from walk(one, f"{name} {short}")


def exit_codes() -> Iterator[str]:
    yield "| code | meaning |\n|---|---|\n"
    for code, meaning in MEANINGS.items():
        yield f"| {code.value} | {meaning} |\n"


def keys() -> Iterator[str]:
    for title, table in TABLES.items():
        yield f"| key | {title} |\n|---|---|\n"
        yield from (f"| `{letter}` | {help_of(key)} |\n" for letter, key in table.items())
        yield "\n"


def help_of(key: Key) -> str:
    return escaped(key.help)


def common(commands: Any) -> Iterator[str]:
    found = {param.name: param for command in commands for param in command.params}
    yield from table([found[name] for name in COMMON])


def table(params: list[Any]) -> Iterator[str]:
    if not params:
        return
    yield "| option | what it does |\n|---|---|\n"
    for param in params:
        yield f"| {escaped(option(param))} | {escaped(described(param))} |\n"
    yield "\n"


def option(param: Any) -> str:
    """How an option is written."""
    names = ", ".join(f"`{name}`" for name in param.opts)
    return names if param.is_flag else names[:-1] + f" {param.metavar}`"


def described(param: Any) -> str:
    """What an option does, and what holds without it."""
    words = str(param.help)
    extra = []
    if param.envvar:
        extra.append(f"environment: `{param.envvar}`")
    if param.default not in (None, False, (), []):
        extra.append(f"default: `{param.default}`")
    return f"{words} ({', '.join(extra)})" if extra else words


def section(name: str, command: Any) -> Iterator[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option"]
    own = [p for p in options if p.name not in COMMON and p.name != "help"]
    shared = [p.opts[0] for p in options if p.name in COMMON]
    usage = " ".join([name, *(p.metavar for p in arguments), "[OPTIONS]"])
    yield f"## {name}\n\n```text\n{usage}\n```\n\n{paragraphs(command.help)}\n\n"
    for argument in arguments:
        yield f"`{argument.metavar}`: {argument.help}\n\n"
    yield from table(own)
    if shared:
        yield "Also: " + ", ".join(f"`{one}`" for one in shared) + ".\n\n"


def paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def escaped(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the page is not up to date")
    wanted = page().rstrip("\n") + "\n"
    if not parser.parse_args().check:
        PAGE.write_text(wanted, encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == wanted:
        return 0
    print(f"{PAGE.name} is not up to date: run `make docs`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
