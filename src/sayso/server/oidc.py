"""Sign-in with OpenID Connect: who the provider says that a browser's user is.

``Provider.begin`` returns the provider's page to send the browser to, and an ``Attempt`` that only
this browser keeps, in a cookie. ``Provider.finish`` takes what the provider sends back, exchanges
the code, verifies the id token, and returns a ``SignIn``. Nothing is kept here between the two, so
any server may finish what another began. A person is the pair of issuer and subject; an e-mail
address names nobody.

A token is accepted if it is signed with one of the provider's current keys by one of
``ALGORITHMS``, and names this issuer, this client, this attempt and a time that has not passed.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import math
import os
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlencode

import httpx

from sayso.errors import InvalidPolicy, NotAllowed, StoreError, Unauthenticated
from sayso.inbox.directory import Identified
from sayso.server.settings import check_url, is_text_list, load_settings
from sayso.sync import to_thread
from sayso.types import SECOND, Micros

try:
    from joserfc import jwt
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet
except ImportError as error:
    raise ImportError('sign-in with OpenID Connect needs `pip install "sayso[oidc]"`') from error

#: Signatures with a private key. Neither "none" nor HMAC, whose secret others may know.
ALGORITHMS = [
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
]
SECRET_ENVIRONMENT = "SAYSO_OIDC_SECRET"
#: Where the provider sends the browser back to, below the server's URL.
CALLBACK = "/api/login/oidc/callback"
#: How long a browser may take at the provider's page.
ATTEMPT_SECONDS = 600

_LEEWAY = 60  # seconds by which the two clocks may differ
_METADATA_SECONDS = 3600.0
_KEYS_SECONDS = 300.0
#: How long to wait at least before keys are read again for a token that cannot be verified.
KEYS_PAUSE = 10.0
_TIMEOUT = 10.0
_MAX_BODY = 1_000_000
_LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How this server signs people in at one provider."""

    #: The provider, exactly as its tokens name it.
    issuer: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    #: Where people reach this server, such as ``https://sayso.example.com``.
    url: str
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    #: The claim that becomes a person's name when they sign in for the first time.
    name_claim: str = "preferred_username"
    #: The claim with a person's groups, which are taken over at each sign-in; "" for none.
    groups_claim: str = "groups"
    #: Only members of these groups may sign in; empty for everybody whom the provider knows.
    groups: tuple[str, ...] = ()
    #: Members of these groups are admins; everybody else is a reviewer.
    admin_groups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("issuer", "url"):
            check_url(name, getattr(self, name))
        if not self.client_id:
            raise InvalidPolicy(
                "client_id is empty: use the one that the provider gave this server"
            )
        if "openid" not in self.scopes:
            raise InvalidPolicy('scopes: "openid" is missing, and nothing is signed without it')

    @classmethod
    def load(cls, path: str | Path) -> Settings:
        """Read the settings from a TOML file.

        The client's secret is in ``client_secret_file`` or in ``$SAYSO_OIDC_SECRET``.
        """
        secret = os.environ.get(SECRET_ENVIRONMENT, "").strip()
        files = {"client_secret_file": "client_secret"}
        return load_settings(cls, path, files=files, client_secret=secret)

    @property
    def callback(self) -> str:
        return self.url.rstrip("/") + CALLBACK


class ClaimNames(Protocol):
    """Which claims of a token describe a person, and which groups mean what here."""

    @property
    def name_claim(self) -> str: ...
    @property
    def groups_claim(self) -> str: ...
    @property
    def groups(self) -> tuple[str, ...]: ...
    @property
    def admin_groups(self) -> tuple[str, ...]: ...


class Attempt(NamedTuple):
    """What one browser keeps while its user is at the provider's page."""

    state: str
    nonce: str
    verifier: str
    #: The path of the web app to go to afterwards.
    page: str
    #: Demand that the person signs in again, however recently they did.
    fresh: bool

    @classmethod
    def new(cls, page: str = "/", *, fresh: bool = False) -> Attempt:
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        return cls(state, nonce, verifier, page, fresh)

    def to_cookie(self) -> str:
        return base64.urlsafe_b64encode(json.dumps(self).encode()).decode().rstrip("=")

    @classmethod
    def from_cookie(cls, text: str) -> Attempt | None:
        try:
            state, nonce, verifier, page, fresh = json.loads(
                base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            )
        except (ValueError, TypeError):
            return None
        texts = (state, nonce, verifier, page)
        if not all(isinstance(part, str) and part for part in texts) or not isinstance(fresh, bool):
            return None
        return cls(state, nonce, verifier, page, fresh)


