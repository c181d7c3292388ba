"""The SDK's function tools at a gate: ``needs_approval`` asks, and the stored call runs."""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from agents import Agent, FunctionTool, RunContextWrapper
from agents.agent_tool_state import get_agent_tool_state_scope, peek_agent_tool_run_result
from agents.function_schema import function_schema
from agents.tool import maybe_invoke_function_tool_failure_error_function as told_by_the_sdk
from agents.tool_context import ToolContext
from pydantic import BaseModel, ValidationError

from sayso import codec
from sayso.adapters.openai_agents import guardrails, settling, values
from sayso.adapters.openai_agents.drive import Drive, the_drive
from sayso.adapters.openai_agents.values import parsed
from sayso.errors import InvalidCall, Paused
from sayso.gate import outcomes
from sayso.gate.foreign import ForeignCall, ForeignTool, Outcome
from sayso.gate.foreign_tool import SUB_AGENT_TERMS
from sayso.twin import look
from sayso.types import Json, Terms

Invoke = Callable[[ToolContext[Any], str], Awaitable[Any]]


def gated(tool: FunctionTool, agent: Agent[Any]) -> FunctionTool:
    """The same tool, of this agent, behind the gate."""
    copied = copy.copy(tool)
    made = Gated(copied, agent, _bare(tool).on_invoke_tool)
    copied.needs_approval = made.asks
    copied.on_invoke_tool = made.invoke
    copied.tool_input_guardrails = guardrails.of_what_runs(tool)
    return copied


def gated_of(tool: Any) -> Gated | None:
    """What stands in front of a tool, if it is one of ours."""
    made = getattr(getattr(tool, "on_invoke_tool", None), "__self__", None)
    return made if isinstance(made, Gated) else None


def faces_of(agent: Agent[Any]) -> list[ForeignTool]:
    """How the gate knows the tools of an agent, before a call says more of them."""
    found = [gated_of(tool) for tool in agent.tools]
    return [made.face for made in found if made is not None]


