"""Requests, grants and tokens as tables; everything that an agent wrote is made inert first."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from rich.cells import cell_len, set_cell_size

from sayso import codec, text
from sayso.channels.card import RISKY, length, utc_now
from sayso.channels.layout import Line, hard_cut, name, wrapped
from sayso.channels.screen import console, show
from sayso.hiding import declared
from sayso.inbox import Inbox, Page
from sayso.inbox.decisions import displayed_scope
from sayso.rows import Principal
from sayso.types import Grant, Json, Micros, Request, moment
from sayso.views import request_json

_NARROW, _WIDE = 72, 100
_SHORTEST_ID = 10
_SUMMARY = 120


def print_json(value: Any) -> None:
    """JSON in ASCII: whatever an agent wrote, a terminal shows it and does nothing."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def page_json(page: Page) -> dict[str, Any]:
    """A page of requests, ready for JSON."""
    return {"items": [shown_json(request) for request in page.items], "next": page.next}


def shown_json(request: Request) -> dict[str, Any]:
    """A request, ready for JSON, without what its tool declares secret: as on the card."""
    body = request_json(request)
    for place in (body, body["decision"] or {}):
        for field in {"args", "original"} & set(place):
            if place[field] is not None:
                place[field] = declared(place[field], request.schema)
    return body


def short_ids(requests: Sequence[Request]) -> list[str]:
    """The ids of a page, as short as they can be told apart."""
    ids = [request.id for request in requests]
    size = _SHORTEST_ID
    while len({one[:size] for one in ids}) < len(set(ids)):
        size += 1
    return [one[:size] for one in ids]


def subject(request: Request) -> str:
    """What it is about: the tool, or the first words of a question."""
    if request.tool:
        return name(request.tool)
    words = request.question.text if request.question else str(request.args.get("text", ""))
    return text.inline(words[:_SUMMARY]) + "…" * (len(words) > _SUMMARY)


def summary(request: Request) -> str:
    """The title or the arguments in one line, cut where it is full: nothing is decided from it."""
    if request.title:
        return text.inline(request.title[:_SUMMARY]) + "…" * (len(request.title) > _SUMMARY)
    if request.tool is None:
        return ""
    parts, size = [], 0
    for key, value in declared(request.args, request.schema).items():
        parts.append(f"{name(key)}={_brief(value)}")
        size += len(parts[-1])
        if size > _SUMMARY:
            break
    return ", ".join(parts)


def _brief(value: Json) -> str:
    if isinstance(value, str):
        return text.inline(value[:_SUMMARY])
    if isinstance(value, dict | list):
        return f"({text.many(len(value), 'item')})"
    return codec.dumps(value)


def _ends(request: Request, now: datetime) -> str:
    ends = request.expires_at
    if ends is None or request.status != "pending":
        return ""
    return f"in {length(ends, now)}" if ends > now else "over"


def _state(request: Request) -> str:
    if request.kind == "in_doubt":
        return "in doubt"
    if request.status == "pending" and request.quorum > 1:
        return f"{len(request.votes)} of {request.quorum} votes"
    return request.status


def show_page(page: Page, *, plain: bool, empty: str, numbers: bool = False) -> None:
    """A page of requests: a table where there is room, else some lines for each."""
    target = console(plain=plain)
    if not page.items:
        show(target, [Line(empty)])
        return
    listed = _listed if plain or target.width < _NARROW else _table
    show(target, listed(page.items, target.width, numbers))
    if page.next is not None:
        show(target, [Line(f"There are more: --after {page.next}", "dim")])


def _listed(requests: Sequence[Request], width: int, numbers: bool) -> Iterator[Line]:
    now = utc_now()
    for number, (request, short) in enumerate(zip(requests, short_ids(requests), strict=True), 1):
        label = f"{number}. {short}" if numbers else short
        yield Line(f"{label}  {subject(request)}", "bold")
        facts = [name(request.agent), f"{length(now, request.created_at)} ago"]
        facts += [f"risk {request.risk.level}"] if request.risk.level != "low" else []
        facts += [_state(request)] if _state(request) != "pending" else []
        facts += [f"ends {_ends(request, now)}"] if _ends(request, now) else []
        yield Line(", ".join(facts), "", "  ")
        if request.args and request.tool:
            yield Line(cut(summary(request), width - 2), "dim", "  ")


