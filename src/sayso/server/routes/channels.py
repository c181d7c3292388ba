"""Channels to people: link an account, and what the platforms send."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import asdict
from html import escape
from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import Path, Request
from starlette.responses import HTMLResponse, Response

from sayso.channels.kit.channel import OpensByLink, Received, TakesSubscriptions
from sayso.channels.kit.health import PATIENCE, read_health, send_test
from sayso.channels.kit.planner import addresses
from sayso.channels.kit.service import ChannelRunner, ChatChannel
from sayso.errors import NotFound
from sayso.inbox import directory
from sayso.inbox.accounts import (
    ADDRESS_KINDS,
    CODE_SECONDS,
    account_of,
    confirm_address,
    linking_words,
    new_code,
)
from sayso.inbox.notices import Notices, set_notices
from sayso.inbox.push import Subscription, subscribe
from sayso.rows import Credential
from sayso.server.auth import CurrentAdmin, CurrentChatUser
from sayso.server.openapi import Routes
from sayso.server.responses import JsonResponse
from sayso.server.schemas import (
    ChannelHealthView,
    LinkCodeBody,
    LinkCodeView,
    LinkedAccountView,
    MaySend,
    NoticesBody,
    NoticesView,
    OwnChannelView,
    Sent,
    SubscriptionBody,
    TestMessageView,
    page_of,
)
from sayso.server.service import CurrentService, CurrentStore, Service
from sayso.stores.base import Store
from sayso.sync import read, to_thread
from sayso.text import inline
from sayso.types import SECOND, iso
from sayso.views import device_of

router = Routes(tag="channels")

ChannelName = Annotated[str, Path(description="the name, as in `GET /api/me/channels`")]


def _channel(service: Service, name: str) -> ChannelRunner:
    try:
        return service.channels.runners[name]
    except KeyError:
        raise NotFound(
            f"this server has no channel {name!r:.80}: see GET /api/me/channels"
        ) from None


def _links(store: Store, person: str) -> list[Credential]:
    now = store.now()
    rows = store.credentials(person)
    return [row for row in rows if row.kind in ADDRESS_KINDS and row.live(now)]


def _link_view(row: Credential) -> dict[str, Any]:
    account = device_of(row) if row.kind == "push" else account_of(row).user
    return {"id": row.id, "account": inline(account), "linked_at": iso(row.created)}


@router.get("/api/me/channels", "List your channels", page_of(OwnChannelView))
def list_own_channels(service: CurrentService, who: CurrentChatUser) -> JsonResponse:
    """List the channels of this server, with the accounts that you linked in each."""
    store = service.store
    links = _links(store, who.name)

    def view(name: str, platform: ChatChannel) -> dict[str, Any]:
        link = "mail" if platform.takes_mail else "code"
        key = None
        if isinstance(platform, TakesSubscriptions):
            link = "push"
            key = platform.public_key
        accounts = [_link_view(row) for row in links if account_of(row).channel == name]
        return {"name": name, "link": link, "key": key, "accounts": accounts}

    items = [view(name, runner.channel) for name, runner in service.channels.runners.items()]
    return JsonResponse({"items": items, "next": None})


@router.post(
    "/api/me/channels/{channel}/link", "Get a code that links an account", LinkCodeView, 404
)
async def link_own_channel(
    service: CurrentService, who: CurrentChatUser, channel: ChannelName
) -> JsonResponse:
    """Return a one-time code. Send it to the bot from the account within ten minutes.

    Where there is no bot, as for mail, the code is sent to your address, and you confirm it.
    """
    store = service.store
    platform = _channel(service, channel).channel
    if isinstance(platform, TakesSubscriptions):
        raise NotFound(f"{channel} takes no code: subscribe the browser on its page")
    ends = iso(store.now() + CODE_SECONDS * SECOND)
    if not platform.takes_mail:
        code = await to_thread(new_code, store, who.reviewer, channel)
        url = None
        if isinstance(platform, OpensByLink):
            # Without a link, because the platform is down, the code can still be sent later.
            with contextlib.suppress(Exception):
                async with asyncio.timeout(PATIENCE):
                    url = await platform.bot_link(code)
        send = linking_words(channel, code)
        return JsonResponse({"code": code, "send": send, "open": url, "ends_at": ends})
    person = await read(store, store.person, who.name)
    address = "" if person is None else person.mail
    if not address:
        raise NotFound("you have no mail address: ask an admin to add it")
    code = await to_thread(new_code, store, who.reviewer, channel, address)
    await platform.send_code(address, code)
    return JsonResponse({"code": None, "send": None, "open": None, "ends_at": ends})


@router.post(
    "/api/me/channels/{channel}/confirm",
    "Link the address to which a code was sent",
    None,
    404,
    409,
)
def confirm_own_address(
    service: CurrentService, who: CurrentChatUser, channel: ChannelName, body: Sent[LinkCodeBody]
) -> Response:
    """Link your address with the code that was sent there."""
    store = service.store
    _channel(service, channel)
    confirm_address(store, who.reviewer, channel, body.code.strip())
    return Response(status_code=204)


@router.post(
    "/api/me/channels/{channel}/accounts",
    "Subscribe one of your browsers",
    LinkedAccountView,
    404,
    409,
    status_code=201,
)
async def add_own_account(
    service: CurrentService,
    who: CurrentChatUser,
    channel: ChannelName,
    body: Sent[SubscriptionBody],
) -> JsonResponse:
    """Let a browser get push messages, until you or an admin removes it.

    The endpoint has to be an `https` URL at a public address. The same browser again changes
    nothing.
    """
    platform = _channel(service, channel).channel
    if not isinstance(platform, TakesSubscriptions):
        raise NotFound(f"browsers cannot subscribe to {channel!r:.80}: get a code for it")
    service.limits.count_check(f"{who.name} subscribing")
    keys = body.keys
    subscription = Subscription(
        body.device.strip() or "A browser",
        body.endpoint,
        keys.p256dh,
        keys.auth,
        platform.public_key,
    )
    await platform.accept(subscription)
    row = await to_thread(subscribe, service.store, who.reviewer, subscription)
    return JsonResponse(_link_view(row), 201)


@router.post(
    "/api/me/channels/{channel}/test", "Send yourself a test message", TestMessageView, 404
)
async def test_own_channel(
    service: CurrentService, who: CurrentChatUser, channel: ChannelName
) -> JsonResponse:
    """Send a message to each of your accounts in a channel, and return what became of it."""
    store = service.store
    platform = _channel(service, channel).channel
    targets = await read(store, addresses, store, platform, who.name)
    if not targets:
        raise NotFound(f"you have no account in {channel!r:.80}: link one first")
    service.limits.count_check(f"{who.name} testing")
    sent, failure = await send_test(platform, targets)
    return JsonResponse({"sent": sent, "error": failure or None})


@router.get("/api/channels", "List channels and their health", page_of(ChannelHealthView))
async def list_channels(service: CurrentService, who: CurrentAdmin) -> JsonResponse:
    """List the channels of this server: who their bots are, and how their messages fare."""
    store = service.store
    counts = await read(store, store.count_deliveries)

    async def view(name: str, platform: ChatChannel) -> dict[str, Any]:
        health = await read(store, read_health, store, name)
        state = "failing" if health.failing else "ok"
        error = health.error
        bot = None
        try:
            async with asyncio.timeout(PATIENCE):
                bot = inline(await platform.check())
        except Exception as failure:
            state = "down"
            error = str(failure) or type(failure).__name__
        return {
            "name": name,
            "state": state,
            "bot": bot,
            "error": inline(error)[:300] or None,
            "failed_at": iso(health.failed_at or None),
            "sent_at": iso(health.sent_at or None),
            "waiting": counts.get((name, "due"), 0) + counts.get((name, "updating"), 0),
            "dead": counts.get((name, "dead"), 0),
        }

    runners = service.channels.runners
    views = (view(name, runner.channel) for name, runner in runners.items())
    return JsonResponse({"items": await asyncio.gather(*views), "next": None})


@router.delete(
    "/api/me/channels/{channel}/accounts/{account_id}", "Unlink one of your accounts", None, 404
)
def unlink_own_account(
    store: CurrentStore,
    who: CurrentChatUser,
    channel: ChannelName,
    account_id: Annotated[str, Path(description="the id, as in `GET /api/me/channels`")],
) -> Response:
    """End the link of an account: it can decide nothing any more."""
    mine = _links(store, who.name)
    if all((row.id, account_of(row).channel) != (account_id, channel) for row in mine):
        raise NotFound(f"you have no account {account_id!r:.80} in {channel!r:.80}")
    directory.revoke_tokens(store, who.name, (account_id,), by=who.reviewer)
    return Response(status_code=204)


@router.get("/api/me/notices", "Get when messages reach you", NoticesView)
def get_own_notices(store: CurrentStore, who: CurrentChatUser) -> JsonResponse:
    """Return your quiet hours, and whether messages wait while you use the web app."""
    person = store.person(who.name)
    return _notices_view(store, Notices() if person is None else Notices.of(person))


@router.put("/api/me/notices", "Set when messages reach you", NoticesView, 404, 409)
def set_own_notices(
    store: CurrentStore, who: CurrentChatUser, body: MaySend[NoticesBody]
) -> JsonResponse:
    """Set quiet hours in your time zone, and whether messages wait while you use the web app.

    Messages of quiet hours become one digest when these end. Requests of critical risk that have
    escalated are announced at once.
    """
    notices = Notices(**body.model_dump())
    return _notices_view(store, set_notices(store, who.reviewer, notices))


def _notices_view(store: Store, notices: Notices) -> JsonResponse:
    ends = notices.quiet_end(store.now())
    return JsonResponse({**asdict(notices), "quiet_until_now": iso(ends)})


_FORM = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Decide with a code</title>
<meta name="viewport" content="width=device-width">
<h1>Decide with a code</h1><p role="status">{}</p>
<form method="post"><p><label>Code <input name="code" autocomplete="off" required></label></p>
<p><label>Reason, if you reject <input name="reason"></label></p>
<p><button name="verb" value="approve">Approve</button>
<button name="verb" value="reason">Reject</button></p></form></html>"""


