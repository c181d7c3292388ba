"""Keys prove that an authorized process made a decision, and that the record was not rewritten.

A key is a line of text, in one of three forms::

    hmac:<base64url of 32 or more random bytes>      signs and verifies (agent and store together)
    ed25519:<base64url of a 32-byte seed>            signs and verifies (the server)
    ed25519-public:<base64url of the public key>     verifies only (agents that run elsewhere)

``python -m sayso.keys`` prints a new one; ``python -m sayso.keys ed25519`` prints a private key
and its public half. Text of 32 or more ASCII characters without a colon, as secret managers make
it, is taken as an HMAC secret too; it must be random, because nothing slows down guessing.

A keyring is one or more keys, separated by commas or whitespace: the first signs, all verify. A
signature by a key that is not in the keyring raises ``UnknownKey``, because it may be genuine. It
is forged if it names a key of the keyring and was not made with it. ``docs/keys.md`` has the
order in which to rotate keys on several machines.

Three things are made with keys, under separate domains, so that one cannot be used as another:

- a *signature*, ``<key id>.<base64url>``, over one decision or seal;
- a *row MAC*, ``<row key id>.<hex>``, over one row of the store. Every process that may write
  the store has the row key: ``SAYSO_ROW_KEY``, or one derived from the HMAC key or the Ed25519 seed
  if that variable is not set. It proves that such a process wrote a row, and never that a person
  decided something;
- a *link*, the hash that joins one event of an audit chain to the next. An HMAC keyring makes keyed
  links, ``<key id>.<hex>``: an attacker who can write the database but has no key cannot recompute
  the chain. With Ed25519 every process appends but only the server signs, so links are plain
  ``sha256.<hex>`` and the signed seals protect them. A keyring that starts with an HMAC key never
  accepts a plain link, or an attacker could swap the keyed links for plain ones.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias, TypeVar

from sayso.errors import KeyMissing, StoreError, UnknownKey

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ed25519

ENVIRONMENT = "SAYSO_KEY"
FILE_ENVIRONMENT = "SAYSO_KEY_FILE"
ROW_ENVIRONMENT = "SAYSO_ROW_KEY"
VAPID_ENVIRONMENT = "SAYSO_VAPID_KEY"
#: The folder in which systemd puts the credentials of a service.
_CREDENTIALS = "CREDENTIALS_DIRECTORY"
#: Where containers have their secrets: anyone in the container may read them, and nobody else.
_SECRETS = "/run/secrets/"
_ID_LENGTH = 8
_MINIMUM = 32  # bytes of an HMAC secret, or characters of a bare text

_SIGN = b"sayso/v1/sign\0"
_LINK = b"sayso/v1/link\0"
_ROW = b"sayso/v1/row\0"
_ID = b"sayso/v1/id\0"

_URL_SAFE = bytes.maketrans(b"+/", b"-_")
#: The size of a block of SHA-256.
_BLOCK = 64


def keyed_hash(key: bytes, key_id: str) -> Callable[[bytes], str]:
    """Return a function that makes HMAC-SHA256 with a key of at most 64 bytes, as ``<id>.<hex>``.

    It hashes the padded key once (RFC 2104, section 4), which is half of the work for a row.
    """
    padded = key.ljust(_BLOCK, b"\0")
    inner, outer = (hashlib.sha256(bytes(byte ^ pad for byte in padded)) for pad in (0x36, 0x5C))

    def keyed(data: bytes) -> str:
        within = inner.copy()
        within.update(data)
        around = outer.copy()
        around.update(within.digest())
        return f"{key_id}.{around.hexdigest()}"

    return keyed


@dataclass(frozen=True, slots=True, eq=False)
class RowKey:
    """The secret that authenticates rows; it neither makes nor verifies a signature."""

    id: str
    text: str = field(repr=False)
    #: Returns the MAC of bytes, under the id of this key.
    mac: Callable[[bytes], str] = field(repr=False)

    @classmethod
    def from_secret(cls, secret: bytes, key_id: str | None = None) -> RowKey:
        """Derive the key of rows from a secret."""
        key_id = key_id or _key_id("row", hmac.digest(secret, _ID, "sha256"))
        mac = keyed_hash(hmac.digest(secret, _ROW, "sha256"), key_id)
        return cls(key_id, f"row:{key_id}.{_encode(secret)}", mac)

    @classmethod
    def derived(cls, secret: bytes, key_id: str) -> RowKey:
        """Derive the row key that goes with a decision key.

        It has the id of that key, so that a message about a missing key names the one to look for.
        """
        return cls.from_secret(hmac.digest(secret, _ROW, "sha256"), key_id)


@dataclass(frozen=True, slots=True, eq=False)
class HmacKey:
    """A shared secret: every process that can check its signatures can also make them."""

    id: str
    row: RowKey = field(repr=False)
    _sign: Callable[[bytes], str] = field(repr=False)
    #: Returns the keyed hash of bytes.
    link: Callable[[bytes], str] = field(repr=False)
    can_sign: ClassVar[bool] = True

    @classmethod
    def from_secret(cls, secret: bytes) -> HmacKey:
        """Derive a key for each domain."""
        key_id = _key_id("hmac", hmac.digest(secret, _ID, "sha256"))
        row = RowKey.derived(secret, key_id)
        sign = keyed_hash(hmac.digest(secret, _SIGN, "sha256"), key_id)
        link = keyed_hash(hmac.digest(secret, _LINK, "sha256"), key_id)
        return cls(key_id, row, sign, link)

    def sign(self, data: bytes) -> str:
        """Return the signature of ``data``."""
        return f"{self.id}.{_encode(bytes.fromhex(self._sign(data)[-64:]))}"

    def verify(self, data: bytes, signature: str) -> bool:
        """Return whether this key made ``signature`` over ``data``."""
        return _equal(self.sign(data), signature)


@dataclass(frozen=True, slots=True, eq=False)
class Ed25519Key:
    """A key pair, or only the half that verifies.

    ``cryptography`` is imported where it is used: most processes have HMAC keys and start faster.
    """

    id: str
    #: Derived from the seed, so that only the pair has it.
    row: RowKey | None = field(repr=False)
    _public: ed25519.Ed25519PublicKey = field(repr=False)
    _private: ed25519.Ed25519PrivateKey | None = field(repr=False)

    @classmethod
    def from_seed(cls, seed: bytes) -> Ed25519Key:
        """Build the pair that signs."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        private = Ed25519PrivateKey.from_private_bytes(seed)
        public = private.public_key()
        key_id = _key_id("ed25519", public.public_bytes_raw())
        return cls(key_id, RowKey.derived(seed, key_id), public, private)

    @classmethod
    def from_public(cls, raw: bytes) -> Ed25519Key:
        """Build the half that verifies; it has the same id as the pair."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        return cls(_key_id("ed25519", raw), None, Ed25519PublicKey.from_public_bytes(raw), None)

    @property
    def can_sign(self) -> bool:
        """Whether the private half is here."""
        return self._private is not None

    @property
    def public_text(self) -> str:
        """The public half as text, for agents."""
        return f"ed25519-public:{_encode(self._public.public_bytes_raw())}"

    def sign(self, data: bytes) -> str:
        """Return the signature of ``data``. Raise ``KeyMissing`` without the private half."""
        if self._private is None:
            raise KeyMissing(
                f"this process has only the public half of key {self.id}: decisions are signed by "
                "the server, so send them there (its web app, HTTP API or command line)"
            )
        return f"{self.id}.{_encode(self._private.sign(_SIGN + data))}"

    def verify(self, data: bytes, signature: str) -> bool:
        """Return whether this key made ``signature`` over ``data``."""
        from cryptography.exceptions import InvalidSignature

        key_id, _, text = signature.partition(".")
        raw = _decode(text) if key_id == self.id else None
        if raw is None:
            return False
        try:
            self._public.verify(raw, _SIGN + data)
        except InvalidSignature:
            return False
        return True

    def link(self, data: bytes) -> str:
        """Return the plain hash of ``data``, the same in every process."""
        return f"sha256.{hashlib.sha256(_LINK + data).hexdigest()}"


Key: TypeAlias = HmacKey | Ed25519Key

_BUILDERS: dict[str, Callable[[bytes], Key]] = {
    "hmac": HmacKey.from_secret,
    "ed25519": Ed25519Key.from_seed,
    "ed25519-public": Ed25519Key.from_public,
}


@dataclass(frozen=True, slots=True, eq=False)
class Keyring:
    """The keys of one process: the first of each kind signs, all verify."""

    keys: tuple[Key, ...]
    #: The keys of rows: those that were given, then those derived from ``keys``.
    rows: tuple[RowKey, ...] = field(default=(), repr=False)
    is_ephemeral: bool = False
    #: Where the keys come from: a variable, or the path of a file.
    source: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        derived = tuple(key.row for key in self.keys if key.row is not None)
        object.__setattr__(self, "rows", (*self.rows, *derived))

    @classmethod
    def parse(cls, text: str, source: str = "the keyring", *, rows: str | None = None) -> Keyring:
        """Parse keys separated by commas or whitespace. ``source`` names them in errors.

        ``rows`` are row keys, written the same way (``SAYSO_ROW_KEY``).
        """
        words = text.replace(",", " ").split()
        if not words:
            raise KeyMissing(f"{source} is empty: run `python -m sayso.keys`, use what it prints")
        keys = tuple(_parse_key(word, f"{source}, key {n}") for n, word in enumerate(words, 1))
        parsed_keys = tuple(
            _parse_row_key(word, f"{ROW_ENVIRONMENT}, key {n}", words)
            for n, word in enumerate((rows or "").replace(",", " ").split(), 1)
        )
        return cls(keys, parsed_keys, source=source)

    @classmethod
    def ephemeral(cls) -> Keyring:
        """Return a random key that lasts as long as the process."""
        return cls((HmacKey.from_secret(os.urandom(_MINIMUM)),), is_ephemeral=True)

    @classmethod
    def beside(cls, path: Path, *, rows: str | None = None) -> Keyring:
        """Read the file ``<path>.key``. It is created on first use, readable by this user only."""
        # SQLite resolves links too: one database must have one key, whatever name it is opened by.
        real = os.path.realpath(path)
        file = f"{real}.key"
        try:
            if not os.path.lexists(file):
                has_rows = os.path.exists(real) and os.path.getsize(real) > 0
                if has_rows and not os.path.lexists(file):  # else both were made just now
                    raise KeyMissing(
                        f"{real} exists, but its key file {file} is missing: restore the "
                        f"file, or put the key into {ENVIRONMENT}"
                    )
                _create(file, new_key())
            text = _read(file)
        except OSError as error:
            raise StoreError(
                f"the key file {file} cannot be read or made ({error.strerror}): "
                f"let this user write to its folder, or set {ENVIRONMENT}"
            ) from error
        return cls.parse(text, source=file, rows=rows)

    @classmethod
    def for_store(cls, path: Path | None, environ: Mapping[str, str] = os.environ) -> Keyring:
        """Read the keys from the first of these that there is; and likewise the row keys.

        The variable ``SAYSO_KEY``, the file that ``SAYSO_KEY_FILE`` names, systemd's credential
        ``sayso-key``, and the file next to the store's file.
        """
        text, source = _given(ENVIRONMENT, "sayso-key", environ)
        rows, _ = _given(ROW_ENVIRONMENT, "sayso-row-key", environ)
        if text is not None:
            return cls.parse(text, source=source, rows=rows)
        if path is None:
            raise KeyMissing(
                f"{ENVIRONMENT} is not set, and this store has no file to keep a key beside: run "
                f"`python -m sayso.keys` once, and set {ENVIRONMENT} to what it prints (or "
                f"{FILE_ENVIRONMENT} to a file with it) wherever the store is opened"
            )
        return cls.beside(path, rows=rows)

    @property
    def primary_id(self) -> str:
        return self.keys[0].id

    @property
    def can_sign(self) -> bool:
        """Whether the first key has its private part."""
        return self.keys[0].can_sign

    @property
    def row_key(self) -> RowKey:
        """The key that authenticates the rows which this process writes."""
        if not self.rows:
            raise KeyMissing(
                f"this process has only the public half of key {self.primary_id}, and the rows of "
                f"the store are authenticated with a key of their own: set {ROW_ENVIRONMENT} to "
                f"what `python -m sayso.keys row` prints where {ENVIRONMENT} is the whole key (the "
                "third line of `python -m sayso.keys ed25519`)"
            )
        return self.rows[0]

    def row_mac(self, data: bytes) -> str:
        """Return the MAC of a row. Raise ``KeyMissing`` with only the public half of a key."""
        return self.row_key.mac(data)

    def check_row(self, data: bytes, mac: str) -> bool:
        """Return whether the row key that ``mac`` names made it over ``data``.

        Raises ``UnknownKey`` if that key is not in the keyring.
        """
        text = str(mac)
        key = _named(self.rows, text)
        if key is None:
            return self._unknown(text, _is_hash, f"{ENVIRONMENT} or {ROW_ENVIRONMENT}")
        return _equal(key.mac(data), text)

    def sign(self, data: bytes) -> str:
        """Sign ``data`` with the first key: ``<key id>.<base64url>``."""
        return self.keys[0].sign(data)

    def verify(self, data: bytes, signature: str) -> bool:
        """Return whether the key that ``signature`` names made it over ``data``.

        Raises ``UnknownKey`` if that key is not in the keyring. Garbage names no key, so it is
        false.
        """
        text = str(signature)  # a forged row may hold NULL or a blob
        key = _named(self.keys, text)
        if key is None:
            return self._unknown(text, _is_signature, ENVIRONMENT)
        return key.verify(data, text)

    def link(self, data: bytes) -> str:
        """Hash one link of an audit chain: keyed if the first key is HMAC, else plain."""
        return self.keys[0].link(data)

    def check_link(self, data: bytes, link: str) -> bool:
        """Return whether ``link`` is the hash of ``data`` that this keyring, or an old key, made.

        Raises ``UnknownKey`` if it names a key that is not in the keyring.
        """
        text = str(link)
        if _equal(self.link(data), text):
            return True
        # An old Ed25519 key does not count: its plain links can be made without any key.
        key = _named(self.keys, text)
        if key is None:
            return self._unknown(text, _is_hash, ENVIRONMENT)
        return isinstance(key, HmacKey) and _equal(key.link(data), text)

    def _unknown(self, text: str, is_whole: Callable[[str], bool], where: str) -> Literal[False]:
        """Raise ``UnknownKey`` if ``text`` is well formed and names a key that we do not have.

        If it names a key that we have for another purpose, it is a forgery: return False.
        """
        key_id, _, rest = text.partition(".")
        ours = any(key.id == key_id for key in (*self.keys, *self.rows))
        if ours or len(key_id) != _ID_LENGTH or not _is_hex(key_id) or not is_whole(rest):
            return False
        raise UnknownKey(
            f"unknown key {key_id}: something in the store was signed with it, and it is not among "
            f"the keys of this process. Add it to {where} on this machine, behind the first key",
            key_id,
        )


_K = TypeVar("_K", HmacKey | Ed25519Key, RowKey)


def key_id_of(text: str) -> str:
    """Return the id of the key that a signature or a link names."""
    return text.partition(".")[0]


def _named(keys: Iterable[_K], text: str) -> _K | None:
    key_id = text.partition(".")[0]
    for key in keys:
        if key.id == key_id:
            return key
    return None


def _is_signature(text: str) -> bool:
    return len(_decode(text) or b"") in (32, 64)


def _is_hash(text: str) -> bool:
    return len(text) == 64 and _is_hex(text)


def _is_hex(text: str) -> bool:
    return all(letter in "0123456789abcdef" for letter in text)


def new_key(kind: Literal["hmac", "ed25519"] = "hmac") -> str:
    """Return a random key as text."""
    return f"{kind}:{_encode(os.urandom(32))}"


def public_key(text: str) -> str:
    """Return the public half of an ``ed25519:`` key, for processes that only verify."""
    key = Keyring.parse(text).keys[0]
    if isinstance(key, HmacKey):
        raise KeyMissing(
            "an HMAC key has no public half: run `python -m sayso.keys ed25519` to make a pair"
        )
    return key.public_text


def row_key(text: str | None = None) -> str:
    """Return the row key that goes with a decision key, or a new one, as text.

    Set it as ``SAYSO_ROW_KEY`` in processes that have only the public half.
    """
    if text is None:
        return RowKey.from_secret(os.urandom(_MINIMUM)).text
    return Keyring.parse(text).row_key.text


def _parse_key(text: str, source: str) -> Key:
    kind, colon, body = text.partition(":")
    if kind == "row":
        raise KeyMissing(
            f"{source} is a row key, which signs no decision: put it into {ROW_ENVIRONMENT}"
        )
    # A misspelt kind must not turn a public key into a secret: bare text holds no colon. Beyond
    # ASCII the same characters may be typed as different bytes.
    if not colon and len(text) >= _MINIMUM and text.isascii():
        return HmacKey.from_secret(text.encode())
    material = _decode(body.rstrip("=")) or b""
    size_fits = len(material) >= _MINIMUM if kind == "hmac" else len(material) == 32
    if kind not in _BUILDERS or not size_fits:
        raise KeyMissing(
            f"{source} cannot be used: run `python -m sayso.keys` and use what it prints "
            f"(hmac:<base64url of {_MINIMUM} random bytes>), or give random text of {_MINIMUM} or "
            "more ASCII characters without commas, spaces and colons"
        )
    return _BUILDERS[kind](material)


def _parse_row_key(text: str, source: str, decision_keys: Sequence[str]) -> RowKey:
    kind, colon, body = text.partition(":")
    key_id, dot, rest = body.partition(".") if kind == "row" else ("", "", "")
    body = rest if dot else body
    secret = (_decode(body.rstrip("=")) or b"") if colon else text.encode("ascii", "ignore")
    if text in decision_keys:
        raise KeyMissing(
            f"{source} is the key that signs decisions: run `python -m sayso.keys row`, and use "
            "what it prints"
        )
    is_row_key = kind in ("row", "hmac") if colon else text.isascii()
    if dot and (len(key_id) != _ID_LENGTH or not _is_hex(key_id)):
        is_row_key = False
    if not is_row_key or len(secret) < _MINIMUM:
        raise KeyMissing(
            f"{source} cannot be used: run `python -m sayso.keys row` and use what it prints "
            f"(row:<key id>.<base64url of {_MINIMUM} random bytes>)"
        )
    return RowKey.from_secret(secret, key_id if dot else None)


def _key_id(kind: str, public: bytes) -> str:
    return hashlib.sha256(_ID + kind.encode() + b"\0" + public).hexdigest()[:_ID_LENGTH]


def _equal(expected: str, given: str) -> bool:
    # compare_digest raises on other text.
    return given.isascii() and hmac.compare_digest(expected, given)


def _encode(raw: bytes) -> str:
    return binascii.b2a_base64(raw, newline=False).translate(_URL_SAFE, b"=").decode("ascii")


def _decode(text: str) -> bytes | None:
    """Undo ``_encode``. Other spellings are refused, so that a signature has only one text."""
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return None
    return raw if _encode(raw) == text else None


def vapid_key(path: Path | None, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the private key by which push services know this server: a P-256 scalar, base64url.

    It is in ``SAYSO_VAPID_KEY``, the file that ``SAYSO_VAPID_KEY_FILE`` names, systemd's credential
    ``sayso-vapid-key``, or else in ``<path>.vapid``. A file is made on first use, readable by this
    user only. Returns ``None`` if there is none and no ``path``.
    """
    named = environ.get("SAYSO_VAPID_KEY_FILE")
    default_file = None if path is None else f"{os.path.realpath(path)}.vapid"
    file = named or default_file
    try:
        if file is not None and VAPID_ENVIRONMENT not in environ and not os.path.lexists(file):
            _create(os.path.abspath(file), _encode(_new_scalar()))
        text, source = _given(VAPID_ENVIRONMENT, "sayso-vapid-key", environ)
        if text is None and default_file is not None:
            text = _read(default_file)
            source = default_file
    except OSError as error:
        raise StoreError(
            f"the key file {file} cannot be read or made ({error.strerror}): let this user write "
            f"to its folder, or set {VAPID_ENVIRONMENT}"
        ) from error
    if text is None:
        return None
    if len(_decode(text.strip()) or b"") != 32:
        raise KeyMissing(f"{source} is no key for push messages: remove it, and a new one is made")
    return text.strip()


