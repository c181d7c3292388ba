"""Attempts at what is not theirs: refused, and written down, so that somebody may see a pattern."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sayso.engine.commands import Note
from sayso.errors import NotAllowed, NotFound
from sayso.stores.base import Store
from sayso.twin import write
from sayso.types import Reviewer

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
