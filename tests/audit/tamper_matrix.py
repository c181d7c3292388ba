"""Every way to change the database without a key, and what becomes of it.

A case changes one thing in a copy of a store in which everything has happened. Then the public face
uses the rows (``tamper_world.Uses``) and the record is verified:

* ``refused``: no use gave anything but what it gave before, and at least one refused;
* ``reported``: ``sayso audit verify`` names it, although a use was misled or none cared;
* ``unused``: nothing cared, and nothing was misled;
* ``unprotected``: a use was misled, and nothing says so.

``python tests/audit/tamper_matrix.py`` measures all cases on both databases with both kinds of keys
and writes ``tamper_matrix.json``, which the table in SECURITY.md is made of.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from tamper_world import (
    KEYS,
    Built,
    Database,
    Outcome,
    PgDatabase,
    Row,
    Rows,
    SqliteDatabase,
    Uses,
    build,
    compare,
)

from sayso.audit import verify
from sayso.errors import SaysoError
from sayso.testing.postgres_server import why_not

RESULTS = Path(__file__).with_suffix(".json")
#: From best to worst.
OUTCOMES = ("refused", "reported", "unused", "unprotected")
CONFIGURATIONS = tuple(f"{db}-{keys}" for db in ("sqlite", "postgres") for keys in KEYS)

CALLS = (
    *("asked", "ready", "running", "done", "failed", "in_doubt", "rejected", "responded"),
    *("expired", "cancelled", "superseded"),
)
RUNS = ("running", "paused", "done", "failed", "cancelled")
#: The story in which a call or a run of this status is found.
CALL_STORY = {status: status for status in CALLS}
RUN_STORY = {
    "running": "ready",
    "paused": "asked",
    "done": "done",
    "failed": "failed",
    "cancelled": "stopped",
}
_SWAPPED = {"asked": "asked2", "ready": "ready2", "done": "done2"}


@dataclass(frozen=True)
class Case:
    """One thing to do to the database; ``do`` makes variants of it, of which the worst counts."""

    table: str
    action: str
    #: The column that is changed, or what else tells cases of an action apart.
    what: str
    #: The status of the row where the table has one, else the row's name.
    of: str
    stories: frozenset[str] | None
    variants: tuple[Callable[[], None], ...] = field(compare=False, repr=False)

    @property
    def name(self) -> str:
        return f"{self.table}.{self.what}" if self.what else self.table


class Matrix:
    """All cases over one built store, and their outcomes."""

    def __init__(self, database: Database, keys: str) -> None:
        self.database = database
        self.configuration = f"{database.name}-{keys}"
        self.built: Built = build(database, KEYS[keys])
        self.rows: Rows = self.built.versions[-1]
        self._columns = database.columns()
        self._keys = {table: database.keys_of(table) for table in self._columns}
        database.restore()
        self._uses = Uses(self.built)
        self._before = self._uses.play()
        self._before_alone: dict[frozenset[str] | None, dict[str, Outcome]] = {None: self._before}
        database.restore()
        assert self._verified(), "the store must verify before anybody touches it"

    # -- outcomes

    def outcome(self, case: Case) -> str:
        """Do it, in each of its variants; gives the worst that came of it."""
        return max((self._outcome(case, one) for one in case.variants), key=OUTCOMES.index)

    def _outcome(self, case: Case, change: Callable[[], None]) -> str:
        self.database.restore()
        try:
            change()
        except psycopg.Error:
            return "refused"  # by the database itself: a constraint
        except Exception as error:
            if type(error).__module__ != "sqlite3":
                raise
            return "refused"
        reported = not self._verified()
        found = compare(self._alone(case.stories), self._uses.play(case.stories))
        self.last = found
        if "broke" in found.values():
            broken = [f"{name}" for name, what in found.items() if what == "broke"]
            raise AssertionError(f"{case}: {broken} raised something else than a SaysoError")
        if "altered" in found.values():
            return "reported" if reported else "unprotected"
        if found:
            return "refused"
        return "reported" if reported else "unused"

    def _alone(self, stories: frozenset[str] | None) -> dict[str, Outcome]:
        """What the uses of these stories give when nobody touched anything."""
        if stories not in self._before_alone:
            self.database.restore()
            # Lists are looked at before anything is decided, so that they are the same.
            self._before_alone[stories] = self._before
        return self._before_alone[stories]

    def _verified(self) -> bool:
        try:
            with closing(self.built.open().store) as store:
                return verify(store).ok
        except SaysoError:
            return False

    # -- cases

    def cases(self) -> Iterator[Case]:
        """Every case, in a fixed order."""
        for table in self._columns:
            yield from self._of_table(table)

    def _of_table(self, table: str) -> Iterator[Case]:
        for of, row in self._samples(table):
            stories = self._stories(table, row)
            for column in self._columns[table]:
                values = self._other_values(table, column, row)
                changes = tuple(
                    lambda v=value, c=column: self._update(table, row, {c: v}) for value in values
                )
                if changes:
                    yield Case(table, "change", column, of, stories, changes)
            yield Case(table, "delete", "", of, stories, (lambda: self._delete(table, row),))
            forged = self._forged(table, row)
            yield Case(table, "insert", "", of, stories, (lambda: self._insert(table, forged),))
            other = self._partner(table, of, row)
            if other is not None:
                both = None if stories is None else stories | (self._stories(table, other) or set())
                yield Case(*(table, "swap", "", of, both), (lambda: self._swap(table, row, other),))
            yield from self._put_back(table, of, row, stories)

    def _samples(self, table: str) -> Iterator[tuple[str, Row]]:
        """One row of each kind that the table has."""
        rows = self.rows[table]
        if table == "call":
            for status, story in CALL_STORY.items():
                yield status, self._one(rows, id=self.built.ids[story])
        elif table == "run":
            for status, story in RUN_STORY.items():
                row = self._one(rows, thread=story)
                assert row["status"] == status, (story, row["status"])
                yield status, row
        elif table == "thread":
            yield "sealed", self._one(rows, id="chatted")
            yield "unsealed", self._one(rows, id="unsealed")
        elif table == "event":
            done = [row for row in rows if row["thread"] == "done"]
            for row in sorted(done, key=lambda row: row["seq"]):
                yield row["type"], row
            unsealed = [row for row in rows if row["thread"] == "unsealed"]
            yield "unsealed", max(unsealed, key=lambda row: row["seq"])
        elif table == "message":
            yield "message", self._one(rows, thread="chatted", seq=1)
        elif table == "grants":
            for kind in ("live", "spent", "revoked"):
                yield kind, next(row for row in rows if f'"{kind}"' in row["scope"])
        elif table == "principal":
            for person, kind in (("ana", "live"), ("cleo", "revoked")):
                yield kind, self._one(rows, person=person)
        elif table == "tool":
            yield "tool", self._one(rows, name="_send")
        elif table == "meta":
            for row in sorted(rows, key=lambda row: row["key"]):
                yield row["key"], row
        elif rows:
            yield table, rows[0]

    @staticmethod
    def _one(rows: Sequence[Row], **values: Any) -> Row:
        (found,) = [row for row in rows if all(row[k] == v for k, v in values.items())]
        return found

    def _stories(self, table: str, row: Row) -> frozenset[str] | None:
        """The stories that a row belongs to; ``None`` for all of them."""
        if table == "thread":
            return frozenset({row["id"]})
        if table in ("call", "run", "event", "message"):
            return frozenset({row["thread"]})
        return None

    def _partner(self, table: str, of: str, row: Row) -> Row | None:
        """Another row, to swap this one with."""
        if table == "call" and of in _SWAPPED:
            return self._one(self.rows[table], id=self.built.ids[_SWAPPED[of]])
        if table == "run" and row["thread"] in _SWAPPED:
            return self._one(self.rows[table], thread=_SWAPPED[row["thread"]])
        if table in ("call", "run"):
            return None
        near = [other for other in self.rows[table] if other != row]
        for name in ("thread", "person", "tool", "kind"):
            if name in row:
                near = [other for other in near if other[name] == row[name]] or near
        return near[0] if near else None

    def _other_values(self, table: str, column: str, row: Row) -> list[Any]:
        """What somebody might write in place of a value."""
        value = row[column]
        others = [other[column] for other in self.rows[table] if other[column] != value]
        if column == "status":
            return sorted({*others, *(CALLS if table == "call" else RUNS)} - {value})
        values: list[Any] = [v for v in others if v is not None][:1]
        if others and None in others:
            values.append(None)
        if column == "xid":
            return [str(int(value) + 1)]
        if isinstance(value, int):
            values += [value + 1]
        elif isinstance(value, str):
            values += [_changed(value)]
        elif not values:
            values = [7 if column.endswith(("_at", "_until", "ends", "revoked")) else "x"]
        return [v for n, v in enumerate(values) if v != value and v not in values[:n]]

    def _forged(self, table: str, row: Row) -> Row:
        """A row like this one under another name."""
        forged = dict(row)
        if table == "call":
            most = max(other["n"] for other in self.rows[table])
            forged |= {"n": most + 1, "id": "req_forged", "run": "fresh", "thread": "fresh"}
        elif table == "run":
            forged |= {"id": "fresh", "thread": "fresh"}
        elif table in ("message", "event"):
            same = [other for other in self.rows[table] if other["thread"] == row["thread"]]
            forged["seq"] = max(other["seq"] for other in same) + 1
            if table == "event":
                forged["pos"] = max(other["pos"] for other in self.rows[table]) + 1
        elif table == "seal":
            forged["n"] = max(other["n"] for other in self.rows[table]) + 1
        elif table == "principal":
            forged |= {"id": "tok_forged", "token_hash": _changed(row["token_hash"])}
        else:
            for key in self._keys[table]:
                value = forged[key]
                forged[key] = value + 1_000_000 if isinstance(value, int) else f"{value}2"
        return forged

    # -- earlier versions

    def _put_back(
        self, table: str, of: str, row: Row, stories: frozenset[str] | None
    ) -> Iterator[Case]:
        earlier = self._earlier(table, row)
        if not earlier:
            return
        alone = tuple(lambda old=old: self._update(table, row, old) for _, old in earlier)
        yield Case(table, "put back", "", of, stories, alone)
        if table not in ("call", "run"):
            return
        cut = tuple(
            lambda then=then, old=old: self._put_back_and_cut(table, row, old, then)
            for then, old in earlier
        )
        yield Case(table, "put back, later events deleted", "", of, stories, cut)
        relabelled = tuple(
            lambda then=then, old=old: self._put_back_and_relabel(table, row, old, then)
            for then, old in earlier
        )
        yield Case(table, "put back, later events relabelled", "", of, stories, relabelled)
        whole = tuple(
            lambda then=then: self._put_thread_back(row["thread"], then) for then, _ in earlier
        )
        yield Case(table, "whole thread put back", "", of, stories, whole)

    def _earlier(self, table: str, row: Row) -> list[tuple[int, Row]]:
        """The version before this one and the first one, each with the step it is from."""
        found: list[tuple[int, Row]] = []
        for then, rows in enumerate(self.built.versions):
            for old in rows[table]:
                same = all(old[key] == row[key] for key in self._keys[table])
                if same and (not found or old != found[-1][1]):
                    found.append((then, old))
        found = [pair for pair in found if pair[1] != row]
        return found[-1:] + found[:1] if len(found) > 1 else found

    def _later_events(self, thread: str, then: int) -> list[Row]:
        before = {row["pos"] for row in self.built.versions[then]["event"]}
        now = [row for row in self.rows["event"] if row["thread"] == thread]
        return [row for row in now if row["pos"] not in before]

    def _put_back_and_cut(self, table: str, row: Row, old: Row, then: int) -> None:
        self._update(table, row, old)
        for event in self._later_events(row["thread"], then):
            self._delete("event", event)

    def _put_back_and_relabel(self, table: str, row: Row, old: Row, then: int) -> None:
        self._update(table, row, old)
        for event in self._later_events(row["thread"], then):
            self._update("event", event, {"type": "revealed", "call": "", "run": ""})

    def _put_thread_back(self, thread: str, then: int) -> None:
        """Bring back all rows of a thread as they were, its events too."""
        old = self.built.versions[then]
        for table, name in (("thread", "id"), *((t, "thread") for t in _OF_A_THREAD)):
            for row in self.rows[table]:
                if row[name] == thread:
                    self._delete(table, row)
            for row in old[table]:
                if row[name] == thread:
                    self._insert(table, row)

    # -- writing

    def _where(self, table: str, row: Row) -> tuple[str, list[Any]]:
        keys = self._keys[table]
        return " AND ".join(f"{key} = ?" for key in keys), [row[key] for key in keys]

    def _update(self, table: str, row: Row, changes: Row) -> None:
        sets = ", ".join(f"{column} = ?" for column in changes)
        where, values = self._where(table, row)
        self.database.execute(
            f"UPDATE {table} SET {sets} WHERE {where}", [*changes.values(), *values]
        )

    def _delete(self, table: str, row: Row) -> None:
        where, values = self._where(table, row)
        self.database.execute(f"DELETE FROM {table} WHERE {where}", values)

    def _insert(self, table: str, row: Row) -> None:
        marks = ", ".join("?" * len(row))
        self.database.execute(
            f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", [*row.values()]
        )

    def _swap(self, table: str, one: Row, other: Row) -> None:
        """Exchange two rows: each stands under the other's name."""
        self._delete(table, one)
        self._delete(table, other)
        named = {*self._keys[table], *(("id",) if "id" in one else ())}
        for row, by in ((one, other), (other, one)):
            self._insert(table, {c: row[c] if c in named else by[c] for c in row})


