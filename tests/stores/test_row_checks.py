"""Rows changed with plain SQL by an attacker who has no key.

Whatever is shown, decided, started or handed out is refused by name; lists leave it out.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

import sayso
from sayso import AlreadyDecided, Gate, Inbox, Paused, StoreError, Tampered
from sayso.engine.asking import request_digest
from sayso.engine.commands import Recover
from sayso.engine.row_macs import row_mac
from sayso.inbox import create_token
from sayso.keys import Keyring, new_key
from sayso.rows import EffectKey, Run, StoredMessage
from sayso.stores.base import Store
from sayso.stores.postgres import PostgresStore
from sayso.stores.sqlite import SqliteStore
from sayso.testing import ScriptedModel, call, say

#: The tests share one key, because their PostgreSQL stores share one schema.
KEYS = Keyring.parse(new_key())


class Database:
    """One store, opened as often as wanted, and a way around it."""

    def __init__(self, opener: Callable[[], Store], sql: Callable[..., list[Any]]) -> None:
        self._opener = opener
        self._opened: list[Store] = []
        self.sql = sql
        self.store = self.reopen()

    def reopen(self) -> Store:
        """Open it as another process does, which has nothing in memory."""
        self._opened.append(self._opener())
        self.store = self._opened[-1]
        return self.store

    def close(self) -> None:
        for store in self._opened:
            store.close()

    def row(self, table: str, where: str) -> dict[str, Any]:
        """One row as it is now, to be put back later."""
        (found,) = self.sql(f"SELECT * FROM {table} WHERE {where}")
        return dict(zip(self.columns(table), found, strict=True))

    def columns(self, table: str) -> list[str]:
        return [row[0] for row in self.sql("COLUMNS", table)]

    def put_back(self, table: str, where: str, row: dict[str, Any]) -> None:
        self.sql(f"DELETE FROM {table} WHERE {where}")
        marks = ", ".join("?" * len(row))
        names = ", ".join(row)
        self.sql(f"INSERT INTO {table} ({names}) VALUES ({marks})", *row.values())


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        path = tmp_path / "store.db"

        def lite(statement: str, *values: Any) -> list[Any]:
            if statement == "COLUMNS":
                statement = "SELECT name FROM pragma_table_info(?)"
            with closing(sqlite3.connect(path, isolation_level=None)) as file:
                return file.execute(statement, values).fetchall()

        made = Database(lambda: SqliteStore(path, keys=KEYS), lite)
    else:
        request.getfixturevalue("sessions")
        place = request.getfixturevalue("swept_place")

        def pg(statement: str, *values: Any) -> list[Any]:
            if statement == "COLUMNS":
                statement = (
                    "SELECT column_name FROM information_schema.columns "
                    "WHERE table_schema = current_schema() AND table_name = ? "
                    "ORDER BY ordinal_position"
                )
            return place.sql(statement.replace("?", "%s"), *values)

        made = Database(lambda: PostgresStore(place.url, schema=place.schema, keys=KEYS), pg)
    yield made
    made.close()


def confirm(store: Store, text: str = "delete production") -> bool:
    gate = Gate(store, wait=0)
    with gate.run("r"):
        return gate.confirm_sync(text)


def ask(store: Store) -> Any:
    gate = Gate(store, wait=0)
    with gate.run("r"):
        return gate.ask_sync("Which colour?")


def pay(store: Store, ran: list[str], **options: Any) -> str:
    gate = Gate(store, wait=0)

    @gate.guard(**{"needs_approval": True, **options})
    def transfer(to: str, euros: int = 10) -> str:
        """Move money."""
        ran.append(to)
        return f"paid {to}"

    with gate.run("r"):
        return transfer("ana")


def paused(body: Callable[[], Any]) -> sayso.Request:
    with pytest.raises(Paused) as caught:
        body()
    return caught.value.requests[0]


def approve(store: Store, request: sayso.Request) -> None:
    Inbox(store).decide_sync(request.id, request.approve(), by="ana")


def clerk(store: Store, ran: list[str]) -> sayso.Agent:
    @sayso.tool(needs_approval=True)
    def refund(order: str) -> str:
        """Give the money back."""
        ran.append(order)
        return f"refunded {order}"

    steps = [call("refund", {"order": "A-1"}), say("Done.")]
    model = ScriptedModel(steps, by_turn=True)
    return sayso.Agent("clerk", model=model, tools=[refund], store=store)


# -- forged outcomes


def test_forged_confirmation_is_not_a_yes(database: Database) -> None:
    request = paused(lambda: confirm(database.store))
    database.sql("UPDATE call SET status = 'done', result = 'true'")
    for store in (database.store, database.reopen()):
        with pytest.raises(Tampered, match=rf"request {request.id} was not used.*audit verify"):
            confirm(store)


def test_changed_answer_is_not_returned(database: Database) -> None:
    request = paused(lambda: ask(database.store))
    Inbox(database.store).decide_sync(request.id, request.respond("red"), by="ana")
    assert ask(database.store) == "red"
    database.sql("""UPDATE call SET result = '"blue"'""")
    with pytest.raises(Tampered, match=request.id):
        ask(database.reopen())
    database.sql("""UPDATE call SET decision = replace(decision, 'red', 'blue')""")
    with pytest.raises(Tampered, match=request.id):
        ask(database.reopen())


def test_changed_result_is_not_returned(database: Database) -> None:
    ran: list[str] = []
    request = paused(lambda: pay(database.store, ran))
    approve(database.store, request)
    assert pay(database.store, ran) == "paid ana"
    database.sql("""UPDATE call SET result = '"paid eve"'""")
    with pytest.raises(Tampered, match=request.id):
        pay(database.reopen(), ran)
    assert ran == ["ana"]


def test_forged_result_does_not_reach_the_model(database: Database) -> None:
    ran: list[str] = []
    (request,) = clerk(database.store, ran).run_sync("Go.", thread="t").interruptions
    database.sql("""UPDATE call SET status = 'done', result = '"refunded A-1"'""")
    with pytest.raises(Tampered, match=request.id):
        clerk(database.reopen(), ran).resume_sync("t")
    assert ran == []


# -- what people are shown


SHOWN = {
    "title": "'harmless'",
    "preview": "'\"harmless\"'",
    "note": "'trust me'",
    "tool": "'look'",
    "args": '\'{"euros":10,"to":"eve"}\'',
    "requester": "'boss'",
    "agent": "'other'",
    "terms": "'{}'",
    "expires_at": "4000000000000000",
    "digest": "'0'",
    "rev": "7",
}


@pytest.mark.parametrize("column", SHOWN)
def test_changed_request_is_neither_shown_nor_decided(
    database: Database, column: str, caplog: pytest.LogCaptureFixture
) -> None:
    store, ran = database.store, list[str]()
    options = {"title": "Pay {to} {euros} euros", "quorum": 2, "reviewers": ["ana", "bo"]}
    request = paused(lambda: pay(store, ran, preview=lambda to, euros: euros, **options))
    other = paused(lambda: confirm(database.reopen(), "another"))
    database.sql(f"UPDATE call SET {column} = {SHOWN[column]} WHERE id = ?", request.id)
    for store in (database.store, database.reopen()):
        inbox = Inbox(store)
        for use in (
            lambda box: box.get_sync(request.id),
            lambda box: box.decide_sync(request.id, request.approve(), by="ana"),
            lambda box: box.decide_sync(request.id, request.reject(), by="ana"),
            lambda box: box.cancel_sync(request.id, by="ana"),
        ):
            with pytest.raises(Tampered, match=rf"request {request.id} was not used"):
                use(inbox)
        with caplog.at_level(logging.WARNING):
            assert [shown.id for shown in inbox.pending_sync()] == [other.id]
        assert request.id in caplog.text


def test_lowered_terms_with_new_digest_are_refused(database: Database) -> None:
    ran: list[str] = []
    request = paused(lambda: pay(database.store, ran, quorum=2, reviewers=["ana", "bo"]))
    (terms,) = database.sql("SELECT terms FROM call")[0]
    lower = {n: v for n, v in json.loads(terms).items() if n not in ("quorum", "reviewers")}
    database.sql("UPDATE call SET terms = ?", json.dumps(lower))
    with database.store.snapshot() as rows:
        row = rows.call(request.id)
    assert row is not None
    database.sql("UPDATE call SET digest = ?", request_digest(row))
    with pytest.raises(Tampered, match=request.id):
        Inbox(database.reopen()).get_sync(request.id)


@pytest.mark.parametrize("column", ["description", "schema", "name", "version", "title"])
def test_request_of_a_changed_tool_is_not_shown(database: Database, column: str) -> None:
    ran: list[str] = []
    request = paused(lambda: pay(database.store, ran))
    database.sql(f"UPDATE tool SET {column} = replace({column}, 'money', 'nothing') || ' '")
    with pytest.raises(Tampered, match="tool transfer"):
        Inbox(database.reopen()).get_sync(request.id)
    assert list(Inbox(database.reopen()).pending_sync()) == []
    database.sql("DELETE FROM tool")
    with pytest.raises(Tampered, match=rf"{request.id}.*its tool transfer is missing"):
        Inbox(database.reopen()).get_sync(request.id)
    assert list(Inbox(database.reopen()).pending_sync()) == []


# -- runs, threads and messages


def talked(database: Database) -> list[str]:
    ran: list[str] = []
    clerk(database.store, ran).run_sync("Refund A-1.", thread="t", requester="bob")
    return ran


MESSAGES = {
    "rewritten": ["UPDATE message SET body = replace(body, 'A-1', 'B-2') WHERE seq = 1"],
    "first deleted": ["DELETE FROM message WHERE seq = 1"],
    "last deleted": ["DELETE FROM message WHERE seq = 2"],
    "all deleted": ["DELETE FROM message"],
    "swapped": [
        "UPDATE message SET seq = 99 WHERE seq = 1",
        "UPDATE message SET seq = 1 WHERE seq = 2",
        "UPDATE message SET seq = 2 WHERE seq = 99",
    ],
    "inserted": [
        "INSERT INTO message (thread, seq, run, body, mac) "
        "SELECT thread, 3, run, body, mac FROM message WHERE seq = 1"
    ],
    "of another run": ["UPDATE message SET run = 'other' WHERE seq = 1"],
    "counted otherwise": ["UPDATE thread SET messages = 1"],
    "said to be pruned": [
        "DELETE FROM message WHERE seq = 1",
        "UPDATE thread SET messages_pruned = '1-1'",
    ],
    "without its thread": ["DELETE FROM thread WHERE id = 't'"],
}


@pytest.mark.parametrize("attack", MESSAGES)
def test_changed_conversation_is_refused(database: Database, attack: str) -> None:
    ran = talked(database)
    assert len(database.store.messages("t")) == 2
    for statement in MESSAGES[attack]:
        database.sql(statement)
    store = database.reopen()
    with pytest.raises(Tampered, match=r"thread t|message"):
        store.messages("t")
    for request in Inbox(store).pending_sync():
        with suppress(Tampered):  # where the row of the thread itself is bad
            Inbox(store).decide_sync(request.id, request.reject(), by="ana")
    with pytest.raises(Tampered):
        clerk(database.reopen(), ran).resume_sync("t")
    assert ran == []


def test_pruned_messages_are_no_tampering(database: Database) -> None:
    ran: list[str] = []
    agent = clerk(database.store, ran)
    (request,) = agent.run_sync("Refund A-1.", thread="t").interruptions
    Inbox(database.store).decide_sync(request.id, request.approve(), by="ana")
    assert agent.resume_sync("t").status == "done"
    said = len(database.store.messages("t"))
    assert database.store.prune(database.store.now() + 10**9, "ana")["messages"] == said
    store = database.reopen()
    assert store.messages("t") == []
    (row,) = store.threads()[-1:]
    assert row.messages_pruned == f"1-{said}"
    assert clerk(store, ran).run_sync("Again.", thread="t").status == "paused"
    assert [seq for seq, _ in store.messages("t")] == [said + 1, said + 2]
    database.sql(f"DELETE FROM message WHERE seq = {said + 1}")
    with pytest.raises(Tampered, match=rf"message {said + 1} of it is missing"):
        database.reopen().messages("t")


@pytest.mark.parametrize(
    "change",
    [
        "owner = 'eve'",
        "seq = seq + 1",
        "head = 'x'",
        "messages = 9",
        "created = 1",
        "mac = ''",
        "mac = '1.00000000.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA'",
    ],
)
def test_changed_thread_is_refused(database: Database, change: str) -> None:
    ran = talked(database)
    database.sql(f"UPDATE thread SET {change} WHERE id = 't'")
    store = database.reopen()
    with pytest.raises((Tampered, sayso.UnknownKey), match="thread t"):
        store.thread("t")
    assert [thread.id for _, thread in store.threads_of("eve")] == []
    with pytest.raises((Tampered, sayso.UnknownKey)):
        clerk(store, ran).resume_sync("t")


RUN = [
    *("status = 'done'", "stop = 'enough'", "agent = 'other'", "requester = 'boss'"),
    *("snapshot = '{}'", "output = 'paid'", "token = token + 1", "ready_at = 1", "asked = 0"),
    *("parent_call = 'req_1'", "agent_digest = 'x'", "wake = 9", "seq = 0", "owner = 'w'"),
]


@pytest.mark.parametrize("change", RUN)
def test_changed_run_is_refused(database: Database, change: str) -> None:
    ran: list[str] = []
    result = clerk(database.store, ran).run_sync("Refund A-1.", thread="t")
    (request,) = result.interruptions
    database.sql(f"UPDATE run SET {change}")
    store = database.reopen()
    with pytest.raises(Tampered, match=rf"run {result.run} was not used"):
        store.run(result.run)
    assert store.runs() == []
    assert store.ready(["clerk", "other"]) == []
    with pytest.raises(Tampered):
        Inbox(store).decide_sync(request.id, request.approve(), by="ana")
    with pytest.raises(Tampered):
        clerk(store, ran).resume_sync(result.run)


def test_changed_run_does_not_block_others(database: Database) -> None:
    ran: list[str] = []
    runs = []
    for thread in ("t1", "t2", "t3"):
        result = clerk(database.store, ran).run_sync("Refund A-1.", thread=thread)
        approve(database.store, result.interruptions[0])
        runs.append(result.run)
    database.sql("UPDATE run SET output = 'x' WHERE thread IN ('t1', 't2')")
    assert [run.id for run in database.reopen().ready(["clerk"], 1)] == [runs[2]]


# -- grants and tokens


def test_changed_token_cannot_decide(database: Database) -> None:
    token, _ = create_token(database.store, "bo", by="ana")
    request = paused(lambda: confirm(database.store))
    database.sql("UPDATE credential SET person = 'ana', role = 'admin'")
    store = database.reopen()
    with pytest.raises((Tampered, sayso.NotAllowed)):
        Inbox(store).decide_sync(request.id, request.approve(), token=token)
    assert store.credentials() == []


def test_changed_groups_are_ignored(database: Database) -> None:
    token, _ = create_token(database.store, "bo", by="ana", groups=["sales"])
    request = paused(lambda: pay(database.store, [], reviewers=["group:finance"]))
    database.sql("""UPDATE person SET groups = '["finance"]'""")
    with pytest.raises((Tampered, sayso.NotAllowed)):
        Inbox(database.reopen()).decide_sync(request.id, request.approve(), token=token)
    with pytest.raises(Tampered, match="person bo"):
        Inbox(database.store).decide_sync(request.id, request.approve(), by="bo")


# -- rows that were valid once


def test_reset_call_does_not_run_again(database: Database) -> None:
    ran: list[str] = []
    request = paused(lambda: pay(database.store, ran))
    approve(database.store, request)
    ready = database.row("call", f"id = '{request.id}'")
    assert pay(database.store, ran) == "paid ana"
    database.put_back("call", f"id = '{request.id}'", ready)
    for _ in range(2):
        with pytest.raises(Tampered, match=rf"{request.id} was not used: its row was put back"):
            pay(database.reopen(), ran)
    assert ran == ["ana"]


def test_reset_call_and_run_do_not_run_again(database: Database) -> None:
    ran: list[str] = []
    request = paused(lambda: pay(database.store, ran))
    approve(database.store, request)
    ready, run = database.row("call", "1 = 1"), database.row("run", "1 = 1")
    assert pay(database.store, ran) == "paid ana"
    database.put_back("call", "1 = 1", ready)
    database.put_back("run", "1 = 1", run)
    with pytest.raises(Tampered):
        pay(database.reopen(), ran)
    database.sql("UPDATE event SET call = 'req_other' WHERE seq > ?", ready["seq"])
    with pytest.raises(Tampered, match="events of thread r were changed or deleted"):
        pay(database.reopen(), ran)
    database.sql("DELETE FROM event WHERE seq > ?", ready["seq"])
    with pytest.raises((Tampered, StoreError), match=r"deleted|restored from an older copy"):
        pay(database.reopen(), ran)
    assert ran == ["ana"]


def test_reset_thread_accepts_no_writes(database: Database) -> None:
    ran: list[str] = []
    request = paused(lambda: pay(database.store, ran))
    approve(database.store, request)
    before = {table: database.row(table, "1 = 1") for table in ("call", "run", "thread")}
    assert pay(database.store, ran) == "paid ana"
    for table, row in before.items():
        database.put_back(table, "1 = 1", row)
    with pytest.raises(Tampered, match="put back to an earlier state"):
        pay(database.reopen(), ran)
    assert ran == ["ana"]


def test_reset_rejected_request_cannot_be_decided(database: Database) -> None:
    request = paused(lambda: confirm(database.store))
    asked = database.row("call", "1 = 1")
    inbox = Inbox(database.store)
    inbox.decide_sync(request.id, request.reject("never"), by="ana")
    database.put_back("call", "1 = 1", asked)
    with pytest.raises(Tampered, match="put back"):
        Inbox(database.reopen()).decide_sync(request.id, request.approve(), by="eve")


def test_reset_running_call_does_not_become_a_doubt(database: Database) -> None:
    """A doubt would let somebody run it again, and its row would look new."""
    ran: list[str] = []
    request = paused(lambda: pay(database.store, ran))
    approve(database.store, request)
    running: list[dict[str, Any]] = []

    def boundary(name: str, when: str) -> None:
        if name.startswith("start") and when == "after":
            running.append(database.row("call", "1 = 1"))
            running.append(database.row("run", "1 = 1"))

    database.store.boundary = boundary
    assert pay(database.store, ran) == "paid ana"
    database.store.boundary = None
    database.put_back("call", "1 = 1", running[0])
    with pytest.raises(AlreadyDecided):
        Inbox(database.reopen()).decide_sync(request.id, request.approve(), by="eve")
    with pytest.raises(Tampered):
        database.store.transact(Recover(thread="r", run="r", by="ana"))


def test_two_rows_swapped(database: Database) -> None:
    ran: list[str] = []
    first = paused(lambda: pay(database.store, ran))
    other = paused(lambda: confirm(database.reopen(), "harmless"))
    approve(database.store, other)
    one, two = (database.row("call", f"id = '{each.id}'") for each in (first, other))
    database.sql("DELETE FROM call")
    for row, name in ((one, two), (two, one)):
        swapped = {**row, "id": name["id"], "key": name["key"], "n": name["n"]}
        names, marks = ", ".join(swapped), ", ".join("?" * len(swapped))
        database.sql(f"INSERT INTO call ({names}) VALUES ({marks})", *swapped.values())
    for name in (first.id, other.id):
        with pytest.raises(Tampered, match=name):
            Inbox(database.reopen()).get_sync(name)


def test_wrongly_indexed_row_is_not_listed(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """The columns of the lists have no MAC, and are compared with the row."""
    request = paused(lambda: confirm(database.store))
    Inbox(database.store).decide_sync(request.id, request.reject(), by="ana")
    database.sql("UPDATE call SET list_status = 'asked'")
    assert list(Inbox(database.reopen()).pending_sync()) == []
    assert f"{request.id} is indexed as something else" in caplog.text


def test_request_decided_during_a_search_is_left_out_silently(
    database: Database, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search reads numbers first and then their rows; a decision between them is no damage."""
    store = database.store
    request = paused(lambda: confirm(store))
    other = database.reopen()
    read = other._rows

    def read_late(statement: str, values: Sequence[Any] = ()) -> list[Any]:
        if ", n FROM call WHERE n IN (" in statement:
            Inbox(store).decide_sync(request.id, request.reject(), by="ana")
            monkeypatch.setattr(other, "_rows", read)
        return read(statement, values)

    monkeypatch.setattr(other, "_rows", read_late)
    assert list(Inbox(other).pending_sync(q="production")) == []
    assert Inbox(other).get_sync(request.id).status == "rejected"
    assert "left out" not in caplog.text


