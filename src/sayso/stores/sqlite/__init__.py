"""The store in one SQLite file."""

from sayso.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
