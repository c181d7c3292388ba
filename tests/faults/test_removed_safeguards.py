"""Without one safeguard of the product, the fault tests fail.

Each safeguard is taken away in a child process, by a patch. With it, nothing is wrong; without it,
the count that the safeguard stands for, and none but that one, must show it, on both stores.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from fork_server import ForkServer
from places import KINDS, drop, make, open_at
from record import take_stock
from stories import RUN
from sweep import LATER
from waiting import until

from sayso import Inbox
from sayso.stores.base import Store

pytestmark = pytest.mark.long

BOTH = pytest.mark.parametrize("without", [False, True], ids=["with", "without"])


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return make(tmp_path / "place", request.param)


def bites(store: Store, place: Path, wrong: str, without: bool) -> None:
    """Nothing is wrong with the whole product; without the safeguard, this is, and only this."""
    tally = take_stock(store, place, [RUN])
    counts = {name: len(found) for name, found in tally.wrongs().items()}
    assert counts == ({wrong: 1} if without else {}), tally


@BOTH
def test_missing_start_row_runs_call_twice(
    without: bool, place: Path, fork_server: ForkServer
) -> None:
    lacks = "start" if without else ""
    story = {"folder": str(place), "story": "approved", "without": lacks}
    died = fork_server.run("removed_safeguards:play", **story, kill=("effect", 1, "after"))
    assert died.killed
    fork_server.value("removed_safeguards:play", **story, later=LATER)
    store = open_at(place)
    bites(store, place, "double", without)
    store.close()
    drop(place)


@BOTH
def test_missing_wake_up_loses_a_decision(
    without: bool, place: Path, fork_server: ForkServer
) -> None:
    died = fork_server.run(
        "removed_safeguards:play",
        folder=str(place),
        story="approved",
        without="wake" if without else "",
        kill=("decide", 1, "after"),
    )
    assert died.killed
    store = open_at(place)
    bites(store, place, "lost", without)
    store.close()
    drop(place)


@BOTH
def test_missing_token_accepts_stale_result(
    without: bool, place: Path, fork_server: ForkServer
) -> None:
    folder, store = str(place), open_at(place)
    inbox = Inbox(store)
    assert fork_server.value("removed_safeguards:call", folder=folder, run=RUN) == "Paused"
    _approve(inbox)
    sleeper = fork_server.spawn(
        "removed_safeguards:call",
        folder=folder,
        run=RUN,
        lease=0.5,
        stop="effect",
        without="token" if without else "",
    )
    until((place / "stopped").exists)
    _approve(inbox)  # in doubt: run it again
    again = fork_server.spawn("removed_safeguards:call", folder=folder, run=RUN, hold="go", held=2)
    until(lambda: len((place / "effects").read_text().splitlines()) == 2)
    os.kill(sleeper, signal.SIGCONT)
    fork_server.wait(sleeper)
    (place / "go").touch()
    fork_server.wait(again)
    bites(store, place, "stale", without)
    inbox.close()
    drop(place)


def _approve(inbox: Inbox) -> None:
    until(lambda: inbox.pending_sync().items)
    (request,) = inbox.pending_sync().items
    inbox.decide_sync(request.id, request.approve(), by="ana")
