"""``sayso doctor``: diagnose configuration problems.

``doctor_stores`` checks the file or database before it is opened. The checks here then look at the
opened store: keys and clock, pending work, tokens, and the tier (SECURITY.md).
"""

from __future__ import annotations

import os
import platform
import stat
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer

import sayso
from sayso import codec, text
from sayso.channels.kit.health import read_health
from sayso.channels.layout import Line, name
from sayso.cli import common, output
from sayso.cli.common import Exit, Usage, reading
from sayso.cli.doctor_stores import Check, PostgresChecks, Rows, SqliteChecks, State, span
from sayso.cli.keys import rows_text, uses_by_key
from sayso.engine.people import credential_bytes, person_bytes
from sayso.errors import KeyMissing, NotFound, SaysoError, StoreError, UnknownKey
from sayso.keys import ENVIRONMENT
from sayso.rows import Credential, Person
from sayso.stores.address import address_of
from sayso.stores.base import Backlog, Query, Store
from sayso.stores.row_checks import row_wrong
from sayso.types import SECOND, Micros, moment

_STATES: tuple[State, ...] = ("ok", "note", "wrong")
_SIGNS = {"ok": ("✓", "green"), "note": ("-", ""), "wrong": ("✗", "bold red")}


Watch = Annotated[
    bool, typer.Option("--watch", help="Check again and again, and print what changes.")
]
Every = Annotated[
    float, typer.Option("--every", metavar="SECONDS", help="With --watch: how often to check.")
]
MetricsPort = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="[ADDRESS:]PORT",
        help="With --watch: serve each line as a Prometheus gauge, on loopback unless you give an "
        "address.",
    ),
]


