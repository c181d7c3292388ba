"""Where a test on PostgreSQL has its rows, and how it opens stores there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import psycopg

from sayso.stores.postgres import PostgresStore

PgOpener = Callable[..., PostgresStore]


class Place(NamedTuple):
    """A schema of a test's own, in a database that all tests share."""

    url: str
    schema: str

    def sql(self, statement: str, *values: Any) -> list[Any]:
        """What somebody else asks of, or does to, the same database."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f'SET search_path TO "{self.schema}"')
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else []
