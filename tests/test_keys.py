"""Keys sign and verify, rotate, and stay secret."""

from __future__ import annotations

import base64
import contextlib
import hmac
import os
import re
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sayso.errors import KeyMissing, UnknownKey
from sayso.keys import Keyring, RowKey, keyed_hash, new_key, public_key, row_key

DATA = b'{"digest":"4f","type":"approve","by":"ana"}'
BARE = "correct-horse-battery-staple-0123456789"
SECRET = "hunter2hunter2"

HMAC = Keyring.parse(new_key())
PRIVATE_TEXT = new_key("ed25519")
PRIVATE = Keyring.parse(PRIVATE_TEXT)
PUBLIC = Keyring.parse(public_key(PRIVATE_TEXT))
SIGNERS = pytest.mark.parametrize("ring", [HMAC, PRIVATE], ids=["hmac", "ed25519"])
ALL = pytest.mark.parametrize("ring", [HMAC, PRIVATE, PUBLIC], ids=["hmac", "ed25519", "public"])

# Lone surrogates too: the environment and JSON can hold them.
ANY_TEXT = st.text(alphabet=st.characters(codec=None))


def run(*arguments: str) -> str:
    return subprocess.run(
        [sys.executable, *arguments], check=True, capture_output=True, text=True
    ).stdout


@given(st.binary(min_size=1, max_size=64), st.binary(max_size=300))
def test_keyed_hash_is_hmac(key: bytes, data: bytes) -> None:
    keyed = keyed_hash(key, "id")
    keyed(b"something else")
    assert keyed(data) == f"id.{hmac.digest(key, data, 'sha256').hex()}"


# -- signatures -----------------------------------------------------------------------------------


@SIGNERS
def test_signature_names_its_key_and_verifies(ring: Keyring) -> None:
    signature = ring.sign(DATA)
    assert re.fullmatch(rf"{ring.primary_id}\.[A-Za-z0-9_-]+", signature)
    assert re.fullmatch("[0-9a-f]{8}", ring.primary_id)
    assert ring.verify(DATA, signature)


@SIGNERS
def test_other_data_does_not_verify(ring: Keyring) -> None:
    assert not ring.verify(DATA + b" ", ring.sign(DATA))


@SIGNERS
def test_no_changed_character_verifies(ring: Keyring) -> None:
    signature = ring.sign(DATA)
    for place, old in enumerate(signature):
        # Also the last one, whose low bits a lenient base64 decoder would ignore.
        for new in "AB-_w":
            changed = signature[:place] + new + signature[place + 1 :]
            assert ring.verify(DATA, changed) is (new == old)  # no key id has these letters


@SIGNERS
@pytest.mark.parametrize("tail", ["=", "==", "\n", " ", ".", "A", "\0"])
def test_signature_has_one_spelling(ring: Keyring, tail: str) -> None:
    assert not ring.verify(DATA, ring.sign(DATA) + tail)


@SIGNERS
def test_cut_signature_does_not_verify(ring: Keyring) -> None:
    signature = ring.sign(DATA)
    for forged in ("", ring.primary_id, f"{ring.primary_id}.", signature[:-1], signature[9:]):
        assert not ring.verify(DATA, forged)


@SIGNERS
def test_signature_with_wrong_key_id_fails(ring: Keyring) -> None:
    both = Keyring((*ring.keys, *Keyring.ephemeral().keys))
    assert not both.verify(DATA, both.keys[1].id + ring.sign(DATA)[8:])
    assert not both.verify(DATA, ring.primary_id + Keyring.ephemeral().sign(DATA)[8:])


def test_signature_of_another_key_is_unknown() -> None:
    for ring, other in [
        (Keyring.ephemeral(), HMAC),
        (Keyring.parse(new_key("ed25519")), PRIVATE),
        (HMAC, PRIVATE),
    ]:
        with pytest.raises(UnknownKey, match=rf"{other.primary_id}.*Add it to SAYSO_KEY") as error:
            ring.verify(DATA, other.sign(DATA))
        assert error.value.key_id == other.primary_id


