"""Connections to PostgreSQL: opening, pooling, pipelining, and what the server's errors mean.

Nothing here depends on the state of a session: statements name tables with their schema, and
settings last for one transaction. A pooler in transaction mode may sit in between.
"""

from __future__ import annotations

import os
import re
import select
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from itertools import count
from types import TracebackType
from typing import Any
from weakref import WeakSet

import psycopg
from psycopg import errors, pq, sql
from psycopg.adapt import Transformer
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from sayso.errors import Conflict, InvalidCall, SaysoError, StoreError
from sayso.forking import call_in_child, renew_in_child
from sayso.stores.row_checks import event_taken


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """One session, and what it has prepared: statements by their text."""

    #: Whether a parent process made it.
    inherited = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        _connections.add(self)
        self.used: dict[bytes, int] = {}
        self.names: dict[bytes, bytes] = {}
        self.numbers = count()
        #: Whether nobody wants to wait any longer.
        self.leaving: Callable[[], bool] = lambda: False

    def __del__(self, *_: Any) -> None:
        if not self.inherited:
            super().__del__()

    def check_life(self, silence: float) -> None:
        """An answer that takes long is waited for; a server that is frozen counts as lost."""
        if self.leaving() or (silence >= SILENCE and not lets_in(self.info)):
            raise psycopg.OperationalError(f"the server has not answered for {silence:.0f} s")


_connections: WeakSet[Connection] = WeakSet()
_inherited: list[Connection] = []


def _after_fork() -> None:
    """Lead the parent's connections nowhere, and keep them for ever.

    To close one would tell the server that its session is over. But the child's end of it is let go
    of, or the server would not notice the parent's death for as long as the child lives.
    """
    nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for connection in list(_connections):
        connection.inherited = True
        _inherited.append(connection)
        with suppress(psycopg.Error):  # closed already
            os.dup2(nowhere, connection.fileno(), inheritable=False)
    _connections.clear()
    os.close(nowhere)


call_in_child(_after_fork)


_TABLES = (
    *("meta", "thread", "message", "run", "call", "search_key", "search_word", "tool"),
    *("grants", "event", "seal", "principal", "cursor", "effect"),
)
_TABLE = re.compile(rf"\b(FROM|JOIN|INTO|UPDATE|TABLE) ({'|'.join(_TABLES)})\b")
_MARK = re.compile(r"\?")

#: Nothing was changed, and the same again may well succeed.
_PASSING = (
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.LockNotAvailable,
    errors.ReadOnlySqlTransaction,
)
#: A pooler gave the transaction to a session that does not know our prepared statements.
_UNPREPARED = (errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement)
#: What is said against the values of one statement.
_UNFIT = (psycopg.DataError, psycopg.ProgrammingError, errors.ProgramLimitExceeded)
#: Tables that were there are not, or not as they were.
GONE = (errors.UndefinedTable, errors.UndefinedColumn, errors.InvalidSchemaName)
#: With these a session ends: connection exceptions, and a server that shuts down.
_PARTING = ("080", "57P")
#: Classes of errors that trying again does not mend: who are you, what database.
_HOPELESS = ("28", "3D")
#: A machine that is gone says nothing; left alone, that is believed for a quarter of an hour.
_WATCHFUL = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
_CONNECT_TIMEOUT = "PGCONNECT_TIMEOUT"
#: How long an answer may take, in seconds, until the server is looked after.
SILENCE = 10.0
#: A server that is well lets somebody in within so many seconds, or says why not.
_AT_THE_DOOR = 5
#: And answers within so many; behind a pooler, others may have to be done first.
_FIRST_ANSWER = 10.0


Translate = Callable[[str], bytes]


def quoted(name: str) -> str:
    """A name as it stands in a statement, whatever letters it has."""
    return sql.Identifier(name).as_string()


def translator(schema: str) -> Translate:
    """A function that turns a statement of the common dialect into one of PostgreSQL's."""
    place = quoted(schema)

    @lru_cache(maxsize=1024)
    def translate(text: str) -> bytes:
        numbers = count(1)
        marked = _MARK.sub(lambda _: f"${next(numbers)}", text)
        return _TABLE.sub(lambda found: f"{found[1]} {place}.{found[2]}", marked).encode()

    return translate


