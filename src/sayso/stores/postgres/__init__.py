"""The store in a PostgreSQL database."""

from sayso.stores.postgres.read_only import ReadOnlyDatabase, ReadOnlyPostgresStore
from sayso.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore", "ReadOnlyDatabase", "ReadOnlyPostgresStore"]
