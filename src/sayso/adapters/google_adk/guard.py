"""Run and resume an agent of ADK by its thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.llm_agent import LlmAgent
from google.adk.agents.loop_agent import LoopAgent
from google.adk.agents.parallel_agent import ParallelAgent
from google.adk.agents.run_config import RunConfig
from google.adk.agents.sequential_agent import SequentialAgent
from google.adk.apps.app import App
from google.adk.code_executors.built_in_code_executor import BuiltInCodeExecutor
from google.adk.events.event import Event
from google.adk.runners import Runner
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.example_tool import ExampleTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.preload_memory_tool import PreloadMemoryTool
from google.genai import types
from pydantic import BaseModel

from sayso.adapters.agents import Stream, StreamingAgent, listener
from sayso.adapters.conversation import OutputTypes
from sayso.adapters.google_adk.models import list_model, unlisted_executor
from sayso.adapters.google_adk.tools import current_part, framework_tool, steers
from sayso.adapters.google_adk.turn import Turn, TurnLog, current_turn, text_of
from sayso.errors import InvalidCall
from sayso.gate import Gate
from sayso.gate.coverage import Coverage
from sayso.gate.framework import CallPlace, FrameworkTool, check_gate
from sayso.gate.options import check_taken
from sayso.policy import Policy
from sayso.sync import context_value

#: Options of ``Runner`` that the guard decides.
_OURS = ("app", "agent", "node", "app_name", "plugins", "session_service", "auto_create_session")
#: ADK's agents that run their sub-agents and tools here, with ADK's own models and tools.
_RUN_HERE = (BaseAgent, LlmAgent, SequentialAgent, ParallelAgent, LoopAgent, *BaseAgent.__mro__)
#: Tools without a call: they only add to the prompt.
_PROMPT_ONLY = (ExampleTool, PreloadMemoryTool)


def guard(
    agent: BaseAgent | App,
    gate: Gate,
    policy: Policy | None = None,
    *,
    ungated: Iterable[str] = (),
    run_config: RunConfig | None = None,
    state: dict[str, Any] | None = None,
    **services: Any,
) -> Guarded:
    """Make an agent, the agents below it, and those that its tools run, ask through the gate.

    Pass an ``App`` for its plugins and configuration. ``run_config`` is that of every run,
    ``state`` the first state of each thread's session, and ``services`` are options of ``Runner``:
    ``artifact_service``, ``memory_service``, ``credential_service``. ``agent`` itself is not
    changed. Raises ``TypeError`` for anything else, and ``InvalidCall`` with a list of what the
    gate cannot reach, such as tools of the provider, unless ``ungated`` names it.
    """
    check_gate(gate, policy)
    root = agent.root_agent if isinstance(agent, App) else agent
    if not isinstance(root, BaseAgent):
        raise TypeError(f"guard(...) takes an agent or an App of ADK, not {type(root).__name__}")
    check_taken(services, Runner.__init__, *_OURS)
    app = agent if isinstance(agent, App) else App(name=root.name, root_agent=root)
    return Guarded(app, root, gate, policy, Coverage(ungated), run_config, state, services)


class Guarded(StreamingAgent[TurnLog, Stream]):
    """An agent that servers and workers can run and resume; ``guard`` returns one."""

    channel = "google-adk"
    log_type = TurnLog

    def __init__(
        self,
        app: App,
        root: BaseAgent,
        gate: Gate,
        policy: Policy | None,
        coverage: Coverage,
        run_config: RunConfig | None,
        state: dict[str, Any] | None,
        services: Mapping[str, Any],
    ) -> None:
        super().__init__(gate, policy, coverage)
        self.agent = root
        self._app = app
        self._run_config = run_config
        self._state = state
        self._services = services
        self._check()

    def _check(self) -> None:
        """Raise ``InvalidCall`` for what cannot come back to the gate, also if it was added since
        ``guard``."""
        coverage = self.coverage()
        if self._run_config is not None and self._run_config.support_cfc:
            why = "it runs the tools of a live session, whose replies are not stored"
            coverage.missed(self.agent.name, "run config", "support_cfc", why)
        for agent in _agents_below(self.agent):
            _list_agent(coverage, agent)
        coverage.check()

    async def begin(self, input: Any, thread: str) -> Any:
        self._check()
        log = await self.open_log(thread)
        await log.begin(_content(input))
        return await self.continue_turn(log)

    async def continue_turn(self, log: TurnLog) -> Any:
        """Run the turn from its beginning, with everything that is stored of it."""
        if log.input is None:
            raise InvalidCall(f"thread {log.thread!r} has no input to continue with: run it first")
        self._check()
        turn = Turn(log)
        user = log.calls.requester or "user"
        try:
            with context_value(current_turn, turn):
                events, added = await self._run_adk(log.input, user, log.thread, log.history, turn)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # ADK may have made another one of the turn's own
            if turn.stop is None:
                raise
        if turn.stop is not None:
            raise turn.stop from None
        self.keep_raw(log.calls.run, events)
        await turn.close()
        output = self._output(events)
        await log.end_turn(self.dump_output(output), self.output_types.name_of(output), added)
        return output

    async def _run_adk(
        self,
        input: types.Content,
        user: str,
        session_id: str,
        history: Sequence[Event] = (),
        turn: Turn | None = None,
    ) -> tuple[list[Event], list[Event]]:
        """Run ADK. Return the events that its runner yields, and those that the session has now.

        Events of stored replies are not streamed again.
        """
        emit = listener()
        sessions = InMemorySessionService()
        runner = Runner(app=self._app, session_service=sessions, **self._services)
        session = await sessions.create_session(
            app_name=runner.app_name, user_id=user, session_id=session_id, state=self._state
        )
        for event in history:
            await sessions.append_event(session, event)
        run = runner.run_async(
            user_id=user, session_id=session_id, new_message=input, run_config=self._run_config
        )
        events = []
        async with aclosing(run) as stream:
            async for event in stream:
                if emit is not None and turn is not None and turn.live:
                    emit(event)
                events.append(event)
        stored_session = await sessions.get_session(
            app_name=runner.app_name, user_id=user, session_id=session_id
        )
        assert stored_session is not None
        return events, stored_session.events[len(history) :]

    async def part(self, input: Any, place: CallPlace) -> Any:
        """Run inside a call of another agent, whose body may start from the top again."""
        with context_value(current_part, self), context_value(current_turn, None):
            events, _ = await self._run_adk(_content(input), "user", "part")
        return self._output(events)

    def known_tools(self) -> Iterable[FrameworkTool]:
        for agent in _agents_below(self.agent):
            for tool in _tools_of(agent):
                if isinstance(tool, BaseTool) and tool._get_declaration() and not steers(tool):
                    yield framework_tool(tool)

    @property
    def output_types(self) -> OutputTypes:
        return OutputTypes(_output_type(agent) for agent in _agents_below(self.agent))

    def _output(self, events: list[Event]) -> Any:
        """Return the last answer: text, or an instance of its agent's ``output_schema``."""
        for event in reversed(events):
            text = text_of(event.content)
            if event.is_final_response() and text:
                author = self.agent.find_agent(event.author)
                kind = None if author is None else _output_type(author)
                return text if kind is None else kind.model_validate_json(text)
        return ""


