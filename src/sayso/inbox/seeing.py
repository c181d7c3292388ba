"""Who may read about what: said here once, for pages, feeds, records and chats alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sayso.rows import Call, Run
from sayso.stores.base import Query, Store
from sayso.types import Request, Reviewer, plain_name
from sayso.views import is_request

#: What is shown instead of words that are for others.
WORDS_FOR_OTHERS = "(not shown: this may tell of a call that is for other reviewers)"


class Audience(NamedTuple):
    """Whom something is for: everybody who reviews, or these people and groups."""

    everybody: bool
    names: frozenset[str]

    def holds(self, ours: frozenset[str]) -> bool:
        """Whether somebody who goes by these names is among them."""
        return self.everybody or not self.names.isdisjoint(ours)


def names_of(by: Reviewer) -> frozenset[str]:
    """What a person goes by in rules: their name, and their groups."""
    return frozenset((by.name, *(f"group:{name}" for name in by.groups)))


def audience_of(calls: Iterable[Call | Request]) -> Audience:
    """Those who may see at least one of these: whoever may decide it, did so, or asked for it."""
    names: set[str] = set()
    everybody = False
    for call in calls:
        wanted = _wanted(call)
        everybody = everybody or not wanted
        names.update(wanted)
        if call.requester:
            names.add(plain_name(call.requester))
        if call.decision is not None:
            names.add(call.decision.by)
    return Audience(everybody, frozenset(names))


def _wanted(call: Call | Request) -> tuple[str, ...]:
    return call.terms.reviewers if isinstance(call, Call) else call.reviewers


def audience_of_run(store: Store, run: Run) -> Audience:
    """Whom what was said in a run is for: not for those who may see nothing of what it asked.

    One that asked nothing goes with its thread, and that of an agent behind a call with the call.
    Where nobody was asked there either, it is its requester's, or everybody's if it has none.
    """
    asked = [call for call in store.calls_of(run.id) if is_request(call)]
    if not asked:
        asked = requests_in(store, run.thread)
    around = store.call(run.parent_call) if not asked and run.parent_call else None
    if around is not None and is_request(around):
        asked = [around]
    outer = store.run(around.run) if around is not None and not asked else None
    if outer is not None:
        return audience_of_run(store, outer)
    found = audience_of(asked) if asked else Audience(not run.requester, frozenset())
    return found._replace(names=found.names | {plain_name(run.requester)} - {""})


def requests_in(store: Store, thread: str) -> list[Call]:
    """The last requests of a thread."""
    return [call for _, call in store.page(Query(status="any", thread=thread, sort="newest"))]


def may_see(by: Reviewer, call: Call | Request) -> bool:
    """Whether this principal may read about a call at all."""
    if by.role == "admin":
        return True
    if by.role == "agent":
        return call.agent == by.name
    if by.role == "chat":
        return plain_name(call.requester) == by.name
    return not _wanted(call) or audience_of((call,)).holds(names_of(by))


def words_for_others(by: Reviewer, turns: Iterable[Iterable[Call]]) -> Iterator[bool]:
    """Of what a model says in each turn of a run, given the calls made there, whether it is not
    for this person.

    From a call on that is for others it may tell of it; what is said beside something that this
    person is asked stands in that request as well.
    """
    others = False
    for turn in turns:
        calls = tuple(turn)
        others = others or any(not may_see(by, call) for call in calls)
        yield others and not asks(by, calls)


def asks(by: Reviewer, calls: Iterable[Call]) -> bool:
    """Whether one of these calls is a request that this principal may see."""
    return any(is_request(call) and may_see(by, call) for call in calls)
