"""Channels to people: link an account, and what the platforms send."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from sayso.channels.kit.service import ChannelRunner, ChannelService
from sayso.errors import NotFound
from sayso.inbox import directory
from sayso.inbox.accounts import CODE_SECONDS, account_of, new_code
from sayso.rows import Credential
from sayso.server.auth import CurrentChatUser
from sayso.server.openapi import NO_AUTH, errors
from sayso.server.responses import JsonResponse
from sayso.server.schemas import LinkCodeView, OwnChannelPage
from sayso.server.service import service_of
from sayso.stores.base import Store
from sayso.sync import read, to_thread
from sayso.text import inline
from sayso.types import SECOND, iso

router = APIRouter(tags=["channels"])

ChannelName = Annotated[str, Path(description="the name, as in `GET /api/me/channels`")]


def _channels(request: Request) -> dict[str, ChannelRunner]:
    service: ChannelService | None = service_of(request).channels
    return {} if service is None else service.runners


def _channel(request: Request, name: str) -> ChannelRunner:
    try:
        return _channels(request)[name]
    except KeyError:
        raise NotFound(
            f"this server has no channel {name!r:.80}: see GET /api/me/channels"
        ) from None


def _links(store: Store, person: str) -> list[Credential]:
    now = store.now()
    return [row for row in store.credentials(person) if row.kind == "chat" and row.live(now)]


@router.get(
    "/api/me/channels",
    summary="List your channels",
    response_model=OwnChannelPage,
    responses=errors(401, 403),
)
async def list_own_channels(request: Request, who: CurrentChatUser) -> JsonResponse:
    """List the channels of this server, with the accounts that you linked in each."""
    store = service_of(request).store
    links = [(row, account_of(row)) for row in await read(store, _links, store, who.name)]

    def view(name: str) -> dict[str, Any]:
        accounts = [
            {"id": row.id, "account": inline(account.user), "linked_at": iso(row.created)}
            for row, account in links
            if account.channel == name
        ]
        return {"name": name, "accounts": accounts}

    return JsonResponse({"items": [view(name) for name in _channels(request)], "next": None})


@router.post(
    "/api/me/channels/{channel}/link",
    summary="Get a code that links an account",
    response_model=LinkCodeView,
    responses=errors(401, 403, 404, 429),
)
async def link_own_channel(
    request: Request, who: CurrentChatUser, channel: ChannelName
) -> JsonResponse:
    """Return a one-time code. Send it to the bot from the account within ten minutes."""
    store = service_of(request).store
    runner = _channel(request, channel)
    code = await to_thread(new_code, store, who.reviewer, runner.channel.name)
    ends = store.now() + CODE_SECONDS * SECOND
    return JsonResponse({"code": code, "send": f"/start {code}", "ends_at": iso(ends)})


@router.delete(
    "/api/me/channels/{channel}/accounts/{account_id}",
    summary="Unlink one of your accounts",
    status_code=204,
    response_class=Response,
    responses=errors(401, 403, 404, 429),
)
async def unlink_own_account(
    request: Request,
    who: CurrentChatUser,
    channel: ChannelName,
    account_id: Annotated[str, Path(description="the id, as in `GET /api/me/channels`")],
) -> Response:
    """End the link of an account: it can decide nothing any more."""
    store = service_of(request).store
    mine = await read(store, _links, store, who.name)
    if all((row.id, account_of(row).channel) != (account_id, channel) for row in mine):
        raise NotFound(f"you have no account {account_id!r:.80} in {channel!r:.80}")
    await to_thread(directory.revoke_tokens, store, who.name, (account_id,), by=who.reviewer)
    return Response(status_code=204)


@router.post("/channels/{channel}/webhook", include_in_schema=False, openapi_extra=NO_AUTH)
async def receive_from_platform(request: Request, channel: str) -> Response:
    """Take what a platform sends. The channel checks that it is the platform."""
    runner = _channel(request, channel)
    receive = getattr(runner.channel, "receive", None)
    if receive is None:
        raise NotFound(f"the channel {channel!r:.80} takes nothing over HTTP")
    status = await receive(dict(request.headers), await request.body(), runner.desk)
    return Response(status_code=status)
