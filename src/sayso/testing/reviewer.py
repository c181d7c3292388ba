"""Reviewers for tests: one with a real token, and one that follows a script."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from sayso.errors import SaysoError
from sayso.inbox import Inbox, authenticate, create_token
from sayso.inbox.directory import new_link, sign_in
from sayso.inbox.people import authenticate_session
from sayso.stores.base import Store
from sayso.types import Decision, Request, Reviewer

#: A decision, a function from the request to a decision, or ``None`` to leave it pending.
Answer: TypeAlias = (
    Decision | Callable[[Request], Decision | Awaitable[Decision | None] | None] | None
)

#: How long ``decided`` and ``errors`` wait for answers that are being given.
_WAIT_SECONDS = 5.0


def person(
    store: Store, name: str, *groups: str, role: str | None = None, assurance: str = "token"
) -> Reviewer:
    """Return an authenticated reviewer, to pass as ``by=``.

    With ``assurance="token"`` the person gets a real token in the store. With ``"session"`` they
    sign in with a one-time link.
    """
    token, _ = create_token(store, name, by="tests", role=role, groups=groups or None)
    if assurance == "token":
        return authenticate(store, token)
    if assurance != "session":
        raise ValueError(f"assurance={assurance!r}: use token or session")
    return authenticate_session(store, sign_in(store, new_link(store, name)))


class ScriptedReviewer:
    """A channel that decides: ``channels=[ScriptedReviewer(store, [Request.approve])]``.

    ``decisions`` is one answer per request, in order of arrival, or a mapping from a tool's name to
    its answer (``"question"`` for questions, ``"*"`` for all others). An answer is a ``Decision``,
    or a sync or async function that takes the request and returns one: ``Request.approve``,
    ``lambda request: request.edit({"to": "bo"})``. If it is ``None``, or if there are no answers
    left, the request stays pending.

    ``seen`` lists every request, ``decided`` the answered ones as they were after the decision, and
    ``errors`` the errors that answers raised.
    """

    def __init__(
        self,
        store: str | Store,
        decisions: Iterable[Answer] | Mapping[str, Answer] = (),
        *,
        by: str | Reviewer = "scripted",
        channel: str = "script",
    ) -> None:
        self.inbox = Inbox(store)
        self.by = by
        self.channel = channel
        self.seen: list[Request] = []
        self._decided: list[Request] = []
        self._errors: list[SaysoError] = []
        self._answering = 0
        self._changed = threading.Condition()
        self._by_tool = dict(decisions) if isinstance(decisions, Mapping) else None
        self._in_order = [] if isinstance(decisions, Mapping) else list(decisions)

    @property
    def decided(self) -> list[Request]:
        """Return the answered requests, after answers in progress are stored."""
        return self._after_answers(self._decided)

    @property
    def errors(self) -> list[SaysoError]:
        """Return the errors that answers raised, after answers in progress are stored."""
        return self._after_answers(self._errors)

    def _after_answers(self, results: list[Any]) -> list[Any]:
        # A gate continues as soon as the decision is stored, a moment before it is listed here.
        with self._changed:
            self._changed.wait_for(lambda: not self._answering, _WAIT_SECONDS)
            return list(results)

    async def __call__(self, request: Request) -> None:
        """Answer a request. The gate calls this, like any channel."""
        with self._changed:
            self.seen.append(request)
            self._answering += 1
            answer = self._next(request)
        try:
            await self._answer(request, answer)
        finally:
            with self._changed:
                self._answering -= 1
                self._changed.notify_all()

    async def _answer(self, request: Request, answer: Answer) -> None:
        decision: Any = answer(request) if callable(answer) else answer
        if inspect.isawaitable(decision):
            decision = await decision
        if decision is None:
            return
        bound = replace(decision, request=request.id, seen_digest=request.digest)
        try:
            decided = await self.inbox.decide(request.id, bound, by=self.by, channel=self.channel)
        except SaysoError as error:
            self._errors.append(error)
            raise
        self._decided.append(decided)

    def _next(self, request: Request) -> Answer:
        if self._by_tool is not None:
            names = (request.tool, request.kind, "*")
            return next((self._by_tool[name] for name in names if name in self._by_tool), None)
        return self._in_order.pop(0) if self._in_order else None
