"""Which keys the rows of a store hold, and rows that are signed again with the newest key."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sayso.engine.asking import signed_bytes
from sayso.engine.grants import grant_bytes
from sayso.engine.people import credential_bytes, person_bytes
from sayso.engine.row_macs import AuthenticRow, row_mac
from sayso.errors import Tampered, UnknownKey
from sayso.keys import Keyring, key_id_of
from sayso.rows import (
    Call,
    Credential,
    Person,
    budget_from,
    call_from,
    call_values,
    credential_from,
    effect_from,
    grant_from,
    message_from,
    person_from,
    refusal_from,
    run_from,
    thread_from,
)
from sayso.stores.base import Rekeyed
from sayso.stores.row_checks import RowDecoder
from sayso.stores.sql import statements as sql
from sayso.stores.sql.statements import Dialect, Execute, Rows
from sayso.types import Grant

#: How many rows one transaction signs again. Other writers wait for it, so it must be short.
REKEY_ROWS = 50

#: The rows on which something still depends, by what they are.
_LIVE = {
    "people": "SELECT signature, mac FROM person WHERE status = 'active' LIMIT ?",
    "tokens": "SELECT signature, mac FROM credential WHERE revoked IS NULL LIMIT ?",
    "grants": "SELECT signature, mac FROM grants WHERE revoked IS NULL LIMIT ?",
    "refusals": "SELECT mac FROM refusal WHERE lifted IS NULL LIMIT ?",
    "open requests": (
        "SELECT c.decision, c.votes, c.mac FROM run r JOIN call c ON c.run = r.id "
        "WHERE r.status IN ('running', 'paused') "
        "AND c.status IN ('asked', 'ready', 'running', 'in_doubt') LIMIT ?"
    ),
    "limits": "SELECT mac FROM budget LIMIT ?",
    "open runs": "SELECT mac FROM run WHERE status IN ('running', 'paused') LIMIT ?",
    "threads": (
        "SELECT t.mac FROM run r JOIN thread t ON t.id = r.thread "
        "WHERE r.status IN ('running', 'paused') LIMIT ?"
    ),
}
_KEY_ID = re.compile(r"\b([0-9a-f]{8})\.[\w-]{43,}")


def key_uses(rows: Rows, most: int) -> dict[str, Counter[str]]:
    """Count the keys that live rows hold, in signatures and MACs, by what the rows are."""
    return {
        noun: Counter(
            key_id
            for row in rows(statement, (most,))
            for key_id in {id for column in row for id in _KEY_ID.findall(str(column or ""))}
        )
        for noun, statement in _LIVE.items()
    }


def has_signed(rows: Rows, key_id: str) -> bool:
    """Return whether a key has ever sealed the store, or the store was created with it."""
    statement = (
        "SELECT 1 FROM meta WHERE key = 'key' AND value = ? "
        "UNION ALL SELECT 1 FROM seal WHERE substr(signature, 1, 8) = ? LIMIT 1"
    )
    return bool(rows(statement, (key_id, key_id)))


class _Table(NamedTuple):
    noun: str
    columns: str
    key: tuple[str, ...]
    decode: Callable[[Any], AuthenticRow]


#: The tables whose rows have a MAC.
TABLES = {
    "person": _Table("people", sql.PERSON, ("name",), person_from),
    "credential": _Table("tokens", sql.CREDENTIAL, ("id",), credential_from),
    "grants": _Table("grants", sql.GRANT, ("id",), grant_from),
    "refusal": _Table("refusals", sql.REFUSAL, ("id",), refusal_from),
    "call": _Table("requests", sql.CALL, ("id",), call_from),
    "run": _Table("runs", sql.RUN, ("id",), run_from),
    "thread": _Table("threads", sql.THREAD, ("id",), thread_from),
    "message": _Table("messages", sql.MESSAGE, ("thread", "seq"), message_from),
    "effect": _Table("effect keys", sql.EFFECT, ("key",), effect_from),
    "budget": _Table("limits", sql.BUDGET, ("key",), budget_from),
}


def rekey(
    execute: Execute,
    keys: Keyring,
    decode: RowDecoder,
    table: str,
    after: Sequence[Any] | None,
    dialect: Dialect,
) -> Rekeyed:
    """Sign the next rows of a table again, if an older key of the keyring signed them.

    Only what an older key proves is signed: a row that fails its check stays as it is. A row that a
    writer has locked is left for the next time.
    """
    _, columns, names, from_row = TABLES[table]
    marks = ", ".join("?" * len(names))
    key = ", ".join(names)
    following = "" if after is None else f"WHERE ({key}) > ({marks}) "
    statement = f"SELECT {columns} FROM {table} {following}ORDER BY {key} LIMIT {REKEY_ROWS}"
    rows = execute(statement + dialect.lock_free, tuple(after or ())).fetchall()
    places = [columns.split(", ").index(name) for name in names]
    changed = 0
    left: Counter[str] = Counter()
    for row in rows:
        place = tuple(row[n] for n in places)
        try:
            stored: Any = decode.one(from_row, row)
        except UnknownKey as error:
            left[error.key_id] += 1
            continue
        except Tampered:
            left[""] += 1
            continue
        again = _signed_again(stored, keys)
        mac_key = str(stored.mac).partition(".")[2].partition(".")[0]
        if again != stored or mac_key != keys.row_key.id:
            mac = row_mac(again, keys.row_mac)
            changes = {**_signatures(again), "mac": mac}
            sets = ", ".join(f"{name} = ?" for name in changes)
            where = " AND ".join(f"{name} = ?" for name in names)
            update = f"UPDATE {table} SET {sets} WHERE {where} AND mac = ?"
            changed += execute(update, (*changes.values(), *place, stored.mac)).rowcount
        signed = (*again.votes, again.decision) if isinstance(again, Call) else (again,)
        texts = [getattr(one, "signature", "") for one in signed if one is not None]
        left.update({key_id_of(text) for text in texts if text} - {keys.primary_id})
    more = len(rows) == REKEY_ROWS
    return Rekeyed(tuple(rows[-1][n] for n in places) if more else None, changed, left)


def _signed_again(row: Any, keys: Keyring) -> Any:
    if isinstance(row, Person):
        signature = _again(keys, person_bytes(row), row.signature)
        return row._replace(signature=signature)
    if isinstance(row, Credential):
        signature = _again(keys, credential_bytes(row), row.signature)
        return row._replace(signature=signature)
    if isinstance(row, Grant):
        return replace(row, signature=_again(keys, grant_bytes(row), row.signature))
    if isinstance(row, Call):
        votes = tuple(_decision_again(keys, vote) for vote in row.votes)
        decision = None if row.decision is None else _decision_again(keys, row.decision)
        return row._replace(votes=votes, decision=decision)
    return row


def _decision_again(keys: Keyring, decision: Any) -> Any:
    signature = _again(keys, signed_bytes(decision), decision.signature)
    return replace(decision, signature=signature)


def _again(keys: Keyring, data: bytes, signature: str) -> str:
    """Return a signature by the first key for what another key of the keyring has signed."""
    try:
        genuine = key_id_of(signature) != keys.primary_id and keys.verify(data, signature)
    except UnknownKey:
        return signature
    return keys.sign(data) if genuine else signature


def _signatures(row: Any) -> dict[str, Any]:
    """Return the columns that hold signatures."""
    if isinstance(row, Call):
        values = dict(zip(Call._fields, call_values(row), strict=True))
        return {"votes": values["votes"], "decision": values["decision"]}
    return {"signature": row.signature} if hasattr(row, "signature") else {}
