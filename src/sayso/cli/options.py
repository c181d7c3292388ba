"""The options that several commands share, each written once."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from sayso import codec
from sayso.cli.exits import Usage
from sayso.errors import InvalidCall, InvalidPolicy
from sayso.policy import seconds
from sayso.types import Json, RequestKind, Sort
from sayso.types import StatusFilter as Status

DEFAULT_STORE = "sqlite:///sayso.db"


def choices(literal: Any) -> str:
    """The values of an option, as its help shows them."""
    return "|".join(get_args(literal))


StoreUrl = Annotated[
    str,
    typer.Option("--store", envvar="SAYSO_STORE", metavar="URL", help="Where requests are kept."),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="Act as the owner of the token in this file (or in SAYSO_TOKEN), "
        "not as the user of the operating system.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Plain = Annotated[
    bool, typer.Option("--plain", help="No colours and no ruled lines, for screen readers.")
]
RequestId = Annotated[
    str, typer.Argument(metavar="ID", help="The request: its id, or how its id begins.")
]
Digest = Annotated[
    str | None,
    typer.Option(
        "--digest",
        metavar="HEX",
        help="The digest of what you saw (`sayso show ID --json`): decide without being asked.",
    ),
]
KindFilter = Annotated[
    RequestKind | None,
    typer.Option("--kind", metavar=choices(RequestKind), help="Only requests of this kind."),
]
AgentFilter = Annotated[
    str | None, typer.Option("--agent", metavar="NAME", help="Only requests of this agent.")
]
ToolFilter = Annotated[
    str | None, typer.Option("--tool", metavar="NAME", help="Only requests for this tool.")
]
ThreadFilter = Annotated[
    str | None, typer.Option("--thread", metavar="NAME", help="Only requests of this thread.")
]
RunFilter = Annotated[
    str | None, typer.Option("--run", metavar="NAME", help="Only requests of this run.")
]
TextFilter = Annotated[
    str | None,
    typer.Option(
        "--q", metavar="TEXT", help="Only where words of tool, agent, description or id begin so."
    ),
]
StatusFilter = Annotated[
    Status, typer.Option("--status", metavar=choices(Status), help="How it ended.")
]
SortOrder = Annotated[Sort, typer.Option("--sort", metavar=choices(Sort), help="Which come first.")]
Limit = Annotated[
    int, typer.Option("--limit", metavar="N", min=1, max=500, help="How many at most, up to 500.")
]
After = Annotated[
    str | None,
    typer.Option("--after", metavar="NEXT", help="Go on after the `next` of the page before."),
]
Message = Annotated[
    str | None, typer.Option("--message", "-m", metavar="TEXT", help="Why; the agent reads it.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask whether you are sure.")]


def duration(value: str | None, option: str) -> float | None:
    """Seconds, from "90s", "15m", "8h" or "30d"."""
    if value is None:
        return None
    try:
        return seconds(float(value) if value.replace(".", "", 1).isdecimal() else value, option)
    except InvalidPolicy as error:
        raise Usage(str(error)) from None


def point_in_time(value: str, option: str) -> datetime:
    """A time with its zone, from an ISO date or time; this machine's zone where none is given."""
    try:
        return datetime.fromisoformat(value).astimezone()
    except (ValueError, OverflowError, OSError):
        raise Usage(f"{option} {value!r}: write it like 2026-03-31 or 2026-03-31T17:30") from None


def json_value(value: str, option: str) -> Json:
    """JSON from the command line, from ``@file``, or from standard input as ``-``."""
    try:
        return codec.parse(_content(value, option))
    except InvalidCall as error:
        raise Usage(f"{option}: {error}") from None


def _content(value: str, option: str) -> str | bytes:
    if value != "-" and not value.startswith("@"):
        return value
    try:
        if value == "-":
            return sys.stdin.buffer.read()
        return Path(value[1:]).read_bytes()
    except (OSError, AttributeError) as error:  # an attribute is missing where stdin is closed
        why = getattr(error, "strerror", None) or "it is closed"
        raise Usage(f"{option} {value!r} cannot be read: {why}") from None
