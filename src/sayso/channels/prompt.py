"""Ask one person about one request in a terminal. Every way out leaves it decided or pending.

No answer is ever assumed: bare Enter asks again; five invalid answers, the end of input and Ctrl-C
leave the request pending. A decision made elsewhere closes the prompt.

From top to bottom: ``Review`` reads and decides one request for one reviewer, ``Prompt`` draws it
and asks, then come the actions behind each key, the keys themselves, and ``ask``.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from sayso import codec, text
from sayso.channels.card import card, details, diff, scope_lines, title, utc_now
from sayso.channels.layout import Line, name, numbered, rows
from sayso.channels.screen import LONGEST_LINE, Screen, Typed, Woken
from sayso.errors import AlreadyDecided, Conflict, Expired, InvalidCall, InvalidDecision, SaysoError
from sayso.inbox import Inbox
from sayso.redaction import redact_declared, resolve_ref, title_of
from sayso.rows import Event
from sayso.stores.base import Subscription
from sayso.types import HIGH_RISKS, Decision, Edit, Json, Question, Request, Reviewer

#: Invalid answers in a row, after which a prompt gives up.
TRIES = 5

_LISTED = 8  # of the requests that a grant would cover
_SIMILAR = 100  # closed requests of the same tool that are counted
_LONGEST_PROMPT = 80
_NOTHING = object()
_STATE = attrgetter("status", "digest", "votes")
_JSON_STARTS = ("{", "[", '"')
_DONE = {
    "approve": "Approved.",
    "edit": "Approved with your changes.",
    "reject": "Rejected.",
    "respond": "Answered.",
}
_DONE_IN_DOUBT = {
    "approve": "It will run again.",
    "reject": "Recorded as failed.",
    "respond": "Recorded as its result.",
}


@dataclass(frozen=True, slots=True)
class Review:
    """One request, read and decided on behalf of one reviewer."""

    inbox: Inbox
    id: str
    by: Reviewer | None = None
    token: str | None = None
    channel: str = "terminal"
    grant: Mapping[str, Any] | None = None
    #: The changes to start with, before the person has edited anything.
    edit: Edit | None = None

    def read(self) -> Request:
        return self.inbox.get_sync(self.id)

    def decide(self, decision: Decision) -> Request:
        """Decide the request. Raise ``Expired``, not ``AlreadyDecided``, if it has expired."""
        grant = self.grant if decision.type == "approve" else None
        try:
            return self.inbox.decide_sync(
                self.id,
                decision,
                by=self.by,
                token=self.token,
                channel=self.channel,
                grant=grant,
            )
        except AlreadyDecided as error:
            if self.read().status == "expired":
                raise Expired(f"request {self.id} has expired; nothing will run") from error
            raise

    def events(self) -> list[Event]:
        return self.inbox.events_sync(self.id)

    def similar(self, request: Request) -> Sequence[Request]:
        """Return the latest closed requests of the same agent and tool."""
        if request.tool is None:
            return ()
        page = self.inbox.history_sync(agent=request.agent, tool=request.tool, limit=_SIMILAR)
        return page.items

    def subscribe(self, listener: Callable[[], None]) -> Subscription:
        """Call ``listener`` when something is committed on the request's thread."""
        return self.inbox.store.subscribe(self.read().thread, listener)


@dataclass(frozen=True, slots=True)
class PromptResult:
    """How a prompt ended. ``left`` also ends a walk through several requests."""

    how: Literal["decided", "skipped", "left", "closed", "refused"]
    request: Request
    error: SaysoError | None = None


class _Left(Exception):
    """The person left, or gave too many invalid answers: the request stays pending."""


