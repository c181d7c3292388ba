"""The inbox: list, show and decide requests.

Public methods are async and have a ``_sync`` twin with the same body. Everything that blocks runs
in ``RequestReader`` or in a store transaction, which async callers hand to a worker thread.
"""

from __future__ import annotations

import contextlib
import math
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast

from sayso import codec
from sayso.engine.commands import (
    Cancel,
    Decide,
    GiveGrant,
    LiftRefusal,
    Note,
    OpenWindow,
    RevokeGrant,
    Undo,
)
from sayso.engine.deciding import check_seen
from sayso.engine.effects import is_remote
from sayso.errors import (
    Conflict,
    Expired,
    InvalidCall,
    InvalidDecision,
    InvalidPolicy,
    NotFound,
    SaysoError,
)
from sayso.inbox.decisions import (
    Validate,
    approved_plan,
    check_alike,
    check_cancelled,
    check_confirmation,
    check_is_decision,
    checked_claim,
    checked_edit,
    checked_flag,
    checked_text,
    checked_undo,
    checked_value,
    covered_calls,
    grant_scopes,
    in_live_run,
    new_grant,
    window_length,
)
from sayso.inbox.people import no_request, reviewer_named, reviewer_of
from sayso.inbox.replay import Replay, replay_grant, replay_observed, replay_policy
from sayso.inbox.suggestions import (
    ENDS_IN,
    Pattern,
    Suggestion,
    rule_of,
    suggested_grant,
    suggested_patterns,
    suggestion_id,
)
from sayso.policy import Policy, tighten
from sayso.policy.limits import Duration, parse_duration
from sayso.redaction import render_title
from sayso.rows import WINDOW_ID, Call, CallStatus, Event, Proven, Tool
from sayso.stores import open_store
from sayso.stores.base import Query, RequestGroup, Store, Viewer, age_key
from sayso.stores.nested_runs import (
    cancel_under,
    cancel_with_nested,
    close_overdue,
    expire,
    finish_after,
    finish_decision,
)
from sayso.stores.row_checks import if_readable, refusals_in, tool_of
from sayso.sync import CommitWaiter, in_thread, read, sync_twin, to_thread, write, write_built
from sayso.types import (
    KINDS,
    NO_ARGS,
    RISKS,
    SECOND,
    SORTS,
    STATUS_FILTERS,
    Decision,
    Edit,
    Grant,
    Json,
    Micros,
    Refusal,
    Reject,
    Request,
    RequestKind,
    Respond,
    Reviewer,
    RiskLevel,
    Sort,
    StatusFilter,
    Terms,
    moment,
    suggests_names,
)
from sayso.views import is_request, request_of

MAX_PAGE = 500
#: How many calls a replay for a page judges: it takes about half a second.
MOST_REPLAYED = 20_000
_REPLAYED_FOR = 30 * 86_400 * SECOND
#: How many of the approvals that suggest a grant are listed.
_MOST_EXAMPLES = 10

_SWEEP = 100
_MAX_SWEEPS = 50
#: How many ids to name if a prefix is ambiguous.
_MAX_NAMED = 6
#: More events than any call has: each is a row that a person or an attempt caused.
_MAX_EVENTS = 1_000_000
#: Seconds that a waiter relies on the store's notifications before it reads again.
_POLL_SECONDS = 30.0
#: Seconds; what expires later than this counts as never.
_LONGEST = 1e9

#: Applies the policy to edited arguments. The gate checks them again before the call starts.
Judge = Callable[[Call, Mapping[str, Any]], Terms]


@dataclass(frozen=True, slots=True)
class Page:
    """A page of requests. Iterate over it, or pass ``next`` as ``after=`` to get the next page.

    ``next`` is ``None`` on the last page.
    """

    items: tuple[Request, ...]
    next: str | None

    def __iter__(self) -> Iterator[Request]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


@dataclass(frozen=True, slots=True)
class DecisionResult:
    """The result of one decision in ``decide_many``: the request, or the error."""

    id: str
    request: Request | None
    error: SaysoError | None


@dataclass(frozen=True, slots=True)
class GrantPreview:
    """What a grant would cover: the latest closed and pending requests of its agent and tool."""

    grant: Grant
    #: The scopes to choose from for a command or a file, the narrowest first.
    scopes: tuple[dict[str, Json], ...]
    past: tuple[Request, ...]
    pending: tuple[Request, ...]
    #: What the grant would have done with the newest calls of the last 30 days.
    replay: Replay


