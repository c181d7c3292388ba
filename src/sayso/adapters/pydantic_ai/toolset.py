"""The tools of an agent behind a gate: each call is a row, and what runs is what the row says."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from pydantic import ValidationError
from pydantic_ai import RunContext
from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    SkipToolExecution,
    ToolFailed,
)
from pydantic_ai.tools import ToolDefinition, ToolDenied
from pydantic_ai.toolsets import ToolsetTool, WrapperToolset
from pydantic_core import to_jsonable_python

from sayso import codec
from sayso.adapters.pydantic_ai import results
from sayso.adapters.pydantic_ai.messages import key_in
from sayso.engine.commands import Reask
from sayso.errors import InvalidCall, Paused
from sayso.gate import Gate
from sayso.gate.foreign import ForeignCall, ForeignThread, ForeignTool, Outcome
from sayso.policy import Policy
from sayso.policy.policy import OWN
from sayso.rows import Call, CallStatus
from sayso.twin import look, write
from sayso.types import Json, Terms, Verdict

D = TypeVar("D")

_DEFERRED = ("unapproved", "external")
_BODILESS = ("respond", "reject")


#: The calls that were let through here. An agent inside a tool has a run of its own, and its model
#: may well repeat the id of the call around it.
_running: ContextVar[frozenset[tuple[str | None, str | None]]] = ContextVar(
    "sayso_pydantic_ai", default=frozenset()
)


class _CutShort(BaseException):
    """The framework stopped a tool that took too long: nobody knows what it did."""


class Stopping(BaseException):
    """A pause or a no on its way past other capabilities: one that catches every error must not
    catch it. ``Outside`` (gated.py) makes it the framework's own again."""

    def __init__(self, cause: Exception) -> None:
        super().__init__()
        self.cause = cause


@dataclass
class GatedToolset(WrapperToolset[D], Generic[D]):
    """Stands around all tools of an agent, inside every other hook."""

    gate: Gate
    policy: Policy | None = None
    #: The thread and the key of a call, by its id; without it, the conversation says both.
    place: Callable[[str], tuple[str, str]] | None = None
    #: Whether somebody stands outside who waits for ``Stopping``.
    past_others: bool = False
    #: What the framework itself would defer, by name: ``unapproved`` or ``external``.
    deferred: dict[str, str] = field(default_factory=dict)

    async def get_tools(self, ctx: RunContext[D]) -> dict[str, ToolsetTool[D]]:
        """The tools; those that the framework defers come to us like all others."""
        tools = await super().get_tools(ctx)
        self.deferred.update({n: t.tool_def.kind for n, t in tools.items()})
        return {name: _callable(tool) for name, tool in tools.items()}

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[D], tool: ToolsetTool[D]
    ) -> Any:
        if (ctx.run_id, ctx.tool_call_id) in _running.get():
            # Another one of us stands around this one, and has asked.
            return await super().call_tool(name, tool_args, ctx, tool)
        id = ctx.tool_call_id or ""
        if self.place is None:
            where, key = thread_of(ctx), key_in(ctx.messages, id)
        else:
            where, key = self.place(id)
        thread = ForeignThread(self.gate, where, policy=self.policy)
        made = _Made(self, thread, key, name, ctx, tool)
        try:
            return _given(await made.outcome(tool_args))
        except (Paused, _CutShort):
            stop: Exception = await made.deferral()
        except SkipToolExecution as no:
            stop = no
        raise (Stopping(stop) if self.past_others else stop) from None