def doctor(
    watch: Watch = False,
    every: Every = 60.0,
    metrics: MetricsPort = None,
    json: common.AsJson = False,
    plain: common.Plain = False,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Diagnose configuration problems.

    Checks the store, disk or database, keys, clock, tokens and audit log, whether runs are being
    resumed, and how far Sayso protects you here. Exits with code 1 if something is wrong. Changes
    nothing: a store of an older version is not upgraded.
    """
    if watch:
        _watch(store, every, metrics, json=json)
    if metrics is not None:
        raise Usage("--metrics needs --watch: without it, doctor checks once and ends")
    checks = list(_run_checks(store))
    ok = all(check.state != "wrong" for check in checks)
    lines = [line for check in checks for line in _lines(check)]
    value = {"ok": ok, "checks": [asdict(check) for check in checks]}
    output.emit(value, lines, json=json, plain=plain)
    raise typer.Exit(Exit.OK if ok else Exit.PROBLEM)


def _lines(check: Check) -> Iterator[Line]:
    sign, style = _SIGNS[check.state]
    yield Line(text.inline(check.text), style, f"{sign} {check.name:<9} ", style)


def _watch(store: str, every: float, metrics: str | None, *, json: bool) -> NoReturn:
    """Check until interrupted. Print a line when its state changes, or it is new."""
    if not 1 <= every <= 86_400:
        raise Usage(f"--every {every:g}: use a number of seconds from 1 to 86400")
    with _gauges(metrics) as set_gauges:
        states: dict[str, State] = {}
        while True:
            checks = list(_run_checks(store))
            set_gauges(checks)
            worst: dict[str, State] = {}
            for check in checks:
                state = worst.get(check.name, "ok")
                worst[check.name] = max(check.state, state, key=_STATES.index)
            news = [check for check in checks if states.get(check.name) != worst[check.name]]
            if news or not states:
                at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
                lines = [Line(at), *(line for check in news for line in _lines(check))]
                value = {"at": at, "checks": [asdict(check) for check in news]}
                output.emit(value, lines, json=json)
                sys.stdout.flush()
            states = worst
            time.sleep(every)


@contextmanager
def _gauges(metrics: str | None) -> Iterator[Callable[[Sequence[Check]], None]]:
    """Serve the lines of the last checks as gauges inside this block, if an address is given."""
    if metrics is None:
        yield lambda checks: None
        return
    from prometheus_client import CollectorRegistry, Gauge, generate_latest  # needs an extra

    from sayso.server.monitoring import METRICS_TYPE
    from sayso.server.serving import Page, serve_pages

    registry = CollectorRegistry()
    words = "Lines of `sayso doctor` in this state: ok, note or wrong"
    lines = Gauge("sayso_doctor_lines", words, ("check", "state"), registry=registry)
    words = "When `sayso doctor` last checked"
    checked = Gauge("sayso_doctor_checked_timestamp_seconds", words, registry=registry)

    def set_gauges(checks: Sequence[Check]) -> None:
        counts = Counter((check.name, check.state) for check in checks)
        lines.clear()
        for line in product({check.name for check in checks}, _STATES):
            lines.labels(*line).set(counts[line])
        checked.set_to_current_time()

    address = common.listen_address(metrics, "--metrics")
    pages = {"/metrics": lambda: Page(METRICS_TYPE, generate_latest(registry))}
    with serve_pages(address, pages) as url:
        print(f"Gauges are at {url}/metrics", file=sys.stderr, flush=True)
        yield set_gauges


def _run_checks(url: str) -> Iterator[Check]:
    yield Check("sayso", "ok", f"{sayso.__version__}, Python {platform.python_version()}")
    try:
        common.check_shared(url)
        path = address_of(url).path
        with closing(PostgresChecks(url) if path is None else SqliteChecks(path)) as storage:
            if not (yield from storage.checks()):
                return
            with reading(url) as box:
                yield Check("store", "ok", box.store.url)
                for check in _CHECKS:
                    yield from check(box.store, storage.rows)
    except NotFound as error:
        yield Check("store", "wrong", str(error))
    except KeyMissing as error:
        yield Check("key", "wrong", str(error))
    except SaysoError as error:
        yield Check("store", "wrong", f"cannot be used: {error}")


# -- keys, clock, restores


_SKEW = 5.0
_NAMED = 5
_LABEL = (
    "SELECT (extract(epoch FROM (pg_stat_file('backup_label.old', true)).change) * 1000000)::bigint"
)
#: Added for every store, because no store can notice this.
_UNSEEN = "after restoring a copy of all its files, run `sayso recover --force` anyway"
_AGENTS = "SELECT DISTINCT agent FROM run WHERE status IN ('running', 'paused')"
_HOOKED_AGENTS = "SELECT DISTINCT agent FROM call WHERE caller <> ''"
# A client on standard input has started the proxy itself, as its own user.
_PROXIED_AGENTS = (
    "SELECT DISTINCT agent FROM run WHERE id >= 'mcp:' AND id < 'mcp;' "
    "AND substr(scope, length(scope) - 5) <> ':stdio'"
)

_EMBEDDED = (
    "embedded: code with this store and key could decide too. This stops the model, not code that "
    "runs as you; rows that were changed without the key are noticed and do not run"
)
_SERVER = (
    "server, judging by the open runs: agents use tokens, so they cannot reach decisions and "
    "record. Whether they ask before they act is up to their code"
)
_MIXED = (
    "server for agents with a token ({}), which cannot reach decisions; embedded for the others "
    "({}), which run with this store and key"
)
_HOOKED = (
    "hooked for {}: a call is denied unless it was approved, but the agent runs it, so that it "
    "runs once is not certain (see `sayso hook doctor`)"
)
_PROXIED = (
    "enforced for {}, if only `sayso proxy` has the credentials of the MCP servers, and runs as "
    "another user than the agent: it runs the calls, whatever the agent does"
)
_VERIFIES = (
    "enforced, if the tools' credentials are on this machine only: calls that run here were "
    "decided elsewhere, because this key can only verify"
)


def _key(store: Store, rows: Rows) -> Iterator[Check]:
    """Report which keys there are, and where they come from."""
    ids = ", ".join(key.id for key in store.keys.keys)
    signs = "" if store.keys.can_sign else "; it can only verify, so decisions are made elsewhere"
    source = store.keys.source
    if not os.path.isabs(source):
        yield Check("key", "ok", f"{ids}, from {source}{signs}")
        return
    file = Path(source)
    mode = stat.S_IMODE(file.stat().st_mode)
    yield Check("key", "ok", f"{ids}, in {file} (mode {mode:04o}){signs}")


def _needed_keys(store: Store, rows: Rows) -> Iterator[Check]:
    """Report keys that open rows need and that are missing, and keys that nothing needs."""
    needed = uses_by_key(store)
    present = [key.id for key in store.keys.keys]
    held = "; ".join(f"{key_id} by {rows_text(needed[key_id])}" for key_id in sorted(needed))
    if missing := sorted(needed.keys() - {*present, *(key.id for key in store.keys.rows)}):
        words = (
            f"{', '.join(missing)} signed open rows, but is missing here: add it to "
            f"{ENVIRONMENT} on this machine, after the first key ({held})"
        )
        yield Check("keys", "wrong", words)
        return
    words = f"open rows were signed with {held}" if needed else "none is needed"
    if spare := [key_id for key_id in present[1:] if key_id not in needed]:
        words += (
            f"; you can drop {', '.join(spare)} where nobody reads closed requests or the old "
            "record"
        )
    yield Check("keys", "ok", words)


def _clock(store: Store, rows: Rows) -> Iterator[Check]:
    """Compare this machine's clock with the store's."""
    before = time.time()
    now = store.now()
    after = time.time()
    # The store's clock was read at some moment in between.
    skew = max(before - now / SECOND, now / SECOND - after, 0.0)
    newest = store.page(Query(status="any", sort="newest", limit=1))
    if skew > _SKEW:
        words = f"the store and this machine are {span(skew)} apart: set the clocks"
        yield Check("clock", "wrong", words)
    elif newest and newest[0][1].created > now:
        words = "the newest request is in the future: the clock was set back"
        yield Check("clock", "wrong", words)
    else:
        yield Check("clock", "ok", f"{moment(now):%Y-%m-%d %H:%M:%S} UTC")


def _restored(store: Store, rows: Rows) -> Iterator[Check]:
    """Report whether a backup was restored and `sayso recover` has not been run."""
    if store.restored():
        words = "a backup was restored: nothing starts until you run `sayso recover`"
        yield Check("restore", "wrong", words)
    elif (at := _started_from_backup(store, rows)) is not None:
        words = (
            f"this server was started from a base backup ({moment(at):%Y-%m-%d %H:%M} UTC), which "
            "Sayso cannot notice: if you have not run `sayso recover --force` since, run it now"
        )
        yield Check("restore", "note", words)
    else:
        yield Check("restore", "ok", f"the store noticed no restore; {_UNSEEN}")


def _started_from_backup(store: Store, rows: Rows) -> Micros | None:
    """Return when PostgreSQL finished a base backup's recovery, if the store is older than that."""
    if address_of(store.url).kind != "postgresql":
        return None
    try:
        label_rows = rows(_LABEL, ())
    except StoreError:
        return None  # only some users may read the server's files
    first = store.events("", 1)
    if not (label_rows and label_rows[0][0] and first):
        return None
    label = int(label_rows[0][0])
    return label if first[0][1].at < label + SECOND else None  # file times are whole seconds


def _people(store: Store, rows: Rows) -> Iterator[Check]:
    """Report tokens that never expire, and people and tokens that were forged or changed."""
    now = store.now()
    # The store's own lists leave out rows whose MAC fails, so the unchecked rows are read too.
    with store.snapshot() as unchecked:
        people = unchecked.people()
        tokens = unchecked.credentials()
    forged = [p for p in people if p.active and _is_forged(store, p, person_bytes(p))]
    bad = [t for t in tokens if t.live(now) and _is_forged(store, t, credential_bytes(t))]
    if forged or bad:
        words = f"not made with this key, or changed since; they are refused: {_listed(bad)}"
        words += _names(person.name for person in forged)
        yield Check("tokens", "wrong", words)
    live = [t for t in store.credentials() if t.live(now) and t not in bad]
    endless = [token for token in live if token.ends is None]
    if endless:
        words = f"never expire (use `sayso token create --for 90d`): {_listed(endless)}"
        yield Check("tokens", "note", words)
    if not forged and not bad and not endless:
        yield Check("tokens", "ok", f"{len(live)} in use, all of them expire")


def _is_forged(store: Store, row: Person | Credential, signed: bytes) -> bool:
    try:
        changed = store.keys.rows and row_wrong(store.keys, row)
        return bool(changed) or not store.keys.verify(signed, row.signature)
    except UnknownKey:
        return False  # ``_needed_keys`` reports the key


def _listed(found: list[Credential]) -> str:
    listed = ", ".join(f"{name(person.person)} ({person.role})" for person in found[:_NAMED])
    return listed + f" and {len(found) - _NAMED} more" * (len(found) > _NAMED)


def _tier(store: Store, rows: Rows) -> Iterator[Check]:
    """Report the tier: how far Sayso protects this setup (see the table in SECURITY.md)."""
    now = store.now()
    hooked = {row[0] for row in rows(_HOOKED_AGENTS, ())}
    proxied = {row[0] for row in rows(_PROXIED_AGENTS, ())}
    others = hooked | proxied
    agents = {row[0] for row in rows(_AGENTS, ())} - others
    tokens = {t.person for t in store.credentials() if t.role == "agent" and t.live(now)} - others
    embedded = agents - tokens
    tiers = []
    if hooked:
        tiers.append(_HOOKED.format(_names(hooked)))
    if proxied:
        tiers.append(_PROXIED.format(_names(proxied)))
    if not store.keys.can_sign:
        tiers = [_VERIFIES]
    elif tokens and embedded:
        tiers.append(_MIXED.format(_names(tokens), _names(embedded)))
    elif tokens:
        tiers.append(_SERVER)
    elif embedded or not others:
        tiers.append(_EMBEDDED)
    yield Check("tier", "note", "; ".join(tiers))


def _names(found: Iterable[str]) -> str:
    ordered = sorted(found)
    return ", ".join(map(name, ordered[:_NAMED])) + ", …" * (len(ordered) > _NAMED)


_MOST_COUNTED = 10_000
#: A worker polls every five seconds; if a run is ready for longer than this, no worker is there.
_GRACE = 60.0

# Runs that are ready, and that no process has claimed. Runs of a ``sayso.Agent`` have an agent
# digest; the others are resumed by the code that asked, whenever it comes back.
_DUE = (
    "SELECT agent, agent_digest <> '', count(*), min(ready_at) FROM run "
    "WHERE ready_at <= ? AND owner IS NULL GROUP BY 1, 2 ORDER BY 4"
)
# Phrased so that both databases use the index of pending requests.
_EXPIRED = (
    "SELECT count(*), min(expires_at) FROM call "
    "WHERE list_status IN ('asked', 'in_doubt') AND list_status = 'asked' "
    "AND coalesce(expires_at, 4611686018427387904) <= ?"
)
#: A webhook's channel is named after a hash: show so many characters of it.
_CHANNEL = 20
_HEALTH = "SELECT name FROM cursor WHERE name >= 'health:' AND name < 'health;'"
# Runs that are ready or leased, oldest first.
_TAKEN_UP = "SELECT id, thread, agent FROM run WHERE ready_at IS NOT NULL ORDER BY ready_at LIMIT ?"
_LAST_EVENTS = (
    "SELECT type, body FROM event WHERE thread = ? AND run = ? ORDER BY seq DESC LIMIT 100"
)
_MOST_RUNS = 1000
_UNSEALED = "SELECT coalesce(sum(seq - sealed), 0) FROM thread WHERE moved = 1"
_FIRST_UNSEALED = (
    "SELECT min(e.at) FROM thread t JOIN event e ON e.thread = t.id AND e.seq = t.sealed + 1 "
    "WHERE t.moved = 1"
)
#: A seal is made with the first commit after a minute; later than this, no process makes any.
_SEAL_GRACE = 600.0
_LAPSED = "SELECT count(*), min(ready_at) FROM run WHERE ready_at <= ? AND owner IS NOT NULL"


def _waiting(store: Store, rows: Rows) -> Iterator[Check]:
    """Report how many requests are pending, and how many calls are in doubt."""
    yield Check("waiting", "note", f"{_count(store, None, 'request')} pending")
    doubts = _count(store, "in_doubt", "call")
    state: Literal["note", "wrong"] = "note" if doubts.startswith("0 ") else "wrong"
    yield Check("in doubt", state, f"{doubts}: see `sayso inbox --kind in_doubt`")


def _count(store: Store, kind: str | None, noun: str) -> str:
    """Count pending requests, up to a limit: a page is cheap, and a count is not."""
    count = 0
    after = None
    while count < _MOST_COUNTED:
        page = store.page(Query(kind=kind, after=after, limit=500))
        count += len(page)
        if len(page) < 500:
            return text.many(count, noun)
        after = page[-1][0]
    return f"{count:,} {noun}s or more"


def _overdue(store: Store, rows: Rows) -> Iterator[Check]:
    """Report expired requests and leases that no process has closed."""
    now = store.now()
    ((expired, first),) = rows(_EXPIRED, (now,))
    ((lapsed, oldest),) = rows(_LAPSED, (now,))
    seconds = _late(now, *[at for at in (first, oldest) if at is not None])
    words = f"{text.many(expired, 'request')} and {text.many(lapsed, 'lease')} to close"
    if seconds > _GRACE:
        words += f", overdue by {span(seconds)}: start `sayso serve` or `sayso worker`"
        yield Check("overdue", "wrong", words)
    else:
        yield Check("overdue", "note", words)


def _due(store: Store, rows: Rows) -> Iterator[Check]:
    """Report runs that are ready, and that no worker resumes."""
    now = store.now()
    late = [row for row in rows(_DUE, (now,)) if _late(now, row[3]) > _GRACE]
    for agent, _, count, since in [row for row in late if row[1]][:_NAMED]:
        words = (
            f"{text.many(count, 'run')} of {name(agent)}: ready for {span(_late(now, since))}, but "
            "no worker resumes it. Start `sayso worker` with that agent, or see its log"
        )
        yield Check("due", "wrong", words)
    others = [row for row in late if not row[1]]
    if others:
        count = sum(row[2] for row in others)
        whose = ", ".join(name(row[0]) for row in others[:_NAMED])
        whose += ", …" * (len(others) > _NAMED)
        words = f"{text.many(count, 'run')} of {whose} decided; resume them from your own code"
        yield Check("due", "note", words)
    if not late:
        yield Check("due", "ok", "no run is waiting for a worker")


def _broken(store: Store, rows: Rows) -> Iterator[Check]:
    """Report runs that fail every time a worker resumes them."""
    last_failures = [_last_failure(rows, *row) for row in rows(_TAKEN_UP, (_MOST_RUNS,))]
    failures = [failure for failure in last_failures if failure is not None]
    for run, agent, body in failures[:_NAMED]:
        words = f"run {name(run)} of {name(agent)} has failed {body['times']} times or more"
        yield Check("broken", "wrong", f"{words}: {body['error']}")
    if len(failures) > _NAMED:
        yield Check("broken", "wrong", f"and {text.many(len(failures) - _NAMED, 'other run')}")
    if not failures:
        yield Check("broken", "ok", "no run fails repeatedly")


def _last_failure(
    rows: Rows, run: str, thread: str, agent: str
) -> tuple[str, str, dict[str, Any]] | None:
    """Return the failure that a worker recorded, if the run has not moved since."""
    for type, body in rows(_LAST_EVENTS, (thread, run)):
        if type == "broke" and body is not None:
            return run, agent, codec.loads(body)
        if type not in ("claimed", "lease_released", "woken"):
            return None
    return None


def _channels(store: Store, rows: Rows) -> Iterator[Check]:
    """Report channels whose messages fail, or that no process sends."""
    now = store.now()
    backlogs = store.vitals().backlogs
    channels = {row[0].removeprefix("health:") for row in rows(_HEALTH, ())} | {*backlogs}
    for channel in sorted(channels):
        health = read_health(store, channel)
        backlog = backlogs.get(channel, Backlog(0, 0, None))
        late = 0.0 if backlog.since is None else _late(now, backlog.since)
        title = f"{channel[:_CHANNEL]}:"
        if backlog.failing and health.failing:
            waiting = text.many(backlog.failing, "message")
            words = f"{title} {waiting} tried again, because the last one failed: {health.error}"
            yield Check("channel", "wrong", words)
        elif late > _GRACE:
            words = f"{title} {text.many(backlog.due, 'message')} to send, overdue by {span(late)}"
            words += ": start `sayso serve` or `sayso worker` with the options of this channel"
            yield Check("channel", "wrong", words)
        elif health.sent_at:
            words = f"{title} last sent {moment(health.sent_at):%Y-%m-%d %H:%M} UTC"
            yield Check("channel", "ok", words)


def _late(now: Micros, *times: Micros) -> float:
    return (now - min(times)) / SECOND if times else 0.0


def _sealed(store: Store, rows: Rows) -> Iterator[Check]:
    """Report how many events are not sealed yet."""
    ((unsealed,),) = rows(_UNSEALED, ())
    ((first,),) = rows(_FIRST_UNSEALED, ())
    late = 0.0 if first is None else _late(store.now(), first)
    words = f"{text.many(unsealed, 'event')} since the last seal"
    if late <= _SEAL_GRACE:
        yield Check("record", "note", f"{words}; `sayso audit verify` checks the whole audit log")
    elif store.keys.can_sign:
        words += f", the oldest {span(late)} ago: the next commit with this key seals them"
        yield Check("record", "note", words)
    else:
        words += (
            f", the oldest {span(late)} ago, and this key can only verify: start `sayso serve` "
            "with the private key to seal them"
        )
        yield Check("record", "wrong", words)


_CHECKS: tuple[Callable[[Store, Rows], Iterator[Check]], ...] = (
    *(_key, _needed_keys, _clock, _restored),
    *(_waiting, _overdue, _due, _broken, _channels, _sealed),
    *(_people, _tier),
)
