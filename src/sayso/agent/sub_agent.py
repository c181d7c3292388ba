"""An agent as a tool of another agent. Its pauses surface in the outer run.

The inner run lives on a thread derived from the outer call. Starting the call again continues that
run, so the call is idempotent: a process that dies in the middle leaves the outer call ready, not
in doubt. Calls that the inner agent itself had started are in doubt as usual.
"""

from __future__ import annotations

import contextvars
import re
from dataclasses import replace
from typing import Any, Unpack

from sayso.agent.tool import Context, SubAgent, Tool, ToolOptions, tool
from sayso.engine.refusals import scope_of
from sayso.errors import Conflict, InvalidCall, NotFound, Paused, SaysoError
from sayso.gate.run_result import RunResult
from sayso.rows import LIVE, Run
from sayso.stores.base import Store
from sayso.stores.nested_runs import (
    cancel_with_nested,
    inner_thread,
    outer_run,
    stop_around,
    wake_outer,
)
from sayso.sync import context_value, read, to_thread

#: Prefix of the ids of agent runs.
RUN = "run_"

#: Outer calls that run in this context and see the end of their inner run themselves.
_outer_calls: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar(
    "sayso_outer_calls", default=()
)

_MOST_RUNS = 500


class SubAgentFailed(SaysoError):
    """The sub-agent behind a tool did not produce an answer."""


class SubAgentError(BaseException):
    """An exception inside a sub-agent. Its run and the outer call can both be resumed.

    Not an ``Exception``, because the call has not failed: it continues when the run is resumed.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def agent_tool(agent: SubAgent, **options: Unpack[ToolOptions]) -> Tool:
    async def ask_agent(ctx: Context, input: str) -> Any:
        if not input.strip():
            raise InvalidCall("the input is empty: write what the agent should do", "input")
        result = await run_for_call(agent._on_store_of(ctx._gate), ctx, input)
        if result.status == "paused":
            raise Paused(result.run, result.interruptions)
        if result.status != "done":
            raise SubAgentFailed(f"{agent.name}: {result.error}")
        return result.output

    tool_options: ToolOptions = {
        "name": re.sub(r"[^A-Za-z0-9_-]+", "_", agent.name)[:64],
        "description": f"Ask {agent.name}. {agent.instructions}".strip()[:1000],
        **options,
        "effect": "idempotent",
    }
    return replace(tool(**tool_options)(ask_agent), inner=agent)


async def run_for_call(agent: SubAgent, ctx: Context, input: str) -> RunResult:
    """Start or resume the run that belongs to one call of the outer agent."""
    outer, thread = ctx._gate.store, inner_thread(ctx.thread, ctx.call_id)
    earlier = await read(agent.store, run_of_call, agent.store, thread, ctx.call_id)
    try:
        with context_value(_outer_calls, (*_outer_calls.get(), ctx.call_id)):
            if earlier is not None:
                result = await agent.resume(earlier.id, deps=ctx.deps)
            else:
                result = await agent._run_for_call(
                    input,
                    thread,
                    parent_call=ctx.call_id,
                    requester=ctx.requester,
                    deps=ctx.deps,
                    refusal_scope=await read(outer, _refusal_scope, outer, ctx.run),
                )
    except Exception as error:
        raise SubAgentError(error) from error
    if result.status == "cancelled":
        await to_thread(_stop_outer, agent.store, result.run, outer, ctx.run)
    return result


def _refusal_scope(store: Store, outer: str) -> str:
    """Return what refusals in the inner run last for: no longer, nor shorter, than outside."""
    run = store.run(outer)
    return "" if run is None else scope_of(run)


def _stop_outer(store: Store, run: str, outer_store: Store, outer: str) -> None:
    """Stop the outer run too if a person stopped the inner one with a rejection.

    The inbox does so after the decision, but it may have died, or the outer run may be faster.
    """
    for call in store.calls_of(run):
        stop_around(outer_store, call, outer)


def run_of_call(store: Store, thread: str, call: str) -> Run | None:
    """Return the run that this call started, even if others used a thread of that name."""
    last = store.last_run(thread)
    if last is None or last.parent_call == call:
        return last
    for _, run in store.runs(thread=thread, limit=_MOST_RUNS):
        if run.parent_call == call:
            return run
    raise SubAgentFailed(
        f"thread {thread!r} is in use by run {last.id}, which does not belong to {call}"
    )


async def wake_outer_run(store: Store, call_id: str) -> None:
    """Make the outer run due after its inner run ended, unless the outer call runs in here.

    Also done if another process seems to work on the outer run, because that process may have read
    the inner run before it ended.
    """
    if call_id not in _outer_calls.get():
        await to_thread(wake_outer, store, call_id)


def find_run(store: Store, name: str, agent: str) -> Run:
    """Return this agent's run with that id, or the last one on that thread.

    For a run of a sub-agent, return the outer run it belongs to. Raises ``NotFound``, or
    ``Conflict`` if the run belongs to another agent.
    """
    readers = store.run, store.last_run
    first, second = readers if name.startswith(RUN) else reversed(readers)  # usually one read
    named_run = first(name) or second(name)
    if named_run is None:
        raise NotFound(f"no run and no thread {name!r} in {store.url}")
    run = named_run
    while run.agent != agent:
        outer = outer_run(store, run)
        if outer is None:
            raise Conflict(
                f"run {named_run.id} belongs to agent {named_run.agent!r}, not to {agent!r}: "
                "resume it with the agent that began it"
            )
        run = outer
    if run is not named_run and run.status not in LIVE and named_run.status in LIVE:
        cancel_with_nested(store, named_run, "engine", f"the outer run {run.id} is over")
    return run
