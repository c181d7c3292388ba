"""The door for people: what waits, what it is, decide, and what was decided."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Unpack

from sayso import codec
from sayso.engine.commands import Cancel, Decide, Note, RevokeGrant
from sayso.errors import Conflict, Expired, InvalidCall, InvalidDecision, NotFound, SaysoError
from sayso.inbox.answers import (
    check_alike,
    check_called_off,
    check_kind,
    checked_edit,
    checked_text,
    checked_value,
)
from sayso.inbox.filters import Filters, query_of
from sayso.inbox.people import reviewer_of
from sayso.inbox.standing import new_grant
from sayso.policy import tightened
from sayso.rows import Call, CallStatus, Event, Tool
from sayso.stores import open_store
from sayso.stores.base import Store
from sayso.stores.inner import call_off, close_overdue, expire
from sayso.twin import News, hop, look, twin, write, write_made
from sayso.types import Decision, Edit, Grant, Reject, Request, Respond, Reviewer, Terms
from sayso.views import is_request, request_of

SWEEP, MAX_SWEEPS = 100, 50

#: The policy's second look at edited arguments; the gate takes another before the start.
Judge = Callable[[Call, Mapping[str, Any]], Terms]


@dataclass(frozen=True, slots=True)
class Page:
    """Some requests, and where the next page begins (``None`` at the end)."""

    items: tuple[Request, ...]
    next: str | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one decision of several."""

    id: str
    request: Request | None
    error: SaysoError | None


