"""One turn's calls: put them to policy and people, run what may run, and gather what came of them."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from assent import codec
from assent.agent import messages
from assent.agent.context import context_of
from assent.agent.events import AgentEvent, ToolCalled, ToolEnded, ToolStarted
from assent.agent.models.base import HostedApproval, ModelCall, ModelReply
from assent.agent.tool import Tool
from assent.engine.commands import Cancel, Complete, Doubt, NewCall, Reask, Record, Suspend
from assent.errors import AssentError, InvalidCall, Paused
from assent.gate.options import question_terms
from assent.gate.plan import Plan
from assent.gate.recheck import recheck
from assent.gate.verify import verify
from assent.rows import OPEN, Call, CallStatus
from assent.types import Json, Terms, ToolCall
from assent.views import question_json

if TYPE_CHECKING:
    from assent.gate import Gate

Emit = Callable[[AgentEvent], None]


@dataclass(slots=True)
class Slot:
    """One call of a turn: what the model wrote, and the row or the error that came of it."""

    index: int
    model: ModelCall
    tool: Tool | None = None
    error: str = ""
    call: Call | None = None
    #: The name of the provider's server, where the call runs there and only waits for a yes.
    hosted: str = ""
    ours: bool = False

    @property
    def open(self) -> bool:
        """Whether its end is still to come."""
        return self.call is not None and self.call.status in OPEN

    @property
    def message(self) -> dict[str, Json]:
        """What the model is told of it."""
        if self.call is None:
            return messages.tool(self.model.id, self.model.name, self.error)
        if self.hosted:
            return messages.approval(self.model.id, self.call)
        return messages.tool(self.model.id, self.model.name, messages.content_of(self.call))


class Turn:
    """The calls of one reply."""

    def __init__(
        self,
        gate: Gate,
        tools: Mapping[str, Tool],
        thread: str,
        run: str,
        number: int,
        emit: Emit,
        deps: Any,
    ) -> None:
        self.gate = gate
        self.store = gate.store
        self.tools = tools
        self.thread = thread
        self.run = run
        self.number = number
        self.emit = emit
        self.deps = deps
        self.slots: list[Slot] = []
        #: Requests of agents that ran as tools here and paused.
        self.inner: list[Any] = []

    # -- taking calls in

    async def plan(self, reply: ModelReply) -> tuple[NewCall, ...]:
        """Read the model's calls; what cannot be read is answered to the model, and to nobody else."""
        self.slots = _slots(reply.calls, reply.approvals, self.tools)
        planned = []
        for slot in self.slots:
            try:
                new = (
                    self._hosted_call(slot)
                    if slot.hosted
                    else await self._new_call(slot, reply.text)
                )
                planned.append(new)
            except AssentError as error:
                slot.error = messages.error(str(error))
        return tuple(planned)

    def _hosted_call(self, slot: Slot) -> NewCall:
        """A call that the provider runs: people can say yes or no, and nothing else."""
        text = codec.canonical(codec.parse(slot.model.arguments or "{}")).decode()
        face = {"parameters": {"type": "object"}, "returns": None}
        name = f"{slot.hosted}.{slot.model.name}"
        return NewCall(
            id="req_" + secrets.token_hex(8),
            key=f"{self.number}.{slot.index}",
            kind="approval",
            tool=name,
            tool_digest=codec.digest({"hosted": name, "schema": codec.dumps(face)}),
            args=text,
            args_hash=codec.sha256(text.encode()),
            nonce=secrets.token_hex(16),
            terms=question_terms("hosted", ("approve", "reject"), {}),
        )

    async def _new_call(self, slot: Slot, note: str) -> NewCall:
        tool = slot.tool
        if tool is None:
            known = ", ".join(sorted(self.tools)) or "none"
            raise InvalidCall(f"there is no tool {slot.model.name!r}; the tools are: {known}")
        text = tool.read(slot.model.arguments)
        args = codec.loads(text)
        self.emit(ToolCalled(slot.model.id, tool.name, args))
        if tool.asks is not None:
            question = question_json(tool.asks(args))
            text = codec.canonical(question).decode()
        plan = self._plan(slot, tool, text)
        terms = tool.own if tool.asks is not None else await plan.terms(args)
        return NewCall(
            id="req_" + secrets.token_hex(8),
            key=plan.key,
            kind=plan.kind,
            tool=tool.name,
            tool_digest="" if tool.asks is not None else tool.stored.digest,
            args=text,
            args_hash=codec.sha256(text.encode()),
            nonce=secrets.token_hex(16),
            terms=terms,
            binds=plan.binds,
            note=note,
            preview=await self._preview(tool, text, terms),
        )

    def _plan(self, slot: Slot, tool: Tool, text: str) -> Plan:
        async def terms(args: dict[str, Any]) -> Terms:
            call = ToolCall(tool.name, args, slot.model.id)
            return await self.gate.judge(call, tool.own, tool.needs_approval)

        return Plan(
            key=f"{self.number}.{slot.index}",
            kind="question" if tool.asks is not None else "approval",
            args=text,
            terms=terms,
            tool=None if tool.asks is not None else tool.stored,
            tool_name=tool.name,
            binds=self._bound(tool),
        )

    def _bound(self, tool: Tool) -> str:
        """Facts of the surroundings that an approval covers too."""
        if tool.binds is None:
            return ""
        wanted = inspect.signature(tool.binds).parameters
        facts = tool.binds(self.deps) if wanted else tool.binds()
        return codec.canonical(dict(facts)).decode()

    async def _preview(self, tool: Tool, text: str, terms: Terms) -> str:
        if tool.preview is None or terms.verdict != "ask":
            return ""
        args, kwargs = tool.signature.load(text.encode())
        stamp = self.store.now()
        try:
            async with asyncio.timeout(10):
                shown = await _called(tool.preview, args, kwargs)
        except Exception as error:
            shown = f"no preview: {type(error).__name__}: {error}"
        return codec.dumps({"at": stamp, "shows": _plain(shown)})

    def load(self, said: Mapping[str, Any]) -> None:
        """Find the rows of a turn that was made before, here or in another process."""
        calls = [ModelCall(c["id"], c["name"], c["arguments"]) for c in said.get("calls", ())]
        hosted = [HostedApproval(**h) for h in said.get("hosted", ())]
        self.slots = _slots(calls, hosted, self.tools)
        for slot in self.slots:
            slot.error = said.get("errors", {}).get(str(slot.index), "")
            if not slot.error:
                slot.call = self.store.call_by_key(self.run, f"{self.number}.{slot.index}")

    def placed(self, calls: Sequence[Call]) -> None:
        """Put rows into their slots."""
        by_key = {call.key: call for call in calls}
        for slot in self.slots:
            call = by_key.get(f"{self.number}.{slot.index}")
            if call is None:
                continue
            before = 0 if slot.call is None else slot.call.attempt
            # Only what was started in this very commit is ours to run.
            slot.ours = call.status is CallStatus.RUNNING and call.attempt == before + 1
            slot.call = call

    def refresh(self) -> None:
        """Look at the rows again."""
        for slot in self.slots:
            if slot.open and slot.call is not None:
                slot.call = self.store.call(slot.call.id)

    def asked_by(self, call: Call) -> list[Call]:
        """What a call that paused by itself still waits for, in this run."""
        if call.status is not CallStatus.READY or call.attempt == 0:
            return []
        waits = (CallStatus.ASKED, CallStatus.IN_DOUBT)
        inside = [c for c in self.store.calls_of(self.run) if c.key.startswith(f"{call.key}/")]
        return [c for c in inside if c.status in waits]

    @property
    def errors(self) -> dict[str, str]:
        """What was answered to the model without a row, by index."""
        return {str(slot.index): slot.error for slot in self.slots if slot.error}

    @property
    def open(self) -> list[Call]:
        """The calls whose end is still to come."""
        return [slot.call for slot in self.slots if slot.open and slot.call is not None]

    # -- running

    async def startable(self, owner: str, again: str = "") -> list[str]:
        """The ready calls that an approval still covers; the others are asked again or closed."""
        ids = []
        for slot in self.slots:
            call, tool = slot.call, slot.tool
            if call is None or call.status is not CallStatus.READY or self.asked_by(call):
                continue
            if slot.hosted:
                verify(self.store, call)
                await asyncio.to_thread(self.store.transact, self._said_yes(call, owner))
                continue
            if tool is None or tool.function is None:
                reason = f"the tool {call.tool} is not there any more"
                command: Any = Cancel(
                    thread=call.thread, run=call.run, call=call.id, by="agent", reason=reason
                )
                await asyncio.to_thread(self.store.transact, command)
                continue
            outdated = await recheck(self._plan(slot, tool, call.args), call)
            if outdated is None and again and call.decision and call.decision.type != "allow":
                outdated = Reask(thread=call.thread, run=call.run, call=call.id, reason=again)
            if outdated is not None:
                await asyncio.to_thread(self.store.transact, outdated)
                continue
            verify(self.store, call)
            ids.append(call.id)
        return ids

    def _said_yes(self, call: Call, owner: str) -> Complete:
        return Complete(
            thread=call.thread,
            run=call.run,
            call=call.id,
            result="true",
            owner=owner,
            lease=self.gate.lease_micros,
        )

    async def execute(self, owner: str, requester: str, said: Sequence[Any]) -> None:
        """Run every call that this owner has just started, side by side."""
        running = [slot for slot in self.slots if slot.ours]
        left = [len(running)]
        work = [self._run(slot, owner, requester, said, left) for slot in running]
        for outcome in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def _run(
        self,
        slot: Slot,
        owner: str,
        requester: str,
        said: Sequence[Any],
        left: list[int],
    ) -> None:
        call, tool = slot.call, slot.tool
        assert call is not None
        assert tool is not None
        slot.ours = False
        self.emit(ToolStarted(call.id, tool.name, call.attempt))
        try:
            result = await self._effect(call, tool, owner, requester, said)
        except Paused as paused:
            elsewhere = any(request.run != call.run for request in paused.requests)
            self.inner += [request for request in paused.requests if request.run != call.run]
            command: Any = Suspend(**_attempt(call), elsewhere=elsewhere)
        except Exception as error:
            command = Record(**_attempt(call), ok=False, result=_said(error))
        except BaseException as error:
            reason = f"interrupted by {type(error).__name__}"
            command = Doubt(**_attempt(call), reason=reason)
            await asyncio.shield(asyncio.to_thread(self.store.transact, command))
            raise
        else:
            command = Record(**_attempt(call), ok=True, result=result)
        left[0] -= 1
        if isinstance(command, Record) and (left[0] or not self._others_open(slot)):
            command = replace(command, hold=True)
        (slot.call,) = await asyncio.to_thread(self.store.transact, command)
        if slot.call is not None and not slot.open:
            self.emit(ToolEnded(call.id, tool.name, messages.content_of(slot.call)))

    def _others_open(self, mine: Slot) -> bool:
        return any(slot.open for slot in self.slots if slot is not mine)

    async def _effect(
        self, call: Call, tool: Tool, owner: str, requester: str, said: Sequence[Any]
    ) -> str:
        """Run the tool on the stored bytes and nothing else; its result as JSON text."""
        args, kwargs = tool.signature.load(call.args.encode())
        context = context_of(call, self.gate, owner, requester, said, self.deps)
        if tool.takes_context:
            args = (context, *args)
        assert tool.function is not None
        value = await _called(tool.function, args, kwargs)
        return tool.signature.dump_result(value)


def _slots(
    calls: Sequence[ModelCall], hosted: Sequence[HostedApproval], tools: Mapping[str, Tool]
) -> list[Slot]:
    slots = [Slot(index, call, tools.get(call.name)) for index, call in enumerate(calls)]
    for index, approval in enumerate(hosted, len(slots)):
        model = ModelCall(approval.id, approval.name, approval.arguments)
        slots.append(Slot(index, model, hosted=approval.server))
    return slots


def _attempt(call: Call) -> dict[str, Any]:
    return {
        "thread": call.thread,
        "run": call.run,
        "call": call.id,
        "token": call.token,
        "attempt": call.attempt,
    }


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _plain(value: Any) -> Json:
    return codec.loads(codec.canonical(value))


async def _called(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> Any:
    """Call a tool: an async one here, a sync one in a thread, so that it blocks nobody."""
    if inspect.iscoroutinefunction(function):
        return await function(*args, **kwargs)
    context = contextvars.copy_context()
    call = partial(context.run, partial(function, *args, **kwargs))
    value = await asyncio.get_running_loop().run_in_executor(None, call)
    return await value if inspect.isawaitable(value) else value