_OF_A_THREAD = ("run", "call", "message", "event")


def _changed(text: str) -> str:
    """Other text of the same look."""
    for old, new in (("hello", "howdy"), ("al", "eve"), ("ana", "eve"), ("deploy", "delete")):
        if old in text:
            return text.replace(old, new)
    if text and text[-1] in "0123456789abcdef":
        return text[:-1] + ("0" if text[-1] != "0" else "1")
    return f"{text}x"


# -- measuring everything


def opened(configuration: str, folder: Path) -> Matrix:
    """Build the store of one configuration."""
    kind, _, keys = configuration.partition("-")
    if kind == "sqlite":
        return Matrix(SqliteDatabase(folder), keys)
    return Matrix(PgDatabase(f"tamper_{os.getpid()}_{keys}"), keys)


def measure(configuration: str, say: Callable[[str], None]) -> dict[str, str]:
    """The outcome of each case of one configuration."""
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        matrix = opened(configuration, Path(folder))
        with closing(matrix.database):
            for case in matrix.cases():
                name = label(case)
                found[name] = matrix.outcome(case)
                if found[name] == "unprotected":
                    say(f"{configuration}: {name}: unprotected: {matrix.last}")
    return found


def label(case: Case) -> str:
    """A case as the results name it."""
    return f"{case.action}: {case.name} ({case.of})"


def main() -> int:
    if why_not():
        print(why_not(), file=sys.stderr)
        return 1
    results: dict[str, dict[str, str]] = {}
    for configuration in sys.argv[1:] or CONFIGURATIONS:
        began = time.monotonic()
        for name, outcome in measure(configuration, print).items():
            results.setdefault(name, {})[configuration] = outcome
        print(f"{configuration}: {time.monotonic() - began:.0f} s")
    if not sys.argv[1:]:
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
