"""New words on a thread: over a paused run they supersede what it asked, over a running one they
wait."""

from __future__ import annotations

from contextlib import closing

from sayso.agent.hold import nap
from sayso.agent.job import Job
from sayso.gate.inside import refuse_own_run
from sayso.stores.inner import call_off
from sayso.twin import News, hop, look

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
