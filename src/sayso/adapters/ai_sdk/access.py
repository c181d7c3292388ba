"""Whose chat it is: that of whoever posted first. To everybody else it does not exist."""

from __future__ import annotations

from sayso.adapters.ai_sdk.ear import Ear
from sayso.engine.commands import Note
from sayso.errors import NotAllowed, NotFound
from sayso.inbox.people import may_see, requests_in
from sayso.stores.base import Store
from sayso.twin import look, write
from sayso.types import Reviewer

_OPENED = "opened"


def person_of(by: str | Reviewer) -> Reviewer:
    """Who is there; a bare name is a user of the chat, and no reviewer of other people's."""
    person = Reviewer(by, role="chat") if isinstance(by, str) else by
    if person.role == "agent":
        raise NotAllowed("an agent cannot chat or decide: use the token of a person")
    return person


def owner_of(store: Store, chat: str) -> str | None:
    """The name of the owner, nothing if the chat is unknown, and "" if it is nobody's."""
    first = store.chain(chat, 0, 1)
    if not first:
        return None
    if first[0].type == _OPENED:
        return first[0].actor
    began_elsewhere = store.last_run(chat)
    return "" if began_elsewhere is None else began_elsewhere.requester


async def enter(store: Store, chat: str, by: Reviewer, ear: Ear, *, opens: bool) -> None:
    """Let the owner post; new words on an unknown chat make it theirs, before anything else.

    It is a fact of its own, so that of two who post first at the same moment one is the owner.
    """
    owner = ear.owners.get(chat)
    if owner is None:
        owner = await look(store, owner_of, store, chat)
        if owner is None and opens:
            await write(store, Note(thread=chat, type=_OPENED, actor=by.name))
            owner = await look(store, owner_of, store, chat)
        if owner:
            ear.owned(chat, owner)
    if owner is not None and owner != by.name:
        raise _unknown(chat)


def look_in(store: Store, chat: str, by: Reviewer) -> bool | None:
    """Whether it is theirs who look, or they are guests: reviewers see what they may decide.
    Nothing if there is no such chat."""
    owner = owner_of(store, chat)
    if owner in (None, by.name):
        return None if owner is None else True
    if by.role != "admin" and not _reviews(store, chat, by):
        raise _unknown(chat)
    return False


def _reviews(store: Store, chat: str, by: Reviewer) -> bool:
    asked = requests_in(store, chat) if by.role == "reviewer" else []
    return any(may_see(by, call) for call in asked)


def _unknown(chat: str) -> NotFound:
    return NotFound(f"no chat {chat!r} of yours: begin a new one")
