"""Connections to PostgreSQL: opening, pooling, pipelining, and what the server's errors mean.

Nothing here depends on the state of a session: statements name tables with their schema, and
settings last for one transaction. A pooler in transaction mode may sit in between. The defaults of
a role or database are input: each transaction sets what a promise depends on
(``transaction_settings``), and ``Database`` refuses what a session may not set.
"""

from __future__ import annotations

import os
import re
import select
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from itertools import count
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any
from weakref import WeakSet

import psycopg
from psycopg import errors, pq, sql
from psycopg.adapt import Transformer
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from sayso.errors import Conflict, InvalidCall, SaysoError, StoreClosed, StoreError
from sayso.forking import call_in_child, renew_in_child
from sayso.stores.base import PoolUse
from sayso.stores.row_checks import event_taken


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """One session, with the statements it has prepared, by their text."""

    #: Whether a parent process opened it.
    inherited = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        _connections.add(self)
        self.used: dict[bytes, int] = {}
        self.names: dict[bytes, bytes] = {}
        self.numbers = count()
        #: The server's process that serves it, and since when a pool keeps it idle.
        self.pid = self.info.backend_pid
        self.idle_since = 0.0
        #: Returns whether the store is closing, so that nobody waits any longer.
        self.leaving: Callable[[], bool] = lambda: False

    def __del__(self, *_: Any) -> None:
        if not self.inherited:
            super().__del__()

    def check_life(self, silence: float) -> None:
        """Raise ``OperationalError`` if the server is frozen. A slow answer is fine."""
        if self.leaving() or (silence >= SILENCE and not answers(self.info)):
            raise psycopg.OperationalError(f"the server has not answered for {silence:.0f} s")


_connections: WeakSet[Connection] = WeakSet()
_inherited: list[Connection] = []


def _after_fork() -> None:
    """Point the parent's connections at /dev/null, and never close them.

    Closing one would end the parent's session on the server. But the child's copy of the socket
    must go, or the server would not notice the parent's death while the child lives.
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
    *("call_word", "request_group", "open_count", "offer"),
    *("grants", "refusal", "event", "seal", "person", "credential", "cursor", "effect"),
    *("delivery", "budget", "process"),
)
_TABLE = re.compile(rf"\b(FROM|JOIN|INTO|UPDATE|TABLE) ({'|'.join(_TABLES)})\b")
_MARK = re.compile(r"\?")

#: Nothing changed, and a retry may succeed.
TRANSIENT = (
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.LockNotAvailable,
    errors.ReadOnlySqlTransaction,
)
#: ``statement_timeout`` ended a statement. Writes are small, so it waited for a lock. Retry: a
#: result that is not recorded would leave its call in doubt.
TIMED_OUT = errors.QueryCanceled
#: A pooler moved the transaction to a session that does not have our prepared statements.
UNPREPARED = (errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement)
#: Errors about the values of one statement.
_UNFIT = (psycopg.DataError, psycopg.ProgrammingError, errors.ProgramLimitExceeded)
#: Tables were dropped or changed.
GONE = (errors.UndefinedTable, errors.UndefinedColumn, errors.InvalidSchemaName)
#: SQLSTATE prefixes that end a session: connection exceptions, and a server that shuts down.
_SESSION_ENDED = ("080", "57P")
#: SQLSTATE prefixes that a retry does not fix: wrong credentials, no such database.
_HOPELESS = ("28", "3D")
#: Notice a dead machine within seconds; the defaults of TCP take a quarter of an hour.
_TIMEOUTS = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}

#: How many seconds to wait for an answer before checking whether the server is frozen.
SILENCE = 10.0
#: A healthy server accepts or refuses a new connection within this many seconds.
_CONNECT_SECONDS = 5
#: A healthy server answers a first query within this many seconds, also behind a busy pooler.
_FIRST_ANSWER = 10.0


Translate = Callable[[str], bytes]

#: A transaction that reads after it locked must see what was committed until then. With any other
#: level it would read the state from before the lock, and take it for changed rows.
BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
#: A commit that was acknowledged survives a crash of the server. The only stronger level is kept.
DURABLE = (
    "pg_catalog.set_config('synchronous_commit', CASE "
    "pg_catalog.current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' "
    "ELSE 'on' END, true)"
)
_HAS_TRANSACTION_TIMEOUT = 170_000


@lru_cache(maxsize=16)
def transaction_settings(server_version: int, lock: int, idle: int, whole: int) -> str:
    """Return the columns of a SELECT that set what a transaction depends on until it ends.

    Milliseconds replace the time-outs of the session, 0 for none: to wait for a lock, to wait for
    the client, and for each statement and the whole transaction. A row that a policy of row
    security hides would be taken for a row that does not exist, so the server has to refuse.
    """
    values: list[tuple[str, object]] = [
        ("row_security", "off"),
        ("lock_timeout", lock),
        ("idle_in_transaction_session_timeout", idle),
        ("statement_timeout", whole),
    ]
    if server_version >= _HAS_TRANSACTION_TIMEOUT:
        # The server does not change a timer that runs: end it first.
        values += [("transaction_timeout", 0), ("transaction_timeout", whole)]
    columns = [f"pg_catalog.set_config('{name}', '{value}', true)" for name, value in values]
    return ", ".join((DURABLE, *columns))


def quoted(name: str) -> str:
    return sql.Identifier(name).as_string()


def translator(schema: str) -> Translate:
    """Return a function that translates a statement of the common dialect to PostgreSQL's."""
    prefix = quoted(schema)

    @lru_cache(maxsize=1024)
    def translate(text: str) -> bytes:
        numbers = count(1)
        marked = _MARK.sub(lambda _: f"${next(numbers)}", text)
        return _TABLE.sub(lambda found: f"{found[1]} {prefix}.{found[2]}", marked).encode()

    return translate