@pytest.mark.parametrize("text", ["00000000.", "00000000.x", "00000000", "0000000." + "A" * 43])
def test_malformed_signature_does_not_verify(text: str) -> None:
    assert not HMAC.verify(DATA, text)
    assert not HMAC.check_link(DATA, text)
    assert not HMAC.check_row(DATA, text)


def test_public_half_verifies_and_cannot_sign() -> None:
    assert PUBLIC.primary_id == PRIVATE.primary_id
    assert PUBLIC.verify(DATA, PRIVATE.sign(DATA))
    assert (HMAC.can_sign, PRIVATE.can_sign, PUBLIC.can_sign) == (True, True, False)
    with pytest.raises(KeyMissing, match="signed by the server"):
        PUBLIC.sign(DATA)


@ALL
@pytest.mark.parametrize("value", [None, 7, b"blob", "ž.ž", "\ud800", "aaaaaaaa.\ud800"])
def test_invalid_column_values_do_not_verify(ring: Keyring, value: Any) -> None:
    assert not ring.verify(DATA, value)
    assert not ring.check_link(DATA, value)


@ALL
@given(data=st.binary(), text=ANY_TEXT)
def test_garbage_never_raises(ring: Keyring, data: bytes, text: str) -> None:
    for forged in (text, f"{ring.primary_id}.{text}", f"sha256.{text}"):
        assert not ring.verify(data, forged)
        assert not ring.check_link(data, forged)


# -- links ----------------------------------------------------------------------------------------


@ALL
def test_link_verifies_only_its_data(ring: Keyring) -> None:
    link = ring.link(DATA)
    assert link == ring.link(DATA)
    assert ring.check_link(DATA, link)
    assert not ring.check_link(DATA + b" ", link)
    assert not ring.check_link(DATA, link.upper())
    assert not ring.check_link(DATA, link[:-1])


def test_hmac_links_need_the_key() -> None:
    assert re.fullmatch(rf"{HMAC.primary_id}\.[0-9a-f]{{64}}", HMAC.link(DATA))
    with pytest.raises(UnknownKey, match=HMAC.primary_id):
        Keyring.ephemeral().check_link(DATA, HMAC.link(DATA))


def test_ed25519_links_are_the_same_in_every_process() -> None:
    assert re.fullmatch(r"sha256\.[0-9a-f]{64}", PRIVATE.link(DATA))
    assert PRIVATE.link(DATA) == PUBLIC.link(DATA)
    assert Keyring.parse(new_key("ed25519")).check_link(DATA, PUBLIC.link(DATA))


def test_hmac_keyring_never_accepts_a_plain_link() -> None:
    plain = PUBLIC.link(DATA)
    relabelled = plain.replace("sha256", HMAC.primary_id)
    for ring in (HMAC, Keyring((*HMAC.keys, *PRIVATE.keys, *PUBLIC.keys))):
        assert not ring.check_link(DATA, plain)
        assert not ring.check_link(DATA, relabelled)


@SIGNERS
def test_links_and_signatures_are_not_interchangeable(ring: Keyring) -> None:
    assert not ring.verify(DATA, ring.link(DATA))
    assert not ring.check_link(DATA, ring.sign(DATA))


def test_keyed_link_is_no_signature_in_another_spelling() -> None:
    link = bytes.fromhex(HMAC.link(DATA).partition(".")[2])
    text = base64.urlsafe_b64encode(link).rstrip(b"=").decode()
    assert not HMAC.verify(DATA, f"{HMAC.primary_id}.{text}")


# -- rotation -------------------------------------------------------------------------------------


@pytest.mark.parametrize("separator", [",", " ", "\n", ", ", ",\n\t"])
def test_first_key_signs_and_old_keys_verify(separator: str) -> None:
    old, new = new_key(), new_key()
    before, after = Keyring.parse(old), Keyring.parse(f"{new}{separator}{old}")
    assert after.primary_id == Keyring.parse(new).primary_id
    assert after.verify(DATA, before.sign(DATA))
    assert after.check_link(DATA, before.link(DATA))
    with pytest.raises(UnknownKey):
        before.verify(DATA, after.sign(DATA))
    with pytest.raises(UnknownKey):
        before.check_link(DATA, after.link(DATA))


