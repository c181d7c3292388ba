"""Asking one person about one request: every way out leaves it decided or pending.

No answer is ever assumed: bare Enter asks again, five answers that make no sense leave the request
pending, and so do the end of input and Ctrl-C. A decision made elsewhere closes the question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from sayso import text
from sayso.channels.card import RISKY, card, title, utc_now
from sayso.channels.desk import Desk
from sayso.channels.layout import Line, name, rows
from sayso.channels.screen import LONGEST_LINE, Screen, Typed
from sayso.errors import AlreadyDecided, Conflict, Expired, InvalidDecision, SaysoError
from sayso.types import Decision, Request

How = Literal["decided", "skipped", "left", "closed", "refused"]
#: Understands a line, or gives nothing.
Reader = Callable[[str], str | None]
TRIES = 5

_PROMPT = 80  # characters of the longest prompt
_DONE = {
    "approve": "Approved.",
    "edit": "Approved with your changes.",
    "reject": "Rejected.",
    "respond": "Answered.",
}
_DONE_DOUBT = {
    "approve": "It will run again.",
    "reject": "Given up: it counts as failed.",
    "respond": "Recorded as its result.",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the talk ended; ``left`` also ends a walk through several requests."""

    how: How
    request: Request
    error: SaysoError | None = None


class Left(Exception):
    """The person went away, or could not be understood: the request stays pending."""


