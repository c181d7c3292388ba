"""OpenTelemetry spans for an agent, as a listener: ``Agent(…, listeners=[Tracing()])``.

Runs, model calls and tool calls are spans; requests and decisions are events on the run's span.
Only the API package is used, so your application configures where spans go. Arguments, results and
messages are not included.

The span of a run or tool is current while it runs, so spans of a database, an HTTP client or a
sub-agent become its children.
"""

from __future__ import annotations

from contextvars import Token
from typing import TypeAlias

from sayso.agent.events import (
    AgentEvent,
    Answered,
    Ended,
    Errored,
    ModelAsked,
    ModelReplied,
    Requested,
    Started,
    ToolEnded,
    ToolPaused,
    ToolStarted,
)

try:
    from opentelemetry import context, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Status, StatusCode, Tracer
except ImportError as error:
    raise ImportError('tracing needs OpenTelemetry: pip install "sayso[otel]"') from error

Facts: TypeAlias = dict[str, str | int | bool | tuple[str, ...]]

_RUN, _MODEL = "", "model"


class Tracing:
    """A listener that creates spans, with ``tracer`` or the application's default tracer."""

    def __init__(self, tracer: Tracer | None = None) -> None:
        self._tracer = tracer
        #: Open spans by run, then by request id, ``_RUN`` or ``_MODEL``.
        self._spans: dict[str, dict[str, tuple[Span, Token[Context]]]] = {}

    def __call__(self, event: AgentEvent) -> None:
        match event:
            case Started():
                facts: Facts = {
                    "gen_ai.operation.name": "invoke_agent",
                    "gen_ai.agent.name": event.agent,
                    "gen_ai.conversation.id": event.thread,
                    "sayso.resumed": event.resumed,
                }
                self._open(event, _RUN, f"invoke_agent {event.agent}", facts)
            case ModelAsked(model=model):
                facts = {"gen_ai.operation.name": "chat", "gen_ai.request.model": model}
                self._open(event, _MODEL, f"chat {model}", facts)
            case ModelReplied(usage=usage, finish=finish):
                counted: Facts = {f"gen_ai.usage.{name}": count for name, count in usage.items()}
                self._close(event, _MODEL, {**counted, "gen_ai.response.finish_reasons": (finish,)})
            case Ended(result=result):
                error = result.error if result.status == "failed" else ""
                self._close(event, _RUN, {"sayso.status": result.status}, error)
                self._spans.pop(event.run, None)
            case Errored(error=error):
                for key in reversed(list(self._spans.get(event.run, {}))):
                    self._close(event, key, {}, error)
                self._spans.pop(event.run, None)
            case _:
                self._tool_event(event)

    def _tool_event(self, event: AgentEvent) -> None:
        match event:
            case ToolStarted(id=id, tool=tool):
                facts: Facts = {
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": tool,
                    "gen_ai.tool.call.id": id,
                    "sayso.request": id,
                    "sayso.attempt": event.attempt,
                }
                self._open(event, id, f"execute_tool {tool}", facts)
            case ToolEnded(id=id, status=status) | ToolPaused(id=id, status=status):
                error = "the call failed" if status == "failed" else ""
                self._close(event, id, {"sayso.status": status}, error)
            case Requested(request=request):
                facts = {"sayso.request": request.id, "sayso.kind": request.kind}
                facts["gen_ai.tool.name"] = request.tool or ""
                self._note(event, "sayso.requested", facts)
            case Answered(request=request):
                facts = {"sayso.request": request.id, "sayso.status": request.status}
                if (decided := request.decision) is not None:
                    facts |= {"sayso.decision": decided.type, "sayso.channel": decided.channel}
                self._note(event, "sayso.answered", facts)

    def _open(self, event: AgentEvent, key: str, name: str, facts: Facts) -> None:
        tracer = self._tracer or trace.get_tracer("sayso")
        run = self._spans.setdefault(event.run, {}).get(_RUN)
        parent = None if run is None else trace.set_span_in_context(run[0])
        span = tracer.start_span(name, parent, attributes={"sayso.run": event.run, **facts})
        token = context.attach(trace.set_span_in_context(span))
        self._spans[event.run][key] = span, token

    def _close(self, event: AgentEvent, key: str, facts: Facts, error: str = "") -> None:
        span, token = self._spans.get(event.run, {}).pop(key, (None, None))
        if span is None or token is None:
            return
        span.set_attributes(facts)
        if error:
            span.set_status(Status(StatusCode.ERROR, error))
        context.detach(token)
        span.end()

    def _note(self, event: AgentEvent, name: str, facts: Facts) -> None:
        span, _ = self._spans.get(event.run, {}).get(_RUN, (None, None))
        if span is not None:
            span.add_event(name, facts)
