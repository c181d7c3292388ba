"""The reads of every SQL store: small SELECTs in the common dialect, mapped to values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from string import ascii_lowercase, ascii_uppercase
from typing import Any

from assent.rows import Call, Event, Principal, Run, Thread, Tool
from assent.stores import sql
from assent.stores.base import NEVER, Due, Query, Seal, page_key, page_start
from assent.stores.rowcodec import (
    call_from,
    event_from,
    grant_from,
    principal_from,
    run_from,
    thread_from,
    tool_from,
)
from assent.types import Grant, Micros

_RUNS = sql.LOAD_RUN.removesuffix(" WHERE id = ?")
_END = f"coalesce(expires_at, {NEVER})"
#: Small letters the way a database makes them: ASCII only.
_SMALL = str.maketrans(ascii_uppercase, ascii_lowercase)

_SETTLED = "status IN ('ready', 'running', 'done', 'failed')"

#: What each public status means in columns; the keys are what ``Query.status`` may hold.
STATUS_SQL = {
    "pending": "status IN ('asked', 'in_doubt')",
    "approved": f"asked = 1 AND original IS NULL AND {_SETTLED}",
    "edited": f"asked = 1 AND original IS NOT NULL AND {_SETTLED}",
    "closed": "asked = 1 AND status NOT IN ('asked', 'in_doubt')",
    "any": "(asked = 1 OR status = 'in_doubt')",
    "all": "n > 0",
    **{
        name: f"asked = 1 AND status = '{name}'"
        for name in ("rejected", "responded", "expired", "cancelled", "superseded")
    },
}


def where(query: Query, description: str) -> tuple[str, list[Any]]:
    """The condition of a page, and its values; ``description`` is where that text is found."""
    parts, values = [STATUS_SQL[query.status]], []
    for column in ("agent", "tool", "thread", "run"):
        value = getattr(query, column)
        if value is not None:
            parts.append(f"{column} = ?")
            values.append(value)
    if query.kind == "in_doubt":
        parts.append("status = 'in_doubt'")
    elif query.kind is not None:
        parts.append("kind = ? AND status <> 'in_doubt'")
        values.append(query.kind)
    if query.text:
        # Not LIKE, which stops at a NUL, and what stands behind one could not be found.
        fields = ("id", "tool", "agent", "note", description)
        parts.append("(" + " OR ".join(f"instr(lower({f}), ?) > 0" for f in fields) + ")")
        values += [query.text.translate(_SMALL)] * len(fields)
    if query.after is not None:
        end, n = page_start(query)
        later = {"oldest": "n > ?", "newest": "n < ?", "expiring": f"({_END}, n) > (?, ?)"}
        parts.append(later[query.sort])
        values += [end, n] if query.sort == "expiring" else [n]
    return " AND ".join(parts), values


class SqlReads:
    """Everything that a SQL store can be asked; ``_rows`` is the store's own way to ask."""

    #: The description inside the terms; another database has its own words for that.
    _description = "json_extract(terms, '$.description')"

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        raise NotImplementedError

    def now(self) -> Micros:
        raise NotImplementedError

    def _row(self, statement: str, *values: Any) -> Any:
        rows = self._rows(statement, values)
        return rows[0] if rows else None

    def run(self, run_id: str) -> Run | None:
        row = self._row(sql.LOAD_RUN, run_id)
        return None if row is None else run_from(row)

    def live_run(self, thread: str) -> Run | None:
        row = self._row(sql.LOAD_LIVE_RUN, thread)
        return None if row is None else run_from(row)

    def last_run(self, thread: str) -> Run | None:
        statement = "SELECT run FROM message WHERE thread = ? ORDER BY seq DESC LIMIT 1"
        live, spoke = self.live_run(thread), self._row(statement, thread)
        return live if live is not None or spoke is None else self.run(spoke[0])

    def call(self, call_id: str) -> Call | None:
        row = self._row(sql.LOAD_CALL, call_id)
        return None if row is None else call_from(row)

    def call_by_key(self, run: str, key: str) -> Call | None:
        row = self._row(sql.LOAD_CALL_BY_KEY, run, key)
        return None if row is None else call_from(row)

    def calls_of(self, run: str) -> list[Call]:
        return [call_from(row) for row in self._rows(sql.LOAD_CALLS_OF_RUN, (run,))]

    def calls_like(self, prefix: str, limit: int) -> list[str]:
        end = prefix + "\U0010ffff"
        statement = "SELECT id FROM call WHERE id >= ? AND id < ? ORDER BY id LIMIT ?"
        return [row[0] for row in self._rows(statement, (prefix, end, limit))]

    def tool(self, digest: str) -> Tool | None:
        row = self._row(
            "SELECT digest, name, schema, description FROM tool WHERE digest = ?", digest
        )
        return None if row is None else tool_from(row)

    def messages(self, thread: str, after: int = 0) -> list[tuple[int, str]]:
        statement = "SELECT seq, body FROM message WHERE thread = ? AND seq > ? ORDER BY seq"
        return [(row[0], row[1]) for row in self._rows(statement, (thread, after))]

    def page(self, query: Query) -> list[tuple[int, Call]]:
        condition, values = where(query, self._description)
        order = {
            "oldest": "n",
            "newest": "n DESC",
            "expiring": f"{_END}, n",
        }[query.sort]
        statement = f"SELECT {sql.CALL}, n FROM call WHERE {condition} ORDER BY {order} LIMIT ?"
        rows = self._rows(statement, (*values, query.limit))
        calls = [(row[-1], call_from(row)) for row in rows]
        return [(page_key(query, n, call.expires_at), call) for n, call in calls]

    def grants(self, *, live_only: bool = True) -> list[Grant]:
        rows = self._rows(f"SELECT {sql.GRANT} FROM standing ORDER BY created, id")
        grants = [grant_from(row) for row in rows]
        now = self.now()
        return [g for g in grants if g.live(now)] if live_only else grants

    def principals(self) -> list[Principal]:
        rows = self._rows(f"SELECT {sql.PRINCIPAL} FROM principal ORDER BY created, id")
        return [principal_from(row) for row in rows]

    def principal(self, token_hash: str) -> Principal | None:
        statement = f"SELECT {sql.PRINCIPAL} FROM principal WHERE token_hash = ?"
        row = self._row(statement, token_hash)
        return None if row is None else principal_from(row)

    def overdue(self, limit: int = 100) -> list[Due]:
        now = self.now()
        expired = self._rows(
            "SELECT thread, run, id FROM call WHERE status = 'asked' AND expires_at <= ? "
            "ORDER BY expires_at LIMIT ?",
            (now, limit),
        )
        lapsed = self._rows(
            "SELECT thread, id FROM run WHERE ready_at <= ? AND owner IS NOT NULL "
            "ORDER BY ready_at LIMIT ?",
            (now, limit),
        )
        return [Due(*row) for row in expired] + [Due(row[0], row[1], None) for row in lapsed]

    def ready(self, agents: Sequence[str], limit: int = 1) -> list[Run]:
        marks = ", ".join("?" * len(agents))
        statement = f"{_RUNS} WHERE ready_at <= ? AND agent IN ({marks}) ORDER BY ready_at LIMIT ?"
        rows = self._rows(statement, (self.now(), *agents, limit))
        return [run_from(row) for row in rows]

    def open_runs(self) -> Iterable[Run]:
        rows = self._rows(f"{_RUNS} WHERE status IN ('running', 'paused') AND ready + active > 0")
        return [run_from(row) for row in rows]

    def chain(self, thread: str, after: int = 0, limit: int = 1000) -> list[Event]:
        statement = (
            f"SELECT {sql.EVENT} FROM event WHERE thread = ? AND seq > ? ORDER BY seq LIMIT ?"
        )
        return [event_from(row) for row in self._rows(statement, (thread, after, limit))]

    def threads(self, after: str = "", limit: int = 1000) -> list[Thread]:
        statement = sql.LOAD_THREAD.replace("id = ?", "id > ? ORDER BY id LIMIT ?")
        return [thread_from(row) for row in self._rows(statement, (after, limit))]

    def seals(self, after: int = 0, limit: int = 100) -> list[Seal]:
        statement = (
            "SELECT n, at, heads, prev, hash, signature FROM seal WHERE n > ? ORDER BY n LIMIT ?"
        )
        return [
            Seal(n=n, at=at, heads=heads, prev=prev, hash=hash_, signature=signature)
            for n, at, heads, prev, hash_, signature in self._rows(statement, (after, limit))
        ]
