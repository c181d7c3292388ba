"""Seals, and the system thread: what they prove about chains, grants, people and pruning.

Seals form a chain of their own; each signs the heads of the chains that moved. The system thread's
events record grants, people, their tokens and pruned runs.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from sayso import codec
from sayso.audit.chain import (
    DAMAGE_ERRORS,
    Problem,
    ProblemCollector,
    Unreadable,
    body_problem,
    chain_of,
    hash_problem,
    is_keyed,
    read_pages,
    reason_of,
)
from sayso.engine.grants import grant_bytes
from sayso.engine.people import credential_bytes, person_bytes
from sayso.errors import UnknownKey
from sayso.rows import SYSTEM_THREAD, Credential, Directory, Event, Person
from sayso.stores.base import StoreReads
from sayso.stores.row_checks import row_wrong
from sayso.stores.seals import Seal, seal_bytes
from sayso.types import Grant, Micros, look_of

_PAGE = 16  # a seal may hold ten thousand heads
_MOST_DIRECTORIES = 256


class SealedHead(NamedTuple):
    """The newest sealed event of one thread, and the number of its seal."""

    seq: int
    hash: str
    n: int


class Seals:
    """The newest sealed head of each thread.

    One head per thread is enough: it fixes every event before it, and so the heads in older seals.
    Those are searched only for a thread that does not match (``first_mismatch``).
    """

    #: The snapshot that is being read.
    _store: StoreReads

    def __init__(self, problems: ProblemCollector, known: tuple[int, str]) -> None:
        self._problems = problems
        #: The number and hash of a seal that was verified earlier.
        self._known = known
        self._n = 0
        self._hash = ""
        self._unreadable = False
        self.count = 0
        self.heads: dict[str, SealedHead] = {}
        #: How far broken seals claim to reach. They prove nothing, but they are not missing.
        self.claimed: dict[str, int] = {}

    def catch_up(self, store: StoreReads) -> None:
        """Read the seals added since the last snapshot."""
        self._store = store
        try:
            for seal in () if self._unreadable else self._from(self._n):
                self._read(seal)
        except Unreadable as error:
            self._unreadable = True
            self._report(self._n + 1, f"cannot be read, nor can those after it: {error}")

    @property
    def last(self) -> tuple[int, str]:
        """The number and the hash of the last seal."""
        return self._n, self._hash

    def check_known(self) -> None:
        """Report the seal of the checkpoint if it is no longer there."""
        if self._known[0] > self._n:
            self._report(self._known[0], "was verified earlier, and is missing: an older copy?")

    def _from(self, after: int) -> Iterator[Seal]:
        return read_pages(self._store.seals, lambda seal: seal.n, after, _PAGE)

    def _read(self, seal: Seal) -> None:
        self.count += 1
        try:
            wrong = self._wrong(seal)
        except DAMAGE_ERRORS as error:
            wrong = f"cannot be read: {reason_of(error)}"
        try:
            heads = {thread: SealedHead(seq, hash, seal.n) for thread, seq, hash in _heads(seal)}
        except DAMAGE_ERRORS:
            heads = {}
            wrong = wrong or "has heads that cannot be read"
        if wrong:
            self._report(seal.n, wrong)
            self.claimed.update({thread: head.seq for thread, head in heads.items()})
        else:
            self.heads.update(heads)
        self._n = seal.n
        self._hash = seal.hash

    def _wrong(self, seal: Seal) -> str:
        if seal.n > self._n + 1:
            more = "" if seal.n == self._n + 2 else f" to {seal.n - 1}"
            self._report(self._n + 1, f"is missing (gone: {self._n + 1}{more})")
        elif seal.n == self._known[0] and seal.hash != self._known[1]:
            return "is not the one that was verified earlier: the store was replaced"
        elif seal.prev != self._hash:
            return "does not follow the previous seal"
        if codec.sha256(seal_bytes(seal.n, seal.at, seal.heads, seal.prev)) != seal.hash:
            return "was changed: its hash does not match"
        try:
            genuine = self._store.keys.verify(seal.hash.encode(), seal.signature)
        except UnknownKey as error:
            return f"has a signature that cannot be checked: {error}"
        return "" if genuine else "has an invalid signature"

    def _report(self, n: int, what: str) -> None:
        self._problems.add(Problem("", n, 0, f"seal {n} {what}"))

    def reach(self, thread: str) -> int:
        """Return how far the thread is sealed, counting broken seals too."""
        head = self.heads.get(thread)
        return max(0 if head is None else head.seq, self.claimed.get(thread, 0))

    def first_mismatch(self, thread: str) -> SealedHead | None:
        """Return the oldest sealed head of a thread that its chain no longer has."""
        for seal in self._from(0):
            with suppress(*DAMAGE_ERRORS):
                for name, seq, hash in _heads(seal):
                    if name == thread:
                        event = self._store.chain(thread, seq - 1, 1)
                        if not event or (event[0].seq, event[0].hash) != (seq, hash):
                            return SealedHead(seq, hash, seal.n)
        return None


def _heads(seal: Seal) -> list[tuple[str, int, str]]:
    return [(str(thread), int(seq), str(hash)) for thread, seq, hash in codec.loads(seal.heads)]


class Issuance(NamedTuple):
    """A grant, a person or a token as it was recorded last, and when it was revoked."""

    event: Event
    body: dict[str, Any]
    revoked: Micros | None = None


class Distrust(NamedTuple):
    """Since when what a leaked key signed proves nothing, and the event after which it is gone."""

    since: Micros
    pos: int


class SystemThread:
    """Grants, tokens and pruned runs, from the trustworthy events of the system thread."""

    def __init__(self, seals: Seals) -> None:
        self._seals = seals
        self._seq = 0
        self._hash = ""
        #: Pruned runs, and the time before which their events were pruned.
        self._pruned: dict[str, Micros] = {}
        #: How often pruned calls used each grant.
        self.pruned_uses: Counter[str] = Counter()
        self.grants: dict[str, Issuance] = {}
        self.tokens: dict[str, Issuance] = {}
        #: Every state of each person, the newest last.
        self.people: dict[str, list[Issuance]] = {}
        #: The events that changed people; and the people after so many of those.
        self._people_seqs: list[int] = []
        self._directories: dict[int, Directory] = {}
        self.distrusted: dict[str, Distrust] = {}
        #: Refusals that people lifted.
        self.lifted: set[str] = set()

    def catch_up(self, store: StoreReads) -> None:
        """Read the seals and the events added since the last snapshot."""
        self._seals.catch_up(store)  # a sealed ``pruned`` event counts
        try:
            for event in chain_of(store, SYSTEM_THREAD, self._seq):
                wrong = hash_problem(store.keys, self._hash, event) or body_problem(event)
                if not wrong and event.body is not None:
                    with suppress(*DAMAGE_ERRORS):
                        self._apply(event, json.loads(event.body))
                self._seq = event.seq
                self._hash = event.hash
        except Unreadable:
            pass  # the check of this thread reports the row

    def _apply(self, event: Event, body: dict[str, Any]) -> None:
        if event.type == "pruned" and self._is_proven(event):
            for run in body["runs"]:
                self._pruned[run] = max(body["before"], self._pruned.get(run, 0))
            self.pruned_uses.update(body["spent"])
        elif event.type == "granted":
            self.grants[body["grant"]] = Issuance(event, body)
        elif event.type == "token_created":
            self.tokens[body["token"]] = Issuance(event, body)
        elif event.type.startswith("person_"):
            self._apply_to_person(event, body)
        elif event.type == "revoked":
            issued = self.grants[body["grant"]]
            self.grants[body["grant"]] = issued._replace(revoked=event.at)
        elif event.type == "key_distrusted":
            self.distrusted[body["key"]] = Distrust(body["since"], event.pos)
        elif event.type == "lifted":
            self.lifted.add(body["refusal"])
        elif event.type == "token_revoked":
            issued = self.tokens[body["token"]]
            self.tokens[body["token"]] = issued._replace(revoked=event.at)

    def _apply_to_person(self, event: Event, body: dict[str, Any]) -> None:
        state = Issuance(event, body)
        if event.type == "person_removed":
            state = Issuance(event, self.people[body["person"]][-1].body, event.at)
        self.people.setdefault(body["person"], []).append(state)
        self._people_seqs.append(event.seq)

    def _is_proven(self, event: Event) -> bool:
        # Anyone can compute a plain hash; then only a seal proves that the pruning was ours.
        head = self._seals.heads.get(SYSTEM_THREAD)
        return is_keyed(event) or (head is not None and event.seq <= head.seq)

    @property
    def has_pruned(self) -> bool:
        """Whether events were pruned, of any run."""
        return bool(self._pruned)

    def directory(self, seq: int) -> Directory:
        """Return the people as they were at an event of the system thread."""
        changes = bisect_right(self._people_seqs, seq)
        directory = self._directories.get(changes)
        if directory is None:
            past = (
                next((state for state in reversed(states) if state.event.seq <= seq), None)
                for states in self.people.values()
            )
            directory = Directory(_person(state) for state in past if state is not None)
            if len(self._directories) >= _MOST_DIRECTORIES:
                self._directories.clear()
            self._directories[changes] = directory
        return directory

    def pruned(self, run: str, at: Micros) -> bool:
        """Return whether events of a run from that time may have been pruned."""
        return at < self._pruned.get(run, 0)


class GrantUses(NamedTuple):
    """What calls used of grants, by the grant's id."""

    spent: Counter[str]
    #: The calls that took steps of plans.
    steps: Mapping[str, set[str]]


