"""SIGKILL at every commit boundary, before and after the COMMIT, and inside the effect."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from all_stories import STORIES
from fork_server import ForkServer
from sweep import LATER, Plot, die, plot_of, sweep

from sayso.engine import COMMANDS
from sayso.stores.sql import store as sql_store

#: Moved by the webhooks of a server, which no story has.
ELSEWHERE = {"cursor"}
#: The store's own commits, beside those of the engine's commands.
OWN = set(re.findall(r'_write[(,] ?"(\w+)"', inspect.getsource(sql_store))) - ELSEWHERE
BOUNDARIES = {command.name for command in COMMANDS} | OWN
#: Crossed by the next process, after the first one died; or, to remove votes from the row that do
#: not count any more in any case, only where there are some (``inbox/test_directory.py``).
LATER_ONLY = {"release_lapsed", "void_votes"}

LEAST_KILLS = 300

#: The stories whose kills are in `make test`; the others are in `make test-all`.
SHORT = {"approved", "nested", "parked", "question"}


#: Where a first process died, so that a second one meets what it left.
SECOND_DEATHS = {
    "approved": ("effect", 1, "after"),
    "granted": ("start", 2, "after"),
    "idempotent": ("record", 1, "before"),
    "nested": ("effect", 1, "before"),
}


@pytest.fixture(scope="module")
def plots(
    fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Plot]:
    """Each story as it goes when nobody dies, played on first use."""
    known: dict[str, Plot] = {}

    def plot(story: str) -> Plot:
        if story not in known:
            known[story] = plot_of(fork_server, story, tmp_path_factory.mktemp("plot"))
        return known[story]

    return plot


@pytest.mark.long
def test_every_boundary_of_the_store_has_a_story(plots: Callable[[str], Plot]) -> None:
    assert {"seal", "prune"} <= OWN
    kills = [point for story in STORIES for point in plots(story).kills()]
    for when in ("before", "after"):
        crossed = {name for point in kills if point.when == when for name in point.name.split("+")}
        assert crossed == BOUNDARIES - LATER_ONLY | {"effect"}
    assert len(kills) >= LEAST_KILLS


@pytest.mark.parametrize(
    "story",
    [pytest.param(name, marks=[] if name in SHORT else pytest.mark.long) for name in STORIES],
)
def test_process_dies_at_every_point(
    story: str, plots: Callable[[str], Plot], fork_server: ForkServer, tmp_path: Path
) -> None:
    plot = plots(story)
    assert sweep(fork_server, plot, tmp_path) >= len(plot.kills()) > 0


@pytest.mark.long
@pytest.mark.parametrize("story", SECOND_DEATHS)
def test_second_process_dies_at_every_point(
    story: str, fork_server: ForkServer, tmp_path: Path
) -> None:
    first = SECOND_DEATHS[story]
    whole = tmp_path / "whole"
    whole.mkdir()
    die(fork_server, story, whole, first)
    plot = plot_of(fork_server, story, whole, later=LATER)
    names = {part for point in plot.points for part in point.name.split("+")}
    assert "release_lapsed" in names
    assert sweep(fork_server, plot, tmp_path, first) >= len(plot.kills()) > 0
