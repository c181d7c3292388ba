"""``Backend``: where the rows of calls are, a store in this process or a server.

The driver uses a ``Backend`` and nothing else. ``StoreBackend`` is the one over a store;
``sayso.client`` has the one over HTTP, which ``sayso serve`` answers with a ``StoreBackend`` of its
own. So the commands that start a call, record it or mark it in doubt are built here and nowhere
else.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

from sayso import codec
from sayso.engine import Command
from sayso.engine.commands import (
    Cancel,
    Complete,
    Defer,
    Finish,
    MarkInDoubt,
    NewCall,
    Propose,
    ReadRun,
    Reask,
    Record,
    Release,
    Reopen,
    ReportResult,
    Review,
    Settle,
    Start,
    Suspend,
)
from sayso.errors import (
    Cancelled,
    Conflict,
    Denied,
    InvalidCall,
    KeyMissing,
    Leased,
    StoreError,
)
from sayso.gate.lease import AttemptLease, RunLease, leased, refuse_own_run, renewer_of
from sayso.gate.outcomes import not_run
from sayso.gate.plan import Plan, Settler, judged_call, raised_terms, recheck, verify
from sayso.gate.review import Reviews, ask_model
from sayso.rows import LIVE, Call, CallStatus, Run, RunStatus
from sayso.stores.base import Due, Store
from sayso.stores.nested_runs import close_due, release_lapsed
from sayso.stores.row_checks import request_in
from sayso.sync import (
    Body,
    CommitWaiter,
    read,
    to_thread,
    write,
    write_shielded,
    write_start,
)
from sayso.types import Failure, Json, Micros, Request

log = logging.getLogger("sayso.gate")

#: How many seconds to rely on the store's notifications before looking again.
_POLL_SECONDS = 30.0
_LONGEST_NAP = 5.0


class RunEntry(Protocol):
    """The run that a call belongs to, as far as a backend needs it."""

    name: str
    thread: str
    requester: str
    #: The run's lease is held for longer than one call.
    hold: bool
    #: Entered for the steps of one call only: no framework drives this run.
    steps: bool
    #: Made for one call, which also ends it.
    alone: bool
    #: Just made, so that nothing of it is stored yet.
    fresh: bool
    #: The run as the last record left it, which saves reading it again.
    recorded: Run | None
    #: The same for the call.
    ended_call: Call | None
    #: What the refusals of a new run last for (``Run.scope``).
    refusal_scope: str

    @property
    def owner(self) -> str:
        """The name of this process in the run's lease."""

    def takes_first_call(self) -> bool:
        """Return whether this is the first new call of an entry."""

    def inside(self, call: Call) -> AbstractContextManager[None]:
        """Make everything that is asked inside ``with`` belong to this call."""

    def note_paused(self, key: str) -> None:
        """Note that a call has paused: the same call made again means this one."""


class CallStart(NamedTuple):
    """A row, and whether this process has just started it."""

    call: Call
    started: bool = False
    #: For a read without approval, which has no row yet: writes one with its result after it ran.
    #: Returns the row, which is that of another process if that was faster.
    write: Callable[[str | None], Awaitable[Call]] | None = None


class Cleared(NamedTuple):
    """A row that has just passed the re-check. Nothing else can be started."""

    call: Call


class Lease(Protocol):
    """The lease of an attempt that runs here."""

    @property
    def lapsed(self) -> bool: ...


