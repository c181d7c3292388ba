"""Taking a run forward: ask the model, settle its calls, and again, until it pauses or is over.

The smallest set of commits: the reply with its calls (T1, with everything said since the last
one), the claim and the start of what was decided (T3), each result (T4), the last reply (T5).
Nothing is written before the model has answered, and nobody is told before it is written.

Whoever comes back reads where the run stands and does the one thing that is possible next. So it
does not matter which process asked, who decided where, and which process is looking now. A process
that was too slow and lost its lease is refused when it writes, and looks again like any other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from sayso import codec
from sayso.agent import messages, outcome
from sayso.agent.asking import Asking
from sayso.agent.conversation import Conversation
from sayso.agent.events import AgentEvent, Began, Broke, Ended, Requested, Result
from sayso.agent.execution import Execution, ask_other_side, cleared, show_again
from sayso.agent.job import Job
from sayso.agent.models.base import ModelReply
from sayso.agent.nested import tell_outer
from sayso.agent.turn import Turn
from sayso.engine.commands import Finish, NewCall, Propose
from sayso.errors import Cancelled, Conflict, Leased, told
from sayso.gate.driver import NOTICE_SECONDS
from sayso.gate.lease import RunLease
from sayso.rows import LIVE, Run, RunStatus
from sayso.text import many
from sayso.twin import hop, look, write, write_start
from sayso.types import Json, Verdict

T = TypeVar("T")

_ENDINGS = {
    "length": "the model stopped at its length limit: raise the limit, or ask for less",
    "filter": "the model's answer was withheld by a content filter",
}


class Advance:
    """One process's work on one run."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.store = job.store
        self.lease = RunLease(job.store, job.owner, job.gate.backend.lease_length).on(
            job.thread, job.run
        )
        #: The run's token when it was last read or taken: what speaks for an older one is refused.
        self.token: int | None = None
        self.talk = Conversation(job)
        self.asking = Asking(job, self.talk)
        self.turn: Turn | None = None
        #: Until when to wait for another process, on the monotonic clock.
        self._until: float | None = None
        #: The run as our own last commit or look left it, where that told of every open call too.
        self._seen: Run | None = None

    # -- beginning

    async def begin(self, text: str) -> Result:
        """A new run: the user's words are written together with the first reply."""
        return await self._guarded(lambda: self._begin(text), resumed=False)

    async def again(self, seen: Run | None = None, wait: float | None = None) -> Result:
        """Resume a run that was begun before, here or elsewhere; ``seen`` is its row, if just read.

        ``wait`` is how many seconds to wait while another process works on it; None for ever.
        """
        self._until = None if wait is None else time.monotonic() + wait
        return await self._guarded(lambda: self._again(seen), resumed=True)

    async def _guarded(self, work: Callable[[], Awaitable[Result]], *, resumed: bool) -> Result:
        self.job.gate.backend.check_usable()
        self.job.tell(Began(resumed))
        try:
            result = await work()
        except BaseException as error:
            self.lease.release()
            self.job.tell(Broke(told(error)))
            raise
        finally:
            self.lease.drop()
        if self.job.parent_call is not None and result.status not in LIVE:
            await tell_outer(self.store, self.job.parent_call)
        self.job.tell(Ended(result))
        return result

    async def _begin(self, text: str) -> Result:
        while True:
            if not await look(self.store, self._open, text):
                await self.lease.make_room(self.job.thread, self.job.requester or "user")
                continue
            try:
                return await self._go()
            except (Cancelled, Conflict):
                # Else somebody spoke on this thread first: wait for them, and ask anew.
                if await look(self.store, self.store.run, self.job.run) is not None:
                    return await self._again()

    def _open(self, text: str) -> bool:
        """Read the conversation, unless a run is still live in it."""
        if self.store.live_run(self.job.thread) is not None:
            return False
        self.talk.load()
        self.talk.unsaved = [*self._dangling(), messages.user(text)]
        return True

    def _dangling(self) -> list[dict[str, Json]]:
        """Each call must have an answer before the next message: also what nobody will run now."""
        last = self.talk.last
        if not (last.get("calls") or last.get("hosted")):
            return []
        turn = Turn(self.job, last["turn"], last["run"])
        turn.load(last)
        return [slot.message for slot in turn.slots]

    async def _again(self, seen: Run | None = None) -> Result:
        while True:
            ended = await self._enter(seen)
            if ended is not None:
                return ended
            try:
                return await self._go()
            except Leased:
                raise
            except (Cancelled, Conflict):
                self.lease.drop()  # another process has the run, or it was called off: look again
                seen = None

    async def _enter(self, seen: Run | None) -> Result | None:
        """Read the run; a result if it is over, or if another process works on it."""
        run = await look(self.store, self.lease.current) if seen is None else seen
        if run.status in LIVE and self.lease.elsewhere(run):
            run = await self.lease.wait(self._until)
            if run.status in LIVE and self.lease.elsewhere(run):
                return self._stored(run)
        doubted: set[str] = set()
        if run.status in LIVE and run.lapsed(self.store.now()):
            doubted = {call.id for call in await self.lease.free_lapsed()}
        run = await look(self.store, self._load, run.token, doubted)
        return None if run.status in LIVE else self._stored(run)

    def _load(self, token: int, doubted: set[str]) -> Run:
        """Read the run, its conversation, and the calls in its last reply, as one picture.

        ``token`` is that of the run a moment ago: if it has not moved on, nobody else spoke.
        """
        while True:
            self.talk.load()
            run = self.lease.current()
            if run.token == token:
                break
            token = run.token
        self._seen, self.token = run, run.token
        last = self.talk.last
        self.turn = None
        if last.get("run") == run.id and "turn" in last:
            self.turn = Turn(self.job, last["turn"])
            self.turn.load(last)
            for slot in self.turn.slots:
                if slot.call is not None and slot.call.id in doubted:
                    slot.told_asked, slot.told_before = (), False
        return run

    # -- going on

    async def _go(self) -> Result:
        while True:
            if self.turn is not None:
                result = await self._settle(self.turn)
                if result is not None:
                    return result
                self.talk.unsaved += [slot.message for slot in self.turn.slots]
                self.turn = None
            most = self.job.max_turns or self.job.agent.max_turns
            if self.talk.turns >= most:
                return await self._finish(
                    "failed", f"no answer after {many(most, 'turn')}: {_RAISE}"
                )
            result = await self._take(await self.asking.reply())
            if result is not None:
                return result

    async def _settle(self, turn: Turn) -> Result | None:
        """Run what may run; nothing when every call has its answer and the model is next."""
        while True:
            run = await self._work(turn)
            if run.status not in LIVE:
                return self._stored(run)
            if self.lease.elsewhere(run):
                raise Conflict(f"another process works on run {run.id}")
            if turn.startable or (turn.settled and run.owner != self.job.owner):
                await self._start(turn)
            elif turn.settled:
                return None
            elif (await self.lease.park(run, turn.asks_at)).status is not RunStatus.RUNNING:
                waiting = await self._read(turn, turn.waiting)
                return outcome.paused(self.job, waiting, self.talk.usage)

    async def _work(self, turn: Turn) -> Run:
        """Run what was started, tell what is new, close what is over; the run as it stands then."""
        while True:
            run, news = await self._read(turn, lambda: self._look(turn), self._seen is None)
            work = Execution(turn, self.lease, self.talk)
            if turn.due:
                await hop(turn.close_due)
            elif turn.doubts:
                await ask_other_side(turn)
            elif turn.unshown:
                await show_again(turn)
            elif work.slots:
                await self._run(news, work)
            elif news and self.job.asks_here:
                await self._tell(news)
            else:
                await self._tell(news)
                if not run.stop or run.owner != self.job.owner:
                    return run
                await hop(self.lease.release)

    async def _read(self, turn: Turn, function: Callable[[], T], again: bool = False) -> T:
        """Call a function that reads calls of the turn; where all is known, it waits for nobody."""
        if self.store.quick_reads or not (again or turn.asks_store):
            return function()
        return await hop(function)

    async def _run(self, news: list[AgentEvent], work: Execution) -> None:
        """Run calls while people and listeners are told of the others."""
        if not (news and self.job.asks_here):
            await self._tell(news)
            await work.run()
        else:
            await asyncio.gather(self._tell(news), work.run())

    def _look(self, turn: Turn) -> tuple[Run, list[AgentEvent]]:
        """The run, and then its calls: what is decided in between raises ``wake`` after it."""
        run, self._seen = self._seen, None
        again = run is None
        run = run or self.lease.current()
        turn.refresh(again)
        more = turn.due or turn.doubts or turn.unshown
        return run, [] if more else list(turn.news())

    async def _start(self, turn: Turn) -> None:
        """Take the run and start what may start, in one commit."""
        ready = await cleared(turn)
        if not ready and not turn.settled:
            return  # what was ready is asked again: look at it anew
        backend, job = self.job.gate.backend, self.job
        commands: list[Any] = [self.lease.claim()]
        if ready:
            commands.append(backend.start(ready, job.owner))
        began = time.monotonic()
        claimed, *started, run = await write_start(
            self.store, self._taken_back, *commands, self.lease.seen()
        )
        if claimed is None:
            raise Conflict(f"another process works on run {job.run}")
        self.lease.keep(claimed.token, began)
        self.token = claimed.token
        calls = started[0] if started else ()
        turn.placed(calls, claimed.token)
        if turn.all_in(calls):
            self._seen = run

    def _taken_back(self, results: list[Any]) -> list[Any]:
        """What gives back a run that was taken, and its calls, if we are stopped before we know."""
        claimed, *started, _ = results
        if claimed is None:
            return []
        ours = {call.id for call in started[0] if call.token == claimed.token} if started else set()
        back = self.job.gate.backend.taken_back(ours, started[0] if started else (), alone=False)
        return back or self.lease.given_back(claimed)

    async def _tell(self, news: list[AgentEvent]) -> None:
        """Tell listeners what is new, and people what is asked."""
        for event in news:
            self.job.tell(event)
            if isinstance(event, Requested) and self.job.gate.channels:
                driver = self.job.gate.driver
                await driver.tell(event.request, NOTICE_SECONDS, again=event.again)

    # -- writing

    async def _take(self, reply: ModelReply) -> Result | None:
        """Write the reply; a result when the run is over."""
        if reply.calls or reply.approvals:
            await self._take_calls(reply)
            return None
        self.talk.unsaved.append(self.talk.reply(reply))
        if reply.finish in _ENDINGS:
            return await self._finish("failed", _ENDINGS[reply.finish])
        if reply.refusal:
            return await self._finish("failed", outcome.refused(reply.refusal))
        typed = self.job.agent.output
        if typed is None:
            return await self._finish("done", codec.dumps(reply.text))
        try:
            value = typed.read(reply.text)
        except ValueError as error:
            note = f"Your answer does not fit what was asked for: {error}. Answer again."
            self.talk.unsaved.append(messages.user(note))
            return None
        return await self._finish("done", typed.dump(value))

    async def _take_calls(self, reply: ModelReply) -> None:
        message = self.talk.reply(reply)
        turn = Turn(self.job, self.talk.turns)
        planned = await turn.plan(reply)
        self.talk.unsaved.append({**message, "turn": turn.number, **turn.extras})
        await self._write(turn, planned)
        self.turn = turn

    async def _write(self, turn: Turn, planned: tuple[NewCall, ...]) -> None:
        verdicts = {new.terms.verdict for new in planned}
        job = self.job
        tools = [job.tools[new.tool] for new in planned if new.tool in job.tools]
        command = self._propose(
            calls=planned,
            tools=tuple({t.stored.digest: t.stored for t in tools if t.asks is None}.values()),
            owner=job.owner,
            lease=self.lease.micros,
            hold=Verdict.ASK not in verdicts,
        )
        # Where nothing waits and nothing runs, the model is next, and the run must be ours for it.
        claim = () if verdicts & {Verdict.ASK, Verdict.ALLOW} else (self.lease.claim(),)
        began = time.monotonic()
        ids = {new.id for new in planned}
        calls, *_, run = await write_start(
            self.store,
            lambda results: job.gate.backend.taken_back(ids, results[0], alone=False),
            command,
            *claim,
            self.lease.seen(),
        )
        self.talk.saved()
        self.token = run.token
        if run.owner == job.owner:
            self.lease.keep(run.token, began)
        turn.placed(calls, run.token)
        self._seen = run if turn.all_in(calls) else None

    def _propose(self, **more: Any) -> Propose:
        job = self.job
        limit = None if job.max_turns is None else codec.dumps({"max_turns": job.max_turns})
        return Propose(
            thread=job.thread,
            run=job.run,
            agent=job.agent.name,
            messages=self.talk.rows(),
            requester=job.requester,
            agent_digest=job.agent.digest,
            parent_call=job.parent_call,
            snapshot=limit,
            token=self.token,
            after=self.talk.seen,
            **more,
        )

    async def _finish(self, status: str, output: str) -> Result:
        """The last commit; a run of one reply opens and ends in it."""
        job = self.job
        token = self.token or 0  # of a run that opens in this commit
        ends = Finish(thread=job.thread, run=job.run, status=status, output=output, token=token)
        _, run = await write(self.store, self._propose(hold=True), ends)
        self.talk.saved()
        return self._stored(run)

    def _stored(self, run: Run) -> Result:
        return outcome.stored(self.job, run, self.talk.usage)


_RAISE = "raise max_turns, or ask for less at a time"
