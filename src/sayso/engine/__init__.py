"""The state machine: one table of legal moves, and the functions around it.

``apply(work, command)`` changes the rows of one transaction and nothing else: no clock, no I/O.
Time, hashing and signing come in with ``UnitOfWork.deps``; stores load, write and commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sayso.engine import closing, commands, deciding, grants, proposing, running
from sayso.engine.command import Command
from sayso.engine.commands import COMMANDS
from sayso.engine.unit_of_work import EngineDeps, UnitOfWork

__all__ = ["COMMANDS", "Command", "EngineDeps", "UnitOfWork", "apply"]

_HANDLERS: dict[type[Command], Callable[[UnitOfWork, Any], Any]] = {
    commands.Propose: proposing.propose,
    commands.Reask: proposing.reask,
    commands.Decide: deciding.decide,
    commands.Claim: running.claim,
    commands.Start: running.start,
    commands.Record: running.record,
    commands.Complete: running.complete,
    commands.Suspend: running.suspend,
    commands.MarkInDoubt: running.mark_in_doubt,
    commands.Settle: running.settle_doubt,
    commands.ReleaseLapsed: running.release_lapsed,
    commands.Reopen: running.reopen,
    commands.Park: running.park,
    commands.Renew: running.renew,
    commands.Finish: running.finish,
    commands.Wake: running.woken,
    commands.Look: running.seen,
    commands.Expire: closing.expire,
    commands.Cancel: closing.cancel,
    commands.Recover: closing.recover,
    commands.AddGrant: grants.add_grant,
    commands.RevokeGrant: grants.revoke_grant,
    commands.AddPrincipal: grants.add_principal,
    commands.RevokePrincipal: grants.revoke_principal,
    commands.Note: grants.note,
}


def apply(work: UnitOfWork, command: Command) -> Any:
    """Carry out one command on the loaded rows; what it raises undoes everything."""
    return _HANDLERS[type(command)](work, command)
