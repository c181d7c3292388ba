"""The threads of a framework's agent: asking about calls, and completing them.

``FrameworkThread`` is one thread, with its run in the store. The last part is for agents that run
inside a call of another agent, and have no thread.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from sayso import codec
from sayso.engine.commands import NewCall, Propose, Reopen
from sayso.engine.running import leaves_doubt
from sayso.errors import CallFailed, DuplicateEffect, InDoubt, InvalidCall, Paused, Refused
from sayso.gate import guarded_runs, outcomes
from sayso.gate.driver import NOTICE_SECONDS
from sayso.gate.failures import failure_of
from sayso.gate.framework.tools import ChangedArguments, FrameworkTool, checked_arguments
from sayso.gate.gate import Gate, policy_terms
from sayso.gate.guard import as_approved_call, as_this_call
from sayso.gate.guarded_runs import Place
from sayso.gate.lease import driving_lease, runs_here
from sayso.gate.options import allow_only
from sayso.gate.outcomes import in_text
from sayso.gate.plan import Plan, cancel_call, new_call, once_plan
from sayso.gate.scope import RunScope, open_scope, open_scopes, quoted
from sayso.policy import Policy
from sayso.rows import LIVE, OPEN, Call, CallStatus, Run, RunStatus
from sayso.stores.address import is_in_memory
from sayso.stores.base import Query, Store
from sayso.stores.row_checks import request_in
from sayso.sync import read, run_blocking, write
from sayso.types import Json, Request, Terms, ToolCall, Verdict

_UNASKABLE = (
    "Code inside another call made this call of {tool}, and a pause would run that code from its "
    "top again. Guard the agent that made the call (guard(agent, gate)) and put the effects before "
    "it into gate.once(...), or declare the effect of the outer tool: Rule(..., "
    "effect='idempotent')."
)
_REUSED = (
    "Nothing was run: the id of this call belongs to another one, which was made before. "
    "Make the call again."
)


# --- calls ---


async def _no_effect(args: dict[str, Json]) -> Any:
    raise InvalidCall("this call has no effect")


@dataclass(frozen=True, kw_only=True)
class FrameworkCall:
    """One call that the framework's model made."""

    #: The framework's own id of the call.
    id: str
    tool: FrameworkTool
    args: Mapping[str, Json]
    #: Runs the tool in the framework's way, with exactly the arguments passed, which are those that
    #: the model wrote if the tool has ``normalize``.
    run: Callable[[dict[str, Json]], Awaitable[Any]] = _no_effect
    #: Converts a result to JSON, and back.
    dump: Callable[[Any], Json] = lambda value: value
    load: Callable[[Json], Any] = lambda stored: stored
    #: The exceptions of the tool that the framework turned into a result, filled by ``run``.
    raised: list[Exception] = field(default_factory=list)
    note: str = ""
    #: What names this call where the framework runs tools (``sayso.gate.guarded_runs.tool_call``).
    passed: Hashable = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a call ended: with a result from the tool or a person (``ok``), or without."""

    ok: bool
    #: The tool's result, live or loaded; or a person's answer; or None.
    value: Any
    #: The text for the model.
    text: str
    #: Says that other arguments ran than the model wrote, if so.
    notice: str = ""
    #: The row; None if the arguments were not valid.
    call: Call | None = None
    #: The call, or a request in its body, was refused.
    refused: bool = False
    #: What the tool has raised just now.
    error: Exception | None = None

    @property
    def by_person(self) -> bool:
        """Whether a person gave the result instead of the tool."""
        decision = None if self.call is None else self.call.decision
        return self.ok and decision is not None and decision.type == "respond"


def _dump_anything(call: FrameworkCall, value: Any) -> str:
    """Return JSON for a result that has no JSON form: half a surrogate pair becomes a question
    mark, and any other object becomes its ``str``."""
    try:
        text = json.dumps(call.dump(value), ensure_ascii=False, allow_nan=False, default=in_text)
        return text.encode(errors="replace").decode()
    except Exception:
        return codec.dumps(in_text(value))


def outcome_of(row: Call, value: Any, wrote: str) -> Outcome:
    """Return the outcome of a closed row, for a model that wrote these arguments."""
    if not outcomes.has_result(row):
        return Outcome(ok=False, value=None, text=outcomes.why_not(row, wrote), call=row)
    stored = codec.loads(row.result or "null")
    if row.decision is not None and row.decision.type == "respond":
        return Outcome(ok=True, value=stored, text=outcomes.as_text(stored), call=row)
    notice = outcomes.what_ran(row, wrote) if row.original is not None else ""
    if not notice and wrote != row.args_to_run:
        notice = f"What ran is the call that was approved, with {row.args_to_run}."
    text = outcomes.as_text(stored)
    if notice:
        text = f"{notice} Its result: {text}"
    return Outcome(ok=True, value=value, text=text, notice=notice, call=row)


# --- threads ---


class FrameworkThread:
    """One thread of a framework's agent: its run in the store, and its calls.

    A ``FrameworkAgent`` runs it under one lease. Otherwise each call takes its own lease.
    """

    def __init__(
        self, gate: Gate, thread: str, *, requester: str = "", policy: Policy | None = None
    ) -> None:
        self.gate = gate
        self.store = gate.store
        self.thread = thread
        self.policy = policy
        keep_off_loop(gate.store)
        guarded_runs.install()
        driving = _driving_scope(gate, thread)
        if driving is not None:
            self.run = driving.name
        self.requester = requester if driving is None else driving.requester
        #: Why people cannot be asked about its calls.
        self._unaskable = ""
        self._owner = "" if driving is None else driving.owner
        self._hold = driving is not None and driving.hold
        #: The lease of the ``FrameworkAgent`` that runs the thread here and will end its run.
        self.lease = driving_lease(gate.backend.store_id, thread) if self._hold else None

    @property
    def driven(self) -> bool:
        """Whether a ``FrameworkAgent`` runs the thread, and will end its run."""
        return self._hold

    @cached_property
    def run(self) -> str:
        """The id of the run.

        The first access reads the store: on an event loop, await ``open`` first.
        """
        return run_of(self.store, self.gate.agent, self.thread)

    async def open(self) -> FrameworkThread:
        """Find the run, and return the thread. New input that was not stored takes the thread."""
        if "run" not in vars(self):
            await read(self.store, getattr, self, "run")
        if self.lease is not None:
            await self.lease.open()
        return self

    # -- asking

    async def ask(self, calls: Sequence[FrameworkCall]) -> tuple[Request, ...]:
        """Request approval for the calls of a turn that need it, in one commit, before the
        framework stops. Other calls, and invalid ones, are left to ``outcome``."""
        await self.open()
        stored_ids = await read(
            self.store, lambda: {c.id for c in calls if self.row(c.id) is not None}
        )
        planned = [await self._planned(call) for call in calls if call.id not in stored_ids]
        new = [call for call in planned if call is not None]
        if new:
            by_name = {call.tool.name: call.tool.stored for call in calls}
            command = Propose(
                thread=self.thread,
                run=self.run,
                agent=self.gate.agent,
                calls=tuple(new),
                tools=tuple(by_name[name] for name in dict.fromkeys(c.tool for c in new)),
                requester=self.requester,
                hold=self._hold,
            )
            reopen = () if self._hold else (Reopen(thread=self.thread, run=self.run),)
            rows = (await write(self.store, *reopen, command))[-1]
            ours = {call.id for call in new}
            for proposed in rows:
                row = await self.gate.backend.review(proposed) if proposed.id in ours else proposed
                if row.status is CallStatus.ASKED and row.id in ours:
                    request = await read(self.store, request_in, self.store, row)
                    await self.gate.driver.notify(request, NOTICE_SECONDS)
        await self._wait_for_people([call.id for call in calls])
        return await self.waiting([call.id for call in calls])

    async def _wait_for_people(self, ids: Sequence[str]) -> None:
        """Wait for the decisions of a turn, for the gate's ``wait``."""
        wait = self.gate.framework_wait
        ends = None if wait is None else time.monotonic() + wait
        while waiting := [] if wait == 0 else await self.waiting(ids):
            left = None if ends is None else ends - time.monotonic()
            row = await read(self.store, self.store.call, waiting[0].id)
            if row is None or (left is not None and left <= 0):
                return
            await self.gate.backend.wait(row, left)

    async def _planned(self, call: FrameworkCall) -> NewCall | None:
        try:
            plan = self._plan(call, *call.tool.forms(call.args))
        except InvalidCall:
            return None
        terms = await plan.terms(codec.loads(plan.args))
        return None if terms.verdict is Verdict.ALLOW else new_call(plan, terms)

    async def _terms(self, tool: FrameworkTool, args: dict[str, Json]) -> Terms:
        call = ToolCall(tool.name, args)
        terms = await policy_terms(self.gate, call, tool.own, tool.needs_approval, self.policy)
        return terms if tool.decisions is None else allow_only(terms, tool.decisions)

    # -- running

    async def outcome(self, call: FrameworkCall, *, new: bool = False) -> Outcome:
        """Complete a call. Raises ``Paused`` if it needs a decision first.

        ``new`` says that it has no row, most likely. If it has one with other arguments, this
        raises ``Conflict``."""
        await self.open()
        row = None if new else await self.find(call.id)
        if row is not None and runs_here(row.id):  # in the body of that call: it would wait forever
            return Outcome(ok=False, value=None, text=_REUSED, call=row)
        if row is None:
            try:
                args, wrote = call.tool.forms(call.args)
            except InvalidCall as error:
                return Outcome(ok=False, value=None, text=f"The call cannot be read: {error}")
        else:
            args = row.args
            wrote = call.tool.written(call.args)
            other = await self._mismatch(row, call, wrote)
            if other:
                return Outcome(ok=False, value=None, text=other, call=row)
        plan = self._plan(call, args, wrote)
        scope = self.scope(f"{call.id}/")
        value: Any = None
        refused = False
        try:
            value = await self.gate.driver.result(scope, plan, new=row is None)
            ended_call = scope.ended_call
            if ended_call is None or ended_call.key != call.id:  # of an inner call
                ended_call = await self.find(call.id)
        except (Refused, InDoubt, CallFailed, ChangedArguments) as no:
            refused = isinstance(no, Refused | ChangedArguments)  # the text comes from the row
            refused = refused and not isinstance(no, DuplicateEffect)
            ended_call = await self.find(call.id)
            if ended_call is None:
                raise  # the run was cancelled before the call had a row
        if ended_call is None:  # a read that is not recorded
            text = outcomes.as_text(codec.loads(plan.dump(value)))
            return Outcome(ok=True, value=value, text=text)
        return replace(outcome_of(ended_call, value, wrote), refused=refused)

    @classmethod
    async def inner(cls, place: Place, call: FrameworkCall, key: str = "") -> Outcome:
        """Complete a call that code inside a guarded run made without passing the gate.

        It belongs to the call whose body makes it, and is found again there by ``key``, or else by
        its tool and its arguments. If it needs a person, it pauses that call; a call that cannot
        start from the top again is not paused, and this one is denied.
        """
        thread = await cls(place.gate, place.thread, policy=place.policy).open()
        scope = open_scope(place.gate.driver) or thread.scope()
        if not key:
            content = codec.sha256(codec.canonical(dict(call.args)))[:32]
            key = scope.key(f"tool:{quoted(call.tool.name)}", content)
        if not place.may_pause:
            thread._unaskable = _UNASKABLE.format(tool=call.tool.name)
        try:
            return await thread.outcome(replace(call, id=key))
        except Paused as pause:
            scope.note_paused(key)
            row = await thread.find(key)
            if place.may_pause or row is None:
                place.work.paused = pause
                raise
            await thread._cancel(row, thread._unaskable)
            return await thread.outcome(replace(call, id=key))

    @classmethod
    def inner_sync(cls, place: Place, call: FrameworkCall) -> Outcome:
        """Complete such a call where the framework runs a tool without awaiting it."""
        return run_blocking(lambda: cls.inner(place, call))

    async def _mismatch(self, row: Call, call: FrameworkCall, wrote: str) -> str:
        """Return what to tell the model if the row is not the call that the framework makes now.

        Cancels the call if the current tool does not accept its arguments."""
        if row.tool != call.tool.name:
            await self._cancel(row, f"the framework makes it a call of {call.tool.name}")
            return _REUSED
        if row.status not in OPEN:
            first = codec.loads(row.args_to_run if row.original is None else row.original)
            if row.original is not None and row.written is not None:  # of which it is validated
                wrote = call.tool.intake(call.args)
            # Compare only what the model wrote: a newer tool may add arguments.
            now = codec.loads(wrote) if wrote else {}
            written = {name: now.get(name, value) for name, value in call.args.items()}
            return "" if written.items() <= first.items() else _REUSED
        if row.tool_digest != call.tool.stored.digest:
            try:
                call.tool.intake(codec.loads(row.args_to_run))
            except InvalidCall:
                await self._cancel(row, "the tool changed, and takes other arguments")
        return ""

    def _plan(self, call: FrameworkCall, args: str, written: str) -> Plan:
        from pydantic_core import to_json

        async def run(row: Call) -> Any:
            checked = checked_arguments(row, call.tool, partial(self._terms, call.tool))
            args = call.tool.framework_args(codec.loads(row.args_to_run))
            approved = as_approved_call(row, self.gate.backend.store_id)
            body = guarded_runs.call_body(self.gate, self.policy, self.thread, row, call.passed)
            with checked, as_this_call(row), approved, body:
                value = await call.run(args)
            for error in call.raised:
                failure = failure_of(error)
                if failure == "not_executed" or leaves_doubt(row, failure):
                    raise error
            return value

        def dump(value: Any) -> str:
            try:
                return to_json(call.dump(value), inf_nan_mode="strings", fallback=str).decode()
            except Exception:  # it ran, so something is stored, whatever its result
                return _dump_anything(call, value)

        return Plan(
            key=call.id,
            kind="approval",
            args=args,
            written=None if written == args else written,
            agent=self.gate.agent,
            terms=lambda values: self._terms(call.tool, values),
            tool=call.tool.stored,
            tool_name=call.tool.name,
            note=in_text(call.note),
            normalize_args=lambda text: call.tool.intake(codec.loads(text)),
            keeps_written=call.tool.normalize is not None,
            run=run,
            dump=dump,
            load=lambda text: call.load(codec.loads(text)),
            wait=self.gate.framework_wait,
            unaskable=self._unaskable,
        )

    async def gone(self, id: str, name: str) -> Outcome:
        """Cancel a call whose tool the framework does not have."""
        row = await self.find(id)
        if row is not None:
            await self._cancel(row, f"the tool {name} no longer exists")
        return Outcome(ok=False, value=None, text=f"There is no tool {name!r}; nothing was run.")

    async def _cancel(self, row: Call, reason: str) -> None:
        if row.status not in (CallStatus.READY, CallStatus.ASKED):
            return
        await write(self.store, cancel_call(row, reason))

    async def once(self, key: str, step: Callable[[], Awaitable[Json]]) -> Json:
        """Run a step of the adapter once, however often the framework repeats it.

        It may be repeated if a process dies in the middle of it.
        """

        async def run(_: Call) -> Json:
            return await step()

        await self.open()
        plan = once_plan(key, run, agent=self.gate.agent, row_key=key, terms_effect="idempotent")
        return await self.gate.driver.result(self.scope(), plan)

    # -- reading

    def scope(self, prefix: str = "") -> RunScope:
        """Return the scope for the gate's own functions. ``prefix`` is for the keys of one call."""
        return RunScope(
            self.gate.driver,
            self.run,
            self.requester,
            thread=self.thread,
            prefix=prefix,
            owner=self._owner,
            hold=self._hold,
        )

    def row(self, id: str) -> Call | None:
        """Return the row of a call, or None. Reads the store: on an event loop, use ``find``."""
        return self.store.call_by_key(self.run, id)

    @property
    def has_new_input(self) -> bool:
        """Whether new input has begun the run here, so that its calls have no rows, most likely."""
        return self.lease is not None and self.lease.has_new_input

    async def find(self, id: str) -> Call | None:
        return await read(self.store, self.row, id)

    def row_in_any_run(self, id: str) -> Call | None:
        """Return the row of a call, also from a run of the thread that was cancelled."""
        runs = [self.run]
        runs += [run.id for run in reversed(runs_of(self.store, self.gate.agent, self.thread))]
        return next((row for run in runs if (row := self.store.call_by_key(run, id))), None)

    async def waiting(self, ids: Sequence[str]) -> tuple[Request, ...]:
        """Return the pending requests for these calls and inside them, in their order."""
        return await read(self.store, self._waiting, ids)

    def _waiting(self, ids: Sequence[str]) -> tuple[Request, ...]:
        rows = pending_calls(self.store, self.run)
        waiting_rows = [
            row for id in ids for row in rows if row.key == id or row.key.startswith(f"{id}/")
        ]
        return tuple(request_in(self.store, row.as_asked) for row in waiting_rows)


