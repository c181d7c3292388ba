"""The pizza: it asks until the order is whole, whatever it is answered.

The talk is played from its beginning each time, with the answers so far, and stops at the first
question that has none: so it needs no memory of its own, and goes on in any process.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sayso.testing import call

SIZES = ("small", "medium", "large")
TOPPINGS = ("cheese", "mushrooms", "ham", "olives", "meatballs")

_NONE = frozenset(("", "no", "none", "nothing", "nope", "plain", "no thanks", "nothing else", "-"))
_WITH = re.compile(r"\bwith\s+(.+?)(?:\s+on\s+(?:it|top))?\s*[.!?]*\s*$", re.I | re.S)
_BETWEEN = re.compile(r"\s*(?:,|;|\band\b|\bor\b|\+|&)\s*", re.I)
_LITTLE_WORDS = re.compile(r"^(?:some|a|an|the|extra|lots of|slowly|slow|please)\s+", re.I)
_PATIENCE = 5


class Asking(Exception):
    """There is no answer yet: this has to be asked."""

    def __init__(self, reply: Any) -> None:
        super().__init__("no answer yet")
        self.reply = reply


class Unanswered(Exception):
    """The person will not say."""


@dataclass
class Pizza:
    """One pizza, as far as it is known."""

    size: str | None = None
    toppings: list[str] = field(default_factory=list)
    special_instructions: str | None = None
    #: What was asked for and is no topping.
    strange: list[str] = field(default_factory=list)

    def add(self, wish: str) -> None:
        """Take one wish: a topping, a topping in other words, nothing, or nonsense."""
        wish = _LITTLE_WORDS.sub("", wish.strip()).strip(" .!?\"'")
        low = wish.lower()
        if low in _NONE or low.startswith(("no ", "without ")):
            return
        known = [topping for topping in TOPPINGS if topping.removesuffix("s") in low]
        if not known:
            self.strange.append(wish)
            return
        self.toppings += [topping for topping in known if topping not in self.toppings]
        if len(low) > len(" and ".join(known)):
            self.special_instructions = wish

    @property
    def order(self) -> str:
        """The whole order, structured."""
        pizza = {
            "size": self.size,
            "toppings": self.toppings,
            "special_instructions": self.special_instructions,
        }
        return json.dumps([pizza], ensure_ascii=False)


def talk(text: str, contents: Iterable[str]) -> Pizza:
    """The pizza that was agreed on; raises ``Asking`` or ``Unanswered`` where it is not."""
    answers = iter(contents)
    pizza = Pizza(size=next((s for s in SIZES if re.search(rf"\b{s}\b", text, re.I)), None))
    if pizza.size is None:
        pizza.size = _ask(answers, "Which size?", SIZES)
    found = _WITH.search(text)
    for wish in _BETWEEN.split(found[1]) if found else ():
        pizza.add(wish)
    if pizza.strange or not pizza.toppings:
        _ask_for_toppings(answers, pizza)
    if pizza.special_instructions is None:
        said = _ask(answers, 'Anything special, such as "well done"? Say no if not.')
        pizza.special_instructions = None if said.strip().lower() in _NONE else said.strip()
    return pizza


def _ask_for_toppings(answers: Any, pizza: Pizza) -> None:
    for _ in range(_PATIENCE):
        answer = _ask(answers, _about(pizza), TOPPINGS, allow_multiple=True, free_text=True)
        pizza.strange = []
        for said in answer if isinstance(answer, list) else [answer]:
            for wish in [said] if said in TOPPINGS else _BETWEEN.split(said):
                pizza.add(wish)
        if not pizza.strange:
            return
    raise Unanswered(f"we could not agree on {pizza.strange[0]!r} as a topping")


def _about(pizza: Pizza) -> str:
    if not pizza.strange:
        return "Which toppings? Pick several, or say it in your own words."
    so_far = f" So far it has {' and '.join(pizza.toppings)}." if pizza.toppings else ""
    strange = " and ".join(repr(wish) for wish in pizza.strange)
    return f"We do not put {strange} on a pizza.{so_far} What may it be instead?"


def _ask(answers: Any, question: str, choices: Iterable[str] = (), **how: bool) -> Any:
    content = next(answers, None)
    if content is None:
        options = [{"label": c, "value": c, "description": None} for c in choices]
        raise Asking(ask_user(question, options, **how))
    return answer_in(content)


def ask_user(question: str, options: list[dict[str, Any]], **how: bool) -> Any:
    """A call of the tool that asks the user."""
    args = {"allow_multiple": False, "free_text": not options, **how}
    return call("ask_user_question", {"question": question, "options": options or None, **args})


def answer_in(content: str) -> Any:
    """The user's answer, from what the model is told; ``Unanswered`` if there is none."""
    said = json.loads(content)
    if "error" in said:
        raise Unanswered(said["error"])
    return said["answer"]
