"""Sign-in without a token: through an OpenID provider, or with a passkey; and people's passkeys."""

from __future__ import annotations

import html
import json
from dataclasses import replace
from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import Path, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from sayso import passkeys as signatures
from sayso.errors import NotAllowed, NotFound, SaysoError, Unauthenticated
from sayso.inbox import directory
from sayso.inbox.decisions import decision_words
from sayso.inbox.people import token_hash
from sayso.rows import Confirmation, Credential, Proven
from sayso.server.auth import AnyPrincipal, Identity, device_of
from sayso.server.openapi import Routes
from sayso.server.responses import JsonResponse, error_status
from sayso.server.routes.system import count_attempt, count_sign_in, set_session
from sayso.server.schemas import (
    OptionsView,
    PasskeyAnswerBody,
    PasskeyBody,
    PasskeyView,
    Sent,
    SignInView,
    page_of,
    read_body,
)
from sayso.server.service import CurrentService, Service, service_of
from sayso.sync import read, to_thread
from sayso.text import inline
from sayso.types import Decision, Json, Reviewer, iso

router = Routes("/api", tag="session")

PasskeyId = Annotated[str, Path(description="the id, as in `GET /api/passkeys`")]

_ATTEMPT = "sayso_oidc"
_MAX_LOGOUT = 65_536


@router.get("/login", "List the ways to sign in", SignInView)
async def list_sign_ins(service: CurrentService) -> JsonResponse:
    """Say whether people can sign in through an OpenID provider, and with passkeys."""
    return JsonResponse({"oidc": service.oidc is not None, "passkeys": service.passkeys})


# -- OpenID Connect


@router.plain.get("/login/oidc", include_in_schema=False)
async def begin_oidc(request: Request, page: str = "/", fresh: bool = False) -> Response:
    """Send the browser to the provider. `fresh` asks the person to sign in again there.

    `page` is the page of the web app to show afterwards.
    """
    from sayso.server.oidc import ATTEMPT_SECONDS, Attempt

    service = service_of(request)
    if service.oidc is None:
        raise _no_provider()
    count_attempt(request)
    own_page = page if page.startswith("/") and not page.startswith(("//", "/\\")) else "/"
    attempt = Attempt.new(own_page, fresh=fresh)
    response = RedirectResponse(await service.oidc.begin(attempt), 302)
    response.headers["cache-control"] = "no-store"
    response.set_cookie(
        _ATTEMPT,
        attempt.to_cookie(),
        max_age=ATTEMPT_SECONDS,
        httponly=True,
        samesite="lax",  # the provider's page sends the browser back
        secure=request.url.scheme == "https",
        path="/api/login/oidc",
    )
    return response


def _no_provider() -> NotFound:
    return NotFound("this server has no OpenID provider: start it with --oidc FILE")


@router.plain.get("/login/oidc/callback", include_in_schema=False)
async def finish_oidc(request: Request) -> Response:
    """Open a session for the person whom the provider has identified."""
    from sayso.server.oidc import Attempt, identified

    service = service_of(request)
    try:
        if service.oidc is None:
            raise _no_provider()
        count_attempt(request)
        attempt = Attempt.from_cookie(request.cookies.get(_ATTEMPT, ""))
        if attempt is None:
            raise Unauthenticated("this sign-in was not started in this browser: start it again")
        person = await service.oidc.finish(dict(request.query_params), attempt)
        secret = await to_thread(
            directory.sign_in_as,
            service.store,
            identified(person, service.oidc.settings),
            # Without it, the provider may have asked the person nothing for days.
            signed_in=person.authenticated_at or 0,
            session_id=f"oidc:{person.session}" if person.session else "",
            device=device_of(request),
        )
    except SaysoError as error:
        response: Response = _failed_page(error)
    else:
        response = RedirectResponse(attempt.page, 303)
        set_session(request, response, secret)
    response.headers["cache-control"] = "no-store"
    response.delete_cookie(_ATTEMPT, path="/api/login/oidc")
    return response


def _failed_page(error: SaysoError) -> Response:
    """Return a page that says why, since a person's browser shows it."""
    message = html.escape(inline(str(error)))
    return HTMLResponse(
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Sign-in failed</title>'
        f"<h1>Sign-in failed</h1><p>{message[:1].upper()}{message[1:]}.</p>"
        '<p><a href="/login">Back to the sign-in page</a></p></html>',
        error_status(error),
    )


