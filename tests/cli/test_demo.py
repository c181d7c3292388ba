"""``sayso demo``: the first screen, and the scripted tour without a terminal."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_world import World

from sayso.demo import Effects
from sayso.demo.script import SUGGESTIONS

YOU = r"You( \(/decide pending requests\))? > "


def run(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run the demo with pipes, in an empty folder and without our environment variables."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SAYSO_")}
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "sayso", "demo", "--terminal", *args],
        cwd=folder,
        env={**clean, "TMPDIR": str(folder / "tmp")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


@pytest.mark.long
def test_demo_without_terminal_plays_tour(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    done = run(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    printed = done.stdout
    first, second = re.findall(r"Process (\d+) (?:runs|resumes)", printed)
    assert first != second
    assert f"Process {first} is killed while it waits (SIGKILL)" in printed
    assert "What really ran so far: nothing" in printed
    assert "approve by the scripted person" in printed
    assert "reject by the scripted person: we still need that file" in printed
    assert "Final answer: The weather in Oslo is" in printed
    (row,) = printed.partition("What really ran:\n")[2].partition("\n\n")[0].splitlines()
    assert row.split(maxsplit=1)[1] == 'getWeatherInformation {"city": "Oslo"}'
    assert [path.name for path in tmp_path.iterdir()] == ["tmp"]
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.long
def test_tour_repeats_on_kept_store(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    for times in (1, 2):
        assert run(tmp_path, "--data", "kept").returncode == 0
        effects = Effects.beside(f"sqlite:///{tmp_path}/kept/sayso.db")
        assert [row["tool"] for row in effects.all()] == ["getWeatherInformation"] * times


def test_uncreatable_folder_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "file").touch()
    done = run(tmp_path, "--data", "file/below")
    assert done.returncode == 2
    assert done.stderr.startswith("sayso: --data file/below: ")


@pytest.mark.parametrize("columns", [60, 100])
def test_first_screen_lists_suggestions(world: World, columns: int) -> None:
    person = world.person("demo", "--terminal", rows=60, columns=columns)
    first = person.at_prompt("What time is it?", YOU)
    for words, shows in SUGGESTIONS:
        assert words in first
        assert shows in first
    assert max(map(len, first.splitlines())) <= columns
    assert "┆" not in first
    assert "It is 10am" in person.at_prompt("/ran", YOU)
    seen = person.at_prompt("/help", YOU)
    assert re.search(r'\d\d:\d\d:\d\d  getLocalTime \{"location": "New York"\}', seen)
    assert "/ran" in person.at_prompt("\x04", YOU)
    screen = person.ends(0)
    assert "What really ran:" in screen
    assert "Use --data DIR to keep it" in screen


@pytest.mark.long
def test_demo_continues_where_it_was_left(world: World) -> None:
    person = world.person("demo", "--terminal", "--data", "kept", rows=60)
    person.at_prompt("Deploy version 2.5.0 to production", YOU)
    person.sees("uit > ")
    person.process.sendintr()
    screen = person.ends(75)
    assert "Nothing ran." in screen
    assert "To continue: sayso demo --terminal --data kept" in screen

    person = world.person("demo", "--terminal", "--data", "kept", rows=60)
    person.at_prompt("a")
    assert "Final answer: Version 2.5.0 was deployed" in person.at_prompt("/quit", YOU)
    person.ends(0)
    effects = Effects.beside(f"sqlite:///{world.folder}/kept/sayso.db").all()
    assert [row["tool"] for row in effects] == ["deploy_to_production"]


@pytest.mark.long
def test_slow_answer_needs_five_seconds(world: World) -> None:
    person = world.person("demo", "--terminal", rows=60)
    person.at_prompt("slow", YOU)
    person.sees("Final answer:")
    began = time.monotonic()
    person.at_prompt("/quit", YOU)
    assert 3.5 < time.monotonic() - began < 10
    assert "Nothing ran." in person.ends(0)
