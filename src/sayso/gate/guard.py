"""``Guard``: makes the calls of a plain function ask first, and run once from stored arguments."""

from __future__ import annotations

import contextvars
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sayso import codec
from sayso.errors import SaysoError, describe_error
from sayso.gate import os_threads
from sayso.gate.driver import Driver
from sayso.gate.options import Title, bound_facts, checked_name
from sayso.gate.plan import Plan, Settler
from sayso.gate.scope import RunScope, current_scope
from sayso.gate.steps import StepTool
from sayso.policy.policy import is_stricter
from sayso.rows import Call, Tool
from sayso.sync import (
    awaited,
    call_within,
    context_value,
    run_sync,
    run_user_coroutine,
)
from sayso.types import DecisionMade, Json, Terms, Verdict
from sayso.views import decision_made

if TYPE_CHECKING:
    from sayso.schema import Signature

PREVIEW_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class ThisCall:
    """What a running function can find out about its own call."""

    run: str
    id: str
    #: The same for every attempt of this call: pass it to services that take an idempotency key.
    key: str
    attempt: int
    decision: DecisionMade | None
    original: Mapping[str, Json] | None


_this_call: contextvars.ContextVar[Call | None] = os_threads.follow(
    contextvars.ContextVar("sayso_this_call", default=None), None
)


@dataclass(slots=True)
class ApprovedCall:
    """A call of a framework's tool that people have approved, while it runs."""

    call: Call
    #: The store that it is in.
    store_id: str
    #: Whether a guarded function has run under it.
    used: bool = False


_approved: contextvars.ContextVar[ApprovedCall | None] = os_threads.follow(
    contextvars.ContextVar("sayso_approved", default=None), None
)


