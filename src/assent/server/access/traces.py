"""Attempts at what is not theirs: refused, and written down, so that somebody may see a pattern."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from assent.engine.commands import Note
from assent.errors import NotAllowed, NotFound
from assent.stores.base import Store
from assent.twin import write
from assent.types import Reviewer

_MOST = 200


async def note_refusal(store: Store, by: Reviewer, error: Exception, **tried: str) -> None:
    """Add the attempt to the record of the system."""
    actor = f"agent:{by.name}" if by.role == "agent" else by.name
    body = {"error": type(error).__name__, "role": by.role}
    body |= {name: value[:_MOST] for name, value in tried.items()}
    await write(store, Note(type="refused", actor=actor, body=body))


@asynccontextmanager
async def traced(store: Store, by: Reviewer, **tried: str) -> AsyncIterator[None]:
    """A decision on something that is not there, or not for this person, leaves a trace."""
    try:
        yield
    except (NotAllowed, NotFound) as error:
        await note_refusal(store, by, error, **tried)
        raise
