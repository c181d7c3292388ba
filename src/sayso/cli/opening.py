"""Opening the store that a command works on, and saying who works on it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sayso.channels.desk import Desk
from sayso.cli.exits import Usage
from sayso.errors import NotAllowed, NotFound, StoreError
from sayso.inbox import Inbox, authenticate, os_user
from sayso.types import Request, Reviewer

TOKEN = "SAYSO_TOKEN"
_SEVERAL = 6


@contextmanager
def opened(url: str, *, create: bool = False) -> Iterator[Inbox]:
    """The inbox of a store; one that is not there is made only on purpose."""
    if url.startswith("memory:"):
        raise StoreError("memory:// ends with its process: give --store sqlite:///path")
    if not create:
        _check_there(url)
    inbox = Inbox(url)
    try:
        yield inbox
    finally:
        inbox.close()


def _check_there(url: str) -> None:
    """Opening a store makes it; who only wants to look at one must not."""
    path = file_of(url)
    if path is not None and not path.exists():
        raise NotFound(
            f"there is no store at {path}: start the agent that makes it, or name another with "
            "--store or SAYSO_STORE"
        )
    if url.startswith(("postgresql://", "postgres://")):
        try:
            from sayso.cli.checkup.database import Database
        except ImportError:
            return  # opening it says what to install
        with closing(Database(url)) as database:
            database.tables()


def file_of(url: str) -> Path | None:
    """The file behind a SQLite URL."""
    scheme, separator, rest = url.partition("://")
    return Path(rest[1:]).expanduser() if separator and scheme == "sqlite" and rest[1:] else None


@dataclass(frozen=True, slots=True)
class Caller:
    """Who runs the command: a user of the system, or the owner of a token."""

    reviewer: Reviewer
    token: str | None = None

    @property
    def name(self) -> str:
        """The name that the record will show."""
        return self.reviewer.name

    @property
    def by(self) -> Reviewer | None:
        """The person by name; the owner of a token is proved anew with each decision."""
        return None if self.token is not None else self.reviewer

    def desk(self, inbox: Inbox, request: Request, grant: Mapping[str, Any] | None = None) -> Desk:
        """Where this person looks at one request."""
        return Desk(inbox, request.id, self.by, self.token, "cli", grant)

    def must_be(self, *roles: str) -> Caller:
        """Refuse a token that has none of these roles; a user of the system owns the file."""
        if self.token is not None and self.reviewer.role not in roles:
            raise NotAllowed(
                f"the token of {self.name} has the role {self.reviewer.role!r}; this needs "
                f"{' or '.join(roles)}"
            )
        return self


def caller(inbox: Inbox, token_file: Path | None) -> Caller:
    """The person behind this command."""
    token = _token(token_file)
    if token is None:
        return Caller(os_user())
    return Caller(authenticate(inbox.store, token), token)


def _token(path: Path | None) -> str | None:
    if path is None:
        return os.environ.get(TOKEN) or None
    try:
        if path.stat().st_mode & 0o077:
            raise Usage(f"{path} is open to other users, run: chmod 600 {path}")
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        raise Usage(f"--token-file {path} cannot be read: {error.strerror}") from None


def found(inbox: Inbox, prefix: str) -> Request:
    """The one request whose id begins like this."""
    ids = inbox.store.calls_like(prefix, _SEVERAL) if prefix else []
    if len(ids) > 1 and prefix not in ids:
        more = ", …" if len(ids) == _SEVERAL else ""
        raise NotFound(f"{prefix!r} is how several ids begin: {', '.join(ids)}{more}")
    return inbox.find_sync(prefix) if prefix else inbox.get_sync(prefix)