def system_row_problems(store: StoreReads, system: SystemThread, found: GrantUses) -> list[Problem]:
    """Return the grants, people and tokens that do not match the system thread."""
    grants: dict[str, Any] = {grant.id: grant for grant in store.grants(live_only=False)}
    people: dict[str, Any] = {person.name: person for person in store.people()}
    tokens: dict[str, Any] = {credential.id: credential for credential in store.credentials()}
    newest = {name: states[-1] for name, states in system.people.items()}
    problems: list[Problem] = []
    for noun, rows, expected_rows in (
        ("grant", grants, system.grants),
        ("person", people, newest),
        ("token", tokens, system.tokens),
    ):
        for name in rows.keys() - expected_rows.keys():
            what = f"{noun} {name} is in the table, but no event issued it"
            problems.append(Problem(SYSTEM_THREAD, 0, 0, what))
        for name, issued in expected_rows.items():
            row = rows.get(name)
            uses = found.spent[name] + system.pruned_uses[name]
            wrong = _wrong_columns(row, issued, uses, store)
            if isinstance(row, Grant) and not found.steps.get(name, set()) <= set(row.steps):
                wrong.append("steps")
            if wrong:
                event = issued.event
                what = f"{noun} {name} does not match the record: {', '.join(wrong)}"
                problems.append(Problem(event.thread, event.seq, event.pos, what))
    return problems


