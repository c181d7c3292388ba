"""Channels to people: link an account, and what the platforms send."""

from __future__ import annotations

from html import escape
from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Path, Request
from starlette.responses import HTMLResponse, Response

from sayso.channels.kit.channel import Received
from sayso.channels.kit.service import ChannelRunner
from sayso.errors import NotFound
from sayso.inbox import directory
from sayso.inbox.accounts import CODE_SECONDS, account_of, confirm_address, new_code
from sayso.rows import Credential
from sayso.server.auth import CurrentChatUser
from sayso.server.openapi import NO_AUTH, errors
from sayso.server.responses import JsonResponse
from sayso.server.schemas import LinkCodeBody, LinkCodeView, OwnChannelPage, json_body
from sayso.server.service import service_of
from sayso.stores.base import Store
from sayso.sync import read, to_thread
from sayso.text import inline
from sayso.types import SECOND, iso

router = APIRouter(tags=["channels"])

ChannelName = Annotated[str, Path(description="the name, as in `GET /api/me/channels`")]


def _channel(request: Request, name: str) -> ChannelRunner:
    try:
        return service_of(request).channels.runners[name]
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

    names = service_of(request).channels.runners
    return JsonResponse({"items": [view(name) for name in names], "next": None})


@router.post(
    "/api/me/channels/{channel}/link",
    summary="Get a code that links an account",
    response_model=LinkCodeView,
    responses=errors(401, 403, 404, 429),
)
async def link_own_channel(
    request: Request, who: CurrentChatUser, channel: ChannelName
) -> JsonResponse:
    """Return a one-time code. Send it to the bot from the account within ten minutes.

    Where there is no bot, as for mail, the code is sent to your address, and you confirm it.
    """
    store = service_of(request).store
    platform = _channel(request, channel).channel
    ends = iso(store.now() + CODE_SECONDS * SECOND)
    if not platform.takes_mail:
        code = await to_thread(new_code, store, who.reviewer, channel)
        return JsonResponse({"code": code, "send": f"/start {code}", "ends_at": ends})
    person = await read(store, store.person, who.name)
    address = "" if person is None else person.mail
    if not address:
        raise NotFound("you have no mail address: ask an admin to add it")
    code = await to_thread(new_code, store, who.reviewer, channel, address)
    await platform.send_code(address, code)
    return JsonResponse({"code": None, "send": None, "ends_at": ends})


@router.post(
    "/api/me/channels/{channel}/confirm",
    summary="Link the address to which a code was sent",
    status_code=204,
    response_class=Response,
    responses=errors(400, 401, 403, 404, 409, 413, 422, 429),
)
async def confirm_own_address(
    request: Request,
    who: CurrentChatUser,
    channel: ChannelName,
    body: Annotated[LinkCodeBody, json_body(LinkCodeBody)],
) -> Response:
    """Link your address with the code that was sent there."""
    store = service_of(request).store
    _channel(request, channel)
    await to_thread(confirm_address, store, who.reviewer, channel, body.code.strip())
    return Response(status_code=204)


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


_FORM = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Decide with a code</title>
<meta name="viewport" content="width=device-width">
<h1>Decide with a code</h1><p role="status">{}</p>
<form method="post"><p><label>Code <input name="code" autocomplete="off" required></label></p>
<p><label>Reason, if you reject <input name="reason"></label></p>
<p><button name="verb" value="approve">Approve</button>
<button name="verb" value="reason">Reject</button></p></form></html>"""


@router.get("/channels/mail/{message}", include_in_schema=False)
async def show_code_form(request: Request, message: str) -> Response:
    """Show where to enter the code of a mail. Scanners open it, so it says and decides nothing."""
    _channel(request, "mail")
    return _form("Enter the code from the mail.")


@router.post("/channels/mail/{message}", include_in_schema=False)
async def decide_with_code(request: Request, message: str) -> Response:
    """Decide with the code of a mail."""
    runner = _channel(request, "mail")
    service_of(request).limits.count_check(f"mail {message:.40}")
    fields = parse_qs((await request.body()).decode("utf-8", "replace"))
    code, verb, reason = ((fields.get(name) or [""])[0] for name in ("code", "verb", "reason"))
    answer = await runner.desk.enter_code(message, code, verb, reason)
    return _form(answer.text)


def _form(words: str) -> Response:
    headers = {"cache-control": "no-store", "referrer-policy": "no-referrer"}
    return HTMLResponse(_FORM.format(escape(words)), headers=headers)


@router.post("/channels/{channel}/webhook", include_in_schema=False, openapi_extra=NO_AUTH)
async def receive_from_platform(request: Request, channel: str) -> Response:
    """Take what a platform sends. The channel checks that it is the platform."""
    runner = _channel(request, channel)
    receive = getattr(runner.channel, "receive", None)
    if receive is None:
        raise NotFound(f"the channel {channel!r:.80} takes nothing over HTTP")
    reply: Received = await receive(dict(request.headers), await request.body(), runner.desk)
    return Response(reply.body, reply.status, media_type=reply.type or None)
