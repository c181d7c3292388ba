"""Who decides and who may see: rights, assurance, and visibility.

Every door asks here who somebody is (``reviewer_of``), and whether they may read about a call:
pages, the feed, the audit log and chats. The rights are what ``engine.people.rights_of`` says.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pwd
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sayso.engine.deciding import check_reviewer
from sayso.engine.effects import is_remote
from sayso.engine.people import BAD_TOKEN, PROCESS, SESSION_ENDED, own_names, rights_of
from sayso.errors import InvalidDecision, NotAllowed, NotFound, Unauthenticated
from sayso.rows import Call, Proven, Run
from sayso.stores.base import Query, Store, Viewer
from sayso.types import EarlierRejection, Request, Reviewer, plain_name, requester_name
from sayso.views import is_request

log = logging.getLogger("sayso.inbox")

#: Shown in place of text that may describe a call meant for other reviewers.
HIDDEN_TEXT = "(hidden: this may describe a call for other reviewers)"


# -- who decides


def token_hash(token: str) -> str:
    """Return the hash under which a token is stored. Tokens are random, so no salt is needed."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def rights(store: Store, by: Reviewer) -> Proven:
    """Return who this is, with the rights that they have now. Raise ``Unauthenticated``.

    A decision reads the same rows again in the transaction that records it.
    """
    proof = by.proof if isinstance(by, Proven) else ""
    credential = store.credential(proof) if proof not in ("", PROCESS) else None
    name = by.name if credential is None else credential.person
    confirmation = by.confirmation if isinstance(by, Proven) else None
    passkey = None if confirmation is None else store.credential(confirmation.hash)
    person, absent = store.actor(name)
    verify = store.keys.verify
    return rights_of(by, person, credential, passkey, absent, store.now(), verify)


def authenticate(store: Store, token: str) -> Proven:
    """Return the reviewer a token belongs to. Raise ``Unauthenticated`` if it is not valid."""
    return _presented(store, token, "token")


def authenticate_session(store: Store, secret: str) -> Proven:
    """Return the reviewer a session belongs to. Raise ``Unauthenticated`` if it has ended."""
    return _presented(store, secret, "session")


def _presented(store: Store, secret: str, kind: str) -> Proven:
    credential = store.credential(token_hash(secret))
    if credential is None or credential.kind != kind:
        raise Unauthenticated(SESSION_ENDED if kind == "session" else BAD_TOKEN)
    return rights(store, Proven(credential.person, proof=credential.hash))


