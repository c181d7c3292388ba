"""Run and resume an agent of the framework by its thread."""

from __future__ import annotations

import copy
import inspect
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace
from typing import Any, overload

from agent_framework import (
    AgentResponse,
    AgentResponseUpdate,
    AgentSession,
    BaseAgent,
    Content,
    FunctionTool,
    HistoryProvider,
    InMemoryHistoryProvider,
    Message,
    MiddlewareFailure,
    RawAgent,
    ResponseStream,
    SupportsAgentRun,
    Workflow,
    WorkflowAgent,
    normalize_messages,
)

from sayso.adapters.agent_framework.choke_points import list_agent
from sayso.adapters.agent_framework.messages import (
    RESULT,
    MessageLog,
    Result,
    decision_of,
    stream_messages,
)
from sayso.adapters.agent_framework.middleware import (
    CHANNEL,
    Gated,
    LogReplies,
    SubAgentRun,
    check_layers,
    framework_tool,
)
from sayso.adapters.agent_framework.workflow import Checkpoints, GuardedWorkflow
from sayso.adapters.agents import Stream, StreamingAgent
from sayso.adapters.calls import hosted_call, settle
from sayso.adapters.conversation import OutputTypes
from sayso.errors import InvalidCall, InvalidDecision, Paused, SaysoError
from sayso.gate import Gate
from sayso.gate.coverage import Coverage
from sayso.gate.framework import (
    CallPlace,
    FrameworkCall,
    FrameworkThread,
    FrameworkTool,
    check_gate,
    place_in_call,
)
from sayso.gate.options import check_taken
from sayso.gate.run_result import RunResult
from sayso.policy import Policy
from sayso.types import Decision, Json, Reject


@overload
def guard(
    agent: SupportsAgentRun,
    gate: Gate,
    policy: Policy | None = None,
    *,
    ungated: Iterable[str] = ...,
    **options: Any,
) -> Guarded: ...
@overload
def guard(
    agent: Workflow | Callable[[], Workflow],
    gate: Gate,
    policy: Policy | None = None,
    *,
    checkpoints: Checkpoints,
    ungated: Iterable[str] = ...,
) -> GuardedWorkflow: ...
def guard(
    agent: Any,
    gate: Gate,
    policy: Policy | None = None,
    *,
    ungated: Iterable[str] = (),
    **options: Any,
) -> Any:
    """Make an agent or a workflow ask through the gate, with all agents that its functions run.

    For an agent, the framework gets ``options`` (``tools``, ``options``,
    ``function_invocation_kwargs``, …) on every run and resume. A workflow needs ``checkpoints``: a
    folder, or a function that returns a storage by name. The workflow is copied for each run; pass
    a function that builds it if executors of your own keep something between runs.

    Raises ``TypeError`` for anything else, and ``InvalidCall`` with a list of what the gate cannot
    reach, such as hosted tools, unless ``ungated`` names it.
    """
    check_gate(gate, policy)
    if isinstance(agent, Workflow) or inspect.isroutine(agent):
        if set(options) != {"checkpoints"}:
            raise TypeError(
                "guard(...) of a workflow takes checkpoints='a folder', where the framework stores "
                "its progress, and no other option"
            )
        return GuardedWorkflow(agent, gate, policy, Coverage(ungated), **options)
    if isinstance(agent, WorkflowAgent):
        raise TypeError(
            "the requests of a workflow get lost in its as_agent(): guard the workflow itself, "
            "with guard(workflow, gate, checkpoints='a folder')"
        )
    if isinstance(agent, SupportsAgentRun):
        check_taken(options, agent.run, "messages", "session", "stream")
        return Guarded(agent, gate, policy, Coverage(ungated), options)
    raise TypeError(
        f"guard(...) takes an agent, a workflow of WorkflowBuilder, or a function that builds one, "
        f"not {type(agent).__name__}"
    )


# -- agents


@dataclass(frozen=True, slots=True)
class RunInput:
    """What the user said, and the extra arguments for the functions of the run."""

    messages: list[Message]
    arguments: dict[str, Json]


