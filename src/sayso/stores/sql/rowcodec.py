"""Encode and decode rows. The columns in ``statements`` are in the order of the row's fields."""

from __future__ import annotations

import json
from collections.abc import Sequence
from operator import attrgetter, itemgetter
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

#: The values of one row; a SELECT may have more columns after those of the table.
Row = Sequence[Any]

_THREAD, _RUN, _CALL, _EVENT = map(len, (Thread._fields, Run._fields, Call._fields, Event._fields))
_RUN_STATUS = Run._fields.index("status")
_TERMS, _STATUS, _ASKED, _VOTES, _DECISION, _SETTLES, _DOUBT = map(
    Call._fields.index, ("terms", "status", "asked", "votes", "decision", "settles", "doubt")
)
_GROUPS = Principal._fields.index("groups")


def thread_from(row: Row) -> Thread:
    return Thread._make(row[:_THREAD])


def run_from(row: Row) -> Run:
    values = list(row[:_RUN])
    values[_RUN_STATUS] = RunStatus(values[_RUN_STATUS])
    return Run._make(values)


def run_values(run: Run) -> tuple[Any, ...]:
    values: list[Any] = list(run)
    values[_RUN_STATUS] = run.status._value_  # a plain str binds faster than an enum
    return tuple(values)


def call_from(row: Row) -> Call:
    values = list(row[:_CALL])
    values[_TERMS] = terms_from(values[_TERMS])
    values[_STATUS] = CallStatus(values[_STATUS])
    values[_ASKED] = bool(values[_ASKED])
    values[_VOTES] = votes_from(values[_VOTES])
    values[_DECISION] = decision_from(values[_DECISION])
    values[_SETTLES] = bool(values[_SETTLES])
    values[_DOUBT] = doubt_from(values[_DOUBT])
    return Call._make(values)


def call_values(call: Call) -> tuple[Any, ...]:
    values: list[Any] = list(call)
    values[_TERMS] = terms_text(call.terms)
    values[_STATUS] = call.status._value_
    values[_ASKED] = int(call.asked)
    values[_VOTES] = votes_text(call.votes)
    values[_DECISION] = decision_text(call.decision)
    values[_SETTLES] = int(call.settles)
    values[_DOUBT] = doubt_text(call.doubt)
    return tuple(values)


def event_from(row: Row) -> Event:
    return Event._make(row[:_EVENT])


def principal_from(row: Row) -> Principal:
    values = list(row)
    values[_GROUPS] = tuple(json.loads(values[_GROUPS]))
    return Principal._make(values)


def principal_values(principal: Principal) -> tuple[Any, ...]:
    values: list[Any] = list(principal)
    values[_GROUPS] = json.dumps(list(principal.groups))
    return tuple(values)


grant_values = attrgetter(*sql.GRANT_FIELDS)


def grant_from(row: Row) -> Grant:
    return Grant(**dict(zip(sql.GRANT_FIELDS, row, strict=True)))


def effect_from(row: Row) -> EffectKey:
    return EffectKey._make(row)


def message_from(row: Row) -> StoredMessage:
    return StoredMessage._make(row)


def conversation_from(
    decode: RowDecoder, rows: Sequence[Row]
) -> tuple[Thread, list[StoredMessage]]:
    """Decode and check a thread joined with some of its messages."""
    thread = decode.one(thread_from, rows[0][:_THREAD])
    said = [row[_THREAD:] for row in rows if row[_THREAD] is not None]
    return thread, decode.each(message_from, said)


def _picked(columns: str, some: str) -> itemgetter[Any]:
    """Return a function that picks some columns of a row."""
    names = columns.split(", ")
    return itemgetter(*(names.index(name) for name in some.split(", ")))


call_changes = _picked(sql.CALL, sql.CALL_CHANGES)
run_changes = _picked(sql.RUN, sql.RUN_CHANGES)
thread_changes = _picked(sql.THREAD, sql.THREAD_CHANGES)