# --- the runs of a thread ---

MOST_WAITING = 500


def pending_calls(store: Store, run: str) -> list[Call]:
    query = Query(status="pending", run=run, limit=MOST_WAITING)
    return [call for _, call in store.page(query)]


def keep_off_loop(store: Store) -> None:
    """Send every call to a store that does I/O to a worker thread from now on.

    The event loop belongs to the framework. Its other tasks should not wait even for a quick
    commit, and some servers refuse any blocking call on it (``langgraph dev``).
    """
    if store.quick_reads and not is_in_memory(store.url):
        store.quick_reads = False
        setattr(store, "in_order", True)  # noqa: B010  # see sayso.sync: a hint, not part of Store


def run_of(store: Store, agent: str, thread: str) -> str:
    """Return the id of the run of an agent's thread. A cancelled run is followed by a new one."""
    runs = runs_of(store, agent, thread)
    if runs and not _is_cancelled(runs[-1]):
        return runs[-1].id
    return run_name(agent, thread, len(runs) + 1)


def runs_of(store: Store, agent: str, thread: str) -> list[Run]:
    """Return the runs of a thread in order; all but the last were cancelled."""
    runs: list[Run] = []
    while (run := store.run(run_name(agent, thread, len(runs) + 1))) is not None:
        runs.append(run)
        if not _is_cancelled(run):
            break
    return runs


