"""Passkeys: what the browser is asked, and what it may answer.

A browser gets *options* with a challenge, the hash of a statement, and sends the statement back
with the answer. Nothing is kept here in between: the statement has a *nonce* that this store's key
made, which says when. A passkey takes no nonce from before its last use, so an answer counts once.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from sayso import codec
from sayso.errors import NotAllowed, UnknownKey
from sayso.keys import Keyring
from sayso.passkeys import Assertion, challenge_of, decoded, domain_of, encoded
from sayso.types import SECOND, Json, Micros

try:
    import webauthn
    from cryptography.hazmat.primitives import serialization
    from webauthn.helpers import (
        decode_credential_public_key,
        decoded_public_key_to_cryptography,
        options_to_json_dict,
    )
    from webauthn.helpers.exceptions import WebAuthnException
    from webauthn.helpers.structs import (
        AuthenticatorSelectionCriteria,
        PublicKeyCredentialDescriptor,
        ResidentKeyRequirement,
        UserVerificationRequirement,
    )
except ImportError as error:
    raise ImportError('passkeys need `pip install "sayso[passkeys]"`') from error

#: How long a browser may take to answer.
NONCE_SECONDS = 120
_NONCE = b"sayso/v1/passkey nonce\0"


class Passkey(NamedTuple):
    """A passkey as the store keeps it. The bytes are in base64url."""

    id: str
    public_key: str
    algorithm: int


def new_nonce(keys: Keyring, now: Micros) -> str:
    text = f"{now}.{secrets.token_urlsafe(16)}"
    return f"{text}.{keys.row_mac(_NONCE + text.encode())}"


def nonce_time(keys: Keyring, nonce: str, now: Micros) -> Micros:
    """Return when a nonce was made. Raises ``NotAllowed`` unless it is ours and recent."""
    at, _, rest = nonce.partition(".")
    random, _, mac = rest.partition(".")
    try:
        genuine = at.isdecimal() and keys.check_row(_NONCE + f"{at}.{random}".encode(), mac)
    except UnknownKey:
        genuine = False
    if not genuine or not 0 <= now - int(at) <= NONCE_SECONDS * SECOND:
        raise NotAllowed("the passkey was not used in time: try again")
    return int(at)


def registration_statement(person: str, nonce: str, origin: str) -> str:
    words = {"register": person, "nonce": nonce, "origin": origin}
    return codec.canonical(words).decode()


def sign_in_statement(nonce: str, origin: str) -> str:
    return codec.canonical({"sign_in": True, "nonce": nonce, "origin": origin}).decode()


def registration_options(
    statement: str, person_id: str, name: str, known: Iterable[str]
) -> dict[str, Json]:
    """Return the browser's options for a new passkey of a person who has these others."""
    options = webauthn.generate_registration_options(
        rp_id=_domain(statement),
        rp_name="Sayso",
        user_id=person_id.encode(),
        user_name=name,
        challenge=challenge_of(statement),
        timeout=NONCE_SECONDS * 1000,
        authenticator_selection=AuthenticatorSelectionCriteria(
            resident_key=ResidentKeyRequirement.REQUIRED,
            user_verification=UserVerificationRequirement.REQUIRED,
        ),
        exclude_credentials=[PublicKeyCredentialDescriptor(id=decoded(id)) for id in known],
    )
    return options_to_json_dict(options)


def registered(statement: str, answer: Mapping[str, Any]) -> Passkey:
    """Return the new passkey. Raises ``NotAllowed`` if the answer is not to this statement."""
    try:
        verified = webauthn.verify_registration_response(
            credential=dict(answer),
            expected_challenge=challenge_of(statement),
            expected_rp_id=_domain(statement),
            expected_origin=json.loads(statement)["origin"],
            require_user_verification=True,
        )
        cose = decode_credential_public_key(verified.credential_public_key)
        public_key = decoded_public_key_to_cryptography(cose).public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    except (WebAuthnException, ValueError, TypeError, KeyError) as error:
        raise NotAllowed(f"the new passkey cannot be used: {error}") from None
    return Passkey(encoded(verified.credential_id), encoded(public_key), int(cose.alg))


def assertion_options(statement: str, passkeys: Iterable[str]) -> dict[str, Json]:
    """Return the browser's options to sign a statement with one of these passkeys, or with any."""
    options = webauthn.generate_authentication_options(
        rp_id=_domain(statement),
        challenge=challenge_of(statement),
        timeout=NONCE_SECONDS * 1000,
        allow_credentials=[PublicKeyCredentialDescriptor(id=decoded(id)) for id in passkeys],
        user_verification=UserVerificationRequirement.REQUIRED,
    )
    return options_to_json_dict(options)


def asserted(statement: str, answer: Mapping[str, Any], passkey: Passkey) -> Assertion:
    """Return the checked signature of a passkey under a statement, or raise ``NotAllowed``."""
    response = answer.get("response")
    try:
        assertion = Assertion.from_json(
            {
                "statement": statement,
                "passkey": passkey.id,
                "public_key": passkey.public_key,
                "algorithm": passkey.algorithm,
                "authenticator_data": response["authenticatorData"],  # type: ignore[index]
                "client_data": response["clientDataJSON"],  # type: ignore[index]
                "signature": response["signature"],  # type: ignore[index]
            }
        )
    except (ValueError, TypeError, KeyError):
        raise NotAllowed("the passkey's answer cannot be read") from None
    assertion.check()
    return assertion


def _domain(statement: str) -> str:
    return domain_of(json.loads(statement)["origin"])
