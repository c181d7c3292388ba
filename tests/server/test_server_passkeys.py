"""Answers of a browser's passkey to the server's options."""

from __future__ import annotations

import pytest
from software_passkey import SoftwarePasskey

from sayso.errors import NotAllowed
from sayso.keys import Keyring
from sayso.passkeys import statement
from sayso.server import passkeys
from sayso.types import SECOND

ORIGIN = "http://localhost:8321"
KEYS = Keyring.ephemeral()
NOW = 1_700_000_000 * SECOND


def registration(origin: str = ORIGIN) -> str:
    return passkeys.registration_statement("per_1", passkeys.new_nonce(KEYS, NOW), origin)


def registered(passkey: SoftwarePasskey) -> passkeys.Passkey:
    words = registration()
    options = passkeys.registration_options(words, "per_1", "ana", [])
    return passkeys.registered(words, passkey.create(options))


def test_passkey_signs_decision_after_registration() -> None:
    device = SoftwarePasskey()
    stored = registered(device)
    nonce = passkeys.new_nonce(KEYS, NOW)
    words = statement("req_1", "sha256.aa", {"type": "approve"}, nonce, ORIGIN)
    answer = device.get(passkeys.assertion_options(words, [stored.id]))
    assertion = passkeys.asserted(words, answer, stored)
    assert assertion.check()["request"] == "req_1"


def test_options_name_site_person_and_known_passkeys() -> None:
    known = registered(SoftwarePasskey()).id
    options = passkeys.registration_options(registration(), "per_1", "ana", [known])
    assert (options["rp"], options["user"]["name"]) == ({"name": "Sayso", "id": "localhost"}, "ana")
    assert [one["id"] for one in options["excludeCredentials"]] == [known]
    assert options["authenticatorSelection"]["userVerification"] == "required"
    signing = passkeys.assertion_options(passkeys.sign_in_statement("n", ORIGIN), [known])
    assert (signing["rpId"], signing["userVerification"]) == ("localhost", "required")


def test_answer_to_other_options_is_refused() -> None:
    device = SoftwarePasskey()
    options = passkeys.registration_options(registration(), "per_1", "ana", [])
    with pytest.raises(NotAllowed):
        passkeys.registered(registration("http://localhost:1"), device.create(options))


@pytest.mark.parametrize(
    "device",
    [SoftwarePasskey("http://evil.example.com"), SoftwarePasskey(verified=False)],
    ids=["another site", "unverified"],
)
def test_wrong_registration_is_refused(device: SoftwarePasskey) -> None:
    with pytest.raises(NotAllowed):
        registered(device)


@pytest.mark.parametrize("answer", [{}, {"response": None}, {"response": {"signature": 1}}])
def test_unreadable_answer_is_refused(answer: dict[str, object]) -> None:
    words = passkeys.sign_in_statement("n", ORIGIN)
    with pytest.raises(NotAllowed, match="cannot be read"):
        passkeys.asserted(words, answer, registered(SoftwarePasskey()))
    with pytest.raises(NotAllowed):
        passkeys.registered(registration(), answer)


def test_passkey_of_another_person_is_refused() -> None:
    mine, theirs = SoftwarePasskey(), SoftwarePasskey()
    words = passkeys.sign_in_statement("n", ORIGIN)
    answer = theirs.get(passkeys.assertion_options(words, []))
    with pytest.raises(NotAllowed, match="signature is wrong"):
        passkeys.asserted(words, answer, registered(mine))


def test_nonce_carries_its_time() -> None:
    nonce = passkeys.new_nonce(KEYS, NOW)
    end = NOW + passkeys.NONCE_SECONDS * SECOND
    assert passkeys.nonce_time(KEYS, nonce, end) == NOW
    for late in (end + 1, NOW - 1):
        with pytest.raises(NotAllowed, match="not used in time"):
            passkeys.nonce_time(KEYS, nonce, late)


@pytest.mark.parametrize("nonce", ["", ".", "..", "1.a.b", "x.y.z", f"{NOW}.a."])
def test_forged_nonce_is_refused(nonce: str) -> None:
    with pytest.raises(NotAllowed):
        passkeys.nonce_time(KEYS, nonce, NOW)


def test_nonce_of_another_store_is_refused() -> None:
    nonce = passkeys.new_nonce(Keyring.ephemeral(), NOW)
    with pytest.raises(NotAllowed):
        passkeys.nonce_time(KEYS, nonce, NOW)
