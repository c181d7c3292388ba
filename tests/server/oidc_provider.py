"""An OpenID provider on a real socket, which misbehaves on request.

It signs in ``claims`` at once, without a page. A test changes its attributes to make it wrong.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import uvicorn
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey
from live_server import LiveServer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

CLIENT, SECRET = "sayso", "the client's secret"
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"
NOW = int(time.time())


def name_claims(claims: dict[str, Any]) -> str:
    """Name a test by its claims, with times relative to now: each process collects the same."""
    times = {
        name: f"{value - NOW:+}"
        for name, value in claims.items()
        if name in ("exp", "iat", "nbf") and isinstance(value, int)
    }
    return str(claims | times)


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class OpenIDProvider:
    """One provider; ``issuer`` is its address."""

    def __init__(self) -> None:
        self.claims: dict[str, Any] = {
            "sub": "user-1",
            "preferred_username": "ana",
            "email": "ana@example.com",
            "email_verified": True,
            "groups": ["finance"],
        }
        self.userinfo: dict[str, Any] = {}
        self.metadata: dict[str, Any] = {}
        #: Claims of the next id tokens that replace the right ones; None leaves a claim out.
        self.wrong: dict[str, Any] = {}
        #: Changes an id token before it is sent.
        self.forge: Any = lambda token: token
        self.reply: dict[str, str] = {}
        self.key = RSAKey.generate_key(2048, {"kid": "key-1", "use": "sig"})
        self.keys_read = 0
        #: Answers instead of the keys.
        self.answer_for_keys: Response | None = None
        self._codes: dict[str, dict[str, str]] = {}
        routes = [
            Route("/.well-known/openid-configuration", self._describe),
            Route("/jwks", self._keys),
            Route("/authorize", self._authorize),
            Route("/token", self._token, methods=["POST"]),
            Route("/userinfo", self._user_info),
        ]
        config = uvicorn.Config(Starlette(routes=routes), log_config=None, lifespan="off")
        self._server = LiveServer(config)
        self.issuer = self._server.url.rstrip("/")

    def start(self) -> OpenIDProvider:
        self._server.start()
        return self

    def stop(self) -> None:
        self._server.stop()

    def rotate_key(self) -> None:
        kind = ECKey.generate_key("P-256", {"kid": secrets.token_hex(4), "use": "sig"})
        self.key = kind  # type: ignore[assignment]

    def sign(self, claims: dict[str, Any], **header: str) -> str:
        algorithm = "RS256" if isinstance(self.key, RSAKey) else "ES256"
        kept = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode({"alg": algorithm, "kid": self.key.kid, **header}, kept, self.key)

    def unsigned(self, token: str) -> str:
        head = _base64(b'{"alg":"none"}')
        return f"{head}.{token.split('.')[1]}."

    def signed_with_public_key(self, token: str) -> str:
        """Sign with HMAC, with the published key as the secret: the classic confusion."""
        head = json.dumps({"alg": "HS256", "kid": self.key.kid}).encode()
        signed = f"{_base64(head)}.{token.split('.')[1]}"
        public = self.key.as_pem(private=False)
        return f"{signed}.{_base64(hmac.digest(public, signed.encode(), 'sha256'))}"

    @staticmethod
    def signed_by_stranger(token: str) -> str:
        stranger = OpenIDProvider.__new__(OpenIDProvider)
        stranger.key = RSAKey.generate_key(2048, {"kid": "key-1"})
        body = token.split(".")[1]
        return stranger.sign(json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))))

    def logout_token(self, **claims: Any) -> str:
        now = int(time.time())
        base = {"iss": self.issuer, "aud": CLIENT, "iat": now, "jti": secrets.token_hex(8)}
        return self.sign({**base, "events": {LOGOUT_EVENT: {}}, **claims})

    def go(self, url: str) -> dict[str, str]:
        """Follow the browser through the provider's page; return the query it comes back with."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        code = secrets.token_urlsafe(16)
        self._codes[code] = query
        return {"code": code, "state": query["state"], "iss": self.issuer, **self.reply}

    # -- endpoints

    async def _describe(self, request: Request) -> Response:
        return JSONResponse(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/jwks",
                "userinfo_endpoint": f"{self.issuer}/userinfo",
                "end_session_endpoint": f"{self.issuer}/logout",
                **self.metadata,
            }
        )

    async def _keys(self, request: Request) -> Response:
        self.keys_read += 1
        if self.answer_for_keys is not None:
            return self.answer_for_keys
        return JSONResponse({"keys": [self.key.as_dict(private=False)]})

    async def _authorize(self, request: Request) -> Response:
        reply = self.go(str(request.url))
        return RedirectResponse(f"{request.query_params['redirect_uri']}?{urlencode(reply)}", 302)

    async def _token(self, request: Request) -> Response:
        form = dict(parse_qs((await request.body()).decode()))
        code = form.get("code", [""])[0]
        query = self._codes.pop(code, None)  # a code counts once
        basic = request.headers.get("authorization", "").removeprefix("Basic ")
        pair = parse_qs(base64.b64decode(basic).decode().replace(":", "=", 1))
        challenge = hashlib.sha256(form.get("code_verifier", [""])[0].encode()).digest()
        verified = (
            query is not None
            and pair == {CLIENT: [SECRET]}
            and _base64(challenge) == query["code_challenge"]
            and form.get("redirect_uri") == [query["redirect_uri"]]
        )
        if query is None or not verified:
            return JSONResponse({"error": "invalid_grant"}, 400)
        now = int(time.time())
        token = self.sign(
            {
                "iss": self.issuer,
                "aud": CLIENT,
                "iat": now,
                "exp": now + 300,
                "auth_time": now,
                "nonce": query["nonce"],
                **self.claims,
                **self.wrong,
            }
        )
        body = {"id_token": self.forge(token), "access_token": "at", "token_type": "Bearer"}
        return JSONResponse(body)

    async def _user_info(self, request: Request) -> Response:
        return JSONResponse({"sub": self.claims["sub"], **self.userinfo})
