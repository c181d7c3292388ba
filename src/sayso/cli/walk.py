"""``sayso inbox --decide``: a numbered list, one request at a time, or like ones together."""

from __future__ import annotations

import re
from typing import Any

from sayso import text
from sayso.channels.card import card, utc_now
from sayso.channels.layout import rows
from sayso.channels.prompt import ask
from sayso.channels.screen import Screen, can_prompt
from sayso.channels.talk import TRIES
from sayso.cli import views
from sayso.cli.exits import Exit, NoReviewer
from sayso.cli.opening import Caller
from sayso.errors import SaysoError
from sayso.inbox import Inbox, Page
from sayso.types import Decision, Request

_SEVERAL = re.compile(r"([\d,\- ]+?)\s*([ar])")
_QUESTION = "a number opens one, w walks through all, 1,3-5 a (or r) decides several, q quits >"


class Walk:
    """One person going through a page of the inbox."""

    def __init__(self, screen: Screen, inbox: Inbox, who: Caller, filters: dict[str, Any]) -> None:
        self.screen = screen
        self.inbox = inbox
        self.who = who
        self.filters = filters

    def run(self) -> Exit:
        """Show what waits and do as told, until nothing waits or the person quits."""
        tries = 0
        while tries < TRIES:
            page = self.inbox.pending_sync(**self.filters)
            empty = "Nothing is waiting."
            views.show_page(page, plain=self.screen.plain, empty=empty, numbers=True)
            if not page.items:
                return Exit.OK
            self.screen.settle()
            typed = self.screen.ask(_QUESTION)
            if typed is None:
                return Exit.PENDING
            words = "" if typed.pasted else typed.text.strip().lower()
            if words == "q":
                return Exit.OK
            understood, left = self._do(page, words)
            if left:
                return Exit.PENDING
            tries = 0 if understood else tries + 1
        return Exit.PENDING

    def _do(self, page: Page, words: str) -> tuple[bool, bool]:
        """Whether the words made sense, and whether the person went away."""
        if words == "w":
            return True, self._one_by_one(list(page.items))
        several = _SEVERAL.fullmatch(words)
        numbers = chosen(several[1] if several else words, len(page.items))
        if not numbers or (several is None and len(numbers) > 1):
            self.screen.say("Nothing was decided: type a number, 1,3-5 a, w or q.", "yellow")
            return False, False
        requests = [page.items[number - 1] for number in numbers]
        if several is None:
            return True, self._one_by_one(requests)
        self._together(requests, several[2])
        return True, False

    def _one_by_one(self, requests: list[Request]) -> bool:
        return any(
            ask(self.screen, self.who.desk(self.inbox, request)).how == "left"
            for request in requests
        )

    def _together(self, requests: list[Request], key: str) -> None:
        """Decide like requests at once, after all of them were shown."""
        risky = [r for r in requests if r.risk.level in ("high", "critical")]
        if risky:
            self.screen.say(f"{risky[0].id} is of high risk: open it by its number.", "yellow")
            return
        lines = [line for request in requests for line in card(request, utc_now())]
        ready = rows(lines, self.screen.width)
        if self.screen.turn_over(ready) < len(ready):
            self.screen.say("Not all of it was shown, so nothing was decided.", "yellow")
            return
        self.screen.settle()
        decisions = self._decisions(requests, key)
        if decisions:
            self._decide(decisions)

    def _decisions(self, requests: list[Request], key: str) -> list[Decision]:
        verb = "approve" if key == "a" else "reject"
        count = str(len(requests))
        typed = self.screen.ask(f"Type {count} to {verb} these {count}, or Enter to go back:")
        if typed is None or typed.pasted or typed.text.strip() != count:
            self.screen.say("Nothing was decided.", "yellow")
            return []
        if key == "a":
            return [request.approve() for request in requests]
        why = self.screen.ask("Why? The agent will read it (Enter for no reason):")
        if why is None:
            return []
        return [request.reject(why.text.strip()) for request in requests]

    def _decide(self, decisions: list[Decision]) -> None:
        try:
            outcomes = self.inbox.decide_many_sync(
                decisions, by=self.who.by, token=self.who.token, channel="cli"
            )
        except SaysoError as error:
            self.screen.say(text.inline(str(error)), "yellow")
            return
        for outcome in outcomes:
            how = "done" if outcome.error is None else text.inline(str(outcome.error))
            self.screen.say(f"{outcome.id}: {how}")


def chosen(words: str, most: int) -> list[int]:
    """The numbers in "1,3-5", each once and in order; none if one of them is not in the list."""
    numbers: list[int] = []
    for part in words.replace(",", " ").split():
        first, dash, last = part.partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash)) or len(part) > 9:
            return []
        numbers += range(int(first), int(last or first) + 1) if int(last or first) <= most else [0]
    return sorted(set(numbers)) if numbers and all(1 <= n <= most for n in numbers) else []


def walk(inbox: Inbox, who: Caller, filters: dict[str, Any], *, plain: bool) -> Exit:
    """Go through the inbox in a terminal."""
    if not can_prompt():
        raise NoReviewer("nobody can be asked here: run `sayso inbox --decide` in a terminal")
    screen = Screen(plain=plain)
    try:
        return Walk(screen, inbox, who, filters).run()
    except KeyboardInterrupt:
        screen.say("")
        return Exit.PENDING
    finally:
        screen.close()