class SignIn(NamedTuple):
    """A person, as the provider has just identified them."""

    issuer: str
    subject: str
    name: str
    mail: str
    groups: tuple[str, ...]
    role: str
    #: When they proved who they are, if the provider says so.
    authenticated_at: Micros | None
    #: The provider's id of the session, to end it with.
    session: str


class Logout(NamedTuple):
    """Whose sessions the provider has ended: of a subject, or one session."""

    issuer: str
    subject: str
    session: str


def new_client() -> httpx.AsyncClient:
    return httpx.AsyncClient(timeout=_TIMEOUT, follow_redirects=False)


class Provider:
    """One OpenID provider, over HTTP."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._client = new_client()
        self._metadata: dict[str, Any] = {}
        self._metadata_until = 0.0
        self._keys = SigningKeys(self._client)
        self._reading = asyncio.Lock()

    async def close(self) -> None:
        await self._client.aclose()

    async def begin(self, attempt: Attempt) -> str:
        """Return the URL of the provider's page for this attempt."""
        endpoint = (await self._read_metadata())["authorization_endpoint"]
        challenge = hashlib.sha256(attempt.verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": self.settings.callback,
            "scope": " ".join(self.settings.scopes),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": base64.urlsafe_b64encode(challenge).decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        if attempt.fresh:
            query |= {"prompt": "login", "max_age": "0"}
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    async def finish(self, reply: Mapping[str, str], attempt: Attempt) -> SignIn:
        """Return who signed in, from the query with which the browser came back.

        Raises ``Unauthenticated`` if anything in it does not belong to this attempt, and
        ``NotAllowed`` if the person is in none of the groups that may sign in.
        """
        if not hmac.compare_digest(reply.get("state", "").encode(), attempt.state.encode()):
            raise Unauthenticated("this sign-in was not started in this browser: start it again")
        metadata = await self._read_metadata()
        if reply.get("iss", self.settings.issuer) != self.settings.issuer:  # RFC 9207
            raise Unauthenticated("another provider answered this sign-in: start it again")
        if metadata.get("authorization_response_iss_parameter_supported") and "iss" not in reply:
            raise Unauthenticated("the answer does not name its provider: start it again")
        if "error" in reply or not reply.get("code"):
            reason = reply.get("error_description") or reply.get("error") or "it sent no code"
            raise Unauthenticated(f"the provider did not sign you in: {reason:.200}")
        tokens = await self._exchange(metadata["token_endpoint"], reply["code"], attempt.verifier)
        claims = await self._verified(tokens.get("id_token"), "sign-in")
        if claims.get("nonce") != attempt.nonce:
            raise Unauthenticated("the provider's token belongs to another sign-in: start it again")
        authenticated_at = moment_of(claims.get("auth_time")) or 0
        if attempt.fresh and time.time() * SECOND - authenticated_at > ATTEMPT_SECONDS * SECOND:
            raise Unauthenticated("the provider did not ask you to sign in again: start it again")
        claims = await self._with_userinfo(claims, tokens.get("access_token"))
        return sign_in_of(claims, self.settings)

    async def logged_out(self, logout_token: str) -> Logout:
        """Verify a token of the provider's back-channel logout."""
        claims = await self._verified(logout_token, "logout")
        events = claims.get("events")
        if "nonce" in claims or not isinstance(events, dict) or _LOGOUT_EVENT not in events:
            raise Unauthenticated("this is not a logout token")
        subject = claims.get("sub", "")
        session = claims.get("sid", "")
        if not isinstance(subject, str) or not isinstance(session, str) or not (subject or session):
            raise Unauthenticated("this logout token names neither a person nor a session")
        return Logout(self.settings.issuer, subject, session)

    # -- tokens

    async def _with_userinfo(self, claims: dict[str, Any], access_token: object) -> dict[str, Any]:
        """Add the claims that only the provider's user info has, if some are missing."""
        claims_needed = {self.settings.name_claim, self.settings.groups_claim} - {""}
        endpoint = (await self._read_metadata()).get("userinfo_endpoint")
        if claims_needed <= claims.keys() or not endpoint or not isinstance(access_token, str):
            return claims
        headers = {"authorization": f"Bearer {access_token}"}
        extra = await fetch(
            self._client, self._client.build_request("GET", endpoint, headers=headers)
        )
        if extra.get("sub") != claims["sub"]:
            raise Unauthenticated("the provider's user info is about another person")
        return {**extra, **claims}

    async def _verified(self, token: object, purpose: str) -> dict[str, Any]:
        """Return the claims of a token that the provider signed for this client."""
        settings = self.settings
        claims = await self._keys.verified(
            token,
            (await self._read_metadata())["jwks_uri"],
            issuer=settings.issuer,
            audience=settings.client_id,
            essential=("exp", "sub") if purpose == "sign-in" else (),
            purpose=purpose,
            # Anyone may send a logout token, so that those cannot make us read the keys more often.
            pause=KEYS_PAUSE if purpose == "logout" else 0.0,
        )
        audience = claims["aud"]
        others = isinstance(audience, list) and len(audience) > 1
        if (others or "azp" in claims) and claims.get("azp") != settings.client_id:
            raise Unauthenticated(f"the provider's {purpose} token was made for another client")
        if time.time() - claims["iat"] > ATTEMPT_SECONDS + _LEEWAY:
            raise Unauthenticated(f"the provider's {purpose} token is too old: start again")
        return claims

    # -- over HTTP

    async def _exchange(self, endpoint: str, code: str, verifier: str) -> dict[str, Any]:
        settings = self.settings
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": settings.callback,
            "client_id": settings.client_id,
            "code_verifier": verifier,
        }
        methods = self._metadata.get("token_endpoint_auth_methods_supported", [])
        in_form = "client_secret_post" in methods and "client_secret_basic" not in methods
        headers = {}
        if settings.client_secret and in_form:
            form["client_secret"] = settings.client_secret
        elif settings.client_secret:
            pair = urlencode({settings.client_id: settings.client_secret}).replace("=", ":", 1)
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        request = self._client.build_request("POST", endpoint, data=form, headers=headers)
        refused = "the provider did not accept this sign-in's code"
        return await fetch(self._client, request, refused)

    async def _read_metadata(self) -> dict[str, Any]:
        async with self._reading:
            if time.monotonic() < self._metadata_until:
                return self._metadata
            url = f"{self.settings.issuer.rstrip('/')}/.well-known/openid-configuration"
            metadata = await fetch(self._client, self._client.build_request("GET", url))
            issuer = metadata.get("issuer")
            if issuer != self.settings.issuer:
                raise StoreError(
                    f"{url} describes the issuer {issuer!r:.200}: correct the issuer in the "
                    "settings of OpenID Connect"
                )
            for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                check_url(f"the provider's {name}", metadata.get(name))
            for name in ("userinfo_endpoint", "end_session_endpoint"):
                if name in metadata:
                    check_url(f"the provider's {name}", metadata[name])
            self._metadata = metadata
            self._metadata_until = time.monotonic() + _METADATA_SECONDS
            return metadata


