"""The store in one SQLite file."""

from sayso.stores.sqlite.reads import ReadOnlySqliteStore, SqliteFile
from sayso.stores.sqlite.store import SqliteStore

__all__ = ["ReadOnlySqliteStore", "SqliteFile", "SqliteStore"]
