"""Check the MAC of every row before it leaves a store.

Every read of a SQL store decodes its rows through a ``RowDecoder``. A single row that fails its
check raises ``Tampered``; a list leaves it out and logs a warning, so that it does not hide the
others. The audit, which reports what is wrong with a row, reads through ``UNCHECKED`` and calls
``row_wrong`` itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from sayso import codec
from sayso.engine.asking import doubt_digest, request_digest, signed_bytes
from sayso.engine.row_macs import FIELDS, AuthenticRow, row_bytes
from sayso.errors import Tampered, UnknownKey
from sayso.keys import Keyring
from sayso.redaction import Secrets, secrets_of
from sayso.rows import (
    HOSTED,
    Budget,
    Call,
    CallStatus,
    EffectKey,
    Event,
    Person,
    StoredMessage,
    Tool,
)
from sayso.stores.base import StoreReads
from sayso.text import inline
from sayso.types import EarlierRejection, Request, moment
from sayso.views import request_of

log = logging.getLogger("sayso.stores")
_MAX_LOGGED = 1000

R = TypeVar("R", bound=AuthenticRow)
T = TypeVar("T")
Decode = Callable[[Sequence[Any]], R]

#: What decoding a damaged row may raise: bad or deep JSON, an unknown enum value, a wrong type, a
#: number that is too large. The texts of these errors are Python's, and mean nothing to people.
DAMAGE = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)
UNREADABLE = "a column holds a value that Sayso never writes"


_CHANGED = "it was changed by something that does not hold the row key"


def row_wrong(keys: Keyring, row: AuthenticRow) -> str:
    """Return what is wrong with the MAC of a row; "" if it holds.

    Raises ``UnknownKey`` if the row was written under an unknown row key, which does not mean
    that it was forged.
    """
    try:
        covered_bytes = row_bytes(row)
    except DAMAGE:
        return UNREADABLE
    if covered_bytes is None:
        return "its MAC is not one that this version of Sayso makes"
    data, mac = covered_bytes
    return "" if keys.check_row(data, mac) else _CHANGED


def answer_wrong(keys: Keyring, call: Call) -> str:
    """Return what is wrong with a person's answer that is a call's result; "" if it holds.

    Every read checks that the answer was signed for this call: a holder of the row key alone must
    not be able to make one up.
    """
    decision = call.decision
    is_answer = call.status in (CallStatus.RESPONDED, CallStatus.DONE)
    if not is_answer or decision is None or decision.type != "respond":
        return ""
    answers = (call.digest, doubt_digest(call.digest, call.attempt))
    if decision.digest not in answers or request_digest(call) != call.digest:
        return f"{decision.by} answered another request"
    if call.result != decision.value:
        return f"its result is not what {decision.by} answered"
    if not keys.verify(signed_bytes(decision), decision.signature):
        return f"the signature of {decision.by} does not hold"
    return ""


class RowDecoder:
    """Decodes and checks the rows of a database."""

    checks = True

    def __init__(self, keys: Keyring) -> None:
        self._keys = keys
        #: Warnings logged already: workers read the same lists over and over.
        self._logged: set[str] = set()

    def one(self, decode: Decode[R], row: Sequence[Any]) -> R:
        """Decode a row; raise ``Tampered`` if it is not as Sayso wrote it."""
        try:
            value = decode(row)
        except DAMAGE as error:
            raise tampered(f"row {row[0]}", UNREADABLE) from error
        return self.checked(value)

    def checked(self, value: R) -> R:
        """Return a decoded row if its MAC holds; raise ``Tampered`` or ``KeyMissing`` if not."""
        _ = self._keys.row_key  # raises KeyMissing, with what to do, if there is none
        try:
            wrong = row_wrong(self._keys, value)
            if not wrong and isinstance(value, Call):
                wrong = answer_wrong(self._keys, value)
        except UnknownKey as error:
            raise UnknownKey(
                f"{inline(name_of(value))} was not used: {error}", error.key_id
            ) from None
        if wrong:
            raise tampered(name_of(value), wrong)
        return value

    def tool(self, row: Sequence[Any]) -> Tool:
        """Decode a tool; raise ``Tampered`` if its digest does not match its contents."""
        tool = Tool(*row)
        if not is_genuine_tool(tool):
            raise tampered(f"tool {tool.name}", "its contents do not match its digest")
        return tool

    def each(self, decode: Decode[R], rows: Iterable[Sequence[Any]]) -> list[R]:
        """Decode rows that belong together: one bad row raises for all of them."""
        return [self.one(decode, row) for row in rows]

    def genuine(self, decode: Decode[R], rows: Iterable[Sequence[Any]]) -> list[R]:
        """Decode rows that count for a decision; leave out the bad ones, and log them.

        A row under an unknown key may be genuine, so it raises ``UnknownKey``.
        """
        return self._good(decode, rows, "ignored", Tampered)

    def listed(self, decode: Decode[R], rows: Iterable[Sequence[Any]]) -> list[R]:
        """Decode the rows of a list; leave out the bad ones, and log them."""
        return self._good(decode, rows, "left out of a list", Tampered, UnknownKey)

    def _good(
        self, decode: Decode[R], rows: Iterable[Sequence[Any]], what: str, *bad: type[Exception]
    ) -> list[R]:
        good_rows: list[R] = []
        for row in rows:
            try:
                good_rows.append(self.one(decode, row))
            except bad as error:
                if str(error) not in self._logged:
                    if len(self._logged) >= _MAX_LOGGED:
                        self._logged.clear()
                    self._logged.add(str(error))
                    log.warning("%s: %s", what, error)
        return good_rows


class _Unchecked(RowDecoder):
    """Decodes rows without checking them, for the audit."""

    checks = False

    def __init__(self) -> None:
        pass

    def one(self, decode: Decode[R], row: Sequence[Any]) -> R:
        return decode(row)

    def tool(self, row: Sequence[Any]) -> Tool:
        return Tool(*row)


UNCHECKED = _Unchecked()


def if_readable(read: Callable[..., T], *args: Any) -> T | None:
    """Read a row for a list; return ``None`` and log a warning if it fails its check."""
    try:
        return read(*args)
    except (Tampered, UnknownKey) as error:
        log.warning("left out of a list: %s", error)
        return None


def readable_event(event: Event) -> Event:
    """Return an event as it can be shown. Of one that holds what Sayso never writes, the place is
    left: one forged event must not hide the others. ``sayso audit verify`` says what is wrong."""
    texts = (event.thread, event.type, event.actor, event.digest, event.hash, event.run, event.call)
    try:
        moment(event.at)
        _ = event.seq + event.pos
        is_whole = event.body is None or isinstance(codec.loads(event.body), dict)
        if is_whole and all(isinstance(text, str) for text in texts):
            return event
    except DAMAGE:
        pass
    return Event("", 0, 0, "unreadable", "", None, "", "", pos=event.pos)


def is_genuine_tool(tool: Tool) -> bool:
    """Return whether the contents of a tool match its digest."""
    try:
        return tool.redigested().digest == tool.digest
    except DAMAGE:
        return False


def names_tool(call: Call) -> bool:
    """Return whether the tool of a call has a row; that of a framework's server has none."""
    return bool(call.tool_digest) and not call.tool_digest.startswith(HOSTED)