class Guarded(StreamingAgent[MessageLog, Stream]):
    """An agent that servers and workers can run and resume; ``guard`` returns one."""

    channel = CHANNEL
    result_type = Result
    log_type = MessageLog

    def __init__(
        self,
        agent: Any,
        gate: Gate,
        policy: Policy | None,
        coverage: Coverage,
        options: dict[str, Any],
    ) -> None:
        super().__init__(gate, policy, coverage)
        if isinstance(agent, RawAgent):
            check_layers(agent)
            _check_history(agent)
        self._agent = agent
        self.options = options
        list_agent(coverage, agent, getattr(agent, "name", None) or gate.agent, options)
        coverage.check()
        #: The functions that were added to a thread's agent while it ran in this process.
        self._added: dict[str, list[Any]] = {}

    async def run(
        self,
        input: Any,
        *,
        thread: str | None = None,
        requester: str = "",
        arguments: Mapping[str, Json] | None = None,
    ) -> RunResult:
        """Run the agent. ``status`` is ``"paused"`` if a request needs a decision first.

        ``arguments`` are for the functions of this run (``function_invocation_kwargs``), and are
        stored, so that another process can resume it.
        """
        run_input = RunInput(normalize_messages(input), dict(arguments or {}))
        return await super().run(run_input, thread=thread, requester=requester)

    def stream(
        self,
        input: Any,
        *,
        thread: str | None = None,
        requester: str = "",
        arguments: Mapping[str, Json] | None = None,
    ) -> Stream:
        """Run the agent, and stream an ``AgentResponseUpdate`` for each piece of a reply, and for
        each result of a function."""
        return self._stream(
            lambda: self.run(input, thread=thread, requester=requester, arguments=arguments)
        )

    def as_agent(self, *, by: str = "user") -> ApprovalAgent:
        """Return an agent of the framework that asks ``by`` with ``function_approval_request``."""
        name = getattr(self._agent, "name", None) or self.name
        description = getattr(self._agent, "description", None)
        return ApprovalAgent(self, by=by, name=name, description=description)

    async def begin(self, input: Any, thread: str) -> Any:
        log = await self.open_log(thread)
        await log.close_calls()
        await log.say_messages(input.messages, input.arguments)
        return await self.continue_turn(log)

    @property
    def output_types(self) -> OutputTypes:
        response_format = self.response_format
        return OutputTypes([response_format] if isinstance(response_format, type) else ())

    @property
    def response_format(self) -> Any:
        """The type or schema of the answers; None for plain text."""
        own = getattr(self._agent, "default_options", None) or {}
        of_run = self.options.get("options") or {}
        return of_run.get("response_format") or own.get("response_format")

    def with_options(self, options: Mapping[str, Any]) -> Guarded:
        """Return this agent with other chat ``options``, for one run or resume.

        Raises ``InvalidCall`` for anything else, above all tools, which ``guard`` must see.
        """
        chat = dict(options.get("options") or {})
        wrong = [*(name for name in options if name != "options"), *({"tools"} & set(chat))]
        if wrong:
            raise InvalidCall(f"pass {', '.join(wrong)} to guard(...), not to run(...)", wrong[0])
        changed = copy.copy(self)
        changed.options = {
            **self.options,
            "options": {**(self.options.get("options") or {}), **chat},
        }
        return changed

    async def part(self, input: Any, place: CallPlace) -> Any:
        calls = FrameworkThread(self.gate, place.thread, policy=self.policy)
        sub_agent = SubAgentRun(calls, place.key, Gated(self.gate, self.policy))
        options = {
            **self.options,
            "session": self.options.get("session") or AgentSession(),
            "function_invocation_kwargs": self._arguments(input.arguments),
        }
        if isinstance(self._agent, RawAgent):  # a custom agent asks at the gate itself
            own = self.options.get("middleware") or ()
            options["middleware"] = [*own, *sub_agent.middleware]
        response = await sub_agent.run(lambda: self._agent.run(input.messages, **options))
        _check_known(response.user_input_requests, hosted=False)
        return _output(response)

    def known_tools(self) -> Iterable[FrameworkTool]:
        if not isinstance(self._agent, RawAgent):
            return ()
        own, more = self._agent.default_options.get("tools"), self.options.get("tools")
        tool_list = more if isinstance(more, Sequence) else [more]
        # A server lists its tools while it is connected.
        served = [tool for s in self._agent.mcp_tools if s.is_connected for tool in s.functions]
        tools = [*(own or ()), *served, *tool_list]
        return [framework_tool(tool) for tool in tools if isinstance(tool, FunctionTool)]

    async def continue_turn(self, log: MessageLog) -> Any:
        try:
            if isinstance(self._agent, RawAgent):
                response, messages = await self._run_chat_agent(log)
            else:
                response, messages = await self._run_custom_agent(log)
        except MiddlewareFailure as failure:
            if isinstance(failure.__cause__, SaysoError):
                raise failure.__cause__ from None
            raise
        output = _output(response)
        type_name = self.output_types.name_of(output)
        await log.end_with(messages, self.dump_output(output), type_name)
        return output

    async def _run_chat_agent(self, log: MessageLog) -> tuple[AgentResponse[Any], list[Message]]:
        """Run an agent with a model, from its last stored reply."""
        gated = Gated(self.gate, self.policy)
        replies = LogReplies(log, self._added.get(log.thread, []), gated)
        options = {
            **self.options,
            "middleware": [*(self.options.get("middleware") or ()), replies, gated],
            "function_invocation_kwargs": self._arguments(log.arguments),
        }
        input_messages: list[Message] = log.history
        while True:
            response = await self._agent.run(input_messages, session=log.session, **options)
            self.keep_raw(log.calls.run, response)
            if replies.added:
                self._added[log.thread] = replies.added
            waiting = response.user_input_requests
            _check_known(waiting)
            if gated.waits or any(not _is_hosted(content) for content in waiting):
                await log.save_session()
                raise Paused(log.calls.run)
            if not waiting:
                self._added.pop(log.thread, None)
                return response, replies.unsaved
            # The framework passes the decisions to the provider in the next message.
            answers = await _answers(log.calls, waiting)
            replies.unsaved.append(answers)
            input_messages = [answers]

    def _arguments(self, given: Mapping[str, Json]) -> dict[str, Any]:
        return {**(self.options.get("function_invocation_kwargs") or {}), **given}

    async def _run_custom_agent(self, log: MessageLog) -> tuple[AgentResponse[Any], list[Message]]:
        """Run a custom agent from the beginning; what it asked and did comes from the store."""
        with log.calls.scope(f"{log.turn}/").inside():
            try:
                response = await self._agent.run(list(log.prompt), session=log.session)
            except Paused:
                await log.save_session()
                raise
        self.keep_raw(log.calls.run, response)
        stream_messages(response.messages)
        return response, list(response.messages)