class Inbox:
    """Read and decide requests in one store; every method has a ``_sync`` twin."""

    def __init__(self, store: str | Store, *, judge: Judge | None = None) -> None:
        self.store = open_store(store)
        self.judge = judge
        self._tools: dict[str, Tool] = {}

    def __repr__(self) -> str:
        return f"Inbox({self.store.url!r})"

    # -- reading

    async def pending(self, **filters: Unpack[Filters]) -> Page:
        """What waits, oldest first: kind, agent, tool, thread, run, risk, q, sort, after, limit."""
        return await hop(self._page, {"status": "pending", **filters})

    async def history(self, **filters: Unpack[Filters]) -> Page:
        """What was decided or closed, newest first; the same filters, and ``status``."""
        return await hop(self._page, {"status": "closed", "sort": "newest", **filters})

    async def search(self, **filters: Unpack[Filters]) -> Page:
        """Requests of any ``status``: a public name, ``closed`` or ``any``; the same filters."""
        return await hop(self._page, filters)

    async def get(self, request_id: str) -> Request:
        """One request, whole."""
        call, request = await look(self.store, self._read, request_id)
        if request is None:
            call = await hop(expire, self.store, call)
            request = await look(self.store, self.request_of, call)
        return request

    async def find(self, prefix: str) -> Request:
        """The one request whose id begins like this, for people who type."""
        return await self.get(await look(self.store, self._named, prefix))

    async def events(self, request_id: str) -> list[Event]:
        """What happened to one request, in order."""
        return await hop(lambda: self.events_of(self._call(request_id)))

    async def reveal(self, request_id: str, *, by: str) -> None:
        """Write down that somebody is about to see what is masked elsewhere."""
        await hop(self._reveal, request_id, by)

    def _reveal(self, request_id: str, by: str) -> None:
        call = self._call(request_id)
        by = reviewer_of(self.store, by, None).name
        body = {"request": call.id, "digest": call.digest}
        self.store.transact(Note(thread=call.thread, type="revealed", actor=by, body=body))

    def _page(self, filters: Mapping[str, Any]) -> Page:
        rows, following = self.rows(filters)
        return Page(tuple(self.request_of(call) for _, call in rows), following)

    def rows(self, filters: Mapping[str, Any]) -> tuple[list[tuple[int, Call]], str | None]:
        """A page of rows, each with its place, and what follows it; in this thread."""
        query = query_of(filters)
        self._sweep()
        # One row more than wanted says whether there is a next page.
        found = self.store.page(replace(query, limit=query.limit + 1))
        shown = found[: query.limit]
        following = str(shown[-1][0]) if len(found) > query.limit else None
        return shown, following

    def _read(self, request_id: str) -> tuple[Call, Request | None]:
        """A call, and the request that it is, unless it is overdue."""
        call = self._call(request_id)
        asked = call.status is CallStatus.ASKED
        if asked and call.expires_at is not None and call.expires_at <= self.store.now():
            return call, None
        return call, self.request_of(call)

    def _named(self, prefix: str) -> str:
        ids = self.store.calls_like(prefix, 2)
        if prefix in ids or len(ids) == 1:
            return prefix if prefix in ids else ids[0]
        if not ids:
            raise NotFound(f"no request {prefix!r}: see `sayso inbox`")
        raise NotFound(f"{prefix!r} is the beginning of several ids: type more of it")

    def events_of(self, call: Call) -> list[Event]:
        """The same for a row that was read already, in this thread."""
        found: list[Event] = []
        after = 0
        while chain := self.store.chain(call.thread, after):
            found += [event for event in chain if event.call == call.id]
            after = chain[-1].seq
        return found

    def _call(self, request_id: str) -> Call:
        call = self.store.call(checked_text(request_id, "id"))
        if call is None or not is_request(call):
            raise NotFound(f"no request {request_id!r:.80}: see `sayso inbox`")
        return call

    def request_of(self, call: Call) -> Request:
        """The request that a row is, in this thread."""
        return request_of(call, self._tool(call))

    def _tool(self, call: Call) -> Tool | None:
        """The face of a call's tool; it never changes, since its digest names it."""
        if not call.tool_digest:
            return None
        if call.tool_digest not in self._tools:
            found = self.store.tool(call.tool_digest)
            if found is None:
                return None
            self._tools[call.tool_digest] = found
        return self._tools[call.tool_digest]

    def _sweep(self) -> None:
        """Close what is overdue and show what is in doubt, even where no worker runs."""
        for _ in close_overdue(self.store, SWEEP, MAX_SWEEPS):
            pass

    # -- deciding

    async def decide(
        self,
        request_id: str,
        decision: Decision,
        *,
        by: str | Reviewer | None = None,
        seen_digest: str | None = None,
        token: str | None = None,
        channel: str = "python",
        grant: Mapping[str, Any] | None = None,
    ) -> Request:
        """Answer a request. The digest is what was seen; ``request.approve()`` carries it along.

        ``by`` is a name or a ``Reviewer``, recorded with assurance ``code``; ``token`` names and
        proves a person. ``grant`` turns an approval into a standing yes: ``{"scope": "exact" |
        "any" | schema, "uses": n, "ends_in": seconds}``.
        """
        named = (request_id, decision, by, seen_digest, token, channel, grant)
        try:
            if isinstance(decision, Edit):  # the policy judges it, however long
                (decided,) = await write(self.store, await hop(self._prepared, *named))
            else:
                (decided,) = await write_made(self.store, self._prepared, *named)
        except Expired:
            call = await look(self.store, self._call, request_id)
            await hop(expire, self.store, call)
            raise
        return self.request_of(decided)  # its tool was looked up before

    def _prepared(
        self,
        request_id: str,
        decision: Decision,
        by: str | Reviewer | None,
        seen_digest: str | None,
        token: str | None,
        channel: str,
        grant: Mapping[str, Any] | None,
    ) -> Decide:
        """The decision as a command, checked in front of whoever makes it."""
        check_kind(decision)
        if decision.request not in (None, request_id):
            raise Conflict(f"this decision was made for {decision.request}, not for {request_id}")
        reviewer = reviewer_of(self.store, by, token)
        seen = seen_digest or decision.seen_digest
        if decision.seen_digest not in (None, seen):
            raise Conflict(
                f"request {request_id} is not what you saw, or the decision was made on something "
                "else than seen_digest: read it again and decide on that"
            )
        return self._command(self._call(request_id), decision, reviewer, seen, channel, grant)

    def _command(
        self,
        call: Call,
        decision: Decision,
        by: Reviewer,
        seen: str | None,
        channel: str,
        grant: Mapping[str, Any] | None,
    ) -> Decide:
        tool = self._tool(call)
        message = value = args = terms = None
        if isinstance(decision, Reject):
            message = checked_text(decision.message, "message")
        elif isinstance(decision, Respond):
            value = checked_value(call, tool, decision.value)
        elif isinstance(decision, Edit):
            args = checked_edit(call, tool, decision.args)
            if self.judge is not None:
                terms = tightened(call.terms, self.judge(call, codec.loads(args)))
        return Decide(
            thread=call.thread,
            run=call.run,
            call=call.id,
            type=decision.type,
            by=by,
            channel=checked_text(channel, "channel"),
            seen_digest=seen,
            message=message or "",
            value=value,
            args=args,
            args_hash="" if args is None else codec.sha256(args.encode()),
            terms=terms,
            grant=None if grant is None else new_grant(call, grant, by, self.store.now()),
        )

    async def decide_many(
        self,
        decisions: Iterable[Decision],
        *,
        by: str | Reviewer | None = None,
        token: str | None = None,
        channel: str = "python",
    ) -> list[Outcome]:
        """Several decisions of one kind on like requests: same tool, bound to what was seen."""
        if not isinstance(decisions, Iterable) or isinstance(decisions, str | Mapping):
            raise InvalidDecision("give a list of decisions, as [request.approve(), ...]")
        given = list(decisions)
        for decision in given:
            check_kind(decision)
        requests = [await self.get(decision.request or "") for decision in given]
        check_alike(given, requests)
        outcomes = []
        for decision, request in zip(given, requests, strict=True):
            try:
                done = await self.decide(request.id, decision, by=by, token=token, channel=channel)
                outcomes.append(Outcome(request.id, done, None))
            except SaysoError as error:
                outcomes.append(Outcome(request.id, None, error))
        return outcomes

    async def cancel(
        self, target: str, *, by: str = "code", message: str = "", superseded: bool = False
    ) -> None:
        """Call off one request by its id, or a whole run by its name."""
        await hop(self._cancel, target, by, message, superseded)

    def _cancel(self, target: str, by: str, message: str, superseded: bool) -> None:
        reason, by = checked_text(message, "message"), reviewer_of(self.store, by, None).name
        call, run = self.store.call(checked_text(target, "target")), self.store.run(target)
        if call is None and run is None:
            raise NotFound(f"no request and no run {target!r:.80}")
        if call is not None:
            place = {"thread": call.thread, "run": call.run, "call": call.id}
            self.store.transact(Cancel(**place, by=by, reason=reason, superseded=superseded))
            check_called_off(self.store.call(call.id) or call)
        elif run is not None:
            call_off(self.store, run, by, reason, superseded=superseded)

    # -- standing yeses

    async def grants(self, *, live_only: bool = True) -> list[Grant]:
        """The standing yeses."""
        return await hop(lambda: self.store.grants(live_only=live_only))

    async def revoke(self, grant_id: str, *, by: str = "code") -> Grant:
        """End a standing yes."""
        by = reviewer_of(self.store, by, None).name
        (grant,) = await write(self.store, RevokeGrant(grant=grant_id, by=by))
        revoked: Grant = grant
        return revoked

    # -- listening

    def watch(self, after: str | None = None) -> AsyncIterator[Event]:
        """Events from now on, as they are committed here or elsewhere.

        ``after`` replays from a place in the stream: ``str(event.pos)`` of the last event seen.
        """
        if not isinstance(after, str | None):
            raise InvalidCall("after: give a text, such as str(event.pos)", "after")
        return self._watch(self.store.tail() if after is None else after)

    async def _watch(self, cursor: str) -> AsyncIterator[Event]:
        with contextlib.closing(News(self.store, None)) as news:
            while True:
                batch = await hop(self.store.events, cursor)
                for _, event in batch:
                    yield event
                if batch:
                    cursor = batch[-1][0]
                else:
                    await news.wait(30.0)

    # -- twins

    pending_sync = twin(pending)
    history_sync = twin(history)
    search_sync = twin(search)
    get_sync = twin(get)
    find_sync = twin(find)
    events_sync = twin(events)
    decide_sync = twin(decide)
    decide_many_sync = twin(decide_many)
    cancel_sync = twin(cancel)
    grants_sync = twin(grants)
    revoke_sync = twin(revoke)

    def close(self) -> None:
        """Let go of the store."""
        self.store.close()

    def __enter__(self) -> Inbox:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
