"""Fill a store with open requests of paused runs: ask once, then copy the rows with plain SQL.

Each copy has a MAC of its own, so that every row is one that Sayso would hand out.

python fill.py URL REQUESTS
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from scene import agent_on

from sayso.engine.row_macs import row_mac
from sayso.rows import call_from, run_from, thread_from
from sayso.stores import open_store
from sayso.stores.base import engine_deps
from sayso.stores.sql import statements as sql

#: What is copied: its columns, how a row of them is read, and the columns that name the copy.
TABLES: dict[str, tuple[str, Any, tuple[str, ...]]] = {
    "thread": (sql.THREAD, thread_from, ("id",)),
    "run": (sql.RUN, run_from, ("id", "thread")),
    "call": (sql.CALL, call_from, ("id", "run", "thread")),
}


async def ask(url: str) -> None:
    agent = agent_on(url)
    paused = await agent.run("send it", thread="first")
    assert paused.interruptions
    agent.close()


@contextmanager
def opened(url: str) -> Iterator[tuple[Any, bool]]:
    """Yield a cursor in one transaction, and whether it is SQLite."""
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as db:
            yield db.cursor(), True
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.close()
        return
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute("SET search_path TO sayso")
        yield connection.cursor(), False
        connection.commit()
        connection.autocommit = True
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


def copy(url: str, numbers: Sequence[int]) -> None:
    """Copy the open request, once for each number."""
    with closing(open_store(url)) as store:
        mac = engine_deps(store.keys).mac
    with opened(url) as (cursor, lite):
        for table, (columns, read, names) in TABLES.items():
            one = "id" if table == "thread" else "thread"
            cursor.execute(f"SELECT * FROM {table} WHERE {one} = 'first'")
            shown = [column[0] for column in cursor.description]
            row = dict(zip(shown, cursor.fetchone(), strict=True))
            row.pop("n", None)  # the copies get numbers of their own
            original = read([row[column] for column in columns.split(", ")])
            copies = []
            for number in numbers:
                named = {name: f"{row[name]}-{number}" for name in names}
                signed = named | {"mac": row_mac(original._replace(**named), mac)}
                copies.append([*(row | signed).values()])
            marks = ", ".join(["?" if lite else "%s"] * len(row))
            cursor.executemany(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", copies)


def fill(url: str, requests: int, have: int = 0) -> None:
    """Raise the number of open requests from ``have`` to ``requests``."""
    if not have:
        asyncio.run(ask(url))
    copy(url, range(max(have, 1) + 1, requests + 1))


if __name__ == "__main__":
    fill(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if sys.argv[3:] else 0)
    print(json.dumps({"requests": int(sys.argv[2])}))