@router.plain.post("/login/oidc/logout", include_in_schema=False)
async def end_oidc_sessions(request: Request) -> Response:
    """End the sessions that the provider says are over (OpenID back-channel logout)."""
    service = service_of(request)
    if service.oidc is None:
        raise _no_provider()
    count_attempt(request)
    body = await read_body(request, _MAX_LOGOUT)
    form = parse_qs(body.decode("utf-8", "replace"))
    logout = await service.oidc.logged_out(form.get("logout_token", [""])[0])
    await to_thread(
        directory.end_provider_sessions,
        service.store,
        logout.issuer,
        logout.subject,
        f"oidc:{logout.session}" if logout.session else "",
    )
    return Response(status_code=200, headers={"cache-control": "no-store"})


# -- passkeys


def _own_origin(request: Request) -> str:
    """Return the origin of this server's pages, as the browser knows it."""
    return f"{request.url.scheme}://{request.url.netloc}"


def _passkeys_of(service: Service, name: str) -> list[Credential]:
    now = service.store.now()
    credentials = service.store.credentials(name)
    return [one for one in credentials if one.kind == "passkey" and one.live(now)]


def _require_passkeys(service: Service) -> Any:
    if not service.passkeys:
        raise NotFound('this server takes no passkeys: install `pip install "sayso[passkeys]"`')
    from sayso.server import passkeys

    return passkeys


def _passkey_view(passkey: Credential) -> dict[str, Json]:
    algorithm, _, key = passkey.public_key.partition(":")
    return {
        "id": passkey.id,
        "device": inline(passkey.device),
        "created_at": iso(passkey.created),
        "last_used_at": iso(passkey.last_used),
        "fingerprint": signatures.fingerprint(key),
        "algorithm": int(algorithm),
    }


@router.get("/passkeys", "List your passkeys", page_of(PasskeyView))
def list_passkeys(service: CurrentService, who: AnyPrincipal) -> JsonResponse:
    """List your own passkeys, with the fingerprints that proofs of decisions name."""
    known = _passkeys_of(service, who.name)
    return JsonResponse({"items": [_passkey_view(one) for one in known], "next": None})


@router.post("/passkeys/registration/options", "Begin to add a passkey", OptionsView, 404)
def begin_passkey(request: Request, who: AnyPrincipal) -> JsonResponse:
    """Return what the browser needs to make a passkey for you."""
    service = service_of(request)
    passkeys = _require_passkeys(service)
    _require_session(who)
    nonce = passkeys.new_nonce(service.store.keys, service.store.now())
    statement = passkeys.registration_statement(who.name, nonce, _own_origin(request))
    known = _passkeys_of(service, who.name)
    ids = map(directory.browser_id, known)
    options = passkeys.registration_options(statement, who.name, who.name, ids)
    return JsonResponse({"statement": statement, "options": options})


def _require_session(who: Identity) -> None:
    if not who.session:
        raise NotAllowed("passkeys are added and removed on the page: sign in there")


@router.post("/passkeys", "Add a passkey", PasskeyView, 404, 409, status_code=201)
def add_passkey(request: Request, who: AnyPrincipal, body: Sent[PasskeyBody]) -> JsonResponse:
    """Add the passkey that the browser made."""
    service = service_of(request)
    passkeys = _require_passkeys(service)
    _require_session(who)
    words, _ = _own_statement(request, service, body.statement)
    if words.get("register") != who.name:
        raise NotAllowed("this passkey was made for another person: begin again")
    made = passkeys.registered(body.statement, body.answer)
    added = directory.add_passkey(
        service.store,
        who.reviewer,
        made.id,
        f"{made.algorithm}:{made.public_key}",
        device=body.name or device_of(request),
    )
    return JsonResponse(_passkey_view(added), 201)


def _own_statement(request: Request, service: Service, statement: str) -> tuple[Any, int]:
    """Return what a statement says and when it was made; raise unless this server made it."""
    passkeys = _require_passkeys(service)
    try:
        words = json.loads(statement)
        nonce, origin = words["nonce"], words["origin"]
    except (ValueError, TypeError, KeyError):
        raise NotAllowed("this statement was not made by this server") from None
    if not isinstance(nonce, str) or origin != _own_origin(request):
        raise NotAllowed("this statement was made for another site")
    return words, passkeys.nonce_time(service.store.keys, nonce, service.store.now())


