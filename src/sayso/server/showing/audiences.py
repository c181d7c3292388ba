"""Whom a fact is for, as far as it says what it is about: for the record and for the live feed."""

from __future__ import annotations

from collections import OrderedDict

from sayso import codec
from sayso.engine.grants import UNDER
from sayso.errors import Tampered, UnknownKey
from sayso.forking import fork_safe_lock
from sayso.inbox.people import Audience, audience_of, audience_of_run
from sayso.rows import SYSTEM_THREAD, Event
from sayso.stores.base import Store
from sayso.stores.row_checks import if_readable

_MOST, _MOST_OF_ONE = 5_000, 100
#: After these, a call may be for other people than before, and so may the run around it.
_ASKED_ANEW = ("asked", "reasked", "revised", "tightened", "in_doubt")
#: Facts about access, which only operators may know.
_ACCESS = ("token_created", "token_revoked")
_EVERYBODY = Audience(everybody=True, names=frozenset())
_OPERATORS = Audience(everybody=False, names=frozenset())


def subject_of(event: Event) -> str:
    """The id of the call that a fact is about, if it is about one."""
    if event.type == "revealed" and event.body is not None:
        return str(codec.loads(event.body).get("request", ""))
    return event.call


class Audiences:
    """Who may know of facts, besides operators; what was found out is kept while it holds."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = fork_safe_lock()
        self._of_calls: OrderedDict[str, Audience] = OrderedDict()
        #: By thread, then by run: what is asked in one run may close or open others of the same
        #: thread, and those of agents behind its calls, whose threads have a name under it.
        self._of_runs: OrderedDict[str, dict[str, Audience]] = OrderedDict()

    def of(self, event: Event) -> Audience:
        """Whom this fact is for; facts are looked at in the order of the store."""
        # Under the lock nobody can put back what another thread has just found to be outdated.
        with self._lock:
            if event.type in _ASKED_ANEW:
                self._of_calls.pop(event.call, None)
                self._of_runs.pop(_root(event), None)
            subject = subject_of(event)
            found = self._of_call(subject) if subject else None
            if found is not None:
                return found
            return _of_system(event) if event.thread == SYSTEM_THREAD else self._of_run(event)

    def _of_call(self, call_id: str) -> Audience | None:
        found = self._of_calls.get(call_id)
        if found is None:
            try:
                call = self._store.call(call_id)
            except (Tampered, UnknownKey):
                return _OPERATORS  # for whom it is cannot be told any more
            if call is None:
                return None
            found = self._of_calls[call_id] = audience_of((call,))
            if len(self._of_calls) > _MOST:
                self._of_calls.popitem(last=False)
        return found

    def _of_run(self, event: Event) -> Audience:
        """That of a fact about no call: of its run, or of a thread that has none yet."""
        known = self._of_runs.setdefault(_root(event), {})
        name = event.run or event.thread
        if name not in known:
            try:
                read = self._store.run if event.run else self._store.last_run
                run = read(event.run or event.thread)
            except (Tampered, UnknownKey):
                return _OPERATORS
            if run is None:  # somebody has only just begun to speak here
                return Audience(everybody=False, names=frozenset((event.actor,)))
            if len(known) > _MOST_OF_ONE:
                known.clear()
            known[name] = if_readable(audience_of_run, self._store, run) or _OPERATORS
            if len(self._of_runs) > _MOST:
                self._of_runs.popitem(last=False)
        return known[name]


def _root(event: Event) -> str:
    return event.thread.partition("/")[0]


def _of_system(event: Event) -> Audience:
    if event.type in _ACCESS:
        return _OPERATORS
    if event.type == "granted" and event.body is not None:
        return audience_of_scope(codec.loads(event.body)["scope"], event.actor)
    return _EVERYBODY


def audience_of_scope(scope: str, by: str) -> Audience:
    """Whom a standing yes is for: its giver, and those who could have given it."""
    wanted = frozenset(codec.loads(scope).get(UNDER, {}).get("reviewers", ()))
    return Audience(not wanted, wanted | {by})
