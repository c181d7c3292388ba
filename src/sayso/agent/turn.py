"""One turn: the calls of one model reply, from the model's text to the stored row of each.

The first half turns what the model wrote into a ``Plan`` that the gate can judge. The second half,
``Turn``, follows the rows of the calls until each has a result for the model.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from sayso import codec
from sayso.agent.conversation import (
    MessageBody,
    approval_message,
    error_content,
    result_content,
    tool_message,
)
from sayso.agent.events import AgentEvent, Answered, Requested, ToolCalled, ToolClosed
from sayso.agent.models.base import HostedApproval, ModelCall, ModelReply
from sayso.agent.run_context import RunContext
from sayso.agent.tool import Tool
from sayso.engine.commands import Cancel, NewCall
from sayso.errors import InvalidCall, SaysoError, describe_error
from sayso.gate.gate import policy_terms
from sayso.gate.guard import preview_text
from sayso.gate.options import allow_only, bound_facts, question_terms, title_maker
from sayso.gate.plan import Plan, cancel_call, judged_call
from sayso.gate.steps import StepTool
from sayso.rows import HOSTED, OPEN, Call, CallStatus
from sayso.stores.nested_runs import expire
from sayso.sync import run_user_function
from sayso.types import DECISIONS, Json, Micros, Request, Terms, ToolCall, moment
from sayso.views import content_of, stored_question

# --- planning: read, judge, bind and preview a call ---

_HOSTED_DECISIONS = ("approve", "reject")
_BODILESS_DECISIONS = ("respond", "reject")


def new_plan(ctx: RunContext, key: str, made: ModelCall, note: str) -> Plan:
    """Return the plan of a new call. Raises ``InvalidCall`` for the model to read."""
    tool = ctx.tools.get(made.name)
    if tool is None:
        names = ", ".join(sorted(ctx.tools)) or "none"
        raise InvalidCall(f"there is no tool {made.name!r}; the tools are: {names}")
    text = tool.read(made.arguments)
    if tool.asks is not None:
        text = codec.canonical(stored_question(tool.asks(codec.loads(text)))).decode()
    return plan_of(ctx, key, tool, text, note=note)


def hosted_plan(ctx: RunContext, key: str, made: HostedApproval, text: str) -> Plan:
    """Return the plan of a call that the provider runs. People can only approve or reject it."""
    name = f"{made.server}.{made.name}"
    own = question_terms("hosted", _HOSTED_DECISIONS, {})

    async def terms(args: dict[str, Json]) -> Terms:
        judged = await policy_terms(ctx.gate, ToolCall(name, args, made.id), own, True)
        return allow_only(judged, _HOSTED_DECISIONS)

    return Plan(
        key=key,
        kind="approval",
        args=text,
        agent=ctx.agent.name,
        terms=terms,
        tool_name=name,
        tool_digest=HOSTED + codec.digest({"server": made.server, "hosted": made.name}),
    )


def plan_of(ctx: RunContext, key: str, tool: Tool, text: str, **more: Any) -> Plan:
    """Return the plan of a call, with the tool as it is now."""

    async def terms(args: dict[str, Json]) -> Terms:
        if tool.asks is not None or tool.plans:
            return tool.own
        judged = await policy_terms(
            ctx.gate, ToolCall(tool.name, args), tool.own, tool.needs_approval
        )
        return judged if tool.function is not None else allow_only(judged, _BODILESS_DECISIONS)

    return Plan(
        key=key,
        kind="approval" if tool.asks is None else "question",
        args=text,
        agent=ctx.agent.name,
        terms=terms,
        tool=None if tool.asks is not None else tool.stored,
        tool_name=tool.name,
        binds=lambda: _binds(ctx, tool),
        effect_key=tool.effect_key,
        settle=tool.settle,
        not_executed=tool.not_executed,
        title=title_maker(tool.title, tool.signature.parameters),
        preview=None if tool.preview is None else partial(_preview, ctx, tool),
        normalize_args=None if tool.asks is not None else tool.read,
        retry=False,  # the model sees the failure and may call again
        dump=tool.signature.dump_result,
        **more,
    )


def step_tool(ctx: RunContext, name: object) -> StepTool:
    """Return what a plan needs to know of one of the agent's tools. Raises ``InvalidCall``."""
    tool = ctx.tools.get(str(name))
    if tool is None or tool.asks is not None or tool.plans:
        can_be_steps = (tool.name for tool in ctx.tools.values() if not (tool.asks or tool.plans))
        names = ", ".join(sorted(can_be_steps)) or "none"
        raise InvalidCall(f"{name!r:.80} cannot be a step of a plan; these tools can: {names}")
    plan = plan_of(ctx, "", tool, "{}")
    return StepTool(
        stored=tool.stored,
        read=lambda values: tool.read(codec.dumps(values)),
        terms=plan.terms,
        binds=plan.binds,
        title=plan.title,
    )


