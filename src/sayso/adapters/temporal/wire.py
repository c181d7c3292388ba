"""What workflow and activities send each other. It is plain JSON, because it stays in histories."""

from __future__ import annotations

from typing import Any, TypedDict

from sayso import errors
from sayso.errors import SaysoError

ASK, CONFIRM, SETTLE, CALL_OFF = "sayso.ask", "sayso.confirm", "sayso.settle", "sayso.call_off"
#: The signal to check again. Its only argument is the name of a run.
NEWS = "sayso.news"
_PREFIX = "temporal:"


class ActivityInput(TypedDict, total=False):
    """What a workflow asks for; ``run`` is the name that finds it again."""

    run: str
    requester: str
    content: dict[str, Any]
    options: dict[str, Any]
    reason: str


class ActivityOutput(TypedDict, total=False):
    """A value, an error, or nothing yet."""

    value: Any
    error: str
    message: str
    #: Seconds until a request expires.
    ends_in: float | None


def activity_of(tool: str) -> str:
    """Return the name of the activity that runs a tool."""
    return f"sayso/{tool}"


def run_name(workflow_id: str, execution: str, number: int) -> str:
    """Return the name of the run for the n-th request of one execution of a workflow."""
    return f"{_PREFIX}{workflow_id}:{execution[-12:]}:{number}"


def workflow_of(run: str) -> str | None:
    """Return the workflow that a run belongs to; None if it belongs to none."""
    if not run.startswith(_PREFIX) or run.count(":") < 3:
        return None
    return run.removeprefix(_PREFIX).rsplit(":", 2)[0]


def raised(answer: ActivityOutput) -> SaysoError:
    """Return the error that an output stands for."""
    kind = getattr(errors, answer["error"], SaysoError)
    message = answer.get("message", "")
    error: SaysoError = kind(message)
    return error
