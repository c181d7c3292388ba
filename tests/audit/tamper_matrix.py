"""Every way to change the database without a key, and what becomes of it.

A case changes one thing in a copy of a store in which everything has happened. Then the public face
uses the rows (``tamper_world.Uses``) and the record is verified:

* ``impossible``: the database itself refuses the change;
* ``refused and reported``: no use gave anything but what it gave before, at least one refused, and
  ``sayso audit verify`` names the change;
* ``reported``: verify names it, although a use was misled or none cared;
* ``refused``: a use refused, and verify does not say why;
* ``unused``: nothing cared, and nothing was misled;
* ``unprotected``: a use was misled, and nothing says so.

``PYTHONPATH=tests python tests/audit/tamper_matrix.py`` measures all cases on both databases with
both kinds of keys and writes ``tamper_matrix.json``, which the table in SECURITY.md is made of.
With ``--new``, it measures only cases that the file does not have, and adds them to it.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from memory_folder import memory_folder
from postgres_server import why_not
from tamper_world import (
    KEYS,
    Built,
    Database,
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

RESULTS = Path(__file__).with_suffix(".json")
#: From best to worst.
OUTCOMES = (
    *("impossible", "refused and reported", "reported"),
    *("refused", "unused", "unprotected", "broke"),
)
CONFIGURATIONS = tuple(f"{db}-{keys}" for db in ("sqlite", "postgres") for keys in KEYS)

#: Each is the story of a call that came to this.
CALLS = (
    *("asked", "ready", "running", "done", "failed", "in_doubt", "rejected", "responded"),
    *("expired", "cancelled", "superseded", "released"),
)
#: The story in which a run of this status is found.
RUNS = {
    "running": "running",
    "paused": "asked",
    "done": "done",
    "failed": "failed",
    "cancelled": "stopped",
}
Change = Callable[[], None]
_SWAPPED = {"asked": "asked2", "ready": "ready2", "done": "done2"}


@dataclass(frozen=True)
class Case:
    """One kind of change to the database. Of its variants, the worst outcome counts."""

    table: str
    action: str
    #: The column that is changed, or what else tells cases of an action apart.
    what: str
    #: The status of the row where the table has one, else the row's name.
    of: str
    stories: frozenset[str] | None
    variants: tuple[Change, ...] = field(compare=False, repr=False)

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
        self.last: dict[str, str] = {}
        database.restore()
        assert self._verified(), "the store must verify before anybody touches it"

    # -- outcomes

    def outcome(self, case: Case) -> str:
        """Make each variant of the change. Return the worst outcome."""
        return max((self._outcome(case, one) for one in case.variants), key=OUTCOMES.index)

    def _outcome(self, case: Case, change: Change) -> str:
        if not self._done(change):
            return "impossible"  # a constraint refuses it
        found = compare(self._before, self._uses.play(case.stories))
        self.last = found
        if "broke" in found.values():
            return "broke"
        refused = bool(found) and "altered" not in found.values()
        assert self._done(change)  # once more, because the uses have written
        if not self._verified():
            return "refused and reported" if refused else "reported"
        if refused:
            return "refused"
        return "unprotected" if found else "unused"

    def _done(self, change: Change) -> bool:
        """Change the store as it was built. Return False if the database refuses it."""
        self.database.restore()
        try:
            change()
        except (psycopg.Error, sqlite3.Error):
            return False
        return True

    def _verified(self) -> bool:
        try:
            with closing(self.built.open()) as store:
                return verify(store).ok
        except SaysoError:
            return False

    # -- cases

    def cases(self) -> Iterator[Case]:
        """Yield every case, in a fixed order."""
        for table in self._columns:
            for of, row in self._samples(table):
                yield from self._of_row(table, of, row)

    def _of_row(self, table: str, of: str, row: Row) -> Iterator[Case]:
        stories = self._stories(table, row)

        def case(action: str, *variants: Change, what: str = "", also: Row | None = None) -> Case:
            both = stories
            if also is not None and stories is not None:
                both = stories | (self._stories(table, also) or stories)
            return Case(table, action, what, of, both, variants)

        for column in self._columns[table]:
            values = self._other_values(table, column, row)
            changes = [partial(self._update, table, row, {column: value}) for value in values]
            if changes:
                yield case("change", *changes, what=column)
        yield case("delete", partial(self._delete, table, row))
        yield case("insert", partial(self._insert, table, self._forged(table, row)))
        other = self._partner(table, of, row)
        if other is not None:
            yield case("swap", partial(self._swap, table, row, other), also=other)
        earlier = self._earlier(table, row)
        if earlier:
            yield case("put back", *[partial(self._update, table, row, old) for _, old in earlier])
        if earlier and table in ("call", "run"):
            for action, also in (
                ("put back, later events deleted", self._delete_events),
                ("put back, later events relabelled", self._relabel_events),
            ):
                changes = [
                    partial(self._put_back, table, row, old, partial(also, row["thread"], then))
                    for then, old in earlier
                ]
                yield case(action, *changes)
        if table == "thread":
            yield case("whole thread deleted", partial(self._put_thread_back, row["id"], None))
            steps = [then for then, old in earlier]
            back = [partial(self._put_thread_back, row["id"], then) for then in steps]
            yield case("whole thread put back", *back)

    def _samples(self, table: str) -> Iterator[tuple[str, Row]]:
        """Yield one row of each kind in the table."""
        rows = self.rows[table]
        of_table = {
            "call": self._sample_calls,
            "run": self._sample_runs,
            "thread": self._sample_threads,
            "event": self._sample_events,
            "grants": self._sample_grants,
            "person": self._sample_people,
            "credential": self._sample_tokens,
        }
        if table in of_table:
            yield from of_table[table](rows)
        elif table == "meta":
            yield from ((row["key"], row) for row in sorted(rows, key=lambda row: row["key"]))
        elif table == "process":
            return  # which processes have the store open now; nothing else reads it
        elif table == "message":
            yield "said", self._one(rows, thread="chatted", seq=1)
        elif table == "tool":
            yield "shown", self._one(rows, name="_send")
        elif table == "refusal":
            # Which one is listed first is chance. One that was lifted has an earlier version, too.
            yield "any", next(row for row in rows if row["lifted"] is not None)
        elif table == "budget":
            # Only the grant that is live can still be used.
            grant = next(row for row in self.rows["grants"] if '"live"' in row["scope"])
            yield "any", next(row for row in rows if grant["id"] in row["key"])
        else:
            yield from (("any", row) for row in rows[:1])  # what workers write may be empty

    def _sample_calls(self, rows: Sequence[Row]) -> Iterator[tuple[str, Row]]:
        for status in CALLS:
            row = self._one(rows, id=self.built.ids[status])
            assert row["status"] == status, row
            yield status, row

    def _sample_runs(self, rows: Sequence[Row]) -> Iterator[tuple[str, Row]]:
        for status, story in RUNS.items():
            row = self._one(rows, thread=story)
            assert row["status"] == status, row
            yield status, row

    def _sample_threads(self, rows: Sequence[Row]) -> Iterator[tuple[str, Row]]:
        yield "sealed", self._one(rows, id="chatted")
        yield "unsealed", self._one(rows, id="unsealed")

    @staticmethod
    def _sample_events(rows: Sequence[Row]) -> Iterator[tuple[str, Row]]:
        in_order = sorted(rows, key=lambda row: int(row["seq"]))
        for row in in_order:
            if row["thread"] == "done":
                yield f"{row['type']}, sealed", row
        for row in in_order:
            if row["thread"] == "unsealed":
                yield f"{row['type']}, unsealed", row

    @staticmethod
    def _sample_grants(rows: Sequence[Row]) -> Iterator[tuple[str, Row]]:
        for kind in ("live", "spent", "revoked"):
            yield kind, next(row for row in rows if f'"{kind}"' in row["scope"])

    def _sample_people(self, rows: Sequence[Row]) -> Iterator[tuple[str, Row]]:
        for person, kind in (("ana", "active"), ("dan", "removed")):
            yield kind, self._one(rows, name=person)

    def _sample_tokens(self, rows: Sequence[Row]) -> Iterator[tuple[str, Row]]:
        for person, kind in (("ana", "live"), ("cleo", "revoked")):
            yield kind, self._one(rows, person=person)

    @staticmethod
    def _one(rows: Sequence[Row], **values: Any) -> Row:
        (found,) = [row for row in rows if all(row[k] == v for k, v in values.items())]
        return found

    def _stories(self, table: str, row: Row) -> frozenset[str] | None:
        """Return the stories that a row belongs to; ``None`` for all of them."""
        if table == "thread":
            return frozenset({row["id"]})
        if table in ("call", "run", "event", "message"):
            return frozenset({row["thread"]})
        return None

    def _partner(self, table: str, of: str, row: Row) -> Row | None:
        """Return another row to swap this one with."""
        if table == "call" and of in _SWAPPED:
            return self._one(self.rows[table], id=self.built.ids[_SWAPPED[of]])
        if table == "run" and row["thread"] in _SWAPPED:
            return self._one(self.rows[table], thread=_SWAPPED[row["thread"]])
        if table in ("call", "run"):
            return None
        content = row.keys() - self._keys[table]
        near = [other for other in self.rows[table] if other != row]
        if content:  # exchanging the same for the same changes nothing
            near = [other for other in near if any(other[name] != row[name] for name in content)]
        for name in ("thread", "person", "tool", "kind"):
            if name in row:
                near = [other for other in near if other[name] == row[name]] or near
        return near[0] if near else None

    def _other_values(self, table: str, column: str, row: Row) -> list[Any]:
        """Return values that an attacker might write instead."""
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
            values += [1 - value if value in (0, 1) else value + 1]
        elif isinstance(value, str):
            values += [_changed(value)]
        elif not values:
            values = [7 if column.endswith(("_at", "_until", "ends", "revoked")) else "x"]
        return [v for n, v in enumerate(values) if v != value and v not in values[:n]]

    def _forged(self, table: str, row: Row) -> Row:
        """Return a row like this one under another name."""
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
        elif table == "person":
            forged |= {"name": "eve", "look": "eve"}
        elif table == "credential":
            forged |= {"id": "tok_forged", "hash": _changed(row["hash"])}
        else:
            for key in self._keys[table]:
                value = forged[key]
                forged[key] = value + 1_000_000 if isinstance(value, int) else f"{value}2"
        return forged

    # -- earlier versions

    def _earlier(self, table: str, row: Row) -> list[tuple[int, Row]]:
        """Return the previous version and the first one, each with the step it is from."""
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

    def _put_back(self, table: str, row: Row, old: Row, then_also: Change) -> None:
        self._update(table, row, old)
        then_also()

    def _delete_events(self, thread: str, then: int) -> None:
        for event in self._later_events(thread, then):
            self._delete("event", event)

    def _relabel_events(self, thread: str, then: int) -> None:
        for event in self._later_events(thread, then):
            self._update("event", event, {"type": "revealed", "call": "", "run": ""})

    def _put_thread_back(self, thread: str, then: int | None) -> None:
        """Restore all rows of a thread, including its events, or delete them all."""
        old = {} if then is None else self.built.versions[then]
        for table, name in (("thread", "id"), *((one, "thread") for one in _OF_A_THREAD)):
            for row in self.rows[table]:
                if row[name] == thread:
                    self._delete(table, row)
            for row in old.get(table, ()):
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
        """Exchange two rows: each gets the other's key."""
        self._delete(table, one)
        self._delete(table, other)
        named = {*self._keys[table], *(("id",) if "id" in one else ())}
        for row, by in ((one, other), (other, one)):
            self._insert(table, {c: row[c] if c in named else by[c] for c in row})


