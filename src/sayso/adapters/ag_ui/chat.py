"""Answer a POST: read what counts of it, start or continue a run, and return its events.

``resume`` is read as decisions. They name the interrupt, and with it the revision that was shown.
Arguments come from nowhere but ``editedArgs``, which the inbox checks like any other edit. A
partial ``resume`` is accepted: the run ends with the interrupts that are left. An answer that does
not count leaves its request pending, and the run ends with ``RUN_ERROR``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sayso import codec
from sayso.adapters.ag_ui.events import RunResponse, interrupt_id
from sayso.adapters.chat.live import RunTask
from sayso.adapters.chat.response import Frames
from sayso.adapters.chat.threads import (
    CHANGED,
    Chat,
    PendingStream,
    check_owner,
    checked_id,
    checked_words,
    person_of,
    shown_digest,
)
from sayso.adapters.chat.views import PENDING, RunView, exchanges
from sayso.errors import Conflict, InvalidCall, InvalidDecision, SaysoError
from sayso.inbox.people import no_request
from sayso.rows import LIVE, Call, CallStatus
from sayso.sync import read
from sayso.types import Approve, Decision, Edit, Json, Reject, Respond, Reviewer
from sayso.views import is_request

if TYPE_CHECKING:
    from sayso.agent import Agent

#: Recorded for a request that was cancelled in the front end, which is no answer.
DISMISSED = "The user dismissed the request without an answer."

_REVISION = re.compile(r"\.r\d+d?$")


def stream(body: object, agent: Agent, *, by: str | Reviewer) -> PendingStream:
    """Answer a POST: new user text starts a run, ``resume`` decides, and neither is a reload.

    ``body`` is the posted ``RunAgentInput``, as bytes or parsed JSON. ``await`` the result for the
    events, or iterate over it.
    """
    return PendingStream(_stream(body, agent, by))


async def _stream(body: object, agent: Agent, by: str | Reviewer) -> Frames:
    posted = read_input(body)
    person = person_of(by)
    chat = RunChat(agent, posted.thread)
    said = await read(chat.store, chat.is_said, posted)
    if posted.resolved and not said:
        raise InvalidCall("send your answers first, and the new message after them", "messages")
    await check_owner(chat.store, chat.id, person, chat.listener, opens=not said)
    if said:
        return (await chat.answer(posted, person)).frames()
    known = (chat.id, posted.message, posted.words) in chat.listener.posted
    live = await read(chat.store, chat.store.live_run, chat.id)
    view, run_task = await chat.say(posted.message, posted.words, person)
    response = chat.response(posted, person, view, run_task, stale=known)
    response.supersedes = live is not None  # so the outcome of its requests is news, too
    return response.frames()


@dataclass(slots=True)
class RunChat(Chat):
    """One thread of one agent."""

    def is_said(self, posted: RunInput) -> bool:
        """Return whether the POST has no new user text: none, or some that the store has."""
        if not posted.words:
            return True
        run = self.store.run(posted.message.removesuffix(".user"))
        if run is not None and run.thread == self.id and posted.message.endswith(".user"):
            return True
        if not posted.resolved:
            return False
        # Clients that answer may send the conversation with their own ids.
        exchange_list = exchanges(self.store, self.id)
        return bool(exchange_list) and exchange_list[-1].words == posted.words

    async def answer(self, posted: RunInput, by: Reviewer) -> RunResponse:
        """Record decisions, resume, and send the whole conversation."""
        # What is answered is stored, even if the task that asked has not quite ended.
        opening = None if posted.resume else self.listener.opening.get(self.id)
        if opening is not None and opening.run:
            view = self.view(opening.run)
            return self.response(posted, by, view, opening, stale=True)
        view, calls = await read(self.store, self._continued, posted)
        answers = [(calls[entry.call], entry) for entry in posted.resume if entry.call in calls]
        errors = await self.record(answers, decision_on, by)
        # A dismissal that does not count is none: clients have to cover what they cannot decide.
        resolved = {entry.call: entry for entry in posted.resume if not entry.cancelled}
        problems = [error for call, error in errors.items() if call in resolved]
        problems += [no_request(resolved[call].id) for call in resolved if call not in calls]
        run_task = None
        if view.run is not None and view.run.status in LIVE:
            run_task = await self.resumed(view)
        return self.response(posted, by, view, run_task, stale=True, problems=problems)

    def _continued(self, posted: RunInput) -> tuple[RunView, dict[str, Call]]:
        """Return the thread's last run, and the requests that are answered."""
        run = self.store.last_run(self.id)
        view = self.view("" if run is None else run.id)
        if run is not None:
            view.refresh(run)
        calls: dict[str, Call] = {}
        for entry in posted.resume:
            call = self.store.call(entry.call)
            # The threads of sub-agents are named after the thread.
            if call is not None and is_request(call) and call.thread.split("/")[0] == self.id:
                calls[entry.call] = call
        return view, calls

    def response(
        self,
        posted: RunInput,
        by: Reviewer,
        view: RunView,
        run_task: RunTask | None,
        *,
        stale: bool,
        problems: list[SaysoError] | None = None,
    ) -> RunResponse:
        return RunResponse(
            agent=self.agent,
            view=view,
            run_task=run_task,
            chat=self,
            run_id=posted.run,
            held=posted.held,
            by=by,
            stale=stale,
            problems=problems or [],
        )


# -- what a client posts