def connect(url: str, *, prepare: bool) -> Connection:
    """Open a connection in autocommit mode.

    Raises ``OperationalError`` if the server accepts the connection and then does not answer.
    """
    parameters = {*conninfo_to_dict(url)}
    if "PGCONNECT_TIMEOUT" in os.environ:
        parameters.add("connect_timeout")
    timeouts: dict[str, Any] = {
        name: _TIMEOUTS[name] for name in _TIMEOUTS if name not in parameters
    }
    connection = Connection.connect(
        url,
        **timeouts,
        autocommit=True,
        prepare_threshold=5 if prepare else None,
        cursor_factory=psycopg.RawCursor,
        client_encoding="utf8",
        fallback_application_name="sayso",
    )
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    try:
        pid = _answering_pid(connection.pgconn, _FIRST_ANSWER)
        if pid is None:
            raise psycopg.OperationalError("the server accepts connections but does not answer")
    except BaseException:
        connection.close()
        raise
    # If another process answers than the one that accepted the connection, a pooler shares its
    # sessions out. Names of prepared statements are then shared with other clients, and one of ours
    # could run another client's statement.
    if pid != connection.info.backend_pid:
        connection.prepare_threshold = None
    return connection


def _answering_pid(wire: pq.abc.PGconn, seconds: float) -> int | None:
    """Return the id of the process that answers; ``None`` if none does in time.

    A pooler in front of a frozen server still accepts connections, so only an answer counts.
    """
    wire.send_query(b"SELECT pg_backend_pid()")
    wire.flush()
    end = time.monotonic() + seconds
    while wire.is_busy():
        left = end - time.monotonic()
        if left <= 0 or not wait_for_socket(wire.socket, left):
            return None
        wire.consume_input()
    result = wire.get_result()
    while wire.get_result() is not None:
        pass
    if result is None:
        raise psycopg.OperationalError("the server closed the connection")
    if result.status != pq.ExecStatus.TUPLES_OK:
        raise errors.error_from_result(result)
    return int(result.get_value(0, 0) or 0)


def wait_for_socket(socket: int, seconds: float, *, writable: bool = False) -> bool:
    """Return whether there is something to read (or, with ``writable``, room to write) in time."""
    poll = select.poll()
    poll.register(socket, select.POLLIN | (select.POLLOUT if writable else 0))
    return bool(poll.poll(seconds * 1000))


