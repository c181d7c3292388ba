"""The scripted model of the demo. The words of the user's last message decide what it does.

The script is a pure function of the conversation. Without tool results it makes its calls; with
them it says what happened, in a text that starts with ``Final answer:``.

From top to bottom: the script, the pizza order, what is read out of the user's text, and the model
that streams the script's replies.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sayso.agent.models import ModelReply, ModelRequest, TextDelta
from sayso.demo.tools import expected_result
from sayso.testing import ScriptedModel, call, calls, say


class ToolResult(NamedTuple):
    """One call since the user's last message, and the result that the model got."""

    tool: str
    args: Mapping[str, Any]
    content: str


#: What to type, and what it shows; for the first screen, and when nothing else matches.
SUGGESTIONS = (
    ("What is the weather in Oslo?", "a call that needs approval"),
    ("What time is it?", "a call that needs no approval"),
    ("Do two things", "two calls at once, decided separately"),
    ("Deploy version 2.5.0 to production", "needs approval; staging does not"),
    ("Roll back staging", "needs no approval; production does"),
    ("Send an email to 250 customers", "needs approval above 100 recipients"),
    ("Delete old records", "approve or reject, no editing"),
    ("Book a flight to Paris for Friday", "try e to edit it"),
    ("I want a pizza with rocks", "questions until the order is complete"),
    ("Ask me a question", "a question; answer in your own words"),
    ("Slow weather, please", "a slow answer; slow works with any of these"),
)


def script(messages: Sequence[Mapping[str, Any]]) -> Any:
    """Return the model's next reply."""
    text, outcomes = _since_the_user_spoke(messages)
    low = text.lower()
    reply = next(reply for words, reply in TABLE if all(word in low for word in words))
    if reply is _pizza or reply is _question:
        return reply(text, outcomes)
    if outcomes:
        results = [_describe_result(outcome) for outcome in outcomes]
        sentences = (r if r.endswith((".", "!", "?")) else f"{r}." for r in results)
        return say(f"Final answer: {' '.join(sentences)}")
    return reply(text)


def is_slow(messages: Sequence[Mapping[str, Any]]) -> bool:
    return "slow" in _since_the_user_spoke(messages)[0].lower()


def _since_the_user_spoke(messages: Sequence[Mapping[str, Any]]) -> tuple[str, list[ToolResult]]:
    last = max((n for n, m in enumerate(messages) if m["role"] == "user"), default=-1)
    results = {m["call_id"]: m["content"] for m in messages[last + 1 :] if m["role"] == "tool"}
    finished = [c for m in messages[last + 1 :] for c in m.get("calls", ()) if c["id"] in results]
    text = messages[last]["content"] if last >= 0 else ""
    return text, [
        ToolResult(c["name"], json.loads(c["arguments"]), results[c["id"]]) for c in finished
    ]


# -- replies


def _weather(text: str) -> Any:
    city = city_in(text)
    return call(
        "getWeatherInformation", {"city": city}, text=f"I will check the weather in {city}."
    )


def _two(text: str) -> Any:
    path = first_in(text, "reports/old.csv", _FILE)
    announcement = f"I will check the weather and delete {path}."
    weather = call("getWeatherInformation", {"city": city_in(text)}, text=announcement)
    return calls(weather, call("deleteFile", {"path": path}))


def _production(text: str) -> Any:
    version = first_in(text, "2.5.0", *_VERSIONS)
    return call("deploy_to_production", {"version": version}, text="All tests have passed.")


def _rollback(text: str) -> Any:
    where = "staging" if "staging" in text.lower() else "production"
    version = first_in(text, "2.4.0", *_VERSIONS)
    return call("rollback", {"environment": where, "version": version})


def _email(text: str) -> Any:
    mail = {
        "recipients": recipients_in(text),
        "subject": "Welcome",
        "body": "Hello,\n\nwelcome on board.\n\nYour team",
    }
    return call("send_email", mail)


