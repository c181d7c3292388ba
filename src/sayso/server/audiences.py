"""Who may see an event, for the audit log and the live feed."""

from __future__ import annotations

from collections import OrderedDict

from sayso import codec
from sayso.engine.grants import GIVEN_UNDER
from sayso.errors import Tampered, UnknownKey
from sayso.forking import fork_safe_lock
from sayso.inbox.people import Audience, audience_of, audience_of_run
from sayso.rows import SYSTEM_THREAD, Event
from sayso.stores.base import Store
from sayso.stores.row_checks import if_readable

_MAX_ENTRIES = 5_000
_MAX_RUNS_PER_THREAD = 100
#: These events may change who can see a call, and so who can see the run around it.
_CHANGES_AUDIENCE = ("asked", "reasked", "revised", "tightened", "in_doubt", "escalated")
#: Events about access, visible to admins only.
_ACCESS = (
    *("token_created", "token_revoked"),
    *("person_added", "person_changed", "person_removed", "policy_replayed"),
)
_EVERYONE = Audience(everybody=True, names=frozenset())
_ADMINS_ONLY = Audience(everybody=False, names=frozenset())


def subject_of(event: Event) -> str:
    """Return the id of the call that an event is about, or "" if it is about none."""
    if event.type in ("revealed", "checked") and event.body is not None:
        return str(codec.loads(event.body).get("request", ""))
    return event.call


class EventAudiences:
    """Finds who may see events, besides admins, and caches the answer while it holds.

    Pass events in the order of the store: later ones invalidate what was cached for earlier ones.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = fork_safe_lock()
        self._by_call: OrderedDict[str, Audience] = OrderedDict()
        #: By root thread, then by run: a request in one run may change the audience of other runs
        #: in the thread, and of sub-agents, whose threads are named below it.
        self._by_run: OrderedDict[str, dict[str, Audience]] = OrderedDict()

    def of(self, event: Event) -> Audience:
        """Return who may see this event, besides admins."""
        # The lock covers the read as well, so that no OS thread caches an outdated answer.
        with self._lock:
            if event.type in _CHANGES_AUDIENCE:
                self._by_call.pop(event.call, None)
                self._by_run.pop(_root(event), None)
            subject = subject_of(event)
            audience = self._of_call(subject) if subject else None
            if audience is not None:
                return audience
            return _of_system(event) if event.thread == SYSTEM_THREAD else self._of_run(event)

    def _of_call(self, call_id: str) -> Audience | None:
        audience = self._by_call.get(call_id)
        if audience is None:
            try:
                call = self._store.call(call_id)
            except (Tampered, UnknownKey):
                return _ADMINS_ONLY  # the row no longer proves who may see it
            if call is None:
                return None
            audience = self._by_call[call_id] = audience_of((call,))
            if len(self._by_call) > _MAX_ENTRIES:
                self._by_call.popitem(last=False)
        return audience

    def _of_run(self, event: Event) -> Audience:
        """Return the audience of the event's run, or of a thread that has no run yet."""
        cached = self._by_run.setdefault(_root(event), {})
        name = event.run or event.thread
        if name not in cached:
            try:
                read = self._store.run if event.run else self._store.last_run
                run = read(event.run or event.thread)
            except (Tampered, UnknownKey):
                return _ADMINS_ONLY
            if run is None:  # the thread has just begun
                return Audience(everybody=False, names=frozenset((event.actor,)))
            if len(cached) > _MAX_RUNS_PER_THREAD:
                cached.clear()
            cached[name] = if_readable(audience_of_run, self._store, run) or _ADMINS_ONLY
            if len(self._by_run) > _MAX_ENTRIES:
                self._by_run.popitem(last=False)
        return cached[name]


def _root(event: Event) -> str:
    return event.thread.partition("/")[0]


def _of_system(event: Event) -> Audience:
    if event.type in _ACCESS:
        return _ADMINS_ONLY
    if event.type == "granted" and event.body is not None:
        return grant_audience(codec.loads(event.body)["scope"], event.actor)
    return _EVERYONE


def grant_audience(scope: str, by: str) -> Audience:
    """Return who may see a grant: who gave it, and everyone who could have given it."""
    reviewers = frozenset(codec.loads(scope).get(GIVEN_UNDER, {}).get("reviewers", ()))
    return Audience(not reviewers, reviewers | {by})
