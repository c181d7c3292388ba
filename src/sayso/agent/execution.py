"""Running the calls of a turn, side by side: after the start only a record, a pause or a doubt."""

from __future__ import annotations

import asyncio
from typing import Any

from sayso.agent.context import context_of, scope_of
from sayso.agent.conversation import Conversation
from sayso.agent.events import Requested, ToolEnded, ToolPaused, ToolStarted
from sayso.agent.hold import Hold
from sayso.agent.job import Job
from sayso.agent.nested import InnerBroke
from sayso.agent.offloop import called
from sayso.agent.turn import Slot, Turn
from sayso.engine.commands import Doubt, Look, Record, Suspend
from sayso.errors import InvalidCall, Paused, SaysoError, told
from sayso.gate.inside import working
from sayso.rows import Call, Run
from sayso.twin import write_whole


class ResultError(SaysoError):
    """The call ran, and what it gave cannot be stored."""


class Execution:
    """One round of running what this process has just started."""

    def __init__(self, turn: Turn, hold: Hold, talk: Conversation) -> None:
        self.turn = turn
        self.job: Job = turn.job
        self.hold = hold
        self.talk = talk
        self.slots = [slot for slot in turn.slots if slot.ours]
        self._left = len(self.slots)
        #: What raised inside inner agents, whose calls are put back.
        self._broke: list[BaseException] = []
        self._after: Run | None = None
        #: Whether the turn waits for people, whatever comes of the calls that run now.
        self._waits = any(slot.open and not slot.ours for slot in turn.slots)

    async def run(self) -> Run | None:
        """Run them all to their ends; a pause or a failure of one does not disturb another.

        Gives the run as it stands then, if there is nothing else that could have moved.
        """
        if len(self.slots) == 1:
            await self._run(self.slots[0])
        else:
            outcomes = await asyncio.gather(*map(self._run, self.slots), return_exceptions=True)
            self._broke += [o for o in outcomes if isinstance(o, BaseException)]
        for error in self._broke:
            raise error
        alone = len(self.slots) == 1 and self.turn.settled
        return self._after if alone else None

    async def _run(self, slot: Slot) -> None:
        call = slot.call
        assert call is not None
        slot.ours = False
        if self.hold.lapsed:
            # The start took longer than the lease: somebody else may hold the run by now.
            await self._write(slot, _doubt(call, "the lease had lapsed before the effect"))
            return
        self.job.tell(ToolStarted(call.id, call.tool, call.attempt))
        try:
            command = await self._outcome(slot, call)
        except GeneratorExit:
            raise  # nothing can be awaited any more; the lease will lapse into a doubt
        except BaseException as error:
            self.job.tell(ToolPaused(call.id, call.tool, "in_doubt"))
            await self._write(slot, _doubt(call, f"interrupted by {type(error).__name__}"))
            raise
        await self._write(slot, command)
        self._tell(slot)

    def _tell(self, slot: Slot) -> None:
        call = slot.call
        assert call is not None
        if slot.open:
            self.job.tell(ToolPaused(call.id, call.tool, "suspended"))
        else:
            slot.told_ended = True
            self.job.tell(ToolEnded(call.id, call.tool, slot.content, str(call.status)))

    async def _outcome(self, slot: Slot, call: Call) -> Record | Suspend:
        try:
            value = await self._effect(slot, call)
            result = _dumped(slot, value)
        except Paused as paused:
            self._waits = True
            slot.inner = tuple(r for r in paused.requests if r.run != call.run)
            for request in paused.requests:
                self.job.tell(Requested(request))
            slot.rests = not paused.requests
            return Suspend(**_attempt(call), elsewhere=bool(slot.inner) or slot.rests)
        except InnerBroke as broke:
            self._waits = True
            self._broke.append(broke.error)
            return Suspend(**_attempt(call), elsewhere=True)
        except Exception as error:
            ended = False, told(error)
        else:
            ended = True, result
        finally:
            self._left -= 1
        # Keep the lease while others run, and for the next reply if nobody else is waited for.
        hold = bool(self._left) or not self._waits
        return Record(**_attempt(call), ok=ended[0], result=ended[1], hold=hold)

    async def _effect(self, slot: Slot, call: Call) -> Any:
        """Run the tool on the stored bytes and nothing else."""
        tool = slot.tool
        if tool is None:
            return True  # the provider runs it, and has been given its yes
        args, kwargs = tool.signature.load(call.args.encode())
        scope = scope_of(call, self.job)
        if tool.takes_context:
            args = (context_of(call, self.job, self.talk.visible, scope), *args)
        assert tool.function is not None
        # What it asks by a gate is found again when the call starts again.
        with scope.inside(), working(self.job.store.incarnation, call.run, call.id):
            return await called(tool.function, args, kwargs)

    async def _write(self, slot: Slot, command: Record | Suspend | Doubt) -> None:
        """Commit what came of it, also while being cancelled."""
        look = Look(thread=command.thread, run=command.run)
        written, self._after = await write_whole(self.job.store, command, look)
        if isinstance(written, Call):
            slot.call = written


def _dumped(slot: Slot, value: Any) -> str:
    """The result as JSON text; a result that has none does not mean that nothing ran."""
    if slot.tool is None:
        return "true"
    try:
        return slot.tool.signature.dump_result(value)
    except InvalidCall as error:
        raise ResultError(f"it ran, but {error}") from None


def _attempt(call: Call) -> dict[str, Any]:
    return {
        "thread": call.thread,
        "run": call.run,
        "call": call.id,
        "token": call.token,
        "attempt": call.attempt,
    }


def _doubt(call: Call, reason: str) -> Doubt:
    return Doubt(**_attempt(call), reason=reason)
