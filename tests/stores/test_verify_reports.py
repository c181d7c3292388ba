"""What use refuses, ``audit verify`` reports, and ``audit explain`` explains, on both databases."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from homes import Home

from sayso import Gate, Inbox, Paused, Tampered
from sayso.audit import explain, verify
from sayso.errors import NotFound, SaysoError
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
        with suppress_close(self.home.open_read_only(clock=self.clock)) as reader:
            return [problem.what for problem in verify(reader).problems]

    def other(self) -> Desk:
        """Return a desk of another process, which has nothing cached."""
        return Desk(self.home, self.clock)


class suppress_close:
    def __init__(self, store: Store) -> None:
        self.store = store

    def __enter__(self) -> Store:
        return self.store

    def __exit__(self, *exception: object) -> None:
        self.store.close()


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
    assert not shown.items, "it is hidden"
    assert [problem for problem in desk.reports() if what in problem and request in problem]
    assert what in explain(desk.store, request).differs[0]


def test_changed_message_is_reported(desk: Desk) -> None:
    desk.ask()
    desk.home.sql("UPDATE message SET mac = 'x'")
    if desk.home.sql("SELECT count(*) FROM message") != [(0,)]:
        assert desk.reports()


def test_spent_grant_is_reported_after_pruning(desk: Desk) -> None:
    request = desk.inbox.get_sync(desk.ask())
    grant = {"scope": "any", "uses": 2}
    desk.inbox.decide_sync(request.id, request.approve(), by="ana", grant=grant)
    for run in ("r1", "r2", "r3"):
        with suppress(Paused):
            desk.enter(run)
    ((grant_id, left),) = desk.home.sql("SELECT id, uses_left FROM grants")
    ((columns,),) = [desk.home.sql("SELECT * FROM grants")]
    assert left == 0
    desk.clock.advance(1000)
    desk.store.prune(desk.clock(), "ana")
    assert desk.reports() == []
    (note,) = [e for e in desk.store.chain(":system") if e.type == "pruned"] or [None]
    assert note is None or '"spent"' in str(note.body)
    desk.home.sql("UPDATE grants SET uses_left = 2")
    assert any(grant_id in what and "uses_left" in what for what in desk.reports()), columns


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
    with suppress_close(desk.home.open_read_only(clock=desk.clock)) as reader:
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
TABLES = ("call", "run", "thread", "message", "tool", "grants", "principal", "effect", "event")


@pytest.mark.parametrize("table", TABLES)
def test_odd_value_gets_plain_error(
    table: str, path: Any, clock: FakeClock, keys: Any, caplog: pytest.LogCaptureFixture
) -> None:
    import shutil
    import sqlite3
    from contextlib import closing

    home = Home(path, None, keys)
    desk = Desk(home, clock)
    request = desk.ask()
    desk.store.close()
    original = path.with_name("original.db")
    shutil.copyfile(path, original)
    with closing(sqlite3.connect(path)) as connection:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    for column in columns:
        for name, value in ODD.items():
            shutil.copyfile(original, path)
            with closing(sqlite3.connect(path)) as connection, connection:
                try:
                    connection.execute(f"UPDATE {table} SET {column} = {value}")
                except sqlite3.Error:
                    continue
            for text in said(home, clock, request):
                assert not PYTHON.search(text), (table, column, name, text)
    for record in caplog.records:
        assert not PYTHON.search(record.getMessage()), record.getMessage()


def said(home: Home, clock: FakeClock, request: str) -> Iterator[str]:
    """Use the store in every way. Yield the texts of errors and reports."""
    try:
        desk = Desk(home, clock)
    except SaysoError as error:
        yield str(error)
        return
    uses = (
        lambda: desk.inbox.pending_sync(),
        lambda: desk.inbox.history_sync(),
        lambda: desk.inbox.get_sync(request),
        lambda: desk.inbox.decide_sync(request, desk.inbox.get_sync(request).approve(), by="ana"),
        lambda: desk.inbox.events_sync(request),
        lambda: desk.inbox.grants_sync(),
        lambda: desk.store.principals(),
        lambda: desk.store.runs(),
        lambda: desk.store.messages("r1"),
        lambda: desk.enter(),
        lambda: desk.enter("r2"),
    )
    for use in uses:
        try:
            use()
        except SaysoError as error:
            yield str(error)
        except Paused:
            pass
    with suppress_close(home.open_read_only(clock=clock)) as reader:
        yield from (problem.what for problem in verify(reader).problems)
        with suppress(NotFound):
            yield from explain(reader, request).differs
    desk.store.close()
