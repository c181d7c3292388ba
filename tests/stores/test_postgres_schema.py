"""PostgreSQL: the schema of a store may have any name that the server keeps."""

from __future__ import annotations

from contextlib import closing

import psycopg
import pytest
from pg_places import Place
from psycopg import sql

from sayso.errors import StoreError
from sayso.keys import Keyring
from sayso.stores.postgres import PostgresStore
from sayso.testing.world import World


@pytest.mark.parametrize("name", ["?", "$1", "%s", 'a"b; --', "a\\b\\1", "Ünï", "a.b"])
def test_a_store_with_that_name_is_found_again(place: Place, keys: Keyring, name: str) -> None:
    schema = f"{place.schema} {name}"
    try:
        for seen in (0, 1):
            with closing(PostgresStore(place.url, schema=schema, keys=keys)) as store:
                world = World(store, None)  # type: ignore[arg-type]
                assert len(store.threads()) == seen
                world.ask(run=f"r{seen}", thread=f"t{seen}", id=f"req_{seen}")
                world.check()
    finally:
        with psycopg.connect(place.url, autocommit=True) as connection:
            drop = sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema))
            connection.execute(drop)


@pytest.mark.parametrize("name", ["a" * 64, "é" * 32])
def test_a_name_that_would_be_cut_is_refused(place: Place, keys: Keyring, name: str) -> None:
    """Cut, it may be the name of somebody else's store."""
    with pytest.raises(StoreError, match="a longer name than PostgreSQL keeps"):
        PostgresStore(place.url, schema=name, keys=keys)
