"""A SQL store that was opened read-only: it shows what the next writer will record.

A request that has expired and a run whose process died are found by the first process that looks,
which records it. A process that may not write applies the same commands to the rows it has read,
and keeps the result to itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import gt, lt
from typing import Any, NoReturn

from sayso.engine import UnitOfWork, apply
from sayso.engine.asking import due_step
from sayso.engine.commands import Cancel, Command, Expire, ReleaseLapsed
from sayso.errors import KeyMissing, StoreError, Tampered
from sayso.keys import Keyring
from sayso.rows import Call, Run
from sayso.stores.base import (
    Boundary,
    Due,
    Hub,
    Listener,
    Query,
    StoreReads,
    engine_deps,
    page_key,
)
from sayso.stores.listing import fits, list_status_of, list_statuses_of, shows
from sayso.stores.nested_runs import inner_runs
from sayso.stores.row_checks import if_readable, log, tool_of
from sayso.stores.sql.reads import SqlReads

#: At most this many overdue requests and runs are computed; a store with more has no worker.
_MOST_DUE = 1000


class ReadOnlySqlStore(SqlReads):
    """The part that both databases share. Whatever would write raises ``StoreError``."""

    url: str
    incarnation: str
    keys: Keyring
    boundary: Boundary | None = None
    quick_reads = False

    def __init__(self) -> None:
        # Nothing is published here, so callers that wait for a commit look again after a while.
        self._hub = Hub()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise StoreError(f"{self.url} was opened read-only: open it without read_only to write")

    transact = renew = reserve = move_cursor = put_deliveries = _refuse
    seal = seal_if_due = prune = rekey = mark_recovered = _refuse

    def subscribe(self, thread: str | None, listener: Callable[[], None]) -> Listener:
        return self._hub.subscribe(thread, listener)

    # -- what the next writer will record

    def overdue(self, limit: int = 100) -> list[Due]:
        """Return nothing: this process cannot close what is overdue, and shows it as closed."""
        return []

    def call(self, call_id: str) -> Call | None:
        return self._closed_calls().get(call_id) or super().call(call_id)

    def page(self, query: Query) -> list[tuple[int, Call]]:
        closed = self._closed_calls()
        stored = super().page(replace(query, limit=query.limit + len(closed)))
        rows = [(key, call) for key, call in stored if call.id not in closed]
        numbers = self._numbers(list(closed))
        for call in closed.values():
            key = page_key(query, numbers[call.id], call.expires_at)
            on_list = list_status_of(call) in list_statuses_of(query) and fits(call, query)
            if on_list and shows(call, if_readable(tool_of, self, call), query.text):
                rows.append((key, call))
        if query.after is not None:
            is_later = lt if query.sort == "newest" else gt
            rows = [row for row in rows if is_later(row[0], query.after)]
        rows.sort(key=lambda row: row[0], reverse=query.sort == "newest")
        return rows[: query.limit]

    def quick_page(self, query: Query) -> tuple[list[tuple[int, Call]], int | None]:
        return self.page(query), None

    def _numbers(self, ids: list[str]) -> dict[str, int]:
        return dict(self._among("SELECT id, n FROM call WHERE id IN ({})", ids)) if ids else {}

    def _closed_calls(self) -> dict[str, Call]:
        """Return the calls that closing overdue requests and runs would change, changed."""
        closed: dict[str, Call] = {}
        for due in super().overdue(_MOST_DUE):
            try:
                closed |= as_closed(self, due)
            except (Tampered, KeyMissing) as error:
                log.warning("overdue, but shown as it is stored: %s", error)
        return closed


def as_closed(store: StoreReads, due: Due) -> dict[str, Call]:
    """Return the calls that closing this would change, as ``nested_runs.close_due`` would."""
    run = store.run(due.run)
    if run is None:
        return {}
    if due.call is None:
        return _applied(store, run, ReleaseLapsed(thread=run.thread, run=run.id))
    changed: dict[str, Call] = {}
    calls = [call for call in store.calls_of(run.id) if call.id == due.call and not call.held]
    if any(call.overdue(store.now()) and call.terms.on_expiry == "cancel" for call in calls):
        for inner in inner_runs(store, run):
            changed |= _cancelled(store, inner, f"{due.call} expired")
    step = next((due_step(call, store.now()) for call in calls), None)
    command = step or Expire(thread=run.thread, run=run.id, call=due.call)
    return changed | _applied(store, run, command)


def _cancelled(store: StoreReads, run: Run, reason: str) -> dict[str, Call]:
    changed: dict[str, Call] = {}
    for inner in inner_runs(store, run):
        changed |= _cancelled(store, inner, reason)
    command = Cancel(thread=run.thread, run=run.id, by="clock", reason=reason)
    return changed | _applied(store, run, command)


def _applied(store: StoreReads, run: Run, command: Command) -> dict[str, Call]:
    """Apply a command to the rows of a run, and write nothing."""
    thread = store.thread(run.thread)
    if thread is None:
        return {}
    calls = store.calls_of(run.id)
    names = {name for c in calls if c.held for v in c.votes for name in (v.by, v.on_behalf_of)}
    people = (store.person(name) for name in sorted(names - {""}))
    work = UnitOfWork(
        now=store.now(),
        deps=engine_deps(store.keys),
        thread=thread,
        run=run,
        calls={call.id: call for call in calls},
        people={person.look: person for person in people if person is not None},
    )
    apply(work, command)
    return work.touched_calls
