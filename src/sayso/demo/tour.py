"""Play the demo without a person, where there is no terminal.

An agent makes two requests and is killed while it waits. A scripted person decides, and another
process resumes the run. ``python -m sayso.demo.tour STORE begin|resume`` is such a process.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import datetime
from functools import partial
from typing import Any

import sayso
import sayso.demo
from sayso.agent import Ended, Requested, Text, ToolEnded, ToolStarted

THREAD = "tour"
WORDS = "Do two things in Oslo"
PERSON = "scripted person"
REASON = "we still need that file"
_PAUSED = "paused"
_PATIENCE = 60.0

#: Prints a line at once: two processes write to one output.
_say = partial(print, flush=True)


def play(store: str) -> int:
    """Play the tour on this store. Return 0 if exactly what was approved ran, once."""
    effects = sayso.demo.Effects.beside(store)
    before = len(effects.all())
    _say("There is no terminal here, so a scripted person decides. No API key, no model.\n")
    pid = _run_part(store, "begin", "1. Process {} runs the agent.")
    _say(f"2. Process {pid} is killed while it waits (SIGKILL). Its requests are stored.")
    _say(f"   What really ran so far: {_listed(effects.all()[before:]) or 'nothing'}\n")
    with sayso.Inbox(store) as inbox:
        _decide(inbox)
    _run_part(store, "resume", "4. Process {} resumes the same run.")
    ran = effects.all()[before:]
    _say("\nWhat really ran:")
    for row in ran:
        at = datetime.fromisoformat(row["at"]).astimezone()
        _say(f"   {at:%H:%M:%S}  {_listed([row])}")
    _say("\nTo decide yourself, run `sayso demo` in a terminal.")
    return 0 if [row["tool"] for row in ran] == ["getWeatherInformation"] else 1


def _run_part(store: str, part: str, headline: str) -> int:
    """Run a part of the tour in a process, and kill it if it waits for a decision."""
    with subprocess.Popen(
        [sys.executable, "-m", "sayso.demo.tour", store, part],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        _say(headline.format(process.pid))
        try:
            for line in process.stdout:
                if line.rstrip("\n") == _PAUSED:
                    process.kill()
                    break
                _say(line.rstrip("\n"))
        except BaseException:
            process.kill()
            raise
    return process.pid


def _decide(inbox: sayso.Inbox) -> None:
    _say("3. A scripted person approves one request and rejects the other.")
    for request in inbox.pending_sync(thread=THREAD):
        decision: sayso.Decision = request.approve()
        if request.tool == "deleteFile":
            decision = request.reject(REASON)
        why = f": {REASON}" if request.tool == "deleteFile" else ""
        _say(f"   {request.tool} {json.dumps(dict(request.args))}")
        _say(f"   -> {decision.type} by the {PERSON}{why}")
        inbox.decide_sync(request, decision, by=PERSON)
    _say("")


def _listed(rows: list[dict[str, Any]]) -> str:
    return ", ".join(f"{row['tool']} {json.dumps(row['args'])}" for row in rows)


# -- the other processes


async def _play_part(store: str, part: str) -> None:
    agent = sayso.demo.agent(store)
    if part == "begin":
        _say(f"   user:  {WORDS}")
        await _show(agent.stream(WORDS, thread=THREAD))
        _say(_PAUSED)
        await asyncio.sleep(_PATIENCE)  # it could wait forever; it is killed here
    else:
        await _show(agent.stream_resume(THREAD))


async def _show(events: AsyncIterator[Any]) -> None:
    words = ""
    async for event in events:
        if isinstance(event, Text):
            words += event.text
            continue
        if words:
            _say(f"   agent: {words}")
            words = ""
        if isinstance(event, Requested):
            _say(f"   ... {event.request.tool} needs a decision")
        elif isinstance(event, ToolStarted):
            _say(f"   >>> {event.tool} runs")
        elif isinstance(event, ToolEnded):
            _say(f"   <<< {event.tool}: {event.content}")
        elif isinstance(event, Ended) and event.result.status != "paused":
            _say(f"   the run is {event.result.status}")


if __name__ == "__main__":
    asyncio.run(_play_part(sys.argv[1], sys.argv[2]))
