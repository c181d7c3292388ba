"""People, agents and their credentials: which rights someone has, and what ends with a right.

Rights are in one row, that of the person. A credential only proves who presents it, and limits what
they may do with it; nothing is copied from the person into it. So ``rights_of`` reads both rows
each time: a right that was taken away is gone for every token and session at the next look, and a
decision looks again in the transaction that records it.

Taking a right away is one transaction. It ends the credentials and the grants that rest on the
right. Votes are in other threads, so they are not touched: a vote counts only as long as the person
who gave it may decide (``sayso.engine.deciding``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TypeAlias

from sayso.engine.commands import (
    AddCredential,
    AddPerson,
    ChangePerson,
    EndCredentials,
    RemovePerson,
    UseCredential,
)
from sayso.engine.grants import rests_on_rights, revoke
from sayso.engine.unit_of_work import UnitOfWork
from sayso.errors import Conflict, NotAllowed, NotFound, Unauthenticated
from sayso.rows import ROLES, Confirmation, Credential, Person, Proven
from sayso.types import GROUP, Grant, Micros, Reviewer, look_of, moment

#: The proof of the operating system's user: the process itself.
PROCESS = "process"
#: How many sessions one person may have. The least recently used ends when another one begins.
MOST_SESSIONS = 20

BAD_TOKEN = "this token is unknown, revoked or expired: ask for a new one"
SESSION_ENDED = "your session has ended: sign in again"

Verify: TypeAlias = Callable[[bytes, str], bool]
#: A person who lost rights, and the credentials and grants that ended with them.
Ended: TypeAlias = tuple[Person, tuple[Credential, ...], tuple[Grant, ...]]


def person_bytes(person: Person) -> bytes:
    """Return what the signature of a person covers: all of the row."""
    return json.dumps(["person", *person[:-2]]).encode()


def credential_bytes(credential: Credential) -> bytes:
    """Return what the signature of a credential covers: all of the row but its last use."""
    return json.dumps(["credential", *credential._replace(last_used=0)[:-2]]).encode()


# -- who has which rights


def rights_of(
    by: Reviewer,
    person: Person | None,
    credential: Credential | None,
    passkey: Credential | None,
    absent: Iterable[Person],
    now: Micros,
    verify: Verify,
) -> Proven:
    """Return who this is, with the rights that they have now. Raise ``Unauthenticated``.

    This is the only function that says which rights a person has. ``person`` is the stored row of
    that name, ``credential`` the one that was presented, ``passkey`` the one that confirmed a
    decision, and ``absent`` are the people whom this one may represent.
    """
    signed_in = 0
    proof = by.proof if isinstance(by, Proven) else ""
    if person is not None and not verify(person_bytes(person), person.signature):
        raise Unauthenticated(
            f"the row of {person.name!r} was not made with this store's key, so it gives no "
            "rights: run `sayso audit verify`"
        )
    if proof and proof != PROCESS:
        person, credential = _presented(person, credential, now, verify)
        assurance = credential.assurance
        signed_in = credential.signed_in
        role = min(person.role, credential.role, key=ROLES.index)
    elif person is None or person.name != by.name:
        if person is not None:
            raise NotAllowed(
                f"{by.name!r} looks like {person.name!r}, whom this store knows: use that name, or "
                "one that people do not confuse with it"
            )
        assurance = "os-user" if proof else "code"
        return Proven(by.name, by.groups, assurance, by.role, proof)
    else:
        if not person.active:
            raise NotAllowed(f"{person.name} was removed at {_when(person.changed)}")
        assurance = "os-user" if proof else "code"
        role = min(person.role, by.role, key=ROLES.index) if by.role == "chat" else person.role
    stands_for = tuple(
        other
        for other in absent
        if other.has_stand_in(person.name, now) and verify(person_bytes(other), other.signature)
    )
    confirmation = by.confirmation if isinstance(by, Proven) else None
    if confirmation is not None:
        _check_passkey(confirmation, person, passkey, now, verify)
        assurance = "passkey"
        signed_in = now
    return Proven(
        person.name, person.groups, assurance, role, proof, stands_for, signed_in, confirmation
    )


def _check_passkey(
    confirmation: Confirmation,
    person: Person,
    passkey: Credential | None,
    now: Micros,
    verify: Verify,
) -> None:
    """Raise ``Unauthenticated`` unless it was this person's passkey, and still is."""
    valid = (
        passkey is not None
        and passkey.kind == "passkey"
        and passkey.person == person.name
        and passkey.public_key == confirmation.public_key
        and passkey.created >= person.since
        and passkey.live(now)
        and verify(credential_bytes(passkey), passkey.signature)
    )
    if not valid:
        raise Unauthenticated("this passkey is unknown or revoked: use another one")


