"""Fill a store with open requests of paused runs: ask once, then copy the rows with plain SQL.

python fill.py URL REQUESTS
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from scene import agent_on

#: What is copied, and the columns that name the copy.
TABLES = {"thread": ("id",), "run": ("id", "thread"), "call": ("id", "run", "thread")}

Execute = Callable[[str], Any]


async def ask(url: str) -> None:
    agent = agent_on(url)
    paused = await agent.run("send it", thread="first")
    assert paused.interruptions
    agent.close()


@contextmanager
def opened(url: str) -> Iterator[tuple[Execute, bool]]:
    """Yield a function that executes SQL in one transaction, and whether it is SQLite."""
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as db:
            yield db.execute, True
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.close()
        return
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute("SET search_path TO sayso")
        yield connection.execute, False
        connection.commit()
        connection.autocommit = True
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


def columns(execute: Execute, table: str, lite: bool) -> Sequence[str]:
    if lite:
        return [row[1] for row in execute(f"PRAGMA table_info({table})")]
    return [column.name for column in execute(f"SELECT * FROM {table} LIMIT 0").description]


def copy(execute: Execute, lite: bool, first: int, last: int) -> None:
    """Copy the open request; the copies are numbered from ``first`` to ``last``."""
    numbers = (
        f"(WITH RECURSIVE k(value) AS (SELECT {first} UNION ALL SELECT value + 1 FROM k "
        f"WHERE value < {last}) SELECT value FROM k)"
        if lite
        else f"(SELECT generate_series({first}, {last}) AS value)"
    )
    for table, changed in TABLES.items():
        names = [name for name in columns(execute, table, lite) if name != "n"]
        values = ", ".join(f"o.{n} || '-' || k.value" if n in changed else f"o.{n}" for n in names)
        one = "id" if table == "thread" else "thread"
        execute(
            f"INSERT INTO {table} ({', '.join(names)}) SELECT {values} "
            f"FROM (SELECT * FROM {table} WHERE {one} = 'first') o, {numbers} k"
        )


def fill(url: str, requests: int, have: int = 0) -> None:
    """Raise the number of open requests from ``have`` to ``requests``."""
    if not have:
        asyncio.run(ask(url))
    with opened(url) as (execute, lite):
        copy(execute, lite, max(have, 1) + 1, requests)


if __name__ == "__main__":
    fill(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if sys.argv[3:] else 0)
    print(json.dumps({"requests": int(sys.argv[2])}))
