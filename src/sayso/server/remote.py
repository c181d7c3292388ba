"""Agents on other machines: they ask, wait, claim and report through us, and run it themselves.

A claim is the start of the call: from then on it is recorded or in doubt, as anywhere else. Who
claims holds a lease; one that shows no sign of life until it lapses leaves the call in doubt.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

from sayso import codec, schema
from sayso.engine.commands import Finish, Propose, Renew, Reopen
from sayso.engine.effects import first_request
from sayso.errors import Conflict, InvalidCall, InvalidPolicy, NotAllowed, NotFound
from sayso.gate.backend import Cleared, begun
from sayso.gate.judge import judge
from sayso.gate.options import checked_words, fixed_title, terms_from
from sayso.gate.outcomes import ending
from sayso.gate.plan import Plan, new_call
from sayso.gate.scope import RunScope
from sayso.policy import tightened
from sayso.rows import LIVE, Call, CallStatus, Run, Tool
from sayso.server.service import Service
from sayso.server.showing.judging import body_binds, came_from_elsewhere, judging
from sayso.server.wire.shapes import (
    ClaimBody,
    OpenBody,
    OptionBody,
    QuestionBody,
    ResultBody,
)
from sayso.stores.base import Query, Store
from sayso.stores.nested_runs import expire, release_lapsed
from sayso.stores.row_checks import request_in
from sayso.twin import News, hop, look, write
from sayso.types import (
    Json,
    Micros,
    Option,
    Question,
    Request,
    Risk,
    Terms,
    ToolCall,
    Verdict,
    moment,
    stricter_effect,
)
from sayso.views import kept_question

_OWN = (
    *("allowed", "reviewers", "quorum", "expires_in", "valid_for", "effect"),
    *("effect_key", "on_duplicate"),
)
#: What can be said to something that is asked about for its own sake.
_ANSWERS = {"question": ("respond", "reject"), "approval": ("approve", "reject")}
_MICROS = 1_000_000
_WAITING = (CallStatus.ASKED, CallStatus.RUNNING, CallStatus.IN_DOUBT)
#: For a claim of an older version, whose owner does not say how long it asked for.
_LEASE = 60.0


async def open_call(
    service: Service, agent: str, body: OpenBody, key: str | None
) -> tuple[Call, bool]:
    """Put a call to people, or find it under its key; also whether it is new."""
    # To check a value against a schema of somebody else's may take a while.
    kind, args = _content(body) if body.schema_ is None else await hop(_content, body)
    fields = body.model_dump(by_alias=True, exclude_defaults=True)
    # The same key with another body is a mistake, whatever differs: the digest covers this hash.
    bound = body_binds(codec.sha256(codec.canonical(fields)), body.binds)
    name = key or secrets.token_hex(16)
    run = body.run or (f"{agent}/thread/{body.thread}" if body.thread else f"{agent}/{name}")
    known, call, now = await look(service.store, _before, service, agent, body, run, name)
    terms = await _terms(service, agent, body, kind, args, now)
    tool = _face(body) if kind == "approval" and body.tool is not None else None
    fresh = False
    if call is None:
        plan = Plan(
            key=_row_key(name),
            kind=kind,
            args=codec.canonical(args).decode(),
            agent=agent,
            terms=_fixed(terms),
            tool=tool,
            tool_name=body.tool or "",
            binds=lambda: bound,
            title=fixed_title(body.title),
            note=checked_words(body.note, "note"),
        )
        shown = "" if body.preview is None else codec.canonical(body.preview).decode()
        new = new_call(plan, terms, shown)
        reopen = Reopen(
            thread=known.thread if known is not None else body.thread or run, run=run, by=agent
        )
        propose = Propose(
            thread=reopen.thread,
            run=run,
            agent=agent,
            calls=(new,),
            tools=() if tool is None else (tool,),
            requester=body.requester,
        )
        ((call,),) = (await write(service.store, reopen, propose))[1:]
        fresh = call.id == new.id  # else another of its kind was a moment faster
    assert call is not None
    if call.binds != bound:
        raise Conflict(
            f"the key {name!r} was used before with another body (request {call.id}): "
            "use another key for another call"
        )
    return call, fresh


def _row_key(name: str) -> str:
    """The key of the row: no other door of the store makes keys like it."""
    return f"remote={name}"


def _before(
    service: Service, agent: str, body: OpenBody, run: str, key: str
) -> tuple[Run | None, Call | None, Micros]:
    """The run of that name and its call under this key, if they are there already; and the time.

    A call that is new has to be in the right place, and the agent may not have too many open.
    """
    store = service.store
    for field, given in (("run", body.run), ("thread", body.thread)):
        if given is not None and given.startswith("@"):
            raise InvalidCall("names that begin with @ are kept for the store itself", field)
    known = store.run(run)
    if known is not None and known.agent != agent:
        raise Conflict(f"run {run!r} belongs to another agent: use another name")
    if known is not None and body.thread not in (None, known.thread):
        raise Conflict(f"run {run!r} is in thread {known.thread!r}: use another name")
    call = None if known is None else store.call_by_key(run, _row_key(key))
    if known is None and (body.thread or body.run):
        _check_thread(store, body.thread or run, run, agent)
    if call is None:
        service.limits.enter(agent, partial(_open_requests, store, agent))
    return known, call, store.now()


def _check_thread(store: Store, thread: str, run: str, agent: str) -> None:
    """Refuse a thread that is somebody's chat, another agent's, or has another run going on."""
    if store.thread(thread) is None:
        return  # it begins here, as nearly always
    first, last = store.chain(thread, 0, 1), store.last_run(thread)
    if (first and first[0].type == "opened") or (last is not None and last.agent != agent):
        raise Conflict(f"thread {thread!r} belongs to somebody else: use another name")
    live = store.live_run(thread)
    # It may be the same post, a moment faster; or everything was decided and nobody came back.
    if live is not None and live.id != run and not _end_if_over(store, live):
        raise Conflict(
            f"in thread {thread!r} the run {live.id!r} is not over: go on in that run, or use "
            "another thread"
        )


def _content(body: OpenBody) -> tuple[str, dict[str, Json]]:
    given = [name for name in ("tool", "question", "text") if getattr(body, name) is not None]
    if len(given) != 1:
        raise InvalidCall("give one of: tool (with args), question, or text (with details)", "tool")
    if body.kind not in (None, "question" if body.question is not None else "approval"):
        raise InvalidCall(f"{given[0]} is no {body.kind}: leave kind out, or say the other", "kind")
    if body.question is not None:
        return "question", kept_question(_question(body.question))
    if body.text is not None:
        if not body.text.strip():
            raise InvalidCall("say what is to be approved", "text")
        return "approval", {"text": body.text, "details": body.details}
    if body.schema_ is not None:
        wrong = schema.errors(schema.foreign_schema(body.schema_), body.args)
        if wrong:
            path, message = wrong[0]
            place = f"args.{path}" if path else "args"
            raise InvalidCall(f"{place}: {message}", place)
    return "approval", dict(body.args)


def _question(body: QuestionBody) -> Question:
    return Question(
        body.text,
        tuple(_option(option) for option in body.options),
        multiple=body.multiple,
        free_text=body.free_text,
        schema=None if body.schema_ is None else schema.foreign_schema(body.schema_),
    )


def _option(body: OptionBody | str) -> Option:
    if isinstance(body, str):
        return Option(body)
    return Option(body.label, body.value, body.description)


def _face(body: OpenBody) -> Tool:
    """The tool as the agent describes it: any object, where it gives no schema."""
    name = checked_words(body.tool, "tool", 200)
    if not name.strip():
        raise InvalidCall("a tool needs a name", "tool")
    parameters = body.schema_ or {"type": "object"}
    return schema.remote_tool(name, parameters, body.returns, _description(body))


def _description(body: OpenBody) -> str:
    return checked_words(body.description, "description")


async def _terms(
    service: Service, agent: str, body: OpenBody, kind: str, args: dict[str, Json], now: Micros
) -> Terms:
    """The policy's terms, made stricter by what the agent wants for itself."""
    wanted = {name: getattr(body, name) for name in _OWN}
    if body.risk is not None:
        wanted["risk"] = Risk(body.risk.level, tuple(body.risk.reasons))
    try:
        own = terms_from(wanted, rule="agent")
        if body.tool is None:
            wanted["allowed"] = _fitting(own.allowed, _ANSWERS[kind])
            # To carry out a yes to a text changes nothing: after a crash it is done again.
            wanted["effect"] = body.effect or "idempotent"
            own = terms_from(wanted, rule="agent")
            return replace(own, description=_description(body))
    except (InvalidPolicy, TypeError, ValueError) as error:
        field = str(error).partition("=")[0]
        raise InvalidCall(str(error), field if field in wanted else "") from None
    said = await judge(
        service.gate.policy.judge(
            ToolCall(body.tool, args),
            agent=agent,
            now=moment(now),
            # An agent cannot lower what its tool is: where the policy is silent, that is "once".
            own=replace(own, effect="once"),
            needs_approval=True,
        )
    )
    effect = stricter_effect(said.effect, body.effect or said.effect)
    if said.verdict is not Verdict.ASK:
        return replace(said, effect=effect)
    own = replace(
        own,
        policy=said.policy,
        rule=said.rule,
        description=said.description,
        effect=effect,
        effect_key=said.effect_key,
    )
    return tightened(said, own)


