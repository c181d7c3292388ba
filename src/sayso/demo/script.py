"""The script: what the user's last words contain decides what is played.

It is a function of the conversation and of nothing else. Before there are results it makes its
calls; after them it tells what happened, in a text that begins with ``Final answer:``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sayso.demo import reading
from sayso.demo.pizza import Asking, Unanswered, answer_in, ask_user, talk
from sayso.demo.tools import gives
from sayso.testing import call, calls, say

Play = Callable[[str], Any]


class Outcome(NamedTuple):
    """One call since the user's last words, and what the model was told of it."""

    tool: str
    args: Mapping[str, Any]
    content: str


#: Said on the first screen, and when nothing else fits: what to type, and what it shows.
SUGGESTIONS = (
    ("What is the weather in Oslo?", "one call that needs a yes"),
    ("What time is it?", "a call that needs nobody"),
    ("Do two things", "two calls at once, each decided by itself"),
    ("Deploy version 2.5.0 to production", "needs a yes; to staging it does not"),
    ("Roll back staging", "needs nobody; production does"),
    ("Send an email to 250 customers", "needs a yes above 100 recipients"),
    ("Delete old records", "yes or no, and no edit"),
    ("Book a flight to Paris for Friday", "try e, and edit it"),
    ("I want a pizza with rocks", "questions, until the order is whole"),
    ("Ask me a question", "one question; your own words will do"),
    ("Slow weather, please", "a slow answer; slow goes with all of them"),
)


def script(messages: Sequence[Mapping[str, Any]]) -> Any:
    """The next reply of the demo's model."""
    text, outcomes = _since_the_user_spoke(messages)
    play = _play_for(text)
    if play is _pizza or play is _question:
        return play(text, outcomes)
    if outcomes:
        return say(" ".join(["Final answer:", *(_ended(_told(one)) for one in outcomes)]))
    return play(text)


def is_slow(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the user's last words ask for a slow answer."""
    return "slow" in _since_the_user_spoke(messages)[0].lower()


def _since_the_user_spoke(messages: Sequence[Mapping[str, Any]]) -> tuple[str, list[Outcome]]:
    last = max((n for n, m in enumerate(messages) if m["role"] == "user"), default=-1)
    said = {m["call_id"]: m["content"] for m in messages[last + 1 :] if m["role"] == "tool"}
    made = [c for m in messages[last + 1 :] for c in m.get("calls", ()) if c["id"] in said]
    text = messages[last]["content"] if last >= 0 else ""
    return text, [Outcome(c["name"], json.loads(c["arguments"]), said[c["id"]]) for c in made]


# -- what is played


def _weather(text: str) -> Any:
    city = reading.city(text)
    return call("getWeatherInformation", {"city": city}, text=f"I will look at {city}'s sky.")


def _time(text: str) -> Any:
    return call("getLocalTime", {"location": reading.city(text)})


def _two(text: str) -> Any:
    path = reading.file(text)
    told = f"I will look at the sky, and delete {path}."
    weather = call("getWeatherInformation", {"city": reading.city(text)}, text=told)
    return calls(weather, call("deleteFile", {"path": path}))


def _production(text: str) -> Any:
    version = reading.version(text, "2.5.0")
    return call("deploy_to_production", {"version": version}, text="All tests have passed.")


def _staging(text: str) -> Any:
    return call("deploy_to_staging", {"version": reading.version(text, "2.5.0")})


def _rollback(text: str) -> Any:
    where = "staging" if "staging" in text.lower() else "production"
    version = reading.version(text, "2.4.0")
    return call("rollback", {"environment": where, "version": version})


def _email(text: str) -> Any:
    mail = {
        "recipients": reading.recipients(text),
        "subject": "Welcome",
        "body": "Hello,\n\nwelcome on board.\n\nYour team",
    }
    return call("send_email", mail)


def _records(text: str) -> Any:
    age = f"created_at < NOW() - INTERVAL '{reading.days(text)} days'"
    told = "Nobody has looked at these for a while."
    return call("execute_sql", {"query": f"DELETE FROM records WHERE {age};"}, text=told)


def _flight(text: str) -> Any:
    trip = {"destination": reading.destination(text), "day": reading.day(text)}
    return call("book_flight", trip, text="I found a good one.")


def _pizza(text: str, outcomes: Sequence[Outcome] = ()) -> Any:
    try:
        pizza = talk(text, [outcome.content for outcome in outcomes])
    except Asking as asking:
        return asking.reply
    except Unanswered as no:
        return say(f"Final answer: no pizza was ordered. {no}")
    return say(f"Final answer: your order is whole. {pizza.order}")


_WAYS = (
    ("A password", "password", "what everybody knows"),
    ("Another service", "oauth", "sign in with an account elsewhere"),
    ("A link by mail", "magic_link", "no password to forget"),
)


def _question(text: str, outcomes: Sequence[Outcome] = ()) -> Any:
    if not outcomes:
        options = [{"label": a, "value": b, "description": c} for a, b, c in _WAYS]
        return ask_user("How shall people sign in to your app?", options, free_text=True)
    try:
        return say(f"Final answer: you chose {answer_in(outcomes[-1].content)!r}.")
    except Unanswered as no:
        return say(f"Final answer: nothing was chosen. {no}")


def _slowly(text: str) -> Any:
    return say(
        "Final answer: this takes some five seconds, word by word, so that there is time to look "
        "at an answer while it comes."
    )


def _anything(text: str) -> Any:
    return say("I only play a script. Try one of these:\n" + "\n".join(_suggested()))


def _suggested() -> Iterator[str]:
    for words, shows in SUGGESTIONS:
        yield f"- {words} ({shows})"


#: The first whose words are all in the text is played.
TABLE: tuple[tuple[tuple[str, ...], Any], ...] = (
    (("weather",), _weather),
    (("time",), _time),
    (("two",), _two),
    (("deploy", "production"), _production),
    (("deploy", "staging"), _staging),
    (("roll back",), _rollback),
    (("rollback",), _rollback),
    (("email",), _email),
    (("delete", "records"), _records),
    (("flight",), _flight),
    (("pizza",), _pizza),
    (("question",), _question),
    (("slow",), _slowly),
    ((), _anything),
)


def _play_for(text: str) -> Any:
    low = text.lower()
    return next(play for words, play in TABLE if all(word in low for word in words))


# -- what is told


def _told(outcome: Outcome) -> str:
    tool, args, content = outcome
    if content == gives(tool, args):
        return content
    if content.startswith("A person changed"):
        return f"{tool}: {content}"
    error = _error_in(content)
    if error is not None:
        return f"{tool}: {error}"
    return f"{tool}: a person gave this result in its place: {content}"


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."


def _error_in(content: str) -> str | None:
    try:
        said = json.loads(content)
    except ValueError:
        return None
    return str(said["error"]) if isinstance(said, dict) and "error" in said else None
