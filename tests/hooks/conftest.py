"""A server with a small policy for each test."""

from __future__ import annotations

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
