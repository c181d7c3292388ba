"""Draw a request as a card: what will run, for whom, how risky it is, and when it expires.

The card follows the order of the decision: title, warnings, what will run, then what others say
about it. The agent's own words come last, labelled as not verified.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from sayso import text
from sayso.channels.layout import Line, block, listed, name, numbered
from sayso.inbox.decisions import displayed_scope, scope_sentence
from sayso.redaction import mask_request, title_of
from sayso.rows import Event
from sayso.stores.base import Store
from sayso.types import HIGH_RISKS, Grant, Json, Request, moment
from sayso.views import converted_arguments

_TITLES = {"approval": "APPROVE?", "question": "QUESTION", "in_doubt": "IN DOUBT"}
_ANSWERS = {
    "ran": "The other system was asked: the call ran.",
    "did_not_run": "The other system was asked: the call did not run.",
    "unknown": "The other system was asked: it does not know whether the call ran.",
}
_AROUND = 3  # unchanged lines around a change
_LONG = 2_000  # lines beyond which a diff is fast rather than minimal


def card(request: Request, now: datetime) -> list[Line]:
    """Return the whole card as inert lines, with the secrets masked that the tool declares."""
    request = mask_request(request, guess=False).request
    lines = [*title(request, now)]
    if request.question is None and request.tool is not None:
        lines.append(Line(title_of(request), "bold", "  "))
    lines += [*_warnings(request), *_facts(request, now)]
    if request.question is not None:
        lines += _question(request)
    elif request.tool is None:
        lines += _heading("What you would be approving")
        lines += block(str(request.args.get("text", "")))
        if request.args.get("details"):
            lines += numbered(request.args["details"])
    else:
        lines += _arguments(request)
    lines += _result(request)
    if request.evidence is not None:
        lines += _section("What the other system says", request.evidence.text)
    if request.opinion is not None:
        opinion = f"{request.opinion.model} answered {request.opinion.answer}"
        if request.opinion.reason:
            opinion += f": {request.opinion.reason}"
        lines += _section("A model says (not verified)", opinion)
    lines += _section("Description", request.description)
    if request.preview is not None:
        lines += _heading("Preview (computed by the tool's own code)")
        lines += numbered(request.preview)
    lines += _section("The agent says (not verified)", request.note)
    lines += _footer(request)
    return lines


def title(request: Request, now: datetime) -> Iterator[Line]:
    """Yield the card's first line: what is asked, how risky it is, and when it expires."""
    what = _TITLES[request.kind] if request.status == "pending" else request.status.upper()
    subject = name(request.tool) if request.tool else ""
    level = request.risk.level
    ends = request.expires_at
    expiry = ""
    if ends is not None and request.status == "pending":
        left = f"expires {clock(ends, now)} (in {length(ends, now)})"
        expiry = left if ends > now else f"expired {clock(ends, now)}"
    parts = (what, subject, f"risk {level.upper()}", expiry)
    yield Line(
        "  ".join(part for part in parts if part), "bold red" if level in HIGH_RISKS else "bold"
    )


def clock(at: datetime, now: datetime) -> str:
    """Format a time in the local time zone, with the date only if it is not today."""
    local = at.astimezone()
    is_today = local.date() == now.astimezone().date()
    return f"{local:%H:%M}" if is_today else f"{local:%Y-%m-%d %H:%M}"


def length(later: datetime, earlier: datetime) -> str:
    """Format the time between two moments in its largest unit."""
    seconds = int(abs((later - earlier).total_seconds()))
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _warnings(request: Request) -> Iterator[Line]:
    texts = [request.args, request.note, request.description, request.preview, request.tool]
    texts += [text.without_escapes(request.title)]
    texts += ["" if request.evidence is None else request.evidence.text]
    texts += ["" if request.opinion is None else request.opinion.reason]
    texts += [request.agent, request.run, request.original, request.written]
    if request.question is not None:
        texts += [request.question.text]
        texts += [[o.label, o.description, o.answer] for o in request.question.options]
    warnings = [*text.notes(texts)]
    if request.kind == "in_doubt":
        warnings.append("It was started, but its outcome is unknown. It may have taken effect.")
        if request.execution.attempt_running:
            warnings.append("Its attempt still runs, so it cannot run again yet.")
    for rejection in request.refusals:
        words = "An equal call was rejected before."
        if rejection.by is not None and rejection.at is not None:
            at = f"{rejection.at.astimezone():%Y-%m-%d %H:%M}"
            words = f"{name(rejection.by)} rejected an equal call at {at}"
            words += f": {text.inline(rejection.message)}" if rejection.message else "."
        warnings.append(words)
    for words in warnings:
        yield Line(words, "bold yellow", "! ", "bold yellow")
    if request.evidence is not None:
        yield Line(_ANSWERS[request.evidence.answer], "bold")


