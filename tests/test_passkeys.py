"""Signatures of passkeys under decisions, made by a passkey in Python."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

from sayso import passkeys
from sayso.errors import NotAllowed
from sayso.passkeys import Assertion, challenge_of, encoded, statement

ORIGIN = "https://sayso.example.com"
DECISION = {"type": "approve", "message": "", "value": None, "stop": False}
STATEMENT = statement("req_1", "sha256.aa", DECISION, "n-1", ORIGIN)


def assertion(
    key: Any,
    text: str = STATEMENT,
    *,
    flags: int = 0x05,
    domain: str = "sayso.example.com",
    **client: Any,
) -> Assertion:
    """Sign a statement as a passkey does."""
    client_data = json.dumps(
        {
            "type": "webauthn.get",
            "challenge": encoded(challenge_of(text)),
            "origin": ORIGIN,
            **client,
        }
    ).encode()
    data = hashlib.sha256(domain.encode()).digest() + bytes([flags]) + bytes(4)
    signed = data + hashlib.sha256(client_data).digest()
    if isinstance(key, ec.EllipticCurvePrivateKey):
        algorithm = passkeys.ES256
        signature = key.sign(signed, ec.ECDSA(hashes.SHA256()))
    elif isinstance(key, rsa.RSAPrivateKey):
        algorithm = passkeys.RS256
        signature = key.sign(signed, padding.PKCS1v15(), hashes.SHA256())
    else:
        algorithm = passkeys.EDDSA
        signature = key.sign(signed)
    public = key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return Assertion(
        statement=text,
        passkey="pk-1",
        public_key=encoded(public),
        algorithm=algorithm,
        authenticator_data=encoded(data),
        client_data=encoded(client_data),
        signature=encoded(signature),
    )


EC_KEY = ec.generate_private_key(ec.SECP256R1())


@pytest.mark.parametrize(
    "key",
    [
        EC_KEY,
        ed25519.Ed25519PrivateKey.generate(),
        rsa.generate_private_key(public_exponent=65537, key_size=2048),
    ],
    ids=["es256", "eddsa", "rs256"],
)
def test_signature_names_decision(key: Any) -> None:
    signed = assertion(key).check()
    assert (signed["request"], signed["decision"]) == ("req_1", DECISION)


def test_signature_of_another_decision_is_refused() -> None:
    other = statement("req_2", "sha256.aa", DECISION, "n-1", ORIGIN)
    with pytest.raises(NotAllowed, match="something else"):
        replace(assertion(EC_KEY), statement=other).check()


def test_signature_for_another_site_is_refused() -> None:
    with pytest.raises(NotAllowed, match="another site"):
        assertion(EC_KEY, domain="evil.example.com").check()
    with pytest.raises(NotAllowed, match="another site"):
        assertion(EC_KEY, origin="https://evil.example.com").check()


@pytest.mark.parametrize("flags", [0x00, 0x01, 0x04])
def test_unverified_person_is_refused(flags: int) -> None:
    with pytest.raises(NotAllowed, match="verify who used it"):
        assertion(EC_KEY, flags=flags).check()


def test_registration_is_no_confirmation() -> None:
    with pytest.raises(NotAllowed, match="not a confirmation"):
        assertion(EC_KEY, type="webauthn.create").check()


def test_key_of_another_passkey_is_refused() -> None:
    stranger = assertion(ec.generate_private_key(ec.SECP256R1()))
    with pytest.raises(NotAllowed, match="signature is wrong"):
        replace(assertion(EC_KEY), public_key=stranger.public_key).check()


def test_other_algorithm_is_refused() -> None:
    with pytest.raises(NotAllowed, match="signature is wrong"):
        replace(assertion(EC_KEY), algorithm=passkeys.RS256).check()


@pytest.mark.parametrize(
    "field", ["statement", "authenticator_data", "client_data", "signature", "public_key"]
)
@pytest.mark.parametrize("text", ["", "x", "AAAA", "{}", "[]", "null", "é", "AA\n"])
def test_garbage_is_refused(field: str, text: str) -> None:
    with pytest.raises(NotAllowed):
        replace(assertion(EC_KEY), **{field: text}).check()


def test_assertion_survives_json() -> None:
    stored = json.loads(json.dumps(assertion(EC_KEY).to_json()))
    assert Assertion.from_json(stored) == assertion_of(stored)
    Assertion.from_json(stored).check()


def assertion_of(stored: dict[str, Any]) -> Assertion:
    return Assertion(**stored)


@pytest.mark.parametrize("body", [None, {}, [], {"statement": "x"}, "text"], ids=str)
def test_other_json_is_no_assertion(body: Any) -> None:
    with pytest.raises(ValueError, match="no signature of a passkey"):
        Assertion.from_json(body)
    wrong = {**assertion(EC_KEY).to_json(), "algorithm": True}
    with pytest.raises(ValueError, match="no signature of a passkey"):
        Assertion.from_json(wrong)
