"""What commands share: exit codes, options, opening the store, and who runs the command."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from typer.core import TyperArgument, TyperGroup

import sayso
from sayso import codec, text
from sayso.errors import (
    Conflict,
    Expired,
    InvalidCall,
    InvalidPolicy,
    NotAllowed,
    NotFound,
    SaysoError,
    StoreError,
)
from sayso.inbox import Inbox, authenticate, os_user
from sayso.policy import parse_duration
from sayso.redaction import title_of
from sayso.stores import open_store
from sayso.stores.address import address_of
from sayso.types import Edit, Json, Request, RequestKind, Reviewer, Sort
from sayso.types import StatusFilter as Status

if TYPE_CHECKING:
    from sayso.channels.prompt import Review

DEFAULT_STORE = "sqlite:///sayso.db"
TOKEN_VARIABLE = "SAYSO_TOKEN"


# -- exit codes


class Exit(IntEnum):
    """The exit codes of all commands."""

    OK = 0
    PROBLEM = 1
    USAGE = 2
    NO_REVIEWER = 3
    NOT_FOUND = 4
    CONFLICT = 5
    NOT_ALLOWED = 6
    EXPIRED = 7
    PENDING = 75


#: What each exit code means; ``docs/cli.md`` is generated from this table.
MEANINGS: dict[Exit, str] = {
    Exit.OK: "success",
    Exit.PROBLEM: "a problem was found, or the operation was refused; nothing was changed",
    Exit.USAGE: "the command or its options are wrong",
    Exit.NO_REVIEWER: "the command needs a decision, but there is no terminal to ask in",
    Exit.NOT_FOUND: "the store, request, run, grant or token does not exist, or several match",
    Exit.CONFLICT: "someone else decided first, or the request has changed since you saw it",
    Exit.NOT_ALLOWED: "this person or token is not allowed to do that",
    Exit.EXPIRED: "the request has expired",
    Exit.PENDING: "you left or interrupted it: the request is still pending",
}


class NoReviewer(SaysoError):
    """The command needs a decision, and there is no terminal to ask in."""


class Usage(SaysoError):
    """The options are wrong, or do not go together."""


_BY_ERROR: dict[type[SaysoError], Exit] = {
    NoReviewer: Exit.NO_REVIEWER,
    Usage: Exit.USAGE,
    NotFound: Exit.NOT_FOUND,
    Conflict: Exit.CONFLICT,
    NotAllowed: Exit.NOT_ALLOWED,
    Expired: Exit.EXPIRED,
}


def exit_of(error: SaysoError) -> Exit:
    return next((code for kind, code in _BY_ERROR.items() if isinstance(error, kind)), Exit.PROBLEM)


# -- options


def choices(literal: Any) -> str:
    """Return the values of an option as its help shows them."""
    return "|".join(get_args(literal))


StoreUrl = Annotated[
    str,
    typer.Option("--store", envvar="SAYSO_STORE", metavar="URL", help="The store to use."),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="Act as the owner of the token in this file (or in SAYSO_TOKEN) "
        "instead of as the operating system's user.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Plain = Annotated[
    bool, typer.Option("--plain", help="Print without colours and rules, for screen readers.")
]
LogJson = Annotated[bool, typer.Option("--log-json", help="Log JSON, one object per line.")]


def _pending_ids(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the open requests for the shell to complete, with their titles."""
    try:
        with reading(context.params.get("store") or DEFAULT_STORE) as inbox:
            requests = inbox.pending_sync(limit=100).items
    except SaysoError:
        return []  # the command itself says what is wrong with the store
    return [
        (request.id, text.inline(title_of(request)))
        for request in requests
        if request.id.startswith(incomplete)
    ]


