"""The function middleware: each call of a function is a row, and what runs is what the row says."""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from agent_framework import (
    AgentSession,
    Content,
    FunctionInvocationContext,
    FunctionMiddleware,
    FunctionTool,
    MiddlewareFailure,
    UserInputRequiredException,
)
from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from sayso import codec
from sayso.adapters.agent_framework import below, heard, results
from sayso.adapters.agent_framework.tools import NO_BODY, face_of, seal
from sayso.engine.commands import Reask
from sayso.errors import CallFailed, InvalidCall, Paused, SaysoError
from sayso.gate import Gate
from sayso.gate.foreign import ForeignCall, ForeignThread, ForeignTool, Outcome
from sayso.gate.foreign_tool import SUB_AGENT_TERMS
from sayso.gate.scope import open_scopes
from sayso.policy import Policy
from sayso.rows import Call, CallStatus
from sayso.twin import in_thread, look, run_sync, write
from sayso.types import Json, Terms, Verdict

#: The call that one of us stands around here. Who makes it twice from outside comes by twice.
_asked: contextvars.ContextVar[FunctionInvocationContext | None] = contextvars.ContextVar(
    "sayso_agent_framework_asked", default=None
)


class Gated(FunctionMiddleware):
    """Ask before functions run: local ones, agents as tools, and those of MCP servers.

    The policy says which calls; where no rule does, ``approval_mode="always_require"``. A call that
    waits for people becomes the framework's ``function_approval_request``; its properties name the
    request. An approval that comes back only brings the call here again: what counts is the
    decision that was made about the request. A no in the framework's form is a decision by ``by``.
    The thread is the session, or the guarded agent or workflow around it.

    Put it last among the middleware, so that people see what the function would get.
    """

    def __init__(self, gate: Gate, policy: Policy | None = None, *, by: str = "user") -> None:
        self.gate = gate
        self.policy = policy
        self.by = by
        #: Whether a call that came by here waits for people, whatever others make of it.
        self.waits = False

    async def process(
        self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]
    ) -> None:
        if _asked.get() is context:
            await call_next()  # another one of us stands around this one
            return
        token = _asked.set(context)
        try:
            await self._process(context, call_next)
        finally:
            _asked.reset(token)

    async def _process(
        self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]
    ) -> None:
        if context.session is None:
            raise MiddlewareFailure(
                f"{context.function.name} was not run: a gate needs to know the conversation, so "
                "run the agent with session=agent.create_session()"
            )
        inside = below.around(self.gate)
        made = _Made(self, self._place(context.session.session_id, inside), context, call_next)
        try:
            context.result = await made.settled()
            if inside is not None:
                inside.waits |= made.waits
            if made.waits:
                self.waits = True
                # Raised, so that no other middleware takes it for what the function gave.
                raise UserInputRequiredException([context.result], "people are asked first")
        except CallFailed:
            raise  # the framework tells the model of an error, in its own words
        except SaysoError as error:
            if inside is not None:
                inside.error = inside.error or error
            # An ordinary error would become a result for the model; this one stops the run.
            raise MiddlewareFailure(str(error)) from error

    def _on_approval_responses(
        self, responses: Sequence[Content], *, session: AgentSession | None
    ) -> None:
        """The framework was told no, and will not make these calls."""
        if session is None:
            return
        thread, apart = self._place(session.session_id, below.around(self.gate))
        for response in responses:
            made = response.function_call
            key = f"{apart}{made.id if made is not None and made.id else response.id}"
            in_thread(partial(_write_down, thread, key, self.by))

    def _place(self, session: str, inside: below.Below | None) -> tuple[ForeignThread, str]:
        """The thread of a call, and what keeps it apart from those of others on it."""
        if inside is not None:
            thread = ForeignThread(self.gate, inside.calls.thread, policy=self.policy)
            return thread, f"{inside.key}/"
        around = driven(self.gate)
        thread = ForeignThread(self.gate, around or session, policy=self.policy)
        return thread, "" if around in ("", session) else f"{session}/"


