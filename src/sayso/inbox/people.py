"""Who is deciding: names, tokens, and how sure we are."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable

from sayso.engine.commands import AddPrincipal, RevokePrincipal
from sayso.engine.grants import principal_bytes
from sayso.errors import InvalidDecision, NotAllowed, NotFound
from sayso.inbox.answers import checked_text
from sayso.rows import ROLES, Principal
from sayso.stores.base import Store
from sayso.types import Micros, Reviewer

_PREFIX = "sayso_"
#: Ids of what is no token for programs: a link that signs somebody in once, and who is signed in.
LINK, SESSION = "lnk_", "ses_"
#: How rules name a group; it is the same group with and without it.
_GROUP = "group:"
#: What the record calls those who act and are no people.
_NOBODY = ("engine", "clock", "policy")
_NOT_PEOPLE = ("agent:", "worker:", "attempt:", "policy:")


def token_hash(token: str) -> str:
    """What is stored of a token; it is long and random, so a plain hash gives nothing away."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def authenticate(store: Store, token: str) -> Reviewer:
    """The person behind a token."""
    principal = store.principal(token_hash(token))
    known = principal is not None and principal.live(store.now())
    known = known and principal is not None and not principal.id.startswith((LINK, SESSION))
    if principal is None or not known or not genuine_principal(store, principal):
        raise NotAllowed("this token is unknown, revoked or past its end: ask for another one")
    return Reviewer(principal.person, principal.groups, "token", principal.role)


def genuine_principal(store: Store, principal: Principal) -> bool:
    """Whether we wrote this row: a token that somebody put into the database is no token."""
    return store.keys.verify(principal_bytes(principal), principal.signature)


def reviewer_of(store: Store, by: object, token: str | None) -> Reviewer:
    """Who decides: whom the token proves, or whom the caller names."""
    if token is not None:
        return authenticate(store, token)
    if isinstance(by, Reviewer):
        checked_text(by.name, "by")
        return by
    if not isinstance(by, str) or not by.strip():
        raise InvalidDecision("say who decides: by='ana', or token=...", "by")
    return Reviewer(checked_text(by, "by").strip())


def create_token(
    store: Store,
    person: str,
    *,
    by: str,
    role: str = "reviewer",
    groups: Iterable[str] = (),
    ends: Micros | None = None,
) -> tuple[str, Principal]:
    """A new token and its row; the token itself is shown once and kept nowhere."""
    if role not in ROLES:
        raise NotAllowed(f"role {role!r}: use one of {', '.join(ROLES)}")
    person = person.strip()
    if not person:
        raise NotAllowed("a token belongs to somebody: give a name")
    if person.startswith(_GROUP):
        name = person.removeprefix(_GROUP)
        raise NotAllowed(
            f"{person!r:.60} is a group: name a person, who is in it by --group {name}"
        )
    if person in _NOBODY or person.startswith(_NOT_PEOPLE):
        raise NotAllowed(f"{person!r:.60} stands for no person in the record: give another name")
    token = _PREFIX + secrets.token_urlsafe(32)
    principal = Principal(
        id="tok_" + secrets.token_hex(6),
        token_hash=token_hash(token),
        person=person,
        role=role,
        created=0,
        groups=tuple(name.strip().removeprefix(_GROUP) for name in groups),
        ends=ends,
    )
    (stored,) = store.transact(AddPrincipal(principal=principal, by=by))
    return token, stored


def revoke_token(store: Store, token_id: str, *, by: str) -> Principal:
    """End a token by its id."""
    if not any(p.id == token_id for p in store.principals()):
        raise NotFound(f"no token {token_id}: see `sayso token list`")
    (revoked,) = store.transact(RevokePrincipal(principal=token_id, by=by))
    principal: Principal = revoked
    return principal
