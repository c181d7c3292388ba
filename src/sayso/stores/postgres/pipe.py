"""Statements sent one after the other without waiting, in the calls of libpq itself.

A cursor of the driver costs several times what the statement does, in this process, and a
transaction has about ten. So values are sent as text whose types the server works out, which also
makes one prepared statement of each text. Rows are still read by the driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

import psycopg
from psycopg import errors, pq
from psycopg.adapt import Transformer

from sayso.errors import InvalidCall
from sayso.stores.postgres.wire import Connection, Translate, came

_DONE = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)
_NUL = b"\0"
#: So many statements are prepared on one connection; few take part in nearly all of the work.
_MOST = 200
_MOST_COUNTED = 2000
#: Who waits for an answer looks up after so many seconds.
LOOK_UP = 2.0


class Answer:
    """A reply that may still be on its way: reading it waits for all that was sent so far."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self.result: pq.abc.PGresult | None = None

    @property
    def rowcount(self) -> int:
        rows = self._arrived().command_tuples
        return -1 if rows is None else rows

    def fetchone(self) -> Any:
        rows = self.fetchall()
        return rows[0] if rows else None

    def fetchall(self) -> list[Any]:
        return self._pipe.rows(self._arrived())

    def _arrived(self) -> pq.abc.PGresult:
        if self.result is None:
            self._pipe.receive()
        assert self.result is not None, "the answers have been received"
        return self.result


class Pipe:
    """A way to send statements on one connection, as long as the ``with`` lasts."""

    def __init__(self, connection: Connection, translate: Translate) -> None:
        self._connection = connection
        self._translate = translate
        self._wire = connection.pgconn
        self._reader = Transformer(connection)
        self._awaited: list[Answer] = []
        self._preparing: dict[bytes, Answer] = {}

    def __enter__(self) -> Pipe:
        self._wire.enter_pipeline_mode()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the connection at rest. Whoever is interrupted waits for nothing: such a
        connection is in the middle of something, and is not used again."""
        if error is None or isinstance(error, Exception):
            with suppress(psycopg.Error):  # whatever it is, it came too late to matter
                if self._awaited:
                    self.receive()
            with suppress(psycopg.Error):  # a broken one stays as it is
                self._wire.exit_pipeline_mode()

    def send(self, text: str, values: Sequence[Any]) -> Answer:
        """Send a statement of the common dialect; its answer is waited for when it is read."""
        statement = self._translate(text)
        sent = [_sent(value) for value in values]
        name = self._prepared(statement)
        if name is None:
            self._wire.send_query_params(statement, sent)
        else:
            self._wire.send_query_prepared(name, sent)
        return self._await()

    def _await(self) -> Answer:
        answer = Answer(self)
        self._awaited.append(answer)
        return answer

    def _prepared(self, statement: bytes) -> bytes | None:
        """The name of a statement that was used often enough to be prepared."""
        names, used = self._connection.names, self._connection.used
        name = names.get(statement)
        if name is not None or self._connection.prepare_threshold is None or len(names) >= _MOST:
            return name
        if len(used) >= _MOST_COUNTED:
            used.clear()
        used[statement] = times = used.get(statement, 0) + 1
        if times <= self._connection.prepare_threshold:
            return None
        name = names[statement] = b"sayso_%d" % next(self._connection.numbers)
        self._wire.send_prepare(name, statement)
        self._preparing[statement] = self._await()
        return name

    def receive(self) -> None:
        """Wait for the answers to all that was sent; the first refusal among them is raised."""
        awaited, self._awaited = self._awaited, []
        self._wire.pipeline_sync()
        refused: pq.abc.PGresult | None = None
        for answer in awaited:
            answer.result = result = self._next()
            if refused is None and result.status not in _DONE:
                refused = result
            self._got()  # the end of this answer
        self._next()  # the end of them all
        if refused is not None:
            for statement, answer in self._preparing.items():
                if answer.result is None or answer.result.status not in _DONE:
                    del self._connection.names[statement]
            raise errors.error_from_result(refused)
        self._preparing.clear()

    def _next(self) -> pq.abc.PGresult:
        result = self._got()
        if result is None:
            raise psycopg.OperationalError("the server closed the connection")
        return result

    def _got(self) -> pq.abc.PGresult | None:
        """What comes next, waited for while the server lives; what is left is sent meanwhile."""
        wire = self._wire
        unsent = wire.flush()
        silence = 0.0
        while unsent or wire.is_busy():
            if not came(wire.socket, LOOK_UP, room=bool(unsent)):
                silence += LOOK_UP
                self._connection.check_life(silence)
                continue
            silence = 0.0
            wire.consume_input()
            unsent = wire.flush() if unsent else 0
        return wire.get_result()

    def rows(self, result: pq.abc.PGresult) -> list[Any]:
        """The rows of an answer."""
        self._reader.set_pgresult(result)
        return self._reader.load_rows(0, result.ntuples, tuple)


def _sent(value: Any) -> bytes | None:
    """A value as text."""
    if value is None:
        return None
    if isinstance(value, str):
        text = value.encode()
        if _NUL in text:
            raise InvalidCall("PostgreSQL keeps no text with a NUL character: leave it out")
        return text
    if isinstance(value, int):
        return b"%d" % value
    raise TypeError(f"a {type(value).__name__} is not kept in a column")
