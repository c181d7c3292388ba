"""The fault tests bite: without a safeguard of the product, the same checks fail.

Each safeguard is taken away in one child process, by a patch. With it, the check passes; without
it, the check must fail, on both stores.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from actors import until
from places import KINDS, drop, make, open_at
from stories import RUN
from sweep import LATER, check_effects
from zygote import Zygote

from assent import Inbox
from assent.testing.checks import all_events

BOTH = pytest.mark.parametrize("without", [False, True], ids=["whole", "without"])


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return make(tmp_path / "place", request.param)


def bites(check: Callable[[], None], without: bool) -> None:
    """The check passes on the whole product, and fails without the safeguard."""
    if without:
        with pytest.raises(AssertionError):
            check()
    else:
        check()


@BOTH
def test_without_the_start_row_a_call_runs_twice(
    without: bool, place: Path, zygote: Zygote
) -> None:
    lacks = "start" if without else ""
    story = {"folder": str(place), "story": "approved", "without": lacks}
    died = zygote.run("teeth:play", **story, kill=("effect", 1, "after"))
    assert died.killed
    zygote.value("teeth:play", **story, later=LATER)

    def check() -> None:
        store = open_at(place)
        events = [event for _, event in all_events(store)]
        store.close()
        check_effects(events, place)

    bites(check, without)
    drop(place)


@BOTH
def test_without_the_wake_up_in_its_transaction_a_decision_is_lost(
    without: bool, place: Path, zygote: Zygote
) -> None:
    died = zygote.run(
        "teeth:play",
        folder=str(place),
        story="approved",
        without="wake" if without else "",
        kill=("decide", 1, "after"),
    )
    assert died.killed

    def check() -> None:
        store = open_at(place)
        due = store.ready(["bot"])
        store.close()
        assert [run.id for run in due] == [RUN], "lost: decided, and nobody will go on"

    bites(check, without)
    drop(place)


@BOTH
def test_without_the_token_a_sleeper_records_for_another_attempt(
    without: bool, place: Path, zygote: Zygote
) -> None:
    folder, inbox = str(place), Inbox(open_at(place))
    assert zygote.value("actors:call", folder=folder, run=RUN) == "Paused"
    _approve(inbox)
    sleeper = zygote.spawn(
        "teeth:call",
        folder=folder,
        run=RUN,
        lease=0.5,
        stop="effect",
        without="token" if without else "",
    )
    until(place / "stopped")
    _approve(inbox)  # in doubt: run it again
    again = zygote.spawn("actors:call", folder=folder, run=RUN, hold="go", held=2)
    _soon(lambda: len((place / "effects").read_text().splitlines()) == 2)
    os.kill(sleeper, signal.SIGCONT)
    zygote.wait(sleeper)
    (place / "go").touch()
    zygote.wait(again)

    def check() -> None:
        (request,) = inbox.history_sync().items
        assert request.execution is not None
        assert request.execution.result == "paid bo by attempt 2"

    bites(check, without)
    inbox.close()
    drop(place)


def _approve(inbox: Inbox) -> None:
    _soon(lambda: inbox.pending_sync().items)
    (request,) = inbox.pending_sync().items
    inbox.decide_sync(request.id, request.approve(), by="ana")


def _soon(look: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not look():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)
