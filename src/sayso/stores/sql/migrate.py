"""Tables: create those of a new store, upgrade an older one, refuse a newer one."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from sayso.errors import StoreError, StoreVersion

_Execute = Callable[[str, Sequence[Any]], Any]

#: The version of the tables that ``schema.sql`` creates. Older ones were never released.
SCHEMA_VERSION = 9
_BEGIN = re.compile(r"\bBEGIN\b")


@cache
def migrations(dialect: str) -> tuple[tuple[int, str], ...]:
    """Return the changes to the tables since ``schema.sql`` was released: versions and SQL."""
    numbered = [entry for entry in _folder(dialect).iterdir() if entry.name[:4].isdecimal()]
    return tuple(sorted((int(entry.name[:4]), entry.read_text()) for entry in numbered))


def newest_version(dialect: str) -> int:
    """Return the version of the tables that this build of Sayso reads and writes."""
    return max([SCHEMA_VERSION, *[number for number, _ in migrations(dialect)]])


def _folder(dialect: str) -> Traversable:
    return files("sayso.stores") / dialect


def version_of(names: set[str], execute: _Execute, url: str) -> int:
    """Return the schema version of a database with these tables; 0 if it has none.

    Raises ``StoreError`` if the tables are not Sayso's.
    """
    if not names:
        return 0
    if not {"meta", "thread", "call", "event"} <= names:
        raise StoreError(f"{url} holds something else, not a Sayso store: choose another one")
    version = read_meta(execute, url)["version"]
    if not (version.isascii() and version.isdecimal() and int(version)):
        raise damaged(url, f"its version is {version!r:.20}")
    return int(version)


def read_meta(execute: _Execute, url: str) -> dict[str, str]:
    """Return the table ``meta``; raise ``StoreError`` if a required row is missing."""
    meta = {key: value for key, value in execute("SELECT key, value FROM meta", ()).fetchall()}
    for key in ("version", "incarnation", "key"):
        if not meta.get(key):
            raise damaged(url, f"its table meta has no {key!r}")
    return meta


def another(url: str) -> StoreError:
    """Return the error for a store that replaced the one that is open."""
    return StoreError(
        f"{url} holds another store than the one this process opened: nothing was written. Restart "
        "every process that uses it"
    )


def upgraded(url: str, version: str, known: str) -> StoreVersion:
    """Return the error for a store whose tables were changed while this process had it open."""
    return StoreVersion(
        f"nothing was written to {url}: its tables have schema {version} now, and this process "
        f"opened it with schema {known}. Restart this process with the version of Sayso that "
        "changed them"
    )


def damaged(url: str, what: str) -> StoreError:
    """Return the error for a store that something else has changed."""
    return StoreError(
        f"{url} is damaged, or was created by a development version of Sayso: {what}. Restore it "
        "from a backup, or open another store"
    )


def check_version(version: int, dialect: str, url: str) -> None:
    """Raise ``StoreVersion`` if this version of Sayso can neither use the store nor upgrade it."""
    newest = newest_version(dialect)
    if version > newest:
        raise StoreVersion(
            f"{url} was written by a newer version of Sayso (schema {version}, this one knows "
            f"{newest}): upgrade sayso, or open another store"
        )
    if 0 < version < SCHEMA_VERSION:
        raise StoreVersion(
            f"{url} was created by a development version of Sayso (schema {version}) that was "
            "never released, so it cannot be upgraded: open another store, or move this one away "
            "to start with an empty one"
        )


def check_current(version: int, dialect: str, url: str) -> None:
    """Raise ``StoreVersion`` if the store cannot be read without upgrading it."""
    check_version(version, dialect, url)
    newest = newest_version(dialect)
    if version < newest:
        raise StoreVersion(
            f"{url} was written by an older version of Sayso (schema {version}, this one reads "
            f"{newest}), and this command changes nothing: make a backup, then open the store once "
            "with `sayso serve`, `sayso worker` or your agent, which upgrades it"
        )


def migrate(version: int, dialect: str, execute: _Execute, key_id: str) -> None:
    """Create the tables, or run the missing migrations, inside the caller's transaction."""
    if version == 0:
        for statement in _statements((_folder(dialect) / "schema.sql").read_text()):
            execute(statement, ())
        version = SCHEMA_VERSION
        meta = {"incarnation": secrets.token_hex(16), "key": key_id, "version": str(version)}
        for pair in meta.items():
            execute("INSERT INTO meta (key, value) VALUES (?, ?)", pair)
    for number, text in migrations(dialect):
        if number > version:
            for statement in _statements(text):
                execute(statement, ())
            execute("UPDATE meta SET value = ? WHERE key = 'version'", (str(number),))


@cache
def _statements(text: str) -> tuple[str, ...]:
    """Split SQL at its semicolons, except inside ``BEGIN`` … ``END`` and ``$$`` … ``$$``."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("--")]
    statements = []
    statement = ""
    for piece in "\n".join(lines).split(";"):
        statement = f"{statement};{piece}" if statement else piece.strip()
        in_dollars = statement.count("$$") % 2 == 1
        in_trigger = bool(_BEGIN.search(statement)) and "$$" not in statement
        if statement and not in_dollars and not (in_trigger and not statement.endswith("END")):
            statements.append(statement)
            statement = ""
    return tuple(statements)


def check_key(key_id: str, known_ids: Sequence[str], execute: _Execute, url: str) -> None:
    """Raise ``StoreError`` if none of the known keys belongs to the store.

    Other processes could not verify what this one signs. A store's keys are the one that it was
    created with and those that have sealed it since, so the first can be dropped after a rotation.
    """
    if key_id in known_ids:
        return
    marks = ", ".join("?" * len(known_ids))
    sealed = f"SELECT 1 FROM seal WHERE substr(signature, 1, 8) IN ({marks}) LIMIT 1"
    if execute(sealed, known_ids).fetchone() is None:
        raise StoreError(
            f"{url} was signed with key {key_id}, which is missing: bring its .key file back, or "
            "put the key into SAYSO_KEY (old keys after the new one, separated by commas)"
        )
