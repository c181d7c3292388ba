"""Whom a set-up trusts: its key, its clock, its tokens, and where the agents run."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from sayso.channels.layout import name
from sayso.cli.checkup.check import Check, Rows, span
from sayso.errors import StoreError, UnknownKey
from sayso.inbox.people import genuine_principal
from sayso.keys import ENVIRONMENT
from sayso.rows import Principal
from sayso.stores.base import Query, Store
from sayso.types import Micros, moment

_SKEW = 5.0
_SECOND: Micros = 1_000_000
_NAMED = 5
_LABEL = (
    "SELECT (extract(epoch FROM (pg_stat_file('backup_label.old', true)).change) * 1000000)::bigint"
)
#: Said of every store, because no store can tell.
_UNSEEN = "after a copy of all its files was put back, run `sayso recover --force` all the same"
_AGENTS = "SELECT DISTINCT agent FROM run WHERE status IN ('running', 'paused')"

_OPEN_CALLS = (
    "SELECT c.decision, c.votes FROM run r JOIN call c ON c.run = r.id "
    "WHERE r.status IN ('running', 'paused') "
    "AND c.status IN ('asked', 'ready', 'running', 'in_doubt') LIMIT ?"
)
_LIVE_GRANTS = "SELECT signature FROM grants WHERE revoked IS NULL LIMIT ?"
_LIVE_TOKENS = "SELECT signature FROM principal WHERE revoked IS NULL LIMIT ?"
_MOST = 100_000
_SIGNED = re.compile(r"\b([0-9a-f]{8})\.[\w-]{43,}")

_EMBEDDED = (
    "embedded: what runs with this store and key could decide as well. It stops the model, not "
    "code that runs as you; signed decisions make changed rows visible and keep them from running"
)
_SERVER = (
    "server, as far as the open runs tell: agents come with a token, so that decisions and record "
    "are out of their reach. That they ask before they act is up to their code"
)
_MIXED = (
    "server for agents that come with a token ({}), whose decisions are out of their reach; "
    "embedded for the others ({}), which run with this store and key"
)
_VERIFIES = (
    "enforced, if the credentials of the tools are here and not where the agents are: what runs "
    "here was decided elsewhere, because this key only verifies"
)


def key(store: Store, rows: Rows) -> Iterator[Check]:
    """Which keys there are, and where they come from."""
    ids = ", ".join(one.id for one in store.keys.keys)
    signs = "" if store.keys.can_sign else "; it verifies only, so decisions are made elsewhere"
    if os.environ.get(ENVIRONMENT) is not None:
        yield Check("key", "ok", f"{ids}, from {ENVIRONMENT}{signs}")
        return
    file = Path(f"{os.path.realpath(store.url.removeprefix('sqlite:///'))}.key")
    mode = stat.S_IMODE(file.stat().st_mode)
    yield Check("key", "ok", f"{ids}, in {file} (mode {mode:04o}){signs}")


def needed_keys(store: Store, rows: Rows) -> Iterator[Check]:
    """Which keys the open rows were signed with: those that are missing here, and those to drop."""
    needed = {
        key_id
        for statement in (_OPEN_CALLS, _LIVE_GRANTS, _LIVE_TOKENS)
        for row in rows(statement, (_MOST,))
        for column in row
        for key_id in _SIGNED.findall(column or "")
    }
    here = [one.id for one in store.keys.keys]
    if missing := sorted(needed - {*here}):
        words = (
            f"{', '.join(missing)} signed rows that are open, and is not here: add it to "
            f"{ENVIRONMENT} on this machine, behind the first key"
        )
        yield Check("keys", "wrong", words)
        return
    words = (
        f"open rows were signed with {', '.join(sorted(needed))}" if needed else "none is needed"
    )
    if spare := [key_id for key_id in here[1:] if key_id not in needed]:
        words += (
            f"; {', '.join(spare)} can be dropped where nobody reads closed requests and the old "
            "record"
        )
    yield Check("keys", "ok", words)


def clock(store: Store, rows: Rows) -> Iterator[Check]:
    """Whether this machine and the store agree on the time."""
    before = time.time()
    now = store.now()
    after = time.time()
    # Its clock was read somewhere in between.
    skew = max(before - now / 1_000_000, now / 1_000_000 - after, 0.0)
    newest = store.page(Query(status="any", sort="newest", limit=1))
    if skew > _SKEW:
        words = f"store and machine are {span(skew)} apart: set the clocks"
        yield Check("clock", "wrong", words)
    elif newest and newest[0][1].created > now:
        words = "the newest request is from the future: the clock was set back"
        yield Check("clock", "wrong", words)
    else:
        yield Check("clock", "ok", f"{moment(now):%Y-%m-%d %H:%M:%S} UTC")


def restored(store: Store, rows: Rows) -> Iterator[Check]:
    """Whether an older copy was put back, and nobody has said what ran since."""
    if store.restored():
        words = "an older copy was put back: nothing starts until you run `sayso recover`"
        yield Check("restore", "wrong", words)
    elif (at := _started_from_backup(store, rows)) is not None:
        words = (
            f"this server was started from a base backup ({moment(at):%Y-%m-%d %H:%M} UTC), which "
            "nothing else shows: if `sayso recover --force` was not run since then, run it now"
        )
        yield Check("restore", "note", words)
    else:
        yield Check("restore", "ok", f"nothing says that the store went back in time; {_UNSEEN}")


def _started_from_backup(store: Store, rows: Rows) -> Micros | None:
    """When PostgreSQL put the label of a base backup aside, if the store is older than that."""
    if not store.url.startswith("postgres"):
        return None
    try:
        found = rows(_LABEL, ())
    except StoreError:
        return None  # only some users may look at the server's files
    first = store.events("", 1)
    if not (found and found[0][0] and first):
        return None
    label = int(found[0][0])
    return label if first[0][1].at < label + _SECOND else None  # files know whole seconds


def people(store: Store, rows: Rows) -> Iterator[Check]:
    """Tokens that nobody will have to renew, and tokens that nobody here has made."""
    now = store.now()
    live = [person for person in store.principals() if person.live(now)]
    forged = [person for person in live if _is_forged(store, person)]
    if forged:
        words = f"not made with this key, so that they open nothing: {_listed(forged)}"
        yield Check("tokens", "wrong", words)
    endless = [person for person in live if person.ends is None and person not in forged]
    if endless:
        words = f"without an end (`sayso token create --for 90d` gives one): {_listed(endless)}"
        yield Check("tokens", "note", words)
    if not forged and not endless:
        yield Check("tokens", "ok", f"{len(live)} in use, each with an end")


def _is_forged(store: Store, person: Principal) -> bool:
    try:
        return not genuine_principal(store, person)
    except UnknownKey:
        return False  # ``needed_keys`` names the key


def _listed(found: list[Principal]) -> str:
    shown = ", ".join(f"{name(person.person)} ({person.role})" for person in found[:_NAMED])
    return shown + f" and {len(found) - _NAMED} more" * (len(found) > _NAMED)


def tier(store: Store, rows: Rows) -> Iterator[Check]:
    """What the promise is worth here: SECURITY.md has the table."""
    now = store.now()
    agents = {row[0] for row in rows(_AGENTS, ())}
    tokens = {p.person for p in store.principals() if p.role == "agent" and p.live(now)}
    here = agents - tokens
    if not store.keys.can_sign:
        words = _VERIFIES
    elif not tokens:
        words = _EMBEDDED
    elif not here:
        words = _SERVER
    else:
        words = _MIXED.format(_names(tokens), _names(here))
    yield Check("tier", "note", words)


def _names(found: Iterable[str]) -> str:
    ordered = sorted(found)
    return ", ".join(map(name, ordered[:_NAMED])) + ", …" * (len(ordered) > _NAMED)