def _facts(request: Request, now: datetime) -> Iterator[Line]:
    origin = f"{name(request.agent)}, run {name(request.run)}"
    if request.thread != request.run:
        origin += f", thread {name(request.thread)}"
    yield _fact("agent", origin)
    at = f"{clock(request.created_at, now)} ({length(now, request.created_at)} ago)"
    yield _fact("asked", f"{at} for {name(request.requester)}" if request.requester else at)
    if request.risk.reasons:
        yield _fact("risk", "; ".join(map(text.inline, request.risk.reasons)))
    if request.reviewers:
        yield _fact("reviewer", " or ".join(map(name, request.reviewers)))
    if request.escalates_at is not None:
        added = " or ".join(map(name, request.escalate_to))
        yield _fact("from", f"{clock(request.escalates_at, now)}, {added} may decide too")
    if request.quorum > 1:
        yield _fact("votes", _votes(request))


def _heading(words: str) -> tuple[Line, Line]:
    return Line(""), Line(words, "bold")


def _fact(label: str, value: str, style: str = "") -> Line:
    return Line(value, style, f"  {label:<8} ")


def _votes(request: Request) -> str:
    people = ", ".join(name(vote.by) for vote in request.votes)
    count = f"{len(request.votes)} of {request.quorum} people"
    return f"{count}: {people}" if people else count


def _arguments(request: Request) -> Iterator[Line]:
    yield Line("")
    ran = request.execution.status in ("running", "done", "failed", "in_doubt")
    yield Line("What was started" if ran else "What will run", "bold")
    yield from numbered(request.args) if request.args else [_fact("", "(no arguments)")]
    converted = converted_arguments(request)
    if converted:
        yield from _heading("What the model wrote, before the tool's validators")
        yield from numbered(converted)
    if request.original is not None:
        yield from _heading("Changed by a reviewer")
        yield from diff(request.original, request.args)


def _question(request: Request) -> Iterator[Line]:
    question = request.question
    assert question is not None
    yield from _heading("The question")
    yield from block(question.text)
    for number, option in enumerate(question.options, 1):
        yield Line(text.inline(option.label), "bold", f"  {number:>2}) ", "bold")
        if option.value is not None and option.value != option.label:
            yield from (Line(row, "", "      = ") for row in listed(option.value))
        if option.description:
            yield from block(option.description, gutter="      │ ")
    if question.schema:
        yield Line("Your answer must match this JSON Schema", "bold")
        yield from numbered(dict(question.schema))


def _section(heading: str, words: str) -> Iterator[Line]:
    if words:
        yield from _heading(heading)
        yield from block(words)


def _result(request: Request) -> Iterator[Line]:
    execution = request.execution
    if request.status == "cancelled":
        yield from _section("Why it was cancelled", str(execution.result or ""))
        return
    if execution.status == "in_doubt":
        yield from _section("Why its outcome is unknown", str(execution.result or ""))
        return
    if execution.status not in ("done", "failed") and request.status != "responded":
        return
    yield from _heading({"failed": "Error"}.get(execution.status, "Result"))
    decided = request.decision
    if request.status == "responded" and decided is not None and decided.value is not None:
        yield from numbered(decided.value)
    else:
        yield from numbered(execution.result)


