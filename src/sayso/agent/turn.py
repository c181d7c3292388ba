"""One turn's calls: what the model wrote, and the row or the error that came of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sayso import codec
from sayso.agent import messages
from sayso.agent.events import AgentEvent, Answered, Requested, ToolCalled, ToolClosed
from sayso.agent.intake import planned, planned_hosted
from sayso.agent.job import Job
from sayso.agent.models.base import HostedApproval, ModelCall, ModelReply
from sayso.agent.tool import Tool
from sayso.engine.commands import Cancel, NewCall
from sayso.errors import SaysoError
from sayso.gate.recheck import called_off
from sayso.rows import OPEN, Call, CallStatus
from sayso.stores.nested_runs import expire
from sayso.types import DECISIONS, Json, Micros, Request
from sayso.views import content_of

_WAITS = (CallStatus.ASKED, CallStatus.IN_DOUBT)
#: How calls end that ran, in some process that told of it.
_RAN = (CallStatus.DONE, CallStatus.FAILED)


@dataclass(slots=True)
class Slot:
    """One call of a turn."""

    index: int
    model: ModelCall
    tool: Tool | None = None
    error: str = ""
    call: Call | None = None
    #: Where the call runs at the provider, and only waits for a yes.
    hosted: HostedApproval | None = None
    #: Started by this process, and not run yet.
    ours: bool = False
    #: What a call that paused by itself waits for, in this run and in runs of other agents.
    asks: list[Call] = field(default_factory=list)
    inner: tuple[Request, ...] = ()
    #: It paused here and did not say for what: it starts again when somebody resumes the run.
    rests: bool = False
    #: It has ended, and nothing of it is left open.
    tidy: bool = False
    # What listeners were told of it:
    told_called: bool = False
    told_before: bool = False
    told_asked: tuple[Any, ...] = ()
    told_answered: bool = False
    told_ended: bool = False

    @property
    def open(self) -> bool:
        """Whether its end is still to come, or that of a step within it."""
        return bool(self.asks) or (self.call is not None and self.call.status in OPEN)

    @property
    def may_ask(self) -> bool:
        """Whether steps within the call may be open, while it is not running itself."""
        if self.call is None or self.call.attempt == 0:
            return False
        paused = self.call.status is CallStatus.READY
        asks = paused or self.tool is None or self.tool.takes_context
        return asks and self.call.status not in (CallStatus.RUNNING, CallStatus.IN_DOUBT)

    @property
    def startable(self) -> bool:
        """Whether it is ready, and waits for no answer to a question of its own."""
        ready = self.call is not None and self.call.status is CallStatus.READY
        return ready and not (self.asks or self.inner or self.rests)

    @property
    def unshown(self) -> bool:
        """Whether it waits, and has no preview of what it is now: somebody edited it."""
        call = self.call
        if call is None or self.tool is None or self.tool.preview is None:
            return False
        shown = codec.loads(call.preview)["revision"] if call.preview else 0
        return call.status is CallStatus.ASKED and bool(shown != call.rev)

    @property
    def content(self) -> str:
        """What the model is told of it."""
        if self.error:
            return self.error
        if self.call is None:
            return messages.forgotten()
        gone = self.tool is None and self.hosted is None
        if gone and self.call.status is CallStatus.CANCELLED:
            return messages.error(f"There is no tool {self.model.name!r} any more; it was not run.")
        return messages.content_of(self.call)

    @property
    def message(self) -> dict[str, Json]:
        """The answer to the model."""
        if self.hosted is not None:
            return messages.approval(self.model.id, self.call, self.error)
        return messages.tool(self.model.id, self.model.name, self.content)

    @property
    def standing(self) -> tuple[Any, ...]:
        """What people see of it: another one is news to them."""
        call = self.call
        asked = call is not None and call.status in _WAITS
        return (call.status, call.rev, call.attempt) if call is not None and asked else ()


class Turn:
    """The calls of one reply."""

    def __init__(self, job: Job, number: int, run: str = "") -> None:
        self.job = job
        self.store = job.store
        self.number = number
        self.run = run or job.run
        self.slots: list[Slot] = []
        self.due: list[Call | Cancel] = []
        #: The calls in doubt that the other side can be asked about now.
        self.doubts: list[Slot] = []

    def key(self, slot: Slot) -> str:
        """The natural key of a call: providers repeat their ids, turns and places do not."""
        return f"{self.number}.{slot.index}"

    # -- taking calls in

    async def plan(self, reply: ModelReply) -> tuple[NewCall, ...]:
        """Read the calls; what cannot be read is answered to the model, and to nobody else."""
        self.slots = _slots(reply.calls, reply.approvals, self.job.tools)
        calls = []
        for slot in self.slots:
            try:
                calls.append(await self._planned(slot, reply.text))
            except SaysoError as error:
                slot.error = messages.error(str(error))
        return tuple(calls)

    async def _planned(self, slot: Slot, note: str) -> NewCall:
        if slot.hosted is not None:
            return await planned_hosted(self.job, self.key(slot), slot.hosted)
        return await planned(self.job, self.key(slot), slot.model, note)

    def load(self, said: Mapping[str, Any]) -> None:
        """Find the rows of a turn that was made before, here or in another process."""
        calls = [ModelCall(c["id"], c["name"], c["arguments"]) for c in said.get("calls", ())]
        hosted = [HostedApproval(**h) for h in said.get("hosted", ())]
        self.slots = _slots(calls, hosted, self.job.tools)
        for slot in self.slots:
            slot.error = said.get("errors", {}).get(str(slot.index), "")
        self._read([slot for slot in self.slots if not slot.error])
        for slot in self.slots:
            ran = slot.call is not None and slot.call.status in _RAN
            slot.told_called = True
            # Who sits in front of a channel is asked again when the run comes back.
            slot.told_before = bool(slot.standing)
            slot.told_asked = () if self.job.gate.driver.interactive else slot.standing
            slot.told_answered = ran
            slot.told_ended = ran or bool(slot.error)

    def _read(self, slots: Sequence[Slot]) -> None:
        """Look at the rows of these slots, all at once."""
        if not slots:
            return
        found = self.store.calls_of(self.run, [self.key(slot) for slot in slots])
        by_key = {call.key: call for call in found}
        for slot in slots:
            slot.call = by_key.get(self.key(slot), slot.call)

    def placed(self, calls: Sequence[Call], token: int | None) -> None:
        """Put rows into their slots; what was started under this token is ours to run."""
        by_key = {call.key: call for call in calls}
        for slot in self.slots:
            call = by_key.get(self.key(slot))
            if call is not None:
                before = 0 if slot.call is None else slot.call.attempt
                slot.ours = call.under_way and call.attempt == before + 1 and call.token == token
                slot.call, slot.asks, slot.inner = call, [], ()

    # -- looking

    def all_in(self, calls: Sequence[Call]) -> bool:
        """Whether these rows tell of everything that is open: nothing else can have moved."""
        told = {call.id for call in calls}
        return all(s.call is None or not s.open or s.call.id in told for s in self.slots)

    def refresh(self, again: bool = True) -> None:
        """Look (``again``) at the rows; what is to be closed by now stands in ``due`` then."""
        self.due = []
        of_run: list[Call] | None = None
        known = [slot for slot in self.slots if slot.call is not None and not slot.tidy]
        if again:
            self._read([slot for slot in known if slot.open])
        for slot in known:
            assert slot.call is not None
            if slot.open:
                self._look_at_the_clock(slot.call)
            slot.asks = []
            if slot.may_ask:
                of_run = self.store.calls_of(self.run) if of_run is None else of_run
                slot.asks = self._asked_inside(slot.call, of_run)
            slot.tidy = not slot.open and not self.due
        self.doubts = [slot for slot in known if self._askable(slot)]

    def _askable(self, slot: Slot) -> bool:
        able = slot.tool is not None and slot.tool.settle is not None
        return able and slot.call is not None and slot.call.askable(self.store.now())

    @property
    def asks_at(self) -> Micros | None:
        """When the other side can be asked about a call that is in doubt, if nobody was yet."""
        able = [s.call for s in self.slots if s.tool is not None and s.tool.settle is not None]
        doubts = (call.unsettled for call in able if call is not None)
        return min((doubt.ask_at for doubt in doubts if doubt is not None), default=None)

    def close_due(self) -> None:
        """Close what is over."""
        for due in self.due:
            if isinstance(due, Cancel):
                self.store.transact(due)
            else:
                expire(self.store, due)

    def _look_at_the_clock(self, call: Call) -> None:
        ends = call.expires_at
        if call.status is CallStatus.ASKED and ends is not None and ends <= self.store.now():
            self.due.append(call)

    def _asked_inside(self, call: Call, of_run: list[Call]) -> list[Call]:
        """What a call that paused by itself still waits for."""
        inside = [c for c in of_run if c.key.startswith(f"{call.key}/")]
        for step in inside:
            self._look_at_the_clock(step)
            if call.status not in OPEN and step.status in (CallStatus.ASKED, CallStatus.READY):
                self.due.append(called_off(step, "the tool went on without it"))
        return [step for step in inside if step.status in _WAITS]

    @property
    def asks_store(self) -> bool:
        """Whether something of the calls is to be read before it can be told."""
        known = self.job.knows
        return any(s.may_ask or (s.call is not None and not known(s.call)) for s in self.slots)

    @property
    def extras(self) -> dict[str, Json]:
        """What is stored with the reply, beside what the model wrote."""
        errors = {str(slot.index): slot.error for slot in self.slots if slot.error}
        hosted = [asdict(slot.hosted) for slot in self.slots if slot.hosted is not None]
        return {**({"errors": errors} if errors else {}), **({"hosted": hosted} if hosted else {})}

    @property
    def settled(self) -> bool:
        """Whether every call has its answer."""
        return not any(slot.open for slot in self.slots)

    @property
    def unshown(self) -> list[Slot]:
        """The calls that wait and whose preview is of before an edit."""
        return [slot for slot in self.slots if slot.unshown]

    @property
    def startable(self) -> list[Slot]:
        """The calls that could start now."""
        return [slot for slot in self.slots if slot.startable]

    def waiting(self) -> tuple[Request, ...]:
        """What people are asked, here and in the runs of agents that are tools here."""
        found: list[Request] = []
        for slot in self.slots:
            if slot.call is not None and slot.call.status in _WAITS:
                found.append(self.job.request(slot.call))
            found += [self.job.request(call) for call in slot.asks]
            found += slot.inner
        return tuple(found)

    # -- telling

    def news(self) -> Iterator[AgentEvent]:
        """What listeners have not been told yet."""
        if not (self.job.heard or self.job.asks_here):
            return
        for slot in self.slots:
            if not slot.told_called:
                slot.told_called = True
                yield self._called(slot)
        for slot in self.slots:
            call, standing = slot.call, slot.standing
            if call is not None and standing and standing != slot.told_asked:
                slot.told_asked = standing
                again, slot.told_before = slot.told_before, False
                yield Requested(self.job.request(call), again)
            if call is not None and not slot.told_answered and _answered(call):
                slot.told_answered = True
                yield Answered(self.job.request(call))
            if not slot.told_ended and not slot.open:
                slot.told_ended = True
                yield self._closed(slot)

    def _called(self, slot: Slot) -> ToolCalled:
        call = slot.call
        name, id = slot.model.name, slot.model.id
        if call is None:
            return ToolCalled(id, name, {}, id)
        return ToolCalled(call.id, call.tool, content_of(call), id)

    def _closed(self, slot: Slot) -> ToolClosed:
        call = slot.call
        id = slot.model.id if call is None else call.id
        name = slot.model.name if call is None else call.tool
        status = "error" if call is None else str(call.status)
        return ToolClosed(id, name, slot.content, status)


def _answered(call: Call) -> bool:
    decided = call.decision is not None and call.decision.type in DECISIONS
    return decided and call.status is not CallStatus.ASKED


def _slots(
    calls: Sequence[ModelCall], hosted: Sequence[HostedApproval], tools: Mapping[str, Tool]
) -> list[Slot]:
    slots = [Slot(index, call, tools.get(call.name)) for index, call in enumerate(calls)]
    for index, approval in enumerate(hosted, len(slots)):
        model = ModelCall(approval.id, approval.name, approval.arguments)
        slots.append(Slot(index, model, hosted=approval))
    return slots
