"""Middleware of the framework at a gate.

``Gated`` (function middleware) wraps every function: each call has a row, and what runs is what the
row says. ``LogReplies`` (chat middleware) stores each reply before its calls are made, and returns
it again when a run is resumed. Agents inside a call (``SubAgentRun``) get the same two, under the
key of that call.
"""

from __future__ import annotations

import contextvars
import copy
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import agent_framework
from agent_framework import (
    AgentMiddlewareLayer,
    AgentSession,
    ChatContext,
    ChatMiddleware,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    FunctionInvocationContext,
    FunctionInvocationLayer,
    FunctionMiddleware,
    FunctionTool,
    Message,
    MiddlewareFailure,
    RawAgent,
    ResponseStream,
    UserInputRequiredException,
)
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from sayso import codec
from sayso.adapters.agent_framework.messages import (
    MessageLog,
    answers_to,
    approval_request,
    calls_of,
    name_calls,
    stream_messages,
    stream_update,
)
from sayso.adapters.agents import listener
from sayso.adapters.calls import PauseSignal, as_shown, ask_again, cancel_skipped
from sayso.errors import CallFailed, InvalidCall, Paused, SaysoError
from sayso.gate import Gate
from sayso.gate.framework import (
    SUB_AGENT_TERMS,
    FrameworkCall,
    FrameworkThread,
    FrameworkTool,
    Outcome,
    check_validated,
    kept,
)
from sayso.gate.plan import cancel_call
from sayso.gate.scope import open_scopes
from sayso.inbox import Inbox
from sayso.policy import Policy
from sayso.rows import Call, CallStatus
from sayso.sync import call_in_new_thread, context_value, read, run_sync, write
from sayso.types import Json, Terms, Verdict

R = TypeVar("R")

#: The call that an outer ``Gated`` has asked about already.
_asked: contextvars.ContextVar[FunctionInvocationContext | None] = contextvars.ContextVar(
    "sayso_agent_framework_asked", default=None
)


class Gated(FunctionMiddleware):
    """Ask before functions run: local ones, agents as tools, and those of MCP servers.

    The policy decides which calls need approval; where no rule matches,
    ``approval_mode="always_require"`` does. A call that waits becomes the framework's
    ``function_approval_request``, whose properties name our request. An approval that comes back
    only makes the framework call the function again: what counts is the decision on the request. A
    refusal in the framework's form is recorded as a decision by ``by``. The thread is the session,
    or that of the guarded agent or workflow around it.

    Put it last in the middleware list, so that people see what the function would get.
    """

    def __init__(self, gate: Gate, policy: Policy | None = None, *, by: str = "user") -> None:
        _remember_written_arguments()
        self.gate = gate
        self.policy = policy
        self.by = by
        #: Whether a call waits for a decision, whatever other middleware makes of it.
        self.waits = False

    def prepare(self, options: Mapping[str, Any] | None, *, bodiless: bool = True) -> None:
        """Let the framework call functions that it would stop at: the gate asks about them."""
        tools: Any = options.get("tools") if options else None
        for index, tool in enumerate(tools if isinstance(tools, list) else ()):
            if not isinstance(tool, FunctionTool):
                continue
            always = tool.approval_mode == "always_require" and not tool.declaration_only
            if always or (bodiless and tool.declaration_only):
                tools[index] = _stand_in(tool)

    async def process(
        self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]
    ) -> None:
        if _asked.get() is context:
            await call_next()  # an outer Gated has asked already
            return
        with context_value(_asked, context):
            await self._process(context, call_next)

    async def _process(
        self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]
    ) -> None:
        sub_agent = current_sub_agent(self.gate)
        if context.session is None and sub_agent is None:
            raise MiddlewareFailure(
                f"{context.function.name} was not run: the gate needs to know the conversation. "
                "Run the agent with session=agent.create_session()"
            )
        thread, prefix = self._thread_and_prefix(context.session, sub_agent)
        call = _Call(self, thread, prefix, context, call_next)
        try:
            context.result = as_contents(await call.outcome_for_framework())
            if call.waits:
                self.waits = True
                if sub_agent is not None:
                    sub_agent.waits = True
                # Raised, so that no other middleware takes it for the function's result.
                raise UserInputRequiredException([context.result], "this call needs approval")
        except CallFailed:
            raise  # the framework tells the model
        except SaysoError as error:
            if sub_agent is not None:
                sub_agent.note_error(error)
            # An ordinary error would become a result for the model. This one ends the run.
            raise MiddlewareFailure(str(error)) from error

    def _on_approval_responses(
        self, responses: Sequence[Content], *, session: AgentSession | None
    ) -> None:
        """Record refusals that were given to the framework, which will not make these calls."""
        if session is None:
            return
        thread, prefix = self._thread_and_prefix(session, current_sub_agent(self.gate))
        for response in responses:
            call = response.function_call
            key = f"{prefix}{call.id if call is not None and call.id else response.id}"
            call_in_new_thread(partial(run_sync, record_refusal(thread, key, self.by)))

    def _thread_and_prefix(
        self, session: AgentSession | None, sub_agent: SubAgentRun | None
    ) -> tuple[FrameworkThread, str]:
        """Return the thread of a call, and the prefix of its key.

        The prefix separates the calls of several sessions, and of agents inside a call.
        """
        if sub_agent is not None:
            thread = FrameworkThread(self.gate, sub_agent.calls.thread, policy=self.policy)
            return thread, f"{sub_agent.key}/"
        assert session is not None
        store_id, scopes = self.gate.backend.store_id, open_scopes()
        driven = [s.thread for s in scopes if s.hold and s.driver.backend.store_id == store_id]
        name = driven[-1] if driven else session.session_id
        thread = FrameworkThread(self.gate, name, policy=self.policy)
        return thread, "" if name == session.session_id else f"{session.session_id}/"