def _table(requests: Sequence[Request], width: int, numbers: bool) -> Iterator[Line]:
    """One line each. What an agent wrote comes last, and is cut where the line is full."""
    rows = [["#", "ID", "RISK", "STATE", "AGE", "ENDS", "AGENT"]]
    now = utc_now()
    for number, (request, short) in enumerate(zip(requests, short_ids(requests), strict=True), 1):
        agent = cut(name(request.agent), 16)
        state, age = _state(request), length(now, request.created_at)
        rows.append(
            [str(number), short, request.risk.level, state, age, _ends(request, now), agent]
        )
    kept = [i for i in range(7) if _worth(rows, i, numbers, width)]
    sizes = {i: max(cell_len(row[i]) for row in rows) + 2 for i in kept}
    room = width - sum(sizes.values())
    whats = ["WHAT", *(f"{subject(r)}  {summary(r)}".rstrip() for r in requests)]
    styles = ["dim", *("bold red" if r.risk.level in RISKY else "" for r in requests)]
    for row, what, style in zip(rows, whats, styles, strict=True):
        cells = "".join(set_cell_size(row[i], sizes[i]) for i in kept)
        yield Line(cut(what, room), style, cells, style)


def _worth(rows: list[list[str]], column: int, numbers: bool, width: int) -> bool:
    """A column in which every row says the same tells nobody anything."""
    values = {row[column] for row in rows[1:]}
    if column == 0:
        return numbers
    if column == 6:
        return len(values) > 1 and width >= _WIDE
    return column in (1, 4) or not values <= {"", "low", "pending"}


def cut(words: str, width: int) -> str:
    """As much as fits into one row; an ellipsis stands for the rest."""
    first, *rest = wrapped(words, width)
    return first if not rest else hard_cut(words, width - 2) + "…"


def show_grants(box: Inbox, grants: Sequence[Grant], *, plain: bool) -> None:
    """The standing yeses."""
    target = console(plain=plain)
    if not grants:
        show(target, [Line("There are no standing yeses.")])
    for grant in grants:
        show(target, _grant(grant, displayed_scope(box.store, grant)))


def _grant(grant: Grant, scope: dict[str, Json]) -> Iterable[Line]:
    yield Line(f"{grant.id}  {name(grant.tool)} for {name(grant.agent)}", "bold")
    uses = "any number of uses" if grant.uses_left is None else f"{grant.uses_left} uses left"
    until = "no end" if grant.ends is None else f"until {_local(grant.ends)}"
    parts = [f"given by {name(grant.by)}", uses, until]
    if grant.revoked is not None:
        parts.append(f"revoked {_local(grant.revoked)}")
    yield Line(", ".join(parts), "", "  ")
    if not scope:
        yield Line("any arguments", "dim", "  ")
    elif set(scope) == {"const"}:
        yield Line("exactly these arguments:", "dim", "  ")
        yield from (Line(row, "dim", "    ") for row in text.lines(scope["const"]))
    else:
        yield Line("arguments that fit this schema:", "dim", "  ")
        yield from (Line(row, "dim", "    ") for row in text.lines(scope))


def grant_json(box: Inbox, grant: Grant) -> dict[str, Any]:
    """A grant, ready for JSON."""
    return {
        "id": grant.id,
        "agent": grant.agent,
        "tool": grant.tool,
        "scope": displayed_scope(box.store, grant),
        "by": grant.by,
        "created_at": moment(grant.created).isoformat(),
        "uses_left": grant.uses_left,
        "ends_at": _iso(grant.ends),
        "revoked_at": _iso(grant.revoked),
    }


def show_tokens(tokens: Sequence[Principal], now: Micros, *, plain: bool) -> None:
    """Who holds tokens; the tokens themselves are not kept."""
    target = console(plain=plain)
    if not tokens:
        show(target, [Line("There are no tokens.")])
    for token in tokens:
        groups = f" in {', '.join(map(name, token.groups))}" if token.groups else ""
        state = "live" if token.live(now) else "over" if token.revoked is None else "revoked"
        until = "no end" if token.ends is None else f"until {_local(token.ends)}"
        head = f"{token.id}  {name(token.person)}, {token.role}{groups}"
        show(target, [Line(head, "bold"), Line(f"{state}, {until}", "", "  ")])


def token_json(token: Principal, now: Micros) -> dict[str, Any]:
    """A token's row, ready for JSON."""
    return {
        "id": token.id,
        "person": token.person,
        "role": token.role,
        "groups": list(token.groups),
        "live": token.live(now),
        "created_at": moment(token.created).isoformat(),
        "ends_at": _iso(token.ends),
        "revoked_at": _iso(token.revoked),
    }


def _local(at: Micros) -> str:
    return f"{moment(at).astimezone():%Y-%m-%d %H:%M}"


def _iso(at: Micros | None) -> str | None:
    return None if at is None else moment(at).isoformat()
