"""What an exception says about the effect of a call."""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import http.client
import json
import multiprocessing
import smtplib
import socket
import ssl
import subprocess
import sys
import urllib.error
from email.message import Message
from typing import Any

import aiohttp
import httpx
import psycopg
import psycopg.errors
import pytest
import requests
import urllib3.exceptions

from sayso.errors import InDoubt, NotExecuted, SaysoError
from sayso.gate.failures import failure_of


class PaymentError(Exception):
    """An exception of a tool."""


class CardDeclined(PaymentError):
    """Nothing was paid."""


def sql_error(state: str) -> Exception:
    return psycopg.errors.lookup(state)("as the server says")


def named(package: str, name: str, base: type[Exception] = Exception) -> type[Exception]:
    """Return a class of a library that is not installed."""
    return type(name, (base,), {"__module__": package})


RpcError = named("grpc", "RpcError")


def rpc_error(code: str | None) -> Exception:
    class Code:
        name = code

    error = named("grpc.aio._call", "AioRpcError", RpcError)("no reply")
    if code is not None:
        error.code = Code  # type: ignore[attr-defined]
    return error


def http_error() -> Exception:
    return urllib.error.HTTPError("http://bank", 402, "no funds", Message(), None)


LOST: list[BaseException] = [
    TimeoutError("no reply"),
    ConnectionResetError("reset"),
    BrokenPipeError(),
    OSError(errno.EHOSTUNREACH, "no route to host"),
    asyncio.CancelledError(),
    asyncio.IncompleteReadError(b"", 4),
    concurrent.futures.CancelledError(),
    concurrent.futures.BrokenExecutor(),
    multiprocessing.TimeoutError(),
    socket.gaierror(),
    ssl.SSLEOFError(),
    http.client.RemoteDisconnected(),
    http.client.IncompleteRead(b""),
    urllib.error.URLError("no reply"),
    smtplib.SMTPServerDisconnected("closed"),
    subprocess.TimeoutExpired("pay", 3),
    httpx.ReadTimeout("no reply"),
    httpx.ConnectError("refused"),
    httpx.RemoteProtocolError("cut off"),
    requests.Timeout(),
    requests.ConnectionError(),
    requests.exceptions.ChunkedEncodingError(),
    urllib3.exceptions.ReadTimeoutError(None, "/", "no reply"),  # type: ignore[arg-type]
    aiohttp.ServerDisconnectedError(),
    aiohttp.ClientPayloadError(),
    psycopg.OperationalError("the connection is closed"),
    sql_error("40003"),  # statement completion unknown
    sql_error("57P01"),  # the server shuts down
    rpc_error(None),
    rpc_error("DEADLINE_EXCEEDED"),
    rpc_error("UNAVAILABLE"),
]
ERRORS: list[BaseException] = [
    ValueError("no"),
    json.JSONDecodeError("no reply", "", 0),
    OSError(errno.ENOENT, "no file"),
    FileNotFoundError(),
    httpx.HTTPStatusError("402", request=None, response=None),  # type: ignore[arg-type]
    httpx.InvalidURL("no"),
    requests.HTTPError(),
    http_error(),
    aiohttp.ClientResponseError(None, ()),  # type: ignore[arg-type]
    sql_error("40001"),  # serialization failure: rolled back
    sql_error("40P01"),  # deadlock: rolled back
    sql_error("23505"),
    rpc_error("INVALID_ARGUMENT"),
    rpc_error("ABORTED"),
    named("elsewhere", "TransportError")(),
    SaysoError("no"),
    PaymentError(),
]


def by_type(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__name__}"


@pytest.mark.parametrize("error", LOST, ids=by_type)
def test_lost_reply_is_recognised(error: BaseException) -> None:
    assert failure_of(error) == "lost"


@pytest.mark.parametrize("error", ERRORS, ids=by_type)
def test_other_exception_is_an_error(error: BaseException) -> None:
    assert failure_of(error) == "error"


def raised(error: BaseException, because: BaseException, *, explicit: bool) -> BaseException:
    """Return an exception that was raised because of another one."""
    try:
        try:
            raise because
        except BaseException as cause:
            if explicit:
                raise error from cause
            raise error  # noqa: B904
    except BaseException as whole:
        return whole


@pytest.mark.parametrize("explicit", [True, False])
@pytest.mark.parametrize(
    ("cause", "failure"),
    [(TimeoutError(), "lost"), (InDoubt("no reply"), "in_doubt"), (KeyError("x"), "error")],
)
def test_cause_of_an_exception_counts(cause: Exception, failure: str, explicit: bool) -> None:
    assert failure_of(raised(PaymentError(), cause, explicit=explicit)) == failure


def test_suppressed_cause_is_ignored() -> None:
    error = PaymentError()
    try:
        try:
            raise TimeoutError
        except TimeoutError:
            raise error from None
    except PaymentError:
        assert failure_of(error) == "error"


def test_cyclic_causes_end() -> None:
    one, two = ValueError(), KeyError()
    one.__cause__, two.__cause__ = two, one
    assert failure_of(one) == "error"


def test_exception_handled_by_the_caller_is_ignored() -> None:
    error = PaymentError()
    try:
        raise TimeoutError
    except TimeoutError:
        handled = sys.exception()
        try:
            raise error
        except PaymentError:
            assert failure_of(error) == "lost"
            assert failure_of(error, handled=handled) == "error"


@pytest.mark.parametrize("cause", [None, TimeoutError()])
def test_not_executed_is_certain(cause: Exception | None) -> None:
    for error in (NotExecuted("no funds"), CardDeclined()):
        whole = error if cause is None else raised(error, cause, explicit=True)
        assert failure_of(whole, (CardDeclined,)) == "not_executed"
    assert failure_of(CardDeclined()) == "error"
    assert failure_of(PaymentError(), (CardDeclined,)) == "error"


def test_cause_that_was_not_executed_is_not_certain() -> None:
    error = raised(PaymentError(), NotExecuted("no funds"), explicit=True)
    assert failure_of(error) == "error"


def test_not_executed_of_another_call_is_not_certain() -> None:
    error = NotExecuted("no funds")
    assert failure_of(error, inner=[error]) == "error"
    assert failure_of(error, inner=[NotExecuted("no funds")]) == "not_executed"


def test_rejected_doubt_of_another_call_is_an_error() -> None:
    request: Any = object()
    assert failure_of(InDoubt("given up", request)) == "error"
    assert failure_of(InDoubt("no reply")) == "in_doubt"


@pytest.mark.parametrize(
    ("parts", "failure"),
    [
        ([NotExecuted("a"), CardDeclined()], "not_executed"),
        ([NotExecuted("a"), ValueError()], "error"),
        ([ValueError(), ExceptionGroup("inner", [TimeoutError()])], "lost"),
        ([TimeoutError(), InDoubt("no reply")], "in_doubt"),
    ],
)
def test_exception_group_counts_as_its_worst_part(parts: list[Exception], failure: str) -> None:
    assert failure_of(ExceptionGroup("some", parts), (CardDeclined,)) == failure


def test_failure_check_imports_no_library() -> None:
    script = "import sys, sayso.gate.failures as f; f.failure_of(ValueError()); print(*sys.modules)"
    printed = subprocess.check_output([sys.executable, "-c", script], text=True).split()
    assert not {"httpx", "requests", "aiohttp", "grpc", "psycopg"} & set(printed)