#: More bad pages than Python has frames, at two rows a page.
MANY = 2500


def copy_rows(database: Database, table: str, where: str, **prefixes: str) -> None:
    """Copy a row many times. The copies have the MAC of the row, and so a wrong one."""
    names = [name for name in database.columns(table) if name != "n"]
    values = [f"'{prefixes[name]}' || k" if name in prefixes else name for name in names]
    database.sql(
        f"INSERT INTO {table} ({', '.join(names)}) "
        f"WITH RECURSIVE c(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM c WHERE k < {MANY}) "
        f"SELECT {', '.join(values)} FROM {table}, c WHERE {where}"
    )


@pytest.mark.long
def test_changed_rows_do_not_hide_later_ones(database: Database) -> None:
    """Anyone who can write to the database could bury a request under them."""

    def asked(run: str) -> sayso.Request:
        gate = Gate(database.reopen(), wait=0)
        with gate.run(run):
            return paused(lambda: gate.confirm_sync("Go on?"))

    asked("first")
    database.sql("UPDATE call SET title = 'Go!'")
    copy_rows(database, "call", "run = 'first'", id="x", run="x", thread="x")
    copy_rows(database, "run", "id = 'first'", id="x", thread="x")
    copy_rows(database, "thread", "id = 'first'", id="a")
    behind = asked("second")
    store = database.reopen()
    assert [one.id for one in Inbox(store).pending_sync(limit=1)] == [behind.id]
    assert [run.id for _, run in store.runs(limit=2)] == ["second", "first"]
    assert [thread.id for thread in store.threads(limit=2)] == ["first", "second"]