def connect(url: str, *, prepare: bool) -> Connection:
    """A new connection; each statement is its own transaction until somebody says BEGIN."""
    said = {*conninfo_to_dict(url)}
    if _CONNECT_TIMEOUT in os.environ:
        said.add("connect_timeout")
    watchful: dict[str, Any] = {name: _WATCHFUL[name] for name in _WATCHFUL if name not in said}
    connection = Connection.connect(
        url,
        **watchful,
        autocommit=True,
        prepare_threshold=5 if prepare else None,
        cursor_factory=psycopg.RawCursor,
        client_encoding="utf8",
        fallback_application_name="sayso",
    )
    try:
        who = _answered(connection.pgconn, _FIRST_ANSWER)
        if who is None:
            raise psycopg.OperationalError("the server lets in, and does not answer: it is frozen")
    except BaseException:
        connection.close()
        raise
    # Something stands in between that shares its sessions out, if the process that answers is not
    # the one that greeted us. There, the names of prepared statements are not our own, and one of
    # ours may run somebody else's statement.
    if who != connection.info.backend_pid:
        connection.prepare_threshold = None
    return connection


def _answered(wire: pq.abc.PGconn, seconds: float) -> int | None:
    """The number of the process that answers a new connection; none if it says nothing in time,
    because it is frozen: a pooler in front of it lets everybody in all the same."""
    wire.send_query(b"SELECT pg_backend_pid()")
    wire.flush()
    end = time.monotonic() + seconds
    while wire.is_busy():
        left = end - time.monotonic()
        if left <= 0 or not came(wire.socket, left):
            return None
        wire.consume_input()
    said = wire.get_result()
    while wire.get_result() is not None:
        pass
    if said is None or said.status != pq.ExecStatus.TUPLES_OK:
        raise errors.error_from_result(said) if said else psycopg.OperationalError("it is gone")
    return int(said.get_value(0, 0) or 0)


def came(socket: int, seconds: float, *, room: bool = False) -> bool:
    """Whether something came within this time, or, with ``room``, more can be sent."""
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(socket, select.POLLIN | (select.POLLOUT if room else 0))
        return bool(poll.poll(seconds * 1000))
    return any(select.select([socket], [socket] if room else [], [], seconds))  # Windows


def lets_in(server: psycopg.ConnectionInfo) -> bool:
    """Whether a server speaks to who is new, be it to refuse: one that is frozen does not.

    A pooler in front of it does, so it is asked something, too.
    """
    there: dict[str, Any] = {"host": server.host, "port": server.port}
    if server.hostaddr:
        there["hostaddr"] = server.hostaddr
    there |= {"target_session_attrs": "any", "connect_timeout": _AT_THE_DOOR}
    with suppress(psycopg.Error):
        try:
            with closing(psycopg.connect(server.dsn, **there)) as new:
                return _answered(new.pgconn, _AT_THE_DOOR) is not None
        except errors.ConnectionTimeout:
            return False
    return True


def is_lost(error: BaseException, connection: Connection) -> bool:
    """Whether it was the connection that failed; then it is closed, whatever state it is in.

    Only an error that the server itself reports says that a transaction was refused, and not one
    with which it ends the session.
    """
    if not isinstance(error, psycopg.OperationalError):
        return False
    spoken = error.sqlstate is not None and error.sqlstate[:3] not in _PARTING
    if spoken and not (connection.closed or connection.broken):
        return False
    connection.close()
    return True


def is_passing(error: psycopg.Error) -> bool:
    """Whether nothing was changed, and trying again makes sense."""
    return isinstance(error, _PASSING)


def is_cut_short(error: psycopg.Error) -> bool:
    """Whether the server gave up on a statement for the time it took, as ``statement_timeout`` has
    it do. A change is small: it waited for somebody, and what is not recorded would be in doubt."""
    return isinstance(error, errors.QueryCanceled)


def is_unprepared(error: psycopg.Error) -> bool:
    """Whether prepared statements are of no use here."""
    return isinstance(error, _UNPREPARED)


def is_hopeless(error: psycopg.Error) -> bool:
    """Whether a connection will be refused the next time as well."""
    return (error.sqlstate or "")[:2] in _HOPELESS


#: One event in each place of a thread's chain.
_EVENT_PLACE = "event_thread_seq_key"


