"""Children whose disk is full or read-only."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

from places import open_at
from stories import append

from assent import Inbox, StoreError
from assent.types import Request

#: How many decisions there is room for, and the size that no file may pass from then on.
_ROOM = 10
_PAGE = 4096
_NOBODY = 65534


def fill(folder: str) -> dict[str, Any]:
    """Decide until the disk is full, then make room and decide the rest."""
    inbox = Inbox(open_at(folder))
    waiting = list(inbox.pending_sync(limit=500).items)
    acks = [_approve(inbox, request) for request in waiting[:_ROOM]]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (_PAGE, hard))
    refused: list[str] = []
    for request in waiting[_ROOM:]:
        try:
            acks.append(_approve(inbox, request))
        except StoreError as error:
            refused.append(str(error))
    still = [request.id for request in inbox.pending_sync(limit=500).items]
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    for request in inbox.pending_sync(limit=500).items:
        acks.append(_approve(inbox, request))
    for name in acks:
        append(Path(folder, "acks"), name, "approve", "ana")
    inbox.close()
    return {"refused": refused, "still": len(still), "acks": len(acks)}


def _approve(inbox: Inbox, request: Request) -> str:
    return inbox.decide_sync(request.id, request.approve(), by="ana").id


def locked_out(folder: str) -> str:
    """What somebody is told who may only read the store's files."""
    root = os.geteuid() == 0
    try:
        if root:  # who may write everything
            os.seteuid(_NOBODY)
        open_at(folder).close()
    except StoreError as error:
        return str(error)
    finally:
        if root:
            os.seteuid(0)
    return "it was opened"
