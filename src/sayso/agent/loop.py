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
from functools import partial
from typing import Any, TypeVar

from sayso import codec
from sayso.agent import messages, outcome
from sayso.agent.asking import Asking
from sayso.agent.conversation import Conversation
from sayso.agent.events import AgentEvent, Began, Broke, Ended, Requested, Result
from sayso.agent.execution import Execution
from sayso.agent.hold import Hold
from sayso.agent.job import Job
from sayso.agent.models.base import ModelReply
from sayso.agent.nested import tell_outer
from sayso.agent.room import make_room
from sayso.agent.starting import cleared, put_back, show_again
from sayso.agent.turn import Turn
from sayso.engine.commands import Finish, Look, NewCall, Propose
from sayso.errors import Cancelled, Conflict, StoreError, told
from sayso.gate.begun import take_back
from sayso.gate.inside import due_here
from sayso.rows import LIVE, CallStatus, Run
from sayso.text import many
from sayso.twin import hop, look, write, write_start
from sayso.types import Json, Verdict

T = TypeVar("T")

_ENDINGS = {
    "length": "the model stopped at its length limit: raise the limit, or ask for less",
    "filter": "the model's answer was withheld by a content filter",
}
#: How long a new request waits to be told to people before the agent goes on.
_NOTICE_SECONDS = 10.0


