"""What an agent does, in Python's own logging, with the ids of run and request.

``Agent(…, listeners=[log_events()])`` writes to the logger ``sayso.agent.events``. Each record has
``sayso_run``, ``sayso_thread``, ``sayso_agent`` and ``sayso_request``, for formatters and
filters. Arguments, results and words are left out, because logs are read by others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from sayso import text
from sayso.agent.events import (
    AgentEvent,
    Answered,
    Began,
    Broke,
    Ended,
    ModelAsked,
    ModelReplied,
    Requested,
    ToolCalled,
    ToolClosed,
    ToolEnded,
    ToolPaused,
    ToolStarted,
)


def log_events(
    logger: logging.Logger | None = None, level: int = logging.INFO
) -> Callable[[AgentEvent], None]:
    """A listener that logs one line for each event, pieces of text excepted."""
    target = logger or logging.getLogger("sayso.agent.events")

    def listen(event: AgentEvent) -> None:
        words, request = _words(event)
        if words:
            extra = {
                "sayso_run": event.run,
                "sayso_thread": event.thread,
                "sayso_agent": event.agent,
                "sayso_request": request,
            }
            failed = isinstance(event, Broke)
            of = f" {request}" if request else ""
            target.log(
                logging.ERROR if failed else level, "%s%s: %s", event.run, of, words, extra=extra
            )

    return listen


def _words(event: AgentEvent) -> tuple[str, str]:
    """What is said of an event, and the request that it is about; the names are made inert."""
    match event:
        case Began(resumed=resumed):
            return ("resumed" if resumed else "began"), ""
        case ModelAsked(model=model, turn=turn):
            return f"asks {text.inline(model)}, turn {turn}", ""
        case ModelReplied(finish=finish, turn=turn):
            return f"got a reply, turn {turn} ({finish})", ""
        case ToolCalled(id=id, tool=tool):
            return f"wants {text.inline(tool)}", id
        case Requested(request=request):
            return f"{text.inline(request.tool or request.kind)} needs a person", request.id
        case Answered(request=request):
            by = request.decision.by if request.decision is not None else ""
            return f"{request.status} by {text.inline(by)}", request.id
        case _:
            return _words_of_ends(event)


def _words_of_ends(event: AgentEvent) -> tuple[str, str]:
    match event:
        case ToolStarted(id=id, tool=tool, attempt=attempt):
            return f"{text.inline(tool)} starts, attempt {attempt}", id
        case ToolEnded(id=id, tool=tool, status=status):
            return f"{text.inline(tool)} is {status}", id
        case ToolPaused(id=id, tool=tool, status=status):
            return f"{text.inline(tool)} is {status}", id
        case ToolClosed(id=id, tool=tool, status=status):
            return f"{text.inline(tool)} does not run: {status}", id
        case Ended(result=result):
            return f"is {result.status}", ""
        case Broke(error=error):
            return f"stopped: {text.inline(error)}", ""
        case _:
            return "", ""
