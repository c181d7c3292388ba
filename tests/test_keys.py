"""Keys sign and verify, rotate, stay secret, and are made once however many processes start."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assent.errors import KeyMissing, StoreError
from assent.keys import Keyring, new_key, public_key

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


# -- signatures -----------------------------------------------------------------------------------


@SIGNERS
def test_a_signature_names_its_key_and_verifies(ring: Keyring) -> None:
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
            assert ring.verify(DATA, changed) is (new == old)


@SIGNERS
@pytest.mark.parametrize("tail", ["=", "==", "\n", " ", ".", "A", "\0"])
def test_a_signature_has_one_spelling(ring: Keyring, tail: str) -> None:
    assert not ring.verify(DATA, ring.sign(DATA) + tail)


@SIGNERS
def test_a_cut_or_relabelled_signature_does_not_verify(ring: Keyring) -> None:
    signature = ring.sign(DATA)
    other = Keyring.ephemeral().primary_id
    for forged in ("", ring.primary_id, f"{ring.primary_id}.", signature[:-1], signature[9:]):
        assert not ring.verify(DATA, forged)
    assert not ring.verify(DATA, other + signature[8:])


def test_another_key_does_not_verify() -> None:
    assert not Keyring.ephemeral().verify(DATA, HMAC.sign(DATA))
    assert not Keyring.parse(new_key("ed25519")).verify(DATA, PRIVATE.sign(DATA))
    assert not HMAC.verify(DATA, PRIVATE.sign(DATA))


def test_the_public_half_verifies_and_cannot_sign() -> None:
    assert PUBLIC.primary_id == PRIVATE.primary_id
    assert PUBLIC.verify(DATA, PRIVATE.sign(DATA))
    assert (HMAC.can_sign, PRIVATE.can_sign, PUBLIC.can_sign) == (True, True, False)
    with pytest.raises(KeyMissing, match="signed by the server"):
        PUBLIC.sign(DATA)


@ALL
@pytest.mark.parametrize("value", [None, 7, b"blob", "ž.ž", "\ud800", "aaaaaaaa.\ud800"])
def test_whatever_a_column_holds_is_only_false(ring: Keyring, value: Any) -> None:
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
def test_a_link_is_checked(ring: Keyring) -> None:
    link = ring.link(DATA)
    assert link == ring.link(DATA)
    assert ring.check_link(DATA, link)
    assert not ring.check_link(DATA + b" ", link)
    assert not ring.check_link(DATA, link.upper())
    assert not ring.check_link(DATA, link[:-1])


def test_hmac_links_need_the_key() -> None:
    assert re.fullmatch(rf"{HMAC.primary_id}\.[0-9a-f]{{64}}", HMAC.link(DATA))
    assert not Keyring.ephemeral().check_link(DATA, HMAC.link(DATA))


def test_ed25519_links_are_the_same_in_every_process() -> None:
    assert re.fullmatch(r"sha256\.[0-9a-f]{64}", PRIVATE.link(DATA))
    assert PRIVATE.link(DATA) == PUBLIC.link(DATA)
    assert Keyring.parse(new_key("ed25519")).check_link(DATA, PUBLIC.link(DATA))


def test_an_hmac_keyring_never_accepts_a_plain_link() -> None:
    plain = PUBLIC.link(DATA)
    relabelled = plain.replace("sha256", HMAC.primary_id)
    for ring in (HMAC, Keyring((*HMAC.keys, *PRIVATE.keys, *PUBLIC.keys))):
        assert not ring.check_link(DATA, plain)
        assert not ring.check_link(DATA, relabelled)


@SIGNERS
def test_links_and_signatures_do_not_stand_for_each_other(ring: Keyring) -> None:
    assert not ring.verify(DATA, ring.link(DATA))
    assert not ring.check_link(DATA, ring.sign(DATA))


def test_a_keyed_link_is_no_signature_in_another_spelling() -> None:
    link = bytes.fromhex(HMAC.link(DATA).partition(".")[2])
    text = base64.urlsafe_b64encode(link).rstrip(b"=").decode()
    assert not HMAC.verify(DATA, f"{HMAC.primary_id}.{text}")


# -- rotation -------------------------------------------------------------------------------------


@pytest.mark.parametrize("separator", [",", " ", "\n", ", ", ",\n\t"])
def test_the_first_key_signs_and_old_keys_verify(separator: str) -> None:
    old, new = new_key(), new_key()
    before, after = Keyring.parse(old), Keyring.parse(f"{new}{separator}{old}")
    assert after.primary_id == Keyring.parse(new).primary_id
    assert after.verify(DATA, before.sign(DATA))
    assert after.check_link(DATA, before.link(DATA))
    assert not before.verify(DATA, after.sign(DATA))
    assert not before.check_link(DATA, after.link(DATA))


def test_moving_from_hmac_to_ed25519_keeps_the_old_record() -> None:
    moved = Keyring((*PRIVATE.keys, *HMAC.keys))
    assert moved.verify(DATA, HMAC.sign(DATA))
    assert moved.check_link(DATA, HMAC.link(DATA))
    assert moved.check_link(DATA, PRIVATE.link(DATA))


# -- the text of a key ----------------------------------------------------------------------------


def test_the_same_text_gives_the_same_key() -> None:
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
def test_other_text_is_refused_with_advice_and_not_repeated(text: str) -> None:
    with pytest.raises(KeyMissing, match=r"python -m assent\.keys") as caught:
        Keyring.parse(text)
    assert SECRET not in str(caught.value)
    assert BARE not in str(caught.value)


def test_an_error_names_the_key_by_its_place() -> None:
    with pytest.raises(KeyMissing, match="ASSENT_KEY, key 2 cannot be used"):
        Keyring.parse(f"{new_key()} {SECRET}", source="ASSENT_KEY")


@pytest.mark.parametrize("text", ["", " ", ",\n,"])
def test_no_key_at_all_is_refused(text: str) -> None:
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


def test_an_hmac_key_has_no_public_half() -> None:
    with pytest.raises(KeyMissing, match=r"python -m assent\.keys ed25519"):
        public_key(new_key())


def test_the_module_prints_keys() -> None:
    assert Keyring.parse(run("-m", "assent.keys")).can_sign
    private, public = run("-m", "assent.keys", "ed25519").split()
    assert public == public_key(private)


def test_cryptography_is_imported_for_ed25519_only() -> None:
    script = (
        "import sys; from assent.keys import Keyring; ring = Keyring.ephemeral();"
        "ring.verify(b'', ring.sign(b'')); print('cryptography' in sys.modules)"
    )
    assert run("-c", script) == "False\n"


# -- where a key comes from -----------------------------------------------------------------------


def test_an_ephemeral_key_says_so() -> None:
    assert Keyring.ephemeral().is_ephemeral
    assert Keyring.ephemeral().primary_id != Keyring.ephemeral().primary_id
    assert not HMAC.is_ephemeral


def test_the_environment_wins(tmp_path: Path) -> None:
    key = new_key()
    ring = Keyring.for_store(tmp_path / "a.db", {"ASSENT_KEY": key})
    assert ring.primary_id == Keyring.parse(key).primary_id
    assert list(tmp_path.iterdir()) == []


def test_an_empty_variable_is_refused_rather_than_passed_over(tmp_path: Path) -> None:
    with pytest.raises(KeyMissing, match="ASSENT_KEY is empty"):
        Keyring.for_store(tmp_path / "a.db", {"ASSENT_KEY": ""})


def test_without_a_variable_the_file_beside_counts(tmp_path: Path) -> None:
    ring = Keyring.for_store(tmp_path / "a.db", {})
    assert ring.primary_id == Keyring.beside(tmp_path / "a.db").primary_id
    assert not ring.is_ephemeral


def test_without_variable_and_file_it_says_what_to_do() -> None:
    with pytest.raises(KeyMissing, match="set ASSENT_KEY to what it prints"):
        Keyring.for_store(None, {})


def test_the_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    old_mask = os.umask(0)
    try:
        Keyring.beside(tmp_path / "a.db")
    finally:
        os.umask(old_mask)
    (file,) = tmp_path.iterdir()
    assert file.name == "a.db.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text().startswith("hmac:")


def test_one_database_has_one_key_by_whatever_name(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "data" / "a.db")
    ring = Keyring.beside(tmp_path / "link.db")
    assert ring.primary_id == Keyring.beside(tmp_path / "data" / "a.db").primary_id
    assert not (tmp_path / "link.db.key").exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o660, 0o666, 0o777])
def test_a_file_open_to_others_is_refused_with_the_line_to_run(tmp_path: Path, mode: int) -> None:
    database = tmp_path / "my data.db"
    ring = Keyring.beside(database)
    file = tmp_path / "my data.db.key"
    file.chmod(mode)
    with pytest.raises(KeyMissing, match="chmod 600 ") as caught:
        Keyring.beside(database)
    line = str(caught.value).partition("run: ")[2]
    subprocess.run(line, shell=True, check=True)
    assert Keyring.beside(database).primary_id == ring.primary_id


@pytest.mark.parametrize("target", ["real.key", "nowhere.key"])
def test_a_symbolic_link_is_refused(tmp_path: Path, target: str) -> None:
    (tmp_path / "real.key").write_text(new_key())
    (tmp_path / "real.key").chmod(0o600)
    (tmp_path / "a.db.key").symlink_to(tmp_path / target)
    with pytest.raises(KeyMissing, match="symbolic link"):
        Keyring.beside(tmp_path / "a.db")
    assert not (tmp_path / "nowhere.key").exists()


@pytest.mark.parametrize("content", [b"", b"\n", SECRET.encode(), b"\xff" * 40])
def test_a_file_without_a_key_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "a.db.key"
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(KeyMissing, match=re.escape(str(file))) as caught:
        Keyring.beside(tmp_path / "a.db")
    assert SECRET not in str(caught.value)
    assert file.read_bytes() == content


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.db.key", 0o600)
    with pytest.raises(KeyMissing):
        Keyring.beside(tmp_path / "a.db")


def test_a_folder_that_is_not_there_is_a_store_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"No such file or directory.*set ASSENT_KEY"):
        Keyring.beside(tmp_path / "missing" / "a.db")


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(StoreError, match="No space left"):
        Keyring.beside(tmp_path / "a.db")
    assert list(tmp_path.iterdir()) == []


RACER = """
import sys
from pathlib import Path
from assent.keys import Keyring
print("ready", flush=True)
sys.stdin.readline()
print(*(Keyring.beside(Path(sys.argv[1], f"{n}.db")).primary_id for n in range(20)))
"""


def test_many_processes_that_start_at_once_make_one_key(tmp_path: Path) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(20)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    answers = {racer.communicate()[0] for racer in racers}
    assert len(answers) == 1
    assert len(set(answers.pop().split())) == 20
    assert {file.name for file in tmp_path.iterdir()} == {f"{n}.db.key" for n in range(20)}
