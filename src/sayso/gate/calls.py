"""The life of one call at the gate: ask, wait, start, run once, record.

Everything here looks at the stored row and does the one thing that row allows next, until the row
says how it ended. So it does not matter which process asked, which one decided, and which one is
looking now.
"""

from __future__ import annotations

import secrets
import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from sayso import codec
from sayso.engine.commands import (
    Cancel,
    Complete,
    Doubt,
    Finish,
    NewCall,
    Propose,
    Record,
    Start,
)
from sayso.errors import (
    Conflict,
    Denied,
    InDoubt,
    InvalidCall,
    Paused,
    Refused,
    StoreError,
    told,
)
from sayso.gate.begun import put_back, take_back
from sayso.gate.endings import ending, not_run
from sayso.gate.inside import refuse_own_call, refuse_own_run, working
from sayso.gate.leases import KEEPER, Lease
from sayso.gate.plan import Plan
from sayso.gate.recheck import recheck
from sayso.gate.scope import RunScope
from sayso.gate.verify import verify
from sayso.rows import Call, CallStatus, Run
from sayso.stores.base import Due
from sayso.stores.inner import close_due
from sayso.twin import News, hop, look, write, write_start, write_whole
from sayso.types import Request, Verdict
from sayso.views import request_of

if TYPE_CHECKING:
    from sayso.gate.gate import Gate

#: How long a waiter trusts the news before it looks by itself.
_LOOK_AGAIN = 30.0