class Backend(Protocol):
    """What the driver needs from a store or a server; what has a body here is optional."""

    #: Identifies the store or server. Backends with the same id share their runs.
    store_id: str

    def check_usable(self) -> None:
        """Raise ``StoreError`` if nothing may start here."""
        return None

    async def find(self, entry: RunEntry, plan: Plan) -> Call | None:
        """Return the row of this call, if it was made in an earlier entry of the run."""
        return None

    async def propose(self, entry: RunEntry, plan: Plan) -> CallStart:
        """Evaluate the policy and write the row. An allowed call may start in the same commit."""

    async def reload(self, call: Call) -> Call:
        """Return the row as it is now, after closing what is overdue."""

    async def wait(self, call: Call, timeout: float | None) -> Call:
        """Return the row once it has changed, or after ``timeout`` seconds."""

    async def begin(self, entry: RunEntry, plan: Plan, call: Call) -> CallStart:
        """Re-check an approved call and start it. Raise ``Denied`` if it may not run any more."""

    async def end(
        self,
        entry: RunEntry,
        call: Call,
        ok: bool,
        result: str | None,
        *,
        why: str = "",
        retry: bool = False,
        failure: Failure = "error",
    ) -> Call:
        """Record the outcome of an attempt. With ``retry``, a read that failed may be retried.

        ``failure`` is what its exception says about the effect, which may leave it in doubt.
        """

    async def confirm(self, entry: RunEntry, plan: Plan, call: Call) -> Call:
        """Re-check an approval that has no effect of its own, and complete it."""

    async def release(self, entry: RunEntry, plan: Plan, call: Call) -> Call:
        """Re-check an approved call, and release it to the agent that runs it itself."""

    async def defer(self, call: Call, caller: str) -> Call:
        """Note that a caller was told to ask again. A call that was decided stays as it is."""

    async def suspend(self, call: Call, *, elsewhere: bool = False) -> Call:
        """Make an attempt ready again that paused to ask people."""

    async def record_doubt(self, call: Call, reason: str, *, running: bool = False) -> Call:
        """Mark an interrupted attempt as in doubt; ``running`` says that its body still runs."""

    async def settle(self, call: Call, ask: Settler) -> Call:
        """Call ``settle=`` for a call in doubt, if it may be called now and was not yet."""

    def lease(self, entry: RunEntry, call: Call, began: float) -> AbstractContextManager[Lease]:
        """Renew the lease of an attempt inside ``with``. It was requested at ``began``."""

    def attempt(self, call: Call) -> AbstractContextManager[Body]:
        """Renew an attempt if it is in doubt, inside ``with`` and as long as its body runs.

        The body outlives ``with``, in a worker thread, if its caller is cancelled.
        """
        return Body(lambda: None)

    def inner_run(self, call: Call) -> str | None:
        """Return the run of the requests that a running call makes, if it is not its own."""
        return None

    async def request(self, call: Call) -> Request:
        """Return the row as people see it."""

    async def stop_reason(self, call: Call) -> str:
        """Return why the run of a call was stopped, if it was."""
        return ""

    async def leased(self, call: Call) -> Leased:
        """Return the error for a caller that does not wait for the process that runs a call."""

    async def finish(self, entry: RunEntry, status: str, output: str | None = None) -> None:
        """End the run."""
        return None


def begun(started: Call, before: Call) -> bool:
    return started.under_way and started.attempt == before.attempt + 1


def _unwritten(new: NewCall, entry: RunEntry, agent: str, now: Micros) -> Call:
    """Return a row for a read that is not stored yet."""
    return Call(
        id=new.id,
        run=entry.name,
        thread=entry.thread,
        key=new.key,
        kind=new.kind,
        agent=agent,
        tool=new.tool,
        tool_digest=new.tool_digest,
        args=new.args,
        args_hash=new.args_hash,
        written=new.written,
        nonce=new.nonce,
        terms=new.terms,
        created=now,
        requester=entry.requester,
        binds=new.binds,
        title=new.title,
        note=new.note,
        attempt=1,
    )


def has_changed(one: Call, other: Call) -> bool:
    """Return whether a row changed in a way that concerns a waiting caller."""
    return (one.status, one.rev, one.attempt) != (other.status, other.rev, other.attempt)


