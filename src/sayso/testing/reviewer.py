"""People for tests: one with a real token, and one who decides by a script."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias, cast

from sayso.errors import SaysoError
from sayso.inbox import Inbox, authenticate, create_token
from sayso.stores.base import Store
from sayso.types import Decision, Request, Reviewer

#: What to answer: a decision, a function of the request that gives one, or ``None`` for silence.
Answer: TypeAlias = (
    Decision | Callable[[Request], Decision | Awaitable[Decision | None] | None] | None
)

#: How long whoever asks for the results waits for answers that are still being given.
_PATIENCE = 5.0


def person(
    store: Store, name: str, *groups: str, role: str = "reviewer", assurance: str = "token"
) -> Reviewer:
    """Somebody who has proved who they are: give it as ``by=``.

    They get a real token in the store (``assurance="token"``), or sign in with a one-time link
    (``"session"``).
    """
    token, _ = create_token(store, name, by="tests", role=role, groups=groups)
    if assurance == "token":
        return authenticate(store, token)
    if assurance != "session":
        raise ValueError(f"assurance={assurance!r}: use token or session")
    from sayso.server.sessions import new_link, resolve_secret, sign_in

    secret = sign_in(store, new_link(store, name, role=role))
    return resolve_secret(store, secret, session=True)


class ScriptedReviewer:
    """A channel that decides: ``ScriptedReviewer(store, [Request.approve])``, given to a gate.

    ``decisions`` is one answer per request in the order in which they come, or a mapping from a
    tool's name to its answer (``"question"`` for questions, ``"*"`` for all others). An
    answer is a ``Decision``, or a function that gets the request and gives one, async or not:
    ``Request.approve``, ``lambda request: request.edit({"to": "bo"})``. ``None``, or no answer
    left, leaves the request pending.

    ``seen`` holds every request that came, ``decided`` those that were answered, as they stood
    then, and ``errors`` what the store said against an answer.
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
        """The requests that were answered."""
        return self._settled(self._decided)

    @property
    def errors(self) -> list[SaysoError]:
        """What the store said against answers."""
        return self._settled(self._errors)

    def _settled(self, results: list[Any]) -> list[Any]:
        # A gate goes on as soon as the decision is stored, a moment before it is listed here.
        with self._changed:
            self._changed.wait_for(lambda: not self._answering, _PATIENCE)
            return list(results)

    async def __call__(self, request: Request) -> None:
        """Take a request as the gate hands it over, and answer it."""
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
        decision = await _decision(answer, request)
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


async def _decision(answer: Answer, request: Request) -> Decision | None:
    if not callable(answer):
        return answer
    given: Any = answer(request)
    if inspect.isawaitable(given):
        given = await given
    return cast("Decision | None", given)
