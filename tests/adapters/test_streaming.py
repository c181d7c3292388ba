"""Guarded agents stream their framework's events, also across a pause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain_world import World
from langgraph.checkpoint.sqlite import SqliteSaver
from pydantic_ai import Agent
from pydantic_ai.messages import FunctionToolResultEvent, PartStartEvent
from pydantic_ai.models.test import TestModel

import sayso
from sayso.adapters.langchain import guard
from sayso.adapters.pydantic_ai import guard as guard_pydantic_ai

ONE = [("c1", "send", {"to": "ana"})]


class TestLangChain:
    async def test_langchain_stream_resumes_after_pause(self) -> None:
        world = World()
        guarded = guard(world.agent(ONE, "Done."), world.gate)
        stream = guarded.stream("go", thread="t")
        with pytest.raises(sayso.SaysoError, match="has not ended"):
            _ = stream.result
        chunks = [chunk async for chunk in stream]
        assert [next(iter(chunk)) for chunk in chunks] == ["model", "__interrupt__"]
        (request,) = stream.result.interruptions
        rest = guarded.stream_resume("t", decisions=[request.approve()])
        chunks = [chunk async for chunk in rest]
        assert [next(iter(chunk)) for chunk in chunks] == ["tools", "model"]
        assert (rest.result.output, world.ran) == ("Done.", [("send", "ana", "Hello")])

    async def test_stream_modes_are_passed_on(self) -> None:
        world = World()
        guarded = guard(world.agent("Done."), world.gate)
        stream = guarded.stream("go", thread="t", stream_mode=["messages", "values"])
        modes = {mode async for mode, _ in stream}
        assert (modes, stream.result.output) == ({"messages", "values"}, "Done.")

    async def test_sync_saver_streams(self, tmp_path: Path) -> None:
        world = World()
        with SqliteSaver.from_conn_string(str(tmp_path / "saver.db")) as saver:
            guarded = guard(world.agent(ONE, "Done.", saver=saver), world.gate)
            stream = guarded.stream("go", thread="t")
            chunks = [chunk async for chunk in stream]
        assert [next(iter(chunk)) for chunk in chunks] == ["model", "__interrupt__"]
        assert stream.result.status == "paused"

    async def test_leaving_early_stops_the_run(self) -> None:
        world = World()
        guarded = guard(world.agent([("c1", "look", {"what": "x"})], "Done."), world.gate)
        async for _ in guarded.stream("go", thread="t"):
            break
        assert world.ran == []


class TestPydanticAI:
    def agent(self, ran: list[str]) -> Any:
        def pay(to: str) -> str:
            """Pay somebody."""
            ran.append(to)
            return f"paid {to}"

        return Agent(TestModel(custom_output_text="Done."), tools=[pay])

    async def test_pydantic_ai_stream_resumes_after_pause(self) -> None:
        ran: list[str] = []
        gate = sayso.Gate("memory://", policy=sayso.Policy([sayso.Rule("*")]), agent="a", wait=0)
        guarded = guard_pydantic_ai(self.agent(ran), gate)
        stream = guarded.stream("go", thread="t")
        kinds = {type(event) async for event in stream}
        assert PartStartEvent in kinds
        (request,) = stream.result.interruptions
        assert ran == []
        rest = guarded.stream_resume("t", decisions=[request.approve()])
        events = [event async for event in rest]
        assert any(isinstance(event, FunctionToolResultEvent) for event in events)
        assert (rest.result.output, len(ran)) == ("Done.", 1)

    async def test_handler_of_user_gets_all_events(self) -> None:
        heard: list[Any] = []

        async def handler(ctx: Any, events: Any) -> None:
            heard.extend([event async for event in events])

        gate = sayso.Gate("memory://", policy=sayso.Policy(default="allow"), agent="a", wait=0)
        guarded = guard_pydantic_ai(self.agent([]), gate, event_stream_handler=handler)
        stream = guarded.stream("go", thread="t")
        streamed = [event async for event in stream]
        assert stream.result.output == "Done."
        assert heard == streamed != []
