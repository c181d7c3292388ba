"""The routes for agents, as methods: open, wait, claim, renew, report, cancel."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Unpack
from urllib.parse import quote

from sayso.client.options import CallOptions, OpenOptions, body_of, fresh_terms, header_key
from sayso.client.reading import request_from
from sayso.client.wire import Wire
from sayso.errors import Conflict, InvalidCall
from sayso.gate.options import check_known
from sayso.twin import twin
from sayso.types import Json, Question, Request
from sayso.views import question_json

#: The longest that one poll asks the server to wait; proxies cut off what takes a minute.
LONGEST_POLL = 45.0
DEFAULT_PATIENCE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right to run one approved call once: its arguments, and the token of this attempt."""

    request: str
    tool: str | None
    args: Mapping[str, Json]
    token: int
    attempt: int
    #: The same for every attempt: give it to services that take an idempotency key.
    key: str
    lease: float
    #: When it was asked for, on this machine's monotonic clock: the lease counts from here.
    sent_at: float

    @property
    def lapsed(self) -> bool:
        """Whether it ended by this machine's own measure, without a sign of life."""
        return time.monotonic() >= self.sent_at + self.lease


class Client:
    """An agent's side of a server: ask, wait, claim what was approved, run it, report.

    ``token`` is a token with the role ``agent``. While the server is away, requests are sent again
    for ``patience`` seconds (None: for ever); nothing is asked or started twice by that.
    ``agent`` is a name for servers where nobody signs in.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        agent: str | None = None,
        patience: float | None = DEFAULT_PATIENCE,
    ) -> None:
        self._wire = Wire(url, token, patience)
        self._agent = agent
        self.url = self._wire.url

    # -- asking

    async def open(
        self, tool: str, args: Mapping[str, Json], **options: Unpack[CallOptions]
    ) -> Request:
        """Ask whether a tool may be called; under a key that was used, the request from before."""
        check_known(options, CallOptions)
        return await self._open({"tool": tool, "args": dict(args)}, options)

    async def ask(self, question: Question | str, **options: Unpack[OpenOptions]) -> Request:
        """Ask a person something; their answer is ``request.decision.value``."""
        check_known(options, OpenOptions)
        if isinstance(question, str):
            question = Question(question)
        if not isinstance(question, Question):
            raise InvalidCall("ask with a text or a sayso.Question", "question")
        return await self._open({"question": question_json(question)}, options)

    async def confirm(
        self,
        text: str,
        details: Mapping[str, Json] | None = None,
        **options: Unpack[OpenOptions],
    ) -> Request:
        """Ask yes or no about a text and its details."""
        check_known(options, OpenOptions)
        return await self._open({"text": text, "details": dict(details or {})}, options)

    async def _open(self, content: dict[str, Json], options: Mapping[str, Any]) -> Request:
        body = {**content, **body_of(options)}
        if self._agent is not None:
            body["agent"] = self._agent
        # A key also where the caller needs none, so that a lost answer opens nothing twice.
        key = options.get("key") or secrets.token_hex(16)
        answer = await self._wire.post("/api/requests", body, key=header_key(key))
        return request_from(answer.body)

    async def wait(self, request: str, timeout: float = LONGEST_POLL) -> Request:
        """The request once it is decided, or as it stands after so many seconds."""
        seconds = max(0.0, min(timeout, LONGEST_POLL))
        query = {"timeout": f"{seconds:.3f}"}
        answer = await self._wire.get(_path(request, "wait"), query, seconds)
        return request_from(answer.body)

    async def cancel(self, request: str, message: str = "") -> Request:
        """Call off a request of this agent that nobody has decided."""
        answer = await self._wire.post(_path(request, "cancel"), {"message": message})
        return request_from(answer.body)

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
        """Take an approved call: from here on it is reported, or in doubt; ``Conflict`` if not now.

        ``lease`` is how many seconds the claim holds without a renewal. The rest is what the call
        is here and now, which the server compares with what was approved.
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
        answer = await self._wire.post(_path(request, "claim"), body)
        body = answer.body
        return Claim(
            request=body["request"],
            tool=body["tool"],
            args=body["args"],
            token=body["token"],
            attempt=body["attempt"],
            key=body["key"],
            lease=body["lease"],
            sent_at=answer.sent_at,
        )

    async def renew(self, claim: Claim) -> bool:
        """Show a sign of life; false if the claim is not ours any more."""
        path = _path(claim.request, "renew")
        answer = await self._wire.post(path, _proof(claim), patience=claim.lease)
        return bool(answer.body["ours"])

    async def result(
        self, claim: Claim, value: Json = None, *, error: str | None = None
    ) -> Request:
        """Report what came of a claimed call: its result, or with ``error`` what went wrong."""
        ok = error is None
        body = {**_proof(claim), "ok": ok, "result": value if ok else error}
        try:
            answer = await self._wire.post(_path(claim.request, "result"), body)
        except Conflict:
            known = await self.wait(claim.request, 0)
            execution = known.execution
            said = ("done", value) if ok else ("failed", error)
            ours = execution.attempts == claim.attempt
            if ours and (execution.status, execution.result) == said:
                return known  # it was sent twice, because the answer to the first got lost
            raise
        return request_from(answer.body)

    async def report(
        self, claim: Claim, outcome: Literal["paused", "in_doubt", "not_kept"], why: str = ""
    ) -> Request:
        """Report an attempt that has no result: it asked people something and paused, it was cut
        short, or it ran and its result could not be stored."""
        body = {**_proof(claim), "outcome": outcome, "result": why}
        answer = await self._wire.post(_path(claim.request, "result"), body)
        return request_from(answer.body)

    async def close(self) -> None:
        """Close the connections."""
        await self._wire.close()

    # -- twins

    open_sync = twin(open)
    ask_sync = twin(ask)
    confirm_sync = twin(confirm)
    wait_sync = twin(wait)
    cancel_sync = twin(cancel)
    claim_sync = twin(claim)
    renew_sync = twin(renew)
    result_sync = twin(result)
    report_sync = twin(report)
    close_sync = twin(close)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: Any, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close_sync()


def _path(request: str, verb: str) -> str:
    return f"/api/requests/{quote(request, safe='')}/{verb}"


def _proof(claim: Claim) -> dict[str, Json]:
    return {"token": claim.token, "attempt": claim.attempt}
