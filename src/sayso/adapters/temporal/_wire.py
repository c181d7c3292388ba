"""What workflow and activities say to each other: plain JSON, since it stays in histories."""

from __future__ import annotations

from typing import Any, TypedDict

from sayso import errors
from sayso.errors import SaysoError

ASK, CONFIRM, SETTLE, CALL_OFF = "sayso.ask", "sayso.confirm", "sayso.settle", "sayso.call_off"
#: The signal that says: look again. Its one argument is the name of a run.
NEWS = "sayso.news"
_PREFIX = "temporal:"


class Wanted(TypedDict, total=False):
    """What a workflow asks for; ``run`` is the name that finds it again."""

    run: str
    requester: str
    content: dict[str, Any]
    options: dict[str, Any]
    reason: str


class Answer(TypedDict, total=False):
    """Where it stands: a value, an error, or nothing yet."""

    value: Any
    error: str
    message: str
    #: Seconds until something of it ends by the clock.
    ends_in: float | None


def activity_of(tool: str) -> str:
    """The activity that runs a tool."""
    return f"sayso/{tool}"


def run_name(workflow_id: str, execution: str, number: int) -> str:
    """The run in the store of the n-th thing that one execution of a workflow asked for."""
    return f"{_PREFIX}{workflow_id}:{execution[-12:]}:{number}"


def workflow_of(run: str) -> str | None:
    """The workflow that a run belongs to; nothing if it belongs to none."""
    if not run.startswith(_PREFIX) or run.count(":") < 3:
        return None
    return run.removeprefix(_PREFIX).rsplit(":", 2)[0]


def raised(answer: Answer) -> SaysoError:
    """The error that an answer stands for."""
    kind = getattr(errors, answer["error"], SaysoError)
    message = answer.get("message", "")
    error: SaysoError = kind(message)
    return error
