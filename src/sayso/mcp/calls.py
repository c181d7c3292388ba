"""``Calls``: the calls of one agent in one session, each in a task of its own.

A call outlives the client that made it. Its task takes it through the gate's driver: ask, wait for
people, run it, record it. Clients only wait for that task, up to their limit.

**Natural keys.** A model that repeats a call because its client gave up means the same call; a
model that calls again after it got the result means a new one. Some clients send the model's own id
of the call, which settles it. Otherwise the same tool with the same arguments is the same call if
the earlier one was not delivered yet, no client waits for it any more, and it was made on the same
connection, or on one that is no longer live. Delivery is stored: each call has its own run,
and the run is finished when a client gets the result. So a call that another process left behind
is found again by listing the runs that are not finished. The run names the connection that made the
call; a cursor of the store names the one that has taken it over.

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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import mcp_types as types
from mcp.server import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from sayso import codec
from sayso.client import RemoteGate
from sayso.engine.refusals import connection_scope
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
from sayso.mcp.state import STDIO, Connections, StateFile
from sayso.mcp.upstreams import ConnectionLost, Listener, off_loop
from sayso.rows import LIVE, Call, CallStatus, Run
from sayso.sync import read, to_thread
from sayso.types import Terms, Verdict

log = logging.getLogger("sayso.mcp")

Context = ServerRequestContext[Any, Any]

#: The key of the call in its run.
_KEY = "call"
#: What the name of the cursor begins with that names the owner of a call; the run follows.
_OWNER = "mcp-owner:"
#: Seconds between progress messages to a client that asked for progress.
PROGRESS_SECONDS = 3.0
#: How many calls to remember after a client got their result.
_MAX_DELIVERED = 500
_MAX_OPEN = 1000
#: How many calls of one agent may wait at the same time.
MAX_WAITING = 500
#: How long to wait for the status of a call, after its client was held already.
_STATUS_SECONDS = 2.0
#: Seconds that running calls get when the proxy ends. It must end within two seconds of its
#: client.
_SHUTDOWN_SECONDS = 0.5
#: How often a call is retried after its connection broke.
_MAX_RETRIES = 3
#: Claude Code sends the model's own id of a call under this key.
TOOL_USE_ID = "claudecode/toolUseId"
#: A client that declines faster than a person can read did not show the question.
FASTEST_ANSWER = 0.5
#: How long a question of a server waits for the client's user.
_ELICIT_SECONDS = 600.0
#: What the name of a connection begins with that lasts for one request only.
_ONE_REQUEST = "request-"
_ID_REUSED = (
    "Nothing was run: the id of this call belongs to another one, which was made before. "
    "Make the call again."
)


class ServerConnectionLost(BaseException):
    """The connection broke while a call ran, so it is unknown whether it took effect.

    A ``BaseException``, because the driver records an ``Exception`` as a failure of the call.
    """


class Target(Protocol):
    """What is called: a tool of a server, or a question to people."""

    @property
    def name(self) -> str: ...

    @property
    def on_abandon(self) -> OnAbandon: ...

    def plan(self, gate: Gate | RemoteGate, args: str, listener: Listener) -> Plan:
        """Return the plan of a call. Its key is ignored."""


class FrontCaller:
    """The client behind one request."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        #: Identifies the client's connection: the session over HTTP, or the one on stdio. Over
        #: HTTP in the modern era each request has its own.
        self.connection: str = f"{_ONE_REQUEST}{id(self)}"
        if ctx.request is None:
            self.connection = STDIO
        elif "mcp-session-id" in ctx.request.headers:
            self.connection = ctx.request.headers["mcp-session-id"]
        self._last = -1.0
        #: A question for a client of the modern era, and a future for the answer.
        self.question: tuple[types.ElicitRequestParams, asyncio.Future[Any]] | None = None
        #: Set when the request must return, to ask that question.
        self.interrupted = asyncio.Event()

    @property
    def modern(self) -> bool:
        """Whether the client speaks the era without server requests."""
        return self.ctx.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def name(self) -> str:
        params = self.ctx.session.client_params
        return "" if params is None else params.client_info.name

    @property
    def tool_use_id(self) -> str | None:
        """The model's own id of the call, if the client sent it."""
        meta: Mapping[str, Any] = self.ctx.meta or {}
        id = meta.get(TOOL_USE_ID)
        return id if isinstance(id, str) and id else None

    async def gone(self) -> bool:
        """Return whether the client has disconnected. Over HTTP, only polling tells."""
        return self.ctx.request is not None and bool(await self.ctx.request.is_disconnected())

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Report progress, which must increase, if the client asked for it."""
        self._last = progress if progress > self._last else self._last + 0.000_001
        with contextlib.suppress(Exception):  # the client may have left
            await self.ctx.session.report_progress(self._last, total, message)

    async def elicit(
        self, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Ask the client's user a question of the server."""
        offered = self.ctx.session.client_capabilities
        if offered is None or offered.elicitation is None:
            return types.ElicitResult(action="cancel")
        began = time.monotonic()
        answer: types.ElicitResult
        try:
            async with asyncio.timeout(_ELICIT_SECONDS):
                if self.modern:
                    future = asyncio.get_running_loop().create_future()
                    self.question = params, future
                    self.interrupted.set()
                    answer = await future
                else:
                    answer = await self.ctx.session.send_request(
                        types.ElicitRequest(params=params),
                        types.ElicitResult,
                        metadata=ServerMessageMetadata(related_request_id=self.ctx.request_id),
                    )
        except (TimeoutError, MCPError):
            return types.ElicitResult(action="cancel")
        # Some clients decline what they cannot show. That is not a person's answer.
        if answer.action == "decline" and time.monotonic() - began < FASTEST_ANSWER:
            return types.ElicitResult(action="cancel")
        return answer