def test_ed25519_ring_verifies_hmac_record() -> None:
    moved = Keyring((*PRIVATE.keys, *HMAC.keys))
    assert moved.verify(DATA, HMAC.sign(DATA))
    assert moved.check_link(DATA, HMAC.link(DATA))
    assert moved.check_link(DATA, PRIVATE.link(DATA))


# -- the text of a key ----------------------------------------------------------------------------


def test_equal_text_gives_equal_key() -> None:
    for text in (new_key(), new_key("ed25519"), BARE):
        first, second = Keyring.parse(text), Keyring.parse(f" {text}\n")
        assert first.primary_id == second.primary_id
        assert second.verify(DATA, first.sign(DATA))


def test_new_keys_differ() -> None:
    assert len({new_key() for _ in range(100)}) == 100
    assert len(new_key()) == len("hmac:") + 43


def test_padding_is_accepted() -> None:
    key = new_key()
    assert Keyring.parse(f"{key}=").primary_id == Keyring.parse(key).primary_id


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        f"{SECRET} {SECRET} {SECRET}",
        f"hmac:{SECRET}",
        f"ed25519:{SECRET}",
        f"ed25519-public:{SECRET}",
        "hmac:",
        ":",
        f"hmac:{SECRET}{'!' * 40}",
        f"ed25519_public:{SECRET}{'A' * 40}",
        f"ed25519:{SECRET}{'A' * 72}",
        f"HMAC:{SECRET}{'A' * 29}",
        f"{SECRET}{'ž' * 40}",
        f"{BARE},{SECRET}",
    ],
)
def test_invalid_key_text_is_not_quoted(text: str) -> None:
    with pytest.raises(KeyMissing, match=r"python -m sayso\.keys") as caught:
        Keyring.parse(text)
    assert SECRET not in str(caught.value)
    assert BARE not in str(caught.value)


def test_error_names_the_key_by_its_place() -> None:
    with pytest.raises(KeyMissing, match="SAYSO_KEY, key 2 cannot be used"):
        Keyring.parse(f"{new_key()} {SECRET}", source="SAYSO_KEY")


@pytest.mark.parametrize("text", ["", " ", ",\n,"])
def test_missing_key_is_refused(text: str) -> None:
    with pytest.raises(KeyMissing, match="is empty"):
        Keyring.parse(text)


@given(ANY_TEXT | ANY_TEXT.map("ed25519:{}".format))
def test_parsing_garbage_raises_nothing_else(text: str) -> None:
    with contextlib.suppress(KeyMissing):
        Keyring.parse(text)


@ALL
def test_nothing_secret_is_in_the_repr(ring: Keyring) -> None:
    key = f"{type(ring.keys[0]).__name__}(id='{ring.primary_id}')"
    assert repr(ring) == f"Keyring(keys=({key},), is_ephemeral=False)"


def test_hmac_key_has_no_public_half() -> None:
    with pytest.raises(KeyMissing, match=r"python -m sayso\.keys ed25519"):
        public_key(new_key())


def test_module_prints_keys() -> None:
    assert Keyring.parse(run("-m", "sayso.keys")).can_sign
    private, public, row = run("-m", "sayso.keys", "ed25519").split()
    assert public == public_key(private)
    assert row == row_key(private)
    assert re.fullmatch(r"row:[0-9a-f]{8}\.[\w-]{43}", run("-m", "sayso.keys", "row").strip())


def test_row_key_of_existing_key_is_printed() -> None:
    environ = {**os.environ, "SAYSO_KEY": PRIVATE_TEXT}
    command = [sys.executable, "-m", "sayso.keys", "row"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, env=environ)
    assert printed.stdout.strip() == row_key(PRIVATE_TEXT)


# -- row keys -------------------------------------------------------------------------------------


def mac(ring: Keyring, data: bytes = DATA) -> str:
    return ring.row_key.mac(data)


@SIGNERS
def test_row_key_is_derived_from_a_secret(ring: Keyring) -> None:
    assert re.fullmatch(r"[0-9a-f]{8}\.[0-9a-f]{64}", mac(ring))
    assert ring.check_row(DATA, mac(ring))
    assert not ring.check_row(DATA + b" ", mac(ring))
    assert not any(ring.check_row(DATA, text) for text in ("", "x", mac(ring)[:-1]))


