"""docs/cli.md is generated from the commands and up to date."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer
from cli_world import World

from sayso.cli.main import app

ROOT = Path(__file__).resolve().parent.parent.parent


def test_cli_page_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "cli_page.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_python_runs_the_package_as_the_command() -> None:
    command = [sys.executable, "-m", "sayso", "token", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: sayso token ")


def test_every_command_and_option_has_a_help() -> None:
    todo = [typer.main.get_command(app)]
    while todo:
        command = todo.pop()
        assert command.help, command.name
        assert all(param.help for param in command.params if param.name != "help"), command.name
        todo += getattr(command, "commands", {}).values()


def test_usage_names_arguments_without_braces() -> None:
    usages, todo = [], [typer.main.get_command(app)]
    while todo:
        command = todo.pop()
        context = typer.Context(command, info_name=command.name)
        usages.append(command.get_usage(context))
        todo += getattr(command, "commands", {}).values()
    assert "Usage: approve [OPTIONS] ID" in usages
    assert "Usage: serve [OPTIONS] [MODULE:ATTRIBUTE]..." in usages
    assert [usage for usage in usages if "{" in usage] == []


def test_every_command_accepts_store_option() -> None:
    root = typer.main.get_command(app)
    for name in ("inbox", "show", "approve", "reject", "edit", "respond", "cancel", "history"):
        assert "store" in {param.name for param in root.commands[name].params}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("people", "groups", "ana"), "--add GROUP or --remove GROUP"),
        (("selftest", "--token-file", "t.txt"), "--token-file is for --server"),
        (("serve", "--origin", "inbox.example"), "--origin:"),
        (("serve", "--workers", "-1"), "use 0 or a positive number"),
        (("mcp", "--stdio", "--hold", "0"), "use a positive number of seconds"),
        (("mcp", "--stdio", "--store", "memory://"), "nobody could decide: use --store"),
        (
            (
                "proxy",
                "--stdio",
                "--config",
                "CONFIG",
                "--policy",
                "p.toml",
                "--server",
                "http://x",
            ),
            "remove the policy here",
        ),
        (("channels", "link", "mail"), "mail has no bot"),
        (("channels", "link", "push"), "push has no bot"),
    ],
)
def test_wrong_use_is_explained(world: World, words: tuple[str, ...], message: str) -> None:
    config = world.folder / "mcp.json"
    config.write_text('{"mcpServers": {"shop": {"command": "true"}}}')
    words = tuple(str(config) if word == "CONFIG" else word for word in words)
    assert message in " ".join(world.cli(*words, code=2).split())


def test_grant_has_limits(world: World) -> None:
    request = world.mail(risk="low")
    digest = world.get(request).digest
    limit = "calls <= 2 per 1h"
    world.cli("approve", request, "--digest", digest, "--always", "any", "--limit", limit)
    (grant,) = world.json("grants")
    assert [budget["limit"] for budget in grant["budgets"]] == [limit]
