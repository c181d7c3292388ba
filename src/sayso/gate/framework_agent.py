"""An agent that is run in the body of a call of another one: what it does is part of that call.

It has no thread. Its calls stand in the run around it, under the key of that call, and the replies
of its model beside them: when the call is made again after a pause, the agent starts at its top,
and what it said and did comes from the store.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from sayso import codec
from sayso.engine.commands import Cancel
from sayso.errors import Cancelled, Conflict, InvalidCall, InvalidPolicy, NotFound, Paused
from sayso.gate.framework import MOST_WAITING, FrameworkThread, FrameworkTool, run_of, runs_of
from sayso.gate.gate import Gate
from sayso.gate.lease import RunLease, supersede
from sayso.gate.options import MAX_NAME, checked_words
from sayso.gate.parse_decisions import check_asked_in, decisions_from
from sayso.gate.reentrancy import working
from sayso.gate.run_result import RunResult, RunState
from sayso.gate.scope import RunScope, known, quoted
from sayso.policy import Policy
from sayso.rows import LIVE, Call, CallStatus, Run, RunStatus
from sayso.stores.base import NEVER, Query
from sayso.stores.nested_runs import expire
from sayso.sync import read, sync_twin, to_thread, write
from sayso.types import Decision, Json, Request, Reviewer


@dataclass(frozen=True, slots=True)
class Within:
    """The place of one agent in the call that it is run in."""

    run: str
    thread: str
    #: The keys of all that it does begin with it.
    key: str


def within(gate: Gate) -> Within | None:
    """A place for an agent that is run here, if here is the body of a framework's call."""
    scope = known(gate.driver)
    if scope is None or scope.alone or scope.steps or not scope.of_call:
        return None
    return Within(scope.name, scope.thread, scope.key(f"agent:{quoted(gate.agent)}"))


async def kept(calls: FrameworkThread, key: str, ask: Callable[[], Awaitable[Any]]) -> Any:
    """What was asked for under this key before; else it is asked for now, and kept. An error is
    not. It is kept as text: what no call may hold, a model may write all the same."""
    row = await read(calls.store, calls.row, key)
    if row is not None and row.result is not None:
        return json.loads(codec.loads(row.result))
    said = json.dumps(await ask())

    async def keep() -> Json:
        return said

    return json.loads(await calls.once(key, keep))


T = TypeVar("T")


class Decides(Protocol):
    """The door for people, as far as it is needed here: an ``Inbox`` on the gate's store."""

    async def decide(
        self, request_id: str, decision: Decision, *, by: str | Reviewer, channel: str = ...
    ) -> Request: ...


def check_gate(gate: object, policy: object) -> None:
    """Refuse, where an agent is guarded, what would only break at its first call."""
    if not isinstance(gate, Gate):
        raise TypeError(
            f"guard(...) takes a sayso.Gate on a store, and not {type(gate).__name__}: "
            "guard(agent, sayso.Gate('sqlite:///sayso.db', agent='mailer'))"
        )
    if policy is not None and not isinstance(policy, Policy):
        raise InvalidPolicy(
            f"the policy of guard(...) is a sayso.Policy([...]), not {type(policy).__name__}; "
            "the path of a file is for the gate"
        )


