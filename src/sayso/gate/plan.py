"""``Plan``: what a caller wants to run, and the callbacks that the driver needs for it.

A plan becomes a row (``judged_call``), is compared with that row just before the start
(``recheck``, ``verify``), and can find out what happened to a call in doubt (``settler``).
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from sayso import codec
from sayso.engine.asking import doubt_digest, request_digest, signed_bytes
from sayso.engine.commands import Cancel, NewCall, Reask
from sayso.engine.deciding import model_may_allow
from sayso.engine.effects import key_of, shown_key
from sayso.errors import InvalidCall, NotAllowed, SaysoError, Tampered, describe_error
from sayso.frozen import quickly_made
from sayso.gate.outcomes import in_text
from sayso.policy import is_stricter, tighten
from sayso.policy.template import checked_key
from sayso.rows import Call, Tool
from sayso.stores.base import Store
from sayso.sync import call_within, context_value
from sayso.types import Decided, DidNotRun, Effect, Ran, Terms, Verdict, Vote

if TYPE_CHECKING:
    from sayso.schema import Signature


@quickly_made
@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The caller's side of a call.

    Everything that can change between the request and the start is a function and is called again
    each time: ``terms`` evaluates the policy, ``binds`` returns the facts.
    """

    key: str
    kind: str
    args: str
    #: The agent that would run the call.
    agent: str
    terms: Callable[[dict[str, Any]], Awaitable[Terms]]
    #: What was written, if the tool makes ``args`` of it (``Call.written``).
    written: str | None = None
    tool: Tool | None = None
    tool_name: str = ""
    #: If the tool has no row of its own.
    tool_digest: str = ""
    binds: Callable[[], str] = lambda: ""
    #: Makes the effect key from the arguments, if the terms have no template for it.
    effect_key: Callable[[dict[str, Any]], object] | None = None
    #: Finds out whether the effect of a call in doubt happened.
    settle: Settler | None = None
    #: Makes the title of the request from the arguments.
    title: Callable[[str], str] | None = None
    note: str = ""
    #: Makes the preview, as JSON text, from the arguments and the revision of the request.
    preview: Callable[[str, int], Awaitable[str]] | None = None
    #: Returns what the tool makes of written arguments, with defaults; or raises ``InvalidCall``.
    normalize_args: Callable[[str], str] | None = None
    #: Whether ``run`` gets what was written, which its framework validates again.
    keeps_written: bool = False
    #: Runs the effect with the stored arguments. None if the approval itself is all there is.
    run: Callable[[Call], Awaitable[Any]] | None = None
    #: Converts a result to JSON text, and back.
    dump: Callable[[Any], str] = lambda value: codec.canonical(value).decode()
    load: Callable[[str], Any] = codec.loads
    #: A read that fails stays approved and may be retried.
    retry: bool = True
    #: Seconds to wait for a decision; None waits forever.
    wait: float | None = 0
    #: The caller chose the key: other content under the same key is a mistake, not another call.
    named: bool = False
    #: A stored failure is raised again as one of these exceptions, matched by name.
    raises: tuple[type[Exception], ...] = ()
    #: Why people cannot be asked about it, so that it is denied instead.
    unaskable: str = ""
    #: Exceptions that mean "nothing happened", besides ``NotExecuted``.
    not_executed: tuple[type[Exception], ...] = ()
    #: Who waits for it, if an agent that is not ours runs the call itself (``Call.caller``).
    caller: str = ""
    #: The options to send along if a server decides.
    options: Mapping[str, Any] = field(default_factory=dict)


def effect_key_of(plan: Plan, binds: str, terms: Terms, args: str) -> str:
    """Return the effect key for these arguments. Raise ``InvalidCall`` if it cannot be made."""
    effect_key = ""
    if plan.effect_key is not None and not terms.effect_key:
        effect_key = checked_key(plan.effect_key(codec.loads(args)))
    return key_of(plan.agent, binds, terms, args, effect_key)