@dataclass
class _Call:
    gated: Gated
    thread: FrameworkThread
    prefix: str
    context: FunctionInvocationContext
    next: Callable[[], Awaitable[None]]
    waits: bool = False
    #: Raised by the function itself to ask for input.
    _wants: UserInputRequiredException | None = None

    def __post_init__(self) -> None:
        self.tool: FunctionTool = self.context.function
        self.call_id = str(self.context.metadata["call_id"])
        prepared = _prepared.get()
        current = prepared is not None and prepared.values is self.context.arguments
        self._prepared = prepared if current else None
        arguments = self.context.arguments if prepared is None or not current else prepared.written
        #: The arguments as the model wrote them.
        self._written: dict[str, Json] = to_jsonable_python(arguments, by_alias=True)

    @property
    def occurrence(self) -> str:
        """The id of the call. Providers repeat theirs, so the framework numbers occurrences."""
        return str(self.context.metadata.get("function_call_occurrence_id") or self.call_id)

    @property
    def id(self) -> str:
        """The key of its row."""
        return f"{self.prefix}{self.occurrence}"

    async def outcome_for_framework(self) -> Any:
        """Return what the framework gets: a result, text for the model, or an approval request."""
        await self._check_edit()
        call = FrameworkCall(
            id=self.id,
            tool=self._framework_tool(),
            args=self._written,
            run=self._run,
            dump=dump_result,
            load=load_result,
            passed=(self.tool.name, self.call_id),
        )
        try:
            outcome = await self.thread.outcome(call)
        except PauseSignal as failure:
            raise failure.cause from None
        except Paused:
            if self.thread.driven and "approval_response" in self.context.metadata:
                raise SaysoError(
                    f"{self.tool.name} was approved by middleware of the agent (such as "
                    "ToolApprovalMiddleware), not by a person: remove that middleware, and allow "
                    "the call in the policy instead"
                ) from None
            self.waits = True
            return await self._pause()
        return framework_result(outcome)

    def _framework_tool(self) -> FrameworkTool:
        tool = framework_tool(self.tool)
        return tool if tool.normalize is None else replace(tool, normalize=self._normalize)

    def _normalize(self, args: dict[str, Json]) -> dict[str, Json]:
        if self._prepared is not None and args == self._written:
            return _shown(self.tool, self._prepared.values)
        return normalized_arguments(self.tool, args)

    async def _check_edit(self) -> None:
        """Ask people again, not the model, if the function does not accept an edit."""
        row, tool = await self.thread.find(self.id), self._framework_tool()
        if row is None or row.original is None or row.status is not CallStatus.READY:
            return
        try:
            if tool.normalize is not None:
                tool.normalize(tool.framework_args(codec.loads(row.args_to_run)))
        except InvalidCall as error:
            reason = f"the function does not accept the edit: {error}"
            await ask_again(self.thread, row, reason)

    async def _run(self, args: dict[str, Json]) -> Any:
        if _model_of(self.tool) is not None:
            check_validated(self._normalize(args))
        try:
            if "approval_response" in self.context.metadata:
                return await self.tool.invoke(
                    arguments=args, context=self._fresh_context(args), tool_call_id=self.call_id
                )
            self._pass(args)
            await self.next()
        except UserInputRequiredException as wants:
            self._wants = wants
            raise Paused(self.thread.run) from None
        return self.context.result

    def _pass(self, args: dict[str, Json]) -> None:
        """Give the function its arguments, which inner middleware must not change."""
        if self._prepared is not None and args == self._written:
            with suppress(MiddlewareFailure):  # values of some types cannot be pinned
                pin_arguments(self.context)
                return
        self.context.arguments = args  # which the framework validates
        pin_arguments(self.context)

    def _fresh_context(self, args: dict[str, Json]) -> FunctionInvocationContext:
        """Return a new context for the call.

        The framework compares the original one with what *it* approved, and would ask again about
        an edit that a person made.
        """
        context = self.context
        return FunctionInvocationContext(
            function=self.tool,
            arguments=args,
            session=context.session,
            kwargs=context.kwargs,
            tools=context.tools,
            parent_service_session_state_keys=context.parent_service_session_state_keys,
        )

    async def _pause(self) -> Content:
        row = await self._row()
        if self._wants is not None and row.status is CallStatus.READY:
            terms = replace(row.terms, verdict=Verdict.ASK, allowed=NO_BODY)
            reason = f"{row.tool} asks for input: {self._wants}"
            await ask_again(self.thread, row, reason, terms)
            row = await self._row()
        request = row.id
        if row.status is CallStatus.READY:  # its body asked something
            requests = await self.thread.waiting([self.id])
            request = requests[0].id if requests else request
        call = Content.from_function_call(
            call_id=self.call_id, name=row.tool, arguments=row.args_to_run, id=self.occurrence
        )
        about = {"request": request, "digest": row.digest, "thread": row.thread}
        return approval_request(call, about)

    async def _row(self) -> Call:
        row = await self.thread.find(self.id)
        assert row is not None
        return row


