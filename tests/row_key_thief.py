"""Attacks with the row key, but without a signing key, on a SQLite store."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

from sayso import rows
from sayso.engine.row_macs import row_mac
from sayso.stores.row_checks import DAMAGE
from sayso.stores.sql import statements as sql
from sayso.stores.sqlite import SqliteStore

_TABLES: dict[str, tuple[str, Any]] = {
    "call": (sql.CALL, rows.call_from),
    "run": (sql.RUN, rows.run_from),
    "thread": (sql.THREAD, rows.thread_from),
    "message": (sql.MESSAGE, rows.message_from),
    "grants": (sql.GRANT, rows.grant_from),
    "person": (sql.PERSON, rows.person_from),
    "credential": (sql.CREDENTIAL, rows.credential_from),
}


def authenticate_rows(store: SqliteStore) -> None:
    """Give every row of a store a valid MAC."""
    with closing(sqlite3.connect(store.path, isolation_level=None)) as file:
        for table, (columns, decode) in _TABLES.items():
            for row in file.execute(f"SELECT {columns} FROM {table}").fetchall():
                try:
                    value = decode(row)
                except DAMAGE:
                    continue
                names = [name for name in columns.split(", ") if name != "mac"]
                kept = [
                    one for name, one in zip(columns.split(", "), row, strict=True) if name != "mac"
                ]
                here = " AND ".join(f"{name} IS ?" for name in names)
                mac = row_mac(value, store.keys.row_key.mac)
                file.execute(f"UPDATE {table} SET mac = ? WHERE {here}", (mac, *kept))
