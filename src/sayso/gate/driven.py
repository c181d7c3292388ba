"""Running and resuming somebody else's agent by its thread: what ``guard`` of an adapter gives.

The framework's own runner makes every step. What stands around it here is the same for all: one
process at a time drives a thread, new words of the user supersede what the thread was asking,
decisions are written before the run goes on, and the end is stored, so that whoever resumes a
second time gets the same answer.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from sayso import codec
from sayso.engine.commands import Cancel
from sayso.errors import Cancelled, InvalidCall, InvalidPolicy, Paused
from sayso.gate.foreign_tool import ForeignTool
from sayso.gate.gate import Gate
from sayso.gate.given import check_asked_in, decisions_from
from sayso.gate.inside import due_here, working
from sayso.gate.options import MAX_NAME, checked_words
from sayso.gate.seat import Seat
from sayso.gate.within import Within
from sayso.policy import Policy
from sayso.rows import LIVE, Run, RunStatus
from sayso.twin import hop, look, twin, write
from sayso.types import Decision, Request, Reviewer
from sayso.views import request_of

T = TypeVar("T")


class Decides(Protocol):
    """The door for people, as far as it is needed here: an ``Inbox`` on the gate's store."""

    async def decide(
        self, request_id: str, decision: Decision, *, by: str | Reviewer, channel: str = ...
    ) -> Request: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Stands:
    """Where a run stands: ``paused`` with its open requests, ``done`` with its output, or not."""

    status: str
    run: str
    thread: str
    output: Any = None
    error: str = ""
    interruptions: tuple[Request, ...] = ()


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


class Driven:
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

    def known_tools(self) -> Iterable[ForeignTool]:
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

    async def run(self, input: Any, *, thread: str | None = None, requester: str = "") -> Stands:
        """Answer the user's words; ``paused`` if people are needed first. Without a thread, in the
        body of another agent's call, it is part of that call, and pauses it."""
        place = self.place() if thread is None else None
        if place is not None:
            output = await self.part(input, place)
            return Stands(status="done", run=place.run, thread=place.thread, output=output)
        thread = "thread_" + secrets.token_hex(8) if thread is None else thread
        if not isinstance(thread, str) or not thread.strip() or thread.startswith("@"):
            raise InvalidCall("a thread needs a name, and none that begins with @", "thread")
        # The run is called after both, and later runs of the thread have a number.
        checked_words(thread, "thread", MAX_NAME - len(f"{self.name}:#9999"))
        checked_words(requester, "requester", MAX_NAME)
        seat = Seat(self.gate)
        run = await seat.take_thread(thread, requester)
        return await self._drive(seat, run, self.begin(input, thread))

    async def resume(
        self, where: str, *, decisions: Any = None, by: str | Reviewer = "user"
    ) -> Stands:
        """Go on with a run, by its id or its thread. ``decisions`` are made first: a list of
        ``request.approve()`` and the like, or ``{"decisions": [...]}`` for all that wait."""
        seat = Seat(self.gate)
        run = await look(self.gate.store, seat.find, where)
        if decisions is not None:
            made = decisions_from(decisions, await self._waiting(seat, run))
            await look(self.gate.store, check_asked_in, self.gate.store, run.thread, made)
            for decision in made:
                name = decision.request or ""
                await self.inbox.decide(name, decision, by=by, channel=self.channel)
        while True:
            run = await hop(seat.look_at_the_clock, await hop(seat.find, run.id))
            if run.status not in LIVE:
                return _stored(run)
            if seat.taken(run) and due_here(run.id):
                return _stored(run)
            if seat.taken(run):
                await seat.wait(run)
            elif run.stop:
                return _stored(await hop(seat.stop, run))
            elif run.status is RunStatus.PAUSED and run.ready_at is None and not run.ready:
                return await self._paused(seat, run)  # nothing has happened to go on with
            elif (taken := await seat.take(run)) is not None:
                return await self._drive(seat, taken, self.go_on(taken.thread))

    async def cancel(self, where: str, *, by: str = "user", reason: str = "called off") -> None:
        """Call off a run; what is running finishes and is recorded."""
        run = await look(self.gate.store, Seat(self.gate).find, where)
        command = Cancel(thread=run.thread, run=run.id, by=by, reason=reason)
        await write(self.gate.store, command)

    run_sync = twin(run, apart=True)
    resume_sync = twin(resume, apart=True)
    cancel_sync = twin(cancel, apart=True)

    # -- inside

    async def _drive(self, seat: Seat, run: Run, move: Awaitable[Any]) -> Stands:
        """Let the framework move, and again as long as decisions come in while it does."""
        while True:
            try:
                with seat.scope(run).inside(), working(seat.store.incarnation, run.id):
                    output = await move
            except Paused:
                pass
            except Cancelled:
                ended = await hop(seat.stop, run)
                if ended.status is RunStatus.CANCELLED:
                    return _stored(ended)
                await hop(seat.release, run)
                raise
            except BaseException:
                await asyncio.shield(asyncio.ensure_future(hop(seat.release, run)))
                raise
            else:
                ended = await hop(seat.finish, run, output)
                if ended.status is RunStatus.CANCELLED:
                    return _stored(ended)
                return Stands(status="done", run=run.id, thread=run.thread, output=output)
            parked = await hop(seat.park, run)
            if parked.status not in LIVE:
                return _stored(parked)  # called off meanwhile
            due = parked.status is RunStatus.RUNNING and not seat.taken(parked)
            taken = await seat.take(parked) if due else None
            if taken is None:
                return await self._paused(seat, parked)
            run, move = taken, self.go_on(taken.thread)

    async def _waiting(self, seat: Seat, run: Run) -> tuple[Request, ...]:
        calls = await look(self.gate.store, seat.open_calls, run)
        order = await self.order(run.thread) if len(calls) > 1 else ()
        place = {id: place for place, id in enumerate(order)}
        calls.sort(key=lambda call: place.get(call.key.split("/")[0], len(place)))
        tool = self.gate.store.tool
        return tuple(
            request_of(call, tool(call.tool_digest) if call.tool_digest else None) for call in calls
        )

    async def _paused(self, seat: Seat, run: Run) -> Stands:
        waiting = await self._waiting(seat, run)
        return Stands(status="paused", run=run.id, thread=run.thread, interruptions=waiting)


def _stored(run: Run) -> Stands:
    """A run that has ended, here or elsewhere, now or long ago."""
    if run.status is RunStatus.DONE:
        output = codec.loads(run.output or "null")
        return Stands(status="done", run=run.id, thread=run.thread, output=output)
    error = run.output or run.stop
    return Stands(status=str(run.status), run=run.id, thread=run.thread, error=error)
