"""One call before it is a row: what the code wants to run, and how."""

from __future__ import annotations

import inspect
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sayso import codec
from sayso.engine.commands import NewCall
from sayso.engine.effects import key_of
from sayso.errors import InvalidCall
from sayso.gate.settling import Settler
from sayso.policy.template import checked_key
from sayso.rows import Call, Tool
from sayso.types import Effect, Terms, Verdict


def _no_binds() -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The code's side of a call.

    Everything that can change between the asking and the start is a function, and is called afresh
    each time: ``terms`` asks the policy and the code, ``binds`` looks at the surroundings.
    """

    key: str
    kind: str
    args: str
    #: The agent that would run the call.
    agent: str
    terms: Callable[[dict[str, Any]], Awaitable[Terms]]
    tool: Tool | None = None
    tool_name: str = ""
    #: Where the tool has no stored face of its own.
    tool_digest: str = ""
    binds: Callable[[], str] = _no_binds
    #: Makes the key of the effect from the arguments, where the terms have no template for it.
    effect_key: Callable[[dict[str, Any]], object] | None = None
    #: Asks the other side about a doubt.
    settle: Settler | None = None
    #: What heads the request, made of the arguments.
    title: Callable[[str], str] | None = None
    note: str = ""
    #: What would happen, as JSON text: made of the arguments, for one revision of the request.
    preview: Callable[[str, int], Awaitable[str]] | None = None
    #: The arguments as the tool itself reads them, with every default; or InvalidCall.
    reads: Callable[[str], str] | None = None
    #: Runs the effect from the stored arguments. Nothing where the approval is all there is.
    run: Callable[[Call], Awaitable[Any]] | None = None
    #: A live result as JSON text, and back.
    dump: Callable[[Any], str] = lambda value: codec.canonical(value).decode()
    load: Callable[[str], Any] = codec.loads
    #: A read that fails stays approved, and may be tried again.
    retry: bool = True
    #: Seconds to wait for people; None for ever.
    wait: float | None = 0
    #: The caller chose the key: other content under it is a mistake, not another call.
    named: bool = False
    #: Errors that a stored failure is raised as again, by the name of their type.
    raises: tuple[type[Exception], ...] = ()
    #: The options that are sent along where a server decides.
    options: Mapping[str, Any] = field(default_factory=dict)


def effect_key_of(plan: Plan, binds: str, terms: Terms, args: str) -> str:
    """The key of the effect that these arguments would have; InvalidCall if none can be made."""
    given = ""
    if plan.effect_key is not None and not terms.effect_key:
        given = checked_key(plan.effect_key(codec.loads(args)))
    return key_of(plan.agent, binds, terms, args, given)


def new_call(plan: Plan, terms: Terms, preview: str = "") -> NewCall:
    """The command's part for one call under these terms, with an id of its own."""
    binds = plan.binds()
    return NewCall(
        id="req_" + secrets.token_hex(8),
        key=plan.key,
        kind=plan.kind,
        tool=plan.tool_name,
        tool_digest=plan.tool_digest if plan.tool is None else plan.tool.digest,
        args=plan.args,
        args_hash=codec.sha256(plan.args.encode()),
        nonce=secrets.token_hex(16),
        terms=terms,
        binds=binds,
        title="" if plan.title is None else plan.title(plan.args),
        note=plan.note,
        preview=preview,
        effect_key=effect_key_of(plan, binds, terms, plan.args),
        settles=plan.settle is not None,
    )


async def judged_call(plan: Plan) -> NewCall:
    """Ask the policy, make a preview if a person is to see it, and build the call."""
    terms = await plan.terms(codec.loads(plan.args))
    if plan.preview is None or terms.verdict is not Verdict.ASK:
        return new_call(plan, terms)
    return new_call(plan, terms, await plan.preview(plan.args, 1))


def check_step(function: object) -> None:
    """Refuse what is no function before it is written down that the step has failed."""
    if callable(function):
        return
    if inspect.iscoroutine(function):
        function.close()
    kind = type(function).__name__
    raise InvalidCall(
        f"once() calls the step itself: give it a function and its arguments, not a {kind}",
        "function",
    )


def once_plan(
    key: str,
    run: Callable[[Call], Awaitable[Any]],
    *,
    agent: str,
    row_key: str,
    wait: float | None = 0,
    terms_effect: Effect = "once",
) -> Plan:
    """The plan of such a step; ``row_key`` is what its row is found by."""

    async def terms(_: dict[str, Any]) -> Terms:
        return Terms(verdict=Verdict.ALLOW, rule="once", effect=terms_effect)

    face = codec.dumps({"parameters": {}, "returns": None})
    return Plan(
        key=row_key,
        kind="approval",
        args=codec.canonical({"key": key}).decode(),
        agent=agent,
        terms=terms,
        tool=Tool.of("once", face, version=key),
        tool_name="once",
        run=run,
        wait=wait,
    )
