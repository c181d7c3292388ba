"""Statements sent without waiting: large ones, refused ones, and a wait that is interrupted."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from pg_places import PgOpener, Place
from psycopg.pq import PipelineStatus, TransactionStatus

import sayso
from sayso.errors import InvalidCall
from sayso.stores.postgres import connections, transaction
from sayso.stores.postgres.connections import Connection, Pipeline, connect, translator
from sayso.testing import ScriptedModel, call, say
from sayso_testing.world import World


@pytest.fixture
def session(place: Place) -> Iterator[Connection]:
    with connect(place.url, prepare=True) as connection:
        yield connection


def pipe_on(connection: Connection) -> Pipeline:
    return Pipeline(connection, translator("nowhere"))


def ask(connection: Connection, text: str, *values: Any) -> list[Any]:
    with pipe_on(connection) as pipe:
        return pipe.send(text, values).fetchall()


def send_all(connection: Connection, *texts: str, then: Exception | None = None) -> None:
    with pipe_on(connection) as pipe:
        for text in texts:
            pipe.send(text, ())
        if then is not None:
            raise then
        pipe.receive()


def rests(connection: Connection) -> bool:
    wire = connection.pgconn
    idle = wire.transaction_status == TransactionStatus.IDLE
    return idle and wire.pipeline_status == PipelineStatus.OFF


def test_answers_come_in_the_order_of_the_statements(session: Connection) -> None:
    with pipe_on(session) as pipe:
        answers = [pipe.send("SELECT ?::bigint, ?::text", (n, f"n{n}")) for n in range(50)]
        made = pipe.send("CREATE TEMPORARY TABLE kept (n bigint)", ())
        added = pipe.send("INSERT INTO kept SELECT generate_series(1, ?::int)", (7,))
        assert added.rowcount == 7
        assert made.rowcount == -1
        assert [answer.fetchone() for answer in reversed(answers)] == [
            (n, f"n{n}") for n in reversed(range(50))
        ]
        assert pipe.send("SELECT n FROM kept WHERE n > ?", (9,)).fetchone() is None
    assert rests(session)


@pytest.mark.parametrize(
    "value", [None, "", "quo'te\\ ? $1 %s", "\u00e9\u6f22\U0001f600", "\u0001"]
)
def test_text_is_stored_unchanged(session: Connection, value: str | None) -> None:
    assert ask(session, "SELECT ?::text", value) == [(value,)]


def test_numbers_keep_their_size(session: Connection) -> None:
    numbers = (0, -1, 2**63 - 1, -(2**63))
    assert ask(session, "SELECT ?::bigint, ?::bigint, ?::bigint, ?::bigint", *numbers) == [numbers]
    with pytest.raises(psycopg.DataError, match="out of range"):
        ask(session, "SELECT ?::bigint", 2**63)
    assert rests(session)


def test_large_pipeline_does_not_deadlock(session: Connection) -> None:
    """More than the buffers of both ends hold, while the other end is writing as well."""
    large = "x" * 3_000_000
    with pipe_on(session) as pipe:
        answers = [pipe.send("SELECT ?::text", (large,)) for _ in range(8)]
        assert all(answer.fetchall() == [(large,)] for answer in answers)
    assert rests(session)


def test_nul_is_refused_without_truncation(open_pg: PgOpener) -> None:
    world = World(open_pg(), lambda: 0)  # type: ignore[arg-type]
    with pytest.raises(InvalidCall, match="NUL"):
        world.propose(says=("one\0two",))
    world.propose(says=("one",))
    assert world.store.messages("t") == [(1, "one")]


def test_nul_in_agent_text_is_replaced(open_pg: PgOpener) -> None:
    @sayso.tool(needs_approval=True)
    def fail() -> str:
        """Fail."""
        raise OSError("no \0 here")

    script = [call("fail", text="I \0 fail"), say("It \0 failed.")]
    agent = sayso.Agent("nul", model=ScriptedModel(script), tools=[fail], store=open_pg())
    paused = agent.run_sync("Try \0 it", thread="t")
    (request,) = paused.interruptions
    assert request.note == "I \ufffd fail"
    paused.state.approve(request, by="ana")
    ended = agent.resume_sync(paused.state)
    assert (ended.status, ended.output) == ("done", "It \ufffd failed.")
    (row,) = agent.store.calls_of(request.run)
    assert (row.status, row.result) == ("failed", "OSError: no \\x00 here")


def test_first_pipeline_error_is_raised(session: Connection) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        send_all(session, "SELECT 1", "SELECT 1 / 0", "SELECT nothing FROM nowhere")
    assert rests(session)
    assert ask(session, "SELECT 2") == [(2,)]


def test_unread_answers_are_discarded(session: Connection) -> None:
    with pytest.raises(ValueError, match="mine"):
        send_all(session, "SELECT 1", "SELECT 1 / 0", then=ValueError("mine"))
    assert rests(session)


# -- prepared statements


def prepared(connection: Connection) -> int:
    row = connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
    assert row is not None
    return int(row[0])


def test_frequent_statement_is_prepared_once(session: Connection) -> None:
    for n in range(20):
        assert ask(session, "SELECT ?::bigint + 1", n if n % 2 else None) == [
            (n + 1 if n % 2 else None,)
        ]
    assert prepared(session) == 1


def test_disabled_preparation_prepares_no_statement(place: Place) -> None:
    with connect(place.url, prepare=False) as session:
        for n in range(20):
            assert ask(session, "SELECT ?::bigint", n) == [(n,)]
        assert prepared(session) == 0


def test_failed_preparation_is_repeated(session: Connection) -> None:
    """It was sent after something that failed, so that the server never saw it."""
    threshold = session.prepare_threshold
    assert threshold is not None
    for _ in range(threshold):
        ask(session, "SELECT 3")
    with pytest.raises(psycopg.errors.DivisionByZero):
        send_all(session, "SELECT 1 / 0", "SELECT 3")
    for _ in range(3):
        assert ask(session, "SELECT 3") == [(3,)]
    assert prepared(session) == 1


def test_number_of_prepared_statements_is_limited(
    session: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_MAX_PREPARED", 3)
    monkeypatch.setattr(connections, "_MAX_COUNTED", 5)
    for _ in range(10):
        for n in range(4):
            assert ask(session, f"SELECT {n}, ?::bigint", n) == [(n, n)]
    assert prepared(session) == 3


# -- an interrupted wait


def test_wait_can_be_interrupted(
    open_pg: PgOpener, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while somebody else holds what is waited for: at once, and the next try is sound."""
    monkeypatch.setattr(transaction, "LOCK_MS", 120_000)  # the server does not give up before
    store = open_pg()
    world = World(store, lambda: 0)  # type: ignore[arg-type]
    world.ask(id="req_1")
    held = "SELECT pg_advisory_xact_lock(hashtextextended(%s || ':' || 't', 0))"
    with psycopg.connect(place.url) as other:
        other.execute(held, (store.incarnation,))
        timer = threading.Timer(
            0.5, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)
        )
        timer.start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            world.decide("req_1")
        assert time.monotonic() - began < 60
        timer.join()
    assert world.decide("req_1").status == "ready"
    world.check()
