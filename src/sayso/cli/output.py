"""Print requests, grants and tokens as tables or JSON. Text from agents is made inert first."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import typer
from rich.cells import cell_len, set_cell_size

from sayso import text
from sayso.channels.card import length, scope_lines, utc_now
from sayso.channels.layout import Line, hard_cut, name, wrapped
from sayso.channels.screen import console, show
from sayso.engine.budgets import BudgetState
from sayso.inbox import Inbox, Page
from sayso.inbox.decisions import (
    budget_json,
    displayed_scope,
    grant_budgets,
    grant_run,
    rule_budgets,
    steps_left,
)
from sayso.inbox.replay import Replay
from sayso.redaction import mask_request, title_of
from sayso.rows import Credential
from sayso.stores.base import Store
from sayso.types import HIGH_RISKS, Grant, Micros, Refusal, Request, iso, moment
from sayso.views import credential_json, device_of, request_json

_NARROW = 72
_WIDE = 100
_SHORTEST_ID = 10
_SUBJECT = 120
#: How wide the bar of a limit is.
_BAR = 20
#: How requests end that a person decided.
_BY_PEOPLE = ("approved", "edited", "rejected", "responded")
#: How many calls of a replay a person is shown.
_SHOWN_DIFFERENCES = 20


def print_json(value: Any) -> None:
    """Print JSON in ASCII, so that no agent's text can control the terminal."""
    print(json.dumps(value, indent=2))


def emit(value: Any, lines: str | Iterable[Line], *, json: bool, plain: bool = False) -> None:
    """Print a result: as JSON, or as text for people."""
    if json:
        print_json(value)
    elif isinstance(lines, str):
        typer.echo(text.inline(lines))
    else:
        show(console(plain=plain), lines)


def shown_json(request: Request) -> dict[str, Any]:
    """Return a request for JSON output, with the secrets masked that its tool declares."""
    return request_json(mask_request(request, guess=False).request)


def short_ids(requests: Sequence[Request]) -> list[str]:
    """Return the ids of a page, shortened as far as they stay unique."""
    ids = [request.id for request in requests]
    size = _SHORTEST_ID
    while len({id[:size] for id in ids}) < len(set(ids)):
        size += 1
    return [id[:size] for id in ids]


def subject(request: Request) -> str:
    """Return the tool's name, or the first words of a question."""
    return name(request.tool) if request.tool else cut(title_of(request), _SUBJECT)


def _ends(request: Request, now: datetime) -> str:
    ends = request.expires_at
    if ends is None or request.status != "pending":
        return ""
    return f"in {length(ends, now)}" if ends > now else "expired"


def _state(request: Request) -> str:
    if request.kind == "in_doubt":
        return "in doubt"
    if request.status == "pending" and request.quorum > 1:
        return f"{len(request.votes)} of {request.quorum} votes"
    return request.status


def show_page(
    page: Page, *, json: bool = False, plain: bool, empty: str, numbers: bool = False
) -> None:
    """Print a page of requests: as a table if it fits, otherwise a few lines for each."""
    target = console(plain=plain)
    listed = _list if plain or target.width < _NARROW else _table
    lines = [*listed(page.items, target.width, numbers)] if page.items else [Line(empty)]
    if page.next is not None:
        lines.append(Line(f"More: --after {page.next}", "dim"))
    value = {"items": [shown_json(request) for request in page.items], "next": page.next}
    emit(value, lines, json=json, plain=plain)


def _list(requests: Sequence[Request], width: int, numbers: bool) -> Iterator[Line]:
    now = utc_now()
    for number, (request, short) in enumerate(zip(requests, short_ids(requests), strict=True), 1):
        label = f"{number}. {short}" if numbers else short
        yield Line(cut(f"{label}  {title_of(request)}", width), "bold")
        facts = [name(request.tool)] if request.tool else []
        facts += [name(request.agent), f"{length(now, request.created_at)} ago"]
        facts += [f"risk {request.risk.level}"] if request.risk.level != "low" else []
        facts += [_state(request)] if _state(request) != "pending" else []
        facts += [f"expires {_ends(request, now)}"] if _ends(request, now) else []
        yield Line(", ".join(facts), "", "  ")


