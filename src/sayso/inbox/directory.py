"""The directory: add people and agents, change their rights, and take them away.

``create_token``, ``new_link`` and ``sign_in`` make credentials. Everything that takes a right away
returns what ended with it (``TakenAway``). Rights are checked against the same rows from then on,
in all processes, so nothing has to be told to anyone.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sayso import text
from sayso.engine.commands import (
    AddCredential,
    AddPerson,
    ChangePerson,
    EndCredentials,
    Reask,
    RemovePerson,
    UseCredential,
    VoidVotes,
)
from sayso.engine.people import BAD_TOKEN
from sayso.errors import Conflict, NotAllowed, NotFound, Unauthenticated
from sayso.inbox.people import authenticate_session, reviewer_of, token_hash
from sayso.rows import ROLES, SYSTEM_THREAD, Call, CallStatus, Credential, Person, Proven
from sayso.stores.base import Query, Store
from sayso.types import (
    GROUP,
    SECOND,
    Grant,
    Micros,
    Reviewer,
    Vote,
    checked_name,
    person_name,
)

LINK_SECONDS = 600
#: How long a session lasts at most, and without being used.
SESSION_SECONDS = 12 * 3600
IDLE_SECONDS = 2 * 3600
#: How often the use of a session is noted: a commit each time would cost too much.
USE_NOTED_EVERY = 60
_MAX_DEVICE = 200
#: Names of the server itself, and of its user without authentication.
_RESERVED = frozenset(("server", "local", "remote", "system", SYSTEM_THREAD))
_PAGE = 500
_TOKEN_PREFIX = "sayso_"
_PASSKEY = "pky_"
#: The actor of what no person does.
_SERVER = "server"


@dataclass(frozen=True, slots=True)
class TakenAway:
    """What ended when a person lost a right."""

    person: Person
    #: Tokens, links and sessions.
    credentials: tuple[Credential, ...] = ()
    grants: tuple[Grant, ...] = ()
    #: Pending requests on which the person's vote counted until now.
    votes: tuple[Call, ...] = ()
    #: Calls that the person approved, and that have not started.
    approved: tuple[Call, ...] = ()


# -- people and agents


def add_person(
    store: Store,
    name: str,
    *,
    by: str | Reviewer,
    role: str = "reviewer",
    groups: Iterable[str] = (),
    mail: str = "",
    restore: bool = False,
) -> Person:
    """Add a person, or with ``role="agent"`` an agent.

    ``restore`` brings back one who was removed. Raises ``Conflict`` if the name is taken, or looks
    like one that is.
    """
    person = _wanted(name, role, groups, mail)
    actor = reviewer_of(store, by, None)
    (added,) = store.transact(AddPerson(person=person, by=actor, restore=restore))
    stored: Person = added
    return stored


def new_name(name: str) -> str:
    """Return the canonical form of the name of a new person or agent.

    Raises ``NotAllowed`` if it is reserved or mixes scripts. The store refuses one that looks like
    a name it knows.
    """
    checked = _checked(person_name, name)
    if checked.casefold() in _RESERVED:
        raise NotAllowed(f"the name {checked!r} is reserved for Sayso itself: use another name")
    if mixed := [note for note in text.notes(checked) if note.startswith("mixes")]:
        raise NotAllowed(f"the name {checked!a:.80} {mixed[0]}: write it in one script")
    return checked


def _wanted(name: str, role: str, groups: Iterable[str], mail: str = "") -> Person:
    name = new_name(name)
    if role not in ROLES:
        raise NotAllowed(f"role {role!r}: use one of {', '.join(ROLES)}")
    if role == "agent" and "/" in name:
        raise NotAllowed(f"the name {name!r} has a / in it: an agent's runs are named agent/run")
    return Person(name, "", role, _group_names(groups), mail.strip())


def _checked(check: Callable[[str], str], name: str) -> str:
    try:
        return check(name)
    except ValueError as error:
        raise NotAllowed(str(error)) from None


def _group_names(groups: Iterable[str]) -> tuple[str, ...]:
    names = (_checked(checked_name, name).removeprefix(GROUP) for name in groups)
    return tuple(dict.fromkeys(names))


def change_person(
    store: Store,
    name: str,
    *,
    by: str | Reviewer,
    add_groups: Iterable[str] = (),
    remove_groups: Iterable[str] = (),
    role: str | None = None,
    mail: str | None = None,
    away: tuple[str, Micros | None] | None = None,
    account: tuple[str, str] | None = None,
    notices: str | None = None,
) -> TakenAway:
    """Change the rights, mail address, stand-in or account of a person; return what ended with it.

    ``away`` is a stand-in and until when they decide, or ``("", None)`` if the person is back.
    ``account`` is the issuer and subject with which they sign in through a provider from now on.
    ``notices`` are those of ``inbox.notices``, as JSON.
    Grants that rest on a lost right are revoked, and votes that do are void. Tokens and sessions
    stay valid, for what the person may do now.
    """
    if role is not None and role not in ROLES:
        raise NotAllowed(f"role {role!r}: use one of {', '.join(ROLES)}")
    origin = None if account is None else json.dumps(account)
    for other in store.people() if origin else ():
        if other.origin == origin and other.name != name:
            raise Conflict(f"this account belongs to {other.name!r} already")
    command = ChangePerson(
        person=_checked(person_name, name),
        by=reviewer_of(store, by, None),
        origin=origin,
        add_groups=_group_names(add_groups),
        remove_groups=_group_names(remove_groups),
        role=role,
        mail=mail,
        away=away and (_checked(person_name, away[0]) if away[0] else "", away[1]),
        notices=notices,
    )
    ((person, credentials, grants),) = store.transact(command)
    return _taken_away(store, person, credentials, grants, by=command.by, ask_again=False)


def set_stand_in(
    store: Store, name: str, stand_in: str, until: Micros | None, *, by: str | Reviewer
) -> Person:
    """Let another person decide for one who is away, until a time; ``None`` ends it."""
    return change_person(store, name, by=by, away=(stand_in, until)).person


def remove_person(
    store: Store, name: str, *, by: str | Reviewer, ask_again: bool = False
) -> TakenAway:
    """Remove a person or an agent, and return what ended with it.

    Their credentials end, the grants that they gave are revoked, and their votes on pending
    requests are void. Calls that they approved and that have not started are listed, and with
    ``ask_again`` people are asked about them again.
    """
    command = RemovePerson(person=_checked(person_name, name), by=reviewer_of(store, by, None))
    ((person, credentials, grants),) = store.transact(command)
    return _taken_away(store, person, credentials, grants, by=command.by, ask_again=ask_again)


def _taken_away(
    store: Store,
    person: Person,
    credentials: tuple[Credential, ...],
    grants: tuple[Grant, ...],
    *,
    by: Reviewer,
    ask_again: bool,
) -> TakenAway:
    votes = tuple(_void_votes(store, person.name))
    approved = tuple(
        call
        for run in ([] if person.active else list(store.open_runs()))
        for call in store.calls_of(run.id)
        if call.status is CallStatus.READY and _voted(call.votes, person.name)
    )
    for call in approved if ask_again else ():
        reason = f"{person.name}, who approved it, was removed by {by.name}"
        store.transact(Reask(thread=call.thread, run=call.run, call=call.id, reason=reason))
    return TakenAway(person, credentials, grants, votes, approved)


def _void_votes(store: Store, name: str) -> Iterator[Call]:
    """Remove the votes of a person that no longer count; yield the requests.

    They do not count in any case: this shows it, and lists them.
    """
    query = Query(limit=_PAGE)
    while True:
        page = store.page(query)
        for _, call in page:
            if _voted(call.votes, name):
                place = {"thread": call.thread, "run": call.run, "call": call.id}
                (now,) = store.transact(VoidVotes(**place))
                if not _voted(now.votes, name):
                    yield now
        if len(page) < _PAGE:
            return
        query = Query(limit=_PAGE, after=page[-1][0])


def _voted(votes: Iterable[Vote], name: str) -> bool:
    return any(name in (vote.by, vote.on_behalf_of) for vote in votes)


# -- tokens


def create_token(
    store: Store,
    person: str,
    *,
    by: str | Reviewer,
    role: str | None = None,
    groups: Iterable[str] | None = None,
    ends: Micros | None = None,
) -> tuple[str, Credential]:
    """Create a token and return it with its row. Only its hash is stored, so save it now.

    A person who does not exist yet is added with this role (``reviewer`` by default) and these
    groups. The rights of an existing person do not change: other ones raise ``NotAllowed``.
    """
    new_person = _wanted(person, role or "reviewer", groups or ())
    existing = store.person(new_person.name)
    actor = reviewer_of(store, by, None)
    if existing is not None and existing.name == new_person.name and existing.active:
        _check_unchanged(existing, role, None if groups is None else new_person.groups)
        new_person = existing
        commands = []
    else:
        commands = [AddPerson(person=new_person, by=actor)]
    token = _TOKEN_PREFIX + secrets.token_urlsafe(32)
    credential = new_credential(token, "tok_", new_person, "token", ends=ends)
    *_, stored = store.transact(*commands, AddCredential(credential=credential, by=actor))
    return token, stored


def _check_unchanged(person: Person, role: str | None, groups: tuple[str, ...] | None) -> None:
    if role not in (None, person.role):
        how = (
            "an agent and a person need different names, since an agent cannot decide"
            if "agent" in (role, person.role)
            else f"change it with `sayso people role {person.name} {role}`"
        )
        raise NotAllowed(f"{person.name!r} has the role {person.role!r}: {how}")
    added = [name for name in groups or () if name not in person.groups]
    removed = [name for name in person.groups if groups and name not in groups]
    if added or removed:
        options = [*(f"--add {name}" for name in added), *(f"--remove {name}" for name in removed)]
        raise NotAllowed(
            f"{person.name!r} is in {', '.join(person.groups) or 'no group'}, and a token does not "
            f"change that: use `sayso people groups {person.name} {' '.join(options)}`"
        )


def new_credential(
    secret: str, prefix: str, person: Person, kind: str, *, ends: Micros | None, device: str = ""
) -> Credential:
    """Return the row of a credential that is not stored yet."""
    return Credential(
        id=prefix + secrets.token_hex(6),
        hash=token_hash(secret),
        person=person.name,
        kind=kind,
        role=person.role,
        assurance="token",
        device=device[:_MAX_DEVICE],
        ends=ends,
        idle=IDLE_SECONDS * SECOND if kind == "session" else None,
    )


def revoke_token(store: Store, token_id: str, *, by: str | Reviewer) -> tuple[Credential, ...]:
    """Revoke a token, link or session by its id, and return it with the sessions it opened.

    Raises ``NotFound`` if there is no such token.
    """
    owners = [c.person for c in store.credentials() if c.id == token_id]
    if not owners:
        raise NotFound(f"no token {token_id}: see `sayso token list`")
    return revoke_tokens(store, owners[0], (token_id,), by=by)


def end_sessions(store: Store, name: str, *, by: str | Reviewer) -> tuple[Credential, ...]:
    """Sign a person out everywhere, and return the sessions and links that ended."""
    return revoke_tokens(store, _checked(person_name, name), (), by=by)


def revoke_tokens(
    store: Store, name: str, ids: tuple[str, ...], *, by: str | Reviewer
) -> tuple[Credential, ...]:
    """Revoke some tokens of a person with the sessions that they opened; without ids, sessions."""
    actor = reviewer_of(store, by, None)
    (ended_credentials,) = store.transact(EndCredentials(person=name, ids=ids, by=actor))
    credentials: tuple[Credential, ...] = ended_credentials
    return credentials


# -- signing in


def new_link(store: Store, person: str, *, role: str = "admin") -> str:
    """Create and return a secret that signs this person in once, within ten minutes.

    A person who does not exist yet is added with this role.
    """
    new_person = _wanted(person, role, ())
    existing = store.person(new_person.name)
    actor = Reviewer(new_person.name)
    is_known = existing is not None and existing.name == new_person.name and existing.active
    commands = [] if is_known else [AddPerson(person=new_person, by=actor)]
    secret = secrets.token_urlsafe(32)
    ends = store.now() + LINK_SECONDS * SECOND
    credential = new_credential(secret, "lnk_", new_person, "link", ends=ends)
    store.transact(*commands, AddCredential(credential=credential, by=actor))
    return secret


def sign_in(
    store: Store, secret: str, *, present: str = "", switch: bool = False, device: str = ""
) -> str:
    """Exchange a token or a link's secret for a session, and return the secret of the session.

    ``present`` is the session that the browser has. If it is another person's, that person is
    signed out with ``switch``; without it, raises ``Conflict``: a link that you were sent must not
    change who you are without your knowing. Raises ``Unauthenticated`` if the secret is invalid or
    the link was used before, and ``NotAllowed`` for an agent's token.
    """
    source = store.credential(token_hash(secret))
    person = None if source is None else store.person(source.person)
    if source is None or person is None:
        raise Unauthenticated(BAD_TOKEN)
    if person.role == "agent":
        raise NotAllowed("agents cannot sign in to the web app: use the token with the API")
    other = _signed_in(store, present) if present else None
    if other is not None and other.name != person.name:
        if not switch:
            raise Conflict(
                f"you are signed in as {other.name!r}, and this signs you in as "
                f"{person.name!r}: confirm that you want to switch, or sign out first"
            )
        sign_out(store, present)
    session, credential = _new_session(store, person, device)
    by = Reviewer(person.name)
    store.transact(AddCredential(credential=credential, by=by, opened_with=source.hash))
    return session


class Identified(NamedTuple):
    """A person whom an identity provider, or a proxy, has identified."""

    #: Names them for good: the provider, and its name for the person.
    origin: tuple[str, str]
    #: What a new person is called here.
    name: str
    mail: str = ""
    #: Their groups and role now; ``None`` if those are kept here.
    groups: tuple[str, ...] | None = None
    role: str | None = None


def identified(store: Store, who: Identified) -> Person:
    """Return the person, as the provider describes them now; add them if they are new.

    Raises ``NotAllowed`` if the name belongs to another person, or this one was removed.
    """
    origin = json.dumps(who.origin)
    existing = next((p for p in store.people() if p.origin == origin), None)
    by = Reviewer(_SERVER)
    if existing is None:
        new_person = _wanted(who.name, who.role or "reviewer", who.groups or (), who.mail)
        try:
            (added,) = store.transact(AddPerson(person=new_person._replace(origin=origin), by=by))
        except Conflict:
            raise NotAllowed(
                f"the name {new_person.name!r} belongs to another person here: ask an admin to "
                f"link the two, with `sayso people link {new_person.name} {' '.join(who.origin)}`"
            ) from None
        person: Person = added
        return person
    if not existing.active:
        raise NotAllowed(f"{existing.name} was removed: ask an admin for access")
    groups = existing.groups if who.groups is None else _group_names(who.groups)
    changes = ChangePerson(
        person=existing.name,
        by=by,
        add_groups=tuple(name for name in groups if name not in existing.groups),
        remove_groups=tuple(name for name in existing.groups if name not in groups),
        role=None if who.role == existing.role else who.role,
        mail=who.mail or None,
    )
    ((person, *credentials),) = store.transact(changes)
    _taken_away(store, person, *credentials, by=by, ask_again=False)
    return person


def sign_in_as(
    store: Store, who: Identified, *, signed_in: Micros, session_id: str = "", device: str = ""
) -> str:
    """Open a session for a person whom a provider has identified; return its secret.

    ``session_id`` is the provider's name for its own session, which can end this one.
    """
    person = identified(store, who)
    session, credential = _new_session(store, person, device)
    credential = credential._replace(
        role="admin", assurance="session", signed_in=signed_in, opened_by=session_id
    )
    store.transact(AddCredential(credential=credential, by=Reviewer(_SERVER)))
    return session


def end_provider_sessions(store: Store, issuer: str, subject: str, session_id: str) -> None:
    """End the sessions that a provider opened: of a person, or those of one of its sessions."""
    origin = json.dumps((issuer, subject))
    names = {p.name for p in store.people() if p.origin == origin}
    for name in names:
        end_sessions(store, name, by=Reviewer(_SERVER))
    if session_id and not names:
        for credential in store.credentials():
            if credential.opened_by == session_id and credential.live(store.now()):
                revoke_tokens(store, credential.person, (credential.id,), by=Reviewer(_SERVER))


def add_passkey(
    store: Store, by: Reviewer, passkey: str, public_key: str, *, device: str = ""
) -> Credential:
    """Store a passkey of the person who is signed in, by its id and public key."""
    person = store.person(by.name)
    if person is None or by.role == "agent":
        raise NotAllowed(f"{by.name} is no person of this store, so they have no passkeys")
    credential = new_credential(passkey, _PASSKEY, person, "passkey", ends=None, device=device)
    credential = credential._replace(
        id=_PASSKEY + passkey, role="admin", assurance="passkey", public_key=public_key
    )
    (stored,) = store.transact(AddCredential(credential=credential, by=Reviewer(by.name)))
    added: Credential = stored
    return added


def browser_id(passkey: Credential) -> str:
    """Return the id by which browsers know a passkey."""
    return passkey.id.removeprefix(_PASSKEY)


def sign_in_with_passkey(store: Store, passkey: Credential, answered: Micros, device: str) -> str:
    """Open a session for a passkey that answered a challenge; return the session's secret."""
    person = store.person(passkey.person)
    if person is None:
        raise Unauthenticated(BAD_TOKEN)
    session, credential = _new_session(store, person, device)
    by = Reviewer(person.name)
    command = AddCredential(
        credential=credential, by=by, opened_with=passkey.hash, answered=answered
    )
    store.transact(command)
    return session


def _new_session(store: Store, person: Person, device: str) -> tuple[str, Credential]:
    secret = secrets.token_urlsafe(32)
    ends = store.now() + SESSION_SECONDS * SECOND
    return secret, new_credential(secret, "ses_", person, "session", ends=ends, device=device)


def _signed_in(store: Store, session: str) -> Proven | None:
    try:
        return authenticate_session(store, session)
    except NotAllowed:
        return None


def sign_out(store: Store, secret: str) -> None:
    """End a session. Do nothing if it has ended."""
    session = store.credential(token_hash(secret))
    who = _signed_in(store, secret)
    if session is not None and who is not None:
        store.transact(EndCredentials(person=who.name, ids=(session.id,), by=who))


def note_use(store: Store, by: Proven) -> None:
    """Note that a session is in use, which postpones its idle end."""
    session = store.credential(by.proof)
    if session is not None and session.last_used + USE_NOTED_EVERY * SECOND <= store.now():
        store.transact(UseCredential(hash=session.hash))
