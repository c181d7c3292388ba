"""OpenTelemetry spans for an agent, as a listener: ``Agent(…, listeners=[Tracing()])``.

Runs, model calls and tool calls are spans; requests and decisions are events on the run's span.
Only the API package is used, so your application configures where spans go. Arguments, results and
messages are not included.

The span of a run or tool is current while it runs, so spans of a database, an HTTP client or a
sub-agent become its children.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Token
from typing import Any, TypeAlias

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
        self._handlers: dict[type[AgentEvent], Callable[[Any], None]] = {
            Started: self._run_started,
            ModelAsked: self._model_asked,
            ModelReplied: self._model_replied,
            ToolStarted: self._tool_started,
            ToolEnded: self._tool_ended,
            ToolPaused: self._tool_paused,
            Requested: self._requested,
            Answered: self._answered,
            Ended: self._run_ended,
            Errored: self._run_errored,
        }

    def __call__(self, event: AgentEvent) -> None:
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)

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

    # -- runs

    def _run_started(self, event: Started) -> None:
        facts: Facts = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": event.agent,
            "gen_ai.conversation.id": event.thread,
            "sayso.resumed": event.resumed,
        }
        self._open(event, _RUN, f"invoke_agent {event.agent}", facts)

    def _run_ended(self, event: Ended) -> None:
        result = event.result
        error = result.error if result.status == "failed" else ""
        self._close(event, _RUN, {"sayso.status": result.status}, error)
        self._spans.pop(event.run, None)

    def _run_errored(self, event: Errored) -> None:
        for key in reversed(list(self._spans.get(event.run, {}))):
            self._close(event, key, {}, event.error)
        self._spans.pop(event.run, None)

    # -- the model

    def _model_asked(self, event: ModelAsked) -> None:
        facts: Facts = {"gen_ai.operation.name": "chat", "gen_ai.request.model": event.model}
        self._open(event, _MODEL, f"chat {event.model}", facts)

    def _model_replied(self, event: ModelReplied) -> None:
        counted = {f"gen_ai.usage.{name}": count for name, count in event.usage.items()}
        facts: Facts = {**counted, "gen_ai.response.finish_reasons": (event.finish,)}
        self._close(event, _MODEL, facts)

    # -- tools and people

    def _tool_started(self, event: ToolStarted) -> None:
        facts: Facts = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": event.tool,
            "gen_ai.tool.call.id": event.id,
            "sayso.request": event.id,
            "sayso.attempt": event.attempt,
        }
        self._open(event, event.id, f"execute_tool {event.tool}", facts)

    def _tool_ended(self, event: ToolEnded) -> None:
        error = "the call failed" if event.status == "failed" else ""
        self._close(event, event.id, {"sayso.status": event.status}, error)

    def _tool_paused(self, event: ToolPaused) -> None:
        self._close(event, event.id, {"sayso.status": event.status})

    def _requested(self, event: Requested) -> None:
        request = event.request
        facts = {"sayso.request": request.id, "sayso.kind": request.kind}
        self._note(event, "sayso.requested", {**facts, "gen_ai.tool.name": request.tool or ""})

    def _answered(self, event: Answered) -> None:
        decided = event.request.decision
        facts = {"sayso.request": event.request.id, "sayso.status": event.request.status}
        if decided is not None:
            facts |= {"sayso.decision": decided.type, "sayso.channel": decided.channel}
        self._note(event, "sayso.answered", facts)

    def _note(self, event: AgentEvent, name: str, facts: dict[str, str]) -> None:
        span, _ = self._spans.get(event.run, {}).get(_RUN, (None, None))
        if span is not None:
            span.add_event(name, facts)
