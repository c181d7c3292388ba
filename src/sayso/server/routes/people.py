"""People and agents, their groups, tokens and sessions: for admins, and your own sessions for you.

Lists are in the order of a column that does not change, and a cursor is the last row's value in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Path, Query
from starlette.responses import Response

from sayso.errors import NotFound
from sayso.inbox import directory
from sayso.inbox.directory import TakenAway
from sayso.rows import Credential, Person, Proven
from sayso.server.auth import CurrentAdmin, CurrentChatUser, Identity
from sayso.server.openapi import Routes
from sayso.server.responses import JsonResponse
from sayso.server.routes.parameters import Limit
from sayso.server.schemas import (
    AddPersonBody,
    ChangePersonBody,
    CredentialView,
    MaySend,
    NewTokenBody,
    NewTokenView,
    PeopleGroupView,
    PersonDetailsView,
    PersonPage,
    PersonView,
    Sent,
    TakenAwayView,
    page_of,
)
from sayso.server.service import CurrentStore
from sayso.stores.base import Store
from sayso.text import inline
from sayso.types import SECOND, iso, micros_of
from sayso.views import credential_json, person_json

router = Routes("/api", tag="people")

T = TypeVar("T")
PersonName = Annotated[str, Path(description="the name, as in `GET /api/people`")]
Words = Annotated[str, Query(max_length=200, description="words that each item has to contain")]
After = Annotated[str, Query(max_length=300, description="the `next` of the page before")]
OfPerson = Annotated[str | None, Query(description="only those of this person or agent")]


def _page(
    rows: Iterable[T],
    cursor: Callable[[T], str],
    view: Callable[[T], dict[str, Any]],
    after: str,
    limit: int,
) -> JsonResponse:
    """Return a page of the rows, which are sorted by their cursors."""
    rest = sorted((row for row in rows if cursor(row) > after), key=cursor)
    following = cursor(rest[limit - 1]) if len(rest) > limit else None
    return JsonResponse({"items": [view(row) for row in rest[:limit]], "next": following})


def _contain(words: str, *texts: str) -> bool:
    """Return whether each of the words is in one of the texts, in any case."""
    folded = [text.casefold() for text in texts]
    return all(any(word in text for text in folded) for word in words.casefold().split())


@router.get("/people", "List people", PersonPage)
def list_people(
    store: CurrentStore,
    who: CurrentAdmin,
    q: Words = "",
    kind: Annotated[
        Literal["person", "agent"] | None, Query(description="only people, or only agents")
    ] = None,
    group: Annotated[str | None, Query(description="only members of this group")] = None,
    away: Annotated[bool, Query(description="only those for whom a stand-in decides now")] = False,
    all: Annotated[bool, Query(description="also list removed ones")] = False,
    after: After = "",
    limit: Limit = 100,
) -> JsonResponse:
    """List people and agents by name, with what they may do. `q` searches name, mail and groups."""

    def wanted(person: Person) -> bool:
        return (
            (all or person.active)
            and kind in (None, person.kind)
            and (group is None or group in person.groups)
            and (not away or person.has_stand_in(person.stand_in, store.now()))
            and _contain(q, person.name, person.mail, *person.groups)
        )

    def view(person: Person) -> dict[str, Any]:
        return _listed_view(person, store.credentials(person.name))

    return _page(filter(wanted, store.people()), lambda person: person.name, view, after, limit)


def _listed_view(person: Person, credentials: Iterable[Credential]) -> dict[str, Any]:
    latest = max((row.signed_in for row in credentials), default=0)
    return {**person_json(person), "signed_in_at": iso(latest or None)}


@router.get("/people/{name}", "Get a person", PersonDetailsView, 404)
def get_person(store: CurrentStore, who: CurrentAdmin, name: PersonName) -> JsonResponse:
    """Return a person or an agent with what is theirs now: tokens, sessions and passkeys."""
    person, absent = store.actor(name)
    if person is None or person.name != name:
        raise NotFound(f"no person or agent {name!r:.80}: see GET /api/people")
    known = store.credentials(name)
    now = store.now()
    return JsonResponse(
        {
            **_listed_view(person, known),
            "credentials": [_credential_view(row, who) for row in known if row.live(now)],
            "stands_in_for": [
                inline(other.name)
                for other in absent
                if person.active and other.has_stand_in(name, now)
            ],
        }
    )


@router.get("/groups", "List groups", page_of(PeopleGroupView))
def list_groups(
    store: CurrentStore, who: CurrentAdmin, q: Words = "", after: After = "", limit: Limit = 100
) -> JsonResponse:
    """List the groups that people and agents are in, by name, with how many are in each."""
    people = store.people()
    sizes = Counter(group for person in people if person.active for group in person.groups)
    groups = [(name, size) for name, size in sizes.items() if _contain(q, name)]

    def view(group: tuple[str, int]) -> dict[str, Any]:
        return {"name": inline(group[0]), "members": group[1]}

    return _page(groups, lambda group: group[0], view, after, limit)


@router.post("/people", "Add a person", PersonView, 404, 409, status_code=201)
def add_person(store: CurrentStore, who: CurrentAdmin, body: Sent[AddPersonBody]) -> JsonResponse:
    """Add a person or an agent. A name that looks like another one is refused."""
    fields = body.model_dump()
    person = directory.add_person(store, fields.pop("name"), by=who.reviewer, **fields)
    return JsonResponse(person_json(person), 201)


@router.post("/people/{name}", "Change a person", TakenAwayView, 404, 409)
def change_person(
    store: CurrentStore, who: CurrentAdmin, name: PersonName, body: MaySend[ChangePersonBody]
) -> JsonResponse:
    """Change groups, role, mail address, stand-in or account, and list what ended with it."""
    fields = body.model_dump(exclude={"away", "account"})
    if body.away is not None:
        until = None if body.away.until is None else micros_of(body.away.until)
        fields["away"] = (body.away.stand_in, until)
    if body.account is not None:
        fields["account"] = (body.account.issuer, body.account.subject)
    ended = directory.change_person(store, name, by=who.reviewer, **fields)
    return JsonResponse(_taken_away_view(ended, who))


@router.delete("/people/{name}", "Remove a person", TakenAwayView, 404)
def remove_person(
    store: CurrentStore,
    who: CurrentAdmin,
    name: PersonName,
    ask_again: Annotated[
        bool, Query(description="ask again about calls that they approved and that wait to run")
    ] = False,
) -> JsonResponse:
    """Remove a person or an agent with all that they could do, and list what ended with it."""
    ended = directory.remove_person(store, name, by=who.reviewer, ask_again=ask_again)
    return JsonResponse(_taken_away_view(ended, who))


# -- tokens and sessions


@router.get("/tokens", "List tokens", page_of(CredentialView))
def list_tokens(
    store: CurrentStore,
    who: CurrentAdmin,
    person: OfPerson = None,
    q: Words = "",
    after: After = "",
    limit: Limit = 100,
) -> JsonResponse:
    """List the tokens that are valid now, oldest first. `q` searches person and id."""
    return _list_live(store, who, "token", person, q, after, limit)


@router.post("/tokens", "Create a token", NewTokenView, 404, 409, status_code=201)
def create_token(store: CurrentStore, who: CurrentAdmin, body: Sent[NewTokenBody]) -> JsonResponse:
    """Create a token for a person or an agent, and add them if they are new.

    The secret is in this answer only.
    """
    ends = None if body.ends_in is None else store.now() + round(body.ends_in * SECOND)
    token, row = directory.create_token(
        store, body.name, by=who.reviewer, role=body.role, groups=body.groups, ends=ends
    )
    return JsonResponse({**_credential_view(row, who), "token": token}, 201)


@router.delete("/tokens/{token_id}", "Revoke a token", page_of(CredentialView), 404)
def revoke_token(
    store: CurrentStore,
    who: CurrentAdmin,
    token_id: Annotated[str, Path(description="the id of a token or a session")],
) -> JsonResponse:
    """Revoke a token with the sessions that it opened, and list them."""
    return _end(store, who, directory.revoke_token, token_id)


@router.get("/sessions", "List sessions", page_of(CredentialView))
def list_sessions(
    store: CurrentStore,
    who: CurrentAdmin,
    person: OfPerson = None,
    q: Words = "",
    after: After = "",
    limit: Limit = 100,
) -> JsonResponse:
    """List who is signed in, where, and until when, oldest first. `q` searches those, too."""
    return _list_live(store, who, "session", person, q, after, limit)


@router.delete("/sessions", "End all sessions of a person", page_of(CredentialView), 404)
def end_sessions(
    store: CurrentStore,
    who: CurrentAdmin,
    person: Annotated[str, Query(description="the name, as in `GET /api/people`")],
) -> JsonResponse:
    """Sign a person out everywhere, and list the sessions that ended."""
    return _end(store, who, directory.end_sessions, person)


@router.get("/me/sessions", "List your sessions", page_of(CredentialView))
def list_own_sessions(store: CurrentStore, who: CurrentChatUser) -> JsonResponse:
    """List where you are signed in, and until when."""
    live = _live(store, who.name)
    return _rows_view([row for row in live if row.kind == "session"], who)


@router.delete("/me/sessions", "Sign out everywhere", page_of(CredentialView))
def end_own_sessions(store: CurrentStore, who: CurrentChatUser) -> JsonResponse:
    """End all your sessions, this one too, and list them."""
    return _end(store, who, directory.end_sessions, who.name)


@router.delete("/me/sessions/{session_id}", "End one of your sessions", None, 404)
def end_own_session(
    store: CurrentStore,
    who: CurrentChatUser,
    session_id: Annotated[str, Path(description="the id, as in `GET /api/me/sessions`")],
) -> Response:
    """Sign out in another browser."""
    live = _live(store, who.name)
    if all((row.id, row.kind) != (session_id, "session") for row in live):
        raise NotFound(f"you have no session {session_id!r:.80}: see GET /api/me/sessions")
    directory.revoke_tokens(store, who.name, (session_id,), by=who.reviewer)
    return Response(status_code=204)


def _list_live(
    store: Store,
    who: Identity,
    kind: str,
    person: str | None,
    words: str,
    after: str,
    limit: int,
) -> JsonResponse:
    rows = [
        row
        for row in _live(store, person)
        if row.kind == kind and _contain(words, row.person, row.id, row.device)
    ]

    def cursor(row: Credential) -> str:
        return f"{row.created:020} {row.id}"

    return _page(rows, cursor, lambda row: _credential_view(row, who), after, limit)


def _live(store: Store, person: str | None) -> list[Credential]:
    now = store.now()
    return [row for row in store.credentials(person) if row.live(now)]


def _end(
    store: Store, who: Identity, end: Callable[..., tuple[Credential, ...]], of: str
) -> JsonResponse:
    """End what a token's id or a person's name says, and list it."""
    ended = end(store, of, by=who.reviewer)
    return _rows_view(ended, who)


def _rows_view(rows: Iterable[Credential], who: Identity) -> JsonResponse:
    return JsonResponse({"items": [_credential_view(row, who) for row in rows], "next": None})


def _credential_view(row: Credential, who: Identity) -> dict[str, Any]:
    by = who.reviewer
    current = isinstance(by, Proven) and by.proof == row.hash
    return {**credential_json(row), "current": current}


def _taken_away_view(ended: TakenAway, who: Identity) -> dict[str, Any]:
    return {
        "person": person_json(ended.person),
        "credentials": [_credential_view(row, who) for row in ended.credentials],
        "grants": [grant.id for grant in ended.grants],
        "votes": [call.id for call in ended.votes],
        "approved": [call.id for call in ended.approved],
    }