class Prompt:
    """One request on one screen. Also the ``Watch`` of its own questions."""

    def __init__(self, screen: Screen, review: Review) -> None:
        self.screen = screen
        self.review = review
        self.request = review.read()
        #: Changes that the person named before the request was shown.
        self.edit = review.edit
        #: How many rows of the card were shown, and how many it has.
        self.shown = self.whole = 0

    # -- watching

    def patience(self) -> float | None:
        """Return the seconds until the request expires."""
        ends = self.request.expires_at
        return None if ends is None else max((ends - utc_now()).total_seconds() + 0.05, 0.2)

    def changed(self) -> bool:
        """Return whether the request was decided, voted on, edited or expired since drawn."""
        return _STATE(self.review.read()) != _STATE(self.request)

    def reload(self) -> PromptResult | None:
        """Read the request again. Return a result if it is no longer pending."""
        self.request = self.review.read()
        if self.request.status != "pending":
            self.screen.say(closed_by(self.request), "bold")
            return PromptResult("closed", self.request)
        return None

    def redraw(self) -> PromptResult | None:
        """Read and draw the request again. Return a result if it is no longer pending."""
        result = self.reload()
        if result is None:
            self.draw()
        return result

    # -- drawing

    def draw(self) -> None:
        """Show the card, or its first page. What was not shown cannot be approved."""
        card_rows = rows(card(self.request, utc_now()), self.screen.width)
        room = max(self.screen.height - 2 - _LONGEST_PROMPT // self.screen.width, 6)
        self.whole = len(card_rows)
        self.shown = self.whole if self.whole <= room else room - 1
        self.screen.say("-" * self.screen.width if not self.screen.plain else "", "dim")
        self.screen.show_rows(card_rows[: self.shown])
        if not self.seen:
            more = f"rows 1-{self.shown} of {self.whole}: type v to see the rest"
            self.screen.say(more, "bold yellow")
        self.screen.settle()

    @property
    def seen(self) -> bool:
        return self.shown >= self.whole

    def view(self) -> None:
        """Show the rest of the card page by page, or all of it again."""
        card_rows = rows(card(self.request, utc_now()), self.screen.width)
        # A resized terminal wraps the card differently: start over.
        start = self.shown if len(card_rows) == self.whole and not self.seen else 0
        was_seen = self.seen
        self.whole = len(card_rows)
        turned = self.screen.show_pages(card_rows, start, self)
        self.shown = self.whole if was_seen else turned
        self.screen.show(title(self.request, utc_now()))
        self.screen.settle()

    def show(self, lines: Iterable[Line]) -> bool:
        """Show lines, page by page if needed. Return whether the last one was shown."""
        ready = rows(lines, self.screen.width)
        turned = self.screen.show_pages(ready, 0, self)
        self.screen.settle()
        return turned == len(ready)

    def say(self, words: str) -> None:
        """Print a notice. ``words`` must already be inert."""
        self.screen.say(words, "yellow")

    # -- asking

    def read_line(self, question: str) -> Typed:
        """Return one line from the person. Raise ``_Left`` at the end of input."""
        typed = self.screen.ask(question, self)
        if typed is None:
            raise _Left
        return typed

    def choose(self, question: str, keys: Iterable[str]) -> str:
        """Return one of these keys; ask again for anything else."""
        valid = tuple(keys)
        return self.match(question, lambda words: words if words in valid else None, valid)

    def match(
        self,
        question: str,
        read: Callable[[str], str | None],
        valid: Iterable[str],
        hint: str = "",
    ) -> str:
        """Return the first line that ``read`` accepts. Raise ``_Left`` after ``TRIES`` others."""
        for _ in range(TRIES):
            typed = self.read_line(question)
            answer = None if typed.pasted else read(typed.text.strip().lower())
            if answer is not None:
                return answer
            notice = "Pasted text is ignored" if typed.pasted else "Nothing was decided"
            self.say(f"{notice}: type one of {', '.join(valid)}, then Enter.{hint}")
            self.screen.settle()  # the rest of a paste may still be on its way
        self.say(f"{TRIES} invalid answers.")
        raise _Left

    def read_text(self, question: str) -> str:
        """Return a line of text, or a paste of several; empty if the person goes back."""
        typed = self.read_line(question)
        if len(typed.text) >= LONGEST_LINE and not typed.pasted:
            self.say(f"Terminals cut lines after {LONGEST_LINE:,} characters. Use a file instead:")
            self.say("use `sayso respond --value @file` or `sayso reject --message`.")
            return ""
        return typed.text.strip()

    def confirmed(self, *, unseen: str = "") -> bool:
        """Ask for the tool's name if the risk is high or something was not shown."""
        request = self.request
        reasons: list[str] = []
        if not self.seen:
            reasons.append(
                f"rows {self.shown + 1}-{self.whole} were not shown (type v to see them)"
            )
        if unseen:
            reasons.append(unseen)
        if request.risk.level in HIGH_RISKS:
            reasons.append(f"the risk is {request.risk.level.upper()}")
        if not reasons:
            return True
        word = "answer" if request.question is not None else name(request.tool or "approve")
        self.say(f"Not yet: {' and '.join(reasons)}.")
        self.screen.settle()
        typed = self.read_line(f"Type {word} to continue anyway, or Enter to go back:")
        if typed.pasted:
            self.say("Pasted text does not count: type it.")
        elif typed.text.strip() == word:
            return True
        self.say("Nothing was decided.")
        return False

    # -- deciding

    def decide(self, decision: Decision) -> PromptResult | None:
        """Send the decision. Return ``None`` if it is invalid, so that the person can try again."""
        try:
            done = self.review.decide(decision)
        except InvalidDecision as error:
            self.say(f"That is not valid: {text.inline(str(error))}")
            return None
        except (AlreadyDecided, Expired) as error:
            self.say(text.inline(str(error)))
            return PromptResult("closed", self.review.read(), error)
        except Conflict:
            self.say("The request changed while you were looking. Here it is now:")
            return self.redraw()
        except SaysoError as error:
            self.say(text.inline(str(error)))
            return PromptResult("refused", self.request, error)
        doubt = self.request.kind == "in_doubt"
        self.screen.say(outcome_of(done, decision.type, in_doubt=doubt), "bold green")
        return PromptResult("decided", done)


def outcome_of(request: Request, type: str, *, in_doubt: bool = False) -> str:
    """Return what a decision led to, in one sentence."""
    if request.status == "pending" and type in ("approve", "edit"):
        votes = len(request.votes)
        return f"Approval {votes} of {request.quorum}: {request.quorum - votes} more needed."
    return (_DONE_IN_DOUBT if in_doubt else _DONE)[type]


def closed_by(request: Request) -> str:
    """Return who closed a request, and how, in one line."""
    decided = request.decision
    if decided is None or request.status in ("expired", "cancelled", "superseded"):
        return f"{name(request.id)} is {request.status}: there is nothing to decide."
    at = decided.at.astimezone()
    line = (
        f"Decided by {name(decided.by)} ({name(decided.channel)}) at {at:%H:%M:%S}: {decided.type}"
    )
    return f"{line}, {text.inline(decided.message)}" if decided.message else f"{line}."


# -- the actions behind the keys


def _approve(prompt: Prompt) -> PromptResult | None:
    if not _show_grant(prompt) or not prompt.confirmed():
        return None
    return prompt.decide(prompt.request.approve())


def _show_grant(prompt: Prompt) -> bool:
    """Show what the grant would cover, if there is one. Return whether to give it."""
    review = prompt.review
    if review.grant is None:
        return True
    try:
        preview = review.inbox.preview_grant_sync(
            review.id, review.grant, by=review.by or Reviewer("code")
        )
    except InvalidDecision as error:
        prompt.say(f"That is not valid: {text.inline(str(error))}")
        return False
    lines = [Line("The grant covers", "bold"), *scope_lines(review.inbox.store, preview.grant)]
    for head, requests in (
        ("Earlier requests that it would have covered", preview.past),
        ("Pending requests that it covers (they stay pending)", preview.pending),
    ):
        lines.append(Line(f"{head}: {len(requests) or 'none'}", "bold"))
        lines += [Line(title_of(request), "", "  ") for request in requests[:_LISTED]]
    prompt.show(lines)
    return prompt.choose("Give it? [y]es, [n]o >", ("y", "n")) == "y"


def _reject(prompt: Prompt) -> PromptResult | None:
    why = prompt.read_text("Why? The agent will see your reason (Enter for none):")
    return prompt.decide(prompt.request.reject(why))


def _stop(prompt: Prompt) -> PromptResult | None:
    why = prompt.read_text("Why? The run is cancelled (Enter for no reason):")
    return prompt.decide(prompt.request.reject(why, stop=True))


def _edit(prompt: Prompt) -> PromptResult | None:
    """Open the editor until the arguments are valid and approved, or the person goes back."""
    request = prompt.request
    if request.tool is None:
        prompt.say("Only a tool call can be edited: reject it and say why.")
        return None
    from sayso import schema  # imports pydantic, which most prompts do not need

    rules = schema.edit_rules(request.schema or {}, request.args, request.written)
    content = as_json(dict(request.editable))
    while True:
        try:
            content = _edited(prompt, content)
        except (_EditorError, InvalidDecision) as error:
            prompt.say(f"{text.inline(str(error))}. Nothing was decided.")
            return None
        if not content.strip():
            prompt.say("The file is empty: nothing was changed.")
            return None
        unseen = ""
        try:
            args = parsed(content, rules)
            if not isinstance(args, dict):
                raise InvalidCall("the arguments must be one JSON object")
        except InvalidCall as error:
            prompt.say(f"That is not valid: {text.inline(str(error))}")
            key = prompt.choose("[e]dit again, [b]ack >", ("e", "b"))
        else:
            key, unseen = _show_changes(prompt, args)
        if key == "a" and prompt.confirmed(unseen=unseen):
            changes = Edit.replacing(request.editable, args)
            return prompt.decide(request.edit(changes.args, unset=changes.unset))
        if key != "e":
            return None


def _edited(prompt: Prompt, content: str) -> str:
    """Return the arguments with the changes that were named first, then those of the editor."""
    if prompt.edit is None:
        return _in_editor(content)
    args = prompt.edit.applied_to(prompt.request.editable, prompt.request.args)
    prompt.edit = None
    return as_json(args)


def _show_changes(prompt: Prompt, args: dict[str, Json]) -> tuple[str, str]:
    """Show what an edit changes. Return the key that was typed, and what was not shown."""
    if codec.canonical(args) == codec.canonical(dict(prompt.request.editable)):
        prompt.say("You changed nothing. To approve it as it is, type a.")
        return "b", ""
    schema = prompt.request.schema
    before = redact_declared(prompt.request.editable, schema)
    after = redact_declared(args, schema, was=prompt.request.editable)
    complete = prompt.show([Line("Your changes", "bold"), *diff(before, after)])
    key = prompt.choose("[a]pprove with these changes, [e]dit again, [b]ack >", ("a", "e", "b"))
    return key, "" if complete else "you did not see all of your changes"


def _answer(prompt: Prompt) -> PromptResult | None:
    """Answer a question in the person's own words, or with JSON that matches its schema."""
    question = prompt.request.question
    assert question is not None
    if question.schema is None:
        value = _own_words(prompt, question)
    elif question.free_text and not question.schema:
        # Words stay words; JSON comes only from the editor, where it is asked for.
        words = prompt.read_text("Your answer (e to write JSON in your editor, Enter to go back):")
        value = words or _NOTHING
        if not words:
            prompt.say("No answer given.")
        elif words == "e":
            value = _json_from_editor(prompt, as_json(skeleton(question.schema)), question)
    else:
        value = _json_from_editor(prompt, as_json(skeleton(question.schema)), question)
    if value is _NOTHING or not prompt.confirmed():
        return None
    return prompt.decide(prompt.request.respond(value))


def _own_words(prompt: Prompt, question: Question) -> Json:
    words = prompt.read_text("Your answer (Enter to go back):")
    if not words:
        prompt.say("No answer given.")
        return _NOTHING
    if not question.multiple:
        return words
    numbers = prompt.read_text("Any options as well, such as 1,3 (Enter for none):")
    chosen = picked(question, numbers) if numbers else []
    if chosen is None:
        prompt.say("Those are not option numbers.")
        return _NOTHING
    return [*chosen, words]


def _respond(prompt: Prompt) -> PromptResult | None:
    """Give a result instead of running the call, or the result of a call that did run."""
    words = prompt.read_text("The result, as JSON or text (e for your editor, Enter to go back):")
    if not words:
        prompt.say("No result given.")
        return None
    value: Json = words
    if words == "e":
        value = _json_from_editor(prompt, "null\n", None)
    else:
        try:
            value = codec.parse(words)
        except InvalidCall as error:
            if words.startswith(_JSON_STARTS):  # meant as JSON; other text is text
                prompt.say(text.inline(str(error)))
                return None
    if value is _NOTHING or not _confirm_value(prompt, value):
        return None
    return prompt.decide(prompt.request.respond(value))


def _confirm_value(prompt: Prompt, value: Json) -> bool:
    """Show a value, and ask whether to use it."""
    kind = {dict: "object", list: "list", str: "text", bool: "boolean", type(None): "null"}
    head = Line(f"The result ({kind.get(type(value), 'number')}):", "bold")
    prompt.show([head, *numbered(value)])
    return prompt.choose("Use it? [y]es, [n]o >", ("y", "n")) == "y"


def _json_from_editor(prompt: Prompt, content: str, question: Question | None) -> Json:
    """Return JSON from the editor, or ``_NOTHING``; an answer is shown before it counts."""
    rules = None if question is None else question.schema
    while True:
        try:
            content = _in_editor(content)
            value = parsed(content, rules)
        except _EditorError as error:
            prompt.say(text.inline(str(error)))
            return _NOTHING
        except InvalidCall as error:
            prompt.say(f"That is not valid: {text.inline(str(error))}")
            if prompt.choose("[e]dit again, [b]ack >", ("e", "b")) == "b":
                return _NOTHING
            continue
        return value if question is None or _confirm_value(prompt, value) else _NOTHING


def picked(question: Question, words: str) -> Json:
    """Return the options named by "2" or "1,3"; ``None`` if they are not valid numbers."""
    numbers = [part for part in words.replace(",", " ").split() if part]
    if not numbers or not all(part.isdecimal() and part.isascii() for part in numbers):
        return None
    places = [int(part) for part in numbers]
    if len(set(places)) < len(places) or not set(places) <= {*range(1, len(question.options) + 1)}:
        return None
    answers = [question.options[place - 1].answer for place in places]
    if question.multiple:
        return answers
    return answers[0] if len(answers) == 1 else None


def _details(prompt: Prompt) -> None:
    review = prompt.review
    prompt.show(details(prompt.request, review.events(), review.similar(prompt.request)))


def _skip(prompt: Prompt) -> PromptResult:
    prompt.say(f"Left pending: {name(prompt.request.id)}")
    return PromptResult("skipped", prompt.request)


def _quit(prompt: Prompt) -> PromptResult:
    raise _Left


def _help(prompt: Prompt) -> None:
    keys = keys_for(prompt.request)
    prompt.show([Line(key.help, "", f"  {letter}  ", "bold") for letter, key in keys.items()])


# -- the keys

_Act = Callable[[Prompt], PromptResult | None]


@dataclass(frozen=True, slots=True)
class Key:
    """One key: its label in the prompt, its help text, and what it does."""

    label: str
    help: str
    act: _Act
    #: The decision that it makes. The key is left out if the request's rule does not allow that.
    decision: str = ""


_APPROVAL = {
    "a": Key("[a]pprove", "approve: run it exactly as shown", _approve, "approve"),
    "e": Key("[e]dit", "edit the arguments in your editor, then approve", _edit, "edit"),
    "r": Key("[r]eject", "reject, with a reason for the agent", _reject, "reject"),
    "x": Key("[x] stop", "reject, and stop the run", _stop, "reject"),
    "m": Key(
        "[m] respond",
        "respond: give the result yourself; the tool does not run",
        _respond,
        "respond",
    ),
}
_QUESTION = {
    "m": Key("[m] answer", "answer in your own words, or as JSON in your editor", _answer),
    "r": Key("[r]efuse", "refuse to answer", _reject),
}
_DOUBT = {
    "1": Key("[1] it did run", "it did run: give its result", _respond, "respond"),
    "2": Key(
        "[2] run it again", "run it again, although it may have taken effect", _approve, "approve"
    ),
    "3": Key("[3] give up", "give up: record it as failed", _reject, "reject"),
}
_ALWAYS = {
    "s": Key("[s]kip", "skip: leave it pending", _skip),
    "v": Key("[v]iew", "view the whole card, page by page", Prompt.view),
    "d": Key("[d]etails", "details: rule, reviewers, history, schema", _details),
    "?": Key("[?]", "show this help", _help),
    "q": Key("[q]uit", "quit: leave it pending", _quit),
}
#: All keys, for ``docs/cli.md``.
TABLES = {
    "for a tool call": _APPROVAL,
    "for a question": _QUESTION,
    "for a call in doubt": _DOUBT,
    "always": _ALWAYS,
}


def keys_for(request: Request) -> dict[str, Key]:
    """Return the keys for this request, without decisions that its rule does not allow."""
    question = request.question
    if request.kind == "in_doubt" or question is None:
        table = _DOUBT if request.kind == "in_doubt" else _APPROVAL
        keys = {letter: key for letter, key in table.items() if key.decision in request.allowed}
    else:
        keys = dict(_QUESTION)
        if not question.free_text and question.schema is None:
            del keys["m"]
    return {**keys, **_ALWAYS}


def ask(screen: Screen, review: Review, first: str = "") -> PromptResult:
    """Show a request and ask until it is decided or left. ``first`` is a key to start with."""
    prompt = Prompt(screen, review)
    result = prompt.reload()
    if result is not None:
        return result
    listening = review.subscribe(screen.wake)
    try:
        prompt.draw()
        if first in keys_for(prompt.request):
            result = _unless_woken(prompt, keys_for(prompt.request)[first].act)
        while result is None:
            result = _unless_woken(prompt, _ask_for_key)
        return result
    except (_Left, KeyboardInterrupt) as end:
        if isinstance(end, KeyboardInterrupt):
            screen.say("")
        # Read it again: an interrupt may have come while a decision was being written.
        result = prompt.reload()
        if result is None:
            prompt.say(f"Left pending: {name(prompt.request.id)}")
        return result or PromptResult("left", prompt.request)
    finally:
        listening.cancel()


def _unless_woken(prompt: Prompt, act: _Act) -> PromptResult | None:
    """Do something; redraw if the request changes meanwhile."""
    try:
        return act(prompt)
    except Woken:
        return prompt.redraw()


def _ask_for_key(prompt: Prompt) -> PromptResult | None:
    keys = keys_for(prompt.request)
    question = prompt.request.question
    labels = [key.label for key in keys.values()]
    valid = list(keys)
    if question is not None and question.options:
        count = len(question.options)
        labels.insert(0, f"1-{count}, such as 1,2" if question.multiple else f"1-{count}")
        valid.insert(0, f"1-{count}")

    def read(words: str) -> str | None:
        if words in keys or (question is not None and picked(question, words) is not None):
            return words
        return None

    own_words = question is not None and "m" in keys and question.schema is None
    hint = " To answer in your own words, type m first." if own_words else ""
    words = prompt.match(" ".join(labels) + " >", read, valid, hint)
    if words in keys:
        return keys[words].act(prompt)
    assert question is not None
    if not prompt.confirmed():
        return None
    return prompt.decide(prompt.request.respond(picked(question, words)))


# -- JSON in the person's own editor

_FALLBACK_EDITORS = ("nano", "vi")
_EMPTY: dict[str, Json] = {"array": [], "string": "", "number": 0, "integer": 0, "boolean": False}
_DEEPEST = 8  # levels of a recursive schema that a skeleton follows


class _EditorError(Exception):
    """There is no editor, or it failed. The message says what to do."""


def as_json(value: Json) -> str:
    """Return indented JSON in which invisible characters are escaped."""
    raw = json.dumps(value, indent=2, ensure_ascii=False)
    hidden = (char for char in set(raw) if char > "~" and text.visible(char).hidden)
    return raw.translate({ord(char): json.dumps(char)[1:-1] for char in hidden}) + "\n"


def _in_editor(content: str) -> str:
    """Open ``content`` in the person's editor, and return the saved text."""
    chosen = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    try:
        command = shlex.split(chosen) if chosen else []
    except ValueError as error:
        raise _EditorError(f"$VISUAL or $EDITOR cannot be read: {error}") from None
    if not command:
        fallback = next(filter(shutil.which, _FALLBACK_EDITORS), None)
        if fallback is None:
            raise _EditorError("there is no editor: set EDITOR to one")
        command = [fallback]
    with tempfile.TemporaryDirectory(prefix="sayso-") as folder:  # readable by this user only
        path = Path(folder) / "edit.json"
        path.touch(0o600)
        path.write_text(content, encoding="utf-8")
        try:
            done = subprocess.run([*command, str(path)], check=False)
            if done.returncode != 0:
                raise _EditorError(f"the editor {command[0]!r} ended with code {done.returncode}")
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise _EditorError(f"the editor {command[0]!r} could not be used: {error}") from error


def parsed(written: str, rules: Mapping[str, Json] | None) -> Json:
    """Parse JSON and check it against a schema. Raise ``InvalidCall`` if it is not valid."""
    from sayso import schema  # imports pydantic, which most prompts do not need

    value = codec.parse(written)
    wrong = schema.errors(rules, value) if rules is not None else []
    if wrong:
        path, message = wrong[0]
        raise InvalidCall(f"{path}: {message}" if path else message, path)
    return value


def skeleton(rules: Json) -> Json:
    """Return a value to start from: a schema's defaults, or empty values of its types."""
    return _empty(rules, rules, _DEEPEST)


def _empty(rules: Json, root: Json, depth: int) -> Json:
    if not isinstance(rules, Mapping) or not depth:
        return None
    for keyword in ("default", "const"):
        if keyword in rules:
            return rules[keyword]
    if rules.get("enum"):
        return rules["enum"][0]
    if "$ref" in rules:
        return _empty(resolve_ref(root, rules["$ref"]), root, depth - 1)
    if rules.get("type") == "object":
        fields = rules.get("properties", {}).items()
        return {key: _empty(part, root, depth - 1) for key, part in fields}
    kind = rules.get("type")
    return _EMPTY.get(kind) if isinstance(kind, str) else None
