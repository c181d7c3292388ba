"""Sign-in with OpenID Connect, with a provider that misbehaves on request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from oidc_provider import CLIENT, NOW, SECRET, OpenIDProvider, name_claims
from starlette.responses import JSONResponse, Response

from sayso.errors import InvalidPolicy, NotAllowed, StoreError, Unauthenticated
from sayso.server.oidc import Attempt, Provider, Settings


@pytest.fixture
def idp() -> Iterator[OpenIDProvider]:
    provider = OpenIDProvider().start()
    yield provider
    provider.stop()


def settings_for(idp: OpenIDProvider, **more: Any) -> Settings:
    basics = {"issuer": idp.issuer, "client_id": CLIENT, "client_secret": SECRET}
    return Settings(**{**basics, "url": "https://sayso.example.com", **more})


@pytest.fixture
async def provider(idp: OpenIDProvider) -> AsyncIterator[Provider]:
    client = Provider(settings_for(idp))
    yield client
    await client.close()


async def signed_in(provider: Provider, idp: OpenIDProvider, **options: Any) -> Any:
    attempt = Attempt.new(**options)
    return await provider.finish(idp.go(await provider.begin(attempt)), attempt)


async def test_person_is_issuer_and_subject(provider: Provider, idp: OpenIDProvider) -> None:
    person = await signed_in(provider, idp)
    assert (person.issuer, person.subject) == (idp.issuer, "user-1")
    assert (person.name, person.mail, person.role) == ("ana", "ana@example.com", "reviewer")
    assert person.groups == ("finance",)
    assert person.authenticated_at is not None


async def test_unverified_mail_is_left_out(provider: Provider, idp: OpenIDProvider) -> None:
    idp.claims["email_verified"] = False
    assert (await signed_in(provider, idp)).mail == ""


@pytest.mark.parametrize(
    "wrong",
    [
        {"nonce": "another"},
        {"nonce": None},
        {"aud": "another client"},
        {"aud": None},
        {"aud": [CLIENT, "another"]},
        {"aud": [CLIENT, "another"], "azp": "another"},
        {"azp": "another"},
        {"iss": "https://evil.example.com"},
        {"iss": None},
        {"exp": NOW - 3600},
        {"exp": None},
        {"exp": "never"},
        {"iat": NOW - 7200},
        {"iat": NOW + 7200},
        {"iat": None},
        {"nbf": NOW + 7200},
        {"sub": None},
        {"sub": ""},
        {"sub": 7},
        {"sub": "x" * 256},
        {"preferred_username": None},
        {"preferred_username": ["ana"]},
        {"groups": {"finance": True}},
        {"groups": [1]},
    ],
    ids=name_claims,
)
async def test_wrong_claim_is_refused(
    provider: Provider, idp: OpenIDProvider, wrong: dict[str, Any]
) -> None:
    idp.wrong = wrong
    with pytest.raises(Unauthenticated):
        await signed_in(provider, idp)


Forge = Callable[[OpenIDProvider], Callable[[str], Any]]


@pytest.mark.parametrize(
    "forge",
    [
        lambda idp: idp.unsigned,
        lambda idp: idp.signed_with_public_key,
        lambda idp: lambda token: token[:-6] + "AAAAAA",
        lambda idp: lambda token: token.rpartition(".")[0],
        lambda idp: lambda token: "a.b.c",
        lambda idp: lambda token: "",
        lambda idp: lambda token: None,
        lambda idp: lambda token: {"sub": "user-1"},
        lambda idp: OpenIDProvider.signed_by_stranger,
    ],
    ids=["none", "hmac", "changed", "cut", "garbage", "empty", "null", "object", "stranger"],
)
async def test_forged_token_is_refused(
    provider: Provider, idp: OpenIDProvider, forge: Forge
) -> None:
    idp.forge = forge(idp)
    with pytest.raises(Unauthenticated):
        await signed_in(provider, idp)


async def test_rotated_provider_key_is_read_again(provider: Provider, idp: OpenIDProvider) -> None:
    await signed_in(provider, idp)
    idp.rotate_key()
    assert (await signed_in(provider, idp)).name == "ana"
    assert idp.keys_read == 2


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (JSONResponse({"keys": 5}), "the provider's keys cannot be read"),
        (JSONResponse({"keys": [{"kty": "RSA"}]}), "the provider's keys cannot be read"),
        (JSONResponse({"key": []}), "the provider's keys cannot be read"),
        (JSONResponse(["keys"]), "answered 200"),
        (JSONResponse({"keys": []}, status_code=500), "answered 500"),
        (Response(b"x" * 1_100_000), "answered with more than 1 MB"),
        (Response(b"<html>"), "did not answer"),
    ],
)
async def test_unusable_keys_open_no_session(
    provider: Provider, idp: OpenIDProvider, answer: Response, message: str
) -> None:
    idp.answer_for_keys = answer
    with pytest.raises(StoreError, match=message):
        await signed_in(provider, idp)


async def test_authorization_code_works_once(provider: Provider, idp: OpenIDProvider) -> None:
    attempt = Attempt.new()
    reply = idp.go(await provider.begin(attempt))
    await provider.finish(reply, attempt)
    with pytest.raises(Unauthenticated, match="code"):
        await provider.finish(reply, attempt)


async def test_state_of_another_browser_is_refused(provider: Provider, idp: OpenIDProvider) -> None:
    reply = idp.go(await provider.begin(Attempt.new()))
    with pytest.raises(Unauthenticated, match="not started in this browser"):
        await provider.finish(reply, Attempt.new())


async def test_code_of_another_attempt_is_refused(provider: Provider, idp: OpenIDProvider) -> None:
    mine, theirs = Attempt.new(), Attempt.new()
    stolen = idp.go(await provider.begin(theirs))
    with pytest.raises(Unauthenticated):
        await provider.finish({**stolen, "state": mine.state}, mine)


@pytest.mark.parametrize(
    "reply",
    [
        {"iss": "https://evil.example.com"},
        {"error": "access_denied"},
        {"code": ""},
        {"code": "unknown"},
    ],
    ids=str,
)
async def test_wrong_reply_is_refused(
    provider: Provider, idp: OpenIDProvider, reply: dict[str, str]
) -> None:
    idp.reply = reply
    with pytest.raises(Unauthenticated):
        await signed_in(provider, idp)


async def test_promised_issuer_must_be_present(provider: Provider, idp: OpenIDProvider) -> None:
    idp.metadata["authorization_response_iss_parameter_supported"] = True
    attempt = Attempt.new()
    reply = idp.go(await provider.begin(attempt))
    del reply["iss"]
    with pytest.raises(Unauthenticated, match="does not name its provider"):
        await provider.finish(reply, attempt)


async def test_fresh_sign_in_needs_recent_time(provider: Provider, idp: OpenIDProvider) -> None:
    assert (await signed_in(provider, idp, fresh=True)).name == "ana"
    for stale in (None, NOW - 7200):
        idp.wrong = {"auth_time": stale}
        with pytest.raises(Unauthenticated, match="sign in again"):
            await signed_in(provider, idp, fresh=True)


@pytest.mark.parametrize(  # with names that are the same in each process of a run
    "auth_time", [NOW + 7200, NOW * 1000, 1e300], ids=["in two hours", "milliseconds", "never"]
)
async def test_sign_in_in_the_future_is_refused(
    provider: Provider, idp: OpenIDProvider, auth_time: float
) -> None:
    """It would be recent for as long as that takes. Some providers count milliseconds."""
    idp.wrong = {"auth_time": auth_time}
    for fresh in (False, True):
        with pytest.raises(Unauthenticated, match="later than now"):
            await signed_in(provider, idp, fresh=fresh)


async def test_missing_claims_come_from_user_info(provider: Provider, idp: OpenIDProvider) -> None:
    del idp.claims["groups"]
    idp.userinfo = {"groups": ["ops"]}
    assert (await signed_in(provider, idp)).groups == ("ops",)
    idp.userinfo = {"sub": "user-2", "groups": ["admins"]}
    with pytest.raises(Unauthenticated, match="another person"):
        await signed_in(provider, idp)


async def test_groups_decide_who_may_sign_in(idp: OpenIDProvider) -> None:
    provider = Provider(settings_for(idp, groups=("staff",), admin_groups=("root",)))
    with pytest.raises(NotAllowed, match="no group"):
        await signed_in(provider, idp)
    idp.claims["groups"] = ["staff", "root"]
    assert (await signed_in(provider, idp)).role == "admin"
    await provider.close()


async def test_group_as_text_is_one_group(provider: Provider, idp: OpenIDProvider) -> None:
    idp.claims["groups"] = "finance"
    assert (await signed_in(provider, idp)).groups == ("finance",)


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://evil.example.com"},
        {"token_endpoint": "http://evil.example.com/token"},
        {"jwks_uri": None},
        {"authorization_endpoint": "javascript:alert(1)"},
    ],
    ids=str,
)
async def test_wrong_metadata_is_refused(idp: OpenIDProvider, metadata: dict[str, Any]) -> None:
    idp.metadata = metadata
    provider = Provider(settings_for(idp))
    with pytest.raises((StoreError, InvalidPolicy)):
        await provider.begin(Attempt.new())
    await provider.close()


async def test_absent_provider_is_named(provider: Provider, idp: OpenIDProvider) -> None:
    idp.stop()
    with pytest.raises(StoreError, match="did not answer"):
        await provider.begin(Attempt.new())


async def test_logout_token_names_person(provider: Provider, idp: OpenIDProvider) -> None:
    ended = await provider.logged_out(idp.logout_token(sub="user-1", sid="s-1"))
    assert (ended.subject, ended.session) == ("user-1", "s-1")


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"sub": "user-1", "events": {}},
        {"sub": "user-1", "nonce": "n"},
        {"sub": "user-1", "aud": "another"},
        {"sub": "user-1", "iat": NOW - 7200},
        {"sub": "user-1", "exp": NOW - 7200},
    ],
    ids=name_claims,
)
async def test_wrong_logout_token_is_refused(
    provider: Provider, idp: OpenIDProvider, claims: dict[str, Any]
) -> None:
    with pytest.raises(Unauthenticated):
        await provider.logged_out(idp.logout_token(**claims))


async def test_forged_logout_tokens_read_keys_rarely(
    provider: Provider, idp: OpenIDProvider
) -> None:
    for _ in range(20):
        with pytest.raises(Unauthenticated):
            await provider.logged_out("a.b.c")
    assert idp.keys_read == 1


@pytest.mark.parametrize("cookie", ["", "x", "W10", "bnVsbA", "WzEsMiwzLDQsNV0", "é"])
def test_broken_cookie_is_no_attempt(cookie: str) -> None:
    assert Attempt.from_cookie(cookie) is None


def test_cookie_keeps_attempt() -> None:
    attempt = Attempt.new("/inbox?q=1", fresh=True)
    assert Attempt.from_cookie(attempt.to_cookie()) == attempt


def test_settings_come_from_file(tmp_path: Any) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    file = tmp_path / "oidc.toml"
    file.write_text(
        'issuer = "https://login.example.com"\nclient_id = "sayso"\n'
        'client_secret_file = "secret"\nurl = "https://sayso.example.com/"\ngroups = ["staff"]\n'
    )
    settings = Settings.load(file)
    assert (settings.client_secret, settings.groups) == ("s3cret", ("staff",))
    assert settings.callback == "https://sayso.example.com/api/login/oidc/callback"
    assert "s3cret" not in repr(settings)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("issuer = 1", "issuer is text"),
        ('groups = "staff"', "groups is a list of texts"),
        ('issuers = "x"', "'issuers' is not one of"),
        ('client_id = "sayso"', "issuer, url is missing"),
        ("=", "Invalid"),
        ('issuer = "http://a.example"\nclient_id = "x"\nurl = "https://b.example"', "https://"),
        ('issuer = "https://a.example"\nclient_id = ""\nurl = "https://b.example"', "client_id"),
        (
            'issuer = "https://a.example"\nclient_id = "x"\nurl = "https://b.example"\n'
            'scopes = ["email"]',
            '"openid" is missing',
        ),
    ],
)
def test_wrong_settings_are_refused(tmp_path: Any, text: str, error: str) -> None:
    file = tmp_path / "oidc.toml"
    file.write_text(text)
    with pytest.raises(InvalidPolicy, match=error):
        Settings.load(file)
