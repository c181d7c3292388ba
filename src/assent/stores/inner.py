"""Runs within runs: an agent that is a tool has a thread of its own, under the call."""

from __future__ import annotations

from assent.engine.commands import Cancel
from assent.rows import LIVE, OPEN, Run
from assent.stores.base import Store


def call_off(store: Store, run: Run, by: str, reason: str, *, superseded: bool = False) -> None:
    """Stop a run, and before it the runs of agents that are tools in it."""
    for inner in inner_runs(store, run):
        call_off(store, inner, by, reason, superseded=superseded)
    if run.status in LIVE:
        store.transact(
            Cancel(thread=run.thread, run=run.id, by=by, reason=reason, superseded=superseded)
        )


def inner_runs(store: Store, run: Run) -> list[Run]:
    """The live runs of agents that are tools in this one."""
    open_ids = [call.id for call in store.calls_of(run.id) if call.status in OPEN]
    found = [(id, store.live_run(inner_thread(run.thread, id))) for id in open_ids]
    return [inner for id, inner in found if inner is not None and inner.parent_call == id]


def inner_thread(thread: str, call: str) -> str:
    """The thread of an agent that is a tool: under the call, so that a new start finds it."""
    return f"{thread}/{call}"