def run_name(agent: str, thread: str, number: int) -> str:
    """Return the id of a thread's run with this number, which no other thread's run can have."""
    owner = agent.replace("%", "%25").replace(":", "%3A")
    name = thread.replace("%", "%25").replace("#", "%23")
    return f"{owner}:{name}" if number == 1 else f"{owner}:{name}#{number}"


def _is_cancelled(run: Run) -> bool:
    """Return whether a run was cancelled and has ended, so that nothing can be added to it."""
    return run.status is RunStatus.CANCELLED or (bool(run.stop) and run.status not in LIVE)


def _driving_scope(gate: Gate, thread: str) -> RunScope | None:
    """Return the scope of this thread's run, if a ``FrameworkAgent`` is running it here."""
    for scope in reversed(open_scopes()):
        same = scope.driver.backend.store_id == gate.backend.store_id
        if scope.thread == thread and same and not scope.steps:
            return scope
    return None


# --- agents inside a call of another agent ---
#
# Such an agent has no thread. Its calls belong to the outer run, under the key of that call, and so
# do the replies of its model: when the call is made again after a pause, the agent restarts from
# the beginning, and what it said and did comes from the store.


@dataclass(frozen=True, slots=True)
class CallPlace:
    """Where an agent runs that has no thread: inside a call of another agent."""

    run: str
    thread: str
    #: The prefix of the keys of its calls.
    key: str


