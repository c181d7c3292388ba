"""Rows leave a store only after their MAC was checked.

Every read of a SQL store decodes its rows through a ``RowDecoder``. One row that was asked for by
name and does not hold raises ``Tampered``; in a list it is left out, with a warning in the log, so
that it does not take the others with it. The audit, which has to name what is wrong with a row,
reads through ``UNCHECKED`` and asks ``row_wrong`` itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from sayso import codec
from sayso.engine.asking import doubt_envelope, envelope, signed_bytes
from sayso.engine.row_macs import FIELDS, AuthenticRow, row_bytes
from sayso.errors import Tampered, UnknownKey
from sayso.keys import Keyring
from sayso.rows import HOSTED, Call, EffectKey, Run, StoredMessage, Tool
from sayso.stores.base import StoreReads
from sayso.types import Request
from sayso.views import request_of

log = logging.getLogger("sayso.stores")
_MOST_TOLD = 1000
_MOST_WRITTEN = 1000
#: A row with more text than this is not remembered, but read and checked again.
MOST_TEXT = 16_384

R = TypeVar("R", bound=AuthenticRow)
W = TypeVar("W", Call, Run)
T = TypeVar("T")
Decode = Callable[[Sequence[Any]], R]

#: What decoding a damaged row may raise: JSON, an enumeration, an unpacking, a wrong type.
DAMAGE = (ValueError, TypeError, KeyError, AttributeError)


_CHANGED = "it was changed by something that does not hold the row key"


def row_wrong(keys: Keyring, row: AuthenticRow) -> str:
    """Say what is wrong with the MAC of a row; "" if it holds.

    Raises ``UnknownKey`` if it was written under a row key that is not here: that is no forgery.
    """
    try:
        found = row_bytes(row)
    except DAMAGE as error:
        return f"a column holds what Sayso never writes ({error})"
    if found is None:
        return "its MAC is not one that this version of Sayso makes"
    data, mac = found
    return "" if keys.check_row(data, mac) else _CHANGED


def answer_wrong(keys: Keyring, call: Call) -> str:
    """Say what is wrong with a person's answer that is a call's result; "" if it holds.

    An answer is handed out as it is stored. So it is checked with every read that the person who
    gave it has signed it, and for this call: the row key alone makes no answer.
    """
    decision = call.decision
    if decision is None or decision.type != "respond":
        return ""
    answers = (call.digest, codec.digest(doubt_envelope(call)))
    if decision.digest not in answers or codec.digest(envelope(call)) != call.digest:
        return f"the answer of {decision.by} is to something else"
    if call.result != decision.value:
        return f"its result is not what {decision.by} answered"
    if not keys.verify(signed_bytes(decision), decision.signature):
        return f"the signature of {decision.by} does not hold"
    return ""


class RowDecoder:
    """Turns the rows of a database into values, each checked."""

    checks = True

    def __init__(self, keys: Keyring) -> None:
        self._keys = keys
        #: What the log was told already: workers read the same lists again and again.
        self._told: set[str] = set()
        self._written: dict[tuple[Decode[Any], str], tuple[Sequence[Any], Any]] = {}

    def wrote(self, decode: Decode[W], row: Sequence[Any], value: W) -> None:
        """Remember a row that this process has just authenticated and written.

        As long as the database gives back these very columns, MAC included, there is nothing to
        check: a check has the same outcome as the making.
        """
        if len(self._written) >= _MOST_WRITTEN:
            self._written.clear()
        if value.size < MOST_TEXT:
            self._written[decode, row[0]] = row, value

    def one(self, decode: Decode[R], row: Sequence[Any]) -> R:
        """Return a row that was asked for by name; ``Tampered`` if it is not as we wrote it."""
        written = self._written.get((decode, row[0]))
        if written is not None and written[0] == row:
            value: R = written[1]
            return value
        try:
            value = decode(row)
        except DAMAGE as error:
            raise tampered(f"row {row[0]}", f"a column cannot be read ({error})") from error
        return self.checked(value)

    def checked(self, value: R) -> R:
        """Return a decoded row whose MAC holds; else ``Tampered``, or ``KeyMissing``."""
        _ = self._keys.row_key  # which says what to do, if there is none at all
        try:
            wrong = row_wrong(self._keys, value)
            if not wrong and isinstance(value, Call):
                wrong = answer_wrong(self._keys, value)
        except UnknownKey as error:
            raise UnknownKey(f"{name_of(value)} was not used: {error}", error.key_id) from None
        if wrong:
            raise tampered(name_of(value), wrong)
        return value

    def tool(self, row: Sequence[Any]) -> Tool:
        """Return a tool whose digest is that of what it says; else ``Tampered``."""
        tool = Tool(*row)
        try:
            holds = tool.redigested().digest == tool.digest
        except DAMAGE:
            holds = False
        if not holds:
            raise tampered(f"tool {tool.name}", "it is not what its digest says")
        return tool

    def each(self, decode: Decode[R], rows: Iterable[Sequence[Any]]) -> list[R]:
        """Return rows that belong together: one bad row refuses them all."""
        return [self.one(decode, row) for row in rows]

    def genuine(self, decode: Decode[R], rows: Iterable[Sequence[Any]]) -> list[R]:
        """Return the rows that could count for a decision; a changed one counts for nothing.

        One that was written under an unknown key may well be genuine, so it raises ``UnknownKey``.
        """
        found: list[R] = []
        for row in rows:
            try:
                found.append(self.one(decode, row))
            except Tampered as error:
                self._tell("it does not count", error)
        return found

    def listed(self, decode: Decode[R], rows: Iterable[Sequence[Any]]) -> list[R]:
        """Return the rows of a list, without the bad ones, which are logged."""
        found: list[R] = []
        for row in rows:
            try:
                found.append(self.one(decode, row))
            except (Tampered, UnknownKey) as error:
                self._tell("left out of a list", error)
        return found

    def _tell(self, what: str, error: Exception) -> None:
        if str(error) not in self._told:
            if len(self._told) >= _MOST_TOLD:
                self._told.clear()
            self._told.add(str(error))
            log.warning("%s: %s", what, error)


class _Unchecked(RowDecoder):
    """Gives the rows as they are, for the audit, which checks them itself."""

    checks = False

    def __init__(self) -> None:
        pass

    def one(self, decode: Decode[R], row: Sequence[Any]) -> R:
        return decode(row)

    def checked(self, value: R) -> R:
        return value

    def tool(self, row: Sequence[Any]) -> Tool:
        return Tool(*row)


UNCHECKED = _Unchecked()


def if_readable(read: Callable[..., T], *args: Any) -> T | None:
    """Read a row for a list of many: None, with a warning in the log, if it is refused."""
    try:
        return read(*args)
    except (Tampered, UnknownKey) as error:
        log.warning("left out of a list: %s", error)
        return None


def tool_of(store: StoreReads, call: Call) -> Tool | None:
    """Return the tool of a call as it was when people were asked; ``Tampered`` if it is gone."""
    if not call.tool_digest or call.tool_digest.startswith(HOSTED):
        return None
    tool = store.tool(call.tool_digest)
    if tool is None:
        raise tampered(f"request {call.id}", f"the row of its tool {call.tool} is missing")
    return tool


def request_in(store: StoreReads, call: Call) -> Request:
    """Return a stored call as people see it."""
    return request_of(call, tool_of(store, call))


def name_of(row: AuthenticRow) -> str:
    """Return what a row is called in messages."""
    if isinstance(row, StoredMessage):
        name = f"{row.seq} of thread {row.thread}"
    else:
        name = row.key if isinstance(row, EffectKey) else row.id
    return f"{FIELDS[type(row)].noun} {name}"


def event_taken() -> Tampered:
    """Return the error for an event whose place in its chain is taken.

    The thread's row is locked, and says where its chain ends. If there are events behind that end,
    somebody has put the row back.
    """
    return Tampered(
        "nothing was written: the row of this thread was deleted or put back to an earlier state, "
        "and its chain has later events. Run `sayso audit verify` to see which, then bring the row "
        "back from a backup, or ask again in a new thread"
    )


def tampered(name: str, wrong: str) -> Tampered:
    """Return the error for a row that is not as Sayso wrote it."""
    return Tampered(
        f"{name} was not used: {wrong}. Run `sayso audit verify` to see what differs, then bring "
        "the row back from a backup, or ask again in a new run"
    )
