"""Stores keep rows and run commands; ``open_store(url)`` imports the one that a URL names.

Read ``base`` (the contract and ``run_commands``), then ``memory``, the shortest store. ``sql`` is
what ``sqlite`` and ``postgres`` share: ``statements``, ``transaction``, ``reads``.
Beside them: ``row_checks`` (MACs), ``listing`` (lists and search), ``seals``, ``nested_runs``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sayso.errors import StoreError
from sayso.forking import fork_safe_lock

if TYPE_CHECKING:
    from sayso.stores.base import Store

_URLS = (
    "use sqlite:///path/to/sayso.db, sqlite:////absolute/path, postgresql://user@host/database or "
    "memory://"
)
_shared: dict[str, Any] = {}
_shared_lock = fork_safe_lock()


def open_store(url: str | Path | Store, **options: Any) -> Store:
    """Open a store by URL: ``memory://``, ``sqlite:///path`` or ``postgresql://host/database``.

    A ``Path``, or text that ends in ``.db``, ``.sqlite`` or ``.sqlite3``, is the file of a SQLite
    store. Each ``memory://`` is a new store; a named one (``memory://name``) is shared within the
    process. PostgreSQL also takes ``?schema=name``. A store is returned as it is.
    """
    if isinstance(url, Path) or (isinstance(url, str) and _is_file(url)):
        from sayso.stores.sqlite import SqliteStore

        return SqliteStore(Path(url), **options)
    if not isinstance(url, str):
        if not hasattr(url, "transact"):
            raise StoreError(f"a store is a URL or a store, not {type(url).__name__}: {_URLS}")
        return url
    scheme, separator, rest = url.partition("://")
    if separator and scheme == "memory":
        return _memory(rest, options)
    if separator and scheme == "sqlite":
        from sayso.stores.sqlite import SqliteStore

        return SqliteStore(_sqlite_path(url, rest), **options)
    if separator and scheme in ("postgresql", "postgres"):
        try:
            from sayso.stores.postgres import PostgresStore
        except ImportError as missing:
            raise StoreError(
                'PostgreSQL needs a driver: run pip install "sayso[postgres]", and try again'
            ) from missing

        return PostgresStore(url, **options)
    raise StoreError(f"{url!r} is not a store: {_URLS}")


def _is_file(text: str) -> bool:
    return "://" not in text and text.endswith((".db", ".sqlite", ".sqlite3"))


def _memory(name: str, options: dict[str, Any]) -> Store:
    from sayso.stores.memory import MemoryStore

    if not name:
        return MemoryStore(**options)
    with _shared_lock:
        if name not in _shared:
            _shared[name] = MemoryStore(name=name, **options)
        shared: Store = _shared[name]
        return shared


def _sqlite_path(url: str, rest: str) -> Path:
    if not rest.startswith("/") or rest == "/":
        raise StoreError(
            f"{url!r} names no file: write sqlite:///sayso.db or sqlite:////abs/path.db"
        )
    if "?" in rest:
        raise StoreError(
            f"{url!r} has parameters, and a SQLite store takes none: leave out what follows the ?"
        )
    path = Path(rest[1:])
    if path.name == ":memory:":
        raise StoreError(f"{url!r} names a file: a store in memory is memory://")
    if path.expanduser().is_dir():
        raise StoreError(f"{url!r} names a folder: write sqlite:///{path}/sayso.db")
    return path
