"""Assurance comes from the way of sign-in and is never passed in; a name is one person."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from sayso import Gate, Inbox, InvalidDecision, NotAllowed, Paused, Policy, Request, Reviewer, Rule
from sayso.errors import InvalidPolicy
from sayso.inbox import add_person, change_person, create_token, os_user, revoke_token
from sayso.inbox.directory import new_link, sign_in, sign_out
from sayso.inbox.people import authenticate, authenticate_session
from sayso.stores import open_store
from sayso.stores.base import Store
from sayso.testing import person


@pytest.fixture
def store() -> Iterator[Store]:
    with closing(open_store("memory://")) as opened:
        yield opened


def wide(name: str) -> str:
    """The same letters, full width: they look alike, and NFKC makes them one."""
    return "".join(chr(ord(letter) + 0xFEE0) for letter in name)


def asked(store: Store, *, agent: str = "bot", requester: str = "", **options: Any) -> Request:
    """A request under these terms."""
    gate = Gate(store, agent=agent, wait=0)

    @gate.guard(needs_approval=True, **options)
    def pay(to: str) -> None: ...

    with pytest.raises(Paused) as caught, gate.run("r", requester=requester):
        pay("bo")
    (request,) = caught.value.requests
    return request


def decide(store: Store, request: Request, by: Any = None, **more: Any) -> Request:
    return Inbox(store).decide_sync(request.id, request.approve(), by=by, **more)


# -- assurance


@pytest.mark.parametrize("assurance", ["os-user", "token", "session"])
def test_reviewer_from_code_fills_no_quorum(store: Store, assurance: str) -> None:
    request = asked(store, quorum=2)
    for name in ("ana", "bob"):
        with pytest.raises(NotAllowed, match="assurance"):
            decide(store, request, Reviewer(name, assurance=assurance))
    assert Inbox(store).get_sync(request.id).status == "pending"


def test_reviewer_made_in_code_has_assurance_code(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "sayso.inbox"):
        done = decide(store, asked(store), Reviewer("ana", assurance="session"))
    assert done.decision is not None
    assert done.decision.assurance == "code"
    assert "counts as 'code'" in caplog.text


def test_copied_reviewer_fills_no_quorum(store: Store) -> None:
    ana = person(store, "ana")
    request = asked(store, quorum=2)
    decide(store, request, ana)
    # Whatever is written over a proven person, the row behind it says who it is.
    for forged in (replace(ana, name="bob"), replace(ana, assurance="session", name="bob")):
        assert [vote.by for vote in decide(store, request, forged).votes] == ["ana"]
    plain = Reviewer("bob", ana.groups, ana.assurance, ana.role)
    with pytest.raises(NotAllowed, match="assurance"):
        decide(store, request, plain)


def test_tokens_fill_a_quorum(store: Store) -> None:
    request = asked(store, quorum=2)
    token, _ = create_token(store, "ana", by="ops")
    assert decide(store, request, token=token).status == "pending"
    done = decide(store, request, person(store, "bob"))
    assert (done.status, [vote.assurance for vote in done.votes]) == ("approved", ["token"] * 2)


def test_proof_is_looked_at_again_with_each_decision(store: Store) -> None:
    token, row = create_token(store, "ana", by="ops")
    ana = authenticate(store, token)
    revoke_token(store, row.id, by="ops")
    with pytest.raises(NotAllowed, match="revoked"):
        decide(store, asked(store), ana)


def test_session_has_the_assurance_of_its_sign_in(store: Store) -> None:
    token, row = create_token(store, "ana", by="ops")
    pasted = sign_in(store, token)
    linked = sign_in(store, new_link(store, "bob"))
    ana, bob = (authenticate_session(store, secret) for secret in (pasted, linked))
    assert (ana.assurance, bob.assurance) == ("token", "session")
    request = asked(store, assurance="session")
    with pytest.raises(NotAllowed, match="needs a decision with assurance 'session'"):
        decide(store, request, ana)
    revoke_token(store, row.id, by="ops")
    with pytest.raises(NotAllowed, match="ended"):
        decide(store, request, ana)
    sign_out(store, linked)
    with pytest.raises(NotAllowed):
        decide(store, request, bob)
    assert Inbox(store).get_sync(request.id).status == "pending"


def test_session_or_a_link_is_no_token(store: Store) -> None:
    link = new_link(store, "ana")
    session = sign_in(store, new_link(store, "ana"))
    for secret in (link, session):
        with pytest.raises(NotAllowed, match="token"):
            decide(store, asked(store), token=secret)


def test_os_user_is_the_user_of_the_process(store: Store) -> None:
    me = os_user()
    done = decide(store, asked(store, assurance="os-user"), replace(me, name="ana"))
    assert done.decision is not None
    assert (done.decision.by, done.decision.assurance) == (me.name, "os-user")


def test_os_user_without_a_name_has_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    assert os_user().name == "uid:4000000000"


# -- groups and roles


def test_code_cannot_widen_stored_groups(store: Store) -> None:
    create_token(store, "ana", by="ops", groups=("ops",))
    request = asked(store, reviewers="group:finance")
    with pytest.raises(NotAllowed, match="group:finance"):
        decide(store, request, Reviewer("ana", groups=("finance",)))
    with pytest.raises(NotAllowed, match="group:finance"):
        decide(store, request, replace(person(store, "ana"), groups=("finance",)))
    change_person(store, "ana", by="ops", add_groups=("finance",))
    assert decide(store, request, "ana").status == "approved"


def test_unknown_person_decides_with_assurance_code(store: Store) -> None:
    request = asked(store, reviewers="group:finance")
    done = decide(store, request, Reviewer("zoe", groups=("finance",)))
    assert done.decision is not None
    assert (done.status, done.decision.assurance) == ("approved", "code")


def test_group_name_cannot_decide(store: Store) -> None:
    request = asked(store, reviewers="group:finance")
    with pytest.raises(InvalidDecision, match="group"):
        decide(store, request, "group:finance")


# -- agents


def test_name_of_the_asking_agent_cannot_decide(store: Store) -> None:
    request = asked(store, agent="mailer")
    for by in ("mailer", wide("mailer"), Reviewer("mailer"), person(store, "mailer")):
        with pytest.raises(NotAllowed, match="agent"):
            decide(store, request, by)
    odd = asked(store, agent="mai\u200bler", requester="x")
    with pytest.raises(NotAllowed, match="agent"):
        decide(store, odd, "mailer")


def test_name_of_any_agent_cannot_decide(store: Store) -> None:
    request = asked(store)
    create_token(store, "robot", by="ops", role="agent")
    for by in ("robot", Reviewer("robot", role="admin"), person(store, "ana", role="agent")):
        with pytest.raises(NotAllowed, match="agent"):
            decide(store, request, by)


@pytest.mark.parametrize(("first", "second"), [("agent", "reviewer"), ("chat", "agent")])
def test_name_is_an_agents_or_a_persons(store: Store, first: str, second: str) -> None:
    _, row = create_token(store, "robin", by="ops", role=first)
    with pytest.raises(NotAllowed, match="robin"):
        create_token(store, wide("robin"), by="ops", role=second)
    revoke_token(store, row.id, by="ops")
    with pytest.raises(NotAllowed, match="robin"):
        create_token(store, "robin", by="ops", role=second)


# -- names


ALIKE = ["ana", wide("ana"), "\U0001d41a\U0001d427\U0001d41a"]
PADDED = [" ana ", "ana\u00a0", "\tana\n"]
HIDDEN = ["ana\u200b", "a\u00adna", "\u202eana", "ana\x00", "ana\n\x07", "a\u3164na", "ana\ufe0f"]


def test_spellings_of_a_name_are_one_vote(store: Store) -> None:
    request = asked(store, quorum=2)
    for name in ALIKE + PADDED:
        token, row = create_token(store, name, by="ops")
        assert row.person == "ana"
        assert decide(store, request, token=token).status == "pending"
    assert len(Inbox(store).get_sync(request.id).votes) == 1


@pytest.mark.parametrize("name", HIDDEN, ids=ascii)
def test_name_with_hidden_characters_is_refused(store: Store, name: str) -> None:
    request = asked(store)
    with pytest.raises(NotAllowed, match="U\\+"):
        create_token(store, name, by="ops")
    with pytest.raises(InvalidDecision, match="U\\+"):
        decide(store, request, name)
    with pytest.raises(ValueError, match="U\\+"):
        Reviewer(name)
    with pytest.raises(InvalidPolicy, match="U\\+"):
        Rule(reviewers=(name, "bo"))
    with pytest.raises(InvalidDecision, match="U\\+"):
        Inbox(store).cancel_sync(request.id, by=name)
    assert Inbox(store).get_sync(request.id).status == "pending"
    assert store.people() == store.credentials() == []


@pytest.mark.parametrize("name", ["engine", "clock", "policy", "policy:x", "agent:bot", "worker:1"])
def test_internal_actor_name_cannot_decide(store: Store, name: str) -> None:
    with pytest.raises(InvalidDecision, match="not a person"):
        decide(store, asked(store), name)


@pytest.mark.parametrize("name", ALIKE + PADDED + HIDDEN, ids=ascii)
def test_requester_cannot_decide_under_a_lookalike_name(store: Store, name: str) -> None:
    request = asked(store, requester=name, requester_decides=False)
    with pytest.raises(NotAllowed, match="ana asked for"):
        decide(store, request, "ana")
    with pytest.raises(NotAllowed, match="ana asked for"):
        decide(store, request, person(store, "ana"))


@pytest.mark.parametrize("name", ALIKE, ids=ascii)
def test_rule_matches_any_spelling_of_a_name(store: Store, name: str) -> None:
    (rule,) = Policy([Rule(reviewers=(name, f"group:{wide('fin')}"))]).rules
    assert rule.reviewers == ("ana", "group:fin")
    assert add_person(store, "zoe", by="ops", groups=(wide("fin"),)).groups == ("fin",)
    assert decide(store, asked(store, reviewers=name), "ana").status == "approved"


def test_reviewers_of_a_quorum_are_different_people() -> None:
    with pytest.raises(InvalidPolicy, match="only 1 reviewers"):
        Rule(reviewers=("ana", wide("ana")), quorum=2)