def _presented(
    person: Person | None, credential: Credential | None, now: Micros, verify: Verify
) -> tuple[Person, Credential]:
    """Return a person and the credential that they present, if it is valid now."""
    valid = (
        person is not None
        and credential is not None
        and person.active
        and credential.person == person.name
        and credential.created >= person.since
        and credential.live(now)
        and verify(credential_bytes(credential), credential.signature)
    )
    if person is None or credential is None or not valid:
        session = credential is not None and credential.kind == "session"
        raise Unauthenticated(SESSION_ENDED if session else BAD_TOKEN)
    if credential.kind == "link":
        raise Unauthenticated("this is the secret of a sign-in link: open the link in a browser")
    if credential.kind == "code":
        raise Unauthenticated("this is a code that links an account: send it to the bot")
    return person, credential


def own_names(by: Reviewer) -> frozenset[str]:
    """Return the names by which rules can mean a person: their own and ``group:...``."""
    return frozenset((by.name, *(f"{GROUP}{name}" for name in by.groups)))


def present(work: UnitOfWork, by: Reviewer) -> Proven:
    """Return who acts in this transaction, with the rights that they have in it."""
    person = work.person(by.name)
    credential = passkey = None
    if isinstance(by, Proven):
        credential = work.credentials.get(by.proof)
        if by.confirmation is not None:
            passkey = work.credentials.get(by.confirmation.hash)
    absent = work.people.values()
    verify = work.deps.verify
    return rights_of(by, person, credential, passkey, absent, work.now, verify)


def _require_admin(work: UnitOfWork, by: Reviewer, person: str = "") -> str:
    """Return the name of who changes people; ``person`` is one who may do it for themselves.

    Without a credential, it is the process that owns the store.
    """
    actor = present(work, by)
    if actor.proof not in ("", PROCESS) and actor.role != "admin" and actor.name != person:
        raise NotAllowed(
            f"{actor.name} has the role {actor.role!r}: only an admin changes people and tokens"
        )
    return actor.name


def _when(at: Micros) -> str:
    return f"{moment(at):%Y-%m-%d %H:%M:%S} UTC"


# -- people


def require_person(work: UnitOfWork, name: str) -> Person:
    """Return an active person. Raise ``NotFound``."""
    person = work.person(name)
    if person is None or person.name != name or not person.active:
        raise NotFound(f"no person or agent {name!r}: see `sayso people list`")
    return person


def _put(work: UnitOfWork, person: Person) -> Person:
    person = person._replace(changed=work.now, signature="", mac="")
    person = person._replace(signature=work.deps.sign(person_bytes(person)))
    work.touched_people[person.name] = work.people[person.look] = person
    return person


def _facts(person: Person) -> dict[str, object]:
    """Return what an event says of a person: everything that ``audit verify`` compares."""
    facts: dict[str, object] = {"person": person.name, "role": person.role}
    facts |= {"groups": list(person.groups), "mail": person.mail, "origin": person.origin}
    facts |= {"since": person.since, "stand_in": person.stand_in, "until": person.away_until}
    facts |= {"notices": person.notices}
    return facts


def add_person(work: UnitOfWork, command: AddPerson) -> Person:
    """Add a person or an agent, or with ``restore`` one who was removed."""
    actor = _require_admin(work, command.by)
    new_person = command.person
    existing = work.person(new_person.name)
    if existing is not None and existing.name != new_person.name:
        raise Conflict(
            f"{new_person.name!r} looks like {existing.name!r}, which is taken: use another name"
        )
    if existing is not None and existing.active:
        raise Conflict(
            f"{existing.name!r} exists already: change them with `sayso people groups "
            f"{existing.name} --add GROUP` or `sayso people role {existing.name} ROLE`"
        )
    if existing is not None and not command.restore:
        raise Conflict(
            f"{existing.name!r} was removed at {_when(existing.changed)}, and the record names "
            "them: for somebody else, use another name; for the same person, use --restore"
        )
    created = work.now if existing is None else existing.created
    look = look_of(new_person.name)
    since = 0 if existing is None else work.now
    person = _put(work, new_person._replace(look=look, created=created, since=since))
    work.emit_system("person_added", actor=actor, **_facts(person))
    return person