def tool_of(store: StoreReads, call: Call) -> Tool | None:
    """Return the tool of a call as it was when people were asked; raise ``Tampered`` if missing."""
    if not names_tool(call):
        return None
    tool = store.tool(call.tool_digest)
    if tool is None:
        raise tampered(f"request {call.id}", f"the row of its tool {call.tool} is missing")
    return tool


def request_in(store: StoreReads, call: Call) -> Request:
    """Return a stored call as people see it."""
    return request_of(call, tool_of(store, call), store.now, refusals_in(store, call))


def secrets_of_calls(store: StoreReads, calls: Iterable[Call]) -> Secrets:
    """Return the masked values of calls. One that fails its check adds none."""
    requests = (if_readable(request_in, store, call) for call in calls)
    return Secrets(*(secrets_of(request) for request in requests if request is not None))


def refusals_in(store: StoreReads, call: Call) -> tuple[EarlierRejection, ...]:
    """Return the earlier rejections that are shown with a call. Of a pruned one, the id is left."""
    return tuple(_earlier(store, name) for name in call.refusals) if call.refusals else ()


def _earlier(store: StoreReads, refusal_id: str) -> EarlierRejection:
    refusal = store.refusal(refusal_id)
    earlier = None if refusal is None else if_readable(store.call, refusal.request)
    if refusal is None or earlier is None:
        return EarlierRejection(id=refusal_id)
    return EarlierRejection(
        id=refusal.id,
        request=refusal.request,
        by=refusal.by,
        at=moment(refusal.at),
        message=refusal.message,
        reviewers=earlier.reviewers,
        requester=earlier.requester,
    )


def name_of(row: AuthenticRow) -> str:
    """Return what a row is called in messages."""
    if isinstance(row, StoredMessage):
        name = f"{row.seq} of thread {row.thread}"
    elif isinstance(row, Person):
        name = row.name
    else:
        name = row.key if isinstance(row, EffectKey | Budget) else row.id
    return f"{FIELDS[type(row)].noun} {name}"


def event_taken() -> Tampered:
    """Return the error for an event whose position in its chain is taken.

    The thread's row is locked and names the end of its chain. Events after that end mean that an
    older copy of the row was put back.
    """
    return Tampered(
        "nothing was written: the row of this thread was deleted or put back to an earlier state, "
        "but its chain has later events. Run `sayso audit verify` to see which, restore the row "
        "from a backup, or ask again in a new thread"
    )


def tampered(name: str, wrong: str) -> Tampered:
    """Return the error for a row that is not as Sayso wrote it."""
    return Tampered(
        f"{inline(name)} was not used: {inline(wrong)}. Run `sayso audit verify` to see what "
        "differs, then restore the row from a backup, or ask again in a new run"
    )
