"""A chat as the store has it, and as any wire shows it: replies, calls and cards.

Read top to bottom: ``RunView`` reads a run with its replies and the rows of their calls;
``ToolView`` is a call in one of the few states that clients know; ``card_of`` is the request behind
it. Each wire puts these into its own messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sayso import codec, text
from sayso.inbox.people import HIDDEN_TEXT, has_visible_request, hidden_turns, may_see
from sayso.redaction import Secrets, redact
from sayso.rows import LIVE, OPEN, Call, CallStatus, Run, RunStatus
from sayso.stores.base import Store
from sayso.stores.row_checks import secrets_of_calls
from sayso.types import Json, Reviewer, iso
from sayso.views import content_of, decision_made, doubt_answers, is_request, public_status


def approval_id(call: Call) -> str:
    """Return the id of a card: the request and the revision that it shows.

    A call in doubt is another question than before, so its card has another id.
    """
    doubt = "d" if call.status is CallStatus.IN_DOUBT else ""
    return f"{call.id}.r{call.rev}{doubt}"


#: How many of a chat's last runs are searched for masked values.
_MOST_RUNS = 50


class Guest:
    """The reader of a chat that is not theirs. They see no secrets, wherever it repeats them."""

    def __init__(self, by: Reviewer, store: Store, thread: str) -> None:
        self.by = by
        self._store = store
        self._secrets = Secrets()
        self._learnt: set[tuple[str, int]] = set()
        for _, run in store.runs(thread=thread, limit=_MOST_RUNS):
            self.learn(store.calls_of(run.id))

    def learn(self, calls: Iterable[Call]) -> None:
        """Read the masked values of calls, and mask them from now on."""
        new = [call for call in calls if (call.id, call.rev) not in self._learnt]
        if new:
            self._learnt.update((call.id, call.rev) for call in new)
            self._secrets = Secrets(self._secrets, secrets_of_calls(self._store, new))

    def redact(self, value: Json) -> Any:
        return redact(value, None, self._secrets).value


# -- a run and its replies


#: The states of a call that waits for a decision.
PENDING = (CallStatus.ASKED, CallStatus.IN_DOUBT)


@dataclass(slots=True)
class CallSlot:
    """One call of a reply: its row, or why it has none."""

    id: str
    name: str
    arguments: str
    error: str = ""
    call: Call | None = None
    #: What the call asked while it ran, and what its sub-agents asked.
    asks: list[Call] = field(default_factory=list)
    #: The calls among these rows, in doubt, whose attempt was running when they were read.
    running: frozenset[str] = frozenset()

    @property
    def may_change(self) -> bool:
        return not self.error and (self.call is None or self.call.status in OPEN)

    @property
    def is_final(self) -> bool:
        """Whether nothing about it can change."""
        waits = any(row.status in PENDING for row in self.rows)
        return self.call is None or (self.call.status not in OPEN and not waits)

    @property
    def rows(self) -> list[Call]:
        """The row of the call, if it has one, and of what it asked."""
        return [*([] if self.call is None else [self.call]), *self.asks]


@dataclass(slots=True)
class Reply:
    """One reply of the model: a step of the answer."""

    text: str
    turn: int
    slots: list[CallSlot]
    #: Whether the text is a refusal of the model.
    refused: bool = False

    @property
    def rows(self) -> list[Call]:
        """The rows of its calls, and of what they asked."""
        return [row for slot in self.slots for row in slot.rows]


@dataclass(slots=True)
class Exchange:
    """What the user said, and the run that answers it."""

    words: str
    run: str
    replies: list[Reply] = field(default_factory=list)


def exchanges(store: Store, thread: str) -> list[Exchange]:
    """Return the whole chat, without the rows of its calls."""
    exchange_list: list[Exchange] = []
    words = ""
    for _, body in store.messages(thread):
        message = codec.loads(body)
        if message["role"] == "user":
            words = message["content"]
        elif message["role"] == "assistant":
            run = message.get("run", "")
            # User messages in the middle of a run are the agent's own.
            if not exchange_list or exchange_list[-1].run != run:
                exchange_list.append(Exchange(words, run))
            exchange_list[-1].replies.append(_reply(message))
    return exchange_list


def _reply(message: Mapping[str, Any]) -> Reply:
    errors = message.get("errors", {})
    calls = [(c["id"], c["name"], c["arguments"]) for c in message.get("calls", ())]
    calls += [(h["id"], h["name"], h["arguments"]) for h in message.get("hosted", ())]
    slots = [CallSlot(*call, error=errors.get(str(n), "")) for n, call in enumerate(calls)]
    refusal = message.get("refusal", "")
    text = message["content"] or refusal
    return Reply(text, message.get("turn", 0), slots, refused=bool(refusal))


class RunView:
    """A view of one run that can be refreshed; only what may have changed is read again."""

    def __init__(
        self,
        store: Store,
        thread: str,
        run_id: str,
        asking: Sequence[str] = (),
        guest: Guest | None = None,
    ) -> None:
        self.store = store
        self.thread = thread
        self.id = run_id
        self.run: Run | None = None
        self.replies: list[Reply] = []
        #: The tools that may ask while they run; only their calls are searched for requests.
        self._asking = frozenset(asking)
        self._guest = guest
        self._seen = 0
        self._settled = 0
        #: Whether it is over, or waits only for decisions.
        self.idle = False

    def refresh(self, run: Run | None = None) -> None:
        """Read the run (unless it is given), new replies, and its open calls."""
        mark = f'"run":{codec.dumps(self.id)}'
        run = run or self.store.run(self.id)
        for seq, body in () if run is None else self.store.messages(self.thread, self._seen):
            self._seen = seq
            if mark in body:
                message = codec.loads(body)
                if message.get("run") == self.id and message["role"] == "assistant":
                    self.replies.append(_reply(message))
        self.refresh_calls(run)

    def refresh_calls(self, run: Run | None = None) -> None:
        """Read only the run (unless it is given) and its open calls."""
        self.run = run or self.store.run(self.id)
        if self.run is None:
            return
        for reply in self.replies[self._settled :]:
            self.fill(reply)
        for reply in self.replies[self._settled :]:
            if not all(slot.is_final for slot in reply.slots):
                break
            self._settled += 1
        self.idle = self._is_idle(self.run)

    def _is_idle(self, run: Run) -> bool:
        if run.status not in LIVE:
            return True
        if run.status is not RunStatus.PAUSED or run.ready_at is not None:
            return False
        now = self.store.now()
        overdue = any(call.overdue(now) for call in self.waiting)
        return not overdue and not self._is_sub_agent_due()

    def _is_sub_agent_due(self) -> bool:
        """Return whether the run of a sub-agent is ready: it wakes only its own run."""
        asks = [a for r in self.replies[self._settled :] for slot in r.slots for a in slot.asks]
        behind = {ask.run for ask in asks if ask.run != self.id}
        runs = [run for run in map(self.store.run, behind) if run is not None]
        return any(run.status in LIVE and run.ready_at is not None for run in runs)

    def fill(self, reply: Reply) -> None:
        """Read the rows of a reply's calls."""
        slots = {f"{reply.turn}.{index}": slot for index, slot in enumerate(reply.slots)}
        moving = [key for key, slot in slots.items() if slot.may_change]
        for call in self.store.calls_of(self.id, moving) if moving else ():
            slots[call.key].call = call
        for slot in slots.values():
            if slot.call is not None and slot.call.attempt and slot.call.tool in self._asking:
                slot.asks = list(_asked_by(self.store, slot.call))
            doubted = [row for row in slot.rows if row.status is CallStatus.IN_DOUBT]
            now = self.store.now() if doubted else 0
            slot.running = frozenset(row.id for row in doubted if row.attempt_runs(now))
        if self._guest is not None:
            self._guest.learn(reply.rows)

    @property
    def waiting(self) -> list[Call]:
        """The requests that are waiting, in this run and in the runs of its sub-agents."""
        return [row for reply in self.replies for row in reply.rows if row.status in PENDING]