class Talk:
    """One request on one screen."""

    def __init__(self, screen: Screen, desk: Desk) -> None:
        self.screen = screen
        self.desk = desk
        self.request = desk.read()
        #: How many rows of the card were on the screen, of how many.
        self.shown = self.whole = 0

    # -- watching

    def patience(self) -> float | None:
        """Seconds until the request expires."""
        ends = self.request.expires_at
        return None if ends is None else max((ends - utc_now()).total_seconds() + 0.05, 0.2)

    def changed(self) -> bool:
        """Whether somebody decided, voted or edited, or time ran out, since it was drawn."""
        before, now = self.request, self.desk.read()
        return (now.status, now.digest, now.votes) != (before.status, before.digest, before.votes)

    def look(self) -> Outcome | None:
        """Read the request again; an outcome if there is nothing left to decide."""
        self.request = self.desk.read()
        if self.request.status != "pending":
            self.screen.say(ended(self.request), "bold")
            return Outcome("closed", self.request)
        return None

    def again(self) -> Outcome | None:
        """Read and draw it anew, if there is still something to decide."""
        outcome = self.look()
        if outcome is None:
            self.draw()
        return outcome

    # -- drawing

    def draw(self) -> None:
        """Show the card, or its first page: what was not shown cannot be approved."""
        whole = rows(card(self.request, utc_now()), self.screen.width)
        room = max(self.screen.height - 2 - _PROMPT // self.screen.width, 6)
        self.whole = len(whole)
        self.shown = self.whole if self.whole <= room else room - 1
        self.screen.say("-" * self.screen.width if not self.screen.plain else "", "dim")
        self.screen.show_rows(whole[: self.shown])
        if not self.seen:
            self.screen.say(f"rows 1-{self.shown} of {self.whole}: v shows the rest", "bold yellow")
        self.screen.settle()

    @property
    def seen(self) -> bool:
        """Whether the whole card was on the screen."""
        return self.shown >= self.whole

    def view(self) -> None:
        """Show the rest of the card page by page, or all of it again."""
        whole = rows(card(self.request, utc_now()), self.screen.width)
        # A terminal that was resized has other rows: begin again.
        start = self.shown if len(whole) == self.whole and not self.seen else 0
        seen, self.whole = self.seen, len(whole)
        turned = self.screen.turn_over(whole, start, self)
        self.shown = self.whole if seen else turned
        self.screen.show(title(self.request, utc_now()))
        self.screen.settle()

    def show(self, lines: Iterable[Line]) -> bool:
        """Show lines, page by page if need be; true once the last one was on the screen."""
        ready = rows(lines, self.screen.width)
        turned = self.screen.turn_over(ready, 0, self)
        self.screen.settle()
        return turned == len(ready)

    def say(self, words: str) -> None:
        """Tell the person something; the words are inert already."""
        self.screen.say(words, "yellow")

    # -- asking

    def ask(self, question: str) -> Typed:
        """One line from the person; ``Left`` if there is none."""
        typed = self.screen.ask(question, self)
        if typed is None:
            raise Left
        return typed

    def choose(self, question: str, keys: Iterable[str]) -> str:
        """One of these keys; anything else is asked again, and never guessed."""
        known = tuple(keys)
        return self.match(question, lambda words: words if words in known else None, known)

    def match(self, question: str, read: Reader, valid: Iterable[str], hint: str = "") -> str:
        """A line that ``read`` understands; five others, pastes and bare Enters end the talk."""
        for _ in range(TRIES):
            typed = self.ask(question)
            found = None if typed.pasted else read(typed.text.strip().lower())
            if found is not None:
                return found
            said = "A paste decides nothing" if typed.pasted else "Nothing was decided"
            self.say(f"{said}: type one of {', '.join(valid)}, then Enter.{hint}")
            self.screen.settle()  # the rest of a paste may still be on its way
        self.say(f"{TRIES} answers that make no sense.")
        raise Left

    def words(self, question: str) -> str:
        """Free text of one line, or a paste of several; empty if the person goes back."""
        typed = self.ask(question)
        if len(typed.text) >= LONGEST_LINE and not typed.pasted:
            self.say(f"A terminal cuts lines after {LONGEST_LINE:,} characters: give it in a file,")
            self.say("with `sayso respond --value @file` or `sayso reject --message`.")
            return ""
        return typed.text.strip()

    def confirmed(self, *, unseen: str = "") -> bool:
        """Have the tool's name typed, where the risk is high or something was not shown."""
        request, reasons = self.request, []
        if not self.seen:
            reasons.append(f"rows {self.shown + 1}-{self.whole} were not shown (v shows them)")
        if unseen:
            reasons.append(unseen)
        if request.risk.level in RISKY:
            reasons.append(f"the risk is {request.risk.level.upper()}")
        if not reasons:
            return True
        word = "answer" if request.question is not None else name(request.tool or "approve")
        self.say(f"Not yet: {' and '.join(reasons)}.")
        self.screen.settle()
        typed = self.ask(f"Type {word} to go on all the same, or Enter to go back:")
        if typed.pasted:
            self.say("A paste does not count: it has to be typed.")
        elif typed.text.strip() == word:
            return True
        self.say("Nothing was decided.")
        return False

    # -- deciding

    def decide(self, decision: Decision) -> Outcome | None:
        """Send the answer; nothing if it does not fit, so that the person can give another."""
        try:
            done = self.desk.decide(decision)
        except InvalidDecision as error:
            self.say(f"That does not fit: {text.inline(str(error))}")
            return None
        except (AlreadyDecided, Expired) as error:
            self.say(text.inline(str(error)))
            return Outcome("closed", self.desk.read(), error)
        except Conflict:
            self.say("It changed while you were looking. This is what it is now:")
            return self.again()
        except SaysoError as error:
            self.say(text.inline(str(error)))
            return Outcome("refused", self.request, error)
        doubt = self.request.kind == "in_doubt"
        self.screen.say(said(done, decision.type, in_doubt=doubt), "bold green")
        return Outcome("decided", done)


def said(request: Request, type: str, *, in_doubt: bool = False) -> str:
    """What a decision came to."""
    if request.status == "pending" and type in ("approve", "edit"):
        votes, missing = len(request.votes), request.quorum - len(request.votes)
        people = "person" if missing == 1 else "people"
        return f"Yes {votes} of {request.quorum}: it waits for {missing} more {people}."
    return (_DONE_DOUBT if in_doubt else _DONE)[type]


def ended(request: Request) -> str:
    """Who closed a request, and how, in one line."""
    decided = request.decision
    if decided is None or request.status in ("expired", "cancelled", "superseded"):
        return f"{name(request.id)} is {request.status}: there is nothing to decide."
    at = decided.at.astimezone()
    line = (
        f"Decided by {name(decided.by)} ({name(decided.channel)}) at {at:%H:%M:%S}: {decided.type}"
    )
    return f"{line}, {text.inline(decided.message)}" if decided.message else f"{line}."
