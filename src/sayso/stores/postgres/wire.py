"""Talking to PostgreSQL: statements in its words, connections, and what its errors mean.

Nothing here depends on the state of a session: tables are named with their schema, settings last
for one transaction. So a pooler may stand in between that gives each transaction to another one.
"""

from __future__ import annotations

import os
import re
import select
import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import lru_cache
from itertools import count
from typing import Any
from weakref import WeakSet

import psycopg
from psycopg import errors, pq, sql
from psycopg.conninfo import conninfo_to_dict

from sayso.errors import Conflict, SaysoError, StoreError
from sayso.forking import call_in_child
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
