"""What a message shows of a request, for all platforms, and whether it has buttons.

Everything is inert text with secrets masked. A person may decide from the message only if it shows
all of what they approve, and if the rule lets a chat decide; otherwise it says why not, and has the
link. The same function answers when a button is pressed, so a message gives no right.
"""

from __future__ import annotations

from base64 import b32encode
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from sayso import text
from sayso.channels.card import clock
from sayso.keys import Keyring
from sayso.redaction import MaskedRequest, mask_request, masked_title
from sayso.rows import Call, Delivery
from sayso.types import ASSURANCE, HIGH_RISKS, Request
from sayso.views import converted_arguments

#: Lines and size of what a message shows of a request, and as much again of its facts. With the
#: title and the link that is below what platforms take: 4,096 UTF-16 units, 3,000 in one block.
MOST_LINES = 30
MOST_TEXT = 1500
_MOST_TITLE = 300
_MOST_REASON = 500
_MOST_OPTIONS = 8
_MOST_LABEL = 60
#: A form has a field for each argument.
_MOST_FIELDS = 20
_MOST_NAME = 100
#: How many characters of the digest a button repeats.
PREFIX = 8

_DONE = {
    "approved": "Approved",
    "edited": "Approved with changes",
    "rejected": "Rejected",
    "responded": "Answered",
    "expired": "Expired",
    "cancelled": "Cancelled",
    "superseded": "Superseded",
}


@dataclass(frozen=True, slots=True)
class Button:
    """A decision that one press makes, or begins: ``approve``, ``reject``, ``reason``, ``edit``,
    ``answer``, or ``option-`` and the number of an answer."""

    verb: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A message before a platform has formatted it. All of it is inert text."""

    title: str
    #: Facts about the request: who asks, how risky it is, what was rejected before.
    facts: tuple[str, ...] = ()
    #: What will run, or the question.
    lines: tuple[str, ...] = ()
    link: str = ""
    buttons: tuple[Button, ...] = ()
    #: Why there are no buttons.
    why: str = ""
    #: A code that decides, for messages without buttons of their own.
    code: str = ""
    #: What became of the request; then there are neither lines nor buttons.
    outcome: str = ""

    def text(self) -> str:
        """Return the message as plain text."""
        parts = [self.title, "\n".join(self.facts), "\n".join(self.lines)]
        parts += [self.outcome, self.why, self.link]
        return "\n\n".join(part for part in parts if part)


def card_of(
    call: Call, request: Request, delivery: Delivery, page: str, now: datetime, *, chat: bool = True
) -> Card:
    """Return what a message shows of a request now.

    ``chat`` is False if nobody can decide in it.
    """
    link = f"{page.rstrip('/')}/inbox/{request.id}" if page else ""
    masked = mask_request(request)
    title = whole_title = masked_title(request, masked.request)
    if _size(title) > _MOST_TITLE:
        title = f"{title[: _MOST_TITLE // 2]}…"
    if not delivery.person:  # everyone in a shared channel reads it
        kind = {"question": "Question", "in_doubt": "In doubt"}.get(request.kind, "Approval")
        tool = text.inline(request.tool or "")
        title = f"{kind}: {tool}" if tool else f"{kind} for {text.inline(request.agent)}"
    outcome = outcome_of(request, now, shared=not delivery.person)
    if not outcome and request.digest != delivery.digest:
        outcome = "This message is out of date: a newer one follows, or open the request."
    if outcome:
        return Card(title=title, link=link, outcome=outcome)
    facts = list(_facts(request, masked, shared=not delivery.person))
    if not delivery.person:
        why = "Open the request to see what it is about and to decide."
        return Card(title=title, facts=tuple(facts), link=link, why=why)
    shown_facts, more_facts = _cut(facts)
    lines, more_lines = _cut(list(_lines(masked.request)))
    is_cut = title != whole_title or more_facts > 0 or more_lines > 0
    why = refusal_of(call, request, masked, is_cut=is_cut, chat=chat)
    return Card(
        title=title,
        facts=(*shown_facts, *_rest(more_facts)),
        lines=(*lines, *_rest(more_lines)),
        link=link,
        buttons=() if why else tuple(_buttons(request, masked.request)),
        why=why,
    )


def code_of(keys: Keyring, row: Delivery) -> str:
    """Return the code of a message. Nobody can compute it without the store's key."""
    parts = (row.id, row.channel, row.target, row.person, row.request, row.digest, row.nonce)
    mac = keys.row_mac("\0".join(("code", *parts)).encode()).rpartition(".")[2]
    letters = b32encode(bytes.fromhex(mac)[:10]).decode()
    return "-".join(letters[at : at + 4] for at in (0, 4, 8, 12))


_TOO_MANY = "There are too many for a message each."


def digest_card(count: int, page: str, *, many: bool, quiet: bool) -> Card:
    """Return the message that stands for many requests, or for those of quiet hours."""
    facts: tuple[str, ...] = ()
    if many:
        facts = (_TOO_MANY,)
    elif quiet:
        facts = ("They were asked in your quiet hours.",)
    title = f"{text.many(count, 'request')} {'waits' if count == 1 else 'wait'} for you"
    return Card(title=title, facts=facts, link=_inbox(page))


def ended_digest_card(page: str) -> Card:
    """Return what such a message shows once most of its requests were decided."""
    facts = ("Most of them were decided. Open the inbox for the others.",)
    return Card(title="Many requests waited for you", facts=facts, link=_inbox(page))