def answers(server: psycopg.ConnectionInfo) -> bool:
    """Return whether a server answers a new connection, if only to refuse it.

    A frozen server does not. A pooler in front of one accepts the connection, so it must also
    answer a query.
    """
    address: dict[str, Any] = {"host": server.host, "port": server.port}
    if server.hostaddr:
        address["hostaddr"] = server.hostaddr
    address |= {"target_session_attrs": "any", "connect_timeout": _CONNECT_SECONDS}
    with suppress(psycopg.Error):
        try:
            with closing(psycopg.connect(server.dsn, **address)) as new:
                return _answering_pid(new.pgconn, _CONNECT_SECONDS) is not None
        except errors.ConnectionTimeout:
            return False
    return True


def is_lost(error: BaseException, connection: Connection) -> bool:
    """Return whether the connection failed, and close it if so.

    A transaction was refused only if the server reports an error and keeps the session.
    """
    if not isinstance(error, psycopg.OperationalError):
        return False
    reported = error.sqlstate is not None and error.sqlstate[:3] not in _SESSION_ENDED
    if reported and not (connection.closed or connection.broken):
        return False
    connection.close()
    return True


READ_ONLY = "use the address of the primary, and check default_transaction_read_only"
#: The constraint that keeps two events from the same position of a thread's chain.
_EVENT_POSITION = "event_thread_seq_key"


def explained(error: psycopg.Error, url: str) -> SaysoError:
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, GONE):
        return gone(error, url)
    if isinstance(error, errors.UniqueViolation):
        if error.diag.constraint_name == _EVENT_POSITION:
            return event_taken()
        return Conflict(f"this conflicts with another live run or call: {text}")
    if isinstance(error, _UNFIT) and not isinstance(error, errors.InsufficientPrivilege):
        return StoreError(f"the value cannot be stored: {text}")
    if isinstance(error, errors.ReadOnlySqlTransaction):
        text += f"; {READ_ONLY}"
    return StoreError(f"{url} could not be read or written: {text}")


def gone(error: psycopg.Error, url: str) -> StoreError:
    """Return the error for tables that were dropped or changed while in use."""
    text = str(error).strip().splitlines()[0]
    return StoreError(
        f"the tables of {url} were dropped or changed while this process used them ({text}): "
        "restore them from a backup, or restart every process to begin with an empty store"
    )


def took_one(places: list[None]) -> bool:
    """Take one of these places; return whether there was one."""
    try:
        places.pop()
    except IndexError:
        return False
    return True


FIRST_NAP = 0.01
LONGEST_NAP = 0.5
#: How many seconds a connection may be idle while others are in use: the server has few to share.
_MAX_IDLE = 30.0


