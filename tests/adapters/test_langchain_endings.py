"""How calls end in a graph: after the history was cut, and where a result ends the run."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, SummarizationMiddleware
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langchain_core.tools import tool
from langchain_world import CONFIG, MODES, Chat, World, answer, go, in_mode, says
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import interrupt

import sayso
from sayso.adapters.langchain import HumanInTheLoopMiddleware, guard
from sayso.types import Request

ONE = [("call_0", "send", {"to": "ana"})]


@pytest.fixture
def world() -> World:
    return World()


class Forget(AgentMiddleware[Any, Any]):
    """Cuts the history before each turn, as summarising does."""

    def before_agent(self, state: Any, runtime: Any) -> Any:
        last = state["messages"][-1]
        if not isinstance(last, HumanMessage) or len(state["messages"]) < 2:
            return None
        return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), last]}


class TestRepeatedIds:
    """Some providers count the calls of each reply anew, and the history no longer shows that."""

    @pytest.mark.parametrize("gated_by", ["guard", "middleware"])
    def test_repeated_id_after_cut_history_asks(self, world: World, gated_by: str) -> None:
        middleware: list[Any] = [Forget()]
        if gated_by == "middleware":
            middleware.append(HumanInTheLoopMiddleware({"send": True}, gate=world.gate))
        agent = world.agent(ONE, "Done.", middleware=middleware)
        graph = guard(agent, world.gate).graph if gated_by == "guard" else agent
        for times in (1, 2, 3):
            go(graph)
            (request,) = world.pending()
            assert dict(request.args) == {"to": "ana", "text": "Hello"}
            world.decide()
            assert graph.invoke(None, CONFIG)["messages"][-1].text == "Done."
            assert len(world.ran) == times

    def test_repeated_id_after_summary_asks(self, world: World) -> None:
        class Counting(Chat):
            """Uses one id for the only call of each turn."""

            def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
                said = [m for m in messages if isinstance(m, HumanMessage)]
                since = messages[messages.index(said[-1]) :]
                turn = [m for m in since if isinstance(m, AIMessage)]
                return super()._generate(turn, *args, **kwargs)

        summary = Chat(script=["They sent a mail."], seen=[])
        cut = SummarizationMiddleware(summary, trigger=("messages", 4), keep=("messages", 1))
        chat = Counting(script=[ONE, "Done."], seen=[])
        agent = create_agent(chat, world.tools(), middleware=[cut], checkpointer=InMemorySaver())
        guarded = guard(agent, world.gate)
        for times in (1, 2, 3):
            result = guarded.run_sync("go", thread="t")
            (request,) = result.interruptions
            result = guarded.resume_sync("t", decisions=[request.approve()])
            assert (result.output, len(world.ran)) == ("Done.", times)

    def test_same_reply_returns_stored_result(self, world: World) -> None:
        """An old checkpoint gets the stored result, as before."""
        graph = guard(world.agent(ONE, "Done."), world.gate).graph
        go(graph)
        paused = graph.get_state(CONFIG).config
        world.decide()
        graph.invoke(None, CONFIG)
        graph.invoke(None, paused)
        assert len(world.ran) == 1


class TestReturnDirect:
    """A tool's result may be the output, but of a refusal the model is always told."""

    def tools(self, world: World) -> list[Any]:
        @tool(return_direct=True)
        def pay(to: str) -> str:
            """Pay somebody."""
            world.ran.append(to)
            return f"paid {to}"

        return [pay]

    def agent(self, world: World, *middleware: Any) -> Any:
        chat = Chat(script=[[("c1", "pay", {"to": "ana"})], "They said no."], seen=[])
        tools = self.tools(world)
        return create_agent(chat, tools, middleware=middleware, checkpointer=InMemorySaver())

    def test_direct_result_is_the_output(self, world: World) -> None:
        guarded = guard(self.agent(world), world.gate)
        (request,) = guarded.run_sync("go", thread="t").interruptions
        result = guarded.resume_sync("t", decisions=[request.approve()])
        assert (result.output, world.ran) == ("paid ana", ["ana"])

    @pytest.mark.parametrize("answered", ["reject", "respond"])
    async def test_rejected_direct_tool_returns_to_model(self, world: World, answered: str) -> None:
        guarded = guard(self.agent(world), world.gate)
        (request,) = (await guarded.run("go", thread="t")).interruptions
        made: Any = (
            request.reject("not her") if answered == "reject" else request.respond("by hand")
        )
        result = await guarded.resume("t", decisions=[made])
        assert result.output == ("They said no." if answered == "reject" else "by hand")
        assert world.ran == []

    def test_denied_direct_tool_returns_to_model(self, world: World) -> None:
        deny = sayso.Policy([sayso.Rule("*", verdict="deny")])
        guarded = guard(self.agent(world), world.gate, deny)
        assert guarded.run_sync("go", thread="t").output == "They said no."

    def test_direct_return_skips_model_middleware(self, world: World) -> None:
        seen: list[int] = []

        class Counts(AgentMiddleware[Any, Any]):
            def before_model(self, state: Any, runtime: Any) -> None:
                seen.append(len(state["messages"]))

        guarded = guard(self.agent(world, Counts()), world.gate)
        (request,) = guarded.run_sync("go", thread="t").interruptions
        result = guarded.resume_sync("t", decisions=[request.reject("no")])
        assert (result.output, seen) == ("They said no.", [1, 3])

    @pytest.mark.parametrize("mode", MODES)
    def test_middleware_returns_rejection_to_model(self, world: World, mode: Any) -> None:
        asks = HumanInTheLoopMiddleware({"pay": True}, gate=world.gate, **in_mode(mode))
        agent = self.agent(world, asks)
        go(agent)
        said = answer(agent, says("reject") if mode == "batched" else {"type": "reject"})
        assert (said["messages"][-1].text, world.ran) == ("They said no.", [])


