"""A framework's tool as the gate knows it: what is shown of it, and how its arguments are read."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from sayso import codec
from sayso.engine.commands import NewCall, Propose, Reopen
from sayso.errors import CallFailed, DuplicateEffect, InDoubt, InvalidCall, Refused
from sayso.gate import outcomes
from sayso.gate.driver import NOTICE_SECONDS
from sayso.gate.gate import Gate
from sayso.gate.guard import known_inside
from sayso.gate.outcomes import in_text
from sayso.gate.plan import Plan, new_call, once_plan
from sayso.gate.recheck import called_off
from sayso.gate.reentrancy import runs_here
from sayso.gate.scope import RunScope, open_scopes
from sayso.policy import Policy, Predicate
from sayso.rows import LIVE, OPEN, Call, CallStatus, Run, RunStatus, Tool
from sayso.stores.base import Query, Store
from sayso.stores.row_checks import request_in
from sayso.sync import read, write
from sayso.types import Declared, Json, Request, Terms, ToolCall, Verdict

#: The own terms of an agent that is a tool: it changes nothing itself, and its calls have rows.
SUB_AGENT_TERMS = Declared(effect="idempotent", stated=frozenset({"effect"}))


@dataclass(frozen=True, kw_only=True)
class FrameworkTool:
    """A framework's tool as the gate knows it: a name, a text and a JSON Schema."""

    name: str
    description: str = ""
    #: JSON Schema of the arguments, an object.
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    version: str = ""
    #: Counts where no rule of the policy does.
    needs_approval: bool | Predicate = False
    own: Terms = field(default_factory=Terms)
    #: Validates and completes arguments the framework's own way, instead of by the schema alone.
    read: Callable[[dict[str, Json]], Mapping[str, Json]] | None = None
    #: The only decisions that fit its calls; without ``approve`` among them, people are asked.
    possible: tuple[str, ...] | None = None

    @cached_property
    def rules(self) -> dict[str, Any]:
        """The schema that is shown and kept to: it allows what the function itself takes for an
        argument that is left out, also in ``note: str = None``."""
        known = self.parameters.get("properties", {})
        nullable = {name: _or_none(known[name]) for name in self._unsaid}
        return {**self.parameters, **({"properties": {**known, **nullable}} if nullable else {})}

    @cached_property
    def _unsaid(self) -> frozenset[str]:
        """Arguments that are None where they are left out, and that nobody may write so."""
        from sayso import schema

        rules = self.parameters
        known = rules.get("properties", {})
        shared = {"$defs": rules["$defs"]} if "$defs" in rules else {}
        return frozenset(
            name
            for name, said in known.items()
            if isinstance(said, Mapping)
            and said.get("default", ...) is None
            and schema.errors({**said, **shared}, None)
        )

    def passed(self, args: Mapping[str, Json]) -> dict[str, Json]:
        """The arguments as the framework takes them: what is None by being left out, left out."""
        return {n: v for n, v in args.items() if v is not None or n not in self._unsaid}

    @cached_property
    def stored(self) -> Tool:
        """The face that is stored; its digest covers name, schema, description and version."""
        face = {"parameters": self.rules, "returns": None}
        codec.canonical(face)  # a schema that JSON would bend is refused where it is declared
        return Tool.of(self.name, codec.dumps(face), self.description, self.version)

    def intake(self, args: Mapping[str, Json]) -> str:
        """The arguments as they are stored, shown and run, with every default; or InvalidCall."""
        text = self._completed(codec.loads(codec.canonical(dict(args))))
        if self.read is not None and self._completed(codec.loads(text)) != text:
            raise InvalidCall(f"the arguments of {self.name} change when they are read again")
        return text

    def _completed(self, args: dict[str, Json]) -> str:
        from sayso import schema  # brings jsonschema

        complete = self.read or self._with_defaults
        unsaid = dict.fromkeys(self._unsaid)
        text = codec.canonical({**unsaid, **complete(self.passed(args))}).decode()
        wrong = schema.errors(self.rules, codec.loads(text))
        if wrong:
            path, message = wrong[0]
            raise InvalidCall(f"{path}: {message}" if path else message, path)
        return text

    def _with_defaults(self, args: dict[str, Json]) -> dict[str, Json]:
        known = self.parameters.get("properties", {})
        defaults = {n: p["default"] for n, p in known.items() if "default" in p}
        return {**defaults, **args}


