"""``Driver``: the life of a call, written once: propose, wait, re-check, start, run, record.

The driver reads the stored row and takes the one step that it allows next, until the row says how
the call ended. So it does not matter which process asked, which one decided, and which one is
reading now. Guarded functions, ``gate.ask``, ``confirm`` and ``once``, the agent's turns, framework
adapters, agents on other machines and workers all use it; only the ``Backend`` differs.

There are three entry points. ``result`` takes one call from its proposal to its end, and waits on
the way. ``release`` takes a call to its answer that another agent runs itself, as a coding agent
with a hook does. ``execute`` runs an attempt that has started and records its outcome, for callers
that start several calls in one commit. A framework that runs the tool itself uses the backend's
``begin`` and ``end`` around that.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sayso.errors import (
    CallFailed,
    Conflict,
    InDoubt,
    Paused,
    Refused,
    ResultNotKept,
    describe_error,
)
from sayso.forking import process, renew_in_child
from sayso.gate.backend import Backend, Lease, RunEntry, has_changed
from sayso.gate.failures import failure_of
from sayso.gate.lease import note_inner_error, refuse_own_call, working
from sayso.gate.outcomes import ending
from sayso.gate.plan import Plan, refuse_in_settle
from sayso.rows import Call, CallStatus
from sayso.sync import Body, on_callers_loop, to_thread
from sayso.types import Failure, Request

log = logging.getLogger("sayso.gate")

#: How long a caller with ``wait=0`` waits for the channels.
NOTICE_SECONDS = 10.0
#: How long a caller with ``wait=0`` waits for a call that another process runs.
_RUNNING_GRACE = 0.5

#: How long a caller waits before it checks whether ``settle=`` can be called about a doubt.
_SETTLE_POLL = 5.0

_WAITS = (CallStatus.ASKED, CallStatus.RUNNING, CallStatus.IN_DOUBT)
#: After an exception: it is in doubt, or will be, because its report was lost.
_UNSETTLED = (CallStatus.RUNNING, CallStatus.IN_DOUBT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The outcome of an attempt: its row, and the live value, error or pause."""

    call: Call
    value: Any = None
    error: Exception | None = None
    #: The exception that left the outcome unknown, so that a person has to settle it.
    doubt: Exception | None = None
    paused: Paused | None = None


class _CallProgress:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        #: When the last commit that may have started the call was sent.
        self.began = time.monotonic()
        #: The row for which people were last notified, and the request that they got.
        self.notified: Call | None = None
        self.request: Request | None = None
        self._deadline = None if plan.wait is None else self.began + plan.wait

    def left(self) -> float | None:
        """Return how many seconds the caller still waits for people, or None for forever."""
        return None if self._deadline is None else self._deadline - time.monotonic()


