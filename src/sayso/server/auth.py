"""Authentication and authorization: who is calling, and whether their role may use the route.

Callers send a bearer token (agents, people, scripts) or a session cookie (the web app). Without
authentication (`--no-auth`, for local scripts) every caller is the same person, with every role.
Routes declare a parameter of type ``AnyPrincipal``, ``CurrentAgent``, ``CurrentChatUser`` or
``CurrentReviewer``.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Annotated, NamedTuple

from fastapi import Depends
from fastapi import Request as HttpRequest

from sayso.engine.commands import Note
from sayso.errors import NotAllowed, NotFound, StoreError, Unauthenticated
from sayso.inbox.directory import USE_NOTED_EVERY, note_use
from sayso.inbox.people import authenticate, authenticate_session, may_see, no_request, rights
from sayso.rows import Call, Proven
from sayso.server.middleware import cookie_name, foreign_page
from sayso.server.service import Service, service_of
from sayso.stores.base import Store
from sayso.sync import read, to_thread, write
from sayso.types import SECOND, Micros, Request, Reviewer

#: The caller on a server without authentication.
LOCAL_USER = Reviewer("local", role="admin")

_ROLES = {
    "any": ("agent", "chat", "reviewer", "admin"),
    "agent": ("agent",),
    "chat": ("chat", "reviewer", "admin"),
    "reviewer": ("reviewer", "admin"),
    "admin": ("admin",),
}
_MAX_NOTE = 200
_MAX_NOTED = 10_000


class Identity(NamedTuple):
    """The authenticated caller, with the secret that proved it so that it can be checked again."""

    reviewer: Reviewer
    secret: str | None = None
    session: bool = False
    #: When the token ends with which a proxy named the caller.
    ends: Micros | None = None

    @property
    def name(self) -> str:
        return self.reviewer.name

    @property
    def role(self) -> str:
        return self.reviewer.role

    @property
    def channel(self) -> str:
        """The channel to record with a decision: ``web`` for the page, ``api`` for a token."""
        return "web" if self.session or self.secret is None else "api"

    def seconds_left(self, store: Store) -> float:
        """Return how long the token or session still gives these rights; 0 if it does not."""
        by = self.reviewer
        if not isinstance(by, Proven):
            return math.inf
        try:
            same = rights(store, by) == by
        except NotAllowed:
            return 0
        credential = store.credential(by.proof)
        if not same or credential is None:
            return 0
        ends = [self.ends, credential.valid_until, *(person.away_until for person in by.stands_for)]
        earliest = min((end for end in ends if end is not None), default=None)
        return math.inf if earliest is None else (earliest - store.now()) / SECOND


async def identify(service: Service, request: HttpRequest) -> Identity:
    """Return who sent a request. Raise ``Unauthenticated`` if nothing proves it."""
    authorization = request.headers.get("authorization", "")
    scheme, _, secret = authorization.partition(" ")
    if authorization and scheme.lower() != "bearer":
        raise Unauthenticated("send the token as `Authorization: Bearer …`")
    if authorization:
        by = await read(service.store, authenticate, service.store, secret.strip())
        return Identity(by, secret.strip())
    if not service.auth:
        return Identity(LOCAL_USER)
    if service.proxy is not None:
        proxied = await service.proxy.identify(
            service.store, request.scope, device_of(request), service.limits.count_write
        )
        if proxied is not None:
            _refuse_foreign(request)
            if request.method not in ("GET", "HEAD") and "origin" not in request.headers:
                raise NotAllowed(
                    "a write of someone whom the proxy signed in needs an Origin header: use the "
                    "web app, or a bearer token"
                )
            await _note_use(service, proxied.by)
            return Identity(proxied.by, proxied.session, session=True, ends=proxied.ends)
    cookie = request.cookies.get(cookie_name(request.url.scheme))
    if not cookie:
        raise Unauthenticated(
            "you are not signed in: open the link that the server printed, or send a token "
            "(`sayso token create NAME --role …`) as `Authorization: Bearer …`"
        )
    _refuse_foreign(request)
    by = await read(service.store, authenticate_session, service.store, cookie)
    await _note_use(service, by)
    return Identity(by, cookie, session=True)


def device_of(request: HttpRequest) -> str:
    """Return what a list of sessions shows of the browser that opened one."""
    address = request.client.host if request.client else "?"
    return f"{request.headers.get('user-agent', '?'):.150} at {address}"


def _refuse_foreign(request: HttpRequest) -> None:
    """Raise ``NotAllowed`` if a page of another origin makes the browser send this."""
    if (page := foreign_page(request.scope)) is not None:
        raise NotAllowed(
            f"sessions work only on this server's own pages: from {page!r:.100}, send a bearer "
            "token"
        )


async def _note_use(service: Service, by: Proven) -> None:
    """Note that a session is in use, about once a minute."""
    now = time.monotonic()
    if service.noted_uses.get(by.proof, -math.inf) + USE_NOTED_EVERY > now:
        return
    if len(service.noted_uses) >= _MAX_NOTED:
        service.noted_uses.clear()
    service.noted_uses[by.proof] = now
    with suppress(StoreError):  # a full disk must not keep people from reading
        await to_thread(note_use, service.store, by)


class RequireRole:
    """A FastAPI dependency that gives the caller's ``Identity`` if they have a role.

    It also counts writes against the caller's rate limit and records refused ones.
    """

    def __init__(self, role: str) -> None:
        self._roles = _ROLES[role]

    async def __call__(self, request: HttpRequest) -> Identity:
        service = service_of(request)
        who = await identify(service, request)
        # Without authentication all scripts share one name, so limits and roles do not apply.
        unrestricted = not service.auth and who.secret is None
        writes = request.method not in ("GET", "HEAD")
        if not unrestricted and writes:
            service.limits.count_write(who.name)
        if who.role == "agent" and who.name in service.agents:
            raise NotAllowed(
                f"this server runs an agent named {who.name!r}: create a token with another name"
            )
        if not unrestricted and who.role not in self._roles:
            error = NotAllowed(
                f"{who.name} has the role {who.role!r}; this needs {' or '.join(self._roles)}"
            )
            if writes:
                tried = f"{request.method} {request.url.path}"
                await record_refusal(service, who.reviewer, error, tried=tried)
            raise error
        return who


AnyPrincipal = Annotated[Identity, Depends(RequireRole("any"))]
CurrentAgent = Annotated[Identity, Depends(RequireRole("agent"))]
CurrentChatUser = Annotated[Identity, Depends(RequireRole("chat"))]
CurrentReviewer = Annotated[Identity, Depends(RequireRole("reviewer"))]
CurrentAdmin = Annotated[Identity, Depends(RequireRole("admin"))]


def count_stream(service: Service, who: Identity) -> ExitStack:
    """Count an open stream of this person until the returned stack is closed.

    Raises ``TooMany`` beyond the limit. Without authentication all callers share one name, so
    nothing is counted.
    """
    counted = ExitStack()
    if who.secret is not None:
        counted.enter_context(service.limits.stream(who.name))
    return counted


def check_visible(who: Identity, call: Call | Request) -> None:
    """Raise ``NotFound`` if the caller may not see a request, as if it did not exist."""
    if not may_see(who.reviewer, call):
        raise no_request(call.id)


async def record_refusal(service: Service, by: Reviewer, error: Exception, **tried: str) -> None:
    """Add a refused attempt to the audit log; of many in a minute, only the first."""
    if not service.limits.may_record(by.name):
        return
    actor = f"agent:{by.name}" if by.role == "agent" else by.name
    body = {"error": type(error).__name__, "role": by.role}
    body |= {name: value[:_MAX_NOTE] for name, value in tried.items()}
    await write(service.store, Note(type="refused", actor=actor, body=body))


@asynccontextmanager
async def recording_refusals(service: Service, by: Reviewer, **tried: str) -> AsyncIterator[None]:
    """Record any ``NotAllowed`` or ``NotFound`` raised inside, then re-raise it."""
    try:
        yield
    except (NotAllowed, NotFound) as error:
        await record_refusal(service, by, error, **tried)
        raise