def _or_none(rules: Mapping[str, Any]) -> dict[str, Any]:
    about = {k: v for k, v in rules.items() if k in ("title", "description", "default")}
    rest = {k: v for k, v in rules.items() if k not in about}
    return {"anyOf": [rest, {"type": "null"}], **about}


def narrowed(terms: Terms, possible: tuple[str, ...]) -> Terms:
    """The terms with no other decisions than these."""
    kept = tuple(name for name in terms.allowed if name in possible)
    terms = replace(terms, allowed=kept if possible[0] in kept else possible)
    asks = "approve" not in possible and terms.verdict is Verdict.ALLOW
    return replace(terms, verdict=Verdict.ASK) if asks else terms


MOST_WAITING = 500
_REUSED = (
    "Nothing was run: the id of this call belongs to another one, which was made before. "
    "Make the call again."
)


async def _nowhere(args: dict[str, Json]) -> Any:
    raise InvalidCall("this call has no effect of its own")


@dataclass(frozen=True, kw_only=True)
class FrameworkCall:
    """One call that the framework's model made."""

    #: The framework's own id of the call.
    id: str
    tool: FrameworkTool
    args: Mapping[str, Json]
    #: Runs the tool in the framework's way, with the arguments it is given and no others.
    run: Callable[[dict[str, Json]], Awaitable[Any]] = _nowhere
    #: A result as JSON, and back.
    dump: Callable[[Any], Json] = lambda value: value
    load: Callable[[Json], Any] = lambda stored: stored
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a call ended: with a result, of the tool or of a person in its place, or without."""

    ok: bool
    #: What the tool gave, live or read back; of a person's answer, that; else nothing.
    value: Any
    #: What the model is told.
    text: str
    #: Other arguments ran than the model wrote; ``notice`` says so.
    notice: str = ""
    #: The row; nothing if the call could not be asked about.
    call: Call | None = None
    #: Somebody said no, to the call or to what it asked in its body.
    refused: bool = False

    @property
    def by_person(self) -> bool:
        """Whether a person gave the result, and the tool (for all we know) did not."""
        decision = None if self.call is None else self.call.decision
        return self.ok and decision is not None and decision.type == "respond"


class FrameworkThread:
    """One thread of a framework's agent: its run in the store, and the calls in it.

    A ``FrameworkAgent`` runs it under one lease. Without one, each call takes its own lease.
    """

    def __init__(
        self, gate: Gate, thread: str, *, requester: str = "", policy: Policy | None = None
    ) -> None:
        self.gate = gate
        self.store = gate.store
        self.thread = thread
        self.policy = policy
        around = _around(gate, thread)
        self.run = run_of(gate.store, gate.agent, thread) if around is None else around.name
        self.requester = requester if around is None else around.requester
        self._owner = "" if around is None else around.owner
        self._hold = around is not None and around.hold

    @property
    def driven(self) -> bool:
        """Whether somebody drives the thread around here, who will also say how it ended."""
        return self._hold

    # -- asking

    async def ask(self, calls: Sequence[FrameworkCall]) -> tuple[Request, ...]:
        """Put those calls of a turn that need people to them, in one commit, before the framework
        stops. What needs nobody, or cannot be read, is left to ``outcome``."""
        planned = [await self._new(call) for call in calls if self.row(call.id) is None]
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
                    request = await read(self.store, self._request, row)
                    await self.gate.driver.tell(request, NOTICE_SECONDS)
        await self._wait_for_people([call.id for call in calls])
        return await self.waiting([call.id for call in calls])

    async def _wait_for_people(self, ids: Sequence[str]) -> None:
        """Wait for the decisions of a turn, as long as the gate says."""
        wait = self.gate.framework_wait
        ends = None if wait is None else time.monotonic() + wait
        while waiting := [] if wait == 0 else await self.waiting(ids):
            left = None if ends is None else ends - time.monotonic()
            row = await read(self.store, self.store.call, waiting[0].id)
            if row is None or (left is not None and left <= 0):
                return
            await self.gate.backend.wait(row, left)

    async def _new(self, call: FrameworkCall) -> NewCall | None:
        try:
            args = call.tool.intake(call.args)
        except InvalidCall:
            return None
        plan = self._plan(call, args)
        terms = await plan.terms(codec.loads(args))
        return None if terms.verdict is Verdict.ALLOW else new_call(plan, terms)

    async def _terms(self, tool: FrameworkTool, args: dict[str, Json]) -> Terms:
        call = ToolCall(tool.name, args)
        terms = await self.gate.judge(call, tool.own, tool.needs_approval, self.policy)
        return terms if tool.possible is None else narrowed(terms, tool.possible)

    # -- carrying out

    async def outcome(self, call: FrameworkCall) -> Outcome:
        """Take a call to its end, or raise ``Paused`` where people are needed first."""
        row = await read(self.store, self.row, call.id)
        if row is not None and runs_here(row.id):  # in the body of that call: no waiting for it
            return Outcome(ok=False, value=None, text=_REUSED, call=row)
        try:
            wrote = call.tool.intake(call.args)
        except InvalidCall as error:
            if row is None:
                return Outcome(ok=False, value=None, text=f"The call cannot be read: {error}")
            wrote = ""
        if row is not None:
            other = await self._other(row, call, wrote)
            if other:
                return Outcome(ok=False, value=None, text=other, call=row)
        plan = self._plan(call, wrote if row is None else row.args)
        scope = self.scope(f"{call.id}/")
        value: Any = None
        refused = False
        try:
            value = await self.gate.driver.result(scope, plan)
        except (Refused, InDoubt, CallFailed) as no:  # the row says it, in words
            refused = isinstance(no, Refused) and not isinstance(no, DuplicateEffect)
            if await read(self.store, self.row, call.id) is None:
                raise  # the run was called off before it had one
        ended = await read(self.store, self.row, call.id)
        if ended is None:  # a read that is left out of the record
            text = outcomes.as_text(codec.loads(plan.dump(value)))
            return Outcome(ok=True, value=value, text=text)
        return replace(_outcome(ended, value, wrote), refused=refused)

    async def _other(self, row: Call, call: FrameworkCall, wrote: str) -> str:
        """What to tell the model where the row is not the call that the framework makes now; what
        the tool of today does not take is called off on the way."""
        if row.tool != call.tool.name:
            await self._call_off(row, f"the framework makes it a call of {call.tool.name}")
            return _REUSED
        if row.status not in OPEN:
            first = codec.loads(row.args if row.original is None else row.original)
            # Whatever a newer tool adds, the model wrote what it wrote.
            now = codec.loads(wrote) if wrote else {}
            said = {name: now.get(name, value) for name, value in call.args.items()}
            return "" if said.items() <= first.items() else _REUSED
        if row.tool_digest != call.tool.stored.digest:
            try:
                call.tool.intake(codec.loads(row.args))
            except InvalidCall:
                await self._call_off(row, "the tool changed, and takes other arguments now")
        return ""

    def _plan(self, call: FrameworkCall, args: str) -> Plan:
        from pydantic_core import to_json

        async def run(row: Call) -> Any:
            with known_inside(row):
                return await call.run(call.tool.passed(codec.loads(row.args)))

        def dump(value: Any) -> str:
            try:
                return to_json(call.dump(value), inf_nan_mode="strings", fallback=str).decode()
            except Exception:  # it ran, and that counts, however odd its result
                return _told(call, value)

        return Plan(
            key=call.id,
            kind="approval",
            args=args,
            agent=self.gate.agent,
            terms=lambda values: self._terms(call.tool, values),
            tool=call.tool.stored,
            tool_name=call.tool.name,
            note=in_text(call.note),
            reads=lambda text: call.tool.intake(codec.loads(text)),
            run=run,
            dump=dump,
            load=lambda text: call.load(codec.loads(text)),
            wait=self.gate.framework_wait,
        )

    async def gone(self, id: str, name: str) -> Outcome:
        """The framework has no such tool (any more): nothing runs, whatever was decided."""
        row = await read(self.store, self.row, id)
        if row is not None:
            await self._call_off(row, f"the tool {name} is not there any more")
        return Outcome(ok=False, value=None, text=f"There is no tool {name!r}; nothing was run.")

    async def _call_off(self, row: Call, reason: str) -> None:
        if row.status not in (CallStatus.READY, CallStatus.ASKED):
            return
        await write(self.store, called_off(row, reason))

    async def once(self, key: str, step: Callable[[], Awaitable[Json]]) -> Json:
        """Take a step of the adapter's own once, however often the framework comes by here. It may
        be repeated if a process dies in the middle of it."""

        async def run(_: Call) -> Json:
            return await step()

        plan = once_plan(key, run, agent=self.gate.agent, row_key=key, terms_effect="idempotent")
        return await self.gate.driver.result(self.scope(), plan)

    # -- looking

    def scope(self, prefix: str = "") -> RunScope:
        """The run as the gate's own functions see it; ``prefix`` keeps the keys of a call apart."""
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
        """The row of a call."""
        return self.store.call_by_key(self.run, id)

    def row_before(self, id: str) -> Call | None:
        """The same, also where the run that made the call was called off since."""
        return self.row(id) or made_before(self.store, self.gate.agent, self.thread, id)

    async def waiting(self, ids: Sequence[str]) -> tuple[Request, ...]:
        """What people are asked about these calls and inside them, in the order of the calls."""
        query = Query(status="pending", run=self.run, limit=MOST_WAITING)
        rows = [row for _, row in await read(self.store, self.store.page, query)]
        found = [row for id in ids for row in rows if row.key == id or row.key.startswith(f"{id}/")]
        return tuple(self._request(row) for row in found)

    def _request(self, row: Call) -> Request:
        return request_in(self.store, row)