_OF_A_THREAD = ("run", "call", "message", "event")


def _changed(text: str) -> str:
    """Return another text that looks similar."""
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


def measure(
    configuration: str, say: Callable[[str], None], known: Collection[str] = ()
) -> dict[str, str]:
    """Return the outcome of each case of one configuration, apart from those that are known."""
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        matrix = opened(configuration, Path(folder))
        with closing(matrix.database):
            for case in matrix.cases():
                name = label(case)
                if name in known:
                    continue
                found[name] = matrix.outcome(case)
                if found[name] in ("refused", "unused", "unprotected", "broke"):
                    say(f"{configuration}: {name}: {found[name]}: {matrix.last}")
    return found


def label(case: Case) -> str:
    """Return the name of a case in the results."""
    return f"{case.action}: {case.name} ({case.of})"


def main() -> int:
    if why_not():
        print(why_not(), file=sys.stderr)
        return 1
    results: dict[str, dict[str, str]] = {}
    chosen = sys.argv[1:]
    if chosen == ["--new"]:
        chosen, results = [], json.loads(RESULTS.read_text())
    for configuration in chosen or CONFIGURATIONS:
        began = time.monotonic()
        known = [name for name, outcomes in results.items() if configuration in outcomes]
        for name, outcome in measure(configuration, print, known).items():
            results.setdefault(name, {})[configuration] = outcome
        print(f"{configuration}: {time.monotonic() - began:.0f} s")
    if not chosen:
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
