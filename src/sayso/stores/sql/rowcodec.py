"""Columns ⇄ values, in the order of the column lists in ``sayso.stores.sql.transaction``.

Three columns hold structure, as compact JSON text: terms, votes and decision.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any

from sayso.rows import Call, CallStatus, Event, Principal, Run, RunStatus, Thread, Tool
from sayso.types import Decided, Grant, Risk, Terms, Verdict, Vote

Row = Sequence[Any]

_DEFAULTS = {field.name: getattr(Terms(), field.name) for field in fields(Terms)}


_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@lru_cache(maxsize=1024)
def terms_to(terms: Terms) -> str:
    """Terms as text; what equals the default is left out, because most of them do."""
    changed: dict[str, Any] = {}
    for name, default in _DEFAULTS.items():
        value = getattr(terms, name)
        if value != default:
            changed[name] = value
    if "risk" in changed:
        changed["risk"] = [terms.risk.level, *terms.risk.reasons]
    return _dumps(changed)


@lru_cache(maxsize=1024)
def terms_from(text: str) -> Terms:
    """Text as terms."""
    values = json.loads(text)
    for name in ("allowed", "reviewers"):
        if name in values:
            values[name] = tuple(values[name])
    if "risk" in values:
        level, *reasons = values["risk"]
        values["risk"] = Risk(level, tuple(reasons))
    if "verdict" in values:
        values["verdict"] = Verdict(values["verdict"])
    return Terms(**values)


# Rows are written and read several times while their votes and decision stay as they are.


@lru_cache(maxsize=256)
def votes_to(votes: tuple[Vote, ...]) -> str:
    """Votes as text."""
    if not votes:
        return ""
    return _dumps([[v.type, v.by, v.at, v.assurance, v.digest, v.signature] for v in votes])


@lru_cache(maxsize=256)
def votes_from(text: str) -> tuple[Vote, ...]:
    """Text as votes."""
    if not text:
        return ()
    return tuple(
        Vote(type=t, by=by, at=at, assurance=a, digest=d, signature=s)
        for t, by, at, a, d, s in json.loads(text)
    )


@lru_cache(maxsize=256)
def decision_to(decision: Decided | None) -> str | None:
    """A decision as text."""
    if decision is None:
        return None
    d = decision
    return _dumps(
        [d.type, d.by, d.at, d.channel, d.assurance, d.digest, d.signature, d.message, d.value]
    )


@lru_cache(maxsize=256)
def decision_from(text: str | None) -> Decided | None:
    """Text as a decision."""
    if text is None:
        return None
    type, by, at, channel, assurance, digest, signature, message, value = json.loads(text)
    return Decided(
        type=type,
        by=by,
        at=at,
        channel=channel,
        assurance=assurance,
        digest=digest,
        signature=signature,
        message=message,
        value=value,
    )


def thread_from(row: Row) -> Thread:
    """A thread row as a value."""
    return Thread(
        id=row[0],
        owner=row[1],
        messages=row[2],
        seq=row[3],
        head=row[4],
        mac=row[5],
        sealed=row[6],
    )


def run_from(row: Row) -> Run:
    """A run row as a value."""
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
    )


def call_from(row: Row) -> Call:
    """A call row as a value."""
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
        note=row[15],
        preview=row[16],
        status=CallStatus(row[17]),
        asked=bool(row[18]),
        original=row[19],
        expires_at=row[20],
        votes=votes_from(row[21]),
        decision=decision_from(row[22]),
        valid_until=row[23],
        grant=row[24],
        attempt=row[25],
        token=row[26],
        result=row[27],
        created=row[28],
        requester=row[29],
    )


def grant_from(row: Row) -> Grant:
    """A grant row as a value."""
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
    )


def event_from(row: Row) -> Event:
    """An event row as a value."""
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
    """A token row as a value."""
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
    )


def tool_from(row: Row) -> Tool:
    """A tool row as a value."""
    return Tool(digest=row[0], name=row[1], schema=row[2], description=row[3])


def grant_values(grant: Grant) -> tuple[Any, ...]:
    """A grant as the values of its columns."""
    what = (grant.id, grant.agent, grant.tool, grant.tool_digest, grant.scope, grant.by)
    state = (grant.uses_left, grant.ends, grant.revoked, grant.created, grant.signature)
    return (*what, *state)


def principal_values(principal: Principal) -> tuple[Any, ...]:
    """A token as the values of its columns."""
    who = (principal.id, principal.token_hash, principal.person, principal.role)
    groups = json.dumps(list(principal.groups))
    ended = (principal.ends, principal.revoked, principal.created)
    return (*who, groups, *ended, principal.signature)


def event_values(event: Event) -> tuple[Any, ...]:
    """An event as the values of its columns."""
    what = (event.thread, event.seq, event.at, event.type, event.run, event.call, event.actor)
    return (*what, event.body, event.digest, event.hash)
