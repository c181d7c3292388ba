"""New words on a thread: over a paused run they supersede what it asked, over a running one they
wait."""

from __future__ import annotations

from contextlib import closing

from assent.agent.hold import nap
from assent.agent.job import Job
from assent.engine.commands import Cancel
from assent.gate.inside import refuse_own_run
from assent.rows import LIVE, OPEN, Run
from assent.stores.base import Store
from assent.twin import News, hop, look

_NEW_WORDS = "the user wrote something new"


async def make_room(job: Job) -> None:
    """Return when the thread has no live run any more."""
    with closing(News(job.store, job.thread)) as news:
        while (live := await look(job.store, job.store.live_run, job.thread)) is not None:
            refuse_own_run(job.store.incarnation, live.id)
            if live.owner is not None and (live.ready_at or 0) > job.store.now():
                await news.wait(nap(live, job.store.now()))
            else:
                by = job.requester or "user"
                await hop(call_off, job.store, live, by, _NEW_WORDS, superseded=True)


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