def _wrong_columns(
    row: Grant | Person | Credential | None, issued: Issuance, spent: int, store: StoreReads
) -> list[str]:
    """Return the columns that differ; if none does, check those that no event holds."""
    if row is None:
        # The row of a session or a link is deleted some time after it has ended.
        deleted = issued.body.get("kind") in ("session", "link", "chat", "push")
        return [] if deleted else ["its row is missing"]
    if isinstance(row, Grant):
        matches = _grant_matches(row, issued, spent)
        signed = grant_bytes(row)
    elif isinstance(row, Person):
        matches = _person_matches(row, issued)
        signed = person_bytes(row)
    else:
        matches = _credential_matches(row, issued)
        signed = credential_bytes(row)
    wrong = [name for name, does_match in matches.items() if not does_match]
    if not wrong:
        genuine = store.keys.verify(signed, row.signature)
        # An auditor with only the public key cannot check the MAC.
        if not genuine or (store.keys.rows and row_wrong(store.keys, row)):
            wrong.append("another column, or its signature")
    return wrong


def _grant_matches(grant: Grant, issued: Issuance, spent: int) -> dict[str, bool]:
    body = issued.body
    uses = body["uses"]
    left = grant.uses_left
    return {
        "agent": grant.agent == body["agent"],
        "tool": (grant.tool, grant.tool_digest) == (body["tool"], body["tool_digest"]),
        "scope": grant.scope == body["scope"],
        "by": grant.by == issued.event.actor,
        "ends": grant.ends == body["ends"],
        "revoked": grant.revoked == issued.revoked,
        # It may have been used since its threads were read, so fewer uses may be left.
        "uses_left": left is None if uses is None else left is not None and left <= uses - spent,
    }


def _person(state: Issuance) -> Person:
    """Return a person as the record has them at a time."""
    body = state.body
    removed = state.revoked is not None
    return Person(
        name=body["person"],
        look=look_of(body["person"]),
        role=body["role"],
        groups=tuple(body["groups"]),
        mail=body["mail"],
        origin=body["origin"],
        status="removed" if removed else "active",
        changed=state.event.at,
        since=state.event.at if removed else body["since"],
        stand_in="" if removed else body["stand_in"],
        away_until=None if removed else body["until"],
        notices="" if removed else body["notices"],
    )


def _person_matches(person: Person, issued: Issuance) -> dict[str, bool]:
    recorded = _person(issued)._asdict()
    names = [name for name in recorded if name not in ("created", "signature", "mac")]
    return {name: getattr(person, name) == recorded[name] for name in names}


def _credential_matches(credential: Credential, issued: Issuance) -> dict[str, bool]:
    names = ("person", "kind", "role", "assurance", "opened_by", "signed_in", "ends", "idle")
    matches = {name: getattr(credential, name) == issued.body[name] for name in names}
    matches["public_key"] = credential.public_key == issued.body.get("public_key", "")
    return {**matches, "revoked": credential.revoked == issued.revoked}