class TestLostCheckpoints:
    """A call was approved, and the checkpointer has no checkpoint of its thread any more."""

    def lost(self, world: World) -> Any:
        guard(world.agent(ONE, "Done."), world.gate).run_sync("go", thread="t")
        world.decide()
        return guard(world.agent(ONE, "Done."), world.gate)

    def test_resume_names_the_checkpointer(self, world: World) -> None:
        guarded = self.lost(world)
        for _ in range(2):
            with pytest.raises(sayso.SaysoError, match=r"InMemorySaver has no .* 't'"):
                guarded.resume_sync("t")
        assert world.ran == []

    def test_people_see_the_run(self, world: World) -> None:
        guarded = self.lost(world)
        with pytest.raises(sayso.SaysoError, match="no checkpoint"):
            guarded.resume_sync("t")
        (request,) = world.pending()
        assert "InMemorySaver" in request.args["text"]
        world.decide(Request.reject)
        result = guarded.resume_sync("t")
        assert (result.status, world.ran) == ("cancelled", [])

    def test_trying_again_in_vain_asks_again(self, world: World) -> None:
        guarded = self.lost(world)
        for _ in range(2):
            with pytest.raises(sayso.SaysoError, match="no checkpoint"):
                guarded.resume_sync("t")
            assert len(world.pending()) == 1
            world.decide()
        assert world.ran == []

    def test_restored_checkpoints_continue(self, world: World) -> None:
        saver = InMemorySaver()
        guard(world.agent(ONE, "Done.", saver=saver), world.gate).run_sync("go", thread="t")
        world.decide()
        with pytest.raises(sayso.SaysoError, match="no checkpoint"):
            guard(world.agent(ONE, "Done."), world.gate).resume_sync("t")
        result = guard(world.agent(ONE, "Done.", saver=saver), world.gate).resume_sync("t")
        assert (result.output, len(world.ran)) == ("Done.", 1)
        assert world.pending() == []

    def test_question_of_a_node_is_not_cancelled(self, world: World) -> None:
        builder: Any = StateGraph(MessagesState)
        builder.add_node("ask", lambda state: {"messages": [str(interrupt("Which size?"))]})
        builder.add_edge(START, "ask")
        guard(builder.compile(checkpointer=InMemorySaver()), world.gate).run_sync("go", thread="t")
        (request,) = world.pending()
        empty = guard(builder.compile(checkpointer=InMemorySaver()), world.gate)
        with pytest.raises(sayso.SaysoError, match="no checkpoint"):
            empty.resume_sync("t", decisions=[request.respond("large")])