class Pool:
    """A connection pool that opens connections on demand and raises what a connection is refused
    with.

    ``psycopg_pool`` retries a refused connection in the background and reports a timeout, so that a
    dropped store would not be noticed at once (``docs/decisions/0035``).
    """

    def __init__(self, connect: Callable[[], Connection], size: int, url: str) -> None:
        self._connect = connect
        self._size = size
        self._url = url
        self.closed = False
        #: How often callers had to wait for a connection, and for how long together.
        self._waits = 0
        self._waited_seconds = 0.0
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        """Start without connections: a forked child cannot use those of its parent."""
        self._places = [None] * self._size
        #: The callers that wait for a place, in the order of asking.
        self.waiting: deque[SimpleQueue[None]] = deque()
        self._idle: list[Connection] = []
        self._generation = 0
        self._open: set[Connection] = set()

    @contextmanager
    def connection(self, end: float) -> Iterator[Connection]:
        """Lend a connection; wait until ``end`` for a free one or for a server that is away."""
        self._check_open()
        if not self._take_place(end):
            raise StoreError(
                f"all {self._size} connections to {self._url} are busy: open the store with a "
                "larger size=, or do less at once"
            )
        try:
            generation = self._generation
            connection = self._take(end)
            try:
                yield connection
            finally:
                self._give_back(connection, generation)
        finally:
            self._give_back_place()

    def _take_place(self, end: float) -> bool:
        """Wait until ``end`` for permission to use a connection; return whether it was given.

        Callers are served in the order of asking. With a semaphore, a few busy OS threads take the
        place that they have just given back, and the others wait forever. There is no lock, because
        a finalizer may read from the store while its OS thread is in here.
        """
        if not self.waiting and took_one(self._places):
            return True
        place = SimpleQueue[None]()
        began = time.monotonic()
        self.waiting.append(place)
        self._hand_over()
        try:
            place.get(timeout=max(end - began, 0.0))
        except Empty:
            return not self._stop_waiting(place)
        except BaseException:  # an interrupt
            if not self._stop_waiting(place):
                self._give_back_place()
            raise
        finally:
            self._waits += 1
            self._waited_seconds += time.monotonic() - began
        return True

    def _stop_waiting(self, place: SimpleQueue[None]) -> bool:
        """Leave the queue. Return False if the place was given at the last moment."""
        try:
            self.waiting.remove(place)
        except ValueError:
            return False
        return True

    def _give_back_place(self) -> None:
        self._places.append(None)
        self._hand_over()

    def _hand_over(self) -> None:
        """Give free places to the callers that wait."""
        while self.waiting and took_one(self._places):
            try:
                self.waiting.popleft().put(None)
            except IndexError:  # the last one stopped waiting
                self._places.append(None)

    def _check_open(self) -> None:
        if self.closed:
            raise StoreClosed(f"{self._url} is closed: open it again")

    def _take(self, end: float) -> Connection:
        nap = FIRST_NAP
        while True:
            self._check_open()  # closing the store ends the wait for a server that is away
            while self._idle:
                with suppress(IndexError):  # another OS thread was faster
                    return self._idle.pop()
            try:
                connection = self._connect()
                self._open.add(connection)
                return connection
            except psycopg.Error as error:
                hopeless = (error.sqlstate or "")[:2] in _HOPELESS
                if hopeless or time.monotonic() + nap > end:
                    raise StoreError(f"cannot connect to {self._url}: {error}") from error
                time.sleep(nap)
                nap = min(2 * nap, LONGEST_NAP)

    def _give_back(self, connection: Connection, generation: int) -> None:
        """Roll back what the connection was in the middle of, and keep it if it is idle then."""
        try:
            if connection.info.transaction_status in (
                TransactionStatus.INTRANS,
                TransactionStatus.INERROR,
            ):
                connection.rollback()
            idle = connection.info.transaction_status == TransactionStatus.IDLE
        except psycopg.Error:
            idle = False
        if not idle or self.closed or generation != self._generation:
            self._close(connection)
            return
        connection.idle_since = time.monotonic()
        self._idle.append(connection)
        if self.closed:  # meanwhile
            self._drop_idle()
            return
        # The last one given back is the next one taken, so the first has been idle longest.
        with suppress(IndexError):  # another OS thread was faster
            if time.monotonic() - self._idle[0].idle_since > _MAX_IDLE:
                self._close(self._idle.pop(0))

    def _close(self, connection: Connection) -> None:
        self._open.discard(connection)
        connection.close()

    def use(self) -> PoolUse:
        """Return how the connections are used, for monitoring."""
        in_use = self._size - len(self._places)
        return PoolUse(
            self._size, in_use, len(self.waiting), self._waits, round(self._waited_seconds, 6)
        )

    def is_ours(self, pid: int) -> bool:
        """Return whether this server process serves one of our connections."""
        return any(connection.pid == pid for connection in tuple(self._open))

    def renew(self) -> None:
        """Replace all connections: the server behind them restarted or was replaced."""
        self._generation += 1
        self._drop_idle()

    def _drop_idle(self) -> None:
        while self._idle:
            with suppress(IndexError):
                self._close(self._idle.pop())

    def close(self) -> None:
        """Close idle connections now, and the others when they are given back."""
        self.closed = True
        self._drop_idle()


_DONE = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)
_NUL = b"\0"
#: How many statements are prepared on one connection; a few of them do nearly all of the work.
_MAX_PREPARED = 200
_MAX_COUNTED = 2000
#: How often a caller that waits for an answer checks the server, in seconds.
CHECK_SECONDS = 2.0