@dataclass(frozen=True, slots=True)
class ResumeEntry:
    """An answer to an interrupt."""

    id: str
    cancelled: bool
    payload: Json
    #: The digest that the client was shown, if it sends it back.
    digest: str | None

    @property
    def call(self) -> str:
        """The id of the request."""
        return _REVISION.sub("", self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInput:
    """One ``RunAgentInput``, checked, without what does not count."""

    thread: str
    run: str
    #: The text of the last message, if the user wrote it.
    words: str = ""
    resume: tuple[ResumeEntry, ...] = ()
    #: The messages that the client shows, as pairs of role and id. They are never trusted.
    held: tuple[tuple[str, str], ...] = ()

    @property
    def message(self) -> str:
        """The id of the last message."""
        return self.held[-1][1] if self.held else ""

    @property
    def resolved(self) -> bool:
        """Whether it answers something."""
        return any(not entry.cancelled for entry in self.resume)


def read_input(body: object) -> RunInput:
    """Read a POST body. Raises ``InvalidCall`` with what is wrong."""
    data = codec.parse(body) if isinstance(body, bytes | str) else body
    if not isinstance(data, Mapping):
        raise InvalidCall("post a RunAgentInput: an object with threadId, runId and messages")
    thread = checked_id(data.get("threadId"), "threadId")
    run = checked_id(data.get("runId"), "runId")
    entries = _objects(data, "resume")
    resume = tuple(_entry(entry, f"resume[{n}]") for n, entry in enumerate(entries))
    messages = _objects(data, "messages")
    held = tuple((str(m.get("role")), _text(m.get("id"), "messages.id")) for m in messages)
    words = ""
    if held and held[-1][0] == "user":
        words = _words(messages[-1].get("content"))
    return RunInput(thread=thread, run=run, words=words, resume=resume, held=held)


def _objects(data: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    values = data.get(name) or []
    if not isinstance(values, list) or not all(isinstance(value, Mapping) for value in values):
        raise InvalidCall(f"{name}: pass a list of objects", name)
    return values


def _entry(entry: Mapping[str, Any], path: str) -> ResumeEntry:
    status = entry.get("status")
    if status not in ("resolved", "cancelled"):
        raise InvalidCall(f"{path}.status: use resolved or cancelled", f"{path}.status")
    metadata = entry.get("metadata")
    ours = metadata.get("sayso") if isinstance(metadata, Mapping) else None
    digest = ours.get("digest") if isinstance(ours, Mapping) else None
    return ResumeEntry(
        id=_text(entry.get("interruptId"), f"{path}.interruptId"),
        cancelled=status == "cancelled",
        payload=entry.get("payload"),
        digest=None if digest is None else _text(digest, f"{path}.metadata.sayso.digest"),
    )


def _text(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise InvalidCall(f"{path}: pass a string", path)
    return value


def _words(content: object) -> str:
    """Return the text of a user message."""
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts = [part.get("text") for part in parts if isinstance(part, Mapping)]
    if len(texts) < len(parts) or any(part.get("type") != "text" for part in parts):
        raise InvalidCall("files are not supported: send text", "messages")
    return checked_words(_text(text, "messages.content") for text in texts)


# -- answers as decisions


def decision_on(call: Call, entry: ResumeEntry) -> Decision | None:
    """Return the decision that an answer means, bound to what was shown; None if it means none."""
    current = entry.id == interrupt_id(call)
    if entry.cancelled:
        # Dismissing a doubt does not say that the call did not run.
        if not current or call.status is not CallStatus.ASKED:
            return None
        return Reject(DISMISSED, seen_digest=shown_digest(call))
    if call.status in PENDING and not current:
        raise Conflict(CHANGED)
    # If it was decided before, the inbox says whether this is the same decision.
    digest = (entry.digest or shown_digest(call)) if current else None
    if call.kind == "question" and call.status is not CallStatus.IN_DOUBT:
        return Respond(entry.payload, seen_digest=digest)
    return _form_decision(call, entry.payload, digest)


_REJECTION = {"approved", "reason", "stop"}
_APPROVAL = {"approved", "reason", "stop", "editedArgs", "result"}


def _form_decision(call: Call, payload: Json, seen: str | None) -> Decision:
    form = payload if isinstance(payload, dict) else {}
    approved = form.get("approved")
    if type(approved) is not bool:
        raise InvalidDecision("payload.approved: pass true or false", "approved")
    # A misspelt field must not approve what was to be changed.
    unknown = sorted(set(form) - (_APPROVAL if approved else _REJECTION))
    if unknown:
        raise InvalidDecision(f"payload.{unknown[0]}: this field is not expected here", unknown[0])
    reason = form.get("reason") or ""
    stop = form.get("stop") or False
    if not isinstance(reason, str) or type(stop) is not bool:
        raise InvalidDecision("payload: reason is a string, and stop is true or false", "reason")
    if not approved:
        return Reject(reason, stop=stop, seen_digest=seen)
    if stop:
        raise InvalidDecision("only a rejection can stop the run", "stop")
    if "result" in form and "editedArgs" in form:
        raise InvalidDecision("pass editedArgs or result, not both", "result")
    if "result" in form:
        return Respond(form["result"], seen_digest=seen)
    if "editedArgs" in form:
        return _edit(call, form["editedArgs"], seen)
    return Approve(seen_digest=seen)


def _edit(call: Call, edited: Json, seen: str | None) -> Decision:
    """Return the edit that makes these arguments out of those that were shown."""
    if not isinstance(edited, dict):
        raise InvalidDecision("payload.editedArgs: pass an object with all arguments", "editedArgs")
    decided = call.status not in PENDING and call.original is not None
    args = codec.loads(call.original if decided and call.original is not None else call.args)
    changed = {
        name: value
        for name, value in edited.items()
        if name not in args or codec.canonical(value) != codec.canonical(args[name])
    }
    unset = [name for name in args if name not in edited]
    if not changed and not unset:
        return Approve(seen_digest=seen)
    return Edit(changed, unset, seen_digest=seen)
