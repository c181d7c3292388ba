"""A server with a small policy for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from coding_world import World

import sayso


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    rules = [
        sayso.Rule("Read", verdict="allow", name="reads"),
        sayso.Rule("WebFetch", verdict="deny", name="offline", description="No network here."),
        sayso.Rule("*", name="everything else"),
    ]
    made = World(tmp_path, sayso.Policy(rules))
    yield made
    made.close()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's empty home folder. The current folder is next to it."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for name in list(os.environ):
        if name.startswith(("SAYSO", "CLAUDE", "CODEX", "COPILOT", "GEMINI", "XDG")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return folder