class Answer:
    """A reply that may not have arrived: reading it waits for everything sent so far."""

    def __init__(self, pipe: Pipeline) -> None:
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

    def __iter__(self) -> Iterator[Any]:
        return iter(self.fetchall())

    def _arrived(self) -> pq.abc.PGresult:
        if self.result is None:
            self._pipe.receive()
        assert self.result is not None, "the answers have been received"
        return self.result


class Pipeline:
    """Sends statements on one connection without waiting, in libpq's own calls.

    Values are sent as text, and the server infers their types, so one text is one prepared
    statement. A psycopg cursor costs several times as much CPU as the statement itself, and after a
    refusal psycopg's own pipeline uses prepared statements that the server never saw
    (``docs/decisions/0035``). psycopg still decodes the rows.
    """

    def __init__(self, connection: Connection, translate: Translate) -> None:
        self._connection = connection
        self._translate = translate
        self._wire = connection.pgconn
        self._reader = Transformer(connection)
        self._awaited: list[Answer] = []
        self._preparing: dict[bytes, Answer] = {}

    def __enter__(self) -> Pipeline:
        self._wire.enter_pipeline_mode()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the connection idle.

        An interrupt (Ctrl-C) does not wait for answers: the connection stays busy, and the pool
        closes it.
        """
        if error is None or isinstance(error, Exception):
            with suppress(psycopg.Error):  # an error that comes too late to matter
                if self._awaited:
                    self.receive()
            with suppress(psycopg.Error):  # a broken connection stays as it is
                self._wire.exit_pipeline_mode()

    def send(self, text: str, values: Sequence[Any]) -> Answer:
        """Send a statement of the common dialect; reading the answer waits for it.

        Raises ``InvalidCall``, ``UnicodeEncodeError`` or ``TypeError`` if a value cannot be stored.
        """
        encoded = [_as_text(value) for value in values]
        statement = self._translate(text)
        name = self._prepared(statement)
        if name is None:
            self._wire.send_query_params(statement, encoded)
        else:
            self._wire.send_query_prepared(name, encoded)
        return self._await()

    def _await(self) -> Answer:
        answer = Answer(self)
        self._awaited.append(answer)
        return answer

    def _prepared(self, statement: bytes) -> bytes | None:
        """Return the name of a statement that was used often enough to be prepared."""
        names = self._connection.names
        used = self._connection.used
        name = names.get(statement)
        threshold = self._connection.prepare_threshold
        if name is not None or threshold is None or len(names) >= _MAX_PREPARED:
            return name
        if len(used) >= _MAX_COUNTED:
            used.clear()
        used[statement] = times = used.get(statement, 0) + 1
        if times <= threshold:
            return None
        name = names[statement] = b"sayso_%d" % next(self._connection.numbers)
        self._wire.send_prepare(name, statement)
        self._preparing[statement] = self._await()
        return name

    def receive(self) -> None:
        """Wait for the answers to everything sent; raise the first refusal among them."""
        awaited = self._awaited
        self._awaited = []
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
        """Wait for the next result while the server lives; send what is unsent meanwhile."""
        wire = self._wire
        unsent = wire.flush()
        silence = 0.0
        while unsent or wire.is_busy():
            if not wait_for_socket(wire.socket, CHECK_SECONDS, writable=bool(unsent)):
                silence += CHECK_SECONDS
                self._connection.check_life(silence)
                continue
            silence = 0.0
            wire.consume_input()
            unsent = wire.flush() if unsent else 0
        return wire.get_result()

    def rows(self, result: pq.abc.PGresult) -> list[Any]:
        self._reader.set_pgresult(result)
        return self._reader.load_rows(0, result.ntuples, tuple)


def _as_text(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        text = value.encode()
        if _NUL in text:
            raise InvalidCall("PostgreSQL stores no text with a NUL character: remove it")
        return text
    if isinstance(value, int):
        return b"%d" % value
    raise TypeError(f"no column stores a {type(value).__name__}")