def _binds(ctx: RunContext, tool: Tool) -> str:
    """Return the facts about the environment that an approval covers, as canonical JSON."""
    facts: dict[str, Json] = {}
    if tool.binds is not None:
        try:
            takes_deps = bool(inspect.signature(tool.binds).parameters)
            facts = bound_facts(tool.binds, *((ctx.deps,) if takes_deps else ()))
        except Exception as error:
            raise InvalidCall(f"binds= of {tool.name} failed: {describe_error(error)}") from error
    if ctx.agent.on_change == "ask" and tool.asks is None:
        facts = {"agent": ctx.agent.digest, "facts": facts}
    return codec.canonical(facts).decode() if facts else ""


async def _preview(ctx: RunContext, tool: Tool, text: str, revision: int) -> str:
    """Return the tool's preview as JSON, with its time and the revision it belongs to."""
    assert tool.preview is not None
    at = moment(ctx.store.now()).isoformat(timespec="seconds")
    preview = codec.loads(await preview_text(tool.preview, tool.signature, text))
    return codec.dumps({"at": at, "revision": revision, "shows": preview})


async def call_function(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Call an async function on the event loop, and a sync one in a worker thread."""
    if inspect.iscoroutinefunction(function):
        return await function(*args, **kwargs)
    value = await run_user_function(function, *args, **kwargs)
    return await value if inspect.isawaitable(value) else value


# --- the calls of a turn ---

_WAITING = (CallStatus.ASKED, CallStatus.IN_DOUBT)
#: Statuses of calls that ran. The process that ran them has told the listeners.
_RAN = (CallStatus.DONE, CallStatus.FAILED)


@dataclass(slots=True)
class CallSlot:
    """One call of a turn: the model's call, and its row, or the error if it has none."""

    index: int
    model: ModelCall
    tool: Tool | None = None
    error: str = ""
    call: Call | None = None
    #: Set if the provider runs the call and only needs an approval.
    hosted: HostedApproval | None = None
    #: Started by this process and not run yet.
    started_here: bool = False
    #: Open requests of a call that paused to ask: in this run, and in runs of sub-agents.
    steps: list[Call] = field(default_factory=list)
    inner_requests: tuple[Request, ...] = ()
    #: Paused here without a request. It starts again when the run is resumed.
    paused_without_request: bool = False
    #: It has ended and has no open steps.
    finished: bool = False
    # What was reported to the listeners:
    reported_call: bool = False
    was_open_before: bool = False
    reported_request: tuple[Any, ...] = ()
    reported_answer: bool = False
    reported_end: bool = False

    @property
    def open(self) -> bool:
        """Whether the call, or a step within it, has not ended."""
        return bool(self.steps) or (self.call is not None and self.call.status in OPEN)

    @property
    def may_have_steps(self) -> bool:
        """Whether steps within the call may be open although it is not running."""
        if self.call is None or self.call.attempt == 0:
            return False
        paused = self.call.status is CallStatus.READY
        asks = paused or self.tool is None or self.tool.takes_context
        return asks and self.call.status not in (CallStatus.RUNNING, CallStatus.IN_DOUBT)

    @property
    def startable(self) -> bool:
        """Whether it is ready and waits for no answer to its own questions."""
        ready = self.call is not None and self.call.status is CallStatus.READY
        return ready and not (self.steps or self.inner_requests or self.paused_without_request)

    @property
    def needs_preview(self) -> bool:
        """Whether it waits with a preview from before an edit."""
        call = self.call
        if call is None or self.tool is None or self.tool.preview is None:
            return False
        shown_revision = codec.loads(call.preview)["revision"] if call.preview else 0
        return call.status is CallStatus.ASKED and bool(shown_revision != call.rev)

    @property
    def content(self) -> str:
        if self.error:
            return self.error
        if self.call is None:
            return error_content("This call is no longer on record.")
        gone = self.tool is None and self.hosted is None
        if gone and self.call.status is CallStatus.CANCELLED:
            return error_content(f"The tool {self.model.name!r} no longer exists. It did not run.")
        return result_content(self.call)

    @property
    def message(self) -> MessageBody:
        if self.hosted is not None:
            return approval_message(self.model.id, self.call, self.error)
        return tool_message(self.model.id, self.model.name, self.content)

    @property
    def request_version(self) -> tuple[Any, ...]:
        """Identifies what people are shown; empty if nothing waits. A new value is news."""
        call = self.call
        if call is None or call.status not in _WAITING:
            return ()
        return call.status, call.rev, call.attempt


class Turn:
    """The calls of one reply and their rows."""

    def __init__(self, ctx: RunContext, number: int, run: str = "") -> None:
        self.ctx = ctx
        self.store = ctx.store
        self.number = number
        self.run = run or ctx.run
        self.slots: list[CallSlot] = []
        #: Expired requests and abandoned steps, to be closed by ``close_overdue``.
        self.overdue: list[Call | Cancel] = []
        #: Calls in doubt whose ``settle=`` can be asked now.
        self.in_doubt: list[CallSlot] = []

    def key(self, slot: CallSlot) -> str:
        """Return the call's key. Built from its position, because providers repeat their ids."""
        return f"{self.number}.{slot.index}"

    # -- creating and loading

    async def plan(self, reply: ModelReply) -> tuple[NewCall, ...]:
        """Plan the calls of a reply. Invalid calls get an error that only the model sees."""
        self._make_slots(reply.calls, reply.approvals)
        calls = []
        for slot in self.slots:
            try:
                if slot.hosted is not None:
                    args = codec.parse_arguments(slot.hosted.arguments or "{}")
                    text = codec.canonical(args).decode()
                    plan = hosted_plan(self.ctx, self.key(slot), slot.hosted, text)
                else:
                    plan = new_plan(self.ctx, self.key(slot), slot.model, reply.text)
                calls.append(await judged_call(plan))
            except SaysoError as error:
                slot.error = error_content(str(error))
        return tuple(calls)

    def load(self, message: Mapping[str, Any]) -> None:
        """Load the calls of a stored reply, made by this or another process."""
        calls = [ModelCall(c["id"], c["name"], c["arguments"]) for c in message.get("calls", ())]
        self._make_slots(calls, [HostedApproval(**h) for h in message.get("hosted", ())])
        for slot in self.slots:
            slot.error = message.get("errors", {}).get(str(slot.index), "")
        self._read([slot for slot in self.slots if not slot.error])
        for slot in self.slots:
            ran = slot.call is not None and slot.call.status in _RAN
            slot.reported_call = True
            # A person in front of a channel is asked again when the run is resumed.
            slot.was_open_before = bool(slot.request_version)
            interactive = self.ctx.gate.driver.interactive
            slot.reported_request = () if interactive else slot.request_version
            slot.reported_answer = ran
            slot.reported_end = ran or bool(slot.error)

    def _make_slots(self, calls: Sequence[ModelCall], hosted: Sequence[HostedApproval]) -> None:
        self.slots = [
            CallSlot(n, call, self.ctx.tools.get(call.name)) for n, call in enumerate(calls)
        ]
        for index, approval in enumerate(hosted, len(self.slots)):
            model = ModelCall(approval.id, approval.name, approval.arguments)
            self.slots.append(CallSlot(index, model, hosted=approval))

    @property
    def extras(self) -> dict[str, Json]:
        """What is stored with the reply besides the model's own fields."""
        errors = {str(slot.index): slot.error for slot in self.slots if slot.error}
        hosted = [asdict(slot.hosted) for slot in self.slots if slot.hosted is not None]
        return {**({"errors": errors} if errors else {}), **({"hosted": hosted} if hosted else {})}

    def _read(self, slots: Sequence[CallSlot]) -> None:
        """Read the rows of these slots in one query."""
        if not slots:
            return
        calls = self.store.calls_of(self.run, [self.key(slot) for slot in slots])
        by_key = {call.key: call for call in calls}
        for slot in slots:
            slot.call = by_key.get(self.key(slot), slot.call)

    def place(self, calls: Sequence[Call], token: int | None) -> None:
        """Update the calls with these rows. Those started under this token are ours to run."""
        by_key = {call.key: call for call in calls}
        for slot in self.slots:
            call = by_key.get(self.key(slot))
            if call is not None:
                before = 0 if slot.call is None else slot.call.attempt
                slot.started_here = (
                    call.under_way and call.attempt == before + 1 and call.token == token
                )
                slot.call, slot.steps, slot.inner_requests = call, [], ()

    def covered_by(self, calls: Sequence[Call]) -> bool:
        """Return whether these rows include every open call, so that no read is needed."""
        call_ids = {call.id for call in calls}
        return all(s.call is None or not s.open or s.call.id in call_ids for s in self.slots)

    # -- looking at the rows

    def refresh(self, read: bool = True) -> None:
        """Update the slots, reading open rows unless ``read`` is false; fill ``overdue``."""
        self.overdue = []
        of_run: list[Call] | None = None
        slots = [slot for slot in self.slots if slot.call is not None and not slot.finished]
        if read:
            self._read([slot for slot in slots if slot.open])
        for slot in slots:
            assert slot.call is not None
            if slot.call.overdue(self.store.now()):
                self.overdue.append(slot.call)
            slot.steps = []
            if slot.may_have_steps:
                of_run = self.store.calls_of(self.run) if of_run is None else of_run
                slot.steps = self._open_steps(slot.call, of_run)
            slot.finished = not slot.open and not self.overdue
        self.in_doubt = [
            slot
            for slot in slots
            if slot.tool is not None
            and slot.tool.settle is not None
            and slot.call is not None
            and slot.call.askable(self.store.now())
        ]

    def _open_steps(self, call: Call, of_run: list[Call]) -> list[Call]:
        """Return the open requests that a call made while it ran."""
        steps = [c for c in of_run if c.key.startswith(f"{call.key}/")]
        for step in steps:
            if step.overdue(self.store.now()):
                self.overdue.append(step)
            if call.status not in OPEN and step.status in (CallStatus.ASKED, CallStatus.READY):
                self.overdue.append(cancel_call(step, "the tool ended without it"))
        return [step for step in steps if step.status in _WAITING]

    def close_overdue(self) -> None:
        for item in self.overdue:
            if isinstance(item, Cancel):
                self.store.transact(item)
            else:
                expire(self.store, item)

    @property
    def settle_at(self) -> Micros | None:
        """The earliest time at which ``settle=`` of a call in doubt can be asked, if any."""
        able = [s.call for s in self.slots if s.tool is not None and s.tool.settle is not None]
        doubts = (call.unsettled for call in able if call is not None)
        return min((doubt.ask_at for doubt in doubts if doubt is not None), default=None)

    @property
    def needs_store(self) -> bool:
        """Whether describing the calls requires a read."""
        is_known = self.ctx.knows_tool
        return any(
            s.may_have_steps or (s.call is not None and not is_known(s.call)) for s in self.slots
        )

    @property
    def settled(self) -> bool:
        """Whether every call has a result for the model."""
        return not any(slot.open for slot in self.slots)

    @property
    def needs_preview(self) -> list[CallSlot]:
        """The waiting calls whose preview is from before an edit."""
        return [slot for slot in self.slots if slot.needs_preview]

    @property
    def startable(self) -> list[CallSlot]:
        return [slot for slot in self.slots if slot.startable]

    def requests(self) -> tuple[Request, ...]:
        """Return the open requests of the turn, including those of sub-agents."""
        request_list: list[Request] = []
        for slot in self.slots:
            if slot.call is not None and slot.call.status in _WAITING:
                request_list.append(self.ctx.request(slot.call))
            request_list += [self.ctx.request(call) for call in slot.steps]
            request_list += slot.inner_requests
        return tuple(request_list)

    # -- events

    def news(self) -> Iterator[AgentEvent]:
        """Yield the events that the listeners have not received yet."""
        if not (self.ctx.has_listeners or self.ctx.has_channels):
            return
        for slot in self.slots:
            if not slot.reported_call:
                slot.reported_call = True
                yield self._called(slot)
        for slot in self.slots:
            call, version = slot.call, slot.request_version
            if call is not None and version and version != slot.reported_request:
                slot.reported_request = version
                again, slot.was_open_before = slot.was_open_before, False
                yield Requested(self.ctx.request(call), again)
            if call is not None and not slot.reported_answer and call.decision is not None:
                by_person = call.decision.type in DECISIONS
                if by_person and call.status is not CallStatus.ASKED:
                    slot.reported_answer = True
                    yield Answered(self.ctx.request(call))
            if not slot.reported_end and not slot.open:
                slot.reported_end = True
                if call is None:
                    yield ToolClosed(slot.model.id, slot.model.name, slot.content, "error")
                else:
                    yield ToolClosed(call.id, call.tool, slot.content, str(call.status))

    def _called(self, slot: CallSlot) -> ToolCalled:
        call, made = slot.call, slot.model
        if call is None:
            return ToolCalled(made.id, made.name, {}, made.id)
        return ToolCalled(call.id, call.tool, content_of(call), made.id)
