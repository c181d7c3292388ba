"""One call before it is a row."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from sayso import codec
from sayso.rows import Call, Tool
from sayso.types import Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One call before it is a row: what it is, under what terms, and how to carry it out."""

    key: str
    kind: str
    args: str
    terms: Callable[[dict[str, Any]], Awaitable[Terms]]
    #: The digest of the policy that is in force; none where no policy is asked.
    policy: str | None = None
    tool: Tool | None = None
    tool_name: str = ""
    binds: str = ""
    note: str = ""
    preview: Callable[[], Awaitable[str]] | None = None
    #: The arguments as the tool itself reads them, with all that it fills in; or InvalidCall.
    reads: Callable[[str], str] | None = None
    #: Runs the effect from the stored arguments and gives the live value and its JSON text.
    effect: Callable[[Call], Awaitable[tuple[Any, str]]] | None = None
    #: Reads a stored result back.
    load: Callable[[str], Any] = codec.loads
    wait: float | None = 0
    #: The caller chose the key: other content under it is a mistake, and not the same call.
    named: bool = False
