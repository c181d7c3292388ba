"""Who is deciding: names, tokens, and how sure we are."""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

from sayso.engine.commands import AddPrincipal, RevokePrincipal
from sayso.engine.grants import principal_bytes
from sayso.errors import InvalidDecision, NotAllowed, NotFound, Unauthenticated
from sayso.rows import ROLES, Principal
from sayso.stores.base import Store
from sayso.types import GROUP, Micros, Reviewer, checked_name, person_name

log = logging.getLogger("sayso.inbox")

_PREFIX = "sayso_"
#: Ids of what is no token for programs: a link that signs somebody in once, and who is signed in.
LINK, SESSION = "lnk_", "ses_"
#: The evidence for the user of the operating system: the process itself.
_PROCESS = "process"


@dataclass(frozen=True, slots=True)
class Proven(Reviewer):
    """Somebody who came through a door that knows people. Only this module makes one.

    ``proof`` says what the door saw: the hash of a token's or session's secret, or the process
    itself. Who it is and how sure that is are read from there anew with each decision, so that
    nothing else in here has to be believed.
    """

    proof: str = ""


def token_hash(token: str) -> str:
    """What is stored of a token; it is long and random, so a plain hash gives nothing away."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def authenticate(store: Store, token: str) -> Proven:
    """The person behind a token."""
    principal = store.principal(token_hash(token))
    if principal is None or principal.id.startswith((LINK, SESSION)):
        raise NotAllowed("this token is unknown, revoked or past its end: ask for another one")
    return proven(store, principal.token_hash)


def genuine_principal(store: Store, principal: Principal) -> bool:
    """Whether we wrote this row: a token that somebody put into the database is no token."""
    return store.keys.verify(principal_bytes(principal), principal.signature)


def proven(store: Store, proof: str) -> Proven:
    """Whoever the secret with this hash belongs to, and how sure we are of it.

    A session is worth what opened it: the one-time link, which only the person has, is worth
    ``session``; a token that was pasted is worth ``token``, and the session ends with it.
    """
    principal = store.principal(proof)
    live = principal is not None and principal.live(store.now())
    if principal is None or not live or not genuine_principal(store, principal):
        raise Unauthenticated("this token is unknown, revoked or past its end: ask for another one")
    if principal.id.startswith(LINK):
        raise Unauthenticated("this is a link's secret: open the link in a browser")
    assurance = "token"
    if principal.id.startswith(SESSION):
        opened_by = principal.id.removeprefix(SESSION).split(".")[0]
        if opened_by.startswith(LINK):
            assurance = "session"
        elif not _is_live(store, opened_by):
            raise Unauthenticated(
                "the token that you signed in with was revoked: ask for another one"
            )
    return Proven(principal.person, principal.groups, assurance, principal.role, proof)


def _is_live(store: Store, principal_id: str) -> bool:
    now = store.now()
    return any(p.id == principal_id and p.live(now) for p in store.principals())


def os_user() -> Proven:
    """Whoever runs this process, by the system's word and not by a variable."""
    try:
        import pwd

        name = pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        import getpass

        name = getpass.getuser() if os.name == "nt" else f"uid:{os.getuid()}"
    return Proven(name, assurance="os-user", proof=_PROCESS)


def reviewer_of(store: Store, by: object, token: str | None) -> Reviewer:
    """Who decides: whom the token or the door proves, or whom the caller names.

    This is the one place where somebody gets an assurance.
    """
    if token is not None:
        return authenticate(store, token)
    if isinstance(by, Proven):
        return os_user() if by.proof == _PROCESS else proven(store, by.proof)
    if isinstance(by, Reviewer):
        if by.assurance != "code":
            log.warning(
                "Reviewer(%r, assurance=%r) was made in code, so it counts as 'code': decide with "
                "token= to prove more",
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
    try:
        person = person_name(person)
        groups = tuple(checked_name(name).removeprefix(GROUP) for name in groups)
    except ValueError as error:
        raise NotAllowed(str(error)) from None
    _check_kind(store, person, role)
    token = _PREFIX + secrets.token_urlsafe(32)
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


def _check_kind(store: Store, person: str, role: str) -> None:
    """Refuse a name that is an agent's for a person, and the other way round."""
    now = store.now()
    for known in store.principals():
        same = known.person == person and known.live(now)
        if same and known.role != role and "agent" in (known.role, role):
            raise NotAllowed(
                f"{person!r} has a token with the role {known.role!r}: an agent and a person need "
                "different names, since an agent cannot decide"
            )


def revoke_token(store: Store, token_id: str, *, by: str) -> Principal:
    """End a token by its id."""
    if not any(p.id == token_id for p in store.principals()):
        raise NotFound(f"no token {token_id}: see `sayso token list`")
    (revoked,) = store.transact(RevokePrincipal(principal=token_id, by=by))
    principal: Principal = revoked
    return principal