def run_of(store: Store, agent: str, thread: str) -> str:
    """The run of an agent's thread: the same for good, unless somebody called the whole run off."""
    runs = runs_of(store, agent, thread)
    if runs and not _called_off(runs[-1]):
        return runs[-1].id
    return f"{agent}:{thread}" + (f"#{len(runs) + 1}" if runs else "")


def runs_of(store: Store, agent: str, thread: str) -> list[Run]:
    """The runs that a thread has had, in order; all but the last were called off."""
    found: list[Run] = []
    name = base = f"{agent}:{thread}"
    while (run := store.run(name)) is not None:
        found.append(run)
        if not _called_off(run):
            break
        name = f"{base}#{len(found) + 1}"
    return found


def _called_off(run: Run) -> bool:
    """Whether nothing can be added to a run: it was called off, and has ended since."""
    return run.status is RunStatus.CANCELLED or (bool(run.stop) and run.status not in LIVE)


def made_before(store: Store, agent: str, thread: str, id: str) -> Call | None:
    """The row of a call that was made on a thread, also in a run that was called off since."""
    runs = reversed(runs_of(store, agent, thread))
    return next((row for run in runs if (row := store.call_by_key(run.id, id))), None)


def _around(gate: Gate, thread: str) -> RunScope | None:
    """The run of this thread that is being driven around here, perhaps by an outer agent."""
    for scope in reversed(open_scopes()):
        same = scope.driver.backend.place == gate.backend.place
        if scope.thread == thread and same and not scope.steps:
            return scope
    return None


def _told(call: FrameworkCall, value: Any) -> str:
    """A result that has no JSON form, in one: half a surrogate pair becomes a question mark, and
    what else cannot be stored is what it says of itself."""
    try:
        text = json.dumps(call.dump(value), ensure_ascii=False, allow_nan=False, default=in_text)
        return text.encode(errors="replace").decode()
    except Exception:
        return codec.dumps(in_text(value))


def _outcome(row: Call, value: Any, wrote: str) -> Outcome:
    if not outcomes.went_well(row):
        return Outcome(ok=False, value=None, text=outcomes.why_not(row), call=row)
    stored = codec.loads(row.result or "null")
    if row.decision is not None and row.decision.type == "respond":
        return Outcome(ok=True, value=stored, text=outcomes.as_text(stored), call=row)
    notice = outcomes.what_ran(row) if row.original is not None else ""
    if not notice and wrote != row.args:
        notice = f"What ran is the call that was approved, with {row.args}."
    text = outcomes.as_text(stored)
    told = f"{notice} Its result: {text}" if notice else text
    return Outcome(ok=True, value=value, text=told, notice=notice, call=row)
