"""What child processes do when their disk is full or read-only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ordinary_user import ordinary_user
from places import open_at
from stories import append
from waiting import until

from sayso import Inbox, SaysoError, StoreError


def decide(folder: str, most: int = 500, after: str = "") -> dict[str, Any]:
    """Approve each pending request once. Return which were refused, with the messages.

    ``after`` is a file to wait for, with the store open and the requests read.
    """
    acks, refused = 0, []
    store: Any = open_at(folder)
    store._patience = 0.5  # with a server that cannot write now, but may soon
    inbox = Inbox(store)
    waiting = inbox.pending_sync(limit=most).items
    if after:
        Path(folder, "there").touch()
        until(Path(folder, after).exists)
    for request in waiting:
        try:
            inbox.decide_sync(request.id, request.approve(), by="ana")
        except StoreError as error:
            refused.append(str(error))
        except SaysoError as error:
            raise AssertionError(f"another error than that of the store: {error!r}") from error
        else:
            append(Path(folder, "acks"), request.id, "approve", "ana")
            acks += 1
    try:
        inbox.close()
    except StoreError as error:  # it seals what moved, or says that it could not
        refused.append(str(error))
    return {"acks": acks, "refused": refused}


def locked_out(folder: str) -> str:
    """Return the errors of a process that may only read the store's files."""
    try:
        with ordinary_user():
            open_at(folder).close()
    except StoreError as error:
        return str(error)
    return "it was opened"