def sign_in_of(claims: Mapping[str, Any], settings: ClaimNames) -> SignIn:
    """Return whom verified claims describe, and whether they may sign in."""
    groups = claims.get(settings.groups_claim, []) if settings.groups_claim else []
    if isinstance(groups, str):
        groups = [groups]
    if not is_text_list(groups):
        raise Unauthenticated(
            f"the provider sent no list of groups as {settings.groups_claim!r}: correct "
            "groups_claim, or set it to an empty text"
        )
    if settings.groups and not set(settings.groups) & set(groups):
        raise NotAllowed("you are in no group that may sign in here: ask an admin for access")
    name = claims.get(settings.name_claim)
    if not isinstance(name, str) or not name:
        raise Unauthenticated(
            f"the provider sent no {settings.name_claim!r}, which names people here: change "
            "name_claim, or the scopes"
        )
    mail = claims.get("email")
    authenticated_at = moment_of(claims.get("auth_time"))
    if authenticated_at is not None and authenticated_at > (time.time() + _LEEWAY) * SECOND:
        raise Unauthenticated(
            "the provider says that you signed in later than now: correct its clock or this "
            "server's, or its auth_time, which counts seconds"
        )
    return SignIn(
        issuer=claims["iss"],
        subject=claims["sub"],
        name=name,
        mail=mail if isinstance(mail, str) and claims.get("email_verified") is True else "",
        groups=tuple(groups),
        role="admin" if set(settings.admin_groups) & set(groups) else "reviewer",
        authenticated_at=authenticated_at,
        session=claims["sid"] if isinstance(claims.get("sid"), str) else "",
    )