def test_row_mac_is_an_hmac() -> None:
    secret = b"s" * 32
    key = hmac.digest(secret, b"sayso/v1/row\0", "sha256")
    made = RowKey.from_secret(secret).mac(DATA).partition(".")[2]
    assert bytes.fromhex(made) == hmac.digest(key, DATA, "sha256")


def test_public_key_has_no_row_key() -> None:
    with pytest.raises(KeyMissing, match=r"set SAYSO_ROW_KEY .*`python -m sayso\.keys row`"):
        _ = PUBLIC.row_key


def test_worker_gets_a_separate_row_key() -> None:
    worker = Keyring.parse(public_key(PRIVATE_TEXT), rows=row_key(PRIVATE_TEXT))
    assert worker.check_row(DATA, mac(PRIVATE))
    assert PRIVATE.check_row(DATA, mac(worker))
    environ = {"SAYSO_KEY": public_key(PRIVATE_TEXT), "SAYSO_ROW_KEY": row_key(PRIVATE_TEXT)}
    assert mac(Keyring.for_store(None, environ)) == mac(worker)


def test_row_key_verifies_only_rows() -> None:
    row = row_key(PRIVATE_TEXT)
    with pytest.raises(KeyMissing, match=r"is a row key.*SAYSO_ROW_KEY"):
        Keyring.parse(row)
    ring = Keyring.parse(new_key(), rows=row)
    assert not ring.verify(DATA, mac(ring))
    assert not ring.check_link(DATA, mac(ring))
    # Not even where somebody uses the same bytes for both.
    body = row.partition(".")[2]
    both = Keyring.parse(f"hmac:{body}", rows=row)
    assert len({both.sign(DATA), mac(both), both.link(DATA)}) == 3
    assert not both.verify(DATA, mac(both))
    assert not both.check_row(DATA, both.sign(DATA))


def test_rows_of_an_old_key_still_count() -> None:
    old, new = row_key(), row_key()
    before = Keyring.parse(new_key(), rows=old)
    after = Keyring.parse(new_key(), rows=f"{new},{old}")
    assert after.check_row(DATA, mac(before))
    assert mac(after) == mac(Keyring.parse(new_key(), rows=new))
    with pytest.raises(UnknownKey, match=r"SAYSO_ROW_KEY"):
        Keyring.parse(new_key(), rows=new).check_row(DATA, mac(before))


def test_rotating_the_decision_key_keeps_derived_row_keys() -> None:
    old, new = new_key(), new_key()
    assert Keyring.parse(f"{new},{old}").check_row(DATA, mac(Keyring.parse(old)))


def test_unknown_row_key_differs_from_forgery() -> None:
    with pytest.raises(UnknownKey):
        HMAC.check_row(DATA, mac(PRIVATE))
    assert not HMAC.check_row(DATA, mac(HMAC, b"other"))
    assert not any(HMAC.check_row(DATA, text) for text in ("", "x", "00000000.x", mac(HMAC)[1:]))


@pytest.mark.parametrize(
    "text", ["row:c2hvcnQ", "row:zz." + "A" * 43, "ed25519:" + "A" * 43, "short", "row:!", "é" * 40]
)
def test_unusable_row_key_is_refused(text: str) -> None:
    with pytest.raises(KeyMissing, match=r"SAYSO_ROW_KEY, key 1 cannot be used") as refused:
        Keyring.parse(new_key(), rows=text)
    assert text not in str(refused.value)


def test_decision_key_is_no_row_key() -> None:
    key = new_key()
    with pytest.raises(KeyMissing, match=r"SAYSO_ROW_KEY, key 1 is the key that signs decisions"):
        Keyring.parse(key, rows=key)


def test_cryptography_is_imported_for_ed25519_only() -> None:
    script = (
        "import sys; from sayso.keys import Keyring; ring = Keyring.ephemeral();"
        "ring.verify(b'', ring.sign(b'')); print('cryptography' in sys.modules)"
    )
    assert run("-c", script) == "False\n"


def test_ephemeral_key_is_marked() -> None:
    assert Keyring.ephemeral().is_ephemeral
    assert Keyring.ephemeral().primary_id != Keyring.ephemeral().primary_id
    assert not HMAC.is_ephemeral
