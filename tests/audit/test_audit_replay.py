"""Messages, runs and owners are part of the record, and every move of a run was legal."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from audit_world import KEY, SERVER_KEY, World, edited, opened, plain

import sayso
from sayso.audit.replay import ExpectedCall, ExpectedConversation, ImpossibleEvent
from sayso.engine.commands import Note, Record, Reopen
from sayso.engine.moves import RUN_MOVES
from sayso.keys import Keyring
from sayso.rows import LIVE, CallStatus, Doubt, Event, RunStatus
from sayso.testing import ScriptedModel, call, say
from sayso.types import Decided


def chat(world: World, thread: str = "chat") -> Any:
    """Return a conversation of Dora's, paused at a tool."""
    return pilot(world).run_sync("please deploy", thread=thread, requester="dora")


def pilot(world: World) -> sayso.Agent:
    @sayso.tool(needs_approval=True)
    def deploy(version: str) -> str:
        return f"deployed {version}"

    steps = [call("deploy", {"version": "1.2"}), say("It is out."), say("You are welcome.")]
    model = ScriptedModel(steps, by_turn=True)
    return sayso.Agent("pilot", model=model, tools=[deploy], store=world.store)


@pytest.fixture
def spoken(tmp_path: Path) -> Iterator[World]:
    """Return a world with a finished conversation, a paused one, and an order."""
    with opened(World(tmp_path)) as world:
        (request,) = chat(world).interruptions
        world.approve(request)
        pilot(world).resume_sync("chat")
        chat(world, "paused")
        world.order("order")
        assert world.verify().ok
        yield world


def named(world: World) -> str:
    report = world.verify()
    assert not report.ok
    return str(report.problems[0])


# -- messages and owners


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("UPDATE message SET body = replace(body, 'deploy', 'delete') WHERE seq = 1", "changed"),
        ("UPDATE message SET run = 'r' WHERE seq = 2", "changed"),
        ("DELETE FROM message WHERE thread = 'chat' AND seq = 2", "missing"),
        ("DELETE FROM message WHERE thread = 'chat' AND seq = 4", "missing"),
        ("DELETE FROM message WHERE thread = 'chat'", "missing"),
        ("UPDATE message SET thread = 'paused' WHERE thread = 'chat' AND seq = 4", "missing"),
        ("UPDATE message SET seq = 9 WHERE thread = 'chat' AND seq = 4", "missing"),
        ("INSERT INTO message SELECT * FROM (SELECT * FROM message WHERE seq = 1)", ""),
        ("UPDATE thread SET messages = 3 WHERE id = 'chat'", ""),
    ],
)
def test_rewritten_conversation_is_named(spoken: World, change: str, what: str) -> None:
    if change.startswith("INSERT"):
        row = dict(zip(*_row(spoken, "message", "thread = 'chat' AND seq = 1"), strict=True))
        row["seq"] = 5
        marks = ", ".join("?" * len(row))
        spoken.sql(f"INSERT INTO message ({', '.join(row)}) VALUES ({marks})", *row.values())
    else:
        spoken.sql(change)
    assert what in named(spoken)


def _row(world: World, table: str, where: str) -> tuple[list[str], list[Any]]:
    names = [row[1] for row in world.sql(f"PRAGMA table_info({table})")]
    (row,) = world.sql(f"SELECT {', '.join(names)} FROM {table} WHERE {where}")
    return names, list(row)


@pytest.mark.parametrize("thread", ["chat", "paused"])
def test_another_owner_is_named(spoken: World, thread: str) -> None:
    spoken.sql("UPDATE thread SET owner = 'eve' WHERE id = ?", thread)
    assert thread in named(spoken)


# -- runs


