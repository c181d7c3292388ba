"""Run and resume a compiled LangGraph graph by its thread, with a gate in front of its tools."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from itertools import takewhile
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.graph.state import CompiledStateGraph

from sayso.adapters.agents import Listener, Stream, StreamingAgent, listener
from sayso.adapters.conversation import ConversationLog
from sayso.adapters.langchain.interrupts import InterruptQuestions, breakpoint_of
from sayso.adapters.langchain.reach import gated_graph
from sayso.adapters.langchain.tools import ToolGate, missing_results, numbered_id
from sayso.errors import Paused, SaysoError
from sayso.gate import Gate
from sayso.gate.coverage import Coverage
from sayso.gate.framework import FrameworkTool, check_gate
from sayso.gate.run_result import RunResult, RunState
from sayso.policy import Policy
from sayso.rows import Run
from sayso.sync import run_user_function
from sayso.types import Json, Reviewer

_stream_mode: ContextVar[Any] = ContextVar("sayso_langchain_stream_mode", default="updates")


def guard(
    agent: Any,
    gate: Gate,
    policy: Policy | None = None,
    *,
    config: Mapping[str, Any] | None = None,
    ungated: Iterable[str] = (),
) -> GuardedAgent:
    """Make every tool call of a compiled agent or graph go through a gate.

    ``agent`` is the result of ``create_agent``, ``create_deep_agent`` or ``StateGraph.compile``.
    Subgraphs and sub-agents are gated too. ``policy`` replaces the gate's own; if neither has
    rules, every call needs approval. ``config`` is passed to the graph on every run. ``agent``
    itself is not changed; ``.graph`` is the guarded copy, for ``langgraph dev`` and for everything
    that a graph can do. ``run`` and ``resume`` need a checkpointer; a server brings its own.

    Raises ``TypeError`` for anything but a compiled graph, ``SaysoError`` for a graph without a
    ``ToolNode`` to guard, and ``InvalidCall`` with a list of what the gate cannot reach, unless
    ``ungated`` names it.
    """
    check_gate(gate, policy)
    if not isinstance(agent, CompiledStateGraph):
        kind = type(agent).__name__
        raise TypeError(
            "guard(...) takes the result of create_agent(...) or StateGraph.compile(...), "
            f"not {kind}"
        )
    tools, coverage = ToolGate(gate, policy=policy), Coverage(ungated)
    graph = gated_graph(agent, tools, coverage)
    return GuardedAgent(graph, gate, config, tools, coverage)


class InputLog(ConversationLog):
    """What the user said to a graph, and its answers.

    The messages in between are in LangGraph's checkpoints, which belong to the graph.
    """

    format = "langchain"


class GuardedAgent(StreamingAgent[InputLog, Stream]):
    """A guarded graph; ``guard`` returns one. Use ``graph``, the compiled graph, for everything
    else that a graph can do."""

    channel = "langchain"
    log_type = InputLog

    def __init__(
        self,
        graph: Any,
        gate: Gate,
        config: Mapping[str, Any] | None = None,
        tools: ToolGate | None = None,
        coverage: Coverage | None = None,
    ) -> None:
        super().__init__(gate, None if tools is None else tools.policy, coverage)
        self.graph = graph
        self._tools = tools
        self._config = dict(config or {})
        self._async: bool | None = None

    async def read_decisions(self, run: Run, decisions: Any) -> Any:
        if run.asked:
            state = await self._state(run.thread)
            await InterruptQuestions(self.gate, run.thread).cancel_answered(state.interrupts)
        return decisions

    async def begin(self, input: Any, thread: str) -> Any:
        """Run the graph. Text becomes a user message; anything else is the graph's input."""
        if not self.graph.checkpointer:
            raise SaysoError(
                "this graph has no checkpointer, so a pause would lose its state: "
                "pass checkpointer=... to create_agent or compile"
            )
        log = await self.open_log(thread)
        await log.say(input if isinstance(input, str) else "")
        state = await self._state(thread)
        if isinstance(input, str):
            input = {"messages": [*_unanswered(state.values), {"role": "user", "content": input}]}
        return await self._advance(input, log)

    async def go_on(self, thread: str) -> Any:
        """Continue the graph: nodes that interrupted get their answers, decided calls need no
        input."""
        log = await self.open_log(thread)
        state = await self._state(thread)
        if await self._stay(state, thread, asks=False):
            run = log.run
            await self.cancel(run, reason="a person decided not to continue")
            raise Paused(run, ())
        answers = await InterruptQuestions(self.gate, thread).answers(state.interrupts)
        return await self._advance(answers, log)

    async def order(self, thread: str) -> Sequence[str]:
        """Return the keys of the last reply's calls: LangGraph makes them all at once."""
        values = (await self._state(thread)).values
        last = _last_reply(values)
        return [numbered_id(values, call) for call in last.tool_calls] if last is not None else ()

    def known_tools(self) -> Iterable[FrameworkTool]:
        tools = self._tools
        return (
            () if tools is None else [tools.framework_tool(tool) for tool in tools.behind.values()]
        )

    async def _advance(self, input: Any, log: ConversationLog) -> Any:
        thread = log.thread
        values = await self._invoke(input, thread)
        state = await self._state(thread)
        if state.interrupts:
            await InterruptQuestions(self.gate, thread).ask(state.interrupts)
        if state.next:
            await self._stay(state, thread, asks=True)
            raise Paused(log.run, ())
        output = _output(values if values is not None else state.values)
        content = output if isinstance(output, str) else ""
        await log.end(self.dump_output(output), content=content)
        return output

    async def load_output(self, thread: str, stored: Json) -> Any:
        """Return the output from the checkpoint, which has the graph's own types."""
        values = (await self._state(thread)).values
        return _output(values) if values else stored

    async def _stay(self, state: Any, thread: str, *, asks: bool) -> bool:
        """Whether people want the graph to stay at its breakpoint, if it is at one."""
        if not state.next or state.interrupts:
            return False
        whole = await self._state(thread, subgraphs=True)
        stop = await breakpoint_of(self.graph, whole, self._read)
        return await InterruptQuestions(self.gate, thread).should_stay(stop, asks=asks)

    # -- the graph, sync or async as its checkpointer is

    def config(self, thread: str) -> dict[str, Any]:
        """Return the config that names a thread to the graph."""
        configurable = {**self._config.get("configurable", {}), "thread_id": thread}
        return {**self._config, "configurable": configurable}

    async def _state(self, thread: str, *, subgraphs: bool = False) -> Any:
        return await self._read(self.config(thread), subgraphs=subgraphs)

    async def _read(self, config: Any, *, subgraphs: bool = False) -> Any:
        if self._async is not False:
            try:
                state = await self.graph.aget_state(config, subgraphs=subgraphs)
            except NotImplementedError:
                self._async = False  # SqliteSaver and PostgresSaver are sync only
            else:
                self._async = True
                return state
        return await run_user_function(self.graph.get_state, config, subgraphs=subgraphs)

    def stream(
        self,
        input: Any,
        *,
        thread: str | None = None,
        requester: str = "",
        stream_mode: Any = "updates",
    ) -> Stream:
        """Run the graph, and stream its chunks in LangGraph's ``stream_mode``."""

        async def work() -> RunResult:
            _stream_mode.set(stream_mode)
            return await self.run(input, thread=thread, requester=requester)

        return self._stream(work)

    def stream_resume(
        self,
        where: RunState | str,
        *,
        decisions: Any = None,
        by: str | Reviewer = "user",
        stream_mode: Any = "updates",
    ) -> Stream:
        """Resume a run, and stream its chunks in LangGraph's ``stream_mode``."""

        async def work() -> RunResult:
            _stream_mode.set(stream_mode)
            return await self.resume(where, decisions=decisions, by=by)

        return self._stream(work)

    async def _invoke(self, input: Any, thread: str) -> Any:
        """Run the graph. Returns its values, or None if they were streamed."""
        heard, config = listener(), self.config(thread)
        if heard is not None:
            return await self._streamed(input, config, heard)
        if self._async:
            return await self.graph.ainvoke(input, config)
        return await run_user_function(self.graph.invoke, input, config)

    async def _streamed(self, input: Any, config: Any, heard: Listener) -> None:
        mode = _stream_mode.get()
        if self._async:
            async for chunk in self.graph.astream(input, config, stream_mode=mode):
                heard(chunk)
            return
        loop = asyncio.get_running_loop()

        def played() -> None:
            for chunk in self.graph.stream(input, config, stream_mode=mode):
                loop.call_soon_threadsafe(heard, chunk)

        await run_user_function(played)


def _unanswered(values: Any) -> list[ToolMessage]:
    """Return results for the calls that new input left without one."""
    last = _last_reply(values)
    if last is None:
        return []
    after = takewhile(lambda message: message is not last, reversed(values["messages"]))
    return missing_results(last, list(after))


def _last_reply(values: Any) -> AIMessage | None:
    messages = values.get("messages", []) if isinstance(values, dict) else []
    return next((m for m in reversed(messages) if isinstance(m, AIMessage)), None)


def _output(values: Any) -> Any:
    """Return the last message's text, or the structured response; for other graphs, their
    values."""
    whole = values if isinstance(values, dict) else {}
    messages, structured = whole.get("messages"), whole.get("structured_response")
    if structured is not None:
        return structured
    if messages and isinstance(messages[-1], BaseMessage):
        return messages[-1].text
    return values