def _new_scalar() -> bytes:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1()).private_numbers().private_value.to_bytes(32)


def keys_in(source: str) -> list[str]:
    """Return the keys in a variable or a file (``Keyring.source``), as text."""
    text = os.environ[source] if source == ENVIRONMENT else Path(source).read_text("ascii")
    return text.replace(",", " ").split()


def replace_keys(file: str, keys: Sequence[str]) -> None:
    """Write other keys to a key file: complete and on disk, or not at all."""
    _write(os.path.realpath(file), "\n".join(keys), os.replace, os.stat(file).st_mode & 0o777)


def _create(file: str, text: str) -> None:
    """Write ``text`` to ``file``, complete and on disk, unless the file exists."""
    # A link appears complete or not at all, and never replaces: the losers read the winner's.
    with contextlib.suppress(FileExistsError):
        _write(file, text, os.link, 0o600)


def _write(file: str, text: str, publish: Callable[[str, str], None], mode: int) -> None:
    draft = f"{file}.{os.urandom(8).hex()}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w") as stream:
            stream.write(f"{text}\n")
            stream.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        publish(draft, file)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)
    folder = os.open(os.path.dirname(file), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _given(variable: str, credential: str, environ: Mapping[str, str]) -> tuple[str | None, str]:
    """Return the text of keys and where it comes from; ``None`` if nothing gives any."""
    text = environ.get(variable)
    file = environ.get(f"{variable}_FILE")
    if text is not None and file is not None:
        raise KeyMissing(f"{variable} and {variable}_FILE are both set: unset one of them")
    if text is not None:
        return text, variable
    folder = environ.get(_CREDENTIALS)
    if file is None and folder and os.path.exists(os.path.join(folder, credential)):
        file = os.path.join(folder, credential)
    elif file is None:
        return None, ""
    try:
        with open(file, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as f:
            mode = os.fstat(f.fileno()).st_mode
            apart = (_SECRETS, *([folder] if folder else []))
            if mode & 0o002 or (mode & 0o004 and not os.path.abspath(file).startswith(apart)):
                raise KeyMissing(
                    f"{file} is open to other users, run: chmod 600 {shlex.quote(file)}"
                )
            return f.read().decode("ascii", "replace"), os.path.abspath(file)
    except OSError as error:
        raise KeyMissing(
            f"{variable}_FILE names {file}, which cannot be read ({error.strerror}): put the keys "
            "there, readable by the user of this process"
        ) from error


def _read(file: str) -> str:
    if os.path.islink(file):
        raise KeyMissing(
            f"{file} is a symbolic link, and a key is read from a plain file only: "
            f"put the file itself there, or set {ENVIRONMENT}"
        )
    with open(file, "rb", opener=_open_plain) as stream:
        if os.fstat(stream.fileno()).st_mode & 0o077:
            raise KeyMissing(f"{file} is open to other users, run: chmod 600 {shlex.quote(file)}")
        return stream.read().decode("ascii", "replace")


def _open_plain(file: str, flags: int) -> int:
    # Refuse a link that was put there since the check, and do not wait for a pipe.
    return os.open(file, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _main() -> None:
    import argparse

    parser = argparse.ArgumentParser("python -m sayso.keys", description="Print a new key.")
    parser.add_argument("kind", nargs="?", default="hmac", choices=("hmac", "ed25519", "row"))
    kind = parser.parse_args().kind
    if kind == "row":
        print(row_key(os.environ.get(ENVIRONMENT)))
        return
    key = new_key(kind)
    print(key)
    if kind == "ed25519":
        print(public_key(key))
        print(row_key(key))


if __name__ == "__main__":
    _main()
