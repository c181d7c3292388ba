"""What the MAC of a row covers.

A row that a decision depends on carries a MAC under the store's row key, so that a process without
the key can destroy it but cannot change it. The MAC is made in the transaction that writes the row
(``UnitOfWork.close``) and checked wherever a store hands the row out (``sayso.stores.row_checks``).

It covers the *logical* fields of the row in a fixed order, never its columns: a migration may
rename, split or add columns, and rows that were written before it still count. A list of fields is
never changed in place. To cover a new field, add a list under the next version: new rows are
written with the newest, old rows are checked with the one that their MAC names.

Two fields deserve a word. ``seq`` is the number of the thread's last event at this write: it ties a
call to a place in the chain of events, so that an old row which is put back is found out
(``engine.history``). ``sealed`` of a thread is left out, because sealing writes it without taking
the thread's lock; a changed one only makes the next seal cover more or less.
"""

from __future__ import annotations

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
    json_encoder,
    terms_text,
    votes_text,
)
from sayso.types import Grant

AuthenticRow: TypeAlias = Call | Run | Thread | StoredMessage | Grant | Principal | EffectKey

# ASCII with every separator fixed: one value has one text, on every version of Python.
_encode = json_encoder(ensure_ascii=True)


class Fields(NamedTuple):
    """One kind of row: its table, and the newest list of its fields."""

    noun: str
    version: int
    values: Callable[[Any], tuple[object, ...]]


def _call(call: Call) -> tuple[object, ...]:
    return (
        *(call.id, call.run, call.thread, call.key, call.kind, call.agent, call.requester),
        *(call.tool, call.tool_digest, call.args, call.args_hash, call.original),
        *(call.nonce, call.rev, call.digest, terms_text(call.terms), call.binds, call.note),
        *(call.title, call.preview, call.status, call.asked, call.expires_at, call.created),
        *(votes_text(call.votes), decision_text(call.decision), call.valid_until, call.grant),
        *(call.attempt, call.token, call.result, call.effect_key, call.settles),
        *(doubt_text(call.doubt), call.seq),
    )


def _run(run: Run) -> tuple[object, ...]:
    return (
        *(run.id, run.thread, run.agent, run.agent_digest, run.requester, run.parent_call),
        *(run.status, run.stop, run.wake, run.token, run.owner, run.ready_at),
        *(run.asked, run.ready, run.running, run.in_doubt, run.snapshot, run.output),
        *(run.created, run.seq),
    )


def _thread(thread: Thread) -> tuple[object, ...]:
    return (
        *(thread.id, thread.owner, thread.messages, thread.messages_pruned, thread.created),
        *(thread.seq, thread.head),
    )


def _message(message: StoredMessage) -> tuple[object, ...]:
    return message[:-1]


def _grant(grant: Grant) -> tuple[object, ...]:
    return (
        *(grant.id, grant.agent, grant.tool, grant.tool_digest, grant.scope, grant.by),
        *(grant.created, grant.uses_left, grant.ends, grant.revoked, grant.signature),
    )


def _effect_key(effect: EffectKey) -> tuple[object, ...]:
    return effect[:-1]


def _principal(principal: Principal) -> tuple[object, ...]:
    return principal[:-1]


FIELDS: dict[type[AuthenticRow], Fields] = {
    Call: Fields("request", 1, _call),
    Run: Fields("run", 1, _run),
    Thread: Fields("thread", 1, _thread),
    StoredMessage: Fields("message", 1, _message),
    Grant: Fields("grant", 1, _grant),
    Principal: Fields("token", 1, _principal),
    EffectKey: Fields("effect", 1, _effect_key),
}


def row_mac(row: AuthenticRow, mac: Callable[[bytes], str]) -> str:
    """Return the MAC of a row as it is stored: ``<version>.<row key id>.<base64url>``."""
    noun, version, values = FIELDS[type(row)]
    return f"{version}.{mac(_encode((noun, version, *values(row))).encode())}"


def row_bytes(row: AuthenticRow) -> tuple[bytes, str] | None:
    """Return what the MAC of a stored row must cover, and the MAC without its version.

    None if the row names no list of fields that this version of Sayso knows.
    """
    noun, version, values = FIELDS[type(row)]
    named, _, mac = str(row.mac).partition(".")
    if named != str(version):
        return None
    return _encode((noun, version, *values(row))).encode(), mac
