"""One step of the story in one process: open, build, run or resume once, close."""

from __future__ import annotations

import asyncio
import importlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sayso.errors import Paused, SaysoError
from sayso.gate import Gate
from sayso.stores.sqlite import SqliteStore
from sayso.testing.story.props import POLICIES, SCRIPTS, Life, tools
from sayso.testing.story.stage import Cast, Script, Stage

THREAD = "thread-1"
STORE = "sayso.db"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a process is to do; plain values, so that it can be sent to one."""

    stage: str
    folder: str
    #: ``run``, ``resume``, ``both`` (resume twice at once) or ``answer``.
    do: str
    script: str = "pay"
    policy: str = "plain"
    tools: str = "plain"
    #: Where to die, and how many seconds later than now it is.
    kill: str = ""
    later: float = 0.0
    #: Do not end, and wait to be killed.
    linger: bool = False
    #: What to begin together with others: a file that all of them wait for.
    together: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Came:
    """What came of a step: how the run stands, or what was raised."""

    status: str
    output: Any = None
    waiting: tuple[str, ...] = ()
    error: str = ""


def play(step: Step, value: Any = None) -> Came:
    """Take the step in this process."""
    folder = Path(step.folder)
    if step.together:
        _until(folder / step.together)
    came = asyncio.run(_play(step, folder, value))
    if step.linger:
        (folder / "lingers").touch()
        time.sleep(3600)
    return came


async def _play(step: Step, folder: Path, value: Any) -> Came:
    kind = stage_class(step.stage)
    life = Life(folder, step.kill)
    store = SqliteStore(
        folder / STORE,
        boundary=life.commit,
        clock=lambda: time.time_ns() // 1000 + round(step.later * 1e6),
    )
    gate = Gate(store, policy=POLICIES[step.policy], agent="teller", wait=0)
    own = folder / "framework"
    own.mkdir(exist_ok=True)
    cast = Cast(
        gate=gate,
        tools=tools(step.tools, kind.colour, gate, life),
        script=Script(SCRIPTS[step.script], folder / "model"),
        folder=own,
    )
    stage = kind(cast)
    try:
        await stage.open()
        return await _acted(step, stage, value)
    finally:
        await stage.close()
        gate.close()


async def _acted(step: Step, stage: Stage, value: Any) -> Came:
    agent = stage.agent()
    try:
        if step.do == "run":
            stood = await agent.run("go", thread=THREAD, requester="rita")
        elif step.do == "resume":
            stood = await agent.resume(THREAD)
        elif step.do == "both":
            stood, other = await asyncio.gather(agent.resume(THREAD), agent.resume(THREAD))
            assert (stood.status, stood.output) == (other.status, other.output)
        else:
            stood = await stage.answer(agent, THREAD, value)
    except (Exception, Paused) as error:
        if step.do != "answer" and not isinstance(error, SaysoError):
            raise  # only our own errors are part of the story; a bad answer may meet any
        return Came(status="raised", error=f"{type(error).__name__}: {error}")
    waiting = tuple(request.id for request in stood.interruptions)
    return Came(status=str(stood.status), output=stood.output, waiting=waiting)


def stage_class(name: str) -> type[Stage]:
    """The stage by its name: ``module:Class``."""
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    kind: type[Stage] = found
    return kind


def _until(path: Path, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, f"{path.name} did not come"
        time.sleep(0.001)