def this_call() -> ThisCall:
    """Return the call that is running. Raise ``SaysoError`` outside a guarded function."""
    call = _this_call.get()
    if call is None:
        raise SaysoError("this_call() works only inside a guarded function")
    original = None if call.original is None else codec.loads(call.original)
    return ThisCall(call.run, call.id, call.id, call.attempt, decision_made(call), original)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """One guarded function: its tool row, its terms, and how its calls run."""

    driver: Driver
    #: Evaluates the policy for arguments of this function.
    terms: Callable[[dict[str, Any]], Awaitable[Terms]]
    function: Callable[..., Any]
    signature: Signature
    tool: Tool
    binds: Callable[[], Mapping[str, Json]] | None
    preview: Callable[..., Json] | None
    #: Makes the title from stored arguments.
    title: Callable[[str], str] | None
    note: str
    key: Callable[[dict[str, Json]], str] | None
    wait: float | None
    effect_key: Callable[[dict[str, Json]], str] | None = None
    settle: Settler | None = None
    raises: tuple[type[Exception], ...] = ()
    not_executed: tuple[type[Exception], ...] = ()
    #: The options to send along if a server decides.
    options: Mapping[str, Any] = field(default_factory=dict)

    def wrap(self) -> Callable[..., Any]:
        """Return the function to call instead of the guarded one."""
        if inspect.iscoroutinefunction(self.function):

            @functools.wraps(self.function)
            async def guarded(*args: Any, **kwargs: Any) -> Any:
                return await self._call(args, kwargs)

        else:
            blocks_loop = (
                f"{self.tool.name}() is guarded and not async, so it would block the running "
                f"event loop: await asyncio.to_thread({self.tool.name}, ...), or make it async"
            )

            @functools.wraps(self.function)
            def guarded(*args: Any, **kwargs: Any) -> Any:
                return run_sync(self._call(args, kwargs), blocks_loop)

        guarded.guard = self  # type: ignore[attr-defined]
        return guarded

    async def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        scope = current_scope(self.driver)
        values = self.signature.bind(args, kwargs)
        plan = self._plan(scope, values)
        approved = _approved.get()
        if approved is not None and await self._is_covered(approved, plan):
            # It has a row, so that it runs once even if the call around it starts over.
            approved.used = True
            plan = replace(plan, terms=functools.partial(self._covered_terms, approved.call.id))
        return await self.driver.result(scope, plan)

    async def _is_covered(self, approved: ApprovedCall, plan: Plan) -> bool:
        """Whether people have approved this very call already, as a call of a framework's tool.

        They have if the tool is this function, with these arguments, under terms that are at least
        as strict as the function's own.
        """
        call = approved.call
        values = codec.loads(plan.args)
        same = call.tool == self.tool.name and approved.store_id == self.driver.backend.store_id
        if approved.used or not same or values != codec.loads(call.args):
            return False
        terms = await self.terms(values)
        return terms.verdict is Verdict.ASK and not is_stricter(call.terms, terms)

    async def _covered_terms(self, request: str, args: dict[str, Any]) -> Terms:
        terms = await self.terms(args)
        # A lost reply leaves it in doubt, as if people had approved this row.
        rule = f"approved as {request}"
        return replace(terms, verdict=Verdict.ALLOW, rule=rule, declared=True)

    def _plan(self, scope: RunScope, values: dict[str, Any]) -> Plan:
        data = self.signature.intake(values)
        call_values = codec.loads(data)
        # The key covers the arguments that were passed, without defaults: a new default value does
        # not make it another call.
        names = sorted({*values, *self.signature.constants})
        passed = codec.sha256(codec.dumps([[name, call_values[name]] for name in names]).encode())
        subject = f"call:{self.tool.name}"
        key_name = None
        if self.key is not None:
            key: object = self.key(codec.loads(data))
            key_name = checked_name(str(key) if isinstance(key, int) else key, "key")
        return Plan(
            key=scope.key(subject, passed[:32])
            if key_name is None
            else scope.named_key(subject, key_name),
            named=key_name is not None,
            kind="approval",
            args=data.decode(),
            agent=self.driver.agent,
            terms=self.terms,
            tool=self.tool,
            tool_name=self.tool.name,
            binds=self._bound,
            effect_key=self.effect_key,
            settle=self.settle,
            title=self.title,
            note=self.note,
            preview=None if self.preview is None else self._preview,
            normalize_args=lambda text: self.signature.intake_json(codec.loads(text)).decode(),
            run=self._effect,
            dump=self.signature.dump_result,
            load=self.signature.load_result,
            wait=self.wait,
            raises=self.raises,
            not_executed=self.not_executed,
            options=self.options,
        )

    def as_step_tool(self) -> StepTool:
        """Return what a plan needs to know of this function."""
        return StepTool(
            stored=self.tool,
            read=lambda values: self.signature.intake(self.signature.bind((), values)).decode(),
            terms=self.terms,
            binds=self._bound,
            title=self.title,
        )

    def _bound(self) -> str:
        return "" if self.binds is None else codec.canonical(bound_facts(self.binds)).decode()

    async def _effect(self, call: Call) -> Any:
        """Run the function with arguments made from the stored bytes alone."""
        args, kwargs = self.signature.load(call.args.encode())
        with context_value(_this_call, call):
            value = self.function(*args, **kwargs)
            if inspect.isawaitable(value):
                value = await run_user_coroutine(functools.partial(awaited, value))
        return value

    async def _preview(self, args: str, revision: int) -> str:
        assert self.preview is not None
        return await preview_text(self.preview, self.signature, args)


async def preview_text(preview: Callable[..., Any], signature: Signature, args: str) -> str:
    """Return a preview of these arguments as JSON text. It never raises: people can decide without
    one."""
    try:
        values, keywords = signature.load(args.encode())
        preview_value = await call_within(
            PREVIEW_SECONDS, functools.partial(preview, *values, **keywords)
        )
        return codec.canonical(preview_value).decode()
    except TimeoutError:
        return codec.dumps(f"no preview within {PREVIEW_SECONDS:g} seconds")
    except Exception as error:
        return codec.dumps(f"no preview: {describe_error(error)}")


def as_this_call(call: Call) -> AbstractContextManager[None]:
    """Make ``this_call()`` return this call inside ``with``."""
    return context_value(_this_call, call)


def as_approved_call(call: Call, store_id: str) -> AbstractContextManager[None]:
    """Let a guarded function that is the tool of this call run without asking again."""
    decided = call.decision is not None and call.decision.type in ("approve", "edit", "grant")
    return context_value(_approved, ApprovedCall(call, store_id) if decided else None)


def tool_of(signature: Signature, version: str, title: Title | None = None) -> Tool:
    """Return the tool row. Its digest covers name, schema, description, title and version."""
    schema = {"parameters": signature.parameters, "returns": signature.returns}
    codec.canonical(schema)  # refuse a schema that JSON cannot represent where it is declared
    template = title if isinstance(title, str) else ""
    return Tool.of(signature.name, codec.dumps(schema), signature.description, version, template)