def new_call(plan: Plan, terms: Terms, preview: str = "") -> NewCall:
    binds = plan.binds()
    return NewCall(
        id="req_" + os.urandom(8).hex(),
        key=plan.key,
        kind=plan.kind,
        tool=plan.tool_name,
        tool_digest=plan.tool_digest if plan.tool is None else plan.tool.digest,
        args=plan.args,
        args_hash=codec.sha256(plan.args.encode()),
        written=plan.written,
        nonce=os.urandom(16).hex(),
        terms=terms,
        binds=binds,
        title="" if plan.title is None else plan.title(plan.args),
        note=plan.note,
        preview=preview,
        effect_key=effect_key_of(plan, binds, terms, plan.args),
        settles=plan.settle is not None,
        caller=plan.caller,
        unaskable=plan.unaskable,
        trace=_traceparent() if "opentelemetry.trace" in sys.modules else "",
    )


def _traceparent() -> str:
    """Return the trace of the caller, or an empty string if there is none."""
    context = sys.modules["opentelemetry.trace"].get_current_span().get_span_context()
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


async def judged_call(plan: Plan) -> NewCall:
    """Evaluate the policy, make a preview if people are asked, and return the new call."""
    terms = await plan.terms(codec.loads(plan.args))
    if plan.preview is None or terms.verdict is not Verdict.ASK:
        return new_call(plan, terms)
    return new_call(plan, terms, await plan.preview(plan.args, 1))


def once_plan(
    key: str,
    run: Callable[[Call], Awaitable[Any]],
    *,
    agent: str,
    row_key: str,
    wait: float | None = 0,
    terms_effect: Effect = "once",
) -> Plan:
    """Return the plan of a ``once`` step. ``row_key`` is the key of its row."""

    async def terms(_: dict[str, Any]) -> Terms:
        return Terms(verdict=Verdict.ALLOW, rule="once", effect=terms_effect, declared=True)

    schema = codec.dumps({"parameters": {}, "returns": None})
    return Plan(
        key=row_key,
        kind="approval",
        args=codec.canonical({"key": key}).decode(),
        agent=agent,
        terms=terms,
        tool=Tool.of("once", schema, version=key),
        tool_name="once",
        run=run,
        wait=wait,
    )


# --- the re-check ---
#
# Just before a start: is this still what was approved, and may it run now? Every way to a start
# goes through ``recheck``: guarded functions, agents, frameworks, workers, and claims over HTTP.
# Nothing is cached. A process that waited in memory gets the same check as one that comes back a
# week later.

#: Why a call is not run whose tool makes other arguments of the same text each time.
UNSTABLE = "this tool's arguments change on each validation"
_BY_PERSON = frozenset({"approve", "edit"})
#: No person signs what a policy or a grant allows: the row's MAC covers it, and the re-check
#: evaluates both again.
_BY_RULE = frozenset({"allow", "grant"})
#: What a model allows is signed, because a model cannot be evaluated again.
_BY_MODEL = frozenset({"model"})


def verify(store: Store, call: Call) -> None:
    """Raise ``Tampered`` unless digest, decision and signatures of a ready call all agree.

    The MAC of its row was checked when the row was read. These checks also hold against an attacker
    who has the row key, but not the key that signs decisions.
    """
    if codec.sha256(call.args.encode()) != call.args_hash:
        raise _tampered(call, "its arguments were changed")
    if request_digest(call) != call.digest:
        raise _tampered(call, "it does not match its digest")
    decision = call.decision
    if decision is None or decision.type not in _BY_PERSON | _BY_RULE | _BY_MODEL:
        raise _tampered(call, "no person approved it")
    if decision.digest != call.digest and not _approves_doubt(call, decision.digest):
        raise _tampered(call, "its approval is for something else")
    if decision.type not in _BY_RULE:
        _check_signature(store, call, decision)
    elif (decision.type == "grant") != (call.grant is not None):
        raise _tampered(call, "its decision and its grant do not match")
    elif decision.type == "allow" and call.terms.verdict is not Verdict.ALLOW:
        raise _tampered(call, "it needs approval, and no person approved it")
    if call.valid_until != decision.at + round(call.terms.valid_for * 1_000_000):
        raise _tampered(call, "the expiry of its approval was changed")
    if call.terms.quorum > 1 and decision.type in _BY_PERSON:
        _check_votes(store, call, decision.digest)


