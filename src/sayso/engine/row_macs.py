"""What the MAC of a row covers.

A row that a decision depends on carries a MAC under the store's row key, so that a process without
the key can destroy it but cannot change it. The MAC is made in the transaction that writes the row
(``UnitOfWork.close``) and checked wherever a store hands the row out (``sayso.stores.row_checks``).

It covers the *logical* fields of the row in a fixed order, never its columns: a migration may
rename, split or add columns, and rows that were written before it still count. A list of fields is
never changed in place. To cover a new field, add a list under the next version: new rows are
written with the newest, old rows are checked with the one that their MAC names.

Texts and numbers are in separate lists, so that each place has one type: a column with a value of
another type has no MAC at all. The lengths of the texts come before them, so that nothing can move
from one field to the next. An optional text gets a trailing ``.`` if it is set, because ``None``
and an empty text are different.

Notes on two fields: ``seq`` is the number of the thread's last event at this write: it ties a
call to a place in the chain of events, so that an old row that was put back is detected
(``unit_of_work.check_not_put_back``). ``sealed`` and ``moved`` of a thread are left out, because
sealing writes them without the thread's lock; ``audit verify`` compares them with the seals.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from sayso.rows import (
    Budget,
    Call,
    Credential,
    EffectKey,
    Person,
    Row,
    Run,
    StoredMessage,
    Thread,
    budget_values,
    call_values,
    names_text,
)
from sayso.types import Grant, Refusal

AuthenticRow: TypeAlias = (
    Call | Run | Thread | StoredMessage | Grant | Person | Credential | EffectKey | Refusal | Budget
)

#: The texts of a row, then its numbers.
Values: TypeAlias = tuple[Sequence[str], tuple[int, ...]]


class Fields(NamedTuple):
    """One kind of row: its table, and the newest list of its fields."""

    noun: str
    version: int
    #: Distinguishes rows of different kinds, and of different lists of fields.
    prefix: bytes
    values: Callable[[Any], Values]
    #: Packs the lengths of the texts and the numbers.
    places: struct.Struct
    #: Whether the row's ``seq`` is covered too, as the last number.
    chained: bool = False
    #: The list of fields of the version before this one, for rows that were written with it.
    older: Fields | None = None


def _number(number: int | None) -> tuple[bool, int]:
    return (False, 0) if number is None else (True, number)


def _places(names: str) -> itemgetter[Any]:
    return itemgetter(*map(Call._fields.index, names.split()))


_CALL_TEXTS = _places(
    "id run thread key kind agent requester tool tool_digest args args_hash nonce digest terms "
    "binds note title preview status votes effect_key caller refusals"
)
_CALL_OPTIONAL_TEXTS = _places("original written decision grant result doubt")
_CALL_NUMBERS = _places("rev asked created attempt token settles escalated")
_CALL_TIMES = _places("expires_at valid_until reminds_at escalates_at")
#: The last two fields of a call and a run are ``seq`` and ``mac``.
_SEQ = -2


def _call(values: Row) -> Values:
    """Return the fields of a call from its ``call_values``, where each is a text or a number."""
    texts = [*_CALL_TEXTS(values)]
    for text in _CALL_OPTIONAL_TEXTS(values):
        texts.append("" if text is None else f"{text}.")
    numbers = [*_CALL_NUMBERS(values)]
    for at in _CALL_TIMES(values):
        numbers += (at is not None, at or 0)
    return texts, tuple(numbers)


def _run(run: Run) -> Values:
    return (
        run.id,
        run.thread,
        run.agent,
        run.agent_digest,
        run.requester,
        "" if run.parent_call is None else f"{run.parent_call}.",
        run.status,
        run.stop,
        "" if run.owner is None else f"{run.owner}.",
        "" if run.snapshot is None else f"{run.snapshot}.",
        "" if run.output is None else f"{run.output}.",
        run.scope,
        run.rejections,
    ), (
        run.wake,
        run.token,
        run.ready_at is not None,
        run.ready_at or 0,
        run.asked,
        run.ready,
        run.running,
        run.in_doubt,
        run.created,
    )


def _thread(values: Row) -> Values:
    """Return the fields of a thread from those before its MAC."""
    id, owner, messages, messages_pruned, seq, head, created, *_ = values
    return (id, owner, messages_pruned, head), (messages, created, seq)


def _message(message: StoredMessage) -> Values:
    return (message.thread, message.run, message.body), (message.seq,)


def _grant(grant: Grant) -> Values:
    what = (grant.id, grant.agent, grant.tool, grant.tool_digest, grant.scope, grant.by)
    ends = (*_number(grant.uses_left), *_number(grant.ends), *_number(grant.revoked))
    steps = names_text(grant.steps) if grant.steps else ""
    return (*what, steps, grant.signature), (grant.created, *ends)


def _effect_key(effect: EffectKey) -> Values:
    whose = (effect.run, effect.thread, effect.agent, effect.requester)
    return (effect.key, effect.call, *whose), (effect.created,)


def _budget(budget: Budget) -> Values:
    key, limits, keep, entries, until, _ = budget_values(budget)
    return (key, limits, entries), (keep, until)


def _refusal(refusal: Refusal) -> Values:
    whose = (refusal.request, refusal.run, refusal.thread, refusal.scope)
    what = (refusal.agent, refusal.tool, refusal.tool_digest, refusal.args_hash)
    reason = (refusal.by, refusal.message, refusal.overturn, refusal.lifted_by)
    ends = (*_number(refusal.ends), *_number(refusal.lifted))
    return (refusal.id, *whose, *what, *reason), (refusal.at, *ends)


def _person(person: Person) -> Values:
    who = (person.name, person.look, person.role, names_text(person.groups), person.mail)
    state = (person.origin, person.status, person.stand_in, person.notices)
    times = (person.created, person.changed, person.since, *_number(person.away_until))
    return (*who, *state, person.signature), times


def _credential(credential: Credential) -> Values:
    c = credential
    texts = (c.id, c.hash, c.person, c.kind, c.role, c.assurance, c.opened_by)
    more = (c.device, c.public_key, c.signature)
    ends = (*_number(c.ends), *_number(c.idle), *_number(c.revoked))
    return (*texts, *more), (c.signed_in, c.created, c.last_used, *ends)


FIELDS: dict[type[AuthenticRow], Fields] = {
    Call: Fields("request", 5, b"request/5\0", _call, struct.Struct("<45q"), True),
    Run: Fields("run", 2, b"run/2\0", _run, struct.Struct("<23q"), True),
    Thread: Fields("thread", 1, b"thread/1\0", _thread, struct.Struct("<7q")),
    StoredMessage: Fields("message", 1, b"message/1\0", _message, struct.Struct("<4q")),
    Grant: Fields("grant", 2, b"grant/2\0", _grant, struct.Struct("<15q")),
    Person: Fields("person", 1, b"person/1\0", _person, struct.Struct("<15q")),
    Credential: Fields("credential", 1, b"credential/1\0", _credential, struct.Struct("<19q")),
    Refusal: Fields("refusal", 1, b"refusal/1\0", _refusal, struct.Struct("<18q")),
    Budget: Fields("budget", 1, b"budget/1\0", _budget, struct.Struct("<5q")),
    EffectKey: Fields("effect", 1, b"effect/1\0", _effect_key, struct.Struct("<7q")),
}


def _covered(fields: Fields, values: Any, seq: int | None = None) -> bytes:
    """Return the bytes that a MAC covers: each row has exactly one form, shared by no other."""
    texts, numbers = fields.values(values)
    if fields.chained:
        numbers = (*numbers, values[_SEQ] if seq is None else seq)
    try:
        places = fields.places.pack(*map(len, texts), *numbers)
    except struct.error as error:
        raise ValueError(f"not a whole number of 64 bits: {error}") from None
    return fields.prefix + places + "".join(texts).encode()


def values_mac(
    kind: type[AuthenticRow], values: Any, mac: Callable[[bytes], str], seq: int | None = None
) -> str:
    """Return the MAC of a row as it is stored: ``<version>.<row key id>.<hex>``.

    ``values`` is the row itself or, of a call, its ``call_values``; of a thread, the fields before
    the MAC suffice. ``seq`` replaces that of a call or a run, which is only known when the row is
    written.
    """
    fields = FIELDS[kind]
    return f"{fields.version}.{mac(_covered(fields, values, seq))}"


def row_mac(row: AuthenticRow, mac: Callable[[bytes], str]) -> str:
    """Return the MAC of a row."""
    return values_mac(type(row), _values(row), mac)


def _values(row: AuthenticRow) -> Any:
    return call_values(row) if isinstance(row, Call) else row


def row_bytes(row: AuthenticRow) -> tuple[bytes, str] | None:
    """Return what the MAC of a stored row must cover, and the MAC without its version.

    None if this version of Sayso does not know the list of fields that the MAC names.
    """
    fields: Fields | None = FIELDS[type(row)]
    version, _, mac = str(row.mac).partition(".")
    while fields is not None and version != str(fields.version):
        fields = fields.older
    return None if fields is None else (_covered(fields, _values(row)), mac)