def _records(text: str) -> Any:
    age = f"created_at < NOW() - INTERVAL '{int(first_in(text, '30', _DAYS))} days'"
    reason = "Nobody has used these for a while."
    return call("execute_sql", {"query": f"DELETE FROM records WHERE {age};"}, text=reason)


def _flight(text: str) -> Any:
    destination = first_in(text, "Paris", _PLACE, _ANY_PLACE)
    trip = {"destination": destination, "day": first_in(text, "Friday", _DAY)}
    return call("book_flight", trip, text="I found a good flight.")


def _pizza(text: str, outcomes: Sequence[ToolResult] = ()) -> Any:
    try:
        pizza = agreed_pizza(text, [outcome.content for outcome in outcomes])
    except _Unasked as unasked:
        return unasked.reply
    except Unanswered as declined:
        return say(f"Final answer: no pizza was ordered. {declined}")
    return say(f"Final answer: your order is complete. {pizza.order}")


_WAYS = (
    ("A password", "password", "familiar to everyone"),
    ("Another service", "oauth", "sign in with an existing account"),
    ("A link by email", "magic_link", "no password to forget"),
)


def _question(text: str, outcomes: Sequence[ToolResult] = ()) -> Any:
    if not outcomes:
        options = [{"label": a, "value": b, "description": c} for a, b, c in _WAYS]
        return ask_user("How should people sign in to your app?", options, free_text=True)
    try:
        return say(f"Final answer: you chose {answer_in(outcomes[-1].content)!r}.")
    except Unanswered as declined:
        return say(f"Final answer: nothing was chosen. {declined}")


def _slowly(text: str) -> Any:
    return say(
        "Final answer: this takes about five seconds, word by word, so that you have time to watch "
        "an answer arrive."
    )


def _anything(text: str) -> Any:
    suggested = (f"- {words} ({shows})" for words, shows in SUGGESTIONS)
    return say("I only follow a script. Try one of these:\n" + "\n".join(suggested))


#: The first entry whose words are all in the text applies.
TABLE: tuple[tuple[tuple[str, ...], Any], ...] = (
    (("weather",), _weather),
    (("time",), lambda text: call("getLocalTime", {"location": city_in(text)})),
    (("two",), _two),
    (("deploy", "production"), _production),
    (
        ("deploy", "staging"),
        lambda text: call("deploy_to_staging", {"version": first_in(text, "2.5.0", *_VERSIONS)}),
    ),
    (("roll back",), _rollback),
    (("rollback",), _rollback),
    (("email",), _email),
    (("delete", "records"), _records),
    (("flight",), _flight),
    (("pizza",), _pizza),
    (("question",), _question),
    (("coding agent",), lambda text: call("start_coding_agent", {})),
    (("slow",), _slowly),
    ((), _anything),
)


# -- final answers


def _describe_result(outcome: ToolResult) -> str:
    tool, args, content = outcome
    if content == expected_result(tool, args):
        return content
    if content.startswith("A person changed"):
        return f"{tool}: {content}"
    with contextlib.suppress(ValueError):
        value = json.loads(content)
        if isinstance(value, dict) and "error" in value:
            return f"{tool}: {value['error']}"
    return f"{tool}: a person gave this result instead: {content}"


# -- the pizza

SIZES = ("small", "medium", "large")
TOPPINGS = ("cheese", "mushrooms", "ham", "olives", "meatballs")

_NONE = frozenset(("", "no", "none", "nothing", "nope", "plain", "no thanks", "nothing else", "-"))
_WITH = re.compile(r"\bwith\s+(.+?)(?:\s+on\s+(?:it|top))?\s*[.!?]*\s*$", re.I | re.S)
_BETWEEN = re.compile(r"\s*(?:,|;|\band\b|\bor\b|\+|&)\s*", re.I)
_LITTLE_WORDS = re.compile(r"^(?:some|a|an|the|extra|lots of|slowly|slow|please)\s+", re.I)
_MAX_QUESTIONS = 5


