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
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from sayso.rows import (
    Call,
    EffectKey,
    Principal,
    Run,
    StoredMessage,
    Thread,
    decision_text,
    doubt_text,
    names_text,
    terms_text,
    votes_text,
)
from sayso.types import Grant, Refusal

AuthenticRow: TypeAlias = (
    Call | Run | Thread | StoredMessage | Grant | Principal | EffectKey | Refusal
)

#: The texts of a row, then its numbers.
Values: TypeAlias = tuple[tuple[str, ...], tuple[int, ...]]


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


def _call(call: Call) -> Values:
    return (
        call.id,
        call.run,
        call.thread,
        call.key,
        call.kind,
        call.agent,
        call.requester,
        call.tool,
        call.tool_digest,
        call.args,
        call.args_hash,
        "" if call.original is None else f"{call.original}.",
        "" if call.written is None else f"{call.written}.",
        call.nonce,
        call.digest,
        terms_text(call.terms),
        call.binds,
        call.note,
        call.title,
        call.preview,
        call.status,
        votes_text(call.votes),
        "" if call.decision is None else f"{decision_text(call.decision)}.",
        "" if call.grant is None else f"{call.grant}.",
        "" if call.result is None else f"{call.result}.",
        call.effect_key,
        "" if call.doubt is None else f"{doubt_text(call.doubt)}.",
        call.caller,
        names_text(call.refusals) if call.refusals else "",
    ), (
        call.rev,
        call.asked,
        call.expires_at is not None,
        call.expires_at or 0,
        call.created,
        call.valid_until is not None,
        call.valid_until or 0,
        call.attempt,
        call.token,
        call.settles,
    )


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


def _thread(thread: Thread) -> Values:
    texts = (thread.id, thread.owner, thread.messages_pruned, thread.head)
    return texts, (thread.messages, thread.created, thread.seq)


def _message(message: StoredMessage) -> Values:
    return (message.thread, message.run, message.body), (message.seq,)


def _grant(grant: Grant) -> Values:
    what = (grant.id, grant.agent, grant.tool, grant.tool_digest, grant.scope, grant.by)
    ends = (*_number(grant.uses_left), *_number(grant.ends), *_number(grant.revoked))
    return (*what, grant.signature), (grant.created, *ends)


def _effect_key(effect: EffectKey) -> Values:
    whose = (effect.run, effect.thread, effect.agent, effect.requester)
    return (effect.key, effect.call, *whose), (effect.created,)


def _refusal(refusal: Refusal) -> Values:
    whose = (refusal.request, refusal.run, refusal.thread, refusal.scope)
    what = (refusal.agent, refusal.tool, refusal.tool_digest, refusal.args_hash)
    said = (refusal.by, refusal.message, refusal.overturn, refusal.lifted_by)
    ends = (*_number(refusal.ends), *_number(refusal.lifted))
    return (refusal.id, *whose, *what, *said), (refusal.at, *ends)


def _principal(principal: Principal) -> Values:
    who = (principal.id, principal.token_hash, principal.person, principal.role)
    ends = (*_number(principal.ends), *_number(principal.revoked))
    return (*who, names_text(principal.groups), principal.signature), (principal.created, *ends)


FIELDS: dict[type[AuthenticRow], Fields] = {
    Call: Fields("request", 4, b"request/4\0", _call, struct.Struct("<40q"), True),
    Run: Fields("run", 2, b"run/2\0", _run, struct.Struct("<23q"), True),
    Thread: Fields("thread", 1, b"thread/1\0", _thread, struct.Struct("<7q")),
    StoredMessage: Fields("message", 1, b"message/1\0", _message, struct.Struct("<4q")),
    Grant: Fields("grant", 1, b"grant/1\0", _grant, struct.Struct("<14q")),
    Principal: Fields("token", 1, b"token/1\0", _principal, struct.Struct("<11q")),
    Refusal: Fields("refusal", 1, b"refusal/1\0", _refusal, struct.Struct("<18q")),
    EffectKey: Fields("effect", 1, b"effect/1\0", _effect_key, struct.Struct("<7q")),
}


def _covered(fields: Fields, row: AuthenticRow, seq: int | None = None) -> bytes:
    """Return the bytes that a MAC covers: each row has exactly one form, shared by no other."""
    texts, numbers = fields.values(row)
    if fields.chained:
        numbers = (*numbers, row.seq if seq is None else seq)  # type: ignore[union-attr]
    try:
        places = fields.places.pack(*map(len, texts), *numbers)
    except struct.error as error:
        raise ValueError(f"not a whole number of 64 bits: {error}") from None
    return fields.prefix + places + "".join(texts).encode()


def row_mac(row: AuthenticRow, mac: Callable[[bytes], str], seq: int | None = None) -> str:
    """Return the MAC of a row as it is stored: ``<version>.<row key id>.<base64url>``.

    ``seq`` replaces that of a call or a run, which is only known when the row is written.
    """
    fields = FIELDS[type(row)]
    return f"{fields.version}.{mac(_covered(fields, row, seq))}"


def row_bytes(row: AuthenticRow) -> tuple[bytes, str] | None:
    """Return what the MAC of a stored row must cover, and the MAC without its version.

    None if this version of Sayso does not know the list of fields that the MAC names.
    """
    fields: Fields | None = FIELDS[type(row)]
    named, _, mac = str(row.mac).partition(".")
    while fields is not None and named != str(fields.version):
        fields = fields.older
    return None if fields is None else (_covered(fields, row), mac)
