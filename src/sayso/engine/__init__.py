"""The state machine: one table of legal moves, and the functions around it.

``apply(work, command)`` changes the rows of one transaction and nothing else: no clock, no I/O.
Time, hashing and signing come in with ``Work.means``; stores do the loading, the writing and the
commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sayso.engine import closing, commands, deciding, proposing, running, standing
from sayso.engine.command import Command
from sayso.engine.commands import COMMANDS
from sayso.engine.work import Means, Work

__all__ = ["COMMANDS", "Command", "Means", "Work", "apply"]

_HANDLERS: dict[type[Command], Callable[[Work, Any], Any]] = {
    commands.Propose: proposing.propose,
    commands.Reask: proposing.reask,
    commands.Decide: deciding.decide,
    commands.Claim: running.claim,
    commands.Start: running.start,
    commands.Record: running.record,
    commands.Complete: running.complete,
    commands.Suspend: running.suspend,
    commands.MarkInDoubt: running.mark_in_doubt,
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
    commands.AddGrant: standing.add_grant,
    commands.RevokeGrant: standing.revoke_grant,
    commands.AddPrincipal: standing.add_principal,
    commands.RevokePrincipal: standing.revoke_principal,
    commands.Note: standing.note,
}


def apply(work: Work, command: Command) -> Any:
    """Carry out one command on the loaded rows; what it raises undoes everything."""
    return _HANDLERS[type(command)](work, command)
