"""The door for people: what waits, what it is, decide, and what was decided."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

from sayso import codec
from sayso.engine.commands import Cancel, Decide, Note, RevokeGrant
from sayso.errors import Conflict, Expired, InvalidCall, InvalidDecision, NotFound, SaysoError
from sayso.hiding import titled
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
from sayso.stores.row_checks import if_readable, tool_of
from sayso.twin import News, hop, look, twin, write, write_made
from sayso.types import (
    Decision,
    Edit,
    Grant,
    Json,
    Reject,
    Request,
    Respond,
    Reviewer,
    Terms,
    moment,
)
from sayso.views import is_request, request_of

SWEEP, MAX_SWEEPS = 100, 50
#: How long a waiter trusts the store's news before it looks by itself.
_LOOK_AGAIN = 30.0

#: The policy's second look at edited arguments; the gate takes another before the start.
Judge = Callable[[Call, Mapping[str, Any]], Terms]


@dataclass(frozen=True, slots=True)
class Page:
    """Some requests, and where the next page begins (``None`` at the end)."""

    items: tuple[Request, ...]
    next: str | None

    def __iter__(self) -> Iterator[Request]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one decision of several."""

    id: str
    request: Request | None
    error: SaysoError | None


class Who(TypedDict, total=False):
    """Who decides: a name, or a token that proves one; and where."""

    by: str | Reviewer | None
    token: str | None
    channel: str