def _footer(request: Request) -> Iterator[Line]:
    yield Line("")
    decided = request.decision
    if decided is not None:
        at = decided.at.astimezone()
        how = ", ".join(name(part) for part in (decided.channel, decided.assurance) if part)
        by = name(decided.by)
        if decided.on_behalf_of:
            by += f" for {name(decided.on_behalf_of)}"
        if decided.source == "model":
            by += ", a model, not verified"
        words = f"{decided.type} by {by}, {at:%Y-%m-%d %H:%M:%S} ({how})"
        yield _fact("decision", words, "bold")
        if decided.message:
            yield from block(decided.message, gutter="           │ ")
    yield _fact("request", name(request.id))
    if request.revision > 1:
        yield _fact("revision", str(request.revision))
    yield _fact("digest", request.digest)


def diff(before: Mapping[str, Json], after: Mapping[str, Json]) -> Iterator[Line]:
    """Yield what an edit changes, line by line, with the sign in the gutter."""
    old = listed(_in_order_of(dict(after), dict(before)))
    new = listed(dict(after))
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=len(new) > _LONG)
    for group in matcher.get_grouped_opcodes(_AROUND):
        yield Line(f"from line {group[0][3] + 1}", "dim", "  ")
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                yield from _with_sign(new[j1:j2], " ", "")
            else:
                yield from _with_sign(old[i1:i2], "-", "red")
                yield from _with_sign(new[j1:j2], "+", "green")


def _in_order_of(model: Json, value: Json) -> Json:
    """Return ``value`` with its keys in the order of ``model``: reordering is not a change."""
    if isinstance(model, dict) and isinstance(value, dict):
        keys = [key for key in model if key in value]
        ordered = {key: _in_order_of(model[key], value[key]) for key in keys}
        return ordered | {key: part for key, part in value.items() if key not in ordered}
    if isinstance(model, list) and isinstance(value, list):
        pairs = zip(model, value, strict=False)
        return [*(_in_order_of(*pair) for pair in pairs), *value[len(model) :]]
    return value


def _with_sign(lines: Sequence[str], sign: str, style: str) -> Iterator[Line]:
    for line in lines:
        yield Line(line, style, f"  {sign} ", style or "dim")


def details(request: Request, events: Iterable[Event], before: Sequence[Request]) -> list[Line]:
    """Return more about a request: who may decide, its history, and the tool's schema."""
    lines = [
        _fact("run", f"{name(request.run)}, thread {name(request.thread)}"),
        *background(request, events, before),
    ]
    schema = mask_request(request, guess=False).request.schema
    if request.tool is not None and schema is not None:
        lines += [Line("Schema of the arguments", "bold"), *numbered(dict(schema))]
    return lines


def background(
    request: Request, events: Iterable[Event], before: Sequence[Request]
) -> Iterator[Line]:
    """Yield the rule behind a request, its history, and how similar requests ended."""
    yield _fact("rule", name(request.rule) if request.rule else "(none)")
    yield _fact("answers", " or ".join(request.allowed))
    yield _fact("reviewer", " or ".join(map(name, request.reviewers)) or "anyone")
    yield _fact("votes", _votes(request) if request.quorum > 1 else "1 needed")
    if request.tool is not None:
        counts = Counter(earlier.status for earlier in before)
        outcomes = ", ".join(f"{count} {status}" for status, count in counts.items())
        yield _fact("similar", outcomes or "none yet")
    yield from _heading("History")
    for event in events:
        at = moment(event.at).astimezone()
        yield Line(f"{at:%Y-%m-%d %H:%M:%S}  {event.type}  {name(event.actor)}", "", "  ")


def scope_lines(store: Store, grant: Grant) -> Iterator[Line]:
    """Yield what a grant covers."""
    if sentence := scope_sentence(grant):
        yield Line(text.inline(sentence), "dim", "  ")
        return
    scope = displayed_scope(store, grant)
    exact = set(scope) == {"const"}
    what = "exactly these arguments:" if exact else "arguments that match this schema:"
    yield Line(what if scope else "any arguments", "dim", "  ")
    if scope:
        rows = text.lines(scope["const"] if exact else scope)
        yield from (Line(row, "dim", "    ") for row in rows)


def utc_now() -> datetime:
    return datetime.now(UTC)
