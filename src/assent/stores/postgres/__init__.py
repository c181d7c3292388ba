"""The store in a PostgreSQL database."""

from assent.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
