"""What stands beside the conversations: grants, tokens, and bare facts."""

from __future__ import annotations

from dataclasses import replace

from assent.engine.commands import AddGrant, AddPrincipal, Note, RevokeGrant, RevokePrincipal
from assent.engine.work import Work
from assent.errors import Conflict, NotFound
from assent.rows import Principal
from assent.types import Grant


def store_grant(work: Work, grant: Grant) -> None:
    """Keep a standing yes, and tell."""
    work.touched_grants[grant.id] = work.grants[grant.id] = grant
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


def add_grant(work: Work, command: AddGrant) -> Grant:
    """Store a standing yes."""
    if command.grant.id in work.grants:
        raise Conflict(f"grant {command.grant.id} is there already: give another id")
    grant = replace(command.grant, created=work.now)
    store_grant(work, grant)
    return grant


def revoke_grant(work: Work, command: RevokeGrant) -> Grant:
    """End a standing yes; ending it twice changes nothing."""
    grant = work.grants.get(command.grant)
    if grant is None:
        raise NotFound(f"no grant {command.grant}: see `assent grants`")
    if grant.revoked is None:
        grant = replace(grant, revoked=work.now)
        work.grants[grant.id] = work.touched_grants[grant.id] = grant
        work.emit_system("revoked", actor=command.by, grant=grant.id)
    return grant


def add_principal(work: Work, command: AddPrincipal) -> Principal:
    """Store a token's hash with the person behind it."""
    if work.principal is not None:
        raise Conflict(f"token {work.principal.id} is there already: give another id")
    principal = command.principal._replace(created=work.now)
    work.principals.append(principal)
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


def revoke_principal(work: Work, command: RevokePrincipal) -> Principal:
    """End a token; ending it twice changes nothing."""
    principal = work.principal
    if principal is None:
        raise NotFound(f"no token {command.principal}: see `assent token list`")
    if principal.revoked is None:
        principal = principal._replace(revoked=work.now)
        work.principals.append(principal)
        work.emit_system("token_revoked", actor=command.by, token=principal.id)
    return principal


def note(work: Work, command: Note) -> None:
    """Add a fact that changes no row."""
    work.emit(command.type, actor=command.actor, **command.body)
