"""People and agents, their tokens and their sessions. For admins only."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request

from sayso import text
from sayso.inbox import directory
from sayso.inbox.directory import TakenAway
from sayso.rows import Credential, Person
from sayso.server.auth import CurrentAdmin
from sayso.server.openapi import errors
from sayso.server.responses import JsonResponse
from sayso.server.schemas import (
    AddPersonBody,
    ChangePersonBody,
    CredentialPage,
    NewTokenBody,
    NewTokenView,
    PersonPage,
    PersonView,
    TakenAwayView,
    json_body,
)
from sayso.server.service import service_of
from sayso.stores.base import Store
from sayso.sync import read, to_thread
from sayso.types import SECOND, Json, iso, micros_of

router = APIRouter(prefix="/api", tags=["people"])

PersonName = Annotated[str, Path(description="the name, as in `GET /api/people`")]
_WRITE_ERRORS = errors(401, 403, 404, 409, 413, 422, 429)


@router.get(
    "/people", summary="List people", response_model=PersonPage, responses=errors(401, 403, 422)
)
async def list_people(
    request: Request,
    who: CurrentAdmin,
    all: Annotated[bool, Query(description="also list removed ones")] = False,
) -> JsonResponse:
    """List people and agents, with what they may do."""
    store = service_of(request).store
    people = await read(store, store.people)
    items = [_person_view(person) for person in people if all or person.active]
    return JsonResponse({"items": items, "next": None})


@router.post(
    "/people",
    summary="Add a person",
    status_code=201,
    response_model=PersonView,
    responses=_WRITE_ERRORS,
)
async def add_person(
    request: Request,
    who: CurrentAdmin,
    body: Annotated[AddPersonBody, json_body(AddPersonBody)],
) -> JsonResponse:
    """Add a person or an agent. A name that looks like another one is refused."""
    store = service_of(request).store
    fields = body.model_dump()
    person = await to_thread(
        lambda: directory.add_person(store, fields.pop("name"), by=who.reviewer, **fields)
    )
    return JsonResponse(_person_view(person), 201)


@router.post(
    "/people/{name}",
    summary="Change a person",
    response_model=TakenAwayView,
    responses=_WRITE_ERRORS,
)
async def change_person(
    request: Request,
    who: CurrentAdmin,
    name: PersonName,
    body: Annotated[ChangePersonBody, json_body(ChangePersonBody, required=False)],
) -> JsonResponse:
    """Change groups, role, mail address or stand-in, and list what ended with it."""
    store = service_of(request).store
    fields = body.model_dump(exclude={"away"})

    def change() -> TakenAway:
        ended = directory.change_person(store, name, by=who.reviewer, **fields)
        if body.away is None:
            return ended
        until = None if body.away.until is None else micros_of(body.away.until)
        away = directory.set_stand_in(store, name, body.away.stand_in, until, by=who.reviewer)
        return TakenAway(away, ended.credentials, ended.grants, ended.votes)

    return JsonResponse(_taken_away_view(await to_thread(change)))


@router.delete(
    "/people/{name}",
    summary="Remove a person",
    response_model=TakenAwayView,
    responses=errors(401, 403, 404, 422, 429),
)
async def remove_person(
    request: Request,
    who: CurrentAdmin,
    name: PersonName,
    ask_again: Annotated[
        bool, Query(description="ask again about calls that they approved and that wait to run")
    ] = False,
) -> JsonResponse:
    """Remove a person or an agent with all that they could do, and list what ended with it."""
    store = service_of(request).store
    ended = await to_thread(
        lambda: directory.remove_person(store, name, by=who.reviewer, ask_again=ask_again)
    )
    return JsonResponse(_taken_away_view(ended))


# -- tokens and sessions


@router.get(
    "/tokens", summary="List tokens", response_model=CredentialPage, responses=errors(401, 403)
)
async def list_tokens(request: Request, who: CurrentAdmin) -> JsonResponse:
    """List the tokens that are valid now."""
    return await _live(service_of(request).store, "token")


@router.post(
    "/tokens",
    summary="Create a token",
    status_code=201,
    response_model=NewTokenView,
    responses=_WRITE_ERRORS,
)
async def create_token(
    request: Request,
    who: CurrentAdmin,
    body: Annotated[NewTokenBody, json_body(NewTokenBody)],
) -> JsonResponse:
    """Create a token for a person or an agent, and add them if they are new.

    The secret is in this answer only.
    """
    store = service_of(request).store
    ends = None if body.ends_in is None else store.now() + round(body.ends_in * SECOND)
    token, row = await to_thread(
        lambda: directory.create_token(
            store, body.name, by=who.reviewer, role=body.role, groups=body.groups, ends=ends
        )
    )
    return JsonResponse({**_credential_view(row), "token": token}, 201)


@router.delete(
    "/tokens/{token_id}",
    summary="Revoke a token",
    response_model=CredentialPage,
    responses=errors(401, 403, 404, 429),
)
async def revoke_token(
    request: Request,
    who: CurrentAdmin,
    token_id: Annotated[str, Path(description="the id of a token or a session")],
) -> JsonResponse:
    """Revoke a token with the sessions that it opened, and list them."""
    store = service_of(request).store
    ended = await to_thread(lambda: directory.revoke_token(store, token_id, by=who.reviewer))
    return JsonResponse({"items": [_credential_view(row) for row in ended], "next": None})


@router.get(
    "/sessions", summary="List sessions", response_model=CredentialPage, responses=errors(401, 403)
)
async def list_sessions(request: Request, who: CurrentAdmin) -> JsonResponse:
    """List who is signed in, where, and until when."""
    return await _live(service_of(request).store, "session")


@router.delete(
    "/sessions",
    summary="End all sessions of a person",
    response_model=CredentialPage,
    responses=errors(401, 403, 404, 422, 429),
)
async def end_sessions(
    request: Request,
    who: CurrentAdmin,
    person: Annotated[str, Query(description="the name, as in `GET /api/people`")],
) -> JsonResponse:
    """Sign a person out everywhere, and list the sessions that ended."""
    store = service_of(request).store
    ended = await to_thread(lambda: directory.end_sessions(store, person, by=who.reviewer))
    return JsonResponse({"items": [_credential_view(row) for row in ended], "next": None})


async def _live(store: Store, kind: str) -> JsonResponse:
    rows = await read(store, store.credentials)
    now = store.now()
    items = [_credential_view(row) for row in rows if row.kind == kind and row.live(now)]
    return JsonResponse({"items": items, "next": None})


def _person_view(person: Person) -> dict[str, Json]:
    return {
        "name": text.inline(person.name),
        "kind": person.kind,
        "role": person.role,
        "groups": [text.inline(group) for group in person.groups],
        "mail": text.inline(person.mail),
        "origin": text.inline(person.origin),
        "status": person.status,
        "created_at": iso(person.created),
        "changed_at": iso(person.changed),
        "stand_in": text.inline(person.stand_in) or None,
        "away_until": iso(person.away_until),
    }


def _credential_view(row: Credential) -> dict[str, Json]:
    return {
        "id": row.id,
        "person": text.inline(row.person),
        "kind": row.kind,
        "role": row.role,
        "assurance": row.assurance,
        "opened_by": row.opened_by or None,
        "device": text.inline(row.device),
        "created_at": iso(row.created),
        "last_used_at": iso(row.last_used),
        "ends_at": iso(row.valid_until),
        "revoked_at": iso(row.revoked),
    }


def _taken_away_view(ended: TakenAway) -> dict[str, Any]:
    return {
        "person": _person_view(ended.person),
        "credentials": [_credential_view(row) for row in ended.credentials],
        "grants": [grant.id for grant in ended.grants],
        "votes": [call.id for call in ended.votes],
        "approved": [call.id for call in ended.approved],
    }