def _table(requests: Sequence[Request], width: int, numbers: bool) -> Iterator[Line]:
    """Yield one line per request. Text from agents comes last, cut where the line is full."""
    rows = [["#", "ID", "RISK", "STATE", "AGE", "EXPIRES", "AGENT", "TOOL"]]
    now = utc_now()
    for number, (request, short) in enumerate(zip(requests, short_ids(requests), strict=True), 1):
        agent = cut(name(request.agent), 16)
        age = length(now, request.created_at)
        tool = cut(name(request.tool or ""), 24)
        state = _state(request)
        rows.append(
            [str(number), short, request.risk.level, state, age, _ends(request, now), agent, tool]
        )
    columns = [i for i in range(8) if _is_shown(rows, i, numbers, width)]
    sizes = {i: max(cell_len(row[i]) for row in rows) + 2 for i in columns}
    room = width - sum(sizes.values())
    whats = ["WHAT", *(title_of(request) for request in requests)]
    styles = ["dim", *("bold red" if r.risk.level in HIGH_RISKS else "" for r in requests)]
    for row, what, style in zip(rows, whats, styles, strict=True):
        cells = "".join(set_cell_size(row[i], sizes[i]) for i in columns)
        yield Line(cut(what, room), style, cells, style)


def _is_shown(rows: list[list[str]], column: int, numbers: bool, width: int) -> bool:
    """Return whether to show a column; one that says the same in every row is left out."""
    values = {row[column] for row in rows[1:]}
    if column == 0:
        return numbers
    if column == 6:
        return len(values) > 1 and width >= _WIDE
    if column == 7:
        return width >= _WIDE and values != {""}
    return column in (1, 4) or not values <= {"", "low", "pending"}


def cut(words: str, width: int) -> str:
    """Return as much as fits into one row, with an ellipsis for the rest."""
    first, *rest = wrapped(words, width)
    return first if not rest else hard_cut(words, width - 2) + "…"


def replay_lines(replay: Replay, policy: str, since: str) -> Iterator[Line]:
    """Say what a policy would have done with the calls in the store."""
    calls = text.many(replay.calls, "call")
    yield Line(f"{name(policy)} on {calls} of the last {text.inline(since)}", "bold")
    if not replay.changes:
        yield Line("Nothing would have been different.", "", "  ")
    for (before, after, outcome), count in sorted(replay.changes.items()):
        how = f", which people {outcome}" if outcome in _BY_PEOPLE else ""
        how = f", {outcome}" if outcome and not how else how
        warns = (after, outcome) == ("allowed", "rejected")
        style = "bold red" if warns else ""
        yield Line(f"{count:,}  {before} → {after}{how}", style, "! " if warns else "  ", style)
    yield Line("By rule", "bold")
    for rule, counts in replay.rules.items():
        states = [
            f"{count:,} {before} → {after}" if before != after else f"{count:,} {after} as before"
            for (before, after), count in counts.items()
        ]
        yield Line(f"{name(rule)}: {', '.join(states)}", "", "  ")
    listed = replay.listed()
    if listed:
        yield Line("Calls", "bold")
    for difference in listed[:_SHOWN_DIFFERENCES]:
        call = difference.call
        by = f" by {name(difference.decider)}" if difference.decider else ""
        what = f"{call.id}  {name(call.tool)} for {name(call.agent)}"
        how = f" ({difference.outcome}{by})" if difference.outcome else ""
        yield Line(f"{what}: {difference.before} → {difference.after}{how}", "", "  ")
    more = replay.changes.total() - min(len(listed), _SHOWN_DIFFERENCES)
    if more > 0:
        yield Line(f"and {more:,} more", "dim", "  ")
    if replay.answers:
        yield from _answer_lines(replay)
    for sentence in replay.not_stored:
        yield Line(f"{sentence[0].upper()}{sentence[1:]}.", "yellow", "! ", "yellow")


def _answer_lines(replay: Replay) -> Iterator[Line]:
    """Say what models answered and people decided, and about which calls they disagreed."""
    yield Line("What models said, and people decided", "bold")
    for (model, answer, outcome), count in sorted(replay.answers.items()):
        yield Line(f"{count:,}  {name(model)} said {answer}, people {outcome}", "", "  ")
    for disagreement in replay.disagreements[:_SHOWN_DIFFERENCES]:
        call = disagreement.call
        what = f"{call.id}  {name(call.tool)} for {name(call.agent)}"
        how = f"the model said {disagreement.answer}, people {disagreement.outcome}"
        yield Line(f"{what}: {how}", "yellow", "! ", "yellow")