class StoreBackend(Backend):
    """Rows in a store that this process can write."""

    def __init__(
        self, store: Store, lease: float, models: Mapping[str, Reviews] | None = None
    ) -> None:
        self.store = store
        #: The functions that rules can name as reviewers.
        self.models = models or {}
        self.lease_length = lease
        #: The store's own id, the same for every address of it.
        self.store_id = store.incarnation
        self._renewer = renewer_of(store)

    def check_usable(self) -> None:
        if self.store.restored():
            raise StoreError(
                f"{self.store.url} was restored from an older copy, so what ran since then is "
                "unknown: run `sayso recover` first"
            )

    # -- the commands, each built here only

    def start(self, cleared: Sequence[Cleared], owner: str, lease: float | None = None) -> Start:
        """Start calls of one run. The commit raises ``Conflict`` if one changed since."""
        ids: list[str] = []
        seen: list[str] = []
        for (call,) in cleared:
            ids.append(call.id)
            seen.append(call.mac)
        length = self.lease_length if lease is None else lease
        return Start(
            thread=call.thread,
            run=call.run,
            calls=tuple(ids),
            seen=tuple(seen),
            owner=owner,
            lease=round(length * 1_000_000),
            exactly=True,
        )

    def mark_in_doubt(self, call: Call, reason: str, *, running: bool = False) -> MarkInDoubt:
        return MarkInDoubt(**_attempt(call), reason=reason, running=running)

    def suspend_command(self, call: Call, *, elsewhere: bool = False) -> Suspend:
        """Make a started call ready again, because it paused or its effect has not begun."""
        return Suspend(**_attempt(call), elsewhere=elsewhere)

    def undo_starts(self, ids: set[str], calls: Sequence[Call], *, alone: bool) -> list[Command]:
        """Return the commands that undo starts whose caller was cancelled.

        A run that was made for one call ends with it: no caller can enter it again.
        """
        begun = [c for c in calls if c.id in ids and c.status is CallStatus.RUNNING]
        back: list[Command] = [self.suspend_command(call) for call in begun]
        if alone:
            why = "stopped before it began"
            back += [Cancel(thread=c.thread, run=c.run, by="code", reason=why) for c in begun]
        return back

    # -- asking

    async def find(self, entry: RunEntry, plan: Plan) -> Call | None:
        if entry.fresh:
            return None
        call = await read(self.store, self.store.call_by_key, entry.name, plan.key)
        subject = (plan.kind, plan.tool_name, plan.args)
        if call is not None and plan.named and (call.kind, call.tool, call.args) != subject:
            return None  # proposing it raises, and says what the key was used for before
        ours = call is not None and call.agent == plan.agent
        if call is not None and ours and call.status is CallStatus.ASKED and call.decision is None:
            # Apply stricter terms to a pending request at once, not only when it starts.
            terms = raised_terms(call, await plan.terms(codec.loads(call.args)))
            if terms is None:
                return call
            reason = f"there is a stricter rule: {terms.rule}"
            reask = Reask(
                thread=call.thread, run=call.run, call=call.id, reason=reason, terms=terms
            )
            return await self.send(call, reask)
        return call

    async def propose(self, entry: RunEntry, plan: Plan) -> CallStart:
        new = await judged_call(plan)
        starts = plan.run is not None and new.terms.verdict == "allow"
        # A read whose rule has limits is counted when it starts, like any other call.
        reads = starts and new.terms.effect == "read" and not new.terms.limits
        if reads and await read(self.store, self._may_read, entry, plan, new):
            # Let a read run before it is written: without a result there is nothing to store.
            async def write_result(result: str | None) -> Call:
                ran = replace(new, outcome=(True, result))
                commands = [*self._proposal(entry, plan, ran), *self._ends(entry, "done")]
                results = await write_shielded(self.store, *commands)
                return cast(Call, results[-1 - entry.alone][0])

            return CallStart(
                _unwritten(new, entry, plan.agent, self.store.now()), True, write_result
            )
        commands = self._proposal(entry, plan, new, entry.owner if starts else None)
        if plan.caller:  # no later call of ours ends this run
            ends = Finish(thread=entry.thread, run=entry.name, status="done")
            ((call,), _) = (await write(self.store, *commands, ends))[-2:]
        else:
            results = await self._start(entry, {new.id}, *commands)
            (call,) = results[-1]
        if call.terms.reviewer and call.id == new.id:
            call = await self.review(call)
        return CallStart(call, call.id == new.id and call.attempt == 1)

    async def review(self, call: Call) -> Call:
        """Have a request that was just made reviewed by the model that its rule names, if any.

        Returns the row after that. A request about a call that people rejected is theirs.
        """
        reviewer = call.terms.reviewer
        if not reviewer or call.status is not CallStatus.ASKED or call.refusals:
            return call
        answer = await ask_model(self.models, reviewer, await self.request(call))
        command = Review(
            thread=call.thread,
            run=call.run,
            call=call.id,
            reviewer=reviewer,
            seen_digest=call.digest,
            answer=answer.answer,
            reason=answer.reason,
        )
        try:
            return cast(Call, (await write(self.store, command))[0])
        except KeyMissing as error:
            log.warning("%s: the answer of %s is not recorded: %s", call.id, reviewer, error)
            return call

    def _proposal(
        self, entry: RunEntry, plan: Plan, new: NewCall, owner: str | None = None
    ) -> list[Command]:
        first = entry.takes_first_call()
        command = Propose(
            thread=entry.thread,
            run=entry.name,
            agent=plan.agent,
            calls=(new,),
            tools=() if plan.tool is None else (plan.tool,),
            requester=entry.requester,
            owner=owner,
            lease=round(self.lease_length * 1_000_000),
            hold=entry.hold,
            scope=entry.refusal_scope,
            fresh=first and entry.fresh,
        )
        if not first or entry.fresh or entry.hold or entry.steps:
            return [command]
        # An agent that runs its calls itself enters the run for each of them, without new input.
        reopen = Reopen(thread=entry.thread, run=entry.name, same_scope=bool(plan.caller))
        return [reopen, command]

    def _may_read(self, entry: RunEntry, plan: Plan, new: NewCall) -> bool:
        """Return whether people have refused no such read. Raise if its run was cancelled."""
        if self.store.refusals_of(plan.agent, new.tool, new.args_hash):
            return False
        run = None if entry.fresh else self.store.run(entry.name)
        if run is not None and (run.stop or run.status is RunStatus.CANCELLED):
            raise Cancelled(f"run {run.id} was cancelled: {run.stop}. Start another run")
        return True

    # -- looking and waiting

    async def reload(self, call: Call) -> Call:
        stored_call = await read(self.store, self.store.call, call.id)
        if stored_call is None:
            raise InvalidCall(
                f"{call.id} is not in the store: it was pruned, or this is another store"
            )
        due = await read(self.store, self._due, stored_call)
        if due is None:
            return stored_call
        await to_thread(close_due, self.store, due)
        return await read(self.store, self.store.call, call.id) or stored_call

    def _due(self, call: Call) -> Due | None:
        """Return what is overdue: an expired request or lease."""
        now = self.store.now()
        if call.overdue(now):
            return Due(call.thread, call.run, call.id)
        if call.status is CallStatus.RUNNING:
            run = self.store.run(call.run)
            if run is not None and run.lapsed(now):
                return Due(call.thread, call.run, None)
        return None

    async def wait(self, call: Call, timeout: float | None) -> Call:
        ends = None if timeout is None else time.monotonic() + timeout
        with closing(CommitWaiter(self.store, call.thread)) as commits:
            while True:
                now = await self.reload(call)
                left = _POLL_SECONDS if ends is None else ends - time.monotonic()
                if has_changed(now, call) or left <= 0:
                    return now
                await commits.wait(self._nap(now, left))

    def _nap(self, call: Call, left: float) -> float:
        """Return how long to wait for a commit: until the clock itself may change something."""
        naps = [_POLL_SECONDS, left]
        if call.due_at is not None:
            naps.append((call.due_at - self.store.now()) / 1_000_000 + 0.001)
        if call.status is CallStatus.RUNNING:
            naps.append(self.lease_length / 3)
        return max(min(naps), 0.001)

    # -- starting

    async def clear(self, plan: Plan, call: Call) -> Cleared | Call:
        """Re-check one ready call, and clear it for a start.

        If it may not start as it is, ask again or cancel it, and return the row after that.
        """
        verify(self.store, call)
        outdated = await recheck(plan, call)
        if outdated is None:
            return Cleared(call)
        if isinstance(outdated, Reask):
            args = call.args if outdated.args is None else outdated.args
            if plan.title is not None:
                outdated = replace(outdated, title=plan.title(args))
            if plan.preview is not None:
                outdated = replace(outdated, preview=await plan.preview(args, call.rev + 1))
        return await self.send(call, outdated)

    async def start_cleared(
        self, entry: RunEntry, cleared: Cleared, lease: float | None = None
    ) -> Call:
        """Start one call. Raise ``Conflict`` if it changed since it was cleared."""
        command = self.start([cleared], entry.owner, lease)
        results = await self._start(entry, {cleared.call.id}, command)
        started: Call = results[-1][0]
        return started

    async def begin(self, entry: RunEntry, plan: Plan, call: Call) -> CallStart:
        cleared = await self.clear(plan, call)
        if not isinstance(cleared, Cleared):
            return CallStart(self._refuse_if_cancelled(cleared))
        try:
            started = await self.start_cleared(entry, cleared)
        except Conflict:
            return CallStart(await self.reload(call))  # another process was faster
        if begun(started, call):
            return CallStart(started, True)
        if started.status is CallStatus.READY:
            started = await self._wait_for_turn(entry, started)
        return CallStart(started)

    async def confirm(self, entry: RunEntry, plan: Plan, call: Call) -> Call:
        cleared = await self.clear(plan, call)
        if not isinstance(cleared, Cleared):
            return self._refuse_if_cancelled(cleared)
        return await self.complete(entry, cleared)

    async def complete(self, entry: RunEntry, cleared: Cleared) -> Call:
        call = cleared.call
        command = Complete(
            thread=call.thread,
            run=call.run,
            call=call.id,
            seen=call.mac,
            result="true",
            owner=entry.owner,
            lease=round(self.lease_length * 1_000_000),
        )
        completed: Call = (await write(self.store, command, *self._ends(entry, "done")))[0]
        if completed.status is CallStatus.READY:
            return await self._wait_for_turn(entry, completed)
        return completed

    async def release(self, entry: RunEntry, plan: Plan, call: Call) -> Call:
        cleared = await self.clear(plan, call)
        return await self.release_cleared(cleared, plan.caller)

    async def release_cleared(self, cleared: Cleared | Call, caller: str) -> Call:
        """Release a call that passed the re-check, and end its run if nothing else is open.

        Returns the row as it is if it did not pass, or changed since.
        """
        if not isinstance(cleared, Cleared):
            return cleared
        call = cleared.call
        command = Release(
            thread=call.thread, run=call.run, call=call.id, seen=call.mac, caller=caller
        )
        ends = Finish(thread=call.thread, run=call.run, status="done")
        try:
            row, _ = await write(self.store, command, ends)
        except Conflict:
            return await self.reload(call)  # another process was faster
        return cast(Call, row)

    async def defer(self, call: Call, caller: str) -> Call:
        command = Defer(thread=call.thread, run=call.run, call=call.id, caller=caller)
        return cast(Call, (await write(self.store, command))[0])

    async def report(
        self, run: str, caller: str, ok: bool, result: Json, args: dict[str, Json] | None = None
    ) -> Call | None:
        """Store what an agent says about the call that was last released to this caller.

        If it ran with other ``args`` than were released, they are stored with the result. Returns
        the row, or None if nothing was released to it.
        """
        call = await read(self.store, self.store.released_call, run, caller)
        if call is None:
            return None
        if args is not None and codec.canonical(args).decode() != call.args:
            log.warning("%s ran with other arguments than were approved", call.id)
            result = {"ran with other arguments than were approved": args, "result": result}
        text = codec.canonical(result).decode()
        command = ReportResult(thread=call.thread, run=call.run, call=call.id, ok=ok, result=text)
        return cast(Call, (await write(self.store, command))[0])

    def _refuse_if_cancelled(self, call: Call) -> Call:
        if call.status is CallStatus.CANCELLED:
            raise Denied(not_run(call, call.result or "it was cancelled"), self.shown(call))
        return call

    async def _start(self, entry: RunEntry, ids: set[str], *commands: Command) -> list[Any]:
        """Commit commands that may start calls, and undo the starts if we are cancelled."""

        def undo(results: list[Any]) -> list[Command]:
            return self.undo_starts(ids, results[-1], alone=entry.fresh)

        return await write_start(self.store, undo, *commands)

    async def _wait_for_turn(self, entry: RunEntry, call: Call) -> Call:
        """Wait while another process works on this run, or until its lease expires."""
        with closing(CommitWaiter(self.store, entry.thread)) as commits:
            run = await read(self.store, self.store.run, call.run)
            if run is not None and run.owner not in (None, entry.owner):
                refuse_own_run(self.store_id, run.id)
                if run.lapsed(self.store.now()):
                    await to_thread(release_lapsed, self.store, call.thread, call.run)
                else:
                    await commits.wait(min(self.lease_length / 3, _LONGEST_NAP))
        return await self.reload(call)

    # -- ending

    async def end(
        self,
        entry: RunEntry,
        call: Call,
        ok: bool,
        result: str | None,
        *,
        why: str = "",
        retry: bool = False,
        failure: Failure = "error",
    ) -> Call:
        record = Record(
            **_attempt(call),
            ok=ok,
            failure=failure,
            result=result,
            why=why,
            hold=entry.hold,
            retry=retry,
        )
        after: Command
        if entry.alone:
            status = "done" if ok else "failed"
            after = Finish(thread=call.thread, run=call.run, status=status)
        else:
            after = ReadRun(thread=call.thread, run=call.run)
        ended, entry.recorded = await write_shielded(self.store, record, after)
        row: Call = ended
        entry.ended_call = row
        return row

    def _ends(self, entry: RunEntry, status: str) -> tuple[Command, ...]:
        if not entry.alone:
            return ()
        return (Finish(thread=entry.thread, run=entry.name, status=status),)

    async def suspend(self, call: Call, *, elsewhere: bool = False) -> Call:
        return await self._record(self.suspend_command(call, elsewhere=elsewhere))

    async def record_doubt(self, call: Call, reason: str, *, running: bool = False) -> Call:
        return await self._record(self.mark_in_doubt(call, reason, running=running))

    async def _record(self, command: Command) -> Call:
        """Write what became of an attempt, even if the caller is cancelled."""
        return cast(Call, (await write_shielded(self.store, command))[0])

    async def settle(self, call: Call, ask: Settler) -> Call:
        if not call.askable(self.store.now()):
            return call
        answer, result, message = await ask(call)  # outside any transaction
        return await self._record(
            Settle(**_attempt(call), answer=answer, result=result, said=message)
        )

    def lease(self, entry: RunEntry, call: Call, began: float) -> RunLease:
        lease = RunLease(self.store, entry.owner, self.lease_length).on(call.thread, call.run)
        if call.status is CallStatus.RUNNING:  # a read has none
            lease.keep(call.token, began)
        return lease

    def attempt(self, call: Call) -> AbstractContextManager[Body]:
        if call.is_read:
            return super().attempt(call)
        lease = AttemptLease(self.store, call, self.lease_length)
        self._renewer.keep(lease)
        return Body(partial(self._renewer.drop, lease))

    async def send(self, call: Call, command: Command) -> Call:
        """Write a command about one call, and return its row."""
        await write(self.store, command)
        return await read(self.store, self.store.call, call.id) or call

    async def request(self, call: Call) -> Request:
        # In an OS thread even if the store is quick: a caller that makes the same call at the same
        # time gets its own place in the run meanwhile.
        return await to_thread(self.shown, call)

    def shown(self, call: Call) -> Request:
        return request_in(self.store, call if call.decision is None else call.as_asked)

    async def stop_reason(self, call: Call) -> str:
        run = await read(self.store, self.store.run, call.run)
        return "" if run is None else run.stop

    async def leased(self, call: Call) -> Leased:
        run = await read(self.store, self.store.run, call.run)
        return Leased(f"{call.id} is not in the store") if run is None else leased(run)

    async def finish(self, entry: RunEntry, status: str, output: str | None = None) -> None:
        if entry.recorded is None or entry.recorded.status in LIVE:
            await to_thread(self._finish, entry, status, output)

    def _finish(self, entry: RunEntry, status: str, output: str | None) -> None:
        run = self.store.run(entry.name)
        if run is None or run.status not in LIVE:
            return
        with suppress(Conflict):  # another process has just taken it, and will end it
            self.store.transact(
                Finish(thread=run.thread, run=run.id, status=status, output=output, token=run.token)
            )


def _attempt(call: Call) -> dict[str, Any]:
    return {
        "thread": call.thread,
        "run": call.run,
        "call": call.id,
        "token": call.token,
        "attempt": call.attempt,
    }
