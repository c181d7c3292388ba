"""``audit verify`` reports what use refuses, and ``audit explain`` explains it."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from homes import Home
from paused_store import pause_runs

from sayso import Gate, Inbox, Paused, Tampered
from sayso.audit import explain, verify
from sayso.engine.row_macs import row_mac
from sayso.errors import NotFound, SaysoError
from sayso.inbox import create_token
from sayso.stores.base import Store
from sayso.testing import FakeClock


class Desk:
    """A gate and an inbox on one store, and raw SQL next to them."""

    def __init__(self, home: Home, clock: FakeClock) -> None:
        self.home = home
        self.clock = clock
        self.store: Store = home.open(clock=clock)
        self.gate = Gate(self.store, wait=0)
        self.inbox = Inbox(self.store)

    def ask(self, run: str = "r1") -> str:
        """Ask for a mail. Return the id of the request."""
        try:
            self.enter(run)
        except Paused as paused:
            return paused.requests[0].id
        raise AssertionError("nothing was asked")

    def enter(self, run: str = "r1") -> Any:
        @self.gate.guard(needs_approval=True)
        def send(to: str) -> str:
            """Send a mail."""
            return f"sent to {to}"

        with self.gate.run(run):
            return send("ana")

    def reports(self) -> list[str]:
        """Verify the store as another process does. Return what is wrong."""
        with closing(self.home.open_read_only(clock=self.clock)) as reader:
            return [problem.what for problem in verify(reader).problems]

    def other(self) -> Desk:
        """Return a desk of another process, which has nothing cached."""
        return Desk(self.home, self.clock)


@pytest.fixture
def desk(home: Home, clock: FakeClock) -> Desk:
    return Desk(home, clock)


@pytest.mark.parametrize(
    "change",
    ["token = token + 1", "wake = wake + 1", "ready_at = 7", "owner = 'eve'", "mac = mac || 'x'"],
)
def test_changed_run_is_reported(desk: Desk, change: str) -> None:
    request = desk.ask()
    desk.home.sql(f"UPDATE run SET {change} WHERE id = 'r1'")
    with pytest.raises(Tampered):
        desk.other().inbox.approve_sync(request, by="ana")
    assert [what for what in desk.reports() if what.startswith("run r1 does not match")]
    explanation = explain(desk.store, request)
    assert explanation.differs[0].startswith("run r1 does not match")
    assert "Restore the row of table run" in explanation.next_step


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("DELETE FROM thread WHERE id = 'r1'", "the row of its thread r1 is missing"),
        ("ALTER TABLE thread RENAME TO threads", "the row of its thread r1 cannot be read"),
    ],
)
def test_request_without_its_thread_is_explained(desk: Desk, statement: str, what: str) -> None:
    request = desk.ask()
    desk.home.sql(statement)
    explanation = explain(desk.store, request)
    assert explanation.differs == (what,)
    assert "run `sayso audit verify`" in explanation.next_step


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("DELETE FROM tool", "the row of its tool send is missing"),
        ("UPDATE tool SET name = 'spend'", "the row of its tool send was changed"),
        ("UPDATE tool SET description = 'Send money'", "the row of its tool send was changed"),
        ("DELETE FROM search_key", "its search key was changed or deleted"),
        ("UPDATE search_key SET tool = 'spend'", "its search key was changed or deleted"),
        ("UPDATE search_key SET words = ' spend'", "its search key was changed or deleted"),
        ("DELETE FROM search_word", "its search key was changed or deleted"),
        ("UPDATE call SET list_status = 'expired'", "is listed as 'expired', which hides it"),
    ],
)
def test_hidden_request_is_reported(desk: Desk, statement: str, what: str) -> None:
    request = desk.ask()
    assert desk.reports() == []
    desk.home.sql(statement)
    inbox = desk.other().inbox
    shown = inbox.pending_sync(tool="send", q="send")
    is_hidden = "SET words" not in statement  # search_word finds it
    assert bool(shown.items) is not is_hidden
    assert [problem for problem in desk.reports() if what in problem and request in problem]
    assert what in explain(desk.store, request).differs[0]


@pytest.mark.parametrize(
    "statement",
    ["DELETE FROM call_word WHERE word = 'r1'", "UPDATE call SET words = ' other'"],
)
def test_request_hidden_from_searches_is_reported(desk: Desk, statement: str) -> None:
    request = desk.ask()
    assert desk.other().inbox.pending_sync(q="r1").items
    desk.home.sql(statement)
    assert not desk.other().inbox.pending_sync(q="r1").items, "it is hidden"
    problems = [problem for problem in desk.reports() if "its words were changed" in problem]
    assert [problem for problem in problems if request in problem]


def test_changed_message_is_reported(desk: Desk) -> None:
    pause_runs(desk.store)
    desk.home.sql("UPDATE message SET mac = 'x' WHERE seq = 1")
    with pytest.raises(Tampered):
        desk.other().store.messages("two")
    assert "message 1 was changed: its MAC does not hold" in desk.reports()


def test_spent_grant_is_reported_after_pruning(desk: Desk) -> None:
    request = desk.inbox.get_sync(desk.ask())
    grant = {"scope": "any", "uses": 2}
    desk.inbox.decide_sync(request.id, request.approve(), by="ana", grant=grant)
    for run in ("r1", "r2", "r3"):
        desk.enter(run)
    ((grant_id, left),) = desk.home.sql("SELECT id, uses_left FROM grants")
    assert left == 0
    desk.clock.advance(1000)
    assert desk.store.prune(desk.clock(), "ana")["calls"] == 3
    assert desk.reports() == []
    mac = desk.home.sql("SELECT mac FROM grants")
    forge(desk, grant_id)
    assert desk.home.sql("SELECT mac FROM grants") != mac, "its MAC holds, like an older row's"
    (what,) = desk.reports()
    assert what == f"grant {grant_id} does not match the record: uses_left"


def forge(desk: Desk, grant_id: str) -> None:
    """Write the grant as it was before it was used, with the MAC that it had."""
    (grant,) = desk.store.grants(live_only=False)
    older = replace(grant, uses_left=2)
    mac = row_mac(older, desk.store.keys.row_mac)
    desk.home.sql(f"UPDATE grants SET uses_left = 2, mac = '{mac}' WHERE id = '{grant_id}'")


# -- explain


def test_request_is_explained(desk: Desk) -> None:
    request = desk.ask()
    explanation = explain(desk.store, request)
    assert explanation.ok
    assert explanation.row is not None
    assert explanation.row["status"] == "asked"
    assert explanation.last_event is not None
    assert explanation.last_event.type == "asked"
    assert explanation.next_step == "Nothing differs, so there is nothing to repair."


def test_changed_request_is_explained(desk: Desk) -> None:
    request = desk.ask()
    other = desk.ask("r2")
    desk.home.sql(f"UPDATE call SET args = '{{\"to\":\"eve\"}}' WHERE id = '{request}'")
    with pytest.raises(Tampered):
        desk.other().inbox.get_sync(request)
    with closing(desk.home.open_read_only(clock=desk.clock)) as reader:
        explanation = explain(reader, request)
    assert explanation.row is not None
    assert explanation.row["args"] == '{"to":"eve"}'
    assert explanation.differs == (f"call {request} does not match the record: args",)
    assert explanation.next_step.startswith("Compare the row with a backup")
    assert explain(desk.store, other).ok


def test_deleted_request_is_explained(desk: Desk) -> None:
    request = desk.ask()
    desk.home.sql("DELETE FROM call")
    explanation = explain(desk.store, request)
    assert explanation.row is None
    assert "is missing from the table" in explanation.differs[0]
    assert explanation.next_step.startswith("Restore the row of table call")


def test_unknown_request_is_not_found(desk: Desk) -> None:
    desk.ask()
    with pytest.raises(NotFound, match="no request 'req_none'"):
        explain(desk.store, "req_none")


# -- odd values in every column

#: Python's own words, which mean nothing to people.
PYTHON = re.compile(
    r"Expecting|invalid literal|NoneType|Traceback|unsupported|not enough values|too many values"
    r"|codec can't|too large|struct|argument|unexpected keyword|object|KeyError|is not a valid|"
    r"must be|cannot unpack|Could not decode|recursion|surrogate",
)
ODD = {
    "bytes": "x'fffe00'",
    "broken text": "CAST(x'7b22ff22' AS TEXT)",
    "no JSON": "'{\"a\":'",
    "other JSON": "'[1, \"x\", null]'",
    "deep JSON": "'" + "[" * 5000 + "'",
    "huge number": "'1" + "0" * 400 + "'",
    "number": "9223372036854775807",
    "fraction": "1.5",
    "nothing": "NULL",
    "empty": "''",
}
#: Their columns hold JSON, so every odd value is tried.
JSON_COLUMNS = {"terms", "votes", "decision", "doubt", "groups", "schema", "scope", "binds", "body"}
TABLES = (
    "call",
    "run",
    "thread",
    "message",
    "tool",
    "grants",
    "person",
    "credential",
    "effect",
    "event",
)


class FullStore:
    """A closed SQLite store with rows in every table, which ``restore`` puts back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.home = Home(path, None)
        with closing(self.home.open(clock=FakeClock())) as store:
            pause_runs(store)
            create_token(store, "ana", by="root", groups=("finance",))
            gate = Gate(store, wait=0)

            @gate.guard(effect_key="mail:{to}", needs_approval=False)
            def send(to: str) -> str:
                return to

            with gate.run("keyed"):
                send("ana")
            self.ids = [request.id for request in Inbox(store).search_sync().items]
        self._content = path.read_bytes()

    def restore(self) -> None:
        self.path.write_bytes(self._content)

    def sql(self, statement: str) -> list[Any]:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            return connection.execute(statement).fetchall()

    def fill(self, table: str, column: str, value: str) -> None:
        """Write a value into a column of every row, or of one if it must be unique."""
        try:
            self.sql(f"UPDATE {table} SET {column} = {value}")
        except sqlite3.IntegrityError:
            first = f"(SELECT min({column}) FROM {table})"
            with suppress(sqlite3.IntegrityError):
                self.sql(f"UPDATE {table} SET {column} = {value} WHERE {column} = {first}")