def _approves_doubt(call: Call, digest: str) -> bool:
    """Return whether this approves "run it again", for this attempt or for an earlier one."""
    attempts = range(call.attempt, max(call.attempt - 1000, 0) - 1, -1)
    return any(digest == doubt_digest(call.digest, attempt) for attempt in attempts)


def _check_votes(store: Store, call: Call, digest: str) -> None:
    voters = set()
    represented = set()
    for vote in call.votes:
        if vote.digest == digest:
            _check_signature(store, call, vote)
            voters.add(vote.by)
            represented.add(vote.on_behalf_of or vote.by)
    count = min(len(voters), len(represented))
    if count < call.terms.quorum:
        raise _tampered(call, f"{count} of {call.terms.quorum} people approved it")


def _check_signature(store: Store, call: Call, decided: Decided | Vote) -> None:
    if not store.keys.verify(signed_bytes(decided), decided.signature):
        raise _tampered(call, f"the signature of {decided.by} is wrong")
    if decided.type in _BY_MODEL and not (
        decided.by == call.terms.reviewer and model_may_allow(call)
    ):
        raise _tampered(call, "its rule lets no model allow it")


def _tampered(call: Call, what: str) -> Tampered:
    return Tampered(
        f"{call.id} was not run: {what}. Run `sayso audit verify`, then cancel it "
        f"(`sayso cancel {call.id}`) and ask again"
    )


async def recheck(plan: Plan, call: Call) -> Reask | Cancel | None:
    """Compare an approved call with the code, the policy and the facts as they are now.

    Returns the command that asks people again or cancels the call, or None if the approval still
    covers it. Raises ``NotAllowed`` if another agent asked for the call.
    """
    if plan.agent != call.agent:
        raise NotAllowed(
            f"{call.id} was requested by agent {call.agent!r}, and this is {plan.agent!r}: run it "
            "as the agent that asked, or make the call in another run"
        )
    reason = ""
    changes = dict[str, Any]()
    changed = plan.tool is not None and plan.tool.digest != call.tool_digest
    if changed:
        reason, changes["tool"] = "the tool changed since the approval", plan.tool
    binds = plan.binds()
    if binds != call.binds:
        reason, changes["binds"] = "the facts of binds= changed since the approval", binds
    edited = call.original is not None
    if plan.normalize_args is not None and (changed or edited):
        read_again = _read_again(plan, call, changed)
        if isinstance(read_again, Cancel):
            return read_again
        if read_again:
            whose = "edited arguments" if edited else "arguments"
            reason = f"the tool adds to the {whose}, or reads them differently"
            changes |= read_again
    args = changes.get("args", call.args)
    now = await plan.terms(codec.loads(args))
    if now.verdict is Verdict.DENY:
        what = "the edited arguments" if edited else "it now"
        denies = f"the policy ({now.rule}) denies {what}"
        return cancel_call(call, denies, by=f"policy:{now.rule}")
    key = effect_key_of(plan, binds, now, args)
    if key != call.effect_key:
        reason = f"its effect key changed to {shown_key(key) or 'none'}"
        changes |= {"terms": tighten(call.terms, now), "effect_key": key}
    if (changed_terms := _changed_terms(call, now, args)) is not None:
        reason, changes["terms"] = changed_terms[0] or reason, changed_terms[1]
    fields = {"thread": call.thread, "run": call.run, "call": call.id, "reason": reason, **changes}
    return Reask(**fields) if reason else None