def as_contents(result: Any) -> Any:
    """Return text as the framework's functions return it."""
    return [Content.from_text(result)] if isinstance(result, str) else result


def framework_result(outcome: Outcome) -> Any:
    """Return a result or the text for the model. Raises ``CallFailed`` if the function failed."""
    row = outcome.call
    given_up = row is not None and row.decision is not None and row.decision.type == "reject"
    refused = given_up or outcome.refused
    if row is not None and row.status is CallStatus.FAILED and not refused:
        raise CallFailed(outcome.text)
    if not outcome.ok:
        return outcome.text
    if not outcome.notice:
        return outcome.value
    items = outcome.value if isinstance(outcome.value, list) else []
    if any(isinstance(item, Content) and item.type != "text" for item in items):
        return [Content.from_text(outcome.notice), *items]
    return outcome.text


# -- agents inside a call


@dataclass
class SubAgentRun:
    """The run of an agent, or of a client with functions, inside one call of another agent.

    Its calls go through the same gate, under the key of that call, and its model's replies are
    stored too. When the call is made again after a pause, the agent restarts from the beginning,
    and what it said and did comes from the store.
    """

    calls: FrameworkThread
    #: The prefix of the keys of the agent's own calls.
    key: str
    gated: Gated
    #: Whether something in it waits for a decision.
    waits: bool = False
    _error: SaysoError | None = None

    def __post_init__(self) -> None:
        #: What the agent's client has to call.
        self.middleware = [_StoreReplies(self), self.gated]

    def note_error(self, error: SaysoError) -> None:
        """Note an error at the gate, which must end the whole run."""
        self._error = self._error or error

    async def run(self, step: Callable[[], Awaitable[R]]) -> R:
        """Run the agent. Raises ``Paused`` if something in it waits, or failed at the gate."""
        try:
            with context_value(sub_agent_here, self), self.calls.scope(f"{self.key}/").inside():
                response = await step()
        except Exception:
            # The framework turns a pause inside the agent into an error.
            self._raise_pause()
            raise
        self._raise_pause()
        return response

    def _raise_pause(self) -> None:
        if self._error is not None:
            raise PauseSignal(self.calls.run, self._error) from None
        if self.waits:
            raise Paused(self.calls.run) from None