class ApprovalAgent(BaseAgent):
    """A guarded agent as an agent of the framework: ``agent.run("…", session=s)``, then
    ``agent.run(Message("user", [answer]), session=s)``.

    Inside a call of another guarded agent it is part of that call, and pauses it.
    """

    def __init__(self, guarded: Guarded, *, by: str, name: str, description: str | None) -> None:
        super().__init__(name=name, description=description)
        self.guarded = guarded
        self.by = by

    def run(
        self,
        messages: Any = None,
        *,
        stream: bool = False,
        session: AgentSession | None = None,
        function_invocation_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Awaitable[AgentResponse[Any]] | ResponseStream[AgentResponseUpdate, AgentResponse[Any]]:
        options = {name: value for name, value in kwargs.items() if value}
        guarded = self.guarded.with_options(options) if options else self.guarded
        thread = None if session is None else session.session_id
        arguments = dict(function_invocation_kwargs or {})
        responses: list[AgentResponse[Any]] = []

        async def run() -> AsyncIterator[AgentResponseUpdate]:
            running = await self._stream(guarded, normalize_messages(messages), thread, arguments)
            said: list[Message] = []
            async for update in running:
                said.append(Message(update.role, update.contents, author_name=update.author_name))
                yield update
            result: Any = running.result
            contents: list[Any] = result.user_input_requests
            answer = result.text or result.error
            streamed = "".join(message.text for message in said if message.role == "assistant")
            if result.status != "paused" and (not said or answer not in streamed):
                contents = [Content.from_text(answer)]  # a client may answer in one piece
            if contents:
                said.append(Message("assistant", contents))
                yield AgentResponseUpdate(contents=contents, role="assistant")
            done = result.status == "done"
            response: AgentResponse[Any] = AgentResponse(
                messages=said,
                response_id=result.run,
                value=result.value if done else None,
                response_format=guarded.response_format if done else None,
            )
            responses.append(response)

        updates = ResponseStream(run(), finalizer=lambda _: responses[0])
        return updates if stream else updates.get_final_response()

    async def _stream(
        self,
        guarded: Guarded,
        given: Sequence[Message],
        thread: str | None,
        arguments: dict[str, Any],
    ) -> Stream:
        """Start a run with what the user said, or resume one with the user's answers."""
        contents = [content for message in given for content in message.contents]
        answers = [c for c in contents if c.type in ("function_approval_response", RESULT)]
        if not answers:
            inside = place_in_call(guarded.gate) is not None
            return guarded.stream(given, thread=None if inside else thread, arguments=arguments)
        if thread is None:
            raise InvalidDecision("an answer needs the session in which the agent asked")
        decisions = [await self._decision(answer, thread) for answer in answers]
        text = " ".join(content.text for content in contents if content.text)
        decisions = _with_reason(decisions, text) if text.strip() else decisions
        return guarded.stream_resume(thread, decisions=decisions, by=self.by)

    async def _decision(self, answer: Content, thread: str) -> Decision:
        name = answer.call_id if answer.type == RESULT else answer.id
        request = await self.guarded.inbox.get(name or "")
        if request.thread != thread:
            raise InvalidDecision(f"{request.id} was not asked in this session")
        return decision_of(answer, request)


def _with_reason(decisions: Sequence[Decision], text: str) -> list[Decision]:
    """Use text beside a plain rejection as its reason.

    Raises ``InvalidDecision`` beside any other answer, where the text would be lost.
    """
    plain = [d for d in decisions if isinstance(d, Reject) and not d.message]
    if not plain:
        raise InvalidDecision(
            "text beside this answer would be lost: send it in its own message, after the run "
            "has continued"
        )
    return [replace(d, message=text) if d in plain else d for d in decisions]


def _is_hosted(content: Content) -> bool:
    call = content.function_call if content.type == "function_approval_request" else None
    return call is not None and bool(call.hosted)


def _check_known(waiting: Sequence[Content], *, hosted: bool = True) -> None:
    """Raise ``SaysoError`` for a request of the framework that cannot be decided at a gate."""
    for content in waiting:
        ours = hosted and _is_hosted(content)
        if not ours and "sayso" not in content.additional_properties:
            raise SaysoError(
                f"the agent asks for {content.type}, which cannot be decided at a gate: run the "
                "agent without a gate until that is settled"
            )


def _output(response: AgentResponse[Any]) -> Any:
    value = response.value
    return response.text if value is None else value


def _check_history(agent: RawAgent[Any]) -> None:
    for provider in agent.context_providers:
        in_memory = isinstance(provider, InMemoryHistoryProvider)
        if isinstance(provider, HistoryProvider) and provider.load_messages and not in_memory:
            raise SaysoError(
                f"the history provider {provider.source_id!r} would repeat the whole "
                "conversation to the model: a guarded agent keeps it in the gate's store, so "
                "remove the provider, or set load_messages=False"
            )


# -- calls of the provider


async def _answers(calls: FrameworkThread, requests: Sequence[Content]) -> Message:
    """Return the answers to what a provider asks about the calls that it makes itself, such as
    those of hosted MCP servers. Raises ``Paused`` while one waits for a decision."""
    asked_calls = [_call(request) for request in requests]
    outcomes = await settle(calls, asked_calls)
    contents: list[Content] = []
    for request, call in zip(requests, asked_calls, strict=True):
        outcome = outcomes[call.id]
        contents.append(request.to_function_approval_response(outcome.ok))
        if not outcome.ok:
            contents.append(Content.from_text(outcome.text))  # the response has no field for it
    return Message("user", contents)


def _call(request: Content) -> FrameworkCall:
    call = request.function_call
    assert call is not None
    label = call.server_name or call.additional_properties.get("server_label") or "service"
    args = dict(call.parse_arguments() or {})
    return hosted_call(f"hosted:{request.id}", f"{label}.{call.name}", args)
