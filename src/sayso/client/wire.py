"""HTTP to one server, in either colour: tried again while the server is away, errors as ours."""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import threading
import time
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import httpx

from sayso import errors
from sayso.errors import InvalidCall, InvalidDecision, SaysoError, TooMany
from sayso.forking import renew_in_child
from sayso.twin import on_loop

#: Answers that say "later": the same can be sent again.
_LATER = frozenset({429, 502, 503, 504})
_FIRST_NAP, _LONGEST_NAP = 0.2, 5.0
_CONNECT_SECONDS, _ANSWER_SECONDS = 10.0, 30.0


class Unreachable(SaysoError):
    """The server could not be reached, or answered with something that is not Sayso."""


class Answer(NamedTuple):
    """What the server said, and when the try that it answered was sent."""

    body: Any
    sent_at: float


class Wire:
    """Sends requests to one server; what is lost on the way is sent again for a while.

    Every request may be sent twice: a key, a token or the method itself makes the second one an
    echo. ``patience`` is how many seconds to go on while no answer comes; None is for ever.
    """

    def __init__(self, url: str, token: str | None, patience: float | None) -> None:
        self.url = _checked(url)
        self._headers = {} if token is None else {"authorization": f"Bearer {_word(token)}"}
        self._patience = patience
        self._inherited: list[Any] = []
        self._reset()
        renew_in_child(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._blocking: httpx.Client | None = None
        #: Connections belong to the loop that made them.
        self._on_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = (
            WeakKeyDictionary()
        )
        self._tls: ssl.SSLContext | None = None

    def after_fork(self) -> None:
        """Keep the parent's connections for ever, unused and open, and make new ones."""
        self._inherited += [self._blocking, *self._on_loops.items()]
        self._reset()

    async def get(self, path: str, query: Mapping[str, Any], seconds: float = 0.0) -> Answer:
        """Read; the server may take so many seconds longer than usual."""
        return await self._send("GET", path, {"params": dict(query)}, seconds, self._patience)

    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        key: str | None = None,
        patience: float | None = None,
    ) -> Answer:
        """Write; ``key`` makes the server see a second one as the first."""
        headers = {"content-type": "application/json"}
        if key is not None:
            headers["idempotency-key"] = key
        content = json.dumps(dict(body), ensure_ascii=False, allow_nan=False).encode()
        asked = {"content": content, "headers": headers}
        return await self._send("POST", path, asked, 0.0, patience or self._patience)

    async def _send(
        self,
        method: str,
        path: str,
        asked: dict[str, Any],
        seconds: float,
        patience: float | None,
    ) -> Answer:
        asked["timeout"] = httpx.Timeout(
            _ANSWER_SECONDS + seconds, connect=_CONNECT_SECONDS, pool=None
        )
        ends = None if patience is None else time.monotonic() + patience + seconds
        pause = _FIRST_NAP
        while True:
            sent_at = time.monotonic()
            try:
                response = await self._once(method, path, asked)
            except httpx.TransportError as error:
                problem: SaysoError = self._lost(error)
            else:
                if response.is_success:
                    return Answer(self._json(response), sent_at)
                problem = self._error(response)
                if response.status_code not in _LATER:
                    raise problem
            wanted = problem.wait if isinstance(problem, TooMany) else None
            rest = max(pause * random.uniform(0.5, 1.0), wanted or 0.0)
            if ends is not None and time.monotonic() + rest > ends:
                raise problem
            await nap(rest)
            pause = min(pause * 2, _LONGEST_NAP)

    async def _once(self, method: str, path: str, asked: dict[str, Any]) -> httpx.Response:
        if on_loop():
            return await self._awaited().request(method, path, **asked)
        return self._blocked().request(method, path, **asked)

    def _lost(self, error: httpx.TransportError) -> Unreachable:
        said = str(error) or type(error).__name__
        return Unreachable(f"{self.url} cannot be reached ({said}): is it running, is this its URL")

    # -- answers

    def _json(self, response: httpx.Response) -> Any:
        try:
            return response.json()
        except ValueError:
            raise Unreachable(
                f"{self.url} answered with something that is no JSON: is this Sayso's address"
            ) from None

    def _error(self, response: httpx.Response) -> SaysoError:
        """The error that the server raised, by its name."""
        try:
            body = response.json()
            name, message = str(body["error"]), str(body["message"])
        except (ValueError, KeyError, TypeError):
            where = response.headers.get("location")
            more = f" and points to {where}" if where else ""
            return Unreachable(
                f"{self.url} answered {response.status_code}{more}: is this Sayso's address"
            )
        kind = getattr(errors, name, None)
        if not isinstance(kind, type) or not issubclass(kind, SaysoError):
            return SaysoError(f"{message} ({name})")
        if issubclass(kind, InvalidCall | InvalidDecision):
            return kind(message, str(body.get("field") or ""))
        if issubclass(kind, TooMany):
            return kind(message, _seconds(response.headers.get("retry-after")))
        return kind(message)

    # -- connections

    def _blocked(self) -> httpx.Client:
        with self._lock:
            if self._blocking is None:
                self._blocking = httpx.Client(**self._settings())
            return self._blocking

    def _awaited(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._on_loops:
                self._on_loops[loop] = httpx.AsyncClient(**self._settings())
            return self._on_loops[loop]

    def _settings(self) -> dict[str, Any]:
        if self._tls is None:
            self._tls = httpx.create_ssl_context()
        return {
            "base_url": self.url,
            "headers": self._headers,
            "verify": self._tls,
            # Everything that waits has a connection of its own, however many that are.
            "limits": httpx.Limits(max_connections=None, max_keepalive_connections=20),
        }

    async def close(self) -> None:
        """Let go of the connections of this loop and of those that no loop has."""
        with self._lock:
            blocking, self._blocking = self._blocking, None
            here = self._on_loops.pop(asyncio.get_running_loop(), None) if on_loop() else None
        if blocking is not None:
            blocking.close()
        if here is not None:
            await here.aclose()


async def nap(seconds: float) -> None:
    """Do nothing for a while, in either colour."""
    if on_loop():
        await asyncio.sleep(seconds)
    else:
        time.sleep(seconds)


def _checked(url: str) -> str:
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidCall(f"{url!r:.100} is no address of a server: give https://…", "url")
    if parts.username is not None:
        raise InvalidCall("leave the password out of the address, and give token=…", "url")
    return url.rstrip("/")


def _word(token: str) -> str:
    word = token.strip()
    if not word.isascii() or not word.isprintable() or not word or " " in word:
        raise InvalidCall("this is no token: give what `sayso token create` printed", "token")
    return word


def _seconds(header: str | None) -> float | None:
    try:
        return None if header is None else float(header)
    except ValueError:
        return None
