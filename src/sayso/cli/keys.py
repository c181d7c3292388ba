"""``sayso keys``: which keys there are, a new key step by step, and a key that has leaked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Any

import typer

from sayso.channels.layout import Line
from sayso.cli import common, output
from sayso.cli.common import Usage, as_admin, reading
from sayso.errors import NotAllowed
from sayso.inbox.key_rotation import Rotated, distrust, sign_again
from sayso.keys import (
    ENVIRONMENT,
    ROW_ENVIRONMENT,
    Keyring,
    keys_in,
    new_key,
    public_key,
    replace_keys,
    row_key,
)
from sayso.stores.base import Store
from sayso.stores.sql.presence import STALE_SECONDS
from sayso.text import inline, many
from sayso.types import Reviewer, micros_of, moment

keys = typer.Typer(help="List the keys of a store, rotate them, or distrust one.")

#: Of each kind of rows, this many are counted.
_MOST = 100_000


@keys.command("list")
def list_keys(
    json: common.AsJson = False,
    plain: common.Plain = False,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """List the keys of this process, and which live rows hold them. The first key signs."""
    with reading(store) as box:
        uses = uses_by_key(box.store)
        ring = box.store.keys
        present = list(dict.fromkeys([*(key.id for key in ring.keys), *(k.id for k in ring.rows)]))
        missing = sorted(uses.keys() - {*present})
        value = [
            {"key": key, "missing": key in missing, "rows": uses.get(key, {})}
            for key in (*present, *missing)
        ]
        lines = [
            Line(rows_text(uses.get(key, {})), "", f"{key}{' (missing)' * (key in missing)}  ")
            for key in (*present, *missing)
        ]
        output.emit(value, lines, json=json, plain=plain)


def uses_by_key(store: Store) -> dict[str, dict[str, int]]:
    """Return how many live rows hold each key, by what they are."""
    uses: dict[str, dict[str, int]] = {}
    for noun, counts in store.key_uses(_MOST).items():
        for key, count in counts.items():
            uses.setdefault(key, {})[noun] = count
    return uses


def rows_text(rows: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {noun}" for noun, count in rows.items()) or "no live rows"


@keys.command("rotate")
def rotate(
    drop: Annotated[
        bool,
        typer.Option("--drop", help="At the end, take keys that nothing needs out of the file."),
    ] = False,
    json: common.AsJson = False,
    token_file: common.TokenFile = None,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Change the key: run this, restart every process, and run it again until it says done.

    The first time it makes a new key, which only verifies. Then it lets the new key sign. Then it
    signs all rows again, lists what still needs the old key, and says when you can drop it.
    """
    with as_admin(store, token_file) as (box, by):
        if not box.store.keys.can_sign:
            raise Usage("this process can only verify: rotate where the private key is")
        box.store.seal()
        value, lines = _next_step(box.store, by, drop)
        output.emit(value, lines, json=json)
        if not json:
            for variable, text in value.get("set", {}).items():
                print(f"{variable}={text}")  # in one line, to be copied


def _next_step(store: Store, by: Reviewer, drop: bool) -> tuple[dict[str, Any], list[Line]]:
    ring = store.keys
    words = keys_in(ring.source)
    first = ring.keys[0].id
    if len(ring.keys) == 1:
        words.append(new_key("hmac" if words[0].partition(":")[0] != "ed25519" else "ed25519"))
        key = Keyring.parse(words[-1]).primary_id
        line = Line(f"Made the key {key}. It verifies, and {first} still signs.")
        return _publish({"step": "added", "key": key}, [line], ring.source, words)
    key = ring.keys[1].id
    if not store.has_signed(key):
        _check_processes(store, key)
        words[:2] = [words[1], words[0]]
        line = Line(f"From the next start on, {key} signs, and {first} only verifies.")
        return _publish({"step": "first", "key": key}, [line], ring.source, words)
    _check_processes(store, first, ring.row_key.id, signs=drop)
    rotated = sign_again(store, by=by)
    lines = list(rotated_lines(rotated))
    spare = [key.id for key in ring.keys[1:] if not any(key.id in ids for ids in _left(rotated))]
    if not rotated.left:
        lines.append(
            Line(
                f"Done: only the record before now needs {', '.join(spare)}. Keep a copy where you "
                "run `sayso audit verify`, and take it from all other machines."
            )
        )
    value = {"step": "signed", **asdict(rotated), "spare": spare}
    if drop and not rotated.left:
        return _publish(value, lines, ring.source, words[:1])
    return value, lines


