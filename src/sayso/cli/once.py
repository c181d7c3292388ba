"""One message to an agent and what came of it, for scripts: nobody is asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from pydantic_core import to_jsonable_python

from sayso.agent import Agent, Ended, Result, streaming
from sayso.agent.events import AgentEvent
from sayso.cli import views
from sayso.cli.agents import take_over
from sayso.cli.exits import Exit, Usage
from sayso.cli.marks import Marks, show_command
from sayso.cli.opening import Caller
from sayso.threads import leave_soon

_EXITS = {"done": Exit.OK, "paused": Exit.NO_REVIEWER}


def once(
    agent: Agent,
    thread: str,
    who: Caller,
    words: str,
    again: Sequence[str],
    *,
    json: bool,
    plain: bool,
) -> Exit:
    """Say the words; without any, go on with what others decided meanwhile."""
    take_over(agent)
    marks = None if json else Marks(agent, plain=plain)
    result = asyncio.run(_followed(_events(agent, thread, who, words), marks))
    if json:
        views.print_json(_result_json(result))
    elif marks is not None and result.status == "paused":
        marks.waiting(result.interruptions)
        decide = ["sayso", "inbox", "--decide", "--store", agent.store.url]
        show_command("To decide:", decide)
        show_command("To go on: ", again)
    return _EXITS.get(result.status, Exit.PROBLEM)


def _events(agent: Agent, thread: str, who: Caller, words: str) -> AsyncIterator[AgentEvent]:
    if words.strip():
        return agent.stream(words.strip(), thread=thread, requester=who.name)
    run = agent.store.live_run(thread)
    if run is None:
        raise Usage("there is nothing to say: give --message TEXT, or a text on stdin")
    return agent.stream_resume(run.id)


async def _followed(events: AsyncIterator[AgentEvent], marks: Marks | None) -> Result:
    result: Result | None = None
    try:
        async for event in events:
            if marks is not None:
                marks(event)
            if isinstance(event, Ended):
                result = event.result
    except asyncio.CancelledError:
        streaming.cut_short()  # what had begun is in doubt, and is not waited for
        await streaming.drained()
        leave_soon(Exit.PENDING)
        raise
    assert result is not None
    return result


def _result_json(result: Result) -> dict[str, Any]:
    return {
        "status": result.status,
        "thread": result.thread,
        "run": result.run,
        "output": to_jsonable_python(result.output),
        "error": result.error,
        "refusal": result.refusal,
        "interruptions": [views.shown_json(request) for request in result.interruptions],
    }
