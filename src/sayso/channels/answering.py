"""How a person answers: options by number, own words, JSON, or a result in place of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sayso import codec, text
from sayso.channels.editor import NoEditor, as_json, edited, parsed, skeleton
from sayso.channels.layout import Line, numbered
from sayso.errors import InvalidCall
from sayso.types import Json, Question

if TYPE_CHECKING:
    from sayso.channels.talk import Outcome, Talk

_NOTHING = object()
_JSON_BEGINS = ("{", "[", '"')


def picked(question: Question, words: str) -> Json:
    """The options that "2" or "1,3" name; ``None`` if it names none, or more than may be."""
    numbers = [part for part in words.replace(",", " ").split() if part]
    if not numbers or not all(part.isdecimal() and part.isascii() for part in numbers):
        return None
    places, last = [int(part) for part in numbers], len(question.options)
    if len(set(places)) < len(places) or not 1 <= min(places) <= max(places) <= last:
        return None
    answers = [question.options[place - 1].answer for place in places]
    if question.multiple:
        return answers
    return answers[0] if len(answers) == 1 else None


def choose_options(talk: Talk, words: str) -> Outcome | None:
    """Answer a question with its options."""
    question = talk.request.question
    assert question is not None
    if not talk.confirmed():
        return None
    return talk.decide(talk.request.respond(picked(question, words)))


def answer(talk: Talk) -> Outcome | None:
    """Answer a question in one's own words, or with JSON that fits its schema."""
    question = talk.request.question
    assert question is not None
    if question.schema is None:
        value = _own_words(talk, question)
    elif question.free_text and not question.schema:
        value = _words_or_json(talk, question)
    else:
        value = _by_editor(talk, as_json(skeleton(question.schema)), question)
    if value is _NOTHING or not talk.confirmed():
        return None
    return talk.decide(talk.request.respond(value))


def _words_or_json(talk: Talk, question: Question) -> Json:
    """Words go as words; JSON only from the editor, where it is asked for."""
    words = talk.words("Your answer (e opens the editor for JSON, Enter goes back):")
    if words == "e":
        return _by_editor(talk, as_json(skeleton(question.schema)), question)
    if not words:
        talk.say("No answer was given.")
    return words or _NOTHING


def _own_words(talk: Talk, question: Question) -> Json:
    words = talk.words("Your answer (Enter to go back):")
    if not words:
        talk.say("No answer was given.")
        return _NOTHING
    if not question.multiple:
        return words
    numbers = talk.words("Which options besides, such as 1,3 (Enter for none):")
    chosen = picked(question, numbers) if numbers else []
    if chosen is None:
        talk.say("These are not numbers of its options.")
        return _NOTHING
    return [*chosen, words]


def respond(talk: Talk) -> Outcome | None:
    """Give a result instead of running the call, or the result of a call that did run."""
    words = talk.words("The result, as JSON or text (e opens the editor, Enter goes back):")
    if not words:
        talk.say("No result was given.")
        return None
    value = _by_editor(talk, "null\n", None) if words == "e" else _understood(talk, words)
    if value is _NOTHING or not _shown(talk, value):
        return None
    return talk.decide(talk.request.respond(value))


def _understood(talk: Talk, words: str) -> Json:
    """JSON if it is JSON, else text; what begins like JSON and is none is a slip."""
    try:
        return codec.parse(words)
    except InvalidCall as error:
        if words.startswith(_JSON_BEGINS):
            talk.say(text.inline(str(error)))
            return _NOTHING
        return words


def _shown(talk: Talk, value: Json) -> bool:
    kind = {dict: "object", list: "list", str: "text", bool: "yes or no", type(None): "nothing"}
    talk.show([Line(f"The result ({kind.get(type(value), 'number')}):", "bold"), *numbered(value)])
    return talk.choose("Use it? [y]es, [n]o >", ("y", "n")) == "y"


def _by_editor(talk: Talk, content: str, question: Question | None) -> Json:
    """JSON from the editor, shown once more before it counts."""
    rules = None if question is None else question.schema
    while True:
        try:
            written = edited(content)
            value = parsed(written, rules)
        except NoEditor as error:
            talk.say(text.inline(str(error)))
            return _NOTHING
        except InvalidCall as error:
            talk.say(f"That does not fit: {text.inline(str(error))}")
            if talk.choose("[e]dit again, [b]ack >", ("e", "b")) == "b":
                return _NOTHING
            content = written
            continue
        if question is None or _shown(talk, value):
            return value
        return _NOTHING