@dataclass(eq=False)
class OpenCall:
    """A call whose result was not delivered yet."""

    ticket: str
    target: Target
    #: The arguments that the model wrote, with defaults.
    model_args: str
    scope: RunScope
    #: The connection that made it or has taken it over, as ``Connections`` names it.
    owner: str
    task: asyncio.Task[Outcome] = field(init=False)
    #: The clients that wait for it now.
    callers: list[FrontCaller] = field(default_factory=list)
    #: Whether the server is running it, or its result is being recorded.
    running: bool = False
    #: How often a client waited for it until its limit.
    timed_out_waits: int = 0

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
        """Ask the client that waits. Cancel if there is none."""
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
        connections: Connections,
        state: StateFile | None = None,
    ) -> None:
        self.gate = gate
        #: What the names of the runs of these calls begin with; the ticket follows.
        self._run_prefix = f"mcp:{_escape(agent)}:{_escape(session)}:"
        self._connections = connections
        #: Held while looking for the call that a client means.
        self._opening = asyncio.Lock()
        #: Keeps open calls, for a gate without a store of its own.
        self._state = state
        #: Returns the target of a stored call or of a tool, or None if it is not available now.
        self._target = target
        #: The calls that were not delivered, by ticket.
        self._open_calls: dict[str, OpenCall] = {}
        #: The last calls whose result a client got, by ticket; with what it got, for a gate without
        #: a store of its own.
        self._delivered: OrderedDict[str, Outcome | None] = OrderedDict()
        self._background: set[asyncio.Task[Any]] = set()

    # -- finding a call, or making one

    async def open(self, target: Target, model_args: str, caller: FrontCaller) -> OpenCall | str:
        """Return the call that a client means, or why it cannot be made.

        The model's own id of the call names it, if the client sent that.
        """
        id = caller.tool_use_id
        ticket = secrets.token_hex(10)
        if id is not None:
            ticket = codec.sha256(id.encode("utf-8", "replace"))[:20]
            existing = await self.find(ticket)
            if existing is not None:
                same = (existing.target.name, existing.model_args) == (
                    target.name,
                    model_args,
                )
                return existing if same else _ID_REUSED
        owner = self._owner(caller.connection)
        async with self._opening:
            for call in list(self._open_calls.values()):
                same = (call.target.name, call.model_args) == (target.name, model_args)
                if same and not call.callers and await self._take_over(call, owner):
                    return call
            if sum(not call.task.done() for call in self._open_calls.values()) >= MAX_WAITING:
                raise TooMany(
                    f"{MAX_WAITING} calls of this agent already wait for a decision: decide some "
                    "of them first"
                )
            return self._start_call(ticket, target, model_args, owner)

    def _owner(self, connection: str | None) -> str:
        if connection is None or connection.startswith(_ONE_REQUEST):
            connection = ""
        return self._connections.owner(connection)

    async def _take_over(self, call: OpenCall, owner: str) -> bool:
        """Make a connection the owner of a call whose owner is gone. Return whether it is."""
        while call.owner != owner and not self._connections.is_live(call.owner):
            if self._connections.is_here(call.owner):
                call.owner = owner
            else:
                call.owner = await to_thread(self._store_owner, call, owner)
            if not call.owner:
                self._open_calls.pop(call.ticket, None)
                return False
        return call.owner == owner and not call.callers

    def _store_owner(self, call: OpenCall, owner: str) -> str:
        """Store the new owner of a call, unless another process has done so since.

        Return the owner; "" if another process has delivered the result.
        """
        name = call.scope.name
        if isinstance(self.gate, Gate):
            store = self.gate.store
            run = store.run(name)
            if run is None or run.status not in LIVE:
                return ""
            stored_owner = self._stored_owner(run)
            if stored_owner != call.owner:
                return stored_owner
            before = store.cursor(_OWNER + name)
            moved = store.move_cursor(_OWNER + name, owner, expected=before)
            return owner if moved else self._stored_owner(run)
        if self._state is None:
            return owner
        with self._state.changing():
            entry = self._state.calls.get(name)
            if entry is None:
                return ""
            if entry[2] == call.owner:
                entry[2] = owner
            return entry[2]
        return ""

    def _stored_owner(self, run: Run) -> str:
        assert isinstance(self.gate, Gate)
        first = run.scope.removeprefix(connection_scope(self._run_prefix))
        return self.gate.store.cursor(_OWNER + run.id) or first

    async def find(self, ticket: str) -> OpenCall | None:
        """Return the call with this ticket, also from an earlier process."""
        if ticket not in self._open_calls and isinstance(self.gate, Gate):
            stored = await read(self.gate.store, self._stored_call, ticket)
            # Another task may have found it in the meantime.
            if stored is not None and ticket not in self._open_calls:
                row, owner, undelivered = stored
                open = undelivered and ticket not in self._delivered
                return self._restore(ticket, row, owner, open=open)
        return self._open_calls.get(ticket)

    def _stored_call(self, ticket: str) -> tuple[Call, str, bool] | None:
        """Return the row of a call, its owner, and whether its result is still to be delivered."""
        assert isinstance(self.gate, Gate)
        name = self._run(ticket)
        run = self.gate.store.run(name)
        row = self.gate.store.call_by_key(name, _KEY)
        if run is None or row is None:
            return None
        return row, self._stored_owner(run), run.status in LIVE

    async def resume_open_calls(self) -> None:
        """Resume the calls that an earlier process left: approved, asked, or undelivered."""
        if not isinstance(self.gate, Gate):
            self._resume_from_state()
            return
        for ticket, row, owner in await read(self.gate.store, self._open_in_store):
            # A client may have got the result of one while they were read.
            resumed = ticket in self._open_calls or ticket in self._delivered
            if not resumed and not self._is_elsewhere(owner):
                self._restore(ticket, row, owner)

    def _resume_from_state(self) -> None:
        if self._state is None:
            return
        self._state.read()
        for run, (tool, model_args, owner) in list(self._state.calls.items()):
            target = self._target(tool)
            ticket = run.removeprefix(self._run_prefix)
            ours = run.startswith(self._run_prefix) and ticket not in self._open_calls
            if ours and target is not None and not self._is_elsewhere(owner):
                self._start_call(ticket, target, model_args, owner)

    def _is_elsewhere(self, owner: str) -> bool:
        """Return whether the calls of a connection belong to another process, which lives."""
        return not self._connections.is_here(owner) and self._connections.is_live(owner)

    def _save_state(self, call: OpenCall, *, open: bool) -> None:
        if self._state is None:
            return
        with self._state.changing():
            if open:
                entry = [call.target.name, call.model_args, call.owner]
                self._state.calls[call.scope.name] = entry
            else:
                self._state.calls.pop(call.scope.name, None)

    def _open_in_store(self) -> list[tuple[str, Call, str]]:
        assert isinstance(self.gate, Gate)
        store = self.gate.store
        open_calls: list[tuple[str, Call, str]] = []
        for status in LIVE:
            for _, run in store.runs(status=str(status), agent=self.gate.agent, limit=_MAX_OPEN):
                if run.id.startswith(self._run_prefix):
                    row = store.call_by_key(run.id, _KEY)
                    if row is not None:
                        ticket = run.id.removeprefix(self._run_prefix)
                        open_calls.append((ticket, row, self._stored_owner(run)))
        return open_calls

    def _restore(self, ticket: str, row: Call, owner: str, *, open: bool = True) -> OpenCall | None:
        target = self._target(row)
        if target is None:  # its server is not connected (yet)
            return None
        model_args = row.args if row.original is None else row.original
        return self._start_call(ticket, target, model_args, owner, open=open)

    def _run(self, ticket: str) -> str:
        return f"{self._run_prefix}{ticket}"

    def _start_call(
        self, ticket: str, target: Target, model_args: str, owner: str, *, open: bool = True
    ) -> OpenCall:
        # Each call has its own run: what a person rejects lasts as long as the connection.
        refusals = connection_scope(f"{self._run_prefix}{owner}")
        scope = RunScope(self.gate.driver, self._run(ticket), "", refusal_scope=refusals)
        call = OpenCall(ticket, target, model_args, scope, owner)
        self._start_task(call)
        if open:  # otherwise it was delivered, and the same call is a new one
            self._open_calls[ticket] = call
            self._save_state(call, open=True)
        return call

    def _start_task(self, call: OpenCall) -> None:
        call.task = asyncio.create_task(self._run_to_end(call), name=f"sayso-mcp-{call.ticket}")
        call.task.add_done_callback(partial(self._on_task_done, call))

    def update_tools(self) -> None:
        """Continue open calls with the tools as they are now.

        The check before a start compares the tool that people saw with that of the plan. A call
        that has waited for an hour must not run with the tool of an hour ago.
        """
        for call in self._open_calls.values():
            target = self._target(call.target.name)
            if target is None or target is call.target or call.running or call.task.done():
                continue
            call.target = target
            call.task.cancel()
            self._start_task(call)

    def _on_task_done(self, call: OpenCall, task: asyncio.Task[Outcome]) -> None:
        """Forget a call that could not be continued; it is found again in the store."""
        if task is not call.task:
            return
        if call.task.cancelled() or call.task.exception() is not None:
            self._open_calls.pop(call.ticket, None)
        elif len(self._open_calls) > _MAX_OPEN:
            oldest = next((other for other in self._open_calls.values() if other.task.done()), None)
            if oldest is not None and oldest is not call and not oldest.callers:
                del self._open_calls[oldest.ticket]

    # -- running a call

    async def _run_to_end(self, call: OpenCall) -> Outcome:
        plan = self._plan(call)
        value: Any = None
        attempts = 0
        while True:
            try:
                value = await self.gate.driver.result(call.scope, plan)
            except ServerConnectionLost as lost:
                # It is in doubt, and a person settles it, or it may run again and is retried.
                attempts += 1
                if attempts > _MAX_RETRIES:
                    raise ConnectionLost(f"{lost}, {attempts} times") from lost
                continue
            except (Refused, InDoubt, CallFailed, ResultNotKept) as error:
                value = getattr(error, "value", None)
            except Paused:  # an interactive channel postponed it
                await asyncio.sleep(PROGRESS_SECONDS)
                continue
            size = len(value) if isinstance(value, str) else 0
            row = await self._row(call, size)
            return await off_loop(size, outcome_of, row, value, call.model_args)

    def _plan(self, call: OpenCall) -> Plan:
        return _with_key(call.target.plan(self.gate, call.model_args, call))

    async def _row(self, call: OpenCall, size: int = 0) -> Call:
        """Return the row of a call, whose result has this size."""
        if size and isinstance(self.gate, Gate):
            stored = await off_loop(size, self.gate.store.call_by_key, call.scope.name, _KEY)
            if stored is not None:
                return stored
        plan = self._plan(call)
        row = await self.gate.driver.backend.find(call.scope, plan)
        # Over HTTP, proposing a call again finds it.
        return row or (await self.gate.driver.backend.propose(call.scope, plan)).call

    async def status(self, call: OpenCall) -> Call | None:
        """Return the row of a call as it is now, if it has one and the store can be reached."""
        try:
            async with asyncio.timeout(_STATUS_SECONDS):
                return await self._row(call)
        except (SaysoError, TimeoutError):
            return None

    # -- waiting for a call

    async def wait(self, call: OpenCall, caller: FrontCaller, seconds: float) -> Outcome | None:
        """Wait for a call. Return its outcome, or None after ``seconds`` or if interrupted.

        If the client leaves, the call continues, unless its ``on_abandon`` says otherwise.
        """
        deadline = time.monotonic() + seconds
        updates = 0
        interrupt = asyncio.ensure_future(caller.interrupted.wait())
        try:
            with self._waiting(call, caller):
                while not call.task.done():
                    left = deadline - time.monotonic()
                    if left <= 0 or interrupt.done():
                        call.timed_out_waits += left <= 0
                        return None
                    await asyncio.wait(
                        {call.task, interrupt},
                        timeout=min(PROGRESS_SECONDS, left),
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                    if await caller.gone():
                        raise asyncio.CancelledError
                    updates += 1
                    if not call.task.done() and not call.running:
                        await caller.progress(updates / 1000, None, "waiting for a decision")
                outcome = await self._outcome(call)
        finally:
            interrupt.cancel()
        await asyncio.shield(self._deliver(call, outcome))
        return outcome

    async def _outcome(self, call: OpenCall) -> Outcome:
        try:
            return call.task.result()
        except InvalidCall as error:
            text = f"The call cannot be read: {error}"
        except asyncio.CancelledError:
            text = "The call was stopped. Make it again to see its outcome."
        except SaysoError as error:
            text = str(error)
        except Exception as error:
            log.exception("%s: a call could not be completed", call.target.name)
            text = f"Sayso could not complete the call: {describe_error(error)}"
        return Outcome(ok=False, value=None, text=text)

    async def _deliver(self, call: OpenCall, outcome: Outcome) -> None:
        """Record that a client got the result: from now on the same call is a new one."""
        if self._open_calls.pop(call.ticket, None) is None:
            return
        self._save_state(call, open=False)
        self._delivered[call.ticket] = None if isinstance(self.gate, Gate) else outcome
        while len(self._delivered) > _MAX_DELIVERED:
            self._delivered.popitem(last=False)
        try:
            status = "done" if outcome.ok else "failed"
            await self.gate.driver.backend.finish(call.scope, status)
        except SaysoError as error:
            log.warning("%s: the delivery was not stored: %s", call.target.name, error)

    def delivered(self, ticket: str) -> Outcome | None:
        """Return an outcome that a client got before, if it is not in the store."""
        return self._delivered.get(ticket)

    @contextlib.contextmanager
    def _waiting(self, call: OpenCall, caller: FrontCaller) -> Iterator[None]:
        call.callers.append(caller)
        # While a client waits, the record of the result also finishes the run, in one commit.
        call.scope.alone = True
        left = False
        try:
            with self._connections.live(caller.connection or ""):
                yield
        except asyncio.CancelledError:
            left = True
            raise
        finally:
            call.callers.remove(caller)
            call.scope.alone = bool(call.callers)
            abandoned = left and not call.callers
            if abandoned and call.target.on_abandon == "cancel" and not call.task.done():
                task = asyncio.create_task(self.cancel(call, "the client stopped waiting"))
                self._background.add(task)
                task.add_done_callback(self._background.discard)

    async def cancel(self, call: OpenCall, reason: str) -> bool:
        """Cancel a call. Return whether it will not run. One that runs is stopped, in doubt."""
        row = await self.status(call)
        if row is not None and row.status in (CallStatus.ASKED, CallStatus.READY):
            if isinstance(self.gate, Gate):
                with contextlib.suppress(NotFound, Cancelled):
                    await self.gate.cancel(call.scope.name, by="client", reason=reason)
            else:
                await self.gate.client.cancel(row.id, reason)
            return True
        call.task.cancel()
        return False

    # -- reads that need no approval

    async def free_read(
        self, target: Target, model_args: str, caller: FrontCaller
    ) -> Outcome | None:
        """Run a read that the policy allows. Return None for any other call."""
        if not isinstance(self.gate, Gate):
            return None  # the server decides
        plan = _with_key(target.plan(self.gate, model_args, caller))
        terms: Terms = await plan.terms(codec.loads(model_args))
        if terms.verdict is not Verdict.ALLOW or terms.effect != "read":
            return None
        store = self.gate.store
        args_hash = codec.sha256(model_args.encode())
        if await read(store, store.refusals_of, self.gate.agent, plan.tool_name, args_hash):
            return None  # only a person lets it run
        text = ""
        for _ in range(2):
            scope = RunScope(self.gate.driver, f"run_{secrets.token_hex(8)}", "", alone=True)
            try:
                value = await self.gate.driver.result(scope, plan)
                return Outcome(ok=True, value=value, text="")
            except ServerConnectionLost as lost:
                text = f"Nothing was read: {lost}."
            except SaysoError as error:
                text = str(error)
                break
        return Outcome(ok=False, value=None, text=text)

    async def close(self) -> None:
        """Stop. Calls that wait for people stay in the store; the next process resumes them.

        Running calls get a moment to end; then they are in doubt.
        """
        open = [call for call in self._open_calls.values() if not call.task.done()]
        for call in open:
            if call.target.on_abandon == "cancel" and not call.running:
                with contextlib.suppress(SaysoError):
                    await self.cancel(call, "the client left")
            elif not call.running:
                call.task.cancel()
        tasks = {call.task for call in open}
        if tasks:
            await asyncio.wait(tasks, timeout=_SHUTDOWN_SECONDS)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_SHUTDOWN_SECONDS)


def _escape(name: str) -> str:
    """Return a name without colons, which separate the parts of a run's name."""
    return name.replace("%", "%25").replace(":", "%3A")


def _with_key(plan: Plan) -> Plan:
    return replace(plan, key=_KEY, wait=None)
