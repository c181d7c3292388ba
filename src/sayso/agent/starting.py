"""The last look before calls start: is each still what was approved, and does its tool exist?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sayso.agent.intake import plan_of, preview_of
from sayso.agent.job import Job
from sayso.agent.turn import Slot, Turn
from sayso.engine.commands import Complete, Reask
from sayso.gate import begun
from sayso.gate.recheck import called_off, recheck
from sayso.gate.verify import verify
from sayso.rows import Call
from sayso.twin import hop


async def cleared(turn: Turn) -> list[Call]:
    """The calls that may start as they are; the others are asked again or called off here."""
    ready = []
    for slot in turn.startable:
        assert slot.call is not None
        verify(turn.store, slot.call)
        taken_back = await _taken_back(turn, slot, slot.call)
        if taken_back is not None:
            slot.call = await hop(_carry_out, turn.job, taken_back, slot.call)
            continue
        if slot.hosted is not None:
            slot.call = await hop(_carry_out, turn.job, _said_yes(turn.job, slot.call), slot.call)
        else:
            ready.append(slot.call)
    return ready


async def put_back(turn: Turn, ready: Sequence[Call]) -> bool:
    """A call that has started is the very row that was verified, or it does not run."""
    verified = {call.id: call for call in ready}
    some = False
    for slot in turn.slots:
        if slot.ours and slot.call is not None:
            seen, call = verified[slot.call.id], slot.call
            same = seen._replace(status=call.status, attempt=call.attempt, token=call.token)
            if call != same:
                slot.ours, some = False, True
                slot.call = await hop(_carry_out, turn.job, begun.put_back(call), call)
    return some


async def show_again(turn: Turn) -> None:
    """Make the previews anew of what somebody edited and others have yet to decide."""
    for slot in turn.unshown:
        assert slot.call is not None
        assert slot.tool is not None
        call = slot.call
        shown = await preview_of(turn.job, slot.tool, call.args, call.rev)
        command = Reask(thread=call.thread, run=call.run, call=call.id, reason="", preview=shown)
        slot.call = await hop(_carry_out, turn.job, command, call)


def _carry_out(job: Job, command: Any, call: Call) -> Call:
    job.store.transact(command)
    return job.store.call(call.id) or call


async def _taken_back(turn: Turn, slot: Slot, call: Call) -> Any:
    """The command that takes the call back, or nothing if its approval still covers it."""
    if slot.hosted is not None:
        return None
    tool = slot.tool
    if tool is None or tool.function is None:
        return called_off(call, f"the tool {call.tool} is not there any more")
    outdated = await recheck(plan_of(turn.job, call.key, tool, call.args), call)
    if not isinstance(outdated, Reask):
        return outdated
    args = call.args if outdated.args is None else outdated.args
    return replace(outdated, preview=await preview_of(turn.job, tool, args, call.rev + 1))


def _said_yes(job: Job, call: Call) -> Complete:
    return Complete(
        thread=call.thread,
        run=call.run,
        call=call.id,
        result="true",
        owner=job.owner,
        lease=job.gate.lease_micros,
    )
