"""The state machine: one table of legal moves, and what each command does to the rows.

``apply(work, command)`` changes the rows of one transaction and nothing else: no clock, no I/O.
Time, hashing and signing are passed in with ``UnitOfWork.deps``; stores load, write and commit.

Read ``moves`` (every legal move), ``commands`` and ``unit_of_work`` (the rows and the chain). Then
follow a call: ``proposing`` and ``asking``, ``deciding`` and ``undoing``, ``running``. ``people``
says who has which rights. ``grants``, ``refusals`` and ``effects`` (unique keys) are what a start
also checks; ``row_macs`` is what authenticates each row, and ``renewing`` is the one change without
a command.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sayso.engine import (
    asking,
    commands,
    deciding,
    grants,
    people,
    proposing,
    refusals,
    running,
    undoing,
)
from sayso.engine.commands import COMMANDS, Command
from sayso.engine.unit_of_work import EngineDeps, UnitOfWork

__all__ = ["COMMANDS", "Command", "EngineDeps", "UnitOfWork", "apply"]

_HANDLERS: dict[type[Command], Callable[[UnitOfWork, Any], Any]] = {
    commands.Propose: proposing.propose,
    commands.Reask: proposing.reask,
    commands.Remind: asking.remind,
    commands.Escalate: asking.escalate,
    commands.Review: deciding.review,
    commands.Decide: deciding.decide,
    commands.Undo: undoing.undo,
    commands.Claim: running.claim,
    commands.Start: running.start,
    commands.Record: running.record,
    commands.Complete: running.complete,
    commands.Release: running.release,
    commands.Defer: running.defer,
    commands.ReportResult: running.report,
    commands.Suspend: running.suspend,
    commands.MarkInDoubt: running.mark_in_doubt,
    commands.Settle: running.settle_doubt,
    commands.ReleaseLapsed: running.release_lapsed,
    commands.Reopen: running.reopen,
    commands.Park: running.park,
    commands.EndLease: running.end_lease,
    commands.Finish: running.finish,
    commands.Wake: running.wake_run,
    commands.ReadRun: running.read_run,
    commands.SignAgain: deciding.sign_again,
    commands.OpenWindow: deciding.open_window,
    commands.GiveGrant: deciding.give_grant,
    commands.VoidVotes: deciding.void_votes,
    commands.Expire: deciding.expire,
    commands.Cancel: deciding.cancel,
    commands.Recover: deciding.recover,
    commands.AddGrant: grants.add_grant,
    commands.RevokeGrant: grants.revoke_grant,
    commands.AddPerson: people.add_person,
    commands.ChangePerson: people.change_person,
    commands.RemovePerson: people.remove_person,
    commands.AddCredential: people.add_credential,
    commands.EndCredentials: people.end_credentials,
    commands.UseCredential: people.use_credential,
    commands.Note: grants.note,
    commands.NotePrompt: refusals.note_prompt,
    commands.LiftRefusal: refusals.lift_refusal,
}


def apply(work: UnitOfWork, command: Command) -> Any:
    """Apply one command to the loaded rows. If it raises, the store undoes everything."""
    return _HANDLERS[type(command)](work, command)
