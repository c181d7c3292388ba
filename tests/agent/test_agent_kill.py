"""SIGKILL between any two steps of a run: nothing is lost or runs twice, and only calls that were
running are in doubt."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_world import World
from killed_agent import BY_HAND, ForkServer

from sayso.audit import verify
from sayso.stores.sqlite import SqliteStore
from sayso.testing.scripted_model import ScriptedModel, call, calls, say

HOUR = 3600.0
PAY = call("pay", {"amount": 3, "to": None})
ANSWERS = ("respond", "approve", "reject")
CONTENTS = {"pay 1": "paid 1", "look x": "seen", "pay 2": "paid 2"}


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    fork_server = ForkServer()
    yield fork_server
    fork_server.close()


def lines(path: Path) -> list[list[Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def hanging(folder: Path) -> set[str]:
    """Return the calls that were running when the process died."""
    if not (folder / "a.db").exists():
        return set()
    store = SqliteStore(folder / "a.db")
    try:
        run = store.last_run("t")
        calls = store.calls_of(run.id) if run is not None else []
        running = [call for call in calls if call.status == "running"]
        return {f"{c.tool} {next(iter(json.loads(c.args).values()))}" for c in running}
    finally:
        store.close()


def check(folder: Path, came: dict[str, Any], doubts: set[str], answer: str) -> None:
    """Check what must hold after another process finished the run."""
    assert (came["status"], came["output"]) == ("done", "Done.")
    found = {f"{tool} {next(iter(args.values()))}" for tool, args in came["doubts"]}
    assert found == doubts
    effects = Counter(f"{tool} {what}" for tool, what, _ in lines(folder / "effects"))
    for name, content in CONTENTS.items():
        most = 2 if name in doubts and answer == "approve" else 1
        least = 0 if name in doubts and answer != "approve" else 1
        assert least <= effects[name] <= most, (name, effects, doubts)
        told = [said for role, said in came["said"] if role == "tool"]
        if name not in doubts or answer == "approve":
            assert content in told
        elif answer == "respond":
            assert BY_HAND in told
    roles = [role for role, _ in came["said"]]
    assert roles == ["user", "assistant", "tool", "tool", "tool", "assistant"]
    # Only a reply that was not stored is requested again.
    assert len(lines(folder / "model")) <= 3
    check_record(folder)


def check_record(folder: Path) -> None:
    store = SqliteStore(folder / "a.db")
    try:
        assert verify(store).ok
        decided = {
            (event.call, json.loads(event.body)["decision"])
            for _, event in store.events()
            if event.type == "decided" and event.body
        }
    finally:
        store.close()
    assert {tuple(ack) for ack in lines(folder / "acks")} <= decided


@pytest.mark.parametrize(
    "at_once",
    [
        pytest.param(True, id="decided at once"),
        pytest.param(False, id="one by one", marks=pytest.mark.long),
    ],
)
def test_killed_between_any_two_steps(
    tmp_path: Path, fork_server: ForkServer, at_once: bool
) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    options: dict[str, Any] = {"doubt": "respond", "at_once": at_once}
    came = fork_server.play(whole, kill=None, later=0.0, **options)
    assert came is not None
    check(whole, came, set(), "respond")
    points = came["points"]
    assert {"propose before", "claim+start after", "record before", "pay 1 after"} <= set(points)
    deaths = doubted = 0
    for number in range(1, len(points) + 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        answer = ANSWERS[number % 3]
        died = fork_server.play(folder, kill=number, later=0.0, **options)
        deaths += died is None
        if died is not None:
            continue  # commits of two calls may fall together, and then there are fewer points
        doubts = hanging(folder)
        doubted += bool(doubts)
        came = fork_server.play(folder, kill=None, later=HOUR, doubt=answer, at_once=at_once)
        assert came is not None
        check(folder, came, doubts, answer)
    assert deaths >= len(points) - 4
    assert doubted >= 6


def test_run_survives_two_kills(tmp_path: Path, fork_server: ForkServer) -> None:
    """The process that resumes may die too."""
    for number, again in ((2, 3), (5, 2), (8, 4), (11, 1), (14, 3)):
        folder = tmp_path / f"{number}-{again}"
        folder.mkdir()
        options: dict[str, Any] = {"doubt": "respond", "at_once": True}
        fork_server.play(folder, kill=number, later=0.0, **options)
        fork_server.play(folder, kill=again, later=HOUR, **options)
        came = fork_server.play(folder, kill=None, later=2 * HOUR, **options)
        assert came is not None
        assert came["status"] == "done"
        effects = Counter((tool, what) for tool, what, _ in lines(folder / "effects"))
        assert max(effects.values()) == 1
        check_record(folder)


@pytest.mark.long
@pytest.mark.parametrize("story", ["nested", "asking"])
def test_kill_inside_nested_call_leaves_no_doubt(
    tmp_path: Path, fork_server: ForkServer, story: str
) -> None:
    """A pause is never a doubt, and the call of a sub-agent is never in doubt."""
    whole = tmp_path / "whole"
    whole.mkdir()
    came = fork_server.play(whole, kill=None, later=0.0, story=story)
    assert came is not None
    assert (came["status"], came["doubts"]) == ("done", [])
    for number in range(1, len(came["points"]) + 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert fork_server.play(folder, kill=number, later=0.0, story=story) is None
        doubts = running(folder)
        came = fork_server.play(folder, kill=None, later=HOUR, story=story)
        assert came is not None
        assert came["status"] == "done"
        assert sorted(tool for tool, _ in came["doubts"]) == doubts
        effects = Counter((tool, what) for tool, what, _ in lines(folder / "effects"))
        assert max(effects.values(), default=1) == 1
        roles = [role for role, _ in came["said"]]
        assert roles == ["user", "assistant", "tool", "assistant"]
        check_record(folder)


@pytest.mark.long
def test_killed_read_is_never_in_doubt(tmp_path: Path, fork_server: ForkServer) -> None:
    """No one has to settle it: the process that resumes reads again, with the same approval."""
    whole = tmp_path / "whole"
    whole.mkdir()
    came = fork_server.play(whole, kill=None, later=0.0, story="reading")
    assert came is not None
    again = 0
    for number in range(1, len(came["points"]) + 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert fork_server.play(folder, kill=number, later=0.0, story="reading") is None
        came = fork_server.play(folder, kill=None, later=HOUR, story="reading")
        assert came is not None
        assert (came["status"], came["doubts"]) == ("done", [])
        assert [said for role, said in came["said"] if role == "tool"] == [
            "seen look",
            "seen letter",
        ]
        effects = Counter(what for _, what, _ in lines(folder / "effects"))
        again += max(effects.values()) > 1
        assert len(lines(folder / "acks")) <= 1
        check_record(folder)
    assert again >= 2


def running(folder: Path) -> list[str]:
    """Return the tools that were running and may not be started again."""
    store = SqliteStore(folder / "a.db")
    try:
        rows = store._rows("SELECT id FROM call WHERE status = 'running'")
        found = [store.call(row[0]) for row in rows]
        return sorted(c.tool for c in found if c is not None and c.terms.effect == "once")
    finally:
        store.close()


async def test_several_stores_on_one_file_resume_at_once(tmp_path: Path) -> None:
    """Like several processes: each call starts once, and all get the same outcome."""
    for round in range(5):
        path = tmp_path / f"{round}.db"
        stores = [SqliteStore(path) for _ in range(4)]
        worlds = [World(store) for store in stores]
        model = ScriptedModel([say("Done.")])
        first = worlds[0].agent(calls(PAY, call("look", {"what": "x"}), PAY))
        requests = (await first.run("go", thread="t")).interruptions
        for request in requests:
            await worlds[1].inbox.decide(request.id, request.approve(), by="ana")
        results = await asyncio.gather(*(w.agent(model=model).resume("t") for w in worlds))
        assert [result.output for result in results] == ["Done."] * 4
        assert sum(len(w.effects("pay")) for w in worlds) == 2
        assert len(model.requests) == 1
        for store in stores:
            store.close()
