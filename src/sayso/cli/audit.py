"""``sayso audit``: is the record whole, and the record itself."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

import typer

from sayso import text
from sayso.channels.layout import Line
from sayso.channels.screen import console, show
from sayso.cli import options, views
from sayso.cli.exits import Exit
from sayso.cli.opening import opened

audit = typer.Typer(help="Check or export the record.", no_args_is_help=True, rich_markup_mode=None)


@audit.command("verify")
def verify(
    json: options.AsJson = False,
    plain: options.Plain = False,
    store: options.StoreUrl = options.DEFAULT_STORE,
) -> None:
    """Check every chain, seal and signature; exit 1 and name the first row that is wrong."""
    from sayso.audit import verify as check

    with opened(store) as box:
        report = check(box.store)
    if json:
        views.print_json(report_json(report))
    else:
        show(console(plain=plain), _lines(report))
    raise typer.Exit(Exit.OK if report.ok else Exit.PROBLEM)


def _lines(report: Any) -> list[Line]:
    events, threads = text.many(report.events, "event"), text.many(report.threads, "thread")
    read = f"{events} of {threads}, {text.many(report.seals, 'seal')}"
    if report.ok:
        tail = (
            f"; {text.many(report.unsealed, 'event')} after the last seal"
            if report.unsealed
            else ""
        )
        return [Line(f"The record is whole: {read}{tail}.", "bold green")]
    first, *others = report.problems
    lines = [Line(f"The record is broken ({read}). First:", "bold red")]
    lines += [Line(text.inline(str(first)), "bold red", "  ")]
    if others:
        lines += [Line("Then:", "bold")]
        lines += [Line(text.inline(str(problem)), "", "  ") for problem in others]
    return lines


def report_json(report: Any) -> dict[str, Any]:
    """A report, ready for JSON."""
    return {
        "ok": report.ok,
        "threads": report.threads,
        "events": report.events,
        "seals": report.seals,
        "unsealed": report.unsealed,
        "problems": [asdict(problem) for problem in report.problems],
    }


@audit.command("export")
def export(json: options.AsJson = False, store: options.StoreUrl = options.DEFAULT_STORE) -> None:
    """Write the whole record to standard output, as JSON Lines, with or without --json."""
    from sayso.audit import export as written

    with opened(store) as box:
        for line in written(box.store):
            sys.stdout.write(line.rstrip("\n") + "\n")
