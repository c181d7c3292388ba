"""Signing in: tokens, one-time links and sessions, all of them rows that can be revoked.

A session is a token of its own, made from another one and named after it: it ends when that one
does. A link is a token that only makes one session. Nothing is kept in this process, so a restart
signs nobody out, and `sayso token list` shows everybody who is in.
"""

from __future__ import annotations

import secrets

from sayso.engine.commands import AddPrincipal, RevokePrincipal
from sayso.errors import Conflict, NotAllowed, Unauthenticated
from sayso.inbox.people import LINK, SESSION, genuine_principal, proven, token_hash
from sayso.rows import Principal
from sayso.stores.base import Store
from sayso.types import Micros, Reviewer

COOKIE = "sayso_session"
LINK_SECONDS = 600
SESSION_SECONDS = 12 * 3600
_MICROS = 1_000_000


def new_link(store: Store, person: str, *, role: str = "admin") -> str:
    """A secret that signs this person in once, within ten minutes."""
    ends = store.now() + LINK_SECONDS * _MICROS
    return _added(store, LINK + secrets.token_hex(6), person, role, (), ends, by=person)


def sign_in(store: Store, secret: str) -> tuple[str, Principal]:
    """A session's cookie from a token or a link; a link works once."""
    came_with = _live(store, secret)
    if came_with is None or came_with.id.startswith(SESSION):
        raise Unauthenticated(
            "this link or token is unknown, used, revoked or past its end: ask for another one"
        )
    if came_with.role == "agent":
        raise NotAllowed("an agent cannot sign in to the page: it has a token for the API")
    link = came_with.id.startswith(LINK)
    session_id = SESSION + (came_with.id if link else f"{came_with.id}.{secrets.token_hex(6)}")
    ends = store.now() + SESSION_SECONDS * _MICROS
    if came_with.ends is not None and not link:
        ends = min(ends, came_with.ends)
    person = came_with.person
    try:
        token = _added(store, session_id, person, came_with.role, came_with.groups, ends, by=person)
    except Conflict:
        raise Unauthenticated("this link was used already: ask for another one") from None
    return token, came_with


def sign_out(store: Store, secret: str) -> None:
    """End a session."""
    principal = _live(store, secret)
    if principal is not None and principal.id.startswith(SESSION):
        store.transact(RevokePrincipal(principal=principal.id, by=principal.person))


def who_is(store: Store, secret: str, *, session: bool) -> tuple[Reviewer, Principal]:
    """The person behind a bearer token or a session's cookie."""
    principal = _live(store, secret)
    if principal is None or principal.id.startswith(SESSION) != session:
        raise Unauthenticated(
            "you are not signed in any more: sign in again"
            if session
            else "this token is unknown, revoked or past its end: ask for another one"
        )
    return proven(store, principal.token_hash), principal


def _live(store: Store, secret: str) -> Principal | None:
    principal = store.principal(token_hash(secret))
    ours = principal is not None and genuine_principal(store, principal)
    return principal if ours and principal is not None and principal.live(store.now()) else None


def _added(
    store: Store,
    principal_id: str,
    person: str,
    role: str,
    groups: tuple[str, ...],
    ends: Micros,
    *,
    by: str,
) -> str:
    token = secrets.token_urlsafe(32)
    principal = Principal(
        id=principal_id,
        token_hash=token_hash(token),
        person=person,
        role=role,
        created=0,
        groups=groups,
        ends=ends,
    )
    store.transact(AddPrincipal(principal=principal, by=by))
    return token
