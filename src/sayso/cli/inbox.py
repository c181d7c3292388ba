"""``sayso inbox``, ``show`` and ``history``. ``inbox --decide`` walks through the list."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from sayso import text
from sayso.channels.card import background, card, utc_now
from sayso.channels.layout import Line, rows
from sayso.channels.prompt import TRIES, Review, ask
from sayso.channels.screen import Screen, can_prompt, console, show
from sayso.cli import common, output
from sayso.cli.common import Caller, Exit, NoReviewer, caller, opened, reading
from sayso.codec import loads
from sayso.errors import SaysoError
from sayso.inbox import Inbox, Page
from sayso.rows import Event
from sayso.types import HIGH_RISKS, Decision, Request, iso

_EMPTY = "No pending requests."
_SEVERAL = re.compile(r"([\d,\- ]+?)\s*([ar])")
_QUESTION = "Number to open, w for all, '1,3-5 a' to approve (r to reject), q to quit >"

Decide = Annotated[
    bool, typer.Option("--decide", help="Decide requests one by one, or several at once.")
]


def inbox(
    kind: common.KindFilter = None,
    agent: common.AgentFilter = None,
    tool: common.ToolFilter = None,
    thread: common.ThreadFilter = None,
    run: common.RunFilter = None,
    q: common.TextFilter = None,
    sort: common.SortOrder = "oldest",
    limit: common.Limit = 50,
    after: common.After = None,
    decide: Decide = False,
    json: common.AsJson = False,
    plain: common.Plain = False,
    token_file: common.TokenFile = None,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """List the requests that need a decision."""
    filters = _filters(kind, agent, tool, thread, run, q, sort, limit, after)
    if decide:
        with opened(store) as box:
            raise typer.Exit(_walk(box, caller(box, token_file), filters, plain=plain))
    with reading(store) as box:
        page = box.pending_sync(**filters)
        output.show_page(page, json=json, plain=plain, empty=_EMPTY)
        if page.items and not json:
            show(console(plain=plain), [Line("To decide: sayso inbox --decide", "dim")])


def history(
    status: common.StatusFilter = "closed",
    kind: common.KindFilter = None,
    agent: common.AgentFilter = None,
    tool: common.ToolFilter = None,
    thread: common.ThreadFilter = None,
    run: common.RunFilter = None,
    q: common.TextFilter = None,
    sort: common.SortOrder = "newest",
    limit: common.Limit = 50,
    after: common.After = None,
    json: common.AsJson = False,
    plain: common.Plain = False,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """List decided and closed requests, newest first."""
    filters = _filters(kind, agent, tool, thread, run, q, sort, limit, after)
    with reading(store) as box:
        page = box.history_sync(status=status, **filters)
        output.show_page(page, json=json, plain=plain, empty="No decisions yet.")


def show_request(
    request_id: common.RequestId,
    json: common.AsJson = False,
    plain: common.Plain = False,
    store: common.StoreUrl = common.DEFAULT_STORE,
) -> None:
    """Show a request and its history."""
    with reading(store) as box:
        request = box.find_sync(request_id)
        review = Review(box, request.id)
        events = review.events()
        if json:
            output.print_json(
                {**output.shown_json(request), "events": list(map(event_json, events))}
            )
            return
        lines = card(request, utc_now())
        lines += background(request, events, review.similar(request))
        show(console(plain=plain), lines)


def event_json(event: Event) -> dict[str, Any]:
    """Return an event for JSON output. A pruned body is null."""
    return {
        "at": iso(event.at),
        "type": event.type,
        "actor": event.actor,
        "body": None if event.body is None else loads(event.body),
    }


def _filters(*values: Any) -> dict[str, Any]:
    """Return the filters that were given, named as the inbox names them."""
    names = ("kind", "agent", "tool", "thread", "run", "q", "sort", "limit", "after")
    pairs = zip(names, values, strict=True)
    return {name: value for name, value in pairs if value is not None}


# -- inbox --decide


@dataclass(frozen=True, slots=True)
class _Walk:
    """One person deciding the requests of a page."""

    screen: Screen
    inbox: Inbox
    who: Caller
    filters: dict[str, Any]

    def run(self) -> Exit:
        """List pending requests and do what the person types, until none is left or they quit."""
        tries = 0
        while tries < TRIES:
            page = self.inbox.pending_sync(**self.filters)
            output.show_page(page, plain=self.screen.plain, empty=_EMPTY, numbers=True)
            if not page.items:
                return Exit.OK
            self.screen.settle()
            typed = self.screen.ask(_QUESTION)
            if typed is None:
                return Exit.PENDING
            words = "" if typed.pasted else typed.text.strip().lower()
            if words == "q":
                return Exit.OK
            understood, left = self._act_on(page, words)
            if left:
                return Exit.PENDING
            tries = 0 if understood else tries + 1
        return Exit.PENDING

    def _act_on(self, page: Page, words: str) -> tuple[bool, bool]:
        """Return whether the words were valid, and whether the person left."""
        if words == "w":
            return True, self._decide_one_by_one(list(page.items))
        several = _SEVERAL.fullmatch(words)
        numbers = chosen(several[1] if several else words, len(page.items))
        if not numbers or (several is None and len(numbers) > 1):
            self.screen.say("Nothing was decided: type a number, '1,3-5 a', w or q.", "yellow")
            return False, False
        requests = [page.items[number - 1] for number in numbers]
        if several is None:
            return True, self._decide_one_by_one(requests)
        self._decide_together(requests, several[2])
        return True, False

    def _decide_one_by_one(self, requests: list[Request]) -> bool:
        return any(
            ask(self.screen, self.who.review(self.inbox, request)).how == "left"
            for request in requests
        )

    def _decide_together(self, requests: list[Request], key: str) -> None:
        """Decide similar requests together, after showing all of them."""
        risky = [r for r in requests if r.risk.level in HIGH_RISKS]
        if risky:
            self.screen.say(
                f"{risky[0].id} is {risky[0].risk.level} risk: open it by its number.", "yellow"
            )
            return
        lines = [line for request in requests for line in card(request, utc_now())]
        ready = rows(lines, self.screen.width)
        if self.screen.show_pages(ready) < len(ready):
            self.screen.say("You did not see all of it, so nothing was decided.", "yellow")
            return
        self.screen.settle()
        decisions = self._decisions(requests, key)
        if not decisions:
            return
        try:
            results = self.inbox.decide_many_sync(
                decisions, by=self.who.by, token=self.who.token, channel="cli"
            )
        except SaysoError as error:
            self.screen.say(text.inline(str(error)), "yellow")
            return
        for result in results:
            how = "done" if result.error is None else text.inline(str(result.error))
            self.screen.say(f"{result.id}: {how}")

    def _decisions(self, requests: list[Request], key: str) -> list[Decision]:
        verb = "approve" if key == "a" else "reject"
        count = str(len(requests))
        typed = self.screen.ask(f"Type {count} to {verb} these {count}, or Enter to go back:")
        if typed is None or typed.pasted or typed.text.strip() != count:
            self.screen.say("Nothing was decided.", "yellow")
            return []
        if key == "a":
            return [request.approve() for request in requests]
        why = self.screen.ask("Why? The agent will see your reason (Enter for none):")
        if why is None:
            return []
        return [request.reject(why.text.strip()) for request in requests]


def chosen(words: str, most: int) -> list[int]:
    """Parse "1,3-5" into sorted numbers. Return none if one of them is not in the list."""
    numbers: list[int] = []
    for part in words.replace(",", " ").split():
        first, dash, last = part.partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash)) or len(part) > 9:
            return []
        numbers += range(int(first), int(last or first) + 1) if int(last or first) <= most else [0]
    return sorted(set(numbers)) if numbers and all(1 <= n <= most for n in numbers) else []


def _walk(inbox: Inbox, who: Caller, filters: dict[str, Any], *, plain: bool) -> Exit:
    if not can_prompt():
        raise NoReviewer("there is no terminal to ask in: run `sayso inbox --decide` in one")
    screen = Screen(plain=plain)
    try:
        return _Walk(screen, inbox, who, filters).run()
    except KeyboardInterrupt:
        screen.say("")
        return Exit.PENDING
    finally:
        screen.close()
