"""A guarded agent behaves like the bare one: stream, usage, middleware, trace, result."""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest
from agent_framework import (
    Agent,
    AgentMiddleware,
    AgentSession,
    ChatMiddleware,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionMiddleware,
    Message,
    ResponseStream,
    UsageDetails,
)
from agent_framework_world import Client, World, call
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from store_world import pay_of

import sayso
from sayso.adapters.agent_framework import guard

USAGE = UsageDetails(input_token_count=10, output_token_count=5, total_token_count=15)


@pytest.fixture
def world(tmp_path: Any) -> Iterator[World]:
    world = World(tmp_path, sayso.Policy([sayso.Rule("*", verdict="allow")]))
    yield world
    world.close()


class OnAgent(AgentMiddleware):
    def __init__(self, heard: list[Any]) -> None:
        self.heard = heard

    async def process(self, context: Any, call_next: Any) -> None:
        self.heard.append(("agent", [message.text for message in context.messages]))
        await call_next()
        self.heard.append(("agent ended", context.result.text))


class OnChat(ChatMiddleware):
    def __init__(self, heard: list[Any]) -> None:
        self.heard = heard

    async def process(self, context: Any, call_next: Any) -> None:
        self.heard.append(("model", [message.role for message in context.messages]))
        await call_next()
        self.heard.append(("model ended", context.result.usage_details))


class OnFunction(FunctionMiddleware):
    def __init__(self, heard: list[Any]) -> None:
        self.heard = heard

    async def process(self, context: Any, call_next: Any) -> None:
        self.heard.append((context.function.name, dict(context.arguments)))
        await call_next()
        self.heard.append([(content.type, content.text) for content in context.result])


class Speaker(Client):
    """A client whose model streams its words one by one."""

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Any, **kwargs: Any
    ) -> Any:
        if not stream:
            return super()._inner_get_response(
                messages=messages, stream=stream, options=options, **kwargs
            )

        async def pieces() -> AsyncIterator[ChatResponseUpdate]:
            for content in self.reply(messages).messages[0].contents:
                words = content.text.split(" ") if content.type == "text" else [None]
                parts = [content if word is None else Content.from_text(word) for word in words]
                for part in parts:
                    yield ChatResponseUpdate(
                        contents=[part], role="assistant", message_id="m1", response_id="r1"
                    )

        return ResponseStream(pieces(), finalizer=ChatResponse.from_updates)


def build(world: World, *middleware: Any) -> Agent[Any]:
    turns: Any = [call("pay", "p1", to="ana")], "Ana has the money now."
    client = world.client(*turns, usage_details=USAGE, response_id="r1")
    speaker = Speaker(client.reply)
    return Agent(speaker, name="boss", tools=[pay_of(world)], middleware=list(middleware))


async def run_both(world: World) -> tuple[Any, Any]:
    """Return the results of the bare agent and of the guarded one."""
    bare = await build(world).run("go", session=AgentSession())
    return bare, await guard(build(world), world.gate).run("go", thread="t-1")


def shown(update: Any) -> Any:
    contents = [(content.type, content.text) for content in update.contents]
    return update.role, update.message_id, update.response_id, contents


async def test_stream_has_the_bare_updates(world: World) -> None:
    stream = build(world).run("go", session=AgentSession(), stream=True)
    bare = [shown(update) async for update in stream]
    guarded = guard(build(world), world.gate).stream("go", thread="t-1")
    updates = [shown(update) async for update in guarded]
    assert [update for update in updates if update[0] == "assistant"] == [
        update for update in bare if update[0] == "assistant"
    ]
    # The framework gives a function's result no ids; nor does the guarded agent.
    assert [(update[0], update[3]) for update in updates] == [(one[0], one[3]) for one in bare]
    assert len(bare) == 7