@pytest.mark.parametrize(
    ("thread", "change"),
    [
        *itertools.product(("chat", "paused", "order"), ["agent = 'x'", "agent_digest = 'x'"]),
        *itertools.product(("chat", "paused", "order"), ["requester = 'eve'", "parent_call = 'x'"]),
        *itertools.product(("chat", "paused", "order"), ["created = 1", "thread = 'x'"]),
        *itertools.product(("chat", "paused", "order"), ["stop = 'x'", "output = 'x'"]),
        *itertools.product(("chat", "paused", "order"), ["snapshot = 'x'", "id = 'x'"]),
        *itertools.product(("chat", "paused", "order"), ["asked = 7", "ready = 7", "running = 7"]),
        *itertools.product(("chat", "order"), ["status = 'failed'", "status = 'running'"]),
        *itertools.product(("chat", "order"), ["owner = 'x'", "ready_at = 1", "token = 0"]),
        ("paused", "status = 'done'"),
        ("paused", "status = 'cancelled'"),
    ],
)
def test_changed_run_is_named(spoken: World, thread: str, change: str) -> None:
    if thread == "order" and change == "token = 0":
        spoken.sql("UPDATE run SET token = 5 WHERE thread = 'order'")
    spoken.sql(f"UPDATE run SET {change} WHERE thread = ?", thread)
    assert not spoken.verify().ok


def test_missing_or_invented_run_is_named(spoken: World) -> None:
    spoken.sql("DELETE FROM run WHERE thread = 'order'")
    assert "run order is missing from the table" in named(spoken)
    names, row = _row(spoken, "run", "thread = 'chat'")
    forged = dict(zip(names, row, strict=True)) | {"id": "forged", "thread": "order"}
    marks = ", ".join("?" * len(forged))
    spoken.sql(f"INSERT INTO run ({', '.join(forged)}) VALUES ({marks})", *forged.values())
    assert any("no event started it" in str(problem) for problem in spoken.verify().problems)


# -- moves


def test_reopening_is_legal(spoken: World) -> None:
    spoken.store.transact(Reopen(thread="order", run="order", by="ana"))
    assert spoken.verify().ok
    with spoken.gate.run("order"):
        spoken.send("ana@example.com")
    assert spoken.verify().ok


@pytest.fixture
def forged(tmp_path: Path) -> Iterator[World]:
    """With plain links, anyone can extend a chain that no seal covers yet."""
    with opened(World(tmp_path, SERVER_KEY)) as world:
        world.order("order")
        yield world


@pytest.mark.parametrize(
    "type",
    [
        *("asked", "allowed", "denied", "claimed", "lease_released", "woken"),
        *("finished", "started", "released", "joined", "deferred"),
    ],
)
def test_events_after_run_end_are_reported(forged: World, type: str) -> None:
    first, *_, last = forged.events("order")
    assert last.type == "finished"
    event = first._replace(type=type, call="req_other" if type in ("asked", "allowed") else "")
    forged.rewrite("order", plain, extra=(edited(event, writes={}),))
    found = [str(problem) for problem in forged.verify().problems]
    assert any("row 6" in problem for problem in found), found


def test_late_events_may_follow_the_end(forged: World) -> None:
    call = next(event.call for event in forged.events("order") if event.call)
    late = {"call": call, "token": 99, "attempt": 99, "ok": True, "result": "1"}
    forged.store.transact(Record(thread="order", run="order", **late))
    forged.store.transact(Note(thread="order", type="broke", actor="worker", run="order"))
    assert [event.type for event in forged.events("order")][-3:] == ["finished", "late", "broke"]
    assert forged.verify().ok


def test_table_of_moves_has_one_way_back() -> None:
    """The check relies on this: only a done or failed run can be reopened."""
    ended = {status for status in RUN_MOVES if status not in LIVE}
    back = {status for status in ended if RUN_MOVES[status]}
    assert back == {RunStatus.DONE, RunStatus.FAILED}
    assert all([*RUN_MOVES[status]] == [RunStatus.RUNNING] for status in back)


# -- events that the engine would not have written


