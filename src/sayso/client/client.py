"""``Client``: the server's routes for agents as methods, with the HTTP transport below it.

The file continues with the options of a request, the parsing of replies, and ``Transport``.
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import ssl
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Unpack
from urllib.parse import quote, urlsplit
from weakref import WeakKeyDictionary

import httpx

from sayso import codec, errors
from sayso.errors import Conflict, InvalidCall, InvalidDecision, SaysoError, TooMany
from sayso.forking import renew_in_child
from sayso.gate.options import FunctionOptions, TermOptions, check_known, checked_string, terms_from
from sayso.rows import Call, CallStatus
from sayso.sync import on_loop, sync_twin
from sayso.types import (
    SETTABLE_TERMS,
    Decided,
    DecisionMade,
    Effect,
    Failure,
    Json,
    OnDuplicate,
    Question,
    Request,
    Terms,
    micros_of,
)
from sayso.views import question_json, request_from

#: The longest wait of one poll, in seconds. Proxies cut connections after about a minute.
LONGEST_POLL = 45.0
DEFAULT_PATIENCE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right to run one approved call once, with its arguments and the token of this attempt."""

    request: str
    tool: str | None
    args: Mapping[str, Json]
    token: int
    attempt: int
    #: An idempotency key for other services. The same for every attempt.
    key: str
    lease: float
    #: When the claim was sent, on this machine's monotonic clock. The lease counts from here.
    sent_at: float

    @property
    def lapsed(self) -> bool:
        """Whether the claim has lapsed by this machine's clock, without a renewal."""
        return time.monotonic() >= self.sent_at + self.lease


