"""Requests of agents on other machines: open, wait, claim, renew, report.

The agent runs the call itself. A claim starts the call: from then on it is recorded or in doubt,
like any other call. The claimant holds a lease, and a call whose lease lapses without a renewal is
in doubt. Requests that were opened over HTTP are bound to the body that opened them.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

from sayso import codec, schema
from sayso.agent.edits import stored_terms
from sayso.engine.commands import Finish, NotePrompt, Propose, Reopen
from sayso.engine.effects import first_request, is_remote
from sayso.engine.refusals import connection_scope
from sayso.engine.renewing import Renewal
from sayso.errors import Conflict, InvalidCall, InvalidPolicy, NotAllowed, NotFound, StoreError
from sayso.gate import Gate
from sayso.gate.backend import Cleared, begun
from sayso.gate.gate import add_footprint, run_judging
from sayso.gate.options import MAX_NAME, checked_string, fixed_title, terms_from
from sayso.gate.outcomes import ending
from sayso.gate.plan import Plan, find_use, is_still_approved, new_call
from sayso.gate.scope import RunScope
from sayso.inbox.inbox import Judge
from sayso.inbox.people import no_request
from sayso.policy import Policy, ask_despite_preset, tighten, tighten_by_agent
from sayso.rows import Call, CallStatus, Run, Tool
from sayso.server.schemas import ClaimBody, OpenBody, QuestionBody, ReportBody, ResultBody
from sayso.server.service import Service
from sayso.stores.base import Query, Store
from sayso.stores.nested_runs import expire, finish_after, finish_remote_run, release_lapsed
from sayso.stores.row_checks import request_in
from sayso.sync import CommitWaiter, read, run_sync, to_thread, write
from sayso.types import (
    SECOND,
    SETTABLE_TERMS,
    Json,
    Micros,
    Question,
    Risk,
    Terms,
    ToolCall,
    Verdict,
    claimed_requester,
    moment,
)
from sayso.views import stored_question

_TERMS_WITHOUT_ASKING = ("risk", "valid_for", "effect", "effect_key", "on_duplicate")
#: The decisions that a request without a tool allows.
_DECISIONS_WITHOUT_TOOL = {"question": ("respond", "reject"), "approval": ("approve", "reject")}
_WAITING = (CallStatus.ASKED, CallStatus.RUNNING, CallStatus.IN_DOUBT)
#: The argument in which policies for coding agents look for ``OpenBody.machine``.
_MACHINE = "sayso_machine"
#: The lease of a claim whose owner string does not record one.
_DEFAULT_LEASE = 60.0
#: How many seconds after a renewal that found the run locked it is tried again.
_RENEW_AGAIN = 0.1


async def open_call(
    service: Service, agent: str, body: OpenBody, key: str | None
) -> tuple[Call, bool]:
    """Open a request, or find the one with the same key. Also return whether it is new.

    Raises ``Conflict`` if the key was used with another body.
    """
    # Checking a value against an agent's own schema may be slow: do it off the event loop.
    kind, args = _content(body) if body.schema_ is None else await to_thread(_content, body)
    # A caller that makes the same call again may compute another preview, word its note
    # differently, or prompt for it. What people were shown first is in the digest.
    unbound = {"caller", "session", "preview"}
    if body.caller:
        unbound |= {"note", "machine", "resolved", "needs_approval"}
    fields = body.model_dump(by_alias=True, exclude_defaults=True, exclude=unbound)
    # Any difference in the body makes reuse of the key an error; the digest covers this hash.
    bound = remote_binds(codec.sha256(codec.canonical(fields)), body.binds)
    name = key or secrets.token_hex(16)
    default = f"thread/{body.thread}" if body.thread else codec.sha256(name.encode())[:32]
    # Without authentication all agents are one, and names are shared.
    owner = agent if service.auth else ""
    run = _own_name(owner, body.run or f"{agent}/{default}", "run")
    thread = _own_name(owner, body.thread, "thread") if body.thread else None
    known, call, now = await read(service.store, _existing, service, agent, thread, run, name)
    terms = await _terms(service, agent, body, kind, args, now)
    tool = _tool_spec(body) if kind == "approval" and body.tool is not None else None
    fresh = False
    if call is None:

        async def fixed_terms(_: dict[str, Any]) -> Terms:
            return terms

        plan = Plan(
            key=_row_key(name),
            kind=kind,
            args=codec.canonical(args).decode(),
            agent=agent,
            terms=fixed_terms,
            tool=tool,
            tool_name=body.tool or "",
            binds=lambda: bound,
            title=fixed_title(body.title),
            note=checked_string(body.note, "note"),
            caller=body.caller or "",
        )
        if body.needs_approval and body.caller and tool is not None:
            use = await read(service.store, find_use, service.store, run, plan)
            if use is not None:
                claim_plan = _claim_plan(service, use, ClaimBody.model_validate({}))
                if await is_still_approved(service.store, claim_plan, use):
                    return use, False
                plan = replace(plan, caller=use.caller)
        shown = "" if body.preview is None else codec.canonical(body.preview).decode()
        new = new_call(plan, terms, shown)
        reopen = Reopen(
            thread=known.thread if known is not None else thread or run,
            run=run,
            by=agent,
            same_scope=True,
        )
        propose = Propose(
            thread=reopen.thread,
            run=run,
            agent=agent,
            calls=(new,),
            tools=() if tool is None else (tool,),
            requester=claimed_requester(body.requester),
            scope="" if body.session is None else connection_scope(f"{agent}/{body.session}"),
        )
        # Once it is released or refused, nobody comes back to end the run.
        ends = [Finish(thread=propose.thread, run=run, status="done")] if body.caller else []
        (call,) = (await write(service.store, reopen, propose, *ends))[1]
        fresh = call.id == new.id  # otherwise a concurrent post with the same key won
        if fresh:
            call = await service.gate.backend.review(call)
    assert call is not None
    if call.binds != bound:
        raise Conflict(
            f"the key {name!r} was already used with another body (request {call.id}): "
            "use a new key for a new call"
        )
    return call, fresh


async def note_prompt(service: Service, agent: str, run: str) -> bool:
    """Note that the user of a session has written. Return whether there is such a session."""
    service.hooks.note(agent, run)
    name = _own_name(agent if service.auth else "", run, "run")
    known = await read(service.store, service.store.run, name)
    if known is None or known.agent != agent:
        return False
    await write(service.store, NotePrompt(thread=known.thread, run=known.id))
    return True


def _row_key(name: str) -> str:
    """Return the call's key within its run. The prefix keeps it apart from other callers' keys."""
    return f"remote={name}"


def _own_name(owner: str, name: str, field: str) -> str:
    """Return the name of a run or thread in the store: below the name of the agent that owns it.

    So no agent can use or probe the names of another agent, of a chat or of this server's code.
    """
    if name.startswith("@"):
        raise InvalidCall("names that begin with @ are reserved", field)
    whole = name if not owner or name.startswith(f"{owner}/") else f"{owner}/{name}"
    if len(whole) > MAX_NAME:
        raise InvalidCall(f"{whole:.60}… has more than {MAX_NAME} characters: shorten it", field)
    return whole


def _existing(
    service: Service, agent: str, thread: str | None, run: str, key: str
) -> tuple[Run | None, Call | None, Micros]:
    """Return the existing run and call of this key, if any, and the store's time.

    For a new call, check the run and the thread, and the agent's limit of open requests.
    """
    store = service.store
    known = store.run(run)
    if known is not None and known.agent != agent:  # code of this server named a run like this
        raise Conflict(f"run {run!r} is not this agent's: use another name")
    if known is not None and thread not in (None, known.thread):
        raise Conflict(f"run {run!r} is in thread {known.thread!r}: use another name")
    call = None if known is None else store.call_by_key(run, _row_key(key))
    if known is None:
        _check_thread(store, thread or run, run, agent)
    if call is None:
        service.limits.count_open_request(
            agent, lambda most: len(store.page(Query(status="pending", agent=agent, limit=most)))
        )
    return known, call, store.now()


def _check_thread(store: Store, thread: str, run: str, agent: str) -> None:
    """Raise ``Conflict`` if a thread is a chat, another agent's, or has another live run."""
    known = store.thread(thread)
    if known is None:
        return  # a new thread, as nearly always
    last = store.last_run(thread)
    if known.owner or (last is not None and last.agent != agent):
        raise Conflict(f"thread {thread!r} is not this agent's: use another name")
    live = store.live_run(thread)
    # The live run may be this one, opened by a concurrent post, or one that nobody will finish.
    if live is not None and live.id != run and not finish_remote_run(store, live):
        raise Conflict(
            f"run {live.id!r} is still active in thread {thread!r}: continue that run, or use "
            "another thread"
        )