class Gated:
    """One tool of one agent: how it is shown, asked about and run."""

    def __init__(self, tool: FunctionTool, agent: Agent[Any], run: Invoke) -> None:
        self.tool = tool
        self.agent = agent
        self.needs_approval = tool.needs_approval
        #: An agent that is a tool: it has no effect of its own, and its calls have rows.
        self.inner: Agent[Any] | None = tool._agent_instance if tool._is_agent_tool else None
        self._run = run
        self._model = _arguments(tool)

    # -- what people are shown

    @cached_property
    def _faces(self) -> dict[bool, ForeignTool]:
        return {needed: self._face(needed) for needed in (False, True)}

    @property
    def face(self) -> ForeignTool:
        """The tool with its own ``needs_approval``, which may have to see a call first."""
        needed = self.needs_approval
        if isinstance(needed, bool):
            return self._faces[needed]
        return replace(self._faces[True], needs_approval=lambda _: True)

    def _face(self, needed: bool) -> ForeignTool:
        tool = self.tool
        return ForeignTool(
            name=tool.qualified_name,
            description=tool.description,
            parameters=_with_defaults(tool.params_json_schema, self._model),
            needs_approval=needed,
            own=Terms() if self.inner is None else SUB_AGENT_TERMS,
            read=None if self._model is None else self._read,
        )

    def _read(self, args: dict[str, Json]) -> Mapping[str, Json]:
        """The arguments as the SDK reads them, with every default."""
        assert self._model is not None
        try:
            read = self._model.model_validate(args)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            path = codec.path_text(first["loc"])
            raise InvalidCall(f"{path or 'value'}: {first['msg']}", path) from None
        return read.model_dump(mode="json", by_alias=True)

    def simply(self, drive: Drive, key: str, arguments: str) -> ForeignCall | None:
        """The call, where nobody's code has to say first whether it needs a person."""
        if not isinstance(self.needs_approval, bool):
            return None
        try:
            return self._call(drive, key, self._faces[self.needs_approval], parsed(arguments))
        except InvalidCall:
            return None  # the model is told when it is invoked

    def _call(
        self, drive: Drive, key: str, face: ForeignTool, args: Mapping[str, Json]
    ) -> ForeignCall:
        drive.judged.add(key)
        return ForeignCall(id=key, tool=face, args=args, note=drive.notes.get(drive.path, ""))

    async def _judged(
        self, context: RunContextWrapper[Any], id: str, args: Mapping[str, Json]
    ) -> ForeignTool:
        """The tool with what its own ``needs_approval`` says of these arguments, defaults in."""
        needed = self.needs_approval
        if not isinstance(needed, bool):
            try:
                whole = codec.loads(self._faces[True].intake(args))
                said: Any = needed(context, whole, id)
                said = await said if inspect.isawaitable(said) else said
            except Exception:
                said = True  # a rule that breaks asks
            needed = said is not False  # and so does one that returns no boolean
        return self._faces[needed]

    # -- what the SDK calls

    async def asks(self, context: RunContextWrapper[Any], args: dict[str, Any], id: str) -> bool:
        """``needs_approval``: whether the call waits for people, now that they were asked."""
        drive = the_drive(self.tool.name)
        key = drive.key(self.agent, id)
        with drive.watched():
            await self._asked(drive, key, context, args, id)
            waits = await look(drive.calls.store, drive.waits, key)
        if waits:
            drive.waits_in.add(drive.path)
        return waits

    async def _asked(
        self,
        drive: Drive,
        key: str,
        context: RunContextWrapper[Any],
        args: dict[str, Any],
        id: str,
    ) -> None:
        if key not in drive.judged and await look(drive.calls.store, drive.row, key) is None:
            face = await self._judged(context, id, args)
            await drive.calls.ask([self._call(drive, key, face, args)])

    async def invoke(self, context: ToolContext[Any], arguments: str) -> Any:
        """``on_invoke_tool``: what came of the call, run now or stored from before."""
        drive = the_drive(self.tool.name)
        try:
            args = parsed(arguments)
        except InvalidCall as error:
            return f"The call cannot be read: {error}"
        key = drive.key(self.agent, context.tool_call_id)
        try:
            with drive.watched():
                outcome = await self._outcome(drive, key, context, args)
        except Paused:
            drive.check()
            if self.inner is None or drive.stopped:
                if drive.by_hand:
                    raise
                drive.stopped = True
            return ""  # nobody is shown this
        except asyncio.CancelledError:
            # Most likely a time-out of the SDK's: nobody knows how far the call came, and people
            # are asked before the model goes on.
            drive.stopped = True
            raise
        return _given(outcome)

    async def _outcome(
        self, drive: Drive, key: str, context: ToolContext[Any], args: dict[str, Json]
    ) -> Outcome:
        if drive.by_hand:
            # After "always approve" the SDK does not ask before.
            await self._asked(drive, key, context, args, context.tool_call_id)
            await settling.approved(drive, key)
        row = await look(drive.calls.store, drive.row, key)
        edited = row is not None and row.original is not None
        judged = codec.loads(row.args) if row is not None and edited else args
        face = await self._judged(context, context.tool_call_id, judged)
        raised: list[Exception] = []
        call = replace(
            self._call(drive, key, face, args),
            run=lambda stored: self._effect(drive, key, context, stored, raised),
            dump=self._dump,
        )
        try:
            return await drive.calls.outcome(call)
        except Exception as error:
            # Recorded as what it is; what the model is told of it is up to the tool.
            told = await self._told(context, error) if error in raised else None
            if told is None:
                raise
            row = await look(drive.calls.store, drive.row, key)
            notice = "" if row is None or row.original is None else outcomes.what_ran(row)
            return Outcome(ok=False, value=None, text=f"{notice} {told}".strip(), call=row)

    async def _told(self, context: ToolContext[Any], error: Exception) -> str | None:
        """What the tool's ``failure_error_function`` says; nothing if the error ends the run."""
        return await told_by_the_sdk(function_tool=self.tool, context=context, error=error)

    async def _effect(
        self,
        drive: Drive,
        key: str,
        context: ToolContext[Any],
        args: dict[str, Json],
        raised: list[Exception],
    ) -> Any:
        text = json.dumps(args)
        if self.inner is None:
            try:
                with drive.inside(key):  # an agent that the tool runs is not the one around it
                    value = await self._run(guardrails.with_arguments(context, text), text)
            except Exception as error:
                if error is drive.error:
                    drive.error = None  # told to the model, like any error of a tool
                raised.append(error)
                raise
            if f"{key}/" in drive.waits_in and not drive.by_hand:
                raise Paused(drive.calls.run, ())
            return value
        with drive.inside(key):
            value = await self._run(context, text)
        if drive.error is not None or _waits_inside(context):
            raise Paused(drive.calls.run, ())
        return value

    def _dump(self, value: Any) -> Any:
        return value if self.tool.output_json_schema is not None else values.dump(value)


def _bare(tool: FunctionTool) -> FunctionTool:
    """The tool with its errors as they are: the SDK would give us a text in place of each."""
    bare = copy.copy(tool)
    if not tool._is_agent_tool:
        bare._failure_error_function, bare._use_default_failure_error_function = None, False
    return bare


def _arguments(tool: FunctionTool) -> type[BaseModel] | None:
    """How a decorated function reads its arguments; nothing for tools made otherwise."""
    try:
        function = tool.__wrapped__
    except AttributeError:
        return None
    made = function_schema(function, strict_json_schema=tool.strict_json_schema)
    return made.params_pydantic_model


def _with_defaults(rules: Mapping[str, Any], model: type[BaseModel] | None) -> Mapping[str, Any]:
    """A strict schema says nothing of an argument that is None where it is left out."""
    known = rules.get("properties", {})
    fields = {} if model is None else model.model_fields
    unsaid = {
        name: {**known[name], "default": None}
        for name, field in fields.items()
        if field.default is None and name in known and "default" not in known[name]
    }
    return {**rules, "properties": {**known, **unsaid}} if unsaid else rules


def _waits_inside(context: ToolContext[Any]) -> bool:
    """Whether an agent that is a tool has stopped in its turn; the SDK looks at the same place."""
    scope = get_agent_tool_state_scope(context)
    assert context.tool_call is not None
    result = peek_agent_tool_run_result(context.tool_call, scope_id=scope)
    return bool(getattr(result, "interruptions", None))


def _given(outcome: Outcome) -> Any:
    if not outcome.ok or outcome.by_person:
        return outcome.text
    return values.with_notice(outcome) if outcome.notice else outcome.value
