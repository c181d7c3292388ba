"""Sign-in: tokens, one-time links and sessions, each a principal row that can be revoked.

A session is a principal created from a token or link and named after it, so it ends when its token
does. A link is a principal that can create exactly one session. Nothing is kept in memory: a
restart signs nobody out, and `sayso token list` shows everyone who is signed in.
"""

from __future__ import annotations

import secrets

from sayso.engine.commands import AddPrincipal, RevokePrincipal
from sayso.errors import Conflict, NotAllowed, Unauthenticated
from sayso.inbox.people import LINK, SESSION, genuine_principal, proven, token_hash
from sayso.rows import Principal
from sayso.stores.base import Store
from sayso.types import SECOND, Micros, Reviewer

COOKIE = "sayso_session"
#: Browsers take a cookie of this name only from our own host, over TLS, and for every path.
SECURE_COOKIE = f"__Host-{COOKIE}"
LINK_SECONDS = 600
SESSION_SECONDS = 12 * 3600


def cookie_name(scheme: str) -> str:
    """Return the name of the session cookie on a server that is reached by this scheme."""
    return SECURE_COOKIE if scheme == "https" else COOKIE


def new_link(store: Store, person: str, *, role: str = "admin") -> str:
    """Create and return a secret that signs this person in once, within ten minutes."""
    ends = store.now() + LINK_SECONDS * SECOND
    return _add_principal(store, LINK + secrets.token_hex(6), person, role, (), ends)


def sign_in(store: Store, secret: str, *, present: str = "", switch: bool = False) -> str:
    """Exchange a token or a link's secret for a session cookie, and return it.

    ``present`` is the session cookie that the browser has. If it is another person's, that person
    is signed out with ``switch``; without it, raises ``Conflict``: a link that you were sent must
    not change who you are without your knowing. Raises ``Unauthenticated`` if the secret is invalid
    or the link was used before, and ``NotAllowed`` for an agent's token.
    """
    source = _live_principal(store, secret)
    if source is None or source.id.startswith(SESSION):
        raise Unauthenticated(
            "this link or token is unknown, used, revoked or expired: ask for a new one"
        )
    if source.role == "agent":
        raise NotAllowed("agents cannot sign in to the web app: use the token with the API")
    other = _live_principal(store, present) if present else None
    if other is not None and other.person != source.person:
        if not switch:
            raise Conflict(
                f"you are signed in as {other.person!r}, and this signs you in as "
                f"{source.person!r}: confirm that you want to switch, or sign out first"
            )
        sign_out(store, present)
    is_link = source.id.startswith(LINK)
    # The id of a link's session follows from the link, so that a second one conflicts.
    session_id = SESSION + (source.id if is_link else f"{source.id}.{secrets.token_hex(6)}")
    ends = store.now() + SESSION_SECONDS * SECOND
    if source.ends is not None and not is_link:
        ends = min(ends, source.ends)
    try:
        return _add_principal(store, session_id, source.person, source.role, source.groups, ends)
    except Conflict:
        raise Unauthenticated("this link was already used: ask for a new one") from None


def sign_out(store: Store, secret: str) -> None:
    """Revoke a session. Do nothing if it has ended."""
    principal = _live_principal(store, secret)
    if principal is not None and principal.id.startswith(SESSION):
        store.transact(RevokePrincipal(principal=principal.id, by=principal.person))


def resolve_secret(store: Store, secret: str, *, session: bool) -> Reviewer:
    """Return who a bearer token or a session cookie belongs to, or raise ``Unauthenticated``."""
    principal = _live_principal(store, secret)
    if principal is None or principal.id.startswith(SESSION) != session:
        raise Unauthenticated(
            "your session has ended: sign in again"
            if session
            else "this token is unknown, revoked or expired: ask for a new one"
        )
    return proven(store, principal.token_hash)


def _live_principal(store: Store, secret: str) -> Principal | None:
    principal = store.principal(token_hash(secret))
    ours = principal is not None and genuine_principal(store, principal)
    return principal if ours and principal is not None and principal.live(store.now()) else None


def _add_principal(
    store: Store, principal_id: str, person: str, role: str, groups: tuple[str, ...], ends: Micros
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
    store.transact(AddPrincipal(principal=principal, by=person))
    return token