def _fitting(wanted: tuple[str, ...], possible: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in wanted if name in possible) or possible


def _open_requests(store: Store, agent: str, most: int) -> int:
    return len(store.page(Query(status="pending", agent=agent, limit=most)))


async def wait_for(service: Service, call: Call, seconds: float) -> Call:
    """The call once somebody has decided it, or as it stands when the time is over, or the server
    stops.

    One in doubt waits for a person like any other; that it came to be in doubt is news, though.
    """
    ends, doubted = time.monotonic() + seconds, call.status is CallStatus.IN_DOUBT
    with closing(News(service.store, call.thread)) as news, service.feed.waking(news.wake):
        while True:
            call = await hop(settled, service, call.id)
            left = ends - time.monotonic()
            newly = call.status is CallStatus.IN_DOUBT and not doubted
            if call.status not in _WAITING or newly or left <= 0 or service.feed.closed:
                return call
            due = [left]
            if call.status is CallStatus.ASKED and call.expires_at is not None:
                due.append((call.expires_at - service.store.now()) / _MICROS + 0.001)
            await news.wait(max(min(due), 0.001))


def settled(service: Service, call_id: str) -> Call:
    """The row, after what only the clock decides; a run that nothing is left of is over."""
    call = found(service, call_id)
    now = service.store.now()
    if call.status is CallStatus.ASKED and call.expires_at is not None and call.expires_at <= now:
        expire(service.store, call)
    elif call.status is CallStatus.RUNNING:
        run = service.store.run(call.run)
        if run is not None and run.lapsed(now):
            release_lapsed(service.store, call.thread, call.run)
    else:
        let_end(service, call)
        return call
    return found(service, call_id)


