"""Which requests to list: what a caller may ask for, and what a store understands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from sayso.errors import InvalidDecision
from sayso.stores.base import Query
from sayso.types import KINDS, RISKS, SORTS, STATUS_FILTERS

MAX_PAGE = 500

_WORDS = {
    "status": STATUS_FILTERS,
    "sort": SORTS,
    "kind": KINDS,
    "risk": RISKS,
}


class Filters(TypedDict, total=False):
    """Which requests; what is left out, or ``None``, leaves nothing out."""

    status: str
    kind: str | None
    agent: str | None
    tool: str | None
    thread: str | None
    run: str | None
    risk: str | None
    #: Words of the tool, the agent, the id or the description.
    q: str | None
    sort: str
    #: The ``next`` of the page before.
    after: str | None
    limit: int


def query_of(given: Mapping[str, Any]) -> Query:
    """What a caller asked for, checked and named as a store knows it."""
    filters: dict[str, Any] = {"status": "pending", **given}
    known = set(Filters.__annotations__)
    unknown = set(filters) - known
    if unknown:
        raise InvalidDecision(
            f"no filter {', '.join(sorted(unknown))}: use {', '.join(sorted(known))}"
        )
    filters["text"] = filters.pop("q", None)
    _check_words(filters)
    for name in ("kind", "agent", "tool", "thread", "run", "risk", "text"):
        if not isinstance(filters.get(name), str | None):
            name = "q" if name == "text" else name
            raise InvalidDecision(f"{name}: give a text", name)
    limit = filters.get("limit", 50)
    if type(limit) is not int or not 1 <= limit <= MAX_PAGE:
        raise InvalidDecision(f"limit {limit!r}: use a number from 1 to {MAX_PAGE}", "limit")
    if filters.get("after") is not None:
        try:
            filters["after"] = int(filters["after"])
        except (TypeError, ValueError):
            raise InvalidDecision("after: use the `next` of the page before", "after") from None
    return Query(**filters)


def _check_words(filters: dict[str, Any]) -> None:
    """Refuse what is none of the words that a filter knows."""
    for name, words in _WORDS.items():
        given = filters.get(name, words[0])
        if given not in words and (given is not None or name in ("status", "sort")):
            raise InvalidDecision(f"{name} {given!r:.40}: use {', '.join(words)}", name)
