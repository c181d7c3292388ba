"""Play the demo without a person, where there is no terminal.

An agent makes two requests and is killed while it waits. A scripted person decides, and another
process resumes the run. ``python -m sayso.demo.tour STORE begin|resume`` is such a process.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime
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

Say = Callable[[str], None]


def _say(line: str) -> None:
    print(line, flush=True)


def play(store: str, say: Say = _say) -> int:
    """Play the tour on this store. Return 0 if exactly what was approved ran, once."""
    effects = sayso.demo.Effects.beside(store)
    before = len(effects.all())
    say("There is no terminal here, so a scripted person decides. No API key, no model.")
    say("")
    _begin_and_die(store, say)
    say(f"   What really ran so far: {_listed(effects.all()[before:]) or 'nothing'}")
    say("")
    inbox = sayso.Inbox(store)
    try:
        _decide(inbox, say)
    finally:
        inbox.close()
    for line in _resumed(store):
        say(line)
    ran = effects.all()[before:]
    say("")
    say("What really ran:")
    for row in ran:
        at = datetime.fromisoformat(row["at"]).astimezone()
        say(f"   {at:%H:%M:%S}  {_listed([row])}")
    say("")
    say("To decide yourself, run `sayso demo` in a terminal.")
    return 0 if [row["tool"] for row in ran] == ["getWeatherInformation"] else 1


def _begin_and_die(store: str, say: Say) -> None:
    """Start a process, and kill it while it waits for a decision."""
    with _process(store, "begin") as process:
        try:
            say(f"1. Process {process.pid} runs the agent.")
            for line in _printed(process):
                if line == _PAUSED:
                    break
                say(line)
        finally:
            process.kill()
    say(f"2. Process {process.pid} is killed while it waits (SIGKILL). Its requests are stored.")


def _decide(inbox: sayso.Inbox, say: Say) -> None:
    say("3. A scripted person approves one request and rejects the other.")
    for request in inbox.pending_sync(thread=THREAD):
        decision: sayso.Decision = request.approve()
        if request.tool == "deleteFile":
            decision = request.reject(REASON)
        why = f": {REASON}" if request.tool == "deleteFile" else ""
        say(f"   {request.tool} {json.dumps(dict(request.args))}")
        say(f"   -> {decision.type} by the {PERSON}{why}")
        inbox.decide_sync(request, decision, by=PERSON)
    say("")


def _resumed(store: str) -> Iterator[str]:
    with _process(store, "resume") as process:
        yield f"4. Process {process.pid} resumes the same run."
        yield from _printed(process)


def _process(store: str, part: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "sayso.demo.tour", store, part],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )


def _printed(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stdout is not None
    for line in process.stdout:
        yield line.rstrip("\n")


def _listed(rows: list[dict[str, Any]]) -> str:
    return ", ".join(f"{row['tool']} {json.dumps(row['args'])}" for row in rows)


# -- the other processes


async def _play_part(store: str, part: str) -> None:
    agent = sayso.demo.agent(store)
    if part == "begin":
        print(f"   user:  {WORDS}", flush=True)
        await _show(agent.stream(WORDS, thread=THREAD))
        print(_PAUSED, flush=True)
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
            print(f"   agent: {words}", flush=True)
            words = ""
        _show_one(event)


def _show_one(event: Any) -> None:
    if isinstance(event, Requested):
        print(f"   ... {event.request.tool} needs a decision", flush=True)
    elif isinstance(event, ToolStarted):
        print(f"   >>> {event.tool} runs", flush=True)
    elif isinstance(event, ToolEnded):
        print(f"   <<< {event.tool}: {event.content}", flush=True)
    elif isinstance(event, Ended) and event.result.status != "paused":
        print(f"   the run is {event.result.status}", flush=True)


if __name__ == "__main__":
    asyncio.run(_play_part(sys.argv[1], sys.argv[2]))
