"""A guarded agent of ADK behaves like the bare one where no decision is needed."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps import App
from google.adk.models import LlmRequest, LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import InMemoryRunner
from google.adk.telemetry import node_tracing, tracing
from google.genai import types
from google_adk_world import Turns, World, call
from harness_google_adk import FakeModel
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import sayso
from sayso.adapters.google_adk import guard

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

ALLOW = sayso.Policy([sayso.Rule("*", verdict="allow")])
READ = sayso.Policy([sayso.Rule("*", verdict="allow", effect="read")])
TURNS = [call("look", "c1", at="ana"), call("look", "c2", at="bob")], "They are there."
STREAMED = RunConfig(streaming_mode=StreamingMode.SSE)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, ALLOW)
    yield world
    world.gate.close()


def look(at: str) -> str:
    """Look at a person."""
    return f"seen {at}"


class Counting(FakeModel):
    """A model that counts tokens, and streams its words."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncIterator[LlmResponse]:
        async for response in super().generate_content_async(llm_request, stream):
            text = response.content.parts[0].text if response.content else None
            for word in (text or "").split() if stream else ():
                part = types.Part(text=word)
                yield LlmResponse(content=types.Content(role="model", parts=[part]), partial=True)
            response.usage_metadata = types.GenerateContentResponseUsageMetadata(
                prompt_token_count=7, candidates_token_count=3, total_token_count=10
            )
            yield response


def looker(tool: Any = look, **options: Any) -> LlmAgent:
    return LlmAgent(name="looker", model=Counting(script=Turns(TURNS)), tools=[tool], **options)


async def run_bare(agent: LlmAgent | App, config: RunConfig | None = None) -> list[Any]:
    """Return the events of ADK's own runner."""
    if isinstance(agent, App):
        runner = InMemoryRunner(app=agent)
    else:
        runner = InMemoryRunner(agent=agent, app_name="looker")
    session = await runner.session_service.create_session(app_name="looker", user_id="user")
    message = types.Content(role="user", parts=[types.Part(text="go")])
    events = runner.run_async(
        user_id="user", session_id=session.id, new_message=message, run_config=config
    )
    return [event async for event in events]


def plain(events: Any) -> list[Any]:
    """Return events without what differs in every run."""
    differs = {"id", "timestamp", "invocation_id"}
    return [event.model_dump(mode="json", exclude=differs) for event in events]


async def test_raw_equals_bare_events(world: World) -> None:
    bare = await run_bare(looker())
    result = await guard(looker(), world.gate).run("go", thread="t")
    assert plain(result.raw) == plain(bare)
    assert result.output == bare[-1].content.parts[0].text


async def test_usage_is_the_bare_usage(world: World) -> None:
    bare = await run_bare(looker())
    result = await guard(looker(), world.gate).run("go", thread="t")
    counts = [
        [event.usage_metadata.total_token_count for event in events if event.usage_metadata]
        for events in (bare, result.raw)
    ]
    assert counts == [[10, 10]] * 2


async def test_stream_has_the_bare_events(world: World) -> None:
    bare = await run_bare(looker(), STREAMED)
    stream = guard(looker(), world.gate, run_config=STREAMED).stream("go", thread="t")
    assert plain([event async for event in stream]) == plain(bare)
    assert [event.partial for event in bare].count(True) == 3


class Watch(BasePlugin):
    """Records what ADK reports to a plugin."""

    def __init__(self, seen: list[Any]) -> None:
        super().__init__(name="watch")
        self.seen = seen

    async def before_model_callback(self, *, llm_request: LlmRequest, **_: Any) -> None:
        self.seen.append(("model", len(llm_request.contents)))

    async def before_tool_callback(self, *, tool: Any, tool_args: Any, **_: Any) -> None:
        self.seen.append(("tool", tool.name, dict(tool_args)))

    async def on_event_callback(self, *, event: Any, **_: Any) -> None:
        self.seen.append(("event", event.author))

    async def after_run_callback(self, **_: Any) -> None:
        self.seen.append(("end",))


async def test_plugins_and_callbacks_see_the_same(world: World) -> None:
    seen: list[Any] = []

    def after_tool(tool: Any, args: Any, tool_context: Any, tool_response: Any) -> Any:
        seen.append(("result", tool_response))
        return {"result": "changed"}

    def app() -> App:
        agent = looker(after_tool_callback=after_tool)
        return App(name="looker", root_agent=agent, plugins=[Watch(seen)])

    bare = await run_bare(app())
    result = await guard(app(), world.gate).run("go", thread="t")
    half = len(seen) // 2
    # ADK runs the calls of a reply side by side.
    assert sorted(map(repr, seen[:half])) == sorted(map(repr, seen[half:]))
    assert ("tool", "look", {"at": "ana"}) in seen
    assert plain(result.raw) == plain(bare)


async def test_trace_is_the_bare_trace(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    for module in (tracing, node_tracing):
        monkeypatch.setattr(module, "tracer", provider.get_tracer("adk"))
    traces = []
    for run in (run_bare(looker()), guard(looker(), world.gate).run("go", thread="t")):
        await run
        spans = exporter.get_finished_spans()
        names = {span.context.span_id: span.name for span in spans if span.context}
        traces.append(
            sorted((s.name, names.get(s.parent.span_id, "") if s.parent else "") for s in spans)
        )
        exporter.clear()
    assert traces[0] == traces[1]
    assert len(traces[0]) >= 5


async def test_failed_read_runs_once_as_bare(world: World) -> None:
    """In the bare run the error ends the agent; guarded, its model reads it and goes on."""
    ran: list[str] = []

    def look(at: str) -> str:
        """Look at a person."""
        ran.append(at)
        raise OSError("the camera is off")

    with pytest.raises(Exception) as raised:  # noqa: PT011  # ADK puts its own around it
        await run_bare(looker(look))
    assert "the camera is off" in "".join(traceback.format_exception(raised.value))
    assert sorted(ran) == ["ana", "bob"]
    result = await guard(looker(look), world.gate, READ).run("go", thread="t")
    assert sorted(ran) == ["ana", "ana", "bob", "bob"]
    assert "the camera is off" in str(result.raw)


def test_pickling_is_refused_with_a_reason(world: World) -> None:
    with pytest.raises(TypeError, match="cannot be pickled, because they hold an open store"):
        pickle.dumps(guard(looker(), world.gate))
