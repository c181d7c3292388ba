"""Stores as earlier versions left them, with runs paused in the middle.

``tests/stores/old_stores/DIALECT-VERSION.json`` holds the rows of such a store. When a migration is
added, record the store of the version before it, with the code of that version, and keep it:
``python tests/stores/long_ago.py sqlite /tmp/x.db`` or ``… postgres postgresql://…``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import sayso
from sayso.keys import Keyring
from sayso.stores.base import Store
from sayso.stores.sql import migrate
from sayso.testing import FakeClock, ScriptedModel, call, calls, say

FOLDER = Path(__file__).with_name("old_stores")
KEY = "hmac:bG9uZyBhZ28gbG9uZyBhZ28gbG9uZyBhZ28gbG9uZyBhZ28"
#: Seconds until the upgrade: longer than any lease, and a yes is still good.
LATER = 7200
TABLES = (
    *("meta", "thread", "message", "run", "call", "face", "face_word", "tool"),
    *("standing", "event", "seal", "principal", "cursor"),
)


class Died(BaseException):
    """The process was gone, right after an effect."""


class Cast:
    """An agent and a shop, as the user's code has them before and after the upgrade."""

    def __init__(self, store: Store) -> None:
        self.effects: list[str] = []
        effects = self.effects

        @sayso.tool(needs_approval=True)
        def send(to: str, body: str = "hello") -> str:
            """Send a mail."""
            effects.append(f"send {to} {body}")
            return f"sent to {to}"

        options = [{"label": "Red", "value": "red"}, {"label": "Blue", "value": "blue"}]
        script = {
            "One mail.": call("send", {"to": "ana"}),
            "Two mails.": calls(call("send", {"to": "ben"}), call("send", {"to": "eve"})),
            "Ask me.": call("ask_user_question", {"question": "Which one?", "options": options}),
        }

        def reply(messages: Any) -> Any:
            last = messages[-1]
            if last["role"] == "user":
                return script.get(str(last["content"]), say("Good day."))
            return say("Final answer: " + str(last["content"]))

        self.agent = sayso.Agent(
            "clerk", model=ScriptedModel(reply), tools=[send, sayso.ask_user], store=store
        )
        self.gate = sayso.Gate(store, agent="shop", wait=0)

        @self.gate.guard(needs_approval=True)
        def ship(order: str) -> str:
            effects.append(f"ship {order}")
            return f"shipped {order}"

        self.ship: Callable[..., str] = ship

    def shipped(self, run: str, order: str) -> str:
        with self.gate.run(run):
            return self.ship(order)


def record(store: Store) -> None:
    """Whatever a store may hold while people think."""
    cast, inbox = Cast(store), sayso.Inbox(store)
    cast.agent.run_sync("Hello.", thread="one")
    cast.agent.run_sync("One mail.", thread="one", requester="bob")
    cast.agent.run_sync("Two mails.", thread="two")
    cast.agent.run_sync("Ask me.", thread="question")
    decided = next(r for r in inbox.pending_sync().items if (r.args or {}).get("to") == "ben")
    inbox.decide_sync(decided.id, decided.edit({"to": "bea"}), by="ana")
    for run, order in (("order-1", "late"), ("order-2", "deadly"), ("order-3", "again")):
        try:
            cast.shipped(run, order)
        except sayso.Paused:
            if order != "late":
                (request,) = inbox.pending_sync(thread=run).items
                grant = {"scope": "any", "uses": 2} if order == "again" else None
                inbox.decide_sync(request.id, request.approve(), by="ana", grant=grant)
    store.boundary = partial(die, cast.effects)
    with suppress(Died):
        cast.shipped("order-2", "deadly")
    store.boundary = None
    store.seal()


def die(effects: list[str], name: str, when: str) -> None:
    """Nothing is written any more, once it has happened."""
    if "ship deadly" in effects:
        raise Died


def rows_of(fetch: Callable[[str], Iterable[Any]], columns: Callable[[str], list[str]]) -> Any:
    """All rows of all tables, with the names of their columns."""
    tables = {}
    for table in TABLES:
        names = [name for name in columns(table) if name != "xid"]  # a number of that server's
        rows = [list(row) for row in fetch(f"SELECT {', '.join(names)} FROM {table}")]
        tables[table] = {"columns": names, "rows": rows}
    return tables


def put_back(
    tables: Mapping[str, Any], execute: Callable[[str, list[Any]], Any], mark: str
) -> None:
    """Write the rows of a recorded store into empty tables; what names the place stays."""
    for table, held in tables.items():
        marks = ", ".join([mark] * len(held["columns"]))
        columns = ", ".join(held["columns"])
        for row in held["rows"]:
            if table == "meta":
                if row[0] == "identity":
                    continue
                execute(f"DELETE FROM meta WHERE key = {mark}", [row[0]])
            execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", row)


def main(dialect: str, where: str) -> None:
    """Record a store of this version."""
    clock, keys = FakeClock(), Keyring.parse(KEY)
    version = migrate.migrations(dialect)[-1][0]
    if dialect == "sqlite":
        import sqlite3

        from sayso.stores.sqlite import SqliteStore

        record(store := SqliteStore(Path(where), clock=clock, keys=keys))
        store.close()
        file = sqlite3.connect(where)
        names = lambda table: [r[1] for r in file.execute(f"PRAGMA table_info({table})")]  # noqa: E731
        tables = rows_of(lambda text: file.execute(text).fetchall(), names)
    else:
        import psycopg

        from sayso.stores.postgres import PostgresStore

        record(server := PostgresStore(where, schema="long_ago", clock=clock, keys=keys))
        server.close()
        with psycopg.connect(where) as connection:
            connection.execute("SET search_path TO long_ago")
            named = "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
            names = lambda t: [r[0] for r in connection.execute(named, (t,))]  # noqa: E731
            tables = rows_of(lambda text: connection.execute(text.encode()).fetchall(), names)
    FOLDER.mkdir(exist_ok=True)
    held = {"version": version, "clock": clock(), "tables": tables}
    text = json.dumps(held, indent=0, ensure_ascii=False)
    (FOLDER / f"{dialect}-{version}.json").write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