def _read_again(plan: Plan, call: Call, changed: bool) -> dict[str, Any] | Cancel:
    """Return the fields of a call that change because its tool reads the arguments differently,
    or the command that cancels it."""
    assert plan.normalize_args is not None
    try:
        args = plan.normalize_args(call.args_to_run)
        if args == call.args:
            return {}
        if plan.normalize_args(call.args_to_run) != args:
            return cancel_call(call, UNSTABLE)  # or people would be asked again each time
    except InvalidCall as error:
        why = f"the tool {call.tool} changed, and takes other arguments"
        why = why if changed else "the tool does not take the edited arguments"
        return cancel_call(call, f"{why}: {error}")
    written = call.args_to_run if plan.keeps_written and call.args_to_run != args else None
    return {"args": args, "args_hash": codec.sha256(args.encode()), "written": written}


def _changed_terms(call: Call, now: Terms, args: str) -> tuple[str, Terms] | None:
    """Return why the terms of a call need another approval, and those terms; or None.

    The reason is "" if only the arguments are the reason.
    """
    raised = raised_terms(call, now)
    if raised is not None:
        what = "there is" if call.original is None else "the edited arguments match"
        return f"{what} a stricter rule: {now.rule}", raised
    if call.terms.footprint == now.footprint:
        return None
    if args != call.args:
        return "", replace(call.terms, footprint=now.footprint)
    if call.grant is None or not call.terms.footprint:
        return None
    # Only the first place is this machine's; a hook sends the other one with each call.
    before, after = (codec.loads(terms.footprint)["places"][:1] for terms in (call.terms, now))
    if before == after:
        return None
    return "its program or files are others than the grant covers", tighten(call.terms, now)


# --- prompts ---
#
# A coding agent asks before each tool use, and once more if it would prompt its user about it. The
# prompt carries no id, so its tool use is the last one with this content that was released and has
# no result yet. A person or a grant that approved the tool use answers its prompt too. What a
# preset allowed was left to the agent, and the agent prompts: a person is asked.


def find_use(store: Store, run: str, plan: Plan) -> Call | None:
    """Return the released call of the tool use that an agent prompts for."""
    assert plan.tool is not None
    return store.released_use(run, plan.tool.digest, codec.sha256(plan.args.encode()))


async def is_still_approved(store: Store, plan: Plan, call: Call) -> bool:
    """Return whether a person or a grant approved a released call, and that still covers it."""
    by_rule = call.source in ("rule", "preset", "model")
    if by_rule or (call.valid_until or 0) <= store.now():
        return False
    verify(store, call)
    return await recheck(plan, call) is None


def raised_terms(call: Call, now: Terms) -> Terms | None:
    """Return the call's terms tightened by the current ones, or None if those require no more."""
    if now is call.terms or now == call.terms:
        return None
    terms = tighten(call.terms, now)
    by_rule = call.decision is not None and call.decision.type in _BY_RULE | _BY_MODEL
    # What no person decided, also depends on what is counted, how risky it is, and who reviews it.
    unseen = by_rule and (
        (terms.limits, now.risk_declared) != (call.terms.limits, call.terms.risk_declared)
        or (now.reviewer, now.reviewer_allows) != (call.terms.reviewer, call.terms.reviewer_allows)
    )
    return terms if unseen or is_stricter(call.terms, terms) else None


def cancel_call(call: Call, reason: str, *, by: str = "agent") -> Cancel:
    """Return the command that cancels a call which cannot run any more."""
    return Cancel(thread=call.thread, run=call.run, call=call.id, by=by, reason=reason)


# --- settling a doubt ---
#
# A process died in the middle of a call, and whether its effect happened is unknown here. Another
# system often knows: the payment service has the refund, the database has the row. A ``settle=``
# function looks up the effect by its key and returns that it ran, that it did not, or None.
#
# It only looks. Its answer closes a doubt only if the effect happened; it never starts anything. If
# it raises, returns anything else, or takes too long, the outcome stays unknown.

