"""Where a run stands, as its caller sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sayso import codec
from sayso.agent.events import Result
from sayso.agent.job import Job
from sayso.agent.state import RunState
from sayso.rows import Run, RunStatus
from sayso.types import Request

_REFUSED = "the model refused: "


def refused(text: str) -> str:
    """What is stored of a run in which the model would not do what it was asked."""
    return _REFUSED + text


def paused(job: Job, waiting: tuple[Request, ...], usage: Mapping[str, int]) -> Result:
    """A run that only people can take further."""
    return Result(
        status="paused",
        run=job.run,
        thread=job.thread,
        interruptions=waiting,
        usage=dict(usage),
        state=_state(job, waiting),
    )


def stored(job: Job, run: Run, usage: Mapping[str, int]) -> Result:
    """A run that has ended, here or elsewhere, now or long ago."""
    output, error = _ended(job, run)
    return Result(
        status=str(run.status),
        run=run.id,
        thread=run.thread,
        output=output,
        error=error,
        refusal=error.removeprefix(_REFUSED) if error.startswith(_REFUSED) else "",
        usage=dict(usage),
        state=_state(job, ()),
    )


def _ended(job: Job, run: Run) -> tuple[Any, str]:
    if run.status is RunStatus.FAILED:
        return None, run.output or "failed"
    if run.status is RunStatus.CANCELLED:
        return None, f"cancelled: {run.stop}" if run.stop else "cancelled"
    text, typed = run.output or "null", job.agent.output
    if typed is None:
        return codec.loads(text), ""
    try:
        return typed.load(text), ""
    except ValueError:
        return codec.loads(text), "the stored answer does not fit output_type: it was made before"


def _state(job: Job, waiting: tuple[Request, ...]) -> RunState:
    return RunState(
        run=job.run,
        thread=job.thread,
        agent=job.agent.name,
        store=job.store,
        incarnation=job.store.incarnation,
        interruptions=waiting,
    )