def grant_lines(box: Inbox, grants: Sequence[Grant]) -> Iterator[Line]:
    """Yield the lines that describe grants, and the limits of rules that counted calls."""
    budgets = grant_budgets(box.store, grants)
    if not grants:
        yield Line("No grants.")
    for grant in grants:
        what = name(grant.tool) if grant.tool else "a plan" if grant.steps else "everything"
        yield Line(f"{grant.id}  {what} for {name(grant.agent)}", "bold")
        uses = "unlimited uses" if grant.uses_left is None else f"{grant.uses_left} uses left"
        if grant.steps:
            uses = f"{steps_left(grant)} of {len(grant.steps)} steps left"
        parts = [f"granted by {name(grant.by)}", uses, _until(grant.ends)]
        if run := grant_run(grant):
            parts.append(f"only in {name(run)}")
        if grant.revoked is not None:
            parts.append(f"revoked {local_time(grant.revoked)}")
        yield Line(", ".join(parts), "", "  ")
        yield from scope_lines(box.store, grant)
        yield from map(_budget_line, budgets[grant.id])
    for rule, state in rule_budgets(box.store):
        yield Line(f"limit of the rule for {text.inline(rule)}", "bold")
        yield _budget_line(state)


def _budget_line(state: BudgetState) -> Line:
    share = 1.0 if state.most == 0 else min(float(state.used / state.most), 1.0)
    full = round(share * _BAR)
    bar = "█" * full + "░" * (_BAR - full)
    style = "yellow" if share >= 1 else ""
    return Line(f"{bar} {state.used:f} of {state.limit}", style, "  ")


def grant_json(box: Inbox, grant: Grant) -> dict[str, Any]:
    return {
        "id": grant.id,
        "agent": grant.agent,
        "tool": grant.tool,
        "scope": displayed_scope(box.store, grant),
        "by": grant.by,
        "created_at": iso(grant.created),
        "uses_left": grant.uses_left,
        "steps_left": steps_left(grant),
        "ends_at": iso(grant.ends),
        "revoked_at": iso(grant.revoked),
        "run": grant_run(grant) or None,
        "budgets": list(map(budget_json, grant_budgets(box.store, [grant])[grant.id])),
    }


def refusal_lines(refusals: Sequence[Refusal]) -> Iterator[Line]:
    """Yield the lines that describe rejections which count for equal calls."""
    if not refusals:
        yield Line("No refusals.")
    for refusal in refusals:
        yield Line(f"{refusal.id}  {name(refusal.tool)} for {name(refusal.agent)}", "bold")
        parts = [f"rejected by {name(refusal.by)} {local_time(refusal.at)}"]
        if refusal.lifted is not None:
            parts.append(f"lifted by {name(refusal.lifted_by)} {local_time(refusal.lifted)}")
        yield Line(", ".join(parts), "", "  ")
        if refusal.message:
            yield from (Line(row, "dim", "  ") for row in text.lines(refusal.message))
        yield Line(f"see: sayso show {refusal.request}", "dim", "  ")


def refusal_json(refusal: Refusal) -> dict[str, Any]:
    return {
        "kind": "refusal",
        "id": refusal.id,
        "request": refusal.request,
        "run": refusal.run,
        "agent": refusal.agent,
        "tool": refusal.tool,
        "by": refusal.by,
        "at": iso(refusal.at),
        "message": refusal.message,
        "ends_at": iso(refusal.ends),
        "overturn": refusal.overturn,
        "lifted_at": iso(refusal.lifted),
        "lifted_by": refusal.lifted_by or None,
    }


def token_lines(tokens: Sequence[Credential], store: Store) -> Iterator[Line]:
    """Yield the lines that describe tokens: ids and owners; the secrets are not stored."""
    if not tokens:
        yield Line("No tokens.")
    now = store.now()
    people = {person.name: person for person in store.people()}
    for token in tokens:
        person = people.get(token.person)
        in_groups = f" in {', '.join(map(name, person.groups))}" if person and person.groups else ""
        state = "live" if token.live(now) else "expired" if token.revoked is None else "revoked"
        yield Line(f"{token.id}  {name(token.person)}, {token.role}{in_groups}", "bold")
        device = f", {text.inline(device_of(token))}" if token.device else ""
        yield Line(f"{state}, {_until(token.valid_until)}{device}", "", "  ")


def token_json(token: Credential, store: Store) -> dict[str, Any]:
    person = store.person(token.person)
    groups = [] if person is None else list(person.groups)
    return {**credential_json(token), "groups": groups, "live": token.live(store.now())}


def _until(ends: Micros | None) -> str:
    return "never expires" if ends is None else f"until {local_time(ends)}"


def local_time(at: Micros) -> str:
    """Return a time for people, in the zone of this machine."""
    return f"{moment(at).astimezone():%Y-%m-%d %H:%M}"