class Driver:
    """Takes calls through their life on one backend, for one agent."""

    def __init__(
        self,
        backend: Backend,
        *,
        agent: str,
        owner: str,
        channels: Sequence[Channel] = (),
        hint: Callable[[Request], None] | None = None,
    ) -> None:
        self.backend = backend
        self.agent = agent
        #: The name of this process in leases.
        self.owner = owner
        renew_in_child(self)
        self.channels = tuple(channels)
        #: Called with a new request if there are no channels.
        self._hint = hint
        self.closed = False

    def after_fork(self) -> None:
        """Use another name for leases than the parent process."""
        self.owner = f"{self.owner}/{os.getpid()}:{secrets.token_hex(4)}"

    # -- one call, from its proposal to its end

    async def result(self, entry: RunEntry, plan: Plan, *, new: bool = False) -> Any:
        """Run the call and return its result, or return the stored result.

        ``new`` says that the caller has just found no row of it.
        Raises ``Paused`` if a decision is needed first and the caller's wait is over; otherwise
        the error for the status of the row: ``Refused``, ``CallFailed``, ``InDoubt``, …
        """
        refuse_in_settle()
        self.backend.check_usable()
        progress = _CallProgress(plan)
        try:
            return await self._result(entry, progress, new=new)
        except Paused:
            entry.note_paused(plan.key)
            raise
        except (Refused, InDoubt):
            if entry.alone:
                await self.backend.finish(entry, "failed")
            raise

    async def _result(self, entry: RunEntry, progress: _CallProgress, *, new: bool) -> Any:
        plan = progress.plan
        stored = None if new else await self.backend.find(entry, plan)
        if stored is None:
            call, started, write = await self.backend.propose(entry, plan)
            if write is not None:
                return await self._read(entry, plan, call, write)
            if call.status is CallStatus.ASKED:
                call = await self._notify(entry, progress, call)
        else:
            call = stored
            started = False
        while True:
            if started:
                return await self._run(entry, progress, call)
            if call.status is CallStatus.READY:
                progress.began = time.monotonic()
                if plan.run is None:
                    call = await self.backend.confirm(entry, plan, call)
                else:
                    call, started, _ = await self.backend.begin(entry, plan, call)
                if call.status is CallStatus.ASKED:
                    call = await self._notify(entry, progress, call)
            elif call.status in _WAITS:
                call = await self._await(entry, progress, call)
            else:
                return await self._ended(plan, call)

    async def _await(self, entry: RunEntry, progress: _CallProgress, call: Call) -> Call:
        """Wait until the row changes. Raise if the caller's wait is over."""
        # A request that was just made is unchanged, unless a channel had it decided.
        now = call if call is progress.notified else await self.backend.reload(call)
        settle = progress.plan.settle
        if now.status is CallStatus.IN_DOUBT and settle is not None:
            now = await self.backend.settle(now, settle)
        changed = now is not call and has_changed(now, call)
        notified = progress.notified
        if now.status is CallStatus.RUNNING:
            refuse_own_call(now.id)
        elif not (changed or now is notified) and (notified is None or has_changed(now, notified)):
            now = await self._notify(entry, progress, now, again=now.status is CallStatus.ASKED)
            changed = has_changed(now, call)
        if changed:
            return now
        running = now.status is CallStatus.RUNNING
        left = progress.left()
        if left is not None:
            left = max(left, _RUNNING_GRACE) if running else left
            if left <= 0:
                notified_request = progress.request if now is progress.notified else None
                raise Paused(entry.name, [notified_request or await self.backend.request(now)])
        if settle is not None and now.unsettled:
            left = _SETTLE_POLL if left is None else min(left, _SETTLE_POLL)
        later = await self.backend.wait(now, left)
        if running and left is not None and not has_changed(later, now):
            raise await self.backend.leased(now)
        return later

    async def _run(self, entry: RunEntry, progress: _CallProgress, call: Call) -> Any:
        with self.backend.lease(entry, call, progress.began) as lease:
            ending_call = await self.execute(entry, progress.plan, call, lease)
        if ending_call.paused is not None:
            if type(ending_call.paused) is Paused:  # an adapter's own subclass carries more
                raise Paused(entry.name, ending_call.paused.requests)
            raise ending_call.paused
        if ending_call.error is not None:
            if ending_call.call.status is CallStatus.READY:  # a read: the same call retries it
                entry.note_paused(progress.plan.key)
            raise ending_call.error
        if ending_call.call.status is CallStatus.DONE:
            return ending_call.value
        try:
            return await self.result(entry, progress.plan)  # it is in doubt
        except (Paused, InDoubt) as unknown:
            # Not the exception itself, which a caller that retries would take for a failure.
            unknown.__cause__ = ending_call.doubt
            raise

    async def _read(
        self,
        entry: RunEntry,
        plan: Plan,
        call: Call,
        write: Callable[[str | None], Awaitable[Call]],
    ) -> Any:
        """Run a read that needs no approval: no lease, no doubt, and at most a row for its result.

        Its exceptions go to the caller, who may make the same call again.
        """
        effect = plan.run
        assert effect is not None
        try:
            with entry.inside(call), working(self.backend.store_id, call.run, call.id):
                value = await effect(call)
        except Exception:
            entry.note_paused(plan.key)
            raise
        if call.terms.record == "asked":
            return value
        text, why = _dumped(plan, value)
        row = await write(text)
        if row.id != call.id:  # another process stored its result first
            return await self._ended(plan, row)
        if text is None:
            raise ResultNotKept(_not_kept(call, why), value)
        return plan.load(text)

    async def _ended(self, plan: Plan, call: Call) -> Any:
        """Return the result of a closed row, or raise the error for its status."""
        ok = call.status in (CallStatus.DONE, CallStatus.RESPONDED)
        if ok and call.result is not None:
            return plan.load(call.result)
        request = await self.backend.request(call)
        error = ending(call, request, await self.backend.stop_reason(call))
        if isinstance(error, CallFailed):
            raise _as_raised(plan.raises, error) from error
        raise error

    # -- a call that its agent runs itself

    async def release(self, entry: RunEntry, plan: Plan) -> Call:
        """Ask about a call, and release it once it is approved. Return the row.

        If there is no decision when the caller's wait is over, the row is still pending, and the
        same call made again finds it.
        """
        self.backend.check_usable()
        progress, (call, *_) = _CallProgress(plan), await self.backend.propose(entry, plan)
        while True:
            if call.status is CallStatus.READY:
                call = await self.backend.release(entry, plan, call)
            elif call.status not in _WAITS:
                return call
            elif has_changed(call, progress.notified or call) or progress.notified is None:
                call = await self._notify(entry, progress, call)
            elif (left := progress.left()) is not None and left <= 0:
                call = await self.backend.defer(call, plan.caller)
                if call.status in _WAITS:
                    return call
            else:
                call = await self.backend.wait(call, left)

    # -- one attempt that has started

    async def execute(self, entry: RunEntry, plan: Plan, call: Call, lease: Lease) -> Ended:
        """Run the effect of a started call, and record its outcome.

        Once the effect has begun, it ends in a record, a pause or a doubt. An exception of the
        effect is returned, not raised: as ``error``, or as ``doubt`` if it leaves the outcome
        unknown. A ``BaseException`` is raised after the call was marked in doubt.
        """
        if lease.lapsed:
            # The start took longer than the lease: another process may hold the run by now.
            reason = "the lease expired before the effect began"
            return Ended(call=await self.backend.record_doubt(call, reason))
        with self.backend.attempt(call) as body:
            return await self._execute(entry, plan, call, body)

    async def _execute(self, entry: RunEntry, plan: Plan, call: Call, body: Body) -> Ended:
        effect = plan.run
        assert effect is not None
        begun_in = process.forks
        handled = sys.exception()
        inner: list[BaseException] = []
        try:
            here = working(self.backend.store_id, call.run, call.id, errors=inner)
            with entry.inside(call), here:
                value = await effect(call)
        except BaseException as error:
            if isinstance(error, GeneratorExit):
                raise  # nothing can be awaited any more; the call is in doubt when the lease ends
            if begun_in != process.forks:
                raise  # this process was forked by the effect: the parent records the outcome
            if isinstance(error, Paused):
                elsewhere = not error.requests or any(r.run != call.run for r in error.requests)
                row = await self.backend.suspend(call, elsewhere=elsewhere)
                return Ended(call=row, paused=error)
            if isinstance(error, Exception):
                failure = failure_of(error, plan.not_executed, inner=inner, handled=handled)
                return await self._end_with(error, failure, entry, plan, call)
            reason = f"interrupted by {type(error).__name__}"
            await self.backend.record_doubt(call, reason, running=body.in_worker_thread)
            raise
        if begun_in != process.forks:
            raise Conflict(
                f"{call.id} runs in the parent of this process and is recorded there: end a "
                "forked child with os._exit()"
            )
        text, why = _dumped(plan, value)
        row = await self.backend.end(entry, call, True, text, why=why if text is None else "")
        if text is None or (row.status is CallStatus.DONE and row.result is None):
            return Ended(call=row, error=ResultNotKept(_not_kept(call, why), value))
        if row.is_read and row.status is CallStatus.DONE:
            text = row.result  # that of the attempt that was recorded first
        # Loaded from text, so that this caller gets the same as every later one.
        return Ended(call=row, value=plan.load(text or "null"))

    async def _end_with(
        self, error: Exception, failure: Failure, entry: RunEntry, plan: Plan, call: Call
    ) -> Ended:
        """Record an exception of the effect: the call failed, or its outcome is unknown."""
        retry = plan.retry and not entry.alone
        row = await self.backend.end(
            entry, call, False, describe_error(error), retry=retry, failure=failure
        )
        note_inner_error(error)
        if failure == "not_executed" or row.status not in _UNSETTLED:
            return Ended(call=row, error=error)
        return Ended(call=row, doubt=error)

    # -- notifying people

    async def _notify(
        self, entry: RunEntry, progress: _CallProgress, call: Call, *, again: bool = False
    ) -> Call:
        """Notify people of a request. A caller with ``wait=0`` waits for the channels instead."""
        progress.notified = call
        patience = NOTICE_SECONDS if progress.plan.wait == 0 else 0.0
        request = progress.request = await self.backend.request(call)
        if not await self.notify(request, patience, again=again):
            return call
        stored_call = await self.backend.reload(call)
        if self.interactive and not has_changed(stored_call, call):
            raise Paused(entry.name, [request])  # the person saw it, and left it for later
        return stored_call

    async def notify(self, request: Request, patience: float, *, again: bool = False) -> bool:
        """Pass a request to the channels and wait up to ``patience`` seconds for them.

        Returns whether there were any. A channel with ``interactive = True`` has a person in front
        of it: it gets the request again when the run is resumed, and is waited for without limit.
        """
        channels = self.channels
        if again:
            channels = tuple(filter(is_interactive, channels))
        if channels:
            await deliver(channels, request, patience)
        elif not again and self._hint is not None:
            self._hint(request)
        return bool(channels)

    @property
    def interactive(self) -> bool:
        return any(map(is_interactive, self.channels))