class Inbox:
    """Read and decide requests in one store; every method has a ``_sync`` twin."""

    def __init__(self, store: str | Path | Store, *, judge: Judge | None = None) -> None:
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

    async def get(self, request: Request | str) -> Request:
        """Return a request as it is now, by its id or by an earlier copy."""
        call, found = await look(self.store, self._read, _id_of(request))
        if found is None:
            call = await hop(expire, self.store, call)
            found = await look(self.store, self.request_of, call)
        return found

    async def wait(self, request: Request | str, timeout: float | None = None) -> Request:
        """Wait until a request is no longer pending, and return it as it is then.

        It may have been decided, have expired, or have been cancelled: ``status`` says which. A
        vote that leaves the request pending is not the end. Raises ``TimeoutError`` if the request
        is still pending after ``timeout`` seconds; ``None`` waits for as long as it takes.
        """
        ends = None if timeout is None else time.monotonic() + _checked_timeout(timeout)
        found = await self.get(request)
        if found.status != "pending":
            return found
        with contextlib.closing(News(self.store, found.thread)) as news:
            while True:
                found = await self.get(found.id)
                if found.status != "pending":
                    return found
                left = None if ends is None else ends - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError(
                        f"{found.id} is still pending after {timeout:g} seconds: decide it "
                        "(`sayso inbox`), or wait longer"
                    )
                await news.wait(self._nap(found, left))

    def _nap(self, request: Request, left: float | None) -> float:
        """Until the next moment at which the clock alone can change something."""
        naps = [_LOOK_AGAIN] if left is None else [_LOOK_AGAIN, left]
        if request.expires_at is not None:
            naps.append((request.expires_at - moment(self.store.now())).total_seconds() + 0.001)
        return max(min(naps), 0.001)

    async def find(self, prefix: str) -> Request:
        """The one request whose id begins like this, for people who type."""
        return await self.get(await look(self.store, self._named, prefix))

    async def events(self, request: Request | str) -> list[Event]:
        """Return what happened to a request, in order."""
        return await hop(lambda: self.events_of(self._call(_id_of(request))))

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
        # A request whose tool cannot be shown is left out like one that was changed itself.
        return [pair for pair in shown if if_readable(self._has_tool, pair[1])], following

    def _has_tool(self, call: Call) -> bool:
        self._tool(call)
        return True

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
        tool = self._tools.get(call.tool_digest) or tool_of(self.store, call)
        if tool is not None:
            self._tools[tool.digest] = tool
        return tool

    def _sweep(self) -> None:
        """Close what is overdue and show what is in doubt, even where no worker runs."""
        for _ in close_overdue(self.store, SWEEP, MAX_SWEEPS):
            pass

    # -- deciding

    async def decide(
        self,
        request: Request | str,
        decision: Decision,
        *,
        by: str | Reviewer | None = None,
        seen_digest: str | None = None,
        token: str | None = None,
        channel: str = "python",
        grant: Mapping[str, Any] | None = None,
    ) -> Request:
        """Answer a request, given as itself or by its id.

        The decision is bound to what was seen: to the ``request`` that you pass, or to
        ``seen_digest``; ``request.approve()`` carries it along.

        ``by`` is a name or a ``Reviewer``, recorded with assurance ``code``; ``token`` names and
        proves a person. ``grant`` turns an approval into a standing yes: ``{"scope": "exact" |
        "any" | schema, "uses": n, "ends_in": seconds}``.
        """
        request_id = _id_of(request)
        if isinstance(request, Request) and seen_digest is None:
            seen_digest = request.digest
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
        title = ""
        if isinstance(decision, Reject):
            message = checked_text(decision.message, "message")
        elif isinstance(decision, Respond):
            value = checked_value(call, tool, decision.value)
        elif isinstance(decision, Edit):
            args = checked_edit(call, tool, decision.args)
            if tool is not None:
                title = titled(
                    tool.title, codec.loads(args), codec.loads(tool.schema)["parameters"]
                )
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
            title=title,
            terms=terms,
            grant=None if grant is None else new_grant(call, grant, by, self.store.now()),
        )

    # The short forms. With an id, they are bound to the request as it is at that moment.

    async def approve(
        self,
        request: Request | str,
        *,
        grant: Mapping[str, Any] | None = None,
        **who: Unpack[Who],
    ) -> Request:
        """Approve a request exactly as shown; ``grant`` also approves calls like it."""
        shown = await self._shown(request)
        return await self.decide(shown, shown.approve(), grant=grant, **who)

    async def edit(
        self, request: Request | str, args: Mapping[str, Any], **who: Unpack[Who]
    ) -> Request:
        """Approve a request with these arguments; those left out stay as shown."""
        shown = await self._shown(request)
        return await self.decide(shown, shown.edit(args), **who)

    async def reject(
        self, request: Request | str, message: str = "", **who: Unpack[Who]
    ) -> Request:
        """Reject a request, and say why."""
        shown = await self._shown(request)
        return await self.decide(shown, shown.reject(message), **who)

    async def respond(self, request: Request | str, value: Json, **who: Unpack[Who]) -> Request:
        """Answer a question, or give the result of a call in place of running it."""
        shown = await self._shown(request)
        return await self.decide(shown, shown.respond(value), **who)

    async def _shown(self, request: Request | str) -> Request:
        return request if isinstance(request, Request) else await self.get(request)

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
        self,
        target: Request | str,
        *,
        by: str = "code",
        message: str = "",
        superseded: bool = False,
    ) -> None:
        """Cancel one request, or a whole run by its name."""
        await hop(self._cancel, _id_of(target), by, message, superseded)

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
    wait_sync = twin(wait)
    find_sync = twin(find)
    events_sync = twin(events)
    decide_sync = twin(decide)
    approve_sync = twin(approve)
    edit_sync = twin(edit)
    reject_sync = twin(reject)
    respond_sync = twin(respond)
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


def _id_of(request: object) -> str:
    return checked_text(request.id if isinstance(request, Request) else request, "id")


def _checked_timeout(timeout: object) -> float:
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not number or not math.isfinite(timeout) or timeout < 0:  # type: ignore[arg-type,operator]
        raise InvalidCall(f"timeout={timeout!r}: give seconds, or None to wait", "timeout")
    return float(timeout)  # type: ignore[arg-type]