@dataclass
class _Made(Generic[D]):
    """One call on its way through the gate."""

    toolset: GatedToolset[D]
    thread: ForeignThread
    #: What its row is found by.
    id: str
    name: str
    ctx: RunContext[D]
    tool: ToolsetTool[D]
    #: What the tool itself asked for, in its body.
    wants: ApprovalRequired | CallDeferred | None = None

    @property
    def external(self) -> bool:
        """Whether somebody else makes the result, and nothing runs here."""
        return self.toolset.deferred.get(self.name) == "external"

    async def outcome(self, args: dict[str, Any]) -> Outcome:
        await self._check_edit()
        call = ForeignCall(
            id=self.id,
            tool=self._face(),
            args=self._shown(args),
            run=self._run,
            dump=results.dump,
            load=results.load,
        )
        return await self.thread.outcome(call)

    # -- what is asked about

    def _face(self) -> ForeignTool:
        kind = self.toolset.deferred.get(self.name, "")
        return replace(face_of(self.tool.tool_def, kind), read=self._read)

    def _read(self, args: dict[str, Json]) -> Mapping[str, Json]:
        """The arguments as the tool reads them, with every default."""
        return self._shown(self._validated(codec.dumps(args)))

    def _shown(self, values: Any) -> dict[str, Json]:
        shown: dict[str, Json] = to_jsonable_python(values, by_alias=True)
        known = self.tool.tool_def.parameters_json_schema.get("properties", {})
        if len(shown) == 1 and not shown.keys() & known.keys():
            (inner,) = shown.values()  # one parameter that is a model: its fields are the arguments
            shown = inner if isinstance(inner, dict) else shown
        defaults = {n: p["default"] for n, p in known.items() if "default" in p}
        return {**defaults, **shown}

    def _validated(self, text: str) -> dict[str, Any]:
        context = self.ctx.validation_context
        try:
            values: dict[str, Any] = self.tool.args_validator.validate_json(text, context=context)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            path = codec.path_text(first["loc"])
            raise InvalidCall(f"{path or 'value'}: {first['msg']}", path) from None
        return values

    async def _check_edit(self) -> None:
        """An edit that the tool does not take goes back to people, and not to the model."""
        row = await look(self.thread.store, self.thread.row, self.id)
        if row is None or row.original is None or row.status is not CallStatus.READY:
            return
        try:
            values = self._validated(codec.dumps(self._face().passed(codec.loads(row.args))))
            checks = self.tool.args_validator_func
            checked = checks(self.ctx, **values) if checks is not None else None
            if inspect.isawaitable(checked):
                await checked
        except (InvalidCall, ModelRetry, ToolFailed) as error:
            await self._ask_again(row, f"the tool does not take the edit: {error}")

    async def _ask_again(self, row: Call, reason: str, terms: Terms | None = None) -> None:
        command = Reask(thread=row.thread, run=row.run, call=row.id, reason=reason, terms=terms)
        await write(self.thread.store, command)

    # -- what runs

    async def _run(self, args: dict[str, Json]) -> Any:
        row = await look(self.thread.store, self.thread.row, self.id)
        assert row is not None
        values = self._validated(codec.dumps(args))
        token = _running.set(_running.get() | {(self.ctx.run_id, self.ctx.tool_call_id)})
        try:
            return await self.toolset.wrapped.call_tool(
                self.name, values, _informed(self.ctx, row), self.tool
            )
        except (ApprovalRequired, CallDeferred) as wants:
            self.wants = wants
            raise Paused(row.run, ()) from None
        except ModelRetry as error:
            if isinstance(error.__context__, TimeoutError) and "Timed out" in error.message:
                raise _CutShort(error.message) from None
            raise
        finally:
            _running.reset(token)

    async def deferral(self) -> ApprovalRequired | CallDeferred:
        """How this framework stops: the call is deferred, with the request that stands for it."""
        row = await look(self.thread.store, self.thread.row, self.id)
        assert row is not None
        if self.wants is not None and row.status is CallStatus.READY:
            terms = replace(row.terms, verdict=Verdict.ASK)
            if isinstance(self.wants, CallDeferred):
                terms = replace(terms, allowed=_BODILESS)
            await self._ask_again(row, "the tool itself asks for it", terms)
            row = await look(self.thread.store, self.thread.row, self.id) or row
        metadata = dict((self.wants.metadata if self.wants is not None else None) or {})
        metadata["sayso"] = {"request": row.id, "digest": row.digest, "thread": row.thread}
        deferred = self.external or isinstance(self.wants, CallDeferred)
        return CallDeferred(metadata) if deferred else ApprovalRequired(metadata)


def face_of(made: ToolDefinition, kind: str) -> ForeignTool:
    """A tool as the gate knows it; its ``kind`` is what the framework makes of it."""
    return ForeignTool(
        name=made.name,
        description=made.description or "",
        parameters=made.parameters_json_schema,
        needs_approval=kind in _DEFERRED,
        possible=_BODILESS if kind == "external" else None,
    )


def _callable(tool: ToolsetTool[D]) -> ToolsetTool[D]:
    if tool.tool_def.kind not in _DEFERRED:
        return tool
    return replace(tool, tool_def=replace(tool.tool_def, kind="function"))


def thread_of(ctx: RunContext[Any]) -> str:
    """The natural key of a conversation; a run that names none is one of its own."""
    name = ctx.conversation_id or ctx.run_id
    assert name is not None
    return name


def _informed(ctx: RunContext[D], row: Call) -> RunContext[D]:
    """The tool may know that it was approved, and by whom."""
    decision = row.decision
    assert decision is not None
    by_rule = decision.type == "allow" and row.terms.rule != OWN
    about = {
        "request": row.id,
        "by": decision.by,
        "edited_from": None if row.original is None else codec.loads(row.original),
    }
    metadata = {**(ctx.tool_call_metadata or {}), "sayso": about}
    approved = decision.type in ("approve", "edit", "grant") or by_rule
    return replace(ctx, tool_call_approved=approved, tool_call_metadata=metadata)


def _given(outcome: Outcome) -> Any:
    """What the framework is given; a no goes past other hooks, which expect a tool's result."""
    if outcome.ok:
        return results.told(outcome.value, outcome.text) if outcome.notice else outcome.value
    if outcome.call is None or outcome.call.status is CallStatus.FAILED:
        raise ToolFailed(outcome.text)
    raise SkipToolExecution(ToolDenied(outcome.text))