def _dumped(plan: Plan, value: Any) -> tuple[str | None, str]:
    """Return a result as JSON text, or None and why: the call has run, whatever it returned."""
    try:
        return plan.dump(value), "it has no JSON form"
    except Exception as error:
        return None, describe_error(error)


def _not_kept(call: Call, why: str) -> str:
    return f"{call.id} ran, but its result could not be stored: {why}"


def _as_raised(raises: Sequence[type[Exception]], failed: CallFailed) -> Exception:
    """Return a stored failure as the exception that the call raised, if that was declared."""
    for kind in raises:
        if kind.__name__ == failed.type:
            try:
                return kind(failed.said)
            except Exception:
                bare = kind.__new__(kind)
                bare.args = (failed.said,)
                return bare
    return failed


# --- channels ---
#
# Each channel runs on its own, so that none delays another, or the run. It runs on the caller's
# event loop, where its queues and sessions live. If the caller has no loop, because it called a
# sync method, the channel runs in an OS thread with a loop of its own; so does an interactive
# channel, which reads keys and would block the loop.

Channel = Callable[[Request], Awaitable[None]]


#: Keeps tasks alive that nothing waits for any more.
_delivering: set[asyncio.Task[None]] = set()


def is_interactive(channel: Channel) -> bool:
    return bool(getattr(channel, "interactive", False))