def change_person(work: UnitOfWork, command: ChangePerson) -> Ended:
    """Change groups, role, mail, stand-in or notices. Grants on a lost right are revoked."""
    actor = _require_admin(work, command.by, command.person if command.is_own else "")
    before = require_person(work, command.person)
    groups = [name for name in before.groups if name not in command.remove_groups]
    groups += [name for name in command.add_groups if name not in groups]
    person = before._replace(groups=tuple(groups))
    if command.role is not None:
        if "agent" in (command.role, before.role) and command.role != before.role:
            raise NotAllowed(f"{before.name!r} is an agent or a person for good: use another name")
        person = person._replace(role=command.role)
    if command.mail is not None:
        person = person._replace(mail=command.mail)
    if command.origin is not None:
        person = person._replace(origin=command.origin)
    if command.away is not None:
        person = _away(work, person, *command.away)
    if command.notices is not None:
        person = person._replace(notices=command.notices)
    if person == before:
        return before, (), ()
    person = _put(work, person)
    work.emit_system("person_changed", actor=actor, **_facts(person))
    lost = [grant for grant in _grants_by(work, person) if not rests_on_rights(grant, person)]
    return person, (), tuple(revoke(work, grant, actor) for grant in lost)


def _away(work: UnitOfWork, person: Person, stand_in: str, until: Micros | None) -> Person:
    """Name who decides for a person until a time; without a time, the person is back."""
    if until is None:
        return person._replace(stand_in="", away_until=None)
    other = require_person(work, stand_in)
    if other.name == person.name or "agent" in (other.kind, person.kind):
        raise NotAllowed(f"{stand_in!r} cannot decide for {person.name!r}: name another person")
    if until <= work.now:
        raise NotAllowed("a stand-in needs an end in the future")
    return person._replace(stand_in=other.name, away_until=until)


def remove_person(work: UnitOfWork, command: RemovePerson) -> Ended:
    """Remove a person or an agent with all that they could do. The name stays theirs."""
    actor = _require_admin(work, command.by)
    person = require_person(work, command.person)
    person = person._replace(status="removed", since=work.now, stand_in="", away_until=None)
    person = person._replace(notices="")
    person = _put(work, person)
    work.emit_system("person_removed", actor=actor, person=person.name)
    credentials = _end(work, [c for c in _credentials_of(work, person) if c.live(work.now)], actor)
    grants = tuple(revoke(work, grant, actor) for grant in _grants_by(work, person))
    return person, credentials, grants


def _grants_by(work: UnitOfWork, person: Person) -> list[Grant]:
    return [g for g in work.grants.values() if g.by == person.name and g.live(work.now)]


# -- credentials


def _credentials_of(work: UnitOfWork, person: Person) -> list[Credential]:
    return [c for c in work.credentials.values() if c.person == person.name]


def _put_credential(work: UnitOfWork, credential: Credential) -> Credential:
    signature = work.deps.sign(credential_bytes(credential))
    credential = credential._replace(signature=signature)
    work.touched_credentials[credential.id] = credential
    work.credentials[credential.hash] = credential
    return credential


def _end(work: UnitOfWork, credentials: Iterable[Credential], actor: str) -> tuple[Credential, ...]:
    revoked = tuple(_put_credential(work, c._replace(revoked=work.now)) for c in credentials)
    for credential in revoked:
        work.emit_system(
            "token_revoked", actor=actor, token=credential.id, person=credential.person
        )
    return revoked