def identified(person: SignIn, settings: ClaimNames) -> Identified:
    """Return what the directory takes over of a person."""
    return Identified(
        origin=(person.issuer, person.subject),
        name=person.name,
        mail=person.mail,
        groups=person.groups if settings.groups_claim else None,
        role=person.role if settings.admin_groups else None,
    )


class SigningKeys:
    """The keys with which an issuer signs, read again when it may have changed them."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._keys: KeySet | None = None
        self._read_at = 0.0
        self._reading = asyncio.Lock()

    async def verified(
        self,
        token: object,
        source: str | Path,
        *,
        issuer: str,
        audience: str,
        essential: Iterable[str],
        purpose: str,
        pause: float,
    ) -> dict[str, Any]:
        """Return the claims of a token of this issuer for this audience.

        ``source`` is the address or the file of the keys, which is read at most once per ``pause``
        for tokens that cannot be verified. Raises ``Unauthenticated`` unless everything is right.
        """
        if not isinstance(token, str) or len(token) > _MAX_BODY:
            raise Unauthenticated(f"the provider sent no token for the {purpose}")
        try:
            decoded = _decoded(token, await self._read(source, _KEYS_SECONDS))
        except _NotVerified:  # the provider may have changed its keys since
            try:
                decoded = _decoded(token, await self._read(source, pause))
            except _NotVerified as error:
                raise Unauthenticated(
                    f"the provider's {purpose} token cannot be verified: {error}"
                ) from None
        expected: dict[str, Any] = {name: {"essential": True} for name in ("iat", *essential)}
        expected["iss"] = {"essential": True, "value": issuer}
        expected["aud"] = {"essential": True, "value": audience}
        try:
            jwt.JWTClaimsRegistry(leeway=_LEEWAY, **expected).validate(decoded.claims)
        except (JoseError, TypeError, ValueError) as error:
            raise Unauthenticated(f"the provider's {purpose} token is not valid: {error}") from None
        claims = dict(decoded.claims)
        if "sub" in expected and not 0 < len(claims["sub"]) <= 255:
            raise Unauthenticated("the provider's token names nobody")
        return claims

    async def _read(self, source: str | Path, max_age: float) -> KeySet:
        async with self._reading:
            if self._keys is None or time.monotonic() - self._read_at > max_age:
                try:
                    if isinstance(source, Path):
                        body = json.loads(await to_thread(source.read_bytes))
                    else:
                        body = await fetch(self._client, self._client.build_request("GET", source))
                    keys = [key for key in body["keys"] if key.get("use", "sig") == "sig"]
                    self._keys = KeySet.import_key_set({"keys": keys})
                except (
                    *(JoseError, OSError),
                    *(ValueError, TypeError, KeyError, AttributeError),
                ) as error:
                    raise StoreError(f"the provider's keys cannot be read: {error}") from None
                self._read_at = time.monotonic()
            return self._keys


async def fetch(
    client: httpx.AsyncClient, request: httpx.Request, refused: str = ""
) -> dict[str, Any]:
    """Send a request and return the object that it answers with.

    Raises ``Unauthenticated`` with the text ``refused``, if any, when the request was at fault, and
    ``StoreError`` for every other answer.
    """
    try:
        async with asyncio.timeout(_TIMEOUT):
            response = await client.send(request, stream=True)
            try:
                body = b""
                async for part in response.aiter_bytes():
                    body += part
                    if len(body) > _MAX_BODY:
                        raise StoreError(f"{request.url.host} answered with more than 1 MB")
            finally:
                await response.aclose()
        value = json.loads(body)
    except (httpx.HTTPError, TimeoutError, ValueError) as error:
        reason = str(error) or type(error).__name__
        raise StoreError(
            f"the identity provider at {request.url.host} did not answer: {reason:.200}"
        ) from None
    if response.is_client_error and refused:
        reason = value.get("error", "") if isinstance(value, dict) else ""
        raise Unauthenticated(f"{refused} ({reason!s:.100}): start it again")
    if not response.is_success or not isinstance(value, dict):
        raise StoreError(
            f"the identity provider at {request.url.host} answered {response.status_code}"
        )
    return value


class _NotVerified(Exception):
    """The token is not signed with one of these keys."""


def _decoded(token: str, keys: KeySet) -> jwt.Token:
    try:
        return jwt.decode(token, keys, ALGORITHMS)
    except (JoseError, ValueError, TypeError, KeyError) as error:
        raise _NotVerified(error) from None


def moment_of(seconds: object) -> Micros | None:
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        return None
    if not math.isfinite(seconds):
        return None
    return round(seconds * SECOND)