def os_user() -> Proven:
    """Return the user that runs this process, as the system reports it; ``$USER`` is ignored."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = f"uid:{os.getuid()}"
    return Proven(name, assurance="os-user", proof=PROCESS)


def reviewer_of(store: Store, by: object, token: str | None) -> Proven:
    """Return the reviewer for a decision: authenticated by ``token`` or named in ``by``."""
    if token is not None:
        return authenticate(store, token)
    if isinstance(by, Proven):
        return rights(store, os_user() if by.proof == PROCESS else by)
    if isinstance(by, Reviewer):
        if by.assurance != "code":
            log.warning(
                "Reviewer(%r, assurance=%r) was created in code, so it counts as 'code': pass "
                "token= to authenticate the reviewer",
                by.name,
                by.assurance,
            )
        return rights(store, by)
    return rights(store, reviewer_named(by))


def reviewer_named(by: object) -> Reviewer:
    """Return a reviewer of whom only the name is given."""
    if not isinstance(by, str) or not by.strip():
        raise InvalidDecision("say who decides: by='ana', or token=...", "by")
    try:
        return Reviewer(by)
    except ValueError as error:
        raise InvalidDecision(f"by: {error}", "by") from None


def may_decide(store: Store, by: Reviewer, call: Call) -> bool:
    """Return whether a person may decide a request, so far as is known before they do."""
    try:
        check_reviewer(call, reviewer_of(store, by, None), store.now())
    except NotAllowed:
        return False
    return True


# -- who may see


class Audience(NamedTuple):
    """Who may see something: every reviewer, or these people and groups."""

    everybody: bool
    names: frozenset[str]

    def includes(self, ours: frozenset[str]) -> bool:
        return self.everybody or not self.names.isdisjoint(ours)


def names_of(by: Reviewer) -> frozenset[str]:
    """Return the names by which rules can mean a person, or those for whom they decide."""
    names = own_names(by)
    return names.union(*(p.names for p in by.stands_for)) if isinstance(by, Proven) else names


def audience_of(calls: Iterable[Call | Request]) -> Audience:
    """Return who may see at least one of these: its reviewers, its requester, who decided it."""
    names: set[str] = set()
    everybody = False
    for call in calls:
        everybody = everybody or not call.reviewers
        names.update(call.reviewers)
        if call.requester and not _is_remote(call):
            names.add(plain_name(call.requester))
        if call.decision is not None:
            names.add(call.decision.by)
    return Audience(everybody, frozenset(names))


def _is_remote(call: Call | Request) -> bool:
    return is_remote(call.binds) if isinstance(call, Call) else call.remote


def audience_of_run(store: Store, run: Run) -> Audience:
    """Return who may read a run's conversation: those who may see one of its requests.

    A run without requests takes the audience of its thread, and a sub-agent's run that of the call
    it belongs to. If nobody was asked there either, its requester may read it, or everybody if it
    has no requester, or one that a remote agent only claims.
    """
    calls = [call for call in store.calls_of(run.id) if is_request(call)]
    if not calls:
        calls = requests_in(store, run.thread)
    around = store.call(run.parent_call) if not calls and run.parent_call else None
    if around is not None and is_request(around):
        calls = [around]
    outer = store.run(around.run) if around is not None and not calls else None
    if outer is not None:
        return audience_of_run(store, outer)
    is_claimed = run.requester != requester_name(run.requester)
    everybody = is_claimed or not run.requester
    audience = audience_of(calls) if calls else Audience(everybody, frozenset())
    return audience._replace(names=audience.names | {plain_name(run.requester)} - {""})


def requests_in(store: Store, thread: str) -> list[Call]:
    return [call for _, call in store.page(Query(status="any", thread=thread, sort="newest"))]


def may_see(by: Reviewer, call: Call | Request) -> bool:
    if by.role == "admin":
        return True
    if by.role == "agent":
        return call.agent == by.name
    if by.role == "chat":
        # A remote agent claims a requester; only this server knows who chats with it.
        return not _is_remote(call) and plain_name(call.requester) == by.name
    return not call.reviewers or audience_of((call,)).includes(names_of(by))


def may_see_rejection(by: Reviewer, rejection: EarlierRejection) -> bool:
    """Return whether a person who sees a request may also see one that was rejected before it."""
    if by.role in ("admin", "agent"):
        return True  # it was made by the same agent
    if by.role == "chat":
        return plain_name(rejection.requester) == by.name
    names = {*rejection.reviewers, plain_name(rejection.requester), rejection.by}
    return not rejection.reviewers or not names_of(by).isdisjoint(names)


def no_request(request_id: str) -> NotFound:
    """Return the error for a request that does not exist, or that the caller may not see.

    Its message is the same for both: that a request exists is information too.
    """
    return NotFound(f"no request {request_id!r:.80}: see `sayso inbox`")


def viewer_of(by: Reviewer, *, mine: bool = False) -> Viewer:
    """Return whose requests to count: all that a reviewer may see, or those for them alone."""
    if mine:
        return Viewer(names=names_of(by), only_theirs=True)
    return Viewer(names=None if by.role == "admin" else names_of(by))


def hidden_turns(by: Reviewer, turns: Iterable[Iterable[Call]]) -> Iterator[bool]:
    """Yield, for each turn of a run, whether to hide the model's text from this person.

    ``turns`` are the calls of each turn. From the first call on that is for other reviewers, the
    model's text may describe it. Text beside a request that this person may see is shown anyway,
    because the request contains it.
    """
    others = False
    for turn in turns:
        calls = tuple(turn)
        others = others or any(not may_see(by, call) for call in calls)
        yield others and not has_visible_request(by, calls)


def has_visible_request(by: Reviewer, calls: Iterable[Call]) -> bool:
    """Return whether one of these calls is a request that this principal may see."""
    return any(is_request(call) and may_see(by, call) for call in calls)