class _Made:
    """One call on its way through the gate."""

    def __init__(
        self,
        gated: Gated,
        place: tuple[ForeignThread, str],
        context: FunctionInvocationContext,
        call_next: Callable[[], Awaitable[None]],
    ) -> None:
        self.gated = gated
        #: What is beside the thread keeps the calls of several sessions, and of agents that are
        #: tools, apart on it.
        self.thread, self._apart_from = place
        self.context = context
        self.tool: FunctionTool = context.function
        self._next = call_next
        #: Whether people are needed before it goes on.
        self.waits = False
        #: Raised in the function itself, which wants to know something of people.
        self._wants: UserInputRequiredException | None = None
        #: What broke at the gate inside an agent that is a tool.
        self._error: SaysoError | None = None

    @property
    def occurrence(self) -> str:
        """The call's own id: providers repeat theirs, and the framework counts occurrences."""
        metadata = self.context.metadata
        return str(metadata.get("function_call_occurrence_id") or metadata["call_id"])

    @property
    def id(self) -> str:
        """What its row is found by."""
        return f"{self._apart_from}{self.occurrence}"

    async def settled(self) -> Any:
        """What the framework is given: a result, words for the model, or a pause."""
        await self._check_edit()
        agent = below.agent_of(self.tool)
        if agent is not None:
            below.wire(agent)
        call = ForeignCall(
            id=self.id,
            tool=self._face(own=None if agent is None else SUB_AGENT_TERMS),
            args=self._args(self.context.arguments),
            run=self._run if agent is None else self._run_agent,
            dump=results.dump,
            load=results.load,
        )
        try:
            outcome = await self.thread.outcome(call)
        except Paused:
            if self._error is not None:
                raise self._error from None
            if self.thread.driven and "approval_response" in self.context.metadata:
                raise SaysoError(
                    f"{self.tool.name} was approved by middleware of the agent (as "
                    "ToolApprovalMiddleware does), and not by people: leave that out, and say in "
                    "the policy what needs nobody"
                ) from None
            self.waits = True
            return await self._pause()
        return _given(outcome)

    # -- what is asked about

    def _face(self, *, own: Terms | None = None) -> ForeignTool:
        face = face_of(self.tool, own=own)
        return replace(face, read=self._read if self.tool.input_model is not None else None)

    def _args(self, arguments: Any) -> dict[str, Json]:
        shown: dict[str, Json] = to_jsonable_python(arguments, by_alias=True)
        return shown

    def _read(self, args: dict[str, Json]) -> Mapping[str, Json]:
        """The arguments as the function reads them, with every default."""
        assert self.tool.input_model is not None
        try:
            read = self.tool.input_model.model_validate_json(codec.dumps(args))
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            path = codec.path_text(first["loc"])
            raise InvalidCall(f"{path or 'value'}: {first['msg']}", path) from None
        return read.model_dump(mode="json", by_alias=True)

    async def _check_edit(self) -> None:
        """An edit that the function does not take goes back to people, and not to the model."""
        row = await look(self.thread.store, self.thread.row, self.id)
        edited = row is not None and row.original is not None and row.status is CallStatus.READY
        if row is None or not edited or self.tool.input_model is None:
            return
        try:
            self._read(self._face().passed(codec.loads(row.args)))
        except InvalidCall as error:
            await self._ask_again(row, f"the function does not take the edit: {error}")

    async def _ask_again(self, row: Call, reason: str, terms: Terms | None = None) -> None:
        command = Reask(thread=row.thread, run=row.run, call=row.id, reason=reason, terms=terms)
        await write(self.thread.store, command)

    # -- what runs

    async def _run_agent(self, args: dict[str, Json]) -> Any:
        inside = below.Below(self.thread, self.id, Gated(self.gated.gate, self.gated.policy))
        try:
            with inside.inside():
                value = await self._called(args)
        except Exception:
            # The framework lets no pause out of the agent, and tells of an error.
            if not inside.waits and inside.error is None:
                raise
        if inside.waits or inside.error is not None:
            self._error = inside.error
            raise Paused(self.thread.run, ())
        return value

    async def _run(self, args: dict[str, Json]) -> Any:
        with below.alone():
            return await self._called(args)

    async def _called(self, args: dict[str, Json]) -> Any:
        try:
            if "approval_response" in self.context.metadata:
                return await self.tool.invoke(arguments=args, context=self._apart(args))
            self.context.arguments = args
            seal(self.context)  # what middleware behind us would make of them, nobody has seen
            await self._next()
        except UserInputRequiredException as wants:
            self._wants = wants
            raise Paused(self.thread.run, ()) from None
        return self.context.result

    def _apart(self, args: dict[str, Json]) -> FunctionInvocationContext:
        """A context of its own: the framework compares the one it gave us with what *it* approved,
        and would ask again about an edit that a person has made."""
        around = self.context
        return FunctionInvocationContext(
            function=self.tool,
            arguments=args,
            session=around.session,
            kwargs=around.kwargs,
            tools=around.tools,
            parent_service_session_state_keys=around.parent_service_session_state_keys,
        )

    async def _pause(self) -> Content:
        row = await self._row()
        if self._wants is not None and row.status is CallStatus.READY:
            terms = replace(row.terms, verdict=Verdict.ASK, allowed=NO_BODY)
            await self._ask_again(row, f"{row.tool} asks for input: {self._wants}", terms)
            row = await self._row()
        request = row.id
        if row.status is CallStatus.READY:  # people are needed for something in its body
            asked = await self.thread.waiting([self.id])
            request = asked[0].id if asked else request
        ids = self.occurrence, str(self.context.metadata["call_id"])
        return _approval_request(row, request, *ids)

    async def _row(self) -> Call:
        row = await look(self.thread.store, self.thread.row, self.id)
        assert row is not None
        return row


def _write_down(thread: ForeignThread, key: str, by: str) -> None:
    run_sync(heard.refused(thread, key, by))


def driven(gate: Gate) -> str:
    """The thread of what a gate drives around here, if anything."""
    place = gate.backend.place
    around = [s.thread for s in open_scopes() if s.hold and s.driver.backend.place == place]
    return around[-1] if around else ""


def _approval_request(row: Call, request: str, id: str, call_id: str) -> Content:
    """The framework's own form of a request: its id is that of the call."""
    made = Content.from_function_call(call_id=call_id, name=row.tool, arguments=row.args, id=id)
    about = {"request": request, "digest": row.digest, "thread": row.thread}
    return Content.from_function_approval_request(
        id=id, function_call=made, additional_properties={"sayso": about}
    )


def _given(outcome: Outcome) -> Any:
    row = outcome.call
    given_up = row is not None and row.decision is not None and row.decision.type == "reject"
    told = given_up or outcome.refused
    if row is not None and row.status is CallStatus.FAILED and not told:
        raise CallFailed(outcome.text)
    if not outcome.ok:
        return outcome.text
    if not outcome.notice:
        return outcome.value
    items = outcome.value if isinstance(outcome.value, list) else []
    if any(isinstance(item, Content) and item.type != "text" for item in items):
        return [Content.from_text(outcome.notice), *items]
    return outcome.text
