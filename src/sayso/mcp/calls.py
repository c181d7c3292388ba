"""``Calls``: the calls of one agent in one session, each carried by a task of its own.

A call outlives the client that made it. Its task takes it through the gate's driver: ask, wait for
people, run it, record it. Clients only wait for that task, for as long as they may be held.

**Natural keys.** A model that repeats a call because its client gave up means the same call; a
model that calls again after it got the result means a new one. Some clients send the model's own id
of the call, which settles it. Otherwise the same tool with the same arguments is the same call if
the earlier one was not handed over yet and nobody waits for it any more. "Handed over" is stored:
each call has a run of its own, and the run is finished when a client gets the result. So a call
that another process left behind is found again by listing the runs that are not finished.

**Tickets.** The name of the run ends with the ticket, so a ticket is valid for the agent and the
session that got it, in any process on the same store.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import mcp_types as types

from sayso import codec
from sayso.client import RemoteGate
from sayso.errors import (
    CallFailed,
    Cancelled,
    InDoubt,
    InvalidCall,
    NotFound,
    Paused,
    Refused,
    ResultNotKept,
    SaysoError,
    TooMany,
    describe_error,
)
from sayso.gate import Gate
from sayso.gate.framework import Outcome, outcome_of
from sayso.gate.plan import Plan
from sayso.gate.scope import RunScope
from sayso.mcp.config import OnAbandon
from sayso.mcp.journal import Journal
from sayso.mcp.upstreams import ConnectionLost, Listener
from sayso.rows import LIVE, Call, CallStatus
from sayso.sync import read
from sayso.types import Json, Terms, Verdict

log = logging.getLogger("sayso.mcp")

#: The key of the call in its run.
_KEY = "call"
#: Seconds between two signs of life to a client that asked for progress.
PROGRESS_SECONDS = 3.0
#: How many outcomes to keep for a client that asks for them again.
_MOST_DELIVERED = 500
_MOST_OPEN = 1000
#: How many calls of one agent may wait at the same time.
MOST_WAITING = 500
#: How long a client that was held already waits for the status of its call.
_STATUS_SECONDS = 2.0
#: Seconds that running calls get when the proxy ends, which must be gone two seconds after its
#: client.
_LAST_SECONDS = 0.5
#: How often a call is taken further after its connection broke.
_MOST_AGAIN = 3
_REUSED = (
    "Nothing was run: the id of this call belongs to another one, which was made before. "
    "Make the call again."
)


class ServerConnectionLost(BaseException):
    """The connection broke while a call ran, so nobody knows whether it took effect.

    A ``BaseException``, because the driver records an ``Exception`` as a failure of the call.
    """


class Target(Protocol):
    """What is called: a tool of a server, or a question to people."""

    @property
    def name(self) -> str: ...

    @property
    def on_abandon(self) -> OnAbandon: ...

    def intake(self, args: Mapping[str, Json]) -> str:
        """Return the arguments with defaults, as they are stored. Raise ``InvalidCall``."""
        ...

    def plan(self, gate: Gate | RemoteGate, args: str, listener: Listener) -> Plan:
        """Return the plan of a call. Its key is ignored."""
        ...


class Caller(Listener, Protocol):
    """A client that waits for a call."""

    #: Set if the client must get an answer now, to be asked a question.
    interrupted: asyncio.Event

    async def gone(self) -> bool:
        """Return whether the client has disconnected without a word."""
        ...


@dataclass(eq=False)
class OpenCall:
    """A call on its way."""

    ticket: str
    target: Target
    #: The arguments that the model wrote, with defaults.
    wrote: str
    scope: RunScope
    task: asyncio.Task[Outcome] = field(init=False)
    #: The clients that wait for it now.
    callers: list[Caller] = field(default_factory=list)
    #: The server works on it.
    running: bool = False
    #: How often a client waited for it in vain.
    idle: int = 0

    @property
    def connection(self) -> str | None:
        """The connection of the client that waits, if one does."""
        return self.callers[-1].connection if self.callers else None

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Pass progress of the server on to the clients that wait."""
        for caller in list(self.callers):
            await caller.progress(progress, total, message)

    async def elicit(
        self, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Ask the client that waits. Without one, nobody answered."""
        if not self.callers:
            return types.ElicitResult(action="cancel")
        return await self.callers[-1].elicit(params)


class Calls:
    """The calls of one agent in one session."""

    def __init__(
        self,
        gate: Gate | RemoteGate,
        agent: str,
        session: str,
        target: Callable[[Call | str], Target | None],
        journal: Journal | None = None,
    ) -> None:
        self.gate = gate
        self._name = f"mcp:{_plain(agent)}:{_plain(session)}:"
        #: Where to note open calls, for a gate without a store of its own.
        self._journal = journal
        #: Returns what a stored call (or one of this tool) would run, if it is there now.
        self._target = target
        #: The calls that were not handed over, by ticket.
        self._held: dict[str, OpenCall] = {}
        #: What clients got, for a gate without a store of its own.
        self._delivered: OrderedDict[str, Outcome] = OrderedDict()
        self._background: set[asyncio.Task[Any]] = set()

    # -- finding a call, or making one

    async def open(
        self, target: Target, args: Mapping[str, Json], id: str | None
    ) -> OpenCall | str:
        """Return the call that a client means, or why it cannot be made.

        ``id`` is the model's own id of the call, if the client sent it.
        """
        wrote = target.intake(args)
        ticket = secrets.token_hex(10)
        if id is not None:
            ticket = codec.sha256(id.encode("utf-8", "replace"))[:20]
            found = await self.find(ticket)
            if found is not None:
                same = (found.target.name, found.wrote) == (target.name, wrote)
                return found if same else _REUSED
        for held in self._held.values():
            if not held.callers and (held.target.name, held.wrote) == (target.name, wrote):
                return held
        if sum(not held.task.done() for held in self._held.values()) >= MOST_WAITING:
            raise TooMany(
                f"{MOST_WAITING} calls of this agent wait for people already: have some decided "
                "first"
            )
        return self._hold(ticket, target, wrote)

    async def find(self, ticket: str) -> OpenCall | None:
        """Return the call with this ticket, also from an earlier process."""
        held = self._held.get(ticket)
        if held is None and isinstance(self.gate, Gate):
            store, name = self.gate.store, self._run(ticket)
            run = await read(store, store.run, name)
            row = None if run is None else await read(store, store.call_by_key, name, _KEY)
            held = self._held.get(ticket)  # another task may have found it in the meantime
            if held is None and run is not None and row is not None:
                held = self._restored(ticket, row, open=run.status in LIVE)
        return held

    async def resume_open_calls(self) -> None:
        """Resume the calls that an earlier process left: approved, asked, or undelivered."""
        if not isinstance(self.gate, Gate):
            self._resume_from_journal()
            return
        for ticket, row in await read(self.gate.store, self._open_in_store):
            if ticket not in self._held:
                self._restored(ticket, row)

    def _resume_from_journal(self) -> None:
        for run, (tool, wrote) in [] if self._journal is None else [*self._journal.calls.items()]:
            target = self._target(tool)
            ticket = run.removeprefix(self._name)
            if run.startswith(self._name) and target is not None and ticket not in self._held:
                self._hold(ticket, target, wrote)

    def _note(self, held: OpenCall, *, open: bool) -> None:
        if self._journal is not None:
            if open:
                self._journal.calls[held.scope.name] = [held.target.name, held.wrote]
            else:
                self._journal.calls.pop(held.scope.name, None)
            self._journal.save()

    def _open_in_store(self) -> list[tuple[str, Call]]:
        assert isinstance(self.gate, Gate)
        store, found = self.gate.store, []
        for status in LIVE:
            listed = store.runs(status=str(status), agent=self.gate.agent, limit=_MOST_OPEN)
            for _, run in listed:
                if run.id.startswith(self._name):
                    row = store.call_by_key(run.id, _KEY)
                    if row is not None:
                        found.append((run.id.removeprefix(self._name), row))
        return found

    def _restored(self, ticket: str, row: Call, *, open: bool = True) -> OpenCall | None:
        target = self._target(row)
        if target is None:  # its server is not connected (yet)
            return None
        wrote = row.args if row.original is None else row.original
        return self._hold(ticket, target, wrote, open=open)

    def _run(self, ticket: str) -> str:
        return f"{self._name}{ticket}"

    def _hold(self, ticket: str, target: Target, wrote: str, *, open: bool = True) -> OpenCall:
        scope = RunScope(self.gate.driver, self._run(ticket), "")
        held = OpenCall(ticket, target, wrote, scope)
        self._begin(held)
        if open:  # otherwise it was handed over, and the same call is a new one
            self._held[ticket] = held
            self._note(held, open=True)
        return held

    def _begin(self, held: OpenCall) -> None:
        held.task = asyncio.create_task(self._run_to_end(held), name=f"sayso-mcp-{held.ticket}")
        held.task.add_done_callback(partial(self._ended, held))

    def update_tools(self) -> None:
        """Continue open calls with the tools as they are now.

        The re-check before a start compares the tool that people saw with that of the plan. A call
        that has waited for an hour must not bring the tool of an hour ago.
        """
        for held in self._held.values():
            now = self._target(held.target.name)
            if now is None or now is held.target or held.running or held.task.done():
                continue
            held.target = now
            held.task.cancel()
            self._begin(held)

    def _ended(self, held: OpenCall, task: asyncio.Task[Outcome]) -> None:
        """Forget a call that could not be continued; it is found again in the store."""
        if task is not held.task:
            return
        if held.task.cancelled() or held.task.exception() is not None:
            self._held.pop(held.ticket, None)
        elif len(self._held) > _MOST_OPEN:
            oldest = next((one for one in self._held.values() if one.task.done()), None)
            if oldest is not None and oldest is not held and not oldest.callers:
                del self._held[oldest.ticket]

    # -- taking a call to its end

    async def _run_to_end(self, held: OpenCall) -> Outcome:
        plan, value, again = self._plan(held), None, 0
        while True:
            try:
                value = await self.gate.driver.result(held.scope, plan)
            except ServerConnectionLost as lost:
                # It is in doubt, and people settle it; or it may run again, and is started again.
                again += 1
                if again > _MOST_AGAIN:
                    raise ConnectionLost(f"{lost}, {again} times") from lost
                continue
            except (Refused, InDoubt, CallFailed, ResultNotKept) as error:
                value = getattr(error, "value", None)
            except Paused:  # an interactive channel left it for later
                await asyncio.sleep(PROGRESS_SECONDS)
                continue
            row = await self._row(held)
            return outcome_of(row, value, held.wrote)

    def _plan(self, held: OpenCall) -> Plan:
        return _keyed(held.target.plan(self.gate, held.wrote, held))

    async def _row(self, held: OpenCall) -> Call:
        backend, plan = self.gate.driver.backend, self._plan(held)
        found = await backend.find(held.scope, plan)
        # Over HTTP, proposing a call again finds it.
        return found or (await backend.propose(held.scope, plan)).call

    async def status(self, held: OpenCall) -> Call | None:
        """Return the row of a call as it is now, if it has one and the store can be reached."""
        try:
            async with asyncio.timeout(_STATUS_SECONDS):
                return await self._row(held)
        except (SaysoError, TimeoutError):
            return None

    # -- waiting for a call

    async def wait(self, held: OpenCall, caller: Caller, seconds: float) -> Outcome | None:
        """Wait for a call. Return its outcome, or None after ``seconds`` or if interrupted.

        If the client leaves, the call continues, unless its ``on_abandon`` says otherwise.
        """
        ends, beats = time.monotonic() + seconds, 0
        interrupt = asyncio.ensure_future(caller.interrupted.wait())
        try:
            with self._waiting(held, caller):
                while not held.task.done():
                    left = ends - time.monotonic()
                    if left <= 0 or interrupt.done():
                        held.idle += left <= 0
                        return None
                    await asyncio.wait(
                        {held.task, interrupt},
                        timeout=min(PROGRESS_SECONDS, left),
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                    if await caller.gone():
                        raise asyncio.CancelledError
                    beats += 1
                    if not held.task.done() and not held.running:
                        await caller.progress(beats / 1000, None, "waiting for a decision")
                outcome = await self._outcome(held)
        finally:
            interrupt.cancel()
        await asyncio.shield(self._hand_over(held, outcome))
        return outcome

    async def _outcome(self, held: OpenCall) -> Outcome:
        try:
            return held.task.result()
        except InvalidCall as error:
            text = f"The call cannot be read: {error}"
        except asyncio.CancelledError:
            text = "The call was stopped. Make it again to see what became of it."
        except SaysoError as error:
            text = str(error)
        except Exception as error:
            log.exception("%s: a call could not be carried to its end", held.target.name)
            text = f"Sayso could not take the call to its end: {describe_error(error)}"
        return Outcome(ok=False, value=None, text=text)

    async def _hand_over(self, held: OpenCall, outcome: Outcome) -> None:
        """Remember that a client got the result: the same call is a new one from now on."""
        if self._held.pop(held.ticket, None) is None:
            return
        self._note(held, open=False)
        if not isinstance(self.gate, Gate):
            self._delivered[held.ticket] = outcome
            while len(self._delivered) > _MOST_DELIVERED:
                self._delivered.popitem(last=False)
        try:
            status = "done" if outcome.ok else "failed"
            await self.gate.driver.backend.finish(held.scope, status)
        except SaysoError as error:
            log.warning("%s: the hand-over was not stored: %s", held.target.name, error)

    def delivered(self, ticket: str) -> Outcome | None:
        """Return an outcome that a client got before."""
        return self._delivered.get(ticket)

    @contextlib.contextmanager
    def _waiting(self, held: OpenCall, caller: Caller) -> Iterator[None]:
        held.callers.append(caller)
        # While a client waits, the record of the result also finishes the run, in one commit.
        held.scope.alone, left = True, False
        try:
            yield
        except asyncio.CancelledError:
            left = True
            raise
        finally:
            held.callers.remove(caller)
            held.scope.alone = bool(held.callers)
            abandoned = left and not held.callers
            if abandoned and held.target.on_abandon == "cancel" and not held.task.done():
                self._in_background(self.cancel(held, "the client stopped waiting"))

    async def cancel(self, held: OpenCall, reason: str) -> bool:
        """Call a call off. Return whether it will not run. One that runs is stopped, in doubt."""
        row = await self.status(held)
        if row is not None and row.status in (CallStatus.ASKED, CallStatus.READY):
            if isinstance(self.gate, Gate):
                with contextlib.suppress(NotFound, Cancelled):
                    await self.gate.cancel(held.scope.name, by="client", reason=reason)
            else:
                await self.gate.client.cancel(row.id, reason)
            return True
        held.task.cancel()
        return False

    def _in_background(self, work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # -- reads that need no approval

    async def free_read(self, target: Target, wrote: str, caller: Caller) -> Outcome | None:
        """Run a read that the policy allows, at once. Return None for any other call."""
        if not isinstance(self.gate, Gate):
            return None  # the server decides
        plan = _keyed(target.plan(self.gate, wrote, caller))
        terms: Terms = await plan.terms(codec.loads(wrote))
        if terms.verdict is not Verdict.ALLOW or terms.effect != "read":
            return None
        for last in (False, True):
            scope = RunScope(self.gate.driver, f"run_{secrets.token_hex(8)}", "", alone=True)
            try:
                value = await self.gate.driver.result(scope, plan)
                return Outcome(ok=True, value=value, text="")
            except ServerConnectionLost as lost:
                if last:
                    return Outcome(ok=False, value=None, text=f"Nothing was read: {lost}.")
            except SaysoError as error:
                return Outcome(ok=False, value=None, text=str(error))
        raise AssertionError

    async def close(self) -> None:
        """Stop. Calls that wait for people stay in the store; the next process resumes them.

        Calls that run get a moment to end; then they are in doubt.
        """
        open = [held for held in self._held.values() if not held.task.done()]
        for held in open:
            if held.target.on_abandon == "cancel" and not held.running:
                with contextlib.suppress(SaysoError):
                    await self.cancel(held, "the client left")
            elif not held.running:
                held.task.cancel()
        tasks = {held.task for held in open}
        if tasks:
            await asyncio.wait(tasks, timeout=_LAST_SECONDS)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_LAST_SECONDS)


def _plain(name: str) -> str:
    """Return a name without colons, which separate the parts of a run's name."""
    return name.replace("%", "%25").replace(":", "%3A")


def _keyed(plan: Plan) -> Plan:
    return replace(plan, key=_KEY, wait=None)