def shared_digest_card(page: str) -> Card:
    """Return the message that stands for many requests in a shared channel."""
    return Card(title="Many requests wait", facts=(_TOO_MANY,), link=_inbox(page))


def _inbox(page: str) -> str:
    return f"{page.rstrip('/')}/inbox" if page else ""


def outcome_of(request: Request, now: datetime, *, shared: bool = False) -> str:
    """Return who decided and when, or what else became of a request; "" while it is pending."""
    if request.status == "pending":
        return ""
    done = _DONE[request.status]
    decision = request.decision
    if decision is None:
        return f"{done}."
    by = text.inline(decision.by)
    if decision.on_behalf_of:
        by += f" for {text.inline(decision.on_behalf_of)}"
    message = "" if shared else text.inline(decision.message)
    if _size(message) > _MOST_REASON:
        message = f"{message[: _MOST_REASON // 2]}…"
    return f"{done} by {by}, {clock(decision.at, now)}" + (f": {message}" if message else "")


def refusal_of(
    call: Call, request: Request, masked: MaskedRequest, *, is_cut: bool, chat: bool
) -> str:
    """Return why nobody may decide a request in a chat; "" if they may."""
    terms = call.terms
    named = terms.assurance == "chat"
    if not chat:
        return "Open the request to decide."
    if request.kind == "in_doubt":
        return "Open the request: it may have run, so read what is known about it first."
    if is_cut:
        return "Open the request to see all of it and to decide: this message is cut."
    if masked.masked:
        return "Open the request to decide: this message has something masked."
    if ASSURANCE.index(terms.assurance) > ASSURANCE.index("chat"):
        return f"Open the request to decide: its rule requires the assurance {terms.assurance}."
    if terms.quorum > 1:
        return "Open the request to decide: more than one person has to, and each must sign in."
    if terms.fresh is not None:
        return "Open the request to decide: its rule requires a recent sign-in."
    if terms.risk.level in HIGH_RISKS and not named:
        return f"Open the request to decide: its risk is {terms.risk.level}."
    if not terms.risk_declared and not named:
        return "Open the request to decide: no rule says how risky it is."
    return ""


def _buttons(request: Request, shown: Request) -> Iterator[Button]:
    allowed = request.allowed
    question = request.question
    if question is not None and not question.multiple and question.schema is None:
        options = question.options[:_MOST_OPTIONS]
        if len(options) == len(question.options):
            for number, option in enumerate(options):
                yield Button(f"option-{number}", _label(option.label))
        if question.free_text:
            yield Button("answer", "Answer…")
    elif question is None:
        if "approve" in allowed:
            yield Button("approve", "Approve")
        form = request.written is None and 0 < len(request.args) <= _MOST_FIELDS
        form = form and all(len(name) <= _MOST_NAME for name in request.args)
        if "edit" in allowed and form and shown.args == request.args:
            yield Button("edit", "Edit…")
    yield Button("reject", "Reject")
    yield Button("reason", "Reject with a reason…")


def _label(label: str) -> str:
    shown = text.inline(label)
    return shown if len(shown) <= _MOST_LABEL else f"{shown[: _MOST_LABEL - 1]}…"


def _facts(request: Request, masked: MaskedRequest, *, shared: bool) -> Iterator[str]:
    requester = f" for {text.inline(request.requester)}" if request.requester else ""
    yield f"{text.inline(request.agent)} asks{requester}. Risk: {request.risk.level}."
    if shared:
        return
    yield from (text.inline(reason) for reason in masked.request.risk.reasons)
    for rejection in masked.request.refusals:
        words = "An equal call was rejected before"
        if rejection.by is not None:
            words = f"{text.inline(rejection.by)} rejected an equal call before"
        yield words + (f": {text.inline(rejection.message)}" if rejection.message else ".")


def _lines(request: Request) -> Iterator[str]:
    """Yield everything that a person reads before they decide; the request is masked."""
    question = request.question
    if question is not None:
        yield from text.lines(question.text)
        for option in question.options:
            words = [option.label, option.description]
            if option.answer != option.label:
                words.append(f"= {text.lines(option.answer)[0]}")
            yield "• " + " ".join(text.inline(part) for part in words if part)
        if question.schema:
            yield from text.lines(dict(question.schema))
    elif request.tool is None:
        yield from text.lines(str(request.args.get("text", "")))
        yield from text.lines(request.args.get("details") or {})
    else:
        yield f"Tool: {text.inline(request.tool)}"
        yield from text.lines(dict(request.args))
    for heading, value in (
        ("What the model wrote", converted_arguments(request)),
        ("Before the edit", None if request.original is None else dict(request.original)),
        ("Preview", request.preview),
        ("Description", request.description),
        ("The agent says (not verified)", request.note),
    ):
        if value:
            yield f"{heading}:"
            yield from (f"  {line}" for line in text.lines(value))
    yield from (f"! {note}" for note in text.notes([dict(request.args), request.note]))


def _cut(lines: list[str]) -> tuple[list[str], int]:
    """Return the lines that fit into a message, and how many do not."""
    size = 0
    for number, line in enumerate(lines):
        size += _size(line) + 1
        if number == MOST_LINES or size > MOST_TEXT:
            return lines[:number], len(lines) - number
    return lines, 0


def _rest(count: int) -> list[str]:
    return [f"… {text.many(count, 'more line')}"] if count else []


def _size(words: str) -> int:
    """Return the size of a text as platforms count it, in UTF-16 units."""
    return len(words.encode("utf-16-le", "surrogatepass")) // 2