def explained(error: psycopg.Error, url: str) -> SaysoError:
    """What to tell the caller."""
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, GONE):
        return gone(error, url)
    if isinstance(error, errors.UniqueViolation) and error.diag.constraint_name == _EVENT_PLACE:
        return event_taken()
    if isinstance(error, errors.UniqueViolation):
        return Conflict(f"another live run or call is in the way: {text}")
    if isinstance(error, _UNFIT):
        return StoreError(f"that cannot be kept: {text}")
    return StoreError(f"{url} could not be read or written: {text}")


def gone(error: psycopg.Error, url: str) -> StoreError:
    """The error for tables that somebody has dropped or changed while they were in use."""
    text = str(error).strip().splitlines()[0]
    return StoreError(
        f"the tables of {url} were dropped or changed while this process used them ({text}): "
        "restore them from a backup, or restart every process to begin with an empty store"
    )


FIRST_NAP = 0.01
LONGEST_NAP = 0.5
#: How long a connection may rest while others are used: the server has only so many for everybody.
_REST = 30.0


class Pool:
    """Some connections, made when needed; a broken one is replaced when it is next asked for."""

    def __init__(self, connect: Callable[[], Connection], size: int, url: str) -> None:
        self._connect = connect
        self._size = size
        self._url = url
        self.closed = False
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        """Start without connections: those of a parent are not a forked child's."""
        self._free = threading.BoundedSemaphore(self._size)
        self._idle: list[Connection] = []
        self._rests_since: dict[Connection, float] = {}
        self._age = 0
        #: What the server calls each of our connections.
        self._pids: dict[Connection, int] = {}

    @contextmanager
    def connection(self, end: float) -> Iterator[Connection]:
        """A connection for a moment; until ``end``, a server that is away is waited for."""
        self._check_open()
        if not self._free.acquire(timeout=max(end - time.monotonic(), 0.0)):
            raise StoreError(
                f"all {self._size} connections to {self._url} are busy: open the store with a "
                "larger size=, or do less at once"
            )
        try:
            age = self._age
            connection = self._take(end)
            try:
                yield connection
            finally:
                self._give_back(connection, age)
        finally:
            self._free.release()

    def _check_open(self) -> None:
        if self.closed:
            raise StoreError(f"{self._url} is closed: open it again")

    def _take(self, end: float) -> Connection:
        nap = FIRST_NAP
        while True:
            self._check_open()  # who waits for a server that is away does not hold up the end
            while self._idle:
                with suppress(IndexError):  # another thread was faster
                    return self._idle.pop()
            try:
                made = self._connect()
                self._pids[made] = made.info.backend_pid
                return made
            except psycopg.Error as error:
                if is_hopeless(error) or time.monotonic() + nap > end:
                    raise StoreError(f"cannot connect to {self._url}: {error}") from error
                time.sleep(nap)
                nap = min(2 * nap, LONGEST_NAP)

    def _give_back(self, connection: Connection, age: int) -> None:
        """Keep a connection that is at rest; whatever it was in the middle of is undone."""
        try:
            if connection.info.transaction_status in (
                TransactionStatus.INTRANS,
                TransactionStatus.INERROR,
            ):
                connection.rollback()
            rests = connection.info.transaction_status == TransactionStatus.IDLE
        except psycopg.Error:
            rests = False
        if rests and not self.closed and age == self._age:
            self._rests_since[connection] = time.monotonic()
            self._idle.append(connection)
            self._close_rested()
        else:
            self._close(connection)

    def _close_rested(self) -> None:
        """The last one given back is the next one taken, so the first has rested longest."""
        with suppress(IndexError, KeyError):  # another thread was faster
            if time.monotonic() - self._rests_since[self._idle[0]] > _REST:
                self._close(self._idle.pop(0))

    def _close(self, connection: Connection) -> None:
        self._pids.pop(connection, None)
        self._rests_since.pop(connection, None)
        connection.close()

    def is_ours(self, pid: int) -> bool:
        """Whether the server knows one of our connections by this number."""
        return pid in tuple(self._pids.values())

    def renew(self) -> None:
        """Make new connections from now on: the server behind the old ones is another one."""
        self._age += 1
        self._drop_idle()

    def _drop_idle(self) -> None:
        while self._idle:
            with suppress(IndexError):
                self._close(self._idle.pop())

    def close(self) -> None:
        """Close what is at rest now, and the others when they are given back."""
        self.closed = True
        self._drop_idle()


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