RequestId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The request's id, or the start of it.",
        autocompletion=_pending_ids,
    ),
]
Digest = Annotated[
    str | None,
    typer.Option(
        "--digest",
        metavar="HEX",
        help="Decide without a prompt, on the digest that you saw (`sayso show ID --json`).",
    ),
]
KindFilter = Annotated[
    RequestKind | None,
    typer.Option("--kind", metavar=choices(RequestKind), help="Only requests of this kind."),
]
AgentFilter = Annotated[
    str | None, typer.Option("--agent", metavar="NAME", help="Only requests from this agent.")
]
ToolFilter = Annotated[
    str | None, typer.Option("--tool", metavar="NAME", help="Only requests for this tool.")
]
ThreadFilter = Annotated[
    str | None, typer.Option("--thread", metavar="NAME", help="Only requests in this thread.")
]
RunFilter = Annotated[
    str | None, typer.Option("--run", metavar="NAME", help="Only requests in this run.")
]
TextFilter = Annotated[
    str | None,
    typer.Option(
        "--q", metavar="TEXT", help="Words to search for in tool, agent, description and id."
    ),
]
StatusFilter = Annotated[
    Status,
    typer.Option("--status", metavar=choices(Status), help="Only requests with this status."),
]
SortOrder = Annotated[
    Sort, typer.Option("--sort", metavar=choices(Sort), help="The order of the list.")
]
Limit = Annotated[
    int,
    typer.Option(
        "--limit", metavar="N", min=1, max=500, help="The maximum number of requests, up to 500."
    ),
]
After = Annotated[
    str | None,
    typer.Option("--after", metavar="NEXT", help="Continue after the `next` of the previous page."),
]
Message = Annotated[
    str | None,
    typer.Option("--message", "-m", metavar="TEXT", help="The reason, which the agent will see."),
]


def duration(value: str | None, option: str) -> float | None:
    """Parse "90s", "15m", "8h" or "30d" into seconds."""
    if value is None:
        return None
    try:
        return parse_duration(
            float(value) if value.replace(".", "", 1).isdecimal() else value, option
        )
    except InvalidPolicy as error:
        raise Usage(str(error)) from None


def point_in_time(value: str, option: str) -> datetime:
    """Parse an ISO date or time. Without a zone it is in this machine's zone."""
    try:
        return datetime.fromisoformat(value).astimezone()
    except (ValueError, OverflowError, OSError):
        raise Usage(f"{option} {value!r}: write it like 2026-03-31 or 2026-03-31T17:30") from None


def json_value(value: str, option: str) -> Json:
    """Parse JSON given on the command line, as ``@file``, or as ``-`` for standard input."""
    content: str | bytes = value
    try:
        if value == "-":
            content = sys.stdin.buffer.read()
        elif value.startswith("@"):
            content = Path(value[1:]).read_bytes()
        return codec.parse(content)
    except InvalidCall as error:
        raise Usage(f"{option}: {error}") from None
    except (OSError, AttributeError) as error:  # a closed stdin has no buffer
        why = getattr(error, "strerror", None) or "it is closed"
        raise Usage(f"{option} {value!r} cannot be read: {why}") from None


def json_object(args: str) -> dict[str, Json]:
    """Parse the JSON object of ``--args``."""
    content = json_value(args, "--args")
    if not isinstance(content, dict):
        raise Usage("--args: give one JSON object")
    return content


def listen_address(value: str, option: str) -> tuple[str, int]:
    """Parse ``[ADDRESS:]PORT``. The address defaults to loopback."""
    host, _, port = value.rpartition(":")
    if not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise Usage(f"{option} {value:.60}: write [ADDRESS:]PORT, such as 9321 or 0.0.0.0:9321")
    return host.strip("[]") or "127.0.0.1", int(port)


# -- the store, and who works on it


@contextmanager
def opened(url: str, *, create: bool = False) -> Iterator[Inbox]:
    """Open the inbox of a store, to write. Raise ``NotFound`` if there is none, unless ``create``.

    Creates nothing else: a command that is told the wrong store must not make a new one.
    """
    check_shared(url)
    with closing(Inbox(open_store(url, create=create))) as inbox:
        yield inbox


@contextmanager
def reading(url: str) -> Iterator[Inbox]:
    """Open the inbox of a store for a command that only reads, and so changes no file."""
    check_shared(url)
    with closing(Inbox(open_store(url, read_only=True))) as inbox:
        yield inbox


