"""``sayso doctor``: what this set-up is worth, and what is wrong with it."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from importlib import import_module

import typer

import sayso
from sayso import text
from sayso.channels.layout import Line
from sayso.channels.screen import console, show
from sayso.cli import options, views
from sayso.cli.checkup import trust, work
from sayso.cli.checkup.check import Check, Ground, Rows
from sayso.cli.exits import Exit
from sayso.cli.opening import file_of, opened
from sayso.errors import KeyMissing, NotFound, SaysoError
from sayso.stores.base import Store

_SIGNS = {"ok": ("✓", "green"), "note": ("-", ""), "wrong": ("✗", "bold red")}

_LOOKS: tuple[Callable[[Store, Rows], Iterator[Check]], ...] = (
    *(trust.key, trust.needed_keys, trust.clock, trust.restored),
    *(work.waiting, work.overdue, work.due, work.broken, work.sealed),
    *(trust.people, trust.tier),
)


def doctor(
    json: options.AsJson = False,
    plain: options.Plain = False,
    store: options.StoreUrl = options.DEFAULT_STORE,
) -> None:
    """Say what is wrong with this set-up.

    Looks at store, disk or database, key, clock, tokens and record, at what waits and whether
    somebody takes it further, and says what the promise is worth here; exit code 1 if something is
    wrong. A store of an older version is left as it is.
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
    yield Check("sayso", "ok", f"{sayso.__version__}, Python {platform.python_version()}")
    try:
        with closing(_ground(url)) as ground:
            if not (yield from ground.look()):
                return
            with opened(url) as box:
                yield Check("store", "ok", box.store.url)
                for look in _LOOKS:
                    yield from look(box.store, ground.rows)
    except NotFound as error:
        yield Check("store", "wrong", str(error))
    except KeyMissing as error:
        yield Check("key", "wrong", str(error))
    except SaysoError as error:
        yield Check("store", "wrong", f"it cannot be used: {error}")


def _ground(url: str) -> Ground:
    if url.startswith(("postgresql://", "postgres://")):
        # Raises ImportError if the driver is missing.
        import_module("sayso.stores.postgres.connections")
        from sayso.cli.checkup.database import Database

        return Database(url)
    path = file_of(url)
    if path is None:
        with opened(url):  # says what is no store
            raise AssertionError("unreachable")
    from sayso.cli.checkup.file import SqliteFile

    return SqliteFile(path)