class Client:
    """The agent's side of a server: ask, wait, claim what was approved, run it, report.

    ``token`` has the role ``agent``. While the server is unreachable, requests are retried for
    ``patience`` seconds (``None``: forever); a retry never asks or starts anything twice. ``agent``
    names the agent on servers without sign-in.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        agent: str | None = None,
        patience: float | None = DEFAULT_PATIENCE,
    ) -> None:
        self._transport = Transport(url, token, patience)
        self._agent = agent
        self.url = self._transport.url

    # -- asking

    async def open(
        self, tool: str, args: Mapping[str, Json], **options: Unpack[CallOptions]
    ) -> Request:
        """Ask whether a tool may be called. The same ``key`` returns the same request."""
        check_known(options, CallOptions)
        return await self._open({"tool": tool, "args": dict(args)}, options)

    async def ask(self, question: Question | str, **options: Unpack[OpenOptions]) -> Request:
        """Ask a person a question. The answer is ``request.decision.value``."""
        check_known(options, OpenOptions)
        if isinstance(question, str):
            question = Question(question)
        if not isinstance(question, Question):
            raise InvalidCall("pass a text or a sayso.Question", "question")
        return await self._open({"question": question_json(question)}, options)

    async def confirm(
        self,
        text: str,
        details: Mapping[str, Json] | None = None,
        **options: Unpack[OpenOptions],
    ) -> Request:
        """Ask a person to approve a text with details."""
        check_known(options, OpenOptions)
        return await self._open({"text": text, "details": dict(details or {})}, options)

    async def _open(self, content: dict[str, Json], options: Mapping[str, Any]) -> Request:
        body = {**content, **body_of(options)}
        if self._agent is not None:
            body["agent"] = self._agent
        # Always send a key, so that a lost reply does not open a second request.
        key = options.get("key") or secrets.token_hex(16)
        answer = await self._transport.post("/api/requests", body, key=header_key(key))
        return request_from(answer.body)

    async def wait(self, request: str, timeout: float = LONGEST_POLL) -> Request:
        """Return the request once it is decided, or as it is after ``timeout`` seconds."""
        seconds = max(0.0, min(timeout, LONGEST_POLL))
        query = {"timeout": f"{seconds:.3f}"}
        answer = await self._transport.get(_path(request, "wait"), query, seconds)
        return request_from(answer.body)

    async def cancel(self, request: str, reason: str = "") -> Request:
        """Cancel a pending request of this agent."""
        return await self._post(request, "cancel", {"message": reason})

    # -- running

    async def claim(
        self,
        request: str,
        *,
        lease: float = 60.0,
        tool_digest: str | None = None,
        binds: Mapping[str, Json] | None = None,
        effect_key: str | None = None,
        terms: Mapping[str, Any] | None = None,
    ) -> Claim:
        """Claim an approved call. Report its outcome, or it will be in doubt.

        ``lease`` is how many seconds the claim holds without a renewal. The server compares the
        other arguments, the call's current terms, with what was approved. Raises ``Conflict`` if
        the call cannot be claimed now.
        """
        body: dict[str, Json] = {"lease": lease}
        if tool_digest is not None:
            body["tool_digest"] = tool_digest
        if binds is not None:
            body["binds"] = dict(binds)
        if effect_key is not None:
            body["effect_key"] = effect_key
        if own := fresh_terms(terms or {}):
            body["terms"] = own
        answer = await self._transport.post(_path(request, "claim"), body)
        names = ("request", "tool", "args", "token", "attempt", "key", "lease")
        return Claim(**{name: answer.body[name] for name in names}, sent_at=answer.sent_at)

    async def renew(self, claim: Claim) -> bool:
        """Renew a claim. Return False if it has been lost."""
        path = _path(claim.request, "renew")
        answer = await self._transport.post(path, _proof(claim), patience=claim.lease)
        return bool(answer.body["ours"])

    async def result(
        self,
        claim: Claim,
        value: Json = None,
        *,
        error: str | None = None,
        failure: Failure = "error",
    ) -> Request:
        """Report the result of a claimed call, or its ``error``.

        ``failure`` says what the error means for the effect: ``lost`` (a time-out or a lost
        connection), ``in_doubt`` (unknown), ``not_executed`` (nothing happened), or ``error``. The
        server decides whether the call has failed or is in doubt.
        """
        ok = error is None
        body = {**_proof(claim), "ok": ok, "result": value if ok else error}
        if not ok:
            body["failure"] = failure
        try:
            return await self._post(claim.request, "result", body)
        except Conflict:
            current = await self.wait(claim.request, 0)
            execution = current.execution
            statuses = ("done",) if ok else ("failed", "in_doubt")
            ours = execution.attempts == claim.attempt and execution.status in statuses
            if ours and execution.result == body["result"]:
                return current  # sent twice, because the first reply got lost
            raise

    async def report(
        self, claim: Claim, outcome: Literal["paused", "in_doubt", "not_kept"], why: str = ""
    ) -> Request:
        """Report an attempt without a result.

        It paused to ask a person, it was cut short, or it ran and its result cannot be stored.
        """
        body = {**_proof(claim), "outcome": outcome, "result": why}
        return await self._post(claim.request, "result", body)

    # -- calls that the agent runs itself, such as those of a coding agent with a hook

    async def release(self, request: str, caller: str) -> Request:
        """Take the approval of a call that this agent runs itself, opened with ``caller``.

        If ``execution.status`` is "released", run it with ``args``. Otherwise it was refused, or is
        still pending.
        """
        return await self._post(request, "release", {"caller": caller})

    async def defer(self, request: str, caller: str) -> Request:
        """Announce that the caller will ask again: opening the same call returns this request."""
        return await self._post(request, "defer", {"caller": caller})

    async def _post(self, request: str, verb: str, body: Mapping[str, Json]) -> Request:
        answer = await self._transport.post(_path(request, verb), body)
        return request_from(answer.body)

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    open_sync = sync_twin(open)
    ask_sync = sync_twin(ask)
    confirm_sync = sync_twin(confirm)
    wait_sync = sync_twin(wait)
    cancel_sync = sync_twin(cancel)
    claim_sync = sync_twin(claim)
    renew_sync = sync_twin(renew)
    result_sync = sync_twin(result)
    report_sync = sync_twin(report)
    release_sync = sync_twin(release)
    defer_sync = sync_twin(defer)
    close_sync = sync_twin(close)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close_sync()


def _path(request: str, verb: str) -> str:
    return f"/api/requests/{quote(request, safe='')}/{verb}"


def _proof(claim: Claim) -> dict[str, Json]:
    return {"token": claim.token, "attempt": claim.attempt}


# --- options of a request ---

#: The longest key that the server accepts in a header.
_MAX_KEY = 200


class OpenOptions(TermOptions, total=False):
    """Options of a request. Terms can only make the server's policy stricter."""

    #: What a person reads first, shown as the agent's words.
    title: str
    #: Identifies the request: opening it again under the same key returns it.
    key: str
    run: str
    thread: str
    requester: str


class CallOptions(OpenOptions, total=False):
    """Options of a tool call."""

    schema: Mapping[str, Json]
    returns: Mapping[str, Json] | None
    preview: Json
    #: Ask also where the default of the server's policy would allow the call.
    needs_approval: Literal[True]
    allowed: Iterable[str]
    effect: Effect
    #: Makes the effect unique for this agent: a template over the arguments.
    effect_key: str
    on_duplicate: OnDuplicate
    #: Facts about the environment that the approval covers. The claim sends them again.
    binds: Mapping[str, Json]
    #: For a call that this agent runs itself once it is released: ``use:`` and the id of the tool
    #: use, or ``args:`` and a hash of the call. The same call, made again, finds its open request.
    caller: str
    #: What a rejection of the call lasts for, if each call has its own run: a connection.
    session: str