def _content(body: OpenBody) -> tuple[str, dict[str, Json]]:
    """Return the kind of request that a body opens, and its arguments."""
    given = [name for name in ("tool", "question", "text") if getattr(body, name) is not None]
    if len(given) != 1:
        raise InvalidCall("send one of: tool (with args), question, or text (with details)", "tool")
    if body.kind not in (None, "question" if body.question is not None else "approval"):
        raise InvalidCall(
            f"{given[0]} does not make a request of kind {body.kind!r}: omit kind", "kind"
        )
    if body.question is not None:
        return "question", stored_question(_question(body.question))
    if body.text is not None:
        if not body.text.strip():
            raise InvalidCall("text is empty: say what is to be approved", "text")
        return "approval", {"text": body.text, "details": body.details}
    if body.schema_ is not None:
        wrong = schema.errors(schema.remote_schema(body.schema_), body.args)
        if wrong:
            path, message = wrong[0]
            place = f"args.{path}" if path else "args"
            raise InvalidCall(f"{place}: {message}", place)
    return "approval", dict(body.args)


def _question(body: QuestionBody) -> Question:
    return Question(
        body.text,
        [option if isinstance(option, str) else option.model_dump() for option in body.options],
        multiple=body.multiple,
        free_text=body.free_text,
        schema=None if body.schema_ is None else schema.remote_schema(body.schema_),
    )


