"""``FrameworkAgent``: runs a framework's agent on its threads, and resumes it after decisions."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, cast

from sayso import codec
from sayso.engine.commands import Cancel, Note
from sayso.errors import Cancelled, Conflict, InvalidPolicy, NotFound, Paused
from sayso.gate import guarded_runs
from sayso.gate.coverage import Coverage
from sayso.gate.framework.threads import (
    CallPlace,
    keep_off_loop,
    pending_calls,
    place_in_call,
    run_name,
    run_of,
    runs_of,
)
from sayso.gate.framework.tools import FrameworkTool
from sayso.gate.gate import Gate
from sayso.gate.lease import RunLease, supersede, working
from sayso.gate.options import MAX_NAME, checked_string, checked_thread
from sayso.gate.run_result import (
    DecisionInbox,
    ResultStatus,
    RunResult,
    RunState,
    run_named,
    take_decisions,
)
from sayso.gate.scope import RunScope
from sayso.policy import Policy
from sayso.rows import LIVE, Call, Run, RunStatus
from sayso.stores.nested_runs import expire
from sayso.sync import read, sync_twin, to_thread, write
from sayso.types import Json, Request, Reviewer


def check_gate(gate: object, policy: object) -> None:
    """Check the arguments of an adapter's ``guard``, before the first call would fail."""
    if not isinstance(gate, Gate):
        raise TypeError(
            f"guard(...) takes a sayso.Gate, not {type(gate).__name__}: "
            "guard(agent, sayso.Gate('sqlite:///sayso.db', agent='mailer'))"
        )
    if policy is not None and not isinstance(policy, Policy):
        raise InvalidPolicy(
            f"the policy of guard(...) is a sayso.Policy([...]), not {type(policy).__name__}; "
            "pass the path of a file to the gate instead"
        )