class _Unasked(Exception):
    """This question has no answer yet."""

    def __init__(self, reply: Any) -> None:
        super().__init__("no answer yet")
        self.reply = reply


class Unanswered(Exception):
    """The person declined to answer."""


@dataclass
class Pizza:
    """A pizza, as far as it is known."""

    size: str | None = None
    toppings: list[str] = field(default_factory=list)
    special_instructions: str | None = None
    #: Requested toppings that we do not have.
    strange: list[str] = field(default_factory=list)

    def add(self, wish: str) -> None:
        """Add a wish: a topping, possibly in other words, nothing, or nonsense."""
        wish = _LITTLE_WORDS.sub("", wish.strip()).strip(" .!?\"'")
        low = wish.lower()
        if low in _NONE or low.startswith(("no ", "without ")):
            return
        toppings = [topping for topping in TOPPINGS if topping.removesuffix("s") in low]
        if not toppings:
            self.strange.append(wish)
            return
        self.toppings += [topping for topping in toppings if topping not in self.toppings]
        if len(low) > len(" and ".join(toppings)):
            self.special_instructions = wish

    @property
    def order(self) -> str:
        pizza = {
            "size": self.size,
            "toppings": self.toppings,
            "special_instructions": self.special_instructions,
        }
        return json.dumps([pizza], ensure_ascii=False)


def agreed_pizza(text: str, contents: Iterable[str]) -> Pizza:
    """Return the pizza that was agreed on, replaying the answers so far from the start.

    Raises ``_Unasked`` at the first question without an answer, so the order needs no memory and
    can continue in any process. Raises ``Unanswered`` if the person declined.
    """
    answers = iter(contents)
    pizza = Pizza(size=next((s for s in SIZES if re.search(rf"\b{s}\b", text, re.I)), None))
    if pizza.size is None:
        pizza.size = _ask(answers, "Which size?", SIZES)
    match = _WITH.search(text)
    for wish in _BETWEEN.split(match[1]) if match else ():
        pizza.add(wish)
    if pizza.strange or not pizza.toppings:
        _ask_for_toppings(answers, pizza)
    if pizza.special_instructions is None:
        special = _ask(answers, 'Anything special, such as "well done"? Say no if not.')
        pizza.special_instructions = None if special.strip().lower() in _NONE else special.strip()
    return pizza


def _ask_for_toppings(answers: Any, pizza: Pizza) -> None:
    for _ in range(_MAX_QUESTIONS):
        answer = _ask(answers, _about(pizza), TOPPINGS, allow_multiple=True, free_text=True)
        pizza.strange = []
        for text in answer if isinstance(answer, list) else [answer]:
            for wish in [text] if text in TOPPINGS else _BETWEEN.split(text):
                pizza.add(wish)
        if not pizza.strange:
            return
    raise Unanswered(f"we could not agree on {pizza.strange[0]!r} as a topping")


def _about(pizza: Pizza) -> str:
    if not pizza.strange:
        return "Which toppings? Pick any, or use your own words."
    so_far = f" So far it has {' and '.join(pizza.toppings)}." if pizza.toppings else ""
    strange = " and ".join(repr(wish) for wish in pizza.strange)
    return f"We do not put {strange} on a pizza.{so_far} What would you like instead?"


def _ask(answers: Any, question: str, choices: Iterable[str] = (), **how: bool) -> Any:
    content = next(answers, None)
    if content is None:
        options = [{"label": c, "value": c, "description": None} for c in choices]
        raise _Unasked(ask_user(question, options, **how))
    return answer_in(content)


def ask_user(question: str, options: list[dict[str, Any]], **how: bool) -> Any:
    """Return a call of the tool that asks the user."""
    args = {"allow_multiple": False, "free_text": not options, **how}
    return call("ask_user_question", {"question": question, "options": options or None, **args})