class Who(TypedDict, total=False):
    """Who decides, and where: a name or a token, and a channel; and how long they can undo it."""

    by: str | Reviewer | None
    token: str | None
    channel: str
    undo_seconds: float


class Filters(TypedDict, total=False):
    """Which requests to list. Leave a filter out, or pass ``None``, to not filter by it."""

    status: StatusFilter
    kind: RequestKind | None
    agent: str | None
    tool: str | None
    thread: str | None
    run: str | None
    risk: RiskLevel | None
    #: Words in the tool, agent, id, description, title, short arguments, run or requester; filters
    #: among them are ``tool:``, ``agent:``, ``risk:``, ``kind:``, ``older:`` and ``newer:``.
    q: str | None
    #: Only requests that expire within this many seconds.
    expires_within: float | None
    sort: Sort
    #: ``Page.next`` of the previous page.
    after: str | None
    limit: int


_CHOICES = {"status": STATUS_FILTERS, "sort": SORTS, "kind": KINDS, "risk": RISKS}


def _query(given: Mapping[str, Any], now: Callable[[], Micros]) -> Query:
    """Check filters and translate them for the store."""
    filters: dict[str, Any] = {"status": "pending", **given}
    filter_names = set(Filters.__annotations__)
    if unknown := set(filters) - filter_names:
        raise InvalidCall(
            f"no filter {', '.join(sorted(unknown))}: use {', '.join(sorted(filter_names))}"
        )
    for name, choices in _CHOICES.items():
        value = filters.get(name, choices[0])
        if value not in choices and (value is not None or name in ("status", "sort")):
            raise InvalidCall(f"{name} {value!r:.40}: use {', '.join(choices)}", name)
    for name in ("kind", "agent", "tool", "thread", "run", "risk", "q"):
        if not isinstance(filters.get(name), str | None):
            raise InvalidCall(f"{name} must be text", name)
    filters["text"], by_word = _filter_words(filters.pop("q", None), now)
    filters |= by_word
    filters["expires_by"] = _expires_by(filters.pop("expires_within", None), now)
    limit = filters.get("limit", 50)
    if type(limit) is not int or not 1 <= limit <= MAX_PAGE:
        raise InvalidCall(f"limit {limit!r}: use a number from 1 to {MAX_PAGE}", "limit")
    if filters.get("after") is not None:
        try:
            filters["after"] = int(filters["after"])
        except (TypeError, ValueError):
            raise InvalidCall("after: use `next` of the previous page", "after") from None
    return Query(**filters)


#: A filter within a search text, such as ``tool:pay`` or ``older:1h``.
_FILTER_WORD = re.compile(
    r"""(?<!\S)(tool|agent|risk|kind|older|newer|requester|run):("[^"]*"|\S+)"""
)


def _filter_words(q: str | None, now: Callable[[], Micros]) -> tuple[str | None, dict[str, Any]]:
    """Split a search text into its words and the filters among them.

    An unfinished filter, such as ``older:x``, is searched for like any other word.
    """
    parts: list[tuple[str, str]] = []
    ages: dict[str, Micros] = {}

    def take(match: re.Match[str]) -> str:
        name, value = match[1], match[2].strip('"')
        if name in ("older", "newer"):
            try:
                seconds = parse_duration(value, name)
            except InvalidPolicy:
                return match[0]
            at = now() - int(min(seconds or 0, _LONGEST) * SECOND)
            ages["created_before" if name == "older" else "created_after"] = at
        elif name in ("requester", "run"):
            return value.removeprefix("run_")
        else:
            parts.append((name, value.lower()))
        return " "

    text = _FILTER_WORD.sub(take, q).strip() if q else q
    return text, {"parts": tuple(parts), **ages}


def _expires_by(within: object, now: Callable[[], Micros]) -> Micros | None:
    if within is None:
        return None
    if not isinstance(within, int | float) or isinstance(within, bool) or not 0 < within < math.inf:
        raise InvalidCall(
            f"expires_within {within!r:.40}: use a positive number of seconds", "expires_within"
        )
    return now() + int(min(within, _LONGEST) * SECOND)