def _asked_by(store: Store, call: Call) -> Iterator[Call]:
    """Yield the requests that a call made while it ran, and those of its sub-agent."""
    for step in store.calls_of(call.run):
        if step.key.startswith(f"{call.key}/") and is_request(step):
            yield step
    yield from _asked_by_sub_agent(store, call)


def _asked_by_sub_agent(store: Store, call: Call) -> Iterator[Call]:
    """Yield the requests of the sub-agent of a call, whose thread is named after the call."""
    inner = store.last_run(f"{call.thread}/{call.id}")
    for step in [] if inner is None else store.calls_of(inner.id):
        if is_request(step):
            yield step
        yield from _asked_by_sub_agent(store, step)


# -- calls as clients show them


#: Why calls did not run that needed approval.
_NOT_RUN = {
    CallStatus.REJECTED: "A person rejected this call, so it was not run.",
    CallStatus.EXPIRED: "Nobody decided in time, so it was not run.",
    CallStatus.CANCELLED: "It was cancelled before it ran.",
    CallStatus.SUPERSEDED: "Something new was said instead of deciding, so it was not run.",
}
_REJECTED_BY_MODEL = "A model that reviews calls rejected this call, so it was not run."
_DOUBT = (
    "{tool} was started, and it is unknown whether it took effect. "
    "Approve to run it again, or deny to give it up."
)
_DOUBT_RUNNING = (
    "{tool} still runs, and it is unknown whether it took effect. "
    "Wait until it has ended, or deny to give it up."
)
_FOR_OTHERS = "The outcome of this call is for other reviewers."
QUESTION = "ask_user_question"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended: its output, an error, or a request that was not approved."""

    kind: Literal["output", "error", "denied"]
    #: The output, or a text.
    value: Json
    #: Why it was not approved, in the reviewer's words if there are any.
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ToolView:
    """A call as the client shows it: its input, and an open request or its outcome."""

    id: str
    name: str
    input: Json
    #: Whether it waits for a decision.
    pending: bool = False
    #: The id of the card, if approval is or was needed; other parts are answered with an output.
    approval: str = ""
    end: Outcome | None = None
    #: Text shown before the card.
    warning: str = ""
    card: Json = None

    @property
    def denied(self) -> bool:
        return self.end is not None and self.end.kind == "denied"


def tool_views(slot: CallSlot, guest: Guest | None = None) -> list[ToolView]:
    """Return the views of a call and of what it asked while it ran.

    Guests do not see secrets, nor more than the name of calls for other reviewers.
    """
    if slot.call is None:
        views = [_unreadable(slot)]
        return views if guest is None else [_masked(view, guest) for view in views]
    views = [tool_view(call, running=call.id in slot.running) for call in slot.rows]
    if guest is None:
        return views
    return [
        _masked(view, guest) if may_see(guest.by, call) else _name_only(call)
        for call, view in zip(slot.rows, views, strict=True)
    ]


def words_of(replies: Sequence[Reply], guest: Guest | None) -> list[str]:
    """Return the text of each reply.

    Guests do not see secrets, nor text that may tell of calls for other reviewers.
    """
    if guest is None:
        return [reply.text for reply in replies]
    withheld = hidden_turns(guest.by, [reply.rows for reply in replies])
    return [
        HIDDEN_TEXT if others and reply.text else str(guest.redact(reply.text))
        for reply, others in zip(replies, withheld, strict=True)
    ]


def asked_words(exchange: Exchange, guest: Guest | None) -> str:
    """Return what the user said. Guests see it only if it led to a request that they may see."""
    if guest is None:
        return exchange.words
    calls = [call for reply in exchange.replies for call in reply.rows]
    hides = any(not may_see(guest.by, call) for call in calls)
    return HIDDEN_TEXT if hides and not has_visible_request(guest.by, calls) else exchange.words


def _masked(view: ToolView, guest: Guest) -> ToolView:
    input = guest.redact(view.input)
    card = guest.redact(view.card)
    if "shown" in (card or {}):
        card["shown"] = text.lines(input)
    end = view.end
    if end is not None:
        end = replace(end, value=guest.redact(end.value), reason=guest.redact(end.reason))
    return replace(view, input=input, end=end, card=card)


def _name_only(call: Call) -> ToolView:
    """Return the view of a call for other reviewers: its name, and whether it is over."""
    end = None if call.status in OPEN else Outcome("output", _FOR_OTHERS)
    return ToolView(call.id, _name(call), {}, end=end)


def _unreadable(slot: CallSlot) -> ToolView:
    """Return the view of a call that could not be made at all; the model was told why."""
    try:
        arguments = codec.loads(slot.arguments or "{}")
    except ValueError:
        arguments = slot.arguments
    text = codec.loads(slot.error)["error"] if slot.error else "This call is no longer on record."
    return ToolView(slot.id, slot.name, arguments, end=Outcome("error", text))


def tool_view(call: Call, *, running: bool = False) -> ToolView:
    args = content_of(call)
    question = call.kind == "question"
    pending = call.status in PENDING
    doubt = call.status is CallStatus.IN_DOUBT
    confirms = doubt or (not question and call.asked and "approve" in call.terms.allowed)
    warning = (_DOUBT_RUNNING if running else _DOUBT).format(tool=call.tool or "The call")
    return ToolView(
        id=call.id,
        name=_name(call),
        input=_asked(args) if question else args,
        pending=pending,
        approval=approval_id(call) if confirms else "",
        end=None if pending else _outcome(call, denies=confirms),
        warning=warning if doubt else "",
        card=card_of(call, approval_id(call) if confirms and pending else "", running=running),
    )


def _name(call: Call) -> str:
    return call.tool or (QUESTION if call.kind == "question" else "approve")


def _asked(question: dict[str, Any]) -> dict[str, Json]:
    """Return a question in the form in which models ask it."""
    approval = {
        "question": question["text"],
        "options": question["options"],
        "allow_multiple": question["multiple"],
        "free_text": question["free_text"],
        "schema": question["schema"],
    }
    return {name: value for name, value in approval.items() if value is not None}


def _outcome(call: Call, *, denies: bool) -> Outcome | None:
    """Return how a call ended, if it did."""
    if call.status is CallStatus.DONE:
        return Outcome("output", codec.loads(call.result or "null"))
    if call.status is CallStatus.RESPONDED:
        value = codec.loads(call.result or "null")
        return Outcome("output", {"answer": value} if call.kind == "question" else value)
    if call.status is CallStatus.FAILED:
        return Outcome("error", call.result or "failed")
    if call.status not in _NOT_RUN:
        return None
    message = call.decision.message if call.decision is not None else ""
    by_person = call.asked and call.status is CallStatus.REJECTED
    if not call.asked:
        return Outcome(
            "error", f"This call is forbidden by policy and was not run. {message}".strip()
        )
    if by_person and call.kind == "question":
        return Outcome("error", f"The user will not answer. {message}".strip())
    closed = _REJECTED_BY_MODEL if call.source == "model" else _NOT_RUN[call.status]
    not_run = f"{closed} {message}".strip()
    if denies:
        return Outcome("denied", not_run, (by_person and message) or closed)
    return Outcome("error", not_run)


# -- cards


def card_of(call: Call, approval: str, *, running: bool = False) -> Json:
    """Return the request behind a tool part; None for a call that needs no decision.

    ``running`` says that its attempt is in doubt and still runs.
    """
    if not is_request(call):
        return None
    terms, args = call.terms, content_of(call)
    in_doubt = call.status is CallStatus.IN_DOUBT
    status = public_status(call)
    ends = call.expires_at
    card: dict[str, Any] = {
        "id": call.id,
        "kind": "in_doubt" if in_doubt else call.kind,
        "status": status,
        "tool": call.tool or None,
        "toolCallId": call.id,
        "approvalId": approval or None,
        "revision": call.rev,
        "allowed": list(doubt_answers(running) if in_doubt else terms.allowed),
        "description": text.visible(terms.description).text,
        "note": text.visible(call.note).text,
        "risk": {"level": terms.risk.level, "reasons": list(terms.risk.reasons)},
        "rule": terms.rule,
        "reviewers": list(call.reviewers),
        "quorum": terms.quorum,
        "votes": [vote.by for vote in call.votes],
        "expiresAt": iso(ends),
        "question": args if call.kind == "question" else None,
        "preview": codec.loads(call.preview) if call.preview else None,
        "original": None if call.original is None else codec.loads(call.original),
        "decision": None if in_doubt else _decision(call),
    }
    if status == "pending" and call.kind != "question":
        card["shown"] = text.lines(args)
        card["warnings"] = list(text.notes(args))
    return {name: value for name, value in card.items() if value not in (None, "", [])}


def _decision(call: Call) -> Json:
    decision = decision_made(call)
    if decision is None:
        return None
    decision_json = {
        "type": decision.type,
        "by": decision.by,
        "at": decision.at.isoformat(),
        "channel": decision.channel,
    }
    return {**decision_json, "message": decision.message} if decision.message else decision_json