#: The agent inside a call that this code runs.
sub_agent_here: contextvars.ContextVar[SubAgentRun | None] = contextvars.ContextVar(
    "sayso_agent_framework_sub_agent", default=None
)


def current_sub_agent(gate: Gate) -> SubAgentRun | None:
    """Return the agent that this code runs inside a call, if the call is in the gate's store."""
    current = sub_agent_here.get()
    same = current is not None and current.calls.store.incarnation == gate.store.incarnation
    return current if same else None


class _StoreReplies(ChatMiddleware):
    """Store each reply of the agent's model before its calls are made, and return it later."""

    def __init__(self, sub_agent: SubAgentRun) -> None:
        self._sub_agent = sub_agent
        self._replies = 0
        #: The calls of the last reply.
        self._last_calls: list[Content] = []

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        self._sub_agent.gated.prepare(context.options)
        try:
            await self._reply(context, call_next)
        except SaysoError as error:
            self._sub_agent.note_error(error)
            raise

    async def _reply(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        calls, key = self._sub_agent.calls, self._sub_agent.key
        if self._sub_agent.waits:  # other middleware took the request for a result
            raise Paused(calls.run)
        results = answers_to(self._last_calls, context.messages)
        answered = [f"{key}/{c.id or ''}" for message in results for c in message.contents]
        await cancel_skipped(calls, answered)

        async def step() -> Json:
            await call_next()
            reply = context.result
            assert isinstance(reply, ChatResponse)
            name_calls(reply.messages)
            return reply.to_dict()

        self._replies += 1
        stored = await kept(await calls.open(), f"{key}/reply/{self._replies}", step)
        context.result = ChatResponse.from_dict(stored)
        self._last_calls = calls_of(context.result.messages)


def check_layers(agent: RawAgent[Any]) -> None:
    """Raise ``SaysoError`` for an agent that calls no middleware."""
    client = agent.client
    layers = isinstance(client, ChatMiddlewareLayer) and isinstance(client, FunctionInvocationLayer)
    if not isinstance(agent, AgentMiddlewareLayer) or not layers:
        raise SaysoError(
            "this agent or its client calls no middleware, so it cannot be guarded: use "
            "agent_framework.Agent with a client that has FunctionInvocationLayer and "
            "ChatMiddlewareLayer"
        )


# -- replies


class LogReplies(ChatMiddleware):
    """Store each reply with calls, for one run of an agent.

    A resumed run starts at the last stored reply: the model is not called for it again, and every
    call in it finds its row.
    """

    def __init__(self, log: MessageLog, added: list[Any], gated: Gated) -> None:
        self.log = log
        self.gated = gated
        #: Functions that were added to this thread's agent while it ran.
        self.added = added
        self._tools: list[Any] = []
        self._given: set[str] = set()
        #: The stored reply, until the framework has got it.
        self._again = log.open
        #: What was said since the last reply that was stored.
        self.unsaved: list[Message] = []
        self._last_calls = log.open_calls

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        self._restore_added(context.options)
        self.gated.prepare(context.options)
        if self._again is not None:
            self._check_added(context.options)
            context.result, self._again = self._again, None
            return
        if self.gated.waits:  # other middleware took the request for a result
            await self.log.save_session()
            raise Paused(self.log.calls.run)
        results = answers_to(self._last_calls, context.messages)
        await self.log.cancel_answered([c for message in results for c in message.contents])
        stream_messages(results)
        reply = await self._reply(context, call_next)
        self._last_calls = name_calls(reply.messages)
        self.unsaved += results
        contents = [content for message in reply.messages for content in message.contents]
        hosted = any(content.type == "function_approval_request" for content in contents)
        if self._last_calls or hosted:
            await self.log.reply(self.unsaved, reply)
            self.unsaved = []
        else:
            self.unsaved = [*self.unsaved, *reply.messages]

    async def _reply(
        self, context: ChatContext, call_next: Callable[[], Awaitable[None]]
    ) -> ChatResponse[Any]:
        """Ask the model, and stream its reply if the run is streamed."""
        context.stream = listener() is not None
        await call_next()
        if isinstance(context.result, ResponseStream):
            async for update in context.result:
                stream_update(update)
            context.result = await context.result.get_final_response()
        context.stream = False
        assert isinstance(context.result, ChatResponse)
        return context.result

    def _restore_added(self, options: Any) -> None:
        """Add functions that were added before a pause, and note those that are added now."""
        tools = options.get("tools") if options else None
        if not isinstance(tools, list):
            return
        if tools is not self._tools:
            self._tools, self._given = tools, {_name(tool) for tool in tools}
            tools.extend(tool for tool in self.added if _name(tool) not in self._given)
        else:
            self.added[:] = [tool for tool in tools if _name(tool) not in self._given]
            self.log.added = [_name(tool) for tool in self.added]

    def _check_added(self, options: Any) -> None:
        """Raise before the framework tells the model that a function does not exist, so that its
        requests stay open."""
        have = {_name(tool) for tool in (options or {}).get("tools") or ()}
        gone = [c.name for c in self._last_calls if c.name in self.log.added and c.name not in have]
        if gone:
            error = SaysoError(
                f"{gone[0]} was added by another function while the agent ran, and this process "
                "does not have it: resume in the process that added it, or add it to the agent "
                "itself or in a context provider; until then its call waits"
            )
            raise MiddlewareFailure(str(error)) from error


def _name(tool: Any) -> str:
    return str(getattr(tool, "name", ""))


# -- functions as the gate and the framework see them


#: Set on the stand-in of a tool that the framework itself would stop at.
NEEDS_APPROVAL, BODILESS = "_sayso_needs_approval", "_sayso_bodiless"
#: The possible decisions about a function without a body.
NO_BODY = ("respond", "reject")
#: The function that ``as_tool()`` makes.
_AS_TOOL = "BaseAgent.as_tool.<locals>._agent_wrapper"


def framework_tool(tool: FunctionTool) -> FrameworkTool:
    """Describe a function to the gate, under the terms that it states itself."""
    bodiless = tool.declaration_only or getattr(tool, BODILESS, False)
    always = tool.approval_mode == "always_require" or getattr(tool, NEEDS_APPROVAL, False)
    described = FrameworkTool(
        name=tool.name,
        description=tool.description or "",
        parameters=tool.parameters(),
        needs_approval=bodiless or always,
        own=SUB_AGENT_TERMS if _runs_agent(tool) else Terms(),
        decisions=NO_BODY if bodiless else None,
    )
    if _model_of(tool) is None:
        return described
    return replace(described, normalize=partial(normalized_arguments, tool))


def _model_of(tool: FunctionTool) -> type[BaseModel] | None:
    """Return the model with which the framework validates the arguments of a function."""
    return None if tool._schema_supplied else tool.input_model


def normalized_arguments(tool: FunctionTool, args: dict[str, Json]) -> dict[str, Json]:
    """Return what the framework makes of arguments. Raises ``InvalidCall``."""
    try:
        return _shown(tool, tool._prepare_arguments(args))
    except TypeError as error:
        raise InvalidCall(str(error)) from None


def _shown(tool: FunctionTool, values: Mapping[str, Any]) -> dict[str, Json]:
    model = _model_of(tool)
    assert model is not None
    fields = model.model_fields.items()
    defaults = {name: field.get_default() for name, field in fields if not field.is_required()}
    return as_shown(model, {**defaults, **values})


def _runs_agent(tool: FunctionTool) -> bool:
    """Return whether a tool was made with ``as_tool()``."""
    function = None if tool.func is None else inspect.unwrap(tool.func)
    return getattr(function, "__qualname__", "") == _AS_TOOL


class _PreparedArguments(NamedTuple):
    """What the framework made of the arguments that a model wrote, before any middleware."""

    written: Any
    values: dict[str, Any]


_prepared: contextvars.ContextVar[_PreparedArguments | None] = contextvars.ContextVar(
    "sayso_agent_framework_prepared", default=None
)


@functools.cache
def _remember_written_arguments() -> None:
    """Keep what the model wrote: middleware gets only what the framework made of it."""
    prepare = FunctionTool._prepare_arguments

    @functools.wraps(prepare)
    def prepare_arguments(self: FunctionTool, arguments: Any) -> dict[str, Any]:
        values = prepare(self, arguments)
        _prepared.set(_PreparedArguments(arguments, values))
        return values

    FunctionTool._prepare_arguments = prepare_arguments  # type: ignore[method-assign]


def pin_arguments(context: FunctionInvocationContext) -> None:
    """Make the framework refuse to run the function with other arguments than these.

    It does so for its own security middleware, through private names. In a release without them,
    only the order of the middleware protects the arguments.
    """
    own = getattr(agent_framework, "_tools", None)
    key = getattr(own, "_SECURITY_ARGUMENTS_SNAPSHOT_CONTEXT_KEY", None)
    token = getattr(own, "_argument_authority_token", None)
    if key is not None and token is not None:
        context.metadata[key] = token(context.arguments, boundary="gate")


def _stand_in(tool: FunctionTool) -> FunctionTool:
    stand_in = copy.copy(tool)
    stand_in.approval_mode = "never_require"
    if tool.declaration_only:
        setattr(stand_in, BODILESS, True)
        stand_in.func = _nothing
    else:
        setattr(stand_in, NEEDS_APPROVAL, True)
        # The tool itself keeps the counters.
        stand_in.invoke = tool.invoke  # type: ignore[method-assign]
    return stand_in


def _nothing() -> None:
    raise InvalidCall("this function has no body: a person must give its result")


# -- results


_KEY = "contents"


def dump_result(value: Any) -> Json:
    """Return a result as JSON: text unchanged, other contents as the framework writes them."""
    if isinstance(value, list) and value and all(isinstance(item, Content) for item in value):
        if len(value) == 1 and value[0].type == "text" and not value[0].annotations:
            return value[0].text or ""
        return {_KEY: [item.to_dict() for item in value]}
    stored = to_jsonable_python(value, fallback=str)
    return {_KEY: [stored]} if _is_contents(stored) else stored


def load_result(stored: Json) -> Any:
    """Return a stored result as the framework expects it."""
    if not _is_contents(stored):
        return stored
    items = stored[_KEY]
    if all(isinstance(item, dict) and "type" in item for item in items):
        return [Content.from_dict(item) for item in items]
    return items[0]


def _is_contents(stored: Json) -> bool:
    return isinstance(stored, dict) and list(stored) == [_KEY]


# -- refusals in the framework's own form


CHANNEL = "agent-framework"


async def record_refusal(calls: FrameworkThread, key: str, by: str) -> None:
    """Record a refusal that was given to the framework: of a call, and of what it asked."""
    for request in await calls.waiting([key]):
        if request.kind == "in_doubt":
            continue  # it may have run, which a refusal does not settle
        try:
            await Inbox(calls.store).decide(request.id, request.reject(), by=by, channel=CHANNEL)
        except SaysoError:  # `by` may not decide, but the framework continues without the call
            await _call_off(calls, await read(calls.store, calls.store.call, request.id), by)
    await _call_off(calls, await calls.find(key), by)


async def _call_off(calls: FrameworkThread, row: Call | None, by: str) -> None:
    if row is not None and row.status in (CallStatus.ASKED, CallStatus.READY):
        await write(calls.store, cancel_call(row, f"{by} refused it in the framework"))
