"""The SDK's ``RunState``, kept with the run while it waits.

It is a short cut and no more: the log alone is enough to come to the same place. So a state
that this SDK cannot read any more, or whose tool is gone, is left aside; one that somebody changed
is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from agents import (
    Agent,
    AgentsException,
    RunContextWrapper,
    RunResult,
    RunResultStreaming,
    RunState,
    ToolApprovalItem,
)

from sayso import codec
from sayso.adapters.openai_agents import hosted
from sayso.adapters.openai_agents.drive import Drive
from sayso.adapters.openai_agents.messages import ItemLog
from sayso.adapters.openai_agents.model import check_guarded
from sayso.twin import look


async def keep(drive: Drive, log: ItemLog, result: RunResult | RunResultStreaming) -> None:
    """Store a state that waits, signed. What an inner agent asks is found by the log alone."""
    if any(drive.key_of(item) != item.call_id for item in result.interruptions):
        return
    try:
        raw = result.to_state().to_json(context_serializer=lambda _: {})
    except AgentsException:
        return
    # In ASCII, because a model may write half a surrogate pair.
    await log.append(snapshot=json.dumps({"state": raw, "given": log.given, "turn": log.turn}))


async def restored(
    drive: Drive, log: ItemLog, agent: Agent[Any], context: Any
) -> RunState[Any, Any] | None:
    """The state that was kept, with what was decided since; nothing if there is none to use."""
    run = await look(log.store, log.store.run, log.run)
    if run is None or not run.snapshot:
        return None
    kept = codec.loads(run.snapshot)
    if kept.get("turn") != log.turn:
        return None  # of an earlier turn
    # The wrapper is ours, so that a decision costs the same however many others there are.
    wrapper: RunContextWrapper[Any] = RunContextWrapper(context=context)
    try:
        state = await RunState.from_json(agent, kept["state"], context_override=wrapper)
        items = state.get_interruptions()
        if not await _all_there(items, wrapper):
            return None
    except AgentsException:
        return None
    ready = await look(log.store, settled, drive, items)
    await pass_on(drive, ready, wrapper.approve_tool, wrapper.reject_tool)
    log.given = dict(kept["given"])
    return state


async def _all_there(items: Sequence[ToolApprovalItem], wrapper: RunContextWrapper[Any]) -> bool:
    for agent in {id(item.agent): item.agent for item in items}.values():
        names = {tool.name for tool in await agent.get_all_tools(wrapper)}
        if any(
            item.agent is agent and item.tool_name not in names and not _is_hosted(item)
            for item in items
        ):
            return False
    return True


def settled(drive: Drive, items: Sequence[ToolApprovalItem]) -> list[ToolApprovalItem]:
    """Those of the interruptions that wait for nobody any more."""
    return [item for item in items if not drive.waits(drive.key_of(item))]


async def pass_on(
    drive: Drive,
    items: Sequence[ToolApprovalItem],
    approve: Callable[[ToolApprovalItem], None],
    reject: Callable[..., None],
) -> None:
    """Let the SDK go on with these calls.

    To the SDK each of them is approved: what became of a call of ours is said when it is invoked.
    Only for what the provider runs does its own yes or no count.
    """
    for item in items:
        check_guarded(item.agent)
        if not _is_hosted(item):
            approve(item)
            continue
        outcome = await hosted.outcome(drive, drive.key_of(item), item.raw_item)
        if outcome.ok:
            approve(item)
        else:
            reject(item, rejection_message=outcome.text)


def _is_hosted(item: ToolApprovalItem) -> bool:
    return getattr(item.raw_item, "type", None) == "mcp_approval_request"
