"""Who decides and who may see: tokens, assurance, and visibility.

This is the only module that gives a reviewer an assurance, and the only one that says whether a
principal may read about a call. Pages, the feed, the audit log and chats all ask here.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sayso.engine.commands import AddPrincipal, RevokePrincipal
from sayso.engine.deciding import check_reviewer
from sayso.engine.effects import is_remote
from sayso.engine.grants import principal_bytes
from sayso.errors import InvalidDecision, NotAllowed, NotFound, Unauthenticated
from sayso.rows import ROLES, Call, Principal, Run
from sayso.stores.base import Query, Store, Viewer
from sayso.types import (
    GROUP,
    EarlierRejection,
    Micros,
    Request,
    Reviewer,
    checked_name,
    person_name,
    plain_name,
)
from sayso.views import is_request

log = logging.getLogger("sayso.inbox")

#: Shown in place of text that may describe a call meant for other reviewers.
HIDDEN_TEXT = "(hidden: this may describe a call for other reviewers)"

#: Id prefixes of principals that are not API tokens: one-time sign-in links, and sessions.
LINK, SESSION = "lnk_", "ses_"
_TOKEN_PREFIX = "sayso_"
#: The proof of the operating system's user: the process itself.
_PROCESS = "process"
_BAD_TOKEN = "this token is unknown, revoked or expired: ask for a new one"


# -- who decides


@dataclass(frozen=True, slots=True)
class Proven(Reviewer):
    """An authenticated reviewer. Only this module creates one.

    ``proof`` is the hash of a token's or session's secret, or ``"process"``. Name, groups and
    assurance are looked up from it again for every decision, so the other fields are not trusted.
    """

    proof: str = ""


def token_hash(token: str) -> str:
    """Return the hash under which a token is stored. Tokens are random, so no salt is needed."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def authenticate(store: Store, token: str) -> Proven:
    """Return the reviewer a token belongs to. Raise ``NotAllowed`` if the token is not valid."""
    principal = store.principal(token_hash(token))
    if principal is None or principal.id.startswith((LINK, SESSION)):
        raise NotAllowed(_BAD_TOKEN)
    return proven(store, principal.token_hash)


def genuine_principal(store: Store, principal: Principal) -> bool:
    """Return whether a principal's signature holds; rows inserted into the database have none."""
    return store.keys.verify(principal_bytes(principal), principal.signature)


def proven(store: Store, proof: str) -> Proven:
    """Return the reviewer whose secret has this hash. Raise ``Unauthenticated`` if there is none.

    A session has the assurance of what opened it: ``session`` for a one-time link, which only its
    recipient has, and ``token`` for a pasted token. The latter ends when the token is revoked.
    """
    principal = store.principal(proof)
    live = principal is not None and principal.live(store.now())
    if principal is None or not live or not genuine_principal(store, principal):
        raise Unauthenticated(_BAD_TOKEN)
    if principal.id.startswith(LINK):
        raise Unauthenticated("this is the secret of a sign-in link: open the link in a browser")
    assurance = "token"
    if principal.id.startswith(SESSION):
        opened_by = principal.id.removeprefix(SESSION).split(".")[0]
        if opened_by.startswith(LINK):
            assurance = "session"
        elif not any(p.id == opened_by and p.live(store.now()) for p in store.principals()):
            raise Unauthenticated("the token you signed in with was revoked: ask for a new one")
    return Proven(principal.person, principal.groups, assurance, principal.role, proof)


def os_user() -> Proven:
    """Return the user that runs this process, as the system reports it; ``$USER`` is ignored."""
    try:
        import pwd

        name = pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        import getpass

        name = getpass.getuser() if os.name == "nt" else f"uid:{os.getuid()}"
    return Proven(name, assurance="os-user", proof=_PROCESS)


def reviewer_of(store: Store, by: object, token: str | None) -> Reviewer:
    """Return the reviewer for a decision: authenticated by ``token`` or named in ``by``."""
    if token is not None:
        return authenticate(store, token)
    if isinstance(by, Proven):
        return os_user() if by.proof == _PROCESS else proven(store, by.proof)
    if isinstance(by, Reviewer):
        if by.assurance != "code":
            log.warning(
                "Reviewer(%r, assurance=%r) was created in code, so it counts as 'code': pass "
                "token= to authenticate the reviewer",
                by.name,
                by.assurance,
            )
        return Reviewer(by.name, by.groups, role=by.role)
    if not isinstance(by, str) or not by.strip():
        raise InvalidDecision("say who decides: by='ana', or token=...", "by")
    try:
        return Reviewer(by)
    except ValueError as error:
        raise InvalidDecision(f"by: {error}", "by") from None