def let_end(service: Service, call: Call) -> None:
    """End the run of a call, if nothing is left of it: its agent may never come back."""
    run = service.store.run(call.run) if came_from_elsewhere(call) else None
    if run is not None and run.status in LIVE:
        _end_if_over(service.store, run)


def _end_if_over(store: Store, run: Run) -> bool:
    """End a run of agents elsewhere of which nothing is left; whether it was so."""
    if run.asked or run.ready or run.running or run.in_doubt:
        return False
    calls = store.calls_of(run.id)
    over = bool(calls) and all(map(came_from_elsewhere, calls))
    if over:
        store.transact(Finish(thread=run.thread, run=run.id, status="done", token=run.token))
    return over


def found(service: Service, call_id: str) -> Call:
    """The call of that id."""
    call = service.store.call(call_id)
    if call is None:
        raise NotFound(f"no request {call_id!r:.80}: see `sayso inbox`")
    return call


def _fixed(terms: Terms) -> Callable[[dict[str, Any]], Awaitable[Terms]]:
    async def same(_: dict[str, Any]) -> Terms:
        return terms

    return same


def _claimed(service: Service, call: Call, agent: str, body: ClaimBody) -> Plan:
    """The agent's side of a claim: what it sent, and for the rest what is stored."""
    facts = codec.loads(call.binds)
    bound = call.binds if body.binds is None else body_binds(facts["body"], body.binds)
    own = call.terms
    if body.terms is not None:
        wanted = {"reviewers": body.terms.reviewers, "quorum": body.terms.quorum}
        own = tightened(own, replace(terms_from(wanted), policy=own.policy, verdict=own.verdict))
    if body.effect_key is not None:
        own = replace(own, effect_key=terms_from({"effect_key": body.effect_key}).effect_key)

    async def terms(args: dict[str, Any]) -> Terms:
        if not call.tool:
            return own
        said = await judge(judging(service.gate, call._replace(terms=own), args))
        return tightened(own, said) if said.verdict is not Verdict.DENY else said

    return Plan(
        key=call.key,
        kind=call.kind,
        args=call.args,
        agent=agent,
        terms=terms,
        tool_name=call.tool,
        binds=lambda: bound,
    )


