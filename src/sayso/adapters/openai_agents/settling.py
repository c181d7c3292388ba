"""What the SDK answers in a tool's place: a decision on a ``RunState``, a guardrail that refuses.

The SDK tells nobody of either. A yes by hand shows when the tool is invoked although its call
waits; a no by hand when the run goes on, because the SDK then lists the tools for it; that of a
guardrail when the model is to be told of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agents import RunContextWrapper

from sayso.adapters.openai_agents.drive import Drive, open_drive
from sayso.engine.commands import Cancel
from sayso.gate.foreign import MOST_WAITING
from sayso.inbox import Inbox
from sayso.rows import Call, CallStatus
from sayso.stores.base import Query
from sayso.stores.row_checks import request_in
from sayso.twin import hop, look, write

CHANNEL = "openai-agents"

_OPEN = (CallStatus.ASKED, CallStatus.READY)


async def approved(drive: Drive, key: str) -> None:
    """The SDK invokes a tool: whoever drives it by hand has said yes, unless the inbox knows."""
    row = await look(drive.calls.store, drive.row, key)
    if row is not None:
        await _decide(drive, row, yes=True)


async def refused(context: RunContextWrapper[Any]) -> None:
    """The SDK goes on: whoever drives it by hand has perhaps said no to some calls."""
    drive = open_drive()
    if drive is None or not drive.by_hand:
        return
    store = drive.calls.store
    query = Query(status="pending", run=drive.calls.run, limit=MOST_WAITING)
    for _, row in await look(store, store.page, query):
        id = row.key.removeprefix(drive.path)
        names = (row.tool, row.tool.partition(".")[2])  # a hosted one is known there by the second
        for name in names if id else ():
            if name and context.is_tool_approved(name, id) is False:
                why = context.get_rejection_message(name, id) or ""
                with drive.watched():
                    await _decide(drive, row, yes=False, why=why)
                break


async def settle(drive: Drive, conversation: Any) -> None:
    """Close the calls that have an answer in the conversation, and none from us."""
    run = await look(drive.calls.store, drive.calls.store.run, drive.calls.run)
    if run is None or not (run.asked or run.ready):
        return  # as nearly always
    for key, yes, why in _answers(conversation):
        row = await look(drive.calls.store, drive.row, drive.path + key)
        if row is None or row.status not in _OPEN:
            continue
        if drive.by_hand:
            await _decide(drive, row, yes=yes, why=why)
        else:
            await write(drive.calls.store, _called_off(row, why))


def _answers(conversation: Any) -> Iterable[tuple[str, bool, str]]:
    for item in conversation if isinstance(conversation, list) else ():
        kind = item.get("type") if isinstance(item, Mapping) else None
        if kind == "function_call_output":
            output = item.get("output")
            yield str(item.get("call_id")), False, output if isinstance(output, str) else ""
        elif kind == "mcp_approval_response":
            yes, why = item.get("approve") is True, str(item.get("reason") or "")
            yield str(item.get("approval_request_id")), yes, why


async def _decide(drive: Drive, row: Call, *, yes: bool, why: str = "") -> None:
    """Write down what was decided by hand, where somebody was asked and nobody has decided."""
    if row.status is not CallStatus.ASKED:
        return
    store = drive.calls.store
    request = await hop(request_in, store, row)
    decision = request.approve() if yes else request.reject(why)
    await Inbox(store).decide(row.id, decision, by=drive.by, channel=CHANNEL)


def _called_off(row: Call, why: str) -> Cancel:
    reason = f"the agent answered in its place: {why}"
    return Cancel(thread=row.thread, run=row.run, call=row.id, by="agent", reason=reason)
