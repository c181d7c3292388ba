"""Encode and decode rows, in the column order of ``sayso.stores.sql.statements``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from sayso.rows import (
    Call,
    CallStatus,
    EffectKey,
    Event,
    Principal,
    Run,
    RunStatus,
    StoredMessage,
    Thread,
    decision_from,
    decision_text,
    doubt_from,
    doubt_text,
    terms_from,
    terms_text,
    votes_from,
    votes_text,
)
from sayso.stores.row_checks import RowDecoder
from sayso.stores.sql import statements as sql
from sayso.types import Grant

Row = Sequence[Any]


def thread_from(row: Row) -> Thread:
    return Thread(
        id=row[0],
        owner=row[1],
        messages=row[2],
        messages_pruned=row[3],
        seq=row[4],
        head=row[5],
        created=row[6],
        mac=row[7],
        sealed=row[8],
    )


def run_from(row: Row) -> Run:
    return Run(
        id=row[0],
        thread=row[1],
        agent=row[2],
        agent_digest=row[3],
        requester=row[4],
        parent_call=row[5],
        status=RunStatus(row[6]),
        stop=row[7],
        wake=row[8],
        token=row[9],
        owner=row[10],
        ready_at=row[11],
        asked=row[12],
        ready=row[13],
        running=row[14],
        in_doubt=row[15],
        snapshot=row[16],
        output=row[17],
        created=row[18],
        seq=row[19],
        mac=row[20],
    )


def call_from(row: Row) -> Call:
    return Call(
        id=row[0],
        run=row[1],
        thread=row[2],
        key=row[3],
        kind=row[4],
        agent=row[5],
        tool=row[6],
        tool_digest=row[7],
        args=row[8],
        args_hash=row[9],
        nonce=row[10],
        rev=row[11],
        digest=row[12],
        terms=terms_from(row[13]),
        binds=row[14],
        title=row[15],
        note=row[16],
        preview=row[17],
        status=CallStatus(row[18]),
        asked=bool(row[19]),
        original=row[20],
        expires_at=row[21],
        votes=votes_from(row[22]),
        decision=decision_from(row[23]),
        valid_until=row[24],
        grant=row[25],
        attempt=row[26],
        token=row[27],
        result=row[28],
        created=row[29],
        requester=row[30],
        effect_key=row[31],
        settles=bool(row[32]),
        doubt=doubt_from(row[33]),
        seq=row[34],
        mac=row[35],
    )


def grant_from(row: Row) -> Grant:
    return Grant(
        id=row[0],
        agent=row[1],
        tool=row[2],
        tool_digest=row[3],
        scope=row[4],
        by=row[5],
        uses_left=row[6],
        ends=row[7],
        revoked=row[8],
        created=row[9],
        signature=row[10],
        mac=row[11],
    )


def effect_from(row: Row) -> EffectKey:
    return EffectKey(*row)


def event_from(row: Row) -> Event:
    return Event(
        pos=row[0],
        thread=row[1],
        seq=row[2],
        at=row[3],
        type=row[4],
        run=row[5],
        call=row[6],
        actor=row[7],
        body=row[8],
        digest=row[9],
        hash=row[10],
    )


def principal_from(row: Row) -> Principal:
    return Principal(
        id=row[0],
        token_hash=row[1],
        person=row[2],
        role=row[3],
        groups=tuple(json.loads(row[4])),
        ends=row[5],
        revoked=row[6],
        created=row[7],
        signature=row[8],
        mac=row[9],
    )


def message_from(row: Row) -> StoredMessage:
    return StoredMessage(*row)


def conversation_from(
    decode: RowDecoder, rows: Sequence[Row]
) -> tuple[Thread, list[StoredMessage]]:
    """Decode and check a thread joined with some of its messages."""
    width = sql.THREAD.count(",") + 1
    thread = decode.one(thread_from, rows[0][:width])
    said = [row[width:] for row in rows if row[width] is not None]
    return thread, decode.each(message_from, said)


def _picked(columns: str, some: str) -> itemgetter[Any]:
    """Return a function that picks some columns of a row."""
    names = columns.split(", ")
    return itemgetter(*(names.index(name) for name in some.split(", ")))


call_changes = _picked(sql.CALL, sql.CALL_CHANGES)
run_changes = _picked(sql.RUN, sql.RUN_CHANGES)
thread_changes = _picked(sql.THREAD, sql.THREAD_CHANGES)


def thread_values(thread: Thread) -> tuple[Any, ...]:
    place = (thread.messages, thread.messages_pruned, thread.seq, thread.head)
    return (thread.id, thread.owner, *place, thread.created, thread.mac, thread.sealed)


def run_values(run: Run) -> tuple[Any, ...]:
    return (
        *(run.id, run.thread, run.agent, run.agent_digest, run.requester, run.parent_call),
        run.status.value,  # a plain str binds faster than an enum
        *(run.stop, run.wake, run.token, run.owner, run.ready_at),
        *(run.asked, run.ready, run.running, run.in_doubt, run.snapshot, run.output),
        *(run.created, run.seq, run.mac),
    )


def call_values(call: Call) -> tuple[Any, ...]:
    return (
        *(call.id, call.run, call.thread, call.key, call.kind, call.agent, call.tool),
        *(call.tool_digest, call.args, call.args_hash, call.nonce, call.rev, call.digest),
        *(terms_text(call.terms), call.binds, call.title, call.note, call.preview),
        *(call.status.value, int(call.asked), call.original, call.expires_at),
        *(votes_text(call.votes), decision_text(call.decision), call.valid_until, call.grant),
        *(call.attempt, call.token, call.result, call.created, call.requester),
        *(call.effect_key, int(call.settles), doubt_text(call.doubt), call.seq, call.mac),
    )


def grant_values(grant: Grant) -> tuple[Any, ...]:
    what = (grant.id, grant.agent, grant.tool, grant.tool_digest, grant.scope, grant.by)
    state = (grant.uses_left, grant.ends, grant.revoked, grant.created)
    return (*what, *state, grant.signature, grant.mac)


def principal_values(principal: Principal) -> tuple[Any, ...]:
    who = (principal.id, principal.token_hash, principal.person, principal.role)
    groups = json.dumps(list(principal.groups))
    ended = (principal.ends, principal.revoked, principal.created)
    return (*who, groups, *ended, principal.signature, principal.mac)


def event_values(event: Event) -> tuple[Any, ...]:
    what = (event.thread, event.seq, event.at, event.type, event.run, event.call, event.actor)
    return (*what, event.body, event.digest, event.hash)