@router.plain.get("/channels/mail/{message}", include_in_schema=False)
async def show_code_form(service: CurrentService, message: str) -> Response:
    """Show where to enter the code of a mail. Scanners open it, so it says and decides nothing."""
    _channel(service, "mail")
    return _form("Enter the code from the mail.")


@router.plain.post("/channels/mail/{message}", include_in_schema=False)
async def decide_with_code(request: Request, service: CurrentService, message: str) -> Response:
    """Decide with the code of a mail."""
    runner = _channel(service, "mail")
    service.limits.count_check(f"mail {message:.40}")
    fields = parse_qs((await request.body()).decode("utf-8", "replace"))
    code, verb, reason = ((fields.get(name) or [""])[0] for name in ("code", "verb", "reason"))
    answer = await runner.desk.enter_code(message, code, verb, reason)
    return _form(answer.text)


def _form(words: str) -> Response:
    headers = {"cache-control": "no-store", "referrer-policy": "no-referrer"}
    return HTMLResponse(_FORM.format(escape(words)), headers=headers)


@router.plain.post("/channels/{channel}/webhook", include_in_schema=False)
async def receive_from_platform(
    request: Request, service: CurrentService, channel: str
) -> Response:
    """Take what a platform sends. The channel checks that it is the platform."""
    runner = _channel(service, channel)
    receive = getattr(runner.channel, "receive", None)
    if receive is None:
        raise NotFound(f"the channel {channel!r:.80} takes nothing over HTTP")
    reply: Received = await receive(dict(request.headers), await request.body(), runner.desk)
    return Response(reply.body, reply.status, media_type=reply.type or None)