@router.delete("/passkeys/{passkey_id}", "Remove a passkey", None, 404)
def remove_passkey(service: CurrentService, who: AnyPrincipal, passkey_id: PasskeyId) -> Response:
    """Remove one of your passkeys, and end the sessions that it opened."""
    _require_session(who)
    known = _passkeys_of(service, who.name)
    if all(one.id != passkey_id for one in known):
        raise NotFound(f"you have no passkey {passkey_id!r:.80}")
    directory.revoke_tokens(service.store, who.name, (passkey_id,), by=who.reviewer)
    return Response(status_code=204)


@router.post(
    "/login/passkey/options", "Begin to sign in with a passkey", OptionsView, 403, 404, 429
)
async def begin_passkey_sign_in(request: Request) -> JsonResponse:
    """Return what the browser needs to sign in with any passkey of this site."""
    service = service_of(request)
    passkeys = _require_passkeys(service)
    await count_sign_in(request)
    nonce = passkeys.new_nonce(service.store.keys, service.store.now())
    statement = passkeys.sign_in_statement(nonce, _own_origin(request))
    options = passkeys.assertion_options(statement, [])
    return JsonResponse({"statement": statement, "options": options})


@router.post("/login/passkey", "Sign in with a passkey", None, 401, 403, 404, 429)
async def sign_in_with_passkey(request: Request, body: Sent[PasskeyAnswerBody]) -> Response:
    """Exchange a passkey's answer for a session cookie. An answer counts once."""
    service = service_of(request)
    await count_sign_in(request)
    words, answered = _own_statement(request, service, body.statement)
    if words.get("sign_in") is not True:
        raise NotAllowed("this is no answer to a sign-in: begin again")
    passkey, _ = await _confirmed(service, body)
    secret = await to_thread(
        directory.sign_in_with_passkey, service.store, passkey, answered, device_of(request)
    )
    response = Response(status_code=204)
    set_session(request, response, secret)
    return response


async def _confirmed(
    service: Service, body: PasskeyAnswerBody, name: str | None = None
) -> tuple[Credential, Confirmation]:
    """Return the passkey that signed a statement, and its signature, checked."""
    passkeys = _require_passkeys(service)
    answer_id = body.answer.get("id")
    hash = token_hash(answer_id) if isinstance(answer_id, str) else ""
    passkey = await read(service.store, service.store.credential, hash)
    if passkey is None or passkey.kind != "passkey" or name not in (None, passkey.person):
        raise Unauthenticated("this passkey is unknown or revoked: use another one")
    algorithm, _, public_key = passkey.public_key.partition(":")
    stored = passkeys.Passkey(answer_id, public_key, int(algorithm))
    assertion = passkeys.asserted(body.statement, body.answer, stored)
    return passkey, Confirmation(hash, passkey.public_key, assertion.to_json())


# -- confirming a decision


async def confirmation_options(
    request: Request, who: Identity, subject: str, digest: str | None, decision: Decision
) -> dict[str, Json]:
    """Return what the browser needs to sign a decision with one of the person's passkeys."""
    service = service_of(request)
    passkeys = _require_passkeys(service)
    known = await read(service.store, _passkeys_of, service, who.name)
    if not known:
        raise NotAllowed("you have no passkey yet: add one in your settings")
    nonce = passkeys.new_nonce(service.store.keys, service.store.now())
    origin = _own_origin(request)
    statement = signatures.statement(subject, digest, decision_words(decision), nonce, origin)
    options = passkeys.assertion_options(statement, map(directory.browser_id, known))
    return {"statement": statement, "options": options}


async def confirmed_by(request: Request, who: Identity, body: PasskeyAnswerBody | None) -> Reviewer:
    """Return who decides: with a passkey's signature, if the decision has one."""
    if body is None:
        return who.reviewer
    service = service_of(request)
    _own_statement(request, service, body.statement)
    _, confirmation = await _confirmed(service, body, who.name)
    if not isinstance(who.reviewer, Proven):
        raise NotAllowed("this server knows nobody, so nobody has passkeys: start it with auth")
    return replace(who.reviewer, confirmation=confirmation)