class RemoteGuardOptions(FunctionOptions, total=False):
    """Options of ``RemoteGate.guard``."""

    #: Only ``True``: the server's policy decides which calls need no approval.
    needs_approval: Literal[True]


#: The terms that a claim sends again, because the code may have changed them.
_FRESH = ("reviewers", "quorum", "requester_decides", "assurance")
_UNCHECKED = (
    *("run", "thread", "requester", "schema", "returns", "preview", "needs_approval", "binds"),
    *("caller", "session"),
)


def fresh_terms(options: Mapping[str, Any]) -> dict[str, Json]:
    """Return what the code now requires of the people who decide."""
    body = body_of(options)
    return {name: body[name] for name in _FRESH if name in body}


def body_of(options: Mapping[str, Any]) -> dict[str, Json]:
    """Return the options, checked, as fields of the request body."""
    terms = terms_from(options)
    body: dict[str, Json] = {}
    for name in SETTABLE_TERMS:
        if options.get(name) is not None:
            value = getattr(terms, name)
            body[name] = list(value) if isinstance(value, tuple) else value
    if "risk" in body:
        body["risk"] = {"level": terms.risk.level, "reasons": list(terms.risk.reasons)}
    for name in ("title", "note", "description"):
        if options.get(name):
            body[name] = checked_string(options[name], name)
    body |= {name: options[name] for name in _UNCHECKED if options.get(name)}
    return body


def header_key(key: str) -> str:
    """Return the key for a header, hashed if a header cannot carry it."""
    fits = key.isascii() and key.isprintable() and key == key.strip() and len(key) <= _MAX_KEY
    return key if fits and key else f"sha256:{codec.sha256(key.encode('utf-8', 'surrogatepass'))}"


# --- reading replies ---


def row_of(request: Request) -> Call:
    """Return the part of a request's row that the driver uses.

    The digest, the nonce and the signatures stay on the server, which has verified them.
    """
    status = request.execution.status
    if status == "none":
        status = "asked" if request.status == "pending" else request.status
    return Call(
        id=request.id,
        run=request.run.removeprefix(f"{request.agent}/"),  # the name that the code here gave it
        thread=request.thread,
        key=request.id,
        kind=request.kind,
        agent=request.agent,
        tool=request.tool or "",
        tool_digest="",
        args=codec.canonical(dict(request.args)).decode(),
        args_hash="",
        nonce="",
        terms=Terms(effect=request.effect),
        created=micros_of(request.created_at),
        requester=request.requester,
        status=CallStatus(status),
        original=None if request.original is None else codec.dumps(request.original),
        written=None if request.written is None else codec.dumps(request.written),
        decision=None if request.decision is None else _decided(request.decision),
        attempt=request.execution.attempts,
        result=_stored(request, status),
        effect_key=request.effect_key,
    )


def _stored(request: Request, status: str) -> str | None:
    result = request.execution.result
    if status not in ("done", "responded"):
        return None if result is None else str(result)
    return codec.dumps(result) if request.execution.kept else None


def _decided(decision: DecisionMade) -> Decided:
    return Decided(
        type=decision.type,
        by=decision.by,
        at=micros_of(decision.at),
        channel=decision.channel,
        assurance=decision.assurance,
        digest="",
        signature="",
        message=decision.message,
        value=None if decision.value is None else codec.dumps(decision.value),
    )


# --- HTTP ---

#: Statuses after which the same request is sent again.
_RETRIED = frozenset({429, 502, 503, 504})
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 5.0
_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 30.0


class Unreachable(SaysoError):
    """The server could not be reached, or the reply is not from Sayso."""


class Reply(NamedTuple):
    """A reply's JSON, and when the request that it answers was sent."""

    body: Any
    sent_at: float


