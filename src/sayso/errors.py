"""Everything that Sayso raises, as one tree.

    SaysoError
    ├── Refused              nothing ran, and somebody or something said no
    │   ├── Rejected         a person said no, or will not answer
    │   ├── Denied           the policy said no; nobody was asked
    │   ├── Expired          nobody decided in time
    │   ├── Cancelled        the run or the request was called off
    │   ├── DuplicateEffect  another call has had this effect, or may have; it says which
    │   └── Superseded       new input made the request pointless
    ├── NotFound             no request, run, thread, grant or token has that id
    ├── Conflict             what you saw is not what is there now
    │   ├── AlreadyDecided   somebody else's decision won; it says whose
    │   └── Leased           another process works on the run, or died; it says until when
    ├── NotAllowed           this person, role or assurance may not do that
    │   └── Unauthenticated  nobody is signed in here
    ├── TooMany              too much at once; it says when to try again
    ├── InvalidDecision      the decision does not fit the request
    ├── InvalidCall          the arguments, question or schema cannot be asked about
    ├── InvalidPolicy        a policy file or rule that cannot be read
    ├── CallFailed           the call ran and raised, now or in an earlier process
    ├── ResultNotKept        the call ran, and its result could not be stored
    ├── InDoubt              the call started, and nobody knows how it ended
    ├── Tampered             a stored row does not match its digest or signature
    ├── KeyMissing           there is no key to sign or verify with
    │   └── UnknownKey       a row was signed with a key that this process does not have
    ├── ModelError           the model could not be reached, or refused the request
    └── StoreError           the store cannot be read or written
        └── StoreVersion     the store was written by a newer version

``Paused`` stands outside the tree: it derives from ``BaseException``, so that a framework that
turns every exception of a tool into text for the model cannot swallow it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sayso.types import Request


class SaysoError(Exception):
    """The base of all errors; every message says what to do."""


class Refused(SaysoError):
    """Nothing ran: a person, the policy or the clock said no."""

    def __init__(self, message: str, request: Request | None = None) -> None:
        super().__init__(message)
        self.request = request


class Rejected(Refused):
    """A person said no; the message holds the reason."""


class Denied(Refused):
    """The policy forbids the call; nobody was asked."""


class Expired(Refused):
    """Nobody decided in time."""


class Cancelled(Refused):
    """The run or the request was called off."""


class Superseded(Refused):
    """Newer input took the place of the request."""


class DuplicateEffect(Refused):
    """Another call has the effect of this one, by its key: done, running, or in doubt.

    ``key`` is the key, ``first`` the id of the request that has it, ``request`` the one refused.
    """

    def __init__(
        self, message: str, request: Request | None = None, *, key: str = "", first: str = ""
    ) -> None:
        super().__init__(message, request)
        self.key = key
        self.first = first


class NotFound(SaysoError):
    """Nothing has that id."""


class Conflict(SaysoError):
    """What was seen is not what is there now; read it again."""


class AlreadyDecided(Conflict):
    """Somebody else's decision won."""

    def __init__(self, message: str, request: Request | None = None) -> None:
        super().__init__(message)
        self.request = request


class Leased(Conflict):
    """Another process works on the run, or died while it did; the message says until when."""


class NotAllowed(SaysoError):
    """This person may not do that."""


class Unauthenticated(NotAllowed):
    """Nobody is signed in, or with something that does not count."""


class TooMany(SaysoError):
    """Too many requests are open, or come too fast; ``wait`` is how many seconds to wait."""

    def __init__(self, message: str, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait


class InvalidDecision(SaysoError):
    """The decision does not fit the request; ``path`` names the field where one is at fault."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class InvalidCall(SaysoError):
    """The call or question cannot be asked about; ``path`` names the value at fault."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class InvalidPolicy(SaysoError):
    """A rule or a policy file that cannot be read."""


class CallFailed(SaysoError):
    """The call ran and raised; ``type`` is the name of what it raised, ``said`` what that said."""

    def __init__(self, message: str, type: str = "", said: str = "") -> None:
        super().__init__(message)
        self.type = type
        self.said = said


class ResultNotKept(SaysoError):
    """The call ran, and its result could not be stored. It will not run again.

    ``value`` is the result, in the process that ran it; later callers get None.
    """

    def __init__(self, message: str, value: object = None) -> None:
        super().__init__(message)
        self.value = value


class InDoubt(SaysoError):
    """The call started, its end is unknown, and it was given up."""

    def __init__(self, message: str, request: Request | None = None) -> None:
        super().__init__(message)
        self.request = request


class Tampered(SaysoError):
    """A stored row does not match its digest or its signature; it was not run."""


class KeyMissing(SaysoError):
    """There is no key to sign or verify with."""


class UnknownKey(KeyMissing):
    """A signature, link or row MAC names a key that is not in this process's keyring.

    It may be genuine, so it is not reported as tampering, and nothing is changed because of it: add
    the key where it is missing, and try again. ``key_id`` is the id of the key.
    """

    def __init__(self, message: str, key_id: str = "") -> None:
        super().__init__(message)
        self.key_id = key_id


class StoreError(SaysoError):
    """The store cannot be read or written; nothing was changed."""


class StoreVersion(StoreError):
    """The store was written by a newer version of Sayso."""


class Paused(BaseException):
    """Not an error: the run waits for a decision. Enter the run named ``run`` again to continue."""

    def __init__(self, run: str, requests: Sequence[Request]) -> None:
        self.run = run
        self.requests = tuple(requests)
        ids = ", ".join(request.id for request in self.requests)
        super().__init__(
            f"run {run!r} waits for a decision on {ids}. Decide it with `sayso inbox`, then make "
            f"the same call again inside `with gate.run({run!r}):`. Outside of that run the same "
            "call is a new request"
        )


def describe_error(error: BaseException) -> str:
    """An error as text that can be stored, whatever it says of itself."""
    try:
        said = str(error)
    except Exception:
        said = "it cannot say what happened"
    whole = f"{type(error).__name__}: {said}".replace("\0", "\\x00")
    return whole.encode("utf-8", "backslashreplace").decode()
