"""What the system thread's chain says: who was granted what, who has a token, what was pruned."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from sayso.audit.links import body_wrong, is_keyed, link_wrong
from sayso.audit.reading import DAMAGE, Unreadable, chain_of
from sayso.audit.report import Problem
from sayso.audit.seals import Seals
from sayso.engine.grants import grant_bytes, principal_bytes
from sayso.keys import Keyring
from sayso.rows import SYSTEM_THREAD, Event, Principal
from sayso.stores.base import StoreReads
from sayso.stores.row_checks import row_wrong
from sayso.types import Grant, Micros

#: What no event holds, and only the row's own signature covers.
_REST = "another column, or its signature"


class Standing(NamedTuple):
    """A grant or a token as it was given, and when it was taken back."""

    event: Event
    body: dict[str, Any]
    revoked: Micros | None = None


class SystemFacts:
    """The facts of the system thread, as far as their rows can be trusted."""

    def __init__(self, store: StoreReads, seals: Seals) -> None:
        self._store = store
        self._seals = seals
        self._seq, self._hash = 0, ""
        #: Runs whose bodies were nulled, and the time before which they had ended.
        self._pruned: dict[str, Micros] = {}
        self.grants: dict[str, Standing] = {}
        self.tokens: dict[str, Standing] = {}

    def catch_up(self) -> bool:
        """Read what was added since the last time; whether there was anything."""
        before = self._seq
        self._seals.catch_up()  # what they cover counts
        try:
            for event in chain_of(self._store, SYSTEM_THREAD, self._seq):
                self._take(event)
                self._seq, self._hash = event.seq, event.hash
        except Unreadable:
            pass  # the walk along this thread names the row
        return self._seq > before

    def _take(self, event: Event) -> None:
        keys = self._store.keys
        if link_wrong(keys, self._hash, event) or body_wrong(event) or event.body is None:
            return
        try:
            self._tell(event, json.loads(event.body))
        except DAMAGE:
            return

    def _tell(self, event: Event, body: dict[str, Any]) -> None:
        if event.type == "pruned" and self._counts(event):
            for run in body["runs"]:
                self._pruned[run] = max(body["before"], self._pruned.get(run, 0))
        elif event.type == "granted":
            self.grants[body["grant"]] = Standing(event, body)
        elif event.type == "token_created":
            self.tokens[body["token"]] = Standing(event, body)
        elif event.type == "revoked":
            given = self.grants[body["grant"]]
            self.grants[body["grant"]] = given._replace(revoked=event.at)
        elif event.type == "token_revoked":
            given = self.tokens[body["token"]]
            self.tokens[body["token"]] = given._replace(revoked=event.at)

    def _counts(self, event: Event) -> bool:
        # A plain hash can be made by anybody: then only a seal says that the pruning was ours.
        head = self._seals.heads.get(SYSTEM_THREAD)
        return is_keyed(event) or (head is not None and event.seq <= head.seq)

    def pruned(self, run: str, at: Micros) -> bool:
        """Whether what happened in a run at that time may be forgotten."""
        if at >= self._pruned.get(run, 0):
            self.catch_up()  # it may have been pruned since
        return at < self._pruned.get(run, 0)


def standing_problems(store: StoreReads, facts: SystemFacts, spent: Counter[str]) -> list[Problem]:
    """Grants and tokens that are not what the system thread says."""
    grants = {grant.id: grant for grant in store.grants(live_only=False)}
    tokens = {principal.id: principal for principal in store.principals()}
    found = [*_unknown("grant", grants, facts.grants), *_unknown("token", tokens, facts.tokens)]
    for name, given in facts.grants.items():
        wrong = _grant_wrong(grants.get(name), given, spent[name], store.keys)
        if wrong:
            found.append(_problem(given.event, f"grant {name}", wrong))
    for name, given in facts.tokens.items():
        wrong = _token_wrong(tokens.get(name), given, store.keys)
        if wrong:
            found.append(_problem(given.event, f"token {name}", wrong))
    return found


def _problem(event: Event, name: str, wrong: list[str]) -> Problem:
    what = f"{name} is not what the record says: {', '.join(wrong)}"
    return Problem(event.thread, event.seq, event.pos, what)


def _unknown(noun: str, rows: dict[str, Any], known: dict[str, Standing]) -> Iterator[Problem]:
    for name in rows.keys() - known.keys():
        yield Problem(SYSTEM_THREAD, 0, 0, f"{noun} {name} is in the table, and nobody gave it")


def _grant_wrong(grant: Grant | None, given: Standing, spent: int, keys: Keyring) -> list[str]:
    if grant is None:
        return ["its row is missing"]
    body = given.body
    uses = body["uses"]
    same = {
        "agent": grant.agent == body["agent"],
        "tool": (grant.tool, grant.tool_digest) == (body["tool"], body["tool_digest"]),
        "scope": grant.scope == body["scope"],
        "by": grant.by == given.event.actor,
        "ends": grant.ends == body["ends"],
        "revoked": grant.revoked == given.revoked,
        "uses_left": grant.uses_left is None if uses is None else _left(grant, uses - spent),
    }
    wrong = [name for name, is_same in same.items() if not is_same]
    genuine = keys.verify(grant_bytes(grant), grant.signature)
    if not wrong and not (genuine and _authentic(keys, grant)):
        wrong.append(_REST)
    return wrong


def _authentic(keys: Keyring, row: Grant | Principal) -> bool:
    """Whether the MAC holds, as far as we can tell: an auditor may have the public key alone."""
    return not keys.rows or not row_wrong(keys, row)


def _left(grant: Grant, most: int) -> bool:
    # The starts of pruned runs are forgotten, so that fewer may be left than can be told.
    return grant.uses_left is not None and grant.uses_left <= most


def _token_wrong(principal: Principal | None, given: Standing, keys: Keyring) -> list[str]:
    if principal is None:
        return ["its row is missing"]
    body = given.body
    same = {
        "person": principal.person == body["person"],
        "role": principal.role == body["role"],
        "groups": list(principal.groups) == body["groups"],
        "ends": principal.ends == body["ends"],
        "revoked": principal.revoked == given.revoked,
    }
    wrong = [name for name, is_same in same.items() if not is_same]
    genuine = keys.verify(principal_bytes(principal), principal.signature)
    if not wrong and not (genuine and _authentic(keys, principal)):
        wrong.append(_REST)
    return wrong