NOW = 1_000_000
DECIDED = {
    "decision": "approve",
    "channel": "cli",
    "assurance": "token",
    "digest": "d",
    "signature": "s",
    "message": "",
    "value": None,
}
HELD = Decided(
    type="approve",
    by="ana",
    at=NOW,
    channel="cli",
    assurance="token",
    digest="d",
    signature="s",
    not_before=NOW + 5,
)
ASKED = {"status": CallStatus.ASKED, "digest": "d"}
DOUBT = {"status": CallStatus.IN_DOUBT, "attempt": 1, "doubt": Doubt(NOW, ended=True)}
SETTLED = {"attempt": 1, "answer": "ran", "said": ""}


@pytest.mark.parametrize(
    ("before", "type", "body", "message"),
    [
        ({}, "voted", DECIDED, "for a call that was never made"),
        (ASKED, "renamed", {}, "there is no event 'renamed'"),
        (ASKED, "reminded", {}, "before the time or twice"),
        ({**ASKED, "reminds": NOW + 1}, "reminded", {}, "before the time or twice"),
        (ASKED, "escalated", {}, "before the time or twice"),
        ({**ASKED, "escalates": NOW + 1}, "escalated", {}, "before the time or twice"),
        (ASKED, "reviewed", {"digest": "other"}, "reviewed it twice, or something else"),
        ({**ASKED, "opinion": ("ask", "", "d")}, "reviewed", {"digest": "d"}, "reviewed it twice"),
        (ASKED, "held", {**DECIDED, "not_before": NOW}, "a decision was held that"),
        ({**ASKED, "decision": HELD}, "held", {**DECIDED, "not_before": NOW + 9}, "was held that"),
        (ASKED, "undone", {}, "no decision that could be undone"),
        ({**ASKED, "decision": replace(HELD, not_before=NOW)}, "undone", {}, "could be undone"),
        (ASKED, "decided", {**DECIDED, "not_before": NOW + 1}, "it takes effect later"),
        ({**ASKED, "decision": HELD}, "decided", DECIDED, "another decision was held"),
        (
            {"status": CallStatus.RELEASED, "result": "1"},
            "reported",
            {"result": "2"},
            "a result was reported twice",
        ),
        ({**DOUBT, "attempt": 2}, "attempt_ended", {"attempt": 1}, "another attempt was in doubt"),
        (DOUBT, "settled", {**SETTLED, "attempt": 2}, "asked about another attempt"),
        (DOUBT, "settled", {**SETTLED, "answer": "maybe"}, "asked about another attempt"),
        (
            {**DOUBT, "doubt": Doubt(NOW + 1, ended=True)},
            "settled",
            SETTLED,
            "asked again, or too early",
        ),
        (
            {**DOUBT, "doubt": Doubt(NOW, "ran", ended=True)},
            "settled",
            SETTLED,
            "asked again, or too early",
        ),
    ],
)
def test_impossible_event_is_named(
    before: dict[str, Any], type: str, body: dict[str, Any], message: str
) -> None:
    event = Event("t", 2, NOW, type, "ana", None, "", "", "r", "c", 2)
    expected = ExpectedCall("c", "t", **before)
    with pytest.raises(ImpossibleEvent, match=message):
        expected.apply(event, body, Keyring.parse(KEY))


@pytest.mark.parametrize(
    ("writes", "message"),
    [
        ({"owner": "eve"}, "belongs to dora and gets another owner"),
        ({"messages": [1, 2, "x"]}, "message 1 cannot follow message 1"),
        ({"messages": [3, 4, "x"]}, "message 3 cannot follow message 1"),
    ],
)
def test_impossible_conversation_is_named(writes: dict[str, Any], message: str) -> None:
    conversation = ExpectedConversation()
    event = Event("t", 1, NOW, "asked", "bot", None, "", "", "r", "c", 1)
    conversation.apply(event, {"writes": {"owner": "dora", "messages": [1, 1, "x"]}})
    with pytest.raises(ImpossibleEvent, match=message):
        conversation.apply(event, {"writes": writes})
