"""The reads of every SQL store: small SELECTs in the common dialect, mapped to values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sayso.rows import (
    Call,
    EffectKey,
    Event,
    Principal,
    Run,
    RunStatus,
    StoredMessage,
    Thread,
    Tool,
)
from sayso.stores.base import NEVER, Cursor, Due, ListedCall, Query, age_key, age_start
from sayso.stores.listing import OPEN, after_prefix
from sayso.stores.row_checks import UNCHECKED, RowDecoder, tampered
from sayso.stores.seals import Seal
from sayso.stores.sql import statements as sql
from sayso.stores.sql.dialect import Dialect, Execute
from sayso.stores.sql.pages import END, WAITS, Pages
from sayso.stores.sql.rowcodec import (
    call_from,
    conversation_from,
    effect_from,
    event_from,
    grant_from,
    message_from,
    principal_from,
    run_from,
    thread_from,
)
from sayso.stores.sql.tool_cache import ToolCache
from sayso.types import Grant, Micros

_RUN_CREATED = sql.RUN.split(", ").index("created")
_RUNS = sql.LOAD_RUN.removesuffix(" WHERE id = ?")
_THREADS = sql.LOAD_THREAD.removesuffix(" WHERE id = ?")


class SqlReads:
    """Everything that a SQL store can be asked; ``_rows`` is the store's own way to ask."""

    _dialect: Dialect
    _tool_cache: ToolCache
    _decode: RowDecoder

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        raise NotImplementedError

    def now(self) -> Micros:
        raise NotImplementedError

    def unchecked(self) -> UncheckedReads:
        return UncheckedReads(self)

    def _said_now(self) -> tuple[str, tuple[Micros, ...]]:
        """The time as a statement says it, and its values: who has just heard of a row finds it."""
        return "?", (self.now(),)

    def _row(self, statement: str, *values: Any) -> Any:
        rows = self._rows(statement, values)
        return rows[0] if rows else None

    def run(self, run_id: str) -> Run | None:
        row = self._row(sql.LOAD_RUN, run_id)
        return None if row is None else self._decode.one(run_from, row)

    def live_run(self, thread: str) -> Run | None:
        row = self._row(sql.LOAD_LIVE_RUN, thread)
        return None if row is None else self._decode.one(run_from, row)

    def last_run(self, thread: str) -> Run | None:
        live = self.live_run(thread)
        if live is not None:
            return live
        last = lambda row: row.kept_messages(row.messages, row.messages)  # noqa: E731
        said = self._said(thread, last, sql.LOAD_LAST_MESSAGE)
        return self.run(said[0].run) if said else None

    def call(self, call_id: str) -> Call | None:
        row = self._row(sql.LOAD_CALL, call_id)
        return None if row is None else self._decode.one(call_from, row)

    def call_by_key(self, run: str, key: str) -> Call | None:
        row = self._row(sql.LOAD_CALL_BY_KEY, run, key)
        return None if row is None else self._decode.one(call_from, row)

    def calls_of(self, run: str, keys: Sequence[str] | None = None) -> list[Call]:
        if keys is None:
            rows = self._rows(sql.LOAD_CALLS_OF_RUN, (run,))
        elif len(keys) == 1:
            rows = self._rows(sql.LOAD_CALL_BY_KEY, (run, keys[0]))
        else:
            among = sql.LOAD_CALLS_AMONG.format(self._dialect.strings)
            rows = self._rows(among, (run, json.dumps(keys)))
        return self._decode.each(call_from, rows)

    def calls_like(self, prefix: str, limit: int) -> list[str]:
        statement = "SELECT id FROM call WHERE id >= ? AND id < ? ORDER BY id LIMIT ?"
        return [row[0] for row in self._rows(statement, (prefix, after_prefix(prefix), limit))]

    def tool(self, digest: str) -> Tool | None:
        tool = self._tool_cache.tools.get(digest)
        if tool is None:
            row = self._row(sql.LOAD_TOOL, digest)
            if row is not None:
                tool = self._decode.tool(row)
                self._tool_cache.learn((tool,), ())
        return tool

    def messages(self, thread: str, after: int = 0, also: int = 0) -> list[tuple[int, str]]:
        def kept(row: Thread) -> list[int]:
            first = row.kept_messages(also, also) if 0 < also <= after else []
            return [*first, *row.kept_messages(after + 1, row.messages)]

        if 0 < also <= after:
            said = self._said(thread, kept, sql.LOAD_MESSAGES_ALSO, thread, also, thread, after)
        else:
            said = self._said(thread, kept, sql.LOAD_MESSAGES, thread, after)
        return [(message.seq, message.body) for message in said]

    def _said(
        self, thread: str, kept: Callable[[Thread], list[int]], statement: str, *values: Any
    ) -> list[StoredMessage]:
        """Read some messages with their thread's row, from one moment.

        The row proves which numbers ``kept`` there must be. If a message is missing, or is one too
        many, they are refused together.
        """
        rows = self._rows(statement, (*values, thread))
        if not rows:
            if self._decode.checks and self._row(sql.HAS_MESSAGES, thread) is not None:
                raise tampered(f"thread {thread}", "its row is missing, and it has messages")
            return []
        row, said = conversation_from(self._decode, rows)
        there, wanted = {message.seq for message in said}, set(kept(row))
        if self._decode.checks and there != wanted:
            wrong = min(there ^ wanted)
            what = "missing" if wrong in wanted else "not one that it has"
            raise tampered(f"thread {thread}", f"message {wrong} of it is {what}")
        return said

    def stored_messages(
        self, thread: str, after: int = 0, limit: int = 1000
    ) -> list[StoredMessage]:
        rows = self._rows(sql.LOAD_STORED_MESSAGES, (thread, after, limit))
        return self._decode.each(message_from, rows)

    def listed_calls(self, after: int = 0, limit: int = 1000) -> list[ListedCall]:
        rows = self._rows(sql.LOAD_LISTED_CALLS, (after, limit))
        calls = self._decode.each(call_from, rows)
        return [
            ListedCall(row[-3], call, row[-2], row[-1])
            for row, call in zip(rows, calls, strict=True)
        ]

    def page(self, query: Query) -> list[tuple[int, Call]]:
        return Pages(self._rows, self._dialect, self._decode, query).page()

    def waiting(self) -> dict[str, int]:
        # Said so that the partial index knows itself in it: the rows are not read.
        counted = (
            "SELECT list_status, count(*) FROM call "
            f"WHERE list_status <> '' AND {WAITS} GROUP BY list_status"
        )
        return dict.fromkeys(OPEN, 0) | {list_status: n for list_status, n in self._rows(counted)}

    def runs(
        self,
        *,
        status: str | None = None,
        agent: str | None = None,
        thread: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> list[tuple[str, Run]]:
        at, name = age_start(after)
        place, wanted = "created <= ? AND (created < ? OR id < ?)", [at, at, name]
        for column, value in (("agent", agent), ("thread", thread)):
            if value is not None:
                place += f" AND {column} = ?"
                wanted.append(value)
        # A short walk for each status, along its index; one thread has few runs.
        if status is not None:
            statuses = [f"status = '{RunStatus(status)}'"]
        elif thread is not None:
            statuses = ["1 = 1"]
        else:
            statuses = [f"status = '{each}'" for each in RunStatus]
        walks = " UNION ALL ".join(
            f"SELECT id FROM (SELECT id FROM run WHERE {condition} AND {place} "
            "ORDER BY created DESC, id DESC LIMIT ?) AS walked"
            for condition in statuses
        )
        values = [*wanted, limit] * len(statuses)
        statement = f"{_RUNS} WHERE id IN ({walks}) ORDER BY created DESC, id DESC LIMIT ?"
        rows = self._rows(statement, (*values, limit))
        runs = self._decode.listed(run_from, rows)
        found = [(age_key(run.created, run.id), run) for run in runs]
        if len(found) < len(rows) == limit:
            # Rows that were left out do not shorten the list: what comes after them is there.
            last, rest = age_key(rows[-1][_RUN_CREATED], rows[-1][0]), limit - len(found)
            found += self.runs(status=status, agent=agent, thread=thread, after=last, limit=rest)
        return found

    def threads_of(
        self, owner: str, after: str | None = None, limit: int = 50
    ) -> list[tuple[str, Thread]]:
        at, name = age_start(after)
        statement = (
            f"{_THREADS} WHERE owner <> '' AND owner = ? "
            "AND created <= ? AND (created < ? OR id < ?) ORDER BY created DESC, id DESC LIMIT ?"
        )
        rows = self._rows(statement, (owner, at, at, name, limit))
        threads = self._decode.listed(thread_from, rows)
        return [(age_key(thread.created, thread.id), thread) for thread in threads]

    def grants(self, *, live_only: bool = True) -> list[Grant]:
        rows = self._rows(f"SELECT {sql.GRANT} FROM grants ORDER BY created, id")
        grants = self._decode.listed(grant_from, rows)
        now = self.now()
        return [g for g in grants if g.live(now)] if live_only else grants

    def principals(self) -> list[Principal]:
        rows = self._rows(f"SELECT {sql.PRINCIPAL} FROM principal ORDER BY created, id")
        return self._decode.listed(principal_from, rows)

    def effect(self, key: str) -> EffectKey | None:
        row = self._row(sql.LOAD_EFFECT, key)
        return None if row is None else self._decode.one(effect_from, row)

    def effects(self, after: str = "", limit: int = 1000) -> list[EffectKey]:
        rows = self._rows(sql.LOAD_EFFECTS, (after, limit))
        return self._decode.listed(effect_from, rows)

    def principal(self, token_hash: str) -> Principal | None:
        statement = f"SELECT {sql.PRINCIPAL} FROM principal WHERE token_hash = ?"
        row = self._row(statement, token_hash)
        return None if row is None else self._decode.one(principal_from, row)

    def overdue(self, limit: int = 100) -> list[Due]:
        now, said = self._said_now()
        expired = (
            f"SELECT thread, run, id FROM call WHERE {WAITS} AND list_status = 'asked' "
            f"AND {END} <= {now} ORDER BY {END}, n LIMIT {limit:d}"
        )
        lapsed = (
            f"SELECT thread, id, NULL FROM run WHERE ready_at <= {now} AND owner IS NOT NULL "
            f"ORDER BY ready_at LIMIT {limit:d}"
        )
        return [Due(*row) for row in self._rows(_both(expired, lapsed), (*said, *said))]

    def next_due(self, after: Micros = 0) -> Micros | None:
        ends = (
            f"SELECT {END} FROM call WHERE {WAITS} AND list_status = 'asked' AND {END} > ? "
            f"AND {END} < {NEVER} ORDER BY {END}, n LIMIT 1"
        )
        dues = "SELECT ready_at FROM run WHERE ready_at > ? ORDER BY ready_at LIMIT 1"
        found = self._rows(_both(ends, dues), (after, after))
        return min((row[0] for row in found), default=None)

    def ready(self, agents: Sequence[str], limit: int = 1) -> list[Run]:
        if not agents:
            return []
        marks = ", ".join("?" * len(agents))
        agent = f"{self._dialect.no_index}agent"  # few runs are due, of many that an agent had
        now, said = self._said_now()
        statement = (
            f"{_RUNS} WHERE ready_at <= {now} AND {agent} IN ({marks}) "
            f"ORDER BY ready_at LIMIT ? OFFSET ?{self._dialect.lock_free}"
        )
        found: list[Run] = []
        passed = 0
        while True:
            rows = self._rows(statement, (*said, *agents, limit, passed))
            found += self._decode.listed(run_from, rows)
            passed += len(rows)
            # Runs that nobody may use do not keep workers from those behind them.
            if len(found) >= limit or len(rows) < limit:
                return found[:limit]

    def open_runs(self) -> Iterable[Run]:
        rows = self._rows(f"{_RUNS} WHERE status IN ('running', 'paused') AND ready + running > 0")
        return self._decode.listed(run_from, rows)

    def chain(self, thread: str, after: int = 0, limit: int = 1000) -> list[Event]:
        statement = (
            f"SELECT {sql.EVENT} FROM event WHERE thread = ? AND seq > ? ORDER BY seq LIMIT ?"
        )
        return [event_from(row) for row in self._rows(statement, (thread, after, limit))]

    def thread(self, thread: str) -> Thread | None:
        row = self._row(sql.LOAD_THREAD, thread)
        return None if row is None else self._decode.one(thread_from, row)

    def threads(self, after: str = "", limit: int = 1000) -> list[Thread]:
        statement = f"{_THREADS} WHERE id > ? ORDER BY id LIMIT ?"
        return self._decode.listed(thread_from, self._rows(statement, (after, limit)))

    def cursor(self, name: str) -> str:
        row = self._row("SELECT pos FROM cursor WHERE name = ?", name)
        return "" if row is None else str(row[0])

    def seals(self, after: int = 0, limit: int = 100) -> list[Seal]:
        statement = (
            "SELECT n, at, heads, prev, hash, signature FROM seal WHERE n > ? ORDER BY n LIMIT ?"
        )
        return [
            Seal(n=n, at=at, heads=heads, prev=prev, hash=hash_, signature=signature)
            for n, at, heads, prev, hash_, signature in self._rows(statement, (after, limit))
        ]


class UncheckedReads(SqlReads):
    """The reads of a store, with the rows as they are."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._dialect = store._dialect
        self._tool_cache = ToolCache()
        self._decode = UNCHECKED
        self.url, self.keys, self.incarnation = store.url, store.keys, store.incarnation

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        rows: list[Any] = self._store._rows(statement, values)
        return rows

    def now(self) -> Micros:
        now: Micros = self._store.now()
        return now

    def events(self, after: Cursor = "", limit: int = 500) -> list[tuple[Cursor, Event]]:
        events: list[tuple[Cursor, Event]] = self._store.events(after, limit)
        return events

    def newest(self, before: Cursor = "", limit: int = 100) -> list[tuple[Cursor, Event]]:
        events: list[tuple[Cursor, Event]] = self._store.newest(before, limit)
        return events

    def tail(self) -> Cursor:
        tail: Cursor = self._store.tail()
        return tail

    def restored(self) -> bool:
        return bool(self._store.restored())


def _both(first: str, second: str) -> str:
    """The rows of two ordered statements, in one."""
    return f"SELECT * FROM ({first}) AS a UNION ALL SELECT * FROM ({second}) AS b"


def move_cursor(execute: Execute, name: str, to: str, expected: str) -> bool:
    """Move a named reader from where it is expected; the one write that no command makes."""
    statement = "UPDATE cursor SET pos = ? WHERE name = ? AND pos = ?"
    moved = execute(statement, (to, name, expected)).rowcount
    if not moved and not expected:
        statement = "INSERT INTO cursor (pos, name) VALUES (?, ?) ON CONFLICT (name) DO NOTHING"
        moved = execute(statement, (to, name)).rowcount
    return bool(moved)
