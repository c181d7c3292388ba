"""Stores keep rows and run commands; ``open_store(url)`` imports the one that a URL names.

Read ``base`` (the contract and ``run_commands``), then ``sql``, which the stores share
(``statements``, ``transaction``, ``reads``, ``store``), then ``memory``, the shortest store.
Beside them: ``address`` (the name of a store), ``row_checks`` (MACs), ``listing`` (lists and
search), ``seals``, ``nested_runs``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sayso.errors import StoreError
from sayso.forking import fork_safe_lock
from sayso.stores.address import address_of, not_a_store

if TYPE_CHECKING:
    from sayso.stores.base import Store

_shared: dict[str, Any] = {}
_shared_lock = fork_safe_lock()


def open_store(
    url: str | Path | Store, *, create: bool = True, read_only: bool = False, **options: Any
) -> Store:
    """Open a store by URL: ``memory://``, ``sqlite:///path`` or ``postgresql://host/database``.

    A ``Path``, or text that ends in ``.db``, ``.sqlite`` or ``.sqlite3``, is the file of a SQLite
    store. Each ``memory://`` is a new store; a named one (``memory://name``) is shared within the
    process. PostgreSQL also takes ``?schema=name``. A store is returned as it is.

    A store that does not exist is created; with ``create=False`` that raises ``NotFound``. With
    ``read_only`` nothing is created, upgraded or written, and every write raises ``StoreError``.
    """
    if not isinstance(url, str | Path):
        if not hasattr(url, "transact"):
            raise not_a_store(url)
        return url
    address = address_of(url)
    if address.path is not None:
        from sayso.stores.sqlite import ReadOnlySqliteStore, SqliteFile, SqliteStore

        if read_only:
            return ReadOnlySqliteStore(address.path, **options)
        if not create:
            SqliteFile(address.path).close()
        return SqliteStore(address.path, **options)
    if address.kind == "memory":
        if read_only or not create:
            raise StoreError(
                "memory:// is gone with its process, so there is nothing to open: name a store "
                "such as sqlite:///sayso.db"
            )
        return _memory(address.name, options)
    try:
        from sayso.stores.postgres import PostgresStore, ReadOnlyPostgresStore
    except ImportError as missing:
        raise StoreError(
            'PostgreSQL needs a driver: run pip install "sayso[postgres]", and try again'
        ) from missing
    if read_only:
        return ReadOnlyPostgresStore(address.url, **options)
    return PostgresStore(address.url, create=create, **options)


def _memory(name: str, options: dict[str, Any]) -> Store:
    from sayso.stores.memory import MemoryStore

    if not name:
        return MemoryStore(**options)
    with _shared_lock:
        if name not in _shared:
            _shared[name] = MemoryStore(name=name, **options)
        shared: Store = _shared[name]
        return shared