log = logging.getLogger("sayso.gate")

#: How long a settle function may take.
SETTLE_SECONDS = 10.0
#: How many characters of its evidence are stored.
MAX_EVIDENCE = 2_000

_in_settle: contextvars.ContextVar[bool] = contextvars.ContextVar("sayso_settle", default=False)


class Settlement(NamedTuple):
    """The answer of a settle function, as it is recorded."""

    answer: str
    result: str | None = None
    said: str = ""


#: Calls a settle function for one row, and returns its answer. Never raises.
Settler = Callable[[Call], Awaitable[Settlement]]


def checked_settle(options: Mapping[str, Any], arguments: Collection[str]) -> Any:
    """Return the settle function of the options, if it can be called with the arguments."""
    settle = options.get("settle")
    if settle is None:
        return None
    if not callable(settle):
        raise TypeError(f"settle={settle!r:.80}: pass a function of the key and the arguments")
    if options.get("effect") == "read":
        raise TypeError("settle=: a read is never in doubt, so leave it out")
    parameters = _parameters(settle)
    if not parameters or parameters[0].kind in (
        inspect.Parameter.KEYWORD_ONLY,
        inspect.Parameter.VAR_KEYWORD,
    ):
        raise TypeError("settle=: its first parameter is the key, as in settle(key, **args)")
    for parameter in parameters[1:]:
        free = (
            parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
            or parameter.default is not parameter.empty
        )
        if not free and (
            parameter.name not in arguments or parameter.kind is parameter.POSITIONAL_ONLY
        ):
            names = ", ".join(arguments) or "none"
            raise TypeError(
                f"settle=: {parameter.name} is not an argument of the function, which has {names}: "
                "take the key first, then arguments by name"
            )
    return settle


def _parameters(settle: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(settle).parameters.values())


def settler(settle: Callable[..., Any] | None, signature: Signature) -> Settler | None:
    """Return a function that settles calls of this function, or None without ``settle=``."""
    if settle is None:
        return None

    async def ask(call: Call) -> Settlement:
        try:
            args = _wanted_args(settle, signature.named(call.args.encode()))
            # The effect key, or the idempotency key that the function got.
            key = shown_key(call.effect_key) or call.id
            with context_value(_in_settle, True):
                answer = await call_within(SETTLE_SECONDS, partial(settle, key, **args))
            if answer is None:
                return Settlement("unknown")
            if isinstance(answer, DidNotRun):
                return Settlement("did_not_run", said=in_text(answer.evidence)[:MAX_EVIDENCE])
            if isinstance(answer, Ran):
                value = codec.loads(signature.dump_result(answer.result))
                # Checked like a person's answer: it must be what the function could return.
                return Settlement("ran", signature.check_result(value))
            raise TypeError(
                f"settle= returned {type(answer).__name__}: return sayso.Ran(result), "
                "sayso.DidNotRun(evidence) or None"
            )
        except asyncio.CancelledError:
            raise
        except TimeoutError:
            why = f"no answer within {SETTLE_SECONDS:g} seconds"
        except (Exception, SystemExit) as error:
            why = describe_error(error)
        log.warning("%s: settle= could not find out whether it ran: %s", call.id, why)
        return Settlement("unknown", said=why[:MAX_EVIDENCE])

    return ask


def _wanted_args(settle: Callable[..., Any], args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that a settle function takes besides the key."""
    _, *others = _parameters(settle)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in others):
        return dict(args)
    return {parameter.name: args[parameter.name] for parameter in others if parameter.name in args}


def refuse_in_settle() -> None:
    """Raise if a settle function tries to act, or to ask people."""
    if _in_settle.get():
        raise SaysoError(
            "a settle= function only finds out whether an effect happened: it cannot make guarded "
            "calls or ask people"
        )
