"""A passkey in Python: it answers the options of a server as a browser does."""

from __future__ import annotations

import hashlib
import json
import secrets
from typing import Any

import cbor2
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from sayso.passkeys import encoded


class SoftwarePasskey:
    """One passkey of one site. ``verified`` says whether it checks who uses it."""

    def __init__(self, origin: str = "http://localhost:8321", *, verified: bool = True) -> None:
        self.origin = origin
        self.flags = 0x05 if verified else 0x01
        self.id = secrets.token_bytes(16)
        self._key = ec.generate_private_key(ec.SECP256R1())

    def create(self, options: dict[str, Any]) -> dict[str, Any]:
        """Answer the options for a new passkey."""
        numbers = self._key.public_key().public_numbers()
        public_key = cbor2.dumps(
            {1: 2, 3: -7, -1: 1, -2: numbers.x.to_bytes(32), -3: numbers.y.to_bytes(32)}
        )
        credential = bytes(16) + len(self.id).to_bytes(2) + self.id + public_key
        data = self._data(options["rp"]["id"], self.flags | 0x40) + credential
        attestation = cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": data})
        response = {
            "clientDataJSON": encoded(self._client_data("webauthn.create", options["challenge"])),
            "attestationObject": encoded(attestation),
        }
        return self._answer(response)

    def get(self, options: dict[str, Any]) -> dict[str, Any]:
        """Answer the options to sign."""
        client_data = self._client_data("webauthn.get", options["challenge"])
        data = self._data(options["rpId"], self.flags)
        signed = data + hashlib.sha256(client_data).digest()
        response = {
            "clientDataJSON": encoded(client_data),
            "authenticatorData": encoded(data),
            "signature": encoded(self._key.sign(signed, ec.ECDSA(hashes.SHA256()))),
        }
        return self._answer(response)

    def _answer(self, response: dict[str, Any]) -> dict[str, Any]:
        name = encoded(self.id)
        return {"id": name, "rawId": name, "type": "public-key", "response": response}

    def _data(self, domain: str, flags: int) -> bytes:
        return hashlib.sha256(domain.encode()).digest() + bytes([flags]) + bytes(4)

    def _client_data(self, kind: str, challenge: str) -> bytes:
        words = {"type": kind, "challenge": challenge, "origin": self.origin}
        return json.dumps(words).encode()