class FrameworkAgent:
    """Runs and resumes a framework's agent. Adapters implement ``begin`` and ``go_on``."""

    #: The channel that is recorded for decisions passed to ``resume``.
    channel = "python"
    #: Rules that come before those of the gate.
    policy: Policy | None = None
    #: Whether ``begin`` stores the user's input first, with a ``ConversationLog``. The thread is
    #: then taken in the same commit, and otherwise before ``begin``.
    stores_input = False
    #: The types of results and states. Subclasses have the names that the framework's users know.
    result_type: type[RunResult] = RunResult
    state_type: type[RunState] = RunState

    def __init__(self, gate: Gate, inbox: DecisionInbox, coverage: Coverage | None = None) -> None:
        keep_off_loop(gate.store)
        guarded_runs.install()
        self.gate = gate
        self.inbox = inbox
        self._coverage = coverage
        #: The framework's own results of runs in this process, by the id of the run.
        self._raw: dict[str, Any] = {}

    # -- the adapter's part

    async def begin(self, input: Any, thread: str) -> Any:
        """Run the framework with the user's input. Return its output, or raise ``Paused``."""
        raise NotImplementedError

    async def go_on(self, thread: str) -> Any:
        """Continue the framework from where it stopped. Return its output, or raise ``Paused``."""
        raise NotImplementedError

    def dump_output(self, output: Any) -> Json:
        """Return an output as JSON, to store it with the run."""
        return cast(Json, output)

    async def load_output(self, thread: str, stored: Json) -> Any:
        """Return the stored output of a run in the type that the framework gave it.

        Raises ``ValueError`` if it no longer fits that type.
        """
        return stored

    def interruption(self, call: Call, request: Request) -> Request:
        """Return a pending request with the names that the framework's users know."""
        return request

    def keep_raw(self, run: str, result: Any) -> None:
        """Keep the framework's own result of a run, for ``RunResult.raw``."""
        self._raw[run] = result

    def raw(self, run: str) -> Any:
        """Return the framework's own result of a run, until the run's result is returned."""
        return self._raw.get(run)

    def place(self) -> CallPlace | None:
        """Return the place inside another agent's call, if the adapter implements ``part``."""
        if type(self).part is FrameworkAgent.part:
            return None
        return place_in_call(self.gate)

    async def part(self, input: Any, place: CallPlace) -> Any:
        """Run the framework inside a call of another agent: without a thread, and with the stored
        replies of its model. Return its output, or raise ``Paused``."""
        raise NotImplementedError

    async def call_order(self, thread: str) -> Sequence[str]:
        """Return the ids of the last turn's calls in the model's order, for decisions by position.

        Not needed if the framework makes calls one at a time, or the log has ``open_keys``."""
        return ()

    def known_tools(self) -> Iterable[FrameworkTool]:
        """Return the framework's tools that are known before a run, to show to people."""
        return ()

    def validate_edit(self, call: Call, args: dict[str, Json]) -> str | None:
        """Return what the validators of a call's tool make of edited arguments.

        Returns None if the tool has none, or is not known before a run. Raises ``InvalidCall``.
        """
        for tool in self.known_tools() if call.agent in self.names else ():
            if tool.normalize is not None and tool.stored.digest == call.tool_digest:
                return tool.intake(args)
        return None

    async def read_decisions(self, run: Run, decisions: Any) -> Any:
        """Convert what was passed to ``resume`` to a form that ``decisions_from`` reads, for a
        framework that has its own."""
        return decisions

    # -- what servers, workers and users call

    @property
    def name(self) -> str:
        """The name of the agent in the store."""
        return self.gate.agent

    @property
    def names(self) -> tuple[str, ...]:
        """The agents whose runs it can resume."""
        return (self.name,)

    def coverage(self) -> Coverage:
        """Return what the agent can reach, and whether the gate is in front of it.

        It prints as a table.
        """
        if self._coverage is not None:
            return self._coverage
        merged = Coverage()
        for tool in self.known_tools():
            merged.gated(self.name, "tool", tool.name)
        return merged

    async def run(self, input: Any, *, thread: str | None = None, requester: str = "") -> RunResult:
        """Run the agent. ``status`` is ``"paused"`` if a request needs a decision first.

        Without a thread, inside another agent's call, it is part of that call and pauses it."""
        place = self.place() if thread is None else None
        if place is not None:
            with guarded_runs.also_ungated(self.coverage().ungated):
                output = await self.part(input, place)
            return self._result("done", place.run, place.thread, output=output)
        # The run is named after both, and later runs of the thread have a number.
        thread = checked_thread(thread, MAX_NAME - len(run_name(self.name, "", 9999)))
        checked_string(run_name(self.name, thread, 9999), "thread", MAX_NAME)
        checked_string(requester, "requester", MAX_NAME)
        lease = self._lease()
        if self.stores_input:
            # Most threads are free. Whether this one is, is read together with its log.
            run = run_name(self.name, thread, 1)
            is_free = partial(self._is_free, thread, run, requester)
            run_requester = requester
            lease.open_with(
                self.name, thread, run, requester, *self._notes(thread, run), is_free=is_free
            )
        else:
            run_requester = await self._free_thread(lease, thread, requester)
        while True:
            try:
                return await self._drive(lease, partial(self._begin, lease, input), run_requester)
            except Conflict:
                if not lease.overtaken:
                    raise
            lease = self._lease()
            run_requester = await self._free_thread(lease, thread, requester)

    async def resume(
        self,
        where: RunState | str,
        *,
        decisions: Any = None,
        by: str | Reviewer = "user",
        wait: float | None = None,
    ) -> RunResult:
        """Resume a run by its state, id or thread. ``decisions`` are written first: a list of
        ``request.approve()`` and the like, or ``{"decisions": [...]}`` for all pending requests.

        If another process works on the run, wait for its outcome: at most ``wait`` seconds, then
        raise ``Leased``. None waits forever."""
        store = self.gate.store
        run = await read(store, self.find, where)
        decisions = await self.read_decisions(run, decisions)
        requests = () if decisions is None else await self._open_requests(run)
        await take_decisions(
            self.inbox, store, where, run.thread, decisions, requests, by=by, channel=self.channel
        )
        until = None if wait is None else time.monotonic() + wait
        lease = self._lease().on(run.thread, run.id)
        while True:
            run = await lease.wait(until)
            if run.status not in LIVE or lease.elsewhere(run):
                return await self._ended(run)
            run = await to_thread(self._close_overdue, run)
            if run.stop:
                return await self._ended(await to_thread(lease.stop))
            if (
                run.status is RunStatus.PAUSED
                and not run.due(self.gate.store.now())
                and not run.ready
            ):
                return await self._paused(run)  # no decision was made since
            if await lease.take() is not None:
                return await self._drive(lease, partial(self.go_on, run.thread), run.requester)

    async def cancel(
        self, where: RunState | str, *, by: str = "user", reason: str = "cancelled"
    ) -> None:
        """Cancel a run. Calls that have started finish and are recorded."""
        run = await read(self.gate.store, self.find, where)
        command = Cancel(thread=run.thread, run=run.id, by=by, reason=reason)
        await write(self.gate.store, command)

    run_sync = sync_twin(run, own_loop=True)
    resume_sync = sync_twin(resume, own_loop=True)
    cancel_sync = sync_twin(cancel, own_loop=True)

    # -- internals

    def find(self, where: RunState | str) -> Run:
        """Return the run of this agent with that state or id, or the last one on that thread."""
        store = self.gate.store
        agent = self.gate.agent
        name = run_named(where, store, agent)
        named_run = store.run(name)
        runs = [named_run] if named_run is not None else runs_of(store, agent, name)
        if not runs:
            raise NotFound(f"no run and no thread {name!r} of {agent!r} in {store.url}")
        run = runs[-1]
        if run.agent != agent:
            raise Conflict(
                f"run {run.id} belongs to agent {run.agent!r}, not to {agent!r}: resume it with "
                "the agent that began it"
            )
        return run

    def _lease(self) -> RunLease:
        owner = f"{self.gate.driver.owner}:{secrets.token_hex(4)}"
        return RunLease(self.gate.store, owner, self.gate.backend.lease_length)

    async def _free_thread(self, lease: RunLease, thread: str, requester: str) -> str:
        """Prepare a lease for new input, and return the requester of its run.

        Supersedes the requests of a paused run, and waits for a running one.
        """
        store = self.gate.store
        agent = self.gate.agent
        live, run = await read(store, self._runs_on, thread)
        if live is not None and live.agent != agent:
            raise Conflict(
                f"thread {thread!r} is in use by agent {live.agent!r} ({live.id}): all agents "
                "of a store share its threads, so use another name for this one"
            )
        if live is not None:
            live = await lease.on(thread, live.id).wait()
            if live.stop:
                live = await to_thread(lease.stop)
            if live.status in LIVE and not lease.elsewhere(live):
                await to_thread(supersede, store, live, requester or "user")
            _, run = await read(store, self._runs_on, thread)
        lease.open_with(agent, thread, run, requester, *self._notes(thread, run))
        stored_run = await read(store, store.run, run)
        return requester if stored_run is None else stored_run.requester

    def _is_free(self, thread: str, run: str, requester: str) -> bool:
        """Return whether new input on a thread can open this run, or reopen it as its requester."""
        stored_run = self.gate.store.run(run)
        is_theirs = stored_run is None or stored_run.requester == requester
        return is_theirs and self._runs_on(thread) == (None, run)

    async def _begin(self, lease: RunLease, input: Any) -> Any:
        if not self.stores_input:
            await lease.open()
        output = await self.begin(input, lease.thread)
        await lease.open()  # nothing was stored: the framework has made no calls
        return output

    def _runs_on(self, thread: str) -> tuple[Run | None, str]:
        """Return the live run of a thread, and the id of the run that takes new input."""
        return self.gate.store.live_run(thread), run_of(self.gate.store, self.gate.agent, thread)

    def _notes(self, thread: str, run: str) -> list[Note]:
        """Return the event that records what may bypass the gate in this run."""
        names = list(self.coverage().ungated)
        if not names:
            return []
        actor = f"agent:{self.name}"
        return [Note(thread=thread, type="ungated", actor=actor, run=run, body={"names": names})]

    def _close_overdue(self, run: Run) -> Run:
        for call in self._open_calls(run):
            if call.overdue(self.gate.store.now()):
                expire(self.gate.store, call)
        return self.find(run.id)

    def _open_calls(self, run: Run) -> list[Call]:
        return pending_calls(self.gate.store, run.id) if run.asked or run.in_doubt else []

    async def _drive(
        self, lease: RunLease, step: Callable[[], Awaitable[Any]], requester: str
    ) -> RunResult:
        """Run the framework, and continue it as long as decisions are made meanwhile."""
        run = lease.run
        thread = lease.thread
        while True:
            scope = RunScope(
                self.gate.driver, run, requester, thread=thread, owner=lease.owner, hold=True
            )
            try:
                with (
                    scope.inside(),
                    working(self.gate.backend.store_id, run, lease=lease),
                    guarded_runs.guarded_run(
                        self.gate, self.policy, thread, self.coverage().ungated
                    ),
                ):
                    output = await step()
            except Paused:
                pass
            except Cancelled:
                run_ended = await to_thread(lease.stop)
                if run_ended.status is RunStatus.CANCELLED:
                    return await self._ended(run_ended)
                await to_thread(lease.release)
                raise
            except BaseException:
                await asyncio.shield(asyncio.ensure_future(to_thread(lease.release)))
                raise
            else:
                run_ended = await lease.finish(codec.dumps(self.dump_output(output)))
                if run_ended.status is RunStatus.CANCELLED:
                    return await self._ended(run_ended)
                return self._result("done", run, thread, output=output)
            parked = await self._park(lease)
            if parked.status not in LIVE:
                return await self._ended(parked)  # cancelled meanwhile
            due = parked.status is RunStatus.RUNNING and not lease.elsewhere(parked)
            if not due or await lease.take() is None:
                return await self._paused(parked)
            step = partial(self.go_on, thread)

    async def _park(self, lease: RunLease) -> Run:
        assert lease.taken is not None
        try:
            return await lease.park(lease.taken)
        except Cancelled:
            return await to_thread(lease.stop)
        except Conflict:  # another process has taken it
            return await read(self.gate.store, self.find, lease.run)

    async def _open_requests(self, run: Run) -> tuple[Request, ...]:
        calls = await read(self.gate.store, self._open_calls, run)
        order = await self.call_order(run.thread) if len(calls) > 1 else ()
        position = {id: index for index, id in enumerate(order)}
        calls.sort(key=lambda call: position.get(call.key.split("/")[0], len(position)))
        requests = await read(self.gate.store, lambda: list(map(self.gate.backend.shown, calls)))
        return tuple(map(self.interruption, calls, requests))

    async def _paused(self, run: Run) -> RunResult:
        waiting = await self._open_requests(run)
        return self._result("paused", run.id, run.thread, interruptions=waiting)

    async def _ended(self, run: Run) -> RunResult:
        """Return the result of a run that ended, in any process and at any time."""
        if run.status is RunStatus.DONE:
            stored = codec.loads(run.output or "null")
            error = ""
            try:
                output = await self.load_output(run.thread, stored)
            except ValueError:
                output = stored
                error = "the stored output does not fit the current output type"
            return self._result("done", run.id, run.thread, output=output, error=error)
        status = cast(ResultStatus, str(run.status))
        return self._result(status, run.id, run.thread, error=run.output or run.stop)

    def _result(self, status: ResultStatus, run: str, thread: str, **more: Any) -> RunResult:
        state = self.state_type(
            run=run,
            thread=thread,
            agent=self.name,
            store=self.gate.store,
            interruptions=more.get("interruptions", ()),
        )
        raw = self._raw.pop(run, None)
        return self.result_type(status=status, run=run, thread=thread, state=state, raw=raw, **more)