def answer_in(content: str) -> Any:
    """Return the answer in a tool result. Raise ``Unanswered`` if there is none."""
    value = json.loads(content)
    if "error" in value:
        raise Unanswered(value["error"])
    return value["answer"]


# -- what the user's text says

_CITY = re.compile(r"\bin\s+(?:the\s+city\s+of\s+)?([^?!.,;:\n]+)", re.I)
_HOW = re.compile(r"^(?:(?:very\s+)?slow\w*\s+)+", re.I)
_NOT_A_CITY = re.compile(
    r"\s+(?:today|tonight|tomorrow|now|please|right|this|on|at|for|and|but|with|slow\w*|thanks)\b.*",
    re.I | re.S,
)
#: Such as 2.5.0 or 2.5.0-rc1, and then v3.
_VERSIONS: tuple[re.Pattern[str], ...] = (
    re.compile(r"\bv?(\d+(?:\.\d+)+(?:[-+][0-9A-Za-z]+(?:[.-][0-9A-Za-z]+)*)?)\b"),
    re.compile(r"\bv(?:ersion)?\s*(\d+)\b", re.I),
)
_ADDRESS = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_NUMBER = re.compile(r"(?<![\w.])(\d{1,3}(?:,\d{3})+|\d+)(?![\w.]*\d)")
_PLACE = re.compile(r"\bto\s+([A-Z][\w'-]*(?:\s+[A-Z][\w'-]*)*)")
_ANY_PLACE = re.compile(r"\bto\s+([^\W\d_][\w'-]*)", re.I)
_DAY = re.compile(
    r"\b(monday|tuesday|wednesday|thursday|friday|saturday|sunday|today|tomorrow"
    r"|\d{4}-\d{2}-\d{2})\b",
    re.I,
)
_FILE = re.compile(r"(?<!\S)((?:[\w.~-]*/)*[\w-]+\.[A-Za-z]\w*)")
_DAYS = re.compile(r"\b(\d{1,4})\s*days?\b", re.I)

_MOST_RECIPIENTS = 1000
_SOME_RECIPIENTS = 120


def city_in(text: str) -> str:
    """Return the city after "in", or New York."""
    match = _CITY.search(text)
    words = _HOW.sub("", match[1].strip()) if match else ""
    name = _NOT_A_CITY.sub("", f" {words}").strip()
    return name or "New York"


def first_in(text: str, otherwise: str, *patterns: re.Pattern[str]) -> str:
    """Return what the first of these patterns finds."""
    match = next(filter(None, (pattern.search(text) for pattern in patterns)), None)
    return match[1] if match else otherwise


def recipients_in(text: str) -> list[str]:
    """Return the addresses in the text, or as many as it says; 120 by default."""
    addresses = _ADDRESS.findall(text)
    if addresses:
        return list(dict.fromkeys(addresses))
    match = _NUMBER.search(text)
    count = int(match[1].replace(",", "")[:9]) if match else _SOME_RECIPIENTS
    count = min(max(count, 1), _MOST_RECIPIENTS)
    return [f"customer{number}@example.com" for number in range(1, count + 1)]


# -- the model

SLOW_SECONDS = 5.0
WORD_SECONDS = 0.02


class DemoModel(ScriptedModel):
    """Streams the script word by word. A slow answer takes five seconds, however long it is."""

    def __init__(self) -> None:
        super().__init__(script, name="demo")

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        pieces = [piece async for piece in super().stream(request)]
        is_final = not any(isinstance(piece, ModelReply) and piece.calls for piece in pieces)
        slow = is_final and is_slow(request.messages)
        pause = SLOW_SECONDS / len(pieces) if slow else WORD_SECONDS
        for piece in pieces:
            if isinstance(piece, TextDelta):
                await asyncio.sleep(pause)
            yield piece