def _tool_spec(body: OpenBody) -> Tool:
    """Return the tool as the agent describes it. Without a schema it accepts any object."""
    name = checked_string(body.tool, "tool", 200)
    if not name.strip():
        raise InvalidCall("a tool needs a name", "tool")
    parameters = body.schema_ or {"type": "object"}
    description = checked_string(body.description, "description")
    return schema.remote_tool(name, parameters, body.returns, description)


async def _terms(
    service: Service, agent: str, body: OpenBody, kind: str, args: dict[str, Json], now: Micros
) -> Terms:
    """Return the policy's terms, tightened by the terms that the agent sent."""
    given = {name: getattr(body, name, None) for name in SETTABLE_TERMS}
    if body.risk is not None:
        given["risk"] = Risk(body.risk.level, tuple(body.risk.reasons))
    if body.tool is None:  # rules apply to tools only: anyone may decide these
        possible = _DECISIONS_WITHOUT_TOOL[kind]
        allowed = _sent_terms({"allowed": body.allowed}).get("allowed", possible)
        given["allowed"] = tuple(name for name in possible if name in allowed) or possible
        # Approving a text runs nothing here, so a crash leaves no doubt: claim it again.
        base = Terms(rule="agent", allowed=possible, effect=body.effect or "idempotent")
        terms = tighten_by_agent(base, _sent_terms(given))
        return replace(terms, description=checked_string(body.description, "description"))
    sent = _sent_terms(given)
    machine: dict[str, Json] = dict(body.machine)
    if body.resolved is not None:
        machine["resolved"] = body.resolved.model_dump(exclude_unset=True)
    call = ToolCall(body.tool, {**args, _MACHINE: machine} if machine else args)
    judge = partial(
        Policy.judge,
        call=call,
        agent=agent,
        now=moment(now),
        own=Terms(),
        needs_approval=body.needs_approval,
    )
    terms = await run_judging(judge(service.gate.policy))
    if body.needs_approval:
        terms = ask_despite_preset(terms)
    if service.gate.observer is not None:
        terms = await service.gate.observer.observed(terms, judge)
    terms = await add_footprint(terms, call)
    if terms.verdict is not Verdict.ASK:  # nobody is asked
        sent = {name: value for name, value in sent.items() if name in _TERMS_WITHOUT_ASKING}
    return tighten_by_agent(terms, sent)