async def claim(service: Service, call: Call, agent: str, body: ClaimBody) -> Call:
    """Re-check an approved call with what its agent sent, and start it: once, under a lease."""
    if call.status is CallStatus.ASKED:
        raise Conflict(f"{call.id} cannot be claimed: it waits for a decision")
    if call.status is not CallStatus.READY:
        raise Conflict(f"{call.id} cannot be claimed: it is {call.status}")
    if body.tool_digest not in (None, call.tool_digest):
        raise NotAllowed(
            f"{call.id} cannot be claimed: the tool changed since it was asked about; open the "
            "call again under another key"
        )
    lease = float(body.lease)
    owner = f"remote:{agent}:{call.id}:{lease:g}"
    backend, driver = service.gate.backend, service.gate.driver
    entry = RunScope(driver, call.run, call.requester, thread=call.thread, owner=owner)
    plan = _claimed(service, call, call.agent, body)
    cleared = await backend.clear(plan, call)
    if not isinstance(cleared, Cleared):
        again = f"it is asked about again, under the rule {cleared.terms.rule!r}"
        why = cleared.result or f"{again}: its policy, terms or surroundings have changed"
        raise Conflict(f"{call.id} cannot be claimed: {why}")
    started = await backend.start_cleared(entry, cleared, lease)
    if first_request(started):
        raise ending(started, view(service, started), "")
    if not begun(started, call):
        raise Conflict(f"{call.id} cannot be claimed now: it is {started.status}; wait again")
    return started


def renew(service: Service, call: Call, token: int) -> bool:
    """A sign of life: from now on, the claim holds as long again as it asked for."""
    if call.is_read:
        return call.under_way  # it has no lease that could end
    run = service.store.run(call.run)
    lease = _lease_of(None if run is None else run.owner, call.id)
    (ours,) = service.store.transact(
        Renew(thread=call.thread, run=call.run, token=token, lease=round(lease * _MICROS))
    )
    return bool(ours)


def _lease_of(owner: str | None, call: str) -> float:
    """How long a claim asked for: its owner says so, whichever server took it."""
    _, found, lease = (owner or "").rpartition(f":{call}:")
    return float(lease) if found else _LEASE


async def report(service: Service, call: Call, body: ResultBody) -> Call:
    """Record what came of a claimed call."""
    # Each attempt has a token of its own; who says which one it was says the same twice.
    attempt = call.attempt if body.attempt is None else body.attempt
    # A read may have been claimed by several, and the first result counts.
    this = call.attempt >= attempt if call.is_read else call.attempt == attempt
    if not call.attempt or not this or call.token != body.token:
        raise Conflict(f"{call.id} was not claimed with this token: it is {call.status}")
    backend, said = service.gate.backend, str(body.result).replace("\0", "\\x00")
    if body.outcome == "paused":
        return await backend.suspend(call)
    if body.outcome == "in_doubt":
        return await backend.doubt(call, said)
    ok, why = body.ok or body.outcome == "not_kept", ""
    result: str | None = codec.canonical(body.result).decode() if ok else said
    if body.outcome == "not_kept":
        result, why = None, said
    if call.status is (CallStatus.DONE if ok else CallStatus.FAILED) and call.result == result:
        return call  # said twice
    if not call.under_way and call.status is not CallStatus.IN_DOUBT:
        raise Conflict(f"{call.id} is {call.status}: its result was recorded before")
    entry = RunScope(service.gate.driver, call.run, call.requester, thread=call.thread)
    recorded = await backend.end(entry, call, ok, result, why=why, retry=True)
    await hop(let_end, service, recorded)
    return recorded


def view(service: Service, call: Call) -> Request:
    """The request that an agent gets back."""
    return request_in(service.store, call)
