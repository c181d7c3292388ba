"""Who is asking, and whether they may: the one authorisation function of every route.

A bearer token (agents, people, scripts) or a session's cookie (the web app). Without
authentication (`--no-auth`, for local scripts) everybody is the same person, with every role.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, NamedTuple

from fastapi import Depends
from fastapi import Request as HttpRequest

from sayso.errors import NotAllowed, NotFound, Unauthenticated
from sayso.inbox.people import may_see
from sayso.rows import Call
from sayso.server.access.signing_in import COOKIE, who_is
from sayso.server.access.traces import note_refusal
from sayso.server.service import Service, service_of
from sayso.stores.base import Store
from sayso.twin import look
from sayso.types import Request, Reviewer

#: Who everybody is where nobody has to sign in.
ANYBODY = Reviewer("local", role="admin")

_ROLES = {
    "any": ("agent", "chat", "reviewer", "admin"),
    "agent": ("agent",),
    "chat": ("chat", "reviewer", "admin"),
    "reviewer": ("reviewer", "admin"),
    "admin": ("admin",),
}


class Who(NamedTuple):
    """Who asks, and the secret that proves it, so that it can be proved again later."""

    reviewer: Reviewer
    secret: str | None = None
    session: bool = False

    @property
    def name(self) -> str:
        """The name that the record will show."""
        return self.reviewer.name

    @property
    def role(self) -> str:
        """What kind of principal it is."""
        return self.reviewer.role

    def still(self, store: Store) -> bool:
        """Whether they would be let in again right now."""
        if self.secret is None:
            return True
        try:
            who_is(store, self.secret, session=self.session)
        except NotAllowed:
            return False
        return True


async def identify(service: Service, request: HttpRequest) -> Who:
    """The person or agent behind a request."""
    given = request.headers.get("authorization", "")
    scheme, _, secret = given.partition(" ")
    if given and scheme.lower() != "bearer":
        raise Unauthenticated("send the token as `Authorization: Bearer …`")
    if given:
        by, _ = await look(service.store, who_is, service.store, secret.strip(), session=False)
        return Who(by, secret.strip())
    if not service.auth:
        return Who(ANYBODY)
    cookie = request.cookies.get(COOKIE)
    if not cookie:
        raise Unauthenticated(
            "nobody is signed in: open the link that the server printed, or send a token "
            "(`sayso token create NAME --role …`) as `Authorization: Bearer …`"
        )
    by, _ = await look(service.store, who_is, service.store, cookie, session=True)
    return Who(by, cookie, session=True)


Check = Callable[[HttpRequest], Awaitable[Who]]


def needs(role: str) -> Check:
    """What gives who asks, if they have this role; ``any`` is any principal."""

    async def check(request: HttpRequest) -> Who:
        service = service_of(request)
        who = await identify(service, request)
        open_to_all = not service.auth and who.secret is None
        writes = request.method not in ("GET", "HEAD")
        # Where nobody signs in, all scripts are one person, and none of them a stranger.
        if not open_to_all and writes:
            service.limits.take(who.name)
        if not open_to_all and who.role not in _ROLES[role]:
            error = NotAllowed(
                f"{who.name} has the role {who.role!r}; this is for {' or '.join(_ROLES[role])}"
            )
            if writes:
                tried = f"{request.method} {request.url.path}"
                await note_refusal(service.store, who.reviewer, error, tried=tried)
            raise error
        request.state.who = who
        return who

    return check


Anyone = Annotated[Who, Depends(needs("any"))]
AnAgent = Annotated[Who, Depends(needs("agent"))]
AChatter = Annotated[Who, Depends(needs("chat"))]
AReviewer = Annotated[Who, Depends(needs("reviewer"))]


def check_sees(who: Who, call: Call | Request) -> None:
    """Refuse as if it were not there: that something exists is news too."""
    if not may_see(who.reviewer, call):
        raise NotFound(f"no request {call.id}: it is not there, or not for you")