class Advance:
    """One process's work on one run."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.store = job.store
        self.hold = Hold(job)
        self.talk = Conversation(job)
        self.asking = Asking(job, self.talk)
        self.turn: Turn | None = None
        #: The run as our own last commit or look left it, where that told of every open call too.
        self._seen: Run | None = None

    # -- beginning

    async def begin(self, text: str) -> Result:
        """A new run: the user's words are written together with the first reply."""
        return await self._guarded(lambda: self._begin(text), resumed=False)

    async def again(self, seen: Run | None = None) -> Result:
        """A run that was begun before, here or elsewhere; ``seen`` is its row, if just read."""
        return await self._guarded(lambda: self._again(seen), resumed=True)

    async def _guarded(self, work: Callable[[], Awaitable[Result]], *, resumed: bool) -> Result:
        if self.store.restored():
            raise StoreError(
                f"{self.store.url} was restored from an older copy, and what ran since then is "
                "unknown: run `sayso recover` first"
            )
        self.job.tell(Began(resumed))
        try:
            result = await work()
        except BaseException as error:
            self.hold.release()
            self.job.tell(Broke(told(error)))
            raise
        finally:
            self.hold.drop()
        if self.job.parent_call is not None and result.status not in LIVE:
            await tell_outer(self.store, self.job.parent_call)
        self.job.tell(Ended(result))
        return result

    async def _begin(self, text: str) -> Result:
        while True:
            if not await look(self.store, self._open, text):
                await make_room(self.job)
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
            except (Cancelled, Conflict):
                self.hold.drop()  # somebody else took it further, or called it off: look again
                seen = None

    async def _enter(self, seen: Run | None) -> Result | None:
        """Read where the run stands; a result if it is over."""
        run = await look(self.store, self.hold.the_run) if seen is None else seen
        while run.status in LIVE and self.hold.elsewhere(run):
            if due_here(run.id):
                return self._stored(run)
            await self.hold.wait()
            run = await look(self.store, self.hold.the_run)
        if self.hold.over(run):
            doubted = await self.hold.doubt()
            run = await look(self.store, self.hold.the_run)
            await look(self.store, self._load, run, {call.id for call in doubted})
        else:
            await look(self.store, self._load, run, set())
        return None if run.status in LIVE else self._stored(run)

    def _load(self, run: Run, doubted: set[str]) -> None:
        """The conversation of a run that was just read, and the calls in its last reply."""
        self._seen = run
        self.talk.load()
        last = self.talk.last
        self.turn = None
        if last.get("run") == run.id and "turn" in last:
            self.turn = Turn(self.job, last["turn"])
            self.turn.load(last)
            for slot in self.turn.slots:
                if slot.call is not None and slot.call.id in doubted:
                    slot.told_asked, slot.told_before = (), False

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
            if self.hold.elsewhere(run):
                raise Conflict(f"somebody else works on run {run.id}")
            if turn.startable or (turn.settled and run.owner != self.job.owner):
                await self._start(turn)
            elif turn.settled:
                return None
            elif await self.hold.park(run):
                waiting = await self._read(turn, turn.waiting)
                return outcome.paused(self.job, waiting, self.talk.usage)

    async def _work(self, turn: Turn) -> Run:
        """Run what was started, tell what is new, close what is over; the run as it stands then."""
        while True:
            run, news = await self._read(turn, lambda: self._look(turn), self._seen is None)
            work = Execution(turn, self.hold, self.talk)
            if turn.due:
                await hop(turn.close_due)
            elif turn.unshown:
                await show_again(turn)
            elif work.slots:
                self._seen = await self._run(news, work)
            elif news and self.job.asks_here:
                await self._tell(news)
            else:
                await self._tell(news)
                if not run.stop or run.owner != self.job.owner:
                    return run
                await hop(self.hold.release)

    async def _read(self, turn: Turn, function: Callable[[], T], again: bool = False) -> T:
        """Call a function that reads calls of the turn; where all is known, it waits for nobody."""
        if self.store.quick_reads or not (again or turn.asks_store):
            return function()
        return await hop(function)

    async def _run(self, news: list[AgentEvent], work: Execution) -> Run | None:
        """Run calls while others are told; the run after it, if that is all there is to see."""
        if not (news and self.job.asks_here):
            await self._tell(news)
            return await work.run()
        await asyncio.gather(self._tell(news), work.run())
        return None

    def _look(self, turn: Turn) -> tuple[Run, list[AgentEvent]]:
        """The run, and then its calls: what is decided in between raises ``wake`` after it."""
        run, self._seen = self._seen, None
        again = run is None
        run = run or self.hold.the_run()
        turn.refresh(again)
        return run, [] if turn.due or turn.unshown else list(turn.news())

    async def _start(self, turn: Turn) -> None:
        """Take the run and start what may start, in one commit."""
        ready = await cleared(turn)
        if not ready and not turn.settled:
            return  # what was ready is asked again: look at it anew
        started, run = await self.hold.take(ready)
        turn.placed(started, self.hold.token)
        if not await put_back(turn, ready) and turn.all_in(started):
            self._seen = run

    async def _tell(self, news: list[AgentEvent]) -> None:
        """Tell listeners what is new, and people what is asked."""
        for event in news:
            self.job.tell(event)
            if isinstance(event, Requested) and self.job.gate.channels:
                await self.job.gate.tell(event.request, _NOTICE_SECONDS, event.again)

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
            lease=job.gate.lease_micros,
            hold=Verdict.ASK not in verdicts,
        )
        # Where nothing waits and nothing runs, the model is next, and the run must be ours for it.
        claim = () if verdicts & {Verdict.ASK, Verdict.ALLOW} else (self.hold.claim(),)
        began = time.monotonic()
        seen = Look(thread=job.thread, run=job.run)
        undo = partial(take_back, [new.id for new in planned])
        calls, *claimed, run = await write_start(self.store, undo, command, *claim, seen)
        self.talk.saved()
        tokens = [call.token for call in calls if call.status is CallStatus.RUNNING]
        tokens += [run.token for run in claimed if run is not None]
        if tokens:
            self.hold.keep(tokens[0], began)
        turn.placed(calls, self.hold.token)
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
            token=self.hold.token,
            after=self.talk.seen,
            **more,
        )

    async def _finish(self, status: str, output: str) -> Result:
        """The last commit; a run of one reply opens and ends in it."""
        job = self.job
        ends = Finish(thread=job.thread, run=job.run, status=status, output=output)
        _, run = await write(self.store, self._propose(hold=True), ends)
        self.talk.saved()
        return self._stored(run)

    def _stored(self, run: Run) -> Result:
        return outcome.stored(self.job, run, self.talk.usage)


_RAISE = "raise max_turns, or ask for less at a time"