@pytest.mark.timeout(30)
def test_negative_time_does_not_restart_paging(database: Database) -> None:
    for run in ("first", "second", "third"):
        gate = Gate(database.reopen(), wait=0)
        with gate.run(run):
            paused(lambda gate=gate: gate.confirm_sync("Go on?"))
    database.sql("UPDATE run SET created = -5 WHERE id <> 'third'")
    store = database.reopen()
    assert [run.id for _, run in store.runs(limit=3)] == ["third"]
    assert [run.id for _, run in store.runs(limit=2)] == ["third"]


@pytest.mark.parametrize("value", ["'soon'", "x'00'", "1.5", "1e300", "9e999", "-9e999", "-1"])
def test_malformed_expiry_hides_no_request(tmp_path: Path, value: str) -> None:
    """SQLite stores anything in a column of numbers."""
    store = SqliteStore(tmp_path / "sayso.db")
    gate = Gate(store, wait=0)
    for run in "abcdef":
        with gate.run(run):
            paused(lambda: gate.confirm_sync("Go on?", expires_in=60))
    with closing(sqlite3.connect(store.path)) as database:
        database.execute(f"UPDATE call SET expires_at = {value} WHERE run IN ('b', 'e')")
        database.commit()
    inbox = Inbox(store)
    for sort in ("oldest", "newest", "expiring"):
        for limit in range(1, 8):
            runs = {one.run for one in inbox.pending_sync(sort=sort, limit=limit)}
            assert len(runs) == min(limit, 4)
            assert runs <= set("acdf")
    store.close()


def covered(row: Any) -> str:
    """What the MAC of a row is made of."""
    return row_mac(row, bytes.hex)


def test_no_two_rows_have_the_same_mac() -> None:
    said = StoredMessage("thread", 1, "run", "body")
    effect = EffectKey("key", "call", "run", "thread", "agent", "ana", 1)
    run = Run("run", "thread", "agent", 1)
    rows: list[Any] = [
        *(said, effect, run),
        # a letter that moves from one field to the next
        said._replace(thread="threadr", run="un"),
        effect._replace(key="keyc", call="all"),
        # nothing, and an empty text or a zero
        run._replace(output=""),
        run._replace(output="."),
        run._replace(snapshot=""),
        run._replace(ready_at=0),
        # a number that moves
        run._replace(asked=1),
        run._replace(ready=1),
    ]
    assert len({covered(row) for row in rows}) == len(rows)


@pytest.mark.parametrize(
    "changes", [{"thread": 7}, {"thread": None}, {"seq": "1"}, {"seq": None}, {"body": b"body"}]
)
def test_column_of_wrong_type_has_no_mac(changes: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        covered(StoredMessage("thread", 1, "run", "body")._replace(**changes))