def _check_processes(store: Store, key: str, row_key: str = "", *, signs: bool = False) -> None:
    """Raise ``NotAllowed`` if a live process lacks these keys or, with ``signs``, uses others."""
    most = 1 if signs else None
    unready = [
        one.title
        for one in store.processes()
        if key not in one.keys[:most] or (row_key and row_key not in one.row_keys[:most])
    ]
    if unready:
        reason = f"the key {key} does not sign yet" if signs else f"the key {key} is missing"
        raise NotAllowed(
            f"{reason} in {inline(', '.join(unready))}: give it to every process, restart them, "
            f"and try again (one that was killed counts for {STALE_SECONDS} s)"
        )


def _left(rotated: Rotated) -> list[dict[str, int]]:
    return list(rotated.left.values())


def rotated_lines(rotated: Rotated) -> Iterator[Line]:
    yield Line(f"Signed again with {rotated.key}: {rows_text(rotated.changed)}.")
    totals: dict[str, Counter[str]] = {}
    for noun, ids in rotated.left.items():
        for key, count in ids.items():
            totals.setdefault(key, Counter())[noun] += count
    for key, rows in totals.items():
        if key:
            yield Line(f"still need {key}: {rows_text(rows)}", "", "  ")
        else:
            words = "fail their check, so they were not signed: see `sayso audit verify`"
            yield Line(f"{rows_text(rows)} {words}", "", "  ")


def _publish(
    value: dict[str, Any], lines: list[Line], source: str, words: list[str]
) -> tuple[dict[str, Any], list[Line]]:
    """Write keys to the file that they came from, or say where to set them."""
    values = {}
    if source == ENVIRONMENT:
        values[ENVIRONMENT] = ",".join(words)
        again = f"Set {ENVIRONMENT} on every machine to the line below"
    else:
        replace_keys(source, words)
        again = f"{source} has {many(len(words), 'key')} now; give the others the same"
    if all(word.startswith("ed25519:") for word in words):
        values[f"workers: {ENVIRONMENT}"] = ",".join(map(public_key, words))
        values[f"workers: {ROW_ENVIRONMENT}"] = ",".join(map(row_key, words))
    lines.append(
        Line(f"{again}, restart every server, worker and agent, and run `sayso keys rotate` again.")
    )
    return ({**value, "set": values} if values else value), lines


@keys.command("distrust")
def distrust_key(
    key: Annotated[str, typer.Argument(metavar="KEY", help="The id of the key that has leaked.")],
    since: Annotated[str, typer.Option("--from", metavar="TIME", help="When it may have leaked.")],
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="You checked this person's rights; repeatable."),
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Remove this person; repeatable.")
    ] = None,
    json: common.AsJson = False,
    token_file: common.TokenFile = None,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Undo what a leaked key may have signed since a time, and sign what is older again.

    Tokens and grants from then on end, and calls that were approved and have not run are asked
    about again. Say of each person who was changed since then whether you --keep or --remove them.
    Another key has to sign already: see `sayso keys rotate`.
    """
    start = micros_of(common.point_in_time(since, "--from"))
    with as_admin(store, token_file) as (box, by):
        undone = distrust(box.store, key, start, by=by, keep=keep or (), remove=remove or ())
        ended = {
            "tokens": [token.id for token in undone.tokens],
            "grants": [grant.id for grant in undone.grants],
            "asked_again": [call.id for call in undone.calls],
            "removed": [person.name for person in undone.people],
        }
        assert undone.rotated is not None
        value = {"key": key, "since": start, **ended, "rotated": asdict(undone.rotated)}
        lines = [
            Line(f"{noun.replace('_', ' ')}: {', '.join(names)}", "", "  ")
            for noun, names in ended.items()
            if names
        ]
        lines = [Line(f"Distrusted {key} from {moment(start):%Y-%m-%d %H:%M:%S} UTC."), *lines]
        lines += rotated_lines(undone.rotated)
        lines.append(Line(f"Take {key} from the keys of every machine now, and restart it."))
        output.emit(value, lines, json=json)
