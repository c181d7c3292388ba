"""``assent doctor``: what this set-up is worth, and what is wrong with it."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import typer

from assent import text
from assent.channels.card import utc_now
from assent.channels.layout import Line
from assent.channels.screen import console, show
from assent.cli import options, views
from assent.cli.exits import Exit
from assent.cli.opening import file_of, opened
from assent.errors import AssentError, NotFound
from assent.keys import ENVIRONMENT
from assent.stores.base import Query, Store
from assent.stores.migrate import migrations
from assent.types import moment

_MOST = 10_000
_SKEW = 5.0
_SIGNS = {"ok": ("✓", "green"), "note": ("-", ""), "wrong": ("✗", "bold red")}
_EMBEDDED = (
    "embedded: agent and store share a machine and a user. It stops the model, not code that runs "
    "as you; signed decisions make changed rows visible and keep them from running."
)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    state: Literal["ok", "note", "wrong"]
    text: str


def doctor(
    json: options.AsJson = False,
    plain: options.Plain = False,
    store: options.StoreUrl = options.DEFAULT_STORE,
) -> None:
    """Say what is wrong with this set-up.

    Looks at store, key, clock and record, and says what the promise is worth here; exit code 1 if
    something is wrong.
    """
    checks = list(_checks(store))
    well = all(check.state != "wrong" for check in checks)
    if json:
        views.print_json({"ok": well, "checks": [asdict(check) for check in checks]})
    else:
        show(console(plain=plain), map(_line, checks))
    raise typer.Exit(Exit.OK if well else Exit.PROBLEM)


def _line(check: Check) -> Line:
    sign, style = _SIGNS[check.state]
    return Line(text.inline(check.text), style, f"{sign} {check.name:<9} ", style)


def _checks(url: str) -> Iterator[Check]:
    yield Check("store", "ok", url)
    path = file_of(url)
    try:
        if path is not None and path.exists():
            yield from _file(path)
        with opened(url) as box:
            for look in (_key, _clock, _restored, _counts, _sealed):
                yield from look(box.store, path)
        yield Check("tier", "note", _EMBEDDED)
    except NotFound as error:
        yield Check("store", "wrong", str(error))
    except AssentError as error:
        yield Check("store", "wrong", f"it cannot be opened: {error}")


def _file(path: Path) -> Iterator[Check]:
    newest = migrations("sqlite")[-1][0]
    version = _version(path)
    if version is not None:
        state: Literal["ok", "wrong"] = "ok" if version <= newest else "wrong"
        yield Check("schema", state, f"version {version}; this assent knows {newest}")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o022:
        yield Check("file", "wrong", f"mode {mode:04o}: others can write it, run chmod 600 {path}")
    elif mode & 0o044:
        yield Check("file", "note", f"mode {mode:04o}: others can read the requests")
    else:
        yield Check("file", "ok", f"mode {mode:04o}")


def _version(path: Path) -> int | None:
    """The schema version of a file, read without changing it."""
    try:
        connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)
        try:
            row = connection.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()
        finally:
            connection.close()
        return int(row[0])
    except (sqlite3.Error, TypeError, ValueError):
        return None


def _key(store: Store, path: Path | None) -> Iterator[Check]:
    ids = ", ".join(key.id for key in store.keys.keys)
    signs = "" if store.keys.can_sign else "; it verifies only, so decisions are made elsewhere"
    if os.environ.get(ENVIRONMENT) is not None:
        yield Check("key", "ok", f"{ids}, from {ENVIRONMENT}{signs}")
    elif path is not None:
        file = Path(f"{os.path.realpath(path)}.key")
        mode = stat.S_IMODE(file.stat().st_mode)
        yield Check("key", "ok", f"{ids}, in {file} (mode {mode:04o}){signs}")


def _clock(store: Store, path: Path | None) -> Iterator[Check]:
    now, ours = moment(store.now()), utc_now()
    newest = store.page(Query(status="any", sort="newest", limit=1))
    skew = abs((now - ours).total_seconds())
    if skew > _SKEW:
        yield Check("clock", "wrong", f"store and machine are {skew:.0f} s apart: set the clocks")
    elif newest and newest[0][1].created > store.now():
        words = "the newest request is from the future: the clock was set back"
        yield Check("clock", "wrong", words)
    else:
        yield Check("clock", "ok", f"{now:%Y-%m-%d %H:%M:%S} UTC")


def _restored(store: Store, path: Path | None) -> Iterator[Check]:
    if store.restored():
        words = "an older copy was put back: nothing starts until you run `assent recover`"
        yield Check("restore", "wrong", words)
    else:
        yield Check("restore", "ok", "the store never went back in time")


def _counts(store: Store, path: Path | None) -> Iterator[Check]:
    yield Check("waiting", "note", f"{_count(store, None)} requests are pending")
    doubts = _count(store, "in_doubt")
    state: Literal["note", "wrong"] = "note" if doubts == "0" else "wrong"
    yield Check("in doubt", state, f"{doubts} calls: see `assent inbox --kind in_doubt`")
    overdue = len(store.overdue())
    words = f"{overdue} requests or leases are past their end; `assent inbox` closes them"
    yield Check("overdue", "note", words)


def _count(store: Store, kind: str | None) -> str:
    """How many wait; counted up to a limit, because a page is cheap and a count is not."""
    count, after = 0, None
    while count < _MOST:
        page = store.page(Query(kind=kind, after=after, limit=500))
        count += len(page)
        if len(page) < 500:
            return str(count)
        after = page[-1][0]
    return f"{count} or more"


def _sealed(store: Store, path: Path | None) -> Iterator[Check]:
    unsealed, threads = 0, store.threads()
    while threads:
        unsealed += sum(thread.seq - thread.sealed for thread in threads)
        threads = store.threads(after=threads[-1].id)
    words = f"{unsealed} events since the last seal; `assent audit verify` checks them all"
    yield Check("record", "note", words)
