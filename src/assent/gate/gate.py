"""The door for agents, and for any code: check, ask, wait, run once."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import secrets
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, overload

from assent import codec, text
from assent.engine.commands import Cancel
from assent.errors import InvalidCall, NotFound, Rejected
from assent.gate.calls import CallLife, Plan
from assent.gate.judge import judge
from assent.gate.policies import PolicyInForce
from assent.gate.scope import RunScope, current
from assent.policy import Policy, Predicate, allowed_decisions, seconds
from assent.rows import Call, Tool
from assent.stores import open_store
from assent.stores.base import Store
from assent.twin import drive, hop, run_sync
from assent.types import Json, Question, Request, Risk, Terms, ToolCall, Verdict, moment
from assent.views import question_json

log = logging.getLogger("assent.gate")

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
Channel = Callable[[Request], Awaitable[None]]


class _Unset:
    """Tells "not given" from ``None``, which means "for ever"."""


UNSET = _Unset()
Wait = float | None | _Unset
DEFAULT_LEASE = 30.0


class Gate:
    """Ask before acting, ask a person something, and run what was approved once.

    ``store`` is a URL or a store. ``policy`` is a ``Policy`` or the path of a TOML file. ``wait`` says how
    long a call waits for people: ``None`` for ever, ``0`` not at all (``Paused`` is raised at once); the
    default is ``None`` in a terminal and ``0`` elsewhere. ``channels`` are async callables that get each
    new request to somebody.
    """

    def __init__(
        self,
        store: str | Store = "memory://",
        *,
        policy: Policy | str | Path | None = None,
        agent: str = "gate",
        wait: Wait = UNSET,
        channels: Iterable[Channel] = (),
        lease: float = DEFAULT_LEASE,
    ) -> None:
        self.store = open_store(store)
        self.agent = agent
        self.channels = tuple(channels)
        self.lease = lease
        self.lease_micros = round(lease * 1_000_000)
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self.closed = False
        self._has_policy = policy is not None
        self._policy = PolicyInForce(policy, self.store)
        self._wait = _default_wait() if isinstance(wait, _Unset) else _checked_wait(wait)

    def run(self, name: str, *, requester: str = "") -> RunScope:
        """Name the run that the calls inside ``with`` or ``async with`` belong to."""
        return RunScope(self, name, requester)

    # -- guarding functions

    @overload
    def guard(self, function: F, /) -> F: ...
    @overload
    def guard(self, function: None = None, /, **options: Any) -> Callable[[F], F]: ...
    def guard(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        needs_approval: bool | Predicate | None = None,
        name: str | None = None,
        description: str | None = None,
        allowed: Iterable[str] | None = None,
        reviewers: Iterable[str] = (),
        quorum: int = 1,
        requester_decides: bool = True,
        expires_in: float | None = None,
        on_expiry: str = "reject",
        valid_for: float = 86_400.0,
        risk: Risk | str = "low",
        assurance: str = "code",
        idempotent: bool = False,
        version: str = "",
        binds: Callable[[], Mapping[str, Json]] | None = None,
        preview: Callable[..., Json] | None = None,
        note: str = "",
        wait: Wait = UNSET,
    ) -> Any:
        """Ask before this function runs. Without ``needs_approval`` the policy decides, and where the
        gate has none, every call is asked about."""
        from assent.gate.guard import Guard, tool_of  # brings pydantic
        from assent.schema import Signature

        terms = _terms(
            allowed=None if allowed is None else allowed_decisions(allowed),
            reviewers=(reviewers,) if isinstance(reviewers, str) else tuple(reviewers),
            quorum=quorum,
            requester_decides=requester_decides,
            expires_in=seconds(expires_in, "expires_in"),
            on_expiry=on_expiry,
            valid_for=seconds(valid_for, "valid_for"),
            risk=risk if isinstance(risk, Risk) else Risk(risk),
            assurance=assurance,
            idempotent=idempotent,
        )

        def decorate(target: Callable[..., Any]) -> Callable[..., Any]:
            signature = Signature.of(target, name=name, description=description)
            return Guard(
                gate=self,
                function=target,
                signature=signature,
                tool=tool_of(signature, version),
                own=terms,
                needs_approval=(not self._has_policy if needs_approval is None else needs_approval),
                binds=binds,
                preview=preview,
                note=note,
                wait=self._wait_of(wait),
            ).wrap()

        return decorate if function is None else decorate(function)

    # -- asking

    async def ask(self, question: Question | str, *, wait: Wait = UNSET, **terms: Any) -> Any:
        """Ask a person something and give the answer; ``Rejected`` if they will not answer.

        ``terms`` may hold reviewers, quorum, expires_in, on_expiry, requester_decides, assurance, note, key.
        """
        if isinstance(question, str):
            question = Question(question)
        if not isinstance(question, Question):
            raise InvalidCall("ask with a text or an assent.Question", "question")
        if question.schema is not None:
            from assent import schema

            schema.check_schema(question.schema)
        content = question_json(question)
        return await self._put("question", content, ("respond", "reject"), wait, terms)

    async def approve(
        self,
        text: str,
        details: Mapping[str, Json] | None = None,
        *,
        wait: Wait = UNSET,
        **terms: Any,
    ) -> bool:
        """Ask yes or no about a text and its details, which are both in the digest."""
        if not isinstance(text, str) or not text.strip():
            raise InvalidCall("say what is to be approved", "text")
        content = {"text": text, "details": dict(details or {})}
        try:
            await self._put("approval", content, ("approve", "reject"), wait, terms)
        except Rejected:
            return False
        return True

    async def _put(
        self,
        kind: str,
        content: dict[str, Json],
        allowed: tuple[str, ...],
        wait: Wait,
        options: dict[str, Any],
    ) -> Any:
        note, key = options.pop("note", ""), options.pop("key", None)
        own = _terms(allowed=allowed, verdict=Verdict.ASK, rule=kind, **_plain(options))
        scope = current(self)
        data = codec.canonical(content)
        name = key or f"{kind}:{codec.sha256(data)[:32]}"

        async def terms(_: dict[str, Any]) -> Terms:
            return own

        plan = Plan(
            key=name if key else f"{name}#{scope.nth(name)}",
            kind=kind,
            args=data.decode(),
            terms=terms,
            note=note,
            wait=self._wait_of(wait),
        )
        return await CallLife(self, scope, plan).outcome()

    async def once(self, key: str, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run this step of a named run once; later entries of the run get its stored result."""
        scope = current(self)
        if scope.alone:
            raise InvalidCall(
                "once() belongs into a named run: with gate.run('order-17'): ...", "run"
            )

        async def terms(_: dict[str, Any]) -> Terms:
            return _terms(verdict=Verdict.ALLOW, rule="once")

        async def effect(call: Call) -> tuple[Any, str]:
            value: Any = function(*args, **kwargs)
            if inspect.isawaitable(value):
                waiting = value
                value = await drive(lambda: _awaited(waiting))
            return value, codec.canonical(value).decode()

        face = codec.dumps({"parameters": {}, "returns": None})
        plan = Plan(
            key=f"once:{key}",
            kind="approval",
            args=codec.canonical({"key": key}).decode(),
            terms=terms,
            tool=Tool(digest=codec.digest({"once": key}), name="once", schema=face),
            tool_name="once",
            effect=effect,
            wait=self._wait,
        )
        result: T = await CallLife(self, scope, plan).outcome()
        return result

    async def cancel(self, run: str, *, by: str = "code", reason: str = "") -> None:
        """Call off a run: what has not started never will; what runs finishes and is recorded."""
        await hop(self._stop, run, by, reason, False)

    async def supersede(self, run: str, *, by: str = "code", reason: str = "") -> None:
        """End a run because newer input took its place."""
        await hop(self._stop, run, by, reason or "newer input", True)

    def _stop(self, name: str, by: str, reason: str, superseded: bool) -> None:
        run = self.store.run(name)
        if run is None:
            raise NotFound(f"no run {name!r}")
        self.store.transact(
            Cancel(thread=run.thread, run=run.id, by=by, reason=reason, superseded=superseded)
        )

    # -- twins

    def ask_sync(self, question: Question | str, **options: Any) -> Any:
        return run_sync(self.ask(question, **options))

    def approve_sync(
        self, text: str, details: Mapping[str, Json] | None = None, **options: Any
    ) -> bool:
        return run_sync(self.approve(text, details, **options))

    def once_sync(self, key: str, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        return run_sync(self.once(key, function, *args, **kwargs))

    def cancel_sync(self, run: str, **options: Any) -> None:
        run_sync(self.cancel(run, **options))

    def supersede_sync(self, run: str, **options: Any) -> None:
        run_sync(self.supersede(run, **options))

    # -- for the life of a call

    async def judge(self, call: ToolCall, own: Terms, needs_approval: bool | Predicate) -> Terms:
        """What the policy in force says of a call."""
        policy = self._policy.current()
        now = moment(self.store.now())
        return await judge(
            policy.judge(call, agent=self.agent, now=now, own=own, needs_approval=needs_approval)
        )

    def tell(self, request: Request, patience: float) -> bool:
        """Hand a request to the channels, each in a thread of its own; true if any was told."""
        if not self.channels:
            _hint(request)
            return False
        threads = [
            threading.Thread(target=_deliver, args=(channel, request), daemon=True)
            for channel in self.channels
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(patience)
        return True

    def _wait_of(self, wait: Wait) -> float | None:
        return self._wait if isinstance(wait, _Unset) else _checked_wait(wait)

    def close(self) -> None:
        """Let go of the store."""
        self.closed = True
        self.store.close()


async def _awaited(value: Awaitable[T]) -> T:
    return await value


def _deliver(channel: Channel, request: Request) -> None:
    try:
        asyncio.run(_awaited(channel(request)))
    except Exception as error:
        log.warning("request %s: a channel failed: %s: %s", request.id, type(error).__name__, error)


def _in_terminal() -> bool:
    try:
        return sys.stdin.isatty() and sys.stderr.isatty()
    except (AttributeError, ValueError):
        return False


def _default_wait() -> float | None:
    return None if _in_terminal() else 0.0


def _checked_wait(wait: float | None) -> float | None:
    if wait is not None and (
        isinstance(wait, bool) or not isinstance(wait, int | float) or wait < 0
    ):
        raise InvalidCall(
            f"wait={wait!r}: give seconds, 0 to pause at once, or None for ever", "wait"
        )
    return wait


def _hint(request: Request) -> None:
    if _in_terminal():
        what = text.inline(request.tool or request.kind)
        print(f"assent: {what} waits for a person: assent show {request.id}", file=sys.stderr)


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    known = {
        "reviewers",
        "quorum",
        "expires_in",
        "on_expiry",
        "requester_decides",
        "assurance",
        "risk",
    }
    unknown = set(options) - known - {"description"}
    if unknown:
        raise TypeError(f"unexpected {', '.join(sorted(unknown))}; use {', '.join(sorted(known))}")
    values = dict(options)
    if isinstance(values.get("reviewers"), str):
        values["reviewers"] = (values["reviewers"],)
    if "reviewers" in values:
        values["reviewers"] = tuple(values["reviewers"])
    if isinstance(values.get("risk"), str):
        values["risk"] = Risk(values["risk"])
    if "expires_in" in values:
        values["expires_in"] = seconds(values["expires_in"], "expires_in")
    return values


def _terms(**values: Any) -> Terms:
    """Terms made of what was given; the rest keeps its default."""
    given = {name: value for name, value in values.items() if value is not None}
    return Terms(**given)
