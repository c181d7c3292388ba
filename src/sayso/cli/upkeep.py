"""``sayso recover`` and ``sayso prune``: after a restore, and after a long time."""

from __future__ import annotations

from typing import Annotated

import typer

from sayso import text
from sayso.channels.screen import Screen, can_prompt
from sayso.cli import options, views
from sayso.cli.exits import Exit, NoReviewer, Usage
from sayso.cli.opening import caller, opened
from sayso.engine.commands import Recover
from sayso.inbox import Inbox
from sayso.types import Micros


def recover(
    yes: options.Yes = False,
    force: Annotated[
        bool, typer.Option("--force", help="Even if the store does not know of a restore.")
    ] = False,
    json: options.AsJson = False,
    token_file: options.TokenFile = None,
    store: options.StoreUrl = options.DEFAULT_STORE,
) -> None:
    """Go on after a restore from a backup.

    Every call that may have run since the backup is put in doubt; until then nothing starts.
    """
    with opened(store) as box:
        who = caller(box, token_file).must_be("admin")
        if not box.store.restored() and not force:
            words = "Nothing to recover: no restore was noticed. If there was one, say --force."
            _tell({"recovered": 0}, words, json)
            return
        runs = list(box.store.open_runs())
        question = f"{len(runs)} runs have calls that may have run since the backup."
        if not yes and not _sure(question, "recover"):
            raise typer.Exit(Exit.PENDING)
        doubts = _recover(box, who.name)
        _tell({"recovered": doubts}, f"Recovered: {doubts} calls are in doubt now.", json)


def _recover(box: Inbox, by: str) -> int:
    doubts = 0
    for run in box.store.open_runs():
        (doubted,) = box.store.transact(Recover(thread=run.thread, run=run.id, by=by))
        doubts += len(doubted)
    box.store.mark_recovered()
    return doubts


def _sure(question: str, word: str) -> bool:
    """Have a word typed; a script says --yes."""
    if not can_prompt():
        raise NoReviewer(f"{question} Nobody can be asked here: say --yes")
    screen = Screen()
    try:
        typed = screen.ask(f"{question} Type {word} to go on:")
    finally:
        screen.close()
    return typed is not None and not typed.pasted and typed.text.strip() == word


def _tell(value: object, words: str, json: bool) -> None:
    if json:
        views.print_json(value)
    else:
        typer.echo(text.inline(words))


def prune(
    before: Annotated[
        str,
        typer.Option("--before", metavar="TIME", help="An age such as 90d, or a date."),
    ],
    json: options.AsJson = False,
    token_file: options.TokenFile = None,
    store: options.StoreUrl = options.DEFAULT_STORE,
) -> None:
    """Forget what ended long ago.

    The contents of runs that ended before then go; the record of what happened stays verifiable.
    """
    with opened(store) as box:
        who = caller(box, token_file).must_be("admin")
        counts = box.store.prune(_limit(before, box.store.now()), who.name)
        what = ", ".join(f"{count} {noun}" for noun, count in counts.items())
        _tell(counts, f"Forgotten: {what}.", json)


_BEFORE = "--before {!r}: write an age such as 90d or 12h, or a date such as 2026-03-31"


def _limit(before: str, now: Micros) -> Micros:
    if before[:1].isdigit() and "-" in before:
        return round(options.point_in_time(before, "--before").timestamp() * 1_000_000)
    if not before[-1:].isalpha():  # a bare number is seconds elsewhere; here it would cost data
        raise Usage(_BEFORE.format(before))
    try:
        age = options.duration(before, "--before") or 0
    except Usage:
        raise Usage(_BEFORE.format(before)) from None
    return now - round(age * 1_000_000)
