"""The store in one SQLite file."""

from assent.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
