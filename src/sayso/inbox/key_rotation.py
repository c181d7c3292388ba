"""Signing the rows of a store again with a new key, and undoing what a leaked key may have signed.

A row is signed again only if an older key of the keyring proves it, so a forged row stays refused.
The record is never rewritten: verifying it needs the older keys, too.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from sayso.engine.commands import EndCredentials, Note, Reask, RevokeGrant, SignAgain
from sayso.errors import KeyMissing, NotAllowed
from sayso.inbox.directory import remove_person
from sayso.keys import key_id_of
from sayso.rows import Call, CallStatus, Credential, Person
from sayso.stores.base import Query, Store
from sayso.stores.sql.rekeying import TABLES
from sayso.types import Decided, Grant, Micros, Reviewer, Vote

_PAGE = 500


@dataclass(frozen=True, slots=True)
class Rotated:
    """What was signed again, and what still needs an older key."""

    #: The id of the key that signs now.
    key: str
    #: How many rows were signed again, by what they are.
    changed: dict[str, int]
    #: How many rows still need an older key, by what they are and its id; "" if a row fails its
    #: check, so that it was not signed again.
    left: dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class Distrusted:
    """What ended because a leaked key may have signed it, and what was signed again."""

    tokens: list[Credential] = field(default_factory=list)
    grants: list[Grant] = field(default_factory=list)
    people: list[Person] = field(default_factory=list)
    #: Requests that people are asked about again.
    calls: list[Call] = field(default_factory=list)
    rotated: Rotated | None = None


def sign_again(store: Store, *, by: Reviewer) -> Rotated:
    """Sign every row again that an older key of this process's keyring has signed.

    Works in small batches while others write, and may be interrupted and run again.
    """
    if not store.keys.can_sign:
        raise KeyMissing("this process can only verify: rotate keys where the private key is")
    store.seal()
    changed: Counter[str] = Counter()
    left: dict[str, Counter[str]] = {}
    for call in _held_by_older_links(store):
        place = {"thread": call.thread, "run": call.run, "call": call.id}
        store.transact(SignAgain(**place, by=by.name))
        changed["requests"] += 1
    for name, table in TABLES.items():
        after = None
        while True:
            began = time.monotonic()
            after, many, others = store.rekey(name, after)
            changed[table.noun] += many
            left.setdefault(table.noun, Counter()).update(others)
            if after is None:
                break
            time.sleep(time.monotonic() - began)  # let other writers in
    key = store.keys.primary_id
    done = {noun: many for noun, many in changed.items() if many}
    if done:
        store.transact(Note(type="keys_rotated", actor=by.name, body={"key": key, "rows": done}))
        store.seal()
    return Rotated(key, done, {noun: dict(ids) for noun, ids in left.items() if ids})


def _held_by_older_links(store: Store) -> Iterator[Call]:
    """Yield the ready calls whose start would read an event under an older key."""
    for run in list(store.open_runs()):
        for call in store.calls_of(run.id):
            if call.status is CallStatus.READY:
                events = store.chain(call.thread, call.seq - 1, 1)
                if events and key_id_of(events[0].hash) not in ("sha256", store.keys.primary_id):
                    yield call


def distrust(
    store: Store,
    key_id: str,
    since: Micros,
    *,
    by: Reviewer,
    keep: Collection[str] = (),
    remove: Collection[str] = (),
) -> Distrusted:
    """Undo what a leaked key may have signed since a time, and sign what it signed before again.

    Tokens and grants of that time end, and people are asked again about calls that were decided
    then and have not run. Raises ``NotAllowed``, and changes nothing, unless each person who was
    changed then is in ``keep``, because someone checked their rights, or in ``remove``.
    """
    if key_id == store.keys.primary_id:
        raise NotAllowed(
            f"{key_id} still signs here: run `sayso keys rotate` until another key signs, and "
            "distrust it then"
        )
    if key_id not in {key.id for key in store.keys.keys}:
        raise NotAllowed(
            f"{key_id} is not among the keys of this process: put it after the first key, so that "
            "Sayso can tell what it signed before"
        )
    changed = _changed_since(store, key_id, since)
    unchecked = sorted(changed - {*keep} - {*remove})
    if unchecked:
        raise NotAllowed(
            f"{', '.join(unchecked)} changed since then, perhaps by someone else: check their "
            "rights with `sayso people show NAME`, and give each with --keep or --remove"
        )
    undone = Distrusted()
    for name in sorted(changed.intersection(remove)):
        undone.people.append(remove_person(store, name, by=by).person)
    for token in store.credentials():
        suspect = key_id_of(token.signature) == key_id and token.created >= since
        if suspect and token.live(store.now()):
            ids = (token.id,)
            (ended,) = store.transact(EndCredentials(person=token.person, ids=ids, by=by))
            undone.tokens.extend(ended)
    for grant in store.grants():
        if key_id_of(grant.signature) == key_id and grant.created >= since:
            undone.grants.extend(store.transact(RevokeGrant(grant=grant.id, by=by.name)))
    for call in list(_decided_since(store, key_id, since)):
        reason = f"its approval was signed with key {key_id}, which is distrusted"
        again = Reask(thread=call.thread, run=call.run, call=call.id, reason=reason)
        undone.calls.extend(store.transact(again))
    rotated = sign_again(store, by=by)
    body = {"key": key_id, "since": since}
    store.transact(Note(type="key_distrusted", actor=by.name, body=body))
    store.seal()
    return Distrusted(undone.tokens, undone.grants, undone.people, undone.calls, rotated)


def _changed_since(store: Store, key_id: str, since: Micros) -> set[str]:
    """Return the people whose rights this key signed since then."""
    signed = (p for p in store.people() if p.active and key_id_of(p.signature) == key_id)
    return {person.name for person in signed if person.changed >= since}


def _decided_since(store: Store, key_id: str, since: Micros) -> Iterator[Call]:
    """Yield the calls that have not run and that this key decided, in part or whole, since then."""
    ready = (call for run in list(store.open_runs()) for call in store.calls_of(run.id))
    for call in (*ready, *_asked(store)):
        signed: list[Vote | Decided] = list(call.votes)
        if call.decision is not None:
            signed.append(call.decision)
        by_key = (vote for vote in signed if key_id_of(vote.signature) == key_id)
        open_status = call.status in (CallStatus.READY, CallStatus.ASKED)
        if open_status and any(vote.at >= since for vote in by_key):
            yield call


def _asked(store: Store) -> Iterator[Call]:
    after = None
    while True:
        page = store.page(Query(limit=_PAGE, after=after))
        yield from (call for _, call in page if call.votes)
        if len(page) < _PAGE:
            return
        after = page[-1][0]
