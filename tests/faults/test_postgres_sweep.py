"""Dying before and after commits on PostgreSQL; ``tests/stories`` has the same on SQLite."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults import Tell
from fork_server import ForkServer
from places import make
from sweep import plot_of, sweep

pytestmark = pytest.mark.long

#: Between them: ask, decide, start, record, finish, and a claim.
SHORT = ("claimed",)


@pytest.mark.parametrize("story", SHORT)
def test_process_dies_at_every_postgres_point(
    story: str, fork_server: ForkServer, tmp_path: Path, tell: Tell
) -> None:
    plot = plot_of(fork_server, story, make(tmp_path / "plot", "postgres"))
    names = {name for point in plot.kills() for name in point.name.split("+")}
    assert {"propose", "decide", "claim", "start", "effect", "record", "finish"} <= names
    deaths = sweep(fork_server, plot, tmp_path, kind="postgres")
    assert deaths >= len(plot.kills())
    tell(test="sweep", store="postgres", story=story, deaths=deaths)