class Transport:
    """Sends requests to one server and retries those that get lost, sync or async.

    Every request may be sent twice: a key, a token or the method itself makes the second one a
    no-op. ``patience`` is how many seconds to retry without a reply; ``None`` is forever.
    """

    def __init__(self, url: str, token: str | None, patience: float | None) -> None:
        self.url = _checked_url(url)
        self._headers = (
            {} if token is None else {"authorization": f"Bearer {_checked_token(token)}"}
        )
        self._patience = patience
        self._inherited: list[Any] = []
        self._reset()
        renew_in_child(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._client: httpx.Client | None = None
        #: Connections belong to the event loop that opened them.
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = (
            WeakKeyDictionary()
        )
        self._tls: ssl.SSLContext | None = None

    def after_fork(self) -> None:
        """Keep the parent's connections open and unused, and open new ones."""
        self._inherited += [self._client, *self._clients.items()]
        self._reset()

    async def get(self, path: str, query: Mapping[str, Any], seconds: float = 0.0) -> Reply:
        """Send a GET. The server may take ``seconds`` longer than usual to reply."""
        return await self._send("GET", path, {"params": dict(query)}, seconds, self._patience)

    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        key: str | None = None,
        patience: float | None = None,
    ) -> Reply:
        """Send a POST. ``key`` makes it idempotent on the server."""
        headers = {"content-type": "application/json"}
        if key is not None:
            headers["idempotency-key"] = key
        content = json.dumps(dict(body), ensure_ascii=False, allow_nan=False).encode()
        options = {"content": content, "headers": headers}
        return await self._send("POST", path, options, 0.0, patience or self._patience)

    async def _send(
        self,
        method: str,
        path: str,
        options: dict[str, Any],
        seconds: float,
        patience: float | None,
    ) -> Reply:
        options["timeout"] = httpx.Timeout(
            _ANSWER_SECONDS + seconds, connect=_CONNECT_SECONDS, pool=None
        )
        ends = None if patience is None else time.monotonic() + patience + seconds
        pause = _FIRST_PAUSE
        while True:
            sent_at = time.monotonic()
            try:
                if on_loop():
                    response = await self._async_client().request(method, path, **options)
                else:
                    response = self._sync_client().request(method, path, **options)
            except httpx.TransportError as error:
                why = str(error) or type(error).__name__
                problem: SaysoError = Unreachable(
                    f"{self.url} cannot be reached ({why}): check the URL and that the server runs"
                )
            else:
                if response.is_success:
                    try:
                        return Reply(response.json(), sent_at)
                    except ValueError:
                        raise Unreachable(
                            f"{self.url} did not answer with JSON: check that this is the URL of "
                            "Sayso"
                        ) from None
                problem = self._error(response)
                if response.status_code not in _RETRIED:
                    raise problem
            rest = pause * random.uniform(0.5, 1.0)
            if isinstance(problem, TooMany):
                rest = max(rest, problem.wait or 0.0)
            if ends is not None and time.monotonic() + rest > ends:
                raise problem
            await sleep(rest)
            pause = min(pause * 2, _LONGEST_PAUSE)

    # -- answers

    def _error(self, response: httpx.Response) -> SaysoError:
        """Return the error that the server raised."""
        try:
            body = response.json()
            name = str(body["error"])
            message = str(body["message"])
        except (ValueError, KeyError, TypeError):
            where = response.headers.get("location")
            more = f", redirecting to {where}" if where else ""
            return Unreachable(
                f"{self.url} answered {response.status_code}{more}: check that this is the URL "
                "of Sayso"
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

    def _sync_client(self) -> httpx.Client:
        with self._lock:
            if self._client is None:
                self._client = httpx.Client(**self._settings())
            return self._client

    def _async_client(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._clients:
                self._clients[loop] = httpx.AsyncClient(**self._settings())
            return self._clients[loop]

    def _settings(self) -> dict[str, Any]:
        if self._tls is None:
            self._tls = httpx.create_ssl_context()
        return {
            "base_url": self.url,
            "headers": self._headers,
            "verify": self._tls,
            # Every waiting request holds a connection, however many there are.
            "limits": httpx.Limits(max_connections=None, max_keepalive_connections=20),
        }

    async def close(self) -> None:
        """Close the sync connections and those of the current event loop."""
        with self._lock:
            blocking = self._client
            self._client = None
            client = self._clients.pop(asyncio.get_running_loop(), None) if on_loop() else None
        if blocking is not None:
            blocking.close()
        if client is not None:
            await client.aclose()


async def sleep(seconds: float) -> None:
    """Sleep, on the event loop if there is one."""
    if on_loop():
        await asyncio.sleep(seconds)
    else:
        time.sleep(seconds)


def _checked_url(url: str) -> str:
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidCall(f"{url!r:.100} is not a server URL: use https://…", "url")
    if parts.username is not None:
        raise InvalidCall("remove the password from the URL and pass token=…", "url")
    return url.rstrip("/")


def _checked_token(token: str) -> str:
    token = token.strip()
    if not token.isascii() or not token.isprintable() or not token or " " in token:
        raise InvalidCall("this is not a token: pass what `sayso token create` printed", "token")
    return token


def _seconds(header: str | None) -> float | None:
    try:
        return None if header is None else float(header)
    except ValueError:
        return None