async def deliver(channels: Sequence[Channel], request: Request, patience: float) -> None:
    """Pass a request to channels; wait up to ``patience`` seconds, for interactive ones forever."""
    loop_channels = [c for c in channels if on_callers_loop() and not is_interactive(c)]
    tasks = {asyncio.create_task(_call_channel(channel, request)) for channel in loop_channels}
    _delivering.update(tasks)
    for task in tasks:
        task.add_done_callback(_delivering.discard)
    others = [channel for channel in channels if channel not in loop_channels]
    if others:
        await to_thread(_deliver_in_threads, others, request, patience)
    if tasks and patience:
        await asyncio.wait(tasks, timeout=patience)


def _deliver_in_threads(channels: Sequence[Channel], request: Request, patience: float) -> None:
    threads = [
        threading.Thread(
            target=lambda c=channel: asyncio.run(_call_channel(c, request)), daemon=True
        )
        for channel in channels
    ]
    for thread in threads:
        thread.start()
    for channel, thread in zip(channels, threads, strict=True):
        thread.join(None if is_interactive(channel) else patience)


async def _call_channel(channel: Channel, request: Request) -> None:
    try:
        await channel(request)
    except asyncio.CancelledError:
        log.warning("request %s: the event loop ended before a channel was done", request.id)
        raise
    except Exception as error:
        log.warning("request %s: a channel failed: %s: %s", request.id, type(error).__name__, error)
