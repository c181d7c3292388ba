"""The prompt while others decide too, and several requests in one prompt."""

from __future__ import annotations

import re
import threading

import pexpect
import pytest
from cli_world import World

from sayso import Inbox, Reviewer, testing


def test_decision_made_elsewhere_closes_the_prompt(world: World) -> None:
    request = world.mail()
    person = world.person("approve", request)
    person.sees("uit > ")
    inbox = Inbox(world.url)
    inbox.decide_sync(request, world.get(request).reject("no way"), by=Reviewer("Ben"))
    inbox.close()
    assert "Decided by Ben (python)" in person.ends(5)


@pytest.mark.long
def test_edit_elsewhere_is_shown_first(world: World) -> None:
    request = world.mail(quorum=2)
    person = world.person("approve", request, SAYSO_TOKEN=world.token("ana"))
    person.sees("uit > ")
    inbox = Inbox(world.url)
    edit = world.get(request).edit({"to": "eve@example.com"})
    inbox.decide_sync(request, edit, by=testing.person(inbox.store, "Ben"))
    inbox.close()
    card = person.at_prompt("a")
    assert re.search(r"\+ to: +eve@example.com", card)
    assert "1 of 2 people: Ben" in card
    assert "Approved." in person.ends(0)
    assert world.get(request).args["to"] == "eve@example.com"


@pytest.mark.long
def test_expiry_closes_the_prompt(world: World) -> None:
    request = world.mail(expires_in=10)
    person = world.person("approve", request)
    person.sees("uit > ")
    assert "is expired" in person.ends(7)
    assert world.get(request).status == "expired"


def test_non_reviewer_is_refused(world: World) -> None:
    request = world.mail(reviewers=("somebody-else",))
    person = world.person("approve", request)
    person.at_prompt("a")
    assert "may not decide" in person.ends(6)
    assert world.get(request).status == "pending"


@pytest.mark.long
def test_one_of_two_deciders_wins(world: World) -> None:
    request = world.mail()
    people = [world.person("approve", request) for _ in range(2)]
    for person in people:
        person.sees("uit > ")
    threads = [threading.Thread(target=person.types, args=("a",)) for person in people]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # The same user twice: the slower one hears an echo, or that it is closed.
    codes = []
    for person in people:
        person.process.expect(pexpect.EOF)
        person.process.close()
        codes.append(person.process.exitstatus)
    assert set(codes) <= {0, 5}
    assert 0 in codes
    inbox = Inbox(world.url)
    decided = [event for event in inbox.events_sync(request) if event.type == "decided"]
    inbox.close()
    assert len(decided) == 1


# -- several


@pytest.mark.long
def test_walk_through_the_inbox(world: World) -> None:
    first, second, third = (world.mail(f"r{n}", to=f"{n}@example.com") for n in range(3))
    person = world.person("inbox", "--decide", rows=60)
    person.at_prompt("w", "to quit > ")
    person.at_prompt("a")
    person.at_prompt("s")
    person.at_prompt("q")
    person.ends(75)
    statuses = [world.get(request).status for request in (first, second, third)]
    assert statuses == ["approved", "pending", "pending"]
    person = world.person("inbox", "--decide", rows=60)
    person.at_prompt("7", "to quit > ")
    person.at_prompt("2", "to quit > ")
    person.at_prompt("a")
    person.at_prompt("q", "to quit > ")
    person.ends(0)
    assert world.get(third).status == "approved"


@pytest.mark.long
def test_several_requests_are_decided_after_showing(world: World) -> None:
    requests = [world.mail(f"r{n}", to=f"{n}@example.com") for n in range(4)]
    person = world.person("inbox", "--decide", rows=100)
    person.at_prompt("1,3-4 a", "to quit > ")
    shown = person.at_prompt("a", r"or Enter to go back: ")
    assert "0@example.com" in shown
    assert "2@example.com" in shown
    person.at_prompt("1,3-4 a", "to quit > ")
    person.at_prompt("3", r"or Enter to go back: ")
    person.at_prompt("1 r", "to quit > ")
    person.at_prompt("1", r"or Enter to go back: ")
    person.at_prompt("no", r"Enter for none\): ")
    assert "No pending requests." in person.ends(0)
    statuses = [world.get(request).status for request in requests]
    assert statuses == ["approved", "rejected", "approved", "approved"]


def test_bulk_excludes_high_risk_requests(world: World) -> None:
    world.mail("r1", risk="high")
    world.mail("r2")
    world.ask("r3", lambda gate: gate.confirm_sync("Publish?"))
    person = world.person("inbox", "--decide", rows=100)
    person.at_prompt("1-2 a", "to quit > ")
    person.at_prompt("2-3 a", "to quit > ")
    person.at_prompt("2", r"or Enter to go back: ")
    person.at_prompt("q", "to quit > ")
    screen = person.ends(0)
    assert "is high risk" in screen
    assert "of one agent, tool and kind" in screen
    assert world.json("history")["items"] == []
