"""A passkey's signature under one decision, and how anyone can check it.

When a person confirms a decision with a passkey, the challenge that the passkey signs is the hash
of a *statement*: the request, the digest of what they saw, and the decision, with a nonce of the
server. The statement, the signature and the passkey's public key stay in the event of the decision.
So the decision can be checked later without Sayso's keys, and by someone who does not trust them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Self
from urllib.parse import urlsplit

from sayso import codec
from sayso.errors import NotAllowed
from sayso.types import Json

_DOMAIN = b"sayso/v1/passkey\0"
#: COSE numbers of the algorithms that passkeys sign with here.
ES256 = -7
EDDSA = -8
RS256 = -257
#: Bits of the authenticator's data: a person was there, and was verified (by face, finger or PIN).
_PRESENT = 0x01
_VERIFIED = 0x04


def statement(
    request: str, digest: str | None, decision: dict[str, Json], nonce: str, origin: str
) -> str:
    """Return what a passkey signs for a decision, as canonical JSON.

    ``origin`` is where the server's pages are, such as ``https://sayso.example.com``: the browser
    lets a passkey sign only for the site that it was made on.
    """
    words = {"request": request, "digest": digest, "decision": decision}
    return codec.canonical({**words, "nonce": nonce, "origin": origin}).decode()


def challenge_of(statement: str) -> bytes:
    """Return the challenge that makes a passkey sign this statement."""
    return hashlib.sha256(_DOMAIN + statement.encode()).digest()


@dataclass(frozen=True, slots=True)
class Assertion:
    """A passkey's signature under a statement. Bytes are in base64url without padding."""

    statement: str
    #: The id of the passkey.
    passkey: str
    #: Its public key (DER, SubjectPublicKeyInfo), and the algorithm's COSE number.
    public_key: str
    algorithm: int
    authenticator_data: str
    client_data: str
    signature: str

    def to_json(self) -> dict[str, Json]:
        return asdict(self)

    @classmethod
    def from_json(cls, body: Any) -> Self:
        """Read an assertion from an event. Raises ``ValueError`` if it is none."""
        if not isinstance(body, dict) or body.keys() != {field.name for field in fields(cls)}:
            raise ValueError("this is no signature of a passkey")
        texts = [value for name, value in body.items() if name != "algorithm"]
        if not all(isinstance(text, str) for text in texts) or type(body["algorithm"]) is not int:
            raise ValueError("this is no signature of a passkey")
        return cls(**body)

    def check(self) -> dict[str, Any]:
        """Return what was signed, or raise ``NotAllowed`` if this is no valid signature of it."""
        try:
            signed = json.loads(self.statement)
            client = json.loads(decoded(self.client_data))
            challenge = decoded(client["challenge"])
            domain_hash = hashlib.sha256(domain_of(signed["origin"]).encode()).digest()
            authenticator_data = decoded(self.authenticator_data)
            flags = authenticator_data[32]
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            raise NotAllowed("the passkey's answer cannot be read") from None
        if client.get("type") != "webauthn.get":
            raise NotAllowed("the passkey's answer is not a confirmation")
        if not hmac.compare_digest(challenge, challenge_of(self.statement)):
            raise NotAllowed("the passkey signed something else than this decision")
        same_domain = hmac.compare_digest(authenticator_data[:32], domain_hash)
        if not same_domain or client.get("origin") != signed["origin"]:
            raise NotAllowed("the passkey signed for another site")
        if not flags & _PRESENT or not flags & _VERIFIED:
            raise NotAllowed("the passkey did not verify who used it: use its PIN, face or finger")
        client_hash = hashlib.sha256(decoded(self.client_data)).digest()
        if not self._is_signature_of(authenticator_data + client_hash):
            raise NotAllowed("the passkey's signature is wrong")
        return dict(signed)

    def _is_signature_of(self, data: bytes) -> bool:
        from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
        from cryptography.hazmat.primitives.serialization import load_der_public_key

        try:
            key = load_der_public_key(decoded(self.public_key))
            signature = decoded(self.signature)
            if self.algorithm == ES256 and isinstance(key, ec.EllipticCurvePublicKey):
                key.verify(signature, data, ec.ECDSA(hashes.SHA256()))
            elif self.algorithm == EDDSA and isinstance(key, ed25519.Ed25519PublicKey):
                key.verify(signature, data)
            elif self.algorithm == RS256 and isinstance(key, rsa.RSAPublicKey):
                key.verify(signature, data, padding.PKCS1v15(), hashes.SHA256())
            else:
                return False
        except (InvalidSignature, UnsupportedAlgorithm, ValueError):
            return False
        return True


def domain_of(origin: str) -> str:
    """Return the domain that passkeys of these pages belong to. Raises ``ValueError``."""
    domain = urlsplit(origin).hostname
    if domain is None:
        raise ValueError(f"{origin!r:.100} is no origin")
    return domain


def fingerprint(public_key: str) -> str:
    """Return the SHA-256 of a public key, as proofs of decisions name it."""
    return hashlib.sha256(decoded(public_key)).hexdigest()


def encoded(data: bytes) -> str:
    """Return bytes as base64url without padding, as browsers send them."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def decoded(text: str) -> bytes:
    """Return the bytes of base64url without padding. Raises ``ValueError``."""
    if not text.isascii() or set(text) & set("+/=\n\r "):
        raise ValueError("not base64url")
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