class RequestReader:
    """Reads requests from a store, in the calling OS thread.

    Tools are cached: a tool's digest names it, so it never changes.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._tools: dict[str, Tool] = {}

    def page(
        self, filters: Mapping[str, Any], *, quick: bool = False
    ) -> tuple[list[tuple[int, Call]], str | None]:
        """Return a page of rows, each with its position, and where the next page starts.

        A ``quick`` page may be short, even empty, although there is a next one.
        """
        query = _query(filters, self.store.now)
        self._close_overdue()
        # One extra row tells whether there is a next page.
        longer = replace(query, limit=query.limit + 1)
        if quick:
            rows, following = self.store.quick_page(longer)
        else:
            rows, following = self.store.page(longer), None
        page_rows = rows[: query.limit]
        if len(rows) > query.limit:
            following = page_rows[-1][0]
        # Leave out requests whose tool was tampered with, like requests that were.
        page_rows = [row for row in page_rows if if_readable(self._has_readable_tool, row[1])]
        return page_rows, None if following is None else str(following)

    def groups(self, filters: Mapping[str, Any], viewer: Viewer) -> list[RequestGroup]:
        """Count the requests that a viewer may see, in groups.

        What a group has in common does not filter: kind, agent, tool and risk.
        """
        query = replace(
            _query(filters, self.store.now), kind=None, agent=None, tool=None, risk=None
        )
        self._close_overdue()
        return self.store.groups(query, viewer)

    def _close_overdue(self) -> None:
        """Expire requests and find calls in doubt even where no worker runs."""
        for _ in close_overdue(self.store, _SWEEP, _MAX_SWEEPS):
            pass

    def _has_readable_tool(self, call: Call) -> bool:
        self.tool(call)
        return True

    def call(self, request_id: str) -> Call:
        """Return the row of a request. Raise ``NotFound`` if there is none."""
        call = self.store.call(checked_text(request_id, "id"))
        if call is None or not is_request(call):
            raise no_request(request_id)
        return call

    def request(self, call: Call) -> Request:
        refusals = refusals_in(self.store, call)
        return request_of(call, self.tool(call), self.store.now, refusals)

    def current(self, request_id: str) -> tuple[Call, Request | None]:
        """Return a row and its request, or ``None`` for the request if it is overdue."""
        call = self.call(request_id)
        return call, None if call.overdue(self.store.now()) else self.request(call)

    def tool(self, call: Call) -> Tool | None:
        """Return the tool of a call; ``None`` for a question or a bare approval."""
        tool = self._tools.get(call.tool_digest) or tool_of(self.store, call)
        if tool is not None:
            self._tools[tool.digest] = tool
        return tool

    def id_from_prefix(self, prefix: str) -> str:
        ids = self.store.calls_like(prefix, _MAX_NAMED + 1)
        return only_match(ids, prefix, "request", "sayso inbox")


class Inbox:
    """List, show and decide the requests of one store.

    Every async method has a ``_sync`` twin with the same arguments.
    """

    def __init__(
        self,
        store: str | Path | Store,
        *,
        judge: Judge | None = None,
        validate: Validate | None = None,
    ) -> None:
        self.store = open_store(store)
        self._judge = judge
        self._validate = validate
        self._reader = RequestReader(self.store)

    def __repr__(self) -> str:
        return f"Inbox({self.store.url!r})"

    # -- reading

    @in_thread
    def pending(self, **filters: Unpack[Filters]) -> Page:
        """Return pending requests, oldest first.

        Filters: kind, agent, tool, thread, run, risk, q, sort, after, limit.
        """
        return self._page({"status": "pending", **filters})

    @in_thread
    def history(self, **filters: Unpack[Filters]) -> Page:
        """Return decided and closed requests, newest first. Takes the same filters, and status."""
        return self._page({"status": "closed", "sort": "newest", **filters})

    @in_thread
    def search(self, **filters: Unpack[Filters]) -> Page:
        """Return requests of any status, or of one: a request status or ``closed``."""
        return self._page({"status": "any", **filters})

    def _page(self, filters: Mapping[str, Any]) -> Page:
        rows, following = self._reader.page(filters)
        return Page(tuple(self._reader.request(call) for _, call in rows), following)

    async def get(self, request: Request | str) -> Request:
        """Return a request as it is now. Raise ``NotFound`` if there is none."""
        call, current = await read(self.store, self._reader.current, _id_of(request))
        if current is None:
            call = await to_thread(expire, self.store, call)
            current = await read(self.store, self._reader.request, call)
        return current

    async def find(self, prefix: str) -> Request:
        """Return the request whose id starts with ``prefix``. Raise ``NotFound`` if several do."""
        return await self.get(await read(self.store, self._reader.id_from_prefix, prefix))

    async def wait(self, request: Request | str, timeout: float | None = None) -> Request:
        """Wait until a request is no longer pending, and return it.

        The request may have been decided, expired or cancelled: see its ``status``. A vote that
        leaves it pending does not end the wait, nor does a decision that can still be undone.
        Raise ``TimeoutError`` if it still waits after ``timeout`` seconds; ``None`` waits forever.
        """
        ends = None if timeout is None else time.monotonic() + _checked_timeout(timeout)
        current = await self.get(request)
        if current.settled:
            return current
        with contextlib.closing(CommitWaiter(self.store, current.thread)) as commits:
            while True:
                current = await self.get(current.id)
                if current.settled:
                    return current
                left = None if ends is None else ends - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError(
                        f"{current.id} is still pending after {timeout:g} seconds: decide it "
                        "(`sayso inbox`), or wait longer"
                    )
                seconds = [_POLL_SECONDS] if left is None else [_POLL_SECONDS, left]
                decision = current.decision
                due_at = current.expires_at if decision is None else decision.undo_until
                if due_at is not None:
                    due_in = due_at - moment(self.store.now())
                    seconds.append(due_in.total_seconds() + 0.001)
                await commits.wait(max(min(seconds), 0.001))

    @in_thread
    def events(self, request: Request | str) -> list[Event]:
        """Return the events of a request, in order."""
        return self.store.call_events(self._reader.call(_id_of(request)).id, _MAX_EVENTS)

    def watch(self, after: str | None = None) -> AsyncIterator[Event]:
        """Yield events as they are committed, by this process or another.

        Starts now, or after the position ``after``: ``str(event.pos)`` of the last event you saw.
        """
        return self._watch(self._cursor(after))

    def watch_sync(self, after: str | None = None) -> Iterator[Event]:
        return self._watch_sync(self._cursor(after))

    watch_sync.__doc__ = watch.__doc__

    def _cursor(self, after: str | None) -> str:
        if not isinstance(after, str | None):
            raise InvalidCall("after must be text, such as str(event.pos)", "after")
        return self.store.tail() if after is None else after

    async def _watch(self, cursor: str) -> AsyncIterator[Event]:
        while True:
            batch = await self._next_events(cursor)
            for _, event in batch:
                yield event
            cursor = batch[-1][0]

    def _watch_sync(self, cursor: str) -> Iterator[Event]:
        while True:
            batch = self._next_events_sync(cursor)
            for _, event in batch:
                yield event
            cursor = batch[-1][0]

    async def _next_events(self, cursor: str) -> list[tuple[str, Event]]:
        with contextlib.closing(CommitWaiter(self.store, None)) as commits:
            while not (batch := await to_thread(self.store.events, cursor)):
                await commits.wait(_POLL_SECONDS)
        return batch

    @in_thread
    def reveal(self, request: Request | str, *, by: str | Reviewer) -> None:
        """Record that ``by`` is about to see the masked secrets of a request."""
        call = self._reader.call(_id_of(request))
        name = reviewer_of(self.store, by, None).name
        body = {"request": call.id, "digest": call.digest}
        self.store.transact(Note(thread=call.thread, type="revealed", actor=name, body=body))

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
        undo_seconds: float = 0,
        shown: Mapping[str, Any] | None = None,
    ) -> Request:
        """Decide a request, given as a ``Request`` or by id, and return it as it is now.

        A decision is bound to what the reviewer saw: the ``request`` that you pass, or
        ``seen_digest``. ``request.approve()`` and its siblings carry the digest.

        ``by`` is a name or a ``Reviewer``, recorded with assurance ``code``; ``token``
        authenticates a person. ``grant`` also approves future calls like this one: ``{"scope":
        "exact" | "any" | schema, "uses": n, "ends_in": seconds, "within": "agent" | "run"}``.
        The decision takes effect after ``undo_seconds``, at most 30: until then, nothing starts,
        and the same person can ``undo`` it. ``shown`` is what a page says of how the request was
        read, ``{"seconds": 4.2, "complete": True}``: it is stored as a claim that nothing verifies.

        Raises ``NotFound``, ``AlreadyDecided``, ``Expired``, ``NotAllowed``, ``InvalidDecision``,
        or ``Conflict`` if the request has changed since it was seen.
        """
        request_id = _id_of(request)
        if isinstance(request, Request) and seen_digest is None:
            seen_digest = request.digest
        answer = (request_id, decision, by, seen_digest, token, channel, grant, undo_seconds, shown)
        try:
            if isinstance(decision, Edit):  # evaluates the policy, which may take long
                (decided,) = await write(self.store, await to_thread(self._command, *answer))
            else:
                (decided,) = await write_built(self.store, self._command, *answer)
        except Expired:
            call = await read(self.store, self._reader.call, request_id)
            await to_thread(expire, self.store, call)
            raise
        stops = isinstance(decision, Reject) and decision.stop
        if stops or (isinstance(decision, Reject | Respond) and is_remote(decided.binds)):
            await to_thread(finish_decision, self.store, decided)
        if decided.refusals:
            return await read(self.store, self._reader.request, decided)
        return self._reader.request(decided)  # does not block: ``_command`` cached the tool

    @in_thread
    def undo(
        self,
        request: Request | str,
        *,
        by: str | Reviewer | None = None,
        token: str | None = None,
    ) -> Request:
        """Take back your own decision before it takes effect, and return the request.

        The request is pending again, in a new revision. A grant that came with the decision is
        revoked, and the arguments of an edit are as they were before it. Raises ``NotAllowed`` if
        another person decided, and ``Conflict`` if it is too late.
        """
        reviewer = reviewer_of(self.store, by, token)
        call = self._reader.call(_id_of(request))
        note = codec.loads(call.held.undo) if call.held and call.held.undo else {}
        place = {"thread": call.thread, "run": call.run, "call": call.id}
        undo = Undo(**place, by=reviewer, grant=note.get("grant", ""))
        (reopened,) = self.store.transact(undo)
        return self._reader.request(reopened)

    def _command(
        self,
        request_id: str,
        decision: Decision,
        by: str | Reviewer | None,
        seen_digest: str | None,
        token: str | None,
        channel: str,
        grant: Mapping[str, Any] | None,
        undo_seconds: float,
        shown: Mapping[str, Any] | None,
    ) -> Decide:
        """Check a decision and return it as an engine command."""
        check_is_decision(decision)
        if decision.request not in (None, request_id):
            raise Conflict(f"this decision was made for {decision.request}, not for {request_id}")
        # The transaction looks up what a person may do who is only named.
        is_named = token is None and grant is None and isinstance(by, str)
        reviewer = reviewer_named(by) if is_named else reviewer_of(self.store, by, token)
        digest = seen_digest or decision.seen_digest
        if decision.seen_digest not in (None, digest):
            raise Conflict(
                f"request {request_id} is not what you saw: the decision and seen_digest name "
                "different digests. Read the request again and decide on that"
            )
        if isinstance(reviewer, Proven) and reviewer.confirmation is not None:
            check_confirmation(reviewer.confirmation, request_id, digest, decision)
        call = self._reader.call(request_id)
        tool = self._reader.tool(call)
        message = "" if decision.message == "" else checked_text(decision.message, "message")
        value = args = written = terms = None
        title = ""
        stop = False
        if isinstance(decision, Reject):
            stop = checked_flag(decision.stop, "stop")
        elif isinstance(decision, Respond):
            value = checked_value(call, tool, decision.value)
        elif isinstance(decision, Edit):
            if call.status is CallStatus.ASKED:
                check_seen(call, decision.type, digest, call.digest)
            args, written = checked_edit(call, tool, decision, self._validate)
            if tool is not None:
                title = render_title(
                    tool.title, codec.loads(args), codec.loads(tool.schema)["parameters"]
                )
            if self._judge is not None:
                terms = tighten(call.terms, self._judge(call, codec.loads(args)))
        made = None if grant is None else new_grant(call, grant, reviewer, self.store.now())
        plan = approved_plan(call, decision, args, made) if call.terms.plan else None
        return Decide(
            thread=call.thread,
            run=call.run,
            call=call.id,
            type=decision.type,
            by=reviewer,
            channel=checked_text(channel, "channel"),
            seen_digest=digest,
            message=message,
            stop=stop,
            value=value,
            args=args,
            args_hash="" if args is None else codec.sha256(args.encode()),
            written=written,
            title=title,
            terms=terms,
            grant=plan or made,
            is_plan=plan is not None,
            undo_for=0 if undo_seconds == 0 else checked_undo(undo_seconds),
            claim="" if shown is None else checked_claim(shown),
        )

    # The short forms below, given an id, bind the decision to the request as it is at that moment.

    async def approve(
        self,
        request: Request | str,
        message: str = "",
        *,
        grant: Mapping[str, Any] | None = None,
        **who: Unpack[Who],
    ) -> Request:
        """Approve a request exactly as shown. ``grant`` also approves future calls like it.

        ``message`` is a note for the record, which people see in the history.
        """
        current = await self._shown(request)
        return await self.decide(current, current.approve(message), grant=grant, **who)

    @suggests_names
    async def edit(
        self,
        request: Request | str,
        args: Mapping[str, Json] = NO_ARGS,
        *,
        unset: Iterable[str] = (),
        **who: Unpack[Who],
    ) -> Request:
        """Approve a request with these arguments changed, and those in ``unset`` removed.

        All others stay as shown.
        """
        current = await self._shown(request)
        return await self.decide(current, current.edit(args, unset=unset), **who)

    @suggests_names
    async def reject(
        self, request: Request | str, message: str = "", *, stop: bool = False, **who: Unpack[Who]
    ) -> Request:
        """Reject a request. The agent is given ``message`` as the reason.

        An equal call of the agent is rejected too, without asking, until there is new user text.
        With ``stop``, also cancel the run, in the same commit.
        """
        current = await self._shown(request)
        return await self.decide(current, current.reject(message, stop=stop), **who)

    @suggests_names
    async def respond(self, request: Request | str, value: Json, **who: Unpack[Who]) -> Request:
        """Answer a question, or give a tool call's result yourself instead of running it."""
        current = await self._shown(request)
        return await self.decide(current, current.respond(value), **who)

    async def _shown(self, request: Request | str) -> Request:
        return request if isinstance(request, Request) else await self.get(request)

    async def decide_many(
        self,
        decisions: Iterable[Decision],
        *,
        by: str | Reviewer | None = None,
        token: str | None = None,
        channel: str = "python",
        shown: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> list[DecisionResult]:
        """Make several decisions of one kind on requests of one agent and tool.

        Each decision must carry its request: ``[request.approve() for request in page]``. Returns
        one result per decision; an error in one does not stop the others. ``shown`` has what
        ``decide`` takes for some of the requests, by id.
        """
        if not isinstance(decisions, Iterable) or isinstance(decisions, str | Mapping):
            raise InvalidDecision("give a list of decisions, as [request.approve(), ...]")
        answers = list(decisions)
        for decision in answers:
            check_is_decision(decision)
        requests = [await self.get(decision.request or "") for decision in answers]
        check_alike(answers, requests)
        results = []
        for decision, request in zip(answers, requests, strict=True):
            try:
                claim = (shown or {}).get(request.id)
                done = await self.decide(
                    request.id, decision, by=by, token=token, channel=channel, shown=claim
                )
                results.append(DecisionResult(request.id, done, None))
            except SaysoError as error:
                results.append(DecisionResult(request.id, None, error))
        return results

    @in_thread
    def cancel(
        self,
        target: Request | str,
        *,
        by: str | Reviewer = "code",
        reason: str = "",
        superseded: bool = False,
    ) -> None:
        """Cancel a request, or a whole run by its name.

        Calls that have not started never will. Raises ``Conflict`` if a call is running, in doubt
        or finished.
        """
        target_id = _id_of(target)
        reason = checked_text(reason, "reason")
        name = reviewer_of(self.store, by, None).name
        call = self.store.call(target_id)
        run = self.store.run(target_id)
        if call is None and run is None:
            raise NotFound(f"no request and no run {target_id!r:.80}")
        if call is not None:
            place = {"thread": call.thread, "run": call.run, "call": call.id}
            self.store.transact(Cancel(**place, by=name, reason=reason, superseded=superseded))
            check_cancelled(self.store.call(call.id) or call)
            cancel_under(self.store, call, name, reason, superseded=superseded)
            finish_after(self.store, call)
        elif run is not None:
            cancel_with_nested(self.store, run, name, reason, superseded=superseded)

    # -- grants

    @in_thread
    def preview_grant(
        self,
        request: Request | str,
        grant: Mapping[str, Any],
        *,
        by: str | Reviewer = "code",
        sees: Callable[[Call], bool] = lambda call: True,
    ) -> GrantPreview:
        """Return what a grant would cover if it were given with the approval of a request.

        Its replay judges the calls for which ``sees`` returns True. Raises ``InvalidDecision`` if
        the grant could not be given.
        """
        call = self._reader.call(_id_of(request))
        proposed_grant = new_grant(call, grant, reviewer_of(self.store, by, None), self.store.now())
        past, pending = (
            tuple(
                map(self._reader.request, covered_calls(self.store, call, proposed_grant, status))
            )
            for status in ("closed", "pending")
        )
        replay = self._replay_grant(proposed_grant, sees)
        return GrantPreview(proposed_grant, tuple(grant_scopes(call)), past, pending, replay)

    def _replay_grant(self, grant: Grant, sees: Callable[[Call], bool]) -> Replay:
        since = self.store.now() - _REPLAYED_FOR
        return replay_grant(self.store, grant, since, MOST_REPLAYED, sees)

    @in_thread
    def suggestions(
        self,
        *,
        by: str | Reviewer | None = None,
        token: str | None = None,
        sees: Callable[[Call], bool] = lambda call: True,
    ) -> list[Suggestion]:
        """Return the grants that equal approvals suggest to this person, with their replays.

        Requests and replays have the calls for which ``sees`` returns True.
        """
        reviewer = reviewer_of(self.store, by, token)
        suggestions: list[Suggestion] = []
        for grant, pattern in self._suggested(reviewer):
            name = suggestion_id(grant, pattern)
            example = pattern.examples[0]
            rule, no_rule = rule_of(name, grant, pattern, self._reader.tool(example))
            pending = covered_calls(self.store, example, grant, "pending")
            listed = [call for call in pattern.examples if sees(call)]
            suggestions.append(
                Suggestion(
                    id=name,
                    grant=grant,
                    risk=example.terms.risk.level,
                    pattern=pattern.arguments,
                    examples=tuple(map(self._reader.request, listed[:_MOST_EXAMPLES])),
                    count=len(pattern.examples),
                    example=example,
                    pending=tuple(self._reader.request(call) for call in pending if sees(call)),
                    replay=self._replay_grant(grant, sees),
                    rule=rule,
                    no_rule=no_rule,
                )
            )
        return suggestions

    def _suggested(self, reviewer: Proven) -> Iterator[tuple[Grant, Pattern]]:
        return suggested_patterns(self.store, reviewer, self._judge, self._reader.tool)

    @in_thread
    def accept_suggestion(
        self,
        suggestion: Suggestion | str,
        *,
        ends_in: float = ENDS_IN,
        by: str | Reviewer | None = None,
        token: str | None = None,
    ) -> Grant:
        """Give the grant of a suggestion, named by its id. It lasts 30 days unless you say so.

        Raises ``NotFound`` if nothing suggests it any more.
        """
        name = suggestion.id if isinstance(suggestion, Suggestion) else suggestion
        reviewer = reviewer_of(self.store, by, token)
        for grant, pattern in self._suggested(reviewer):
            if suggestion_id(grant, pattern) == name:
                example = pattern.examples[0]
                given = suggested_grant(pattern, reviewer, self.store.now(), ends_in)
                place = {"thread": example.thread, "run": example.run, "call": example.id}
                (done,) = self.store.transact(GiveGrant(**place, grant=given, by=reviewer))
                return cast(Grant, done)
        raise NotFound(
            f"no suggestion {name!r:.80}: what people decided does not suggest it (any more): look "
            "at the suggestions again"
        )

    @in_thread
    def trust_run(
        self,
        run: str,
        *,
        max_risk: RiskLevel = "medium",
        ends_in: float = 900,
        by: str | Reviewer | None = None,
        token: str | None = None,
    ) -> Grant:
        """Let a run do what it asks for, up to a risk, for some seconds. Return the grant.

        It ends with the first rejection in the run, or with ``revoke``. The person needs a session.
        """
        length = window_length(max_risk, ends_in)
        stored_run = self.store.run(checked_text(run, "run"))
        if stored_run is None:
            raise NotFound(f"no run {run!r:.80}")
        window = OpenWindow(
            thread=stored_run.thread,
            run=stored_run.id,
            grant=WINDOW_ID + secrets.token_hex(6),
            by=reviewer_of(self.store, by, token),
            risk=max_risk,
            length=length,
        )
        (grant,) = self.store.transact(window)
        return cast(Grant, grant)

    @in_thread
    def replay(self, policy: Policy, *, since: Duration = "30d", most: int | None = None) -> Replay:
        """Judge the calls of the last ``since`` by another policy: what would have been different?

        Nothing runs, and nothing is stored. ``most`` is how many calls to judge, the newest first.
        """
        start = self.store.now() - round((parse_duration(since, "since") or 0) * SECOND)
        return replay_policy(self.store, policy, start, most)

    @in_thread
    def observed(self, *, since: Duration = "30d") -> Replay:
        """Return what the second policy of gates (``observe=``) would have done since a time.

        It judged each call when it was made, next to the policy in force.
        """
        start = self.store.now() - round((parse_duration(since, "since") or 0) * SECOND)
        return replay_observed(self.store, start)

    @in_thread
    def grants(self, *, live_only: bool = True) -> list[Grant]:
        """List grants: those in force, or all of them with ``live_only=False``."""
        grants = self.store.grants(live_only=live_only)
        return [g for g in grants if in_live_run(self.store, g)] if live_only else grants

    @in_thread
    def revoke(self, grant: Grant | str, *, by: str | Reviewer = "code") -> Grant:
        """Revoke a grant, given as itself or by id, and return it."""
        grant_id = grant.id if isinstance(grant, Grant) else grant
        name = reviewer_of(self.store, by, None).name
        (revoked,) = self.store.transact(RevokeGrant(grant=grant_id, by=name))
        return cast(Grant, revoked)

    # -- refusals

    @in_thread
    def refusals(
        self, *, live_only: bool = True, after: str | None = None, limit: int = 100
    ) -> list[Refusal]:
        """List rejections that count for equal calls, newest first.

        With ``live_only=False``, also those that were lifted or overturned. ``after`` is the id of
        the last one of the page before.
        """
        last = None if after is None else self.store.refusal(after)
        if after is not None and last is None:
            raise NotFound(f"no refusal {after!r:.80}: start without after=")
        key = None if last is None else age_key(last.at, last.id)
        most = min(max(limit, 1), MAX_PAGE)
        page = self.store.refusals(after=key, limit=most, lifted=not live_only)
        return [refusal for _, refusal in page]

    @in_thread
    def lift_refusal(self, refusal: Refusal | str, *, by: str | Reviewer = "code") -> Refusal:
        """Lift a refusal, given as itself or by id, and return it: equal calls are asked about."""
        refusal_id = refusal.id if isinstance(refusal, Refusal) else refusal
        reviewer = reviewer_of(self.store, by, None)
        (lifted,) = self.store.transact(LiftRefusal(refusal=refusal_id, by=reviewer))
        return cast(Refusal, lifted)

    # -- sync twins

    pending_sync = sync_twin(pending)
    history_sync = sync_twin(history)
    search_sync = sync_twin(search)
    get_sync = sync_twin(get)
    undo_sync = sync_twin(undo)
    find_sync = sync_twin(find)
    wait_sync = sync_twin(wait)
    events_sync = sync_twin(events)
    _next_events_sync = sync_twin(_next_events)
    reveal_sync = sync_twin(reveal)
    decide_sync = sync_twin(decide)
    approve_sync = sync_twin(approve)
    edit_sync = sync_twin(edit)
    reject_sync = sync_twin(reject)
    respond_sync = sync_twin(respond)
    decide_many_sync = sync_twin(decide_many)
    cancel_sync = sync_twin(cancel)
    trust_run_sync = sync_twin(trust_run)
    suggestions_sync = sync_twin(suggestions)
    accept_suggestion_sync = sync_twin(accept_suggestion)
    replay_sync = sync_twin(replay)
    observed_sync = sync_twin(observed)
    preview_grant_sync = sync_twin(preview_grant)
    grants_sync = sync_twin(grants)
    refusals_sync = sync_twin(refusals)
    lift_refusal_sync = sync_twin(lift_refusal)
    revoke_sync = sync_twin(revoke)

    def close(self) -> None:
        """Close the store. Idempotent."""
        self.store.close()

    def __enter__(self) -> Inbox:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def only_match(ids: Iterable[str], prefix: str, noun: str, command: str) -> str:
    """Return the only id that starts with ``prefix``, or that equals it.

    Raises ``NotFound`` if there is none, or if there are several. ``command`` lists the ids.
    """
    matches = [request_id for request_id in ids if prefix and request_id.startswith(prefix)]
    if prefix in matches or len(matches) == 1:
        return prefix if prefix in matches else matches[0]
    if not matches:
        raise NotFound(f"no {noun} {prefix!r}: see `{command}`")
    names = ", ".join(matches[:_MAX_NAMED]) + ", …" * (len(matches) > _MAX_NAMED)
    raise NotFound(f"several ids start with {prefix!r}: type more of it ({names})")


def _id_of(request: object) -> str:
    return checked_text(request.id if isinstance(request, Request) else request, "id")


def _checked_timeout(timeout: object) -> float:
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not number or not math.isfinite(timeout) or timeout < 0:  # type: ignore[arg-type,operator]
        raise InvalidCall(f"timeout={timeout!r}: give seconds, or None to wait forever", "timeout")
    return float(timeout)  # type: ignore[arg-type]