class CallLife:
    """Takes one planned call to its end, or raises ``Paused`` on the way."""

    def __init__(self, gate: Gate, scope: RunScope, plan: Plan) -> None:
        self.gate = gate
        self.store = gate.store
        self.scope = scope
        self.plan = plan
        self.thread = scope.thread
        self._deadline = None if plan.wait is None else time.monotonic() + plan.wait
        self._began = 0.0
        self._fresh_start: tuple[int, int] | None = None
        self._told: tuple[CallStatus, int, int] | None = None

    async def outcome(self) -> Any:
        """The call's result: run now, or stored from before."""
        if self.store.restored():
            raise StoreError(
                f"{self.store.url} was restored from an older copy, and what ran since then is "
                "unknown: run `sayso recover` first"
            )
        try:
            call = await self._known() or await self._propose()
            while True:
                if call.status is CallStatus.READY:
                    done, value = await self._ready(call)
                    if done:
                        return value
                    call = value
                elif call.status is CallStatus.RUNNING and self._started_here(call):
                    return await self._run(call)
                elif call.status in (CallStatus.ASKED, CallStatus.RUNNING, CallStatus.IN_DOUBT):
                    call = await self._await(call)
                else:
                    return self._ended(call)
        except Paused:
            self.scope.still_waits(self.plan.key)
            raise
        except (Refused, InDoubt):
            await self._end_alone("failed")
            raise

    async def _known(self) -> Call | None:
        """The row of this very call, made in an earlier entry of the run."""
        if self.scope.fresh:
            return None
        call = await look(self.store, self.store.call_by_key, self.scope.name, self.plan.key)
        plan = self.plan
        if call is not None and plan.named:
            meant = (plan.kind, plan.tool_name, plan.args)
            if (call.kind, call.tool, call.args) != meant:
                return None  # proposing it says what the key was used for before
        return call

    def _started_here(self, call: Call) -> bool:
        """Whether this very object has just started it, in the commit that proposed it."""
        return self._fresh_start == (call.token, call.attempt)

    # -- asking

    async def _propose(self) -> Call:
        plan = self.plan
        args = codec.loads(plan.args)
        terms = await plan.terms(args)
        preview = ""
        if plan.preview is not None and terms.verdict is Verdict.ASK:
            preview = await plan.preview()
        new = NewCall(
            id="req_" + secrets.token_hex(8),
            key=plan.key,
            kind=plan.kind,
            tool=plan.tool_name,
            tool_digest=plan.tool.digest if plan.tool is not None else "",
            args=plan.args,
            args_hash=codec.sha256(plan.args.encode()),
            nonce=secrets.token_hex(16),
            terms=terms,
            binds=plan.binds,
            note=plan.note,
            preview=preview,
        )
        starts = plan.effect is not None and terms.verdict is Verdict.ALLOW
        command = Propose(
            thread=self.thread,
            run=self.scope.name,
            agent=self.gate.agent,
            calls=(new,),
            tools=() if plan.tool is None else (plan.tool,),
            requester=self.scope.requester,
            owner=self.scope.owner if starts else None,
            lease=self.gate.lease_micros,
            hold=self.scope.hold,
        )
        if starts:
            self._began = time.monotonic()
        proposed = await self._write_start(command, new.id)
        if proposed.id == new.id:
            if proposed.status is CallStatus.RUNNING:
                self._fresh_start = (proposed.token, proposed.attempt)
            if proposed.status is CallStatus.ASKED:
                return await self._tell(proposed)
        return proposed

    async def _tell(self, call: Call, again: bool = False) -> Call:
        """Get a call to people; who does not wait for them waits at least for the notice."""
        self._told = _state(call)
        patience = 10.0 if self.plan.wait == 0 else 0.0
        # By a hop, however quick the store is: who asks the same at once takes its place meanwhile.
        request = await hop(self._request, call)
        if not await self.gate.tell(request, patience, again):
            return call
        seen = await self._look(call)
        if self.gate.interactive and _state(seen) == _state(call):
            raise await self._paused(seen)  # the person was there, and left it for later
        return seen

    def _request(self, call: Call) -> Request:
        tool = self.store.tool(call.tool_digest) if call.tool_digest else None
        return request_of(call, tool)

    # -- waiting

    async def _await(self, call: Call) -> Call:
        """Wait until the row moves on; ``Paused`` when the caller's patience is over."""
        seen = _state(call)
        if call.status is CallStatus.RUNNING:
            refuse_own_call(call.id)
        else:
            call = await self._settle_time(call)
            if _state(call) == seen != self._told:
                call = await self._tell(call, again=call.status is CallStatus.ASKED)
            if _state(call) != seen:
                return call
            if self.plan.wait == 0:
                raise await self._paused(call)
        with closing(News(self.store, self.thread)) as news:
            while True:
                call = await self._settle_time(await self._look(call))
                if _state(call) != seen:
                    return call
                left = self._left()
                if left is not None and left <= 0 and call.status is not CallStatus.RUNNING:
                    raise await self._paused(call)
                await news.wait(self._nap(call, left))

    def _left(self) -> float | None:
        return None if self._deadline is None else self._deadline - time.monotonic()

    def _nap(self, call: Call, left: float | None) -> float:
        """Until the next moment at which the clock alone can change something."""
        naps = [_LOOK_AGAIN]
        if left is not None and left > 0:
            naps.append(left)
        if call.status is CallStatus.ASKED and call.expires_at is not None:
            naps.append((call.expires_at - self.store.now()) / 1_000_000 + 0.001)
        if call.status is CallStatus.RUNNING:
            naps.append(self.gate.lease / 3)
        return max(min(naps), 0.001)

    async def _look(self, call: Call) -> Call:
        found = await look(self.store, self.store.call, call.id)
        if found is None:
            raise InvalidCall(f"{call.id} is gone from the store; it was pruned or another store")
        return found

    async def _settle_time(self, call: Call) -> Call:
        """What only time decides: an overdue request, a started call whose process is gone."""
        due = await look(self.store, self._due, call)
        if due is None:
            return call
        await hop(close_due, self.store, due)
        return await self._look(call)

    def _due(self, call: Call) -> Due | None:
        now = self.store.now()
        if call.status is CallStatus.ASKED:
            if call.expires_at is not None and call.expires_at <= now:
                return Due(call.thread, call.run, call.id)
        elif call.status is CallStatus.RUNNING:
            run = self.store.run(call.run)
            if run is not None and _lapsed(run, now):
                return Due(call.thread, call.run, None)
        return None

    async def _paused(self, call: Call) -> Paused:
        request = await look(self.store, self._request, call)
        return Paused(self.scope.name, [request])

    # -- running

    async def _ready(self, call: Call) -> tuple[bool, Any]:
        """Verify and start; gives (True, value) when it ran, or (False, row) to look at again."""
        verify(self.store, call)
        outdated = await recheck(self.plan, call)
        if outdated is not None:
            (asked,) = await write(self.store, outdated)
            if isinstance(outdated, Cancel):
                raise Denied(not_run(call, outdated.reason), self._request(call))
            return False, await self._tell(asked) if asked.status is CallStatus.ASKED else asked
        if self.plan.effect is None:
            return False, await self._complete(call)
        self._began = time.monotonic()
        command = Start(
            thread=self.thread,
            run=call.run,
            calls=(call.id,),
            owner=self.scope.owner,
            lease=self.gate.lease_micros,
            exactly=True,
        )
        try:
            started = await self._write_start(command, call.id)
        except Conflict:
            return False, await self._look(call)  # somebody else was faster
        if started.status is CallStatus.RUNNING:
            if started != call._replace(
                status=started.status, attempt=started.attempt, token=started.token
            ):
                # Not the row that was verified: put it back, and look at it as it is now.
                await write(self.store, put_back(started))
                return False, await self._look(started)
            return True, await self._run(started)
        if started.status is CallStatus.READY:
            await self._wait_for_turn(started)
            started = await self._look(started)
        return False, started

    async def _complete(self, call: Call) -> Call:
        command = Complete(
            thread=self.thread,
            run=call.run,
            call=call.id,
            result="true",
            owner=self.scope.owner,
            lease=self.gate.lease_micros,
        )
        finish = (self._finish("done"),) if self.scope.alone else ()
        completed: Call = (await write(self.store, command, *finish))[0]
        if completed.status is CallStatus.READY:
            await self._wait_for_turn(completed)
            return await self._look(completed)
        return completed

    async def _wait_for_turn(self, call: Call) -> None:
        """Another process works on this run: one at a time, so wait for it or for its lease."""
        with closing(News(self.store, self.thread)) as news:
            run = await look(self.store, self.store.run, call.run)
            if run is None or run.owner in (None, self.scope.owner):
                return
            refuse_own_run(self.store.incarnation, run.id)
            if _lapsed(run, self.store.now()):
                await write(self.store, Doubt(thread=call.thread, run=call.run))
                return
            await news.wait(min(self.gate.lease / 3, 5.0))

    async def _run(self, call: Call) -> Any:
        """The effect itself: after this line only a record or a doubt."""
        effect = self.plan.effect
        assert effect is not None
        lease = Lease(self.store, self.thread, call.run, call.token, self.gate.lease, self._began)
        if lease.lapsed:
            # The start took longer than the lease: somebody else may hold the run by now.
            await self._doubt(call, "the lease had lapsed before the effect")
            return await self.outcome()
        KEEPER.keep(lease)
        try:
            with (
                self.scope.body(call.key).inside(),
                working(self.store.incarnation, call.run, call.id),
            ):
                value, text = await effect(call)
        except Paused:
            await write(self.store, put_back(call))
            raise
        except Exception as error:
            await self._record(call, False, told(error))
            raise
        except GeneratorExit:
            raise  # nothing can be awaited any more; the lease will lapse into a doubt
        except BaseException as error:
            await self._doubt(call, f"interrupted by {type(error).__name__}")
            raise
        finally:
            KEEPER.drop(lease)
        await self._record(call, True, text)
        return value

    async def _write_start(self, command: Propose | Start, call: str) -> Call:
        """Commit what may start a call; it is put back if we are stopped before we know."""
        undo = partial(take_back, (call,), alone=self.scope.fresh)
        ((started,),) = await write_start(self.store, undo, command)
        return started  # type: ignore[no-any-return]

    async def _record(self, call: Call, ok: bool, result: str) -> None:
        record = Record(
            thread=call.thread,
            run=call.run,
            call=call.id,
            token=call.token,
            attempt=call.attempt,
            ok=ok,
            result=result,
            hold=self.scope.hold,
        )
        commands: list[Any] = [record]
        if self.scope.alone:
            commands.append(self._finish("done" if ok else "failed"))
        await write_whole(self.store, *commands)

    async def _doubt(self, call: Call, reason: str) -> None:
        command = Doubt(
            thread=call.thread,
            run=call.run,
            call=call.id,
            token=call.token,
            attempt=call.attempt,
            reason=reason,
        )
        await write_whole(self.store, command)

    # -- ending

    def _finish(self, status: str) -> Finish:
        return Finish(thread=self.thread, run=self.scope.name, status=status)

    async def _end_alone(self, status: str) -> None:
        if self.scope.alone:
            await write(self.store, self._finish(status))

    def _ended(self, call: Call) -> Any:
        """The result of a closed row, or the error that it means."""
        if call.status in (CallStatus.DONE, CallStatus.RESPONDED):
            return self.plan.load(call.result or "null")
        run = self.store.run(call.run)
        raise ending(call, self._request(call), run.stop if run is not None else "")


def _state(call: Call) -> tuple[CallStatus, int, int]:
    """What must change before a waiting caller has something to do."""
    return call.status, call.rev, call.attempt


def _lapsed(run: Run, now: int) -> bool:
    return run.owner is not None and run.ready_at is not None and run.ready_at <= now
