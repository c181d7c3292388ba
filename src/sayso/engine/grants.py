"""What stands beside the conversations: grants, tokens, and bare facts."""

from __future__ import annotations

import json
from dataclasses import replace

from sayso.engine.commands import AddGrant, AddPrincipal, Note, RevokeGrant, RevokePrincipal
from sayso.engine.effects import is_remote
from sayso.engine.unit_of_work import UnitOfWork
from sayso.errors import Conflict, NotFound
from sayso.rows import Call, Principal
from sayso.types import ASSURANCE, Grant, Terms, plain_name

#: Beside a grant's scope, which is a schema: whom the rule asked when it was given, and how sure we
#: were of who gave it.
UNDER = "x-given-under"


def grant_bytes(grant: Grant) -> bytes:
    """What the signature of a grant covers: all that the person said, but not the uses left.

    Those are spent by workers, which hold the row key only; the row's MAC covers them.
    """
    parts = (
        *(grant.id, grant.agent, grant.tool, grant.tool_digest, grant.scope, grant.by),
        *(grant.created, grant.ends, grant.revoked),
    )
    return json.dumps(["grant", *parts]).encode()


def genuine(work: UnitOfWork, grant: Grant) -> bool:
    """Say whether a process that may sign decisions gave this grant."""
    return work.deps.verify(grant_bytes(grant), grant.signature)


def surroundings(call: Call) -> object:
    """The facts that ``binds=`` gave for a call, for a grant to be compared by.

    A call from another machine is also bound to the body that opened it, which is not one of them.
    """
    bound: dict[str, object] | None = json.loads(call.binds) if call.binds else None
    return bound.get("facts") if bound is not None and is_remote(call.binds) else bound


def speaks_for(grant: Grant, call: Call) -> bool:
    """Whether whoever gave it could say yes to this call, too, and as surely as its rule wants."""
    terms, by = call.terms, grant.by
    if not terms.requester_decides and by == plain_name(call.requester):
        return False
    under = json.loads(grant.scope).get(UNDER, {})
    if under.get("binds") != surroundings(call):
        return False  # it was given elsewhere
    given, least = under.get("reviewers", ()), under.get("assurance", Terms().assurance)
    theirs = not terms.reviewers or by in terms.reviewers
    if not theirs and not (given and set(given) <= set(terms.reviewers)):
        return False
    return ASSURANCE.index(terms.assurance) <= ASSURANCE.index(least)


def sign_grant(work: UnitOfWork, grant: Grant) -> Grant:
    """Write a grant that was given or revoked now."""
    return put_grant(work, replace(grant, signature=work.deps.sign(grant_bytes(grant))))


def put_grant(work: UnitOfWork, grant: Grant) -> Grant:
    """Write a grant whose signature still covers it."""
    work.touched_grants[grant.id] = work.grants[grant.id] = grant
    return grant


def store_grant(work: UnitOfWork, grant: Grant) -> Grant:
    """Keep a standing yes, and tell."""
    grant = sign_grant(work, grant)
    work.emit_system(
        "granted",
        actor=grant.by,
        grant=grant.id,
        agent=grant.agent,
        tool=grant.tool,
        tool_digest=grant.tool_digest,
        scope=grant.scope,
        uses=grant.uses_left,
        ends=grant.ends,
    )
    return grant


def add_grant(work: UnitOfWork, command: AddGrant) -> Grant:
    """Store a standing yes."""
    if command.grant.id in work.grants:
        raise Conflict(f"grant {command.grant.id} is there already: give another id")
    return store_grant(work, replace(command.grant, created=work.now))


def revoke_grant(work: UnitOfWork, command: RevokeGrant) -> Grant:
    """End a standing yes; ending it twice changes nothing."""
    grant = work.grants.get(command.grant)
    if grant is None:
        raise NotFound(f"no grant {command.grant}: see `sayso grants`")
    if grant.revoked is None:
        grant = sign_grant(work, replace(grant, revoked=work.now))
        work.emit_system("revoked", actor=command.by, grant=grant.id)
    return grant


def principal_bytes(principal: Principal) -> bytes:
    """What the signature of a token's row covers: all of it, as it stands now."""
    parts = (
        *(principal.id, principal.token_hash, principal.person, principal.role),
        *(list(principal.groups), principal.created, principal.ends, principal.revoked),
    )
    return json.dumps(["token", *parts]).encode()


def known_people(work: UnitOfWork) -> list[Principal]:
    """What the store knows of who decides: their live tokens. A row not ours counts for none."""
    return [
        person
        for person in work.people
        if person.live(work.now) and work.deps.verify(principal_bytes(person), person.signature)
    ]


def _keep_principal(work: UnitOfWork, principal: Principal) -> Principal:
    signature = work.deps.sign(principal_bytes(principal))
    principal = principal._replace(signature=signature)
    work.principals.append(principal)
    return principal


def add_principal(work: UnitOfWork, command: AddPrincipal) -> Principal:
    """Store a token's hash with the person behind it."""
    if work.principal is not None:
        raise Conflict(f"token {work.principal.id} is there already: give another id")
    principal = command.principal._replace(created=work.now)
    principal = _keep_principal(work, principal)
    work.emit_system(
        "token_created",
        actor=command.by,
        token=principal.id,
        person=principal.person,
        role=principal.role,
        groups=list(principal.groups),
        ends=principal.ends,
    )
    return principal


def revoke_principal(work: UnitOfWork, command: RevokePrincipal) -> Principal:
    """End a token; ending it twice changes nothing."""
    principal = work.principal
    if principal is None:
        raise NotFound(f"no token {command.principal}: see `sayso token list`")
    if principal.revoked is None:
        principal = principal._replace(revoked=work.now)
        principal = _keep_principal(work, principal)
        work.emit_system("token_revoked", actor=command.by, token=principal.id)
    return principal


def note(work: UnitOfWork, command: Note) -> None:
    """Add a fact that changes no row."""
    work.emit(command.type, actor=command.actor, **command.body)
