"""What the exit code of a command means; the page ``docs/cli.md`` is made from this table."""

from __future__ import annotations

from enum import IntEnum

from sayso.errors import Conflict, Expired, NotAllowed, NotFound, SaysoError


class Exit(IntEnum):
    """The exit codes."""

    OK = 0
    PROBLEM = 1
    USAGE = 2
    NO_REVIEWER = 3
    NOT_FOUND = 4
    CONFLICT = 5
    NOT_ALLOWED = 6
    EXPIRED = 7
    PENDING = 75


MEANINGS: dict[Exit, str] = {
    Exit.OK: "done",
    Exit.PROBLEM: "a problem was found, or what was asked for was refused; nothing was changed",
    Exit.USAGE: "the command was written wrongly",
    Exit.NO_REVIEWER: "nobody can be asked here: it would have to prompt without a terminal",
    Exit.NOT_FOUND: "no store, request, run, grant or token of that name, or several",
    Exit.CONFLICT: "somebody else decided first, or it is not what you saw any more",
    Exit.NOT_ALLOWED: "this person or token may not do that",
    Exit.EXPIRED: "the request has expired",
    Exit.PENDING: "left or interrupted: the request is still pending",
}

_BY_ERROR: tuple[tuple[type[SaysoError], Exit], ...] = (
    (NotFound, Exit.NOT_FOUND),
    (Conflict, Exit.CONFLICT),
    (NotAllowed, Exit.NOT_ALLOWED),
    (Expired, Exit.EXPIRED),
)


class NoReviewer(SaysoError):
    """Somebody would have to be asked, and there is no terminal to ask in."""


class Usage(SaysoError):
    """The options do not go together."""


def exit_of(error: SaysoError) -> Exit:
    """The code for an error."""
    if isinstance(error, NoReviewer):
        return Exit.NO_REVIEWER
    if isinstance(error, Usage):
        return Exit.USAGE
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), Exit.PROBLEM)