def may_decide(store: Store, by: Reviewer, call: Call) -> bool:
    """Return whether a person may decide a request, so far as is known before they do."""
    now = store.now()
    own = [p for p in store.principals() if p.person == by.name and p.live(now)]
    try:
        person = reviewer_of(store, by, None)
        check_reviewer(call, person, [p for p in own if genuine_principal(store, p)])
    except NotAllowed:
        return False
    return True


# -- tokens


def create_token(
    store: Store,
    person: str,
    *,
    by: str,
    role: str = "reviewer",
    groups: Iterable[str] = (),
    ends: Micros | None = None,
) -> tuple[str, Principal]:
    """Create a token and return it with its row. Only its hash is stored, so save it now."""
    if role not in ROLES:
        raise NotAllowed(f"role {role!r}: use one of {', '.join(ROLES)}")
    try:
        person = person_name(person)
        groups = tuple(checked_name(name).removeprefix(GROUP) for name in groups)
    except ValueError as error:
        raise NotAllowed(str(error)) from None
    if role == "agent" and "/" in person:
        raise NotAllowed(f"the name {person!r} has a / in it: an agent's runs are named agent/run")
    now = store.now()
    for known in store.principals():
        same = known.person == person and known.live(now)
        if same and known.role != role and "agent" in (known.role, role):
            raise NotAllowed(
                f"{person!r} has a token with the role {known.role!r}: an agent and a person need "
                "different names, since an agent cannot decide"
            )
    token = _TOKEN_PREFIX + secrets.token_urlsafe(32)
    principal = Principal(
        id="tok_" + secrets.token_hex(6),
        token_hash=token_hash(token),
        person=person,
        role=role,
        created=0,
        groups=groups,
        ends=ends,
    )
    (stored,) = store.transact(AddPrincipal(principal=principal, by=by))
    return token, stored


def revoke_token(store: Store, token_id: str, *, by: str) -> Principal:
    """Revoke a token by its id. Raise ``NotFound`` if there is no such token."""
    if not any(p.id == token_id for p in store.principals()):
        raise NotFound(f"no token {token_id}: see `sayso token list`")
    (revoked,) = store.transact(RevokePrincipal(principal=token_id, by=by))
    principal: Principal = revoked
    return principal


# -- who may see


class Audience(NamedTuple):
    """Who may see something: every reviewer, or these people and groups."""

    everybody: bool
    names: frozenset[str]

    def includes(self, ours: frozenset[str]) -> bool:
        return self.everybody or not self.names.isdisjoint(ours)


def names_of(by: Reviewer) -> frozenset[str]:
    """Return the names by which rules can mean a person: their own and ``group:...``."""
    return frozenset((by.name, *(f"group:{name}" for name in by.groups)))


def audience_of(calls: Iterable[Call | Request]) -> Audience:
    """Return who may see at least one of these: its reviewers, its requester, who decided it."""
    names: set[str] = set()
    everybody = False
    for call in calls:
        wanted = _reviewers(call)
        everybody = everybody or not wanted
        names.update(wanted)
        if call.requester:
            names.add(plain_name(call.requester))
        if call.decision is not None:
            names.add(call.decision.by)
    return Audience(everybody, frozenset(names))


def _reviewers(call: Call | Request) -> tuple[str, ...]:
    return call.terms.reviewers if isinstance(call, Call) else call.reviewers


def _is_remote(call: Call | Request) -> bool:
    return is_remote(call.binds) if isinstance(call, Call) else call.remote


def audience_of_run(store: Store, run: Run) -> Audience:
    """Return who may read a run's conversation: those who may see one of its requests.

    A run without requests takes the audience of its thread, and a sub-agent's run that of the call
    it belongs to. If nobody was asked there either, its requester may read it, or everybody if it
    has no requester.
    """
    asked = [call for call in store.calls_of(run.id) if is_request(call)]
    if not asked:
        asked = requests_in(store, run.thread)
    around = store.call(run.parent_call) if not asked and run.parent_call else None
    if around is not None and is_request(around):
        asked = [around]
    outer = store.run(around.run) if around is not None and not asked else None
    if outer is not None:
        return audience_of_run(store, outer)
    found = audience_of(asked) if asked else Audience(not run.requester, frozenset())
    return found._replace(names=found.names | {plain_name(run.requester)} - {""})


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
    return not _reviewers(call) or audience_of((call,)).includes(names_of(by))


def may_see_rejection(by: Reviewer, rejection: EarlierRejection) -> bool:
    """Return whether a person who sees a request may also see one that was rejected before it."""
    if by.role in ("admin", "agent"):
        return True  # it was made by the same agent
    if by.role == "chat":
        return not rejection.remote and plain_name(rejection.requester) == by.name
    named = {*rejection.reviewers, plain_name(rejection.requester), rejection.by}
    return not rejection.reviewers or not names_of(by).isdisjoint(named)


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
