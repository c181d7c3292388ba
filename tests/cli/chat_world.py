"""``sayso chat`` with the demo agent, or with one written for a test."""

from __future__ import annotations

import os
from typing import Any

from cli_world import Person, World
from sayso_process import run

from sayso.demo import Effects

DEMO = "sayso.demo:agent"
YOU = r"You( \(/decide pending requests\))? > "


def talk(world: World, *args: str, thread: str = "t", rows: int = 60, **env: str) -> Person:
    return world.person("chat", DEMO, "--thread", thread, *args, rows=rows, **env)


def ran(world: World) -> list[tuple[str, dict[str, Any]]]:
    return [(row["tool"], row["args"]) for row in Effects.beside(world.url).all()]


def pending(world: World) -> list[str]:
    return [item["id"] for item in world.json("inbox")["items"]]


def agent_file(
    world: World, script: str, tools: str = "", *, by_turn: bool = True, lease: float = 30.0
) -> None:
    (world.folder / "mine.py").write_text(
        "import time, pathlib, sayso\n"
        "from sayso.agent.models import ModelError\n"
        "from sayso.testing import ScriptedModel, call, say\n"
        f"{tools}\n"
        f"model = ScriptedModel([{script}], by_turn={by_turn})\n"
        f"tools = [{'work' if tools else ''}]\n"
        f"agent = sayso.Agent('mine', model=model, tools=tools, lease={lease})\n"
    )


def script(world: World, *args: str, code: int, stdin: str = "") -> str:
    """Run the command with pipes for stdin, stdout and stderr."""
    command = ("chat", *args, "--store", world.url)
    done = run(*command, cwd=world.folder, env=os.environ, stdin=stdin)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr
