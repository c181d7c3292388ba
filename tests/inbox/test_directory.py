"""People, their credentials, and what ends when a right is taken away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from sayso import Gate, Inbox, NotAllowed, Paused, Request, Reviewer
from sayso.audit import verify
from sayso.engine.people import MOST_SESSIONS, credential_bytes, rights_of
from sayso.errors import Conflict, Unauthenticated
from sayso.inbox import (
    add_person,
    authenticate,
    change_person,
    create_token,
    directory,
    end_sessions,
    remove_person,
    revoke_token,
    set_stand_in,
)
from sayso.inbox.accounts import new_code
from sayso.inbox.directory import (
    IDLE_SECONDS,
    Identified,
    add_passkey,
    end_provider_sessions,
    new_link,
    note_use,
    sign_in,
    sign_in_as,
    sign_out,
)
from sayso.inbox.people import authenticate_session, token_hash
from sayso.rows import Confirmation, Credential, Proven
from sayso.stores import open_store
from sayso.stores.base import Store
from sayso.stores.memory import MemoryStore
from sayso.testing import FakeClock, person
from sayso.types import SECOND


@pytest.fixture
def store() -> Iterator[Store]:
    with closing(open_store("memory://")) as opened:
        yield opened


def asked(store: Store, *, run: str = "r", requester: str = "", **options: Any) -> Request:
    gate = Gate(store, agent="bot", wait=0)

    @gate.guard(needs_approval=True, **options)
    def pay(to: str) -> str:
        return to

    with pytest.raises(Paused) as caught, gate.run(run, requester=requester):
        pay("bo")
    (request,) = caught.value.requests
    return request


def decide(store: Store, request: Request, by: Any, kind: str = "approve") -> Request:
    request = Inbox(store).get_sync(request.id)
    decision = request.approve() if kind == "approve" else request.reject("no")
    return Inbox(store).decide_sync(request.id, decision, by=by)


# -- names


@pytest.mark.parametrize("name", ["ANA", "ana", "\uff21\uff2e\uff21"])
def test_lookalike_name_is_refused(store: Store, name: str) -> None:
    add_person(store, "ana", by="ops")
    with pytest.raises(Conflict):
        add_person(store, name, by="ops")


def test_lookalike_name_in_other_script_is_refused(store: Store) -> None:
    add_person(store, "\u0441\u043e\u0441\u043e", by="ops")  # all of it Cyrillic
    with pytest.raises(Conflict):
        add_person(store, "coco", by="ops")


@pytest.mark.parametrize("name", ["\u0430n\u0430", "\u0391na"])
def test_name_of_mixed_letters_is_refused(store: Store, name: str) -> None:
    with pytest.raises(NotAllowed, match="mixes"):
        add_person(store, name, by="ops")


def test_lookalike_made_in_code_cannot_decide(store: Store) -> None:
    add_person(store, "ana", by="ops")
    with pytest.raises(NotAllowed, match="looks like 'ana'"):
        decide(store, asked(store), "\u0430na")


def test_removed_name_needs_restore(store: Store) -> None:
    token, _ = create_token(store, "ana", by="ops", groups=("finance",))
    remove_person(store, "ana", by="ops")
    with pytest.raises(Conflict, match="--restore"):
        create_token(store, "ana", by="ops")
    restored = add_person(store, "ana", by="ops", restore=True)
    assert restored.groups == ()
    with pytest.raises(Unauthenticated):
        authenticate(store, token)
    assert verify(store).ok


@pytest.mark.parametrize(
    ("options", "command"),
    [
        ({"groups": ("ops",)}, "--add ops --remove finance"),
        ({"role": "admin"}, "sayso people role ana admin"),
    ],
)
def test_token_changes_no_rights(store: Store, options: dict[str, Any], command: str) -> None:
    create_token(store, "ana", by="ops", groups=("finance",))
    with pytest.raises(NotAllowed, match=command):
        create_token(store, "ana", by="ops", **options)


def test_role_is_a_known_one(store: Store) -> None:
    with pytest.raises(NotAllowed, match="role 'boss': use one of"):
        add_person(store, "ana", by="ops", role="boss")
    add_person(store, "ana", by="ops")
    with pytest.raises(NotAllowed, match="role 'boss': use one of"):
        change_person(store, "ana", by="ops", role="boss")


def test_agent_never_becomes_a_person(store: Store) -> None:
    add_person(store, "bot", by="ops", role="agent")
    add_person(store, "ana", by="ops")
    for name, role in (("bot", "reviewer"), ("ana", "agent")):
        with pytest.raises(NotAllowed, match="an agent or a person for good"):
            change_person(store, name, by="ops", role=role)


def test_secret_of_a_link_or_code_is_no_token(store: Store) -> None:
    ana = person(store, "ana")
    row = store.person("ana")
    for secret, message in (
        (new_link(store, "ana"), "open the link in a browser"),
        (new_code(store, ana, "telegram"), "send it to the bot"),
    ):
        with pytest.raises(Unauthenticated):
            authenticate(store, secret)
        credential = store.credential(token_hash(secret))
        assert credential is not None
        by = Proven("ana", proof=credential.hash)
        with pytest.raises(Unauthenticated, match=message):
            rights_of(by, row, credential, None, (), store.now(), store.keys.verify)


def test_only_people_get_codes_and_passkeys(store: Store) -> None:
    add_person(store, "bot", by="ops", role="agent")
    for by in (Reviewer("ghost"), Reviewer("bot", role="agent")):
        with pytest.raises(NotAllowed):
            new_code(store, by, "telegram")
        with pytest.raises(NotAllowed, match="is no person of this store"):
            add_passkey(store, by, "key", "")
    assert store.credentials() == []


def test_row_of_a_person_counts_only_with_the_stores_key(store: Store) -> None:
    """Whoever holds the row key alone can write rows, and give nobody rights."""
    ana = person(store, "ana", role="admin")
    row = store.person("ana")
    assert row is not None
    forged = row._replace(groups=("finance",))
    with pytest.raises(Unauthenticated, match="not made with this store's key"):
        rights_of(ana, forged, None, None, (), store.now(), store.keys.verify)
    assert rights_of(Reviewer("ana"), row, None, None, (), 0, store.keys.verify).role == "admin"


@pytest.mark.parametrize(
    "change",
    [
        {"person": "eve"},
        {"public_key": "another"},
        {"kind": "token"},
        {"revoked": 1},
        {"created": -1},
        {"signature": "none"},
    ],
)
def test_passkey_confirms_only_for_its_person(store: Store, change: dict[str, Any]) -> None:
    ana = person(store, "ana")
    row = store.person("ana")
    assert row is not None
    passkey = add_passkey(store, ana, "key", "public")
    confirmation = Confirmation(passkey.hash, "public", {})
    confirmed = replace(ana, proof="", confirmation=confirmation)

    def rights(passkey: Credential | None) -> Proven:
        return rights_of(confirmed, row, None, passkey, (), store.now(), store.keys.verify)

    assert rights(passkey).assurance == "passkey"
    changed = passkey._replace(**change)
    if "signature" not in change:
        changed = changed._replace(signature=store.keys.sign(credential_bytes(changed)))
    for other in (None, changed):
        with pytest.raises(Unauthenticated, match="this passkey is unknown or revoked"):
            rights(other)


# -- taking away


def test_moved_person_loses_group_in_open_session(store: Store) -> None:
    add_person(store, "ana", by="ops", groups=("finance",))
    session = authenticate_session(store, sign_in(store, new_link(store, "ana")))
    request = asked(store, reviewers="group:finance")
    change_person(store, "ana", by="ops", add_groups=("ops",), remove_groups=("finance",))
    with pytest.raises(NotAllowed, match="group:finance"):
        decide(store, request, session)


def test_removal_ends_credentials_grants_and_votes(store: Store) -> None:
    token, row = create_token(store, "ana", by="ops")
    session = sign_in(store, token)
    inbox = Inbox(store)
    standing = asked(store, run="r0")
    ana = authenticate(store, token)
    granting = standing.approve()
    inbox.decide_sync(standing.id, granting, by=ana, grant={"scope": "any", "ends_in": 300 * 86400})
    voted = asked(store, run="r1", quorum=2)
    decide(store, voted, ana)
    ended = remove_person(store, "ana", by="ops", ask_again=True)
    assert {c.id for c in ended.credentials} >= {row.id}
    assert len(ended.credentials) == 2
    assert [grant.by for grant in ended.grants] == ["ana"]
    assert [call.id for call in ended.votes] == [voted.id]
    assert [call.id for call in ended.approved] == [standing.id]
    assert inbox.get_sync(standing.id).status == "pending"
    assert inbox.get_sync(voted.id).votes == ()
    assert inbox.get_sync(asked(store, run="r2").id).status == "pending"
    for secret, use in ((token, authenticate), (session, authenticate_session)):
        with pytest.raises(Unauthenticated):
            use(store, secret)
    with pytest.raises(NotAllowed, match="removed"):
        decide(store, voted, "ana")
    assert verify(store).ok


def test_vote_of_removed_person_does_not_count(store: Store) -> None:
    request = asked(store, quorum=2)
    decide(store, request, person(store, "ana"))
    remove_person(store, "ana", by="ops")
    assert decide(store, request, person(store, "bo")).status == "pending"
    done = decide(store, request, person(store, "cy"))
    assert (done.status, [vote.by for vote in done.votes]) == ("approved", ["bo", "cy"])
    assert verify(store).ok


def test_vote_of_demoted_person_does_not_count(store: Store) -> None:
    request = asked(store, quorum=2)
    decide(store, request, person(store, "ana"))
    ended = change_person(store, "ana", by="ops", role="chat")
    assert [call.id for call in ended.votes] == [request.id]
    assert decide(store, request, person(store, "bo")).status == "pending"
    assert verify(store).ok


def test_lost_group_revokes_its_grants(store: Store) -> None:
    ana = person(store, "ana", "finance")
    request = asked(store, reviewers="group:finance")
    Inbox(store).decide_sync(request.id, request.approve(), by=ana, grant={"scope": "any"})
    ended = change_person(store, "ana", by="ops", remove_groups=("finance",))
    assert [grant.by for grant in ended.grants] == ["ana"]


def test_revoked_token_ends_its_sessions(store: Store) -> None:
    token, row = create_token(store, "ana", by="ops")
    session = sign_in(store, token)
    assert len(revoke_token(store, row.id, by="ops")) == 2
    with pytest.raises(Unauthenticated):
        authenticate_session(store, session)


def test_sign_out_everywhere_keeps_tokens(store: Store) -> None:
    token, _ = create_token(store, "ana", by="ops")
    sessions = [sign_in(store, token) for _ in range(3)]
    assert len(end_sessions(store, "ana", by="ops")) == 3
    for session in sessions:
        with pytest.raises(Unauthenticated):
            authenticate_session(store, session)
    assert authenticate(store, token).name == "ana"


def test_reviewer_changes_no_rights(store: Store) -> None:
    ana = person(store, "ana")
    for change in (
        lambda: add_person(store, "eve", by=ana),
        lambda: change_person(store, "ana", by=ana, role="admin"),
        lambda: remove_person(store, "ana", by=ana),
        lambda: create_token(store, "ana", by=ana),
    ):
        with pytest.raises(NotAllowed, match="admin"):
            change()


def test_second_of_two_admins_is_removed_by_first(store: Store) -> None:
    ana, bo = person(store, "ana", role="admin"), person(store, "bo", role="admin")
    remove_person(store, "bo", by=ana)
    with pytest.raises(NotAllowed):
        remove_person(store, "ana", by=bo)
    assert store.person("ana").active


# -- sessions


def test_session_ends_when_idle_and_in_any_case() -> None:
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    secret = sign_in(store, new_link(store, "ana"))
    ana = authenticate_session(store, secret)
    clock.advance(IDLE_SECONDS - 0.000_001)
    note_use(store, ana)
    clock.advance(IDLE_SECONDS - 0.000_001)
    assert authenticate_session(store, secret) == ana
    clock.advance(0.000_001)
    with pytest.raises(Unauthenticated):
        authenticate_session(store, secret)
    secret = sign_in(store, new_link(store, "ana"))
    for _ in range(12):
        clock.advance(3600)
        used = authenticate_or_none(store, secret)
        if used is not None:
            note_use(store, used)
    assert authenticate_or_none(store, secret) is None


def authenticate_or_none(store: Store, secret: str) -> Any:
    try:
        return authenticate_session(store, secret)
    except Unauthenticated:
        return None


def test_sessions_are_limited_and_pruned() -> None:
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    token, _ = create_token(store, "ana", by="ops")
    first = sign_in(store, token)
    for _ in range(MOST_SESSIONS + 5):
        clock.advance(1)
        sign_in(store, token)
    live = [c for c in store.credentials("ana") if c.kind == "session" and c.live(clock())]
    assert len(live) == MOST_SESSIONS
    assert authenticate_or_none(store, first) is None
    clock.advance(13 * 3600)
    sign_in(store, token)
    assert len(store.credentials("ana")) == 2
    assert verify(store).ok


def test_provider_ends_every_session_of_a_subject(store: Store) -> None:
    ana = Identified(("https://idp", "5"), "ana")
    eve = Identified(("https://idp", "6"), "eve")
    secrets = [sign_in_as(store, who, signed_in=store.now()) for who in (ana, ana, eve)]
    end_provider_sessions(store, *ana.origin, session_id="")
    assert [authenticate_or_none(store, secret) is None for secret in secrets] == [
        *(True, True, False),
    ]


def test_sign_out_of_an_ended_session_does_nothing(store: Store) -> None:
    session = sign_in(store, new_link(store, "ana"))
    for _ in range(2):
        sign_out(store, session)
    assert authenticate_or_none(store, session) is None


def test_votes_on_every_page_of_requests_are_void(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "_PAGE", 2)
    ana = person(store, "ana")
    requests = [asked(store, run=f"r{n}", quorum=2) for n in range(5)]
    for request in requests:
        decide(store, request, ana)
    ended = remove_person(store, "ana", by="ops")
    assert {call.id for call in ended.votes} == {request.id for request in requests}
    assert not any(Inbox(store).get_sync(request.id).votes for request in requests)


# -- stand-ins


@pytest.fixture
def away(store: Store) -> Store:
    person(store, "ana", "finance")
    person(store, "ben")
    person(store, "cleo")
    set_stand_in(store, "ana", "ben", store.now() + 3600 * SECOND, by="ops")
    return store


def test_stand_in_decides_for_absent_person(away: Store) -> None:
    ben = person(away, "ben")
    done = decide(away, asked(away, reviewers="group:finance"), ben)
    assert done.decision is not None
    assert (done.decision.by, done.decision.on_behalf_of) == ("ben", "ana")
    assert verify(away).ok
    set_stand_in(away, "ana", "", None, by="ops")
    with pytest.raises(NotAllowed):
        decide(away, asked(away, run="r2", reviewers="group:finance"), ben)


@pytest.mark.parametrize(
    ("stand_in", "seconds", "message"),
    [
        ("ana", 60, "cannot decide for 'ana'"),
        ("bot", 60, "cannot decide for 'ana'"),
        ("ben", 0, "needs an end in the future"),
    ],
)
def test_unfit_stand_in_is_refused(store: Store, stand_in: str, seconds: int, message: str) -> None:
    for name, role in (("ana", "reviewer"), ("ben", "reviewer"), ("bot", "agent")):
        add_person(store, name, by="ops", role=role)
    with pytest.raises(NotAllowed, match=message):
        set_stand_in(store, "ana", stand_in, store.now() + seconds * SECOND, by="ops")


def test_stand_in_cannot_decide_their_own_request(away: Store) -> None:
    request = asked(away, reviewers="ana", requester="ben")
    with pytest.raises(NotAllowed):
        decide(away, request, person(away, "ben"))


def test_stand_in_is_not_transitive(away: Store) -> None:
    set_stand_in(away, "ben", "cleo", away.now() + 3600 * SECOND, by="ops")
    with pytest.raises(NotAllowed):
        decide(away, asked(away, reviewers="ana"), person(away, "cleo"))


def test_stand_in_adds_no_second_vote(away: Store) -> None:
    request = asked(away, reviewers=("ana", "cleo"), quorum=2)
    decide(away, request, person(away, "ben"))
    with pytest.raises(NotAllowed, match="ben voted for ana"):
        decide(away, request, person(away, "ana"))
    assert decide(away, request, person(away, "ben")).status == "pending"
    assert decide(away, request, person(away, "cleo")).status == "approved"


def test_stand_in_overturns_no_rejection(away: Store) -> None:
    decide(away, asked(away, reviewers="ana"), person(away, "ana"), "reject")
    again = asked(away, run="r2", reviewers="ana")
    with pytest.raises(NotAllowed, match="stand-in"):
        decide(away, again, person(away, "ben"))


def test_stand_in_gives_no_grant(away: Store) -> None:
    request = asked(away, reviewers="ana")
    ben = person(away, "ben")
    with pytest.raises(NotAllowed, match="outlast"):
        Inbox(away).decide_sync(request.id, request.approve(), by=ben, grant={"scope": "any"})
    assert away.grants() == []
    assert decide(away, request, ben).status == "approved"


def test_removed_person_has_no_stand_in(away: Store) -> None:
    remove_person(away, "ana", by="ops")
    with pytest.raises(NotAllowed):
        decide(away, asked(away, reviewers="ana"), person(away, "ben"))
