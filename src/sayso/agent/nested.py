"""An agent as a tool of another: its pauses surface there, and resume in here.

The inner run is kept on a thread under the outer call. Starting the call again only goes on with
that run, so the call is idempotent, and a process that dies in the middle of it leaves the outer
call ready and not in doubt. What the inner agent had started itself is in doubt as always.
"""

from __future__ import annotations

import contextvars
import re
from typing import Any, Unpack

from sayso.agent.context import Context
from sayso.agent.events import Result
from sayso.agent.job import RUN
from sayso.agent.tool import NestedAgent, Tool, ToolOptions, tool
from sayso.errors import Conflict, InvalidCall, NotFound, Paused, SaysoError
from sayso.rows import LIVE, Run
from sayso.stores.base import Store
from sayso.stores.nested_runs import call_off, inner_thread, wake_outer
from sayso.twin import hop, look

#: The calls of outer agents that run here, and will hear of the end of their runs by themselves.
_asking: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar(
    "sayso_asking", default=()
)


_MOST_RUNS = 500


class InnerFailed(SaysoError):
    """The agent behind a tool came to no answer."""


class InnerBroke(BaseException):
    """Something raised inside an inner agent: its run stands where it stood, and so does the call.

    Not an ``Exception``, because the call has not failed: it goes on when the run is resumed.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def agent_tool(inner: NestedAgent, **options: Unpack[ToolOptions]) -> Tool:
    """The tool that asks this agent."""

    async def ask_agent(ctx: Context, input: str) -> Any:
        if not input.strip():
            raise InvalidCall("say something: the input is empty", "input")
        return _answer(inner, await _asked(inner.within(ctx._gate), ctx, input))

    named: ToolOptions = {
        "name": re.sub(r"[^A-Za-z0-9_-]+", "_", inner.name)[:64],
        "description": f"Ask {inner.name}. {inner.instructions}".strip()[:1000],
        **options,
        "effect": "idempotent",
    }
    return tool(**named)(ask_agent).with_inner(inner)


async def _asked(inner: NestedAgent, ctx: Context, input: str) -> Result:
    """Begin the inner run, or go on with it."""
    thread = inner_thread(ctx.thread, ctx.call_id)
    known = await look(inner.store, _begun, inner.store, thread, ctx.call_id)
    token = _asking.set((*_asking.get(), ctx.call_id))
    try:
        if known is not None:
            return await inner.resume(known.id, deps=ctx.deps)
        return await inner.run_inside(
            input, thread, ctx.call_id, requester=ctx.requester, deps=ctx.deps
        )
    except Exception as error:
        raise InnerBroke(error) from error
    finally:
        _asking.reset(token)


def _begun(store: Store, thread: str, call: str) -> Run | None:
    """The run that this call has begun, whoever else spoke on a thread of that name."""
    last = store.last_run(thread)
    if last is None or last.parent_call == call:
        return last
    for _, run in store.runs(thread=thread, limit=_MOST_RUNS):
        if run.parent_call == call:
            return run
    raise InnerFailed(f"thread {thread!r} is in use by run {last.id}, which is no part of {call}")


def _answer(inner: NestedAgent, result: Result) -> Any:
    if result.status == "paused":
        raise Paused(result.run, result.interruptions)
    if result.status != "done":
        raise InnerFailed(f"{inner.name}: {result.error}")
    return result.output


async def tell_outer(store: Store, call_id: str) -> None:
    """The inner run is over: unless its outer call runs here, whoever finds that run goes on.

    Also where it seems to be at work: it may have seen the inner run before it ended.
    """
    if call_id not in _asking.get():
        await hop(wake_outer, store, call_id)


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
    ways = store.run, store.last_run
    first, second = ways if name.startswith(RUN) else reversed(ways)  # nearly always one read
    run = first(name) or second(name)
    if run is None:
        raise NotFound(f"no run and no thread {name!r} in {store.url}")
    return root_of(store, run, agent)
