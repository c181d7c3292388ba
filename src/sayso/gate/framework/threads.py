"""What adapters build on: a framework's tools, calls, threads and agents at a gate.

``FrameworkTool`` describes a tool, ``FrameworkCall`` one call of it, and ``FrameworkThread`` asks
about calls and completes them. ``FrameworkAgent`` runs a framework's agent under one lease and
resumes it.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, cast

from sayso import codec
from sayso.engine.commands import Cancel, NewCall, Note, Propose, Reopen
from sayso.engine.running import leaves_doubt
from sayso.errors import (
    CallFailed,
    Cancelled,
    Conflict,
    DuplicateEffect,
    InDoubt,
    InvalidCall,
    InvalidPolicy,
    NotExecuted,
    NotFound,
    Paused,
    Refused,
)
from sayso.gate import guarded_runs, outcomes
from sayso.gate.coverage import Coverage
from sayso.gate.driver import NOTICE_SECONDS
from sayso.gate.failures import failure_of
from sayso.gate.gate import Gate, policy_terms
from sayso.gate.guard import as_approved_call, as_this_call
from sayso.gate.guarded_runs import Place
from sayso.gate.lease import RunLease, runs_here, supersede, working
from sayso.gate.options import MAX_NAME, allow_only, checked_string, checked_thread
from sayso.gate.outcomes import in_text
from sayso.gate.plan import UNSTABLE, Plan, cancel_call, new_call, once_plan
from sayso.gate.run_result import (
    DecisionInbox,
    ResultStatus,
    RunResult,
    RunState,
    check_asked_in,
    decisions_from,
    write_decisions,
)
from sayso.gate.scope import RunScope, open_scope, open_scopes, quoted
from sayso.policy import Policy, Predicate
from sayso.rows import LIVE, OPEN, Call, CallStatus, Run, RunStatus, Tool
from sayso.stores.address import is_in_memory
from sayso.stores.base import NEVER, Query, Store
from sayso.stores.nested_runs import expire
from sayso.stores.row_checks import request_in
from sayso.sync import (
    call_in_new_thread,
    context_value,
    on_loop,
    read,
    run_sync,
    sync_twin,
    to_thread,
    write,
)
from sayso.types import Declared, Json, Request, Reviewer, Terms, ToolCall, Verdict

#: The terms of an agent that is used as a tool: it has no effect itself, and its calls have rows.
SUB_AGENT_TERMS = Declared(effect="idempotent", stated=frozenset({"effect"}))


@dataclass(frozen=True, kw_only=True)
class FrameworkTool:
    """A framework's tool as the gate knows it: a name, a description and a JSON Schema."""

    name: str
    description: str = ""
    #: JSON Schema of the arguments, an object.
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    version: str = ""
    #: What the tool declares, which applies if no rule of the policy matches. A tool that declares
    #: nothing (None) asks.
    needs_approval: bool | Predicate | None = None
    own: Terms = field(default_factory=Terms)
    #: Returns what the framework's own validation makes of the arguments that the model wrote, as
    #: JSON, instead of checking them by the schema. The tool runs with what the model wrote, which
    #: the framework validates again: ``run`` of the call reports that with ``check_validated``.
    normalize: Callable[[dict[str, Json]], Mapping[str, Json]] | None = None
    #: The only decisions that its calls can take. Without ``approve``, people are always asked.
    decisions: tuple[str, ...] | None = None

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The schema that is shown and checked.

        It also allows None for an argument whose default is None, as in ``note: str = None``.
        """
        properties = self.parameters.get("properties", {})
        nullable = {name: _or_none(properties[name]) for name in self._null_defaults}
        if not nullable:
            return {**self.parameters}
        return {**self.parameters, "properties": {**properties, **nullable}}

    @cached_property
    def _null_defaults(self) -> frozenset[str]:
        """Arguments whose default is None, though the schema does not allow None."""
        from sayso import schema

        shared = {"$defs": self.parameters["$defs"]} if "$defs" in self.parameters else {}
        return frozenset(
            name
            for name, rules in self.parameters.get("properties", {}).items()
            if isinstance(rules, Mapping)
            and rules.get("default", ...) is None
            and schema.errors({**rules, **shared}, None)
        )

    def framework_args(self, args: Mapping[str, Json]) -> dict[str, Json]:
        """Return the arguments for the framework, without a None that it would not accept."""
        return {n: v for n, v in args.items() if v is not None or n not in self._null_defaults}

    @cached_property
    def stored(self) -> Tool:
        """The tool row. Its digest covers name, schema, description and version."""
        schema = {"parameters": self.schema, "returns": None}
        codec.canonical(schema)  # refuse a schema that JSON cannot represent where it is declared
        return Tool.of(self.name, codec.dumps(schema), self.description, self.version)

    def intake(self, args: Mapping[str, Json]) -> str:
        """Return the validated arguments that are shown and judged, with defaults; or raise
        ``InvalidCall``."""
        from sayso import schema  # brings jsonschema

        given = self.framework_args(codec.loads(codec.canonical(dict(args))))
        if self.normalize is not None:
            return self.validated_text(self.normalize(given))
        properties = self.parameters.get("properties", {})
        defaults = {n: p["default"] for n, p in properties.items() if "default" in p}
        text = self.validated_text(defaults | given)
        wrong = schema.errors(self.schema, codec.loads(text))
        if wrong:
            path, message = wrong[0]
            raise InvalidCall(f"{path}: {message}" if path else message, path)
        return text

    def validated_text(self, validated: Mapping[str, Json]) -> str:
        """Return validated arguments in the form in which they are stored."""
        return codec.canonical({**dict.fromkeys(self._null_defaults), **validated}).decode()

    def written(self, args: Mapping[str, Json]) -> str:
        """Return the arguments to run: what the model wrote, if the framework validates it, and
        otherwise the same as ``intake``."""
        if self.normalize is None:
            return self.intake(args)
        return codec.canonical(dict(args)).decode()


def _or_none(rules: Mapping[str, Any]) -> dict[str, Any]:
    about = {k: v for k, v in rules.items() if k in ("title", "description", "default")}
    rest = {k: v for k, v in rules.items() if k not in about}
    return {"anyOf": [rest, {"type": "null"}], **about}


MOST_WAITING = 500
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

    @property
    def by_person(self) -> bool:
        """Whether a person gave the result instead of the tool."""
        decision = None if self.call is None else self.call.decision
        return self.ok and decision is not None and decision.type == "respond"


class _ChangedArguments(NotExecuted):
    """The framework made other arguments of what the model wrote than were approved."""


class _ArgumentsCheck:
    """Compares the arguments of a run, as the framework validated them, with those of the row.

    If people were shown the call, they are the same or the call is refused. If not, the rules
    judge those of the run.
    """

    def __init__(
        self,
        row: Call,
        tool: FrameworkTool,
        judge: Callable[[dict[str, Json]], Coroutine[Any, Any, Terms]],
    ) -> None:
        self._row = row
        self._tool = tool
        self._judge = judge
        self.error: _ChangedArguments | None = None

    def __call__(self, validated: Mapping[str, Json]) -> None:
        try:
            text = self._tool.validated_text(validated)
            same = text == self._row.args or (not self._row.asked and self._allowed(text))
        except InvalidCall:
            same = False
        if not same:
            self.error = _ChangedArguments(
                f"{UNSTABLE}: make the validators of {self._tool.name} return the same value each "
                "time. Nothing was run"
            )
            raise self.error

    def _allowed(self, text: str) -> bool:
        judged = self._judge(codec.loads(text))
        terms = call_in_new_thread(lambda: run_sync(judged)) if on_loop() else run_sync(judged)
        return terms.verdict is Verdict.ALLOW


_check: ContextVar[_ArgumentsCheck | None] = ContextVar("sayso_arguments_check", default=None)


def check_validated(validated: Mapping[str, Json]) -> None:
    """Compare the arguments that the framework has just validated with those that were approved.

    An adapter calls it in ``run`` of a call, between the framework's validation and the tool's
    function, in the form that ``normalize`` returns. Raises ``NotExecuted`` if the tool must not
    run.
    """
    check = _check.get()
    if check is not None:
        check(validated)


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
        """Find the run, and return the thread."""
        if "run" not in vars(self):
            await read(self.store, getattr, self, "run")
        return self

    # -- asking

    async def ask(self, calls: Sequence[FrameworkCall]) -> tuple[Request, ...]:
        """Request approval for the calls of a turn that need it, in one commit, before the
        framework stops. Other calls, and invalid ones, are left to ``outcome``."""
        await self.open()
        known = await read(self.store, lambda: {c.id for c in calls if self.row(c.id) is not None})
        planned = [await self._planned(call) for call in calls if call.id not in known]
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
            for row in rows:
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
            plan = self._plan(call, call.tool.intake(call.args), call.tool.written(call.args))
        except InvalidCall:
            return None
        terms = await plan.terms(codec.loads(plan.args))
        return None if terms.verdict is Verdict.ALLOW else new_call(plan, terms)

    async def _terms(self, tool: FrameworkTool, args: dict[str, Json]) -> Terms:
        call = ToolCall(tool.name, args)
        terms = await policy_terms(self.gate, call, tool.own, tool.needs_approval, self.policy)
        return terms if tool.decisions is None else allow_only(terms, tool.decisions)

    # -- running

    async def outcome(self, call: FrameworkCall) -> Outcome:
        """Complete a call. Raises ``Paused`` if it needs a decision first."""
        await self.open()
        row = await self.find(call.id)
        if row is not None and runs_here(row.id):  # in the body of that call: it would wait forever
            return Outcome(ok=False, value=None, text=_REUSED, call=row)
        try:
            wrote = call.tool.written(call.args)
            args = call.tool.intake(call.args) if row is None else row.args
        except InvalidCall as error:
            if row is None:
                return Outcome(ok=False, value=None, text=f"The call cannot be read: {error}")
            wrote, args = "", row.args
        if row is not None:
            other = await self._mismatch(row, call, wrote)
            if other:
                return Outcome(ok=False, value=None, text=other, call=row)
        plan = self._plan(call, args, wrote)
        scope = self.scope(f"{call.id}/")
        value: Any = None
        refused = False
        try:
            value = await self.gate.driver.result(scope, plan)
        except (Refused, InDoubt, CallFailed, _ChangedArguments) as no:
            refused = isinstance(no, Refused | _ChangedArguments)  # the text comes from the row
            refused = refused and not isinstance(no, DuplicateEffect)
            if await self.find(call.id) is None:
                raise  # the run was cancelled before the call had a row
        ended = await self.find(call.id)
        if ended is None:  # a read that is not recorded
            text = outcomes.as_text(codec.loads(plan.dump(value)))
            return Outcome(ok=True, value=value, text=text)
        return replace(outcome_of(ended, value, wrote), refused=refused)

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
        if on_loop():
            return call_in_new_thread(lambda: run_sync(cls.inner(place, call)))
        return run_sync(cls.inner(place, call))

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
            check = _ArgumentsCheck(row, call.tool, partial(self._terms, call.tool))
            args = call.tool.framework_args(codec.loads(row.args_to_run))
            approved = as_approved_call(row, self.gate.backend.store_id)
            body = guarded_runs.call_body(self.gate, self.policy, self.thread, row, call.passed)
            try:
                with as_this_call(row), approved, body, context_value(_check, check):
                    value = await call.run(args)
            except Exception:
                if check.error is not None:  # the framework may have made another error of it
                    raise check.error from None
                raise
            if check.error is not None:  # or a result
                raise check.error
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

    async def find(self, id: str) -> Call | None:
        return await read(self.store, self.row, id)

    def row_in_any_run(self, id: str) -> Call | None:
        """Return the row of a call, also from a run of the thread that was cancelled."""
        return self.row(id) or call_in_any_run(self.store, self.gate.agent, self.thread, id)

    async def waiting(self, ids: Sequence[str]) -> tuple[Request, ...]:
        """Return the pending requests for these calls and inside them, in their order."""
        return await read(self.store, self._waiting, ids)

    def _waiting(self, ids: Sequence[str]) -> tuple[Request, ...]:
        rows = pending_calls(self.store, self.run)
        found = [row for id in ids for row in rows if row.key == id or row.key.startswith(f"{id}/")]
        return tuple(request_in(self.store, row) for row in found)


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
    return _run_name(agent, thread, len(runs) + 1)


def runs_of(store: Store, agent: str, thread: str) -> list[Run]:
    """Return the runs of a thread in order; all but the last were cancelled."""
    found: list[Run] = []
    while (run := store.run(_run_name(agent, thread, len(found) + 1))) is not None:
        found.append(run)
        if not _is_cancelled(run):
            break
    return found


def _run_name(agent: str, thread: str, number: int) -> str:
    """Return the id of a thread's run with this number, which no other thread's run can have."""
    owner = agent.replace("%", "%25").replace(":", "%3A")
    name = thread.replace("%", "%25").replace("#", "%23")
    return f"{owner}:{name}" if number == 1 else f"{owner}:{name}#{number}"


def _is_cancelled(run: Run) -> bool:
    """Return whether a run was cancelled and has ended, so that nothing can be added to it."""
    return run.status is RunStatus.CANCELLED or (bool(run.stop) and run.status not in LIVE)


def call_in_any_run(store: Store, agent: str, thread: str, id: str) -> Call | None:
    """Return the row of a call that was made on a thread, also in a run that was cancelled."""
    runs = reversed(runs_of(store, agent, thread))
    return next((row for run in runs if (row := store.call_by_key(run.id, id))), None)


def _driving_scope(gate: Gate, thread: str) -> RunScope | None:
    """Return the scope of this thread's run, if a ``FrameworkAgent`` is running it here."""
    for scope in reversed(open_scopes()):
        same = scope.driver.backend.store_id == gate.backend.store_id
        if scope.thread == thread and same and not scope.steps:
            return scope
    return None


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
        """Return the place inside another agent's call: ``place_in_call(self.gate)`` in an adapter
        that implements ``part``."""
        return None

    async def part(self, input: Any, place: CallPlace) -> Any:
        """Run the framework inside a call of another agent: without a thread, and with the stored
        replies of its model. Return its output, or raise ``Paused``."""
        raise NotImplementedError

    async def call_order(self, thread: str) -> Sequence[str]:
        """Return the ids of the last turn's calls in the model's order, for decisions by position.

        Not needed if the framework makes calls one at a time."""
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
        found = Coverage()
        for tool in self.known_tools():
            found.gated(self.name, "tool", tool.name)
        return found

    async def run(self, input: Any, *, thread: str | None = None, requester: str = "") -> RunResult:
        """Run the agent. ``status`` is ``"paused"`` if a request needs a decision first.

        Without a thread, inside another agent's call, it is part of that call and pauses it."""
        place = self.place() if thread is None else None
        if place is not None:
            output = await self.part(input, place)
            return self._result("done", place.run, place.thread, output=output)
        # The run is named after both, and later runs of the thread have a number.
        thread = checked_thread(thread, MAX_NAME - len(_run_name(self.name, "", 9999)))
        checked_string(_run_name(self.name, thread, 9999), "thread", MAX_NAME)
        checked_string(requester, "requester", MAX_NAME)
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
        ``request.approve()`` and the like, or ``{"decisions": [...]}`` for all pending requests.

        If another process works on the run, wait for its outcome: at most ``wait`` seconds, then
        raise ``Leased``. None waits forever."""
        store = self.gate.store
        run = await read(store, self.find, where)
        decisions = await self.read_decisions(run, decisions)
        if decisions is not None:
            decisions = decisions_from(decisions, await self._open_requests(run))
            await read(store, check_asked_in, store, run.thread, decisions)
        await write_decisions(self.inbox, where, decisions or (), by=by, channel=self.channel)
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
            if (taken := await lease.take()) is not None:
                return await self._drive(lease, taken, self.go_on(taken.thread))

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
        """Take a thread for new input: supersede the requests of a paused run, and wait for a
        running one."""
        store, agent = self.gate.store, self.gate.agent
        while True:
            live = await read(store, store.live_run, thread)
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
            run = await read(store, run_of, store, agent, thread)
            taken = await lease.take_thread(
                agent, thread, run, requester, *self._notes(thread, run)
            )
            if taken is not None:  # otherwise another process took it first: wait for that one
                return taken

    def _notes(self, thread: str, run: str) -> list[Note]:
        """Return the event that records what may bypass the gate in this run."""
        names = list(self.coverage().ungated)
        if not names:
            return []
        actor = f"agent:{self.name}"
        return [Note(thread=thread, type="ungated", actor=actor, run=run, body={"names": names})]

    def _close_overdue(self, run: Run) -> Run:
        for call in self._open_calls(run):
            ends = NEVER if call.expires_at is None else call.expires_at
            if call.status is CallStatus.ASKED and ends <= self.gate.store.now():
                expire(self.gate.store, call)
        return self.find(run.id)

    def _open_calls(self, run: Run) -> list[Call]:
        return pending_calls(self.gate.store, run.id) if run.asked or run.in_doubt else []

    async def _drive(self, lease: RunLease, run: Run, step: Awaitable[Any]) -> RunResult:
        """Run the framework, and continue it as long as decisions are made meanwhile."""
        while True:
            scope = RunScope(
                self.gate.driver,
                run.id,
                run.requester,
                thread=run.thread,
                owner=lease.owner,
                hold=True,
            )
            try:
                with (
                    scope.inside(),
                    working(self.gate.backend.store_id, run.id),
                    guarded_runs.guarded_run(
                        self.gate, self.policy, run.thread, self.coverage().ungated
                    ),
                ):
                    output = await step
            except Paused:
                pass
            except Cancelled:
                ended = await to_thread(lease.stop)
                if ended.status is RunStatus.CANCELLED:
                    return await self._ended(ended)
                await to_thread(lease.release)
                raise
            except BaseException:
                await asyncio.shield(asyncio.ensure_future(to_thread(lease.release)))
                raise
            else:
                ended = await to_thread(lease.finish, codec.dumps(self.dump_output(output)))
                if ended.status is RunStatus.CANCELLED:
                    return await self._ended(ended)
                return self._result("done", run.id, run.thread, output=output)
            parked = await self._park(lease, run)
            if parked.status not in LIVE:
                return await self._ended(parked)  # cancelled meanwhile
            due = parked.status is RunStatus.RUNNING and not lease.elsewhere(parked)
            taken = await lease.take() if due else None
            if taken is None:
                return await self._paused(parked)
            run, step = taken, self.go_on(taken.thread)

    async def _park(self, lease: RunLease, run: Run) -> Run:
        try:
            return await lease.park(run)
        except Cancelled:
            return await to_thread(lease.stop)
        except Conflict:  # another process has taken it
            return await read(self.gate.store, self.find, run.id)

    async def _open_requests(self, run: Run) -> tuple[Request, ...]:
        calls = await read(self.gate.store, self._open_calls, run)
        order = await self.call_order(run.thread) if len(calls) > 1 else ()
        position = {id: index for index, id in enumerate(order)}
        calls.sort(key=lambda call: position.get(call.key.split("/")[0], len(position)))
        shown = await read(self.gate.store, lambda: list(map(self.gate.backend.shown, calls)))
        return tuple(map(self.interruption, calls, shown))

    async def _paused(self, run: Run) -> RunResult:
        waiting = await self._open_requests(run)
        return self._result("paused", run.id, run.thread, interruptions=waiting)

    async def _ended(self, run: Run) -> RunResult:
        """Return the result of a run that ended, in any process and at any time."""
        if run.status is RunStatus.DONE:
            stored, error = codec.loads(run.output or "null"), ""
            try:
                output = await self.load_output(run.thread, stored)
            except ValueError:
                output, error = stored, "the stored output does not fit the current output type"
            return self._result("done", run.id, run.thread, output=output, error=error)
        status = cast(ResultStatus, str(run.status))
        return self._result(status, run.id, run.thread, error=run.output or run.stop)

    def _result(self, status: ResultStatus, run: str, thread: str, **more: Any) -> RunResult:
        state = self.state_type(
            run=run,
            thread=thread,
            agent=self.name,
            store=self.gate.store,
            incarnation=self.gate.store.incarnation,
            interruptions=more.get("interruptions", ()),
        )
        raw = self._raw.pop(run, None)
        return self.result_type(status=status, run=run, thread=thread, state=state, raw=raw, **more)