class FrameworkAgent:
    """A framework's agent at a gate. An adapter says how its framework begins and goes on."""

    #: How decisions that are handed to ``resume`` are recorded.
    channel = "python"
    #: In place of the gate's.
    policy: Policy | None = None

    def __init__(self, gate: Gate, inbox: Decides) -> None:
        self.gate = gate
        self.inbox = inbox

    # -- the adapter's part

    async def begin(self, input: Any, thread: str) -> Any:
        """Let the framework take the user's words; gives its answer, or raises ``Paused``."""
        raise NotImplementedError

    async def go_on(self, thread: str) -> Any:
        """Let the framework go on from wherever it stopped; gives and raises the same."""
        raise NotImplementedError

    def place(self) -> Within | None:
        """Its place in the call of another agent that it is run in, if it can have one there; an
        adapter that writes ``part`` gives ``within(self.gate)``."""
        return None

    async def part(self, input: Any, place: Within) -> Any:
        """Let the framework answer in that place: without a thread, and with the stored replies of
        its model; gives and raises the same."""
        raise NotImplementedError

    async def order(self, thread: str) -> Sequence[str]:
        """The ids of the last turn's calls, as the model made them. Answers by position go by it;
        an adapter whose framework makes them one after the other can leave it as it is."""
        return ()

    def known_tools(self) -> Iterable[FrameworkTool]:
        """The framework's tools, as far as they are known before a run, for people to look at."""
        return ()

    # -- what servers, workers and people call

    @property
    def name(self) -> str:
        """The name under which its calls stand in the store."""
        return self.gate.agent

    @property
    def names(self) -> tuple[str, ...]:
        """Whose runs it can take further."""
        return (self.name,)

    async def run(self, input: Any, *, thread: str | None = None, requester: str = "") -> RunResult:
        """Answer the user's words; ``paused`` if people are needed first. Without a thread, in the
        body of another agent's call, it is part of that call, and pauses it."""
        place = self.place() if thread is None else None
        if place is not None:
            output = await self.part(input, place)
            return self._result("done", place.run, place.thread, output=output)
        thread = "thread_" + secrets.token_hex(8) if thread is None else thread
        if not isinstance(thread, str) or not thread.strip() or thread.startswith("@"):
            raise InvalidCall("a thread needs a name, and none that begins with @", "thread")
        # The run is called after both, and later runs of the thread have a number.
        checked_words(thread, "thread", MAX_NAME - len(f"{self.name}:#9999"))
        checked_words(requester, "requester", MAX_NAME)
        lease = self._lease()
        run = await self._take_thread(lease, thread, requester)
        return await self._drive(lease, run, self.begin(input, thread))

    async def resume(
        self,
        where: RunState | str,
        *,
        decisions: Any = None,
        by: str | Reviewer = "user",
        wait: float | None = None,
    ) -> RunResult:
        """Resume a run by its state, id or thread. ``decisions`` are written first: a list of
        ``request.approve()`` and the like, or ``{"decisions": [...]}`` for all that wait.

        While another process works on the run, wait for its outcome: at most ``wait`` seconds, then
        raise ``Leased``. None waits for ever."""
        store = self.gate.store
        staged = where.staged if isinstance(where, RunState) else []
        run = await read(store, self.find, where)
        made: list[Decision] = []
        if decisions is not None:
            made = decisions_from(decisions, await self._waiting(run))
            await read(store, check_asked_in, store, run.thread, made)
        for one in staged:
            name = one.decision.request or ""
            await self.inbox.decide(name, one.decision, by=one.by, channel="state")
        staged.clear()
        for decision in made:
            name = decision.request or ""
            await self.inbox.decide(name, decision, by=by, channel=self.channel)
        until = None if wait is None else time.monotonic() + wait
        lease = self._lease().on(run.thread, run.id)
        while True:
            run = await lease.wait(until)
            if run.status not in LIVE or lease.elsewhere(run):
                return self._ended(run)
            run = await to_thread(self._close_overdue, run)
            if run.stop:
                return self._ended(await to_thread(lease.stop))
            if (
                run.status is RunStatus.PAUSED
                and not run.due(self.gate.store.now())
                and not run.ready
            ):
                return await self._paused(run)  # nothing has happened to go on with
            if (taken := await lease.take()) is not None:
                return await self._drive(lease, taken, self.go_on(taken.thread))

    async def cancel(
        self, where: RunState | str, *, by: str = "user", reason: str = "called off"
    ) -> None:
        """Call off a run; what is running finishes and is recorded."""
        run = await read(self.gate.store, self.find, where)
        command = Cancel(thread=run.thread, run=run.id, by=by, reason=reason)
        await write(self.gate.store, command)

    run_sync = sync_twin(run, own_loop=True)
    resume_sync = sync_twin(resume, own_loop=True)
    cancel_sync = sync_twin(cancel, own_loop=True)

    # -- inside

    def find(self, where: RunState | str) -> Run:
        """Return the run of this agent with that state or id, or the last one on that thread."""
        store, agent = self.gate.store, self.gate.agent
        if isinstance(where, RunState):
            where.check(store, agent)
            where = where.run
        named = store.run(where)
        runs = [named] if named is not None else runs_of(store, agent, where)
        if not runs:
            raise NotFound(f"no run and no thread {where!r} of {agent!r} in {store.url}")
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

    async def _take_thread(self, lease: RunLease, thread: str, requester: str) -> Run:
        """Take a thread for new input: it supersedes what a paused run asks, and waits for a
        running one."""
        store, agent = self.gate.store, self.gate.agent
        while True:
            live = await read(store, store.live_run, thread)
            if live is not None and live.agent != agent:
                raise Conflict(
                    f"thread {thread!r} is in use by agent {live.agent!r} ({live.id}): threads are "
                    "shared by all agents of a store, so give this one another name"
                )
            if live is not None:
                live = await lease.on(thread, live.id).wait()
                if live.stop:
                    live = await to_thread(lease.stop)
                if live.status in LIVE and not lease.elsewhere(live):
                    await to_thread(supersede, store, live, requester or "user")
            run = await read(store, run_of, store, agent, thread)
            taken = await lease.take_thread(agent, thread, run, requester)
            if taken is not None:  # else another process took it first: wait for that one
                return taken

    def _close_overdue(self, run: Run) -> Run:
        """Close the requests whose time is over."""
        for call in self._open_calls(run):
            ends = NEVER if call.expires_at is None else call.expires_at
            if call.status is CallStatus.ASKED and ends <= self.gate.store.now():
                expire(self.gate.store, call)
        return self.find(run.id)

    def _open_calls(self, run: Run) -> list[Call]:
        """The calls of a run that wait for people."""
        if not (run.asked or run.in_doubt):
            return []
        query = Query(status="pending", run=run.id, limit=MOST_WAITING)
        return [call for _, call in self.gate.store.page(query)]

    def _scope(self, lease: RunLease, run: Run) -> RunScope:
        """The run, for everything that asks at the gate while it is driven."""
        return RunScope(
            self.gate.driver,
            run.id,
            run.requester,
            thread=run.thread,
            owner=lease.owner,
            hold=True,
        )

    async def _drive(self, lease: RunLease, run: Run, move: Awaitable[Any]) -> RunResult:
        """Let the framework move, and again as long as decisions come in while it does."""
        while True:
            try:
                with self._scope(lease, run).inside(), working(self.gate.backend.place, run.id):
                    output = await move
            except Paused:
                pass
            except Cancelled:
                ended = await to_thread(lease.stop)
                if ended.status is RunStatus.CANCELLED:
                    return self._ended(ended)
                await to_thread(lease.release)
                raise
            except BaseException:
                await asyncio.shield(asyncio.ensure_future(to_thread(lease.release)))
                raise
            else:
                ended = await to_thread(lease.finish, codec.dumps(output))
                if ended.status is RunStatus.CANCELLED:
                    return self._ended(ended)
                return self._result("done", run.id, run.thread, output=output)
            parked = await self._park(lease, run)
            if parked.status not in LIVE:
                return self._ended(parked)  # called off meanwhile
            due = parked.status is RunStatus.RUNNING and not lease.elsewhere(parked)
            taken = await lease.take() if due else None
            if taken is None:
                return await self._paused(parked)
            run, move = taken, self.go_on(taken.thread)

    async def _park(self, lease: RunLease, run: Run) -> Run:
        try:
            return await lease.park(run)
        except Cancelled:
            return await to_thread(lease.stop)
        except Conflict:  # another process took it since, and has it
            return await read(self.gate.store, self.find, run.id)

    async def _waiting(self, run: Run) -> tuple[Request, ...]:
        calls = await read(self.gate.store, self._open_calls, run)
        order = await self.order(run.thread) if len(calls) > 1 else ()
        place = {id: place for place, id in enumerate(order)}
        calls.sort(key=lambda call: place.get(call.key.split("/")[0], len(place)))
        return tuple(map(self.gate.backend.shown, calls))

    async def _paused(self, run: Run) -> RunResult:
        waiting = await self._waiting(run)
        return self._result("paused", run.id, run.thread, interruptions=waiting)

    def _ended(self, run: Run) -> RunResult:
        """Return the result of a run that ended, in any process and at any time."""
        if run.status is RunStatus.DONE:
            output = codec.loads(run.output or "null")
            return self._result("done", run.id, run.thread, output=output)
        return self._result(str(run.status), run.id, run.thread, error=run.output or run.stop)

    def _result(self, status: str, run: str, thread: str, **more: Any) -> RunResult:
        state = RunState(
            run=run,
            thread=thread,
            agent=self.name,
            store=self.gate.store,
            incarnation=self.gate.store.incarnation,
            interruptions=more.get("interruptions", ()),
        )
        return RunResult(status=status, run=run, thread=thread, state=state, **more)