def _content(input: Any) -> types.Content:
    if isinstance(input, types.Content):
        return input
    if not isinstance(input, str):
        raise InvalidCall("pass text, or a Content of google.genai.types", "input")
    return types.Content(role="user", parts=[types.Part(text=input)])


def _output_type(agent: BaseAgent) -> type[BaseModel] | None:
    kind = getattr(agent, "output_schema", None)
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


# -- what an agent declares


def _agents_below(root: BaseAgent) -> Iterator[BaseAgent]:
    """Yield an agent, its sub-agents, and the agents that it uses as tools."""
    agents = [root]
    for agent in agents:
        yield agent
        used = [tool.agent for tool in _tools_of(agent) if isinstance(tool, AgentTool)]
        agents += [each for each in (*agent.sub_agents, *used) if each not in agents]


def _tools_of(agent: BaseAgent) -> Iterator[Any]:
    for tool in getattr(agent, "tools", ()):
        is_adks = isinstance(tool, BaseTool | BaseToolset | BaseAgent)
        yield FunctionTool(tool) if callable(tool) and not is_adks else tool


def _list_agent(coverage: Coverage, agent: BaseAgent) -> None:
    """Add what an agent declares to the table."""
    where = agent.name
    foreign = [each for each in type(agent).__mro__ if each not in _RUN_HERE]
    for kind in foreign:
        if kind.__module__.startswith("google.adk."):
            why = "its tools do not run here, or not as tools of ADK"
            coverage.missed(where, kind.__name__, agent.name, why)
    coverage.gated(where, "agent", where)
    executor = getattr(agent, "code_executor", None)
    if executor is not None:
        coverage.missed(where, *unlisted_executor(executor))
        if isinstance(executor, BuiltInCodeExecutor):
            coverage.hosted(where, "hosted tool", "code_execution")
    list_model(
        coverage,
        where,
        getattr(agent, "model", None),
        getattr(agent, "generate_content_config", None),
    )
    for tool in _tools_of(agent):
        _list_tool(coverage, where, tool)


def _list_tool(coverage: Coverage, where: str, tool: Any) -> None:
    if not isinstance(tool, BaseTool):
        name = getattr(tool, "name", None) or type(tool).__name__
        note = "its tools are gated whenever they are listed"
        coverage.gated(where, type(tool).__name__, name, note)
    elif tool.is_long_running:
        why = "its result comes later and from elsewhere: use a tool that asks with gate.ask(...)"
        coverage.missed(where, "long-running tool", tool.name, why)
    elif isinstance(tool, _PROMPT_ONLY):
        coverage.gated(where, "tool", tool.name, "it only adds to the prompt")
    elif tool._get_declaration() is None:
        coverage.hosted(where, "hosted tool", tool.name)
    else:
        coverage.gated(where, "tool", tool.name)