def check_shared(url: str) -> None:
    """Raise ``StoreError`` for a store in memory, which no other process can open."""
    if address_of(url).kind == "memory":
        raise StoreError("memory:// lives only inside one process: use --store sqlite:///path")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who runs the command: the operating system's user, or the owner of a token."""

    reviewer: Reviewer
    token: str | None = None

    @property
    def name(self) -> str:
        return self.reviewer.name

    @property
    def by(self) -> Reviewer | None:
        """The reviewer, or ``None`` with a token: the token is checked with each decision."""
        return None if self.token is not None else self.reviewer

    def review(
        self,
        inbox: Inbox,
        request: Request,
        grant: Mapping[str, Any] | None = None,
        edit: Edit | None = None,
    ) -> Review:
        from sayso.channels.prompt import Review  # imports rich, which no server needs

        return Review(inbox, request.id, self.by, self.token, "cli", grant, edit)

    def must_be(self, *roles: str) -> Caller:
        """Refuse a token without one of these roles. Without a token, you own the file anyway."""
        if self.token is not None and self.reviewer.role not in roles:
            raise NotAllowed(
                f"the token of {self.name} has the role {self.reviewer.role!r}; this command needs "
                f"{' or '.join(roles)}"
            )
        return self


def caller(inbox: Inbox, token_file: Path | None) -> Caller:
    """Return who runs the command, from ``--token-file``, ``SAYSO_TOKEN``, or the OS user."""
    token = os.environ.get(TOKEN_VARIABLE) or None
    if token_file is not None:
        try:
            if token_file.stat().st_mode & 0o077:
                raise Usage(f"{token_file} is open to other users, run: chmod 600 {token_file}")
            token = token_file.read_text(encoding="ascii", errors="replace").strip()
        except OSError as error:
            raise Usage(f"--token-file {token_file} cannot be read: {error.strerror}") from None
    if token is None:
        return Caller(os_user())
    return Caller(authenticate(inbox.store, token), token)


@contextmanager
def as_admin(
    url: str, token_file: Path | None, *, create: bool = False
) -> Iterator[tuple[Inbox, Reviewer]]:
    """Open the inbox of a store to change people, tokens or the store; yield it and who does it."""
    with opened(url, create=create) as inbox:
        yield inbox, caller(inbox, token_file).must_be("admin").reviewer


# -- the command line itself


def _usage_name(self: TyperArgument) -> str:
    """Return an argument as in a usage line: ``ID``, ``[NAME]`` or ``NAME...``."""
    name = self.display_name_raw if self.required else f"[{self.display_name_raw}]"
    return name if self.nargs == 1 else f"{name}..."


# Typer writes {ID} for an argument that is required.
TyperArgument._usage_display_name = _usage_name  # type: ignore[method-assign]


class Commands(TyperGroup):
    """The commands. An error prints one line and sets an exit code, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except SaysoError as error:
            raise typer.Exit(_failed(text.inline(str(error)), exit_of(error))) from None
        except KeyboardInterrupt:
            print("\nsayso: interrupted; pending requests are still pending", file=sys.stderr)
            raise typer.Exit(Exit.PENDING) from None


def new_app() -> typer.Typer:
    app = typer.Typer(
        name="sayso",
        cls=Commands,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sayso {sayso.__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Human approval for AI agents. Nothing runs without your say-so."""


def _failed(message: str, code: Exit) -> Exit:
    print(f"sayso: {message}", file=sys.stderr)
    return code


def run(app: typer.Typer) -> None:
    """Run a command line. The first Ctrl-C interrupts the command, another one ends the process."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:  # escape characters that the terminal cannot show
            reconfigure(errors="backslashreplace")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(Exit.PENDING))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        app(prog_name="sayso")
    except UnicodeEncodeError as error:  # a lone surrogate stands for a byte that is not UTF-8
        word = text.inline(ascii(error.object[:80]))
        sys.exit(_failed(f"{word} is not UTF-8: write it in UTF-8", Exit.USAGE))
    except OSError as error:  # such as a full disk behind the standard output
        sys.exit(_failed(text.inline(str(error)), Exit.PROBLEM))
    finally:
        # Nothing handles a KeyboardInterrupt while the interpreter ends, and a tool may still run.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
