"""Classify the exception of a call: what it says about whether the effect happened.

An exception is not a promise that nothing happened: a payment that was made and whose reply was
lost ends in a ``TimeoutError`` like one that was never sent. Here it gets one of four names, by its
type alone; what that means for a call depends on its terms (``engine.running.leaves_doubt``).
Nothing is imported for this: the classes of other libraries are recognised by name among the base
classes of the exception.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from typing import Any

from sayso.errors import InDoubt, NotExecuted
from sayso.types import Failure

#: Time-outs, connection errors and cancellations, by top-level package and name. A subclass of one
#: of them is one too.
_LOST = {
    "builtins": {"TimeoutError", "ConnectionError"},
    "asyncio": {"CancelledError", "IncompleteReadError"},
    "concurrent": {"CancelledError", "BrokenExecutor"},
    "http": {"BadStatusLine", "IncompleteRead"},
    "multiprocessing": {"TimeoutError"},
    "smtplib": {"SMTPServerDisconnected"},
    "socket": {"gaierror", "herror"},
    "ssl": {"SSLError"},
    "subprocess": {"TimeoutExpired"},
    "urllib": {"URLError", "ContentTooShortError"},
    "httpx": {"TransportError"},
    "httpx2": {"TransportError"},
    "httpcore": {"TimeoutException", "NetworkError", "ProtocolError"},
    "requests": {"ConnectionError", "Timeout", "ChunkedEncodingError"},
    "urllib3": {"TimeoutError", "ProtocolError", "NewConnectionError", "MaxRetryError"},
    "aiohttp": {"ClientConnectionError", "ClientPayloadError"},
    "grpc": {"RpcError"},
    "psycopg": {"OperationalError"},
    "psycopg2": {"OperationalError"},
}
#: Subclasses of those that carry the other side's answer instead.
_ANSWERED = {"urllib": {"HTTPError"}}
#: An ``OSError`` with one of these is a lost connection without a class of its own.
_NETWORK_ERRORS = frozenset(
    getattr(errno, name)
    for name in ("ENETDOWN", "ENETUNREACH", "ENETRESET", "EHOSTDOWN", "EHOSTUNREACH", "ENOTCONN")
    if hasattr(errno, name)
)
#: The codes with which a gRPC server refuses a call. Any other code may be made by the channel.
_GRPC_REFUSALS = frozenset(
    {
        *("INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED"),
        *("UNAUTHENTICATED", "FAILED_PRECONDITION", "OUT_OF_RANGE", "UNIMPLEMENTED"),
        *("RESOURCE_EXHAUSTED", "ABORTED"),
    }
)
#: SQLSTATE class 40 means that the transaction was rolled back, except for this code.
_ROLLED_BACK = "40"
_COMPLETION_UNKNOWN = "40003"


def failure_of(
    error: BaseException,
    not_executed: Sequence[type[Exception]] = (),
    *,
    inner: Sequence[BaseException] = (),
    handled: BaseException | None = None,
) -> Failure:
    """Return what an exception of a call says about its effect.

    Only the exception itself can say that nothing happened: ``NotExecuted``, or one of the classes
    in ``not_executed``. ``inner`` are the exceptions of calls inside this one: ``NotExecuted``
    speaks only for the call that raised it. A lost reply counts even if the tool raised another
    exception because of it. ``handled`` is the exception that the caller was handling when it made
    the call: it is the context of everything that the call raises.
    """

    def nothing_happened(part: BaseException) -> bool:
        own = not any(part is other for other in inner)
        return isinstance(part, tuple(not_executed)) or (own and isinstance(part, NotExecuted))

    if all(map(nothing_happened, _parts(error))):
        return "not_executed"
    linked = list(_linked(error, handled))
    if any(isinstance(link, InDoubt) and link.request is None for link in linked):
        return "in_doubt"
    return "lost" if any(map(_is_lost, linked)) else "error"


def _parts(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, or those that a group consists of."""
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    for part in error.exceptions:
        yield from _parts(part)


def _linked(error: BaseException, handled: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception, its causes and contexts, and the parts of groups among them."""
    known_ids = {id(handled)}
    links = [error]
    while links:
        link = links.pop()
        if id(link) in known_ids:
            continue
        known_ids.add(id(link))
        yield link
        if isinstance(link, BaseExceptionGroup):
            links += link.exceptions
        if link.__cause__ is not None:
            links.append(link.__cause__)
        elif link.__context__ is not None and not link.__suppress_context__:
            links.append(link.__context__)


def _is_lost(error: BaseException) -> bool:
    """Return whether an exception is a time-out, a lost connection or a cancellation."""
    if _has_base(error, _ANSWERED):
        return False
    if not _has_base(error, _LOST):
        return isinstance(error, OSError) and error.errno in _NETWORK_ERRORS
    return not (_is_refused_by_grpc(error) or _is_rolled_back(error))


def _has_base(error: BaseException, names: dict[str, set[str]]) -> bool:
    return any(
        base.__name__ in names.get(base.__module__.partition(".")[0], ())
        for base in type(error).__mro__
    )


def _is_refused_by_grpc(error: Any) -> bool:
    try:
        return error.code().name in _GRPC_REFUSALS
    except Exception:
        return False  # it has no code, or none that can be read


def _is_rolled_back(error: Any) -> bool:
    """Return whether a database reports that it rolled the transaction back."""
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if not isinstance(state, str):
        return False
    return state.startswith(_ROLLED_BACK) and state != _COMPLETION_UNKNOWN
