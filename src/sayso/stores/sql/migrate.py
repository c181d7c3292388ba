"""Numbered migrations: an older store is brought up to date, a newer one is refused."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

from sayso.errors import StoreError, StoreVersion


def migrations(dialect: str) -> list[tuple[int, str]]:
    """The numbered SQL files of a dialect, in order."""
    folder = files("sayso.stores.sql") / "migrations" / dialect
    found = [entry for entry in folder.iterdir() if entry.name.endswith(".sql")]
    return sorted((int(entry.name[:4]), entry.read_text()) for entry in found)


def version_of(names: set[str], execute: Callable[[str, Sequence[Any]], Any], url: str) -> int:
    """How far the schema with these tables has come; 0 if there are none at all."""
    if not names:
        return 0
    if not {"meta", "thread", "call", "event"} <= names:
        raise StoreError(f"{url} holds something else, not a store of Sayso: name another one")
    version = read_meta(execute, url)["version"]
    if not (version.isascii() and version.isdecimal() and int(version)):
        raise damaged(url, f"its version is {version!r:.20}")
    return int(version)


def read_meta(execute: Callable[[str, Sequence[Any]], Any], url: str) -> dict[str, str]:
    """Return what the store says of itself. Every row that a store needs is there."""
    meta = {key: value for key, value in execute("SELECT key, value FROM meta", ()).fetchall()}
    for key in ("version", "incarnation", "key"):
        if not meta.get(key):
            raise damaged(url, f"its table meta has no {key!r}")
    return meta


def another(url: str) -> StoreError:
    """The error for a store that was put in the place of the one that is open."""
    return StoreError(
        f"{url} holds another store than the one that this process opened: nothing was written to "
        "it. Restart every process that uses it"
    )


def damaged(url: str, what: str) -> StoreError:
    """The error for a store that something else has changed."""
    return StoreError(
        f"{url} is damaged, or was made by a development version of Sayso: {what}. Restore it from "
        "a backup, or open another store"
    )


def check_version(version: int, dialect: str, url: str) -> None:
    """Refuse a store that a newer version of Sayso has written."""
    newest = migrations(dialect)[-1][0]
    if version > newest:
        raise StoreVersion(
            f"{url} was written by a newer version of Sayso (schema {version}, this one knows "
            f"{newest}): upgrade sayso, or open another store"
        )


def migrate(
    version: int,
    dialect: str,
    execute: Callable[[str, Sequence[Any]], Any],
    key_id: str,
) -> None:
    """Run what is missing, inside the caller's transaction."""
    for number, text in migrations(dialect):
        if number <= version:
            continue
        for statement in _statements(text):
            execute(statement, ())
        if number == 1:
            _describe(execute, key_id)
        execute("UPDATE meta SET value = ? WHERE key = 'version'", (str(number),))


def _describe(execute: Callable[[str, Sequence[Any]], Any], key_id: str) -> None:
    facts = {"version": "0", "incarnation": secrets.token_hex(16), "key": key_id}
    for key, value in facts.items():
        execute("INSERT INTO meta (key, value) VALUES (?, ?)", (key, value))


def _statements(text: str) -> list[str]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("--")]
    return [statement.strip() for statement in "\n".join(lines).split(";") if statement.strip()]


def check_key(
    key_id: str, known_ids: Sequence[str], execute: Callable[[str, Sequence[Any]], Any], url: str
) -> None:
    """Refuse to write signatures that the store's other users could not verify.

    The keys of a store are the one that it was made with, and those that have sealed it since: so
    the first can be dropped after a rotation.
    """
    if key_id in known_ids:
        return
    marks = ", ".join("?" * len(known_ids))
    sealed = f"SELECT 1 FROM seal WHERE substr(signature, 1, 8) IN ({marks}) LIMIT 1"
    if execute(sealed, known_ids).fetchone() is None:
        raise StoreError(
            f"{url} was signed with key {key_id}, and that key is not here: bring its .key file "
            "back, or put the key into SAYSO_KEY (old keys after the new one, separated by commas)"
        )
