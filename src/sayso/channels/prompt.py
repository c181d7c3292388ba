"""The keys that a person may type at a request, and what each does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sayso.channels.answering import answer, choose_options, picked, respond
from sayso.channels.card import details
from sayso.channels.desk import Desk
from sayso.channels.editing import edit
from sayso.channels.layout import Line, name
from sayso.channels.screen import Screen, Woken
from sayso.channels.talk import Left, Outcome, Talk
from sayso.types import Request

Act = Callable[[Talk], Outcome | None]


@dataclass(frozen=True, slots=True)
class Key:
    """One key: what the prompt calls it, what the help says, and what it does."""

    label: str
    help: str
    act: Act


def _approve(talk: Talk) -> Outcome | None:
    return talk.decide(talk.request.approve()) if talk.confirmed() else None


def _reject(talk: Talk) -> Outcome | None:
    why = talk.words("Why? The agent will read it (Enter for no reason):")
    return talk.decide(talk.request.reject(why))


def _view(talk: Talk) -> None:
    talk.view()


def _details(talk: Talk) -> None:
    talk.show(details(talk.request, talk.desk.events(), talk.desk.earlier(talk.request)))


def _skip(talk: Talk) -> Outcome:
    talk.say(f"Left pending: {name(talk.request.id)}")
    return Outcome("skipped", talk.request)


def _quit(talk: Talk) -> Outcome:
    raise Left


def _help(talk: Talk) -> None:
    keys = keys_for(talk.request)
    talk.show([Line(key.help, "", f"  {letter}  ", "bold") for letter, key in keys.items()])


_APPROVAL = {
    "a": Key("[a]pprove", "approve: run it exactly as shown", _approve),
    "e": Key("[e]dit", "edit the arguments in your editor, then approve", edit),
    "r": Key("[r]eject", "reject, with a reason for the agent", _reject),
    "m": Key("[m] respond", "respond: give a result yourself; it is not run", respond),
}
_QUESTION = {
    "m": Key("[m] answer", "answer in your own words, or as JSON in your editor", answer),
    "r": Key("[r]efuse", "refuse: you will not answer", _reject),
}
_DOUBT = {
    "1": Key("[1] it did run", "it did run: give its result", respond),
    "2": Key("[2] run it again", "run it again, although it may have had its effect", _approve),
    "3": Key("[3] give up", "give up: it counts as failed", _reject),
}
_ALWAYS = {
    "s": Key("[s]kip", "skip: leave it pending", _skip),
    "v": Key("[v]iew", "view the whole card, page by page", _view),
    "d": Key("[d]etails", "details: rule, reviewers, history, schema", _details),
    "?": Key("[?]", "this help", _help),
    "q": Key("[q]uit", "quit: leave it pending", _quit),
}
#: All keys, for the page that lists them.
TABLES = {
    "at a tool call": _APPROVAL,
    "at a question": _QUESTION,
    "at a call in doubt": _DOUBT,
    "always": _ALWAYS,
}
_DECISION_OF = {"a": "approve", "e": "edit", "r": "reject", "m": "respond"}


def keys_for(request: Request) -> dict[str, Key]:
    """The keys that make sense for this request; what its rule does not allow is not offered."""
    if request.kind == "in_doubt":
        return {**_DOUBT, **_ALWAYS}
    question = request.question
    if question is None:
        keys = {k: key for k, key in _APPROVAL.items() if _DECISION_OF[k] in request.allowed}
        return {**keys, **_ALWAYS}
    keys = dict(_QUESTION)
    if not question.free_text and question.schema is None:
        del keys["m"]
    return {**keys, **_ALWAYS}


def ask(screen: Screen, desk: Desk, first: str = "") -> Outcome:
    """Show one request and ask until it is decided or left; ``first`` is done before any key."""
    talk = Talk(screen, desk)
    outcome = talk.look()
    if outcome is not None:
        return outcome
    listening = desk.listen(screen.wake)
    try:
        return _until_decided(talk, first)
    except (Left, KeyboardInterrupt) as end:
        return _left(talk, interrupted=isinstance(end, KeyboardInterrupt))
    finally:
        listening.cancel()


def _left(talk: Talk, *, interrupted: bool) -> Outcome:
    """Say truly how it stands: an interrupt may have come while a decision was being written."""
    if interrupted:
        talk.screen.say("")
    outcome = talk.look()
    if outcome is None:
        talk.say(f"Left pending: {name(talk.request.id)}")
    return outcome or Outcome("left", talk.request)


def _until_decided(talk: Talk, first: str) -> Outcome:
    talk.draw()
    outcome = None
    if first in keys_for(talk.request):
        outcome = _safely(talk, keys_for(talk.request)[first].act)
    while outcome is None:
        outcome = _safely(talk, _turn)
    return outcome


def _safely(talk: Talk, act: Act) -> Outcome | None:
    """Do it; if the request moves meanwhile, look at it again."""
    try:
        return act(talk)
    except Woken:
        return talk.again()


def _turn(talk: Talk) -> Outcome | None:
    keys, question = keys_for(talk.request), talk.request.question
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
    words = talk.match(" ".join(labels) + " >", read, valid, hint)
    return keys[words].act(talk) if words in keys else choose_options(talk, words)
