"""An agent as a tool of another: its pauses surface there, and resume in here.

The inner run is kept on a thread under the outer call. Starting the call again only goes on with
that run, so the call is idempotent, and a process that dies in the middle of it leaves the outer
call ready and not in doubt. What the inner agent had started itself is in doubt as always.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Unpack

from assent.agent.context import Context
from assent.agent.room import call_off, inner_thread
from assent.agent.tool import Tool, ToolOptions, tool
from assent.errors import AssentError, Conflict, NotFound, Paused
from assent.rows import LIVE, Run
from assent.twin import look

if TYPE_CHECKING:
    from assent.agent.agent import Agent
    from assent.stores.base import Store


class InnerFailed(AssentError):
    """The agent behind a tool came to no answer."""


def agent_tool(inner: Agent, **options: Unpack[ToolOptions]) -> Tool:
    """The tool that asks this agent."""

    async def ask_agent(ctx: Context, input: str) -> Any:
        return await _ask(inner, ctx, input)

    named: ToolOptions = {
        "name": re.sub(r"[^A-Za-z0-9_-]+", "_", inner.name)[:64],
        "description": f"Ask {inner.name}. {inner.instructions}".strip()[:1000],
        **options,
        "idempotent": True,
    }
    return tool(**named)(ask_agent).with_inner(inner)


async def _ask(inner: Agent, ctx: Context, input: str) -> Any:
    inner.lend_gate(ctx._gate)
    thread = inner_thread(ctx.thread, ctx.call_id)
    known = await look(inner.store, inner.store.last_run, thread)
    if known is None:
        result = await inner.run_inside(
            input, thread, ctx.call_id, requester=ctx.requester, deps=ctx.deps
        )
    else:
        result = await inner.resume(known.id, deps=ctx.deps)
    if result.status == "paused":
        raise Paused(result.run, result.interruptions)
    if result.status != "done":
        raise InnerFailed(f"{inner.name}: {result.error}")
    return result.output


def root_of(store: Store, run: Run, agent: str) -> Run:
    """The run of this agent that a run of an inner agent belongs to."""
    named = run
    while run.agent != agent:
        call = store.call(run.parent_call) if run.parent_call is not None else None
        outer = store.run(call.run) if call is not None else None
        if outer is None:
            raise Conflict(
                f"run {named.id} belongs to agent {named.agent!r}, not to {agent!r}: resume it "
                "with the agent that began it"
            )
        run = outer
    if run is not named and run.status not in LIVE and named.status in LIVE:
        call_off(store, named, "engine", f"run {run.id}, which it was part of, is over")
    return run


def find_run(store: Store, name: str, agent: str) -> Run:
    """The run that this name means to this agent: of that id, or the last of that thread."""
    run = store.run(name) or store.last_run(name)
    if run is None:
        raise NotFound(f"no run and no thread {name!r} in {store.url}")
    return root_of(store, run, agent)