async def test_resumed_stream_has_remaining_updates(world: World) -> None:
    guarded = guard(build(world), world.gate, sayso.Policy([sayso.Rule("pay")]))
    async for _ in guarded.stream("go", thread="t-1"):
        pass
    await world.decide(lambda request: request.approve())
    texts = [update.text async for update in guarded.stream_resume("t-1")]
    assert [text for text in texts if text] == ["Ana", "has", "the", "money", "now."]


async def test_usage_is_the_bare_usage(world: World) -> None:
    bare, guarded = await run_both(world)
    assert guarded.usage_details == bare.usage_details
    assert guarded.usage_details["total_token_count"] == 30


async def test_middleware_is_called_as_bare(world: World) -> None:
    heard: list[list[Any]] = [[], []]
    kinds = OnAgent, OnChat, OnFunction
    bare, agent = (build(world, *(kind(notes) for kind in kinds)) for notes in heard)
    await bare.run("go", session=AgentSession())
    await guard(agent, world.gate).run("go", thread="t-1")
    assert heard[0] == heard[1]
    assert [("text", "paid 1 to ana")] in heard[1]


async def test_trace_is_the_bare_trace(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from agent_framework.observability import enable_instrumentation

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    enable_instrumentation()

    def spans() -> list[Any]:
        found = [
            (span.name, span.kind, span.status.status_code)
            for span in exporter.get_finished_spans()
        ]
        exporter.clear()
        return found

    await build(world).run("go", session=AgentSession())
    bare = spans()
    await guard(build(world), world.gate).run("go", thread="t-1")
    assert spans() == bare
    assert "execute_tool pay" in [name for name, *_ in bare]


async def test_pickling_is_refused_with_a_reason(world: World) -> None:
    guarded = guard(build(world), world.gate)
    with pytest.raises(TypeError, match=r"cannot be pickled.*open store"):
        pickle.dumps(guarded)
    bare, result = await run_both(world)
    assert pickle.loads(pickle.dumps(bare)).text == bare.text
    assert pickle.loads(pickle.dumps(result.raw)).text == bare.text
    with pytest.raises(TypeError, match=r"use state\.to_json\(\)"):
        pickle.dumps(result.state)


@pytest.mark.parametrize("effect", ["read", "once"])
async def test_only_reads_are_retried(world: World, effect: Any) -> None:
    """Retries are a matter of middleware, which calls the function again."""
    calls: list[str] = []

    def look(what: str) -> str:
        calls.append(what)
        raise ConnectionError("the line is dead")

    class Retries(FunctionMiddleware):
        async def process(self, context: Any, call_next: Any) -> None:
            try:
                await call_next()
            except Exception:
                await call_next()

    turns: Any = [call("look", "l1", what="sky")], "Done."
    agent = Agent(world.client(*turns), tools=[look], middleware=[Retries()])
    policy = sayso.Policy([sayso.Rule("look", verdict="allow", effect=effect)])
    await guard(agent, world.gate, policy).run("go", thread="t-1")
    assert calls == (["sky", "sky"] if effect == "read" else ["sky"])


async def test_raw_equals_bare_response(world: World) -> None:
    bare, guarded = await run_both(world)
    assert type(guarded.raw) is type(bare)
    assert [message.role for message in guarded.messages] == [one.role for one in bare.messages]
    assert [one.to_dict() for one in guarded.messages[-1].contents] == [
        one.to_dict() for one in bare.messages[-1].contents
    ]
    assert guarded.response_id == bare.response_id == "r1"
    assert guarded.text == bare.text == "Ana has the money now."


async def test_raw_of_paused_run_has_the_request(world: World) -> None:
    guarded = guard(build(world), world.gate, sayso.Policy([sayso.Rule("pay")]))
    result: Any = await guarded.run("go", thread="t-1")
    (request,) = result.raw.user_input_requests
    (interruption,) = result.interruptions
    assert request.additional_properties["sayso"]["request"] == interruption.id
    with pytest.raises(AttributeError, match="in the process that ran the agent"):
        _ = (await guard(build(world), world.gate).resume("t-1")).messages
