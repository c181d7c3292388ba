"""With Ed25519 keys anyone can compute hashes; seals and signatures protect them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from audit_world import (
    SERVER_KEY,
    World,
    edited,
    opened,
    places,
    plain,
)

from sayso.audit import verify
from sayso.keys import Keyring, public_key
from sayso.rows import Event
from sayso.stores.sqlite import SqliteStore


@pytest.fixture
def server(tmp_path: Path) -> Any:
    with opened(World(tmp_path, SERVER_KEY)) as made:
        made.order("order-1")
        made.ask("order-2")
        made.store.seal()
        assert made.verify().ok
        yield made


def test_recomputed_sealed_chain_is_named(server: World) -> None:
    server.rewrite("order-1", plain, lambda event: event._replace(actor="eve"))
    report = server.verify()
    assert ("order-1", 5) in places(report)
    assert any("seal 1 has another hash" in problem.what for problem in report.problems)


def test_oldest_unfitting_seal_is_named(server: World) -> None:
    request = server.inbox.pending_sync().items[0]
    server.approve(request)
    server.store.seal()
    server.rewrite("order-2", plain, lambda event: event._replace(at=event.at + 1))
    assert ("order-2", 1) in places(server.verify())


def test_forged_decision_is_named(server: World) -> None:
    asked = server.events("order-2")[0]
    body = edited(
        asked._replace(type="decided", actor="ana"),
        decision="approve",
        channel="python",
        assurance="code",
        message="",
        value=None,
        signature="x.y",
    )
    server.rewrite("order-2", plain, extra=(body,))
    report = server.verify()
    assert places(report)[0] == ("order-2", 2)
    assert "the signature of ana is not valid" in report.problems[0].what


def test_reused_signature_is_named(server: World) -> None:
    asked, decided = server.events("order-2")[0], server.events("order-1")[1]
    copied = decided._replace(run=asked.run, call=asked.call)
    server.rewrite("order-2", plain, extra=(copied,))
    report = server.verify()
    assert places(report)[0] == ("order-2", 2)
    assert "about something else" in report.problems[0].what


@pytest.mark.parametrize(
    ("type", "changes", "what"),
    [
        ("started", {}, "'started' cannot follow asked"),
        ("invented", {}, "there is no event 'invented'"),
        ("reasked", {"args": 1}, "cannot follow asked"),
        ("voted", {}, "not valid"),
    ],
)
def test_illegal_event_is_named(
    server: World, type: str, changes: dict[str, Any], what: str
) -> None:
    forged = edited(server.events("order-2")[0]._replace(type=type), **changes)
    server.rewrite("order-2", plain, extra=(forged,))
    report = server.verify()
    assert places(report)[0] == ("order-2", 2)
    assert what in report.problems[0].what


def test_start_with_other_digest_is_named(tmp_path: Path) -> None:
    with opened(World(tmp_path, SERVER_KEY)) as server:
        server.order("order-1")

        def change(event: Event) -> Event:
            return edited(event, digest="0" * 64) if event.type == "started" else event

        server.rewrite("order-1", plain, change)
        report = server.verify()
        assert places(report)[0] == ("order-1", 3)
        assert "something else was started" in report.problems[0].what


def test_events_after_call_end_are_reported(server: World) -> None:
    started = server.events("order-1")[2]
    server.rewrite("order-1", plain, extra=(started,))
    assert ("order-1", 6) in places(server.verify())


def test_event_of_unknown_call_is_named(server: World) -> None:
    late = server.events("order-1")[3]._replace(type="late", call="req_0")
    server.rewrite("order-1", plain, extra=(late,))
    report = server.verify()
    assert places(report)[0] == ("order-1", 6)
    assert "never made" in report.problems[0].what


def test_public_half_is_enough_to_verify(server: World) -> None:
    store = SqliteStore(server.path, keys=Keyring.parse(public_key(SERVER_KEY)))
    assert verify(store).ok
    store.close()
