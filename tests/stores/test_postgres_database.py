"""PostgreSQL: errors about an address give the right form and hide its password."""

from __future__ import annotations

import pytest
from pg_places import Place

from sayso.errors import StoreError
from sayso.keys import Keyring
from sayso.stores.postgres import PostgresStore
from sayso.stores.postgres.database import split_schema, without_password


def with_option(url: str, option: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}options=-c%20{option}"


@pytest.mark.parametrize("password", ["pa@ss", "pa/ss", "pa%ss", "pa%zzs", "@pa@ss@"])
def test_unescaped_password_error_explains_escaping(keys: Keyring, password: str) -> None:
    with pytest.raises(StoreError, match="write @ as %40, / as %2F and % as %25") as refusal:
        PostgresStore(f"postgresql://me:{password}@127.0.0.1:1/x?schema=y", keys=keys)
    assert "pa" not in str(refusal.value).replace("password", "")
    assert "postgresql://me@127.0.0.1:1/x?schema=y" in str(refusal.value)


def test_question_mark_in_a_password_begins_no_parameters() -> None:
    url = "postgresql://me:pa?ss@db/x?schema=y&sslmode=require"
    assert without_password(url) == "postgresql://me@db/x?schema=y&sslmode=require"
    assert split_schema(url) == ("postgresql://me:pa?ss@db/x?sslmode=require", "y")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://db:5432/x?application_name=a@b",
        "postgresql://me@db1:5432,db2:5433/x?target_session_attrs=read-write",
        "postgresql:///x?host=/run/postgresql",
        "postgresql://me@[::1]:5432/x",
    ],
)
def test_address_without_a_password_is_unchanged(url: str) -> None:
    assert without_password(url) == url
    assert split_schema(url) == (url, None)


def test_missing_create_right_error_gives_the_command(place: Place, keys: Keyring) -> None:
    url = with_option(place.url, "role%3Dpg_read_all_data")
    with pytest.raises(StoreError, match="CREATE SCHEMA sayso AUTHORIZATION"):
        PostgresStore(url, schema=f"{place.schema}_few", keys=keys)


def test_read_only_server_error_asks_for_the_primary(place: Place, keys: Keyring) -> None:
    url = with_option(place.url, "default_transaction_read_only%3Don")
    with pytest.raises(StoreError, match="use the address of the primary"):
        PostgresStore(url, schema=f"{place.schema}_only", keys=keys)