def place_in_call(gate: Gate) -> CallPlace | None:
    """Return the place of an agent that starts here, if this is the body of a framework's call."""
    scope = open_scope(gate.driver)
    if scope is None or scope.alone or scope.steps or not scope.of_call:
        return None
    return CallPlace(scope.name, scope.thread, scope.key(f"agent:{quoted(gate.agent)}"))


def place_of_unguarded(place: Place, input: bytes) -> CallPlace:
    """Return the place of an agent that nobody guarded and that starts here, in a guarded run.

    Such agents may start side by side, on several OS threads: each is found again by its
    ``input``.
    """
    scope = open_scope(place.gate.driver) or FrameworkThread(place.gate, place.thread).scope()
    key = scope.key(f"agent:{quoted(place.gate.agent)}", codec.sha256(input)[:32])
    return CallPlace(scope.name, place.thread, key)


async def kept(calls: FrameworkThread, key: str, ask: Callable[[], Awaitable[Any]]) -> Any:
    """Return the stored answer for this key, or call ``ask`` and store its answer.

    Errors are not stored. The answer is stored as text, because a model may write values that no
    call may hold.
    """
    row = await calls.find(key)
    if row is not None and row.result is not None:
        return json.loads(codec.loads(row.result))
    answer = json.dumps(await ask())

    async def store() -> Json:
        return answer

    return json.loads(await calls.once(key, store))