def add_credential(work: UnitOfWork, command: AddCredential) -> Credential:
    """Store a token, a link or a session. Opening a session uses up a link."""
    person = require_person(work, command.credential.person)
    actor = person.name if command.opened_with else _require_admin(work, command.by)
    credentials = _credentials_of(work, person)
    credential = command.credential._replace(created=work.now, last_used=work.now)
    if command.opened_with:
        source = work.credentials.get(command.opened_with)
        credential = _opened(work, credential, source, command.answered)
    if credential.kind == "session":
        _make_room(work, credentials, actor)
    elif credential.kind == "code":  # only the newest one counts
        _end(work, [c for c in credentials if c.kind == "code" and c.live(work.now)], actor)
    elif credential.kind in ("chat", "push"):
        _free_account(work, credential)
    if any(other.id == credential.id for other in credentials):
        raise Conflict(f"token {credential.id} already exists: use another id")
    credential = _put_credential(work, credential)
    work.new_credentials.add(credential.id)
    facts: dict[str, object] = {
        "kind": credential.kind,
        "role": credential.role,
        "assurance": credential.assurance,
    }
    facts |= {"opened_by": credential.opened_by, "signed_in": credential.signed_in}
    if credential.public_key:
        facts["public_key"] = credential.public_key
    ends = {"ends": credential.ends, "idle": credential.idle}
    work.emit_system(
        "token_created",
        actor=actor,
        token=credential.id,
        person=credential.person,
        **facts,
        **ends,
    )
    return credential


def _opened(
    work: UnitOfWork, session: Credential, source: Credential | None, answered: Micros
) -> Credential:
    """Return a session as its token, link or passkey allows it, or an account as its code does.

    A link or a code is over then. A passkey's answer counts once: it is to a challenge that was
    made at the time ``answered``, after the passkey's last use.
    """
    person = require_person(work, session.person)
    kinds = ("passkey",) if answered else ("token", "link")
    if session.kind == "chat":
        kinds = ("code",)
    if source is None or source.kind not in kinds or source.person != person.name:
        raise Unauthenticated(BAD_TOKEN)
    genuine = work.deps.verify(credential_bytes(source), source.signature)
    if not genuine or not source.live(work.now) or source.created < person.since:
        raise Unauthenticated("this link or token was used, revoked or expired: ask for a new one")
    if source.kind == "code":
        _end(work, [source], person.name)
        return session._replace(role=source.role)
    session = session._replace(opened_by=source.id, role=source.role, signed_in=work.now)
    if source.kind == "link":
        _end(work, [source], person.name)
        return session._replace(assurance="session")
    if source.kind == "passkey":
        if answered <= source.last_used:
            raise Unauthenticated("this answer of the passkey was used before: try again")
        used = work.touched_credentials[source.id] = source._replace(last_used=work.now)
        work.credentials[source.hash] = used
        return session._replace(assurance="session")
    ends = [end for end in (session.ends, source.ends) if end is not None]
    return session._replace(assurance=source.assurance, ends=min(ends, default=None))


def _make_room(work: UnitOfWork, known: list[Credential], actor: str) -> None:
    """Delete sessions and links that are over, and end the sessions beyond the limit."""
    over = [c for c in known if c.kind in ("session", "link") and not c.live(work.now)]
    work.dropped_credentials += [c.id for c in over]
    live = [c for c in known if c.kind == "session" and c.live(work.now)]
    live.sort(key=lambda session: session.last_used)
    _end(work, live[: max(len(live) + 1 - MOST_SESSIONS, 0)], actor)


def _free_account(work: UnitOfWork, link: Credential) -> None:
    """Delete the link of an account that has ended. Raise ``Conflict`` if it has not."""
    existing = work.credentials.get(link.hash)
    if existing is not None and existing.live(work.now):
        raise Conflict("this account is linked to a person already: end that link first")
    if existing is not None:
        work.dropped_credentials.append(existing.id)


def end_credentials(work: UnitOfWork, command: EndCredentials) -> tuple[Credential, ...]:
    """End some credentials of a person with the sessions that they opened, or all sessions.

    Idempotent: returns those that ended now.
    """
    actor = _require_admin(work, command.by, command.person)
    credentials = [c for c in work.credentials.values() if c.person == command.person]
    ids = command.ids
    missing = set(ids) - {credential.id for credential in credentials}
    if missing:
        raise NotFound(f"no token {min(missing)}: see `sayso token list`")
    chosen = [
        credential
        for credential in credentials
        if credential.live(work.now)
        and (
            (credential.id in ids or credential.opened_by in ids)
            if ids
            else credential.kind in ("session", "link")
        )
    ]
    return _end(work, chosen, actor)


def use_credential(work: UnitOfWork, command: UseCredential) -> Credential | None:
    """Note that a credential was used, which postpones its idle end. It adds no event."""
    credential = work.credentials.get(command.hash)
    if credential is None or not credential.live(work.now):
        return None
    credential = credential._replace(last_used=work.now)
    work.touched_credentials[credential.id] = work.credentials[credential.hash] = credential
    return credential
