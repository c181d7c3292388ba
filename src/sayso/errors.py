"""Everything that Sayso raises, as one tree.

    SaysoError
    ├── Refused              the call did not run
    │   ├── Rejected         a person rejected it, or declined to answer
    │   ├── Denied           the policy denies it; no person was asked
    │   ├── Expired          no decision was made in time
    │   ├── Cancelled        the run or the request was cancelled
    │   ├── DuplicateEffect  another call has this effect, or may have; the message says which
    │   └── Superseded       new input replaced the request
    ├── NotFound             no request, run, thread, grant or token has that id
    ├── Conflict             what you saw has changed; read it again
    │   ├── AlreadyDecided   another decision came first; the message says whose
    │   └── Leased           another process works on the run, or died; the message says until when
    ├── NotAllowed           this person, role or assurance may not do that
    │   └── Unauthenticated  not signed in
    ├── TooMany              too many requests at once; the message says when to try again
    ├── InvalidDecision      the decision does not fit the request
    ├── InvalidCall          the arguments, question or schema are not valid
    ├── InvalidPolicy        a policy file or rule is not valid
    ├── CallFailed           the call ran and raised, now or in an earlier process
    ├── NotExecuted          raised by a tool: nothing happened
    ├── ResultNotKept        the call ran, and its result could not be stored
    ├── InDoubt              the call started, and its outcome is unknown
    ├── Tampered             a stored row does not match its digest or signature
    ├── KeyMissing           there is no key to sign or verify with
    │   └── UnknownKey       a row was signed with a key that this process does not have
    ├── ModelError           the model could not be reached, or refused the request
    └── StoreError           the store cannot be read or written
        ├── StoreClosed      this store object was closed
        └── StoreVersion     the store was written by another version

``Paused`` is outside the tree: it derives from ``BaseException``, so that a framework that turns
every exception of a tool into text for the model cannot swallow it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sayso.types import Request


class SaysoError(Exception):
    """The base class of all errors. Each message says what to do."""

    #: The request that the error is about, if there is one.
    request: Request | None = None


class Refused(SaysoError):
    """The call did not run: a person, the policy or the clock refused it."""

    def __init__(self, message: str, request: Request | None = None) -> None:
        super().__init__(message)
        self.request = request


class Rejected(Refused):
    """A person rejected the call. The message contains their reason."""


class Denied(Refused):
    """The policy denies the call. No person was asked."""


class Expired(Refused):
    """No decision was made in time."""


class Cancelled(Refused):
    """The run or the request was cancelled."""


class Superseded(Refused):
    """New input replaced the request."""


class DuplicateEffect(Refused):
    """Another call with the same effect key has run, is running, or is in doubt.

    ``key`` is the key, ``first`` the id of the request that has it, ``request`` the refused one.
    """

    def __init__(
        self, message: str, request: Request | None = None, *, key: str = "", first: str = ""
    ) -> None:
        super().__init__(message, request)
        self.key = key
        self.first = first


class NotFound(SaysoError):
    """No object has that id."""


class Conflict(SaysoError):
    """What you saw has changed; read it again."""


class AlreadyDecided(Conflict):
    """Another decision came first."""

    def __init__(self, message: str, request: Request | None = None) -> None:
        super().__init__(message)
        self.request = request


class Leased(Conflict):
    """Another process works on the run, or died doing so. The message says until when."""


class NotAllowed(SaysoError):
    """This person may not do that."""


class Unauthenticated(NotAllowed):
    """Not signed in, or with a token or session that is not valid."""


class TooMany(SaysoError):
    """Too many requests are open or arrive at once. Try again after ``wait`` seconds."""

    def __init__(self, message: str, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait


class InvalidDecision(SaysoError):
    """The decision does not fit the request. ``path`` names the field at fault, if one is."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class InvalidCall(SaysoError):
    """The arguments, question or schema are not valid. ``path`` names the value at fault."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class InvalidPolicy(SaysoError):
    """A rule or a policy file is not valid."""


class CallFailed(SaysoError):
    """The call ran and raised. ``type`` is the name of the exception, ``said`` its message."""

    def __init__(self, message: str, type: str = "", said: str = "") -> None:
        super().__init__(message)
        self.type = type
        self.said = said


class NotExecuted(SaysoError):
    """Raise it in a tool to say that nothing happened: ``raise sayso.NotExecuted("no funds")``.

    The call then fails, and its effect key is free. It speaks for the call that raised it, not for
    a call around that one.
    """


class ResultNotKept(SaysoError):
    """The call ran, and its result could not be stored. It will not run again.

    ``value`` is the result in the process that ran it, and None for later callers.
    """

    def __init__(self, message: str, value: object = None) -> None:
        super().__init__(message)
        self.value = value


class InDoubt(SaysoError):
    """The call started, its outcome is unknown, and a person gave up on it.

    A tool raises it, without a request, to say that it does not know what happened.
    """

    def __init__(self, message: str, request: Request | None = None) -> None:
        super().__init__(message)
        self.request = request


class Tampered(SaysoError):
    """A stored row does not match its digest or signature. It was not used."""


class KeyMissing(SaysoError):
    """There is no key to sign or verify with."""


class UnknownKey(KeyMissing):
    """A signature, link or row MAC names a key that is not in this process's keyring.

    The row may be genuine, so this is not reported as tampering, and nothing is changed. Add the
    key to the keyring and try again. ``key_id`` is the id of the key.
    """

    def __init__(self, message: str, key_id: str = "") -> None:
        super().__init__(message)
        self.key_id = key_id


class StoreError(SaysoError):
    """The store cannot be read or written. Nothing was changed."""


class StoreClosed(StoreError):
    """``close`` was called on this store object, so no later use of it succeeds."""


class StoreVersion(StoreError):
    """The store was written by another version of Sayso, which this one cannot work with."""


class Paused(BaseException):
    """Not an error: the run waits for a decision. To continue, enter the run ``run`` again."""

    def __init__(self, run: str, requests: Sequence[Request] = ()) -> None:
        self.run = run
        self.requests = tuple(requests)
        if not self.requests:  # the store knows them
            super().__init__(
                f"run {run!r} waits for a decision. See `sayso inbox` for its open requests, and "
                "resume the run when they are decided"
            )
            return
        ids = ", ".join([request.id for request in self.requests])
        super().__init__(
            f"run {run!r} waits for a decision on {ids}. Decide it with `sayso inbox`, then make "
            f"the same call again inside `with gate.run({run!r}):`. Outside of that run the same "
            "call is a new request"
        )


def describe_error(error: BaseException) -> str:
    """Return an error's type and message as text that can be stored."""
    try:
        message = str(error)
    except Exception:
        message = "its message could not be read"
    text = f"{type(error).__name__}: {message}".replace("\0", "\\x00")
    return text.encode("utf-8", "backslashreplace").decode()