@pytest.fixture(scope="module")
def full_store(tmp_path_factory: pytest.TempPathFactory) -> FullStore:
    return FullStore(tmp_path_factory.mktemp("full") / "store.db")


@pytest.mark.long
@pytest.mark.parametrize("table", TABLES)
def test_odd_value_gets_plain_error(
    table: str, full_store: FullStore, caplog: pytest.LogCaptureFixture
) -> None:
    full_store.restore()
    assert full_store.sql(f"SELECT count(*) FROM {table}") > [(0,)]
    columns = [row[1] for row in full_store.sql(f"PRAGMA table_info({table})")]
    odd = list(ODD.items())
    for number, column in enumerate(columns):
        for name, value in odd if column in JSON_COLUMNS else [odd[number % len(odd)]]:
            full_store.restore()
            full_store.fill(table, column, value)
            for text in said(full_store.home, full_store.ids):
                assert not PYTHON.search(text), (table, column, name, text)
    for record in caplog.records:
        message = record.getMessage()
        assert not PYTHON.search(message), message
        assert message.isprintable(), ascii(message)


def said(home: Home, ids: list[str]) -> Iterator[str]:
    """Use the store in every way. Yield the texts of errors and reports."""
    clock = FakeClock()
    try:
        desk = Desk(home, clock)
    except SaysoError as error:
        yield str(error)
        return
    uses: list[Callable[[], Any]] = [
        desk.inbox.pending_sync,
        desk.inbox.history_sync,
        desk.inbox.grants_sync,
        desk.store.people,
        desk.store.credentials,
        desk.store.runs,
        lambda: desk.store.messages("two"),
        desk.enter,
    ]
    for request in ids:
        uses.append(partial(desk.inbox.get_sync, request))
        uses.append(partial(desk.inbox.reject_sync, request, by="ana"))
        uses.append(partial(desk.inbox.events_sync, request))
    for use in uses:
        try:
            use()
        except SaysoError as error:
            yield str(error)
        except Paused:
            pass
    with closing(home.open_read_only(clock=clock)) as reader:
        yield from (problem.what for problem in verify(reader).problems)
        for request in ids:
            with suppress(NotFound):
                yield from explain(reader, request).differs
    desk.store.close()
