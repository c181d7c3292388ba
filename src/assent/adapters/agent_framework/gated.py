"""The function middleware: each call of a function is a row, and what runs is what the row says."""

from __future__ import annotations

import contextvars
import copy
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from agent_framework import (
    Content,
    FunctionInvocationContext,
    FunctionMiddleware,
    FunctionTool,
    MiddlewareFailure,
    UserInputRequiredException,
)
from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from assent import codec
from assent.adapters.agent_framework import results
from assent.engine.commands import Reask
from assent.errors import AssentError, CallFailed, InvalidCall, Paused
from assent.gate import Gate
from assent.gate.foreign import ForeignCall, ForeignThread, ForeignTool, Outcome
from assent.gate.scope import open_scopes
from assent.policy import Policy
from assent.rows import Call, CallStatus
from assent.twin import look, write
from assent.types import Json, Terms, Verdict

#: Set on a tool that stands in for one that the framework itself would stop at.
NEEDS_APPROVAL, BODILESS = "_assent_needs_approval", "_assent_bodiless"
_NO_BODY = ("respond", "reject")
#: The call that one of us stands around here. Who makes it twice from outside comes by twice.
_asked: contextvars.ContextVar[FunctionInvocationContext | None] = contextvars.ContextVar(
    "assent_agent_framework_asked", default=None
)


class Gated(FunctionMiddleware):
    """Ask before functions run: local ones, agents as tools, and those of MCP servers.

    The policy says which calls; where no rule does, ``approval_mode="always_require"``. A call that
    waits for people becomes the framework's ``function_approval_request``; its properties name the
    request. An approval that comes back only brings the call here again: what counts is the
    decision that was made about the request. The thread is the session, or the guarded agent or
    workflow around it.

    Put it last among the middleware, so that people see what the function would get.
    """

    def __init__(self, gate: Gate, policy: Policy | None = None) -> None:
        self.gate = gate
        self.policy = policy

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
        session = context.session.session_id
        around = driven(self.gate)
        thread = ForeignThread(self.gate, around or session, policy=self.policy)
        apart = "" if around in ("", session) else f"{session}/"
        made = _Made(thread, context, call_next, apart)
        try:
            context.result = await made.settled()
        except CallFailed:
            raise  # the framework tells the model of an error, in its own words
        except AssentError as error:
            # An ordinary error would become a result for the model; this one stops the run.
            raise MiddlewareFailure(str(error)) from error


class _Made:
    """One call on its way through the gate."""

    def __init__(
        self,
        thread: ForeignThread,
        context: FunctionInvocationContext,
        call_next: Callable[[], Awaitable[None]],
        apart: str,
    ) -> None:
        self.thread = thread
        self.context = context
        self.tool: FunctionTool = context.function
        self._next = call_next
        #: Keeps the calls of several sessions on one thread apart.
        self._apart_from = apart
        #: Raised in the function itself, which wants to know something of people.
        self._wants: UserInputRequiredException | None = None

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
        call = ForeignCall(
            id=self.id,
            tool=self._face(),
            args=self._args(self.context.arguments),
            run=self._run,
            dump=results.dump,
            load=results.load,
        )
        try:
            outcome = await self.thread.outcome(call)
        except Paused:
            return await self._pause()
        return _given(outcome)

    # -- what is asked about

    def _face(self) -> ForeignTool:
        bodiless = getattr(self.tool, BODILESS, False)
        always = self.tool.approval_mode == "always_require"
        return ForeignTool(
            name=self.tool.name,
            description=self.tool.description or "",
            parameters=self.tool.parameters(),
            needs_approval=bodiless or always or getattr(self.tool, NEEDS_APPROVAL, False),
            read=self._read if self.tool.input_model is not None else None,
            possible=_NO_BODY if bodiless else None,
        )

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
            self._read(codec.loads(row.args))
        except InvalidCall as error:
            await self._ask_again(row, f"the function does not take the edit: {error}")

    async def _ask_again(self, row: Call, reason: str, terms: Terms | None = None) -> None:
        command = Reask(thread=row.thread, run=row.run, call=row.id, reason=reason, terms=terms)
        await write(self.thread.store, command)

    # -- what runs

    async def _run(self, args: dict[str, Json]) -> Any:
        try:
            if "approval_response" in self.context.metadata:
                return await self.tool.invoke(arguments=args, context=self._apart(args))
            self.context.arguments = args
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
            terms = replace(row.terms, verdict=Verdict.ASK, allowed=_NO_BODY)
            await self._ask_again(row, f"{row.tool} asks for input: {self._wants}", terms)
            row = await self._row()
        return approval_request(row, self.occurrence, str(self.context.metadata["call_id"]))

    async def _row(self) -> Call:
        row = await look(self.thread.store, self.thread.row, self.id)
        assert row is not None
        return row


def driven(gate: Gate) -> str:
    """The thread of what a gate drives around here, if anything."""
    store = gate.store.incarnation
    around = [s.thread for s in open_scopes() if s.hold and s.gate.store.incarnation == store]
    return around[-1] if around else ""


def approval_request(row: Call, id: str, call_id: str) -> Content:
    """The framework's own form of a request: its id is that of the call."""
    made = Content.from_function_call(call_id=call_id, name=row.tool, arguments=row.args, id=id)
    about = {"request": row.id, "digest": row.digest, "thread": row.thread}
    return Content.from_function_approval_request(
        id=id, function_call=made, additional_properties={"assent": about}
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


def opened(tool: FunctionTool) -> FunctionTool:
    """The tool as the framework is to see it: one that it calls, so that the gate is asked."""
    stand_in = copy.copy(tool)
    stand_in.approval_mode = "never_require"
    if tool.declaration_only:
        setattr(stand_in, BODILESS, True)
        stand_in.func = _nothing
    else:
        setattr(stand_in, NEEDS_APPROVAL, True)
        # Its counters are those of the tool itself.
        stand_in.invoke = tool.invoke  # type: ignore[method-assign]
    return stand_in


def _nothing() -> None:
    raise InvalidCall("this function has no body: a person gives its result")
