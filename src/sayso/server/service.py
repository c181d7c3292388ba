"""What every route works with: the ``Service`` behind the app, its limits, and its hooks."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, NamedTuple

from fastapi import Depends
from fastapi import Request as HttpRequest

from sayso.agent.agent import Resumable
from sayso.errors import NotFound, TooMany
from sayso.gate import Gate
from sayso.inbox import Inbox
from sayso.inbox.decisions import Validate
from sayso.inbox.inbox import Judge
from sayso.server.access import RightsWatch
from sayso.server.feed import Feed
from sayso.server.monitoring import HealthCheck, Metrics, StoreMetrics, TallyCache
from sayso.server.request_views import RequestListCache
from sayso.stores.base import Store
from sayso.types import SECOND, Micros

if TYPE_CHECKING:
    from sayso.channels.kit.service import ChannelService
    from sayso.server.oidc import Provider
    from sayso.server.proxy import TrustedProxy
    from sayso.worker import Worker

log = logging.getLogger("sayso.server")

_MAX_NAMES = 10_000
_MAX_SESSIONS = 1000


@dataclass(slots=True)
class Limits:
    """Rate limits per principal. A server keeps them in memory."""

    #: How many requests one agent may have open at once.
    open_requests: int = 1000
    #: How many writes one principal may make per minute, and in one burst.
    per_minute: int = 1200
    burst: int = 300
    #: How many edits of requests with masked values one person may try out per minute.
    checks: int = 20
    #: How many refused attempts of one principal the audit log takes per minute.
    refusals: int = 20
    #: How many connections one client address may have that are idle or still sending a request.
    connections: int = 256
    #: How many streams (live feed, chat) one person may have open at once.
    streams: int = 50
    #: Tokens left in each principal's bucket, and when they were counted.
    _buckets: dict[str, tuple[float, float]] = field(default_factory=dict)
    #: How many requests each agent may still open before the store is asked again.
    _remaining: dict[str, int] = field(default_factory=dict)
    #: The open streams of each person.
    _streams: Counter[str] = field(default_factory=Counter)
    _verifying: threading.Lock = field(default_factory=threading.Lock)

    def count_write(self, name: str) -> None:
        """Count one write by a principal. Raise ``TooMany`` if its bucket is empty."""
        self._take(name, f"writes by {name}", self.per_minute, self.burst)

    def may_record(self, name: str) -> bool:
        """Return whether another refused attempt of a principal is worth a record."""
        try:
            self._take(f"refused:{name}", "refused attempts", self.refusals, self.refusals)
        except TooMany:
            return False
        return True

    @contextmanager
    def verification(self) -> Iterator[None]:
        """Verify the audit log inside this block. Raise ``TooMany`` while another one runs."""
        if not self._verifying.acquire(blocking=False):
            raise TooMany("the audit log is being verified: retry when that has ended", 5.0)
        try:
            yield
        finally:
            self._verifying.release()

    def count_check(self, name: str) -> None:
        """Count one check of an edit to a request with masked values, likewise."""
        self._take(f"check:{name}", f"checks by {name}", self.checks, self.checks)

    def _take(self, name: str, what: str, per_minute: int, burst: int) -> None:
        now = time.monotonic()
        left, at = self._buckets.get(name, (float(burst), now))
        left = min(left + (now - at) * per_minute / 60, burst)
        if left < 1:
            wait = (1 - left) * 60 / per_minute
            soon = "a second" if wait <= 1 else f"{math.ceil(wait)} seconds"
            raise TooMany(f"too many {what}: retry in {soon}", wait)
        if len(self._buckets) >= _MAX_NAMES and name not in self._buckets:
            self._buckets.pop(next(iter(self._buckets)))
        self._buckets[name] = (left - 1, now)

    @contextmanager
    def stream(self, name: str) -> Iterator[None]:
        """Count one open stream of a person inside this block. Raise ``TooMany`` beyond the limit.

        It counts from the call on, so that streams which nobody has read yet count as well.
        """
        if self._streams[name] >= self.streams:
            raise TooMany(f"{name} has {self.streams} streams open: close one, then retry", 5.0)
        self._streams[name] += 1
        try:
            yield
        finally:
            self._streams[name] -= 1
            if not self._streams[name]:
                del self._streams[name]

    def count_open_request(self, agent: str, count: Callable[[int], int]) -> None:
        """Count one more open request of an agent. Raise ``TooMany`` if it has too many.

        ``count(most)`` returns how many are open in the store, up to ``most``. It is called only
        when the number that was left then is used up: decisions made since can only add to it.
        """
        most = self.open_requests
        remaining = self._remaining.get(agent, 0)
        if remaining < 1:
            remaining = most - count(most)
        if remaining < 1:
            raise TooMany(
                f"{agent} has {most:,} open requests, which is the limit: wait until some are "
                "decided",
                30.0,
            )
        if len(self._remaining) >= _MAX_NAMES and agent not in self._remaining:
            self._remaining.pop(next(iter(self._remaining)))
        self._remaining[agent] = remaining - 1


class HookSession(NamedTuple):
    """What the hook of one session of a coding agent has sent."""

    agent: str
    session: str
    last_at: Micros
    #: How many tool uses it reported that it had not asked about, and the tool of the last one.
    unasked: int = 0
    unasked_tool: str = ""


class HookSessions:
    """The sessions of coding agents since this server started. They are kept in memory."""

    def __init__(self) -> None:
        self._sessions: dict[tuple[str, str], HookSession] = {}

    def note(self, agent: str, session: str) -> HookSession:
        """Note that a hook has spoken, and return its session."""
        session_before = self._sessions.pop((agent, session), HookSession(agent, session, 0))
        if len(self._sessions) >= _MAX_SESSIONS:
            self._sessions.pop(next(iter(self._sessions)))
        noted = session_before._replace(last_at=round(time.time() * SECOND))
        self._sessions[agent, session] = noted
        return noted

    def note_unasked(self, agent: str, session: str, tool: str) -> None:
        """Note that a tool use has ended which the hook did not ask about."""
        noted = self.note(agent, session)
        noted = noted._replace(unasked=noted.unasked + 1, unasked_tool=tool)
        self._sessions[agent, session] = noted
        log.warning("%s used %s without asking, in session %s", agent, tool or "a tool", session)

    def of(self, agent: str | None) -> list[HookSession]:
        """Return the sessions of an agent, or of all, the last that spoke first."""
        sessions = reversed(self._sessions.values())
        return [session for session in sessions if agent in (None, session.agent)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One server on one store. It holds no state that calls or decisions depend on."""

    store: Store
    inbox: Inbox
    #: Applies the right policy to edited arguments.
    judge: Judge
    validate: Validate
    #: Renders lists of requests.
    request_lists: RequestListCache
    #: The gate of agents on other machines.
    gate: Gate
    agents: Mapping[str, Resumable]
    default_agent: str
    worker: Worker
    feed: Feed
    rights: RightsWatch
    limits: Limits
    metrics: Metrics
    store_metrics: StoreMetrics
    health: HealthCheck
    hooks: HookSessions
    #: Counts requests for the insights.
    tally_cache: TallyCache
    oidc: Provider | None
    proxy: TrustedProxy | None
    channels: ChannelService
    #: Whether the library for passkeys is installed, and people are known here.
    passkeys: bool
    #: When the use of each session was last noted in the store, by its hash.
    noted_uses: dict[str, float] = field(default_factory=dict)
    auth: bool
    environment: str
    demo: bool

    def agent(self, name: str | None) -> Resumable:
        """Return the agent of that name, or the default one. Raise ``NotFound`` if none fits."""
        agent = self.agents.get(self.default_agent if name is None else name)
        if not self.agents:
            raise NotFound("this server has no agents: start it with one, as module:agent")
        if agent is None:
            raise NotFound(f"no agent {name!r} here; this server has {', '.join(self.agents)}")
        return agent


def service_of(request: HttpRequest) -> Service:
    service: Service = request.app.state.sayso
    return service


async def _current_service(request: HttpRequest) -> Service:
    return service_of(request)


async def _current_store(request: HttpRequest) -> Store:
    return service_of(request).store


#: What a route takes as a parameter.
CurrentService = Annotated[Service, Depends(_current_service)]
CurrentStore = Annotated[Store, Depends(_current_store)]
