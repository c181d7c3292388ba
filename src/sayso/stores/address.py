"""The one reading of a store's name, for the library and every command.

========================================  =========================================
``sqlite:///sayso.db``, ``sayso.db``      a file, relative to the current folder
``sqlite:////var/sayso.db``, ``~/a.db``   a file with an absolute path
``postgresql://…``, ``postgres://…``      a PostgreSQL database
``memory://``, ``memory://name``          nothing is kept after the process
========================================  =========================================

Text that is none of these is refused, and the message says what to write: a typo must not become
the name of a new file.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sayso.errors import StoreError

Kind = Literal["memory", "sqlite", "postgresql"]

_FORMS = (
    "use sqlite:///path/to/sayso.db, sqlite:////absolute/path, postgresql://user@host/database or "
    "memory://"
)
_ENDINGS = (".db", ".sqlite", ".sqlite3")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):(.*)", re.DOTALL)
_DRIVE = re.compile(r"[A-Za-z]:([/\\]|[^/\\]*$)")


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """Where a store is."""

    kind: Kind
    #: The same store in its full form: the path of a file is absolute.
    url: str
    #: The file of a SQLite store.
    path: Path | None = None
    #: The name of a shared store in memory; "" for one that nothing else can open.
    name: str = ""


def address_of(store: str | Path) -> StoreAddress:
    """Read the name of a store. Raise ``StoreError`` if it is not one."""
    if isinstance(store, Path):
        return _file(store, str(store))
    if not isinstance(store, str):
        raise not_a_store(store)
    if not store or store != store.strip():
        problem = "has spaces around it: remove them" if store.strip() else f"is empty: {_FORMS}"
        raise StoreError(f"the name of the store {problem}")
    scheme_match = _SCHEME.fullmatch(store)
    if scheme_match is None or _DRIVE.match(store):
        return _plain(store)
    scheme = scheme_match[1]
    rest = scheme_match[2]
    if scheme in ("postgresql", "postgres") and rest.startswith("//"):
        return StoreAddress("postgresql", store)
    if scheme == "memory" and rest.startswith("//"):
        return StoreAddress("memory", store, name=rest[2:])
    if scheme == "sqlite":
        return _sqlite(store, rest)
    raise StoreError(_hint(scheme, rest))


def is_in_memory(store_url: str) -> bool:
    """Return whether the URL of an open store says that it is gone with its process."""
    return store_url.startswith("memory://")


def not_a_store(value: object) -> StoreError:
    """Return the error for a value that is neither a store nor the name of one."""
    return StoreError(f"a store is a URL or a store, not {type(value).__name__}: {_FORMS}")


def _plain(text: str) -> StoreAddress:
    """Read the path of a file that was given without a scheme."""
    if text == ":memory:":
        raise StoreError(f"{text!r} is not a store: a store in memory is memory://")
    if os.path.isdir(os.path.expanduser(text)):
        raise StoreError(f"{text!r} names a folder: write {Path(text) / 'sayso.db'}")
    if not text.endswith(_ENDINGS):
        raise StoreError(
            f"{text!r:.200} is not a store: {_FORMS}; a path alone has to end in "
            f"{', '.join(_ENDINGS[:-1])} or {_ENDINGS[-1]}"
        )
    return _file(Path(text), text)


def _sqlite(url: str, rest: str) -> StoreAddress:
    if not rest.startswith("///") or rest == "///":
        raise StoreError(
            f"{url!r:.200} names no file: write sqlite:///sayso.db or sqlite:////abs/path.db"
        )
    if "?" in rest:
        raise StoreError(
            f"{url!r:.200} has parameters, and a SQLite store takes none: leave out what follows "
            "the ?"
        )
    path = Path(rest[3:])
    if path.name == ":memory:":
        raise StoreError(f"{url!r:.200} names a file: a store in memory is memory://")
    return _file(path, url)


def _file(path: Path, text: str) -> StoreAddress:
    if "\0" in text:
        raise StoreError(f"the name of the store contains a null character: {_FORMS}")
    if "\\" in text or _DRIVE.match(str(path)):
        raise StoreError(
            f"{text!r:.200} looks like a Windows path: write it with slashes and without a drive, "
            "such as sqlite:///folder/sayso.db"
        )
    try:
        absolute = path.expanduser().absolute()
    except RuntimeError:
        raise StoreError(
            f"{text!r:.200} names the home folder of a user who does not exist: write the path"
        ) from None
    if os.path.isdir(absolute):
        raise StoreError(f"{text!r:.200} names a folder: write sqlite:///{path}/sayso.db")
    return StoreAddress("sqlite", f"sqlite:///{absolute}", absolute)


def _hint(scheme: str, rest: str) -> str:
    """Return the message for a scheme that no store has. The rest may contain a password."""
    lower = scheme.lower()
    if lower in ("http", "https"):
        return (
            f"{scheme}:// is the address of a server, not of a store: use sayso.Client or "
            "sayso.RemoteGate"
        )
    if lower == "file":
        return "a store's name does not begin with file: write sqlite:///path/to/sayso.db"
    for kind in ("postgresql", "postgres", "sqlite", "memory"):
        if lower.split("+")[0] == kind:
            return f"{scheme}:{rest[:2]} is not how a store's name begins: {_FORMS}"
    return f"{scheme}: does not begin the name of a store: {_FORMS}"