def _sent_terms(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the terms that an agent sent, checked. Raise ``InvalidCall`` if one is not valid."""
    given = {name: value for name, value in given.items() if value is not None}
    try:
        terms = terms_from(given)
    except (InvalidPolicy, TypeError, ValueError) as error:
        field = str(error).partition("=")[0]
        raise InvalidCall(str(error), field if field in given else "") from None
    sent = {name: getattr(terms, name) for name in given}
    return sent if terms.requester_decides else {**sent, "requester_decides": False}


async def wait_for_decision(service: Service, call: Call, seconds: float) -> Call:
    """Return the call once it is decided, or its current state after a timeout or on shutdown.

    If the call is in doubt at the start, this waits until it is settled. If it becomes in doubt
    later, it is returned at once.
    """
    ends, doubted = time.monotonic() + seconds, call.status is CallStatus.IN_DOUBT
    with (
        closing(CommitWaiter(service.store, call.thread)) as commits,
        service.feed.calling_on_close(commits.wake),
    ):
        while True:
            call = await to_thread(apply_due, service, call.id)
            left = ends - time.monotonic()
            newly = call.status is CallStatus.IN_DOUBT and not doubted
            if call.status not in _WAITING or newly or left <= 0 or service.feed.closed:
                return call
            due = [left]
            if call.due_at is not None:
                due.append((call.due_at - service.store.now()) / SECOND + 0.001)
            await commits.wait(max(min(due), 0.001))


def apply_due(service: Service, call_id: str) -> Call:
    """Return the call after applying what is due: expiry, a lapsed lease, the end of its run."""
    call = get_call(service, call_id)
    now = service.store.now()
    if call.overdue(now):
        expire(service.store, call)
    elif call.status is CallStatus.RUNNING:
        run = service.store.run(call.run)
        if run is not None and run.lapsed(now):
            release_lapsed(service.store, call.thread, call.run)
    else:
        finish_after(service.store, call)
        return call
    return get_call(service, call_id)


def get_call(service: Service, call_id: str) -> Call:
    """Return a call by id, or raise ``NotFound``."""
    call = service.store.call(call_id)
    if call is None:
        raise no_request(call_id)
    return call


def _claim_plan(service: Service, call: Call, body: ClaimBody) -> Plan:
    """Return the call as its agent sees it now; omitted fields count as unchanged."""
    facts = codec.loads(call.binds)
    bound = call.binds if body.binds is None else remote_binds(facts["body"], body.binds)
    own = call.terms
    if body.terms is not None:
        own = tighten_by_agent(own, _sent_terms(body.terms.model_dump()))
    if body.effect_key is not None:
        own = replace(own, effect_key=terms_from({"effect_key": body.effect_key}).effect_key)

    async def terms(args: dict[str, Any]) -> Terms:
        if not call.tool:
            return own
        said = await judge_remote(service.gate, call._replace(terms=own), args)
        return tighten(own, said) if said.verdict is not Verdict.DENY else said

    return Plan(
        key=call.key,
        kind=call.kind,
        args=call.args,
        agent=call.agent,
        terms=terms,
        tool_name=call.tool,
        binds=lambda: bound,
    )


async def claim(service: Service, call: Call, agent: str, body: ClaimBody) -> Call:
    """Re-check an approved call against what its agent sent, and start it once, under a lease."""
    if call.status is CallStatus.ASKED:
        raise Conflict(f"{call.id} cannot be claimed: it is waiting for a decision")
    if call.status is not CallStatus.READY:
        raise Conflict(f"{call.id} cannot be claimed: it is {call.status}")
    if body.tool_digest not in (None, call.tool_digest):
        raise NotAllowed(
            f"{call.id} cannot be claimed: the tool has changed since the request was opened; "
            "open the call again with a new key"
        )
    lease = float(body.lease)
    owner = f"remote:{agent}:{call.id}:{lease:g}"
    backend, driver = service.gate.backend, service.gate.driver
    entry = RunScope(driver, call.run, call.requester, thread=call.thread, owner=owner)
    plan = _claim_plan(service, call, body)
    cleared = await backend.clear(plan, call)
    if not isinstance(cleared, Cleared):
        again = f"reviewers were asked again, under the rule {cleared.terms.rule!r}"
        why = cleared.result or f"{again}: its policy, terms or bound facts have changed"
        raise Conflict(f"{call.id} cannot be claimed: {why}")
    started = await backend.start_cleared(entry, cleared, lease)
    if first_request(started):
        raise ending(started, request_in(service.store, started), "")
    if not begun(started, call):
        raise Conflict(
            f"{call.id} cannot be claimed now: it is {started.status}; wait for it again"
        )
    return started


async def release(service: Service, call: Call, caller: str) -> Call:
    """Re-check an approved call and release it to its agent. Any other call stays as it is."""
    backend = service.gate.backend
    if call.status is not CallStatus.READY:
        return call
    plan = _claim_plan(service, call, ClaimBody.model_validate({}))
    return await backend.release_cleared(await backend.clear(plan, call), caller)


async def report_released(service: Service, agent: str, body: ReportBody) -> Call:
    """Store what an agent says about a call that was released to it."""
    run = _own_name(agent if service.auth else "", body.run, "run")
    service.hooks.note(agent, body.run)
    call = await service.gate.backend.report(run, body.caller, body.ok, body.result, body.args)
    if call is None or call.agent != agent:
        service.hooks.note_unasked(agent, body.run, body.tool)
        raise NotFound(f"nothing was released to {body.caller!r:.80} in run {run!r:.80}")
    return call


def renew(service: Service, call: Call, token: int) -> bool:
    """Extend a claim by the lease that it asked for. Return whether the claim is still valid."""
    if call.is_read:
        return call.under_way  # a read has no lease
    run = service.store.run(call.run)
    # The run's owner records the lease that the claim asked for, for all servers.
    owner = "" if run is None else run.owner or ""
    _, found, asked = owner.rpartition(f":{call.id}:")
    seconds = float(asked) if found else _DEFAULT_LEASE
    renewal = Renewal(call.run, token, round(seconds * SECOND))
    renewals = [renewal, renewal._replace(call=call.id)]  # the attempt may be in doubt
    end = time.monotonic() + seconds / 3
    while (left := end - time.monotonic()) > 0:
        extended = service.store.renew(renewals, left)
        if call.run in extended or run is None:
            return extended.get(call.run, False)
        time.sleep(_RENEW_AGAIN)
    raise StoreError(f"run {call.run} is locked by another transaction: renew the claim again")


async def report(service: Service, call: Call, body: ResultBody) -> Call:
    """Record the outcome of a claimed call. Reporting the same outcome again returns it."""
    # Each attempt has its own token, so a repeated report names the same attempt.
    attempt = call.attempt if body.attempt is None else body.attempt
    # Several agents may have claimed a read; the first result counts.
    this = call.attempt >= attempt if call.is_read else call.attempt == attempt
    if not call.attempt or not this or call.token != body.token:
        raise Conflict(f"{call.id} was not claimed with this token: it is {call.status}")
    backend, said = service.gate.backend, str(body.result).replace("\0", "\\x00")
    if body.outcome == "paused":
        return await backend.suspend(call)
    if body.outcome == "in_doubt":
        return await backend.record_doubt(call, said)
    ok, why = body.ok or body.outcome == "not_kept", ""
    result: str | None = codec.canonical(body.result).decode() if ok else said
    if body.outcome == "not_kept":
        result, why = None, said
    if call.status is (CallStatus.DONE if ok else CallStatus.FAILED) and call.result == result:
        return call  # a repeated report
    doubt = call.doubt if call.status is CallStatus.IN_DOUBT and not ok else None
    if doubt is not None and doubt.ended and doubt.reason == result:
        return call  # likewise
    if not call.under_way and call.status is not CallStatus.IN_DOUBT:
        raise Conflict(f"{call.id} is {call.status}: its result was already recorded")
    entry = RunScope(service.gate.driver, call.run, call.requester, thread=call.thread)
    recorded = await backend.end(entry, call, ok, result, why=why, retry=True, failure=body.failure)
    await to_thread(finish_after, service.store, recorded)
    return recorded


def policy_judge(gate: Gate) -> Judge:
    """Return a function that applies the policy of remote agents, ``gate``'s, to edited arguments.

    For any other agent the stored terms hold here.
    """

    def judge(call: Call, args: Mapping[str, Json]) -> Terms:
        if not call.tool or not is_remote(call.binds):
            return stored_terms(call, args)
        return run_sync(judge_remote(gate, call, args))

    return judge


async def judge_remote(gate: Gate, call: Call, args: Mapping[str, Json]) -> Terms:
    """Apply the remote agents' policy to arguments, with the call's stored terms as its own.

    The effect is reset to "once", so that only a rule can lower it.
    """
    tool_call = ToolCall(call.tool, args)
    own = replace(call.terms, effect="once")
    now = moment(gate.store.now())
    judging = gate.policy.judge(tool_call, agent=call.agent, now=now, own=own)
    return await add_footprint(await run_judging(judging), tool_call)


def remote_binds(body: str, facts: Mapping[str, Json]) -> str:
    """Return what a remote request is bound to: the hash of its body, and the agent's facts."""
    return codec.canonical({"body": body, **({"facts": dict(facts)} if facts else {})}).decode()
